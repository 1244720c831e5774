//! Conformance, health and facts of one node.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::testing::{entry, mark, node, publish, settle};
use lattice_conformance::Reading;
use lattice_placement::ConformanceKey;

#[test]
fn upgrade_keeps_time_of_equal_record() {
    let (first, later) = (UnixMillis(7_000), UnixMillis(9_000));
    for (byte, since) in [(1, first), (2, later)] {
        let mut entry = node("a", false, 1);
        settle(&mut entry, first);
        publish(&mut entry, true, byte);
        settle(&mut entry, later);
        assert_eq!(entry.since(Class::Nic), Some(since));
        assert_eq!(entry.since(Class::Bios), Some(first));
    }
}

#[test]
fn merged_mark_replaces_mark_and_earlier_mark() {
    let mut entry = node("a", true, 1);
    let base = entry.published(Class::Nic);
    let earlier = Some(EarlierDigest {
        schema: 1,
        digest: Digest([7; 32]),
    });
    let merged = MergedMark {
        base,
        mark: mark(2, 8),
        earlier,
    };
    entry.merged_marks.insert(Class::Nic, merged);
    let derived = entry.derived(&Levels::default());
    assert_eq!(derived.marks[&Class::Nic], mark(2, 8));
    assert_eq!(derived.earlier.get(&Class::Nic).copied(), earlier);
    // The agent publishes another mark now, so its earlier mark does not belong to the merged record.
    publish(&mut entry, true, 3);
    let derived = entry.derived(&Levels::default());
    assert_eq!(derived.marks[&Class::Nic], ClassMark::Incomplete);
    assert_eq!(derived.earlier.get(&Class::Nic), None);
    assert_eq!(derived.fingerprint, None);
}

#[test]
fn node_without_gossip_has_no_fingerprint() {
    let mut entry = node("a", false, 1);
    assert!(entry.derived(&Levels::default()).fingerprint.is_some());
    entry.leave();
    let derived = entry.derived(&Levels::default());
    assert_eq!(derived, NodeConformance::default());
}

#[test]
fn excluded_node_equals_no_other() {
    let mut entry = node("a", false, 1);
    let key = |entry: &NodeEntry| entry.derived(&Levels::default()).key();
    assert!(matches!(key(&entry), ConformanceKey::Known(_)));
    let effect = BaselineEffect {
        no_sensitive: Some("it differs from baseline h100 v3".to_owned()),
        deprioritised: true,
        ..BaselineEffect::default()
    };
    entry.baseline_effect = Some(Arc::new(effect));
    assert_eq!(key(&entry), ConformanceKey::Unknown);
    assert!(entry.derived(&Levels::default()).deprioritised);
    // The contradiction of the attestation is the reason shown.
    entry.attestation_fault = Some("its attestation differs".to_owned());
    let derived = entry.derived(&Levels::default());
    let reason = derived.no_sensitive.as_deref();
    assert_eq!(reason, Some("its attestation differs"));
}

#[test]
fn silent_node_is_not_shown_as_healthy() {
    let mut entry = entry("a");
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
        let seen = entry.gossip.as_mut().unwrap();
        (seen.health, seen.document) = (Health::Degraded, Some(Digest([1; 32])));
        assert_eq!(entry.shown_health().0, Health::Unknown);
        // A worse state stays until the node reports another one.
        entry.gossip.as_mut().unwrap().health = Health::Faulty;
        assert_eq!(entry.shown_health().0, Health::Faulty);
        entry.gossip.as_mut().unwrap().health = Health::Healthy;
    }
}

#[test]
fn placement_uses_worse_verdict_of_agent_and_bmc() {
    use Health::{Degraded, Faulty, Healthy, Unknown};
    let mut entry = node("a", false, 1);
    for (by_agent, by_bmc, placed) in [
        (Healthy, Healthy, Healthy),
        (Healthy, Degraded, Degraded),
        (Healthy, Faulty, Faulty),
        (Unknown, Degraded, Unknown),
        (Faulty, Degraded, Faulty),
    ] {
        entry.gossip.as_mut().unwrap().health = by_agent;
        entry.bmc_faults = Arc::new(BmcFaults {
            health: by_bmc,
            ..BmcFaults::default()
        });
        assert_eq!(entry.facts().health, placed, "{by_agent:?} {by_bmc:?}");
    }
}

#[test]
fn unreadable_bmc_class_does_not_exclude_node() {
    let mut entry = node("a", false, 1);
    let seen = entry.gossip.as_mut().unwrap();
    seen.health = Health::Degraded;
    seen.health_reasons = vec!["nic.link_downed".to_owned()];
    // The agent reported that the node has no BMC.
    seen.marks.insert(Class::Bmc, ClassMark::Disabled);
    let unread = MergedMark::unknown(Some(ClassMark::Disabled));
    entry.merged_marks.insert(Class::Bmc, unread);
    settle(&mut entry, UnixMillis(1));
    assert_eq!(entry.facts().health, Health::Degraded);
    assert_eq!(entry.shown_health().0, Health::Unknown);
}

#[test]
fn gpu_memory_needs_number_and_size() {
    let of = |count, memory| {
        let (gpu_count, gpu_memory_bytes) = (count, memory);
        gpu_memory(&NodeResources {
            gpu_count,
            gpu_memory_bytes,
            ..NodeResources::default()
        })
    };
    let memory = || Reading::Present(80_000_000_000);
    assert_eq!(of(Reading::Present(4), memory()), Some(320_000_000_000));
    assert_eq!(of(Reading::Absent, Reading::Absent), None);
    assert_eq!(of(Reading::Present(0), memory()), None);
    assert_eq!(of(Reading::Present(4), Reading::Unsupported), None);
    assert_eq!(of(Reading::failed("no driver"), memory()), None);
    let broken = Reading::Present(u64::MAX);
    assert_eq!(of(Reading::Present(4), broken), None);
}
