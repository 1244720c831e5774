//! Network functions: RDMA devices, Ethernet controllers and Slingshot NICs, by PCI address.
//!
//! Interface and RDMA device names (`eth0`, `mlx5_3`, `cxi0`) depend on discovery order and are never used in keys.
//! Virtual functions are created and removed in operation, interfaces without a device (loopback, bridges, veth) are
//! not hardware, and a USB interface belongs to the BMC: none of them is a NIC here.
//!
//! `bus` reads the PCI properties; `rdma`, `interface` and `slingshot` read the three kinds of drivers; `config` reads
//! the firmware configuration through the vendor's tool; `findings` reports contradictions.

mod assemble;
mod bus;
mod config;
mod findings;
mod interface;
mod rdma;
mod slingshot;

pub(crate) use assemble::functions;
pub use assemble::interfaces;
pub(crate) use assemble::ports;
pub(crate) use config::{
    QUERY_DEADLINE as CONFIGURATION_WITHIN, deadline as configuration_deadline,
    devices as configurable, kept_answer,
};
pub use config::{Setting, parse_settings};
pub use findings::missing_since;
pub use slingshot::{CxiStat, parse_stat};

use super::ProbeResult;
use crate::kernel::net::{self, InterfaceReport};
use crate::pci::{self, Function, Switches};
use crate::{Host, Root};
use assemble::{NicList, assemble_from};
use lattice_conformance::{Class, ClassRecord, NicIdentity, Reading, Value, Vitals, text};

pub(crate) const RDMA: &str = "/sys/class/infiniband";
pub(crate) const NET: &str = "/sys/class/net";
pub(crate) const CXI: &str = "/sys/class/cxi";

/// Position of one NIC, and its names in the kernel.
#[derive(Clone, Debug, Default)]
struct Nic {
    /// Rank among the NICs.
    slot: u32,
    function: Option<Function>,
    rdma: Vec<String>,
    /// Interface names, in the order of the device's ports.
    interfaces: Vec<String>,
    cxi: Option<String>,
    /// State of an unreadable list because of which the interfaces or the Slingshot device of the NIC are unknown.
    listing_failure: Option<Reading<()>>,
}

impl Nic {
    /// A conformance key of this NIC.
    fn key(&self, name: &str) -> String {
        format!("nic.{}.{name}", self.slot)
    }

    /// Name of the NIC for operators.
    fn display_name(&self) -> String {
        match &self.function {
            Some(function) => format!("nic.{} ({})", self.slot, function.address),
            None => format!("nic.{} ({})", self.slot, self.rdma.join(" ")),
        }
    }
}

/// The two parts of a [`ProbeResult`] that receive most readings.
struct RecordAndVitals<'a> {
    record: &'a mut ClassRecord,
    vitals: &'a mut Vitals,
}

/// Reads every NIC; those with a PCI address come first.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Nic);
    let root = &host.root;
    let functions = pci::functions(root);
    let switches = Switches::of(root, &functions);
    let list = assemble_from(root, &functions);
    let count = list.as_ref().map(|nics| number(nics.len()));
    probed.record.require("nic.count", count);
    let nics = list.present().map_or(&[][..], Vec::as_slice);
    driver_stack(root, nics, &mut probed.record);
    let names: Vec<String> = nics.iter().flat_map(|n| n.interfaces.clone()).collect();
    let report = if names.is_empty() {
        Reading::disabled("no interface to query")
    } else {
        net::query_interfaces(&host.ethtool, &names)
    };
    let stat = slingshot::stat(host, nics);
    for nic in nics {
        let mut planes = RecordAndVitals {
            record: &mut probed.record,
            vitals: &mut probed.vitals,
        };
        bus::read(root, nic, &switches, &mut planes);
        rdma::read(root, nic, &mut planes);
        let interface = interface::read(root, nic, &report, &mut planes);
        let cxi = slingshot::read(root, nic, &stat, &mut planes);
        firmware(root, nic, &interface, &cxi, &mut probed.record);
        driver(root, nic, &interface, &mut probed.record);
        let device = interface::devlink(nic, &report);
        interface::versions(nic, &device, &mut probed);
        let mut identity = identify(root, nic);
        cxi.identify(&mut identity);
        if let Some(serial) = device.present().and_then(|device| device.serial.as_deref()) {
            identity.serial = identity.serial.or_if_disabled(text::firmware(serial));
        }
        probed.identity.nics.push(identity);
    }
    config::read(host, nics, &mut probed);
    findings::report_findings(root, nics, &mut probed);
    facts(&list, &mut probed);
    probed
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Adds properties of a driver, not of single NICs.
fn driver_stack(root: &Root, nics: &[Nic], record: &mut ClassRecord) {
    if nics.iter().any(|nic| !nic.rdma.is_empty()) {
        record.put("nic.ofed", rdma::ofed(root));
    }
}

