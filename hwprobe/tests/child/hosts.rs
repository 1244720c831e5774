//! The captured host trees of the repository, through every probe.
//!
//! `LATTICE_BLESS=1 cargo test -p lattice-hwprobe --test child hosts::` rewrites the golden files; read the difference
//! before committing it.

use crate::trials::{Test, tests};
use lattice_conformance::{
    Class, ClassRecord, Digest, DriftReport, Inventory, Reading, Schemas, Scope, WrittenSchemas,
    drift, groups,
    keys::{KeyRow, ROWS},
    verify,
};
use lattice_fake_nvml::{DESCRIPTION_ENV, library_path};
use lattice_hwprobe::capture::{GPU_REPORT, Privacy, capture};
use lattice_hwprobe::{Host, NvmlSource, probe_all};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

pub const TESTS: &[Test] = tests![
    every_tree_is_complete,
    two_nodes_differ_from_their_siblings,
    siblings_share_their_groups,
    no_two_nodes_share_an_identity,
    one_more_changed_firmware_is_found,
    goldens,
    what_agents_of_schema_1_wrote_is_told_again,
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hosts")
}

fn host(name: &str) -> Host {
    let root = folder().join(name);
    let program = std::env::current_exe().unwrap();
    let library = library_path().expect("the fake library is built with this test");
    let nvml = NvmlSource::child(program, Some(&library))
        .with_env(DESCRIPTION_ENV, root.join("nvml.json"));
    Host::new(root, nvml)
}

/// Every tree probed once, by name.
fn fleet() -> &'static BTreeMap<String, Inventory> {
    static FLEET: OnceLock<BTreeMap<String, Inventory>> = OnceLock::new();
    FLEET.get_or_init(|| {
        let entries = fs::read_dir(folder()).unwrap().map(Result::unwrap);
        let trees = entries.filter(|entry| entry.path().join("proc").is_dir());
        trees
            .map(|entry| entry.file_name().into_string().unwrap())
            .map(|name| (name.clone(), probe_all(&host(&name))))
            .collect()
    })
}

fn drift_of(fleet: &BTreeMap<String, Inventory>) -> DriftReport {
    let views: Vec<_> = fleet.iter().map(|(name, node)| node.view(name)).collect();
    let mut preimages: BTreeMap<Digest, Vec<u8>> = BTreeMap::new();
    for record in fleet.values().flat_map(|node| node.records.values()) {
        if let Some(digest) = record.state().digest() {
            preimages.insert(digest, record.encode());
        }
    }
    drift(&views, &|digest: &Digest| -> Option<ClassRecord> {
        Some(verify(digest, &preimages[digest]).unwrap())
    })
}

fn every_tree_is_complete() {
    assert!(fleet().len() >= 23, "{} trees", fleet().len());
    for (name, node) in fleet() {
        assert!(
            node.fingerprint().digest().is_some(),
            "{name}: {:?}",
            node.states()
        );
        assert!(node.findings.is_empty(), "{name}: {:?}", node.findings);
        assert_eq!(node.identity.hostname, Reading::Present(name.clone()));
        for (class, record) in &node.records {
            let failed: Vec<_> = record
                .entries
                .iter()
                .filter(|(_, reading)| matches!(reading, Reading::Failed { .. }))
                .collect();
            assert!(failed.is_empty(), "{name} {class}: {failed:?}");
        }
    }
}

fn two_nodes_differ_from_their_siblings() {
    let report = drift_of(fleet());
    let found: Vec<(&str, Class, &str)> = report
        .drifts
        .iter()
        .map(|drift| (drift.node.as_str(), drift.class, drift.key.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("gpu005", Class::Nic, "nic.0.firmware"),
            ("gpu108", Class::Kernel, "kernel.cmdline"),
        ]
    );
    let [nic, kernel] = report.drifts.as_slice() else {
        panic!();
    };
    assert_eq!((&*nic.expected, &*nic.found), ("28.41.1000", "28.39.2048"));
    assert!(kernel.expected.contains("processor.max_cstate=1"));
    assert!(kernel.found.contains("processor.max_cstate=9"));
    assert!(report.no_majority.is_empty(), "{:?}", report.no_majority);
    assert!(report.unknown.is_empty(), "{:?}", report.unknown);
    assert!(report.alone.is_empty(), "{:?}", report.alone);
}

fn siblings_share_their_groups() {
    let views: Vec<_> = fleet().iter().map(|(name, node)| node.view(name)).collect();
    let sizes = |scope| -> Vec<usize> {
        let found = groups(&views, &scope);
        assert!(found.unknown.is_empty());
        found.groups.iter().map(|group| group.nodes.len()).collect()
    };
    assert_eq!(sizes(Scope::Class(Class::Gpu)), [12, 11]);
    assert_eq!(sizes(Scope::Class(Class::Nic)), [11, 11, 1]);
    assert_eq!(sizes(Scope::Class(Class::Kernel)), [12, 10, 1]);
    assert_eq!(sizes(Scope::All), [11, 10, 1, 1]);
}

fn no_two_nodes_share_an_identity() {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (name, node) in fleet() {
        let identity = &node.identity;
        let uuids = identity.gpus.iter().map(|gpu| &gpu.uuid);
        let own = [
            &identity.boot_id,
            &identity.product_serial,
            &identity.product_uuid,
        ];
        for value in uuids.chain(own).filter_map(Reading::present) {
            if let Some(other) = seen.insert(value.clone(), name) {
                panic!("{name} and {other} share {value}");
            }
        }
    }
}

