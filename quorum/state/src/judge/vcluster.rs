//! vClusters: definition, scheduler settings, home of nodes, lending.

use super::{Case, audited, invalid, node_claim::taken_by, nodes as records};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    NodeId, Outcome, Refusal, Revision, VclusterName,
    audit::AuditAction,
    id::LeaseName,
    node::{Node, UnavailableNode, UnavailableReason},
    scheduler::SchedulerPatch,
    vcluster::{
        DEFAULT_VCLUSTER, MAX_DESCRIPTION_BYTES, MAX_TENANTS, Vcluster, VclusterDefinition,
        VclusterPatch,
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of vClusters of one site; each has a scheduler.
const MAX_VCLUSTERS: usize = 1024;

/// Defines a vCluster or changes its definition.
pub(super) fn set(
    case: Case<'_>,
    name: &VclusterName,
    change: &VclusterPatch,
    expected: Option<u32>,
) -> Result<Verdict, Refusal> {
    check_version(name, expected, version_of(case, name))?;
    store(
        case,
        name,
        definition_of(case, name, change),
        Scope::Definition,
    )
}

/// Part of a vCluster that a command changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The definition.
    Definition,
    /// The definition and the scheduler settings.
    DefinitionAndSettings,
    /// The scheduler settings; the vCluster is not defined and stays so.
    SettingsAlone,
}

impl Scope {
    /// Lines of the audit entry.
    fn lines(self, definition: &VclusterDefinition, is_defined: bool) -> Vec<String> {
        let mut all = match is_defined {
            true => lines(definition),
            false => Vec::new(),
        };
        if self != Self::Definition {
            let settings = definition.scheduler.listed().into_iter();
            all.extend(settings.map(|(name, value)| format!("{name}={value}")));
        }
        all
    }
}

fn definition_of(
    case: Case<'_>,
    name: &VclusterName,
    change: &VclusterPatch,
) -> VclusterDefinition {
    let present = case.state.vclusters.get(name);
    change.applied_to(present.map(|present| &present.definition))
}

fn store(
    case: Case<'_>,
    name: &VclusterName,
    definition: VclusterDefinition,
    scope: Scope,
) -> Result<Verdict, Refusal> {
    let defines = scope != Scope::SettingsAlone;
    let present = case.state.vclusters.get(name);
    check(case, &definition)?;
    let is_same = match present {
        Some(present) => present.definition == definition && present.is_defined() == defines,
        None => !defines && definition == VclusterDefinition::default(),
    };
    if is_same {
        let version = version_of(case, name);
        return Ok(Verdict {
            outcome: Outcome::VclusterSet { version },
            changes: Vec::new(),
        });
    }
    if present.is_none() && case.state.vclusters.all().len() >= MAX_VCLUSTERS {
        let reason =
            format!("there are already {MAX_VCLUSTERS} vClusters, the maximum; delete one first");
        return Err(invalid("name", reason));
    }
    let action = AuditAction::VclusterSet {
        vcluster: name.clone(),
        before: present.map_or_else(Vec::new, |present| {
            scope.lines(&present.definition, present.is_defined())
        }),
        after: scope.lines(&definition, defines),
    };
    let record = Vcluster {
        name: name.clone(),
        definition,
        version: match defines {
            true => case.state.vclusters.next_version(name),
            false => 0,
        },
        revision: Revision(0),
    };
    let version = record.version;
    let changes = vec![Change::Vcluster(Box::new(record))];
    Ok(Verdict {
        outcome: Outcome::VclusterSet { version },
        changes: audited(case, action, changes),
    })
}

/// Like [`set`], and merges scheduler settings into the present ones. Settings alone do not define a vCluster.
/// Otherwise a mistyped name would become a vCluster with a scheduler. Also, an existing undefined vCluster would
/// become defined, so that its nodes could not be reassigned freely.
pub(super) fn set_scheduler(
    case: Case<'_>,
    name: &VclusterName,
    change: &VclusterPatch,
    settings: &SchedulerPatch,
    expected: Option<u32>,
) -> Result<Verdict, Refusal> {
    check_version(name, expected, version_of(case, name))?;
    let is_alone = *change == VclusterPatch::default() && !is_defined(case, name);
    let scope = match is_alone {
        true => Scope::SettingsAlone,
        false => Scope::DefinitionAndSettings,
    };
    if is_alone {
        check_exists(case, name)?;
    }
    let mut definition = definition_of(case, name, change);
    definition.scheduler = settings.applied_to(&definition.scheduler);
    store(case, name, definition, scope)
}

