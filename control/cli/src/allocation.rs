//! `lattice status · cancel · hold · release · requeue · suspend · resume · extend · checkpoint · logs · why`:
//! allocations after their submit.

mod details;
mod tenant_multiplier;

pub(crate) use tenant_multiplier::TenantMultiplier;

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, Format, ResultList, or_dash, time, until},
};
use clap::Args;
use futures::StreamExt as _;
use lattice_api::{
    allocation::{AllocationView, CheckpointRequest, ExtendRequest, name_text},
    explanation::{ExplanationView, ScoreView},
    problem::FieldError,
};
use lattice_client::{AllocationFilter, JobRef, LogOptions, LogOutput};
use lattice_quorum_types::AllocationState;
use serde::Serialize;
use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write as _},
};

/// Show the queue, or one allocation with all its ranks.
#[derive(Args)]
pub struct StatusArgs {
    /// Allocation to show: its number, or an array element as 12_7.
    id: Option<JobRef>,
    /// Include ended allocations.
    #[arg(short, long, conflicts_with = "states")]
    all: bool,
    /// Show this state only; repeat for several.
    #[arg(short, long = "state", value_name = "STATE")]
    states: Vec<AllocationState>,
    /// Show this project only, with everything below it.
    #[arg(short, long)]
    project: Option<String>,
}

/// One or several allocations.
#[derive(Args)]
pub struct IdsArgs {
    /// Allocation numbers; array elements as 12_7.
    #[arg(required = true)]
    ids: Vec<JobRef>,
}

/// Allocations to suspend, and the method.
#[derive(Args)]
pub struct SuspendArgs {
    #[command(flatten)]
    which: IdsArgs,
    /// Write a job checkpoint first, or wait for the one in progress. If the checkpoint fails, the allocation is
    /// suspended without it. Refused for an allocation that has no checkpoint mode, or does not run.
    #[arg(long)]
    checkpoint: bool,
}

/// Change the walltime of an allocation. Only operators may make it longer.
///
/// The nodes of a running allocation receive the new walltime and end the allocation at that time. The walltime cannot
/// be shorter than the time that the allocation has already run.
///
/// For example: lattice extend 12 +30m, or lattice extend 12 4h
#[derive(Args)]
pub struct ExtendArgs {
    /// Allocation number, or an array element as 12_7.
    id: JobRef,
    /// Total walltime, including the run time in the checkpoint that the allocation resumed from: 4h. Or an increment:
    /// +30m.
    walltime: String,
}

/// Request a job checkpoint of a running allocation, which keeps running. For its user and for operators.
#[derive(Args)]
pub struct CheckpointArgs {
    /// Allocation number, or an array element as 12_7.
    id: JobRef,
    /// Time that the checkpoint may take [default: 10m].
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Target directory, an absolute path [default: the directory of the allocation or the site].
    #[arg(long, value_name = "DIR")]
    directory: Option<String>,
}

/// Print the output of an allocation's processes.
#[derive(Args)]
pub struct LogsArgs {
    /// Allocation number, or an array element as 12_7.
    id: JobRef,
    /// Rank, from 0.
    #[arg(short, long, default_value_t = 0)]
    rank: u32,
    /// Print standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Keep printing until the rank ends.
    #[arg(short, long)]
    follow: bool,
}

/// Explain the state of an allocation.
#[derive(Args)]
pub struct WhyArgs {
    /// Allocation number, or an array element as 12_7.
    id: JobRef,
}

const LIST: Columns<'_> = Columns {
    narrow: &[
        "id",
        "name",
        "project",
        "state",
        "nodes",
        "nodelist",
        "state_since",
        "time_left",
        "reason",
    ],
    wide: &[
        "ends_at",
        "user",
        "walltime",
        "class",
        "attempt",
        "submitted_at",
        "started_at",
        "ended_at",
    ],
};

/// Columns that a narrow terminal leaves out, in this order. Number, state and reason are always shown.
const DROPPED_FIRST: &[&str] = &[
    "state_since",
    "name",
    "nodes",
    "nodelist",
    "time_left",
    "project",
];

