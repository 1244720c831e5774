//! Simulation of one cluster day on a virtual clock. The mixed load borrows nodes, preempts, writes checkpoints and
//! scales. Meanwhile nodes fail, and checkpoint storage is unavailable for an hour.
//!
//! The state machine is the real one, and every change of the state is a real command. Nodes, agents and processes are
//! simulated from a seed. The decisions come from an implementation of [`Control`], which proposes commands to the
//! [`Site`] and calls the site's agents. Invariants are checked with every committed command, by code that shares no
//! rule with control. The simulation keeps the true progress of each job, and the checks compare it with the recorded
//! state.
//!
//! Start with [`run`]; [`Scene`] lists the events of a day.

mod agents;
mod checks;
mod day_events;
mod event;
mod job_behavior;
mod machine;
mod planted_bug;
mod report;
mod scene;
mod site;
#[cfg(test)]
mod tests;
mod true_progress;

pub use job_behavior::{CheckpointReaction, JobBehavior};
pub use machine::PingState;
pub use planted_bug::PlantedBug;
pub use report::{DaySummary, Report};
pub use scene::{
    BORROWER, DAY_MS, DayEvent, OWNER, SENSITIVE, SERVICES, START, Scene, VclusterScene,
};
pub use site::Site;

use lattice_quorum_types::UnixMillis;

/// Shortest time between two passes of control after a change, milliseconds.
const MIN_PASS_INTERVAL_MS: u64 = 10_000;
/// Longest time between two passes of control, milliseconds: half of the interval at which services are evaluated.
const MAX_PASS_INTERVAL_MS: u64 = 30_000;
/// Time after the last submit within which all allocations must end, milliseconds.
const DRAIN_MS: u64 = 2 * DAY_MS;
/// Time after the end of the last allocation within which lent nodes must return, milliseconds.
const RETURN_TIMEOUT_MS: u64 = 20 * 60_000;

/// Control service under test, run pass by pass.
pub trait Control {
    /// Runs one pass of each reconciler: reads the state and proposes the resulting commands.
    fn run_pass(&mut self, now: UnixMillis);
}

/// Runs the day, and continues until its allocations have ended and lent nodes had time to return. Ends early after too
/// many violations, or if allocations do not end in time.
pub fn run(site: &Site, control: &mut dyn Control) -> Report {
    let mut looked_at = START;
    let mut empty_since = None;
    let until = site.scene().until;
    loop {
        let soon = UnixMillis((site.now().0 / MIN_PASS_INTERVAL_MS + 1) * MIN_PASS_INTERVAL_MS);
        let look_at = match site.has_changes() {
            true => soon,
            false => looked_at.after(MAX_PASS_INTERVAL_MS).max(soon),
        };
        match site.next_at() {
            Some(at) if at < look_at => site.step(),
            _ => {
                site.set_time(look_at);
                control.run_pass(look_at);
                site.check_after_pass();
                looked_at = look_at;
                let is_over = looked_at > until && site.is_empty();
                let since = is_over.then(|| empty_since.unwrap_or(looked_at));
                empty_since = since;
                let has_settled =
                    since.is_some_and(|since| looked_at > since.after(RETURN_TIMEOUT_MS));
                if has_settled || looked_at > until.after(DRAIN_MS) {
                    return site.end();
                }
                if site.has_max_violations() {
                    return site.end();
                }
            }
        }
    }
}
