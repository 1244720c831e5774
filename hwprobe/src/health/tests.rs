#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
use super::*;
use crate::gpu_events::{AmdEvent, EventCode};
use crate::{Class, Finding, Inventory, Reading, Value};

const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;

fn engine() -> Engine {
    Engine::new(Table::shipped().unwrap(), Memory::default())
}

fn seen(vitals: &[(&str, Reading<Value>)]) -> Inventory {
    let mut inventory = Inventory::default();
    for (key, reading) in vitals {
        inventory.vitals.put(*key, reading.clone());
    }
    inventory
}

fn number(n: i64) -> Reading<Value> {
    Reading::Present(Value::Number(n))
}

fn codes(engine: &Engine) -> Vec<String> {
    let reasons = engine.report().reasons;
    let named = reasons.iter().map(|r| format!("{} {}", r.code, r.entity));
    named.collect()
}

#[test]
fn the_shipped_table_is_whole() {
    let table = Table::shipped().unwrap();
    assert!(table.checks.len() > 30);
    for (xid, class, action) in [
        (79, "off_the_bus", Action::Reboot),
        (48, "double_bit_ecc", Action::ResetGpu),
        (31, "application", Action::RestartApplication),
        (63, "inform", Action::None),
    ] {
        let (name, found) = table.class_of(xid).unwrap();
        assert_eq!((name, found.action), (class, action), "{xid}");
    }
}

#[test]
fn a_bad_reading_makes_a_reason_with_its_device_and_only_a_good_one_clears_it() {
    let mut engine = engine();
    let flag = |value| Reading::Present(Value::Flag(value));
    let key = "gpu.3.remapped_rows.pending";
    engine.observe(SECOND, &seen(&[(key, flag(true))]));
    assert_eq!(codes(&engine), ["gpu.row_remap.pending gpu.3"]);
    for unknown in [
        Reading::failed("NVML: lost"),
        Reading::Timeout { after_ms: 1 },
        Reading::Unsupported,
        Reading::Absent,
    ] {
        engine.observe(2 * SECOND, &seen(&[(key, unknown)]));
        assert_eq!(codes(&engine).len(), 1);
    }
    engine.observe(3 * SECOND, &seen(&[(key, flag(true))]));
    let reason = engine.report().reasons.remove(0);
    assert_eq!((reason.first_seen_ms, reason.last_seen_ms), (1000, 3000));
    assert_eq!(reason.count, 2);
    assert!(reason.drains());
    engine.observe(4 * SECOND, &seen(&[(key, flag(false))]));
    assert_eq!(engine.report().worst, None);
    assert!(engine.report().reasons.is_empty());
}

#[test]
fn what_is_not_known_is_no_fault() {
    let mut engine = engine();
    let inventory = seen(&[
        ("gpu.0.fabric.state", Reading::Unsupported),
        ("gpu.0.temperature", number(95)),
        ("gpu.0.pcie.width", number(8)),
    ]);
    for at in 0..20 {
        engine.observe(at * 60 * SECOND, &inventory);
    }
    assert_eq!(codes(&engine), Vec::<String>::new());
}

#[test]
fn a_counter_counts_by_how_it_rises() {
    let mut engine = engine();
    let key = "nic.2.port.1.link_downed";
    let at = |engine: &mut Engine, at: u64, value: i64| {
        engine.observe(at, &seen(&[(key, number(value))]));
        codes(engine)
    };
    // What it was before anybody looked says nothing.
    assert!(at(&mut engine, 0, 7).is_empty());
    assert!(at(&mut engine, 60 * SECOND, 7).is_empty());
    let one = at(&mut engine, 120 * SECOND, 8);
    assert_eq!(one, ["nic.link_downed nic.2.port.1"]);
    let three = at(&mut engine, 180 * SECOND, 10);
    assert_eq!(three[0], "nic.link_flaps nic.2.port.1");
    // Quiet for longer than both windows.
    for hour in 1..=14 {
        at(&mut engine, hour * HOUR, 10);
    }
    assert!(codes(&engine).is_empty(), "{:?}", engine.report());
    // The driver was loaded anew: a counter that begins again has not risen.
    assert!(at(&mut engine, 15 * HOUR, 0).is_empty());
}

#[test]
fn what_must_last_is_no_fault_before() {
    let mut engine = engine();
    let hot = seen(&[
        ("gpu.1.temperature", number(93)),
        ("gpu.1.temperature_limit.slowdown", number(92)),
    ]);
    engine.observe(0, &hot);
    engine.observe(30 * SECOND, &hot);
    assert!(codes(&engine).is_empty());
    engine.observe(60 * SECOND, &hot);
    assert_eq!(codes(&engine), ["gpu.temperature.slowdown gpu.1"]);
}

