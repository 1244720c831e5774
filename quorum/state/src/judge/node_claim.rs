//! Node claims: nodes claimed by one user for sensitive allocations, released through the site's wipe. See
//! `../../../0007-node-claims.md`.

use super::{
    Case, access::forbidden, audited, invalid, nodes as records, sensitive, truncated_text,
    trust::check_reason,
};
use crate::{
    change::{Change, Verdict},
    reservations::NodeRequester,
};
use lattice_quorum_types::{
    NodeId, ProjectPath, Refusal, UnixMillis,
    audit::AuditAction,
    command::{AttestedNode, Privilege},
    event::EventKind,
    limit::Usage,
    node::{Lifecycle, Node, UnavailableNode, UnavailableReason},
    node_claim::{NodeClaim, NodeClaimPhase, WipeOutcome},
    refusal::LimitRequest,
    text::MAX_FREE_TEXT_BYTES,
};
use std::collections::BTreeSet;

/// Claims nodes for the principal, all or none.
pub(super) fn claim(
    case: Case<'_>,
    project: &ProjectPath,
    nodes: &[AttestedNode],
    purpose: &str,
) -> Result<Verdict, Refusal> {
    check_purpose(purpose)?;
    sensitive::check_form(nodes)?;
    let state = case.state;
    state.tree.require(project)?;
    let free = claimable(case, project, nodes)?;
    let count = free.len() as u64;
    state.check_sensitive_pool(count)?;
    let asked = Usage {
        nodes: count,
        allocations: 0,
    };
    state
        .tree
        .check_fits(state.policy, project, asked, LimitRequest::Claim)?;
    Refusal::refuse_nonconforming(sensitive::faults(case, nodes))?;

    let node_claim = NodeClaim {
        user: case.principal.name.clone(),
        project: project.clone(),
        purpose: purpose.to_owned(),
        since: case.now,
        phase: NodeClaimPhase::Claimed,
        counted_by: None,
    };
    let names: Vec<NodeId> = free.iter().map(|node| node.id.clone()).collect();
    let mut changes: Vec<Change> = free
        .into_iter()
        .map(|node| with_node_claim(node, Some(node_claim.clone())))
        .collect();
    changes.push(Change::Announce(Box::new(EventKind::NodesClaimed {
        nodes: names.clone(),
        node_claim: node_claim.clone(),
    })));
    let action = AuditAction::NodesClaimed {
        nodes: names,
        user: node_claim.user,
        project: node_claim.project,
        purpose: node_claim.purpose,
        baselines: sensitive::strict_baselines(case, nodes),
    };
    Ok(Verdict::done(audited(case, action, changes)))
}

fn check_purpose(purpose: &str) -> Result<(), Refusal> {
    if purpose.len() > MAX_FREE_TEXT_BYTES {
        let reason = format!("use at most {MAX_FREE_TEXT_BYTES} bytes");
        return Err(invalid("purpose", reason));
    }
    if purpose.chars().any(char::is_control) {
        return Err(invalid("purpose", "must not contain control characters"));
    }
    Ok(())
}

