//! Rows of the key table, with a file for each class.

mod bios;
mod bmc;
mod cpu;
mod gpu;
mod kernel;
mod memory;
mod nic;
mod optics;
mod software;
mod storage;

use super::KeyRow;

const PCI: &str = "sysfs (PCI)";
/// Meaning of every `pci_switch` key.
const SWITCH: &str = "rank, from 0, of the nearest upstream PCIe switch among all switches of the node, ordered \
     by the PCI address of their upstream ports; absent if no switch lies between device and root port";
const REDFISH: &str = "Redfish";
const SYSFS: &str = "sysfs";
const CPUINFO: &str = "/proc/cpuinfo";
const CPU: &str = "sysfs (cpu)";

/// Rows of each class. In a class a more specific pattern comes before one that would match its keys.
const CLASSES: [&[KeyRow]; 10] = [
    gpu::ROWS,
    nic::ROWS,
    bios::ROWS,
    bmc::ROWS,
    kernel::ROWS,
    cpu::ROWS,
    memory::ROWS,
    storage::ROWS,
    software::ROWS,
    optics::ROWS,
];

/// Every pattern. A more specific pattern comes before one that would match its keys.
pub const ROWS: &[KeyRow] = &ALL;

/// Number of rows.
const COUNT: usize = {
    let (mut count, mut class) = (0, 0);
    while class < CLASSES.len() {
        count += CLASSES[class].len();
        class += 1;
    }
    count
};

/// The rows of all classes in one table.
static ALL: [KeyRow; COUNT] = {
    let mut all = [gpu::ROWS[0]; COUNT];
    let (mut next, mut class) = (0, 0);
    while class < CLASSES.len() {
        let rows = CLASSES[class];
        let mut row = 0;
        while row < rows.len() {
            all[next] = rows[row];
            next += 1;
            row += 1;
        }
        class += 1;
    }
    all
};
