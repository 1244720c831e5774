//! Firmware configuration of NVIDIA (Mellanox) NICs, read by `mlxconfig` or `mstconfig`.
//!
//! The configuration is stored in the card and read when the card starts. A setting thus has up to three values: the
//! vendor's default, the running one, and the one after the next boot. The running value is the node's conformance; a
//! different next value is a finding. Only listed settings are read: others are specific to one host (boot source) or
//! to one cable.

use super::{Nic, ProbeResult, RecordAndVitals};
use crate::commands::{CommandLine, Commands, Device, MLXCONFIG, MSTCONFIG};
use crate::{Host, Root};
use lattice_conformance::{FindingCode, Reading, Value, text};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Deadline for all NICs of a node together. An answer takes a second, and only one function of each card is queried.
pub(crate) const QUERY_DEADLINE: Duration = Duration::from_secs(20);

/// Settings that should be equal on nodes of one design, as the tools name them; `P1` and `P2` are the ports of the
/// card.
const SETTINGS: &[&str] = &[
    "ADVANCED_PCI_SETTINGS",
    "ATS_ENABLED",
    "CQE_COMPRESSION",
    "DCBX_CEE_P1",
    "DCBX_CEE_P2",
    "DCBX_IEEE_P1",
    "DCBX_IEEE_P2",
    "DCBX_WILLING_P1",
    "DCBX_WILLING_P2",
    "EMBEDDED_CPU",
    "EXP_ROM_PXE_ENABLE",
    "EXP_ROM_UEFI_ARM_ENABLE",
    "EXP_ROM_UEFI_x86_ENABLE",
    "FLEX_PARSER_PROFILE_ENABLE",
    "FORCE_ETH_PCI_SUBCLASS",
    "HAIRPIN_DATA_BUFFER_LOCK",
    "IB_ROUTING_EN_P1",
    "IB_ROUTING_EN_P2",
    "INTERNAL_CPU_MODEL",
    "INTERNAL_CPU_OFFLOAD_ENGINE",
    "KEEP_ETH_LINK_UP_P1",
    "KEEP_ETH_LINK_UP_P2",
    "KEEP_IB_LINK_UP_P1",
    "KEEP_IB_LINK_UP_P2",
    "LAG_RESOURCE_ALLOCATION",
    "LINK_TYPE_P1",
    "LINK_TYPE_P2",
    "LLDP_NB_DCBX_P1",
    "LLDP_NB_DCBX_P2",
    "MAX_ACC_OUT_READ",
    "MEMIC_BAR_SIZE",
    "MULTI_PORT_VHCA_EN",
    "NUM_OF_VFS",
    "NUM_PF_MSIX",
    "NUM_VF_MSIX",
    "PCI_ATOMIC_MODE",
    "PCI_BUS00_HIERARCHY_TYPE",
    "PCI_BUS00_SPEED",
    "PCI_BUS00_WIDTH",
    "PCI_SWITCH_EMULATION_ENABLE",
    "PCI_WR_ORDERING",
    "PER_PF_NUM_SF",
    "PF_BAR2_ENABLE",
    "PF_LOG_BAR_SIZE",
    "PF_TOTAL_SF",
    "REAL_TIME_CLOCK_ENABLE",
    "ROCE_ADAPTIVE_ROUTING_EN",
    "ROCE_CC_PRIO_MASK_P1",
    "ROCE_CC_PRIO_MASK_P2",
    "ROCE_CONTROL",
    "ROCE_RTT_RESP_DSCP_P1",
    "ROCE_RTT_RESP_DSCP_P2",
    "SRIOV_EN",
    "STRICT_VF_MSIX_NUM",
    "SW_RECOVERY_ON_ERRORS",
    "TX_SCHEDULER_LOCALITY_MODE",
    "UCTX_EN",
    "VF_LOG_BAR_SIZE",
    "ZERO_TOUCH_TUNING_ENABLE",
];

/// Maximum number of lines parsed; a card has about 400 settings.
const MAX_LINES: usize = 4096;

/// One listed setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Running value.
    pub current: Reading<String>,
    /// Value after the next boot of the card.
    pub next: Reading<String>,
}

