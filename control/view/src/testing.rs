//! Nodes for the tests of this crate.
#![expect(clippy::unwrap_used, reason = "tests")]

use crate::{GossipedNode, NodeEntry, View};
use lattice_conformance::{Class, ClassMark, Digest, EarlierDigest, Levels};
use lattice_placement::{Health, Liveness};
use lattice_quorum_types::{
    NodeId, Revision, UnixMillis, VclusterName,
    node::{Lifecycle, Node},
};
use std::{collections::BTreeMap, sync::Arc};

/// Time at which [`view`] settles.
pub(crate) const FIRST_SEEN: UnixMillis = UnixMillis(7_000);

/// A ready, alive node that gossips and holds no allocation.
pub(crate) fn entry(name: &str) -> NodeEntry {
    let vcluster = VclusterName::new("default").unwrap();
    let mut entry = NodeEntry::registered(Node {
        id: NodeId::new(name).unwrap(),
        lifecycle: Lifecycle::Ready,
        drain: Vec::new(),
        holder: None,
        version: 1,
        home: vcluster.clone(),
        current: vcluster,
        registered_at: UnixMillis(0),
        revision: Revision(1),
        node_claim: None,
        promised: None,
        reclaimed_at: None,
    });
    entry.gossip = Some(GossipedNode {
        cell: "c0".to_owned(),
        health: Health::Healthy,
        generation: 1,
        is_alive: true,
        ..GossipedNode::before(BTreeMap::new())
    });
    entry.liveness = Liveness::Alive;
    entry
}

pub(crate) fn mark(schema: u16, byte: u8) -> ClassMark {
    let digest = Digest([byte; 32]);
    ClassMark::Complete { schema, digest }
}

/// Derives the conformance of an entry that is not in a view.
pub(crate) fn settle(entry: &mut NodeEntry, now: UnixMillis) {
    let derived = entry.derived(&Levels::default());
    entry.set_conformance(derived, now);
}

/// A node that publishes the marks of [`publish`].
pub(crate) fn node(name: &str, is_upgraded: bool, byte: u8) -> NodeEntry {
    let mut entry = entry(name);
    publish(&mut entry, is_upgraded, byte);
    entry
}

/// Publishes a BIOS mark, and a NIC record that has the digest `byte` under schema 1 and, by an upgraded agent, another
/// digest under schema 2.
pub(crate) fn publish(entry: &mut NodeEntry, is_upgraded: bool, byte: u8) {
    let seen = entry.gossip.as_mut().unwrap();
    seen.marks.insert(Class::Bios, mark(1, 9));
    seen.marks.insert(Class::Nic, mark(1, byte));
    if is_upgraded {
        seen.marks.insert(Class::Nic, mark(2, byte + 100));
        let earlier = EarlierDigest {
            schema: 1,
            digest: Digest([byte; 32]),
        };
        seen.earlier.insert(Class::Nic, earlier);
    }
}

/// A view of a cell with these nodes.
pub(crate) fn view(nodes: impl IntoIterator<Item = NodeEntry>) -> View {
    let mut view = View::default();
    let mut members = BTreeMap::new();
    for mut node in nodes {
        members.extend(node.gossip.take().map(|seen| (node.id.clone(), seen)));
        Arc::make_mut(&mut view.nodes).insert(node.id.clone(), Arc::new(node));
    }
    view.set_cell("c0", members);
    view.settle(FIRST_SEEN);
    view
}
