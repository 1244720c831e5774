//! Captures of a live host: a tree that replaces the host as [`Host::root`].
//!
//! The probes define the content. They run once on a root that records every file read, directory listed and link
//! followed; nothing else is copied. Answers of drivers and programs are recorded next to the tree.
//!
//! Start at [`capture_isolated`] and [`host_of`]. [`archive`] packs a tree into one file.

pub mod archive;
mod manifest;
mod mask;
mod tree;

pub use manifest::{CaptureTreeError, MANIFEST, host_of};
pub use mask::{Secrets, secrets, secrets_with};

use crate::child::traced_isolated;
use crate::gpu_driver::{self, Envelope, REPORT_VERSION};
use crate::kernel::{ipmi, net};
use crate::probe::nic;
use crate::root::{AccessedPath, AccessedPaths};
use crate::source::Answers;
use crate::{Host, NvmlSource, probe_all};
use lattice_conformance::{Inventory, ProbeFailure, Reading};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tree::Writer;

/// Whether a capture keeps serials, UUIDs, addresses and host names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    /// Identities are kept unchanged.
    Keep,
    /// Identities are replaced by fixed text; conformance digests do not change.
    Mask,
}

/// Summary of a finished capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureSummary {
    /// Number of files written.
    pub files: u64,
    /// Number of links written.
    pub links: u64,
    /// Paths that could not be read, with the error.
    pub unreadable: BTreeMap<PathBuf, String>,
    /// Probes without a result, with the reason.
    pub lost: BTreeMap<String, ProbeFailure>,
}

/// Reason why a capture failed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The target exists and is not empty: two captures never share a folder.
    #[error("{path} is not empty")]
    NotEmpty {
        /// The target folder.
        path: PathBuf,
    },
    /// The file system rejected a write.
    #[error("cannot write {path}")]
    Write {
        /// The path that was being written.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Recorded data cannot be encoded as JSON.
    #[error("cannot encode the recorded data")]
    Encode(#[from] serde_json::Error),
}

/// The name of the recorded GPU report in a captured tree, for [`NvmlSource::Recorded`].
pub const GPU_REPORT: &str = "gpu-report.json";

/// Copies the files that the probes read from `host` into the new directory `out`. The probes run in this process, for
/// tests and trees; use [`capture_isolated`] for a live machine.
///
/// # Errors
/// `out` is not empty or cannot be written. An unreadable *source* path is not an error: the capture records it, and
/// the captured tree fails there as the host did.
pub fn capture(host: &Host, out: &Path, privacy: Privacy) -> Result<CaptureSummary, CaptureError> {
    let (root, trace) = host.root.traced();
    let traced = Host {
        root,
        ..host.clone()
    };
    let inventory = probe_all(&traced);
    let touched = trace.lock().clone();
    write_capture(host, &inventory, &touched, out, privacy)
}

/// Captures with the probes in a separate process, as [`crate::probe_isolated`] runs them. A probe that hangs is
/// captured as hung. Returns the inventory as well.
///
/// # Errors
/// As [`capture`].
pub fn capture_isolated(
    host: &Host,
    program: &Path,
    out: &Path,
    privacy: Privacy,
) -> Result<(CaptureSummary, Inventory), CaptureError> {
    let (inventory, touched) = traced_isolated(host, program, true);
    let captured = write_capture(host, &inventory, &touched, out, privacy)?;
    Ok((captured, inventory))
}

fn write_capture(
    host: &Host,
    inventory: &Inventory,
    touched: &AccessedPaths,
    out: &Path,
    privacy: Privacy,
) -> Result<CaptureSummary, CaptureError> {
    if fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CaptureError::NotEmpty {
            path: out.to_owned(),
        });
    }
    let secrets = match privacy {
        Privacy::Keep => Secrets::default(),
        Privacy::Mask => mask::secrets_with_names(inventory, names(touched)),
    };
    let mut writer = Writer::new(host, out, privacy, &secrets);
    writer.tree(touched)?;
    if !touched.unread.is_empty() {
        writer.unread(touched)?;
    }
    let mut lost = inventory.lost();
    if let Some(loss) = gpus(host, privacy, &mut writer)? {
        lost.entry("gpu".to_owned()).or_insert(loss);
    }
    network(host, &mut writer)?;
    writer.programs()?;
    bmc(host, &mut writer)?;
    manifest::write(host, &lost, &mut writer)?;
    let mut captured = writer.captured;
    captured.lost = lost;
    let unread = touched.unread.iter();
    captured.unreadable = unread
        .map(|(path, unread)| (path.clone(), unread.to_string()))
        .collect();
    Ok(captured)
}

/// File and directory names of every touched path.
fn names(touched: &AccessedPaths) -> impl Iterator<Item = &str> {
    touched.places.iter().flat_map(|(path, what)| {
        let parts = path.iter().filter_map(|part| part.to_str());
        let listed: &[String] = match what {
            AccessedPath::Dir(names) => names,
            AccessedPath::File(_) | AccessedPath::Link(_) => &[],
        };
        parts.chain(listed.iter().map(String::as_str))
    })
}

/// Records the GPU driver's report next to the tree. Returns the reason if the driver gave no report.
fn gpus(
    host: &Host,
    privacy: Privacy,
    writer: &mut Writer<'_>,
) -> Result<Option<ProbeFailure>, CaptureError> {
    if host.nvml == NvmlSource::Disabled || host.disabled.contains(&lattice_conformance::Class::Gpu)
    {
        return Ok(None);
    }
    let mut report = match gpu_driver::query_driver(&host.nvml, &host.outstanding) {
        Reading::Present(report) => report,
        Reading::Timeout { after_ms } => return Ok(Some(ProbeFailure::Hung { after_ms })),
        other => {
            let why = other.map(|_| String::new()).to_string();
            return Ok(Some(ProbeFailure::Failed { why }));
        }
    };
    if let (Privacy::Mask, Reading::Present(devices)) = (privacy, &mut report.devices) {
        for (index, device) in devices.iter_mut().enumerate() {
            device.mask(index);
        }
    }
    let envelope = Envelope {
        version: REPORT_VERSION,
        report,
    };
    writer.json(GPU_REPORT, &envelope)?;
    Ok(None)
}

/// Records the kernel's report on network interfaces, if the host queries it.
fn network(host: &Host, writer: &mut Writer<'_>) -> Result<(), CaptureError> {
    if host.ethtool == net::EthtoolSource::Disabled {
        return Ok(());
    }
    let Reading::Present(report) = net::record(
        &host.ethtool,
        &nic::interfaces(&host.root),
        host.wants(lattice_conformance::Class::Optics),
    ) else {
        return Ok(());
    };
    let report = match writer.privacy() {
        Privacy::Keep => report,
        Privacy::Mask => report.masked(|name| writer.name(name)),
    };
    writer.record(net::EthtoolReport::FILE, &report.encode()?)
}

/// Records the BMC's in-band report, if the host queries it.
fn bmc(host: &Host, writer: &mut Writer<'_>) -> Result<(), CaptureError> {
    let Reading::Present(report) = ipmi::query_bmc(&host.ipmi) else {
        return Ok(());
    };
    writer.record(ipmi::IpmiReport::FILE, &report.encode()?)
}
