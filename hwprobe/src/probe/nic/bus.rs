//! NIC properties from the PCI bus.

use super::{Nic, RecordAndVitals};
use crate::Root;
use crate::pci::{self, Switches};
use lattice_conformance::{Reading, Value, text};

pub(super) fn read(root: &Root, nic: &Nic, switches: &Switches, planes: &mut RecordAndVitals<'_>) {
    let RecordAndVitals { record, vitals } = planes;
    let key = |name: &str| nic.key(name);
    let Some(function) = &nic.function else {
        // The slot of such a device is its rank by name, which depends on discovery order.
        record.put(key("slot_by"), Reading::Present(Value::from("name")));
        return;
    };
    record.put(key("slot_by"), Reading::Present(Value::from("pci")));
    record.require(key("pci_id"), pci::id(root, function));
    record.put(key("subsystem"), pci::subsystem(root, function));
    record.put(key("pci_class"), function.class.clone());
    let line = |file: &str| root.line(function.path(file));
    record.put(
        key("revision"),
        line("revision").and_then(|raw| text::hex_id(&raw, 2)),
    );
    record.put(key("driver"), pci::driver(root, function));
    let speed = |file: &str| line(file).and_then(|raw| pci::link_speed(&raw));
    let width = |file: &str| line(file).and_then(|raw| pci::link_width(&raw));
    record.put(key("max_link_speed"), speed("max_link_speed"));
    record.put(key("max_link_width"), width("max_link_width"));
    record.put(key("numa_node"), pci::numa_node(root, function));
    record.put(
        key("pci_switch"),
        switches.nearest_switch_rank(root, &function.address),
    );
    record.put(
        key("virtual_functions"),
        line("sriov_numvfs").map(text::number_or_text),
    );
    // Set in the firmware's configuration, while the host sets `virtual_functions`.
    record.put(
        key("virtual_functions_max"),
        line("sriov_totalvfs").map(text::number_or_text),
    );
    // Speed and width after training: below the maximum they may show a fault, but idle links are lowered as well.
    vitals.put(key("pcie.speed"), speed("current_link_speed"));
    vitals.put(key("pcie.width"), width("current_link_width"));
}
