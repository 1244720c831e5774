//! Child side: asks NVML everything once.

use super::report::{DeviceReport, GpuReport};
use crate::{Reading, Value, pci, text};
use nvml_wrapper::enum_wrappers::device::{Clock, InfoRom};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::collections::BTreeMap;
use std::ffi::OsStr;

/// Links tried per device; the largest part so far has 18.
const MOST_NVLINKS: u32 = 36;

/// Loads `library` and asks it everything.
pub(super) fn report(library: &OsStr) -> GpuReport {
    let shown = library.to_string_lossy().into_owned();
    let nvml = match Nvml::builder().lib_path(library).init() {
        Ok(nvml) => nvml,
        Err(error) => return GpuReport::none(load_failure(&shown, &error)),
    };
    GpuReport {
        library: Reading::Present(shown),
        driver: firmware(nvml.sys_driver_version()),
        nvml: firmware(nvml.sys_nvml_version()),
        cuda: read(nvml.sys_cuda_driver_version())
            .map(|version| Value::Text(cuda_version(version))),
        devices: read(nvml.device_count())
            .map(|count| (0..count).map(|index| device(&nvml, index)).collect()),
    }
}

fn load_failure(library: &str, error: &NvmlError) -> Reading<String> {
    match error {
        // The loader's own words decide: a library that is there but broken has failed.
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
        _ => Reading::failed(format!("NVML did not start: {error}")),
    }
}

fn cuda_version(version: i32) -> String {
    format!(
        "{}.{}",
        nvml_wrapper::cuda_driver_version_major(version),
        nvml_wrapper::cuda_driver_version_minor(version)
    )
}

/// The reading an NVML result stands for.
fn read<T>(result: Result<T, NvmlError>) -> Reading<T> {
    match result {
        Ok(value) => Reading::Present(value),
        Err(
            NvmlError::NotSupported
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound,
        ) => Reading::Unsupported,
        Err(NvmlError::NoPermission) => Reading::denied("NVML: no permission"),
        Err(error) => Reading::failed(format!("NVML: {error}")),
    }
}

fn firmware(result: Result<String, NvmlError>) -> Reading<Value> {
    name(result).map(Value::Text)
}

fn name(result: Result<String, NvmlError>) -> Reading<String> {
    read(result).and_then(|raw| text::firmware(&raw))
}

fn flag(result: Result<bool, NvmlError>) -> Reading<Value> {
    read(result).map(Value::Flag)
}

fn number(result: Result<u32, NvmlError>) -> Reading<Value> {
    read(result).map(Value::from)
}

/// NVML speaks megahertz; values are kept in hertz.
fn clock(result: Result<u32, NvmlError>) -> Reading<Value> {
    read(result).map(|mhz| Value::Number(i64::from(mhz) * 1_000_000))
}

fn device(nvml: &Nvml, index: u32) -> DeviceReport {
    match nvml.device_by_index(index) {
        Ok(device) => describe(&device),
        Err(error) => {
            let lost = || read::<String>(Err(error_of(&error)));
            let values = ["model", "memory", "vbios"];
            DeviceReport {
                address: lost(),
                uuid: lost(),
                serial: lost(),
                values: values
                    .into_iter()
                    .map(|key| (key.to_owned(), lost().map(Value::Text)))
                    .collect(),
                pending: Vec::new(),
            }
        }
    }
}

/// `NvmlError` is not `Clone`; the states that matter here are.
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

fn describe(device: &Device<'_>) -> DeviceReport {
    let mut values = BTreeMap::new();
    let mut put = |key: &str, reading: Reading<Value>| {
        values.insert(key.to_owned(), reading);
    };
    put("model", firmware(device.name()));
    put("architecture", architecture(device));
    put("compute_capability", compute_capability(device));
    put(
        "memory",
        read(device.memory_info()).map(|info| Value::amount(info.total)),
    );
    put("part_number", firmware(device.board_part_number()));
    put("vbios", firmware(device.vbios_version()));
    put("inforom.image", firmware(device.info_rom_image_version()));
    put(
        "inforom.oem",
        firmware(device.info_rom_version(InfoRom::OEM)),
    );
    put(
        "inforom.ecc",
        firmware(device.info_rom_version(InfoRom::ECC)),
    );
    put(
        "inforom.power",
        firmware(device.info_rom_version(InfoRom::Power)),
    );
    put("gsp.firmware", firmware(device.gsp_firmware_version()));
    put(
        "gsp.enabled",
        flag(device.gsp_firmware_mode().map(|mode| mode.enabled)),
    );
    pci_ids(device, &mut put);
    modes(device, &mut put);
    limits(device, &mut put);
    nvlinks(device, &mut put);
    DeviceReport {
        address: read(device.pci_info()).and_then(|info| pci::address(&info.bus_id)),
        uuid: name(device.uuid()),
        serial: name(device.serial()),
        pending: pending(device),
        values,
    }
}

