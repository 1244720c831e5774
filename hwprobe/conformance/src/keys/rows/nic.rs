//! Rows of class `nic`: network functions.

use super::{PCI, SWITCH, SYSFS};
use crate::keys::{KeyRow, row};

const MLXCONFIG: &str = "mlxconfig or mstconfig";
const RDMA: &str = "sysfs (infiniband)";
const CXI: &str = "sysfs (cxi), cxi_stat";
const ETHTOOL: &str = "ethtool";
const DEVLINK: &str = "netlink (devlink)";

pub(super) const ROWS: &[KeyRow] = &[
    row(
        "nic.count",
        "network functions, virtual ones left out",
        "",
        PCI,
    )
    .required(),
    row("nic.ofed", "version of the vendor's drivers", "", SYSFS),
    row(
        "nic.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
    row(
        "nic.<slot>.slot_by",
        "the slot's rank is by PCI address or by name",
        "",
        PCI,
    ),
    row("nic.<slot>.pci_id", "PCI vendor and device", "", PCI).required(),
    row(
        "nic.<slot>.subsystem",
        "PCI subsystem vendor and device",
        "",
        PCI,
    ),
    row("nic.<slot>.pci_class", "PCI class code", "", PCI),
    row("nic.<slot>.revision", "PCI revision", "", PCI),
    row(
        "nic.<slot>.numa_node",
        "NUMA node it is attached to",
        "",
        PCI,
    ),
    row("nic.<slot>.pci_switch", SWITCH, "", PCI).since_schema(2),
    row(
        "nic.<slot>.max_link_speed",
        "highest PCIe speed",
        "transfers/s",
        PCI,
    ),
    row("nic.<slot>.max_link_width", "PCIe lanes", "", PCI),
    row(
        "nic.<slot>.virtual_functions",
        "virtual functions in use",
        "",
        PCI,
    ),
    row(
        "nic.<slot>.virtual_functions_max",
        "virtual functions there may be",
        "",
        PCI,
    ),
    row("nic.<slot>.driver", "kernel driver", "", PCI),
    row(
        "nic.<slot>.driver_version",
        "version of the kernel driver",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.firmware",
        "running firmware",
        "",
        "sysfs (infiniband), ethtool, cxi",
    )
    .required(),
    row(
        "nic.<slot>.option_rom",
        "expansion ROM's version",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.running",
        "in the record only while devlink does not answer in time; always unknown",
        "",
        DEVLINK,
    )
    .required()
    .needs_hardware(),
    row(
        "nic.<slot>.running.<name>",
        "version of a component that runs",
        "",
        DEVLINK,
    ),
    row(
        "nic.<slot>.fixed.<name>",
        "fixed version: board, revision",
        "",
        DEVLINK,
    ),
    row("nic.<slot>.board_id", "board id (PSID)", "", RDMA),
    row("nic.<slot>.hca_type", "RDMA device type", "", RDMA),
    row("nic.<slot>.hw_rev", "hardware revision", "", RDMA),
    row("nic.<slot>.link_layer", "link layer of each port", "", RDMA),
    row(
        "nic.<slot>.gid_types",
        "RoCE versions of each port",
        "",
        RDMA,
    ),
    row(
        "nic.<slot>.cxi.<name>",
        "Slingshot: part, version, MTU, loopback",
        "",
        CXI,
    )
    .needs_hardware(),
    row("nic.<slot>.net.count", "interfaces on it", "", SYSFS),
    row("nic.<slot>.net.<slot>.mtu", "largest frame", "bytes", SYSFS),
    row(
        "nic.<slot>.net.<slot>.autoneg",
        "the link's speed is negotiated",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.fec",
        "forward error correction that was chosen",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.features",
        "offloads that are on",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.private_flags",
        "the driver's own flags that are on",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.ring.<name>",
        "ring size",
        "descriptors",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.channels.<name>",
        "queues",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.pause.<name>",
        "pause frames",
        "",
        ETHTOOL,
    ),
    row(
        "nic.<slot>.net.<slot>.pfc",
        "priorities with flow control",
        "",
        "netlink (DCB)",
    ),
    row(
        "nic.<slot>.net.<slot>.dscp",
        "priority of each DSCP that has one, `26:3`",
        "",
        "netlink (DCB)",
    )
    .needs_hardware(),
    row(
        "nic.<slot>.net.<slot>.ecn.<name>",
        "congestion notification by priority",
        "",
        SYSFS,
    ),
    row(
        "nic.<slot>.config.names",
        "settings of the firmware that count, of a card's first function",
        "",
        MLXCONFIG,
    )
    .needs_hardware(),
    row(
        "nic.<slot>.config.<name>",
        "firmware setting in force",
        "",
        MLXCONFIG,
    )
    .needs_hardware(),
];