/// Adds the running firmware version, as reported by the function's driver. The key is required, unless querying is
/// disabled or no driver supports the query.
fn firmware(
    root: &Root,
    nic: &Nic,
    interface: &InterfaceReport,
    cxi: &slingshot::Device,
    record: &mut ClassRecord,
) {
    let key = nic.key("firmware");
    if let Some(device) = nic.rdma.first() {
        record.require(key, root.firmware(format!("{RDMA}/{device}/fw_ver")));
    } else if nic.cxi.is_some() {
        record.require(key, cxi.firmware.clone());
    } else if let (true, Some(unlisted)) = (nic.interfaces.is_empty(), &nic.listing_failure) {
        let unknown = unlisted.clone().map(|()| String::new());
        record.require(key, unknown);
    } else if nic.interfaces.is_empty() {
        let why = "no driver that supports the query";
        record.put(key, Reading::<Value>::disabled(why));
    } else {
        let firmware = interface.driver.clone().and_then(|driver| driver.firmware);
        match firmware {
            Reading::Disabled { .. } => record.put(key, firmware),
            asked => record.require(key, asked),
        }
    }
}

fn driver(root: &Root, nic: &Nic, interface: &InterfaceReport, record: &mut ClassRecord) {
    if let Some(function) = &nic.function {
        let module = pci::module(root, function);
        let version = interface::driver_version(root, &module, interface);
        record.put(nic.key("driver_version"), version);
    }
}

fn facts(nics: &NicList, probed: &mut ProbeResult) {
    probed.resources.rdma_count = nics.as_ref().map(|nics| {
        let rdma = nics.iter().filter(|nic| !nic.rdma.is_empty());
        number(rdma.count())
    });
    let is_slingshot = |nics: &Vec<Nic>| nics.iter().any(|nic| nic.cxi.is_some());
    if nics.present().is_some_and(is_slingshot) {
        probed.resources.features.insert("slingshot".to_owned());
    }
    let layers = probed.record.entries.iter();
    let layers = layers.filter(|(key, _)| key.ends_with(".link_layer"));
    for layer in layers.filter_map(|(_, reading)| reading.present()) {
        probed.resources.features.insert("rdma".to_owned());
        if let Value::List(ports) = layer {
            let has = |name: &str| ports.iter().any(|port| port == name);
            if has("InfiniBand") {
                probed.resources.features.insert("infiniband".to_owned());
            }
            if has("Ethernet") {
                probed.resources.features.insert("roce".to_owned());
            }
        }
    }
}

fn identify(root: &Root, nic: &Nic) -> NicIdentity {
    let mac = |name: &String| {
        root.firmware(format!("{NET}/{name}/address"))
            .map(|mac| mac.to_ascii_lowercase())
    };
    let mut interfaces = nic.interfaces.clone();
    interfaces.sort();
    NicIdentity {
        slot: nic.slot,
        address: match &nic.function {
            Some(function) => Reading::Present(function.address.clone()),
            None => Reading::Absent,
        },
        rdma: nic.rdma.clone(),
        macs: interfaces.iter().map(mac).collect(),
        interfaces,
        node_guid: match nic.rdma.first() {
            Some(device) => root.firmware(format!("{RDMA}/{device}/node_guid")),
            None => Reading::Absent,
        },
        ..NicIdentity::default()
    }
}
