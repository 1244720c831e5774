//! vClusters: what they are, whose nodes are whose, and who uses them for now.

use super::{Case, audited, invalid, nodes as records, tenure::taken_by};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    NodeId, Outcome, Refusal, Revision, VclusterName,
    audit::AuditAction,
    id::LeaseName,
    node::Node,
    scheduler::SchedulerPatch,
    tenure::{Taken, TakenBy},
    vcluster::{
        DEFAULT_VCLUSTER, MAX_DESCRIPTION_BYTES, MAX_TENANTS, Vcluster, VclusterDefinition,
        VclusterPatch,
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// vClusters of one site; each has a scheduler.
const MAX_VCLUSTERS: usize = 1024;

/// Says what a vCluster is, the first time too.
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
    /// Its definition.
    Definition,
    /// Its definition and its scheduler settings.
    DefinitionAndSettings,
    /// Its scheduler settings; the vCluster is not defined and stays so.
    SettingsAlone,
}

impl Scope {
    /// Lines of the audit.
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
        let reason = format!("there are {MAX_VCLUSTERS} vClusters already, the most there can be");
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

/// As [`set`], with settings of its scheduler merged into those it has. Settings alone define none: a
/// mistyped name would be a vCluster with a scheduler, and an existing undefined vCluster would become
/// defined, so that its nodes are not taken freely any more.
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
        check_is_there(case, name)?;
    }
    let mut definition = definition_of(case, name, change);
    definition.scheduler = settings.applied_to(&definition.scheduler);
    store(case, name, definition, scope)
}

/// 0: nobody has defined it.
fn version_of(case: Case<'_>, name: &VclusterName) -> u32 {
    let present = case.state.vclusters.get(name);
    present.map_or(0, |present| present.version)
}

/// Whether there is such a vCluster, defined or not: work for one that nobody has defined and that has no
/// nodes would wait for ever, and its name is mistyped, or its nodes have gone and left its settings.
pub(super) fn is_there(case: Case<'_>, name: &VclusterName) -> bool {
    let mut nodes = case.state.nodes.values();
    name.as_str() == DEFAULT_VCLUSTER
        || is_defined(case, name)
        || nodes.any(|node| node.home == *name || node.current == *name)
}

/// Refuses a vCluster that is not there.
pub(super) fn check_is_there(case: Case<'_>, name: &VclusterName) -> Result<(), Refusal> {
    match is_there(case, name) {
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

/// What was said of it holds no more; nodes that belong to it or serve it would be open to all.
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
    // Where its work still waits a scheduler takes it again, and gives it back in the end.
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
        let reason = format!("it has {bytes} bytes; at most {MAX_DESCRIPTION_BYTES} fit");
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

/// An administrator says to which vCluster nodes belong, all of them or none.
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
        match in_use(case, node).or_else(|| elsewhere(case, node, to, from)) {
            Some(by) => taken.push(Taken {
                node: id.clone(),
                by,
            }),
            None => {
                moved.entry(&node.home).or_default().push(id.clone());
                changes.push(serving(node, to, to));
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

/// An idle node serves another vCluster for now.
pub(super) fn lend(
    case: Case<'_>,
    id: &NodeId,
    to: &VclusterName,
    version: u64,
) -> Result<Verdict, Refusal> {
    check_is_defined(case, to)?;
    let node = records::node(case, id)?;
    if node.current == *to {
        return Ok(Verdict::nothing());
    }
    if node.current != node.home {
        let (home, current) = (&node.home, &node.current);
        let reason = format!("node {id} of {home} is lent to {current} already");
        return Err(invalid("node", reason));
    }
    let by = taken_by(case, node);
    lent(case, node, to, version, by)
}

/// A node serves its own vCluster again.
pub(super) fn give_back(case: Case<'_>, id: &NodeId, version: u64) -> Result<Verdict, Refusal> {
    let node = records::node(case, id)?;
    if node.current == node.home {
        return Ok(Verdict::nothing());
    }
    let by = in_use(case, node);
    lent(case, node, &node.home, version, by)
}

fn lent(
    case: Case<'_>,
    node: &Node,
    to: &VclusterName,
    version: u64,
    by: Option<TakenBy>,
) -> Result<Verdict, Refusal> {
    let by = by.or((node.version != version).then_some(TakenBy::Changed));
    if let Some(by) = by {
        let node = node.id.clone();
        let nodes = vec![Taken { node, by }];
        return Err(Refusal::NodesTaken { nodes });
    }
    let action = AuditAction::NodesMoved {
        nodes: vec![node.id.clone()],
        from: node.current.clone(),
        to: to.clone(),
        home: false,
    };
    let changes = vec![serving(node, &node.home, to)];
    Ok(Verdict::done(audited(case, action, changes)))
}

/// Who holds it or has claimed it; one that is only out of service, promised or wanted back may be moved.
fn in_use(case: Case<'_>, node: &Node) -> Option<TakenBy> {
    let is_use = |by: &TakenBy| matches!(by, TakenBy::User { .. } | TakenBy::Allocation { .. });
    taken_by(case, node).filter(is_use)
}

/// The vCluster whose it is, where that one was defined and nobody said to take it from there.
fn elsewhere(
    case: Case<'_>,
    node: &Node,
    to: &VclusterName,
    from: Option<&VclusterName>,
) -> Option<TakenBy> {
    let home = &node.home;
    let is_free = home == to || from == Some(home) || !is_defined(case, home);
    (!is_free).then(|| TakenBy::Vcluster { home: home.clone() })
}

fn serving(node: &Node, home: &VclusterName, current: &VclusterName) -> Change {
    Change::Node(Box::new(Node {
        home: home.clone(),
        current: current.clone(),
        version: node.version + 1,
        // What was planned for it there is over.
        promised: None,
        recalled_at: None,
        ..node.clone()
    }))
}

fn is_defined(case: Case<'_>, name: &VclusterName) -> bool {
    let present = case.state.vclusters.get(name);
    present.is_some_and(Vcluster::is_defined)
}

/// Refuses one that nobody has defined: nodes go to no other.
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
