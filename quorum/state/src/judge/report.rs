//! Reports of ranks, and the transitions that follow from them.

use super::{Case, force, invalid, nodes, people::entering, wrong_state};
use crate::change::{Change, Direction, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, Refusal, UnixMillis,
    allocation::{Rank, RankExit, RankPhase, StopCause},
    command::RankReport,
    event::AllocationChange,
    node::{Holder, Lifecycle, Node},
    spec::Requeue,
};

/// Attempts after which a fault of a node puts an allocation back no more: it met five bad nodes.
pub(super) const FAULTY_ATTEMPTS: u32 = 5;

/// So often an attempt of which nothing ever started puts an allocation back without counting.
/// Afterwards it counts: something is wrong, and somebody has to hear of it.
pub(super) const UNCOUNTED_ATTEMPTS: u32 = 5;

/// Takes down what became of one rank. A repeat changes nothing, also after the end.
pub(super) fn report(
    case: Case<'_>,
    id: AllocationId,
    attempt: u32,
    node: &NodeId,
    report: &RankReport,
) -> Result<Verdict, Refusal> {
    let unknown = || Refusal::UnknownAllocation { id };
    let present = case.state.allocation(id).ok_or_else(unknown)?;
    if attempt != present.attempt || attempt == 0 {
        return Err(Refusal::StaleAttempt {
            id,
            given: attempt,
            current: present.attempt,
        });
    }
    let Some(position) = present.ranks.iter().position(|rank| rank.node == *node) else {
        return Err(invalid(
            "node",
            format!("node {node} has no rank in allocation {id}"),
        ));
    };
    let phase = &present.ranks[position].phase;
    if force::took(phase) {
        let reason =
            format!("node {node} was taken from allocation {id} by force before it said so");
        return Err(invalid("node", reason));
    }
    let Some(phase) = next_phase(case, phase, report) else {
        return Ok(Verdict::nothing());
    };
    if !present.state.holds() {
        return Err(wrong_state(present, "take a report of"));
    }
    let mut record = present.clone();
    record.ranks[position].phase = phase;
    let fault = match report {
        RankReport::Ended { fault, .. } => fault.as_deref().map(|fault| case.short(fault)),
        RankReport::Started { .. } => None,
    };
    if let RankPhase::Ended { exit, .. } = &record.ranks[position].phase {
        let exit = exit.clone();
        note_exit(case, &mut record, position, &exit, fault.as_deref());
    }
    let drained = fault.and_then(|fault| {
        let node = case.state.nodes.get(node)?;
        Some(nodes::with_reason(node, nodes::HOOKS, &fault, case.now))
    });
    Ok(settle(case, present, record, drained))
}

/// The phase after a report; `None` when the report says nothing new.
fn next_phase(case: Case<'_>, present: &RankPhase, report: &RankReport) -> Option<RankPhase> {
    match (present, report) {
        (RankPhase::Assigned, RankReport::Started { at }) => Some(RankPhase::Running { at: *at }),
        (RankPhase::Assigned | RankPhase::Running { .. }, RankReport::Ended { at, exit, .. }) => {
            let exit = match (present, case.short_exit(exit)) {
                // One that runs by its agent's word did start: then it is lost as any other.
                (RankPhase::Running { .. }, RankExit::NeverStarted { evidence }) => {
                    RankExit::Lost { evidence }
                }
                (_, exit) => exit,
            };
            Some(RankPhase::Ended { at: *at, exit })
        }
        (RankPhase::Running { .. } | RankPhase::Ended { .. }, RankReport::Started { .. })
        | (RankPhase::Ended { .. }, RankReport::Ended { .. }) => None,
    }
}

/// Keeps the first cause of failure, and that the allocation ran at all. A rank that could not be
/// started where something is wrong with the node says nothing against the work: it is put back.
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
        // Its start was never reported. It cannot have been before the assignment, and counting
        // from there errs on the side of the nodes having been held.
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

/// The state that follows from the ranks' phases. `touched` is a node that becomes another by this
/// command too.
pub(super) fn settle(
    case: Case<'_>,
    before: &Allocation,
    record: Allocation,
    touched: Option<Node>,
) -> Verdict {
    use AllocationState::{Starting, Stopping};
    let is_ended = |rank: &Rank| matches!(rank.phase, RankPhase::Ended { .. });
    let is_assigned = |rank: &Rank| rank.phase == RankPhase::Assigned;
    if record.ranks.iter().all(is_ended) {
        return finish(case, record, touched);
    }
    let (change, record) = if record.stop.is_some() && before.state != Stopping {
        (
            AllocationChange::Stopping,
            entering(case, &record, Stopping),
        )
    } else if before.state == Starting && !record.ranks.iter().any(is_assigned) {
        let started_at = record.started_at.or(Some(case.now));
        let running = entering(case, &record, AllocationState::Running);
        (
            AllocationChange::Started,
            Allocation {
                started_at,
                ..running
            },
        )
    } else {
        (AllocationChange::Progressed, record)
    };
    let mut changes = vec![Change::Allocation {
        change,
        record: Box::new(record),
    }];
    changes.extend(touched.map(|node| Change::Node(Box::new(node))));
    Verdict::done(changes)
}

