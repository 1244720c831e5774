//! Path resolution below a root: links are followed inside the tree.

use super::{AccessedPath, Root};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Maximum number of folders in a probe's cache; the largest node needs a few hundred.
const MAX_CACHED_FOLDERS: usize = 1 << 12;

/// Maximum number of links followed for one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Link-free paths of folders, by the requested path.
#[derive(Debug, Default)]
pub(super) struct ResolvedFolders(Mutex<HashMap<PathBuf, PathBuf>>);

impl ResolvedFolders {
    /// The cached path of a folder, if this probe has resolved it.
    fn get(&self, folder: &Path) -> Option<PathBuf> {
        let folders = self.0.lock();
        folders.get(folder).cloned()
    }

    fn insert(&self, asked: &Path, folder: &Path) {
        let mut folders = self.0.lock();
        if folders.len() < MAX_CACHED_FOLDERS {
            folders.insert(asked.to_owned(), folder.to_owned());
        }
    }
}

impl Root {
    /// The link-free absolute path of `path`, as on the captured machine.
    ///
    /// # Errors
    /// A missing component, too many links, more accesses than one probe may make, or an I/O error.
    pub fn resolve(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        self.access()?;
        let path = path.as_ref();
        let way = self.ways.as_ref().zip(path.parent());
        let known = way.and_then(|(ways, folder)| ways.get(folder));
        let mut new_way = way.filter(|_| known.is_none());
        let (mut done, mut todo) = match (known, path.file_name()) {
            (Some(folder), Some(name)) => (folder, VecDeque::from([PathBuf::from(name)])),
            _ => (PathBuf::from("/"), split(path)),
        };
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            // Only the last component of the path is left: `done` is the resolved folder.
            if todo.is_empty()
                && let Some((ways, folder)) = new_way.take()
            {
                ways.insert(folder, &done);
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
            if links > MAX_LINKS {
                return Err(io::Error::other("too many symbolic links"));
            }
            let target = fs::read_link(&disk)?;
            self.record_access(&done, || AccessedPath::Link(target.clone()));
            if target.is_absolute() {
                done = PathBuf::from("/");
            } else {
                done.pop();
            }
            let mut ahead = split(&target);
            ahead.append(&mut todo);
            todo = ahead;
        }
        self.record_presence(&done);
        Ok(done)
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
