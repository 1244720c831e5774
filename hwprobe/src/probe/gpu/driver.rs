//! NVIDIA's driver: versions, flavour, parameters.

use crate::Root;
use crate::gpu_driver::GpuReport;
use lattice_conformance::{ClassRecord, Reading, Value, text};

/// Driver parameters that are part of conformance, from `/proc/driver/nvidia/params`.
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

pub(super) fn keys(root: &Root, report: &Reading<GpuReport>, record: &mut ClassRecord) {
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
        // Without the file, no parameter is known to be absent.
        if let Reading::Present(text) = &parameters {
            record.put(format!("gpu.parameter.{name}"), parameter(text, name));
        }
    }
}

/// Flavour of the kernel module: `open` or `proprietary`.
#[must_use]
pub fn flavour(version: &str) -> &'static str {
    if version.contains("Open Kernel Module") {
        "open"
    } else {
        "proprietary"
    }
}

/// The value of one line `Name: value` of the driver's parameters.
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
