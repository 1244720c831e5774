//! Settings of firmware and kernel, and memory, on trees written here.

use crate::support::Tree;
use lattice_conformance::{Class, ClassState, Inventory, KeyVerdict, Reading, Value, diff};
use std::collections::BTreeMap;

fn shown(inventory: &Inventory, class: Class, key: &str) -> String {
    inventory.records[&class].get(key).to_string()
}

/// A setting as `dell-wmi-sysman` and `think-lmi` provide it.
fn setting(tree: &Tree, name: &str, kind: &str, value: &str) {
    let dir = format!("/sys/class/firmware-attributes/dell-wmi-sysman/attributes/{name}");
    tree.file(&format!("{dir}/type"), kind)
        .file(&format!("{dir}/current_value"), value);
}

#[test]
fn settings_of_the_firmware_are_read_and_those_of_one_host_left_out() {
    let tree = Tree::node();
    setting(&tree, "LogicProc", "enumeration", "Enabled");
    setting(&tree, "SerialPort", "enumeration", "Com1");
    setting(&tree, "VoltageStage", "integer", "3");
    setting(&tree, "AssetTag", "string", "R07-U12");
    setting(&tree, "SvcTag", "enumeration", "ABC1234");
    setting(&tree, "AdminPwdLockout", "enumeration", "Disabled");
    setting(&tree, "BootOrder", "ordered-list", "0001,0002");
    setting(&tree, "Unset", "enumeration", "N/A");
    setting(&tree, "Mask", "enumeration", "0x00");
    let inventory = tree.probe();
    let get = |key: &str| shown(&inventory, Class::Bios, key);
    assert_eq!(get("bios.attribute_driver"), "dell-wmi-sysman");
    assert_eq!(
        get("bios.attribute.names"),
        "LogicProc Mask SerialPort Unset VoltageStage"
    );
    assert_eq!(get("bios.attribute.LogicProc"), "Enabled");
    assert_eq!(get("bios.attribute.VoltageStage"), "3");
    assert_eq!(get("bios.attribute.Unset"), "<unsupported>");
    // Zeros are a chosen value here, and not a version that was never written.
    assert_eq!(get("bios.attribute.Mask"), "0x00");
    assert_eq!(get("bios.attribute.SvcTag"), "<absent>");
    let shown = format!("{:?}", inventory.records);
    assert!(!shown.contains("R07-U12") && !shown.contains("ABC1234"));
}

#[test]
fn pending_change_is_reported_not_compared() {
    let tree = Tree::node();
    setting(&tree, "LogicProc", "enumeration", "Enabled");
    let before = tree.probe();
    tree.file(
        "/sys/class/firmware-attributes/dell-wmi-sysman/attributes/pending_reboot",
        "1",
    );
    let after = tree.probe();
    assert_eq!(before.marks(), after.marks());
    let codes = |inventory: &Inventory| {
        let found = inventory.findings.iter();
        found.filter(|f| f.code == "bios_reboot_pending").count()
    };
    assert_eq!((codes(&before), codes(&after)), (0, 1));
}

#[test]
fn secure_boot_and_setup_mode_are_one_byte_behind_four() {
    let tree = Tree::node();
    let variable = |name: &str| {
        format!("/sys/firmware/efi/efivars/{name}-8be4df61-93ca-11d2-aa0d-00e098032b8c")
    };
    tree.bytes(&variable("SecureBoot"), &[6, 0, 0, 0, 1])
        .bytes(&variable("SetupMode"), &[6, 0, 0, 0]);
    let inventory = tree.probe();
    assert_eq!(shown(&inventory, Class::Bios, "bios.secure_boot"), "yes");
    assert_eq!(shown(&inventory, Class::Bios, "bios.boot_mode"), "uefi");
    let setup = inventory.records[&Class::Bios].get("bios.setup_mode");
    assert!(matches!(setup, Reading::Failed { .. }), "{setup:?}");
}