#[test]
fn a_value_is_compared_with_a_conformance_key_too() {
    let mut engine = engine();
    let mut narrow = seen(&[("gpu.0.pcie.width", number(8))]);
    let mut record = crate::ClassRecord::new(Class::Gpu);
    record.put("gpu.0.max_link_width", Reading::Present(16_u32));
    narrow.records.insert(Class::Gpu, record);
    engine.observe(0, &narrow);
    engine.observe(HOUR, &narrow);
    let reason = engine.report().reasons.remove(0);
    assert_eq!(reason.code, "gpu.pcie.width");
    assert_eq!(
        reason.evidence,
        "gpu.0.pcie.width is 8, gpu.0.max_link_width is 16"
    );
}

#[test]
fn a_contradiction_is_a_reason_while_it_is_seen() {
    let mut engine = engine();
    let mut lost = Inventory::default();
    lost.findings.push(Finding {
        class: Class::Gpu,
        code: "gpu_count_mismatch".to_owned(),
        detail: "the bus has 8 NVIDIA GPUs, the driver 7".to_owned(),
    });
    engine.observe(0, &lost);
    assert_eq!(codes(&engine), ["gpu.lost gpu"]);
    // A pass that did not look at GPUs, and one that could not.
    engine.observe(SECOND, &Inventory::default());
    let mut unread = Inventory::default();
    let mut record = crate::ClassRecord::new(Class::Gpu);
    record.require("gpu.count", Reading::<u32>::Timeout { after_ms: 1 });
    unread.records.insert(Class::Gpu, record.clone());
    engine.observe(2 * SECOND, &unread);
    assert_eq!(codes(&engine), ["gpu.lost gpu"]);
    record.require("gpu.count", Reading::Present(8_u32));
    unread.records.insert(Class::Gpu, record);
    engine.observe(3 * SECOND, &unread);
    assert!(codes(&engine).is_empty());
}

#[test]
fn an_xid_lasts_until_a_boot_or_a_person_and_a_users_fault_is_none_of_the_node() {
    let mut engine = engine();
    engine.booted("b1");
    engine.event(
        0,
        "gpu.3",
        &EventCode::Xid(79),
        "GPU has fallen off the bus.",
    );
    engine.event(0, "gpu.4", &EventCode::Xid(31), "MMU Fault");
    let report = engine.report();
    assert_eq!(report.worst, Some(Severity::Faulty));
    assert!(report.reasons[0].drains());
    assert!(!report.reasons[1].drains());
    // Weeks later, the agent restarted in between.
    let memory: Memory =
        serde_json::from_str(&serde_json::to_string(engine.memory()).unwrap()).unwrap();
    let mut engine = Engine::new(Table::shipped().unwrap(), memory);
    engine.booted("b1");
    engine.observe(400 * HOUR, &Inventory::default());
    assert_eq!(codes(&engine), ["gpu.xid.79 gpu.3"]);
    let mut cleared = engine.clone();
    assert_eq!(cleared.clear("gpu.xid.79", Some("gpu.1")), 0);
    assert_eq!(cleared.clear("gpu.xid.79", None), 1);
    assert!(codes(&cleared).is_empty());
    engine.booted("b2");
    assert!(codes(&engine).is_empty());
}

#[test]
fn the_driver_says_itself_what_helps() {
    let mut engine = engine();
    let said = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)";
    engine.event(0, "gpu.0", &EventCode::Xid(154), said);
    assert_eq!(engine.report().reasons[0].action, Action::Reboot);
    let said = "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)";
    engine.event(SECOND, "gpu.0", &EventCode::Xid(154), said);
    assert_eq!(engine.report().worst, Some(Severity::Inform));
}

