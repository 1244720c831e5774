//! Preemption metrics for operators.
//!
//! Every control follows the same committed changes. A change is counted only by the control that held the dispatch
//! lease when the change was committed: from the revision at which the lease was granted until that control stops
//! dispatching. So the sum over all controls counts each change once. Not counted are changes committed while no
//! control dispatches, and changes that a control missed before it read the state again.

#[cfg(test)]
mod tests;

use crate::{
    exposition::{Exposition, histogram},
    metrics_registry::ReconcilerMetrics,
};
use lattice_quorum_types::{
    Allocation, AllocationState, Revision, VclusterName,
    allocation::StopCause,
    progress::{AfterCheckpoint, CheckpointInProgress, MoveReason},
};
use lattice_view::View;
use parking_lot::{Mutex, MutexGuard};
use prometheus::HistogramVec;
use std::collections::{BTreeMap, VecDeque};

/// Upper bucket bounds of checkpoint durations in seconds, up to the longest usual one: the timeout for sensitive
/// allocations with its extension.
const BOUNDS: [f64; 12] = [
    0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0,
];
/// Maximum number of changes kept while no lease is held. Changes that arrive in the milliseconds between the grant of
/// the lease and the answer to its request are counted later from here.
const RECENT: usize = 256;
const UNLABELLED: &[&str] = &[];

/// Preemption counters; see the module.
#[derive(Debug, Default)]
pub struct PreemptionCounters(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    /// Changes after this revision are counted; `None` while this control does not dispatch.
    since: Option<Revision>,
    /// Latest changes that were not counted, newest first.
    recent: VecDeque<(Revision, Change)>,
    preemptions: BTreeMap<(VclusterName, &'static str), u64>,
    checkpoints: HistogramVec,
    requeued: u64,
    failed_checkpoints: u64,
}

/// A change that is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    /// An allocation became a victim of preemption or reclaim.
    Preempted {
        /// vCluster of the victim.
        vcluster: VclusterName,
        /// Reason, as in the metric label.
        reason: &'static str,
    },
    /// The victim's checkpoint is complete; `took_ms` is its duration in milliseconds.
    Checkpointed { took_ms: u64 },
    /// The victim's checkpoint failed.
    CheckpointFailed,
    /// The victim is pending again.
    Requeued,
}

impl Default for Counts {
    fn default() -> Self {
        let checkpoints = histogram(
            "lattice_preemption_checkpoint_duration_seconds",
            "Duration of checkpoints of preempted allocations in seconds, from request to \
             completion.",
            UNLABELLED,
            &BOUNDS,
        );
        // The only series exists before the first checkpoint.
        checkpoints.with_label_values(UNLABELLED);
        Self {
            since: None,
            recent: VecDeque::new(),
            preemptions: BTreeMap::new(),
            checkpoints,
            requeued: 0,
            failed_checkpoints: 0,
        }
    }
}

impl PreemptionCounters {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock()
    }

    /// Counts changes committed after `since` from now on; `None` stops counting.
    pub(crate) fn start_counting(&self, since: Option<Revision>) {
        let mut counts = self.counts();
        counts.since = since;
        let Some(since) = since else { return };
        for (revision, change) in std::mem::take(&mut counts.recent) {
            if revision > since {
                counts.count(change);
            }
        }
    }

    /// Compares an allocation in the view with its next record, before the view is updated.
    pub fn follow(&self, view: &View, revision: Revision, after: &Allocation) {
        let Some(before) = view.allocation(after.id) else {
            return;
        };
        let changes = changes(view, before, after);
        if changes.is_empty() {
            return;
        }
        let mut counts = self.counts();
        for change in changes {
            match counts.since {
                Some(since) if revision > since => counts.count(change),
                Some(_) => {}
                None => {
                    counts.recent.truncate(RECENT - 1);
                    counts.recent.push_front((revision, change));
                }
            }
        }
    }
}

impl ReconcilerMetrics for PreemptionCounters {
    const SUBJECT: &'static str = "preemption";