#[test]
fn fillers_of_firmware_are_no_values() {
    let tree = Tree::node();
    for filler in [
        "N/A",
        "na",
        "To Be Filled By O.E.M.",
        "ff",
        "",
        "Default string",
    ] {
        tree.file("/sys/class/dmi/id/product_sku", filler);
        let inventory = tree.probe();
        let sku = inventory.records[&Class::Bios].get("bios.product.sku");
        assert_eq!(sku, Reading::Unsupported, "{filler:?}");
    }
    tree.file("/sys/class/dmi/id/product_sku", &"V".repeat(5000));
    let sku = tree.probe().records[&Class::Bios].get("bios.product.sku");
    assert!(matches!(sku, Reading::Failed { .. }), "{sku:?}");
}

#[test]
fn a_dmi_string_beyond_utf8_fails_alone_and_leaves_its_class_incomplete() {
    // A required key and an optional one: the product version of a Dell R6515, and a name in ISO 8859-1.
    for (file, key, bytes, quoted) in [
        (
            "product_version",
            "bios.product.version",
            &b"\xff\x1c[\xfe\n"[..],
            r"\xff\x1c[\xfe",
        ),
        (
            "product_name",
            "bios.product.name",
            &b"Gr\xf6\xdfe 1\n"[..],
            r"Gr\xf6\xdfe 1",
        ),
    ] {
        let tree = Tree::node();
        let before = tree.probe();
        tree.bytes(&format!("/sys/class/dmi/id/{file}"), bytes);
        let after = tree.probe();
        let why = format!("/sys/class/dmi/id/{file}: not UTF-8: \"{quoted}\"");
        let ClassState::Incomplete { missing } = after.records[&Class::Bios].state() else {
            panic!("{:?}", after.records[&Class::Bios]);
        };
        let expected: BTreeMap<String, Reading<Value>> =
            [(key.to_owned(), Reading::failed(why))].into();
        assert_eq!(missing, expected);
        // Every other value is there, and every other class has its digest.
        assert_eq!(shown(&after, Class::Bios, "bios.version"), "2.1.3");
        let (mut before, mut after) = (before.marks(), after.marks());
        assert!(before.remove(&Class::Bios).is_some() && after.remove(&Class::Bios).is_some());
        assert_eq!(before, after);
    }
    // An optional string that only root may read is no failure.
    let tree = Tree::node();
    let denied = serde_json::json!({ "/sys/class/dmi/id/product_version": "permission denied" });
    tree.file("unreadable.json", &denied.to_string());
    let state = tree.probe().records[&Class::Bios].state();
    assert!(matches!(state, ClassState::Complete { .. }), "{state:?}");
}

#[test]
fn a_dimm_string_beyond_utf8_leaves_memory_incomplete() {
    let tree = Tree::node();
    let mut dimm = vec![0; 0x22];
    dimm[..2].copy_from_slice(&[17, 0x22]);
    dimm[0x0c..0x0e].copy_from_slice(&0x7000_u16.to_le_bytes());
    dimm[0x10] = 1;
    dimm[0x17] = 2;
    dimm.extend_from_slice(b"A1\0Hyn\xeex\0\0");
    tree.bytes("/sys/firmware/dmi/tables/DMI", &dimm);
    let inventory = tree.probe();
    let ClassState::Incomplete { missing } = inventory.records[&Class::Memory].state() else {
        panic!("{:?}", inventory.records[&Class::Memory]);
    };
    let why = r#"SMBIOS string 2: not UTF-8: "Hyn\xeex""#;
    let expected: BTreeMap<String, Reading<Value>> = [(
        "memory.dimm.0.manufacturer".to_owned(),
        Reading::failed(why),
    )]
    .into();
    assert_eq!(missing, expected);
    assert_eq!(
        shown(&inventory, Class::Memory, "memory.dimm.0.locator"),
        "A1"
    );
    // The node keeps its memory, so it stays usable.
    assert!(inventory.resources.memory_bytes.present().is_some());
}

#[test]
fn a_governor_that_differs_between_processors_is_visible() {
    let tree = Tree::node();
    for policy in 0..4 {
        let dir = format!("/sys/devices/system/cpu/cpufreq/policy{policy}");
        let governor = if policy == 2 {
            "powersave"
        } else {
            "performance"
        };
        tree.file(&format!("{dir}/scaling_driver"), "intel_pstate")
            .file(&format!("{dir}/scaling_governor"), governor);
    }
    for (state, name, disabled) in [(0, "POLL", "0"), (1, "C1", "0"), (2, "C6", "1")] {
        let dir = format!("/sys/devices/system/cpu/cpu0/cpuidle/state{state}");
        tree.file(&format!("{dir}/name"), name)
            .file(&format!("{dir}/disable"), disabled);
    }
    let inventory = tree.probe();
    let get = |key: &str| shown(&inventory, Class::Kernel, key);
    assert_eq!(get("kernel.cpufreq.driver"), "intel_pstate");
    assert_eq!(
        get("kernel.cpufreq.governor"),
        "3 x performance 1 x powersave"
    );
    assert_eq!(get("kernel.cpufreq.preference"), "<absent>");
    assert_eq!(get("kernel.cpuidle.states"), "POLL C1");
}

