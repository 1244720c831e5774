//! Values that the driver reports for a GPU, and their planes.

use super::*;
use crate::trials::{Test, tests};

pub const TESTS: &[Test] = tests![
    every_row_of_a_gpu_is_read,
    slots_follow_the_bus,
    identity_stays_out,
    one_vbios_moves_one_class,
    refusals_keep_their_state,
    pending_modes_are_findings,
    parts_without_nvlink,
    calls_an_old_driver_lacks_are_unsupported,
];

pub(crate) fn every_row_of_a_gpu_is_read() {
    let inventory = probe(&driver());
    let expected = [
        ("gpu.count", "2"),
        ("gpu.bus_count", "2"),
        ("gpu.driver", "590.48.01"),
        ("gpu.driver_flavour", "open"),
        ("gpu.module_version", "590.48.01"),
        ("gpu.nvml", "13.590.48.01"),
        ("gpu.cuda", "13.1"),
        ("gpu.0.model", "NVIDIA H100 80GB HBM3"),
        ("gpu.0.architecture", "hopper"),
        ("gpu.0.compute_capability", "9.0"),
        ("gpu.0.pci_id", "10de:2330"),
        ("gpu.0.subsystem", "10de:16c1"),
        ("gpu.0.memory", "85520809984"),
        ("gpu.0.part_number", "692-2G520-0200-000"),
        ("gpu.0.vbios", "96.00.A5.00.01"),
        ("gpu.0.inforom.image", "G520.0200.00.05"),
        ("gpu.0.inforom.oem", "2.1"),
        ("gpu.0.inforom.ecc", "7.16"),
        ("gpu.0.inforom.power", "<unsupported>"),
        ("gpu.0.gsp.firmware", "590.48.01"),
        ("gpu.0.gsp.enabled", "yes"),
        ("gpu.0.ecc", "yes"),
        ("gpu.0.mig", "no"),
        ("gpu.0.persistence", "yes"),
        ("gpu.0.compute_mode", "default"),
        ("gpu.0.power.default", "700000"),
        ("gpu.0.power.min", "200000"),
        ("gpu.0.power.max", "700000"),
        ("gpu.0.clock.sm.max", "1980000000"),
        ("gpu.0.clock.memory.max", "2619000000"),
        ("gpu.0.clock.video.max", "<unsupported>"),
        ("gpu.0.max_link_generation", "5"),
        ("gpu.0.max_link_width", "16"),
        ("gpu.0.nvlink.links", "18"),
        ("gpu.0.nvlink.version", "4.0"),
        ("gpu.0.numa_node", "0"),
        ("gpu.1.vbios", "96.00.A5.00.01"),
    ];
    for (key, value) in expected {
        assert_eq!(get(&inventory, key), value, "{key}");
    }
    assert!(inventory.marks()[&Class::Gpu].digest().is_some());
    assert_eq!(inventory.resources.gpus(), Some(2));
    assert_eq!(
        inventory.resources.gpu_model,
        Reading::Present("NVIDIA H100 80GB HBM3".to_owned())
    );
    assert_eq!(
        inventory.resources.gpu_memory_bytes,
        Reading::Present(85_520_809_984)
    );
    assert!(inventory.resources.features.contains("nvlink"));
    assert!(codes(&inventory).is_empty(), "{:?}", inventory.findings);
}

pub(crate) fn slots_follow_the_bus() {
    let inventory = probe(&driver());
    let gpus = &inventory.identity.gpus;
    assert_eq!(gpus[0].uuid, Reading::Present("GPU-first".to_owned()));
    assert_eq!(gpus[0].address, Reading::Present("0000:1b:00.0".to_owned()));
    assert_eq!(gpus[1].uuid, Reading::Present("GPU-second".to_owned()));
}

pub(crate) fn identity_stays_out() {
    let before = probe(&driver());
    let mut driver = driver();
    for gpu in &mut driver.gpus {
        gpu.uuid = some("GPU-other");
        gpu.serial = some("9");
        gpu.temperature_c = Some(93.into());
        gpu.power.limit_mw = Some(300_000.into());
        gpu.pcie.current_generation = Some(1.into());
        gpu.performance_state = Some(8.into());
    }
    driver.gpus.reverse();
    let after = probe(&driver);
    assert_eq!(before.marks(), after.marks());
    assert_ne!(before.identity, after.identity);
}

