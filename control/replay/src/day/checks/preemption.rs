//! Invariants of preemption and reclaims: no victim is sensitive, of class 10, writing a checkpoint or stopping. No
//! victim of a preemption has an equal or higher class, is near its end, was moved recently, or has class 7 or above
//! without a checkpoint mode. No reclaim stops a job before the grace period is over.

use super::{AllocationSnapshot, Checks};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, UnixMillis, command::Victim,
    progress::MoveReason,
};

/// Documented periods, milliseconds: time before the end of a job, time after a move, grace period of a reclaim.
const NEAR_END_MS: u64 = 300_000;
const MOVE_INTERVAL_MS: u64 = 900_000;
const GRACE_MS: u64 = 60_000;
/// Number of preemptions and reclaims after which an allocation counts as one class higher.
const THRASH_COUNT: u32 = 3;

impl Checks {
    /// Checks the victims of a preemption or reclaim.
    pub(super) fn check_victims(&mut self, state: &State, command: &Command, now: UnixMillis) {
        let mut wrong = Vec::new();
        match command {
            Command::Preempt { id, nodes, victims } => {
                let job = state.allocation(*id);
                let class = job.map_or(0, |job| job.spec.class);
                for victim in victims {
                    let Some(seen) = self.allocations.get(&victim.id) else {
                        continue;
                    };
                    let why =
                        never_victim_reason(seen).or_else(|| victim_violation(seen, class, now));
                    wrong.extend(why.map(|why| violation_text(victim, *id, why)));
                    if !seen.record.nodes().any(|node| nodes.contains(node)) {
                        wrong.push(violation_text(
                            victim,
                            *id,
                            "holds none of the nodes for the job",
                        ));
                    }
                }
            }
            Command::MakeRoom {
                victim,
                reason: MoveReason::Reclaimed { home },
            } => {
                let Some(seen) = self.allocations.get(&victim.id) else {
                    return;
                };
                wrong.extend(never_victim_reason(seen).map(|why| {
                    format!("{} is stopped for a reclaim although it {why}", victim.id)
                }));
                let of_home = seen.record.nodes().filter_map(|node| self.nodes.get(node));
                let mut lent = of_home.filter(|node| node.home == *home && node.current != *home);
                let is_due = |at: UnixMillis| now >= at.after(GRACE_MS);
                if !lent.any(|node| node.reclaimed_at.is_some_and(is_due)) {
                    let what = "is stopped for a reclaim before the grace period was over";
                    wrong.push(format!("{} {what}", victim.id));
                }
            }
            _ => {}
        }
        for what in wrong {
            self.add(now, what);
        }
    }
}

fn violation_text(victim: &Victim, by: AllocationId, why: &str) -> String {
    format!("{} is preempted for {by} although it {why}", victim.id)
}

/// Returns the reason why an allocation can never be a victim.
fn never_victim_reason(seen: &AllocationSnapshot) -> Option<&'static str> {
    let record = &seen.record;
    let is_steady = matches!(
        record.state,
        AllocationState::Starting | AllocationState::Running
    );
    match () {
        () if record.spec.sensitive => Some("is sensitive"),
        () if record.spec.class >= 10 => Some("is of class 10"),
        () if !is_steady => Some("writes a checkpoint or is being stopped"),
        () => None,
    }
}

fn victim_violation(seen: &AllocationSnapshot, class: u8, now: UnixMillis) -> Option<&'static str> {
    let record = &seen.record;
    let counts_as = record.spec.class + u8::from(seen.moves >= THRASH_COUNT);
    let is_recent = seen
        .moved_at
        .is_some_and(|at| now.since(at) < MOVE_INTERVAL_MS);
    let is_near = ends_at(record).is_some_and(|at| at <= now.after(NEAR_END_MS));
    match () {
        () if counts_as >= class => Some("is not of a lower class"),
        () if is_recent => Some("was moved recently"),
        () if is_near => Some("is near its end"),
        () if record.spec.class >= 7 && record.spec.terms.checkpoint.is_none() => {
            Some("has no checkpoint mode and is of class 7 or above")
        }
        () => None,
    }
}

/// End of the walltime of a running allocation.
fn ends_at(record: &Allocation) -> Option<UnixMillis> {
    let since = record.ranks.iter().map(|rank| rank.phase.running_since());
    let since = since.collect::<Option<Vec<_>>>()?.into_iter().max()?;
    let left = record
        .spec
        .walltime_ms?
        .saturating_sub(record.progress.resumed_ms);
    Some(since.after(left))
}
