//! AMD GPUs, by sysfs.

use super::*;
use crate::trials::{Test, tests};

pub const TESTS: &[Test] = tests![
    amd_gpus_are_read_from_sysfs,
    what_an_amd_gpu_may_not_be_asked_is_not_zero_errors,
    amd_gpus_without_a_driver_are_not_known,
    an_amd_gpu_that_the_driver_does_not_take_is_a_finding,
    an_amd_gpu_that_is_given_away_is_no_fault,
    a_screen_needs_no_driver,
    undecodable_firmware_leaves_gpu_class_incomplete,
];

fn driven(tree: &Tree, address: &str, driver: &str) {
    let link = format!("/sys/bus/pci/devices/{address}/driver");
    tree.link(&link, &format!("../../../bus/pci/drivers/{driver}"));
}

fn mi250x(tree: &Tree, address: &str, unique: &str) {
    tree.pci(address, "038000", "1002", "7408");
    let file = |name: &str, text: &str| {
        tree.file(&format!("/sys/bus/pci/devices/{address}/{name}"), text);
    };
    driven(tree, address, "amdgpu");
    file("vbios_version", "113-D65209-073");
    file("mem_info_vram_total", "68702699520");
    file("mem_info_vram_used", "10854400");
    file("current_compute_partition", "SPX");
    file("current_memory_partition", "NPS1");
    file("fw_version/mec_fw_version", "0x00000052");
    file("fw_version/sos_fw_version", "0x00270082");
    file("fw_version/uvd_fw_version", "0x00000000");
    file("unique_id", unique);
    file("pp_dpm_sclk", "0: 500Mhz *");
    file("gpu_busy_percent", "97");
    file("ras/umc_err_count", "ue: 1\nce: 12\nde: 3");
    file("ras/gfx_err_count", "ue: 0\nce: 2");
    file("ras/xgmi_wafl_err_count", "ue: 5\nce: 0");
    file("ras/mmhub_err_count", "Query currently inaccessible");
    file("ras/features", "feature mask: 0x1fff");
    file("hwmon/hwmon4/temp1_input", "45000");
    file("hwmon/hwmon4/power1_average", "94000000");
}

pub(crate) fn amd_gpus_are_read_from_sysfs() {
    let probe = |ids: [&str; 2]| {
        let tree = Tree::node();
        tree.file("/sys/module/amdgpu/version", "6.8.5");
        // Not in bus order.
        mi250x(&tree, "0000:c9:00.0", ids[1]);
        mi250x(&tree, "0000:29:00.0", ids[0]);
        without_library(&tree)
    };
    let inventory = probe(["1a2b3c", "4d5e6f"]);
    for (key, value) in [
        ("gpu.count", "<absent>"),
        ("gpu.amd.count", "2"),
        ("gpu.amd.module_version", "6.8.5"),
        ("gpu.amd.0.pci_id", "1002:7408"),
        ("gpu.amd.0.vbios", "113-D65209-073"),
        ("gpu.amd.0.memory", "68702699520"),
        ("gpu.amd.0.compute_partition", "SPX"),
        ("gpu.amd.1.memory_partition", "NPS1"),
        ("gpu.amd.0.firmware.mec", "0x00000052"),
        ("gpu.amd.0.firmware.uvd", "<unsupported>"),
    ] {
        assert_eq!(get(&inventory, key), value, "{key}");
    }
    for (key, value) in [
        ("gpu.amd.1.utilization.gpu", "97"),
        ("gpu.amd.1.memory.used", "10854400"),
        ("gpu.amd.1.temperature", "45"),
        ("gpu.amd.1.power.draw", "94000"),
        ("gpu.amd.1.ecc.uncorrected.volatile", "1"),
        ("gpu.amd.1.ecc.corrected.volatile", "14"),
        ("gpu.amd.1.ras.umc.uncorrectable", "1"),
        ("gpu.amd.1.ras.umc.deferred", "3"),
        ("gpu.amd.1.ras.gfx.correctable", "2"),
        // Only memory counts deferred errors.
        ("gpu.amd.1.ras.gfx.deferred", "<unsupported>"),
        ("gpu.amd.1.ras.xgmi_wafl.uncorrectable", "5"),
        (
            "gpu.amd.1.ras.mmhub.correctable",
            "<failed: Query currently inaccessible>",
        ),
    ] {
        assert_eq!(vital(&inventory, key), value, "{key}");
    }
    assert_eq!(inventory.resources.gpus(), Some(2));
    assert_eq!(
        inventory.resources.gpu_memory_bytes,
        Reading::Present(68_702_699_520)
    );
    assert_eq!(inventory.resources.gpu_model.to_string(), "AMD 1002:7408");
    let gpus = &inventory.identity.gpus;
    assert_eq!(gpus[0].address, Reading::Present("0000:29:00.0".to_owned()));
    assert_eq!(gpus[0].uuid, Reading::Present("1a2b3c".to_owned()));
    // Neither the unique id nor a live value is in the record.
    let text = format!("{:?}", inventory.records[&Class::Gpu]);
    assert!(!text.contains("1a2b3c") && !text.contains("pp_") && !text.contains("97"));
    assert_eq!(inventory.marks(), probe(["other", "ids"]).marks());
}

