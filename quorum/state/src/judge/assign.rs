//! Assignment of nodes to an allocation (the second limit check), and stops of allocations.

use super::{
    Case,
    admission::{check_begin, check_not_paused, full_usage, usage_beyond_claimed},
    element, invalid,
    node_claim::taken_by,
    sensitive,
    transition::in_state,
    truncated_text, with_truncated_text, wrong_state,
};
use crate::{
    change::{Change, UsageDirection, Verdict},
    reservations::NodeRequester,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Outcome, Refusal,
    allocation::{Rank, RankPhase, StopCause},
    command::{AttestedNode, ExpectedNode},
    event::AllocationChange,
    node::{Holder, Node, UnavailableNode, UnavailableReason},
    node_claim::NodeClaim,
    planted::{self, Bug},
    refusal::LimitRequest,
};
use std::collections::BTreeSet;

/// Longest boot id, bytes. Boot ids of the Linux kernel have 36.
const MAX_BOOT_BYTES: usize = 128;

/// Assigns a pending allocation exactly the nodes that it requests, if each node is as the plan expected and limits
/// allow it now. After a refusal the allocation stays pending and is planned again.
pub(super) fn assign(
    case: Case<'_>,
    id: AllocationId,
    expected: &[ExpectedNode],
) -> Result<Verdict, Refusal> {
    let verdict = assign_any(case, id, expected)?;
    // An element is never sensitive.
    let is_sensitive = case
        .state
        .hot
        .get(&id)
        .is_some_and(|present| present.spec.sensitive);
    if is_sensitive {
        sensitive::refuse_without_attestations(id, expected.iter().map(|expected| &expected.node))?;
    }
    Ok(verdict)
}

/// Assigns a sensitive allocation, with an attestation of each node.
pub(super) fn assign_sensitive(
    case: Case<'_>,
    id: AllocationId,
    nodes: &[AttestedNode],
) -> Result<Verdict, Refusal> {
    if !case.live(id, "assign")?.spec.sensitive {
        let reason = "only sensitive allocations take attestations; assign without them";
        return Err(invalid("nodes", reason));
    }
    sensitive::check_form(nodes)?;
    let expected: Vec<ExpectedNode> = nodes.iter().map(|node| node.expected.clone()).collect();
    let verdict = assign_any(case, id, &expected)?;
    sensitive::check(case, id, nodes)?;
    Ok(verdict)
}

fn assign_any(
    case: Case<'_>,
    id: AllocationId,
    expected: &[ExpectedNode],
) -> Result<Verdict, Refusal> {
    let element = element::to_place(case, id)?;
    let present = match &element {
        Some((element, _)) => element,
        None => case.live(id, "assign")?,
    };
    if present.state != AllocationState::Pending || present.progress.tally.is_some() {
        return Err(wrong_state(present, "assign"));
    }
    let spec = &present.spec;
    check_not_paused(case, spec)?;
    if expected.len() != spec.nodes as usize {
        let (given, asked) = (expected.len(), spec.nodes);
        return Err(invalid(
            "nodes",
            format!("{given} nodes given, but the allocation requests {asked}"),
        ));
    }
    // No node would ever report on such an allocation, so nothing could end it.
    if expected.is_empty() {
        return Err(invalid("nodes", "name at least one node"));
    }
    let free = free_nodes(case, present, expected)?;
    check_may_hold(case, present, &free)?;

    let attempt = present.attempt + 1;
    let mut record = Allocation {
        attempt,
        ranks: expected.iter().map(assigned_rank).collect(),
        stop: None,
        ..in_state(case, present, AllocationState::Starting)
    };
    let kept = record.progress.kept.as_ref();
    record.progress.resumed_ms = kept.map_or(0, |kept| kept.progress_ms);
    // The launches of this attempt carry the current walltime, so no change of walltime is left to deliver.
    record.progress.walltime_changes = 0;
    let change = AllocationChange::Assigned;
    let mut changes = vec![Change::Allocation {
        change,
        record: Box::new(record),
    }];
    changes.extend(element.as_ref().map(|(_, array)| Change::Allocation {
        change: AllocationChange::Counted,
        record: Box::new(array.clone()),
    }));
    let holder = Holder {
        allocation: id,
        attempt,
    };
    changes.extend(free.into_iter().map(|node| take_node(node, holder)));
    changes.push(Change::Usage {
        path: spec.project.clone(),
        usage: full_usage(spec),
        direction: UsageDirection::Add,
    });
    Ok(Verdict {
        outcome: Outcome::Assigned { attempt },
        changes,
    })
}