#[test]
fn a_site_changes_single_lines_and_nothing_else() {
    let site = "
version: site-7
checks:
  gpu.row_remap.pending: { observe_only: true }
  gpu.retired_pages.many: { when: { at_least: 60 }, severity: faulty }
  nic.rnr_nak_retry: { off: true }
  site.fan: { about: the fan, key: hwmon.*.fan, when: { is: 0 }, severity: degraded, action: inspect }
xids:
  63: { severity: degraded, action: reset_gpu }
  999: { severity: inform, action: none }
";
    let shipped = Table::shipped().unwrap();
    let table = shipped.clone().with_site(site).unwrap();
    assert_eq!(table.version, "2026.11.2+site-7");
    let pending = &table.checks["gpu.row_remap.pending"];
    assert!(pending.observe_only);
    assert_eq!(pending.when, shipped.checks["gpu.row_remap.pending"].when);
    assert!(!table.checks.contains_key("nic.rnr_nak_retry"));
    assert_eq!(table.class_of(63).unwrap().1.severity, Severity::Degraded);
    let rest = table.class_of(66).unwrap().1;
    assert_eq!(
        (rest.severity, rest.action),
        (Severity::Inform, Action::None)
    );
    let mut engine = Engine::new(table, Memory::default());
    let flag = Reading::Present(Value::Flag(true));
    engine.observe(0, &seen(&[("gpu.0.remapped_rows.pending", flag)]));
    engine.observe(0, &seen(&[("hwmon.1.fan", number(0))]));
    let report = engine.report();
    assert_eq!(report.worst, Some(Severity::Degraded));
    assert_eq!(report.reasons.len(), 2);
    assert!(!report.reasons[0].drains());
}

#[test]
fn every_mistake_of_a_site_is_named_at_once() {
    let site = "
version: x
checks:
  gpu.row_remap.pendign: { observe_only: true }
  gpu.row_remap.many: { key: gpu.*.x }
  site.both: { about: a, key: a.*, finding: b, severity: inform, action: none }
  site.none: { about: a, key: a.*, severity: inform, action: none }
";
    let error = Table::shipped().unwrap().with_site(site).unwrap_err();
    let text = error.to_string();
    for part in [
        "checks.gpu.row_remap.pendign: no such check (there are gpu.",
        "checks.gpu.row_remap.many: what a shipped check looks at stays",
        "checks.site.both: give either key or finding",
        "checks.site.none: when needs exactly one of",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let error = Table::shipped()
        .unwrap()
        .with_site("version: x\nchekcs: {}");
    let text = error.expect_err("an unknown field").to_string();
    assert!(text.contains("chekcs"), "{text}");
}

#[test]
fn a_check_that_is_gone_strands_nobody() {
    let mut engine = engine();
    let flag = Reading::Present(Value::Flag(true));
    engine.observe(0, &seen(&[("gpu.0.remapped_rows.pending", flag)]));
    let site = "version: x\nchecks: { gpu.row_remap.pending: { off: true } }";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let engine = Engine::new(table, engine.memory().clone());
    assert!(engine.report().reasons.is_empty());
}

/// Runs long on one table, then the agent comes back with another.
fn restarted(engine: &Engine, site: &str) -> Engine {
    let stored = serde_json::to_string(engine.memory()).unwrap();
    let memory: Memory = serde_json::from_str(&stored).unwrap();
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut engine = Engine::new(table, memory);
    engine.booted("b1");
    engine
}

#[test]
fn another_table_judges_what_is_remembered_at_once() {
    let mut engine = engine();
    engine.booted("b1");
    let flag = Reading::Present(Value::Flag(true));
    let seen = seen(&[
        ("gpu.0.remapped_rows.pending", flag.clone()),
        ("gpu.1.remapped_rows.failure", flag.clone()),
    ]);
    engine.observe(SECOND, &seen);
    engine.event(SECOND, "gpu.2", &EventCode::Xid(79), "GPU has fallen off");
    engine.event(SECOND, "gpu.3", &EventCode::Xid(63), "Row remapping");
    let reset = EventCode::Amd(AmdEvent::ResetFailed);
    engine.event(SECOND, "gpu.amd.4", &reset, "GPU reset(1) failed");
    let own = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)";
    engine.event(SECOND, "gpu.5", &EventCode::Xid(154), own);
    let before = engine.report();
    assert_eq!(before.worst, Some(Severity::Faulty));

    let site = "
version: calm
checks:
  gpu.row_remap.pending: { observe_only: true }
  gpu.row_remap.failed: { severity: degraded, action: update }
xids:
  79: { severity: inform, action: none, counts_for_s: 60 }
  63: { severity: degraded, action: reset_gpu }
  154: { severity: inform, action: none }
events:
  gpu.amd.reset_failed: { severity: inform, action: inspect, observe_only: true }
";
    let mut calm = restarted(&engine, site);
    let of = |report: &Report, code: &str| {
        let reason = report.reasons.iter().find(|reason| reason.code == code);
        let reason = reason.unwrap_or_else(|| panic!("{code}: {report:?}"));
        (reason.severity, reason.action, reason.observe_only)
    };
    let report = calm.report();
    let pending = (Severity::Faulty, Action::ResetGpu, true);
    assert_eq!(of(&report, "gpu.row_remap.pending"), pending);
    let failed = (Severity::Degraded, Action::Update, false);
    assert_eq!(of(&report, "gpu.row_remap.failed"), failed);
    let inform = (Severity::Inform, Action::None, false);
    assert_eq!(of(&report, "gpu.xid.79"), inform);
    let remapped = (Severity::Degraded, Action::ResetGpu, false);
    assert_eq!(of(&report, "gpu.xid.63"), remapped);
    let reset = (Severity::Inform, Action::Inspect, true);
    assert_eq!(of(&report, "gpu.amd.reset_failed"), reset);
    // The driver's own word of what helps stands above the table.
    let own = (Severity::Faulty, Action::Reboot, false);
    assert_eq!(of(&report, "gpu.xid.154"), own);
    assert!(
        report
            .reasons
            .iter()
            .all(|r| r.count == 1 && r.first_seen_ms == SECOND)
    );
    // What had no end has one now.
    calm.observe(62 * SECOND, &Inventory::default());
    assert!(codes(&calm).iter().all(|code| !code.contains("xid.79")));

    // Back on the shipped table it is as it was, and off is off.
    assert_eq!(
        restarted(&engine, "version: x").report().reasons,
        before.reasons
    );
    let off = restarted(
        &engine,
        "version: x\nchecks: { gpu.row_remap.pending: { off: true } }",
    );
    assert!(
        codes(&off)
            .iter()
            .all(|code| !code.contains("row_remap.pending"))
    );
    assert_eq!(off.report().reasons.len(), before.reasons.len() - 1);
}

