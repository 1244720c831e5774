//! Preemption and reclaim: allocations release nodes for a higher class, or because the nodes were lent.
//!
//! Nodes are promised to the preemptor until it holds them. The scheduler chooses the victims; this module checks at
//! commit that each may be preempted. See `../../0009-making-room.md`.

use super::{
    Case, assign, invalid, job_checkpoint, node_claim::taken_by, transition::in_state,
    truncated_text, wrong_state,
};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, Refusal, VclusterName,
    allocation::StopCause,
    command::{Privilege, Victim},
    event::AllocationChange,
    node::{Lifecycle, Node, UnavailableNode, UnavailableReason},
    progress::{AfterCheckpoint, MoveReason},
};
use std::collections::BTreeSet;

/// Maximum number of victims of one preemptor.
const MAX_VICTIMS: usize = 64;
/// Class that is never preempted.
const HIGHEST_CLASS: u8 = 10;

/// Moves one allocation off all its nodes.
pub(super) fn make_room(
    case: Case<'_>,
    victim: &Victim,
    reason: &MoveReason,
) -> Result<Verdict, Refusal> {
    let present = case.live(victim.id, "move")?;
    let reason = match reason {
        MoveReason::Preempted { .. } => {
            let reason = "preemption needs the command that also reserves the nodes for the \
                          preemptor";
            return Err(invalid("reason", reason));
        }
        MoveReason::Reclaimed { home } => {
            check_lent(case, present, home)?;
            reason.clone()
        }
        // A service names the requesting principal; a person requests only in their own name.
        MoveReason::Asked { by } => MoveReason::Asked {
            by: match case.principal.privilege {
                Privilege::Service => truncated_text(by),
                _ => case.principal.name.clone(),
            },
        },
    };
    Ok(Verdict::done(vec![move_change(
        case, present, victim, &reason,
    )?]))
}

/// Rejects moving an allocation for a vCluster that has lent it no node.
fn check_lent(case: Case<'_>, present: &Allocation, home: &VclusterName) -> Result<(), Refusal> {
    let nodes = present.kept_nodes();
    let mut nodes = nodes.filter_map(|node| case.state.nodes.get(node));
    if nodes.any(|node| node.home == *home && node.current != *home) {
        return Ok(());
    }
    let reason = format!("allocation {} has no node lent by {home}", present.name());
    Err(invalid("reason", reason))
}

/// Lets an allocation leave nodes lent by `home` after the job checkpoint that it is already writing. With another
/// checkpoint, `home` would wait twice.
pub(super) fn leave_after(
    case: Case<'_>,
    (id, number): (AllocationId, u32),
    home: &VclusterName,
    timeout_ms: u64,
) -> Result<Verdict, Refusal> {
    let Some((present, writing)) = job_checkpoint::current(case, id, number, "move")? else {
        return Ok(Verdict::unchanged());
    };
    check_lent(case, present, home)?;
    check_preemptible(present)?;
    // With any other action after the checkpoint, the allocation leaves its nodes anyway.
    if writing.then != AfterCheckpoint::GoOn {
        return Ok(Verdict::unchanged());
    }
    let home = home.clone();
    let reason = MoveReason::Reclaimed { home };
    let then = AfterCheckpoint::MakeRoom { reason };
    let record = job_checkpoint::with_other_action(case, present, then, timeout_ms)?;
    Ok(Verdict::done(vec![Change::Allocation {
        change: AllocationChange::Progressed,
        record: Box::new(record),
    }]))
}