/// Every process is gone: through Stopping, within this command, to where it ends, and the nodes
/// go back. One that was taken from it by force may belong to another allocation by now.
fn finish(case: Case<'_>, record: Allocation, touched: Option<Node>) -> Verdict {
    let (path, nodes) = (record.spec.project.clone(), u64::from(record.spec.nodes));
    let holder = Some(Holder {
        allocation: record.id,
        attempt: record.attempt,
    });
    let mut freed = Vec::new();
    for id in record.nodes() {
        let changed = touched.as_ref().filter(|node| node.id == *id);
        match changed.or_else(|| case.state.nodes.get(id)) {
            Some(held) if held.holder == holder => {
                freed.push(Change::Node(Box::new(given_back(held))));
            }
            _ => freed.extend(changed.map(|node| Change::Node(Box::new(node.clone())))),
        }
    }
    freed.push(Change::Usage {
        path,
        nodes,
        direction: Direction::GiveBack,
    });

    let uncounted = case.state.unstarted.attempts(record.id);
    let state = end_state(&record, uncounted);
    let another = goes_back_uncounted(&record, uncounted).then_some(uncounted + 1);
    let change = match state {
        AllocationState::Pending => AllocationChange::Requeued,
        AllocationState::Suspended => AllocationChange::Progressed,
        _ => AllocationChange::Ended,
    };
    let ended_at = state.is_terminal().then_some(case.now);
    let eligible_at: UnixMillis = if state == AllocationState::Pending {
        case.now
    } else {
        record.eligible_at
    };
    let record = Allocation {
        ended_at,
        eligible_at,
        ..entering(case, &record, state)
    };
    let id = record.id;
    let mut changes: Vec<Change> = another
        .map(|attempts| Change::Uncounted { id, attempts })
        .into_iter()
        .collect();
    changes.push(Change::Allocation {
        change,
        record: Box::new(record),
    });
    changes.append(&mut freed);
    Verdict::done(changes)
}

/// Whether an allocation goes back to the queue without its policy being asked: no rank of this
/// attempt that has ended was ever started.
fn goes_back_uncounted(record: &Allocation, uncounted: u32) -> bool {
    let lost = matches!(
        record.stop,
        Some(StopCause::NodeLost { .. } | StopCause::NodeFault { .. })
    );
    lost && uncounted < UNCOUNTED_ATTEMPTS && nothing_started(&record.ranks)
}

/// Whether at least one rank has ended, and none that has was ever started.
fn nothing_started(ranks: &[Rank]) -> bool {
    let mut ended = false;
    ranks.iter().all(|rank| match &rank.phase {
        RankPhase::Assigned => true,
        RankPhase::Running { .. } => false,
        RankPhase::Ended { exit, .. } => {
            ended = true;
            matches!(exit, RankExit::NeverStarted { .. })
        }
    }) && ended
}

/// Where an allocation ends once its processes are gone. `uncounted` of its attempts before this one
/// count for nothing.
pub(super) fn end_state(record: &Allocation, uncounted: u32) -> AllocationState {
    if goes_back_uncounted(record, uncounted) {
        return AllocationState::Pending;
    }
    let attempt = record.attempt.saturating_sub(uncounted);
    match (&record.stop, record.spec.requeue) {
        (None, _) => AllocationState::Completed,
        (Some(StopCause::Cancelled { .. }), _) => AllocationState::Cancelled,
        (Some(StopCause::Suspended), _) => AllocationState::Suspended,
        (Some(StopCause::NodeLost { .. }), Requeue::Always) => AllocationState::Pending,
        (Some(StopCause::NodeLost { .. }), Requeue::Once) if attempt == 1 => {
            AllocationState::Pending
        }
        (Some(StopCause::NodeFault { .. }), requeue)
            if requeue == Requeue::Always || attempt <= FAULTY_ATTEMPTS =>
        {
            AllocationState::Pending
        }
        (Some(_), _) => AllocationState::Failed,
    }
}

/// A node without its holder. What was draining is drained now.
fn given_back(node: &Node) -> Node {
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
