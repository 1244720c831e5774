//! Views of nodes that publish different schemas.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tasks::testing;
use lattice_conformance::{Class, ClassMark, Digest, EarlierDigest};
use lattice_placement::{ConformanceKey, Health, Liveness};

const FIRST_SEEN: UnixMillis = UnixMillis(7_000);

fn mark(schema: u16, byte: u8) -> ClassMark {
    let digest = Digest([byte; 32]);
    ClassMark::Complete { schema, digest }
}

/// A node of `byte` has this digest under schema 1, and another one under schema 2.
fn node(name: &str, is_upgraded: bool, byte: u8) -> NodeEntry {
    let mut entry = testing::entry(name);
    says(&mut entry, is_upgraded, byte);
    entry.note_marks(FIRST_SEEN);
    entry
}

fn says(entry: &mut NodeEntry, is_upgraded: bool, byte: u8) {
    let seen = entry.seen.as_mut().unwrap();
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

fn view(nodes: impl IntoIterator<Item = NodeEntry>) -> View {
    let nodes = nodes.into_iter().map(|n| (n.id.clone(), Arc::new(n)));
    let mut view = View {
        base: BaseView {
            nodes: Arc::new(nodes.collect()),
            ..BaseView::default()
        },
        ..View::default()
    };
    view.settle_levels();
    view
}

fn keys(view: &View) -> Vec<ConformanceKey> {
    let nodes = view.nodes.values();
    nodes.map(|node| node.facts().conformance).collect()
}

#[test]
fn placement_sees_one_kind_of_node_while_half_are_upgraded_and_after() {
    let of = |upgraded: [bool; 4]| {
        let nodes = ["a", "b", "c", "d"].into_iter().zip(upgraded);
        view(nodes.map(|(name, is_upgraded)| node(name, is_upgraded, 1)))
    };
    let before = keys(&of([false; 4]));
    let halfway = keys(&of([true, true, false, false]));
    assert_eq!(halfway, before, "by the name they had");
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

#[test]
fn entries_change_only_where_their_marks_among_others_do() {
    let mut view = view([node("a", true, 1), node("b", true, 1), node("c", true, 1)]);
    let settled = view.clone();
    view.settle_levels();
    assert!(Arc::ptr_eq(&settled.nodes, &view.nodes), "nothing new");
    assert!(view.nodes.values().all(|node| node.common.is_none()));
    // A node without the later schema joins: the warm planner must see all other nodes.
    let old = node("d", false, 1);
    Arc::make_mut(&mut view.nodes).insert(old.id.clone(), Arc::new(old));
    view.settle_levels();
    for (id, before) in settled.nodes.iter() {
        let now = &view.nodes[id];
        assert!(!Arc::ptr_eq(before, now));
        assert_eq!(now.marks(), before.marks(), "what it says itself stays");
        assert_eq!(now.common_marks()[&Class::Nic], mark(1, 1));
        assert_eq!(now.common_marks()[&Class::Bios], mark(1, 9));
    }
    // The node is not seen any more.
    let gone = testing::id("d");
    let entry = Arc::make_mut(&mut view.nodes).get_mut(&gone).unwrap();
    Arc::make_mut(entry).seen = None;
    view.settle_levels();
    assert!(view.nodes.values().all(|node| node.common.is_none()));
}

#[test]
fn an_upgrade_makes_nothing_younger_and_a_change_with_it_does() {
    let later = UnixMillis(9_000);
    for (byte, since) in [(1, FIRST_SEEN), (2, later)] {
        let mut entry = node("a", false, 1);
        says(&mut entry, true, byte);
        entry.note_marks(later);
        assert_eq!(entry.since(Class::Nic), Some(since));
        assert_eq!(entry.since(Class::Bios), Some(FIRST_SEEN));
    }
}

#[test]
fn class_statement_applies_to_whole_class() {
    let mut entry = node("a", true, 1);
    let base = entry.said(Class::Nic);
    let earlier = Some(EarlierDigest {
        schema: 1,
        digest: Digest([7; 32]),
    });
    let whole = MergedMark {
        base,
        mark: mark(2, 8),
        earlier,
    };
    entry.united.insert(Class::Nic, whole);
    entry.merge_marks();
    assert_eq!(entry.marks()[&Class::Nic], mark(2, 8));
    assert_eq!(entry.earlier().get(&Class::Nic).copied(), earlier);
    // The agent publishes another mark now, so its earlier mark does not belong to the merged record.
    says(&mut entry, true, 3);
    entry.merge_marks();
    assert_eq!(entry.marks()[&Class::Nic], ClassMark::Incomplete);
    assert_eq!(entry.earlier().get(&Class::Nic), None);
}

#[test]
fn a_node_that_does_not_answer_is_not_known_to_be_healthy() {
    let mut entry = testing::entry("a");
    let healthy = (Health::Healthy, Vec::new());
    assert_eq!(entry.shown_health(), healthy);
    for liveness in [Liveness::Suspect, Liveness::Unreachable] {
        entry.liveness = liveness;
        let (verdict, reasons) = entry.shown_health();
        assert_eq!(
            (verdict, reasons),
            (Health::Unknown, vec![SILENT.to_owned()])
        );
        // A fault that leaves the node usable shows as unknown.
        let seen = entry.seen.as_mut().unwrap();
        (seen.health, seen.document) = (Health::Degraded, Some(Digest([1; 32])));
        assert_eq!(entry.shown_health().0, Health::Unknown);
        // A worse state stays until the node reports another one.
        entry.seen.as_mut().unwrap().health = Health::Faulty;
        assert_eq!(entry.shown_health().0, Health::Faulty);
        entry.seen.as_mut().unwrap().health = Health::Healthy;
    }
}

#[test]
fn placement_goes_by_the_worse_word_of_agent_and_bmc() {
    use Health::{Degraded, Faulty, Healthy, Unknown};
    let mut entry = node("a", false, 1);
    for (by_agent, by_bmc, placed) in [
        (Healthy, Healthy, Healthy),
        (Healthy, Degraded, Degraded),
        (Healthy, Faulty, Faulty),
        (Unknown, Degraded, Unknown),
        (Faulty, Degraded, Faulty),
    ] {
        entry.seen.as_mut().unwrap().health = by_agent;
        entry.named = Arc::new(BmcFaults {
            health: by_bmc,
            ..BmcFaults::default()
        });
        assert_eq!(entry.facts().health, placed, "{by_agent:?} {by_bmc:?}");
    }
}

#[test]
fn a_bmc_class_that_cannot_be_read_keeps_no_work_away() {
    let mut entry = node("a", false, 1);
    let seen = entry.seen.as_mut().unwrap();
    seen.health = Health::Degraded;
    seen.health_reasons = vec!["nic.link_downed".to_owned()];
    // The agent reported that the node has no BMC.
    seen.marks.insert(Class::Bmc, ClassMark::Disabled);
    let unread = MergedMark::unknown(Some(ClassMark::Disabled));
    entry.united.insert(Class::Bmc, unread);
    entry.merge_marks();
    assert_eq!(entry.facts().health, Health::Degraded);
    assert_eq!(entry.shown_health().0, Health::Unknown);
}