/// The name of an enumerated value; "unknown" is none.
fn word(reading: Reading<impl std::fmt::Debug>) -> Reading<Value> {
    reading.and_then(|name| {
        let name = format!("{name:?}").to_ascii_lowercase();
        if name == "unknown" {
            Reading::Unsupported
        } else {
            Reading::Present(Value::Text(name))
        }
    })
}

fn architecture(device: &Device<'_>) -> Reading<Value> {
    word(read(device.architecture()))
}

fn compute_capability(device: &Device<'_>) -> Reading<Value> {
    read(device.cuda_compute_capability())
        .map(|capability| Value::Text(format!("{}.{}", capability.major, capability.minor)))
}

fn pci_ids(device: &Device<'_>, put: &mut impl FnMut(&str, Reading<Value>)) {
    let info = read(device.pci_info());
    // NVML packs device and vendor as 0xDDDDVVVV.
    let id = |packed: u32| Value::Text(format!("{:04x}:{:04x}", packed & 0xffff, packed >> 16));
    put("pci_id", info.as_ref().map(|info| id(info.pci_device_id)));
    put(
        "subsystem",
        info.and_then(|info| {
            info.pci_sub_system_id
                .map_or(Reading::Unsupported, |packed| Reading::Present(id(packed)))
        }),
    );
    put("max_link_generation", number(device.max_pcie_link_gen()));
    put("max_link_width", number(device.max_pcie_link_width()));
}

fn modes(device: &Device<'_>, put: &mut impl FnMut(&str, Reading<Value>)) {
    put(
        "ecc",
        flag(device.is_ecc_enabled().map(|mode| mode.currently_enabled)),
    );
    put("persistence", flag(device.is_in_persistent_mode()));
    put("compute_mode", word(read(device.compute_mode())));
    put("mig", flag(device.mig_mode().map(|mode| mode.current != 0)));
    put("accounting", flag(device.is_accounting_enabled()));
    put("confidential_compute", flag(device.is_cc_enabled()));
}

fn limits(device: &Device<'_>, put: &mut impl FnMut(&str, Reading<Value>)) {
    // NVML speaks milliwatts already. The current limit is controlled by the power
    // budget and so no conformance value.
    put(
        "power.default",
        number(device.power_management_limit_default()),
    );
    let range = read(device.power_management_limit_constraints());
    put(
        "power.min",
        range.as_ref().map(|range| range.min_limit.into()),
    );
    put("power.max", range.map(|range| range.max_limit.into()));
    put(
        "clock.graphics.max",
        clock(device.max_clock_info(Clock::Graphics)),
    );
    put("clock.sm.max", clock(device.max_clock_info(Clock::SM)));
    put(
        "clock.memory.max",
        clock(device.max_clock_info(Clock::Memory)),
    );
    put(
        "clock.video.max",
        clock(device.max_clock_info(Clock::Video)),
    );
}

/// The links a device has, whether or not they are up now: that is health.
fn nvlinks(device: &Device<'_>, put: &mut impl FnMut(&str, Reading<Value>)) {
    let mut count: u32 = 0;
    let mut version = None;
    let mut first_without = None;
    for link in 0..MOST_NVLINKS {
        match device.link_wrapper_for(link).version() {
            Ok(found) => {
                count += 1;
                version = Some(found);
            }
            // Beyond the last link of the chip.
            Err(NvmlError::InvalidArg) => break,
            // A board may leave out some of its chip's links, the first ones too.
            Err(error) => {
                first_without.get_or_insert(read::<u32>(Err(error)));
            }
        }
    }
    let none = || first_without.clone().unwrap_or(Reading::Unsupported);
    let links = if count == 0 {
        none()
    } else {
        Reading::Present(count)
    };
    put("nvlink.links", links.map(Value::from));
    let version = version.map_or_else(none, Reading::Present);
    put("nvlink.version", version.map(nvlink_version));
}

/// NVML numbers the generations; people know them by version.
fn nvlink_version(number: u32) -> Value {
    const VERSIONS: [&str; 7] = ["1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0"];
    let known = usize::try_from(number)
        .ok()
        .and_then(|number| VERSIONS.get(number.checked_sub(1)?));
    known.map_or(Value::from(number), |&version| Value::from(version))
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
