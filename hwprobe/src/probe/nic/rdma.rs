//! NIC properties from the RDMA subsystem.

use super::{Nic, RDMA, RecordAndVitals};
use crate::Root;
use lattice_conformance::{Reading, Value, text};
use std::collections::BTreeSet;

/// Counters below `ports/<port>/counters` that health uses.
const COUNTERS: &[&str] = &[
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "excessive_buffer_overrun_errors",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "VL15_dropped",
];
/// Traffic counters, which the kernel counts in words of four bytes; reported in bytes.
const TRAFFIC: &[(&str, &str)] = &[
    ("port_rcv_data", "received_bytes"),
    ("port_xmit_data", "sent_bytes"),
];
/// Counters below `ports/<port>/hw_counters`, for drivers that have them.
const HARDWARE_COUNTERS: &[&str] = &[
    "rnr_nak_retry_err",
    "roce_slow_restart",
    "roce_adp_retrans",
    "local_ack_timeout_err",
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "duplicate_request",
    "out_of_buffer",
    "req_cqe_error",
    "resp_cqe_error",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "rp_cnp_ignored",
];
/// Maximum number of ports of one device; real devices have one or two.
const MAX_PORTS: usize = 16;
/// Number of consecutive GID table entries without a type after which the rest counts as free: tables have up to 256
/// entries and fill from the front.
const FREE_GIDS: usize = 8;
const MAX_GIDS: usize = 256;

pub(super) fn read(root: &Root, nic: &Nic, planes: &mut RecordAndVitals<'_>) {
    let Some(device) = nic.rdma.first() else {
        return;
    };
    let RecordAndVitals { record, vitals } = planes;
    let key = |name: &str| nic.key(name);
    let read = |file: &str| root.firmware(format!("{RDMA}/{device}/{file}"));
    record.require_if_failed(key("board_id"), read("board_id"));
    record.require_if_failed(key("hca_type"), read("hca_type"));
    // The driver's number: a silicon revision may be 0, and some drivers write it as `0x0`.
    record.put(key("hw_rev"), root.line(format!("{RDMA}/{device}/hw_rev")));
    let ports = ports(root, device);
    record.put(
        key("link_layer"),
        ports
            .as_ref()
            .and_then(|ports| link_layers(root, device, ports)),
    );
    record.put(
        key("gid_types"),
        ports
            .as_ref()
            .and_then(|ports| gid_types(root, device, ports)),
    );
    for port in ports.present().into_iter().flatten() {
        put_live_values(root, device, port, &key(&format!("port.{port}")), vitals);
    }
}

/// Ports of a device, in numerical order.
pub(super) fn ports(root: &Root, device: &str) -> Reading<Vec<String>> {
    root.list(format!("{RDMA}/{device}/ports"))
        .map(|mut ports| {
            ports.retain(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
            ports.sort_by_key(|port| (port.len(), port.clone()));
            ports.truncate(MAX_PORTS);
            ports
        })
}

/// Link layer of each port, in order.
fn link_layers(root: &Root, device: &str, ports: &[String]) -> Reading<Value> {
    let mut layers = Vec::with_capacity(ports.len());
    for port in ports {
        match root.line(format!("{RDMA}/{device}/ports/{port}/link_layer")) {
            Reading::Present(layer) => layers.push(layer),
            other => return other.map(Value::Text),
        }
    }
    Reading::Present(Value::List(layers))
}

/// The GID types of the ports, sorted and without repeats: `IB/RoCE v1`, `RoCE v2`. An application chooses among them;
/// the number of addresses does not matter.
fn gid_types(root: &Root, device: &str, ports: &[String]) -> Reading<Value> {
    let mut types = BTreeSet::new();
    for port in ports {
        let folder = format!("{RDMA}/{device}/ports/{port}/gid_attrs/types");
        let mut entries = match root.list(&folder) {
            Reading::Present(entries) => entries,
            other => return other.map(Value::List),
        };
        entries.sort_by_key(|entry| (entry.len(), entry.clone()));
        let mut free = 0;
        for entry in entries.iter().take(MAX_GIDS) {
            match root.line(format!("{folder}/{entry}")) {
                Reading::Present(kind) => {
                    types.insert(kind);
                    free = 0;
                }
                // A free entry returns "invalid argument".
                Reading::Unsupported | Reading::Absent => free += 1,
                unknown => return unknown.map(Value::Text),
            }
            if free >= FREE_GIDS {
                break;
            }
        }
    }
    Reading::Present(Value::List(types.into_iter().collect()))
}

/// Adds the live values of one port.
fn put_live_values(
    root: &Root,
    device: &str,
    port: &str,
    key: &str,
    vitals: &mut lattice_conformance::Vitals,
) {
    let folder = format!("{RDMA}/{device}/ports/{port}");
    let line = |file: &str| root.line(format!("{folder}/{file}"));
    for file in ["state", "phys_state"] {
        vitals.put(format!("{key}.{file}"), line(file).map(state));
    }
    vitals.put(
        format!("{key}.rate"),
        line("rate").and_then(|raw| rate(&raw)),
    );
    let counters = Counters::list_folder(root, format!("{folder}/counters"));
    for name in COUNTERS {
        let key = format!("{key}.{}", name.to_ascii_lowercase());
        vitals.put(key, counters.get(name));
    }
    for (file, name) in TRAFFIC {
        let bytes = counters
            .get(file)
            .and_then(|words| match words.as_number() {
                Some(words) => Reading::Present(Value::Number(words.saturating_mul(4))),
                None => Reading::failed("counter value exceeds the range of a 64-bit integer"),
            });
        vitals.put(format!("{key}.{name}"), bytes);
    }
    let counters = Counters::list_folder(root, format!("{folder}/hw_counters"));
    for name in HARDWARE_COUNTERS {
        let value = counters.get(name);
        // The driver determines which of these counters exist; only existing ones are reported.
        if value != Reading::Absent {
            vitals.put(format!("{key}.{name}"), value);
        }
    }
}

/// The counters in one folder. The folder is listed once, so that missing counters cost no read.
struct Counters<'a> {
    root: &'a Root,
    folder: String,
    names: Reading<Vec<String>>,
}