#[test]
fn of_a_check_that_is_off_no_sample_is_kept() {
    let mut engine = engine();
    engine.booted("b1");
    let key = "nic.2.port.1.link_downed";
    engine.observe(0, &seen(&[(key, number(7))]));
    let hot = [
        ("gpu.1.temperature", number(93)),
        ("gpu.1.temperature_limit.slowdown", number(92)),
    ];
    engine.observe(0, &seen(&hot));
    let site = "
version: x
checks:
  nic.link_downed: { off: true }
  nic.link_flaps: { off: true }
  gpu.temperature.slowdown: { off: true }
";
    let off = restarted(&engine, site);
    let stored = serde_json::to_string(off.memory()).unwrap();
    assert!(!stored.contains("link_downed"), "{stored}");
    assert!(!stored.contains("temperature"), "{stored}");
}

#[test]
fn a_reset_that_succeeds_ends_what_it_began_and_nothing_of_another_gpu() {
    let mut engine = engine();
    let amd = EventCode::Amd;
    engine.event(0, "gpu.amd.1", &amd(AmdEvent::Poison), "poison is consumed");
    engine.event(
        0,
        "gpu.amd.1",
        &amd(AmdEvent::ResetBegun),
        "GPU reset begin!",
    );
    engine.event(
        0,
        "gpu.amd.2",
        &amd(AmdEvent::ResetBegun),
        "GPU reset begin!",
    );
    assert!(engine.report().reasons[0].drains());
    engine.event(SECOND, "gpu.amd.1", &amd(AmdEvent::ResetDone), "");
    assert_eq!(
        codes(&engine),
        [
            "gpu.amd.reset_begun gpu.amd.2",
            "gpu.amd.poison gpu.amd.1",
            "gpu.amd.reset_done gpu.amd.1"
        ]
    );
    engine.event(SECOND, "gpu.amd.2", &amd(AmdEvent::ResetFailed), "");
    assert_eq!(codes(&engine)[0], "gpu.amd.reset_failed gpu.amd.2");
    assert_eq!(engine.report().reasons[0].action, Action::Reboot);
    // A day later only what nothing ended is left.
    engine.observe(25 * HOUR, &Inventory::default());
    assert_eq!(codes(&engine), ["gpu.amd.reset_failed gpu.amd.2"]);
}

#[test]
fn every_event_of_amds_driver_has_a_class_and_a_site_names_only_those() {
    let table = Table::shipped().unwrap();
    for event in AmdEvent::ALL {
        let code = EventCode::Amd(event);
        assert!(table.events.contains_key(&code.reason()), "{code}");
        assert_eq!(EventCode::of_reason(&code.reason()), Some(code));
    }
    assert_eq!(table.events.len(), AmdEvent::ALL.len());
    let site = "version: x\nevents: { gpu.amd.ring_timout: { observe_only: true } }";
    let error = table.with_site(site).unwrap_err().to_string();
    assert!(
        error.contains("events.gpu.amd.ring_timout: no such event (there are gpu."),
        "{error}"
    );
}

