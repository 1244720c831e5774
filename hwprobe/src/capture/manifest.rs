//! Manifest of a captured tree, and the [`Host`] that reads the tree.

use super::tree::Writer;
use super::{CaptureError, GPU_REPORT, Privacy};
use crate::root::read_all;
use crate::{Host, NvmlSource};
use lattice_conformance::ProbeFailure;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// File name of the manifest in a captured tree.
pub const MANIFEST: &str = "capture.json";
/// Version of [`Manifest`]'s fields written by this build.
const VERSION: u32 = 1;
const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// Fields of a host that the manifest does not keep in `lists`: they describe the probing machine, or one run.
const MACHINE_FIELDS: &[&str] = &[
    "root",
    "nvml",
    "commands",
    "ethtool",
    "ipmi",
    "lost",
    "files_within",
    "is_live_only",
];

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    /// Whether identities were replaced.
    is_masked: bool,
    /// The site's lists: they determine the result of the probes.
    lists: Map<String, Json>,
    /// Probes without a result.
    lost: BTreeMap<String, ProbeFailure>,
}

/// Reason why a tree cannot replace a host.
#[derive(Debug, thiserror::Error)]
pub enum CaptureTreeError {
    /// The tree has no manifest and contains neither `/proc` nor `/sys`.
    #[error("{path} is not a captured host: it has neither proc nor sys")]
    Empty {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The manifest cannot be read.
    #[error("cannot read the manifest {path}")]
    Unreadable {
        /// Path of the manifest.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The manifest is not valid JSON of the expected form.
    #[error("invalid manifest {path}")]
    Manifest {
        /// Path of the manifest.
        path: PathBuf,
        /// The parse error.
        source: serde_json::Error,
    },
    /// The manifest has a version that this build does not read.
    #[error("{path} has version {found}, this build reads {VERSION}")]
    Version {
        /// Path of the manifest.
        path: PathBuf,
        /// Version found in the manifest.
        found: u32,
    },
}

pub(super) fn write(
    host: &Host,
    lost: &BTreeMap<String, ProbeFailure>,
    writer: &mut Writer<'_>,
) -> Result<(), CaptureError> {
    let mut lists = fields(host)?;
    for name in MACHINE_FIELDS {
        lists.remove(*name);
    }
    let manifest = Manifest {
        version: VERSION,
        is_masked: writer.privacy() == Privacy::Mask,
        lists,
        lost: lost.clone(),
    };
    writer.json(MANIFEST, &manifest)
}

fn fields(host: &Host) -> serde_json::Result<Map<String, Json>> {
    match serde_json::to_value(host)? {
        Json::Object(fields) => Ok(fields),
        _ => Ok(Map::new()),
    }
}

/// The host that the tree at `path` replaces. A capture provides its recorded answers and the site's lists at the time
/// of the capture; any other tree gets the default lists. Data missing from the tree is not read from this machine.
///
/// # Errors
/// The folder is not a host's tree, or its manifest cannot be read or has another version.
pub fn host_of(path: &Path) -> Result<Host, CaptureTreeError> {
    let report = path.join(GPU_REPORT);
    let nvml = match report.is_file() {
        true => NvmlSource::Recorded(report),
        false => NvmlSource::Disabled,
    };
    let host = Host::new(path, nvml);
    let manifest = path.join(MANIFEST);
    if !manifest.is_file() {
        let is_tree = ["proc", "sys"].iter().any(|name| path.join(name).is_dir());
        let path = path.to_owned();
        return is_tree
            .then_some(host)
            .ok_or(CaptureTreeError::Empty { path });
    }
    let json = File::open(&manifest).and_then(|mut file| read_all(&mut file, MAX_MANIFEST_BYTES));
    let json = json.map_err(|source| CaptureTreeError::Unreadable {
        path: manifest.clone(),
        source,
    })?;
    with_manifest(host, &json).map_err(|problem| match problem {
        Problem::Json(source) => CaptureTreeError::Manifest {
            path: manifest,
            source,
        },
        Problem::Version(found) => CaptureTreeError::Version {
            path: manifest,
            found,
        },
    })
}

enum Problem {
    Json(serde_json::Error),
    Version(u32),
}

fn with_manifest(host: Host, json: &[u8]) -> Result<Host, Problem> {
    let manifest: Manifest = serde_json::from_slice(json).map_err(Problem::Json)?;
    if manifest.version != VERSION {
        return Err(Problem::Version(manifest.version));
    }
    let mut all = fields(&host).map_err(Problem::Json)?;
    let lists = manifest.lists.into_iter();
    all.extend(lists.filter(|(name, _)| !MACHINE_FIELDS.contains(&name.as_str())));
    let mut host: Host = serde_json::from_value(Json::Object(all)).map_err(Problem::Json)?;
    host.lost = manifest.lost;
    Ok(host)
}
