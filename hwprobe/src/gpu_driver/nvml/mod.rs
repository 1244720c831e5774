//! Child side: one full query of NVML.

mod events;
mod links;
mod raw;
mod vitals;

use super::report::{Ancestor, DeviceReport, GpuReport};
use crate::pci;
use lattice_conformance::{Reading, Value, text};
use nvml_wrapper::enum_wrappers::device::{Clock, InfoRom};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use raw::RawDevice;
use std::collections::BTreeMap;
use std::ffi::OsStr;

pub(super) use events::watch;

/// Readings by key, without the prefix `gpu.<slot>.`.
#[derive(Default)]
struct KeyedReadings(BTreeMap<String, Reading<Value>>);

impl KeyedReadings {
    fn put(&mut self, key: &str, reading: Reading<impl Into<Value>>) {
        self.0.insert(key.to_owned(), reading.map(Into::into));
    }
}

/// Converts a reading that is not present to another value type.
fn without_value<T, U>(reading: &Reading<T>) -> Reading<U> {
    reading.as_ref().and_then(|_| Reading::Absent)
}

/// Loads `library` and queries every value.
pub(super) fn report(library: &OsStr) -> GpuReport {
    let shown = library.to_string_lossy().into_owned();
    let nvml = match load(library) {
        Ok(nvml) => nvml,
        Err(reading) => return GpuReport::none(reading),
    };
    let handles = to_reading(nvml.device_count()).map(|count| {
        (0..count)
            .map(|index| nvml.device_by_index(index))
            .collect::<Vec<_>>()
    });
    GpuReport {
        library: Reading::Present(shown),
        driver: firmware(nvml.sys_driver_version()),
        nvml: firmware(nvml.sys_nvml_version()),
        cuda: to_reading(nvml.sys_cuda_driver_version())
            .map(|version| Value::Text(cuda_version(version))),
        ancestors: ancestors(&nvml, handles.present().map_or(&[], Vec::as_slice)),
        devices: handles
            .map(|handles| handles.iter().map(|handle| device(&nvml, handle)).collect()),
    }
}

/// The driver's common-ancestor level for each pair of GPUs, by their indices in the driver's order.
fn ancestors(nvml: &Nvml, handles: &[Result<Device<'_>, NvmlError>]) -> Vec<Ancestor> {
    let mut found = Vec::new();
    for (b, other) in handles.iter().enumerate() {
        for (a, one) in handles.iter().enumerate().take(b) {
            let (Ok(one), Ok(other)) = (one, other) else {
                continue;
            };
            let (one, other) = (
                RawDevice::of(nvml.lib(), one),
                RawDevice::of(nvml.lib(), other),
            );
            found.push(Ancestor {
                a: u32::try_from(a).unwrap_or(u32::MAX),
                b: u32::try_from(b).unwrap_or(u32::MAX),
                level: raw::reading(one.common_ancestor(other)),
            });
        }
    }
    found
}

/// The initialised library, or the reading that replaces its report.
fn load(library: &OsStr) -> Result<Nvml, Reading<String>> {
    let loaded = Nvml::builder().lib_path(library).init();
    loaded.map_err(|error| load_failure(&library.to_string_lossy(), &error))
}

fn load_failure(library: &str, error: &NvmlError) -> Reading<String> {
    match error {
        // Only the loader's error text distinguishes a missing library from a broken one.
        NvmlError::LibloadingError(loading) => {
            let why = text::collapse(&loading.to_string());
            if why.contains("No such file or directory") && why.contains(library) {
                Reading::Absent
            } else {
                Reading::failed(why)
            }
        }
        NvmlError::LibraryNotFound => Reading::Absent,
        NvmlError::NoPermission => Reading::denied(error.to_string()),
        _ => Reading::failed(format!("NVML initialisation failed: {error}")),
    }
}

fn cuda_version(version: i32) -> String {
    format!(
        "{}.{}",
        nvml_wrapper::cuda_driver_version_major(version),
        nvml_wrapper::cuda_driver_version_minor(version)
    )
}

/// Converts an NVML result to a reading.
fn to_reading<T>(result: Result<T, NvmlError>) -> Reading<T> {
    match result {
        Ok(value) => Reading::Present(value),
        Err(
            NvmlError::NotSupported
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            // Codes newer than the binding's list: a struct version that this driver does not support, and a
            // deprecated call.
            | NvmlError::UnexpectedVariant(25 | 26),
        ) => Reading::Unsupported,
        Err(NvmlError::NoPermission) => Reading::denied("NVML: no permission"),
        Err(error) => Reading::failed(format!("NVML: {error}")),
    }
}

fn firmware(result: Result<String, NvmlError>) -> Reading<Value> {
    name(result).map(Value::Text)
}

fn name(result: Result<String, NvmlError>) -> Reading<String> {
    to_reading(result).and_then(|raw| text::firmware(&raw))
}

fn flag(result: Result<bool, NvmlError>) -> Reading<Value> {
    to_reading(result).map(Value::Flag)
}

fn number(result: Result<u32, NvmlError>) -> Reading<Value> {
    to_reading(result).map(Value::from)
}

/// Converts NVML's megahertz to hertz.
fn clock(result: Result<u32, NvmlError>) -> Reading<Value> {
    to_reading(result).map(|mhz| Value::Number(i64::from(mhz) * 1_000_000))
}

fn device(nvml: &Nvml, handle: &Result<Device<'_>, NvmlError>) -> DeviceReport {
    match handle {
        Ok(device) => describe(device, RawDevice::of(nvml.lib(), device)),
        Err(error) => {
            let lost = || to_reading::<String>(Err(error_of(error)));
            let values = ["model", "memory", "vbios"];
            DeviceReport {
                address: lost(),
                uuid: lost(),
                serial: lost(),
                lost: is_lost(error),
                values: values
                    .into_iter()
                    .map(|key| (key.to_owned(), lost().map(Value::Text)))
                    .collect(),
                ..DeviceReport::default()
            }
        }
    }
}

/// Whether the driver can no longer reach the GPU.
const fn is_lost(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired)
}

