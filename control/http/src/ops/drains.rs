//! Draining and undraining of nodes, including forced release.

use super::{audit, certificates::check_reason, node_id, nodes::agent_problem, propose};
use crate::caller::{Caller, Role};
use crate::state::Api;
use lattice_api::{
    allocation::ElementView,
    node::{DrainRequest, DrainResult, HolderView, UndrainResult},
    problem::{Kind, Problem},
};
use lattice_engine::{
    Core,
    tasks::{
        faults,
        node_evidence::{Freshness, bmc},
        readmission::{self, GateError},
    },
};
use lattice_quorum_types::{
    AllocationName, Command, NodeId, Revision,
    audit::{AuditAction, AuditEntry},
    event::EventKind,
    node::{DrainReason, Node},
};
use lattice_view::View;
use std::sync::Arc;

/// Drains a node; with `force_release`, also takes the node from its holder.
pub(crate) async fn drain(
    core: &Core,
    caller: &Caller,
    node: &str,
    request: DrainRequest,
    key: Option<String>,
) -> Result<DrainResult, Problem> {
    let DrainRequest {
        reason,
        force_release,
    } = request;
    let hint = match force_release {
        true => {
            "give the reason, and the proof that no process of the allocation runs on the node; \
             both are written to the audit log"
        }
        false => "give the reason of the drain",
    };
    check_reason(&reason, hint)?;
    let node = node_id(node)?;
    if !force_release {
        let reason = Some(reason);
        let applied = propose(
            core,
            caller,
            key,
            Command::Drain {
                node,
                reason,
                expected: None,
            },
        )
        .await?;
        return Ok(DrainResult {
            revision: applied.revision,
            force_released_from: None,
        });
    }
    caller.check_role(Role::Operator, "releasing a node by force")?;
    let expected = check_holder(core, caller, &node).await?;
    let command = Command::ForceRelease {
        node: node.clone(),
        reason: reason.clone(),
        expected,
    };
    let applied = match propose(core, caller, key, command).await {
        // The node has no holder, so draining it is sufficient.
        Err(problem) if problem.field.as_deref() == Some("node") => {
            let reason = Some(reason);
            let drain = Command::Drain {
                node,
                reason,
                expected: None,
            };
            let revision = propose(core, caller, None, drain).await?.revision;
            let given_up = None;
            return Ok(DrainResult {
                revision,
                force_released_from: given_up,
            });
        }
        applied => applied?,
    };
    let mut given_up = applied.events.iter().find_map(|event| match &event.kind {
        EventKind::Audit { entry } => force_released_holder(entry),
        _ => None,
    });
    if applied.events.is_empty() {
        // A repeated request is answered without its events.
        audit::for_each_entry(core, |entry| {
            if entry.revision == applied.revision {
                given_up = given_up.take().or_else(|| force_released_holder(entry));
            }
        })
        .await?;
    }
    Ok(DrainResult {
        revision: applied.revision,
        force_released_from: given_up,
    })
}

/// Holder from which the node was taken by force.
fn force_released_holder(entry: &AuditEntry) -> Option<HolderView> {
    match &entry.action {
        AuditAction::ForceReleased {
            allocation: Some(allocation),
            element,
            attempt,
            ..
        } => Some(HolderView {
            allocation: *allocation,
            attempt: *attempt,
            element: ElementView::of(AllocationName::new(*allocation, *element)),
        }),
        _ => None,
    }
}

/// Rejects a forced release of another tenant's allocation by an operator of some tenants only. Returns the committed
/// revision of the node at which this was checked; the release applies only at that revision.
async fn check_holder(
    core: &Core,
    caller: &Caller,
    node: &NodeId,
) -> Result<Option<Revision>, Problem> {
    let view = present_view(core).await?;
    let record = view.node(node).and_then(|entry| entry.record.as_ref());
    let Some(record) = record else {
        // The quorum rejects the unknown node.
        return Ok(None);
    };
    if let Some(holder) = record.holder {
        let held = view.allocation(holder.allocation);
        if !held.is_some_and(|held| caller.sees(&held.spec.project)) {
            let detail = format!(
                "{node} is held by another tenant's allocation; ask an operator of the whole \
                 cluster"
            );
            return Err(Problem::new(Kind::Forbidden, "forbidden", detail));
        }
    }
    Ok(Some(record.revision))
}

async fn present_view(core: &Core) -> Result<Arc<View>, Problem> {
    let present = core.present_view().await;
    present.map_err(|unavailable| Problem::from(&unavailable))
}