/// Checks that a pending allocation may hold these nodes: its begin time has come, no reservation keeps the nodes for
/// others, and limits allow it. [`free_nodes`] checks that the nodes are free.
pub(super) fn check_may_hold(
    case: Case<'_>,
    present: &Allocation,
    nodes: &[&Node],
) -> Result<(), Refusal> {
    check_begin(case, present)?;
    check_reserved(case, present, nodes)?;
    let (state, spec) = (case.state, &present.spec);
    // Usage already counts nodes that the user of the allocation has claimed.
    let own = nodes.iter().filter(|node| node.claim_project().is_some());
    let asked = usage_beyond_claimed(spec, own.count());
    if !planted::is_planted(Bug::LimitsUnchecked) {
        let (path, for_work) = (&spec.project, LimitRequest::Allocation);
        state.tree.check_fits(state.policy, path, asked, for_work)?;
    }
    match spec.sensitive {
        true => state.check_sensitive_pool(asked.nodes),
        false => Ok(()),
    }
}

/// Rank in phase `Assigned` on a chosen node.
pub(super) fn assigned_rank(chosen: &ExpectedNode) -> Rank {
    Rank {
        node: chosen.node.clone(),
        boot: chosen.boot.clone(),
        phase: RankPhase::Assigned,
    }
}

/// Change that makes `holder` the holder of a free node.
pub(super) fn take_node(node: &Node, holder: Holder) -> Change {
    Change::Node(Box::new(Node {
        holder: Some(holder),
        promised: None,
        version: node.version + 1,
        ..node.clone()
    }))
}

/// Returns the expected nodes if all are distinct, unchanged, free, and in the right vCluster.
pub(super) fn free_nodes<'a>(
    case: Case<'a>,
    allocation: &Allocation,
    expected: &[ExpectedNode],
) -> Result<Vec<&'a Node>, Refusal> {
    let mut free = Vec::with_capacity(expected.len());
    let (mut changed, mut others) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for expected in expected {
        let ExpectedNode {
            node: id,
            version,
            boot,
        } = expected;
        if boot.as_ref().is_some_and(|b| b.len() > MAX_BOOT_BYTES) {
            return Err(invalid(
                "nodes",
                format!("the boot id of node {id} is not a valid boot id"),
            ));
        }
        if !seen.insert(id) {
            return Err(invalid("nodes", format!("node {id} is named twice")));
        }
        let unknown = || Refusal::UnknownNode { node: id.clone() };
        let node = case.state.nodes.get(id).ok_or_else(unknown)?;
        let is_free = node.is_assignable_to(&allocation.user, &allocation.spec);
        let is_as_planned = node.version == *version && is_free;
        let (user, spec) = (&allocation.user, &allocation.spec);
        let is_theirs =
            |node_claim: &NodeClaim| spec.sensitive && node_claim.is_open_to(user, &spec.project);
        let is_others = node
            .node_claim
            .as_ref()
            .is_some_and(|node_claim| !is_theirs(node_claim));
        let promised = node.promised.filter(|id| *id != allocation.id);
        if let Some(by) = promised.filter(|_| !planted::is_planted(Bug::NodesTaken)) {
            others.push(UnavailableNode {
                node: id.clone(),
                by: UnavailableReason::Promised { id: by },
            });
        } else if node.reclaimed_at.is_some() && !planted::is_planted(Bug::NodesTaken) {
            let home = node.home.clone();
            others.push(UnavailableNode {
                node: id.clone(),
                by: UnavailableReason::Vcluster { home },
            });
        } else if is_others && !planted::is_planted(Bug::NodesTaken) {
            // Planning again with the present version of the node would not help.
            let node_taken = |by| UnavailableNode {
                node: id.clone(),
                by,
            };
            others.extend(taken_by(case, node).map(node_taken));
        } else if !is_as_planned && !planted::is_planted(Bug::NodesTaken) {
            changed.push((id.clone(), node.holder.map(|holder| holder.allocation)));
        } else if node.current != allocation.spec.vcluster {
            let (has, wants) = (&node.current, &allocation.spec.vcluster);
            let reason = format!("node {id} serves vCluster {has}, the allocation is for {wants}");
            return Err(invalid("nodes", reason));
        }
        free.push(node);
    }
    if !others.is_empty() {
        return Err(Refusal::NodesTaken { nodes: others });
    }
    if !changed.is_empty() {
        return Err(Refusal::OwnershipConflict { nodes: changed });
    }
    Ok(free)
}

