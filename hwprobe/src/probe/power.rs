//! Power draw measured by the node itself: a node-level hwmon meter, else Cray's counters.
//!
//! A BMC measures at the power supplies and is more accurate; this probe is the fallback. Only a meter of the entire
//! node is used for the node's power. An ACPI power meter that names a part (a socket, a module) is a live value of
//! that part, and the meters of devices are ignored. Energy counters of the processors (RAPL) are live values: two
//! readings give the power of the processors, never that of the node.

use super::ProbeResult;
use crate::{Host, Root};
use lattice_conformance::{
    Class, FindingCode, LimitState, Milliwatts, Power, Reading, Value, text,
};

const MONITORS: &str = "/sys/class/hwmon";
const CRAY: &str = "/sys/cray/pm_counters";
const RAPL: &str = "/sys/class/powercap";

/// Words in the description of an ACPI meter that identify a part of the node.
const PART_WORDS: &[&str] = &[
    "socket", "module", "cpu", "gpu", "soc", "sysio", "dram", "core", "psu",
];

/// Reads power draw, power limit and energy counters. The record stays empty.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Cpu);
    let root = &host.root;
    probed.power = meter(root, &mut probed).or_else(|| cray(root));
    cray_vitals(root, &mut probed);
    rapl(root, &mut probed);
    probed
}

/// The node-level meter. With more than one candidate, the result is `None`, with a finding.
fn meter(root: &Root, probed: &mut ProbeResult) -> Option<Power> {
    let mut meters = Vec::new();
    for name in root.list(MONITORS).present().into_iter().flatten() {
        let dir = format!("{MONITORS}/{name}");
        let driver = root.line(format!("{dir}/name"));
        match driver.present().map(String::as_str) {
            Some("power_meter") => acpi_meter(root, &dir, name, &mut meters, probed),
            // OPAL's sensors of the whole machine.
            Some("ibmpowernv") => meters.extend(labelled_sensor(root, &dir, "System")),
            _ => {}
        }
    }
    match meters.as_slice() {
        [] => None,
        [(dir, index)] => Some(read_meter(root, dir, *index)),
        several => {
            probed.add_finding(
                FindingCode::PowerMeterAmbiguous,
                format!("{} meters report power of the whole node", several.len()),
            );
            None
        }
    }
}

/// Adds an ACPI meter. In kernels before 3.15 the attributes are in the device's folder.
fn acpi_meter(
    root: &Root,
    dir: &str,
    name: &str,
    meters: &mut Vec<(String, u32)>,
    probed: &mut ProbeResult,
) {
    let device = format!("{dir}/device");
    let has = |dir: &str| root.exists(format!("{dir}/power1_average"));
    let dir = if !has(dir) && has(&device) {
        &device
    } else {
        dir
    };
    let described = root.line(format!("{dir}/power1_oem_info"));
    let part = described.present().filter(|text| {
        let text = text.to_ascii_lowercase();
        PART_WORDS.iter().any(|part| text.contains(part))
    });
    match part {
        None => meters.push((dir.to_owned(), 1)),
        Some(part) => {
            let part = part.to_ascii_lowercase().replace([' ', '.'], "_");
            let draw = microwatts(root, &format!("{dir}/power1_average"));
            // Named by its description: the number of a monitor depends on the loading order.
            let key = format!("power.meter.{part}");
            let key = if probed.vitals.0.contains_key(&key) {
                format!("{key}.{name}")
            } else {
                key
            };
            probed
                .vitals
                .put(key, draw.map(|draw| Value::amount(draw.0)));
        }
    }
}

/// The sensor with this label.
fn labelled_sensor(root: &Root, dir: &str, label: &str) -> Option<(String, u32)> {
    (1..=64).find_map(|index| {
        let found = root.line(format!("{dir}/power{index}_label"));
        (found.present()? == label).then(|| (dir.to_owned(), index))
    })
}

fn read_meter(root: &Root, dir: &str, index: u32) -> Power {
    let file = |name: &str| format!("{dir}/power{index}_{name}");
    let mut draw = microwatts(root, &file("average"));
    if draw == Reading::Absent {
        draw = microwatts(root, &file("input"));
    }
    let cap = microwatts(root, &file("cap"));
    let limit_max = microwatts(root, &file("cap_max"));
    let (limit, limit_state) = limit_and_state(cap, &limit_max);
    let name = root.line(format!("{dir}/name"));
    Power {
        draw: nonzero_draw(draw),
        limit,
        limit_state,
        limit_min: microwatts(root, &file("cap_min")),
        limit_max,
        exception_action: Reading::Unsupported,
        source: format!(
            "hwmon/{}",
            name.present().map_or("power_meter", String::as_str)
        ),
    }
}

/// Reads a power value; hwmon counts in microwatts.
fn microwatts(root: &Root, path: &str) -> Reading<Milliwatts> {
    root.line(path)
        .and_then(|raw| text::unsigned(&raw))
        .map(|micro| Milliwatts(micro / 1000))
}

