//! Parser of `nvidia-smi -q` output, as text or XML, with the values that the probe should return.

use lattice_conformance::Value;
use std::collections::BTreeMap;

/// Values by path: `PCI/Device Id` in the text, `pci/pci_device_id` in the XML.
pub struct Smi {
    values: BTreeMap<String, String>,
    columns: BTreeMap<String, String>,
    links: usize,
}

/// Repeated parts of the XML.
const SKIPPED: [&str; 3] = ["supported_clocks", "processes", "mig_devices"];

impl Smi {
    pub fn parse(text: &str) -> Self {
        if text.starts_with("<?xml") {
            Self {
                values: xml(text),
                columns: BTreeMap::new(),
                links: 0,
            }
        } else {
            let is_link = |line: &&str| {
                let rest = line.trim().strip_prefix("Link ");
                rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            };
            let mut values = log(text);
            for line in text.lines().filter(|line| line.starts_with("NVML version")) {
                let version = line.split_once(':').unwrap().1.trim();
                values.insert("NVML version".to_owned(), version.to_owned());
            }
            Self {
                values,
                columns: columns(text),
                links: text.lines().filter(is_link).count(),
            }
        }
    }

    /// The first of these paths that has a value.
    fn get(&self, paths: &[&str]) -> Option<String> {
        let mut found = paths.iter().filter_map(|path| self.values.get(*path));
        found.next().cloned()
    }

    fn column(&self, name: &str) -> Option<String> {
        self.columns.get(name).cloned()
    }
}

/// Parses indented lines `key : value`, with four blanks per level.
fn log(text: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut path: Vec<&str> = Vec::new();
    let body = text
        .split("==============NVSMI LOG==============")
        .nth(1)
        .unwrap();
    for line in body.lines().take_while(|line| !line.starts_with("####")) {
        let key = line.trim_start();
        let depth = (line.len() - key.len()) / 4;
        let (key, value) = match key.split_once(" : ") {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (key.trim(), None),
        };
        if key.is_empty() {
            continue;
        }
        path.truncate(depth);
        path.push(key);
        if let Some(value) = value {
            // Paths below the single GPU start there.
            let from = usize::from(depth > 0);
            values.insert(path[from..].join("/"), value.to_owned());
        }
    }
    values
}

/// Header and first row of the query.
fn columns(text: &str) -> BTreeMap<String, String> {
    let mut lines = text
        .lines()
        .skip_while(|line| !line.starts_with("timestamp, driver_version"));
    let names = lines.next().unwrap().split(", ");
    let names = names.map(|name| name.split(" [").next().unwrap().to_owned());
    let cells = lines
        .next()
        .unwrap()
        .split(", ")
        .map(|cell| cell.trim().to_owned());
    names.zip(cells).collect()
}

/// `<tag>value</tag>` by path below the document and the GPU.
fn xml(text: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut path: Vec<String> = Vec::new();
    for part in text.split('<').skip(1) {
        let (tag, value) = part.split_once('>').unwrap();
        if tag.starts_with(['?', '!']) || tag.ends_with('/') {
            continue;
        }
        if tag.starts_with('/') {
            path.pop();
            continue;
        }
        path.push(tag.split_whitespace().next().unwrap().to_owned());
        if path.iter().any(|part| SKIPPED.contains(&part.as_str())) || value.trim().is_empty() {
            continue;
        }
        let from = match path.get(1).map(String::as_str) {
            Some("gpu") => 2,
            _ => 1,
        };
        values.insert(path[from..].join("/"), value.trim().to_owned());
    }
    values
}

/// Conversion of a printed value to the probe's form.
#[derive(Clone, Copy)]
enum As {
    Text,
    Lower,
    Number,
    /// MiB to bytes, watts to milliwatts, MHz to Hz.
    Times(i64),
    Flag,
    /// `0x233010DE`: device before vendor.
    Ids,
    Reasons,
}

/// Words for a missing value, and values that the publishers removed.
const NOTHING: [&str; 6] = [
    "N/A",
    "[N/A]",
    "Requested functionality has been deprecated",
    "REDACTED",
    "",
    "-",
];