pub(crate) fn what_an_amd_gpu_may_not_be_asked_is_not_zero_errors() {
    const ONE: &str = "/sys/bus/pci/devices/0000:29:00.0";
    let tree = Tree::node();
    tree.pci("0000:29:00.0", "038000", "1002", "7408");
    driven(&tree, "0000:29:00.0", "amdgpu");
    tree.file(&format!("{ONE}/vbios_version"), "113-D65209-073");
    let inventory = without_library(&tree);
    let key = "gpu.amd.0.ecc.uncorrected.volatile";
    assert_eq!(vital(&inventory, key), "<absent>");
    // A folder that links to itself exists but is unreadable.
    tree.link(&format!("{ONE}/ras"), "ras");
    let inventory = without_library(&tree);
    for key in [key, "gpu.amd.0.ecc.corrected.volatile"] {
        let found = vital(&inventory, key);
        assert!(found.starts_with("<failed"), "{key}: {found}");
    }
}

/// Two GPUs with different bytes must not share a digest.
pub(crate) fn undecodable_firmware_leaves_gpu_class_incomplete() {
    let tree = Tree::node();
    mi250x(&tree, FOUR[0], "1a2b3c");
    assert!(
        without_library(&tree).marks()[&Class::Gpu]
            .digest()
            .is_some()
    );
    let file = format!("/sys/bus/pci/devices/{}/fw_version/mec_fw_version", FOUR[0]);
    tree.bytes(&file, b"0x52\xff\n");
    let missing = missing(&without_library(&tree));
    let keys: Vec<&String> = missing.keys().collect();
    assert_eq!(keys, ["gpu.amd.0.firmware.mec"]);
}

const MODULE: &str = "/sys/module/amdgpu/initstate";
const FOUR: [&str; 4] = [
    "0000:29:00.0",
    "0000:49:00.0",
    "0000:a9:00.0",
    "0000:c9:00.0",
];

