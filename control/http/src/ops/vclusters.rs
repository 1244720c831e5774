//! vCluster operations: definitions, and assignment of nodes. Lending is not here: a service changes `current` under
//! its lease, and administrators change `home`.

use super::{change, claims::parse_nodes, paging, propose, read, unexpected};
use crate::{
    caller::{Caller, Role},
    movement, scheduler,
};
use lattice_api::{
    page::Page,
    problem::Problem,
    project::ChangeResult,
    vcluster::{VclusterNodes, VclusterNodesRequest, VclusterRequest, VclusterView},
};
use lattice_engine::Core;
use lattice_quorum_types::{
    Command, NodeId, Refusal, Revision, VclusterName,
    event::EventKind,
    hostlist,
    id::LeaseName,
    scheduler::{SchedulerPatch, SettingPatch},
    vcluster::{DEFAULT_VCLUSTER, Vcluster},
    view::{Answer, LeaseView, Query},
};
use lattice_view::View;
use std::collections::BTreeMap;

fn name(field: &str, text: &str) -> Result<VclusterName, Problem> {
    VclusterName::new(text).map_err(|error| Problem::field(field, error.to_string()))
}

/// State of one vCluster: its definition, its nodes and the lease of its scheduler.
#[derive(Default)]
struct VclusterRecord<'a> {
    stored: Option<Vcluster>,
    home: Vec<&'a NodeId>,
    lent: Vec<&'a NodeId>,
    borrowed: Vec<&'a NodeId>,
    /// Lease of the scheduler.
    lease: Option<LeaseView>,
}

/// All vClusters: those that are defined, those with nodes, and the default one.
async fn all<'a>(
    core: &Core,
    view: &'a View,
) -> Result<BTreeMap<VclusterName, VclusterRecord<'a>>, Problem> {
    let Answer::Vclusters(said) = read(core, Query::Vclusters).await? else {
        return Err(unexpected());
    };
    let mut all = with_nodes(view);
    if let Ok(default) = VclusterName::new(DEFAULT_VCLUSTER) {
        all.entry(default).or_default();
    }
    for vcluster in said {
        let known = all.entry(vcluster.name.clone()).or_default();
        known.stored = Some(vcluster);
    }
    let mut leases = leases(core).await?;
    for (name, known) in &mut all {
        known.lease = leases.remove(LeaseName::of_scheduler(name).as_str());
    }
    Ok(all)
}

async fn leases(core: &Core) -> Result<BTreeMap<String, LeaseView>, Problem> {
    let Answer::Leases(leases) = read(core, Query::Leases).await? else {
        return Err(unexpected());
    };
    let named = leases.into_iter().map(|lease| (lease.name.clone(), lease));
    Ok(named.collect())
}

/// Name of the control in a lease holder. The holder consists of that name, a dot and a random number of the process.
fn control_name(holder: &str) -> &str {
    holder.rsplit_once('.').map_or(holder, |(name, _)| name)
}

/// vClusters with home nodes or borrowed nodes.
fn with_nodes(view: &View) -> BTreeMap<VclusterName, VclusterRecord<'_>> {
    let mut all: BTreeMap<VclusterName, VclusterRecord<'_>> = BTreeMap::new();
    for record in view
        .nodes
        .values()
        .filter_map(|entry| entry.record.as_ref())
    {
        let home = all.entry(record.home.clone()).or_default();
        home.home.push(&record.id);
        if record.current != record.home {
            home.lent.push(&record.id);
            let current = all.entry(record.current.clone()).or_default();
            current.borrowed.push(&record.id);
        }
    }
    all
}

fn vcluster_view(caller: &Caller, name: &VclusterName, known: VclusterRecord<'_>) -> VclusterView {
    let VclusterRecord {
        stored: said,
        home,
        lent,
        borrowed,
        lease,
    } = known;
    let (version, revision) = said
        .as_ref()
        .map_or((0, Revision(0)), |said| (said.version, said.revision));
    let definition = said.map(|said| said.definition).unwrap_or_default();
    let scheduler = scheduler::scheduler_view(&definition.scheduler);
    let movement = movement::movement_view(&definition.scheduler);
    let tenants = definition.tenants.as_ref();
    let usable = tenants.is_none_or(|tenants| !tenants.is_empty());
    let tenants = tenants.map(|tenants| {
        let seen = tenants.iter().filter(|tenant| caller.sees(tenant));
        seen.map(|tenant| tenant.to_string()).collect()
    });
    VclusterView {
        name: name.to_string(),
        description: definition.description,
        tenants,
        usable,
        version,
        node_count: u32::try_from(home.len()).unwrap_or(u32::MAX),
        nodes: hostlist::fold(home),
        lent: hostlist::fold(lent),
        borrowed: hostlist::fold(borrowed),
        scheduler,
        movement,
        scheduler_epoch: lease.as_ref().map_or(0, |lease| lease.epoch),
        scheduled_by: lease
            .and_then(|lease| lease.holder)
            .map(|holder| control_name(&holder).to_owned()),
        revision,
    }
}

