//! GPUs: the driver's report, checked against the bus.
//!
//! NVIDIA GPUs are queried through their driver in a child process; AMD GPUs are read from sysfs. Values that equal
//! nodes share go into the record, counters and states into the vitals, and the connections of devices into the
//! topology.

mod amd;
mod driver;
mod fabric_manager;
mod gpu_topology;

pub use driver::{flavour, parameter};

use super::{ProbeResult, nic};
use crate::gpu_driver::{self, DeviceReport, GpuReport};
use crate::pci::{self, Function, Switches};
use crate::{Host, NvmlSource, Root};
use gpu_topology::BusDevice;
use lattice_conformance::{Class, ClassRecord, FindingCode, GpuIdentity, Reading, Value};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Values without which a GPU cannot be compared.
const REQUIRED: &[&str] = &["model", "memory", "vbios"];

/// Drivers with which the node itself uses NVIDIA GPUs: NVIDIA's driver, and the kernel's own, which binds the GPUs if
/// NVIDIA's driver is not installed.
const DRIVERS: &[&str] = &["nvidia", "nouveau"];

/// Reads the driver's report and the bus.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Gpu);
    if host.nvml == NvmlSource::Disabled {
        probed.record = ClassRecord::disabled(Class::Gpu, "GPU driver queries are disabled");
        return probed;
    }
    let root = &host.root;
    let functions = pci::functions(root);
    let switches = Switches::of(root, &functions);
    let on_bus = functions.as_ref().map(|functions| {
        let gpus = functions.iter();
        let gpus = gpus.filter(|f| f.is_vendor(pci::NVIDIA) && f.is_gpu() && !f.is_virtual(root));
        gpus.cloned().collect::<Vec<Function>>()
    });
    let bus_count = on_bus.as_ref().map(|gpus| gpus.len());
    let on_bus = on_bus.map(|mut gpus| {
        gpus.retain(|gpu| !has_other_driver(root, gpu, DRIVERS));
        gpus
    });
    let report = reconcile_with_bus(
        gpu_driver::query_driver(&host.nvml, &host.outstanding),
        &on_bus,
    );
    driver::keys(root, &report, &mut probed.record);
    let fabric_manager = fabric_manager::state(root, &functions, &on_bus);
    probed.vitals.put("gpu.fabric_manager", fabric_manager);
    let ancestors = report.present().map(|report| report.ancestors.clone());
    let devices = report.and_then(|report| report.devices);
    let devices = devices.map(|devices| in_bus_order(devices, &on_bus));
    let order: Vec<usize> = devices
        .present()
        .into_iter()
        .flatten()
        .map(|d| d.0)
        .collect();
    let devices = devices.map(|devices| devices.into_iter().map(|(_, device)| device).collect());
    let bus_count = bus_count.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    probed.record.put("gpu.bus_count", bus_count);
    device_keys(root, &devices, &on_bus, &switches, &mut probed);
    let devices = devices.present().map_or(&[][..], Vec::as_slice);
    let mut gpus = Vec::new();
    for (slot, device) in devices.iter().enumerate() {
        gpus.push(BusDevice::new(root, format!("gpu.{slot}"), &device.address));
    }
    let amd = amd::describe(root, &functions, &switches, &mut probed);
    let amd = amd.present().map_or(&[][..], Vec::as_slice);
    if probed.resources.gpu_count == Reading::Absent && !amd.is_empty() {
        amd::fill_node_values(root, amd, &mut probed);
    }
    for (slot, gpu) in amd.iter().enumerate() {
        let address = Reading::Present(gpu.function.address.clone());
        gpus.push(BusDevice::new(root, format!("gpu.amd.{slot}"), &address));
    }
    let ancestors = gpu_topology::by_slot(&ancestors.unwrap_or_default(), &order);
    let nics = nics(root);
    gpu_topology::pairs(root, &gpus, &nics, &ancestors, &mut probed);
    gpu_topology::nvlinks(devices, &functions, &mut probed);
    gpu_topology::fabric(devices, &mut probed);
    gpu_topology::push_places(devices, &mut probed);
    probed
}