#[test]
fn missing_module_differs_but_addresses_do_not() {
    let tree = Tree::node();
    tree.file("/sys/module/lnet/version", "2.15.6")
        .file(
            "/sys/module/lnet/parameters/networks",
            "o2ib0(ib0)[10.1.3.7]",
        )
        .file("/sys/module/lnet/parameters/lnet_retry_count", "2")
        .file("/proc/sys/kernel/tainted", "4096");
    let with = tree.probe();
    let get = |key: &str| shown(&with, Class::Kernel, key);
    assert_eq!(get("kernel.module.lnet.version"), "2.15.6");
    assert_eq!(get("kernel.module.lnet.parameter.lnet_retry_count"), "2");
    assert!(!format!("{:?}", with.records).contains("10.1.3.7"));
    assert_eq!(
        with.vitals.get("kernel.tainted"),
        Reading::Present(Value::Number(4096))
    );
    tree.remove("/sys/module/lnet");
    let without = tree.probe();
    let differences = diff(
        &with.records[&Class::Kernel],
        &without.records[&Class::Kernel],
    );
    assert!(differences.iter().all(|d| d.verdict == KeyVerdict::Differs));
    let keys: Vec<&str> = differences.iter().map(|d| d.key.as_str()).collect();
    assert!(keys.contains(&"kernel.module.lnet.version"), "{keys:?}");
}

#[test]
fn capacity_comes_from_the_controllers_where_firmware_may_not_be_read() {
    let tree = Tree::node();
    tree.file("/sys/firmware/dmi/tables/DMI", "")
        .file(
            "unreadable.json",
            "{\"/sys/firmware/dmi/tables/DMI\": \"permission denied\"}",
        )
        .file(
            "/proc/meminfo",
            "MemTotal: 16384 kB\nHardwareCorrupted:     8 kB",
        );
    for (controller, dimm) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let dir = format!("/sys/devices/system/edac/mc/mc{controller}/dimm{dimm}");
        tree.file(&format!("{dir}/size"), "65536")
            .file(&format!("{dir}/dimm_mem_type"), "Registered-DDR5")
            .file(&format!("{dir}/dimm_ce_count"), &dimm.to_string())
            .file(&format!("{dir}/dimm_ue_count"), "0");
    }
    let inventory = tree.probe();
    let get = |key: &str| shown(&inventory, Class::Memory, key);
    assert_eq!(get("memory.installed"), (4u64 << 36).to_string());
    assert_eq!(get("memory.controller.count"), "2");
    assert_eq!(get("memory.edac.3.type"), "Registered-DDR5");
    let vital = |key: &str| inventory.vitals.get(key).to_string();
    assert_eq!(vital("memory.edac.3.ce_count"), "1");
    assert_eq!(vital("memory.edac.2.ce_count"), "0");
    assert_eq!(vital("memory.hardware_corrupted"), "8192");
    // A DIMM of unknown size makes the sum unknown, not smaller.
    tree.file("/sys/devices/system/edac/mc/mc1/dimm1/size", "?");
    let installed = tree.probe().records[&Class::Memory].get("memory.installed");
    assert!(matches!(installed, Reading::Denied { .. }), "{installed:?}");
}

