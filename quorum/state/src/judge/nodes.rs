//! Node commands: registration, lifecycle, drain reasons.

use super::{Case, audited, invalid, truncated_text};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    NodeId, Refusal, Revision, UnixMillis, VclusterName,
    audit::AuditAction,
    command::Privilege,
    node::{DrainReason, Lifecycle, Node},
};

/// Owner of the drain reason that a failed site hook sets.
pub(super) const HOOKS: &str = "service:hooks";

/// Registers a node. A registered node stays unchanged.
pub(super) fn register(
    case: Case<'_>,
    id: &NodeId,
    vcluster: &VclusterName,
) -> Result<Verdict, Refusal> {
    if case.state.nodes.contains_key(id) {
        return Ok(Verdict::unchanged());
    }
    let node = Node {
        id: id.clone(),
        lifecycle: Lifecycle::Joining,
        drain: Vec::new(),
        holder: None,
        version: 1,
        home: vcluster.clone(),
        current: vcluster.clone(),
        registered_at: case.now,
        revision: Revision(0),
        node_claim: None,
        promised: None,
        reclaimed_at: None,
    };
    Ok(Verdict::done(vec![Change::Node(Box::new(node))]))
}

/// Sets the lifecycle of a node. Open drain reasons prevent `ready`: an administrator overrides them, and a node that
/// was joining or quarantined becomes drained instead.
pub(super) fn set_lifecycle(
    case: Case<'_>,
    id: &NodeId,
    wanted: Lifecycle,
) -> Result<Verdict, Refusal> {
    let present = node(case, id)?;
    check_node_claim(present, wanted)?;
    let mut next = present.clone();
    next.lifecycle = match wanted {
        Lifecycle::Retired if present.holder.is_some() => {
            let reason = format!("node {id} still runs an allocation; drain it first");
            return Err(invalid("lifecycle", reason));
        }
        Lifecycle::Ready if !present.drain.is_empty() => match present.lifecycle {
            _ if case.principal.privilege == Privilege::Admin => {
                next.drain.clear();
                Lifecycle::Ready
            }
            Lifecycle::Joining | Lifecycle::Quarantined => drained(present),
            _ => {
                let owners: Vec<_> = present.drain.iter().map(|d| d.owner.as_str()).collect();
                let owners = owners.join(", ");
                let reason = format!(
                    "node {id} is drained by {owners}; each owner must clear its own reason, or \
                     an administrator must set the node to ready"
                );
                return Err(invalid("lifecycle", reason));
            }
        },
        Lifecycle::Draining | Lifecycle::Drained => drained(present),
        other => other,
    };
    Ok(changed(present, next))
}

/// Rejects retiring a claimed node, and taking a node with a failed wipe out of quarantine.
fn check_node_claim(node: &Node, wanted: Lifecycle) -> Result<(), Refusal> {
    let Some(node_claim) = &node.node_claim else {
        return Ok(());
    };
    let (id, user) = (&node.id, &node_claim.user);
    if wanted == Lifecycle::Retired {
        let reason = format!(
            "node {id} is {} by {user}; it must be released and wiped before it is retired",
            node_claim.phase.as_str()
        );
        return Err(invalid("lifecycle", reason));
    }
    if node_claim.has_failed() && wanted != Lifecycle::Quarantined {
        let reason = format!(
            "node {id} could not be wiped after {user}; order another wipe, or accept the unwiped \
             node"
        );
        return Err(invalid("lifecycle", reason));
    }
    Ok(())
}

