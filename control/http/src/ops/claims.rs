//! Node claims of users: claim and release.

use super::{node_id, propose, read, unexpected};
use crate::caller::{Caller, Role};
use lattice_api::{
    claim::{ClaimRequest, ClaimResult, ReleaseRequest, ReleaseResult, Wipe},
    problem::{Kind, Problem},
};
use lattice_engine::{Core, tasks::attestations};
use lattice_quorum_types::{
    Command, NodeId, ProjectPath, Refusal, hostlist,
    view::{Answer, Query},
};

/// Maximum number of nodes in one claim or release.
const MAX_NODES: usize = 4096;

/// Claims nodes for the caller, all or none. Each node attests its state.
pub(crate) async fn claim(
    core: &Core,
    caller: &Caller,
    nodes: &str,
    request: ClaimRequest,
    key: Option<String>,
) -> Result<ClaimResult, Problem> {
    let ClaimRequest { project, purpose } = request;
    let nodes = parse_nodes(nodes)?;
    let project =
        ProjectPath::new(&project).map_err(|e| Problem::field("project", e.to_string()))?;
    caller.check_sees(&project)?;
    let command = |nodes| Command::ClaimNodes {
        project: project.clone(),
        nodes,
        purpose: purpose.clone(),
    };
    // The quorum checks ownership and fitness first, before any node is queried.
    let unasked = command(attestations::placeholder_proofs(&core.view(), &nodes));
    let by = caller.proposer(&unasked)?;
    let envelope = Box::new(core.envelope(by, key.clone(), None, unasked));
    match read(core, Query::Check { envelope }).await? {
        Answer::Check(Ok(_) | Err(Refusal::NotConforming { .. })) => {}
        Answer::Check(Err(refusal)) => return Err(Problem::from(&refusal)),
        _ => return Err(unexpected()),
    }
    let proven = attestations::prove(core, &nodes).await;
    let proven = proven.map_err(|faults| {
        let detail = format!(
            "these nodes cannot be claimed for sensitive allocations:\n{}",
            faults.join("\n")
        );
        Problem::new(Kind::Conflict, "not_conforming", detail)
    })?;
    let applied = propose(core, caller, key, command(proven)).await?;
    Ok(ClaimResult {
        revision: applied.revision,
        nodes: hostlist::fold(&nodes),
    })
}

/// Releases nodes, all or none; or repeats or waives failed wipes, one node after the other.
pub(crate) async fn release(
    core: &Core,
    caller: &Caller,
    nodes: &str,
    request: ReleaseRequest,
    key: Option<String>,
) -> Result<ReleaseResult, Problem> {
    let ReleaseRequest { reason, wipe } = request;
    let nodes = parse_nodes(nodes)?;
    check_tenants(core, caller, &nodes)?;
    let list = hostlist::fold(&nodes);
    if wipe == Wipe::Once {
        let applied = propose(core, caller, key, Command::ReleaseNodes { nodes, reason }).await?;
        return Ok(ReleaseResult {
            revision: applied.revision,
            nodes: list,
        });
    }
    caller.check_cluster_role(Role::Admin, "resolving a failed node wipe")?;
    let reason = reason.unwrap_or_default();
    let mut revision = core.view().revision;
    for node in nodes {
        let reason = reason.clone();
        // One key for several commands: each command derives its own.
        let key = key.as_ref().map(|key| format!("{key}/{node}"));
        let command = match wipe {
            Wipe::Waive => Command::AcceptUnwiped { node, reason },
            Wipe::Once | Wipe::Again => Command::RepeatWipe { node, reason },
        };
        revision = revision.max(propose(core, caller, key, command).await?.revision);
    }
    Ok(ReleaseResult {
        revision,
        nodes: list,
    })
}

/// Rejects the release of nodes of a tenant that the caller does not see. The claim's own user may always release.
fn check_tenants(core: &Core, caller: &Caller, nodes: &[NodeId]) -> Result<(), Problem> {
    let view = core.view();
    for id in nodes {
        let record = view.node(id).and_then(|entry| entry.record.as_ref());
        let Some(node_claim) = record.and_then(|record| record.node_claim.as_ref()) else {
            continue;
        };
        if *node_claim.user != *caller.name && !caller.sees(&node_claim.project) {
            let detail = format!(
                "{id} is claimed by a user of another tenant; ask an administrator of the whole \
                 cluster"
            );
            return Err(Problem::new(Kind::Forbidden, "forbidden", detail));
        }
    }
    Ok(())
}

/// Nodes of a hostlist, limited to the maximum of one request.
pub(super) fn parse_nodes(nodes: &str) -> Result<Vec<NodeId>, Problem> {
    if !nodes.contains(['[', ',']) {
        return Ok(vec![node_id(nodes)?]);
    }
    let all = hostlist::expand(nodes).map_err(|e| Problem::field("nodes", e.to_string()))?;
    if all.len() > MAX_NODES {
        let detail = format!("{} nodes were named; name at most {MAX_NODES}", all.len());
        return Err(Problem::field("nodes", detail));
    }
    Ok(all)
}
