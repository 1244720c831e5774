//! HPE Slingshot (Cassini) NICs: `/sys/class/cxi`, and `cxi_stat` for values missing there.
//!
//! The folder of a device has one of two layouts: `port/speed` with Cassini 1, `port/0/link/speed` with Cassini 2.
//! `cxi_stat` reads the same files; its values are used only if a file is missing or unreadable.

use super::{CXI, Nic, RecordAndVitals};
use crate::{Host, Root, commands, pci};
use lattice_conformance::{NicIdentity, Reading, Value, text};
use std::collections::BTreeMap;

/// Maximum number of devices parsed from one `cxi_stat` output; nodes have up to eight.
const MAX_DEVICES: usize = 64;

/// One device in the output of `cxi_stat`: its lines by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CxiStat {
    /// Name of the device: `cxi0`.
    pub name: String,
    /// Text after `Name:`, by name.
    pub fields: BTreeMap<String, String>,
}

impl CxiStat {
    fn get(&self, name: &str) -> Reading<String> {
        let field = self.fields.get(name);
        field.map_or(Reading::Absent, |value| text::firmware(value))
    }

    /// PCI address of the device.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        let slot = self.fields.get("PCIE slot")?;
        pci::address(slot).present().cloned()
    }
}

/// Parses the output of `cxi_stat`: a device starts at `Device:`, and its other lines have the form `Name: value`; all
/// remaining lines are skipped.
#[must_use]
pub fn parse_stat(output: &str) -> Vec<CxiStat> {
    let mut devices: Vec<CxiStat> = Vec::new();
    for line in output.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        if name == "Device" {
            if devices.len() == MAX_DEVICES {
                break;
            }
            devices.push(CxiStat {
                name: value.to_owned(),
                fields: BTreeMap::new(),
            });
        } else if let Some(device) = devices.last_mut()
            && device.fields.len() < 64
        {
            device.fields.insert(name.to_owned(), value.to_owned());
        }
    }
    devices
}

/// Runs `cxi_stat`. On a node without Slingshot, returns absent and runs nothing.
pub(super) fn stat(host: &Host, nics: &[Nic]) -> Reading<Vec<CxiStat>> {
    let is_there = |nic: &Nic| nic.cxi.is_some() || is_cassini(nic);
    if !nics.iter().any(is_there) {
        return Reading::Absent;
    }
    let answer = host.commands.output(&commands::CXI_STAT, &host.outstanding);
    answer.and_then(|bytes| match String::from_utf8(bytes) {
        Ok(output) => Reading::Present(parse_stat(&output)),
        Err(_) => Reading::failed("cxi_stat: not text"),
    })
}

/// Whether the vendor id is that of Cray or HPE, which no other network function uses.
fn is_cassini(nic: &Nic) -> bool {
    let function = nic.function.as_ref();
    function.is_some_and(|f| f.is_vendor("17db") || f.is_vendor("1590"))
}

/// Properties of a device that are needed in addition to its keys.
#[derive(Default)]
pub(super) struct Device {
    /// Running firmware version.
    pub firmware: Reading<String>,
    serial: Reading<String>,
    nid: Reading<String>,
    mac: Reading<String>,
}

impl Device {
    /// Adds the identity of the device.
    pub(super) fn identify(&self, identity: &mut NicIdentity) {
        identity.serial = std::mem::take(&mut identity.serial).or_if_disabled(self.serial.clone());
        identity.nid = std::mem::take(&mut identity.nid).or_if_disabled(self.nid.clone());
        if identity.macs.is_empty()
            && let Reading::Present(mac) = &self.mac
        {
            identity.macs.push(Reading::Present(mac.clone()));
        }
    }
}

/// The two sources of a device's values.
struct Source<'a> {
    root: &'a Root,
    folder: Option<String>,
    stat: Reading<&'a CxiStat>,
}