/// Sets or clears the principal's own drain reason. A ready node becomes draining or drained with the first reason, and
/// a draining or drained node becomes ready after the last reason.
pub(super) fn drain(
    case: Case<'_>,
    id: &NodeId,
    reason: Option<&str>,
    expected: Option<Revision>,
) -> Result<Verdict, Refusal> {
    let present = node_at(case, id, expected)?;
    let owner = &case.principal.name;
    let own = present.drain.iter().position(|drain| drain.owner == *owner);
    let mut next = present.clone();
    match (reason, own) {
        (Some(""), _) => return Err(invalid("reason", "give a short reason")),
        (Some(reason), _) => {
            let next = with_reason(present, owner, &truncated_text(reason), case.now);
            return Ok(if next == *present {
                Verdict::unchanged()
            } else {
                Verdict::done(vec![Change::Node(Box::new(next))])
            });
        }
        (None, Some(i)) => {
            next.drain.remove(i);
        }
        (None, None) => return Ok(Verdict::unchanged()),
    }
    Ok(changed(present, without_reason(next)))
}

/// Clears the principal's own drain reason and that of a failed hook without a check by the node's health gate. Writes
/// an audit entry.
pub(super) fn undrain_unchecked(
    case: Case<'_>,
    id: &NodeId,
    expected: Option<Revision>,
) -> Result<Verdict, Refusal> {
    let present = node_at(case, id, expected)?;
    let owner = &case.principal.name;
    let is_cleared = |drain: &DrainReason| drain.owner == *owner || drain.owner == HOOKS;
    let cleared = present.drain.iter().filter(|drain| is_cleared(drain));
    let cleared: Vec<String> = cleared
        .map(|drain| format!("{}: {}", drain.owner, drain.reason))
        .collect();
    if cleared.is_empty() {
        return Ok(Verdict::unchanged());
    }
    let mut next = present.clone();
    next.drain.retain(|drain| !is_cleared(drain));
    let node = id.clone();
    let action = AuditAction::GateSkipped { node, cleared };
    let verdict = changed(present, without_reason(next));
    Ok(Verdict::done(audited(case, action, verdict.changes)))
}

/// Sets the node ready once its last drain reason is cleared.
fn without_reason(mut node: Node) -> Node {
    node.lifecycle = match node.lifecycle {
        Lifecycle::Draining | Lifecycle::Drained if node.drain.is_empty() => Lifecycle::Ready,
        other => other,
    };
    node
}

/// Returns the node with a drain reason of this owner, which replaces the owner's former reason.
pub(super) fn with_reason(present: &Node, owner: &str, reason: &str, now: UnixMillis) -> Node {
    let mut next = present.clone();
    match next.drain.iter_mut().find(|drain| drain.owner == owner) {
        Some(own) => own.reason = reason.to_owned(),
        None => next.drain.push(DrainReason {
            owner: owner.to_owned(),
            reason: reason.to_owned(),
            since: now,
        }),
    }
    if present.lifecycle == Lifecycle::Ready {
        next.lifecycle = drained(present);
        next.version += 1;
    }
    next
}

/// Lifecycle of a node that is taken out of service: draining while an allocation holds the node, else drained.
fn drained(node: &Node) -> Lifecycle {
    if node.holder.is_some() {
        Lifecycle::Draining
    } else {
        Lifecycle::Drained
    }
}

/// The change from `present` to `next`, with a new node version when the lifecycle changes.
fn changed(present: &Node, mut next: Node) -> Verdict {
    if *present == next {
        return Verdict::unchanged();
    }
    if present.lifecycle != next.lifecycle {
        next.version += 1;
    }
    Verdict::done(vec![Change::Node(Box::new(next))])
}

/// Returns the node, if its revision is the expected one.
pub(super) fn node_at<'a>(
    case: Case<'a>,
    id: &NodeId,
    expected: Option<Revision>,
) -> Result<&'a Node, Refusal> {
    let node = node(case, id)?;
    if expected.is_none_or(|expected| expected == node.revision) {
        return Ok(node);
    }
    Err(Refusal::NodeChanged {
        node: id.clone(),
        holder: node.holder.map(|holder| holder.allocation),
    })
}

pub(super) fn node<'a>(case: Case<'a>, id: &NodeId) -> Result<&'a Node, Refusal> {
    case.state
        .nodes
        .get(id)
        .ok_or_else(|| Refusal::UnknownNode { node: id.clone() })
}