/// Version of the definition; 0 if the vCluster is not defined.
fn version_of(case: Case<'_>, name: &VclusterName) -> u32 {
    let present = case.state.vclusters.get(name);
    present.map_or(0, |present| present.version)
}

/// Returns whether the vCluster exists: it is the default one, is defined, or has nodes. An allocation for any other
/// name would wait for ever: the name is mistyped, or the vCluster has settings but no nodes any more.
pub(super) fn exists(case: Case<'_>, name: &VclusterName) -> bool {
    let mut nodes = case.state.nodes.values();
    name.as_str() == DEFAULT_VCLUSTER
        || is_defined(case, name)
        || nodes.any(|node| node.home == *name || node.current == *name)
}

/// Rejects a vCluster that does not exist.
pub(super) fn check_exists(case: Case<'_>, name: &VclusterName) -> Result<(), Refusal> {
    match exists(case, name) {
        true => Ok(()),
        false => Err(unknown(name)),
    }
}

fn check_version(name: &VclusterName, expected: Option<u32>, current: u32) -> Result<(), Refusal> {
    match expected {
        Some(expected) if expected != current => Err(Refusal::VclusterChanged {
            vcluster: name.clone(),
            expected,
            current,
        }),
        _ => Ok(()),
    }
}

/// Deletes a vCluster and its settings. Rejected while it is the home or current vCluster of nodes: the nodes would
/// become open to all tenants.
pub(super) fn delete(
    case: Case<'_>,
    name: &VclusterName,
    expected: Option<u32>,
) -> Result<Verdict, Refusal> {
    if case.state.vclusters.get(name).is_none() {
        return Err(unknown(name));
    }
    check_version(name, expected, version_of(case, name))?;
    let nodes = case.state.nodes.values();
    let nodes = nodes.filter(|node| node.home == *name || node.current == *name);
    let nodes: Vec<NodeId> = nodes.map(|node| node.id.clone()).collect();
    if !nodes.is_empty() {
        let vcluster = name.clone();
        return Err(Refusal::VclusterInUse { vcluster, nodes });
    }
    let vcluster = name.clone();
    let action = AuditAction::VclusterDeleted { vcluster };
    let mut changes = vec![Change::DeleteVcluster(name.clone())];
    // While allocations of this vCluster still wait, a scheduler acquires the lease again and releases it in the end.
    let lease = LeaseName::of_scheduler(name);
    let is_its_own = lease.scheduled().is_some() && name.as_str() != DEFAULT_VCLUSTER;
    if is_its_own && case.state.leases.get(lease.as_str()).is_some() {
        changes.push(Change::RemoveLease(lease));
    }
    Ok(Verdict::done(audited(case, action, changes)))
}

fn check(case: Case<'_>, definition: &VclusterDefinition) -> Result<(), Refusal> {
    let VclusterDefinition {
        description,
        tenants,
        scheduler,
    } = definition;
    if description.len() > MAX_DESCRIPTION_BYTES {
        let bytes = description.len();
        let reason = format!("has {bytes} bytes; at most {MAX_DESCRIPTION_BYTES} are allowed");
        return Err(invalid("description", reason));
    }
    let settings = scheduler.check();
    settings.map_err(|error| invalid(error.setting, error.reason))?;
    let Some(tenants) = tenants else {
        return Ok(());
    };
    if tenants.len() > MAX_TENANTS {
        let reason = format!("name {MAX_TENANTS} tenants at most, or none for all of them");
        return Err(invalid("tenants", reason));
    }
    for tenant in tenants {
        if !tenant.is_tenant() {
            let reason = format!("{tenant} is a project; name tenants");
            return Err(invalid("tenants", reason));
        }
        case.state.tree.require(tenant)?;
    }
    Ok(())
}

fn lines(definition: &VclusterDefinition) -> Vec<String> {
    let tenants = match &definition.tenants {
        None => "all".to_owned(),
        Some(tenants) => {
            let names: Vec<&str> = tenants.iter().map(|tenant| tenant.as_str()).collect();
            names.join(", ")
        }
    };
    vec![
        format!("tenants: {tenants}"),
        format!("description: {}", definition.description),
    ]
}

