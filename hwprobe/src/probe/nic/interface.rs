//! NIC properties from the network stack: interfaces, their settings, and devlink versions.

use super::{NET, Nic, ProbeResult, RecordAndVitals, number};
use crate::Root;
use crate::kernel::net::{DevlinkReport, EthtoolReport, InterfaceReport, Pause};
use lattice_conformance::{ClassRecord, FindingCode, Reading, Value, Vitals, text};

/// Maximum number of interfaces read per function; real functions have one or two.
const MAX_INTERFACES: usize = 8;

/// Reads the NIC's interfaces. Returns the report of the first one, which represents the device.
pub(super) fn read(
    root: &Root,
    nic: &Nic,
    report: &Reading<EthtoolReport>,
    planes: &mut RecordAndVitals<'_>,
) -> InterfaceReport {
    let said = |name: &str| match report {
        Reading::Present(report) => report.interface(name),
        unknown => InterfaceReport::with_state(&unknown.as_ref().map(|_| ())),
    };
    let RecordAndVitals { record, vitals } = planes;
    let count = number(nic.interfaces.len());
    let known = nic.listing_failure.clone().unwrap_or(Reading::Present(()));
    record.put(nic.key("net.count"), known.map(|()| Value::from(count)));
    for (rank, name) in nic.interfaces.iter().take(MAX_INTERFACES).enumerate() {
        let key = |part: &str| nic.key(&format!("net.{rank}.{part}"));
        let line = |file: &str| root.line(format!("{NET}/{name}/{file}"));
        record.put(key("mtu"), line("mtu").map(text::number_or_text));
        record.put(key("ecn.notify"), priorities(root, name, "roce_np"));
        record.put(key("ecn.react"), priorities(root, name, "roce_rp"));
        settings(&key, &said(name), record);
        put_live_values(&key, &line, vitals);
    }
    let Some(first) = nic.interfaces.first() else {
        let nobody = Reading::disabled("no interface to query");
        return InterfaceReport::with_state(nic.listing_failure.as_ref().unwrap_or(&nobody));
    };
    let first = said(first);
    let key = nic.key("option_rom");
    match &first.driver {
        Reading::Present(driver) => record.require_if_failed(key, driver.option_rom.clone()),
        unread => record.put(key, unread.as_ref().map(|_| String::new())),
    }
    first
}

/// Adds the settings of one interface.
fn settings(key: &impl Fn(&str) -> String, said: &InterfaceReport, record: &mut ClassRecord) {
    let ring = said.rings.as_ref();
    record.put(key("ring.rx"), ring.clone().and_then(|r| r.rx.clone()));
    record.put(
        key("ring.rx_mini"),
        ring.clone().and_then(|r| r.rx_mini.clone()),
    );
    record.put(
        key("ring.rx_jumbo"),
        ring.clone().and_then(|r| r.rx_jumbo.clone()),
    );
    record.put(key("ring.tx"), ring.and_then(|r| r.tx.clone()));
    let channels = said.channels.as_ref();
    record.put(
        key("channels.rx"),
        channels.clone().and_then(|c| c.rx.clone()),
    );
    record.put(
        key("channels.tx"),
        channels.clone().and_then(|c| c.tx.clone()),
    );
    record.put(
        key("channels.other"),
        channels.clone().and_then(|c| c.other.clone()),
    );
    record.put(
        key("channels.combined"),
        channels.and_then(|c| c.combined.clone()),
    );
    record.put(
        key("pause.autoneg"),
        said.pause.as_ref().map(|pause| pause.autoneg),
    );
    record.put(
        key("pause.rx"),
        said.pause
            .as_ref()
            .map(|pause| configured_pause(pause, pause.rx)),
    );
    record.put(
        key("pause.tx"),
        said.pause
            .as_ref()
            .map(|pause| configured_pause(pause, pause.tx)),
    );
    record.put(key("pfc"), said.pfc.as_ref().map(|on| text_list(on.iter())));
    record.put(key("dscp"), said.dscp.clone().map(Value::List));
    record.put(key("features"), said.features.clone().map(Value::List));
    record.put(key("fec"), said.fec.clone().map(Value::List));
    record.put(
        key("private_flags"),
        said.private_flags.clone().map(Value::List),
    );
    record.put(key("autoneg"), said.autoneg.clone());
}

fn text_list<T: ToString>(items: impl Iterator<Item = T>) -> Value {
    Value::List(items.map(|item| item.to_string()).collect())
}

/// The configured value. With negotiation, some drivers return its result here, which also depends on the switch.
fn configured_pause(pause: &Pause, value: bool) -> Value {
    if pause.autoneg {
        Value::from("negotiated")
    } else {
        Value::Flag(value)
    }
}

/// Priorities with RoCE congestion control enabled on one side of the connection: `roce_np` (notification point) or
/// `roce_rp` (reaction point). Only NVIDIA's own driver stack (OFED) has these files.
fn priorities(root: &Root, name: &str, side: &str) -> Reading<Value> {
    let folder = format!("{NET}/{name}/ecn/{side}/enable");
    let unknown_or_absent = root.presence(&folder);
    if unknown_or_absent.present().is_none() {
        return unknown_or_absent.map(|()| Value::List(Vec::new()));
    }
    let mut on = Vec::new();
    for priority in 0..8 {
        match root.line(format!("{folder}/{priority}")) {
            Reading::Present(flag) if flag == "1" => on.push(priority),
            Reading::Present(_) | Reading::Absent | Reading::Unsupported => {}
            unknown => return unknown.map(Value::Text),
        }
    }
    Reading::Present(text_list(on.iter()))
}

