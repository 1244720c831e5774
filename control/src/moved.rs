//! What moving work came to, counted for operators.
//!
//! Every control follows the same committed changes. Each is counted by the control that dispatched when it was
//! committed: from the revision on at which it was granted that lease, until it stops. So the sum over all
//! controls has each of them once. What is committed while none dispatches is counted by none, nor is what a
//! control missed that had to read the state anew.

#[cfg(test)]
mod tests;

use crate::{
    exposition::{Exposition, histogram},
    view::View,
};
use lattice_quorum_types::{
    Allocation, AllocationState, Revision, VclusterName,
    allocation::StopCause,
    course::{AfterCheckpoint, MoveReason, Writing},
};
use parking_lot::{Mutex, MutexGuard};
use prometheus::HistogramVec;
use std::collections::{BTreeMap, VecDeque};

/// Upper bounds of how long checkpoints took, seconds: from small ones to the longest that is usual, the timeout
/// of sensitive work with its extension.
const BOUNDS: [f64; 12] = [
    0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0,
];
/// Changes that are remembered for a lease that was granted before them, and not known here yet: its answer takes
/// milliseconds.
const RECENT: usize = 256;
const UNLABELLED: &[&str] = &[];

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Moved(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    /// What is committed later is counted; `None` while another control counts, or none.
    since: Option<Revision>,
    /// The last ones that were not counted.
    recent: VecDeque<(Revision, Change)>,
    preemptions: BTreeMap<(VclusterName, &'static str), u64>,
    checkpoints: HistogramVec,
    requeued: u64,
    failed_checkpoints: u64,
}

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    /// Work began to make room.
    Preempted {
        /// Of this vCluster.
        vcluster: VclusterName,
        /// Why, as in the label.
        reason: &'static str,
    },
    /// Its checkpoint is whole, after so many milliseconds.
    Saved { took_ms: u64 },
    /// Its checkpoint came to nothing.
    Unsaved,
    /// It waits for nodes again.
    Requeued,
}

impl Default for Counts {
    fn default() -> Self {
        let checkpoints = histogram(
            "lattice_preemption_checkpoint_duration_seconds",
            "How long checkpoints of work that makes room took, from being asked for until they were whole.",
            UNLABELLED,
            &BOUNDS,
        );
        // Its one series exists before the first checkpoint.
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

impl Moved {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock()
    }

    /// From now on what is committed after `since` is counted here; with `None` nothing is.
    pub(crate) fn counts_since(&self, since: Option<Revision>) {
        let mut counts = self.counts();
        counts.since = since;
        let Some(since) = since else { return };
        for (revision, change) in std::mem::take(&mut counts.recent) {
            if revision > since {
                counts.count(change);
            }
        }
    }

    /// An allocation is about to become another in the view.
    pub(crate) fn follow(&self, view: &View, revision: Revision, after: &Allocation) {
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

    pub(crate) fn expose(&self, to: &mut Exposition) {
        let counts = self.counts();
        let preemptions = counts.preemptions.iter();
        to.counters(
            "lattice_preemptions_total",
            "Work of a vCluster that began to make room, by why; counted by the control that dispatches.",
            ["vcluster", "reason"],
            preemptions.map(|((vcluster, reason), n)| {
                ([vcluster.to_string(), (*reason).to_owned()], *n)
            }),
        );
        to.collect(&counts.checkpoints);
        to.counter(
            "lattice_preemption_victim_requeue_total",
            "Work that had made room and waits for nodes again.",
            counts.requeued,
        );
        to.counter(
            "lattice_preemption_failed_checkpoint_total",
            "Checkpoints of work that makes room that came to nothing.",
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
            Change::Saved { took_ms } => {
                let took = took_ms as f64 / 1000.0;
                self.checkpoints.with_label_values(UNLABELLED).observe(took);
            }
            Change::Unsaved => self.failed_checkpoints += 1,
            Change::Requeued => self.requeued += 1,
        }
    }
}

fn changes(view: &View, before: &Allocation, after: &Allocation) -> Vec<Change> {
    let mut changes = Vec::new();
    if let Some(reason) = making_room(after).filter(|_| making_room(before).is_none()) {
        changes.push(Change::Preempted {
            vcluster: after.spec.vcluster.clone(),
            reason: label(view, reason),
        });
    }
    if let Some(writing) = saving(before) {
        let whole = after.course.kept.as_ref();
        if let Some(kept) = whole.filter(|kept| kept.number == writing.number) {
            let took_ms = kept.took_ms;
            changes.push(Change::Saved { took_ms });
        }
        if after.course.failed_checkpoints > before.course.failed_checkpoints {
            changes.push(Change::Unsaved);
        }
    }
    let moved = before.state != AllocationState::Pending && for_others(before).is_some();
    if moved && after.state == AllocationState::Pending {
        changes.push(Change::Requeued);
    }
    changes
}

/// For whom it makes room, or did last. What a person suspended made room for nobody.
fn for_others(held: &Allocation) -> Option<&MoveReason> {
    let reason = match (&held.course.writing, &held.stop) {
        (Some(writing), _) => match &writing.then {
            AfterCheckpoint::MakeRoom { reason } => reason,
            AfterCheckpoint::GoOn | AfterCheckpoint::Suspend { .. } => return None,
        },
        (None, Some(StopCause::Moved { reason, .. })) => reason,
        _ => return None,
    };
    (!matches!(reason, MoveReason::Asked { .. })).then_some(reason)
}

/// The same while it still has its nodes.
fn making_room(held: &Allocation) -> Option<&MoveReason> {
    for_others(held).filter(|_| held.state.holds())
}

/// The checkpoint that it writes in order to make room.
fn saving(held: &Allocation) -> Option<&Writing> {
    held.course
        .writing
        .as_deref()
        .filter(|_| for_others(held).is_some())
}

fn label(view: &View, reason: &MoveReason) -> &'static str {
    match reason {
        MoveReason::Preempted { by } => match view.allocation(*by) {
            Some(by) if by.spec.sensitive => "sensitive_claim",
            _ => "higher_class",
        },
        MoveReason::Reclaimed { .. } => "reclaim",
        // Not counted.
        MoveReason::Asked { .. } => "asked",
    }
}
