//! Publication of new views with reports from outside the quorum: gossip, node documents, the node history, pings and
//! other replies of agents, BMC readings, attestations and comparisons. What a report changes is defined in
//! `lattice_view`.

use crate::{
    core::{Core, Wakes},
    feed::{Change, Observed},
};
use lattice_conformance::{Class, Digest, NodeDocument};
use lattice_quorum_types::NodeId;
use lattice_view::{
    GossipedNode, NodeEntry, PingOutcome, View,
    drift::ComparisonResult,
    node::{BmcFaults, MergedMark},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::time::Instant;

/// Takes over the present members of one gossip cell. A node that left the cell keeps its registration, if it has one.
pub fn cell(core: &Core, cell: &str, members: BTreeMap<NodeId, GossipedNode>) {
    core.publish(Wakes::Reconcilers, |view| {
        Some(observed(view.set_cell(cell, members)?))
    });
}

/// Stores fetched node documents in the view.
pub fn documents(core: &Core, documents: BTreeMap<NodeId, (Digest, Arc<NodeDocument>)>) {
    publish(core, Wakes::Reconcilers, |view| {
        view.set_documents(documents)
    });
}

/// Stores the last known state of nodes that do not gossip, recalled from the node history.
pub(crate) fn last_known(core: &Core, found: Vec<NodeEntry>) {
    publish(core, Wakes::Readers, |view| view.set_last_known(found));
}

/// Stores class marks that include BMC readings.
pub fn merged_marks(core: &Core, found: BTreeMap<NodeId, BTreeMap<Class, MergedMark>>) {
    publish(core, Wakes::Reconcilers, |view| {
        view.set_merged_marks(found)
    });
}

/// Stores the faults reported by BMCs. Returns the number of nodes that changed.
pub(crate) fn bmc_faults(core: &Core, found: BTreeMap<NodeId, BmcFaults>) -> usize {
    publish(core, Wakes::Reconcilers, |view| view.set_bmc_faults(found))
}

/// Stores changed liveness results. Returns the number of nodes that changed.
pub fn liveness(core: &Core, found: &BTreeMap<NodeId, PingOutcome>) -> usize {
    publish(core, Wakes::Reconcilers, |view| view.set_liveness(found))
}

/// Stores the boot id that an agent returned in a reply other than a ping's.
pub(crate) fn boot(core: &Core, id: &NodeId, boot: &str, replied_at: Instant) {
    let replied_at = core.since_start(replied_at);
    publish(core, Wakes::Reconcilers, |view| {
        view.set_boot(id, boot, replied_at)
    });
}

/// Stores for each node why it is excluded from sensitive allocations, such as an attestation that contradicts its
/// gossip; `None` if it is no longer excluded.
pub(crate) fn contradictions(core: &Core, found: &BTreeMap<NodeId, Option<String>>) {
    publish(core, Wakes::Reconcilers, |view| {
        view.set_contradictions(found)
    });
}

/// Replaces the last drift comparison, and stores the resulting effects on the nodes. The reconcilers wake only if an
/// effect changes.
pub fn comparison(core: &Core, compared: ComparisonResult) {
    let wakes = match core.view().changes_effects(&compared) {
        true => Wakes::Reconcilers,
        false => Wakes::Readers,
    };
    core.publish(wakes, |view| Some(observed(view.set_comparison(compared)?)));
}

/// Publishes a view with a change to some nodes, if there is one. Returns the number of nodes that changed.
fn publish(core: &Core, wakes: Wakes, edit: impl FnOnce(&mut View) -> BTreeSet<NodeId>) -> usize {
    let mut count = 0;
    core.publish(wakes, |view| {
        let changed = edit(view);
        count = changed.len();
        (count > 0).then(|| observed(changed))
    });
    count
}

fn observed(nodes: BTreeSet<NodeId>) -> Vec<Change> {
    if nodes.is_empty() {
        return Vec::new();
    }
    vec![Change::Observed(Arc::new(Observed {
        nodes,
        ..Observed::default()
    }))]
}
