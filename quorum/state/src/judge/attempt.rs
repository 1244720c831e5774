//! Attempts: the state of an allocation that follows from its ranks, and the release of nodes.

use super::{Case, admission::full_usage, transition::in_state};
use crate::{
    change::{Change, UsageDirection, Verdict},
    unstarted::ATTEMPT_GAP,
};
use lattice_quorum_types::{
    Allocation, AllocationState,
    allocation::{Rank, RankExit, RankPhase, StopCause},
    event::AllocationChange,
    limit::Usage,
    node::{Holder, Lifecycle, Node},
    node_claim::NodeClaim,
    progress::MoveReason,
    spec::Requeue,
};

/// Number of the last attempt that a node fault requeues. A fault in a later attempt fails the allocation, because it
/// has met five bad nodes before. The requeue policy `Always` has no such limit.
const MAX_FAULT_REQUEUES: u32 = 5;

/// Maximum number of attempts of an allocation that do not count because no rank started. Later attempts count, so that
/// a persistent fault becomes visible to the user.
const MAX_UNCOUNTED_ATTEMPTS: u32 = 5;

/// Records the first cause of failure, and that the allocation ran at all. If a faulty node could not start a rank, the
/// allocation is not at fault and is requeued.
pub(super) fn note_exit(
    case: Case<'_>,
    record: &mut Allocation,
    position: usize,
    exit: &RankExit,
    fault: Option<&str>,
) {
    let ran = matches!(
        exit,
        RankExit::Exited { .. } | RankExit::Signaled { .. } | RankExit::Walltime
    );
    if ran && record.started_at.is_none() {
        // The start of the rank was never reported. The start cannot precede the assignment; counting from there may
        // overstate how long the nodes were held, never understate it.
        let assigned_at = record.state_since;
        let starting = record.state == AllocationState::Starting;
        record.started_at = Some(if starting { assigned_at } else { case.now });
    }
    if !exit.is_success() && record.stop.is_none() {
        let node = || record.ranks[position].node.clone();
        record.stop = Some(match (exit, fault) {
            (RankExit::Walltime, _) => StopCause::Walltime,
            (RankExit::Lost { .. } | RankExit::NeverStarted { .. }, _) => {
                StopCause::NodeLost { node: node() }
            }
            (RankExit::SpawnFailed { .. }, Some(fault)) => StopCause::NodeFault {
                node: node(),
                reason: fault.to_owned(),
            },
            _ => StopCause::RankFailed {
                rank: position as u32,
                exit: exit.clone(),
            },
        });
    }
}

/// Derives the allocation state from the phases of its ranks. `touched` are further node records changed by this
/// command. `otherwise` is the change kind if the state stays the same.
pub(super) fn derive_state(
    case: Case<'_>,
    before: &Allocation,
    record: Allocation,
    touched: Vec<Node>,
    otherwise: AllocationChange,
) -> Verdict {
    use AllocationState::{Starting, Stopping};
    let is_assigned = |rank: &Rank| rank.phase == RankPhase::Assigned;
    if record.ranks.iter().all(|rank| rank.phase.is_over()) {
        return finish(case, before, record, touched);
    }
    let fewer = u64::from(before.spec.nodes.saturating_sub(record.spec.nodes));
    let (change, record) = if record.stop.is_some() && before.state != Stopping {
        (
            AllocationChange::Stopping,
            in_state(case, &record, Stopping),
        )
    } else if before.state == Starting && !record.ranks.iter().any(is_assigned) {
        let started_at = record.started_at.or(Some(case.now));
        let running = in_state(case, &record, AllocationState::Running);
        (
            AllocationChange::Started,
            Allocation {
                started_at,
                ..running
            },
        )
    } else if fewer > 0 {
        (AllocationChange::Shrunk, record)
    } else {
        (otherwise, record)
    };
    let path = record.spec.project.clone();
    let mut changes = vec![Change::Allocation {
        change,
        record: Box::new(record),
    }];
    changes.extend(touched.into_iter().map(|node| Change::Node(Box::new(node))));
    if fewer > 0 {
        changes.push(Change::Usage {
            path,
            usage: Usage {
                nodes: fewer,
                allocations: 0,
            },
            direction: UsageDirection::Subtract,
        });
    }
    Verdict::done(changes)
}

/// Ends an attempt after all its processes are gone: sets the next state of the allocation and releases its nodes. A
/// node that was released by force may already belong to another allocation.
fn finish(
    case: Case<'_>,
    before: &Allocation,
    record: Allocation,
    mut touched: Vec<Node>,
) -> Verdict {
    let mut freed = Vec::new();
    for id in record.nodes() {
        let place = touched.iter().position(|node| node.id == *id);
        let changed = place.map(|place| touched.swap_remove(place));
        let known = changed.as_ref().or_else(|| case.state.nodes.get(id));
        let left = known
            .and_then(|node| released_node(&record, node))
            .or(changed);
        freed.extend(left.map(|node| Change::Node(Box::new(node))));
    }
    freed.push(Change::Usage {
        path: record.spec.project.clone(),
        usage: full_usage(&before.spec),
        direction: UsageDirection::Subtract,
    });

    let uncounted = case.state.unstarted.attempts(record.id);
    let state = end_state(&record, uncounted);
    let of_these = uncounted % ATTEMPT_GAP;
    let skipped = uncounted - of_these;
    let another = match is_requeued_uncounted(&record, uncounted) {
        true => Some(of_these + 1),
        false => (skipped > 0).then_some(of_these),
    };
    let change = match state {
        AllocationState::Pending => AllocationChange::Requeued,
        AllocationState::Suspended => AllocationChange::Suspended,
        _ => AllocationChange::Ended,
    };
    let ended_at = state.is_terminal().then_some(case.now);
    let mut record = record;
    if let Some(StopCause::Moved {
        reason: MoveReason::Preempted { .. } | MoveReason::Reclaimed { .. },
        ..
    }) = record.stop
    {
        record.progress.preempted += 1;
        record.progress.moved_at = Some(case.now);
    }
    if let (None, Some(scale)) = (ended_at, &record.spec.terms.scale) {
        // The scaling metric determines again how many nodes the next attempt gets beyond the minimum.
        record.spec.nodes = scale.min_nodes;
    }
    // An ended record keeps the attempt number that its agents reported.
    let skipped = if ended_at.is_none() { skipped } else { 0 };
    let record = Allocation {
        ended_at,
        attempt: record.attempt.saturating_add(skipped),
        ..in_state(case, &record, state)
    };
    let id = record.id;
    let mut changes: Vec<Change> = another
        .map(|attempts| Change::UncountedAttempts { id, attempts })
        .into_iter()
        .collect();
    changes.push(Change::Allocation {
        change,
        record: Box::new(record),
    });
    changes.append(&mut freed);
    Verdict::done(changes)
}