/// Sets the home and the current vCluster of nodes, all or none, on behalf of an administrator.
pub(super) fn assign(
    case: Case<'_>,
    nodes: &[NodeId],
    to: &VclusterName,
    from: Option<&VclusterName>,
) -> Result<Verdict, Refusal> {
    check_is_defined(case, to)?;
    if nodes.is_empty() {
        return Err(invalid("nodes", "name at least one node"));
    }
    let mut seen = BTreeSet::new();
    let mut taken = Vec::new();
    let mut moved: BTreeMap<&VclusterName, Vec<NodeId>> = BTreeMap::new();
    let mut changes = Vec::new();
    for id in nodes {
        if !seen.insert(id) {
            return Err(invalid("nodes", format!("node {id} is named twice")));
        }
        let node = records::node(case, id)?;
        if node.home == *to && node.current == *to {
            continue;
        }
        match in_use(case, node).or_else(|| protected_home(case, node, to, from)) {
            Some(by) => taken.push(UnavailableNode {
                node: id.clone(),
                by,
            }),
            None => {
                moved.entry(&node.home).or_default().push(id.clone());
                changes.push(with_vclusters(node, to, to));
            }
        }
    }
    if !taken.is_empty() {
        return Err(Refusal::NodesTaken { nodes: taken });
    }
    for (from, nodes) in moved {
        let action = AuditAction::NodesMoved {
            nodes,
            from: from.clone(),
            to: to.clone(),
            home: true,
        };
        changes = audited(case, action, changes);
    }
    Ok(Verdict::done(changes))
}

/// Lends an idle node to another vCluster.
pub(super) fn lend(
    case: Case<'_>,
    id: &NodeId,
    to: &VclusterName,
    version: u64,
) -> Result<Verdict, Refusal> {
    check_is_defined(case, to)?;
    let node = records::node(case, id)?;
    if node.current == *to {
        return Ok(Verdict::unchanged());
    }
    if node.current != node.home {
        let (home, current) = (&node.home, &node.current);
        let reason = format!("node {id} of {home} is lent to {current} already");
        return Err(invalid("node", reason));
    }
    let by = taken_by(case, node);
    move_node(case, node, to, version, by)
}

/// Returns a node to its home vCluster.
pub(super) fn give_back(case: Case<'_>, id: &NodeId, version: u64) -> Result<Verdict, Refusal> {
    let node = records::node(case, id)?;
    if node.current == node.home {
        return Ok(Verdict::unchanged());
    }
    let by = in_use(case, node);
    move_node(case, node, &node.home, version, by)
}

fn move_node(
    case: Case<'_>,
    node: &Node,
    to: &VclusterName,
    version: u64,
    by: Option<UnavailableReason>,
) -> Result<Verdict, Refusal> {
    let by = by.or((node.version != version).then_some(UnavailableReason::Changed));
    if let Some(by) = by {
        let node = node.id.clone();
        let nodes = vec![UnavailableNode { node, by }];
        return Err(Refusal::NodesTaken { nodes });
    }
    let action = AuditAction::NodesMoved {
        nodes: vec![node.id.clone()],
        from: node.current.clone(),
        to: to.clone(),
        home: false,
    };
    let changes = vec![with_vclusters(node, &node.home, to)];
    Ok(Verdict::done(audited(case, action, changes)))
}

/// Allocation or claimant that uses the node. A node that is only out of service, promised or reclaimed may be moved.
fn in_use(case: Case<'_>, node: &Node) -> Option<UnavailableReason> {
    let is_use = |by: &UnavailableReason| {
        matches!(
            by,
            UnavailableReason::User { .. } | UnavailableReason::Allocation { .. }
        )
    };
    taken_by(case, node).filter(is_use)
}

/// Home vCluster of the node, if it prevents the assignment: it is defined, is not `to`, and is not named in `from`.
fn protected_home(
    case: Case<'_>,
    node: &Node,
    to: &VclusterName,
    from: Option<&VclusterName>,
) -> Option<UnavailableReason> {
    let home = &node.home;
    let is_free = home == to || from == Some(home) || !is_defined(case, home);
    (!is_free).then(|| UnavailableReason::Vcluster { home: home.clone() })
}

fn with_vclusters(node: &Node, home: &VclusterName, current: &VclusterName) -> Change {
    Change::Node(Box::new(Node {
        home: home.clone(),
        current: current.clone(),
        version: node.version + 1,
        // Promises and reclaims were for the former vCluster.
        promised: None,
        reclaimed_at: None,
        ..node.clone()
    }))
}

fn is_defined(case: Case<'_>, name: &VclusterName) -> bool {
    let present = case.state.vclusters.get(name);
    present.is_some_and(Vcluster::is_defined)
}

/// Rejects a vCluster that is not defined: nodes can only be assigned to a defined one.
fn check_is_defined(case: Case<'_>, name: &VclusterName) -> Result<(), Refusal> {
    match is_defined(case, name) {
        true => Ok(()),
        false => Err(unknown(name)),
    }
}

fn unknown(name: &VclusterName) -> Refusal {
    Refusal::UnknownVcluster {
        vcluster: name.clone(),
    }
}
