//! The simulated disk of one member: what was synced, and what was written since. When the power
//! goes, each write that was not synced is kept, lost or torn, as the seed says.

use lattice_quorum::Files;
use lattice_rng::Rng;
use parking_lot::Mutex;
use redb::{Database, DatabaseError, StorageBackend};
use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// A write that is torn keeps some of its sectors, bytes each.
const SECTOR: usize = 512;

enum Unsynced {
    Write { offset: usize, data: Vec<u8> },
    Length(usize),
}

/// One database file.
#[derive(Default)]
struct Image {
    /// As the running process sees it.
    seen: Vec<u8>,
    /// As it is after a power cut that loses everything unsynced.
    durable: Vec<u8>,
    unsynced: Vec<Unsynced>,
}

fn write_at(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

impl Image {
    fn sync(&mut self) {
        for op in self.unsynced.drain(..) {
            match op {
                Unsynced::Write { offset, data } => write_at(&mut self.durable, offset, &data),
                Unsynced::Length(length) => self.durable.resize(length, 0),
            }
        }
    }

    /// The power goes.
    fn cut(&mut self, rng: &mut Rng) {
        for op in self.unsynced.drain(..) {
            match (op, rng.below(3)) {
                (_, 0) => {}
                (Unsynced::Length(length), _) => self.durable.resize(length, 0),
                (Unsynced::Write { offset, data }, 1) => {
                    write_at(&mut self.durable, offset, &data);
                }
                (Unsynced::Write { offset, data }, _) => {
                    for (nth, sector) in data.chunks(SECTOR).enumerate() {
                        if rng.chance(500) {
                            write_at(&mut self.durable, offset + nth * SECTOR, sector);
                        }
                    }
                }
            }
        }
        self.seen = self.durable.clone();
    }
}

#[derive(Default)]
struct Content {
    images: BTreeMap<PathBuf, Arc<Mutex<Image>>>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Removed since the last sync of a folder: a power cut may bring them back.
    removed: BTreeMap<PathBuf, Vec<u8>>,
}

/// What a disk did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wear {
    /// Syncs of the log.
    pub syncs: u64,
    /// Files replaced.
    pub replaced: u64,
}

/// The power of one life of a member. Without it nothing reaches the disk.
pub struct Power {
    is_on: AtomicBool,
    /// Operations until it goes by itself; 0 for never.
    left: AtomicU64,
    /// Whether the next sync fails.
    fails: AtomicBool,
    gone: Notify,
    /// Of the disk: how often it went by itself.
    cuts: Arc<AtomicU64>,
}

impl Power {
    fn new(cuts: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            cuts,
            is_on: AtomicBool::new(true),
            left: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            gone: Notify::new(),
        })
    }
    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }
    /// It goes now.
    pub fn cut(&self) {
        self.is_on.store(false, Relaxed);
        self.gone.notify_one();
    }
    /// It goes at the `nth` operation from now.
    pub fn cut_at(&self, nth: u64) {
        self.left.store(nth.max(1), Relaxed);
    }
    /// The next sync fails.
    pub fn fail_sync(&self) {
        self.fails.store(true, Relaxed);
    }
    /// Resolves when it is gone.
    pub async fn gone(&self) {
        while self.is_on() {
            self.gone.notified().await;
        }
    }
    fn spend(&self) -> io::Result<()> {
        let off = || io::Error::other("the power is gone");
        if !self.is_on() {
            return Err(off());
        }
        match self.left.load(Relaxed) {
            0 => Ok(()),
            1 => {
                self.left.store(0, Relaxed);
                self.cuts.fetch_add(1, Relaxed);
                self.cut();
                Err(off())
            }
            left => {
                self.left.store(left - 1, Relaxed);
                Ok(())
            }
        }
    }
}

/// One member's disk. It outlives the member's lives.
pub struct Disk {
    content: Mutex<Content>,
    rng: Mutex<Rng>,
    pace: Mutex<(Rng, u64, u64)>,
    wear: Mutex<Wear>,
    /// How often the power went at the operation that it was to go at.
    cuts: Arc<AtomicU64>,
    /// A bug to be found: syncs that do nothing.
    lies: AtomicBool,
}

/// A disk under one life's power.
#[derive(Clone)]
pub struct Mounted {
    disk: Arc<Disk>,
    power: Arc<Power>,
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mounted")
    }
}

impl Disk {
    /// An empty one.
    pub fn new(seed: u64, of: u64) -> Arc<Self> {
        Arc::new(Self {
            content: Mutex::default(),
            rng: Mutex::new(Rng::new(seed, &format!("disk {of}"))),
            pace: Mutex::new((Rng::new(seed, &format!("pace {of}")), 200, 1500)),
            wear: Mutex::default(),
            cuts: Arc::default(),
            lies: AtomicBool::new(false),
        })
    }

