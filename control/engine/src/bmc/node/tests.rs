//! A class that changes with every reading is unknown, and delays nothing else.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use lattice_conformance::{Vitals, health::Table};

/// A node for which a critical state of the BMC drains.
fn node() -> Node {
    let site = "version: s\nchecks:\n  bmc.system_critical: {severity: faulty}";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let name = NodeId::new("gpu001").unwrap();
    Node::new(name, Selector::Only, BmcHealth::new(table))
}

fn tells(setting: Reading<&str>, health: &str) -> BmcReport {
    let mut bios = ClassRecord::new(Class::Bios);
    bios.require("bios.setting.Seed", setting);
    let mut bmc = ClassRecord::new(Class::Bmc);
    bmc.require("bmc.firmware", Reading::Present("7.0"));
    let mut vitals = Vitals::default();
    vitals.put("bmc.health", Reading::Present(health));
    BmcReport {
        nodes: vec![NodeReport {
            system: SystemName::default(),
            bmc,
            bios,
            power: Power::default(),
            route: Route {
                unread: Reading::Absent,
                ..Route::default()
            },
            vitals,
            findings: Vec::new(),
        }],
        ..BmcReport::default()
    }
}

fn look(at: u64) -> ReadingCause {
    ReadingCause {
        at: UnixMillis(at),
        cause: Cause::Periodic,
    }
}

fn bios(node: &Node) -> ClassRecord {
    node.parts(UnixMillis(0)).records[&Class::Bios].clone()
}

/// Codes of the reasons, and whether the BMC data decides the draining check.
fn named(node: &Node) -> (Vec<String>, bool) {
    let parts = node.parts(UnixMillis(0));
    let codes = parts.reasons.into_iter().map(|reason| reason.code);
    (
        codes.collect(),
        !parts.undecided.contains("bmc.system_critical"),
    )
}

/// In the sixth reading the class differs from the previous reading for the fifth time.
fn restless() -> Node {
    let mut node = node();
    for (at, seed) in (0..).zip(["a", "b", "c", "b", "c", "b"]) {
        let known = at > 0;
        assert_eq!(bios(&node).state().digest().is_some(), known, "{at}");
        node.take(&tells(Reading::Present(seed), "OK"), &look(at));
    }
    node
}

#[test]
fn a_class_that_does_not_hold_still_has_no_digest_until_it_does() {
    let mut node = restless();
    let bios_record = bios(&node);
    assert_eq!(bios_record.state().digest(), None, "{bios_record:?}");
    assert_eq!(
        bios_record.get("bios.setting.Seed"),
        Reading::Present("b".into())
    );
    let why = Reading::failed("value changes with every reading");
    assert_eq!(bios_record.get("bios.probe.reads"), why);
    let records = node.parts(UnixMillis(0)).records;
    assert!(records[&Class::Bmc].state().digest().is_some());
    // Silence is unknown, and a value after it is just as unsettled.
    for (at, seed) in [
        (6, Reading::failed("no answer")),
        (7, Reading::Present("c")),
    ] {
        node.take(&tells(seed, "OK"), &look(at));
        assert_eq!(bios(&node).state().digest(), None, "{at}");
    }
    node.take(&tells(Reading::Present("c"), "OK"), &look(8));
    let bios_record = bios(&node);
    assert!(bios_record.state().digest().is_some(), "{bios_record:?}");
    // From here on a change is read twice before it counts, as usual.
    let (next, looked) = node.take(&tells(Reading::Present("d"), "OK"), &look(9));
    let differs = vec![Class::Bios];
    assert_eq!(
        (next, looked),
        (NextReadingStep::Confirm, RequestedReading::Read { differs })
    );
    assert_eq!(bios(&node), bios_record);
}

#[test]
fn confirms_and_clears_bmc_fault_of_unstable_class() {
    let mut node = restless();
    assert_eq!(named(&node), (Vec::new(), true));
    let critical = vec!["bmc.system_critical".to_owned()];
    for (at, seed, health, codes) in [(6, "c", "Critical", &critical), (7, "b", "OK", &Vec::new())]
    {
        let report = tells(Reading::Present(seed), health);
        assert_eq!(
            node.compare_reading(&report),
            RequestedReading::Read { differs: vec![] }
        );
        let (next, _) = node.take(&report, &look(at));
        assert_eq!(
            (next, named(&node)),
            (NextReadingStep::WaitInterval, (codes.clone(), true))
        );
    }
}

#[test]
fn after_silence_the_first_change_is_doubted_and_the_reason_stays() {
    let mut node = node();
    node.take(&tells(Reading::Present("a"), "OK"), &look(0));
    node.take(&tells(Reading::failed("no answer"), "OK"), &look(1));
    let silent = bios(&node);
    let (next, _) = node.take(&tells(Reading::Present("b"), "OK"), &look(2));
    assert_eq!((next, named(&node).1), (NextReadingStep::Confirm, false));
    assert_eq!(bios(&node), silent);
}

#[test]
fn unknown_before_start_is_marked() {
    let mut again = node();
    again.history = restless().history;
    let not_read = Reading::failed("BMC not read yet");
    let before = bios(&again);
    assert!(before.entries.values().any(|reading| *reading == not_read));
    again.take(&tells(Reading::Present("c"), "OK"), &look(7));
    let bios_record = bios(&again);
    assert_eq!(bios_record.state().digest(), None, "{bios_record:?}");
    assert_eq!(
        bios_record.get("bios.setting.Seed"),
        Reading::Present("c".into())
    );
    again.take(&tells(Reading::Present("c"), "OK"), &look(8));
    assert!(bios(&again).state().digest().is_some());
}
