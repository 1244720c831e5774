//! Disks and mounts on trees written here.

use crate::support::Tree;
use lattice_conformance::{Class, Inventory, KeyVerdict, Reading, Value, diff};

fn shown(inventory: &Inventory, key: &str) -> String {
    inventory.records[&Class::Storage].get(key).to_string()
}

/// An NVMe disk with one namespace, in sysfs layout.
fn nvme(tree: &Tree, name: &str, address: &str, firmware: &str) {
    let function = format!("/sys/devices/pci{}/{address}", &address[..7]);
    let dir = format!("{function}/nvme/{name}");
    let space = format!("{dir}/{name}n1");
    tree.pci(address, "010802", "144d", "a824")
        .file(&format!("{function}/current_link_speed"), "16.0 GT/s PCIe")
        .file(&format!("{dir}/model"), "SAMSUNG MZWLJ3T8HBLS-00007    ")
        .file(&format!("{dir}/firmware_rev"), firmware)
        .file(&format!("{dir}/serial"), &format!("S5{name}"))
        .file(
            &format!("{dir}/subsysnqn"),
            &format!("nqn.1994-11.com.samsung:{name}"),
        )
        .file(&format!("{dir}/transport"), "pcie")
        .file(&format!("{dir}/address"), address)
        .file(&format!("{dir}/state"), "live")
        .file(&format!("{dir}/hwmon4/temp1_input"), "37850")
        .file(&format!("{space}/size"), "7501476528")
        .file(&format!("{space}/nsid"), "1")
        .file(&format!("{space}/ro"), "0")
        .file(&format!("{space}/queue/logical_block_size"), "512")
        .file(
            &format!("{space}/queue/scheduler"),
            "[none] mq-deadline kyber",
        )
        .file(&format!("{space}/{name}n1p1/size"), "1024")
        .link(
            &format!("/sys/class/nvme/{name}"),
            &format!("../..{}", &dir[4..]),
        )
        .link(
            &format!("/sys/block/{name}n1"),
            &format!("..{}", &space[4..]),
        );
}

/// A SCSI disk at `place` below a function.
fn scsi(tree: &Tree, name: &str, place: &str, model: &str) {
    let device = format!("/sys/devices/pci0000:00/0000:00:17.0/{place}");
    let block = format!("{device}/block/{name}");
    tree.file(&format!("{device}/vendor"), "ATA     ")
        .file(&format!("{device}/model"), model)
        .file(&format!("{device}/rev"), "D3CN")
        .file(&format!("{device}/type"), "0")
        .file(&format!("{device}/state"), "running")
        .file(&format!("{device}/ioerr_cnt"), "0x1f")
        .file(&format!("{device}/wwid"), &format!("naa.{name}"))
        .bytes(&format!("{device}/vpd_pg80"), b"\0\x80\0\x08SER-0001")
        .file(&format!("{block}/size"), "937703088")
        .file(&format!("{block}/ro"), "0")
        .file(&format!("{block}/removable"), "0")
        .file(&format!("{block}/queue/logical_block_size"), "512")
        .file(&format!("{block}/queue/rotational"), "0")
        .file(&format!("{block}/queue/scheduler"), "none [mq-deadline]")
        .link(&format!("{block}/device"), "../..")
        .link(&format!("/sys/block/{name}"), &format!("..{}", &block[4..]));
}

#[test]
fn slots_follow_the_bus_and_not_the_order_of_discovery() {
    let tree = Tree::node();
    nvme(&tree, "nvme0", "0000:c1:00.0", "EPK9AB5Q");
    nvme(&tree, "nvme1", "0000:81:00.0", "EPK9CB5Q");
    let before = tree.probe();
    assert_eq!(shown(&before, "storage.nvme.count"), "2");
    assert_eq!(shown(&before, "storage.nvme.0.firmware"), "EPK9CB5Q");
    assert_eq!(
        shown(&before, "storage.nvme.0.model"),
        "SAMSUNG MZWLJ3T8HBLS-00007"
    );
    assert_eq!(shown(&before, "storage.nvme.0.transport"), "pcie");
    assert_eq!(
        shown(&before, "storage.nvme.0.max_link_speed"),
        "32000000000"
    );
    assert_eq!(shown(&before, "storage.nvme.0.namespace.count"), "1");
    assert_eq!(
        shown(&before, "storage.nvme.0.namespace.0.size"),
        "3840755982336"
    );
    assert_eq!(
        shown(&before, "storage.nvme.0.namespace.0.scheduler"),
        "none"
    );
    assert_eq!(
        before.vitals.get("storage.nvme.0.link_speed").to_string(),
        "16000000000"
    );
    assert_eq!(
        before.vitals.get("storage.nvme.0.temperature").to_string(),
        "37"
    );
    assert_eq!(before.identity.disks[0].name, "nvme1");

    // The same disks, found in the reverse order.
    let other = Tree::node();
    nvme(&other, "nvme1", "0000:c1:00.0", "EPK9AB5Q");
    nvme(&other, "nvme0", "0000:81:00.0", "EPK9CB5Q");
    assert_eq!(before.marks(), other.probe().marks());
}

