//! State of NVIDIA's Fabric Manager, from systemd's cgroups.

use super::*;
use crate::trials::{Test, tests};

pub const TESTS: &[Test] = tests![
    a_fabric_manager_that_runs_and_one_that_does_not_are_told_by_their_cgroup,
    a_fabric_manager_that_something_else_started_runs,
    with_cgroup_v1_the_services_processes_tell,
    where_nothing_tells_of_a_fabric_manager_it_is_not_known,
    without_a_switch_of_its_own_a_node_has_no_fabric_manager,
    a_capture_tells_of_a_fabric_manager_what_the_machine_told,
];

const KEY: &str = "gpu.fabric_manager";
const CHECK: &str = "gpu.fabric_manager.down";
const V2: &str = "/sys/fs/cgroup/system.slice";
const V1: &str = "/sys/fs/cgroup/systemd/system.slice";
const SERVICE: &str = "nvidia-fabricmanager.service";
const UNIT: &str = "/usr/lib/systemd/system/nvidia-fabricmanager.service";
const SWITCH: &str = "0000:07:00.0";

/// An HGX A100's switch and one of its GPUs, on a machine with the service's systemd unit.
fn hgx() -> Tree {
    let tree = tree();
    tree.pci(SWITCH, "068000", "10de", "1af1")
        .file(UNIT, "[Service]\nExecStart=/usr/bin/nv-fabricmanager");
    tree
}

fn events(tree: &Tree, populated: u8) {
    let text = format!("populated {populated}\nfrozen 0");
    tree.file(&format!("{V2}/cgroup.events"), "populated 1\nfrozen 0")
        .file(&format!("{V2}/{SERVICE}/cgroup.events"), &text);
}

fn look(tree: &Tree) -> Reading<lattice_conformance::Value> {
    without_library(tree).vitals.get(KEY)
}

/// Whether the check drains the node after this state has lasted for `seconds`.
fn drains_after(seen: &Inventory, seconds: u64) -> bool {
    let mut engine = Engine::new(Table::shipped().unwrap(), EngineState::default());
    engine.set_boot_id("b1");
    engine.observe(1_000, seen);
    engine.observe((1 + seconds) * 1_000, seen);
    let reasons = engine.report().reasons;
    reasons.iter().any(|r| r.code == CHECK && r.drains())
}

pub(crate) fn a_fabric_manager_that_runs_and_one_that_does_not_are_told_by_their_cgroup() {
    let running = Reading::Present("running".into());
    let stopped = Reading::Present("not running".into());
    let tree = hgx();
    events(&tree, 1);
    assert_eq!(look(&tree), running);
    let seen = without_library(&tree);
    assert!(!drains_after(&seen, 3600));
    events(&tree, 0);
    assert_eq!(look(&tree), stopped);
    let seen = without_library(&tree);
    assert!(!drains_after(&seen, 119), "a restart of it");
    assert!(drains_after(&seen, 120));
    // systemd removes the cgroup of a service that has ended.
    tree.remove(&format!("{V2}/{SERVICE}"));
    assert_eq!(look(&tree), stopped);
    tree.file(&format!("{V2}/{SERVICE}/cgroup.events"), "frozen 0");
    assert!(matches!(look(&tree), Reading::Failed { .. }));
}

pub(crate) fn a_fabric_manager_that_something_else_started_runs() {
    let running = Reading::Present("running".into());
    let stopped = Reading::Present("not running".into());
    let process = |tree: &Tree, number: u32, name: &str| {
        tree.file(&format!("/proc/{number}/comm"), name);
    };
    // The package's unit is disabled, or runs in another slice.
    for populated in [Some(0), None] {
        let tree = hgx();
        events(&tree, 0);
        if populated.is_none() {
            tree.remove(&format!("{V2}/{SERVICE}"));
        }
        process(&tree, 1, "systemd");
        process(&tree, 77, "nvidia-persiste");
        assert_eq!(look(&tree), stopped);
        process(&tree, 812, "nv-fabricmanage");
        assert_eq!(look(&tree), running);
        // If processes of other users are hidden, a missing process proves nothing.
        tree.remove("/proc/812").remove("/proc/1");
        assert_eq!(look(&tree), Reading::Unsupported);
    }
}