/// Returns the nodes if all can be claimed for this project; else a refusal that lists each taken node and
/// why it is taken.
fn claimable<'a>(
    case: Case<'a>,
    project: &ProjectPath,
    nodes: &[AttestedNode],
) -> Result<Vec<&'a Node>, Refusal> {
    if nodes.is_empty() {
        return Err(invalid("nodes", "name at least one node"));
    }
    let mut free = Vec::with_capacity(nodes.len());
    let mut taken = Vec::new();
    let mut seen = BTreeSet::new();
    for AttestedNode { expected, .. } in nodes {
        let id = &expected.node;
        if !seen.insert(id) {
            return Err(invalid("nodes", format!("node {id} is named twice")));
        }
        let node = records::node(case, id)?;
        case.state.vclusters.check_use(&node.current, project)?;
        let by = taken_by(case, node)
            .or((node.version != expected.version).then_some(UnavailableReason::Changed));
        match by {
            None => free.push(node),
            Some(by) => taken.push(UnavailableNode {
                node: id.clone(),
                by,
            }),
        }
    }
    if !taken.is_empty() {
        return Err(Refusal::NodesTaken { nodes: taken });
    }
    // A node claim has no end time.
    let wants = NodeRequester {
        user: &case.principal.name,
        project,
        now: case.now,
        for_ms: None,
    };
    let reservations = &case.state.reservations;
    let keeps = |node: &&Node| {
        Some((
            node.id.clone(),
            reservations.blocking_reservation(&node.id, wants)?.clone(),
        ))
    };
    let kept: Vec<_> = free.iter().filter_map(keeps).collect();
    match kept.is_empty() {
        true => Ok(free),
        false => Err(Refusal::Reserved { nodes: kept }),
    }
}

/// Reason why a node is not available; `None` if the node is free.
pub(super) fn taken_by(case: Case<'_>, node: &Node) -> Option<UnavailableReason> {
    if let Some(NodeClaim {
        user,
        project,
        phase,
        ..
    }) = &node.node_claim
    {
        return Some(UnavailableReason::User {
            user: user.clone(),
            project: project.clone(),
            phase: phase.clone(),
        });
    }
    if let Some(holder) = node.holder {
        let id = holder.allocation;
        let user = case.state.hot.get(&id).map(|held| held.user.clone());
        let user = user.unwrap_or_default();
        return Some(UnavailableReason::Allocation { id, user });
    }
    if let Some(id) = node.promised {
        return Some(UnavailableReason::Promised { id });
    }
    if node.reclaimed_at.is_some() {
        let home = node.home.clone();
        return Some(UnavailableReason::Vcluster { home });
    }
    let lifecycle = node.lifecycle;
    (!node.is_assignable()).then_some(UnavailableReason::OutOfService { lifecycle })
}

/// Releases claimed nodes, all or none. Each is wiped before another user gets it.
pub(super) fn release(
    case: Case<'_>,
    nodes: &[NodeId],
    reason: Option<&str>,
) -> Result<Verdict, Refusal> {
    if nodes.is_empty() {
        return Err(invalid("nodes", "name at least one node"));
    }
    reason.map_or(Ok(()), check_reason)?;
    let mut seen = BTreeSet::new();
    let mut held = Vec::new();
    let mut open: Vec<(&Node, &NodeClaim)> = Vec::new();
    for id in nodes {
        if !seen.insert(id) {
            return Err(invalid("nodes", format!("node {id} is named twice")));
        }
        let node = records::node(case, id)?;
        let unclaimed = || invalid("nodes", format!("node {id} is not claimed"));
        let node_claim = node.node_claim.as_ref().ok_or_else(unclaimed)?;
        may_release(case, id, node_claim, reason)?;
        match node.holder {
            _ if !node_claim.is_open() => {}
            Some(holder) => held.push((id.clone(), holder.allocation)),
            None => open.push((node, node_claim)),
        }
    }
    if !held.is_empty() {
        return Err(Refusal::StillHeld { nodes: held });
    }
    Ok(Verdict::done(release_changes(case, &open, reason)))
}

/// Checks that the principal is the claimant, or an administrator with a reason.
fn may_release(
    case: Case<'_>,
    node: &NodeId,
    node_claim: &NodeClaim,
    reason: Option<&str>,
) -> Result<(), Refusal> {
    let principal = case.principal;
    match principal.privilege {
        _ if principal.name == node_claim.user && principal.privilege != Privilege::Service => {
            Ok(())
        }
        Privilege::Admin if reason.is_some() => Ok(()),
        Privilege::Admin => {
            let user = &node_claim.user;
            let why = format!("node {node} is claimed by {user}, not by you: give a reason");
            Err(invalid("reason", why))
        }
        _ => Err(forbidden(
            principal,
            format!("the user that claimed node {node}, or the role admin"),
        )),
    }
}