impl Setting {
    fn is_pending(&self) -> bool {
        let both = (self.current.present(), self.next.present());
        matches!(both, (Some(current), Some(next)) if current != next)
    }
}

/// Columns of values that a tool may print, by the word in the heading.
const COLUMNS: [&str; 3] = ["Default", "Current", "Next"];

/// Parses the output of either tool: a heading with the columns (`Configurations: Default  Current  Next Boot`), then a
/// line per setting, with `*` before differing settings and `RO` before read-only ones. Output without a column of
/// running values gives no running values; output without a heading is a failure. Other lines are skipped.
#[must_use]
pub fn parse_settings(answer: &str) -> Reading<BTreeMap<String, Setting>> {
    let mut columns: Option<Vec<usize>> = None;
    let mut settings = BTreeMap::new();
    for line in answer.lines().take(MAX_LINES) {
        if let Some(heading) = line.trim_start().strip_prefix("Configurations:") {
            let words = heading.split_whitespace();
            let known = words.filter_map(|word| COLUMNS.iter().position(|name| *name == word));
            columns = Some(known.collect());
            continue;
        }
        let Some(columns) = &columns else {
            continue;
        };
        let mut words = line.split_whitespace().peekable();
        while words.next_if(|word| matches!(*word, "*" | "RO")).is_some() {}
        let Some(name) = words.next().filter(|name| SETTINGS.contains(name)) else {
            continue;
        };
        let values: Vec<&str> = words.collect();
        settings.insert(name.to_owned(), setting(columns, &values));
    }
    match columns {
        Some(_) => Reading::Present(settings),
        None => Reading::failed("the tool's output has no line \"Configurations:\""),
    }
}

fn setting(columns: &[usize], values: &[&str]) -> Setting {
    if columns.len() != values.len() {
        let torn = || {
            Reading::failed(format!(
                "{} values for {} columns in the tool's output",
                values.len(),
                columns.len()
            ))
        };
        return Setting {
            current: torn(),
            next: torn(),
        };
    }
    let of = |name: &str| {
        let mut named = columns.iter().zip(values);
        let found = named.find(|(column, _)| COLUMNS[**column] == name);
        found.map_or(Reading::Unsupported, |(_, value)| match value {
            // The tools print array elements only if queried by name.
            value if value.starts_with("Array[") => Reading::Unsupported,
            value => text::setting(value),
        })
    };
    Setting {
        current: of("Current"),
        next: of("Next"),
    }
}

/// The part of the output that a capture keeps: the heading and the listed settings.
pub(crate) fn kept_answer(line: &CommandLine, answer: Vec<u8>) -> Vec<u8> {
    if *line != MLXCONFIG && *line != MSTCONFIG {
        return answer;
    }
    let text = String::from_utf8_lossy(&answer);
    let is_kept = |line: &&str| {
        let mut words = line.split_whitespace();
        line.trim_start().starts_with("Configurations:")
            || words.any(|word| SETTINGS.contains(&word))
    };
    let kept: Vec<&str> = text.lines().take(MAX_LINES).filter(is_kept).collect();
    (kept.join("\n") + "\n").into_bytes()
}

/// The NICs that can be queried, for a capture.
pub(crate) fn devices(root: &Root) -> Vec<Device> {
    let nics = super::assemble::assemble(root);
    let nics = nics.present().map_or(&[][..], Vec::as_slice);
    let addresses = first_functions(nics).into_iter();
    addresses
        .filter_map(|(_, address)| Device::parse(address))
        .collect()
}

/// The first function of each card: the configuration belongs to the card.
fn first_functions(nics: &[Nic]) -> Vec<(&Nic, &str)> {
    let mut cards = BTreeMap::new();
    for nic in nics {
        if let Some(function) = nic
            .function
            .as_ref()
            .filter(|f| f.is_vendor(crate::pci::MELLANOX))
            && let Some((card, _)) = function.address.rsplit_once('.')
        {
            cards
                .entry(card)
                .or_insert((nic, function.address.as_str()));
        }
    }
    cards.into_values().collect()
}

