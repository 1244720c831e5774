//! Recorded BMC trees: a folder of JSON files, or a tar archive of one.
//!
//! Several layouts are supported: `Systems/1/index.json` per resource, the same below `redfish/v1/`, `Systems/1.json`,
//! and `_redfish_v1_Systems_1.json` with `_` for `/`. If a file's own `@odata.id` names a resource, that path counts
//! too: links use it, and samples with other file names (`dell_power.json`) have no other path.

use crate::body;
use crate::documents::{Documents, ResourcePath};
use lattice_conformance::Reading;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum size of a file, in bytes; a registry takes about 2 MiB.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Prefix of names with `_` for `/`.
const FLAT_NAME_PREFIX: &str = "_redfish_v1";
/// Maximum size of all files of one tree, in bytes; the largest known tree takes 4 MiB.
const MAX_TREE_BYTES: u64 = 256 << 20;

/// Reason why a tree could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// A file or folder could not be read.
    #[error("{path}: cannot be read")]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file or the tree exceeds its size limit.
    #[error("{path}: larger than {limit} bytes")]
    TooLarge {
        /// Path of the file that is too large, or that makes the tree too large.
        path: PathBuf,
        /// The limit, in bytes.
        limit: u64,
    },
    /// No file in the tree is a Redfish resource.
    #[error("{path} contains no Redfish resources")]
    Empty {
        /// Path of the folder or archive.
        path: PathBuf,
    },
}

/// Loads a folder, a `.tar`, or a `.tar.gz`. A `.json` file that is not valid JSON, or that is an error in place of a
/// resource, becomes a failed resource, as on a network connection; files that are not resources are ignored.
///
/// # Errors
/// The tree is unreadable, is too large, or contains no resource.
pub fn load(path: &Path) -> Result<Documents, RecordedError> {
    let io = |source| RecordedError::Io {
        path: path.to_owned(),
        source,
    };
    let mut files = Files::default();
    if path.is_dir() {
        files.walk(path, path)?;
    } else {
        let mut reader = io::BufReader::new(File::open(path).map_err(io)?);
        let magic = io::BufRead::fill_buf(&mut reader).map_err(io)?;
        if magic.starts_with(&[0x1f, 0x8b]) {
            files.unpack(path, flate2::read::GzDecoder::new(reader))?;
        } else {
            files.unpack(path, reader)?;
        }
    }
    let documents = documents(&files.by_name);
    if documents.0.values().any(|reading| reading.is_known()) {
        return Ok(documents);
    }
    Err(RecordedError::Empty {
        path: path.to_owned(),
    })
}

/// The JSON files of a tree by their relative path, with `/` between components.
#[derive(Default)]
struct Files {
    by_name: BTreeMap<String, Vec<u8>>,
    bytes: u64,
}

impl Files {
    fn walk(&mut self, top: &Path, folder: &Path) -> Result<(), RecordedError> {
        let io = |source| RecordedError::Io {
            path: folder.to_owned(),
            source,
        };
        for entry in std::fs::read_dir(folder).map_err(io)? {
            let entry = entry.map_err(io)?;
            let path = entry.path();
            let kind = entry.file_type().map_err(io)?;
            if kind.is_dir() {
                self.walk(top, &path)?;
            } else if kind.is_file() && has_json_name(&path) {
                let inside = path.strip_prefix(top).unwrap_or(&path);
                let name = inside.to_string_lossy().into_owned();
                let file = File::open(&path).map_err(io)?;
                self.add_file(&path, name, file)?;
            }
        }
        Ok(())
    }