#[test]
fn errors_that_a_unit_of_an_amd_gpu_counts_are_a_reason_when_they_grow() {
    let mut engine = engine();
    let key = "gpu.amd.3.ras.umc.uncorrectable";
    engine.observe(0, &seen(&[(key, number(2))]));
    engine.observe(60 * SECOND, &seen(&[(key, Reading::Unsupported)]));
    assert!(codes(&engine).is_empty());
    engine.observe(120 * SECOND, &seen(&[(key, number(3))]));
    assert_eq!(codes(&engine), ["gpu.ras.uncorrectable gpu.amd.3.ras.umc"]);
    assert!(!engine.report().reasons[0].drains());
}

#[test]
fn many_small_reasons_never_hide_what_takes_a_node_out_of_service() {
    let mut engine = engine();
    for gpu in 0..300 {
        engine.event(0, &format!("gpu.{gpu}"), &EventCode::Xid(31), "MMU Fault");
    }
    let small = engine.report().reasons.len();
    assert!(small < 300);
    engine.event(SECOND, "gpu.7", &EventCode::Xid(79), "GPU has fallen off");
    let report = engine.report();
    assert_eq!(report.reasons.len(), small);
    assert_eq!(report.reasons[0].code, "gpu.xid.79");
    assert!(report.reasons[0].drains());
    // Another small one takes nobody's place.
    engine.event(SECOND, "gpu.999", &EventCode::Xid(31), "MMU Fault");
    assert!(codes(&engine).iter().all(|code| !code.contains("gpu.999")));
    assert_eq!(engine.report().reasons[0].code, "gpu.xid.79");
}

#[test]
fn lengths_and_counts_of_any_size_are_compared_without_a_panic() {
    let site = "
version: x
checks:
  gpu.temperature.slowdown: { for_s: 18446744073709551615 }
  nic.link_downed: { when: { rises: { by: 1, within_s: 18446744073709551615 } } }
";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut engine = Engine::new(table, Memory::default());
    let key = "nic.2.port.1.link_downed";
    let hot = [
        ("gpu.1.temperature", number(93)),
        ("gpu.1.temperature_limit.slowdown", number(92)),
        (key, number(i64::MIN)),
    ];
    engine.observe(0, &seen(&hot));
    engine.observe(
        60 * SECOND,
        &seen(&[hot[0].clone(), hot[1].clone(), (key, number(i64::MAX))]),
    );
    assert!(codes(&engine).contains(&"nic.link_downed nic.2.port.1".to_owned()));
    assert!(
        codes(&engine)
            .iter()
            .all(|code| !code.contains("temperature"))
    );
}

#[test]
fn what_a_bmc_says_of_parts_that_there_are_twice_drains_nobody() {
    let table = Table::shipped().unwrap();
    let mut engine = Engine::new(table, Memory::default());
    let word = |word: &str| Reading::Present(Value::from(word));
    // A power supply without mains, by a BMC that puts the worst of all parts into both.
    let seen = seen(&[
        ("bmc.health", word("Critical")),
        ("bmc.health_rollup", word("Critical")),
        ("bmc.manager.health", word("Critical")),
    ]);
    engine.observe(0, &seen);
    let report = engine.report();
    assert_eq!(report.worst, Some(Severity::Degraded));
    assert_eq!(report.reasons.len(), 3);
    assert!(report.reasons.iter().all(|reason| !reason.drains()));
}

#[test]
fn a_contradiction_that_must_last_begins_anew_when_it_is_seen_again() {
    let site = "version: x\nchecks: { gpu.topology: { for_s: 60 } }";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut engine = Engine::new(table, Memory::default());
    let finding = Finding {
        class: Class::Gpu,
        code: "gpu_topology_mismatch".to_owned(),
        detail: "near and far".to_owned(),
    };
    let mut fine = Inventory::default();
    let record = crate::ClassRecord::new(Class::Gpu);
    fine.records.insert(Class::Gpu, record);
    let mut wrong = fine.clone();
    wrong.findings.push(finding);
    engine.observe(0, &wrong);
    engine.observe(30 * SECOND, &fine);
    engine.observe(90 * SECOND, &wrong);
    assert_eq!(
        codes(&engine),
        Vec::<String>::new(),
        "seen for a moment, twice"
    );
    engine.observe(150 * SECOND, &wrong);
    assert_eq!(codes(&engine), ["gpu.topology gpu"]);
}