pub(crate) fn one_vbios_moves_one_class() {
    let before = probe(&driver());
    let mut driver = driver();
    driver.gpus[0].vbios_version = some("96.00.89.00.01");
    let after = probe(&driver);
    let changed: Vec<Class> = Class::ALWAYS_PUBLISHED
        .into_iter()
        .filter(|class| before.marks()[class] != after.marks()[class])
        .collect();
    assert_eq!(changed, [Class::Gpu]);
    let differences = diff(&before.records[&Class::Gpu], &after.records[&Class::Gpu]);
    assert_eq!(differences.len(), 1);
    assert_eq!(differences[0].key, "gpu.1.vbios");
    assert_eq!(differences[0].verdict, KeyVerdict::Differs);
}

pub(crate) fn refusals_keep_their_state() {
    let mut driver = driver();
    let error = |error| Some(Field::Error { error });
    driver.gpus[0].board_part_number = error(ErrorName::NoPermission);
    driver.gpus[0].gsp_firmware_version = error(ErrorName::NotSupported);
    driver.gpus[0].inforom.image = error(ErrorName::CorruptedInforom);
    let inventory = probe(&driver);
    let record = &inventory.records[&Class::Gpu];
    assert!(matches!(
        record.get("gpu.1.part_number"),
        Reading::Denied { .. }
    ));
    assert_eq!(record.get("gpu.1.gsp.firmware"), Reading::Unsupported);
    let image = record.get("gpu.1.inforom.image");
    assert!(
        matches!(&image, Reading::Failed { why } if why.contains("corrupted")),
        "{image:?}"
    );
    // None of the three is required for a digest.
    assert!(matches!(record.state(), ClassState::Complete { .. }));
}

pub(crate) fn pending_modes_are_findings() {
    let before = probe(&driver());
    let mut driver = driver();
    driver.gpus[1].mig_mode = Some(Field::Value(fake::ModePair {
        current: false,
        pending: true,
    }));
    let after = probe(&driver);
    assert_eq!(before.marks(), after.marks());
    assert_eq!(codes(&after), ["gpu_mode_pending"]);
}

pub(crate) fn parts_without_nvlink() {
    let mut driver = driver();
    driver.gpus[0].nvlinks.clear();
    // An H100 NVL omits the first links of its chip.
    let missing = fake::NvLinkRun {
        links: 6,
        active: None,
        version: None,
        capabilities: None,
        remote_device: None,
        remote_pci: None,
        ..fake::NvLinkRun::default()
    };
    driver.gpus[1].nvlinks[0].links = 12;
    driver.gpus[1].nvlinks.insert(0, missing);
    let inventory = probe(&driver);
    assert_eq!(get(&inventory, "gpu.0.nvlink.links"), "12");
    assert_eq!(get(&inventory, "gpu.1.nvlink.links"), "<unsupported>");
    assert_eq!(get(&inventory, "gpu.1.nvlink.version"), "<unsupported>");
}

/// An old driver without the newer calls: each value is unsupported, and none is a failure.
pub(crate) fn calls_an_old_driver_lacks_are_unsupported() {
    let tree = tree();
    let control = tree.path().join("control.json");
    let newer = [
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetGpuFabricInfo",
        "nvmlDeviceGetPlatformInfo",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetGpuMaxPcieLinkGeneration",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetGspFirmwareMode",
        "nvmlDeviceGetMigMode",
    ];
    let faults = newer.map(|call| fake::Fault::failing(call, ErrorName::FunctionNotFound));
    let asked = fake::Control {
        faults: faults.to_vec(),
        ..fake::Control::default()
    };
    asked.write(&control).unwrap();
    let mut driver = driver();
    driver.control = Some(control);
    driver
        .gpus
        .iter_mut()
        .for_each(|gpu| gpu.throttle_reasons = Some(1.into()));
    let inventory = probe_all(&host(&tree, &driver));
    let gpu = &inventory.records[&Class::Gpu].entries;
    let all = gpu.iter().chain(&inventory.vitals.0);
    let failed: Vec<_> = all
        .filter(|(_, r)| matches!(r, Reading::Failed { .. }))
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(
        vital(&inventory, "gpu.0.remapped_rows.pending"),
        "<unsupported>"
    );
    assert_eq!(
        get(&inventory, "gpu.0.own_link_generation"),
        "<unsupported>"
    );
    // Both have an older call that returns the same.
    assert_eq!(vital(&inventory, "gpu.0.clocks.events"), "idle");
    assert_eq!(get(&inventory, "gpu.0.memory"), "85520809984");
    assert!(inventory.marks()[&Class::Gpu].digest().is_some());
}