fn wanted(printed: &str, how: As) -> Option<Value> {
    if NOTHING.contains(&printed) {
        return None;
    }
    let unit_free = printed
        .split_whitespace()
        .next()
        .unwrap()
        .trim_end_matches('x');
    let scaled = |factor: i64| {
        let (whole, rest) = unit_free.split_once('.').unwrap_or((unit_free, "0"));
        let tail: i64 = format!("{rest:0<3}")[..3].parse().unwrap();
        Value::Number(whole.parse::<i64>().unwrap() * factor + tail * factor / 1000)
    };
    Some(match how {
        As::Text => Value::from(printed),
        As::Lower => Value::from(printed.to_lowercase()),
        As::Number => Value::Number(unit_free.trim_start_matches('P').parse().unwrap()),
        As::Times(factor) => scaled(factor),
        As::Flag => Value::Flag(matches!(printed, "Enabled" | "Yes")),
        As::Ids => {
            let word = printed.trim_start_matches("0x").to_lowercase();
            Value::from(format!("{}:{}", &word[4..], &word[..4]))
        }
        As::Reasons => unreachable!("made from many lines"),
    })
}

const MIB: As = As::Times(1 << 20);
const MILLI: As = As::Times(1000);
const MHZ: As = As::Times(1_000_000);