    fn expose(&self, to: &mut Exposition) {
        let counts = self.counts();
        let preemptions = counts.preemptions.iter();
        to.counters(
            "lattice_preemptions_total",
            "Preemptions of a vCluster's allocations, by reason; counted by the control that \
             dispatches.",
            ["vcluster", "reason"],
            preemptions
                .map(|((vcluster, reason), n)| ([vcluster.to_string(), (*reason).to_owned()], *n)),
        );
        to.collect(&counts.checkpoints);
        to.counter(
            "lattice_preemption_victim_requeue_total",
            "Preempted allocations requeued.",
            counts.requeued,
        );
        to.counter(
            "lattice_preemption_failed_checkpoint_total",
            "Failed checkpoints of preempted allocations.",
            counts.failed_checkpoints,
        );
    }
}

impl Counts {
    fn count(&mut self, change: Change) {
        match change {
            Change::Preempted { vcluster, reason } => {
                *self.preemptions.entry((vcluster, reason)).or_default() += 1;
            }
            Change::Checkpointed { took_ms } => {
                let took = took_ms as f64 / 1000.0;
                self.checkpoints.with_label_values(UNLABELLED).observe(took);
            }
            Change::CheckpointFailed => self.failed_checkpoints += 1,
            Change::Requeued => self.requeued += 1,
        }
    }
}

fn changes(view: &View, before: &Allocation, after: &Allocation) -> Vec<Change> {
    let mut changes = Vec::new();
    if let Some(reason) = current_preemption(after).filter(|_| current_preemption(before).is_none())
    {
        changes.push(Change::Preempted {
            vcluster: after.spec.vcluster.clone(),
            reason: label(view, reason),
        });
    }
    if let Some(writing) = victim_checkpoint(before) {
        let whole = after.progress.kept.as_ref();
        if let Some(kept) = whole.filter(|kept| kept.number == writing.number) {
            let took_ms = kept.took_ms;
            changes.push(Change::Checkpointed { took_ms });
        }
        if after.progress.failed_checkpoints > before.progress.failed_checkpoints {
            changes.push(Change::CheckpointFailed);
        }
    }
    let moved = before.state != AllocationState::Pending && preemption_reason(before).is_some();
    if moved && after.state == AllocationState::Pending {
        changes.push(Change::Requeued);
    }
    changes
}

/// Reason of the preemption that an allocation is a victim of, now or last. `None` for other allocations, including a
/// suspension requested by a user or operator, which frees nodes for no particular allocation.
fn preemption_reason(held: &Allocation) -> Option<&MoveReason> {
    let reason = match (&held.progress.writing, &held.stop) {
        (Some(writing), _) => match &writing.then {
            AfterCheckpoint::MakeRoom { reason } => reason,
            AfterCheckpoint::GoOn | AfterCheckpoint::Suspend { .. } => return None,
        },
        (None, Some(StopCause::Moved { reason, .. })) => reason,
        _ => return None,
    };
    (!matches!(reason, MoveReason::Asked { .. })).then_some(reason)
}

/// Same as [`preemption_reason`], while the allocation still holds its nodes.
fn current_preemption(held: &Allocation) -> Option<&MoveReason> {
    preemption_reason(held).filter(|_| held.state.holds())
}

/// Checkpoint that a victim writes before it releases its nodes.
fn victim_checkpoint(held: &Allocation) -> Option<&CheckpointInProgress> {
    held.progress
        .writing
        .as_deref()
        .filter(|_| preemption_reason(held).is_some())
}

fn label(view: &View, reason: &MoveReason) -> &'static str {
    match reason {
        MoveReason::Preempted { by } => match view.allocation(*by) {
            Some(by) if by.spec.sensitive => "sensitive_claim",
            _ => "higher_class",
        },
        MoveReason::Reclaimed { .. } => "reclaim",
        // Excluded by [`preemption_reason`].
        MoveReason::Asked { .. } => "asked",
    }
}