/// The NICs with a PCI address, by the slots that the NIC probe assigns.
fn nics(root: &Root) -> Vec<BusDevice> {
    let functions = nic::functions(root).into_iter().enumerate();
    let places = functions.map(|(slot, function)| {
        let address = Reading::Present(function.address);
        BusDevice::new(root, format!("nic.{slot}"), &address)
    });
    places.collect()
}

/// A missing library means "no GPU" only if the bus agrees.
fn reconcile_with_bus(
    report: Reading<GpuReport>,
    on_bus: &Reading<Vec<Function>>,
) -> Reading<GpuReport> {
    let report = match report {
        Reading::Present(report) => report,
        other => return other,
    };
    let count = on_bus.present().map_or(0, Vec::len);
    match (&report.library, count) {
        (Reading::Present(_), _) => Reading::Present(report),
        (Reading::Absent, 0) if on_bus.is_known() => Reading::Present(report),
        (Reading::Absent, 0) => Reading::failed("no driver library, and the bus cannot be read"),
        // The library fails, and the bus has no GPU that it could serve.
        (Reading::Failed { .. }, 0) if matches!(on_bus, Reading::Present(_)) => {
            Reading::Present(GpuReport::none(Reading::Absent))
        }
        (Reading::Absent, count) => Reading::failed(format!(
            "{count} NVIDIA devices on the bus and no driver library"
        )),
        (other, _) => other.clone().and_then(|_| Reading::Absent),
    }
}

/// Sorts the devices by PCI address, each with its index in the driver's order. A lost device may no longer report its
/// address. If exactly one device has no address and exactly one GPU on the bus is unreported, the device gets the
/// address of that GPU; otherwise devices without an address come last.
fn in_bus_order(
    mut devices: Vec<DeviceReport>,
    on_bus: &Reading<Vec<Function>>,
) -> Vec<(usize, DeviceReport)> {
    let functions = on_bus.present().map_or(&[][..], Vec::as_slice);
    let missing: Vec<String> = unreported_addresses(&devices, functions);
    let mut silent = devices
        .iter_mut()
        .filter(|device| device.address.present().is_none());
    if let (Some(device), None, [address]) = (silent.next(), silent.next(), missing.as_slice()) {
        device.address = Reading::Present(address.clone());
    }
    let mut devices: Vec<(usize, DeviceReport)> = devices.into_iter().enumerate().collect();
    devices.sort_by_key(|(_, device)| {
        let rank = device
            .address
            .present()
            .and_then(|a| pci::address_sort_key(a));
        (rank.is_none(), rank)
    });
    devices
}

/// Addresses of the GPUs on the bus that are missing from the driver's report.
fn unreported_addresses(devices: &[DeviceReport], functions: &[Function]) -> Vec<String> {
    let is_claimed = |function: &&Function| {
        let mut addresses = devices.iter().filter_map(|device| device.address.present());
        addresses.any(|address| *address == function.address)
    };
    let free = functions.iter().filter(|function| !is_claimed(function));
    free.map(|function| function.address.clone()).collect()
}

fn device_keys(
    root: &Root,
    devices: &Reading<Vec<DeviceReport>>,
    on_bus: &Reading<Vec<Function>>,
    switches: &Switches,
    probed: &mut ProbeResult,
) {
    let count = devices
        .as_ref()
        .and_then(|devices| match u32::try_from(devices.len()) {
            // The driver reports no devices: no usable GPUs. `cross_check` reports any GPUs on the bus as a mismatch.
            Ok(0) => Reading::Absent,
            Ok(count) => Reading::Present(count),
            Err(error) => Reading::failed(error.to_string()),
        });
    probed.record.require("gpu.count", count.clone());
    probed.resources.gpu_count = count.clone();
    probed.identity.gpu_count = count.clone();
    for (slot, device) in devices.present().into_iter().flatten().enumerate() {
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        describe(root, slot, device, switches, probed);
    }
    cross_check(&count, devices, on_bus, probed);
    summarise(devices, probed);
}

