//! GPUs: what the driver says, checked against what the bus says.

use super::Probed;
use crate::child::{self, DeviceReport, GpuReport};
use crate::pci::{self, Function};
use crate::{Class, ClassRecord, GpuIdentity, Host, NvmlSource, Reading, Root, Value, text};
use std::collections::BTreeSet;

/// Values without which a GPU cannot be compared.
const REQUIRED: &[&str] = &["model", "memory", "vbios"];

/// Driver parameters that count, from `/proc/driver/nvidia/params`.
const PARAMETERS: &[&str] = &[
    "EnableGpuFirmware",
    "EnableMSI",
    "EnablePCIeGen3",
    "EnableResizableBar",
    "EnableStreamMemOPs",
    "GrdmaPciTopoCheckOverride",
    "NvLinkDisable",
    "OpenRmEnableUnsupportedGpus",
    "PreserveVideoMemoryAllocations",
    "RegistryDwords",
    "ResmanDebugLevel",
];

/// Driver and bus.
#[must_use]
pub fn probe(host: &Host) -> Probed {
    let mut probed = Probed::new(Class::Gpu);
    if host.nvml == NvmlSource::Disabled {
        probed.record = ClassRecord::disabled(Class::Gpu, "GPU driver queries are switched off");
        return probed;
    }
    let root = &host.root;
    let functions = pci::functions(root);
    let on_bus = functions.as_ref().map(|functions| {
        let gpus = functions.iter();
        let gpus = gpus.filter(|f| f.is_vendor(pci::NVIDIA) && f.is_gpu() && !f.is_virtual(root));
        gpus.cloned().collect::<Vec<Function>>()
    });
    let report = judge(child::ask(&host.nvml, &host.outstanding), &on_bus);
    driver_keys(root, &report, &mut probed.record);
    amd_keys(root, &functions, &mut probed.record);
    let devices = report.and_then(|report| report.devices).map(sort_devices);
    device_keys(root, &devices, &on_bus, &mut probed);
    probed
}

/// A missing library means "no GPU" only where the bus agrees.
fn judge(report: Reading<GpuReport>, on_bus: &Reading<Vec<Function>>) -> Reading<GpuReport> {
    let report = match report {
        Reading::Present(report) => report,
        other => return other,
    };
    let count = on_bus.present().map_or(0, Vec::len);
    match (&report.library, count) {
        (Reading::Present(_), _) => Reading::Present(report),
        (Reading::Absent, 0) if on_bus.is_known() => Reading::Present(report),
        (Reading::Absent, 0) => Reading::failed("no driver library, and the bus cannot be read"),
        // The driver's library without any device: nothing to drive.
        (Reading::Failed { .. }, 0) if matches!(on_bus, Reading::Present(_)) => {
            Reading::Present(GpuReport::none(Reading::Absent))
        }
        (Reading::Absent, count) => Reading::failed(format!(
            "{count} NVIDIA devices on the bus and no driver library"
        )),
        (other, _) => other.clone().and_then(|_| Reading::Absent),
    }
}

fn driver_keys(root: &Root, report: &Reading<GpuReport>, record: &mut ClassRecord) {
    let said = |of: fn(&GpuReport) -> &Reading<Value>| {
        report.as_ref().and_then(|report| of(report).clone())
    };
    record.require("gpu.driver", said(|report| &report.driver));
    record.put("gpu.nvml", said(|report| &report.nvml));
    record.put("gpu.cuda", said(|report| &report.cuda));
    record.put(
        "gpu.driver_flavour",
        root.text("/proc/driver/nvidia/version")
            .map(|text| Value::from(flavour(&text))),
    );
    record.put(
        "gpu.module_version",
        root.line("/sys/module/nvidia/version"),
    );
    let parameters = root.text("/proc/driver/nvidia/params");
    for name in PARAMETERS {
        // Without the file there are no parameters to be without.
        if let Reading::Present(text) = &parameters {
            record.put(format!("gpu.parameter.{name}"), parameter(text, name));
        }
    }
}

/// Whether the kernel module is the open or the proprietary one.
#[must_use]
pub fn flavour(version: &str) -> &'static str {
    if version.contains("Open Kernel Module") {
        "open"
    } else {
        "proprietary"
    }
}

/// One line `Name: value` of the driver's parameters.
#[must_use]
pub fn parameter(params: &str, name: &str) -> Reading<Value> {
    let line = params
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    match line {
        Some(value) => text::plain(value.trim().trim_matches('"')).map(text::number_or_text),
        None => Reading::Absent,
    }
}

/// By PCI address; devices that do not say theirs come last, in the driver's order.
fn sort_devices(mut devices: Vec<DeviceReport>) -> Vec<DeviceReport> {
    devices.sort_by_key(|device| {
        let rank = device.address.present().and_then(|a| pci::rank(a));
        (rank.is_none(), rank)
    });
    devices
}

fn device_keys(
    root: &Root,
    devices: &Reading<Vec<DeviceReport>>,
    on_bus: &Reading<Vec<Function>>,
    probed: &mut Probed,
) {
    let count = devices
        .as_ref()
        .and_then(|devices| match u32::try_from(devices.len()) {
            // A driver without devices and no devices on the bus: there are none.
            Ok(0) => Reading::Absent,
            Ok(count) => Reading::Present(count),
            Err(error) => Reading::failed(error.to_string()),
        });
    probed.record.require("gpu.count", count.clone());
    probed.facts.gpu_count = count.clone();
    probed.identity.gpu_count = count.clone();
    for (slot, device) in devices.present().into_iter().flatten().enumerate() {
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        describe(root, slot, device, probed);
    }
    cross_check(&count, on_bus, probed);
    summarise(devices, probed);
}

