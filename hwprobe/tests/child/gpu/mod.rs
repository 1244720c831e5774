//! The GPU probe through a real child and the fake driver library.
//!
//! This program is the child that it starts: `main` becomes the child if called with the child's arguments.

pub mod amd;
pub mod captured;
pub mod fabric_manager;
pub mod faults;
pub mod live;
pub mod topology;
pub mod values;

use crate::support::Tree;
use lattice_conformance::{
    Class, ClassState, Inventory, KeyVerdict, NvlinkPeer, Reading, diff,
    health::{Engine, EngineState, Table},
};
use lattice_fake_nvml as fake;
use lattice_fake_nvml::{DESCRIPTION_ENV, Driver, ErrorName, Field, Gpu, Hang, library_path};
use lattice_hwprobe::capture::{GPU_REPORT, Privacy, capture};
use lattice_hwprobe::{Host, NvmlSource, probe_all};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

fn some(text: &str) -> Option<Field<String>> {
    Some(Field::from(text.to_owned()))
}

fn h100(bus: &str, uuid: &str) -> Gpu {
    let board = Gpu::h100();
    Gpu {
        uuid: some(uuid),
        serial: some("1650000000001"),
        inforom: fake::Inforom {
            power: some("N/A"),
            ..board.inforom
        },
        pci: Some(Field::Value(fake::Pci {
            bus_id: format!("0000{}", bus.to_uppercase()),
            device_id: "0x233010DE".into(),
            subsystem_id: "0x16C110DE".into(),
        })),
        memory: Some(Field::Value(fake::Memory {
            total_bytes: 85_520_809_984,
            reserved_bytes: 0,
            free_bytes: 1,
            used_bytes: 2,
        })),
        ecc_mode: Some(Field::Value(fake::ModePair {
            current: true,
            pending: true,
        })),
        mig_mode: Some(Field::Value(fake::ModePair {
            current: false,
            pending: false,
        })),
        persistence_mode: Some(true.into()),
        compute_mode: Some(fake::ComputeMode::Default.into()),
        power: fake::Power {
            limit_mw: Some(500_000.into()),
            default_limit_mw: Some(700_000.into()),
            limit_range: Some(Field::Value(fake::PowerRange {
                min_mw: 200_000,
                max_mw: 700_000,
            })),
            ..fake::Power::default()
        },
        max_clocks_mhz: fake::Clocks {
            graphics: Some(1980.into()),
            ..board.max_clocks_mhz
        },
        nvlinks: vec![fake::NvLinkRun {
            links: 18,
            active: Some(true.into()),
            version: Some(6.into()),
            capabilities: None,
            remote_device: None,
            remote_pci: None,
            ..fake::NvLinkRun::default()
        }],
        ..board
    }
}

/// The driver lists the higher address first.
fn driver() -> Driver {
    Driver {
        driver_version: some("590.48.01"),
        nvml_version: some("13.590.48.01"),
        cuda_driver_version: Some(13010.into()),
        gpus: vec![
            h100("0000:3c:00.0", "GPU-second"),
            h100("0000:1b:00.0", "GPU-first"),
        ],
        ..Driver::default()
    }
}

fn tree() -> Tree {
    let tree = Tree::node();
    tree.pci("0000:1b:00.0", "030200", "10de", "2330")
        .pci("0000:3c:00.0", "030200", "10de", "2330")
        .file("/sys/module/nvidia/version", "590.48.01")
        .file(
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.48.01",
        );
    tree
}

fn source(description: &Path) -> NvmlSource {
    let program = std::env::current_exe().unwrap();
    let library = library_path().expect("the fake library is built with this test");
    NvmlSource::child(program, Some(&library)).with_env(DESCRIPTION_ENV, description)
}

fn host(tree: &Tree, driver: &Driver) -> Host {
    let path = tree.path().join("nvml.json");
    std::fs::write(&path, serde_json::to_vec(driver).unwrap()).unwrap();
    Host::new(tree.path(), source(&path))
}

fn probe(driver: &Driver) -> Inventory {
    let tree = tree();
    probe_all(&host(&tree, driver))
}

fn get(inventory: &Inventory, key: &str) -> String {
    inventory.records[&Class::Gpu].get(key).to_string()
}

fn codes(inventory: &Inventory) -> Vec<&str> {
    let ours = inventory.findings.iter().filter(|f| f.class == Class::Gpu);
    ours.map(|f| f.code.as_str()).collect()
}

fn without_library(tree: &Tree) -> Inventory {
    let program = std::env::current_exe().unwrap();
    let library = Path::new("/nonexistent/libnvidia-ml.so.1");
    let source = NvmlSource::child(program, Some(library));
    probe_all(&Host::new(tree.path(), source))
}

fn captured(node: &str) -> Inventory {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/hosts")
        .join(node);
    let host = Host::new(&root, source(&root.join("nvml.json")));
    probe_all(&host)
}

fn vital(inventory: &Inventory, key: &str) -> String {
    inventory.vitals.get(key).to_string()
}