impl<'a> Counters<'a> {
    fn list_folder(root: &'a Root, folder: String) -> Self {
        let names = root.list(&folder);
        Self {
            root,
            folder,
            names,
        }
    }

    fn get(&self, name: &str) -> Reading<Value> {
        self.names.as_ref().and_then(|names| {
            if names.iter().any(|other| other == name) {
                let read = self.root.line(format!("{}/{name}", self.folder));
                read.and_then(|raw| counter(&raw))
            } else {
                Reading::Absent
            }
        })
    }
}

fn counter(raw: &str) -> Reading<Value> {
    // "N/A (no PMA)": drivers without a performance management agent, which provides the counters.
    if raw.starts_with("N/A") {
        return Reading::Unsupported;
    }
    text::unsigned(raw).map(Value::amount)
}

/// Returns `ACTIVE` for `4: ACTIVE`.
fn state(raw: String) -> String {
    match raw.split_once(": ") {
        Some((number, name)) if number.bytes().all(|b| b.is_ascii_digit()) => name.to_owned(),
        _ => raw,
    }
}

/// Parses `400 Gb/sec (4X NDR)` as bits per second.
fn rate(raw: &str) -> Reading<Value> {
    let (number, rest) = raw.split_once(' ').unwrap_or((raw, ""));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let tenths = fraction.get(..1).unwrap_or("0").parse::<i64>();
    match (whole.parse::<i64>(), tenths) {
        (Ok(whole @ 0..1_000_000), Ok(tenths)) if rest.starts_with("Gb/sec") => {
            Reading::Present(Value::Number((whole * 10 + tenths) * 100_000_000))
        }
        _ => Reading::failed(format!("\"{}\" is not a valid rate", text::excerpt(raw))),
    }
}

/// Whether the port is active.
pub(super) fn is_active(root: &Root, device: &str, port: &str) -> bool {
    let read = root.line(format!("{RDMA}/{device}/ports/{port}/state"));
    read.present().is_some_and(|raw| raw.ends_with("ACTIVE"))
}

/// Release of the vendor's driver stack (MLNX_OFED, DOCA-OFED), from the module version, such as `24.10-1.1.4`. Absent
/// with the kernel's own drivers: their modules have no version, or `5.0-0`.
pub(super) fn ofed(root: &Root) -> Reading<String> {
    root.line("/sys/module/mlx5_core/version")
        .and_then(|version| {
            let (release, build) = version.split_once('-').unwrap_or((&version, ""));
            let is_ofed = release.contains('.') && build.contains('.');
            if is_ofed {
                Reading::Present(version)
            } else {
                Reading::Absent
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_rates_are_as_the_kernel_writes_them() {
        assert_eq!(state("4: ACTIVE".to_owned()), "ACTIVE");
        assert_eq!(state("5: LinkUp".to_owned()), "LinkUp");
        assert_eq!(state("odd".to_owned()), "odd");
        let number = |raw| rate(raw).present().and_then(Value::as_number);
        assert_eq!(number("400 Gb/sec (4X NDR)"), Some(400_000_000_000));
        assert_eq!(number("2.5 Gb/sec (1X SDR)"), Some(2_500_000_000));
        for raw in ["", "fast", "-1 Gb/sec", "400 Mb/sec", "9999999999 Gb/sec"] {
            assert!(matches!(rate(raw), Reading::Failed { .. }), "{raw}");
        }
    }
}
