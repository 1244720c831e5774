//! vClusters: what they are, whose nodes are whose, and who uses them for now.

use super::{Case, audited, invalid, nodes as records, tenure::taken_by};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    NodeId, Outcome, Refusal, Revision, VclusterName,
    audit::AuditAction,
    node::Node,
    tenure::{Taken, TakenBy},
    vcluster::{MAX_TENANTS, MAX_TEXT_BYTES, Vcluster, VclusterDefinition},
};
use std::collections::{BTreeMap, BTreeSet};

/// vClusters of one site; each has a scheduler.
const MAX_VCLUSTERS: usize = 1024;

/// Says what a vCluster is, the first time too.
pub(super) fn set(
    case: Case<'_>,
    name: &VclusterName,
    definition: &VclusterDefinition,
    expected: Option<u32>,
) -> Result<Verdict, Refusal> {
    check(case, definition)?;
    let present = case.state.vclusters.get(name);
    let version = present.map_or(0, |present| present.version);
    if expected.is_some_and(|expected| expected != version) {
        return Err(Refusal::VclusterChanged {
            vcluster: name.clone(),
            expected: expected.unwrap_or(0),
            current: version,
        });
    }
    if present.is_some_and(|present| present.definition == *definition) {
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
        before: present.map_or_else(Vec::new, |present| lines(&present.definition)),
        after: lines(definition),
    };
    let record = Vcluster {
        name: name.clone(),
        definition: definition.clone(),
        version: version + 1,
        revision: Revision(0),
    };
    let version = record.version;
    let changes = vec![Change::Vcluster(Box::new(record))];
    Ok(Verdict {
        outcome: Outcome::VclusterSet { version },
        changes: audited(case, action, changes),
    })
}

fn check(case: Case<'_>, definition: &VclusterDefinition) -> Result<(), Refusal> {
    let VclusterDefinition {
        description,
        tenants,
        profile,
    } = definition;
    for (field, text) in [("description", description), ("profile", profile)] {
        if text.len() > MAX_TEXT_BYTES {
            let reason = format!("it has {} bytes; at most {MAX_TEXT_BYTES} fit", text.len());
            return Err(invalid(field, reason));
        }
    }
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
    let digest = blake3::hash(definition.profile.as_bytes()).to_hex();
    vec![
        format!("tenants: {tenants}"),
        format!("profile: blake3 {}", &digest[..12]),
        format!("description: {}", definition.description),
    ]
}

/// An administrator says to which vCluster nodes belong, all of them or none.
pub(super) fn assign(
    case: Case<'_>,
    nodes: &[NodeId],
    to: &VclusterName,
) -> Result<Verdict, Refusal> {
    known(case, to)?;
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
        match in_use(case, node) {
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
    known(case, to)?;
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

/// Who holds it or has claimed it; one that is only out of service may be moved.
fn in_use(case: Case<'_>, node: &Node) -> Option<TakenBy> {
    taken_by(case, node).filter(|by| !matches!(by, TakenBy::OutOfService { .. }))
}

fn serving(node: &Node, home: &VclusterName, current: &VclusterName) -> Change {
    Change::Node(Box::new(Node {
        home: home.clone(),
        current: current.clone(),
        version: node.version + 1,
        ..node.clone()
    }))
}

fn known(case: Case<'_>, name: &VclusterName) -> Result<(), Refusal> {
    match case.state.vclusters.get(name) {
        Some(_) => Ok(()),
        None => Err(Refusal::UnknownVcluster {
            vcluster: name.clone(),
        }),
    }
}
