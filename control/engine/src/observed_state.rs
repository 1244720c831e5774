//! Observed half of the view: gossip of the nodes and results of pings. It is never replicated and has no authority.

use crate::{
    core::{Core, Wakes},
    drift::ComparisonResult,
    feed::{Change, Observed},
    view::{BmcFaults, GossipedNode, MergedMark, NodeEntry, Report, View},
};
use lattice_conformance::{Class, Digest, NodeDocument};
use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};
use tokio::time::Instant;

/// Takes over the present members of one gossip cell. A node that left the cell keeps its registration, if it has one.
pub fn cell(core: &Core, cell: &str, members: BTreeMap<NodeId, GossipedNode>) {
    let now = core.now();
    core.publish(Wakes::Reconcilers, |view| {
        let mut changed = BTreeSet::new();
        let gone = view.nodes.values().filter(|node| {
            let seen = node.seen.as_ref();
            seen.is_some_and(|seen| seen.cell == cell) && !members.contains_key(&node.id)
        });
        let gone: Vec<NodeId> = gone.map(|node| node.id.clone()).collect();
        let count = members.len() as u64;
        for id in gone {
            edit(view, &id, NodeEntry::leave);
            view.conformance_version += 1;
            changed.insert(id);
        }
        for (id, seen) in members {
            let known = view.node(&id).and_then(|node| node.seen.as_ref());
            if known == Some(&seen) {
                continue;
            }
            let is = |known: &GossipedNode| {
                known.marks == seen.marks
                    && known.earlier == seen.earlier
                    && known.document == seen.document
            };
            view.conformance_version += u64::from(!known.is_some_and(is));
            edit(view, &id, |node| {
                node.seen = Some(seen);
                node.was = None;
                node.merge_marks();
                node.note_marks(now);
            });
            changed.insert(id);
        }
        if view.cells.get(cell) != Some(&count) {
            Arc::make_mut(&mut view.cells).insert(cell.to_owned(), count);
        } else if changed.is_empty() {
            return None;
        }
        Arc::make_mut(&mut view.nodes)
            .retain(|_, node| node.record.is_some() || node.seen.is_some());
        Some(told(changed))
    });
}

/// Stores fetched node documents in the view.
pub fn documents(core: &Core, documents: BTreeMap<NodeId, (Digest, Arc<NodeDocument>)>) {
    core.publish(Wakes::Reconcilers, |view| {
        let mut changed = BTreeSet::new();
        for (id, (digest, document)) in documents {
            let known = view.node(&id).map(|node| node.document_digest);
            if known.is_some_and(|known| known != Some(digest)) {
                edit(view, &id, |node| {
                    (node.document, node.document_digest) = (Some(document), Some(digest));
                });
                view.conformance_version += 1;
                changed.insert(id);
            }
        }
        (!changed.is_empty()).then(|| told(changed))
    });
}

/// Stores the last known state of nodes that do not gossip, recalled from the node history.
pub(crate) fn recalled(core: &Core, found: Vec<NodeEntry>) {
    core.publish(Wakes::Readers, |view| {
        let mut changed = BTreeSet::new();
        for was in found {
            let id = was.id.clone();
            let known = view.node(&id);
            if known.is_some_and(|node| node.seen.is_none() && node.was.is_none()) {
                edit(view, &id, |node| node.was = Some(Arc::new(was)));
                view.conformance_version += 1;
                changed.insert(id);
            }
        }
        (!changed.is_empty()).then(|| told(changed))
    });
}

/// Stores class marks that include BMC readings.
pub fn united(core: &Core, found: BTreeMap<NodeId, BTreeMap<Class, MergedMark>>) {
    let now = core.now();
    core.publish(Wakes::Reconcilers, |view| {
        let mut changed = BTreeSet::new();
        for (id, united) in found {
            if view.node(&id).is_some_and(|node| node.united != united) {
                edit(view, &id, |node| {
                    node.united = united;
                    node.merge_marks();
                    node.note_marks(now);
                });
                view.conformance_version += 1;
                changed.insert(id);
            }
        }
        (!changed.is_empty()).then(|| told(changed))
    });
}

/// Stores the faults reported by BMCs. Returns the number of nodes that changed.
pub(crate) fn named(core: &Core, found: BTreeMap<NodeId, BmcFaults>) -> usize {
    let mut count = 0;
    core.publish(Wakes::Reconcilers, |view| {
        let mut changed = BTreeSet::new();
        for (id, named) in found {
            if view.node(&id).is_some_and(|node| *node.named != named) {
                edit(view, &id, |node| node.named = Arc::new(named));
                changed.insert(id);
            }
        }
        count = changed.len();
        (count > 0).then(|| told(changed))
    });
    count
}

