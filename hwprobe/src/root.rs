//! Files below an injectable root, as readings.

use crate::Reading;
use crate::text;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The longest file a probe reads: `/proc/cpuinfo` of a node with 768 threads is near
/// 2 MiB, everything else far smaller.
const LONGEST_FILE: u64 = 8 << 20;

/// As the kernel does.
const MOST_LINKS: usize = 40;

/// What a probe touched, for [`crate::capture`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// A file with its content.
    File(Vec<u8>),
    /// A directory that was listed.
    Dir,
    /// A symbolic link with its target.
    Link(PathBuf),
    /// Something that is there and may not be read.
    Unreadable(String),
}

/// The file in a captured tree that names what was denied when it was captured, so that
/// it does not turn into "absent".
pub(crate) const UNREADABLE: &str = "unreadable.json";

pub(crate) type Trace = Arc<Mutex<BTreeMap<PathBuf, Touched>>>;

/// A directory that stands for `/`.
///
/// Symbolic links are followed inside it: an absolute target begins at the root again,
/// and `..` never leaves it, so a captured tree behaves as the machine did.
#[derive(Clone, Debug)]
pub struct Root {
    path: PathBuf,
    unreadable: Arc<BTreeMap<PathBuf, String>>,
    trace: Option<Trace>,
}

impl Root {
    /// The tree below `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let list = (path != Path::new("/"))
            .then(|| fs::read(path.join(UNREADABLE)).ok())
            .flatten();
        let unreadable = list.and_then(|json| serde_json::from_slice(&json).ok());
        Self {
            path,
            unreadable: Arc::new(unreadable.unwrap_or_default()),
            trace: None,
        }
    }

    /// The directory on disk.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same root, writing down what is read.
    pub(crate) fn traced(&self) -> (Self, Trace) {
        let trace = Trace::default();
        let root = Self {
            path: self.path.clone(),
            unreadable: Arc::clone(&self.unreadable),
            trace: Some(Arc::clone(&trace)),
        };
        (root, trace)
    }

    fn touch(&self, path: &Path, what: impl FnOnce() -> Touched) {
        if let Some(trace) = &self.trace {
            let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
            trace.insert(path.to_owned(), what());
        }
    }

    /// Notes that something is there, without its content, unless more is known of it.
    fn touch_place(&self, path: &Path) {
        let Some(trace) = &self.trace else {
            return;
        };
        let is_dir = fs::metadata(self.on_disk(path)).is_ok_and(|meta| meta.is_dir());
        let what = if is_dir {
            Touched::Dir
        } else {
            Touched::File(Vec::new())
        };
        let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
        trace.entry(path.to_owned()).or_insert(what);
    }

    fn is_live(&self) -> bool {
        self.path == Path::new("/") && self.trace.is_none()
    }

    /// Where `path` is on disk once `virtual_path` is link-free.
    fn on_disk(&self, virtual_path: &Path) -> PathBuf {
        let below = virtual_path.strip_prefix("/").unwrap_or(virtual_path);
        self.path.join(below)
    }

    /// The link-free absolute path (as the machine saw it) of `path`.
    ///
    /// # Errors
    /// A missing component, too many links, or what the file system says.
    pub fn resolve(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let mut done = PathBuf::from("/");
        let mut links = 0;
        let mut todo: VecDeque<PathBuf> = split(path.as_ref());
        while let Some(part) = todo.pop_front() {
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

    /// The bytes of a file.
    #[must_use]
    pub fn bytes(&self, path: impl AsRef<Path>) -> Reading<Vec<u8>> {
        self.read_with(path.as_ref(), |path| self.read(path))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if self.is_live() {
            File::open(path)?
                .take(LONGEST_FILE)
                .read_to_end(&mut bytes)?;
            return Ok(bytes);
        }
        let resolved = self.resolve(path)?;
        File::open(self.on_disk(&resolved))?
            .take(LONGEST_FILE)
            .read_to_end(&mut bytes)?;
        self.touch(&resolved, || Touched::File(bytes.clone()));
        Ok(bytes)
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

    /// The sorted names in a directory.
    #[must_use]
    pub fn list(&self, dir: impl AsRef<Path>) -> Reading<Vec<String>> {
        self.read_with(dir.as_ref(), |dir| self.names(dir))
    }

    /// Reads, unless the capture says it was denied; notes what is denied now.
    fn read_with<T>(&self, path: &Path, read: impl Fn(&Path) -> io::Result<T>) -> Reading<T> {
        if let Some(why) = self.unreadable.get(path) {
            return Reading::denied(why.clone());
        }
        match read(path) {
            Ok(value) => Reading::Present(value),
            Err(error) => {
                let reading = Reading::from_io(&path.to_string_lossy(), &error);
                if let Reading::Denied { why } = &reading {
                    self.touch(path, || Touched::Unreadable(why.clone()));
                }
                reading
            }
        }
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<String>> {
        let resolved = self.resolve(dir)?;
        let mut names = Vec::new();
        for entry in fs::read_dir(self.on_disk(&resolved))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        self.touch(&resolved, || Touched::Dir);
        Ok(names)
    }

    /// The last component a link points to, e.g. a device's driver.
    #[must_use]
    pub fn link_name(&self, path: impl AsRef<Path>) -> Reading<String> {
        let path = path.as_ref();
        let disk = match path
            .parent()
            .map_or(Ok(PathBuf::from("/")), |p| self.resolve(p))
        {
            Ok(parent) => parent.join(path.file_name().unwrap_or_default()),
            Err(error) => return Reading::from_io(&path.to_string_lossy(), &error),
        };
        match fs::read_link(self.on_disk(&disk)) {
            Ok(target) => {
                self.touch(&disk, || Touched::Link(target.clone()));
                let name = target.file_name().unwrap_or_default();
                Reading::Present(name.to_string_lossy().into_owned())
            }
            Err(error) => Reading::from_io(&path.to_string_lossy(), &error),
        }
    }

    /// Whether something is there, following links.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.resolve(path).is_ok()
    }
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
