//! The GPU report that the child sends to the parent.

use lattice_conformance::{Reading, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Report format version that this build writes and reads.
pub const REPORT_VERSION: u32 = 1;

/// The line on the child's standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`REPORT_VERSION`] of the writer.
    pub version: u32,
    /// Report of the GPU driver.
    pub report: GpuReport,
}

/// The GPU driver's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuReport {
    /// The loaded library; absent if the loader could not find it.
    pub library: Reading<String>,
    /// Kernel driver version.
    pub driver: Reading<Value>,
    /// Library version.
    pub nvml: Reading<Value>,
    /// Highest CUDA version the driver supports, `major.minor`.
    pub cuda: Reading<Value>,
    /// All devices, in the driver's order.
    pub devices: Reading<Vec<DeviceReport>>,
    /// Common ancestors of each pair of devices that answered.
    #[serde(default)]
    pub ancestors: Vec<Ancestor>,
}

/// The driver's common-ancestor level of two devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    /// Index of the first device in the driver's order.
    pub a: u32,
    /// Index of the second device in the driver's order.
    pub b: u32,
    /// Level as numbered by nvml.h.
    pub level: Reading<u32>,
}

/// The driver's report on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// PCI address as sysfs writes it.
    pub address: Reading<String>,
    /// UUID (identity).
    pub uuid: Reading<String>,
    /// Serial number (identity).
    pub serial: Reading<String>,
    /// Conformance values by key, without the prefix `gpu.<slot>.`.
    pub values: BTreeMap<String, Reading<Value>>,
    /// Modes that change at the next reboot or reset.
    pub pending: Vec<String>,
    /// Whether the driver reports that it can no longer reach the device.
    #[serde(default)]
    pub lost: bool,
    /// Live values by key, without the prefix `gpu.<slot>.`.
    #[serde(default)]
    pub vitals: BTreeMap<String, Reading<Value>>,
    /// The NVLinks and their far ends.
    #[serde(default)]
    pub links: Vec<LinkReport>,
    /// The NVLink fabric's cluster UUID and clique.
    #[serde(default)]
    pub fabric: Reading<String>,
    /// Position of the board: `chassis_serial`, `slot`, `tray`, `host`, `module`.
    #[serde(default)]
    pub place: BTreeMap<String, Reading<Value>>,
}

/// One NVLink of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Number of the link.
    pub link: u32,
    /// Kind of the far end: `gpu`, `switch`, `cpu`.
    pub kind: Reading<String>,
    /// PCI address of the far end, as sysfs writes it.
    pub remote: Reading<String>,
}

impl DeviceReport {
    /// Replaces the strings that identify one board, one chassis or one fabric.
    pub(crate) fn mask(&mut self, index: usize) {
        // Readings that are not present stay unchanged.
        if let Reading::Present(uuid) = &mut self.uuid {
            *uuid = format!("GPU-MASKED-{index}");
        }
        if let Reading::Present(serial) = &mut self.serial {
            *serial = format!("MASKED-{index}");
        }
        if let Some(Reading::Present(serial)) = self.place.get_mut("chassis_serial") {
            *serial = Value::from("MASKED");
        }
        if let Reading::Present(fabric) = &mut self.fabric {
            *fabric = "MASKED".to_owned();
        }
    }
}

impl GpuReport {
    /// A report without data: every reading has the state of `library`, which must not be present.
    #[must_use]
    pub fn none(library: Reading<String>) -> Self {
        let missing = |reading: &Reading<String>| reading.as_ref().and_then(|_| Reading::Absent);
        Self {
            driver: missing(&library),
            nvml: missing(&library),
            cuda: missing(&library),
            devices: library.as_ref().and_then(|_| Reading::Absent),
            ancestors: Vec::new(),
            library,
        }
    }
}
