//! Values that change while a GPU runs.

use super::*;
use crate::trials::{Test, tests};

pub const TESTS: &[Test] = tests![
    live_values_are_vitals_and_move_no_digest,
    no_key_is_in_two_planes,
    error_rates_of_nvlink_5_are_read_by_link_and_older_boards_have_none,
    links_that_are_down_under_mig_are_not_lost,
    corrected_errors_are_told_by_the_kind_of_memory,
];

pub(crate) fn live_values_are_vitals_and_move_no_digest() {
    let before = probe(&driver());
    let mut driver = driver();
    for gpu in &mut driver.gpus {
        gpu.temperature_c = Some(93.into());
        gpu.temperature_thresholds_c.slowdown = Some(89.into());
        gpu.fields.insert(82, Field::Value(71));
        gpu.fields.insert(193, Field::Value(-8));
        gpu.power.usage_mw = Some(512_345.into());
        gpu.power.enforced_limit_mw = Some(500_000.into());
        gpu.throttle_reasons = Some((0x8 | 0x40 | 0x200).into());
        gpu.ecc_errors.uncorrected_volatile = Some(3.into());
        gpu.remapped_rows = Some(Field::Value(fake::RemappedRows {
            correctable: 1,
            uncorrectable: 2,
            pending: true,
            failure: false,
        }));
        gpu.retired_pages = Some(Field::Value(fake::RetiredPages {
            single_bit: 0,
            double_bit: 7,
            pending: true,
        }));
        gpu.pcie.current_width = Some(8.into());
        gpu.nvlinks[0].links = 17;
        gpu.nvlinks[0].errors.crc_flit = Some(9.into());
        gpu.nvlinks.push(fake::NvLinkRun {
            links: 1,
            active: Some(false.into()),
            version: Some(6.into()),
            ..fake::NvLinkRun::default()
        });
        gpu.fabric = Some(Field::Value(fake::Fabric {
            cluster_uuid: "01234567-89ab-cdef-0123-456789abcdef".into(),
            clique_id: 3,
            state: fake::FabricState::Completed,
            status: Some(ErrorName::InsufficientResources),
            health_mask: 1 | 2 << 2 | 5 << 8,
            health_summary: 3,
        }));
    }
    let after = probe(&driver);
    for (key, value) in [
        ("gpu.0.temperature", "93"),
        ("gpu.0.temperature_limit.slowdown", "89"),
        ("gpu.0.temperature_limit.memory", "<unsupported>"),
        ("gpu.0.temperature.memory", "71"),
        ("gpu.0.temperature_margin_limit.shutdown", "-8"),
        ("gpu.0.power.draw", "512345"),
        ("gpu.0.power.enforced_limit", "500000"),
        ("gpu.0.clocks.events", "hw_slowdown hw_thermal bit_9"),
        ("gpu.0.ecc.uncorrected.volatile", "3"),
        ("gpu.0.ecc.corrected.volatile", "<unsupported>"),
        ("gpu.0.remapped_rows.uncorrectable", "2"),
        ("gpu.0.remapped_rows.pending", "yes"),
        ("gpu.0.retired_pages.single_bit", "0"),
        ("gpu.0.retired_pages.double_bit", "7"),
        ("gpu.0.retired_pages.pending", "yes"),
        ("gpu.0.pcie.width", "8"),
        ("gpu.0.nvlink.active", "17"),
        ("gpu.0.nvlink.17.state", "inactive"),
        ("gpu.0.nvlink.0.errors.crc_flit", "9"),
        ("gpu.0.fabric.state", "completed"),
        ("gpu.0.fabric.status", "insufficient resources"),
        ("gpu.0.fabric.health", "limited_capacity"),
        ("gpu.0.fabric.degraded_bandwidth", "yes"),
        ("gpu.0.fabric.route_recovery", "no"),
        ("gpu.0.fabric.misconfigured", "insufficient nvlinks"),
    ] {
        assert_eq!(vital(&after, key), value, "{key}");
    }
    let changed = diff(&before.records[&Class::Gpu], &after.records[&Class::Gpu]);
    assert!(changed.is_empty(), "{changed:?}");
    assert_eq!(before.marks(), after.marks());
    assert_eq!(
        after.topology.fabric.to_string(),
        "0123456789abcdef0123456789abcdef/3"
    );
}

