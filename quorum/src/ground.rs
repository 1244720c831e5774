//! What a member stands on: files, and who does the work that would hold up the runtime. A
//! simulation replaces both; everything above is the product's own.

use lattice_host::durable::NewFile;
use lattice_quorum_state::{Bounds, State};
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
    /// Makes a folder and those above it; does nothing where it is.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Bytes of a file, `None` where there is none.
    fn length(&self, path: &Path) -> io::Result<Option<u64>>;
    /// All of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// What is in a folder, in any order.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;
    /// Writes a file so that a reader sees the old one or the new one, also after a crash.
    fn replace(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()>;
    /// Removes a file. A crash may bring it back.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Opens or makes a database.
    fn database(&self, path: &Path, builder: redb::Builder) -> Result<Database, DatabaseError>;
}

/// Written at once before it is synced: whoever syncs a log on the same disk meanwhile waits behind
/// this much, and not behind a whole snapshot.
const SYNCED_BYTES: usize = 4 << 20;

/// The host's files.
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

/// Who does work that would hold up the runtime.
#[derive(Clone, Default)]
pub enum Workers {
    /// Threads.
    #[default]
    Threads,
    /// The runtime itself, after the pause that each piece of work is told: time is simulated and
    /// there is one thread.
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
    /// Does `work` and waits for it.
    ///
    /// # Errors
    /// When it panicked, or the runtime ends.
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

/// Hears what a member's state machine does, as it does it. For checks.
pub trait Observer: Send + Sync + 'static {
    /// A committed command was applied, or refused, at log position `index`.
    fn applied(
        &self,
        index: u64,
        envelope: &Envelope,
        result: &Result<Applied, Refusal>,
        state: &State,
    );
    /// The state was replaced by a leader's snapshot up to `index`.
    fn installed(&self, index: u64, state: &State);
}

/// What a member stands on.
#[derive(Clone)]
pub struct Ground {
    /// Its files.
    pub files: Arc<dyn Files>,
    /// Who works for it.
    pub workers: Workers,
    /// Where in its election window this member stands, milliseconds; `None`: at random.
    pub election_offset_ms: Option<u64>,
    /// Who hears what its state machine does.
    pub observer: Option<Arc<dyn Observer>>,
    /// How large the segments of a new cluster are: the same on all members.
    pub segment_bounds: Bounds,
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ground({:?}, {:?})", self.files, self.workers)
    }
}

impl Default for Ground {
    fn default() -> Self {
        Self {
            files: Arc::new(HostFiles),
            workers: Workers::Threads,
            election_offset_ms: None,
            observer: None,
            segment_bounds: Bounds::default(),
        }
    }
}