/// Copies the states that matter here; `NvmlError` is not `Clone`.
fn error_of(error: &NvmlError) -> NvmlError {
    match error {
        NvmlError::NoPermission => NvmlError::NoPermission,
        NvmlError::GpuLost => NvmlError::GpuLost,
        NvmlError::ResetRequired => NvmlError::ResetRequired,
        NvmlError::InsufficientPower => NvmlError::InsufficientPower,
        NvmlError::IrqIssue => NvmlError::IrqIssue,
        _ => NvmlError::Unknown,
    }
}

fn describe(device: &Device<'_>, raw: RawDevice<'_>) -> DeviceReport {
    let mut values = KeyedReadings::default();
    values.put("model", firmware(device.name()));
    values.put("architecture", enum_name(device.architecture()));
    values.put("compute_capability", compute_capability(device));
    let memory = raw::reading(raw.memory());
    values.put("memory", memory.map(|(total, _)| Value::amount(total)));
    firmware_versions(device, &mut values);
    pci_ids(device, raw, &mut values);
    modes(device, &mut values);
    limits(device, &mut values);
    let mut vitals = KeyedReadings::default();
    vitals::describe(device, raw, &mut vitals);
    let is_mig = device.mig_mode().is_ok_and(|mode| mode.current != 0);
    let links = links::describe(raw, is_mig, &mut values, &mut vitals);
    let place = board_position(raw);
    DeviceReport {
        address: to_reading(device.pci_info()).and_then(|info| pci::address(&info.bus_id)),
        uuid: name(device.uuid()),
        serial: name(device.serial()),
        pending: pending(device),
        lost: matches!(&device.name(), Err(error) if is_lost(error)),
        values: values.0,
        vitals: vitals.0,
        links,
        fabric: fabric(raw),
        place,
    }
}

fn firmware_versions(device: &Device<'_>, values: &mut KeyedReadings) {
    values.put("part_number", firmware(device.board_part_number()));
    values.put("vbios", firmware(device.vbios_version()));
    values.put("inforom.image", firmware(device.info_rom_image_version()));
    for (key, object) in [
        ("inforom.oem", InfoRom::OEM),
        ("inforom.ecc", InfoRom::ECC),
        ("inforom.power", InfoRom::Power),
    ] {
        values.put(key, firmware(device.info_rom_version(object)));
    }
    values.put("gsp.firmware", firmware(device.gsp_firmware_version()));
    let mode = to_reading(device.gsp_firmware_mode());
    values.put("gsp.enabled", mode.as_ref().map(|mode| mode.enabled));
    values.put("gsp.default", mode.map(|mode| mode.default));
}

/// Cluster UUID and clique of the fabric; an all-zero UUID means no cluster.
fn fabric(raw: RawDevice<'_>) -> Reading<String> {
    raw::reading(raw.fabric()).and_then(|info| match info.state {
        3 if info.cluster == [0; 16] => Reading::Absent,
        3 => Reading::Present(format!(
            "{:032x}/{}",
            u128::from_be_bytes(info.cluster),
            info.clique
        )),
        0 => Reading::Unsupported,
        _ => Reading::failed("not registered with the fabric"),
    })
}

