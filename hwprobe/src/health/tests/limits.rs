//! Every check of the shipped table just before its limit and at it. The limits stand here a second
//! time, so that a slip of the table is seen; a check without a row fails.

use super::*;
use Case::{Above, Finds, Left, Rises, Word};
use std::collections::BTreeSet;

/// What a check of the shipped table says.
enum Case {
    /// A finding of this name.
    Finds(&'static str),
    /// This word or flag is good, that one bad once it has lasted so long, seconds.
    Word(&'static str, &'static str, &'static str, u64),
    /// This number is good and that one bad once it has lasted so long; beside it is another key.
    Above(&'static str, i64, i64, u64, Option<(&'static str, i64)>),
    /// The counter may rise by less than this in so many seconds.
    Rises(&'static str, i64, u64),
    /// It was this word in this boot, and has been that one for so long.
    Left(&'static str, &'static str, &'static str, u64),
}

const ROWS: &[(&str, Case)] = &[
    ("bios.reboot_pending", Finds("bios_reboot_pending")),
    ("bios.settings_pending", Finds("bios_settings_pending")),
    ("bios.version_mismatch", Finds("bios_version_mismatch")),
    ("bmc.dead_link", Finds("bmc_dead_link")),
    ("bmc.not_available", Finds("bmc_not_available")),
    ("bmc.version_mismatch", Finds("bmc_version_mismatch")),
    ("bmc.wrong_system", Finds("bmc_identity_mismatch")),
    ("gpu.driver_mismatch", Finds("gpu_driver_mismatch")),
    ("gpu.fabric.differs", Finds("gpu_fabric_differs")),
    ("gpu.gone", Finds("gpu_lost")),
    ("gpu.lost", Finds("gpu_count_mismatch")),
    ("gpu.mode_pending", Finds("gpu_mode_pending")),
    ("gpu.topology", Finds("gpu_topology_mismatch")),
    ("nic.missing", Finds("nic_missing")),
    ("nic.reboot_pending", Finds("nic_reboot_pending")),
    ("nic.verbs_missing", Finds("nic_verbs_missing")),
    ("nic.without_driver", Finds("nic_without_driver")),
    ("power.meter_ambiguous", Finds("power_meter_ambiguous")),
    (
        "bmc.manager_critical",
        Word("bmc.manager.health", "Warning", "Critical", 0),
    ),
    (
        "bmc.part_critical",
        Word("bmc.health_rollup", "Warning", "Critical", 0),
    ),
    (
        "bmc.part_warning",
        Word("bmc.health_rollup", "OK", "Warning", 0),
    ),
    (
        "bmc.system_critical",
        Word("bmc.health", "Warning", "Critical", 0),
    ),
    ("bmc.system_warning", Word("bmc.health", "OK", "Warning", 0)),
    (
        "gpu.ecc.sram_threshold",
        Word("gpu.1.ecc.sram.threshold_exceeded", "false", "true", 0),
    ),
    (
        "gpu.fabric.access_timeout",
        Word("gpu.1.fabric.access_timeout_recovery", "false", "true", 300),
    ),
    (
        "gpu.fabric.degraded_bandwidth",
        Word("gpu.1.fabric.degraded_bandwidth", "false", "true", 300),
    ),
    (
        "gpu.fabric.limited",
        Word("gpu.1.fabric.health", "healthy", "limited_capacity", 300),
    ),
    (
        "gpu.fabric.misconfigured",
        Word("gpu.1.fabric.misconfigured", "no", "no partition", 300),
    ),
    (
        "gpu.fabric.route_recovery",
        Word("gpu.1.fabric.route_recovery", "false", "true", 300),
    ),
    (
        "gpu.fabric.route_unhealthy",
        Word("gpu.1.fabric.route_unhealthy", "false", "true", 300),
    ),
    (
        "gpu.fabric.state",
        Word("gpu.1.fabric.state", "completed", "in_progress", 300),
    ),
    (
        "gpu.fabric.status",
        Word(
            "gpu.1.fabric.status",
            "success",
            "insufficient resources",
            300,
        ),
    ),
    (
        "gpu.fabric.unhealthy",
        Word("gpu.1.fabric.health", "limited_capacity", "unhealthy", 300),
    ),
    (
        "gpu.nvlink.inactive",
        Word("gpu.1.nvlink.2.state", "active", "inactive", 300),
    ),
    (
        "gpu.retired_pages.pending",
        Word("gpu.1.retired_pages.pending", "false", "true", 0),
    ),
    (
        "gpu.row_remap.failed",
        Word("gpu.1.remapped_rows.failure", "false", "true", 0),
    ),
    (
        "gpu.row_remap.pending",
        Word("gpu.1.remapped_rows.pending", "false", "true", 0),
    ),
    (
        "nic.port_down",
        Word("nic.1.port.1.state", "ACTIVE", "DOWN", 240),
    ),
    (
        "storage.nvme_state",
        Word("storage.nvme.0.state", "live", "resetting", 120),
    ),
    (
        "storage.root_read_only",
        Word("storage.root_read_only", "false", "true", 0),
    ),
    (
        "gpu.clock.hw_slowdown",
        Above("gpu.1.clocks.event_reasons", 0xf7, 0x8, 300, None),
    ),
    (
        "gpu.clock.hw_thermal",
        Above("gpu.1.clocks.event_reasons", 0xbf, 0x40, 300, None),
    ),
    (
        "gpu.clock.power_brake",
        Above("gpu.1.clocks.event_reasons", 0x7f, 0x80, 300, None),
    ),
    (
        "gpu.clock.sw_thermal",
        Above("gpu.1.clocks.event_reasons", 0xdf, 0x20, 300, None),
    ),
    (
        "gpu.ecc.sram_uncorrected",
        Above("gpu.1.ecc.sram.uncorrected", 0, 1, 0, None),
    ),
    (
        "gpu.nvlink.bit_error_rate",
        Above(
            "gpu.1.nvlink.0.bit_error_rate.effective",
            1_000_000,
            1_000_001,
            120,
            None,
        ),
    ),
    (
        "gpu.nvlink.symbol_error_rate",
        Above(
            "gpu.1.nvlink.0.bit_error_rate.symbol",
            1_000_000,
            1_000_001,
            120,
            None,
        ),
    ),
    (
        "gpu.pcie.width",
        Above(
            "gpu.1.pcie.width",
            16,
            15,
            600,
            Some(("gpu.1.max_link_width", 16)),
        ),
    ),
    (
        "gpu.pcie.width_amd",
        Above(
            "gpu.amd.1.pcie.width",
            16,
            15,
            600,
            Some(("gpu.amd.1.max_link_width", 16)),
        ),
    ),
    (
        "gpu.retired_pages.full",
        Above("gpu.1.retired_pages.total", 62, 63, 0, None),
    ),
    (
        "gpu.retired_pages.many",
        Above("gpu.1.retired_pages.double_bit", 14, 15, 0, None),
    ),
    (
        "gpu.row_remap.many",
        Above("gpu.1.remapped_rows.uncorrectable", 511, 512, 0, None),
    ),
    (
        "gpu.temperature.margin",
        Above(
            "gpu.1.temperature_margin",
            3,
            2,
            60,
            Some(("gpu.1.temperature_margin_limit.slowdown", 2)),
        ),
    ),
    (
        "gpu.temperature.memory",
        Above(
            "gpu.1.temperature.memory",
            94,
            95,
            60,
            Some(("gpu.1.temperature_limit.memory", 95)),
        ),
    ),
    (
        "gpu.temperature.slowdown",
        Above(
            "gpu.1.temperature",
            91,
            92,
            60,
            Some(("gpu.1.temperature_limit.slowdown", 92)),
        ),
    ),
    (
        "nic.config_pending",
        Above("nic.1.config.pending", 0, 1, 0, None),
    ),
    (
        "nic.pcie_width",
        Above(
            "nic.1.pcie.width",
            16,
            8,
            600,
            Some(("nic.1.max_link_width", 16)),
        ),
    ),
    (
        "storage.nvme_width",
        Above(
            "storage.nvme.0.link_width",
            4,
            3,
            600,
            Some(("storage.nvme.0.max_link_width", 4)),
        ),
    ),
    (
        "storage.raid_degraded",
        Above("storage.raid.0.degraded", 0, 1, 0, None),
    ),
    (
        "gpu.ecc.corrected_rate",
        Rises("gpu.1.ecc.corrected.volatile", 1_000_000, 3600),
    ),
    (
        "gpu.ecc.uncorrected",
        Rises("gpu.1.ecc.uncorrected.volatile", 1, 3600),
    ),
    (
        "gpu.nvlink.crc",
        Rises("gpu.1.nvlink.0.errors.crc_flit", 6000, 60),
    ),
    (
        "gpu.nvlink.link_recovery",
        Rises("gpu.1.nvlink.0.errors.link_recovery", 1, 3600),
    ),
    (
        "gpu.nvlink.link_recovery_failed",
        Rises("gpu.1.nvlink.0.errors.link_recovery_failed", 1, 86_400),
    ),
    (
        "gpu.nvlink.recovery",
        Rises("gpu.1.nvlink.0.errors.recovery", 1, 3600),
    ),
    (
        "gpu.nvlink.replay",
        Rises("gpu.1.nvlink.0.errors.replay", 1, 3600),
    ),
    ("gpu.pcie.replays", Rises("gpu.1.pcie.replays", 100, 3600)),
    (
        "gpu.ras.correctable_rate",
        Rises("gpu.amd.1.ras.umc.correctable", 1_000_000, 3600),
    ),
    (
        "gpu.ras.uncorrectable",
        Rises("gpu.amd.1.ras.umc.uncorrectable", 1, 3600),
    ),
    (
        "memory.corrected_rate",
        Rises("memory.edac.0.ce_count", 1000, 3600),
    ),
    (
        "memory.uncorrected",
        Rises("memory.edac.0.ue_count", 1, 86_400),
    ),
    (
        "memory.uncorrected_unplaced",
        Rises("memory.controller.0.ue_noinfo_count", 1, 86_400),
    ),
    (
        "nic.buffer_overrun",
        Rises("nic.1.port.1.excessive_buffer_overrun_errors", 1, 3600),
    ),
    (
        "nic.carrier_flaps",
        Rises("nic.1.net.0.carrier_down_count", 3, 43_200),
    ),
    (
        "nic.link_downed",
        Rises("nic.1.port.1.link_downed", 1, 3600),
    ),
    (
        "nic.link_flaps",
        Rises("nic.1.port.1.link_downed", 3, 43_200),
    ),
    (
        "nic.link_integrity",
        Rises("nic.1.port.1.local_link_integrity_errors", 1, 3600),
    ),
    (
        "nic.link_recovery",
        Rises("nic.1.port.1.link_error_recovery", 6, 60),
    ),
    (
        "nic.rnr_nak_retry",
        Rises("nic.1.port.1.rnr_nak_retry_err", 1, 3600),
    ),
    (
        "nic.roce_slow_restart",
        Rises("nic.1.port.1.roce_slow_restart", 600, 60),
    ),
    (
        "nic.symbol_errors",
        Rises("nic.1.port.1.symbol_error", 121, 3600),
    ),
    (
        "gpu.nvlink.lost",
        Left("gpu.1.nvlink.2.state", "active", "inactive", 300),
    ),
    (
        "nic.interface_lost",
        Left("nic.1.net.0.operstate", "up", "down", 240),
    ),
    (
        "nic.port_lost",
        Left("nic.1.port.1.state", "ACTIVE", "DOWN", 240),
    ),
    (
        "nic.slingshot_lost",
        Left("nic.1.cxi.link_state", "up", "down", 240),
    ),
];

#[test]
fn every_check_has_a_row_and_every_row_a_check() {
    let table = Table::shipped().unwrap();
    let checks: BTreeSet<&str> = table.checks.keys().map(String::as_str).collect();
    let rows: BTreeSet<&str> = ROWS.iter().map(|(code, _)| *code).collect();
    assert_eq!(rows.len(), ROWS.len(), "a row is there twice");
    assert_eq!(checks, rows);
}

#[test]
fn every_check_speaks_at_its_limit_and_not_before() {
    for (code, case) in ROWS {
        match case {
            Finds(finding) => at_a_finding(code, finding),
            Word(key, good, bad, for_s) => {
                at_a_value(code, key, (word(good), word(bad)), *for_s, None);
            }
            Above(key, good, bad, for_s, beside) => {
                at_a_value(code, key, (number(*good), number(*bad)), *for_s, *beside);
            }
            Rises(key, by, within_s) => at_a_rate(code, key, *by, *within_s),
            Left(key, was, now, for_s) => at_a_loss(code, key, (word(was), word(now)), *for_s),
        }
    }
}

/// Whether the check, of all of them, speaks.
fn speaks(engine: &Engine, code: &str) -> bool {
    let mut reasons = engine.report().reasons.into_iter();
    reasons.any(|reason| reason.code == code)
}

fn word(word: &str) -> Reading<Value> {
    Reading::Present(match word {
        "true" => Value::Flag(true),
        "false" => Value::Flag(false),
        word => Value::from(word),
    })
}

fn at_a_finding(code: &str, finding: &str) {
    let finding = crate::FindingCode::named(finding).unwrap();
    let mut fine = Inventory::default();
    let record = crate::ClassRecord::new(finding.class());
    fine.records.insert(finding.class(), record);
    let mut wrong = fine.clone();
    wrong.findings.push(Finding::new(finding, "seen"));
    let mut engine = engine();
    engine.observe(0, &fine);
    assert!(!speaks(&engine, code), "{code} before");
    engine.observe(SECOND, &wrong);
    assert!(speaks(&engine, code), "{code}");
    engine.observe(2 * SECOND, &fine);
    assert!(!speaks(&engine, code), "{code} after");
}

fn at_a_value(
    code: &str,
    key: &str,
    (good, bad): (Reading<Value>, Reading<Value>),
    for_s: u64,
    beside: Option<(&str, i64)>,
) {
    let see = |reading: &Reading<Value>| {
        let mut values = vec![(key, reading.clone())];
        values.extend(beside.map(|(key, value)| (key, number(value))));
        seen(&values)
    };
    let mut engine = engine();
    engine.observe(0, &see(&good));
    engine.observe(HOUR, &see(&good));
    assert!(!speaks(&engine, code), "{code} at {key} {good}");
    let since = 2 * HOUR;
    engine.observe(since, &see(&bad));
    if for_s > 0 {
        engine.observe(since + for_s * SECOND - 1, &see(&bad));
        assert!(!speaks(&engine, code), "{code} before {for_s} s");
    }
    engine.observe(since + for_s * SECOND, &see(&bad));
    assert!(speaks(&engine, code), "{code} at {key} {bad}");
    engine.observe(since + for_s * SECOND + 1, &see(&good));
    assert!(!speaks(&engine, code), "{code} after it");
}

fn at_a_rate(code: &str, key: &str, by: i64, within_s: u64) {
    let window = within_s * SECOND;
    let at = |at_ms: u64, risen: i64| {
        let mut engine = engine();
        engine.observe(HOUR, &seen(&[(key, number(100))]));
        engine.observe(HOUR + at_ms, &seen(&[(key, number(100 + risen))]));
        speaks(&engine, code)
    };
    assert!(!at(1, by - 1), "{code} below {by}");
    assert!(at(1, by), "{code} at {by} at once");
    assert!(!at(window, by - 1), "{code} below {by} in {within_s} s");
    assert!(at(window, by), "{code} at {by} in {within_s} s");
    // Twice the window allows twice as much, and one more is one too many in one of the two.
    assert!(!at(2 * window, 2 * (by - 1)), "{code} in two windows");
    assert!(at(2 * window, 2 * (by - 1) + 1), "{code} in two windows");
}

fn at_a_loss(code: &str, key: &str, (was, now): (Reading<Value>, Reading<Value>), for_s: u64) {
    let see = |reading: &Reading<Value>| seen(&[(key, reading.clone())]);
    let mut engine = engine();
    engine.booted("b1");
    for at in 0..10 {
        engine.observe(at * HOUR, &see(&now));
    }
    assert!(!speaks(&engine, code), "{code}: it was never {was}");
    engine.observe(10 * HOUR, &see(&was));
    assert!(!speaks(&engine, code), "{code}");
    let memory = serde_json::to_string(engine.memory()).unwrap();
    let memory: Memory = serde_json::from_str(&memory).unwrap();
    let mut engine = Engine::new(Table::shipped().unwrap(), memory);
    engine.booted("b1");
    let since = 11 * HOUR;
    engine.observe(since, &see(&now));
    engine.observe(since + for_s * SECOND - 1, &see(&now));
    assert!(!speaks(&engine, code), "{code} before {for_s} s");
    engine.observe(since + for_s * SECOND, &see(&now));
    assert!(speaks(&engine, code), "{code}");
    // However long it lasts, and whether or not it can be read.
    engine.observe(1000 * HOUR, &see(&Reading::failed("input/output error")));
    engine.observe(1001 * HOUR, &see(&now));
    assert!(speaks(&engine, code), "{code} ends by itself");
    let mut booted = engine.clone();
    booted.booted("b2");
    for at in 1002..1010 {
        booted.observe(at * HOUR, &see(&now));
    }
    assert!(!speaks(&booted, code), "{code} of the boot before");
    // Somebody pulled the cable for good, and says so.
    let mut meant = engine.clone();
    assert_eq!(meant.clear(code, Some("gpu.9")), 0);
    assert_eq!(meant.clear(code, None), 1);
    for at in 1002..1010 {
        meant.observe(at * HOUR, &see(&now));
    }
    assert!(!speaks(&meant, code), "{code} is meant to be so");
    engine.observe(1002 * HOUR, &see(&was));
    assert!(!speaks(&engine, code), "{code} when it is {was} again");
}