fn describe(
    root: &Root,
    slot: u32,
    device: &DeviceReport,
    switches: &Switches,
    probed: &mut ProbeResult,
) {
    for (name, reading) in &device.values {
        let key = format!("gpu.{slot}.{name}");
        if REQUIRED.contains(&name.as_str()) {
            probed.record.require(key, reading.clone());
        } else {
            probed.record.put(key, reading.clone());
        }
    }
    for (name, reading) in &device.vitals {
        probed
            .vitals
            .put(format!("gpu.{slot}.{name}"), reading.clone());
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
        probed.record.put(
            format!("gpu.{slot}.pci_switch"),
            switches.nearest_switch_rank(root, address),
        );
    }
    if !device.pending.is_empty() {
        let modes = device.pending.join(", ");
        probed.add_finding(
            FindingCode::GpuModePending,
            format!("gpu {slot}: pending until the next reset: {modes}"),
        );
    }
    if device.lost {
        let at = &device.address;
        let what = format!("gpu {slot} ({at}) is listed by the driver and does not answer");
        probed.add_finding(FindingCode::GpuLost, what);
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

/// Reports findings: different numbers of GPUs on the bus and in the driver, and different versions of the driver's
/// library and kernel module.
fn cross_check(
    count: &Reading<u32>,
    devices: &Reading<Vec<DeviceReport>>,
    on_bus: &Reading<Vec<Function>>,
    probed: &mut ProbeResult,
) {
    let bus_count = on_bus
        .as_ref()
        .map(|gpus| u32::try_from(gpus.len()).unwrap_or(u32::MAX));
    let driver_count = match count {
        Reading::Present(count) => *count,
        Reading::Absent => 0,
        _ => return,
    };
    if let Reading::Present(bus_count) = bus_count
        && bus_count != driver_count
    {
        let devices = devices.present().map_or(&[][..], Vec::as_slice);
        let functions = on_bus.present().map_or(&[][..], Vec::as_slice);
        let missing = match bus_count > driver_count {
            true => unreported_addresses(devices, functions),
            false => Vec::new(),
        };
        let what = count_mismatch_text("NVIDIA", bus_count, driver_count, &missing);
        probed.add_finding(FindingCode::GpuCountMismatch, what);
    }
    if let (Some(Reading::Present(driver)), Some(Reading::Present(module))) = (
        probed.record.entries.get("gpu.driver").cloned(),
        probed.record.entries.get("gpu.module_version").cloned(),
    ) && driver != module
    {
        probed.add_finding(
            FindingCode::GpuDriverMismatch,
            format!(
                "NVML is from driver {driver}, the loaded kernel module from {module}; reload the \
                 module or reboot"
            ),
        );
    }
}

/// Whether a driver other than `drivers` is bound, such as `vfio-pci` for passthrough to a virtual machine.
fn has_other_driver(root: &Root, gpu: &Function, drivers: &[&str]) -> bool {
    let bound = pci::driver(root, gpu);
    bound
        .present()
        .is_some_and(|bound| !drivers.contains(&bound.as_str()))
}

/// Detail text for a mismatch between bus and driver, for any vendor.
fn count_mismatch_text(
    vendor: &str,
    on_bus: impl Display,
    driven: impl Display,
    missing: &[String],
) -> String {
    let what = format!("the bus has {on_bus} {vendor} GPUs, the driver {driven}");
    match missing {
        [] => what,
        missing => format!("{what}: not driven: {}", missing.join(", ")),
    }
}

/// Sets the GPU model in the identity and the node resources, and the smallest GPU memory and the feature `nvlink` in
/// the node resources.
fn summarise(devices: &Reading<Vec<DeviceReport>>, probed: &mut ProbeResult) {
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
    probed.resources.gpu_model = joined;
    probed.resources.gpu_memory_bytes = devices.as_ref().and_then(|devices| {
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
        probed.resources.features.insert("nvlink".to_owned());
    }
}
