//! Marker of a data directory: its format, owner and incarnation.

use super::OpenError;
use crate::platform::Files;
use lattice_quorum_types::{VoterId, membership::Incarnation};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Format of the data directory that this version of Lattice writes and reads. It covers everything in the
/// directory: log rows with their commands, snapshots and segments. See `../../0004-formats.md`.
pub const FORMAT: u32 = 1;

const MARKER: &str = "FORMAT";

/// Content of the marker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Marker {
    format: u32,
    cluster: String,
    voter: VoterId,
    pub(super) incarnation: Incarnation,
    /// Whether the directory was created without a log and has not caught up since. Stored, so that a restart while
    /// catching up does not reset it.
    pub(super) blank: bool,
}

/// Reads the marker; `None` if the directory has none.
pub(super) fn read_marker(files: &dyn Files, path: &Path) -> Result<Option<Marker>, OpenError> {
    let marker_path = path.join(MARKER);
    let bytes = match files.read(&marker_path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            return Err(OpenError::Io {
                path: marker_path,
                source: e,
            });
        }
    };
    // Only the field `format` is common to all formats.
    #[derive(Deserialize)]
    struct Number {
        format: u32,
    }
    let damaged = |e: serde_json::Error| OpenError::damaged(&marker_path, e);
    let Number { format } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if format != FORMAT {
        return Err(OpenError::OtherFormat {
            path: path.to_owned(),
            found: format,
            supported: FORMAT,
        });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}

/// Checks that the directory belongs to this member.
pub(super) fn check_marker(
    path: &Path,
    marker: &Marker,
    cluster: &str,
    voter: VoterId,
) -> Result<(), OpenError> {
    if marker.voter == voter && marker.cluster == cluster {
        return Ok(());
    }
    Err(OpenError::OtherOwner {
        path: path.to_owned(),
        found_cluster: marker.cluster.clone(),
        found: marker.voter,
        cluster: cluster.to_owned(),
        voter,
    })
}

/// Writes the marker, durably.
pub(super) fn write_marker(
    files: &dyn Files,
    path: &Path,
    cluster: &str,
    voter: VoterId,
    (incarnation, blank): (Incarnation, bool),
) -> Result<(), OpenError> {
    let marker_path: PathBuf = path.join(MARKER);
    let marker = Marker {
        format: FORMAT,
        cluster: cluster.to_owned(),
        voter,
        incarnation,
        blank,
    };
    let text = serde_json::to_vec(&marker).map_err(|e| OpenError::damaged(&marker_path, e))?;
    files
        .replace(&marker_path, &[&text, b"\n"])
        .map_err(OpenError::io(marker_path))
}
