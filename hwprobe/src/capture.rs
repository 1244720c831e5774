//! Captures a live host into a tree that can stand in for it as [`Host::root`].
//!
//! The probes themselves say what belongs into it: they run once on a root that writes
//! down every file read, directory listed and link followed. Nothing else is copied. What is
//! asked of drivers and programs instead of files is recorded beside it.
//!
//! Begin at [`capture_isolated`] and [`host_of`]; [`archive`] makes one file of a tree.

pub mod archive;
mod manifest;
mod mask;
mod tree;

pub use manifest::{MANIFEST, NotACapture, host_of};
pub use mask::{Secrets, secrets, secrets_and};

use crate::child::{self, Envelope, REPORT_VERSION};
use crate::inventory::Loss;
use crate::root::{Touched, Touches};
use crate::source::Answers;
use crate::{Host, Inventory, NvmlSource, Reading, ipmi, net, probe_all};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tree::Writer;

/// Whether serials, UUIDs, addresses and host names are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    /// As they are.
    Keep,
    /// Replaced by fixed text; conformance digests stay the same.
    Mask,
}

/// What a capture wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// Files written.
    pub files: u64,
    /// Links written.
    pub links: u64,
    /// Paths that could not be read, with what came of it.
    pub unreadable: BTreeMap<PathBuf, String>,
    /// Probes that gave nothing, with the reason.
    pub lost: BTreeMap<String, Loss>,
}

/// Why a capture stopped.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The target is there already and not empty: a capture never mixes with another.
    #[error("{path} is not empty")]
    NotEmpty {
        /// The target.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot write {path}")]
    Write {
        /// What was written.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Something recorded has no JSON form.
    #[error("cannot encode what was recorded")]
    Encode(#[from] serde_json::Error),
}

/// The name of the recorded GPU report in a captured tree, for [`NvmlSource::Recorded`].
pub const GPU_REPORT: &str = "gpu-report.json";

/// Copies what the probes read from `host` into the new directory `out`, probing in this
/// process: for tests and trees. A live machine is captured with [`capture_isolated`].
///
/// # Errors
/// `out` is not empty or cannot be written. What cannot be *read* is no error: it is
/// recorded, and the captured tree answers there as the host did.
pub fn capture(host: &Host, out: &Path, privacy: Privacy) -> Result<Captured, CaptureError> {
    let (root, trace) = host.root.traced();
    let traced = Host {
        root,
        ..host.clone()
    };
    let inventory = probe_all(&traced);
    let touched = trace.lock().clone();
    write_down(host, &inventory, &touched, out, privacy)
}

/// The same with the probes in a process of their own, as [`crate::probe_isolated`] runs them; a
/// probe that hangs is captured as one that hung. Gives what the host was as well.
///
/// # Errors
/// As [`capture`].
pub fn capture_isolated(
    host: &Host,
    program: &Path,
    out: &Path,
    privacy: Privacy,
) -> Result<(Captured, Inventory), CaptureError> {
    let (inventory, touched) = child::traced_isolated(host, program, true);
    let captured = write_down(host, &inventory, &touched, out, privacy)?;
    Ok((captured, inventory))
}

fn write_down(
    host: &Host,
    inventory: &Inventory,
    touched: &Touches,
    out: &Path,
    privacy: Privacy,
) -> Result<Captured, CaptureError> {
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

/// Every name of a place that was touched.
fn names(touched: &Touches) -> impl Iterator<Item = &str> {
    touched.places.iter().flat_map(|(path, what)| {
        let parts = path.iter().filter_map(|part| part.to_str());
        let listed: &[String] = match what {
            Touched::Dir(names) => names,
            Touched::File(_) | Touched::Link(_) => &[],
        };
        parts.chain(listed.iter().map(String::as_str))
    })
}

/// The driver's answer beside the tree; why there is none, where it gave none.
fn gpus(
    host: &Host,
    privacy: Privacy,
    writer: &mut Writer<'_>,
) -> Result<Option<Loss>, CaptureError> {
    if host.nvml == NvmlSource::Disabled || host.disabled.contains(&crate::Class::Gpu) {
        return Ok(None);
    }
    let mut report = match child::ask(&host.nvml, &host.outstanding) {
        Reading::Present(report) => report,
        Reading::Timeout { after_ms } => return Ok(Some(Loss::Hung { after_ms })),
        other => {
            let why = other.map(|_| String::new()).to_string();
            return Ok(Some(Loss::Failed { why }));
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

/// What the kernel said of network interfaces, where it was asked.
fn network(host: &Host, writer: &mut Writer<'_>) -> Result<(), CaptureError> {
    if host.ethtool == net::EthtoolSource::Disabled {
        return Ok(());
    }
    let Reading::Present(report) =
        net::record(&host.ethtool, &host.root, host.wants(crate::Class::Optics))
    else {
        return Ok(());
    };
    let report = match writer.privacy() {
        Privacy::Keep => report,
        Privacy::Mask => report.masked(|name| writer.name(name)),
    };
    writer.record(net::EthtoolReport::FILE, &report.encode()?)
}

/// What the BMC said in band, where it was asked.
fn bmc(host: &Host, writer: &mut Writer<'_>) -> Result<(), CaptureError> {
    let Reading::Present(report) = ipmi::ask(&host.ipmi) else {
        return Ok(());
    };
    writer.record(ipmi::IpmiReport::FILE, &report.encode()?)
}