/// A board with NVLink 5, with error rates as its driver packs them: 15 * 10^-255 is zero.
pub(crate) fn error_rates_of_nvlink_5_are_read_by_link_and_older_boards_have_none() {
    let best = 15 << 8 | 255;
    let run = |links, effective: i64, symbol: i64| fake::NvLinkRun {
        links,
        active: Some(true.into()),
        version: Some(7.into()),
        fields: BTreeMap::from([
            (215, Field::Value(4)),
            (219, Field::Value(7)),
            (220, Field::Value(effective)),
            (222, Field::Value(symbol)),
            (
                221,
                Field::Error {
                    error: ErrorName::GpuIsLost,
                },
            ),
        ]),
        ..fake::NvLinkRun::default()
    };
    let mut driver = driver();
    let before = probe(&driver);
    driver.gpus[1].nvlinks = vec![run(17, best, best), run(1, 2 << 8 | 12, 9 << 8 | 7)];
    let inventory = probe(&driver);
    for (key, value) in [
        ("gpu.0.nvlink.16.bit_error_rate.effective", "0"),
        ("gpu.0.nvlink.17.bit_error_rate.effective", "2000000"),
        ("gpu.0.nvlink.17.bit_error_rate.symbol", "900000000000"),
        ("gpu.0.nvlink.17.errors.effective", "7"),
        (
            "gpu.0.nvlink.17.errors.symbol",
            "<failed: NVML: gpu is lost>",
        ),
        ("gpu.0.nvlink.17.errors.link_recovery", "4"),
        (
            "gpu.0.nvlink.17.errors.link_recovery_failed",
            "<unsupported>",
        ),
        // NVLink 5 does not count replays.
        ("gpu.0.nvlink.17.errors.replay", "<unsupported>"),
        // The other board is of the previous generation.
        ("gpu.1.nvlink.3.bit_error_rate.effective", "<unsupported>"),
        ("gpu.1.nvlink.3.errors.link_recovery", "<unsupported>"),
    ] {
        assert_eq!(vital(&inventory, key), value, "{key}");
    }
    assert_eq!(get(&inventory, "gpu.0.nvlink.version"), "5.0");
    let changed = diff(
        &before.records[&Class::Gpu],
        &inventory.records[&Class::Gpu],
    );
    let changed: Vec<&str> = changed.iter().map(|change| change.key.as_str()).collect();
    assert_eq!(changed, ["gpu.0.nvlink.version"]);

    let mut engine = Engine::new(Table::shipped().unwrap(), EngineState::default());
    for at_ms in [0, 60_000, 120_000] {
        engine.observe(at_ms, &inventory);
    }
    let found = engine.report().reasons.into_iter();
    let found: Vec<_> = found
        .filter(|reason| reason.code.starts_with("gpu.nvlink"))
        .map(|reason| (reason.code, reason.entity))
        .collect();
    let expected = [
        ("gpu.nvlink.bit_error_rate", "gpu.0.nvlink.17"),
        ("gpu.nvlink.symbol_error_rate", "gpu.0.nvlink.17"),
    ];
    let expected = expected.map(|(code, entity)| (code.to_owned(), entity.to_owned()));
    assert_eq!(found, expected);
}

pub(crate) fn no_key_is_in_two_planes() {
    for node in ["gpu001", "gpu101"] {
        let inventory = captured(node);
        for key in inventory.vitals.0.keys() {
            let record = &inventory.records[&Class::Gpu];
            assert!(!record.entries.contains_key(key), "{node}: {key}");
        }
    }
}

/// An A100 takes its links down in MIG mode.
pub(crate) fn links_that_are_down_under_mig_are_not_lost() {
    let mut driver = driver();
    let table = Table::shipped().unwrap();
    let mut engine = Engine::new(table, EngineState::default());
    engine.set_boot_id("b1");
    engine.observe(0, &probe(&driver));
    let mut down = |at_ms: u64, is_mig: bool| {
        for gpu in &mut driver.gpus {
            gpu.nvlinks[0].active = Some(false.into());
            gpu.mig_mode = Some(Field::Value(fake::ModePair {
                current: is_mig,
                pending: is_mig,
            }));
        }
        let seen = probe(&driver);
        engine.observe(at_ms, &seen);
        let reasons = engine.report().reasons.into_iter();
        let lost = reasons.filter(|reason| reason.code == "gpu.nvlink.lost");
        (vital(&seen, "gpu.0.nvlink.0.state"), lost.count())
    };
    let day_ms = 86_400_000;
    assert_eq!(down(day_ms, true), ("<disabled: MIG mode is on>".into(), 0));
    assert_eq!(
        down(2 * day_ms, true),
        ("<disabled: MIG mode is on>".into(), 0)
    );
    down(3 * day_ms, false);
    let (state, lost) = down(4 * day_ms, false);
    assert_eq!(state, "inactive");
    assert!(lost > 0, "without it they are lost");
}

pub(crate) fn corrected_errors_are_told_by_the_kind_of_memory() {
    let keys = [
        "sram.corrected",
        "sram.corrected_ever",
        "dram.corrected",
        "dram.corrected_ever",
    ];
    let look = |driver: &Driver| {
        let seen = probe(driver);
        keys.map(|key| vital(&seen, &format!("gpu.0.ecc.{key}")))
    };
    let mut driver = driver();
    for gpu in &mut driver.gpus {
        gpu.ecc_errors.sram_corrected_volatile = Some(1.into());
        gpu.ecc_errors.sram_corrected_aggregate = Some(2.into());
        gpu.ecc_errors.dram_corrected_volatile = Some(3.into());
        gpu.ecc_errors.dram_corrected_aggregate = Some(4.into());
        gpu.sram_errors = Some(Field::Value(fake::SramErrors {
            volatile_parity: 0,
            volatile_sec_ded: 0,
            aggregate_parity: 0,
            aggregate_sec_ded: 0,
            threshold_exceeded: false,
        }));
    }
    assert_eq!(look(&driver), ["1", "2", "3", "4"]);
    // A driver without the newer call for static memory.
    for gpu in &mut driver.gpus {
        gpu.sram_errors = None;
    }
    assert_eq!(look(&driver), ["1", "2", "3", "4"]);
    for gpu in &mut driver.gpus {
        gpu.ecc_errors = fake::EccErrors::default();
    }
    assert_eq!(look(&driver), ["<unsupported>"; 4]);
}
