//! Health tables with changes of a site.

use super::*;

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
    assert_eq!(table.version, "2026.11.7+site-7");
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
    let mut engine = Engine::new(table, EngineState::default());
    let flag = Reading::Present(Value::Flag(true));
    engine.observe(0, &seen(&[("gpu.0.remapped_rows.pending", flag)]));
    engine.observe(0, &seen(&[("hwmon.1.fan", number(0))]));
    let report = engine.report();
    assert_eq!(report.worst, Some(Severity::Degraded));
    assert_eq!(report.reasons.len(), 2);
    assert!(!report.reasons[0].drains());
}

#[test]
fn key_pattern_may_begin_with_a_wildcard() {
    let site = "
version: x
checks:
  site.errors: { about: errors, key: '*.*.errors', when: { at_least: 5 }, severity: degraded, action: inspect }
  site.hot: { about: heat, key: '*.hot', when: { is: true }, severity: degraded, action: inspect }
  site.any: { about: anything, key: '*', when: { is: 7 }, severity: degraded, action: inspect }
";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut engine = Engine::new(table, EngineState::default());
    let hot = Reading::Present(Value::Flag(true));
    engine.observe(
        0,
        &seen(&[
            ("alpha.0.errors", number(5)),
            ("alpha.1.errors", number(4)),
            ("zeta.3.errors", number(9)),
            ("zeta.3.errors.corrected", number(9)),
            ("fan.hot", hot),
            ("load", number(7)),
        ]),
    );
    assert_eq!(
        codes(&engine),
        [
            "site.any load",
            "site.errors alpha.0",
            "site.errors zeta.3",
            "site.hot fan"
        ]
    );
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
  site.flat: { about: a, key: a.*, when: { rises: { by: 0, within_s: 60 } }, severity: inform, action: none }
  site.window: { about: a, key: a.*, when: { rises: { by: 1, within_s: 0 } }, severity: inform, action: none }
  site.bits: { about: a, key: a.*, when: { has_bits: 0 }, severity: inform, action: none }
";
    let error = Table::shipped().unwrap().with_site(site).unwrap_err();
    let text = error.to_string();
    for part in [
        "checks.gpu.row_remap.pendign: unknown check (similar: gpu.",
        "checks.gpu.row_remap.many: the key or finding of a shipped check cannot",
        "checks.site.both: give either key or finding",
        "checks.site.none: when needs exactly one of",
        "checks.site.flat: when.rises.by must be at least 1",
        "checks.site.window: when.rises.within_s must be at least 1",
        "checks.site.bits: when.has_bits must have at least one bit",
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
fn removed_check_strands_no_reason() {
    let mut engine = engine();
    let flag = Reading::Present(Value::Flag(true));
    engine.observe(0, &seen(&[("gpu.0.remapped_rows.pending", flag)]));
    let site = "version: x\nchecks: { gpu.row_remap.pending: { off: true } }";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let engine = Engine::new(table, engine.memory().clone());
    assert!(engine.report().reasons.is_empty());
}

/// Restarts the agent with another table after a long run.
fn restarted(engine: &Engine, site: &str) -> Engine {
    let stored = serde_json::to_string(engine.memory()).unwrap();
    let memory: EngineState = serde_json::from_str(&stored).unwrap();
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut engine = Engine::new(table, memory);
    engine.set_boot_id("b1");
    engine
}

#[test]
fn another_table_judges_what_is_remembered_at_once() {
    let mut engine = engine();
    engine.set_boot_id("b1");
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
    let of = |report: &HealthReport, code: &str| {
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
    // The recovery action requested by the driver overrides the table.
    let own = (Severity::Faulty, Action::Reboot, false);
    assert_eq!(of(&report, "gpu.xid.154"), own);
    assert!(
        report
            .reasons
            .iter()
            .all(|r| r.count == 1 && r.first_seen_ms == SECOND)
    );
    // A reason without an end time has one now.
    calm.observe(62 * SECOND, &Inventory::default());
    assert!(codes(&calm).iter().all(|code| !code.contains("xid.79")));

    // With the shipped table the report is as before; a disabled check has no reason.
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
    engine.set_boot_id("b1");
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