/// Reads the configuration of every NIC that has one. A node without the tools has no such keys: missing tools are not
/// a property of the NICs.
pub(super) fn read(host: &Host, nics: &[Nic], probed: &mut ProbeResult) {
    if host.is_live_only {
        return;
    }
    let ends_at = Instant::now() + QUERY_DEADLINE;
    for (nic, address) in first_functions(nics) {
        let answer = query_tool(host, address, ends_at);
        let settings = answer.and_then(|answer| match String::from_utf8(answer) {
            Ok(answer) => parse_settings(&answer),
            Err(_) => Reading::failed("mlxconfig: not text"),
        });
        let mut planes = RecordAndVitals {
            record: &mut probed.record,
            vitals: &mut probed.vitals,
        };
        let pending = keys(nic, &settings, &mut planes);
        if !pending.is_empty() {
            let detail = format!("{}: {}", nic.display_name(), pending.join("; "));
            probed.add_finding(FindingCode::NicConfigPending, detail);
        }
    }
}

/// Queries the first of the two tools that is installed.
fn query_tool(host: &Host, address: &str, ends_at: Instant) -> Reading<Vec<u8>> {
    let Some(device) = Device::parse(address) else {
        return Reading::failed(format!("{address} is not a valid device address"));
    };
    for line in [&MLXCONFIG, &MSTCONFIG] {
        let within = ends_at.saturating_duration_since(Instant::now());
        let answer = host
            .commands
            .device_output(line, &device, within, &host.outstanding);
        if answer != Reading::Absent {
            return answer;
        }
    }
    Reading::Absent
}

/// Adds the keys of one card, and returns the settings that change at its next boot.
fn keys(
    nic: &Nic,
    settings: &Reading<BTreeMap<String, Setting>>,
    planes: &mut RecordAndVitals<'_>,
) -> Vec<String> {
    let pending_key = nic.key("config.pending");
    let settings = match settings {
        Reading::Present(settings) => settings,
        // Neither tool is installed.
        Reading::Absent => {
            planes
                .vitals
                .put(pending_key, Reading::<Value>::Unsupported);
            return Vec::new();
        }
        unknown => {
            let unknown = || unknown.as_ref().map(|_| Value::from(""));
            planes.vitals.put(pending_key, unknown());
            planes.record.put(nic.key("config.names"), unknown());
            return Vec::new();
        }
    };
    let names = settings.keys().map(|name| name.to_ascii_lowercase());
    let names = Reading::Present(names.collect::<Vec<_>>());
    planes.record.put(nic.key("config.names"), names);
    let mut pending = Vec::new();
    let count = pending_count(settings.values());
    for (name, setting) in settings {
        let key = nic.key(&format!("config.{}", name.to_ascii_lowercase()));
        let current = setting.current.clone().map(text::number_or_text);
        planes.record.put(key, current);
        if setting.is_pending() {
            let Setting { current, next } = setting;
            pending.push(format!("{name} is {current}, {next} after a reboot"));
        }
    }
    planes.vitals.put(pending_key, count);
    pending
}

/// Number of settings that change at a reboot. Zero only if both values of some setting are known, and no value is
/// unreadable.
fn pending_count<'a>(settings: impl Iterator<Item = &'a Setting>) -> Reading<u32> {
    let (mut count, mut doubt) = (0, Reading::Unsupported);
    let mut has_value = false;
    for setting in settings {
        let both = setting.current.as_ref().and_then(|_| setting.next.as_ref());
        match both {
            Reading::Present(_) => has_value = true,
            Reading::Absent | Reading::Unsupported => {}
            unknown => doubt = unknown.map(|_| 0),
        }
        count += u32::from(setting.is_pending());
    }
    match (count, doubt) {
        (0, doubt) if !doubt.is_known() => doubt,
        (0, _) if !has_value => Reading::Unsupported,
        (count, _) => Reading::Present(count),
    }
}

/// Maximum duration of the queries on this host.
pub(crate) fn deadline(commands: &Commands, is_live_only: bool) -> Duration {
    match (commands, is_live_only) {
        (Commands::Run { .. }, false) => QUERY_DEADLINE,
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_names_each_setting_once() {
        assert!(SETTINGS.is_sorted_by(|one, other| one < other));
    }
}
