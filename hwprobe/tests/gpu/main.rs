//! The GPU probe through a real child and the fake driver library.
//!
//! This program is the child it starts: `main` becomes the child when called so.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod amd;
mod captured;
mod fabric_manager;
mod faults;
mod live;
#[path = "../support/mod.rs"]
mod support;
mod topology;
mod values;

use lattice_fake_nvml as fake;
use lattice_fake_nvml::{DESCRIPTION_ENV, Driver, ErrorName, Field, Gpu, Hang, library_path};
use lattice_hwprobe::capture::{GPU_REPORT, Privacy, capture};
use lattice_hwprobe::health::{Engine, Memory, Table};
use lattice_hwprobe::{
    Class, ClassState, Host, Inventory, NvlinkPeer, NvmlSource, Reading, Verdict, child, diff,
    probe_all,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use support::Tree;

/// A test with its own name.
macro_rules! named {
    ($($module:ident: $($test:ident),+;)+) => {
        &[$($((stringify!($test), $module::$test as fn()),)+)+]
    };
}

const TESTS: &[(&str, fn())] = named! {
    values: every_row_of_a_gpu_is_read, slots_follow_the_bus, identity_stays_out, one_vbios_moves_one_class, refusals_keep_their_state, pending_modes_are_findings, parts_without_nvlink, calls_an_old_driver_lacks_are_unsupported;
    faults: a_lost_gpu_leaves_no_digest, a_hung_driver_is_a_timeout, no_library_and_no_device, no_library_but_devices, a_driver_that_does_not_start, a_missing_gpu_is_a_finding, a_gpu_that_is_given_away_is_not_missing, a_gpu_lost_while_running_is_named_and_keeps_its_slot;
    captured: a_capture_has_the_gpus;
    topology: ways_are_those_of_the_published_matrix, a_tree_that_does_not_tell_leaves_ways_unknown, the_drivers_word_against_the_bus_is_a_finding, links_between_gpus_name_the_slot, a_gpu_and_the_nic_beside_it_have_one_switch, an_amd_gpu_is_told_by_its_switch_too;
    live: live_values_are_vitals_and_move_no_digest, no_key_is_in_two_planes, error_rates_of_nvlink_5_are_read_by_link_and_older_boards_have_none, links_that_are_down_under_mig_are_not_lost, corrected_errors_are_told_by_the_kind_of_memory;
    fabric_manager: a_fabric_manager_that_runs_and_one_that_does_not_are_told_by_their_cgroup, a_fabric_manager_that_something_else_started_runs, with_cgroup_v1_the_services_processes_tell, where_nothing_tells_of_a_fabric_manager_it_is_not_known, without_a_switch_of_its_own_a_node_has_no_fabric_manager, a_capture_tells_of_a_fabric_manager_what_the_machine_told;
    amd: amd_gpus_are_read_from_sysfs, what_an_amd_gpu_may_not_be_asked_is_not_zero_errors, amd_gpus_without_a_driver_are_not_known, an_amd_gpu_that_the_driver_does_not_take_is_a_finding, an_amd_gpu_that_is_given_away_is_no_fault, a_screen_needs_no_driver;
};

fn main() -> ExitCode {
    child::run_if_child();
    support::run(TESTS)
}

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
