//! AMD GPUs, as described by sysfs.
//!
//! The unique id and serial number are identity. `pp_*` files and counters are vitals, or not read.

mod bus;

use crate::Root;
use crate::pci::{self, Function, Switches};
use bus::{DRIVER, DriverState, Gpu};
use lattice_conformance::{ClassRecord, GpuIdentity, ProbeResult, Reading, Value, text};
use std::collections::{BTreeMap, BTreeSet};

/// Subfolder of the device: one file per firmware, named `<block>_fw_version`.
const FIRMWARE: &str = "fw_version";
/// Subfolder of the device: one file per unit that counts errors, named `<unit>_err_count`. The kernel's documentation,
/// "AMDGPU RAS sysfs Error Count Interface", defines `ue: 0`, `ce: 1`, and `de` for memory.
const RAS: &str = "ras";
/// Units with errors that are reported as memory errors.
const MEMORY_ERROR_BLOCKS: [&str; 3] = ["umc", "sdma", "gfx"];
/// Maximum number of units; the kernel defines about 20.
const MOST_RAS_BLOCKS: usize = 64;

/// Fills the AMD keys and returns the GPUs by slot.
pub(super) fn describe(
    root: &Root,
    functions: &Reading<Vec<Function>>,
    switches: &Switches,
    probed: &mut ProbeResult,
) -> Reading<Vec<Gpu>> {
    let gpus = bus::on_bus(root, functions);
    let count = gpus.as_ref().and_then(|gpus| bus::count(root, gpus));
    probed.record.require("gpu.amd.count", count.clone());
    for (slot, gpu) in gpus.present().into_iter().flatten().enumerate() {
        keys(root, slot, gpu, switches, &mut probed.record);
        vitals(root, slot, &gpu.function, probed);
    }
    let known = gpus.present().map_or(&[][..], Vec::as_slice);
    if !known.is_empty() {
        let version = root.line(format!("/sys/module/{DRIVER}/version"));
        probed.record.put("gpu.amd.module_version", version);
    }
    if count.is_known() {
        bus::cross_check(known, probed);
    }
    gpus
}

fn keys(root: &Root, slot: usize, gpu: &Gpu, switches: &Switches, record: &mut ClassRecord) {
    let key = |name: &str| format!("gpu.amd.{slot}.{name}");
    let Gpu {
        function: gpu,
        driver_state: drive,
    } = gpu;
    record.require(key("pci_id"), pci::id(root, gpu));
    record.put(key("subsystem"), pci::subsystem(root, gpu));
    // The driver creates these files: without a driver they are missing although the values exist.
    let (vbios, memory) = match drive {
        DriverState::Missing => (Reading::failed("no driver"), Reading::failed("no driver")),
        DriverState::Bound | DriverState::OtherDriver | DriverState::DisplayOnly => {
            (root.firmware(gpu.path("vbios_version")), memory(root, gpu))
        }
    };
    record.require(key("vbios"), vbios);
    record.require(key("memory"), memory);
    for (name, file) in [
        ("compute_partition", "current_compute_partition"),
        ("memory_partition", "current_memory_partition"),
        ("max_link_width", "max_link_width"),
    ] {
        let value = root.line(gpu.path(file)).map(text::number_or_text);
        record.put(key(name), value);
    }
    let speed = root.line(gpu.path("max_link_speed"));
    record.put(
        key("max_link_speed"),
        speed.and_then(|raw| pci::link_speed(&raw)),
    );
    record.put(key("numa_node"), pci::numa_node(root, gpu));
    record.put(
        key("pci_switch"),
        switches.nearest_switch_rank(root, &gpu.address),
    );
    let folder = gpu.path(FIRMWARE);
    for file in root.list(&folder).present().into_iter().flatten() {
        let block = file.strip_suffix("_fw_version").unwrap_or(file);
        let version = root.firmware(format!("{folder}/{file}"));
        record.require_if_failed(
            key(&format!("firmware.{block}")),
            version.and_then(unless_zero),
        );
    }
}

fn memory(root: &Root, gpu: &Function) -> Reading<Value> {
    root.line(gpu.path("mem_info_vram_total"))
        .map(text::number_or_text)
}

/// The kernel reports zero for firmware that this chip does not have.
fn unless_zero(version: String) -> Reading<String> {
    let digits = version.trim_start_matches("0x");
    if digits.bytes().all(|digit| digit == b'0') {
        Reading::Unsupported
    } else {
        Reading::Present(version)
    }
}

fn vitals(root: &Root, slot: usize, gpu: &Function, probed: &mut ProbeResult) {
    let vitals = &mut probed.vitals;
    let key = |name: &str| format!("gpu.amd.{slot}.{name}");
    let number = |file: &str| {
        root.line(gpu.path(file))
            .and_then(|raw| text::unsigned(&raw))
    };
    vitals.put(
        key("utilization.gpu"),
        number("gpu_busy_percent").map(Value::amount),
    );
    vitals.put(
        key("memory.used"),
        number("mem_info_vram_used").map(Value::amount),
    );
    vitals.put(
        key("pcie.width"),
        number("current_link_width").map(Value::amount),
    );
    vitals.put(
        key("pcie.replays"),
        number("pcie_replay_count").map(Value::amount),
    );
    let listed = errors(root, gpu);
    let none = BTreeMap::new();
    let errors = listed.present().unwrap_or(&none);
    for (block, counts) in errors {
        for (name, count) in ERRORS.iter().zip(counts) {
            let count = count.clone().map(Value::amount);
            vitals.put(key(&format!("ras.{block}.{}", name.0)), count);
        }
    }
    for (name, kind) in [("uncorrected", 0), ("corrected", 1)] {
        let of_memory = errors.iter();
        let of_memory =
            of_memory.filter(|(block, _)| MEMORY_ERROR_BLOCKS.contains(&block.as_str()));
        let sum = sum(of_memory.map(|(_, counts)| counts[kind].clone()));
        // If the list of counting units is unknown, the sum is unknown too.
        let sum = listed.as_ref().and_then(|_| sum);
        vitals.put(key(&format!("ecc.{name}.volatile")), sum.map(Value::amount));
    }
    let folder = gpu.path("hwmon");
    let monitors = root.list(&folder);
    let Some(monitor) = monitors.present().and_then(|names| names.first()) else {
        return;
    };
    let sensor = |file: &str, unit: u64| {
        let value = root.line(format!("{folder}/{monitor}/{file}"));
        let value = value.and_then(|raw| text::unsigned(&raw));
        value.map(|raw| Value::amount(raw / unit))
    };
    // The kernel counts in millidegrees and microwatts.
    vitals.put(key("temperature"), sensor("temp1_input", 1000));
    vitals.put(
        key("temperature_limit.shutdown"),
        sensor("temp1_emergency", 1000),
    );
    vitals.put(key("power.draw"), sensor("power1_average", 1000));
    vitals.put(key("power.limit"), sensor("power1_cap", 1000));
}

