//! Files below an injectable root, as readings, within bounds.
//!
//! What is read may be anything: an attribute that answers for ever, a folder with a million
//! entries, a FIFO put where a file should be. Each becomes a failure with its reason in bounded
//! time and memory. What no bound helps against, a read that blocks in the kernel, is ended from
//! outside ([`crate::probe_isolated`]).

mod bounds;
mod file;
mod touch;
mod way;

pub use bounds::{LONGEST_FILE, MOST_ACCESSES, MOST_BYTES, MOST_ENTRIES};
pub(crate) use file::{read_all, read_record};
pub(crate) use touch::{Touched, Touches, Trace, UNREADABLE};

use crate::text;
use crate::{Digest, Reading};
use bounds::Budget;
use file::open_file;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use touch::Unread;
use way::Ways;

/// What the hash of a file is derived under; it never equals another kind of digest.
const HASH_CONTEXT: &str = "lattice file content";
/// How a capture marks a hash that it keeps instead of a content.
const KEPT_HASH: &str = "only the hash of this file was kept: ";

/// ENXIO, ENODEV: a file of a device that is not there any more.
const GONE: [i32; 2] = [6, 19];

/// A directory that stands for `/`.
///
/// Symbolic links are followed inside it: an absolute target begins at the root again,
/// and `..` never leaves it, so a captured tree behaves as the machine did.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "PathBuf", into = "PathBuf")]
pub struct Root {
    path: PathBuf,
    unreadable: Arc<OnceLock<BTreeMap<PathBuf, Unread>>>,
    budget: Option<Arc<Budget>>,
    trace: Option<Trace>,
    ways: Option<Arc<Ways>>,
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
    /// The tree below `path`. Nothing of it is read yet.
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

    /// The directory on disk.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same root for one probe, which may read [`MOST_BYTES`] and open something
    /// [`MOST_ACCESSES`] times in all. Where a folder's links lead is found out once: attributes
    /// lie a dozen deep, and most of a folder's are read together.
    #[must_use]
    pub fn bounded(&self) -> Self {
        Self {
            budget: Some(Arc::new(Budget::new())),
            ways: Some(Arc::default()),
            ..self.clone()
        }
    }

    /// The same root, writing down what is read.
    pub(crate) fn traced(&self) -> (Self, Trace) {
        let trace = Trace::default();
        let root = Self {
            trace: Some(Arc::clone(&trace)),
            // Every link that is followed is to be written down.
            ways: self.ways.as_ref().map(|_| Arc::default()),
            ..self.clone()
        };
        (root, trace)
    }

    /// What could not be read when this tree was captured.
    fn unreadable(&self) -> &BTreeMap<PathBuf, Unread> {
        self.unreadable.get_or_init(|| {
            let list = (self.path != Path::new("/"))
                .then(|| open_file(&self.path.join(UNREADABLE)).ok())
                .flatten();
            let json = list.and_then(|mut file| read_all(&mut file, LONGEST_FILE).ok());
            json.and_then(|json| serde_json::from_slice(&json).ok())
                .unwrap_or_default()
        })
    }

    fn is_live(&self) -> bool {
        self.path == Path::new("/") && self.trace.is_none()
    }

    /// Where `path` is on disk once `virtual_path` is link-free.
    fn on_disk(&self, virtual_path: &Path) -> PathBuf {
        let below = virtual_path.strip_prefix("/").unwrap_or(virtual_path);
        self.path.join(below)
    }

    /// Counts one access.
    fn access(&self) -> io::Result<()> {
        self.budget.as_ref().map_or(Ok(()), |left| left.access())
    }

