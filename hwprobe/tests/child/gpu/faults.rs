//! Faults: a driver that returns false data, hangs, or is missing; a lost GPU.

use super::*;
use crate::trials::{Test, tests};

pub(crate) fn a_lost_gpu_leaves_no_digest() {
    let mut driver = driver();
    driver.gpus[0].lost = Some(ErrorName::GpuIsLost);
    let inventory = probe(&driver);
    let ClassState::Incomplete { missing } = inventory.records[&Class::Gpu].state() else {
        panic!("{:?}", inventory.records[&Class::Gpu]);
    };
    assert!(
        missing
            .values()
            .all(|reading| matches!(reading, Reading::Failed { why } if why.contains("fell off") || why.contains("is lost"))),
        "{missing:?}"
    );
    assert_eq!(missing.len(), 3, "{missing:?}");
    assert!(!inventory.identity.gpu_model.is_known());
}

pub(crate) fn a_hung_driver_is_a_timeout() {
    for call in ["nvmlInit_v2", "nvmlDeviceGetVbiosVersion"] {
        let mut driver = driver();
        driver.hang = Hang::Calls(vec![call.to_owned()]);
        let tree = tree();
        let mut host = host(&tree, &driver);
        host.nvml = host.nvml.with_deadline(Duration::from_millis(700));
        let inventory = probe_all(&host);
        let record = &inventory.records[&Class::Gpu];
        assert_eq!(
            record.get("gpu.count"),
            Reading::Timeout { after_ms: 700 },
            "{call}"
        );
        assert!(matches!(record.state(), ClassState::Incomplete { .. }));
        assert!(inventory.marks()[&Class::Kernel].digest().is_some());
    }
}

pub const TESTS: &[Test] = tests![
    a_lost_gpu_leaves_no_digest,
    a_hung_driver_is_a_timeout,
    no_library_and_no_device,
    no_library_but_devices,
    a_driver_that_does_not_start,
    a_missing_gpu_is_a_finding,
    a_gpu_that_is_given_away_is_not_missing,
    a_gpu_lost_while_running_is_named_and_keeps_its_slot,
];

pub(crate) fn no_library_and_no_device() {
    let inventory = without_library(&Tree::node());
    assert_eq!(
        inventory.records[&Class::Gpu].get("gpu.count"),
        Reading::Absent
    );
    assert_eq!(inventory.resources.gpus(), Some(0));
    assert!(inventory.marks()[&Class::Gpu].digest().is_some());
}

pub(crate) fn no_library_but_devices() {
    let inventory = without_library(&tree());
    let count = inventory.records[&Class::Gpu].get("gpu.count");
    assert!(
        matches!(&count, Reading::Failed { why }
            if why == "2 NVIDIA devices on the bus and no driver library"),
        "{count:?}"
    );
    assert_eq!(inventory.resources.gpus(), None);
    assert_eq!(inventory.marks()[&Class::Gpu].digest(), None);
}

pub(crate) fn a_driver_that_does_not_start() {
    let driver = Driver {
        init_error: Some(ErrorName::DriverNotLoaded),
        ..driver()
    };
    let with_devices = probe(&driver);
    let count = with_devices.records[&Class::Gpu].get("gpu.count");
    assert!(
        matches!(&count, Reading::Failed { why } if why.contains("not loaded")),
        "{count:?}"
    );
    let bare = Tree::node();
    let without = probe_all(&host(&bare, &driver));
    assert_eq!(
        without.records[&Class::Gpu].get("gpu.count"),
        Reading::Absent
    );
}

pub(crate) fn a_missing_gpu_is_a_finding() {
    let mut driver = driver();
    driver.gpus.pop();
    driver.driver_version = some("595.10");
    let inventory = probe(&driver);
    assert_eq!(get(&inventory, "gpu.count"), "1");
    assert_eq!(
        codes(&inventory),
        ["gpu_count_mismatch", "gpu_driver_mismatch"]
    );
}

pub(crate) fn a_gpu_that_is_given_away_is_not_missing() {
    let mut driver = driver();
    driver.gpus.pop();
    let tree = tree();
    let codes_with = |bound: &str| {
        let link = "/sys/bus/pci/devices/0000:1b:00.0/driver";
        tree.link(link, &format!("../../../bus/pci/drivers/{bound}"));
        let inventory = probe_all(&host(&tree, &driver));
        tree.remove(link);
        assert_eq!(get(&inventory, "gpu.bus_count"), "2");
        assert_eq!(inventory.resources.gpus(), Some(1));
        codes(&inventory).join(" ")
    };
    assert_eq!(codes_with("vfio-pci"), "");
    // The node's own drivers do not count as given to a guest.
    assert_eq!(codes_with("nvidia"), "gpu_count_mismatch");
    assert_eq!(codes_with("nouveau"), "gpu_count_mismatch");
}

pub(crate) fn a_gpu_lost_while_running_is_named_and_keeps_its_slot() {
    let tree = tree();
    let control = tree.path().join("control.json");
    let mut driver = driver();
    driver.control = Some(control.clone());
    let host = host(&tree, &driver);
    assert!(codes(&probe_all(&host)).is_empty());

    let lost = fake::GpuRef::Address("0000:1b:00.0".into());
    let asked = fake::Control {
        faults: vec![fake::Fault::lost(lost)],
        ..fake::Control::default()
    };
    asked.write(&control).unwrap();
    let inventory = probe_all(&host);
    assert_eq!(codes(&inventory), ["gpu_lost"]);
    let lost = inventory.findings.iter().find(|f| f.code == "gpu_lost");
    let detail = &lost.unwrap().detail;
    assert!(detail.contains("gpu 0 (0000:1b:00.0)"), "{detail}");
    let state = inventory.records[&Class::Gpu].state();
    let ClassState::Incomplete { missing } = state else {
        panic!("{state:?}");
    };
    assert!(
        missing.keys().all(|key| key.starts_with("gpu.0.")),
        "{missing:?}"
    );
    assert_eq!(get(&inventory, "gpu.1.vbios"), "96.00.A5.00.01");
}