/// Maps 0 to unsupported: a running node always draws power, so 0 means that the meter does not measure.
fn nonzero_draw(draw: Reading<Milliwatts>) -> Reading<Milliwatts> {
    match draw {
        Reading::Present(Milliwatts(0)) => Reading::Unsupported,
        other => other,
    }
}

/// Power limit and its state: absent without the file; uncapped at 0 and at the highest limit that can be set.
fn limit_and_state(
    cap: Reading<Milliwatts>,
    most: &Reading<Milliwatts>,
) -> (Reading<Milliwatts>, LimitState) {
    match cap {
        Reading::Absent | Reading::Unsupported => (Reading::Absent, LimitState::Absent),
        Reading::Present(Milliwatts(0)) => (Reading::Absent, LimitState::Uncapped),
        Reading::Present(cap)
            if most
                .present()
                .is_some_and(|most| most.0 > 0 && cap >= *most) =>
        {
            (Reading::Absent, LimitState::Uncapped)
        }
        Reading::Present(cap) => (Reading::Present(cap), LimitState::Set),
        unknown => (unknown, LimitState::Unknown),
    }
}

/// Cray's counters of the node. A limit of 0 W means no limit.
fn cray(root: &Root) -> Option<Power> {
    let draw = counter(root, "power", "W");
    if draw == Reading::Absent {
        return None;
    }
    let watts = |reading: Reading<u64>| reading.map(|watts| Milliwatts(watts.saturating_mul(1000)));
    let cap = watts(counter(root, "power_cap", "W"));
    let (limit, limit_state) = limit_and_state(cap, &Reading::Absent);
    Some(Power {
        draw: nonzero_draw(watts(draw)),
        limit,
        limit_state,
        limit_min: Reading::Unsupported,
        limit_max: Reading::Unsupported,
        exception_action: Reading::Unsupported,
        source: "cray/pm_counters".to_owned(),
    })
}

/// Parses `467 W 1674849124134466 us`: a value, its unit, and the time of measurement.
fn counter(root: &Root, file: &str, unit: &str) -> Reading<u64> {
    let line = root.line(format!("{CRAY}/{file}"));
    line.and_then(|line| {
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some(value), Some(found)) if found == unit => text::unsigned(value),
            _ => Reading::failed(format!(
                "{file}: \"{line}\" is not a valid amount of {unit}"
            )),
        }
    })
}

/// Power of the parts of the node in milliwatts, and energy of the node and its parts in joules.
fn cray_vitals(root: &Root, probed: &mut ProbeResult) {
    for file in root.list(CRAY).present().into_iter().flatten() {
        let vitals = &mut probed.vitals;
        if let Some(part) = file.strip_suffix("_power") {
            let draw = counter(root, file, "W");
            let draw = draw.map(|watts| Value::amount(watts.saturating_mul(1000)));
            vitals.put(format!("power.cray.{part}"), draw);
        } else if file == "energy" || file.ends_with("_energy") {
            let joules = counter(root, file, "J").map(Value::amount);
            vitals.put(format!("power.cray.{file}_j"), joules);
        }
    }
}

/// Energy counters, and the limits set by the operating system, by zone: `package-0`, `package-0.dram`.
fn rapl(root: &Root, probed: &mut ProbeResult) {
    for zone in root.list(RAPL).present().into_iter().flatten() {
        let Some(name) = zone_name(root, zone) else {
            continue;
        };
        let number = |file: &str| {
            let line = root.line(format!("{RAPL}/{zone}/{file}"));
            line.and_then(|raw| text::unsigned(&raw)).map(Value::amount)
        };
        let key = |value: &str| format!("power.rapl.{name}.{value}");
        probed.vitals.put(key("energy_uj"), number("energy_uj"));
        // The value at which the counter wraps around.
        probed
            .vitals
            .put(key("energy_range_uj"), number("max_energy_range_uj"));
        for index in 0..3 {
            let limit = root.line(format!("{RAPL}/{zone}/constraint_{index}_name"));
            if let Reading::Present(limit) = limit {
                let value = number(&format!("constraint_{index}_power_limit_uw"));
                probed.vitals.put(key(&format!("limit_uw.{limit}")), value);
            }
        }
    }
}

/// The zone's name with its parents' names in front. `None` for control types, and for the second view of the same
/// counters through memory-mapped registers.
fn zone_name(root: &Root, zone: &str) -> Option<String> {
    let (kind, numbers) = zone.split_once(':')?;
    if kind.ends_with("-mmio") {
        return None;
    }
    let mut names = Vec::new();
    let mut path = kind.to_owned();
    for number in numbers.split(':') {
        path = format!("{path}:{number}");
        let name = root.line(format!("{RAPL}/{path}/name"));
        names.push(name.present()?.replace('.', "_"));
    }
    Some(names.join("."))
}
