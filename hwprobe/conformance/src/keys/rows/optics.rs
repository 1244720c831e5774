//! Rows of class `optics`: modules in the cages of network interfaces.

use super::{PCI, SYSFS};
use crate::keys::{KeyRow, row};

const MODULE: &str = "ethtool (SFF-8472, SFF-8636, CMIS)";

pub(super) const ROWS: &[KeyRow] = &[
    row("optics.count", "NICs, as `nic.count`", "", PCI).required(),
    row(
        "optics.<slot>.net.count",
        "interfaces of the NIC in that slot",
        "",
        SYSFS,
    )
    .required(),
    row(
        "optics.<slot>.net.<slot>.part_number",
        "part number of the module in that interface's cage; absent in an empty one",
        "",
        MODULE,
    )
    .required(),
    row(
        "optics.<slot>.net.<slot>.vendor",
        "vendor of the module",
        "",
        MODULE,
    ),
    row(
        "optics.<slot>.net.<slot>.revision",
        "revision of the module",
        "",
        MODULE,
    ),
    row(
        "optics.<slot>.net.<slot>.firmware",
        "running firmware of the module (CMIS)",
        "",
        MODULE,
    ),
];
