//! Digest of the NIC class: changes that must not affect it, and changes that must.

use crate::support::Tree;
use lattice_conformance::{Class, ClassMark, Inventory, Reading};
use lattice_hwprobe::Answers;
use lattice_hwprobe::kernel::net::{DevlinkReport, DriverInfo, EthtoolReport, InterfaceReport};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::LazyLock;

const RDMA: [&str; 3] = ["0000:1a:00.0", "0000:3b:00.0", "0001:1a:00.0"];
const ETHERNET: [&str; 2] = ["0000:05:00.0", "0000:05:00.1"];
const SLINGSHOT: [&str; 2] = ["0000:21:00.0", "0000:a1:00.0"];

/// Values determined by discovery order, use and time.
#[derive(Clone, Debug)]
struct DiscoveryValues {
    /// Numbers after `mlx5_`, `eth` and `cxi`, in the order of the buses above.
    rdma: Vec<u32>,
    ethernet: Vec<u32>,
    slingshot: Vec<u32>,
    /// Counters, GUIDs, serials, speeds.
    live: Vec<u32>,
    is_up: bool,
}

fn chance() -> impl Strategy<Value = DiscoveryValues> {
    let numbers = || Just((0..12_u32).collect::<Vec<_>>()).prop_shuffle();
    let live = prop::collection::vec(any::<u32>(), 8);
    (numbers(), numbers(), numbers(), live, any::<bool>()).prop_map(
        |(rdma, ethernet, slingshot, live, is_up)| DiscoveryValues {
            rdma,
            ethernet,
            slingshot,
            live,
            is_up,
        },
    )
}

fn sys(address: &str) -> String {
    format!("/sys/devices/pci{}/{address}", &address[..7])
}

fn tree(chance: &DiscoveryValues) -> Tree {
    let tree = Tree::new();
    tree.file("/proc/sys/kernel/osrelease", "6.8.0-45-generic");
    for (index, address) in RDMA.iter().enumerate() {
        infiniband(&tree, chance, address, index);
    }
    let mut interfaces = BTreeMap::new();
    for (index, address) in ETHERNET.iter().enumerate() {
        interfaces.insert(ethernet(&tree, chance, address, index), said(index));
    }
    for (index, address) in SLINGSHOT.iter().enumerate() {
        slingshot(&tree, chance, address, index);
    }
    let report = EthtoolReport {
        interfaces,
        devlink: Reading::Present(vec![firmware(chance, ETHERNET[0])]),
    };
    tree.bytes(
        &format!("/{}", EthtoolReport::FILE),
        &report.encode().unwrap(),
    );
    tree
}

fn function(tree: &Tree, address: &str, class: &str, vendor: &str, device: &str, driver: &str) {
    tree.pci(address, class, vendor, device).link(
        &format!("{}/driver", sys(address)),
        &format!("../../../bus/pci/drivers/{driver}"),
    );
}

fn infiniband(tree: &Tree, chance: &DiscoveryValues, address: &str, index: usize) {
    let name = format!("mlx5_{}", chance.rdma[index]);
    let (live, state) = (
        chance.live[index],
        if chance.is_up { "4: ACTIVE" } else { "1: DOWN" },
    );
    function(tree, address, "020700", "15b3", "1021", "mlx5_core");
    let dir = format!("/sys/class/infiniband/{name}");
    tree.rdma(&name, Some(address), &format!("28.41.100{index}"))
        .file(
            &format!("{dir}/node_guid"),
            &format!("a088:c203:{:04x}:0001", live & 0xffff),
        )
        .file(&format!("{dir}/node_desc"), &format!("host{live} {name}"))
        .file(&format!("{dir}/ports/1/state"), state)
        .file(&format!("{dir}/ports/1/lid"), &live.to_string())
        .file(&format!("{dir}/ports/1/rate"), "400 Gb/sec (4X NDR)")
        .file(
            &format!("{dir}/ports/1/counters/link_downed"),
            &live.to_string(),
        )
        .file(
            &format!("{dir}/ports/1/hw_counters/rnr_nak_retry_err"),
            &live.to_string(),
        )
        .file(&format!("{}/current_link_width", sys(address)), "8");
}

