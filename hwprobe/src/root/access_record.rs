//! Access records for captures: the paths that a probe read below a root, and those it could not read.

use super::Root;
use lattice_conformance::Reading;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One path that a probe accessed, for [`crate::capture`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AccessedPath {
    /// A file with its content; empty if only its presence was recorded.
    File(Content),
    /// A directory, with the entry names that a probe listed; empty if only its presence was recorded.
    Dir(Vec<String>),
    /// A symbolic link with its target.
    Link(PathBuf),
}

/// The reading of an existing path that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredUnreadablePath", into = "Reading<()>")]
pub(crate) struct UnreadablePath(pub(super) Reading<()>);

/// Stored form, of this or an earlier version: a plain text without a state means denied.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredUnreadablePath {
    State(Reading<()>),
    Refusal(String),
}

impl From<StoredUnreadablePath> for UnreadablePath {
    fn from(written: StoredUnreadablePath) -> Self {
        Self(match written {
            StoredUnreadablePath::State(reading) => reading,
            StoredUnreadablePath::Refusal(why) => Reading::denied(why),
        })
    }
}

impl From<UnreadablePath> for Reading<()> {
    fn from(unread: UnreadablePath) -> Self {
        unread.0
    }
}

impl UnreadablePath {
    pub(super) fn reading<T>(&self) -> Reading<T> {
        // A readable path is never recorded as unread.
        self.0.clone().and_then(|()| Reading::Absent)
    }

    /// The record of a path's reading; `None` if the path was read or is absent.
    fn of<T>(reading: &Reading<T>) -> Option<Self> {
        match reading {
            Reading::Present(_) | Reading::Absent => None,
            other => Some(Self(other.as_ref().map(|_| ()))),
        }
    }
}

/// Content of a file. Valid UTF-8 is stored as text, which keeps the JSON form about as long as the content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Content {
    /// Valid UTF-8.
    Text(String),
    /// Any other content.
    Bytes(Vec<u8>),
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|e| Self::Bytes(e.into_bytes()), Self::Text)
    }
}

impl Content {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl std::fmt::Display for UnreadablePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Reading::Denied { why } => f.write_str(why),
            reading => reading.as_ref().map(|()| "read").fmt(f),
        }
    }
}

/// The file in a captured tree that lists unreadable paths, so that they do not become "absent".
pub(crate) const UNREADABLE: &str = "unreadable.json";

/// Everything that a probe accessed, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessedPaths {
    /// The accessed paths, resolved: only the last component of an [`AccessedPath::Link`] is a link. [`Root::hash`]
    /// records the path in the form in which the probe requested it.
    pub places: BTreeMap<PathBuf, AccessedPath>,
    /// The paths that could not be read, in the form in which the probe requested them.
    pub unread: BTreeMap<PathBuf, UnreadablePath>,
}

pub(crate) type Trace = Arc<Mutex<AccessedPaths>>;

impl AccessedPaths {
    /// Merges the accesses of another probe: lists of names are merged, and content takes precedence over an empty
    /// file.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.unread.extend(other.unread);
        for (path, touched) in other.places {
            match self.places.get_mut(&path) {
                None => drop(self.places.insert(path, touched)),
                Some(known) => known.absorb(touched),
            }
        }
    }
}

impl AccessedPath {
    fn absorb(&mut self, other: Self) {
        match (self, other) {
            (Self::Dir(names), Self::Dir(more)) => {
                names.extend(more);
                names.sort();
                names.dedup();
            }
            (Self::File(content), Self::File(read)) if content.as_bytes().is_empty() => {
                *content = read;
            }
            // The access that was recorded first is kept; both were valid a moment apart.
            _ => {}
        }
    }
}

impl Root {
    pub(super) fn record_access(&self, path: &Path, what: impl FnOnce() -> AccessedPath) {
        if let Some(trace) = &self.trace {
            let mut trace = trace.lock();
            trace.places.insert(path.to_owned(), what());
        }
    }

    /// Records a path that could not be read.
    pub(super) fn record_unreadable<T>(&self, path: &Path, reading: &Reading<T>) {
        if let Some(unread) = UnreadablePath::of(reading) {
            self.insert_unreadable(path, unread);
        }
    }

    pub(super) fn insert_unreadable(&self, path: &Path, unread: UnreadablePath) {
        if let Some(trace) = &self.trace {
            let mut trace = trace.lock();
            trace.unread.insert(path.to_owned(), unread);
        }
    }

    /// Records that a path exists, without its content, unless more is already recorded.
    pub(super) fn record_presence(&self, path: &Path) {
        let Some(trace) = &self.trace else {
            return;
        };
        let is_dir = fs::metadata(self.on_disk(path)).is_ok_and(|meta| meta.is_dir());
        let what = if is_dir {
            AccessedPath::Dir(Vec::new())
        } else {
            AccessedPath::File(Content::Text(String::new()))
        };
        let mut trace = trace.lock();
        trace.places.entry(path.to_owned()).or_insert(what);
    }
}