/// Returns the change that starts moving the victim.
fn move_change(
    case: Case<'_>,
    present: &Allocation,
    victim: &Victim,
    reason: &MoveReason,
) -> Result<Change, Refusal> {
    check_movable(present, victim)?;
    let asked = victim.checkpoint.as_ref();
    // An allocation that has not begun has nothing to write.
    let asked = asked.filter(|_| present.state == AllocationState::Running);
    let (change, record) = match asked {
        Some(asked) => {
            let reason = reason.clone();
            let then = AfterCheckpoint::MakeRoom { reason };
            let next = job_checkpoint::with_new_checkpoint(case, present, asked, then)?;
            (AllocationChange::Checkpointing, next)
        }
        None => {
            let mut next = in_state(case, present, AllocationState::Stopping);
            next.stop = Some(StopCause::Moved {
                reason: reason.clone(),
                checkpoint: None,
                has_run: present.state == AllocationState::Running,
            });
            (AllocationChange::Stopping, next)
        }
    };
    let record = Box::new(record);
    Ok(Change::Allocation { change, record })
}

fn check_movable(present: &Allocation, victim: &Victim) -> Result<(), Refusal> {
    let id = present.id;
    if present.attempt != victim.attempt {
        return Err(Refusal::StaleAttempt {
            id,
            given: victim.attempt,
            current: present.attempt,
        });
    }
    if !matches!(
        present.state,
        AllocationState::Starting | AllocationState::Running
    ) {
        return Err(wrong_state(present, "move"));
    }
    check_preemptible(present)
}

/// Rejects moving sensitive allocations and those of the highest class.
fn check_preemptible(present: &Allocation) -> Result<(), Refusal> {
    let fixed = |reason: &str| {
        let (id, reason) = (present.id, reason.to_owned());
        Err(Refusal::NotMovable { id, reason })
    };
    if present.spec.sensitive {
        return fixed("it is sensitive");
    }
    match present.spec.class >= HIGHEST_CLASS {
        true => fixed("its class is 10, which is never preempted"),
        false => Ok(()),
    }
}

/// Promises nodes to a pending allocation and preempts the allocations that hold them.
pub(super) fn preempt(
    case: Case<'_>,
    id: AllocationId,
    nodes: &[NodeId],
    victims: &[Victim],
) -> Result<Verdict, Refusal> {
    let pending = case.live(id, "preempt for")?;
    if pending.progress.tally.is_some() {
        let reason =
            format!("allocation {id} is a job array; nodes can be promised only to its elements");
        return Err(invalid("id", reason));
    }
    if pending.state != AllocationState::Pending {
        return Err(wrong_state(pending, "preempt for"));
    }
    if case.state.order.is_promised(id) {
        let name = pending.name();
        let reason =
            format!("nodes are already promised to allocation {name}; withdraw the promise first");
        return Err(invalid("id", reason));
    }
    check_numbers(pending, nodes, victims)?;
    let mut changes = Vec::with_capacity(nodes.len() + victims.len());
    for victim in victims {
        changes.push(preempt_change(case, pending, nodes, victim)?);
    }
    let (mut others, mut chosen) = (Vec::new(), Vec::new());
    for node in nodes {
        let node = super::nodes::node(case, node)?;
        chosen.push(node);
        match not_promisable(case, pending, victims, node) {
            Some(by) => others.push(UnavailableNode {
                node: node.id.clone(),
                by,
            }),
            None => changes.push(Change::Node(Box::new(Node {
                promised: Some(id),
                version: node.version + 1,
                ..node.clone()
            }))),
        }
    }
    if !others.is_empty() {
        return Err(Refusal::NodesTaken { nodes: others });
    }
    assign::check_may_hold(case, pending, &chosen)?;
    Ok(Verdict::done(changes))
}

fn check_numbers(
    pending: &Allocation,
    nodes: &[NodeId],
    victims: &[Victim],
) -> Result<(), Refusal> {
    let (given, asked) = (nodes.len(), pending.spec.nodes);
    if given != asked as usize {
        let reason = format!("{given} nodes given, but the allocation requests {asked}");
        return Err(invalid("nodes", reason));
    }
    let distinct: BTreeSet<&NodeId> = nodes.iter().collect();
    if distinct.len() != given {
        return Err(invalid("nodes", "a node is named twice"));
    }
    if victims.is_empty() || victims.len() > MAX_VICTIMS {
        let reason = format!("name 1 to {MAX_VICTIMS} allocations to preempt");
        return Err(invalid("victims", reason));
    }
    let distinct: BTreeSet<AllocationId> = victims.iter().map(|victim| victim.id).collect();
    match distinct.len() == victims.len() {
        true => Ok(()),
        false => Err(invalid("victims", "an allocation is named twice")),
    }
}

