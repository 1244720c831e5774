//! Files below an injectable root, as readings, within bounds.
//!
//! What is read may be anything: an attribute that answers for ever, a folder with a million
//! entries, a FIFO put where a file should be. Each becomes a failure with its reason in bounded
//! time and memory. What no bound helps against, a read that blocks in the kernel, is ended from
//! outside ([`crate::probe_isolated`]).

use crate::text;
use crate::{Digest, Reading};
use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The longest file a probe reads: `/proc/cpuinfo` of a node with 768 threads is near
/// 2 MiB, everything else far smaller.
pub const LONGEST_FILE: u64 = 8 << 20;

/// The most entries of one folder: 16 GPUs and NICs with all virtual functions are 5,000.
pub const MOST_ENTRIES: usize = 1 << 14;

/// What one probe may read in all: ten times what the largest node has.
pub const MOST_BYTES: u64 = 64 << 20;

/// How often one probe may open something: 768 processors with ten attributes each are 7,680.
pub const MOST_ACCESSES: u64 = 1 << 17;

/// How many folders a probe remembers the way to: the largest node has a few hundred.
const MOST_FOLDERS: usize = 1 << 12;

/// What the hash of a file is derived under; it never equals another kind of digest.
const HASH_CONTEXT: &str = "lattice file content";
/// How a capture marks a hash that it keeps instead of a content.
const KEPT_HASH: &str = "only the hash of this file was kept: ";

/// ENXIO, ENODEV: a file of a device that is not there any more.
const GONE: [i32; 2] = [6, 19];

/// As the kernel does.
const MOST_LINKS: usize = 40;

/// What a probe touched, for [`crate::capture`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Touched {
    /// A file with its content.
    File(Content),
    /// A directory that was listed, with the names in it.
    Dir(Vec<String>),
    /// A symbolic link with its target.
    Link(PathBuf),
}

/// What came of reading something that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenUnread", into = "Reading<()>")]
pub(crate) struct Unread(Reading<()>);

/// As it is written down, now or before: a bare text that names no state is a refusal's.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenUnread {
    State(Reading<()>),
    Refusal(String),
}

impl From<WrittenUnread> for Unread {
    fn from(written: WrittenUnread) -> Self {
        Self(match written {
            WrittenUnread::State(reading) => reading,
            WrittenUnread::Refusal(why) => Reading::denied(why),
        })
    }
}

impl From<Unread> for Reading<()> {
    fn from(unread: Unread) -> Self {
        unread.0
    }
}

impl Unread {
    fn reading<T>(&self) -> Reading<T> {
        // Nobody writes down what could be read as if it could not.
        self.0.clone().and_then(|()| Reading::Absent)
    }

    /// For one that is to be written down.
    fn of<T>(reading: &Reading<T>) -> Option<Self> {
        match reading {
            Reading::Present(_) | Reading::Absent => None,
            other => Some(Self(other.as_ref().map(|_| ()))),
        }
    }
}

/// Bytes that are text as a rule: as JSON they are as long as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Content {
    /// UTF-8.
    Text(String),
    /// Anything else.
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

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Reading::Denied { why } => f.write_str(why),
            reading => reading.as_ref().map(|()| "read").fmt(f),
        }
    }
}

/// The file in a captured tree that names what could not be read when it was captured, so that
/// it does not turn into "absent".
pub(crate) const UNREADABLE: &str = "unreadable.json";

/// Everything a probe touched, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Touches {
    /// What is there. No part of such a path is a link.
    pub places: BTreeMap<PathBuf, Touched>,
    /// What could not be read, by the path that was asked for.
    pub unread: BTreeMap<PathBuf, Unread>,
}

pub(crate) type Trace = Arc<Mutex<Touches>>;

impl Touches {
    /// Adds what another probe touched: who read more of a place knows better.
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

impl Touched {
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
            // The first one read counts: both were true a moment apart.
            _ => {}
        }
    }
}

/// What is left of what one probe may read.
#[derive(Debug)]
struct Budget {
    bytes: AtomicU64,
    accesses: AtomicU64,
}

impl Budget {
    const fn new() -> Self {
        Self {
            bytes: AtomicU64::new(MOST_BYTES),
            accesses: AtomicU64::new(MOST_ACCESSES),
        }
    }

