//! Data directory of the agent.
//!
//! - `format.json`: format version.
//! - `lock`: excludes a second agent.
//! - `identity/`: certificate and key.
//! - `membership.json`: gossip cell and quorum members.
//! - `executor/`: the attempts, and other state of the executor.
//! - `history/`: past inventories of the node.
//! - `health.json`: health state of the node.

use crate::attempt::{foreign_write_access, write_access_advice, write_durably};
use lattice_mesh::Credentials;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Directory format that this build writes.
pub const FORMAT: u32 = 1;

/// Error of opening or using a data directory.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// A file could not be read or written.
    #[error("data directory: {}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another agent uses the directory.
    #[error(
        "data directory {} is in use by another agent; stop that one or choose another data_dir",
        path.display()
    )]
    InUse {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A user other than the agent's could place another identity, or records, into the directory.
    #[error("data directory {}", write_access_advice(path, *uid, *mode))]
    OpenToOthers {
        /// Path of the directory.
        path: PathBuf,
        /// Uid of the owner.
        uid: u32,
        /// Permission bits.
        mode: u32,
    },
    /// The directory has another format.
    #[error(
        "data directory {} has format {found}; this version of Lattice reads format {FORMAT}; start \
         the version that wrote it, or choose another data_dir",
        path.display()
    )]
    OtherFormat {
        /// Path of the directory.
        path: PathBuf,
        /// Format found in the directory.
        found: u32,
    },
    /// A file in the directory is truncated or corrupt.
    #[error(
        "{} is corrupt; restore it, or move the data directory away and enrol again with \
         join.replace when no job runs on this node",
        path.display()
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Error of the JSON parser.
        source: serde_json::Error,
    },
}

impl DataDirError {
    /// Whether another process uses the directory.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }
}

#[derive(Serialize, Deserialize)]
struct Format {
    version: u32,
}

/// Membership of the node, apart from its certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolmentRecord {
    /// Gossip cell that enrolment assigned, if it assigned one.
    pub cell: Option<String>,
    /// Mesh addresses of the quorum members that were configured last. Renewal uses them when `join` is no longer
    /// configured.
    pub quorum: Vec<SocketAddr>,
}

/// Opened data directory. Its lock excludes other agents while this value lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: Lock,
}

#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    /// Unlocks explicitly: a child that has not executed its program yet may hold a copy of the descriptor.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl DataDir {
    /// Opens the directory, and creates it (mode 0700) if it does not exist.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed(path))?;
        // Supervisors have another working directory: a relative path would name another folder there.
        let path = &path.canonicalize().map_err(failed(path))?;
        if let Some((uid, mode)) = foreign_write_access(path).map_err(failed(path))? {
            let path = path.to_owned();
            return Err(DataDirError::OpenToOthers { path, uid, mode });
        }
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(failed(&lock_path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(DataDirError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(error) => return Err(failed(&lock_path)(error.into())),
        }
        let dir = Self {
            path: path.to_owned(),
            _lock: Lock(lock),
        };
        dir.check_format()?;
        Ok(dir)
    }

    fn check_format(&self) -> Result<(), DataDirError> {
        match self.read::<Format>("format.json")? {
            Some(Format { version }) if version != FORMAT => Err(DataDirError::OtherFormat {
                path: self.path.clone(),
                found: version,
            }),
            Some(_) => Ok(()),
            None => self.write("format.json", &Format { version: FORMAT }),
        }
    }

    /// Folder of certificate and key.
    pub fn identity(&self) -> PathBuf {
        self.path.join("identity")
    }
    /// Whether the agent with data directory `path` has enrolled.
    pub(crate) fn is_enrolled(path: &Path) -> bool {
        Credentials::are_in(&path.join("identity"))
    }
    /// Folder of the executor.
    pub fn executor(&self) -> PathBuf {
        self.path.join("executor")
    }
    /// Folder of the node's history.
    pub fn history(&self) -> PathBuf {
        self.path.join("history")
    }
    /// File with the health state of the node.
    pub fn health(&self) -> PathBuf {
        self.path.join("health.json")
    }
    /// Recorded membership; `None` before enrolment.
    pub fn membership(&self) -> Result<Option<EnrolmentRecord>, DataDirError> {
        self.read("membership.json")
    }
    /// Records the membership durably.
    pub fn write_membership(&self, membership: &EnrolmentRecord) -> Result<(), DataDirError> {
        self.write("membership.json", membership)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, DataDirError> {
        let path = self.path.join(name);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&path)(error)),
        };
        let read = serde_json::from_slice(&bytes);
        read.map(Some)
            .map_err(|source| DataDirError::Damaged { path, source })
    }

    fn write<T: Serialize>(&self, name: &str, body: &T) -> Result<(), DataDirError> {
        let path = self.path.join(name);
        let bytes = serde_json::to_vec(body).map_err(|source| DataDirError::Damaged {
            path: path.clone(),
            source,
        })?;
        write_durably(&path, &bytes).map_err(failed(&path))
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> DataDirError + '_ {
    move |source| DataDirError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn one_agent_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let first = DataDir::open(&path).unwrap();
        assert!(matches!(
            DataDir::open(&path),
            Err(DataDirError::InUse { .. })
        ));
        let cell = Some("c0".to_owned());
        let membership = EnrolmentRecord {
            cell,
            ..EnrolmentRecord::default()
        };
        first.write_membership(&membership).unwrap();
        drop(first);
        let again = DataDir::open(&path).unwrap();
        assert_eq!(again.membership().unwrap().unwrap().cell.unwrap(), "c0");
    }

    #[test]
    fn a_folder_that_others_may_write_is_refused_with_what_to_do() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let folder = tempfile::tempdir().unwrap();
        let mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path(), mode).unwrap();
        };
        for open in [0o770, 0o707, 0o1777] {
            mode(open);
            let refused = DataDir::open(folder.path()).unwrap_err().to_string();
            assert!(refused.contains(&format!("mode {open:04o}")), "{refused}");
            assert!(refused.contains("chmod go-w"), "{refused}");
            assert!(crate::attempt::Attempts::open(folder.path()).is_err());
        }
        mode(0o755);
        drop(DataDir::open(folder.path()).unwrap());
        if chown(folder.path(), Some(65534), None).is_ok() {
            let refused = DataDir::open(folder.path()).unwrap_err().to_string();
            assert!(refused.contains("belongs to uid 65534"), "{refused}");
        }
    }

    #[test]
    fn another_format_and_a_cut_off_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for found in [0, 2] {
            let format = format!(r#"{{"version":{found}}}"#);
            std::fs::write(folder.path().join("format.json"), format).unwrap();
            let text = DataDir::open(folder.path()).unwrap_err().to_string();
            let path = folder.path().display();
            let expected = format!(
                "data directory {path} has format {found}; this version of Lattice reads format 1; \
                 start the version that wrote it"
            );
            assert!(text.starts_with(&expected), "{text}");
        }
        std::fs::write(folder.path().join("format.json"), r#"{"ver"#).unwrap();
        let damaged = DataDir::open(folder.path()).unwrap_err();
        assert!(damaged.to_string().contains("is corrupt"), "{damaged}");
    }

    #[test]
    fn a_relative_folder_is_the_same_to_a_process_that_runs_elsewhere() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let name = folder.path().file_name().unwrap();
        let data = DataDir::open(Path::new(name)).unwrap();
        assert!(data.executor().is_absolute(), "{:?}", data.executor());
    }
}
