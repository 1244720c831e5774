//! Interfaces of a member to the file system and to blocking tasks. A simulation replaces both, and runs the production
//! code of everything else.

use lattice_host::durable::NewFile;
use lattice_quorum_state::{SegmentLimits, State};
use lattice_quorum_types::{Applied, Envelope, Refusal};
use redb::{Database, DatabaseError};
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Files of a data directory.
pub trait Files: fmt::Debug + Send + Sync + 'static {
    /// Creates a folder and its missing parents; does nothing if the folder exists.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Returns the length of a file in bytes; `None` if it does not exist.
    fn length(&self, path: &Path) -> io::Result<Option<u64>>;
    /// Reads a whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Lists the entries of a folder, in any order.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;
    /// Writes a file atomically: a reader finds the old content or the new one, also after a crash.
    fn replace(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()>;
    /// Removes a file. The file may reappear after a crash.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Opens or creates a database.
    fn database(&self, path: &Path, builder: redb::Builder) -> Result<Database, DatabaseError>;
}

/// Bytes written before each sync. A concurrent sync of a log on the same disk waits for at most this amount, not for a
/// whole snapshot.
const SYNCED_BYTES: usize = 4 << 20;

/// Files of the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostFiles;

impl Files for HostFiles {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }
    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect()
    }
    fn replace(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        use io::Write as _;
        let mut new = NewFile::create(path, 0o600)?;
        for piece in parts.iter().flat_map(|part| part.chunks(SYNCED_BYTES)) {
            new.write_all(piece)?;
            new.file().sync_data()?;
        }
        new.commit()
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
    fn database(&self, path: &Path, builder: redb::Builder) -> Result<Database, DatabaseError> {
        builder.create(path)
    }
}

/// Executor of blocking tasks.
#[derive(Clone, Default)]
pub enum Workers {
    /// Threads outside the async tasks: tokio's blocking pool, and one thread for the log writer.
    #[default]
    Threads,
    /// The async task itself, after a sleep; the function returns the length of the sleep for each piece of work. For
    /// simulations, which have a single thread and simulated time.
    Inline(Arc<dyn Fn() -> Duration + Send + Sync>),
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Threads => "Threads",
            Self::Inline(_) => "Inline",
        })
    }
}

impl Workers {
    /// Runs `work` and waits for its result.
    ///
    /// # Errors
    /// With [`Workers::Threads`]: the task panicked, or the runtime is shutting down.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        match self {
            Self::Threads => tokio::task::spawn_blocking(work)
                .await
                .map_err(io::Error::other),
            Self::Inline(pause) => {
                tokio::time::sleep(pause()).await;
                Ok(work())
            }
        }
    }
}

/// Observer of a member's state machine, called for each command and each snapshot of a leader. For tests and
/// simulations.
pub trait Observer: Send + Sync + 'static {
    /// A committed command was applied or refused at log position `index`.
    fn applied(
        &self,
        index: u64,
        envelope: &Envelope,
        result: &Result<Applied, Refusal>,
        state: &State,
    );
    /// A leader's snapshot up to `index` is about to replace the state.
    fn installed(&self, index: u64, state: &State);
}

/// File system, executor and simulation hooks of a member.
#[derive(Clone)]
pub struct Platform {
    /// Files of the member.
    pub files: Arc<dyn Files>,
    /// Executor of blocking tasks.
    pub workers: Workers,
    /// Offset of the election timeout from the start of this member's election window, milliseconds; `None`: random.
    pub election_offset_ms: Option<u64>,
    /// Observer of the state machine, if any.
    pub observer: Option<Arc<dyn Observer>>,
    /// Size bounds of segments in a new cluster; must be equal on all members.
    pub segment_bounds: SegmentLimits,
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Platform({:?}, {:?})", self.files, self.workers)
    }
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            files: Arc::new(HostFiles),
            workers: Workers::Threads,
            election_offset_ms: None,
            observer: None,
            segment_bounds: SegmentLimits::default(),
        }
    }
}
