//! Deadline and resume reconciler: preempted or reclaimed allocations wait for nodes again, and allocations that cannot
//! meet their deadline expire. The quorum decides on both; this reconciler only proposes when they are due.

use crate::{
    core::Core,
    tasks::reconciler::{Reconciler, ReconcilerPace},
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, UnixMillis,
    allocation::StopCause,
    command::Fence,
    progress::{MoveReason, Tally},
};
use lattice_view::View;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Deadlines pass without an event, so a period is needed.
const PACE: ReconcilerPace = ReconcilerPace {
    period: Duration::from_secs(1),
    spacing: Duration::from_millis(5),
};
/// Delay before a command that was rejected or not answered is proposed again: limits may have headroom then.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Result of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeadlineResumeReport {
    /// Allocations that wait for nodes again.
    pub(crate) resumed: usize,
    /// Allocations with a missed deadline.
    pub(crate) expired: usize,
    /// Commands of both kinds that were rejected or not answered.
    pub(crate) refused: usize,
}

/// Deadline and resume reconciler; see the module.
#[derive(Debug)]
pub struct DeadlineResumeTask {
    core: Arc<Core>,
    /// Allocations with a command that was rejected or not answered, and when each is tried again.
    refused: BTreeMap<AllocationId, Instant>,
}

impl Reconciler for DeadlineResumeTask {
    const NAME: &'static str = "moves";

    fn pace(&self) -> ReconcilerPace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        let report = self.reconcile(&fence).await;
        if report != DeadlineResumeReport::default() {
            tracing::debug!(?report, "moves");
        }
    }

    fn forget(&mut self) {
        self.refused.clear();
    }
}

impl DeadlineResumeTask {
    /// New [`DeadlineResumeTask`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            refused: BTreeMap::new(),
        }
    }

    /// Proposes the commands that are due.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> DeadlineResumeReport {
        let view = self.core.view();
        let now = Instant::now();
        self.refused
            .retain(|id, until| *until > now && view.examined_later.contains(id));
        let due: Vec<Command> = due(&view, self.core.now())
            .filter(|(id, _)| !self.refused.contains_key(id))
            .map(|(_, command)| command)
            .collect();
        let mut report = DeadlineResumeReport::default();
        for command in due {
            let (id, is_resumed) = match &command {
                Command::Resume { id } => (*id, true),
                Command::Expire { id } => (*id, false),
                _ => continue,
            };
            match self
                .core
                .propose_as_service(Some(fence.clone()), command)
                .await
            {
                Ok(_) if is_resumed => report.resumed += 1,
                Ok(_) => report.expired += 1,
                Err(error) => {
                    tracing::debug!(%id, %error, "allocation not resumed or expired yet; trying again");
                    self.refused.insert(id, now + AGAIN_AFTER);
                    report.refused += 1;
                }
            }
        }
        report
    }
}

/// Returns the commands to propose now.
fn due(view: &View, now: UnixMillis) -> impl Iterator<Item = (AllocationId, Command)> {
    let dated = view
        .examined_later
        .iter()
        .filter_map(|id| view.allocation(*id));
    dated.filter_map(move |held| {
        let id = held.id;
        if is_late(held, now) {
            return Some((id, Command::Expire { id }));
        }
        resumes_itself(held).then_some((id, Command::Resume { id }))
    })
}

/// Whether the allocation was suspended by preemption or reclaim and so waits for nodes again by itself. A suspension
/// by an operator or user lasts until that person ends it.
fn resumes_itself(held: &Allocation) -> bool {
    let moved = matches!(
        held.stop,
        Some(StopCause::Moved {
            reason: MoveReason::Preempted { .. } | MoveReason::Reclaimed { .. },
            ..
        })
    );
    held.state == AllocationState::Suspended && moved
}

/// Whether the allocation can no longer end before its deadline, or runs beyond it.
fn is_late(held: &Allocation, now: UnixMillis) -> bool {
    let Some(deadline_at) = held.spec.terms.deadline_at else {
        return false;
    };
    // Placed elements of an array have deadlines of their own.
    let is_placed = |tally: &Tally| tally.pending.is_empty() && tally.blocked.is_empty();
    if held.progress.tally.as_deref().is_some_and(is_placed) {
        return false;
    }
    let ends_at = match held.state {
        AllocationState::Stopping => return false,
        state if state.holds() => now,
        _ => now.after(held.walltime_left_ms().unwrap_or(0)),
    };
    ends_at > deadline_at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing;
    use lattice_quorum_types::array::IndexSet;

    /// An array can be late while some of its elements are not placed; placed elements end by themselves.
    #[test]
    fn an_array_that_is_placed_is_not_late_any_more() {
        let mut array = testing::allocation(AllocationState::Pending, Vec::new());
        array.spec.walltime_ms = Some(60_000);
        array.spec.terms.deadline_at = Some(UnixMillis(100_000));
        let with = |pending: IndexSet| {
            let mut array = array.clone();
            array.progress.tally = Some(Box::new(Tally {
                pending,
                alive: 1,
                ..Tally::default()
            }));
            is_late(&array, UnixMillis(90_000))
        };
        assert!(with(IndexSet::range(3, 3, 1).unwrap_or_default()));
        assert!(!with(IndexSet::new()));
    }
}