fn row(a: &AllocationView) -> Vec<String> {
    vec![
        name(a),
        or_dash(a.name.as_deref()),
        a.project.clone(),
        a.state.clone(),
        a.nodes.to_string(),
        or_dash(Some(&a.nodelist).filter(|_| !waits(a)).map(String::as_str)),
        time(&a.state_since),
        or_dash(a.time_left.as_deref()),
        or_dash(state_reason(a).as_deref()),
        or_dash(a.ends_at.as_deref().map(time).as_deref()),
        a.user.clone(),
        a.walltime.clone().unwrap_or_else(|| "unbounded".to_owned()),
        a.class.to_string(),
        a.attempt.to_string(),
        time(&a.submitted_at),
        or_dash(a.started_at.as_deref().map(time).as_deref()),
        or_dash(a.ended_at.as_deref().map(time).as_deref()),
    ]
}

fn name(a: &AllocationView) -> String {
    name_text(a.id, a.element.as_ref())
}

/// Returns the reason for the state. For an allocation that waits again, the reason for the wait takes precedence over
/// the reason for the end of its last attempt. While an allocation is being stopped, both count: why it is stopped, and
/// what is wrong or due meanwhile.
fn state_reason(a: &AllocationView) -> Option<String> {
    match (waits(a), &a.stop, &a.reason) {
        (false, Some(stop), Some(reason)) => Some(format!("{stop}; {reason}")),
        (true, stop, reason) => reason.as_ref().or(stop.as_ref()).cloned(),
        (false, stop, reason) => stop.as_ref().or(reason.as_ref()).cloned(),
    }
}

fn waits(a: &AllocationView) -> bool {
    ["blocked", "pending", "held", "suspended"].contains(&a.state.as_str())
}

/// Runs `lattice status`.
pub async fn status(args: &StatusArgs, connection: &Connection) -> Result<(), Failure> {
    if let Some(id) = args.id {
        return details::show(id, connection).await;
    }
    let states = match (args.all, args.states.is_empty()) {
        (true, _) => Vec::new(),
        (false, false) => args.states.clone(),
        (false, true) => AllocationState::ALL
            .into_iter()
            .filter(|state| !state.is_terminal())
            .collect(),
    };
    let filter = AllocationFilter {
        states,
        project: args.project.clone(),
        user: None,
    };
    let found = connection.client.allocations(&filter).await?;
    let rows = found.iter().map(row);
    output::print_fitted(
        connection.format,
        &found,
        LIST,
        Fitting::Lines(DROPPED_FIRST),
        rows,
    )?;
    if found.is_empty() && !args.all {
        output::message!(
            "nothing is queued or running; `lattice status --all` shows what has ended"
        );
    }
    Ok(())
}

/// Action on several allocations.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// Cancel the allocation.
    Cancel,
    /// Hold the allocation, so that it does not start.
    Hold,
    /// Release the held allocation.
    Release,
    /// Put the allocation back into the queue.
    Requeue,
    /// Take the allocation off its nodes until it is resumed.
    Suspend,
    /// Suspend the allocation after a job checkpoint.
    SuspendAfterCheckpoint,
    /// Put the suspended allocation back into the queue.
    Resume,
}

/// Runs `lattice cancel`, `hold`, `release`, `requeue`, `suspend`, `resume`. Every allocation is tried; the first
/// failure determines the exit code.
pub async fn act(args: &IdsArgs, action: Action, connection: &Connection) -> Result<(), Failure> {
    let mut all = ResultList::for_count(connection.format, args.ids.len());
    for id in args.ids.iter().copied() {
        let done = match action {
            Action::Cancel => connection.client.cancel(id).await,
            Action::Hold => connection.client.hold(id).await,
            Action::Release => connection.client.release(id).await,
            Action::Requeue => connection.client.requeue(id).await,
            Action::Suspend => connection.client.suspend(id).await,
            Action::SuspendAfterCheckpoint => connection.client.suspend_after_checkpoint(id).await,
            Action::Resume => connection.client.resume(id).await,
        };
        let word = |now: &AllocationView| match action {
            Action::Cancel => "cancel accepted",
            Action::Hold => "held",
            Action::Release => "released",
            Action::Requeue => "requeued",
            Action::Suspend => "suspend accepted",
            Action::SuspendAfterCheckpoint if now.state == "suspended" => "suspended already",
            Action::SuspendAfterCheckpoint => "suspended once its checkpoint is written",
            Action::Resume => "resumed",
        };
        match done {
            Ok(now) => {
                let sentence = format!("{}: {}", name(&now), word(&now));
                all.add(now, &sentence);
            }
            Err(error) => all.refuse(&id.to_string(), error.into()),
        }
    }
    all.finish(LIST, row)
}

