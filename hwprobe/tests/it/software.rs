//! Image, packages and listed files on trees written here.

use crate::support::Tree;
use lattice_conformance::{Class, ClassState, Inventory, KeyVerdict, ProbeStatus, Reading, diff};
use lattice_hwprobe::capture::{Privacy, capture};
use lattice_hwprobe::{Commands, Host, NvmlSource, probe_all};
use tempfile::TempDir;

fn shown(inventory: &Inventory, key: &str) -> String {
    inventory.records[&Class::Software].get(key).to_string()
}

const STATUS: &str = "\
Package: libnccl2
Status: install ok installed
Architecture: amd64
Version: 2.23.4-1+cuda12.6

Package: vim
Status: install ok installed
Architecture: amd64
Version: 2:9.0.1378-2

Package: slurmd
Status: deinstall ok config-files
Architecture: amd64
Version: 22.05.8-4
";

fn debian() -> Tree {
    let tree = Tree::node();
    tree.file(
        "/usr/lib/os-release",
        "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID=\"12\"",
    )
    .link("/etc/os-release", "../usr/lib/os-release")
    .file("/var/lib/dpkg/status", STATUS);
    tree
}

#[test]
fn a_system_is_its_release_and_the_packages_of_the_list() {
    let inventory = debian().probe();
    assert_eq!(shown(&inventory, "software.os.id"), "debian");
    assert_eq!(shown(&inventory, "software.os.version_id"), "12");
    assert_eq!(shown(&inventory, "software.os.build_id"), "<absent>");
    assert_eq!(shown(&inventory, "software.package.names"), "libnccl2");
    assert_eq!(
        shown(&inventory, "software.package.libnccl2"),
        "0:2.23.4-1+cuda12.6.amd64"
    );
    assert_eq!(shown(&inventory, "software.package.slurmd"), "<absent>");
    assert_eq!(shown(&inventory, "software.image.ostree"), "<absent>");
}

#[test]
fn a_package_that_one_node_lacks_is_a_difference() {
    let tree = debian();
    let before = tree.probe();
    tree.file(
        "/var/lib/dpkg/status",
        &STATUS.replace("deinstall ok config-files", "install ok installed"),
    );
    let after = tree.probe();
    let differences = diff(
        &before.records[&Class::Software],
        &after.records[&Class::Software],
    );
    let found: Vec<(&str, KeyVerdict)> = differences
        .iter()
        .map(|d| (d.key.as_str(), d.verdict))
        .collect();
    assert_eq!(
        found,
        [
            ("software.package.names", KeyVerdict::Differs),
            ("software.package.slurmd", KeyVerdict::Differs),
        ]
    );
}

#[test]
fn a_site_extends_the_list_and_an_update_outside_it_is_no_drift() {
    let tree = debian();
    let before = tree.probe();
    tree.file(
        "/var/lib/dpkg/status",
        &STATUS.replace("9.0.1378", "9.0.1400"),
    );
    assert_eq!(before.marks(), tree.probe().marks());
    let mut host = tree.host();
    host.packages.push("vim*".to_owned());
    assert_eq!(
        shown(&probe_all(&host), "software.package.vim"),
        "2:9.0.1400-2.amd64"
    );
}

#[test]
fn rpm_failure_makes_class_incomplete() {
    let tree = Tree::node();
    tree.file(
        "/etc/os-release",
        "ID=\"sles\"\nVERSION_ID=\"15.5\"\nBUILD_ID=20260801",
    )
    .file(
        "/commands/rpm-packages.out",
        "slurm-slurmd\t0:23.11.7-1.sles15.x86_64\nkernel-default\t0:5.14.21-1.x86_64\n\
         slurm-slurmd\t0:23.02.1-1.sles15.x86_64",
    );
    let inventory = tree.probe();
    assert_eq!(shown(&inventory, "software.os.build_id"), "20260801");
    assert_eq!(shown(&inventory, "software.package.names"), "slurm-slurmd");
    assert_eq!(
        shown(&inventory, "software.package.slurm-slurmd"),
        "0:23.02.1-1.sles15.x86_64 0:23.11.7-1.sles15.x86_64"
    );
    tree.remove("/commands/rpm-packages.out").file(
        "/commands/rpm-packages.state.json",
        "{\"failed\": {\"why\": \"/usr/bin/rpm ended with exit status: 1: no database\"}}",
    );
    let ClassState::Incomplete { missing } = tree.probe().records[&Class::Software].state() else {
        panic!("a failed rpm became no packages");
    };
    assert!(
        missing["software.package.names"]
            .to_string()
            .contains("no database")
    );
    let mut host = tree.host();
    host.commands = Commands::Disabled;
    let names = probe_all(&host).records[&Class::Software].get("software.package.names");
    assert!(matches!(names, Reading::Disabled { .. }), "{names:?}");
}