/// Result of pinging a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingOutcome {
    /// Liveness after the ping.
    pub liveness: Liveness,
    /// Reason why the node is not alive.
    pub reason: Option<String>,
    /// Boot id in the node's last reply, and the time of that reply.
    pub boot: Option<(String, Instant)>,
    /// Address of the node's last reply.
    pub reached_at: Option<SocketAddr>,
}

/// Stores changed liveness results. Returns the number of nodes that changed.
pub fn liveness(core: &Core, found: &BTreeMap<NodeId, PingOutcome>) -> usize {
    let mut count = 0;
    core.publish(Wakes::Reconcilers, |view| {
        let mut changed = BTreeSet::new();
        for (id, found) in found {
            if view.node(id).is_some() {
                edit(view, id, |node| {
                    node.liveness = found.liveness;
                    node.liveness_reason.clone_from(&found.reason);
                    if let Some((boot, at)) = &found.boot {
                        name_boot(node, boot, *at);
                    }
                    node.reached_at = found.reached_at;
                });
                changed.insert(id.clone());
            }
        }
        count = changed.len();
        (count > 0).then(|| told(changed))
    });
    count
}

/// Stores the boot id that an agent returned in a reply other than a ping's.
pub(crate) fn boot(core: &Core, id: &NodeId, boot: &str, heard_at: Instant) {
    core.publish(Wakes::Reconcilers, |view| {
        let known = view.node(id)?;
        if known.boot.as_deref() == Some(boot) {
            return None;
        }
        edit(view, id, |node| name_boot(node, boot, heard_at));
        Some(told(BTreeSet::from([id.clone()])))
    });
}

/// Replies may be processed in another order than they arrived: an older reply does not replace a newer boot id.
fn name_boot(node: &mut NodeEntry, boot: &str, heard_at: Instant) {
    if node.boot_heard_at.is_none_or(|known| known <= heard_at) {
        node.boot = Some(boot.to_owned());
        node.boot_heard_at = Some(heard_at);
    }
}

/// Stores for each node how its attestation contradicts its gossip; `None` if it does not.
pub(crate) fn attestations(core: &Core, found: &BTreeMap<NodeId, Option<String>>) {
    core.publish(Wakes::Reconcilers, |view| {
        let mut changed = BTreeSet::new();
        for (id, refused) in found {
            if view
                .node(id)
                .is_some_and(|node| node.claim_refused != *refused)
            {
                edit(view, id, |node| node.claim_refused.clone_from(refused));
                changed.insert(id.clone());
            }
        }
        (!changed.is_empty()).then(|| told(changed))
    });
}

/// Replaces the last drift comparison, and stores the resulting effects on the nodes. The reconcilers wake only if an
/// effect changes.
pub fn judged(core: &Core, judged: ComparisonResult) {
    let before = core.view();
    let follows = |entry: &NodeEntry| entry.effect.as_ref() != judged.effects.get(&entry.id);
    let wakes = match before.nodes.values().any(|entry| follows(entry)) {
        true => Wakes::Reconcilers,
        false => Wakes::Readers,
    };
    core.publish(wakes, |view| {
        let others: Vec<NodeId> = view
            .nodes
            .values()
            .filter(|entry| follows(entry))
            .map(|entry| entry.id.clone())
            .collect();
        if others.is_empty() && *view.judged == judged.report && *view.drift == judged.cohorts {
            return None;
        }
        let names = |report: &Report| -> BTreeSet<NodeId> {
            report.drifted.iter().map(|d| d.node.clone()).collect()
        };
        let mut changed = names(&view.judged);
        changed.extend(names(&judged.report));
        for id in others {
            let effect = judged.effects.get(&id).cloned();
            edit(view, &id, |node| node.effect = effect);
            changed.insert(id);
        }
        view.drift = Arc::new(judged.cohorts.clone());
        view.judged = Arc::new(judged.report.clone());
        Some(told(changed))
    });
}

fn edit(view: &mut View, id: &NodeId, change: impl FnOnce(&mut NodeEntry)) {
    let nodes = Arc::make_mut(&mut view.nodes);
    let entry = nodes
        .entry(id.clone())
        .or_insert_with(|| Arc::new(NodeEntry::new(id.clone())));
    change(Arc::make_mut(entry));
}

fn told(nodes: BTreeSet<NodeId>) -> Vec<Change> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let waiting = BTreeSet::new();
    vec![Change::Observed(Arc::new(Observed {
        nodes,
        waiting,
        ..Observed::default()
    }))]
}