/// Changes that start the release, with one audit entry for each user and project.
fn release_changes(
    case: Case<'_>,
    open: &[(&Node, &NodeClaim)],
    reason: Option<&str>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut of: Vec<(&str, &ProjectPath)> = Vec::new();
    for (node, node_claim) in open {
        let key = (node_claim.user.as_str(), &node_claim.project);
        if !of.contains(&key) {
            of.push(key);
        }
        let phase = NodeClaimPhase::Releasing {
            wipe: node.version + 1,
            since: case.now,
            released_at: case.now,
            has_failed: false,
        };
        let node_claim = NodeClaim {
            phase,
            ..(*node_claim).clone()
        };
        changes.push(with_node_claim(node, Some(node_claim)));
    }
    for (user, project) in of {
        let mine = open.iter();
        let mine = mine.filter(|(_, t)| t.user == user && t.project == *project);
        let nodes: Vec<NodeId> = mine.map(|(node, _)| node.id.clone()).collect();
        let action = AuditAction::NodesReleased {
            nodes,
            user: user.to_owned(),
            project: project.clone(),
            reason: reason.unwrap_or_default().to_owned(),
        };
        changes = audited(case, action, changes);
    }
    changes
}

/// Records the outcome of a wipe. An outcome for a wipe that is no longer awaited changes nothing.
pub(super) fn report_wipe(
    case: Case<'_>,
    id: &NodeId,
    wipe: u64,
    outcome: &WipeOutcome,
) -> Result<Verdict, Refusal> {
    let node = records::node(case, id)?;
    let Some(node_claim) = node
        .node_claim
        .as_ref()
        .filter(|t| t.awaits_wipe() == Some(wipe))
    else {
        return Ok(Verdict::unchanged());
    };
    let outcome = with_truncated_text(outcome);
    match &outcome {
        WipeOutcome::Failed { reason, .. } => Ok(quarantine(case, node, node_claim, wipe, reason)),
        WipeOutcome::Wiped { .. } | WipeOutcome::NotNeeded { .. } => {
            let action = AuditAction::NodeWiped {
                node: id.clone(),
                user: Some(node_claim.user.clone()),
                evidence: outcome.to_string(),
            };
            let has_failed = node_claim.has_failed();
            let changes = end_claim(case, node, node_claim, outcome, has_failed);
            Ok(Verdict::done(audited(case, action, changes)))
        }
    }
}

fn with_truncated_text(outcome: &WipeOutcome) -> WipeOutcome {
    let mut outcome = outcome.clone();
    match &mut outcome {
        WipeOutcome::Wiped { evidence, boot, .. } => {
            *evidence = truncated_text(evidence);
            *boot = truncated_text(boot);
        }
        WipeOutcome::NotNeeded { boot, .. } => *boot = truncated_text(boot),
        WipeOutcome::Failed { reason, boot, .. } => {
            *reason = truncated_text(reason);
            *boot = truncated_text(boot);
        }
    }
    outcome
}

fn quarantine(
    case: Case<'_>,
    node: &Node,
    node_claim: &NodeClaim,
    wipe: u64,
    reason: &str,
) -> Verdict {
    let action = AuditAction::NodeQuarantined {
        node: node.id.clone(),
        user: Some(node_claim.user.clone()),
        reason: reason.to_owned(),
    };
    let phase = NodeClaimPhase::Unclean {
        wipe,
        reason: reason.to_owned(),
        since: case.now,
        released_at: released_at(case, node_claim),
    };
    let node_claim = NodeClaim {
        phase,
        ..node_claim.clone()
    };
    let quarantined = Node {
        lifecycle: Lifecycle::Quarantined,
        node_claim: Some(node_claim),
        version: node.version + 1,
        ..node.clone()
    };
    let changes = vec![Change::Node(Box::new(quarantined))];
    Verdict::done(audited(case, action, changes))
}

