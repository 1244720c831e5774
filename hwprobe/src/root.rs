//! Files below a replaceable root folder, returned as readings, within bounds.
//!
//! A read may find an attribute that never ends, a folder with a million entries, or a FIFO in place of a file. Each
//! becomes a failure with its reason, in bounded time and memory. A read that blocks in the kernel cannot be bounded
//! here; the parent process ends it ([`crate::probe_isolated`]).

mod access_record;
mod bounds;
mod file;
mod path;

pub(crate) use access_record::{AccessedPath, AccessedPaths, Trace, UNREADABLE};
pub use bounds::{MAX_FILE_BYTES, MAX_FOLDER_ENTRIES, MAX_PROBE_ACCESSES, MAX_PROBE_BYTES};
pub(crate) use file::{read_all, read_record};

use access_record::UnreadablePath;
use bounds::Budget;
use file::open_file;
use lattice_conformance::{Digest, Reading, text};
use path::ResolvedFolders;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Derivation context of a file's hash, so that the hash never equals another kind of digest.
const HASH_CONTEXT: &str = "lattice file content";
/// Prefix that marks a hash which a capture keeps in place of a file's content.
const KEPT_HASH: &str = "only the hash of this file was kept: ";

/// ENXIO, ENODEV: a file of a device that no longer exists.
const DEVICE_GONE_ERRNOS: [i32; 2] = [6, 19];

/// A folder in the role of `/`.
///
/// Symbolic links are followed inside the folder: an absolute target starts at the root again, and `..` never leaves
/// the root, so a captured tree behaves as the machine did.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "PathBuf", into = "PathBuf")]
pub struct Root {
    path: PathBuf,
    unreadable: Arc<OnceLock<BTreeMap<PathBuf, UnreadablePath>>>,
    budget: Option<Arc<Budget>>,
    trace: Option<Trace>,
    ways: Option<Arc<ResolvedFolders>>,
}

impl From<PathBuf> for Root {
    fn from(path: PathBuf) -> Self {
        Self::new(path)
    }
}

impl From<Root> for PathBuf {
    fn from(root: Root) -> Self {
        root.path
    }
}