fn ethernet(tree: &Tree, chance: &DiscoveryValues, address: &str, index: usize) -> String {
    let name = format!("eth{}", chance.ethernet[index]);
    let live = chance.live[3 + index];
    let dir = format!("{}/net/{name}", sys(address));
    function(tree, address, "020000", "8086", "1593", "ice");
    tree.file(&format!("{dir}/mtu"), "9000")
        .file(&format!("{dir}/ifindex"), &(live % 100).to_string())
        .file(
            &format!("{dir}/address"),
            &format!("02:00:00:00:00:{:02x}", live & 0xff),
        )
        .file(
            &format!("{dir}/operstate"),
            if chance.is_up { "up" } else { "down" },
        )
        .file(
            &format!("{dir}/speed"),
            if chance.is_up { "100000" } else { "-1" },
        )
        .file(&format!("{dir}/carrier_changes"), &live.to_string())
        .link(&format!("{dir}/device"), &format!("../../../{address}"))
        .link(&format!("/sys/class/net/{name}"), &dir);
    name
}

fn said(index: usize) -> InterfaceReport {
    InterfaceReport {
        driver: Reading::Present(DriverInfo {
            firmware: Reading::Present(format!("4.6{index}")),
            ..DriverInfo::default()
        }),
        fec: Reading::Present(vec!["rs".to_owned()]),
        ..InterfaceReport::default()
    }
}

fn firmware(chance: &DiscoveryValues, address: &str) -> DevlinkReport {
    let running = BTreeMap::from([("fw.mgmt".to_owned(), "7.3.6".to_owned())]);
    let mut stored = running.clone();
    if chance.is_up {
        stored.insert("fw.mgmt".to_owned(), format!("7.4.{}", chance.live[0]));
    }
    DevlinkReport {
        bus: "pci".to_owned(),
        device: address.to_owned(),
        serial: Some(format!("serial-{}", chance.live[5])),
        running,
        stored,
        ..DevlinkReport::default()
    }
}

fn slingshot(tree: &Tree, chance: &DiscoveryValues, address: &str, index: usize) {
    let (name, live) = (
        format!("cxi{}", chance.slingshot[index]),
        chance.live[5 + index],
    );
    let dir = sys(address);
    function(tree, address, "020000", "17db", "0501", "cxi_core");
    tree.link(&format!("/sys/class/cxi/{name}/device"), &dir)
        .file(
            &format!("{dir}/uc/qspi_blob_version"),
            &format!("1.5.{index}"),
        )
        .file(&format!("{dir}/fru/part_number"), "P43012-001")
        .file(&format!("{dir}/fru/serial_number"), &format!("S{live}"))
        .file(
            &format!("{dir}/properties/nid"),
            &format!("{:#x}", live & 0xffff),
        )
        .file(
            &format!("{dir}/port/link"),
            if chance.is_up { "up" } else { "down" },
        )
        .file(&format!("{dir}/port/speed"), "BS_200G");
}

fn mark(inventory: &Inventory) -> ClassMark {
    inventory.marks()[&Class::Nic]
}