/// Position of the board: from the platform firmware, and the module number also from older drivers.
fn board_position(raw: RawDevice<'_>) -> BTreeMap<String, Reading<Value>> {
    let mut place = KeyedReadings::default();
    let platform = raw::reading(raw.platform());
    let platform = platform.as_ref();
    let chassis = platform
        .clone()
        .and_then(|platform| text::firmware(&platform.chassis_serial));
    for (key, of) in [
        ("slot", (|p| p.slot) as fn(&raw::Platform) -> u8),
        ("tray", |p| p.tray),
        ("host", |p| p.host),
    ] {
        // Boards outside a managed chassis return zeros.
        let number = match &chassis {
            Reading::Present(_) => platform.clone().map(|platform| u32::from(of(platform))),
            unknown => without_value(unknown),
        };
        place.put(key, number);
    }
    place.put("chassis_serial", chassis);
    let module = match platform {
        Reading::Present(platform) => Reading::Present(platform.module.into()),
        _ => raw::reading(raw.module()),
    };
    place.put("module", module);
    place.0
}

/// The name of an enumerated value; "unknown" counts as unsupported. A value newer than the binding is named by its
/// number: every error code unknown to the binding is 24 or above.
fn enum_name<T: std::fmt::Debug>(result: Result<T, NvmlError>) -> Reading<Value> {
    let name = match result {
        Err(NvmlError::UnexpectedVariant(number)) if number < 24 => {
            return Reading::Present(Value::Text(format!("#{number}")));
        }
        other => to_reading(other),
    };
    name.and_then(|name| {
        let name = format!("{name:?}").to_ascii_lowercase();
        if name == "unknown" {
            Reading::Unsupported
        } else {
            Reading::Present(Value::Text(name))
        }
    })
}

fn compute_capability(device: &Device<'_>) -> Reading<Value> {
    to_reading(device.cuda_compute_capability())
        .map(|capability| Value::Text(format!("{}.{}", capability.major, capability.minor)))
}

fn pci_ids(device: &Device<'_>, raw: RawDevice<'_>, values: &mut KeyedReadings) {
    let info = to_reading(device.pci_info());
    // NVML packs device and vendor as 0xDDDDVVVV.
    let id = |packed: u32| Value::Text(format!("{:04x}:{:04x}", packed & 0xffff, packed >> 16));
    values.put("pci_id", info.as_ref().map(|info| id(info.pci_device_id)));
    values.put(
        "subsystem",
        info.and_then(|info| {
            info.pci_sub_system_id
                .map_or(Reading::Unsupported, |packed| Reading::Present(id(packed)))
        }),
    );
    // The first two cover GPU and slot together; the last one covers the GPU alone.
    values.put("max_link_generation", number(device.max_pcie_link_gen()));
    values.put("max_link_width", number(device.max_pcie_link_width()));
    values.put(
        "own_link_generation",
        raw::reading(raw.own_link_generation()),
    );
}

fn modes(device: &Device<'_>, values: &mut KeyedReadings) {
    let ecc = device.is_ecc_enabled().map(|mode| mode.currently_enabled);
    values.put("ecc", flag(ecc));
    values.put("persistence", flag(device.is_in_persistent_mode()));
    values.put("compute_mode", enum_name(device.compute_mode()));
    values.put("mig", flag(device.mig_mode().map(|mode| mode.current != 0)));
    values.put("accounting", flag(device.is_accounting_enabled()));
    values.put("confidential_compute", flag(device.is_cc_enabled()));
}

fn limits(device: &Device<'_>, values: &mut KeyedReadings) {
    // NVML returns milliwatts already. The current limit is set by the power budget, so it is not a conformance value.
    let default = device.power_management_limit_default();
    values.put("power.default", number(default));
    let range = to_reading(device.power_management_limit_constraints());
    values.put("power.min", range.as_ref().map(|range| range.min_limit));
    values.put("power.max", range.map(|range| range.max_limit));
    for (key, which) in [
        ("clock.graphics.max", Clock::Graphics),
        ("clock.sm.max", Clock::SM),
        ("clock.memory.max", Clock::Memory),
        ("clock.video.max", Clock::Video),
    ] {
        values.put(key, clock(device.max_clock_info(which)));
    }
}

fn pending(device: &Device<'_>) -> Vec<String> {
    let mut pending = Vec::new();
    if let Ok(ecc) = device.is_ecc_enabled()
        && ecc.currently_enabled != ecc.pending_enabled
    {
        pending.push("ecc".to_owned());
    }
    if let Ok(mig) = device.mig_mode()
        && mig.current != mig.pending
    {
        pending.push("mig".to_owned());
    }
    pending
}
