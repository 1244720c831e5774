#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
mod events;
mod findings;
mod limits;
mod memory;
mod rates;
mod site;
mod xids;

use super::*;
use crate::driver_events::{AmdEvent, EventCode, Mlx5Event};
use crate::{Class, Finding, Inventory, Reading, Value};

const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;

fn engine() -> Engine {
    Engine::new(Table::shipped().unwrap(), EngineState::default())
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
fn only_good_reading_clears_reason() {
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
    // The first value of a counter gives no answer.
    assert!(at(&mut engine, 0, 7).is_empty());
    assert!(at(&mut engine, 60 * SECOND, 7).is_empty());
    let one = at(&mut engine, 120 * SECOND, 8);
    assert_eq!(one, ["nic.link_downed nic.2.port.1"]);
    let three = at(&mut engine, 180 * SECOND, 10);
    assert_eq!(three[0], "nic.link_flaps nic.2.port.1");
    // No rise for longer than both windows.
    for hour in 1..=14 {
        at(&mut engine, hour * HOUR, 10);
    }
    assert!(codes(&engine).is_empty(), "{:?}", engine.report());
    // The driver was reloaded: a restarted counter has not risen.
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
    // A pass that did not read GPUs, and one that failed to read them.
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
    // Another minor reason displaces no existing one.
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
    let mut engine = Engine::new(table, EngineState::default());
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
fn duplicate_bmc_parts_drain_nothing() {
    let table = Table::shipped().unwrap();
    let mut engine = Engine::new(table, EngineState::default());
    let word = |word: &str| Reading::Present(Value::from(word));
    // A power supply without mains, reported by a BMC that puts the worst state of all parts into both fields.
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
fn contradiction_timer_restarts() {
    let site = "version: x\nchecks: { gpu.topology: { for_s: 60 } }";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut engine = Engine::new(table, EngineState::default());
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
