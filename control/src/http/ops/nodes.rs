//! Nodes.

use super::{
    audit,
    certificates::{check_reason, of_node},
    paging, propose, time,
};
use crate::{
    AgentError, Core, NodeEntry, ProposeError, View,
    http::caller::{Caller, Role},
    tasks::{
        faults,
        gate::{self, GateError},
    },
};
use lattice_api::{
    conformance::{DiffView, DifferenceView},
    node::{
        ClassView, DrainRequest, DrainView, Drained, FactsView, HealthView, HolderView, NodeView,
    },
    page::Page,
    problem::{Kind, Problem},
    project::Changed,
};
use lattice_hwprobe::{ClassMark, Difference, Inventory, NodeDocument, Verdict};
use lattice_placement::{Health, Liveness};
use lattice_quorum_types::{
    Command, NodeId, Revision,
    audit::{AuditAction, AuditEntry},
    event::EventKind,
    node::{DrainReason, Node},
};
use std::ops::Bound;

/// `with` of a comparison with the rest of the node's cohort.
pub(crate) const MAJORITY: &str = "majority";

/// A node's name from a path; what is no name is no node.
pub(crate) fn name(text: &str) -> Result<NodeId, Problem> {
    NodeId::new(text).map_err(|_| Problem::unknown_node(text))
}