fn released_at(case: Case<'_>, node_claim: &NodeClaim) -> UnixMillis {
    match node_claim.phase {
        NodeClaimPhase::Releasing { released_at, .. }
        | NodeClaimPhase::Unclean { released_at, .. } => released_at,
        NodeClaimPhase::Claimed => case.now,
    }
}

/// Ends the node claim. If the node was not wiped at the first attempt (`has_failed`), it is drained like any node with
/// a failed hook, until its health gate passes.
fn end_claim(
    case: Case<'_>,
    node: &Node,
    node_claim: &NodeClaim,
    wipe: WipeOutcome,
    has_failed: bool,
) -> Vec<Change> {
    let mut next = node.clone();
    if has_failed {
        let reason = format!(
            "not wiped at the first attempt after the claim of {}; {wipe}",
            node_claim.user
        );
        next = records::with_reason(&next, records::HOOKS, &truncated_text(&reason), case.now);
        next.lifecycle = Lifecycle::Drained;
    }
    next.node_claim = None;
    next.version = node.version + 1;
    let released = EventKind::NodeReleased {
        node: node.id.clone(),
        node_claim: node_claim.clone(),
        wipe,
    };
    vec![
        Change::Node(Box::new(next)),
        Change::Announce(Box::new(released)),
    ]
}

/// Starts another wipe of a released node, on behalf of an administrator.
pub(super) fn repeat_wipe(case: Case<'_>, id: &NodeId, reason: &str) -> Result<Verdict, Refusal> {
    check_reason(reason)?;
    let node = records::node(case, id)?;
    let Some(node_claim) = &node.node_claim else {
        return Err(invalid("node", format!("node {id} is not claimed")));
    };
    if node_claim.is_open() {
        let user = &node_claim.user;
        let why = format!("node {id} is claimed by {user}; release it first");
        return Err(invalid("node", why));
    }
    let phase = NodeClaimPhase::Releasing {
        wipe: node.version + 1,
        since: case.now,
        released_at: released_at(case, node_claim),
        has_failed: node_claim.has_failed(),
    };
    let action = AuditAction::WipeRepeated {
        node: id.clone(),
        user: node_claim.user.clone(),
        reason: reason.to_owned(),
    };
    let node_claim = NodeClaim {
        phase,
        ..node_claim.clone()
    };
    let changes = vec![with_node_claim(node, Some(node_claim))];
    Ok(Verdict::done(audited(case, action, changes)))
}

/// Ends the node claim although the site's hook did not wipe the node; an administrator is accountable.
pub(super) fn accept_unwiped(
    case: Case<'_>,
    id: &NodeId,
    reason: &str,
) -> Result<Verdict, Refusal> {
    check_reason(reason)?;
    let node = records::node(case, id)?;
    let unclaimed = || invalid("node", format!("node {id} is not claimed"));
    let node_claim = node.node_claim.as_ref().ok_or_else(unclaimed)?;
    if node_claim.is_open() {
        let user = &node_claim.user;
        let why = format!("node {id} is claimed by {user}; release it first");
        return Err(invalid("node", why));
    }
    let action = AuditAction::UnwipedAccepted {
        node: id.clone(),
        user: node_claim.user.clone(),
        reason: reason.to_owned(),
    };
    let by = &case.principal.name;
    let wipe = WipeOutcome::Failed {
        at: case.now,
        boot: String::new(),
        reason: truncated_text(&format!("accepted unwiped by {by}: {reason}")),
    };
    let changes = end_claim(case, node, node_claim, wipe, true);
    Ok(Verdict::done(audited(case, action, changes)))
}

fn with_node_claim(node: &Node, node_claim: Option<NodeClaim>) -> Change {
    Change::Node(Box::new(Node {
        node_claim,
        version: node.version + 1,
        ..node.clone()
    }))
}
