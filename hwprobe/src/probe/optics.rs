//! Modules in the cages of network interfaces, optical modules and cables: vendor, part, revision and firmware. This is
//! an optional class of its own: modules are replaced one by one while NICs are not, so nodes of one design rarely have
//! the same modules.
//!
//! Slots and interface ranks are those of the NIC class: `optics.2.net.0` is the module of `nic.2.net.0`. Serial
//! numbers and dates are never kept from the driver's answer.

use super::{ProbeResult, nic};
use crate::Host;
use crate::kernel::net::{self, EthtoolReport};
use lattice_conformance::{Class, ClassRecord, Reading, Value};

/// Reads the modules of every NIC.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Optics);
    let record = &mut probed.record;
    let nics = nic::ports(&host.root);
    record.require("optics.count", nics.as_ref().map(|nics| number(nics.len())));
    let nics = nics.present().map_or(&[][..], Vec::as_slice);
    let names: Vec<String> = nics
        .iter()
        .filter_map(Reading::present)
        .flatten()
        .cloned()
        .collect();
    let report = match names.is_empty() {
        true => Reading::disabled("no interface to query"),
        false => net::query_modules(&host.ethtool, &names),
    };
    for (slot, ports) in nics.iter().enumerate() {
        let count = ports.as_ref().map(|ports| number(ports.len()));
        record.require(format!("optics.{slot}.net.count"), count);
        for (rank, name) in ports.present().into_iter().flatten().enumerate() {
            module(&format!("optics.{slot}.net.{rank}"), name, &report, record);
        }
    }
    probed
}

fn number(count: usize) -> Value {
    Value::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn module(place: &str, name: &str, report: &Reading<EthtoolReport>, record: &mut ClassRecord) {
    let report = report.as_ref();
    let identity = report.and_then(|report| report.interface(name).module);
    let identity = identity.and_then(|module| module.identity());
    let identity = identity.as_ref();
    let part = identity.clone().and_then(|said| said.part_number.clone());
    record.require(format!("{place}.part_number"), part);
    let rest = [
        ("vendor", identity.clone().and_then(|i| i.vendor.clone())),
        (
            "revision",
            identity.clone().and_then(|i| i.revision.clone()),
        ),
    ];
    for (key, reading) in rest {
        record.require_if_failed(format!("{place}.{key}"), reading);
    }
    // A module without a valid image has no version.
    let firmware = identity.and_then(|i| i.firmware.clone());
    record.put(format!("{place}.firmware"), firmware);
}