#[test]
fn local_disks_differ_from_others() {
    let tree = Tree::node();
    scsi(
        &tree,
        "sda",
        "ata10/host9/target9:0:0/9:0:0:0",
        "MTFDDAK480TDS",
    );
    scsi(
        &tree,
        "sdb",
        "ata2/host1/target1:0:0/1:0:0:0",
        "MTFDDAK960TDS",
    );
    scsi(
        &tree,
        "sdc",
        "usb2/2-1/2-1:1.0/host12/target12:0:0/12:0:0:0",
        "Virtual Floppy",
    );
    scsi(&tree, "sdd", "host13/session1/target13:0:0/13:0:0:0", "LUN");
    scsi(&tree, "sde", "ata3/host2/target2:0:0/2:0:0:0", "Removable");
    tree.file(
        "/sys/devices/pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0/block/sde/removable",
        "1",
    );
    for name in ["loop0", "ram0", "zram0", "dm-0", "sr0", "nbd0"] {
        tree.file(&format!("/sys/devices/virtual/block/{name}/size"), "8")
            .link(
                &format!("/sys/block/{name}"),
                &format!("../devices/virtual/block/{name}"),
            );
    }
    let inventory = tree.probe();
    assert_eq!(shown(&inventory, "storage.disk.count"), "2");
    assert_eq!(shown(&inventory, "storage.disk.0.model"), "MTFDDAK960TDS");
    assert_eq!(shown(&inventory, "storage.disk.1.model"), "MTFDDAK480TDS");
    assert_eq!(shown(&inventory, "storage.disk.0.transport"), "sata");
    assert_eq!(shown(&inventory, "storage.disk.0.firmware"), "D3CN");
    assert_eq!(shown(&inventory, "storage.disk.0.size"), "480103981056");
    assert_eq!(shown(&inventory, "storage.disk.0.scheduler"), "mq-deadline");
    assert_eq!(shown(&inventory, "storage.disk.0.rotational"), "no");
    assert_eq!(
        inventory.vitals.get("storage.disk.0.io_errors").to_string(),
        "31"
    );
    let serial = Reading::Present("SER-0001".to_owned());
    assert_eq!(inventory.identity.disks[0].serial, serial);
}

#[test]
fn a_namespace_more_is_a_difference_and_not_unknown() {
    let tree = Tree::node();
    nvme(&tree, "nvme0", "0000:c1:00.0", "A");
    let before = tree.probe();
    let space = "/sys/devices/pci0000:c1/0000:c1:00.0/nvme/nvme0/nvme0n2";
    tree.file(&format!("{space}/size"), "1024")
        .file(&format!("{space}/nsid"), "2");
    let after = tree.probe();
    let (before, after) = (
        &before.records[&Class::Storage],
        &after.records[&Class::Storage],
    );
    let differences = diff(before, after);
    let of = |key: &str| differences.iter().find(|difference| difference.key == key);
    let size = of("storage.nvme.0.namespace.1.size").unwrap();
    assert_eq!(
        (&size.left, size.verdict),
        (&Reading::Absent, KeyVerdict::Differs)
    );
}

const MOUNTS: &str = "\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
30 22 0:50 / /scratch rw,noatime,flock - lustre 10.1.0.1@o2ib:/scratch rw,lazystatfs
31 22 0:51 / /sw ro - nfs4 nfs01:/export/sw rw,vers=4.2,hard,clientaddr=10.1.3.7,addr=10.1.0.9";

#[test]
fn mounts_are_those_of_the_first_process_and_never_asked() {
    let tree = Tree::node();
    tree.file("/proc/1/mountinfo", MOUNTS).file(
        "/proc/self/mountinfo",
        "22 1 8:2 / / ro - ext4 /dev/sda2 ro",
    );
    let inventory = tree.probe();
    assert_eq!(shown(&inventory, "storage.mount.names"), "/scratch /sw");
    assert_eq!(shown(&inventory, "storage.mount./scratch.type"), "lustre");
    assert_eq!(
        shown(&inventory, "storage.mount./scratch.options"),
        "flock lazystatfs noatime rw"
    );
    assert_eq!(shown(&inventory, "storage.mount./sw.export"), "/export/sw");
    assert_eq!(
        inventory.vitals.get("storage.root_read_only"),
        Reading::Present(Value::Flag(false))
    );
    // Without permission to read the table of process 1, the agent's own is used.
    tree.file(
        "unreadable.json",
        "{\"/proc/1/mountinfo\": \"permission denied\"}",
    );
    let own = tree.probe();
    assert_eq!(shown(&own, "storage.mount.names"), "");
    let read_only = own.vitals.get("storage.root_read_only");
    assert_eq!(read_only, Reading::Present(Value::Flag(true)));
}

#[test]
fn another_client_address_is_no_difference_and_another_option_is() {
    let tree = Tree::node();
    tree.file("/proc/1/mountinfo", MOUNTS);
    let before = tree.probe();
    tree.file("/proc/1/mountinfo", &MOUNTS.replace("10.1.3.7", "10.1.3.8"));
    assert_eq!(before.marks(), tree.probe().marks());
    tree.file("/proc/1/mountinfo", &MOUNTS.replace("hard", "soft"));
    let after = tree.probe();
    let differences = diff(
        &before.records[&Class::Storage],
        &after.records[&Class::Storage],
    );
    let keys: Vec<&str> = differences.iter().map(|d| d.key.as_str()).collect();
    assert_eq!(keys, ["storage.mount./sw.options"]);
    // A missing file system differs in all its keys.
    let last = MOUNTS.lines().take(2).collect::<Vec<_>>().join("\n");
    tree.file("/proc/1/mountinfo", &last);
    let gone = diff(
        &before.records[&Class::Storage],
        &tree.probe().records[&Class::Storage],
    );
    assert!(
        gone.iter()
            .all(|difference| difference.verdict == KeyVerdict::Differs),
        "{gone:?}"
    );
    assert_eq!(gone.len(), 4);
}

#[test]
fn without_a_folder_of_block_devices_there_are_none() {
    let inventory = Tree::node().probe();
    assert_eq!(shown(&inventory, "storage.nvme.count"), "<absent>");
    assert_eq!(shown(&inventory, "storage.nvme.0.model"), "<absent>");
    assert!(inventory.marks()[&Class::Storage].digest().is_some());
}