fn put_live_values(
    key: &impl Fn(&str) -> String,
    line: &impl Fn(&str) -> Reading<String>,
    vitals: &mut Vitals,
) {
    vitals.put(key("operstate"), line("operstate"));
    for file in ["carrier_changes", "carrier_down_count", "carrier_up_count"] {
        let count = line(file).and_then(|raw| text::unsigned(&raw));
        vitals.put(key(file), count.map(Value::amount));
    }
    // Mb/s; -1, and "invalid argument" in older kernels, while there is no link.
    let speed = line("speed").and_then(|raw| match raw.parse::<i64>() {
        Ok(mega @ 1..=100_000_000) => Reading::Present(Value::Number(mega * 1_000_000)),
        Ok(_) => Reading::Unsupported,
        Err(_) => Reading::failed(format!("\"{}\" is not a valid speed", text::excerpt(&raw))),
    });
    vitals.put(key("speed"), speed);
}

/// Version of the driver: that of its module, or the one reported through ethtool. Absent if the driver has no version
/// of its own and reports the kernel's release, which the kernel class contains already.
pub(super) fn driver_version(
    root: &Root,
    module: &Reading<String>,
    interface: &InterfaceReport,
) -> Reading<String> {
    let version = module
        .as_ref()
        .and_then(|module| root.line(format!("/sys/module/{module}/version")));
    match (version, &interface.driver) {
        (Reading::Absent, Reading::Present(driver)) => match &driver.version {
            Reading::Present(version) => {
                let release = root.line("/proc/sys/kernel/osrelease");
                if release.present() == Some(version) {
                    Reading::Absent
                } else {
                    Reading::Present(version.clone())
                }
            }
            _ => Reading::Absent,
        },
        (Reading::Absent, Reading::Disabled { .. } | Reading::Absent | Reading::Unsupported) => {
            Reading::Absent
        }
        (Reading::Absent, unknown) => unknown.clone().map(|_| String::new()),
        (version, _) => version,
    }
}

/// devlink's report for this NIC; absent if devlink does not list the NIC, or the NIC has no PCI address.
pub(super) fn devlink(nic: &Nic, report: &Reading<EthtoolReport>) -> Reading<DevlinkReport> {
    let Some(function) = &nic.function else {
        return Reading::Absent;
    };
    let devices = report.as_ref().and_then(|report| report.devlink.as_ref());
    devices.and_then(|devices| {
        let found = devices
            .iter()
            .find(|device| device.bus == "pci" && device.device == function.address);
        found.map_or(Reading::Absent, |device| Reading::Present(device.clone()))
    })
}

/// Adds the running versions by component, and the fixed ones of the board. A stored version that does not run is a
/// finding and never a key: conformance is the running state.
pub(super) fn versions(nic: &Nic, device: &Reading<DevlinkReport>, probed: &mut ProbeResult) {
    let device = match device {
        Reading::Present(device) => device,
        // The list of versions is unknown too, so one key represents all of them. A denied read stays optional.
        Reading::Timeout { .. } | Reading::Failed { .. } => {
            let unknown = device.as_ref().map(|_| Value::from(""));
            probed.record.require(nic.key("running"), unknown);
            return;
        }
        _ => return,
    };
    let running = ("running", &device.running, text::firmware as fn(&str) -> _);
    // A hardware number may be zero.
    let fixed = ("fixed", &device.fixed, text::setting as fn(&str) -> _);
    for (kind, versions, read) in [running, fixed] {
        for (component, version) in versions {
            let key = nic.key(&format!("{kind}.{}", component_key(component)));
            probed.record.put(key, read(version));
        }
    }
    let pending = device.pending();
    if !pending.is_empty() {
        let changes: Vec<String> = pending
            .iter()
            .map(|(name, running, stored)| format!("{name} runs {running}, stored is {stored}"))
            .collect();
        let detail = format!("{}: {}", nic.display_name(), changes.join("; "));
        probed.add_finding(FindingCode::NicRebootPending, detail);
    }
}

/// Converts a component name to parts of a key: without characters that keys exclude, and no part of digits only, which
/// would be parsed as a slot.
fn component_key(component: &str) -> String {
    let clean: String = component
        .chars()
        .take(64)
        .map(|c| match c {
            'a'..='z' | '0'..='9' | '.' | '_' | '-' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            _ => '_',
        })
        .collect();
    let parts = clean.split('.').filter(|part| !part.is_empty());
    let parts = parts.map(|part| {
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            format!("n{part}")
        } else {
            part.to_owned()
        }
    });
    parts.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_become_parts_of_keys_that_name_no_slot() {
        assert_eq!(component_key("fw.mgmt.api"), "fw.mgmt.api");
        assert_eq!(component_key("FW Bundle"), "fw_bundle");
        assert_eq!(component_key("fw..7.x"), "fw.n7.x");
    }
}