impl Root {
    /// The tree below `path`. Nothing is read yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            unreadable: Arc::default(),
            budget: None,
            trace: None,
            ways: None,
        }
    }

    /// The folder on disk.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A root for one probe, which may read [`MAX_PROBE_BYTES`] and open files and folders [`MAX_PROBE_ACCESSES`] times
    /// in total. The links of a folder are resolved once: attributes are a dozen levels deep, and most attributes of a
    /// folder are read together.
    #[must_use]
    pub fn bounded(&self) -> Self {
        Self {
            budget: Some(Arc::new(Budget::new())),
            ways: Some(Arc::default()),
            ..self.clone()
        }
    }

    /// A root that records every access.
    pub(crate) fn traced(&self) -> (Self, Trace) {
        let trace = Trace::default();
        let root = Self {
            trace: Some(Arc::clone(&trace)),
            // Every followed link must be recorded.
            ways: self.ways.as_ref().map(|_| Arc::default()),
            ..self.clone()
        };
        (root, trace)
    }

    /// Paths that could not be read when this tree was captured.
    fn unreadable(&self) -> &BTreeMap<PathBuf, UnreadablePath> {
        self.unreadable.get_or_init(|| {
            let list = (self.path != Path::new("/"))
                .then(|| open_file(&self.path.join(UNREADABLE)).ok())
                .flatten();
            let json = list.and_then(|mut file| read_all(&mut file, MAX_FILE_BYTES).ok());
            json.and_then(|json| serde_json::from_slice(&json).ok())
                .unwrap_or_default()
        })
    }

    fn is_live(&self) -> bool {
        self.path == Path::new("/") && self.trace.is_none()
    }

    /// Path on disk of the link-free `virtual_path`.
    fn on_disk(&self, virtual_path: &Path) -> PathBuf {
        let below = virtual_path.strip_prefix("/").unwrap_or(virtual_path);
        self.path.join(below)
    }

    /// Counts one access against the budget.
    fn access(&self) -> io::Result<()> {
        self.budget.as_ref().map_or(Ok(()), |left| left.access())
    }

    /// The bytes of a file. A file longer than [`MAX_FILE_BYTES`] is a failure, because a truncated value was never
    /// written.
    #[must_use]
    pub fn bytes(&self, path: impl AsRef<Path>) -> Reading<Vec<u8>> {
        self.read_with(path.as_ref(), |path| self.read(path))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if self.is_live() {
            self.access()?;
            return self.content(&mut open_file(path)?);
        }
        let resolved = self.resolve(path)?;
        let bytes = self.content(&mut open_file(&self.on_disk(&resolved))?)?;
        self.record_access(&resolved, || AccessedPath::File(bytes.clone().into()));
        Ok(bytes)
    }

    fn content(&self, file: &mut File) -> io::Result<Vec<u8>> {
        let bytes = read_all(file, MAX_FILE_BYTES)?;
        if let Some(left) = &self.budget {
            left.read(&bytes)?;
        }
        Ok(bytes)
    }

    /// The hash of a file with content that never leaves the node; a capture keeps the hash in place of the content.
    #[must_use]
    pub fn hash(&self, path: impl AsRef<Path>) -> Reading<String> {
        let path = path.as_ref();
        let quiet = Self {
            trace: None,
            // Links followed here are not recorded, so later reads must follow them again.
            ways: None,
            ..self.clone()
        };
        let is_machine = self.path == Path::new("/");
        let hash = quiet.bytes(path).map(|bytes| {
            let kept = (!is_machine).then(|| kept_hash(&bytes)).flatten();
            kept.unwrap_or_else(|| Digest::derive(HASH_CONTEXT, &bytes).to_string())
        });
        if let Reading::Present(hash) = &hash {
            let kept = format!("{KEPT_HASH}{hash}\n").into_bytes();
            self.record_access(path, || AccessedPath::File(kept.into()));
        }
        self.record_unreadable(path, &hash);
        hash
    }

    /// The unchanged text of a file. Content that is not UTF-8 is a failure: garbage must not become a value. The failure
    /// does not quote the content, which may contain secrets (`/proc/cmdline`).
    #[must_use]
    pub fn text(&self, path: impl AsRef<Path>) -> Reading<String> {
        let path = path.as_ref();
        self.bytes(path).and_then(|bytes| {
            String::from_utf8(bytes).map_or_else(
                |error| {
                    let at = error.utf8_error().valid_up_to();
                    Reading::failed(format!("{}: not UTF-8 at byte {at}", path.display()))
                },
                Reading::Present,
            )
        })
    }

    /// A file with one value. Content that is not UTF-8 is a failure that quotes the bytes.
    fn value(&self, path: &Path, parse: impl FnOnce(&str) -> Reading<String>) -> Reading<String> {
        let bytes = self.bytes(path);
        bytes.and_then(|bytes| text::decode(&path.to_string_lossy(), &bytes).and_then(parse))
    }

    /// Whether the content of a file was read and is not UTF-8. Such a file has a value, which may differ from that of
    /// another node.
    pub(crate) fn is_undecodable(&self, path: impl AsRef<Path>) -> bool {
        let bytes = self.bytes(path);
        bytes
            .present()
            .is_some_and(|bytes| std::str::from_utf8(bytes).is_err())
    }

    /// A one-value file written by the kernel: whitespace is trimmed, and an empty file is unsupported.
    #[must_use]
    pub fn line(&self, path: impl AsRef<Path>) -> Reading<String> {
        self.value(path.as_ref(), text::plain)
    }

    /// A one-value file with text from firmware: placeholders are unsupported.
    #[must_use]
    pub fn firmware(&self, path: impl AsRef<Path>) -> Reading<String> {
        self.value(path.as_ref(), text::firmware)
    }

    /// A one-value file with a setting of the firmware: as [`Root::firmware`], but a text of zeros is a value.
    #[must_use]
    pub fn setting(&self, path: impl AsRef<Path>) -> Reading<String> {
        self.value(path.as_ref(), text::setting)
    }

    /// The names in a directory, sorted. More than [`MAX_FOLDER_ENTRIES`], or a name that is not UTF-8 and so could not
    /// be opened by name, is a failure.
    #[must_use]
    pub fn list(&self, dir: impl AsRef<Path>) -> Reading<Vec<String>> {
        self.list_within(dir.as_ref(), MAX_FOLDER_ENTRIES)
    }

    fn list_within(&self, dir: &Path, most: usize) -> Reading<Vec<String>> {
        self.read_with(dir, |dir| self.names(dir, most))
    }

    /// Reads, unless the capture lists the path as unreadable. Records a path that is unreadable now.
    fn read_with<T>(&self, path: &Path, read: impl Fn(&Path) -> io::Result<T>) -> Reading<T> {
        let reading = match self.unreadable().get(path) {
            Some(unread) => unread.reading(),
            None => match read(path) {
                Ok(value) => Reading::Present(value),
                Err(error) => {
                    // The file exists but its device does not: an empty file in the capture would claim otherwise.
                    if error
                        .raw_os_error()
                        .is_some_and(|code| DEVICE_GONE_ERRNOS.contains(&code))
                    {
                        self.insert_unreadable(path, UnreadablePath(Reading::Absent));
                    }
                    Reading::from_io(&path.to_string_lossy(), &error)
                }
            },
        };
        if matches!(reading, Reading::Absent) && self.unreadable().contains_key(path) {
            self.insert_unreadable(path, UnreadablePath(Reading::Absent));
        }
        self.record_unreadable(path, &reading);
        reading
    }

    fn names(&self, dir: &Path, most: usize) -> io::Result<Vec<String>> {
        let resolved = self.resolve(dir)?;
        let mut names = Vec::new();
        for entry in fs::read_dir(self.on_disk(&resolved))? {
            if names.len() == most {
                let text = format!("more than {most} entries");
                return Err(io::Error::other(text));
            }
            let name = entry?.file_name().into_string().map_err(|name| {
                io::Error::other(format!(
                    "the directory entry {} is not UTF-8",
                    name.display()
                ))
            })?;
            names.push(name);
        }
        names.sort();
        self.record_access(&resolved, || AccessedPath::Dir(names.clone()));
        Ok(names)
    }

    /// The last path component of a link's target, e.g. the name of a device's driver.
    #[must_use]
    pub fn link_name(&self, path: impl AsRef<Path>) -> Reading<String> {
        self.read_with(path.as_ref(), |path| self.link_target(path))
    }

    fn link_target(&self, path: &Path) -> io::Result<String> {
        let parent = match path.parent() {
            Some(parent) => self.resolve(parent)?,
            None => PathBuf::from("/"),
        };
        let link = parent.join(path.file_name().unwrap_or_default());
        let target = fs::read_link(self.on_disk(&link))?;
        self.record_access(&link, || AccessedPath::Link(target.clone()));
        let name = target.file_name().unwrap_or_default().to_str();
        name.map_or_else(
            || Err(io::Error::other("link target is not UTF-8")),
            |name| Ok(name.to_owned()),
        )
    }

    /// Whether the path exists, following links; false if unknown. Use [`Root::presence`] if a decision depends on
    /// absence.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.resolve(path).is_ok()
    }

    /// Whether the path exists, with "absent" distinct from "unknown".
    #[must_use]
    pub fn presence(&self, path: impl AsRef<Path>) -> Reading<()> {
        let path = path.as_ref();
        let reading = match self.resolve(path) {
            // Unreadable content does not matter here.
            Ok(_) => return Reading::Present(()),
            Err(error) => Reading::from_io(&path.to_string_lossy(), &error),
        };
        let reading = match (reading, self.unreadable().get(path)) {
            (Reading::Absent, Some(unread)) => unread.reading(),
            (reading, _) => reading,
        };
        self.record_unreadable(path, &reading);
        reading
    }
}

/// The hash that a capture keeps in place of a file's content.
fn kept_hash(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let hash = text.strip_prefix(KEPT_HASH)?.trim();
    let digest: Digest = hash.parse().ok()?;
    Some(digest.to_string())
}

#[cfg(test)]
mod tests;