/// Runs `lattice suspend`.
pub async fn suspend(args: &SuspendArgs, connection: &Connection) -> Result<(), Failure> {
    let action = match args.checkpoint {
        true => Action::SuspendAfterCheckpoint,
        false => Action::Suspend,
    };
    act(&args.which, action, connection).await
}

/// Runs `lattice extend`.
pub async fn extend(args: &ExtendArgs, connection: &Connection) -> Result<(), Failure> {
    let walltime = args.walltime.clone();
    let request = ExtendRequest { walltime };
    let usage = |error: FieldError| Failure::usage(error.to_string());
    request.read().map_err(usage)?;
    let extended = connection.client.extend(args.id, &request).await?;
    let walltime = or_dash(extended.walltime.as_deref());
    let sentence = format!("{}: walltime is now {walltime}", name(&extended));
    let mut all = ResultList::for_count(connection.format, 1);
    all.add(extended, &sentence);
    all.finish(LIST, row)
}

/// Runs `lattice checkpoint`.
pub async fn checkpoint(args: &CheckpointArgs, connection: &Connection) -> Result<(), Failure> {
    let request = CheckpointRequest {
        timeout: args.timeout.clone(),
        directory: args.directory.clone(),
    };
    let usage = |error: FieldError| Failure::usage(format!("--{error}"));
    request.timeout_ms().map_err(usage)?;
    let shown = connection.client.checkpoint(args.id, &request).await?;
    let name = name(&shown);
    let checkpoints = shown.checkpoints.as_ref();
    let writing = checkpoints.and_then(|all| all.in_progress.as_ref());
    let sentence = match writing {
        Some(writing) => format!(
            "{name}: writes checkpoint {} to {}; times out at {}",
            writing.number,
            writing.directory,
            time(&writing.times_out_at)
        ),
        None => format!("{name}: checkpoint accepted"),
    };
    let mut all = ResultList::for_count(connection.format, 1);
    all.add(shown, &sentence);
    all.finish(LIST, row)
}

/// Runs `lattice logs`.
pub async fn logs(args: &LogsArgs, connection: &Connection) -> Result<(), Failure> {
    let options = LogOptions {
        rank: args.rank,
        output: match args.stderr {
            true => LogOutput::Stderr,
            false => LogOutput::Stdout,
        },
        offset: 0,
        follow: args.follow,
    };
    if !connection.format.is_for_reading() {
        return logs_document(args, options, connection).await;
    }
    let mut chunks = connection.client.logs(args.id, options).await?;
    let mut out = output::job_output();
    while let Some(chunk) = chunks.next().await {
        let written = out.write_all(&chunk?).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other.map_err(anyhow::Error::from)?,
        }
    }
    Ok(())
}

/// Largest output that is printed as a document, bytes.
const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// Output of one rank, as a document.
#[derive(Serialize)]
struct LogsDocument {
    allocation: String,
    rank: u32,
    /// `stdout` or `stderr`.
    stream: &'static str,
    /// Output; bytes that are not UTF-8 are replaced.
    text: String,
    /// Whether `text` is the output exactly.
    is_exact: bool,
}