pub(crate) fn list(
    core: &Core,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Page<NodeView>, Problem> {
    let limit = paging::limit(limit)?;
    let start = paging::after::<NodeId>(cursor)?.map_or(Bound::Unbounded, Bound::Excluded);
    let view = core.view();
    let entries = view.nodes.range((start, Bound::Unbounded));
    let page = paging::page(entries, limit, |(id, _)| id.to_string());
    Ok(page.map(|(_, entry)| shown(&view, entry)))
}

/// One node, with its certificate for those who may see it.
pub(crate) async fn show(core: &Core, caller: &Caller, node: &str) -> Result<NodeView, Problem> {
    let mut shown = get(core, node)?;
    if caller.check_whole(Role::Operator, "").is_ok() {
        shown.certificate = of_node(core, &name(node)?).await;
    }
    Ok(shown)
}

pub(crate) fn get(core: &Core, node: &str) -> Result<NodeView, Problem> {
    let view = core.view();
    let entry = view.node(&name(node)?);
    let entry = entry.ok_or_else(|| Problem::unknown_node(node))?;
    Ok(shown(&view, entry))
}

pub(crate) async fn inventory(
    core: &Core,
    caller: &Caller,
    node: &str,
    fresh: bool,
) -> Result<Inventory, Problem> {
    if fresh {
        caller.check_role(Role::Operator, "probing anew (fresh=true)")?;
    }
    core.inventory(&name(node)?, fresh)
        .await
        .map_err(|e| agent_problem(&e))
}

/// Why an agent gave no answer, as a problem.
pub(crate) fn agent_problem(error: &AgentError) -> Problem {
    match error {
        AgentError::UnknownNode { node } => Problem::unknown_node(node.as_str()),
        AgentError::NotSeen { .. } => {
            Problem::new(Kind::Unavailable, "node_not_seen", error.to_string())
        }
        AgentError::Call { .. } | AgentError::Refused { .. } => {
            Problem::new(Kind::Unavailable, "node_unavailable", error.to_string())
        }
    }
}

pub(crate) async fn diff(core: &Core, left: &str, right: &str) -> Result<DiffView, Problem> {
    let id = name(left)?;
    if right == MAJORITY {
        return diff_majority(core, left);
    }
    let differences = core.diff(&id, &name(right)?).await;
    let differences = differences.map_err(|error| agent_problem(&error))?;
    Ok(DiffView {
        left: left.to_owned(),
        right: right.to_owned(),
        differences: differences.into_iter().map(difference).collect(),
    })
}

fn difference(d: Difference) -> DifferenceView {
    let verdict = match d.verdict {
        Verdict::Differs => "differs",
        Verdict::Unknown => "unknown",
    };
    DifferenceView {
        class: d.class.to_string(),
        key: d.key,
        left: d.left.to_string(),
        right: d.right.to_string(),
        verdict: verdict.to_owned(),
    }
}

fn diff_majority(core: &Core, node: &str) -> Result<DiffView, Problem> {
    get(core, node)?;
    let drift = core.drift();
    if drift.alone.iter().any(|alone| alone == node) {
        let detail = format!(
            "{node} is compared with nobody: its cohort is not known or too small; compare it \
             with another node by name"
        );
        return Err(Problem::new(Kind::Conflict, "no_cohort", detail));
    }
    let of_node = drift.drifts.iter().filter(|d| d.node == node);
    let differences = of_node.map(|d| DifferenceView {
        class: d.class.to_string(),
        key: d.key.clone(),
        left: d.found.clone(),
        right: d.expected.clone(),
        verdict: "differs".to_owned(),
    });
    Ok(DiffView {
        left: node.to_owned(),
        right: format!("majority of the cohort of {node}"),
        differences: differences.collect(),
    })
}

/// Takes a node out of use; with `force_release` takes it from its holder too.
pub(crate) async fn drain(
    core: &Core,
    caller: &Caller,
    node: &str,
    request: DrainRequest,
    key: Option<String>,
) -> Result<Drained, Problem> {
    let DrainRequest {
        reason,
        force_release,
    } = request;
    let hint = match force_release {
        true => "say why, and how it is known that nothing runs there: it is kept in the audit",
        false => "say why, for those who find the node drained",
    };
    check_reason(&reason, hint)?;
    let node = name(node)?;
    if !force_release {
        let reason = Some(reason);
        let applied = propose(core, caller, key, Command::Drain { node, reason }).await?;
        return Ok(Drained {
            revision: applied.revision,
            given_up: None,
        });
    }
    caller.check_role(Role::Operator, "releasing a node by force")?;
    check_holder(core, caller, &node)?;
    let command = Command::ForceRelease {
        node: node.clone(),
        reason: reason.clone(),
    };
    let applied = match propose(core, caller, key, command).await {
        // Nothing holds it: there is nothing to give up, and draining it does the rest.
        Err(problem) if problem.field.as_deref() == Some("node") => {
            let reason = Some(reason);
            let drain = Command::Drain { node, reason };
            let revision = propose(core, caller, None, drain).await?.revision;
            let given_up = None;
            return Ok(Drained { revision, given_up });
        }
        applied => applied?,
    };
    let mut given_up = applied.events.iter().find_map(|event| match &event.kind {
        EventKind::Audit { entry } => released(entry),
        _ => None,
    });
    if applied.events.is_empty() {
        // A repeat, which is answered without its events.
        audit::each(core, |entry| {
            if entry.revision == applied.revision {
                given_up = given_up.take().or_else(|| released(entry));
            }
        })
        .await?;
    }
    Ok(Drained {
        revision: applied.revision,
        given_up,
    })
}

/// Whose node was taken by force.
fn released(entry: &AuditEntry) -> Option<HolderView> {
    match &entry.action {
        AuditAction::ForceReleased {
            allocation: Some(allocation),
            attempt,
            ..
        } => Some(HolderView {
            allocation: *allocation,
            attempt: *attempt,
        }),
        _ => None,
    }
}

/// Who is an operator of some tenants only gives up no other tenant's work.
fn check_holder(core: &Core, caller: &Caller, node: &NodeId) -> Result<(), Problem> {
    let view = core.view();
    let record = view.node(node).and_then(|entry| entry.record.as_ref());
    let holder = record.and_then(|record| record.holder);
    let held = holder.and_then(|holder| view.allocation(holder.allocation));
    match held {
        Some(held) if !caller.sees(&held.spec.project) => {
            let detail = format!(
                "{node} is held by another tenant's allocation; ask an operator of the whole \
                 cluster"
            );
            Err(Problem::new(Kind::Forbidden, "forbidden", detail))
        }
        _ => Ok(()),
    }
}

/// Clears the caller's own drain reason, and one that a failed hook of the site gave: that is for a
/// person to clear. Where none is left the node goes back into service, so the site's health gate is
/// asked first.
pub(crate) async fn undrain(
    core: &Core,
    caller: &Caller,
    node: &str,
    skip_gate: bool,
    key: Option<String>,
) -> Result<Changed, Problem> {
    let node = name(node)?;
    caller.check_role(Role::Operator, "undraining a node")?;
    if skip_gate {
        caller.check_whole(Role::Admin, "undraining without the health gate")?;
        tracing::warn!(by = %caller.name, %node, "undrained without asking the health gate");
    } else if goes_back(core, caller, &node) {
        gate(core, &node).await?;
    }
    if has_hooks_reason(core, &node) {
        caller.writer()?;
        tracing::info!(by = %caller.name, %node, "the reason of a failed hook is cleared");
        faults::clear_hooks(core, &node)
            .await
            .map_err(|error| match error {
                ProposeError::Refused(refusal) => Problem::from(&refusal),
                ProposeError::Unavailable(unavailable) => Problem::from(&unavailable),
            })?;
    }
    let reason = None;
    let applied = propose(core, caller, key, Command::Drain { node, reason }).await?;
    Ok(Changed {
        revision: applied.revision,
    })
}

fn has_hooks_reason(core: &Core, node: &NodeId) -> bool {
    let view = core.view();
    let record = view.node(node).and_then(|entry| entry.record.as_ref());
    record.is_some_and(|record| record.drain.iter().any(|d| d.owner == faults::HOOKS))
}

/// Whether nothing but what the caller clears keeps it out of service.
fn goes_back(core: &Core, caller: &Caller, node: &NodeId) -> bool {
    let view = core.view();
    let record = view.node(node).and_then(|entry| entry.record.as_ref());
    record.is_some_and(|record| {
        let own =
            |drain: &DrainReason| *drain.owner == *caller.name || drain.owner == faults::HOOKS;
        !record.drain.is_empty() && record.drain.iter().all(own)
    })
}

/// As a problem: what keeps the node out, and who may do without.
async fn gate(core: &Core, node: &NodeId) -> Result<(), Problem> {
    let Err(error) = gate::check(core, node).await else {
        return Ok(());
    };
    let mut problem = match &error {
        GateError::Agent(error) => agent_problem(error),
        GateError::Unavailable(error) => Problem::from(error),
        GateError::Failed { .. } => {
            Problem::new(Kind::Conflict, "health_gate_failed", error.to_string())
        }
        GateError::StillRuns { .. } => {
            Problem::new(Kind::Conflict, "still_runs", error.to_string())
        }
    };
    problem.detail.push_str(match error {
        GateError::StillRuns { .. } => "; undrain it again once they are gone",
        GateError::Failed { .. } => {
            "; it stays drained. Repair it and undrain it again, or let an administrator do so \
             with --skip-gate (skip_gate=true)"
        }
        GateError::Agent(_) | GateError::Unavailable(_) => {
            "; its health gate could not be asked, so it stays drained. An administrator may \
             undrain it with --skip-gate (skip_gate=true)"
        }
    });
    Err(problem)
}

/// A node as the view has it.
pub(crate) fn shown(view: &View, entry: &NodeEntry) -> NodeView {
    shown_as(view, entry, entry.record.as_ref())
}

/// A node with another replicated record than the view's.
pub(crate) fn shown_as(view: &View, entry: &NodeEntry, record: Option<&Node>) -> NodeView {
    let seen = entry.seen.as_ref();
    let drain = record.map_or(&[][..], |r| &r.drain);
    NodeView {
        name: entry.id.to_string(),
        lifecycle: record
            .map_or("unregistered", |r| r.lifecycle.as_str())
            .to_owned(),
        drain: drain
            .iter()
            .map(|d| DrainView {
                owner: d.owner.clone(),
                reason: d.reason.clone(),
                since: time(d.since),
            })
            .collect(),
        holder: record.and_then(|r| r.holder).map(|h| HolderView {
            allocation: h.allocation,
            attempt: h.attempt,
        }),
        vcluster: record.map(|r| r.current.to_string()).unwrap_or_default(),
        liveness: liveness(entry.liveness).to_owned(),
        liveness_reason: entry.liveness_reason.clone(),
        last_seen: entry.answered_at().map(time),
        health: HealthView {
            verdict: health(entry.health()).to_owned(),
            reasons: seen.map(|s| s.health_reasons.clone()).unwrap_or_default(),
        },
        cell: seen.map(|s| s.cell.clone()),
        group: entry.group().map(str::to_owned),
        facts: entry.document.as_deref().map(facts).unwrap_or_default(),
        fingerprint: entry.fingerprint().map(|d| d.to_string()),
        classes: entry
            .marks()
            .iter()
            .map(|(class, mark)| (class.to_string(), class_view(mark)))
            .collect(),
        drifted_keys: view.drifted_keys(&entry.id),
        boot_id: entry
            .boot
            .clone()
            .or_else(|| seen.and_then(|s| s.boot_id.clone())),
        agent_version: seen.and_then(|s| s.agent_version.clone()),
        claim_refused: entry.claim_refused.clone(),
        certificate: None,
        revision: record.map_or(Revision(0), |r| r.revision),
    }
}

/// As printed.
pub(crate) fn liveness(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Unknown => "unknown",
        Liveness::Alive => "alive",
        Liveness::Suspect => "suspect",
        Liveness::Unreachable => "unreachable",
    }
}

fn health(health: Health) -> &'static str {
    match health {
        Health::Unknown => "unknown",
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::Faulty => "faulty",
    }
}

fn class_view(mark: &ClassMark) -> ClassView {
    let state = match mark {
        ClassMark::Complete { .. } => "complete",
        ClassMark::Incomplete => "incomplete",
        ClassMark::Disabled => "disabled",
    };
    ClassView {
        state: state.to_owned(),
        digest: mark.digest().map(|d| d.to_string()),
    }
}

fn facts(document: &NodeDocument) -> FactsView {
    let (identity, facts) = (&document.identity, &document.facts);
    FactsView {
        vendor: identity.vendor.present().cloned(),
        product: identity.product.present().cloned(),
        gpu_model: facts.gpu_model.present().cloned(),
        gpu_count: facts.gpus(),
        memory_bytes: facts.memory_bytes.present().copied(),
        cores: facts.cores.present().copied(),
        features: facts.features.iter().cloned().collect(),
    }
}
