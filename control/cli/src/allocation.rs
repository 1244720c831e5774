//! Allocations after their submit: the queue here, and a module for each kind of command.

mod actions;
mod details;
mod logs;
mod tenant_multiplier;
mod why;

pub use actions::{
    Action, CheckpointArgs, ExtendArgs, IdsArgs, SuspendArgs, act, checkpoint, extend, suspend,
};
pub use logs::{LogsArgs, logs};
pub(crate) use tenant_multiplier::TenantMultiplier;
pub use why::{WhyArgs, why};
pub(crate) use why::{score_text, with_details};

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, or_dash, time},
};
use clap::Args;
use lattice_api::allocation::{AllocationView, name_text};
use lattice_client::{AllocationFilter, JobRef};
use lattice_quorum_types::AllocationState;

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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::output::Format;

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
}