/// Prints the output of one rank as a document.
async fn logs_document(
    args: &LogsArgs,
    options: LogOptions,
    connection: &Connection,
) -> Result<(), Failure> {
    if args.follow {
        return Err(Failure::usage(
            "--follow prints the output while it is written, which is not one document: leave out --follow or -o",
        ));
    }
    let mut chunks = connection.client.logs(args.id, options).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        bytes.extend_from_slice(&chunk?);
        if bytes.len() > MAX_DOCUMENT_BYTES {
            return Err(Failure::refused(format!(
                "the output is larger than {MAX_DOCUMENT_BYTES} bytes, the limit of a document: leave out -o"
            )));
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let document = LogsDocument {
        allocation: args.id.to_string(),
        rank: args.rank,
        stream: if args.stderr { "stderr" } else { "stdout" },
        is_exact: matches!(text, Cow::Borrowed(_)),
        text: text.into_owned(),
    };
    Ok(output::print_done(connection.format, &document, "")?)
}

/// Runs `lattice why`.
pub async fn why(args: &WhyArgs, connection: &Connection) -> Result<(), Failure> {
    let why = connection.client.explanation(args.id).await?;
    match connection.format {
        Format::Table | Format::Wide => Ok(output::line(&in_words(&why))?),
        format => {
            let steps = why.steps.iter().map(|step| {
                vec![
                    step.constraint.clone(),
                    step.removed.to_string(),
                    step.left.to_string(),
                ]
            });
            let columns = Columns::only(&["constraint", "removed", "left"]);
            Ok(output::print(format, &why, columns, steps)?)
        }
    }
}

fn in_words(why: &ExplanationView) -> String {
    let summary = format!(
        "allocation {} is {}: {}",
        name_text(why.allocation, why.element.as_ref()),
        why.state,
        why.summary
    );
    with_details(summary, why)
}

/// Appends the details of the explanation to its summary.
pub(crate) fn with_details(summary: String, why: &ExplanationView) -> String {
    let mut text = summary;
    for step in &why.steps {
        let _ = write!(
            text,
            "\n  {}: {} removed, {} left",
            step.constraint, step.removed, step.left
        );
    }
    if let Some(start) = &why.estimated_start {
        let _ = write!(text, "\n  estimated start: {}", time(start));
    }
    if let Some(nodes) = &why.reserved {
        let _ = write!(
            text,
            "\n  nodes reserved from the estimated start on: {nodes}"
        );
    }
    if let Some(at) = &why.as_of {
        let _ = write!(text, "\n  as of: {}", time(at));
    }
    for (name, at) in [
        ("time limit ends at", &why.ends_at),
        ("SIGKILL at", &why.kill_at),
    ] {
        if let Some(at) = at {
            let _ = write!(text, "\n  {name}: {}", until(Format::Table, at));
        }
    }
    for problem in &why.node_problems {
        let _ = write!(text, "\n  {}: {}", problem.status, problem.nodes);
        if let Some(reason) = &problem.reason {
            let _ = write!(text, " ({reason})");
        }
    }
    if let Some(score) = &why.score {
        let _ = write!(text, "\n{}", score_text(score));
    }
    text
}

/// Formats the score: the total with the place in the queue, one line per factor, the sum, and the factors of the
/// tenant if one of them is below 1.
pub(crate) fn score_text(score: &ScoreView) -> String {
    let ahead = match score.ahead {
        0 => "first in its queue".to_owned(),
        1 => "1 allocation ahead in its queue".to_owned(),
        ahead => format!("{ahead} allocations ahead in its queue"),
    };
    let mut text = format!("  score {:.4}; {ahead}", score.total);
    let _ = write!(
        text,
        "\n    {:<12} {:>8} {:>8} {:>8}",
        "factor", "value", "weight", "product"
    );
    for factor in &score.factors {
        let product = factor.value * factor.weight;
        let (name, value, weight) = (&factor.name, factor.value, factor.weight);
        let _ = write!(
            text,
            "\n    {name:<12} {value:>8.4} {weight:>8.4} {product:>8.4}"
        );
    }
    let _ = write!(text, "\n    {:<12} {:>26.4}", "sum", score.sum);
    let tenant = TenantMultiplier::of_score(score);
    let acting = tenant.acting();
    if let Some(acting) = acting {
        let name = format!("x {}", acting.name);
        let _ = write!(
            text,
            "\n    {name:<12} {:>26.4}  multiplies the sum: {}",
            acting.value, acting.cause
        );
    }
    for other in tenant.others(acting) {
        let _ = write!(
            text,
            "\n    {:<12} {:>26.4}  no effect: only the lowest factor multiplies",
            other.name, other.value
        );
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn why_shows_plan_time() {
        let sentences_at = |as_of: serde_json::Value| {
            let why = serde_json::json!({
                "allocation": 7, "state": "pending", "summary": "waits", "as_of": as_of,
            });
            in_words(&serde_json::from_value(why).unwrap())
        };
        let planned = sentences_at("2026-11-23T04:41:18.073Z".into());
        assert_eq!(
            planned,
            "allocation 7 is pending: waits\n  as of: 2026-11-23T04:41:18Z"
        );
        let unplanned = sentences_at(serde_json::Value::Null);
        assert_eq!(unplanned, "allocation 7 is pending: waits");
    }

    fn shown(fields: serde_json::Value) -> AllocationView {
        let mut view = serde_json::json!({
            "id": 7, "user": "ada", "project": "atlas", "vcluster": "default", "state": "running",
            "state_since": "2026-11-23T04:00:00Z", "submitted_at": "2026-11-23T03:00:00Z",
            "nodes": 2, "nodelist": "gpu[001-002]", "attempt": 1, "class": 5, "sensitive": false,
            "constraints": {}, "requeue": "never", "ranks": [], "revision": 1,
        });
        let all = view.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        serde_json::from_value(view).unwrap()
    }

    fn cell(a: &AllocationView, name: &str) -> String {
        let mut names = LIST.narrow.iter().chain(LIST.wide);
        let place = names.position(|column| *column == name).unwrap();
        row(a).swap_remove(place)
    }

    /// Queue with long names, a large allocation and the longest reasons.
    fn queue() -> Vec<AllocationView> {
        let since = "2026-11-21T07:25:39.120Z";
        let all = serde_json::json!([
            {
                "id": 3, "name": "train", "project": "atlas/operations/web", "nodes": 20,
                "nodelist": "gpu[001-012,101-107,109]", "time_left": "58 s",
                "reason": "node gpu001 unreachable; SIGKILL in 18 s",
            },
            {
                "id": 1_000_000_900, "element": {"array": 1_000_000_232, "index": 1023},
                "name": "hyper-parameter-search-of-a-large-model",
                "project": "atlas/physics/simulation/lattice-qcd", "nodes": 128,
                "nodelist": "gpu[001-128]", "time_left": "2 h",
            },
            {
                "id": 4, "project": "atlas/operations/web", "state": "pending", "nodes": 20, "nodelist": "",
                "reason": "needs 20 of 24 nodes: 4 free; waiting for 16 more to be free",
            },
        ]);
        let all = all.as_array().unwrap().iter().cloned();
        all.map(|mut fields| {
            fields["state_since"] = since.into();
            shown(fields)
        })
        .collect()
    }

    fn queue_lines(format: Format, width: usize) -> Vec<String> {
        let fitting = Fitting::Lines(DROPPED_FIRST);
        let queue = queue();
        let rows = queue.iter().map(row);
        let text = output::table_text(format, LIST, fitting, rows, Some(width));
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn queue_fits_80_columns() {
        assert_eq!(
            queue_lines(Format::Table, 80),
            [
                "ID               PROJECT            STATE    TIME_LEFT  REASON",
                "3                atlas/…/web        running  58 s       node gpu001 unreachable…",
                "1000000232_1023  atlas/physi…e-qcd  running  2 h        -",
                "4                atlas/…/web        pending  -          needs 20 of 24 nodes: 4…",
            ]
        );
        assert_eq!(
            queue_lines(Format::Table, 100),
            [
                "ID               PROJECT             STATE    NODELIST           TIME_LEFT  REASON",
                "3                atlas/…/web         running  gpu[001-012…,109]  58 s       node gpu001 unreachable…",
                "1000000232_1023  atlas/physic…e-qcd  running  gpu[001-128]       2 h        -",
                "4                atlas/…/web         pending  -                  -          needs 20 of 24 nodes: 4…",
            ]
        );
    }

    /// `-o wide` leaves nothing out in a narrow terminal, and has one line per allocation.
    #[test]
    fn wide_queue_is_complete_in_80_columns() {
        let lines = queue_lines(Format::Wide, 80);
        assert_eq!(lines.len(), 4);
        let header: Vec<String> = lines[0].split_whitespace().map(str::to_lowercase).collect();
        assert_eq!(header, [LIST.narrow, LIST.wide].concat());
        let reason = "needs 20 of 24 nodes: 4 free; waiting for 16 more to be free";
        assert!(lines[3].contains(reason), "{lines:?}");
        assert!(lines[2].contains("hyper-parameter-search-of-a-large-model"));
    }

    #[test]
    fn running_row_shows_time_left_and_problem() {
        let fine = serde_json::json!({"ends_at": "2026-11-23T06:30:00.000Z", "time_left": "2 h"});
        let fine = shown(fine);
        assert_eq!(
            ["time_left", "ends_at", "reason"].map(|name| cell(&fine, name)),
            ["2 h", "2026-11-23T06:30:00Z", "-"]
        );
        let silent = shown(serde_json::json!({"reason": "node gpu001 unreachable"}));
        assert_eq!(cell(&silent, "reason"), "node gpu001 unreachable");
        assert_eq!(cell(&silent, "time_left"), "-");
        let over = shown(serde_json::json!({
            "ends_at": "2026-11-23T04:29:48Z", "time_left": "0 s", "kill_at": "2026-11-23T04:30:18Z",
            "reason": "time limit reached, SIGKILL in 18 s",
        }));
        assert_eq!(cell(&over, "time_left"), "0 s");
        assert_eq!(cell(&over, "reason"), "time limit reached, SIGKILL in 18 s");
    }

    #[test]
    fn stopping_row_shows_cause_and_due_sigkill() {
        let stopping = shown(serde_json::json!({
            "state": "stopping", "stop": "cancelled by ada", "reason": "SIGKILL in 18 s",
        }));
        assert_eq!(
            cell(&stopping, "reason"),
            "cancelled by ada; SIGKILL in 18 s"
        );
        // A waiting allocation shows the reason of its wait, not that of the end of its last attempt.
        let again = shown(serde_json::json!({
            "state": "pending", "stop": "node gpu001 lost", "reason": "on hold",
        }));
        assert_eq!(cell(&again, "reason"), "on hold");
    }

    #[test]
    fn why_lists_problems_of_a_running_allocation() {
        let why = serde_json::json!({
            "allocation": 7, "state": "running", "summary": "runs; node gpu001 unreachable",
            "ends_at": "2020-01-01T00:00:00.000Z",
            "node_problems": [
                {"status": "unreachable", "nodes": "gpu001", "reason": "does not answer control"},
                {"status": "draining", "nodes": "gpu002"},
            ],
        });
        let text = in_words(&serde_json::from_value(why).unwrap());
        assert!(
            text.starts_with(
                "allocation 7 is running: runs; node gpu001 unreachable\n  time limit ends at: \
                 2020-01-01T00:00:00Z ("
            ),
            "{text}"
        );
        assert!(
            text.ends_with("\n  unreachable: gpu001 (does not answer control)\n  draining: gpu002"),
            "{text}"
        );
    }

    #[test]
    fn why_names_the_factor_that_multiplies() {
        let text = |factors: serde_json::Value| {
            let mut score = serde_json::json!({
                "factors": [{"name": "priority", "value": 0.5, "weight": 0.4}], "sum": 0.2,
                "budget": 1.0, "total": 0.2, "ahead": 1,
            });
            let all = score.as_object_mut().unwrap();
            all.extend(factors.as_object().unwrap().clone());
            score_text(&serde_json::from_value(score).unwrap())
        };
        let plain = text(serde_json::json!({"share": 1.0, "accounting": 1.0}));
        assert!(
            plain.ends_with("0.2000") && plain.contains("\n    sum "),
            "{plain}"
        );
        let share = serde_json::json!({"share": 0.05, "accounting": 1.0, "total": 0.01});
        let share = text(share);
        let lines: Vec<_> = share.lines().collect();
        let expected = [
            "  score 0.0100; 1 allocation ahead in its queue",
            "    factor          value   weight  product",
            "    priority       0.5000   0.4000   0.2000",
            "    sum                              0.2000",
            "    x share                          0.0500  multiplies the sum: the tenant is above its fair \
             share and holds its burst allowance of nodes or more",
            "    budget                           1.0000  no effect: only the lowest factor multiplies",
            "    accounting                       1.0000  no effect: only the lowest factor multiplies",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn element_is_named_by_array_and_index() {
        let element = serde_json::json!({"array": 232, "index": 50});
        let why = serde_json::json!({
            "allocation": 283, "element": element, "state": "pending", "summary": "waits",
        });
        let why = in_words(&serde_json::from_value(why).unwrap());
        assert_eq!(why, "allocation 232_50 is pending: waits");
    }
}
