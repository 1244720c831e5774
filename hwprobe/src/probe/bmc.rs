//! The BMC as seen in band from the node: device id, firmware version and power draw.
//!
//! Redfish provides the other keys of class `bmc`. This probe is a cross-check that needs no credentials.

use super::ProbeResult;
use crate::Host;
use crate::kernel::ipmi::{self, DeviceId, PowerReading, from_hex};
use lattice_conformance::{Class, ClassRecord, FindingCode, Power, Reading};

/// Reads device id and power draw over IPMI.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Bmc);
    let report = match ipmi::query_bmc(&host.ipmi) {
        Reading::Present(report) => report,
        Reading::Disabled { why } => {
            probed.record = ClassRecord::disabled(Class::Bmc, why);
            return probed;
        }
        unknown => ipmi::IpmiReport {
            device_id: unknown.clone().map(|_| String::new()),
            power_reading: unknown.map(|_| String::new()),
        },
    };
    let id = bytes(report.device_id).and_then(|answer| DeviceId::decode(&answer));
    if let Reading::Present(id) = &id
        && !id.is_available
    {
        probed.add_finding(
            FindingCode::BmcNotAvailable,
            "the BMC is updating or initialising itself: the reported firmware version \
             may be neither the old nor the new one",
        );
    }
    put_keys(&id, &mut probed.record);
    let draw = bytes(report.power_reading).and_then(|answer| PowerReading::decode(&answer));
    // Without an answer of the BMC, the reading of another source must not be hidden.
    if let Reading::Present(reading) = draw {
        probed.power = Some(Power {
            draw: Reading::Present(reading.draw),
            source: "ipmi".to_owned(),
            ..Power::default()
        });
    }
    probed
}

fn bytes(answer: Reading<String>) -> Reading<Vec<u8>> {
    answer.and_then(|answer| {
        from_hex(&answer).map_or_else(
            || Reading::failed("a recorded answer that is not hexadecimal"),
            Reading::Present,
        )
    })
}

fn put_keys(id: &Reading<DeviceId>, record: &mut ClassRecord) {
    let id = id.as_ref();
    record.require(
        "bmc.ipmi.firmware",
        id.clone().map(|id| id.firmware.clone()),
    );
    record.put(
        "bmc.ipmi.firmware_auxiliary",
        id.clone().and_then(|id| id.auxiliary.clone()),
    );
    record.put(
        "bmc.ipmi.manufacturer",
        id.clone().map(|id| id.manufacturer),
    );
    let product = id.clone().map(|id| u32::from(id.product));
    record.put("bmc.ipmi.product", product);
    let device = id.clone().map(|id| u32::from(id.device_id));
    record.put("bmc.ipmi.device", device);
    let revision = id.clone().map(|id| u32::from(id.device_revision));
    record.put("bmc.ipmi.device_revision", revision);
    record.put("bmc.ipmi.version", id.map(|id| id.ipmi.clone()));
}