type Row = (&'static str, As, &'static [&'static str]);

/// Key, form, and path in each layout.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("gpu.driver", As::Text, &["Driver Version", "driver_version"]),
    ("gpu.cuda", As::Text, &["CUDA Version", "cuda_version"]),
    ("gpu.count", As::Number, &["Attached GPUs"]),
    ("gpu.0.model", As::Text, &["Product Name", "product_name"]),
    ("gpu.0.part_number", As::Text, &["Board Part Number", "board_part_number"]),
    ("gpu.0.vbios", As::Text, &["VBIOS Version", "vbios_version"]),
    ("gpu.0.inforom.image", As::Text, &["Inforom Version/Image Version", "inforom_version/img_version"]),
    ("gpu.0.inforom.oem", As::Text, &["Inforom Version/OEM Object", "inforom_version/oem_object"]),
    ("gpu.0.inforom.ecc", As::Text, &["Inforom Version/ECC Object", "inforom_version/ecc_object"]),
    ("gpu.0.inforom.power", As::Text, &["Inforom Version/Power Management Object", "inforom_version/pwr_object"]),
    ("gpu.0.gsp.firmware", As::Text, &["GSP Firmware Version", "gsp_firmware_version"]),
    ("gpu.0.pci_id", As::Ids, &["PCI/Device Id", "pci/pci_device_id"]),
    ("gpu.0.subsystem", As::Ids, &["PCI/Sub System Id", "pci/pci_sub_system_id"]),
    ("gpu.0.memory", MIB, &["FB Memory Usage/Total", "fb_memory_usage/total"]),
    ("gpu.0.memory.used", MIB, &["FB Memory Usage/Used", "fb_memory_usage/used"]),
    ("gpu.0.max_link_generation", As::Number, &["PCI/GPU Link Info/PCIe Generation/Max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen"]),
    ("gpu.0.own_link_generation", As::Number, &["PCI/GPU Link Info/PCIe Generation/Device Max", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen"]),
    ("gpu.0.max_link_width", As::Number, &["PCI/GPU Link Info/Link Width/Max", "pci/pci_gpu_link_info/link_widths/max_link_width"]),
    ("gpu.0.pcie.generation", As::Number, &["PCI/GPU Link Info/PCIe Generation/Current", "pci/pci_gpu_link_info/pcie_gen/current_link_gen"]),
    ("gpu.0.pcie.width", As::Number, &["PCI/GPU Link Info/Link Width/Current", "pci/pci_gpu_link_info/link_widths/current_link_width"]),
    ("gpu.0.pcie.replays", As::Number, &["PCI/Replays Since Reset", "pci/replay_counter"]),
    ("gpu.0.ecc", As::Flag, &["ECC Mode/Current", "ecc_mode/current_ecc"]),
    ("gpu.0.mig", As::Flag, &["MIG Mode/Current", "mig_mode/current_mig"]),
    ("gpu.0.persistence", As::Flag, &["Persistence Mode", "persistence_mode"]),
    ("gpu.0.accounting", As::Flag, &["Accounting Mode", "accounting_mode"]),
    ("gpu.0.compute_mode", As::Lower, &["Compute Mode", "compute_mode"]),
    ("gpu.0.power.draw", MILLI, &["GPU Power Readings/Average Power Draw", "gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw", "power_readings/power_draw"]),
    ("gpu.0.power.limit", MILLI, &["GPU Power Readings/Requested Power Limit", "gpu_power_readings/requested_power_limit", "power_readings/power_limit"]),
    ("gpu.0.power.enforced_limit", MILLI, &["GPU Power Readings/Current Power Limit", "gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit"]),
    ("gpu.0.power.default", MILLI, &["GPU Power Readings/Default Power Limit", "gpu_power_readings/default_power_limit", "power_readings/default_power_limit"]),
    ("gpu.0.power.min", MILLI, &["GPU Power Readings/Min Power Limit", "gpu_power_readings/min_power_limit", "power_readings/min_power_limit"]),
    ("gpu.0.power.max", MILLI, &["GPU Power Readings/Max Power Limit", "gpu_power_readings/max_power_limit", "power_readings/max_power_limit"]),
    ("gpu.0.clock.graphics.max", MHZ, &["Max Clocks/Graphics", "max_clocks/graphics_clock"]),
    ("gpu.0.clock.sm.max", MHZ, &["Max Clocks/SM", "max_clocks/sm_clock"]),
    ("gpu.0.clock.memory.max", MHZ, &["Max Clocks/Memory", "max_clocks/mem_clock"]),
    ("gpu.0.clock.video.max", MHZ, &["Max Clocks/Video", "max_clocks/video_clock"]),
    ("gpu.0.clock.graphics.now", MHZ, &["Clocks/Graphics", "clocks/graphics_clock"]),
    ("gpu.0.clock.sm.now", MHZ, &["Clocks/SM", "clocks/sm_clock"]),
    ("gpu.0.clock.memory.now", MHZ, &["Clocks/Memory", "clocks/mem_clock"]),
    ("gpu.0.performance_state", As::Number, &["Performance State", "performance_state"]),
    ("gpu.0.temperature", As::Number, &["Temperature/GPU Current Temp", "temperature/gpu_temp"]),
    ("gpu.0.temperature.memory", As::Number, &["Temperature/Memory Current Temp", "temperature/memory_temp"]),
    ("gpu.0.temperature_margin", As::Number, &["Temperature/GPU T.Limit Temp", "temperature/gpu_temp_tlimit"]),
    ("gpu.0.temperature_limit.shutdown", As::Number, &["Temperature/GPU Shutdown Temp", "temperature/gpu_temp_max_threshold"]),
    ("gpu.0.temperature_limit.slowdown", As::Number, &["Temperature/GPU Slowdown Temp", "temperature/gpu_temp_slow_threshold"]),
    ("gpu.0.temperature_limit.operating", As::Number, &["Temperature/GPU Max Operating Temp", "temperature/gpu_temp_max_gpu_threshold"]),
    ("gpu.0.temperature_limit.memory", As::Number, &["Temperature/Memory Max Operating Temp", "temperature/gpu_temp_max_mem_threshold"]),
    ("gpu.0.temperature_margin_limit.shutdown", As::Number, &["Temperature/GPU Shutdown T.Limit Temp"]),
    ("gpu.0.temperature_margin_limit.slowdown", As::Number, &["Temperature/GPU Slowdown T.Limit Temp"]),
    ("gpu.0.temperature_margin_limit.operating", As::Number, &["Temperature/GPU Max Operating T.Limit Temp"]),
    ("gpu.0.temperature_margin_limit.memory", As::Number, &["Temperature/Memory Max Operating T.Limit Temp"]),
    ("gpu.0.utilization.gpu", As::Number, &["Utilization/GPU", "utilization/gpu_util"]),
    ("gpu.0.utilization.memory", As::Number, &["Utilization/Memory", "utilization/memory_util"]),
    ("gpu.0.remapped_rows.correctable", As::Number, &["Remapped Rows/Correctable Error"]),
    ("gpu.0.remapped_rows.uncorrectable", As::Number, &["Remapped Rows/Uncorrectable Error"]),
    ("gpu.0.remapped_rows.pending", As::Flag, &["Remapped Rows/Pending"]),
    ("gpu.0.remapped_rows.failure", As::Flag, &["Remapped Rows/Remapping Failure Occurred"]),
    ("gpu.0.retired_pages.single_bit", As::Number, &["Retired Pages/Single Bit ECC", "retired_pages/multiple_single_bit_retirement/retired_count"]),
    ("gpu.0.retired_pages.double_bit", As::Number, &["Retired Pages/Double Bit ECC", "retired_pages/double_bit_retirement/retired_count"]),
    ("gpu.0.retired_pages.pending", As::Flag, &["Retired Pages/Pending Page Blacklist", "retired_pages/pending_retirement"]),
    ("gpu.0.fabric.state", As::Lower, &["Fabric/State", "fabric/state"]),
    ("gpu.0.fabric.status", As::Lower, &["Fabric/Status", "fabric/status"]),
    ("gpu.0.fabric.health", As::Lower, &["Fabric/Health/Summary", "fabric/health/summary"]),
    ("gpu.0.fabric.degraded_bandwidth", As::Flag, &["Fabric/Health/Bandwidth"]),
    ("gpu.0.fabric.route_recovery", As::Flag, &["Fabric/Health/Route Recovery in progress"]),
    ("gpu.0.fabric.route_unhealthy", As::Flag, &["Fabric/Health/Route Unhealthy"]),
    ("gpu.0.fabric.access_timeout_recovery", As::Flag, &["Fabric/Health/Access Timeout Recovery"]),
    ("gpu.0.fabric.misconfigured", As::Lower, &["Fabric/Health/Incorrect Configuration"]),
];

/// Values printed only in the query's columns.
const COLUMNS: &[(&str, As, &str)] = &[
    ("gpu.0.compute_capability", As::Text, "compute_cap"),
    ("gpu.0.gsp.enabled", As::Flag, "gsp.mode.current"),
    ("gpu.0.gsp.default", As::Flag, "gsp.mode.default"),
];

/// Values that no layout prints: whether the driver of a capture provides them is unknown.
const NEVER: &[&str] = &[
    "gpu.0.confidential_compute",
    "gpu.0.energy",
    "gpu.0.nvlink.version",
    "gpu.0.nvlink.capabilities",
];

/// Key, printed value, expected value (none: not available).
pub fn rows(smi: &Smi) -> Vec<(String, Option<String>, Option<Value>)> {
    let mut rows = Vec::new();
    let mut push = |key: &str, printed: Option<String>, how: As| {
        let value = printed.as_deref().and_then(|printed| wanted(printed, how));
        rows.push((key.to_owned(), printed, value));
    };
    for (key, how, paths) in ROWS {
        let mut printed = smi.get(paths);
        match *key {
            // Before there were two part numbers, that of the board had the chip's name.
            "gpu.0.part_number" if printed.is_none() => printed = smi.get(&["gpu_part_number"]),
            // Each capture contains one GPU; one of the captures is an excerpt of four GPUs.
            "gpu.count" => printed = Some("1".to_owned()),
            _ => {}
        }
        push(key, printed, *how);
    }
    for (key, how, name) in COLUMNS {
        push(key, smi.column(name), *how);
    }
    let version = smi.get(&["NVML version"]);
    push("gpu.nvml", version, As::Text);
    for key in NEVER {
        push(key, None, As::Text);
    }
    let architecture = smi.get(&["Product Architecture", "product_architecture"]);
    let architecture = architecture.map(|name| name.split(' ').next().unwrap().to_owned());
    push("gpu.0.architecture", architecture, As::Lower);
    let links = (smi.links > 0).then(|| smi.links.to_string());
    push("gpu.0.nvlink.links", links.clone(), As::Number);
    push("gpu.0.nvlink.active", links, As::Number);
    for link in 0..smi.links {
        push(
            &format!("gpu.0.nvlink.{link}.state"),
            Some("active".to_owned()),
            As::Text,
        );
    }
    for (kind, name) in [
        ("corrected", "correctable"),
        ("uncorrected", "uncorrectable"),
    ] {
        for span in ["volatile", "aggregate"] {
            push(
                &format!("gpu.0.ecc.{kind}.{span}"),
                ecc(smi, kind, name, span),
                As::Number,
            );
        }
    }
    for memory in ["sram", "dram"] {
        for (key, span) in [("corrected", "Volatile"), ("corrected_ever", "Aggregate")] {
            let count = smi.get(&[
                &format!("ECC Errors/{span}/{} Correctable", memory.to_uppercase()),
                &format!("ecc_errors/{}/{memory}_correctable", span.to_lowercase()),
            ]);
            push(&format!("gpu.0.ecc.{memory}.{key}"), count, As::Number);
        }
    }
    // The captured boards have no errors of either kind.
    for (key, span) in [
        ("uncorrected", "Volatile"),
        ("uncorrected_ever", "Aggregate"),
    ] {
        let parity = smi.get(&[&format!("ECC Errors/{span}/SRAM Uncorrectable Parity")]);
        push(&format!("gpu.0.ecc.sram.{key}"), parity, As::Number);
    }
    let exceeded = smi.get(&["ECC Errors/Aggregate/SRAM Threshold Exceeded"]);
    push("gpu.0.ecc.sram.threshold_exceeded", exceeded, As::Flag);
    let reasons = reasons(smi);
    let mask = mask(&reasons);
    rows.push((
        "gpu.0.clocks.event_reasons".to_owned(),
        Some(format!("{mask:#x}")),
        Some(Value::Number(mask)),
    ));
    rows.push((
        "gpu.0.clocks.events".to_owned(),
        Some(reasons.join(", ")),
        Some(Value::List(reasons)),
    ));
    // A library with an unknown version provides none of these.
    rows.retain(|(key, printed, _)| !(key.starts_with("gpu.0.nvlink.active") && printed.is_none()));
    rows
}

/// The total, as printed or summed over the kinds of memory.
fn ecc(smi: &Smi, kind: &str, name: &str, span: &str) -> Option<String> {
    if let Some(total) = smi.column(&format!("ecc.errors.{kind}.{span}.total")) {
        return Some(total);
    }
    let bits = if kind == "corrected" {
        "single_bit"
    } else {
        "double_bit"
    };
    let old = smi.get(&[&format!("ecc_errors/{span}/{bits}/total")]);
    old.or_else(|| {
        let part = |memory: &str| smi.get(&[&format!("ecc_errors/{span}/{memory}_{name}")]);
        let (sram, dram) = (part("sram")?, part("dram")?);
        match (sram.parse::<u64>(), dram.parse::<u64>()) {
            (Ok(sram), Ok(dram)) => Some((sram + dram).to_string()),
            _ => Some("N/A".to_owned()),
        }
    })
}

/// The bits of nvml.h.
fn mask(reasons: &[String]) -> i64 {
    let bit = |name: &String| match name.as_str() {
        "idle" => 0x1,
        "application_clocks" => 0x2,
        "sw_power_cap" => 0x4,
        "hw_slowdown" => 0x8,
        "sync_boost" => 0x10,
        "sw_thermal" => 0x20,
        "hw_thermal" => 0x40,
        "hw_power_brake" => 0x80,
        "display_clock" => 0x100,
        other => panic!("{other}"),
    };
    reasons.iter().map(bit).sum()
}

fn reasons(smi: &Smi) -> Vec<String> {
    const NAMES: [(&str, &str, &str); 9] = [
        ("idle", "Idle", "gpu_idle"),
        (
            "application_clocks",
            "Applications Clocks Setting",
            "applications_clocks_setting",
        ),
        ("sw_power_cap", "SW Power Cap", "sw_power_cap"),
        ("hw_slowdown", "HW Slowdown", "hw_slowdown"),
        ("sync_boost", "Sync Boost", "sync_boost"),
        ("sw_thermal", "SW Thermal Slowdown", "sw_thermal_slowdown"),
        (
            "hw_thermal",
            "HW Slowdown/HW Thermal Slowdown",
            "hw_thermal_slowdown",
        ),
        (
            "hw_power_brake",
            "HW Slowdown/HW Power Brake Slowdown",
            "hw_power_brake_slowdown",
        ),
        (
            "display_clock",
            "Display Clock Setting",
            "display_clocks_setting",
        ),
    ];
    let active = NAMES.iter().filter(|(_, text, tag)| {
        let printed = smi.get(&[
            &format!("Clocks Event Reasons/{text}"),
            &format!("clocks_event_reasons/clocks_event_reason_{tag}"),
            &format!("clocks_throttle_reasons/clocks_throttle_reason_{tag}"),
        ]);
        printed.as_deref() == Some("Active")
    });
    active.map(|(name, _, _)| (*name).to_owned()).collect()
}
