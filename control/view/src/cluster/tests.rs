//! Views of nodes that publish different schemas.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    GossipedNode,
    testing::{FIRST_SEEN, mark, node, view},
};
use lattice_conformance::Class;
use lattice_placement::ConformanceKey;
use lattice_quorum_types::{Event, event::EventKind, view::LiveState};

fn keys(view: &View) -> Vec<ConformanceKey> {
    let nodes = view.nodes.values();
    nodes.map(|node| node.facts().conformance).collect()
}

/// Gossip of all nodes.
fn members(view: &View) -> BTreeMap<NodeId, GossipedNode> {
    let nodes = view.nodes.values();
    nodes
        .filter_map(|node| Some((node.id.clone(), node.gossip.clone()?)))
        .collect()
}

#[test]
fn partly_upgraded_cluster_has_one_conformance_group() {
    let of = |upgraded: [bool; 4]| {
        let nodes = ["a", "b", "c", "d"].into_iter().zip(upgraded);
        view(nodes.map(|(name, is_upgraded)| node(name, is_upgraded, 1)))
    };
    let before = keys(&of([false; 4]));
    let halfway = keys(&of([true, true, false, false]));
    assert_eq!(halfway, before, "in the earlier schema");
    let after = keys(&of([true; 4]));
    assert_ne!(after, before);
    for keys in [before, after] {
        assert!(matches!(keys[0], ConformanceKey::Known(_)));
        assert!(keys.iter().all(|key| *key == keys[0]));
    }
    // A different machine differs in both halves.
    let odd = view([
        node("a", true, 1),
        node("b", false, 1),
        node("c", true, 2),
        node("d", false, 2),
    ]);
    let keys = keys(&odd);
    assert!(keys[0] == keys[1] && keys[2] == keys[3] && keys[0] != keys[2]);
}

/// After a restore the cluster may have fewer usage records than this control received before.
#[test]
fn whole_state_resets_the_number_of_usage_records() {
    let mut view = view([]);
    let receive = |view: &mut View, through| {
        view.apply(&Event {
            revision: view.revision,
            ordinal: 0,
            at: view.at,
            kind: EventKind::UsageRecords { through },
        });
    };
    receive(&mut view, 9);
    view.replace(LiveState::default());
    receive(&mut view, 4);
    assert_eq!(view.usage_records, 4);
}

#[test]
fn only_nodes_with_other_common_marks_change() {
    let mut view = view([node("a", true, 1), node("b", true, 1), node("c", true, 1)]);
    let settled = view.clone();
    view.settle(FIRST_SEEN);
    assert!(Arc::ptr_eq(&settled.nodes, &view.nodes), "nothing new");
    let is_common = |node: &Arc<NodeEntry>| node.conformance().common_marks() == node.marks();
    assert!(view.nodes.values().all(is_common));
    // A node without the later schema joins: the warm planner must see all other nodes.
    let (old, before) = (node("d", false, 1), members(&view));
    let mut now = before.clone();
    now.extend(old.gossip.map(|seen| (old.id, seen)));
    view.set_cell("c0", now);
    view.settle(FIRST_SEEN);
    for (id, before) in settled.nodes.iter() {
        let now = &view.nodes[id];
        assert!(!Arc::ptr_eq(before, now));
        assert_eq!(now.marks(), before.marks(), "the node's own marks stay");
        assert_eq!(now.conformance().common_marks()[&Class::Nic], mark(1, 1));
        assert_eq!(now.conformance().common_marks()[&Class::Bios], mark(1, 9));
    }
    // The node is not seen any more.
    view.set_cell("c0", before);
    view.settle(FIRST_SEEN);
    assert!(view.nodes.values().all(is_common));
}

#[test]
fn node_that_left_is_known_by_its_last_state() {
    let mut view = view([node("a", false, 1), node("b", false, 1)]);
    let mut present = members(&view);
    let gone = NodeId::new("b").unwrap();
    present.remove(&gone);
    let changed = view.set_cell("c0", present).unwrap();
    view.settle(FIRST_SEEN);
    assert_eq!(changed, BTreeSet::from([gone.clone()]));
    assert!(view.node(&gone).unwrap().marks().is_empty());
    let known = view.as_known(&gone).unwrap();
    assert_eq!(known.marks()[&Class::Nic], mark(1, 1));
    assert_eq!(keys(&view)[1], ConformanceKey::Unknown);
}