fn first() -> DiscoveryValues {
    DiscoveryValues {
        rdma: vec![0, 1, 2],
        ethernet: vec![0, 1],
        slingshot: vec![0, 1],
        live: vec![0; 8],
        is_up: true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn names_numbers_counters_and_states_never_move_the_digest(chance in chance()) {
        static ONE: LazyLock<Inventory> = LazyLock::new(|| tree(&first()).probe());
        let (one, other) = (&*ONE, tree(&chance).probe());
        let is_complete = matches!(mark(one), ClassMark::Complete { .. });
        prop_assert!(is_complete);
        prop_assert_eq!(&one.records[&Class::Nic].entries, &other.records[&Class::Nic].entries);
        prop_assert_eq!(mark(one), mark(&other));
    }
}

#[test]
fn each_thing_that_counts_moves_this_class_and_no_other() {
    let nic = sys(RDMA[0]);
    let cxi = sys(SLINGSHOT[0]);
    let device = "/sys/class/infiniband/mlx5_0";
    let changes = [
        (format!("{device}/fw_ver"), "28.39.2048"),
        (format!("{device}/board_id"), "MT_0000000884"),
        (format!("{device}/hca_type"), "MT4123"),
        (format!("{device}/hw_rev"), "1"),
        (format!("{device}/ports/1/link_layer"), "Ethernet"),
        (format!("{device}/ports/1/gid_attrs/types/0"), "RoCE v2"),
        (format!("{nic}/device"), "0x1023"),
        (format!("{nic}/subsystem_device"), "0x0042"),
        (format!("{nic}/revision"), "0x01"),
        (format!("{nic}/class"), "0x020000"),
        (format!("{nic}/max_link_speed"), "16.0 GT/s PCIe"),
        (format!("{nic}/max_link_width"), "8"),
        (format!("{nic}/numa_node"), "1"),
        (format!("{nic}/sriov_numvfs"), "4"),
        (format!("{nic}/sriov_totalvfs"), "16"),
        (format!("{}/net/eth0/mtu", sys(ETHERNET[0])), "1500"),
        (
            format!("{}/net/eth0/ecn/roce_np/enable/3", sys(ETHERNET[0])),
            "1",
        ),
        (format!("{cxi}/uc/qspi_blob_version"), "1.6.0"),
        (format!("{cxi}/fru/part_number"), "P43012-002"),
        (format!("{cxi}/fru/description"), "Sawtooth"),
        (format!("{cxi}/properties/hpc_mtu"), "2112"),
        (format!("{cxi}/properties/pid_granule"), "512"),
        (format!("{cxi}/port/loopback"), "on"),
    ];
    // Without the version of a driver's module, which is in the kernel class too
    // (`0001-ethtool-by-ioctl-devlink-by-netlink.md`).
    let tree = tree(&first());
    for (file, value) in changes {
        let before = tree.probe();
        let path = tree.path().join(file.trim_start_matches('/'));
        let old = std::fs::read(&path).ok();
        tree.file(&file, value);
        let after = tree.probe();
        let changed = Class::ALWAYS_PUBLISHED.into_iter();
        let changed = changed.filter(|class| before.marks()[class] != after.marks()[class]);
        assert_eq!(changed.collect::<Vec<_>>(), [Class::Nic], "{file}");
        match old {
            Some(old) => tree.bytes(&file, &old),
            None => tree.remove(&file),
        };
    }
}

#[test]
fn each_answer_of_the_kernel_that_counts_moves_this_class_and_no_other() {
    let changes: [fn(&mut InterfaceReport); 9] = [
        |said| said.driver = Reading::Present(DriverInfo::default()),
        |said| said.rings = Reading::Unsupported,
        |said| said.channels = Reading::Unsupported,
        |said| said.pause = Reading::Unsupported,
        |said| said.features = Reading::Present(vec!["rx-gro".to_owned()]),
        |said| said.fec = Reading::Present(vec!["baser".to_owned()]),
        |said| said.private_flags = Reading::Present(Vec::new()),
        |said| said.pfc = Reading::Present(vec![3]),
        |said| said.dscp = Reading::Present(vec!["26:3".to_owned()]),
    ];
    let tree = tree(&first());
    let before = tree.probe();
    for (index, change) in changes.iter().enumerate() {
        let mut changed = said(0);
        change(&mut changed);
        let report = EthtoolReport {
            interfaces: BTreeMap::from([
                ("eth0".to_owned(), changed),
                ("eth1".to_owned(), said(1)),
            ]),
            devlink: Reading::Present(vec![firmware(&first(), ETHERNET[0])]),
        };
        tree.bytes(
            &format!("/{}", EthtoolReport::FILE),
            &report.encode().unwrap(),
        );
        let after = tree.probe();
        let changed = Class::ALWAYS_PUBLISHED.into_iter();
        let changed = changed.filter(|class| before.marks()[class] != after.marks()[class]);
        assert_eq!(changed.collect::<Vec<_>>(), [Class::Nic], "{index}");
    }
}