fn describe(root: &Root, slot: u32, device: &DeviceReport, probed: &mut Probed) {
    for (name, reading) in &device.values {
        let key = format!("gpu.{slot}.{name}");
        if REQUIRED.contains(&name.as_str()) {
            probed.record.require(key, reading.clone());
        } else {
            probed.record.put(key, reading.clone());
        }
    }
    for name in REQUIRED {
        if !device.values.contains_key(*name) {
            let missing = Reading::<Value>::failed("not in the driver's report");
            probed.record.require(format!("gpu.{slot}.{name}"), missing);
        }
    }
    if let Reading::Present(address) = &device.address {
        let function = Function {
            address: address.clone(),
            class: Reading::Absent,
            vendor: Reading::Absent,
        };
        probed.record.put(
            format!("gpu.{slot}.numa_node"),
            pci::numa_node(root, &function),
        );
    }
    if !device.pending.is_empty() {
        let modes = device.pending.join(", ");
        probed.find(
            "gpu_mode_pending",
            format!("gpu {slot}: {modes} after reset"),
        );
    }
    probed.identity.gpus.push(GpuIdentity {
        slot,
        address: device.address.clone(),
        model: model(device),
        uuid: device.uuid.clone(),
        serial: device.serial.clone(),
    });
}

fn model(device: &DeviceReport) -> Reading<String> {
    match device.values.get("model") {
        Some(reading) => reading.clone().map(|value| value.to_string()),
        None => Reading::failed("not in the driver's report"),
    }
}

/// A GPU that fell off the bus, or that the driver does not take, is a finding.
fn cross_check(count: &Reading<u32>, on_bus: &Reading<Vec<Function>>, probed: &mut Probed) {
    let bus_count = on_bus
        .as_ref()
        .map(|gpus| u32::try_from(gpus.len()).unwrap_or(u32::MAX));
    probed.record.put("gpu.bus_count", bus_count.clone());
    let driver_count = match count {
        Reading::Present(count) => *count,
        Reading::Absent => 0,
        _ => return,
    };
    if let Reading::Present(bus_count) = bus_count
        && bus_count != driver_count
    {
        probed.find(
            "gpu_count_mismatch",
            format!("the bus has {bus_count} NVIDIA GPUs, the driver {driver_count}"),
        );
    }
    if let (Some(Reading::Present(driver)), Some(Reading::Present(module))) = (
        probed.record.entries.get("gpu.driver").cloned(),
        probed.record.entries.get("gpu.module_version").cloned(),
    ) && driver != module
    {
        probed.find(
            "gpu_driver_mismatch",
            format!("the library speaks to driver {driver}, the loaded module is {module}"),
        );
    }
}

/// The facts and the cohort's model.
fn summarise(devices: &Reading<Vec<DeviceReport>>, probed: &mut Probed) {
    let models = devices.as_ref().and_then(|devices| {
        let mut models = BTreeSet::new();
        for device in devices {
            match model(device) {
                Reading::Present(model) => models.insert(model),
                unknown => return unknown.map(|_| BTreeSet::new()),
            };
        }
        Reading::Present(models)
    });
    let joined = models.and_then(|models| match models.len() {
        0 => Reading::Absent,
        _ => Reading::Present(models.into_iter().collect::<Vec<_>>().join(" + ")),
    });
    probed.identity.gpu_model = joined.clone();
    probed.facts.gpu_model = joined;
    probed.facts.gpu_memory_bytes = devices.as_ref().and_then(|devices| {
        let memories = devices.iter().map(|device| device.values.get("memory"));
        let mut smallest = Reading::Absent;
        for memory in memories {
            match memory {
                Some(Reading::Present(Value::Number(bytes))) => {
                    let bytes = u64::try_from(*bytes).unwrap_or(0);
                    smallest = match smallest {
                        Reading::Present(least) => Reading::Present(bytes.min(least)),
                        _ => Reading::Present(bytes),
                    };
                }
                Some(unknown) => return unknown.clone().and_then(|_| Reading::Unsupported),
                None => return Reading::failed("not in the driver's report"),
            }
        }
        smallest
    });
    let has_nvlink = |device: &DeviceReport| {
        matches!(
            device.values.get("nvlink.links"),
            Some(Reading::Present(Value::Number(1..)))
        )
    };
    if devices.present().is_some_and(|d| d.iter().any(has_nvlink)) {
        probed.facts.features.insert("nvlink".to_owned());
    }
}

/// AMD GPUs as sysfs describes them.
fn amd_keys(root: &Root, functions: &Reading<Vec<Function>>, record: &mut ClassRecord) {
    let gpus = functions.as_ref().map(|functions| {
        let is_gpu = |f: &&Function| {
            f.is_vendor(pci::AMD) && (f.is_gpu() || f.is_class("0380") || f.is_class("1200"))
        };
        functions.iter().filter(is_gpu).cloned().collect::<Vec<_>>()
    });
    record.put(
        "gpu.amd.count",
        gpus.as_ref()
            .map(|gpus| u32::try_from(gpus.len()).unwrap_or(u32::MAX)),
    );
    for (slot, gpu) in gpus.present().into_iter().flatten().enumerate() {
        let key = |name: &str| format!("gpu.amd.{slot}.{name}");
        record.put(key("pci_id"), pci::id(root, gpu));
        record.put(key("vbios"), root.firmware(gpu.path("vbios_version")));
        record.put(
            key("memory"),
            root.line(gpu.path("mem_info_vram_total"))
                .map(text::number_or_text),
        );
    }
}
