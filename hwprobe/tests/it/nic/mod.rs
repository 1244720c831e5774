//! The NIC probe on captures of real machines and on trees written here.

mod captured;
mod config;
mod devlink;
mod ethernet;
mod findings;
mod slingshot;
mod switch;

use crate::support::Tree;
use crate::support::ttar;
use lattice_conformance::{
    Class, ClassRecord, ClassState, Digest, Inventory, KeyVerdict, ProbeStatus, Reading, Value,
    diff_by_parts, drift, keys::row_of, verify,
};
use lattice_hwprobe::Answers;
use lattice_hwprobe::capture::{Privacy, capture as capture_tree, host_of};
use lattice_hwprobe::kernel::net::{
    Channels, DevlinkReport, DriverInfo, EthtoolReport, InterfaceReport, Pause, RingSizes,
};
use lattice_hwprobe::probe::nic::{interfaces, missing_since, parse_stat};
use lattice_hwprobe::probe_all;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn capture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../fixtures/captures/{name}"))
}

fn unpacked(name: &str) -> Tree {
    let tree = Tree::new();
    ttar::unpack(&tree, &capture(name));
    tree
}

fn shown(inventory: &Inventory, key: &str) -> String {
    inventory.records[&Class::Nic].get(key).to_string()
}

fn vital(inventory: &Inventory, key: &str) -> String {
    inventory.vitals.get(key).to_string()
}

/// A masked capture: its inventory, which equals that of the tree, and every name and byte of it in lower case.
fn masked(tree: &Tree) -> (Inventory, String) {
    let out = tempfile::tempdir().unwrap();
    capture_tree(&tree.host(), out.path(), Privacy::Mask).unwrap();
    let said = std::process::Command::new("sh")
        .args([
            "-c",
            "find . -printf '%p %l\\n'; find . -type f -exec cat {} +",
        ])
        .current_dir(out.path())
        .output()
        .unwrap();
    let again = probe_all(&host_of(out.path()).unwrap());
    assert_eq!(again.marks(), tree.probe().marks());
    let all = String::from_utf8_lossy(&said.stdout).to_ascii_lowercase();
    (again, all)
}

fn codes(inventory: &Inventory) -> Vec<&str> {
    let of_nics = inventory.findings.iter().filter(|f| f.class == Class::Nic);
    of_nics.map(|finding| finding.code.as_str()).collect()
}

fn present<T>(value: T) -> Reading<T> {
    Reading::Present(value)
}

const PORT: &str = "/sys/devices/pci0000:05/0000:05:00.0/net";

/// A node with one Ethernet controller, with these port names and `dev_port` numbers.
fn ethernet(ports: &[(&str, &str)]) -> Tree {
    let tree = Tree::new();
    tree.pci("0000:05:00.0", "020000", "8086", "1593")
        .file("/proc/sys/kernel/osrelease", "6.8.0-45-generic")
        .link(
            "/sys/devices/pci0000:05/0000:05:00.0/driver",
            "../../../bus/pci/drivers/ice",
        );
    for (name, port) in ports {
        interface(&tree, name, port);
    }
    tree
}

fn interface(tree: &Tree, name: &str, port: &str) {
    tree.file(&format!("{PORT}/{name}/dev_port"), port)
        .file(&format!("{PORT}/{name}/mtu"), "9000")
        .file(&format!("{PORT}/{name}/operstate"), "up")
        .file(&format!("{PORT}/{name}/speed"), "100000")
        .file(&format!("{PORT}/{name}/carrier_changes"), "3")
        .file(&format!("{PORT}/{name}/address"), "AA:BB:CC:00:11:22")
        .link(&format!("{PORT}/{name}/device"), "../../../0000:05:00.0")
        .link(
            &format!("/sys/class/net/{name}"),
            &format!("../../devices/pci0000:05/0000:05:00.0/net/{name}"),
        );
}

fn said(firmware: &str) -> InterfaceReport {
    InterfaceReport {
        driver: present(DriverInfo {
            driver: present("ice".to_owned()),
            version: present("6.8.0-45-generic".to_owned()),
            firmware: present(firmware.to_owned()),
            option_rom: present("1.3682.0".to_owned()),
        }),
        rings: present(RingSizes {
            rx: present(2048),
            tx: present(256),
            rx_mini: Reading::Unsupported,
            rx_jumbo: Reading::Unsupported,
        }),
        channels: present(Channels {
            combined: present(64),
            other: present(1),
            rx: Reading::Unsupported,
            tx: Reading::Unsupported,
        }),
        pause: present(Pause {
            autoneg: false,
            rx: true,
            tx: false,
        }),
        features: present(vec!["rx-gro".to_owned(), "tx-tcp-segmentation".to_owned()]),
        fec: present(vec!["rs".to_owned()]),
        private_flags: present(vec!["link-down-on-close".to_owned()]),
        autoneg: present(true),
        pfc: present(vec![3]),
        dscp: present(vec!["26:3".to_owned()]),
        module: Reading::default(),
    }
}

fn record(tree: &Tree, interfaces: &[(&str, InterfaceReport)], devlink: Vec<DevlinkReport>) {
    let interfaces = interfaces.iter();
    let report = EthtoolReport {
        interfaces: interfaces
            .map(|(n, said)| ((*n).to_owned(), said.clone()))
            .collect(),
        devlink: present(devlink),
    };
    tree.bytes(
        &format!("/{}", EthtoolReport::FILE),
        &report.encode().unwrap(),
    );
}