fn missing(inventory: &Inventory) -> BTreeMap<String, String> {
    match inventory.records[&Class::Gpu].state() {
        ClassState::Incomplete { missing } => {
            let missing = missing.into_iter();
            missing.map(|(key, why)| (key, why.to_string())).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// As [`super::faults::no_library_but_devices`].
pub(crate) fn amd_gpus_without_a_driver_are_not_known() {
    let tree = Tree::node();
    for address in FOUR {
        tree.pci(address, "120000", "1002", "74a1");
    }
    let is_blind = |why: &str| {
        let inventory = without_library(&tree);
        let missing = missing(&inventory);
        assert_eq!(missing["gpu.amd.count"], format!("<failed: {why}>"));
        assert_eq!(missing["gpu.amd.3.memory"], "<failed: no driver>");
        assert_eq!(inventory.resources.gpus(), None);
        assert!(!inventory.identity.gpu_count.is_known());
        assert!(!inventory.resources.gpu_model.is_known());
        assert!(
            codes(&inventory).is_empty(),
            "nobody can say that they are broken"
        );
    };
    is_blind("4 AMD GPUs on the bus are not bound: no driver");
    // Another driver is bound to one of them, for a guest.
    driven(&tree, FOUR[0], "vfio-pci");
    is_blind("3 AMD GPUs on the bus are not bound: no driver");
    // During start and removal, the driver is bound to some of them.
    tree.file(MODULE, "coming");
    tree.remove(&format!("/sys/bus/pci/devices/{}/driver", FOUR[0]));
    driven(&tree, FOUR[0], "amdgpu");
    is_blind("3 AMD GPUs on the bus are not bound: the driver is still starting");
    tree.file(MODULE, "going");
    is_blind("3 AMD GPUs on the bus are not bound: the driver is being removed");
}

pub(crate) fn an_amd_gpu_that_is_given_away_is_no_fault() {
    for driver in ["vfio-pci", "gim", "radeon"] {
        let tree = Tree::node();
        tree.file(MODULE, "live");
        for address in &FOUR[..3] {
            mi250x(&tree, address, address);
        }
        tree.pci(FOUR[3], "038000", "1002", "7408");
        driven(&tree, FOUR[3], driver);
        let inventory = without_library(&tree);
        assert!(codes(&inventory).is_empty(), "{driver}");
        let record = &inventory.records[&Class::Gpu];
        assert!(record.state().digest().is_some(), "{driver}: {record:?}");
        assert_eq!(get(&inventory, "gpu.amd.count"), "4");
        assert_eq!(get(&inventory, "gpu.amd.3.vbios"), "<absent>");
        assert_eq!(get(&inventory, "gpu.amd.3.memory"), "<absent>");
        assert_eq!(inventory.resources.gpus(), Some(3), "{driver}");
    }
}

pub(crate) fn an_amd_gpu_that_the_driver_does_not_take_is_a_finding() {
    let tree = Tree::node();
    tree.file(MODULE, "live");
    for address in FOUR {
        mi250x(&tree, address, address);
    }
    let whole = without_library(&tree);
    assert!(codes(&whole).is_empty());
    assert_eq!(whole.resources.gpus(), Some(4));
    // A released GPU loses its files with the driver.
    for file in ["driver", "vbios_version", "mem_info_vram_total"] {
        tree.remove(&format!("/sys/bus/pci/devices/{}/{file}", FOUR[2]));
    }
    let inventory = without_library(&tree);
    assert_eq!(codes(&inventory), ["gpu_count_mismatch"]);
    let found = inventory.findings.iter().filter(|f| f.class == Class::Gpu);
    let details: Vec<&str> = found.map(|found| found.detail.as_str()).collect();
    let expected = "the bus has 4 AMD GPUs, the driver 3: not driven: 0000:a9:00.0";
    assert_eq!(details, [expected]);
    // The number of GPUs is known, and the number of usable ones; the values of the released one are not.
    assert_eq!(get(&inventory, "gpu.amd.count"), "4");
    assert_eq!(inventory.resources.gpus(), Some(3));
    let missing: Vec<String> = missing(&inventory).into_keys().collect();
    assert_eq!(missing, ["gpu.amd.2.memory", "gpu.amd.2.vbios"]);
    assert_eq!(inventory.resources.gpu_model, whole.resources.gpu_model);
    let slots: Vec<u32> = inventory.identity.gpus.iter().map(|gpu| gpu.slot).collect();
    assert_eq!(slots, [0, 1, 2, 3], "it keeps its slot");
    // The module is loaded without any GPU, like a library without devices.
    for address in [FOUR[0], FOUR[1], FOUR[3]] {
        tree.remove(&format!("/sys/bus/pci/devices/{address}/driver"));
    }
    let inventory = without_library(&tree);
    assert_eq!(codes(&inventory), ["gpu_count_mismatch"]);
    assert_eq!(inventory.resources.gpus(), Some(0));
}

pub(crate) fn a_screen_needs_no_driver() {
    const BOOT: &str = "/sys/bus/pci/devices/0000:c1:00.0/boot_vga";
    let screen = |class: &str, vendor: &str, device: &str| {
        let tree = Tree::node();
        tree.pci("0000:c1:00.0", class, vendor, device);
        tree.file(BOOT, "1");
        tree
    };
    let is_nothing = |tree: &Tree, what: &str| {
        let inventory = without_library(tree);
        let record = &inventory.records[&Class::Gpu];
        assert!(record.state().digest().is_some(), "{what}: {record:?}");
        assert!(codes(&inventory).is_empty(), "{what}");
        assert_eq!(inventory.resources.gpus(), Some(0), "{what}");
        assert!(inventory.identity.gpus.is_empty(), "{what}");
    };
    is_nothing(&screen("030000", "1a03", "2000"), "ASPEED");
    is_nothing(&screen("030000", "102b", "0536"), "Matrox");
    is_nothing(&screen("030000", "1002", "515e"), "ATI ES1000");
    // Processor graphics with a BMC console: the device contains processor functions.
    for class in ["030000", "038000"] {
        let tree = screen(class, "1002", "164e");
        tree.file(BOOT, "0");
        let count = "<failed: 1 AMD GPUs on the bus are not bound: no driver>";
        assert_eq!(missing(&without_library(&tree))["gpu.amd.count"], count);
        tree.pci("0000:c1:00.2", "108000", "1022", "1649");
        is_nothing(&tree, class);
    }
    // A compute board is not a display, whatever shows the console. A board for both counts if its driver is bound.
    let tree = screen("120000", "1002", "74a0");
    tree.pci("0000:c1:00.2", "108000", "1022", "1649");
    assert_eq!(without_library(&tree).resources.gpus(), None);
    let tree = screen("030000", "1002", "7448");
    driven(&tree, "0000:c1:00.0", "amdgpu");
    assert_eq!(without_library(&tree).resources.gpus(), Some(1));
}