pub(crate) fn with_cgroup_v1_the_services_processes_tell() {
    let tree = hgx();
    tree.bytes(&format!("{V1}/cgroup.procs"), b"")
        .file(&format!("{V1}/{SERVICE}/cgroup.procs"), "812\n815");
    assert_eq!(look(&tree), Reading::Present("running".into()));
    tree.bytes(&format!("{V1}/{SERVICE}/cgroup.procs"), b"");
    assert_eq!(look(&tree), Reading::Present("not running".into()));
    tree.remove(&format!("{V1}/{SERVICE}"));
    assert_eq!(look(&tree), Reading::Present("not running".into()));
}

pub(crate) fn where_nothing_tells_of_a_fabric_manager_it_is_not_known() {
    let is_unknown = |tree: &Tree, why: &str| {
        assert_eq!(look(tree), Reading::Unsupported, "{why}");
        assert!(!drains_after(&without_library(tree), 3600), "{why}");
    };
    is_unknown(&hgx(), "no systemd, or a capture");
    let tree = hgx();
    tree.file(&format!("{V2}/cgroup.events"), "populated 1")
        .remove(UNIT);
    is_unknown(&tree, "it may run in a container");
    let tree = hgx();
    tree.file(&format!("{V2}/cgroup.events"), "populated 1")
        .link(&format!("/etc/systemd/system/{SERVICE}"), "/dev/null");
    is_unknown(&tree, "masked");
    let tree = hgx();
    events(&tree, 0);
    tree.file("/proc/driver/nvidia/params", "NvLinkDisable: 1");
    is_unknown(&tree, "NVLink is switched off");
}

pub(crate) fn without_a_switch_of_its_own_a_node_has_no_fabric_manager() {
    let tree = hgx();
    events(&tree, 0);
    tree.remove(&format!("/sys/bus/pci/devices/{SWITCH}"));
    assert_eq!(look(&tree), Reading::Absent);
    assert!(!drains_after(&without_library(&tree), 3600));
    // A bridge of another vendor, and an NVIDIA PCI bridge.
    tree.pci("0000:08:00.0", "068000", "8086", "1af1").pci(
        "0000:09:00.0",
        "060400",
        "10de",
        "1af1",
    );
    assert_eq!(look(&tree), Reading::Absent);
    let tree = hgx();
    events(&tree, 0);
    let driver = format!("/sys/bus/pci/devices/{SWITCH}/driver");
    tree.link(&driver, "../../../bus/pci/drivers/nvidia-nvswitch");
    assert_eq!(look(&tree), Reading::Present("not running".into()));
    tree.remove(&driver)
        .link(&driver, "../../../bus/pci/drivers/vfio-pci");
    assert_eq!(look(&tree), Reading::Absent, "a guest has it");
    tree.remove(&driver)
        .link(&driver, "../../../bus/pci/drivers/pci-stub");
    assert_eq!(look(&tree), Reading::Absent, "another one has it");
    let tree = hgx();
    events(&tree, 0);
    for gpu in ["0000:1b:00.0", "0000:3c:00.0"] {
        let driver = format!("/sys/bus/pci/devices/{gpu}/driver");
        tree.link(&driver, "../../../bus/pci/drivers/vfio-pci");
    }
    assert_eq!(look(&tree), Reading::Absent, "every GPU is a guest's");
}

pub(crate) fn a_capture_tells_of_a_fabric_manager_what_the_machine_told() {
    let tree = hgx();
    for is_there in [true, false] {
        events(&tree, 1);
        if !is_there {
            tree.remove(&format!("{V2}/{SERVICE}"));
        }
        let out = tempfile::tempdir().unwrap();
        let to = out.path().join("tree");
        capture(&host(&tree, &driver()), &to, Privacy::Mask).unwrap();
        let replayed = probe_all(&Host::new(&to, NvmlSource::Recorded(to.join(GPU_REPORT))));
        assert_eq!(replayed.vitals.get(KEY), look(&tree), "{is_there}");
        assert!(look(&tree).present().is_some());
    }
}
