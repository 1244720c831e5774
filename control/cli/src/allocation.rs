//! `lattice status · cancel · hold · release · logs · why`: allocations after their submit.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Format, or_dash, time},
};
use clap::Args;
use futures::StreamExt as _;
use lattice_api::{
    allocation::{AllocationView, write_bandwidth},
    explanation::{ExplanationView, ScoreView},
};
use lattice_client::{AllocationFilter, LogOptions, LogOutput};
use lattice_quorum_types::{AllocationId, AllocationState};
use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

/// Show the queue, or one allocation with all its ranks.
#[derive(Args)]
pub struct StatusArgs {
    /// One allocation.
    id: Option<u64>,
    /// Ended ones too.
    #[arg(short, long, conflicts_with = "states")]
    all: bool,
    /// Only in this state; repeat for several.
    #[arg(short, long = "state", value_name = "STATE")]
    states: Vec<AllocationState>,
    /// Only in this project and below it.
    #[arg(short, long)]
    project: Option<String>,
}

/// One or several allocations.
#[derive(Args)]
pub struct IdsArgs {
    /// Allocations.
    #[arg(required = true)]
    ids: Vec<u64>,
}

/// Print what the processes of an allocation wrote.
#[derive(Args)]
pub struct LogsArgs {
    /// The allocation.
    id: u64,
    /// Which rank's.
    #[arg(short, long, default_value_t = 0)]
    rank: u32,
    /// Standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Keep printing until the rank ends.
    #[arg(short, long)]
    follow: bool,
}

/// Say why an allocation is where it is.
#[derive(Args)]
pub struct WhyArgs {
    /// The allocation.
    id: u64,
}

const LIST: Columns<'_> = Columns {
    narrow: &[
        "id", "name", "project", "state", "nodes", "nodelist", "since", "reason",
    ],
    wide: &[
        "user",
        "walltime",
        "class",
        "attempt",
        "submitted",
        "started",
        "ended",
    ],
};

fn row(a: &AllocationView) -> Vec<String> {
    vec![
        a.id.to_string(),
        or_dash(a.name.as_deref()),
        a.project.clone(),
        a.state.clone(),
        a.nodes.to_string(),
        or_dash(Some(&a.nodelist)),
        time(&a.state_since),
        or_dash(why_so(a)),
        a.user.clone(),
        a.walltime.clone().unwrap_or_else(|| "unbounded".to_owned()),
        a.class.to_string(),
        a.attempt.to_string(),
        time(&a.submitted_at),
        or_dash(a.started_at.as_deref().map(time).as_deref()),
        or_dash(a.ended_at.as_deref().map(time).as_deref()),
    ]
}

/// Why it stands where it does. One that waits again tells why it waits, not what ended its last
/// attempt.
fn why_so(a: &AllocationView) -> Option<&str> {
    match waits(a) {
        true => a.reason.as_deref().or(a.stop.as_deref()),
        false => a.stop.as_deref().or(a.reason.as_deref()),
    }
}

fn waits(a: &AllocationView) -> bool {
    ["blocked", "pending", "held", "suspended"].contains(&a.state.as_str())
}

/// `lattice status`.
pub async fn status(args: &StatusArgs, connection: &Connection) -> Result<(), Failure> {
    if let Some(id) = args.id {
        return one(AllocationId(id), connection).await;
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
    output::print(connection.format, &found, LIST, found.iter().map(row))?;
    if found.is_empty() && !args.all {
        eprintln!("nothing is queued or running; `lattice status --all` shows what has ended");
    }
    Ok(())
}

async fn one(id: AllocationId, connection: &Connection) -> Result<(), Failure> {
    let a = connection.client.allocation(id).await?;
    if !matches!(connection.format, Format::Table | Format::Wide) {
        return Ok(output::print(connection.format, &a, LIST, [row(&a)])?);
    }
    let headers: Vec<&str> = LIST.narrow.iter().chain(LIST.wide).copied().collect();
    let mut lines: Vec<Vec<String>> = headers
        .iter()
        .zip(row(&a))
        .map(|(key, value)| vec![(*key).to_owned(), value])
        .collect();
    for line in &mut lines {
        match line[0].as_str() {
            "attempt" => line[1] = attempts(&a),
            "reason" => line[1] = or_dash(a.reason.as_deref()),
            _ => {}
        }
    }
    if let Some(stop) = &a.stop {
        let key = match waits(&a) {
            true => "requeued because".to_owned(),
            false => format!("{} because", a.state),
        };
        lines.push(vec![key, stop.clone()]);
    }
    let files = a
        .workload
        .as_ref()
        .map(|w| [("output", &w.output), ("error", &w.error)]);
    for (key, file) in files.into_iter().flatten() {
        lines.extend(file.as_ref().map(|file| vec![key.to_owned(), file.clone()]));
    }
    lines.extend(demand(&a).map(|(key, value)| vec![key.to_owned(), value]));
    output::print(
        connection.format,
        &a,
        Columns::only(&["key", "value"]),
        lines,
    )?;
    if a.ranks.is_empty() {
        return Ok(());
    }
    output::line("")?;
    let ranks = a.ranks.iter().map(|rank| {
        vec![
            rank.rank.to_string(),
            rank.node.clone(),
            rank.phase.clone(),
            or_dash(rank.since.as_deref().map(time).as_deref()),
            or_dash(rank.exit.as_deref()),
        ]
    });
    let columns = Columns::only(&["rank", "node", "phase", "since", "exit"]);
    Ok(output::print(connection.format, &a, columns, ranks)?)
}

/// What it said of its demand.
fn demand(a: &AllocationView) -> impl Iterator<Item = (&'static str, String)> {
    let rates = a.storage_gb_s.iter();
    let rates: Vec<_> = rates
        .map(|(system, gb_s)| format!("{system}={}", write_bandwidth(*gb_s)))
        .collect();
    [
        ("data ready", a.data_ready.map(|part| part.to_string())),
        ("checkpoint time", a.checkpoint_time.clone()),
        ("storage", (!rates.is_empty()).then(|| rates.join(" "))),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key, value?)))
}