/// State of an allocation once its processes are gone. `uncounted` attempts before this one do not count.
pub(super) fn end_state(record: &Allocation, uncounted: u32) -> AllocationState {
    if is_requeued_uncounted(record, uncounted) {
        return AllocationState::Pending;
    }
    let attempt = (record.attempt % ATTEMPT_GAP).saturating_sub(uncounted % ATTEMPT_GAP);
    match (&record.stop, record.spec.requeue) {
        (None, _) => AllocationState::Completed,
        (Some(StopCause::Cancelled { .. }), _) => AllocationState::Cancelled,
        (Some(StopCause::Suspended), _) => AllocationState::Suspended,
        (Some(StopCause::DagCancelled { .. }), _) => AllocationState::Cancelled,
        (Some(StopCause::Requeued { .. }), _) => AllocationState::Pending,
        (Some(StopCause::Moved { has_run: false, .. }), _) => AllocationState::Pending,
        (
            Some(StopCause::Moved {
                checkpoint: Some(_),
                ..
            }),
            _,
        ) => AllocationState::Suspended,
        (Some(StopCause::Moved { .. }), Requeue::Always) => AllocationState::Pending,
        (Some(StopCause::Moved { .. }), Requeue::Once) if attempt == 1 => AllocationState::Pending,
        (Some(StopCause::NodeLost { .. }), Requeue::Always) => AllocationState::Pending,
        (Some(StopCause::NodeLost { .. }), Requeue::Once) if attempt == 1 => {
            AllocationState::Pending
        }
        (Some(StopCause::NodeFault { .. }), requeue)
            if requeue == Requeue::Always || attempt <= MAX_FAULT_REQUEUES =>
        {
            AllocationState::Pending
        }
        (Some(_), _) => AllocationState::Failed,
    }
}

/// Returns whether an allocation is requeued regardless of its requeue policy, because a node was lost or faulty before
/// any rank started. At most [`MAX_UNCOUNTED_ATTEMPTS`] attempts are requeued in this way.
fn is_requeued_uncounted(record: &Allocation, uncounted: u32) -> bool {
    let lost = matches!(
        record.stop,
        Some(StopCause::NodeLost { .. } | StopCause::NodeFault { .. })
    );
    lost && uncounted % ATTEMPT_GAP < MAX_UNCOUNTED_ATTEMPTS && nothing_started(&record.ranks)
}

/// Returns whether at least one rank has ended, and no rank ever started.
fn nothing_started(ranks: &[Rank]) -> bool {
    let mut ended = false;
    ranks.iter().all(|rank| match &rank.phase {
        RankPhase::Assigned | RankPhase::Leaving { running: None } => true,
        RankPhase::Running { .. } | RankPhase::Leaving { running: Some(_) } => false,
        RankPhase::Ended { exit, .. } | RankPhase::Left { exit, .. } => {
            ended = true;
            matches!(exit, RankExit::NeverStarted { .. })
        }
    }) && ended
}

/// Returns the node after the allocation has left it. If the allocation still holds the node, the holder is removed. A
/// node that was released by force before counts for its node claim again. Returns `None` if neither applies.
pub(super) fn released_node(from: &Allocation, node: &Node) -> Option<Node> {
    if node.holder == Some(holder_of(from)) {
        return Some(without_holder(node));
    }
    let node_claim = node.node_claim.as_ref();
    let is_counted = node_claim.is_some_and(|node_claim| node_claim.counted_by == Some(from.id));
    is_counted.then(|| without_counted_by(node))
}

fn holder_of(allocation: &Allocation) -> Holder {
    Holder {
        allocation: allocation.id,
        attempt: allocation.attempt,
    }
}

/// Returns the node with a node claim that counts the node again, instead of the allocation that lost it by force.
fn without_counted_by(node: &Node) -> Node {
    let node_claim = node.node_claim.clone().map(|node_claim| NodeClaim {
        counted_by: None,
        ..node_claim
    });
    Node {
        node_claim,
        ..node.clone()
    }
}

/// Returns the node without its holder; a draining node becomes drained.
fn without_holder(node: &Node) -> Node {
    let lifecycle = match node.lifecycle {
        Lifecycle::Draining => Lifecycle::Drained,
        other => other,
    };
    Node {
        holder: None,
        lifecycle,
        version: node.version + 1,
        ..node.clone()
    }
}