    /// The bytes of a file; [`LONGEST_FILE`] of them are a failure, since what is cut off
    /// would be a value nobody wrote.
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
        self.touch(&resolved, || Touched::File(bytes.clone().into()));
        Ok(bytes)
    }

    fn content(&self, file: &mut File) -> io::Result<Vec<u8>> {
        let bytes = read_all(file, LONGEST_FILE)?;
        if let Some(left) = &self.budget {
            left.read(&bytes)?;
        }
        Ok(bytes)
    }

    /// The hash of a file whose content never leaves the node; a capture keeps the hash in the
    /// content's place.
    #[must_use]
    pub fn hash(&self, path: impl AsRef<Path>) -> Reading<String> {
        let path = path.as_ref();
        let quiet = Self {
            trace: None,
            // A link that is followed here is not written down, so others are to find it anew.
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
            self.touch(path, || Touched::File(kept.into()));
        }
        self.touch_unread(path, &hash);
        hash
    }

    /// The text of a file, untouched. Bytes that are no text are a failure: garbage must
    /// not become a value.
    #[must_use]
    pub fn text(&self, path: impl AsRef<Path>) -> Reading<String> {
        let path = path.as_ref();
        self.bytes(path).and_then(|bytes| {
            String::from_utf8(bytes).map_or_else(
                |_| Reading::failed(format!("{}: not text", path.display())),
                Reading::Present,
            )
        })
    }

    /// A one-value file written by the kernel: blanks trimmed, empty is unsupported.
    #[must_use]
    pub fn line(&self, path: impl AsRef<Path>) -> Reading<String> {
        self.text(path).and_then(|line| text::plain(&line))
    }

    /// A one-value file whose text comes from firmware: placeholders are unsupported.
    #[must_use]
    pub fn firmware(&self, path: impl AsRef<Path>) -> Reading<String> {
        self.text(path).and_then(|line| text::firmware(&line))
    }

    /// The sorted names in a directory. More than [`MOST_ENTRIES`], or one that is not UTF-8
    /// and so could not be opened by its name again, are a failure.
    #[must_use]
    pub fn list(&self, dir: impl AsRef<Path>) -> Reading<Vec<String>> {
        self.list_within(dir.as_ref(), MOST_ENTRIES)
    }

    fn list_within(&self, dir: &Path, most: usize) -> Reading<Vec<String>> {
        self.read_with(dir, |dir| self.names(dir, most))
    }

    /// Reads, unless the capture says that it could not be read; notes what cannot be now.
    fn read_with<T>(&self, path: &Path, read: impl Fn(&Path) -> io::Result<T>) -> Reading<T> {
        let reading = match self.unreadable().get(path) {
            Some(unread) => unread.reading(),
            None => match read(path) {
                Ok(value) => Reading::Present(value),
                Err(error) => {
                    // The file is there and its device is not: an empty one would say otherwise.
                    if error
                        .raw_os_error()
                        .is_some_and(|code| GONE.contains(&code))
                    {
                        self.note_unread(path, Unread(Reading::Absent));
                    }
                    Reading::from_io(&path.to_string_lossy(), &error)
                }
            },
        };
        if matches!(reading, Reading::Absent) && self.unreadable().contains_key(path) {
            self.note_unread(path, Unread(Reading::Absent));
        }
        self.touch_unread(path, &reading);
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
                io::Error::other(format!("the entry {} is not UTF-8", name.display()))
            })?;
            names.push(name);
        }
        names.sort();
        self.touch(&resolved, || Touched::Dir(names.clone()));
        Ok(names)
    }

    /// The last component a link points to, e.g. a device's driver.
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
        self.touch(&link, || Touched::Link(target.clone()));
        let name = target.file_name().unwrap_or_default().to_str();
        name.map_or_else(
            || Err(io::Error::other("leads to a name that is not text")),
            |name| Ok(name.to_owned()),
        )
    }

    /// Whether something is known to be there, following links. For who decides by its absence
    /// there is [`Root::presence`].
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.resolve(path).is_ok()
    }

    /// The same, with "not there" apart from "nobody knows".
    #[must_use]
    pub fn presence(&self, path: impl AsRef<Path>) -> Reading<()> {
        let path = path.as_ref();
        let reading = match self.resolve(path) {
            // That its content could not be read is another matter.
            Ok(_) => return Reading::Present(()),
            Err(error) => Reading::from_io(&path.to_string_lossy(), &error),
        };
        let reading = match (reading, self.unreadable().get(path)) {
            (Reading::Absent, Some(unread)) => unread.reading(),
            (reading, _) => reading,
        };
        self.touch_unread(path, &reading);
        reading
    }
}

/// The hash that a capture keeps instead of a file.
fn kept_hash(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let hash = text.strip_prefix(KEPT_HASH)?.trim();
    let digest: Digest = hash.parse().ok()?;
    Some(digest.to_string())
}

#[cfg(test)]
mod tests;