/// How often it was given nodes, and what happens when one is lost.
fn attempts(a: &AllocationView) -> String {
    let again = match a.attempt {
        0 | 1 => String::new(),
        2 => ", requeued once".to_owned(),
        n => format!(", requeued {} times", n - 1),
    };
    format!(
        "{}{again}; requeue when a node is lost: {}",
        a.attempt, a.requeue
    )
}

/// What is done to each of several allocations.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// End it.
    Cancel,
    /// Keep it from starting.
    Hold,
    /// Let it start again.
    Release,
}

/// `lattice cancel`, `hold`, `release`: all are tried; the first failure decides the exit code.
pub async fn act(args: &IdsArgs, action: Action, connection: &Connection) -> Result<(), Failure> {
    let mut first = None;
    for id in args.ids.iter().copied().map(AllocationId) {
        let done = match action {
            Action::Cancel => connection.client.cancel(id).await,
            Action::Hold => connection.client.hold(id).await,
            Action::Release => connection.client.release(id).await,
        };
        let word = match action {
            Action::Cancel => "cancel accepted",
            Action::Hold => "held",
            Action::Release => "released",
        };
        match done {
            Ok(_) => eprintln!("{id}: {word}"),
            Err(error) => {
                Failure::note(&mut first, error.into());
            }
        }
    }
    first.map_or(Ok(()), Err)
}

/// `lattice logs`.
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
    let mut chunks = connection
        .client
        .logs(AllocationId(args.id), options)
        .await?;
    let mut out = io::stdout().lock();
    while let Some(chunk) = chunks.next().await {
        let written = out.write_all(&chunk?).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other.map_err(anyhow::Error::from)?,
        }
    }
    Ok(())
}

/// `lattice why`.
pub async fn why(args: &WhyArgs, connection: &Connection) -> Result<(), Failure> {
    let why = connection.client.explanation(AllocationId(args.id)).await?;
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
        why.allocation, why.state, why.summary
    );
    with_details(summary, why)
}

/// The same in numbers, below its summary.
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
        let _ = write!(text, "\n  held back for it from then on: {nodes}");
    }
    if let Some(at) = &why.as_of {
        let _ = write!(text, "\n  as of: {}", time(at));
    }
    if let Some(score) = &why.score {
        let _ = write!(text, "\n{}", in_numbers(score));
    }
    text
}

/// The nine factors, a line each.
pub(crate) fn in_numbers(score: &ScoreView) -> String {
    let ahead = match score.ahead {
        0 => "nothing of its queue comes before it".to_owned(),
        1 => "1 of its queue comes before it".to_owned(),
        ahead => format!("{ahead} of its queue come before it"),
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
    if score.budget < 1.0 {
        let _ = write!(text, "\n    {:<12} {:>26.4}", "budget", score.budget);
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn why_says_when_it_was_planned_where_it_was() {
        let told = |as_of: serde_json::Value| {
            let why = serde_json::json!({
                "allocation": 7, "state": "pending", "summary": "waits", "as_of": as_of,
            });
            in_words(&serde_json::from_value(why).unwrap())
        };
        let planned = told("2026-11-23T04:41:18.073Z".into());
        assert_eq!(
            planned,
            "allocation 7 is pending: waits\n  as of: 2026-11-23T04:41:18Z"
        );
        let unplanned = told(serde_json::Value::Null);
        assert_eq!(unplanned, "allocation 7 is pending: waits");
    }
}