fn one_more_changed_firmware_is_found() {
    let out = TempDir::new().unwrap();
    capture(&host("gpu003"), out.path(), Privacy::Mask).unwrap();
    let recorded = NvmlSource::Recorded(out.path().join(GPU_REPORT));
    let copy = Host::new(out.path(), recorded);
    let mut fleet = fleet().clone();
    // The copy equals the original until one value changes.
    let unchanged = probe_all(&copy);
    assert_eq!(unchanged.marks(), fleet["gpu003"].marks());
    let nic = &unchanged.identity.nics[3];
    let file = format!("sys/class/infiniband/{}/fw_ver", nic.rdma[0]);
    fs::write(out.path().join(file), "28.43.2026\n").unwrap();
    fleet.insert("gpu003".to_owned(), probe_all(&copy));
    let report = drift_of(&fleet);
    assert_eq!(report.drifts.len(), 3);
    let drift = &report.drifts[0];
    assert_eq!((&*drift.node, &*drift.key), ("gpu003", "nic.3.firmware"));
    assert_eq!(drift.found, "28.43.2026");
}

/// Readable form: every key with its value or state, and the marks.
fn shown(node: &Inventory) -> String {
    let mut text = String::new();
    for (class, mark) in node.marks() {
        writeln!(text, "{class} {mark}").unwrap();
    }
    for record in node.records.values() {
        for (key, reading) in &record.entries {
            writeln!(text, "{key} = {reading}").unwrap();
        }
    }
    let facts = serde_json::to_string_pretty(&node.resources).unwrap();
    writeln!(text, "facts {facts}").unwrap();
    text
}

fn goldens() {
    let bless = std::env::var_os("LATTICE_BLESS").is_some();
    for name in ["gpu001", "gpu101"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
        let found = shown(&fleet()[name]);
        if bless {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &found).unwrap();
            continue;
        }
        let expected = fs::read_to_string(&path).unwrap();
        let changed: Vec<_> = expected
            .lines()
            .filter(|line| !found.lines().any(|other| other == *line))
            .map(|line| format!("- {line}"))
            .chain(
                found
                    .lines()
                    .filter(|line| !expected.lines().any(|other| other == *line))
                    .map(|line| format!("+ {line}")),
            )
            .collect();
        assert!(expected == found, "{name}:\n{}", changed.join("\n"));
    }
}

/// Keys of two classes that were added after schema 1. No build publishes schema 1 in addition to its own: on other
/// machines the values differ as well, see `conformance/0001-both-schemas-during-a-roll.md`.
fn since_schema_1() -> Schemas {
    /// Patterns of schema 1, each with the names that were added to it later.
    const FIRST: &[(&str, &[&str])] = &[
        ("bios.version", &[]),
        ("bios.release", &[]),
        ("bios.date", &[]),
        ("bios.vendor", &[]),
        ("bios.ec_release", &[]),
        ("bios.system.vendor", &[]),
        ("bios.product.name", &[]),
        ("bios.product.<name>", &["bios.product.version"]),
        ("bios.board.<name>", &[]),
        ("bios.boot_mode", &[]),
        ("bios.secure_boot", &[]),
        ("memory.numa.count", &[]),
        ("memory.numa.<slot>.cpus", &[]),
        ("memory.numa.<slot>.distance", &[]),
        ("memory.installed", &[]),
        ("memory.dimm.count", &[]),
        ("memory.dimm.<slot>.size", &[]),
        ("memory.dimm.<slot>.speed", &[]),
        (
            "memory.dimm.<slot>.<name>",
            &[
                "memory.dimm.<slot>.bank",
                "memory.dimm.<slot>.rank",
                "memory.dimm.<slot>.technology",
            ],
        ),
        ("memory.edac.count", &[]),
        ("memory.edac.<slot>.size", &[]),
        (
            "memory.edac.<slot>.<name>",
            &["memory.edac.<slot>.location"],
        ),
    ];
    let mut rows = Vec::new();
    for row in ROWS {
        match FIRST.iter().find(|(pattern, _)| *pattern == row.pattern) {
            Some((_, later)) => {
                let later = later.iter().map(|pattern| KeyRow {
                    pattern,
                    ..row.since_schema(2)
                });
                rows.extend(later);
                rows.push(*row);
            }
            None => rows.push(row.since_schema(2)),
        }
    }
    Schemas {
        written: |class| WrittenSchemas {
            current: class.schema(),
            earlier: None,
            oldest: 1,
        },
        rows: Box::leak(rows.into()),
    }
}

fn what_agents_of_schema_1_wrote_is_told_again() {
    let schemas = since_schema_1();
    // Digests that earlier builds published for these trees.
    let wrote = [
        (
            "gpu001",
            Class::Bios,
            "7e8b988171a504e6cca8018697443e9b55635a0566cfb6919b50702071b2fb50",
        ),
        (
            "gpu001",
            Class::Memory,
            "365914c3a8b456194a9f5d7cc42dcd4442365201efb6038a084279d80d5053b0",
        ),
        (
            "gpu101",
            Class::Bios,
            "fd01d5bce9c23970241d8962f9ee7ce86d85e5f43018ab180c9abb766a5676a1",
        ),
        (
            "gpu101",
            Class::Memory,
            "fe794dc5466aaf822ed89fc7d0e172fd2b17c36a72e2e865896e5c9d8395ec52",
        ),
    ];
    for (name, class, digest) in wrote {
        let record = &fleet()[name].records[&class];
        let earlier = schemas.under(record, 1).unwrap();
        assert!(earlier.entries.len() < record.entries.len());
        let earlier_digest = earlier.state().digest().unwrap();
        assert_eq!(earlier_digest.to_string(), digest, "{name} {class}");
        assert!(record.in_schema(1).is_err(), "this build does not say so");
    }
}