#[test]
fn an_ostree_deployment_is_its_checksum_and_not_its_boot_slot() {
    let checksum = "a".repeat(64);
    let of = |slot: u32| {
        let tree = Tree::node();
        let place = format!("/ostree/boot.{slot}/rhcos/{}/0", "b".repeat(64));
        tree.file("/proc/cmdline", &format!("ostree={place} ro"))
            .link(
                &place,
                &format!("../../../deploy/rhcos/deploy/{checksum}.{slot}"),
            );
        tree.probe()
    };
    let inventory = of(0);
    assert_eq!(shown(&inventory, "software.image.ostree"), checksum);
    assert_eq!(inventory.marks(), of(1).marks());
}

#[test]
fn network_image_has_name_tag_and_root_hash() {
    let tree = Tree::node();
    let hash = "0123456789abcdef".repeat(4);
    tree.file(
        "/proc/cmdline",
        &format!(
            "root=craycps-s3:s3://boot-images/6c644208/rootfs:8f53cc5b-113:dvs:api:300:nmn0 \
             roothash={hash} nmd_data=x"
        ),
    );
    let inventory = tree.probe();
    assert_eq!(
        shown(&inventory, "software.image.name"),
        "boot-images/6c644208/rootfs"
    );
    assert_eq!(shown(&inventory, "software.image.etag"), "8f53cc5b-113");
    assert_eq!(shown(&inventory, "software.image.root_hash"), hash);
}

#[test]
fn of_a_named_file_only_the_hash_leaves_the_node_even_in_a_capture() {
    let tree = debian();
    tree.file("/etc/munge/munge.key", "very secret bytes");
    let mut host = tree.host();
    host.hashed_files = vec!["/etc/munge/munge.key".to_owned(), "/etc/none".to_owned()];
    let before = probe_all(&host);
    let key = "software.file./etc/munge/munge.key";
    assert_eq!(shown(&before, key).len(), 64);
    assert_eq!(shown(&before, "software.file./etc/none"), "<absent>");

    let out = TempDir::new().unwrap();
    capture(&host, out.path(), Privacy::Mask).unwrap();
    let kept = std::fs::read_to_string(out.path().join("etc/munge/munge.key")).unwrap();
    assert!(!kept.contains("secret"), "{kept}");
    let mut copy = Host::new(out.path(), NvmlSource::Disabled);
    copy.hashed_files.clone_from(&host.hashed_files);
    assert_eq!(shown(&probe_all(&copy), key), shown(&before, key));

    tree.file("/etc/munge/munge.key", "other secret bytes");
    assert_ne!(shown(&probe_all(&host), key), shown(&before, key));
}

#[test]
fn masked_diskless_capture_keeps_digests() {
    let tree = debian();
    tree.file(
        "/proc/cmdline",
        "root=nfs:10.4.0.1:/images/a1:ro ip=10.4.3.7 token=s3cr3t quiet",
    )
    .file(
        "/proc/1/mountinfo",
        "22 1 0:40 / / ro - nfs 10.4.0.1:/images/a1 ro,vers=3,addr=10.4.0.1\n\
         23 1 0:41 / /home rw - nfs4 fs01:/home rw,vers=4.2,clientaddr=10.4.3.7,addr=10.4.0.2\n\
         24 1 0:42 / /run/user/1000 rw - tmpfs tmpfs rw,uid=1000",
    );
    let before = tree.probe();
    let out = TempDir::new().unwrap();
    capture(&tree.host(), out.path(), Privacy::Mask).unwrap();
    let copy = probe_all(&Host::new(out.path(), NvmlSource::Disabled));
    assert_eq!(shown(&copy, "software.image.name"), "images/a1");
    for class in [Class::Software, Class::Storage, Class::Kernel] {
        assert_eq!(copy.marks()[&class], before.marks()[&class], "{class}");
    }
    for file in ["proc/cmdline", "proc/1/mountinfo", "var/lib/dpkg/status"] {
        let kept = std::fs::read_to_string(out.path().join(file)).unwrap();
        for secret in ["10.4.", "fs01", "s3cr3t", "1000", "vim"] {
            assert!(!kept.contains(secret), "{secret} is in {file}: {kept}");
        }
    }
}

#[test]
fn hanging_package_manager_is_reported() {
    let tree = Tree::node();
    tree.file(
        "/commands/rpm-packages.state.json",
        "{\"timeout\": {\"after_ms\": 6000}}",
    );
    let inventory = tree.probe();
    let outcome = inventory.probes.iter().find(|p| p.name == "software");
    assert_eq!(outcome.unwrap().outcome, ProbeStatus::Hung);
    assert_eq!(inventory.marks()[&Class::Software].digest(), None);
}

#[test]
fn a_status_that_is_no_text_is_a_failure() {
    let tree = debian();
    tree.bytes("/var/lib/dpkg/status", b"Package: a\xff\n");
    let names = tree.probe().records[&Class::Software].get("software.package.names");
    assert!(matches!(names, Reading::Failed { .. }), "{names:?}");
}