pub(crate) async fn list(
    core: &Core,
    caller: &Caller,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Page<VclusterView>, Problem> {
    let limit = paging::limit(limit)?;
    let after = paging::after::<VclusterName>(cursor)?;
    let view = core.view();
    let all = all(core, &view).await?;
    let rest = all
        .into_iter()
        .filter(|(name, _)| after.as_ref().is_none_or(|after| name > after));
    let page = paging::page(rest, limit, |(name, _)| name.to_string());
    Ok(page.map(|(name, known)| vcluster_view(caller, &name, known)))
}

pub(crate) async fn get(core: &Core, caller: &Caller, text: &str) -> Result<VclusterView, Problem> {
    let vcluster = name("name", text)?;
    let view = core.view();
    match all(core, &view).await?.remove(&vcluster) {
        Some(known) => Ok(vcluster_view(caller, &vcluster, known)),
        None => Err(Problem::from(&Refusal::UnknownVcluster { vcluster })),
    }
}

/// Settings that a request changes. Settings that would not fit together with those of the vCluster are rejected.
/// Concurrent requests may still store such settings: defaults then apply in their place, and the vCluster's view
/// reports them.
async fn settings_changed(
    core: &Core,
    vcluster: &VclusterName,
    request: &VclusterRequest,
) -> Result<Option<SchedulerPatch>, Problem> {
    if request.scheduler.is_none() && request.movement.is_none() {
        return Ok(None);
    }
    let scheduler = request.scheduler.as_ref();
    let mut patch = scheduler
        .map(scheduler::patch)
        .transpose()?
        .unwrap_or_default();
    let moves = request.movement.as_ref();
    if let Some(change) = moves {
        movement::patch(change, &mut patch)?;
    }
    // The kind of the weights decides whether nodes may be lent: those of a vCluster for sensitive allocations may
    // not.
    let changes_kind = patch.kind != SettingPatch::Unchanged;
    if moves.is_some() || changes_kind {
        let Answer::Vclusters(all) = read(core, Query::Vclusters).await? else {
            return Err(unexpected());
        };
        let known = all.into_iter().find(|known| known.name == *vcluster);
        let present = known.map(|known| known.definition.scheduler);
        let next = patch.applied_to(&present.unwrap_or_default());
        match moves {
            Some(_) => movement::check(&next, core.view().owned_by(vcluster))?,
            None => movement::check_may_lend(&next)?,
        }
    }
    Ok(Some(patch))
}

/// Defines a vCluster, or changes its definition.
pub(crate) async fn set(
    core: &Core,
    caller: &Caller,
    text: &str,
    request: VclusterRequest,
    key: Option<String>,
) -> Result<VclusterView, Problem> {
    caller.check_cluster_role(Role::Admin, "defining a vCluster")?;
    let expected_version = request.expected_version;
    let vcluster = name("name", text)?;
    let settings = settings_changed(core, &vcluster, &request).await?;
    let change = Box::new(request.change()?);
    let command = match settings {
        None => Command::SetVcluster {
            vcluster: vcluster.clone(),
            change,
            expected_version,
        },
        Some(settings) => Command::SetScheduler {
            vcluster: vcluster.clone(),
            change,
            settings: Box::new(settings),
            expected_version,
        },
    };
    let applied = propose(core, caller, key, command).await?;
    let said = applied
        .events
        .into_iter()
        .find_map(|event| match event.kind {
            EventKind::Vcluster { record } if record.name == vcluster => Some(*record),
            _ => None,
        });
    // A repeated request, or one that changes nothing, has no events.
    let Some(said) = said else {
        return get(core, caller, text).await;
    };
    let view = core.view();
    let mut known = with_nodes(&view).remove(&vcluster).unwrap_or_default();
    known.stored = Some(said);
    // The change is committed, so a failure to read the leases is ignored.
    let mut leases = leases(core).await.unwrap_or_default();
    known.lease = leases.remove(LeaseName::of_scheduler(&vcluster).as_str());
    Ok(vcluster_view(caller, &vcluster, known))
}

/// Deletes the definition of a vCluster.
pub(crate) async fn delete(
    core: &Core,
    caller: &Caller,
    text: &str,
    expected_version: Option<u32>,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    caller.check_cluster_role(Role::Admin, "deleting a vCluster")?;
    let command = Command::DeleteVcluster {
        vcluster: name("name", text)?,
        expected_version,
    };
    change(core, caller, key, command).await
}

/// Assigns nodes to a vCluster, all or none.
pub(crate) async fn assign(
    core: &Core,
    caller: &Caller,
    text: &str,
    request: VclusterNodesRequest,
    key: Option<String>,
) -> Result<VclusterNodes, Problem> {
    caller.check_cluster_role(Role::Admin, "moving nodes to a vCluster")?;
    let vcluster = name("name", text)?;
    let from = request.from.map(|from| name("from", &from)).transpose()?;
    if request.nodes.trim().is_empty() {
        let reason = "name at least one node, as in gpu[001-016]";
        return Err(Problem::field("nodes", reason));
    }
    let nodes = parse_nodes(&request.nodes).map_err(with_nodes_field)?;
    let list = hostlist::fold(&nodes);
    let command = Command::AssignVcluster {
        nodes,
        vcluster: vcluster.clone(),
        from,
    };
    let applied = propose(core, caller, key, command).await;
    let applied = applied.map_err(with_nodes_field)?;
    Ok(VclusterNodes {
        vcluster: vcluster.to_string(),
        nodes: list,
        revision: applied.revision,
    })
}

/// Names the request field that an unknown node refers to.
fn with_nodes_field(mut problem: Problem) -> Problem {
    if problem.code == "unknown_node" {
        problem.field = Some("nodes".to_owned());
    }
    problem
}
