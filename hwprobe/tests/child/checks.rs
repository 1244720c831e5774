//! Every key in the shipped checks is written by a probe: a check on a misspelt key would never report anything.

use crate::support::Tree;
use crate::support::ttar;
use crate::trials::{Test, tests};
use lattice_conformance::{
    Inventory,
    health::{Engine, EngineState, Pattern, Severity, Table},
};
use lattice_fake_nvml::{DESCRIPTION_ENV, library_path};
use lattice_hwprobe::{Host, NvmlSource, probe_all};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub const TESTS: &[Test] = tests![
    every_check_looks_at_keys_that_a_probe_writes,
    a_host_as_it_was_captured_is_fit_for_work,
];

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn host(name: &str) -> Host {
    let root = folder("../fixtures/hosts").join(name);
    let library = library_path().expect("the fake library is built with this test");
    let nvml = NvmlSource::child(std::env::current_exe().unwrap(), Some(&library))
        .with_env(DESCRIPTION_ENV, root.join("nvml.json"));
    Host::new(root, nvml)
}

/// Hardware that no composed host has: Slingshot, a RAID, an AMD GPU with error counters.
fn rest() -> Tree {
    let tree = Tree::new();
    for archive in ["sys-class-infiniband-h100", "node_exporter-sys"] {
        let archive = format!("../fixtures/captures/{archive}.ttar");
        ttar::unpack(&tree, &folder(&archive));
    }
    let gpu = "0000:c9:00.0";
    tree.pci(gpu, "038000", "1002", "7408").link(
        &format!("/sys/bus/pci/devices/{gpu}/driver"),
        "../../../bus/pci/drivers/amdgpu",
    );
    tree.file(
        &format!("/sys/bus/pci/devices/{gpu}/ras/umc_err_count"),
        "ue: 1\nce: 12",
    );
    tree.pci("0000:21:00.0", "020000", "17db", "0501")
        .pci("0000:a1:00.0", "020000", "17db", "0501")
        .file(
            "/commands/cxi-stat.out",
            include_str!("../../../fixtures/captures/cxi_stat-2nic.txt"),
        );
    tree
}

/// Keys of live values, and of conformance values they are compared with.
fn written() -> BTreeSet<String> {
    let rest = rest();
    // AMD GPUs are probed with the GPU class, even without NVIDIA's library.
    let program = std::env::current_exe().unwrap();
    let without = NvmlSource::child(program, Some(Path::new("/nonexistent/libnvidia-ml.so.1")));
    let hosts = ["gpu001", "gpu101"].map(host);
    let inventories: Vec<Inventory> = hosts
        .into_iter()
        .chain([Host::new(rest.path(), without)])
        .map(|host| probe_all(&host))
        .collect();
    let live = inventories.iter().flat_map(|one| one.vitals.0.keys());
    let records = inventories.iter().flat_map(|one| one.records.values());
    let lasting = records.flat_map(|record| record.entries.keys());
    live.chain(lasting).cloned().collect()
}

fn every_check_looks_at_keys_that_a_probe_writes() {
    let written = written();
    let is_written = |pattern: &Pattern| written.iter().any(|key| pattern.matches(key).is_some());
    let table = Table::shipped().unwrap();
    let mut unwritten = BTreeSet::new();
    for (code, check) in &table.checks {
        let compared = [&check.when.reaches, &check.when.at_most, &check.when.below];
        let keys = check.key.iter().chain(compared.into_iter().flatten());
        // BMC keys are tested with the Redfish reader.
        for key in keys.filter(|key| key.first_segment() != "bmc" && !is_written(key)) {
            unwritten.insert(format!("{code}: {key}"));
        }
    }
    assert_eq!(unwritten, BTreeSet::new(), "no probe writes these");
}

fn a_host_as_it_was_captured_is_fit_for_work() {
    for name in ["gpu001", "gpu101"] {
        let seen = probe_all(&host(name));
        let mut engine = Engine::new(Table::shipped().unwrap(), EngineState::default());
        engine.set_boot_id("b1");
        for hour in 0..3 {
            engine.observe(hour * 3_600_000, &seen);
        }
        let report = engine.report();
        assert!(
            report.worst <= Some(Severity::Inform),
            "{name}: {report:#?}"
        );
    }
}