/// Clears the caller's own drain reason, and that of a failed site hook, which only an operator may clear.
///
/// If no reason remains, the node returns to service, so it must pass the gate first. If all reasons belong to other
/// owners, the request is rejected and nothing is cleared. A node that is not drained is not checked.
///
/// The decision applies to one committed record of the node. If that record changes meanwhile, for example by another
/// undrain or by the release from its holder, nothing is cleared.
pub(crate) async fn undrain(
    api: &Api,
    caller: &Caller,
    node: &str,
    skip_gate: bool,
    key: Option<String>,
) -> Result<UndrainResult, Problem> {
    let core = api.core();
    let node = node_id(node)?;
    caller.check_role(Role::Operator, "undraining a node")?;
    let view = present_view(core).await?;
    let record = view.node(&node).and_then(|entry| entry.record.as_ref());
    record.map_or(Ok(()), |record| check_has_own_reason(caller, record))?;
    let drains = record.map_or(&[][..], |record| &record.drain);
    let own = drains.iter().filter(|drain| is_own(caller, drain));
    let cleared: Vec<String> = own.map(|d| format!("{}: {}", d.owner, d.reason)).collect();
    if skip_gate {
        caller.check_cluster_role(Role::Admin, "undraining without the health gate")?;
        tracing::warn!(by = %caller.name, %node, "node undrained without the health gate");
    } else if record.is_some_and(|record| may_return(caller, record)) {
        gate(api, caller, &node).await?;
    }
    let mut expected = record.map(|record| record.revision);
    if skip_gate {
        let command = Command::UndrainUnchecked { node, expected };
        let revision = propose(core, caller, key, command).await?.revision;
        return Ok(UndrainResult { revision, cleared });
    }
    if record.is_some_and(has_hook_reason) {
        tracing::info!(by = %caller.name, %node, "failed hook reason cleared");
        let cleared = faults::clear_hooks(core, &node, expected).await;
        let cleared = match cleared {
            Ok(cleared) => cleared,
            Err(error) => return Err(super::names::problem(core, &error).await),
        };
        expected = Some(cleared.revision);
    }
    let command = Command::Drain {
        node,
        reason: None,
        expected,
    };
    let revision = propose(core, caller, key, command).await?.revision;
    Ok(UndrainResult { revision, cleared })
}

fn has_hook_reason(record: &Node) -> bool {
    record.drain.iter().any(|d| d.owner == faults::HOOKS_OWNER)
}

/// Whether the caller may clear this reason.
fn is_own(caller: &Caller, drain: &DrainReason) -> bool {
    *drain.owner == *caller.name || drain.owner == faults::HOOKS_OWNER
}

/// Whether every reason that keeps the node out of service may be cleared by the caller.
fn may_return(caller: &Caller, record: &Node) -> bool {
    !record.drain.is_empty() && record.drain.iter().all(|drain| is_own(caller, drain))
}

/// Rejects the request if only other owners keep the node out: nothing would be cleared, and the error lists their
/// reasons.
fn check_has_own_reason(caller: &Caller, record: &Node) -> Result<(), Problem> {
    let drains = &record.drain;
    if drains.is_empty() || drains.iter().any(|drain| is_own(caller, drain)) {
        return Ok(());
    }
    let others = drains.iter().map(|d| format!("{}: {}", d.owner, d.reason));
    let others: Vec<String> = others.collect();
    let detail = format!(
        "node {} stays drained: you own none of its drain reasons. Each owner clears its own \
         reason; a service does so when node and BMC no longer report the fault. Remaining \
         reasons: {}",
        record.id,
        others.join("; ")
    );
    Err(Problem::new(Kind::Conflict, "drained_by_others", detail))
}

/// Runs the gate; a failure becomes a problem with the reason and the remedy.
async fn gate(api: &Api, caller: &Caller, node: &NodeId) -> Result<(), Problem> {
    let by = Some(caller.name.to_string());
    let Err(error) = readmission::check(&api.nodes(), node, &Freshness::Now { by }).await else {
        return Ok(());
    };
    let conflict = |code| Problem::new(Kind::Conflict, code, error.to_string());
    let mut problem = match &error {
        GateError::Agent(error) => agent_problem(error),
        GateError::Unavailable(error) => Problem::from(error),
        GateError::Failed { .. } => conflict("health_gate_failed"),
        GateError::StillRuns { .. } => conflict("still_runs"),
        GateError::Faulty { .. } | GateError::FaultyByBmc { .. } => conflict("still_faulty"),
        GateError::Differs { .. } => conflict("still_differs"),
        GateError::Unverified { .. } => conflict("not_verified"),
    };
    problem.detail.push_str(&remedy(&error, node));
    Err(problem)
}

/// Remedy, as the end of a sentence.
fn remedy(error: &GateError, node: &NodeId) -> String {
    const SKIP: &str = "an administrator can undrain it with --skip-gate (skip_gate=true)";
    match error {
        GateError::StillRuns { .. } => {
            "; undrain the node again when these processes are gone".to_owned()
        }
        GateError::Failed { .. } => {
            format!("; the node stays drained. Repair it and undrain it again, or {SKIP}")
        }
        GateError::Faulty { .. } => format!(
            "; the node stays drained. Repair it, clear the reasons that a repair does not clear \
             (`lattice node health {node} --clear CODE`), and undrain it again, or {SKIP}"
        ),
        GateError::FaultyByBmc { .. } => format!(
            "; the node stays drained. Repair it and undrain it again: a fault that the BMC reports \
             cannot be cleared by hand, it ends when the BMC no longer reports it (`lattice node \
             health {node} --fresh`); or {SKIP}"
        ),
        GateError::Differs { .. } => format!(
            "; the node stays drained. Make it conform to its baseline, or change the baseline, and \
             undrain it again, or {SKIP}"
        ),
        GateError::Unverified { why, .. } if bmc::is_from_bmc(why) => format!(
            "; the node stays drained until its BMC no longer reports the fault (`lattice node health \
             {node} --fresh`). Remove a BMC that no longer exists from the BMC file of control; or \
             {SKIP}"
        ),
        GateError::Unverified { .. } => format!(
            "; the node stays drained. Check it (`lattice node health {node} --fresh`) and undrain it \
             again, or {SKIP}"
        ),
        GateError::Agent(_) | GateError::Unavailable(_) => {
            "; the health of the node could not be checked, so the node stays drained. An \
             administrator may undrain it with --skip-gate (skip_gate=true)"
                .to_owned()
        }
    }
}