    fn unpack(&mut self, path: &Path, reader: impl Read) -> Result<(), RecordedError> {
        let io = |source| RecordedError::Io {
            path: path.to_owned(),
            source,
        };
        let mut archive = tar::Archive::new(reader.take(MAX_TREE_BYTES));
        for entry in archive.entries().map_err(io)? {
            let entry = entry.map_err(io)?;
            let inside = entry.path().map_err(io)?.into_owned();
            if entry.header().entry_type().is_file() && has_json_name(&inside) {
                let name = inside.to_string_lossy().into_owned();
                self.add_file(&path.join(&inside), name, entry)?;
            }
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        path: &Path,
        name: String,
        from: impl Read,
    ) -> Result<(), RecordedError> {
        let mut bytes = Vec::new();
        let read = from.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|source| RecordedError::Io {
            path: path.to_owned(),
            source,
        })?;
        let size = bytes.len() as u64;
        self.bytes += size;
        for (size, limit) in [(size, MAX_FILE_BYTES), (self.bytes, MAX_TREE_BYTES)] {
            if size > limit {
                return Err(RecordedError::TooLarge {
                    path: path.to_owned(),
                    limit,
                });
            }
        }
        let name = name.trim_start_matches("./").to_owned();
        self.by_name.insert(name, bytes);
        Ok(())
    }
}

fn has_json_name(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "json")
}

/// Resources by path. If two files have the same `@odata.id`, the one with a matching file name counts, else the first
/// by name.
fn documents(files: &BTreeMap<String, Vec<u8>>) -> Documents {
    let above = folder_above(files.keys());
    let mut named = BTreeMap::new();
    let mut called = BTreeMap::new();
    for (name, bytes) in files {
        let parsed = body::parse(bytes);
        let id = parsed.as_ref().ok().and_then(own_id);
        let reading = match parsed {
            Ok(value) if body::is_error(&value) => {
                let message = body::message(&value);
                Reading::failed(format!(
                    "{name}: an error in place of a resource: {message}"
                ))
            }
            Ok(value) => Reading::Present(value),
            Err(error) => Reading::failed(format!("{name}: not valid JSON: {error}")),
        };
        let name = name.get(above.len()..).unwrap_or(name);
        // `_` for `/` does not distinguish `Base.v1_4_0` from `Base.v1/4/0`; the resource's own id does.
        let is_sure = |path: &ResourcePath, id| path == id || !name.starts_with(FLAT_NAME_PREFIX);
        match (path_of(name), id) {
            (Some(path), Some(id)) if is_sure(&path, &id) => {
                called.entry(id).or_insert_with(|| reading.clone());
                named.insert(path, reading);
            }
            (_, Some(id)) => drop(called.entry(id).or_insert(reading)),
            (Some(path), None) => drop(named.insert(path, reading)),
            (None, None) => {}
        }
    }
    called.extend(named);
    Documents(called)
}

fn own_id(value: &Value) -> Option<ResourcePath> {
    let id = value.get("@odata.id")?.as_str()?;
    // An id with a fragment is a part of another resource.
    if id.contains('#') {
        return None;
    }
    ResourcePath::parse(id)
}

/// The top folder shared by all files that is not part of the resource paths: archives contain one folder named after
/// the machine.
fn folder_above<'a>(names: impl Iterator<Item = &'a String> + Clone) -> &'a str {
    let first = |name: &'a String| {
        name.split_once('/')
            .map(|(folder, _)| &name[..=folder.len()])
    };
    let mut folders = names.map(first);
    match folders.next().flatten() {
        Some(folder) if folder != "redfish/" && folders.all(|other| other == Some(folder)) => {
            folder
        }
        _ => "",
    }
}

/// The resource path derived from a file name.
fn path_of(name: &str) -> Option<ResourcePath> {
    let stem = name.strip_suffix(".json")?;
    if let Some(flat) = stem.strip_prefix(FLAT_NAME_PREFIX) {
        return ResourcePath::parse(&format!("/redfish/v1{}", flat.replace('_', "/")));
    }
    let is_index = stem == "index" || stem.ends_with("/index");
    let stem = stem.strip_suffix("index").unwrap_or(stem);
    if stem.is_empty() {
        return Some(ResourcePath::root());
    }
    if let Some(below) = stem.strip_prefix("redfish/v1") {
        return ResourcePath::parse(&format!("/redfish/v1{below}"));
    }
    // The name of a top-level file (`power.json`) is chosen by the recorder, that of a folder by the BMC.
    (is_index || stem.contains('/')).then(|| ResourcePath::parse(&format!("/redfish/v1/{stem}")))?
}

#[cfg(test)]
#[path = "recorded/tests.rs"]
mod tests;
