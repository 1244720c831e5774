//! The key table, compared with the keys that probes write.
//!
//! Keys of BMCs are tested with the Redfish reader, and `KEYS.md` with the key table.

use crate::support::Tree;
use crate::trials::{Test, tests};
use lattice_conformance::{
    Class, Inventory, Reading,
    keys::{KeyNeed, ROWS, RowTest, row_of},
};
use lattice_fake_nvml::{DESCRIPTION_ENV, library_path};
use lattice_hwprobe::kernel::net::{DevlinkReport, EthtoolReport};
use lattice_hwprobe::{Answers, Host, NvmlSource, probe_all};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub const TESTS: &[Test] = tests![
    every_key_has_a_row,
    every_row_has_a_key,
    rows_are_required_as_their_keys_are,
];

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn host(name: &str) -> Host {
    let root = folder("../fixtures/hosts").join(name);
    let library = library_path().expect("the fake library is built with this test");
    let nvml = NvmlSource::child(std::env::current_exe().unwrap(), Some(&library))
        .with_env(DESCRIPTION_ENV, root.join("nvml.json"));
    let mut host = Host::new(root, nvml);
    host.also
        .extend(Class::ALL.into_iter().filter(|c| c.is_optional()));
    host
}

/// One host of each kind, this machine, and a host with only the probes' own lists.
fn inventories() -> &'static Vec<Inventory> {
    static ALL: OnceLock<Vec<Inventory>> = OnceLock::new();
    ALL.get_or_init(|| {
        let hosts = ["gpu001", "gpu101"].map(host);
        let here = Host::new("/", NvmlSource::Disabled);
        let devlink = with_devlink();
        let trees = [here, Tree::node().host(), devlink.host()];
        let all = hosts.into_iter().chain(trees);
        all.map(|host| probe_all(&host)).collect()
    })
}

/// A NIC with firmware versions in devlink: no captured host has one.
fn with_devlink() -> Tree {
    const NIC: &str = "/sys/devices/pci0000:05/0000:05:00.0";
    let tree = Tree::new();
    tree.pci("0000:05:00.0", "020000", "8086", "1593")
        .file(&format!("{NIC}/net/eno1/mtu"), "9000")
        .link(&format!("{NIC}/net/eno1/device"), "../../../0000:05:00.0")
        .link(
            "/sys/class/net/eno1",
            "../../devices/pci0000:05/0000:05:00.0/net/eno1",
        );
    let versions = |name: &str, version: &str| [(name.to_owned(), version.to_owned())].into();
    let device = DevlinkReport {
        bus: "pci".to_owned(),
        device: "0000:05:00.0".to_owned(),
        fixed: versions("board.id", "K65390-000"),
        running: versions("fw.mgmt", "7.3.6"),
        stored: versions("fw.mgmt", "7.3.6"),
        ..DevlinkReport::default()
    };
    let report = EthtoolReport {
        devlink: Reading::Present(vec![device]),
        ..EthtoolReport::default()
    };
    let path = format!("/{}", EthtoolReport::FILE);
    tree.bytes(&path, &report.encode().unwrap());
    tree
}

/// Whether each key is required in at least one inventory.
fn keys() -> BTreeMap<(Class, String), bool> {
    let mut keys = BTreeMap::new();
    for record in inventories().iter().flat_map(|one| one.records.values()) {
        for key in record.entries.keys() {
            let is_required = record.required.contains(key);
            *keys.entry((record.class, key.clone())).or_default() |= is_required;
        }
    }
    keys
}

/// Whether only a BMC provides the key.
fn is_of_bmc(source: &str) -> bool {
    source == "Redfish"
}

fn every_key_has_a_row() {
    let mut wrong = Vec::new();
    for ((class, key), _) in keys() {
        match row_of(&key) {
            Some(row) if row.class() == Ok(class) => {}
            _ => wrong.push(key),
        }
    }
    assert!(wrong.is_empty(), "no row describes {wrong:#?}");
}

fn every_row_has_a_key() {
    let keys = keys();
    let mut unseen = Vec::new();
    for row in ROWS {
        let is_seen = keys
            .keys()
            .any(|(_, key)| row_of(key).is_some_and(|found| found.pattern == row.pattern));
        let is_elsewhere = is_of_bmc(row.source) || row.pattern.starts_with("bios.attribute");
        if !is_seen && row.test == RowTest::InFixtures && !is_elsewhere {
            unseen.push(row.pattern);
        }
        assert!(row.class().is_ok(), "{}", row.pattern);
    }
    assert!(unseen.is_empty(), "no host has a key of {unseen:#?}");
}

fn rows_are_required_as_their_keys_are() {
    let mut wrong = Vec::new();
    for ((_, key), is_required) in keys() {
        let Some(row) = row_of(&key) else {
            continue;
        };
        // A row of several names may be required for some of them.
        if (row.need == KeyNeed::Required) != is_required {
            wrong.push(format!(
                "{key}: required {is_required}, row {}",
                row.pattern
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