impl Source<'_> {
    /// The first readable file of `files`, else the value of `field` in `cxi_stat`, else the state of the files.
    fn get(&self, files: &[&str], field: &str) -> Reading<String> {
        let mut first = Reading::Absent;
        for file in files {
            let Some(folder) = &self.folder else {
                break;
            };
            match self.root.firmware(format!("{folder}/{file}")) {
                Reading::Absent => {}
                found @ Reading::Present(_) => return found,
                other => first = other,
            }
        }
        match self.stat.as_ref().and_then(|stat| stat.get(field)) {
            second @ Reading::Present(_) => second,
            _ => first,
        }
    }
}

pub(super) fn read(
    root: &Root,
    nic: &Nic,
    stat: &Reading<Vec<CxiStat>>,
    planes: &mut RecordAndVitals<'_>,
) -> Device {
    let cxi_stat = stat.as_ref().and_then(|devices| {
        let address = nic.function.as_ref().map(|f| f.address.clone());
        let of_nic = |device: &&CxiStat| {
            device.address().is_some_and(|a| Some(a) == address)
                || nic.cxi.as_ref() == Some(&device.name)
        };
        devices
            .iter()
            .find(of_nic)
            .map_or(Reading::Absent, Reading::Present)
    });
    if nic.cxi.is_none() && cxi_stat.present().is_none() {
        return Device::default();
    }
    let source = Source {
        root,
        folder: nic.cxi.as_ref().map(|name| format!("{CXI}/{name}/device")),
        stat: cxi_stat,
    };
    keys(nic, &source, planes);
    let nid = source.get(&["properties/nid"], "NID");
    Device {
        firmware: source.get(&["uc/qspi_blob_version"], "FW Version"),
        serial: source.get(&["fru/serial_number"], "Serial Number"),
        // `18 (0x00012)` in cxi_stat, `0x12` in sysfs.
        nid: nid.and_then(|raw| node_id(&raw)),
        mac: source.get(&[], "MAC").map(|mac| mac.to_ascii_lowercase()),
    }
}

fn keys(nic: &Nic, source: &Source<'_>, planes: &mut RecordAndVitals<'_>) {
    let RecordAndVitals { record, vitals } = planes;
    let key = |name: &str| nic.key(&format!("cxi.{name}"));
    let description = source.get(&["fru/description"], "Description");
    record.require_if_failed(key("description"), description);
    let part = source.get(&["fru/part_number"], "Part Number");
    record.require_if_failed(key("part_number"), part);
    let version = source.get(&["properties/cassini_version"], "");
    record.require_if_failed(key("version"), version);
    let mtu = source.get(&["properties/hpc_mtu"], "Link MTU");
    record.put(key("mtu"), mtu.map(text::number_or_text));
    let granule = source.get(&["properties/pid_granule"], "PID granule");
    record.put(key("pid_granule"), granule.map(text::number_or_text));
    let loopback = ["port/loopback", "port/0/link/config/loopback"];
    record.put(
        key("loopback"),
        driver_value(source, &loopback, "Link loopback"),
    );
    // Live state of the link, which depends on cable and switch.
    let state = ["port/link", "port/0/link/state"];
    vitals.put(
        key("link_state"),
        driver_value(source, &state, "Link state"),
    );
    let speed = ["port/speed", "port/0/link/speed"];
    vitals.put(
        key("link_speed"),
        driver_value(source, &speed, "Link speed"),
    );
    let retry = ["port/link_layer_retry", "port/0/llr/state"];
    vitals.put(
        key("link_layer_retry"),
        driver_value(source, &retry, "Link layer retry"),
    );
    let media = ["port/media", "port/0/media/type"];
    vitals.put(key("media"), driver_value(source, &media, "Link media"));
}

/// A value of the driver. `off` is a value; placeholders of firmware texts, such as `none`, are unsupported.
fn driver_value(source: &Source<'_>, files: &[&str], field: &str) -> Reading<Value> {
    source.get(files, field).map(Value::from)
}

/// Parses the fabric address (NID), decimal or with `0x`, and returns it in decimal.
fn node_id(raw: &str) -> Reading<String> {
    let first = raw.split_whitespace().next().unwrap_or_default();
    let number = match first.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => first.parse(),
    };
    number.map_or_else(
        |_| Reading::failed(format!("\"{}\" is not a valid NID", text::excerpt(raw))),
        |nid| Reading::Present(nid.to_string()),
    )
}