    /// From now on syncs do nothing: a bug that must be found.
    pub fn lie(&self) {
        self.lies.store(true, Relaxed);
    }

    /// For one life.
    pub fn mount(self: &Arc<Self>) -> (Mounted, Arc<Power>) {
        let power = Power::new(self.cuts.clone());
        let mounted = Mounted {
            disk: self.clone(),
            power: power.clone(),
        };
        (mounted, power)
    }

    /// How long one piece of work takes, microseconds.
    pub fn set_pace(&self, min_us: u64, max_us: u64) {
        let mut pace = self.pace.lock();
        (pace.1, pace.2) = (min_us, max_us);
    }

    /// How long the next piece of work takes.
    pub fn pause(&self) -> Duration {
        let mut pace = self.pace.lock();
        let (min, max) = (pace.1, pace.2);
        Duration::from_micros(pace.0.range(min, max))
    }

    /// What it did.
    pub fn wear(&self) -> Wear {
        *self.wear.lock()
    }

    /// How often the power went at the operation that it was to go at.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Relaxed)
    }

    /// The power went: what was not synced is kept, lost or torn.
    pub fn lose(&self) {
        let (mut content, mut rng) = (self.content.lock(), self.rng.lock());
        for image in content.images.values() {
            image.lock().cut(&mut rng);
        }
        for (path, bytes) in std::mem::take(&mut content.removed) {
            if rng.chance(500) {
                content.files.insert(path, bytes);
            }
        }
    }

    /// It is another disk, and empty.
    pub fn wipe(&self) {
        *self.content.lock() = Content::default();
    }

    /// The process was killed: what it wrote is in the system's memory, and gets to the disk.
    pub fn keep(&self) {
        let mut content = self.content.lock();
        for image in content.images.values() {
            image.lock().sync();
        }
        content.removed.clear();
    }
}

impl Files for Mounted {
    fn make_folder(&self, _: &Path) -> io::Result<()> {
        self.power.spend()
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        let content = self.disk.content.lock();
        let image = content.images.get(path).map(|i| i.lock().seen.len());
        let file = || content.files.get(path).map(Vec::len);
        Ok(image.or_else(file).map(|length| length as u64))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let content = self.disk.content.lock();
        let found = content.files.get(path).cloned();
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let content = self.disk.content.lock();
        let files = content.files.keys();
        Ok(files
            .filter(|path| path.parent() == Some(folder))
            .cloned()
            .collect())
    }

    fn replace(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        let spent = self.power.spend();
        // The power may go before the new name is on the disk, or after.
        if spent.is_ok() || self.disk.rng.lock().chance(500) {
            let mut content = self.disk.content.lock();
            content.files.insert(path.to_owned(), parts.concat());
            content.removed.remove(path);
        }
        spent?;
        self.disk.wear.lock().replaced += 1;
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.power.spend()?;
        let mut content = self.disk.content.lock();
        if let Some(bytes) = content.files.remove(path) {
            content.removed.insert(path.to_owned(), bytes);
        }
        Ok(())
    }

    fn database(&self, path: &Path, builder: redb::Builder) -> Result<Database, DatabaseError> {
        let image = {
            let mut content = self.disk.content.lock();
            content.images.entry(path.to_owned()).or_default().clone()
        };
        builder.create_with_backend(Backend {
            image,
            power: self.power.clone(),
            disk: self.disk.clone(),
        })
    }
}

struct Backend {
    image: Arc<Mutex<Image>>,
    power: Arc<Power>,
    disk: Arc<Disk>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backend")
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.image.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let image = self.image.lock();
        let from = offset as usize;
        let bytes = image.seen.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.power.spend()?;
        let mut image = self.image.lock();
        image.seen.resize(length as usize, 0);
        image.unsynced.push(Unsynced::Length(length as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.power.spend()?;
        if self.power.fails.swap(false, Relaxed) {
            return Err(io::Error::other("the disk failed to sync"));
        }
        if !self.disk.lies.load(Relaxed) {
            self.image.lock().sync();
        }
        self.disk.wear.lock().syncs += 1;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let was_on = self.power.is_on();
        let spent = self.power.spend();
        // The write during which the power goes is one that was not synced, as any other.
        if was_on {
            let image = &mut *self.image.lock();
            write_at(&mut image.seen, offset as usize, data);
            let (offset, data) = (offset as usize, data.to_vec());
            image.unsynced.push(Unsynced::Write { offset, data });
        }
        spent
    }
}
