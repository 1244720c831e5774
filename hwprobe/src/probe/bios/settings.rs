//! Firmware settings that a driver provides in band (`firmware-attributes`).
//!
//! Names and values are defined by the vendor. The driver's name, under `bios.attribute_driver`, identifies the
//! vendor's naming, so that nodes of two vendors are not compared setting by setting.

use crate::Root;
use lattice_conformance::{FindingCode, ProbeResult, Reading, Value, text};

const DRIVERS: &str = "/sys/class/firmware-attributes";

/// Kinds of settings that configure the machine. Free text (asset tags, owners, addresses) and ordered lists (boot
/// order) are specific to one host.
const RECORDED_TYPES: &[&str] = &["enumeration", "integer"];

/// Words in the name of a setting that is host-specific, secret, or the clock. `serial`, `date` and `tag` alone would
/// also match serial ports, updates and voltages.
const HOST_SPECIFIC_WORDS: &[&str] = &[
    "password",
    "passwd",
    "pwd",
    "secret",
    "asset",
    "servicetag",
    "svctag",
    "serialnumber",
    "uuid",
    "owner",
    "bootorder",
    "bootseq",
    "bootlist",
    "systemdate",
    "systemtime",
    "macaddr",
    "ipaddr",
    "hostname",
];

/// Maximum number of settings; the largest firmware has about 700.
const MAX_SETTINGS: usize = 4096;

pub(super) fn put_settings(root: &Root, probed: &mut ProbeResult) {
    let drivers = root.list(DRIVERS);
    let mut names = Vec::new();
    let mut failure = None;
    for driver in drivers.present().into_iter().flatten() {
        let dir = format!("{DRIVERS}/{driver}/attributes");
        pending(root, driver, &dir, probed);
        match root.list(&dir) {
            Reading::Present(found) if found.len() > MAX_SETTINGS => {
                failure = Some(Reading::failed(format!(
                    "{} settings, more than {MAX_SETTINGS}",
                    found.len()
                )));
            }
            Reading::Present(found) => {
                let settings = found.iter().filter(|name| is_recorded(root, &dir, name));
                for name in settings {
                    let value = root.setting(format!("{dir}/{name}/current_value"));
                    let value = value.map(text::number_or_text);
                    let key = format!("bios.attribute.{name}");
                    probed.record.require_if_failed(key, value);
                    names.push(name.clone());
                }
            }
            other => failure = Some(other.map(|_| Value::List(Vec::new()))),
        }
    }
    // With the list of names, a setting that another node lacks is absent there, not unknown.
    if drivers.present().is_some_and(|drivers| !drivers.is_empty()) {
        names.sort();
        names.dedup();
        let list = failure.unwrap_or(Reading::Present(Value::List(names)));
        probed.record.put("bios.attribute.names", list);
        probed.record.put(
            "bios.attribute_driver",
            drivers.map(|drivers| drivers.join(" ")),
        );
    }
}

fn is_recorded(root: &Root, dir: &str, name: &str) -> bool {
    let folded: String = name
        .to_ascii_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric())
        .collect();
    if HOST_SPECIFIC_WORDS.iter().any(|word| folded.contains(word)) {
        return false;
    }
    let kind = root.line(format!("{dir}/{name}/type"));
    kind.present()
        .is_some_and(|kind| RECORDED_TYPES.contains(&kind.as_str()))
}

/// A change that takes effect at the next boot is not a value yet; it is reported as a finding.
fn pending(root: &Root, driver: &str, dir: &str, probed: &mut ProbeResult) {
    let pending = root.line(format!("{dir}/pending_reboot"));
    if pending.present().is_some_and(|pending| pending == "1") {
        probed.add_finding(
            FindingCode::BiosRebootPending,
            format!("{driver}: settings of the firmware change at the next boot"),
        );
    }
}