/// Kinds of errors: the key, and the kernel's name.
const ERRORS: [(&str, &str); 3] = [
    ("uncorrectable", "ue"),
    ("correctable", "ce"),
    ("deferred", "de"),
];

/// Error counts of each unit, in the order of [`ERRORS`].
fn errors(root: &Root, gpu: &Function) -> Reading<BTreeMap<String, [Reading<u64>; 3]>> {
    let folder = gpu.path(RAS);
    root.list(&folder).map(|files| {
        let blocks = files.iter().filter_map(|file| {
            let block = file.strip_suffix("_err_count")?;
            let text = root.text(format!("{folder}/{file}"));
            let counts =
                ERRORS.map(|(_, kind)| text.as_ref().and_then(|text| error_count(text, kind)));
            Some((block.to_owned(), counts))
        });
        blocks.take(MOST_RAS_BLOCKS).collect()
    })
}

/// The count of one kind in the text of one unit.
fn error_count(text: &str, kind: &str) -> Reading<u64> {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix(kind)?.strip_prefix(':'));
    match count {
        Some(count) => text::unsigned(count),
        // During a GPU reset the file contains this message instead.
        None if text.contains("inaccessible") => Reading::failed(text::excerpt(text)),
        None => Reading::Unsupported,
    }
}

/// The sum over all counting units; if one count is unknown, so is the sum.
fn sum(counts: impl Iterator<Item = Reading<u64>>) -> Reading<u64> {
    counts.fold(Reading::Absent, |sum, count| match (sum, count) {
        (Reading::Present(sum), Reading::Present(count)) => {
            Reading::Present(sum.saturating_add(count))
        }
        (Reading::Absent | Reading::Unsupported, other) => other,
        (sum, Reading::Absent | Reading::Unsupported) => sum,
        (Reading::Present(_), unknown) => unknown,
        (unknown, _) => unknown,
    })
}

/// Fills identity and GPU resources of a node without GPUs of another vendor. Only GPUs with the driver bound are
/// counted; every GPU except [`DriverState::DisplayOnly`] gets an identity.
pub(super) fn fill_node_values(root: &Root, gpus: &[Gpu], probed: &mut ProbeResult) {
    let mut driven = Vec::new();
    for (
        slot,
        Gpu {
            function,
            driver_state: drive,
        },
    ) in gpus.iter().enumerate()
    {
        let model = model(root, function);
        match drive {
            DriverState::DisplayOnly => continue,
            DriverState::Bound => driven.push((function, model.clone())),
            DriverState::Missing | DriverState::OtherDriver => {}
        }
        probed.identity.gpus.push(GpuIdentity {
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
            address: Reading::Present(function.address.clone()),
            model,
            uuid: root.firmware(function.path("unique_id")),
            serial: root.firmware(function.path("serial_number")),
        });
    }
    let known = probed.record.get("gpu.amd.count");
    // Absent without a usable GPU, as for an NVIDIA driver without devices.
    let known = known.and_then(|_| driven.first().map_or(Reading::Absent, Reading::Present));
    let known = known.map(|_| ());
    let count = u32::try_from(driven.len()).unwrap_or(u32::MAX);
    let count = known.clone().map(|()| count);
    let memory = driven.iter().map(|(gpu, _)| {
        root.line(gpu.path("mem_info_vram_total"))
            .and_then(|raw| text::unsigned(&raw))
    });
    let smallest = memory.reduce(|one, other| match (one, other) {
        (Reading::Present(one), Reading::Present(other)) => Reading::Present(one.min(other)),
        (Reading::Present(_), unknown) | (unknown, _) => unknown,
    });
    probed.resources.gpu_memory_bytes = known
        .clone()
        .and_then(|()| smallest.unwrap_or(Reading::Absent));
    let models: BTreeSet<Reading<String>> = driven.into_iter().map(|(_, model)| model).collect();
    let joined = models
        .into_iter()
        .reduce(|one, other| one.and_then(|one| other.map(|other| format!("{one} + {other}"))));
    let model = known.and_then(|()| joined.unwrap_or(Reading::Absent));
    probed.resources.gpu_model = model.clone();
    probed.identity.gpu_model = model;
    probed.resources.gpu_count = count.clone();
    probed.identity.gpu_count = count;
}

/// Product name of the board, or its PCI id without one.
fn model(root: &Root, gpu: &Function) -> Reading<String> {
    match root.firmware(gpu.path("product_name")) {
        Reading::Present(name) => Reading::Present(name),
        _ => pci::id(root, gpu).map(|id| format!("AMD {id}")),
    }
}
