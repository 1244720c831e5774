//! Data folder of the demo: state that a later start resumes.

use anyhow::{Context as _, bail};
use lattice_host::durable;
use lattice_mesh::{Authority, Clock as _, SystemClock, Validity};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    fmt,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Version of the folder's layout; a build rejects other versions.
const FORMAT: u32 = 1;
/// Cluster name in certificates.
pub const CLUSTER: &str = "demo";
/// Validity of the CA, and so the time for which a kept folder can be resumed.
const CA_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longest time in which the removal of a temporary folder is repeated. Processes and threads that are about to end may
/// still create files in it.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
const REMOVAL_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Contents of `demo.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DemoMarker {
    format: u32,
    nodes: usize,
}

/// What became of the data folder when the demo ended.
#[derive(Debug)]
pub enum FolderEnd {
    /// The folder was temporary, and is gone.
    Removed(PathBuf),
    /// The folder stays, for a later start.
    Kept(PathBuf),
    /// The folder was temporary, and could not be removed.
    NotRemoved(PathBuf, io::Error),
}

impl fmt::Display for FolderEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderEnd::Removed(path) => write!(f, "removed {}", path.display()),
            FolderEnd::Kept(path) => {
                let path = path.display();
                write!(
                    f,
                    "the data is in {path}; resume with `lattice demo --data-dir {path}`"
                )
            }
            FolderEnd::NotRemoved(path, error) => write!(
                f,
                "{} could not be removed ({error}); remove it by hand",
                path.display()
            ),
        }
    }
}

/// Removes a folder with everything in it, and repeats that for at most `timeout`.
fn remove_tree(path: &Path, timeout: Duration) -> io::Result<()> {
    let ends_at = Instant::now() + timeout;
    loop {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(_) if fs::symlink_metadata(path).is_err() => return Ok(()),
            Err(error) if Instant::now() >= ends_at => return Err(error),
            Err(_) => thread::sleep(REMOVAL_RETRY_INTERVAL),
        }
    }
}

/// Locked data folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Number of nodes of the cluster.
    pub nodes: usize,
    /// Whether an earlier demo used the folder.
    pub resumed: bool,
    _lock: File,
    temporary: Option<tempfile::TempDir>,
}

impl Folder {
    /// Returns the number of nodes of the cluster in the folder `dir`; `None` without one. A folder that cannot be used
    /// is reported by [`Folder::open`].
    pub fn kept_nodes(dir: &Path) -> Option<usize> {
        let marker = read_marker(dir).ok().flatten()?;
        Some(marker.nodes)
    }

    /// Opens the folder `dir`, or a temporary one. [`Folder::close`] removes the temporary one; so does a drop, which
    /// does not wait for files that are still written.
    pub fn open(dir: Option<&Path>, nodes: Option<usize>) -> anyhow::Result<Folder> {
        let Some(dir) = dir else {
            let temporary = tempfile::Builder::new()
                .prefix("lattice-demo-")
                .tempdir()
                .context("cannot make a temporary folder; give --data-dir")?;
            let path = temporary.path().to_owned();
            return Self::locked(path, nodes, Some(temporary));
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .and_then(|()| dir.canonicalize())
            .with_context(|| format!("--data-dir {}", dir.display()))
            .and_then(|path| Self::locked(path, nodes, None))
    }

    fn locked(
        path: PathBuf,
        nodes: Option<usize>,
        temporary: Option<tempfile::TempDir>,
    ) -> anyhow::Result<Folder> {
        let about = || format!("--data-dir {}", path.display());
        let foreign = read_marker(&path).with_context(about)?.is_none()
            && names(&path).with_context(about)?.any(|name| name != "lock");
        if foreign {
            bail!(
                "{} is not empty and was not created by a demo; give another folder",
                about()
            );
        }
        let lock = File::create(path.join("lock")).with_context(about)?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "{} is in use by another demo; stop it, or give another folder",
                about()
            );
        }
        let (marker, resumed) = match read_marker(&path).with_context(about)? {
            Some(kept) => match nodes {
                Some(asked) if asked != kept.nodes => bail!(
                    "{} holds a cluster of {} nodes; leave --nodes out, or give another folder",
                    about(),
                    kept.nodes
                ),
                _ => (kept, true),
            },
            None => {
                let nodes = nodes.unwrap_or(super::DEFAULT_NODES);
                let format = FORMAT;
                let marker = DemoMarker { format, nodes };
                write_marker(&path, &marker).with_context(about)?;
                (marker, false)
            }
        };
        Ok(Folder {
            path,
            nodes: marker.nodes,
            resumed,
            _lock: lock,
            temporary,
        })
    }

    /// Returns a subfolder, such as that for the data of one daemon, and creates it if it is missing.
    pub fn member_dir(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Whether the folder is temporary, and so removed when this value is dropped.
    pub fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// Removes the folder if it is temporary. Call this after all tasks have ended.
    pub fn close(self) -> FolderEnd {
        let path = self.path.clone();
        if !self.is_temporary() {
            return FolderEnd::Kept(path);
        }
        match remove_tree(&path, REMOVAL_TIMEOUT) {
            Ok(()) => FolderEnd::Removed(path),
            Err(error) => FolderEnd::NotRemoved(path, error),
        }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the CA of the demo: that of an earlier start, or a new one.
    pub fn authority(&self) -> anyhow::Result<Authority> {
        let folder = self.member_dir("ca")?;
        // An earlier start may have been killed before it created the CA; then no certificate exists.
        if names(&folder)?.next().is_some() {
            return Ok(Authority::load(&folder)?);
        }
        let validity = Validity::from_now(SystemClock.now(), CA_LIFETIME);
        let authority = Authority::create(CLUSTER, validity)?;
        authority.save(&folder)?;
        Ok(authority)
    }
}

fn names(dir: &Path) -> io::Result<impl Iterator<Item = OsString>> {
    let entries: Vec<_> = fs::read_dir(dir)?.collect::<Result<_, _>>()?;
    Ok(entries.into_iter().map(|entry| entry.file_name()))
}

fn read_marker(dir: &Path) -> anyhow::Result<Option<DemoMarker>> {
    let path = dir.join("demo.json");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = serde_json::from_str(&text).context("demo.json")?;
    if format != FORMAT {
        bail!(
            "it has format {format}; this version of Lattice reads format {FORMAT}. Use the version that wrote it, or \
             another folder"
        );
    }
    Ok(Some(serde_json::from_str(&text).context("demo.json")?))
}

fn write_marker(dir: &Path, marker: &DemoMarker) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(marker)?;
    Ok(durable::replace(&dir.join("demo.json"), &text, 0o600)?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn error(dir: &Path, nodes: Option<usize>) -> String {
        format!("{:#}", Folder::open(Some(dir), nodes).unwrap_err())
    }

    #[test]
    fn a_kept_folder_is_resumed_with_its_size_and_ca() {
        let dir = tempfile::tempdir().unwrap();
        let first = Folder::open(Some(dir.path()), Some(8)).unwrap();
        assert!(!first.resumed);
        let pin = first.authority().unwrap().pin();
        assert!(error(dir.path(), None).contains("in use by another demo"));
        drop(first);
        assert!(error(dir.path(), Some(9)).contains("holds a cluster of 8 nodes"));
        let again = Folder::open(Some(dir.path()), None).unwrap();
        assert!(again.resumed);
        assert_eq!(again.nodes, 8);
        assert_eq!(again.authority().unwrap().pin(), pin);
    }

    #[test]
    fn foreign_and_newer_folders_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        assert!(error(dir.path(), None).contains("not empty and was not created by a demo"));
        fs::write(dir.path().join("demo.json"), r#"{"format":2,"cells":[]}"#).unwrap();
        assert!(
            error(dir.path(), None)
                .contains("has format 2; this version of Lattice reads format 1")
        );
        fs::write(dir.path().join("demo.json"), "{").unwrap();
        assert!(error(dir.path(), None).contains("demo.json"));
    }

    #[test]
    fn temporary_folder_is_removed_while_files_are_still_written() {
        let folder = Folder::open(None, None).unwrap();
        let path = folder.path().to_owned();
        let late = folder.member_dir("agents/gpu001").unwrap();
        let writer = thread::spawn(move || {
            let ends_at = Instant::now() + Duration::from_millis(300);
            let mut number = 0;
            while Instant::now() < ends_at {
                number += 1;
                // Fails once the folder is gone.
                let _ = fs::write(late.join(number.to_string()), "x");
            }
        });
        let end = folder.close();
        assert_eq!(end.to_string(), format!("removed {}", path.display()));
        writer.join().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn kept_folder_stays_and_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Folder::kept_nodes(dir.path()), None);
        let folder = Folder::open(Some(dir.path()), Some(3)).unwrap();
        let path = folder.path().to_owned();
        let end = folder.close().to_string();
        assert!(
            end.contains(&format!("--data-dir {}", path.display())),
            "{end}"
        );
        assert_eq!(Folder::kept_nodes(dir.path()), Some(3));
    }

    #[test]
    fn a_temporary_folder_goes_with_its_owner() {
        let folder = Folder::open(None, None).unwrap();
        let path = folder.path().to_owned();
        assert!(path.join("demo.json").is_file());
        drop(folder);
        assert!(!path.exists());
    }
}