    fn take(left: &AtomicU64, amount: u64) -> bool {
        let less = |left: u64| Some(left.saturating_sub(amount));
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.is_ok_and(|before| before >= amount)
    }
}

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
    /// Where folders are, as they were asked for, once their links are followed.
    folders: Option<Arc<Mutex<HashMap<PathBuf, PathBuf>>>>,
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
            folders: None,
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
            folders: Some(Arc::default()),
            ..self.clone()
        }
    }

    /// The same root, writing down what is read.
    pub(crate) fn traced(&self) -> (Self, Trace) {
        let trace = Trace::default();
        let root = Self {
            trace: Some(Arc::clone(&trace)),
            // Every link that is followed is to be written down.
            folders: self.folders.as_ref().map(|_| Arc::default()),
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

    fn touch(&self, path: &Path, what: impl FnOnce() -> Touched) {
        if let Some(trace) = &self.trace {
            let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
            trace.places.insert(path.to_owned(), what());
        }
    }

    /// Notes what could not be read.
    fn touch_unread<T>(&self, path: &Path, reading: &Reading<T>) {
        if let Some(unread) = Unread::of(reading) {
            self.note_unread(path, unread);
        }
    }

    fn note_unread(&self, path: &Path, unread: Unread) {
        if let Some(trace) = &self.trace {
            let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
            trace.unread.insert(path.to_owned(), unread);
        }
    }

    /// Notes that something is there, without its content, unless more is known of it.
    fn touch_place(&self, path: &Path) {
        let Some(trace) = &self.trace else {
            return;
        };
        let is_dir = fs::metadata(self.on_disk(path)).is_ok_and(|meta| meta.is_dir());
        let what = if is_dir {
            Touched::Dir(Vec::new())
        } else {
            Touched::File(Content::Text(String::new()))
        };
        let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
        trace.places.entry(path.to_owned()).or_insert(what);
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
        match &self.budget {
            Some(budget) if !Budget::take(&budget.accesses, 1) => Err(io::Error::other(format!(
                "this probe opened more than {MOST_ACCESSES} files and folders"
            ))),
            _ => Ok(()),
        }
    }

    /// Where a folder is, as far as this probe has found out.
    fn known(&self, folder: &Path) -> Option<PathBuf> {
        let folders = self.folders.as_ref()?.lock();
        let folders = folders.unwrap_or_else(PoisonError::into_inner);
        folders.get(folder).cloned()
    }

    fn learn(&self, path: &Path, folder: &Path) {
        if let (Some(folders), Some(parent)) = (&self.folders, path.parent()) {
            let mut folders = folders.lock().unwrap_or_else(PoisonError::into_inner);
            if folders.len() < MOST_FOLDERS {
                folders.insert(parent.to_owned(), folder.to_owned());
            }
        }
    }

    /// The link-free absolute path (as the machine saw it) of `path`.
    ///
    /// # Errors
    /// A missing component, too many links, or what the file system says.
    pub fn resolve(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        self.access()?;
        let path = path.as_ref();
        let known = path.parent().and_then(|folder| self.known(folder));
        let mut is_new = known.is_none();
        let (mut done, mut todo) = match (known, path.file_name()) {
            (Some(folder), Some(name)) => (folder, VecDeque::from([PathBuf::from(name)])),
            _ => (PathBuf::from("/"), split(path)),
        };
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            // Nothing but the name itself is left, for the first time.
            if todo.is_empty() && std::mem::take(&mut is_new) {
                self.learn(path, &done);
            }
            if part == Path::new("..") {
                done.pop();
                continue;
            }
            done.push(&part);
            let disk = self.on_disk(&done);
            if !fs::symlink_metadata(&disk)?.file_type().is_symlink() {
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::other("too many symbolic links"));
            }
            let target = fs::read_link(&disk)?;
            self.touch(&done, || Touched::Link(target.clone()));
            if target.is_absolute() {
                done = PathBuf::from("/");
            } else {
                done.pop();
            }
            let mut ahead = split(&target);
            ahead.append(&mut todo);
            todo = ahead;
        }
        self.touch_place(&done);
        Ok(done)
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
        match &self.budget {
            Some(budget) if !Budget::take(&budget.bytes, bytes.len() as u64) => Err(
                io::Error::other(format!("this probe read more than {MOST_BYTES} bytes")),
            ),
            _ => Ok(bytes),
        }
    }

    /// The hash of a file whose content never leaves the node; a capture keeps the hash in the
    /// content's place.
    #[must_use]
    pub fn hash(&self, path: impl AsRef<Path>) -> Reading<String> {
        let path = path.as_ref();
        let quiet = Self {
            trace: None,
            // A link that is followed here is not written down, so others are to find it anew.
            folders: None,
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

/// Opens a regular file, and nothing else: a FIFO waits for a writer, a device may do something
/// when it is opened.
fn open_file(path: &Path) -> io::Result<File> {
    refuse_special(FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode))?;
    // It may have become something else meanwhile: opening must not wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    refuse_special(FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode))?;
    Ok(file.into())
}

fn refuse_special(kind: FileType) -> io::Result<()> {
    let what = match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Fifo => "is a FIFO",
        FileType::Socket => "is a socket",
        FileType::Directory => "is a directory",
        FileType::CharacterDevice | FileType::BlockDevice => "is a device",
        FileType::Symlink | FileType::Unknown => "is no regular file",
    };
    Err(io::Error::other(what))
}

/// The whole content, or an error where there is more than `most`. Nothing is reserved by the
/// length that the file system tells: in sysfs and procfs it means nothing.
pub(crate) fn read_all(from: &mut impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// Something recorded beside a tree: a regular file, and no link to one.
pub(crate) fn read_record(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        return Err(io::Error::other("is a link"));
    }
    read_all(&mut open_file(path)?, most)
}

/// The hash that a capture keeps instead of a file.
fn kept_hash(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let hash = text.strip_prefix(KEPT_HASH)?.trim();
    let digest: Digest = hash.parse().ok()?;
    Some(digest.to_string())
}

fn split(path: &Path) -> VecDeque<PathBuf> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(PathBuf::from(name)),
            Component::ParentDir => Some(PathBuf::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests;
