//! AMD GPUs on the bus, compared with their driver: a GPU without a driver is unusable and reports no values.

use crate::Root;
use crate::pci::{self, Function};
use crate::probe::gpu::{count_mismatch_text, has_other_driver};
use lattice_conformance::{FindingCode, ProbeResult, Reading};

/// Name of the driver and of its kernel module.
pub(super) const DRIVER: &str = "amdgpu";
/// AMD's vendor id for processor components, which share a device with integrated graphics.
const AMD_PROCESSOR_VENDOR: &str = "1022";

/// An AMD GPU on the bus.
pub(in crate::probe::gpu) struct Gpu {
    pub(in crate::probe::gpu) function: Function,
    pub(super) driver_state: DriverState,
}

/// Driver state of a GPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DriverState {
    /// The driver is bound, or sysfs does not show which driver is bound.
    Bound,
    /// No driver is bound, although the GPU should be usable.
    Missing,
    /// Another driver is bound on purpose: for a guest (`vfio-pci`, `gim`), or an older one (`radeon`).
    OtherDriver,
    /// No driver is needed: the GPU displays the server's console, or is integrated in the processor.
    DisplayOnly,
}

/// The AMD GPUs on the bus: display controllers, display controllers without output (compute) and processing
/// accelerators.
pub(super) fn on_bus(root: &Root, functions: &Reading<Vec<Function>>) -> Reading<Vec<Gpu>> {
    functions.as_ref().map(|functions| {
        let is_gpu = |f: &&Function| {
            f.is_vendor(pci::AMD)
                && (f.is_gpu() || f.is_class("0380") || f.is_class("1200"))
                && !f.is_virtual(root)
        };
        let gpus = functions.iter().filter(is_gpu).map(|function| Gpu {
            driver_state: driver_state(root, function, functions),
            function: function.clone(),
        });
        gpus.collect()
    })
}

fn driver_state(root: &Root, gpu: &Function, functions: &[Function]) -> DriverState {
    let without = match pci::driver(root, gpu) {
        Reading::Absent => DriverState::Missing,
        _ if has_other_driver(root, gpu, &[DRIVER]) => DriverState::OtherDriver,
        _ => return DriverState::Bound,
    };
    if gpu.is_class("03") && (is_console(root, gpu) || is_integrated(gpu, functions)) {
        DriverState::DisplayOnly
    } else {
        without
    }
}

/// Whether the GPU displays the machine's console.
fn is_console(root: &Root, gpu: &Function) -> bool {
    root.line(gpu.path("boot_vga")) == Reading::Present("1".to_owned())
}

/// Whether the device also contains processor functions (security processor, USB).
fn is_integrated(gpu: &Function, functions: &[Function]) -> bool {
    let device = |function: &Function| {
        let device = function.address.rsplit_once('.');
        device.map(|(device, _)| device.to_owned())
    };
    let mut processors = functions
        .iter()
        .filter(|f| f.is_vendor(AMD_PROCESSOR_VENDOR));
    processors.any(|function| device(function) == device(gpu))
}

/// Number of GPUs on the bus; unknown while no driver can confirm that they work.
pub(super) fn count(root: &Root, gpus: &[Gpu]) -> Reading<u32> {
    let has = |drive| gpus.iter().any(|gpu| gpu.driver_state == drive);
    let missing = addresses(gpus, DriverState::Missing).len();
    let why = match root.line(format!("/sys/module/{DRIVER}/initstate")) {
        _ if missing == 0 => None,
        // The driver binds, and releases, one device after another.
        Reading::Present(state) if state == "coming" => Some("the driver is still starting"),
        Reading::Present(state) if state == "going" => Some("the driver is being removed"),
        Reading::Present(_) => None,
        // A built-in driver has a folder, but not this file.
        _ if has(DriverState::Bound) || root.exists(format!("/sys/module/{DRIVER}")) => None,
        _ => Some("no driver"),
    };
    match why {
        Some(why) => Reading::failed(format!(
            "{missing} AMD GPUs on the bus are not bound: {why}"
        )),
        None => Reading::Present(u32::try_from(gpus.len()).unwrap_or(u32::MAX)),
    }
}

fn addresses(gpus: &[Gpu], drive: DriverState) -> Vec<String> {
    let those = gpus.iter().filter(|gpu| gpu.driver_state == drive);
    those.map(|gpu| gpu.function.address.clone()).collect()
}

/// Reports a finding for a GPU that the driver does not bind, or has released.
pub(super) fn cross_check(gpus: &[Gpu], probed: &mut ProbeResult) {
    let missing = addresses(gpus, DriverState::Missing);
    let driven = addresses(gpus, DriverState::Bound).len();
    if !missing.is_empty() {
        let what = count_mismatch_text("AMD", driven + missing.len(), driven, &missing);
        probed.add_finding(FindingCode::GpuCountMismatch, what);
    }
}