/// Rejects nodes that a reservation keeps for others while the allocation would run. Also rejects nodes outside the
/// reservation that the allocation requests.
pub(super) fn check_reserved(
    case: Case<'_>,
    allocation: &Allocation,
    nodes: &[&Node],
) -> Result<(), Refusal> {
    // A running allocation has used part of its walltime.
    let ran = allocation
        .attempt_began_at()
        .filter(|_| allocation.state.holds());
    let ran_ms = ran.map_or(0, |began| case.now.since(began));
    let left_ms = allocation.walltime_left_ms();
    let reservations = &case.state.reservations;
    let wants = NodeRequester {
        user: &allocation.user,
        project: &allocation.spec.project,
        now: case.now,
        for_ms: left_ms.map(|left| left.saturating_sub(ran_ms)),
    };
    let keeps = |node: &&Node| {
        Some((
            node.id.clone(),
            reservations.blocking_reservation(&node.id, wants)?.clone(),
        ))
    };
    let kept: Vec<_> = nodes.iter().filter_map(keeps).collect();
    if !kept.is_empty() {
        return Err(Refusal::Reserved { nodes: kept });
    }
    let Some(name) = &allocation.spec.terms.reservation else {
        return Ok(());
    };
    let unknown = || Refusal::UnknownReservation { name: name.clone() };
    let reservation = &reservations.get(name).ok_or_else(unknown)?.spec;
    if reservation.from > case.now || !reservation.overlaps(case.now, None) {
        let reason = format!("reservation {name} is not in force now");
        return Err(invalid("reservation", reason));
    }
    let other = nodes
        .iter()
        .find(|node| !reservation.nodes.contains(&node.id));
    match other {
        Some(node) => {
            let reason = format!("node {} does not belong to reservation {name}", node.id);
            Err(invalid("nodes", reason))
        }
        None => Ok(()),
    }
}

/// Starts stopping an allocation that holds nodes. The first cause stays.
pub(super) fn stop(
    case: Case<'_>,
    id: AllocationId,
    cause: &StopCause,
) -> Result<Verdict, Refusal> {
    let present = case.live(id, "stop")?;
    if present.state == AllocationState::Stopping {
        return Ok(Verdict::unchanged());
    }
    if !present.state.holds() {
        return Err(wrong_state(present, "stop"));
    }
    let record = in_state(case, present, AllocationState::Stopping);
    let record = Box::new(Allocation {
        stop: Some(with_truncated_cause(cause)),
        ..record
    });
    let change = AllocationChange::Stopping;
    Ok(Verdict::done(vec![Change::Allocation { change, record }]))
}

fn with_truncated_cause(cause: &StopCause) -> StopCause {
    match cause {
        StopCause::RankFailed { rank, exit } => StopCause::RankFailed {
            rank: *rank,
            exit: with_truncated_text(exit),
        },
        StopCause::NodeFault { node, reason } => StopCause::NodeFault {
            node: node.clone(),
            reason: truncated_text(reason),
        },
        other => other.clone(),
    }
}
