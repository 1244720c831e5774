//! What the child tells the parent.

use crate::{Reading, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The format this build writes and reads.
pub const REPORT_VERSION: u32 = 1;

/// The line on the child's standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`REPORT_VERSION`] of the writer.
    pub version: u32,
    /// The report.
    pub report: GpuReport,
}

/// What the driver said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuReport {
    /// Whether the library was there: absent when the loader could not find it.
    pub library: Reading<String>,
    /// Kernel driver version.
    pub driver: Reading<Value>,
    /// Library version.
    pub nvml: Reading<Value>,
    /// Highest CUDA version the driver supports, `major.minor`.
    pub cuda: Reading<Value>,
    /// Every device, in the driver's own order.
    pub devices: Reading<Vec<DeviceReport>>,
}

/// What the driver said about one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// PCI address as sysfs writes it.
    pub address: Reading<String>,
    /// UUID (identity).
    pub uuid: Reading<String>,
    /// Serial number (identity).
    pub serial: Reading<String>,
    /// Conformance values by the last part of their key.
    pub values: BTreeMap<String, Reading<Value>>,
    /// Modes that change at the next reboot or reset.
    pub pending: Vec<String>,
}

impl GpuReport {
    /// A report in which everything has the same non-present state.
    #[must_use]
    pub fn none(library: Reading<String>) -> Self {
        let missing = |reading: &Reading<String>| reading.as_ref().and_then(|_| Reading::Absent);
        Self {
            driver: missing(&library),
            nvml: missing(&library),
            cuda: missing(&library),
            devices: library.as_ref().and_then(|_| Reading::Absent),
            library,
        }
    }
}