#[test]
fn cxl_memory_is_named_by_place() {
    let tree = Tree::node();
    for (name, address, size) in [
        ("mem0", "0000:d1:00.0", "0x4000000000"),
        ("mem1", "0000:38:00.0", "0x2000000000"),
    ] {
        let dir = format!("/sys/devices/pci{}/{address}/{name}", &address[..7]);
        tree.file(&format!("{dir}/ram/size"), size)
            .file(&format!("{dir}/pmem/size"), "0x0")
            .file(&format!("{dir}/firmware_version"), "1.3.0")
            .file(&format!("{dir}/serial"), "0x1234")
            .link(
                &format!("/sys/bus/cxl/devices/{name}"),
                &format!("../../..{}", &dir[4..]),
            );
    }
    let region = "/sys/bus/cxl/devices/region4";
    tree.file(&format!("{region}/mode"), "ram")
        .file(&format!("{region}/size"), "0x4000000000")
        .file(&format!("{region}/interleave_ways"), "2")
        .file(&format!("{region}/interleave_granularity"), "256")
        .dir("/sys/bus/cxl/devices/decoder0.0");
    let inventory = tree.probe();
    let get = |key: &str| shown(&inventory, Class::Memory, key);
    assert_eq!(get("memory.cxl.count"), "2");
    assert_eq!(get("memory.cxl.0.ram"), (128u64 << 30).to_string());
    assert_eq!(get("memory.cxl.1.ram"), (256u64 << 30).to_string());
    assert_eq!(get("memory.cxl.region.count"), "1");
    assert_eq!(get("memory.cxl.region.0.ways"), "2");
}

#[test]
fn shared_caches_and_dies_show_how_a_socket_is_divided() {
    let tree = Tree::node();
    for cpu in 0..4 {
        let dir = format!("/sys/devices/system/cpu/cpu{cpu}");
        tree.file(&format!("{dir}/topology/physical_package_id"), "0")
            .file(&format!("{dir}/topology/die_id"), &(cpu / 2).to_string())
            .file(&format!("{dir}/thermal_throttle/core_throttle_count"), "3")
            .file(
                &format!("{dir}/thermal_throttle/package_throttle_count"),
                "7",
            );
    }
    let cache = "/sys/devices/system/cpu/cpu0/cache/index3";
    tree.file(&format!("{cache}/level"), "3")
        .file(&format!("{cache}/type"), "Unified")
        .file(&format!("{cache}/size"), "32768K")
        .file(&format!("{cache}/shared_cpu_list"), "0-1");
    let inventory = tree.probe();
    let get = |key: &str| shown(&inventory, Class::Cpu, key);
    assert_eq!(get("cpu.dies"), "2");
    assert_eq!(get("cpu.cache.l3"), (32u64 << 20).to_string());
    assert_eq!(get("cpu.cache.l3.threads"), "2");
    assert_eq!(inventory.vitals.get("cpu.throttle.cores").to_string(), "12");
    assert_eq!(
        inventory.vitals.get("cpu.throttle.package").to_string(),
        "7"
    );
}

/// Processors 0 and 2, and 1 and 3, are the threads of two cores.
#[test]
fn threads_of_a_core_count_throttling_once() {
    let tree = Tree::node();
    for (cpu, count) in [3, 5, 3, 4].into_iter().enumerate() {
        let dir = format!("/sys/devices/system/cpu/cpu{cpu}");
        tree.file(&format!("{dir}/topology/physical_package_id"), "0")
            .file(&format!("{dir}/topology/core_id"), &(cpu % 2).to_string())
            .file(
                &format!("{dir}/thermal_throttle/core_throttle_count"),
                &count.to_string(),
            );
    }
    let inventory = tree.probe();
    assert_eq!(inventory.vitals.get("cpu.throttle.cores").to_string(), "8");
}

#[test]
fn every_class_reads_equal_twice() {
    let host = lattice_hwprobe::Host::new("/", lattice_hwprobe::NvmlSource::Disabled);
    let (first, second) = (
        lattice_hwprobe::probe_all(&host),
        lattice_hwprobe::probe_all(&host),
    );
    for class in [
        Class::Bios,
        Class::Kernel,
        Class::Cpu,
        Class::Memory,
        Class::Storage,
        Class::Software,
    ] {
        assert_eq!(first.records[&class], second.records[&class]);
    }
    for (name, record) in &first.records {
        for key in record.entries.keys() {
            assert!(
                !first.vitals.0.contains_key(key),
                "{name} {key} is in two planes"
            );
        }
    }
    if let Some(power) = &first.power {
        assert!(!power.source.is_empty());
        assert_ne!(power.draw.present().map(|draw| draw.0), Some(0));
    }
}