/// Returns the change that starts preempting one victim. The victim must be of a lower class and hold one of the nodes.
fn preempt_change(
    case: Case<'_>,
    pending: &Allocation,
    nodes: &[NodeId],
    victim: &Victim,
) -> Result<Change, Refusal> {
    let present = case.live(victim.id, "move")?;
    let (own, other) = (present.spec.class, pending.spec.class);
    if own >= other {
        return Err(Refusal::NotMovable {
            id: victim.id,
            reason: format!(
                "its class is {own}; only classes below {other} are preempted for allocation {}",
                pending.name()
            ),
        });
    }
    if !present.kept_nodes().any(|node| nodes.contains(node)) {
        let reason = format!("allocation {} has none of the nodes", present.name());
        return Err(invalid("victims", reason));
    }
    let by = pending.id;
    move_change(case, present, victim, &MoveReason::Preempted { by })
}

/// Reason why a node cannot be promised, if any: it must be free, or held by a victim.
fn not_promisable(
    case: Case<'_>,
    pending: &Allocation,
    victims: &[Victim],
    node: &Node,
) -> Option<UnavailableReason> {
    if let Some(id) = node.promised {
        return Some(UnavailableReason::Promised { id });
    }
    if node.current != pending.spec.vcluster {
        let home = node.current.clone();
        return Some(UnavailableReason::Vcluster { home });
    }
    if node.reclaimed_at.is_some() {
        let home = node.home.clone();
        return Some(UnavailableReason::Vcluster { home });
    }
    if node.lifecycle != Lifecycle::Ready || !node.drain.is_empty() {
        let lifecycle = node.lifecycle;
        return Some(UnavailableReason::OutOfService { lifecycle });
    }
    let makes_room = |id| victims.iter().any(|victim| victim.id == id);
    match node.holder {
        Some(holder) if makes_room(holder.allocation) => None,
        None if node.is_assignable_to(&pending.user, &pending.spec) => None,
        _ => taken_by(case, node).or(Some(UnavailableReason::Changed)),
    }
}

/// Withdraws the promised nodes of a pending allocation.
pub(super) fn withdraw(case: Case<'_>, id: AllocationId) -> Verdict {
    let free = |node: &NodeId| {
        let node = case.state.nodes.get(node)?;
        Some(Change::Node(Box::new(Node {
            promised: None,
            version: node.version + 1,
            ..node.clone()
        })))
    };
    let nodes = case.state.order.promised(id);
    Verdict::done(nodes.filter_map(free).collect())
}

/// Reclaims a lent node, or withdraws the reclaim.
pub(super) fn reclaim(
    case: Case<'_>,
    id: &NodeId,
    wanted: bool,
    version: u64,
) -> Result<Verdict, Refusal> {
    let node = super::nodes::node(case, id)?;
    if node.reclaimed_at.is_some() == wanted {
        return Ok(Verdict::unchanged());
    }
    if node.home == node.current {
        let reason = format!("node {id} is not lent");
        return Err(invalid("node", reason));
    }
    if node.version != version {
        let holder = node.holder.map(|holder| holder.allocation);
        let node = id.clone();
        return Err(Refusal::NodeChanged { node, holder });
    }
    Ok(Verdict::done(vec![Change::Node(Box::new(Node {
        reclaimed_at: wanted.then_some(case.now),
        version: node.version + 1,
        ..node.clone()
    }))]))
}
