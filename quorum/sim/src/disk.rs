//! Simulated disk of one member: synced content and unsynced writes. At a power cut, each unsynced write is kept, lost
//! or torn, as the seed determines.

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

/// Sector size, bytes. A torn write keeps some of its sectors.
const SECTOR: usize = 512;

enum Unsynced {
    Write { offset: usize, data: Vec<u8> },
    Length(usize),
}

/// One database file.
#[derive(Default)]
struct Image {
    /// Content as the running process sees it.
    current: Vec<u8>,
    /// Content after a power cut that loses all unsynced writes.
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

    /// Power cut: applies, drops or tears each unsynced write.
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
        self.current = self.durable.clone();
    }
}

#[derive(Default)]
struct Content {
    images: BTreeMap<PathBuf, Arc<Mutex<Image>>>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Files removed since the last power cut or process end. A power cut may restore them.
    removed: BTreeMap<PathBuf, Vec<u8>>,
}

/// Counters of a disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskCounters {
    /// Syncs of database files.
    pub syncs: u64,
    /// Files written with [`Files::replace`].
    pub replaced: u64,
}

/// Power of one member process. Without power, writes fail. A file that is replaced while the power fails reaches the
/// disk in half of the cases.
pub struct Power {
    is_on: AtomicBool,
    /// Operations until an automatic power cut; 0 for never.
    left: AtomicU64,
    /// Whether the next sync fails.
    fail_next_sync: AtomicBool,
    gone: Notify,
    /// Number of automatic power cuts of the disk.
    cuts: Arc<AtomicU64>,
}

impl Power {
    fn new(cuts: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            cuts,
            is_on: AtomicBool::new(true),
            left: AtomicU64::new(0),
            fail_next_sync: AtomicBool::new(false),
            gone: Notify::new(),
        })
    }
    /// Checks whether the power is on.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }
    /// Cuts the power now.
    pub fn cut(&self) {
        self.is_on.store(false, Relaxed);
        self.gone.notify_one();
    }
    /// Cuts the power at the `nth` operation from now.
    pub fn cut_at(&self, nth: u64) {
        self.left.store(nth.max(1), Relaxed);
    }
    /// Makes the next sync fail.
    pub fn fail_sync(&self) {
        self.fail_next_sync.store(true, Relaxed);
    }
    /// Resolves when the power is off.
    pub async fn gone(&self) {
        while self.is_on() {
            self.gone.notified().await;
        }
    }
    fn count_operation(&self) -> io::Result<()> {
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

/// Disk of one member. It persists over restarts of the member.
pub struct Disk {
    content: Mutex<Content>,
    rng: Mutex<Rng>,
    pace: Mutex<(Rng, u64, u64)>,
    counters: Mutex<DiskCounters>,
    /// Number of automatic power cuts (see [`Power::cut_at`]).
    cuts: Arc<AtomicU64>,
    /// Planted bug: syncs have no effect.
    ignores_syncs: AtomicBool,
}

/// A disk, mounted for one member process.
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
    /// Creates an empty disk.
    pub fn new(seed: u64, of: u64) -> Arc<Self> {
        Arc::new(Self {
            content: Mutex::default(),
            rng: Mutex::new(Rng::new(seed, &format!("disk {of}"))),
            pace: Mutex::new((Rng::new(seed, &format!("pace {of}")), 200, 1500)),
            counters: Mutex::default(),
            cuts: Arc::default(),
            ignores_syncs: AtomicBool::new(false),
        })
    }

    /// Planted bug: from now on syncs have no effect.
    pub fn ignore_syncs(&self) {
        self.ignores_syncs.store(true, Relaxed);
    }

    /// Mounts the disk for a new member process, with power on.
    pub fn mount(self: &Arc<Self>) -> (Mounted, Arc<Power>) {
        let power = Power::new(self.cuts.clone());
        let mounted = Mounted {
            disk: self.clone(),
            power: power.clone(),
        };
        (mounted, power)
    }

    /// Sets the range of durations of one disk task, microseconds.
    pub fn set_pace(&self, min_us: u64, max_us: u64) {
        let mut pace = self.pace.lock();
        (pace.1, pace.2) = (min_us, max_us);
    }

    /// Duration of the next disk task.
    pub fn pause(&self) -> Duration {
        let mut pace = self.pace.lock();
        let (min, max) = (pace.1, pace.2);
        Duration::from_micros(pace.0.range(min, max))
    }

    /// Counters of the disk.
    pub fn counters(&self) -> DiskCounters {
        *self.counters.lock()
    }

    /// Number of automatic power cuts (see [`Power::cut_at`]).
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Relaxed)
    }

    /// Applies a power cut: unsynced data is kept, lost or torn, and removed files may return.
    pub fn apply_power_cut(&self) {
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

    /// Replaces the disk by an empty one.
    pub fn wipe(&self) {
        *self.content.lock() = Content::default();
    }

    /// Applies the end of a process without a power cut: its unsynced writes are in the page cache and reach the disk.
    pub fn apply_process_end(&self) {
        let mut content = self.content.lock();
        for image in content.images.values() {
            image.lock().sync();
        }
        content.removed.clear();
    }
}

impl Files for Mounted {
    fn make_folder(&self, _: &Path) -> io::Result<()> {
        self.power.count_operation()
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        let content = self.disk.content.lock();
        let image = content.images.get(path).map(|i| i.lock().current.len());
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
        let was_on = self.power.is_on();
        let spent = self.power.count_operation();
        // The power may fail before or after the new name is on the disk. A process without power writes nothing; the
        // same draw is made, so that the other draws of a seed stay the same.
        if spent.is_ok() || (self.disk.rng.lock().chance(500) && was_on) {
            let mut content = self.disk.content.lock();
            content.files.insert(path.to_owned(), parts.concat());
            content.removed.remove(path);
        }
        spent?;
        self.disk.counters.lock().replaced += 1;
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.power.count_operation()?;
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
        Ok(self.image.lock().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let image = self.image.lock();
        let from = offset as usize;
        let bytes = image.current.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.power.count_operation()?;
        let mut image = self.image.lock();
        image.current.resize(length as usize, 0);
        image.unsynced.push(Unsynced::Length(length as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.power.count_operation()?;
        if self.power.fail_next_sync.swap(false, Relaxed) {
            return Err(io::Error::other("the disk failed to sync"));
        }
        if !self.disk.ignores_syncs.load(Relaxed) {
            self.image.lock().sync();
        }
        self.disk.counters.lock().syncs += 1;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let was_on = self.power.is_on();
        let spent = self.power.count_operation();
        // The write during which the power fails counts as any other unsynced write.
        if was_on {
            let image = &mut *self.image.lock();
            write_at(&mut image.current, offset as usize, data);
            let (offset, data) = (offset as usize, data.to_vec());
            image.unsynced.push(Unsynced::Write { offset, data });
        }
        spent
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const FILE: &str = "/data/marker";

    /// The file after a replacement by a process that loses power with that operation, or lost it before.
    fn after_replacement(seed: u64, fails_before: bool) -> Vec<u8> {
        let disk = Disk::new(seed, 0);
        let (mounted, power) = disk.mount();
        let path = Path::new(FILE);
        mounted.replace(path, &[b"old"]).unwrap();
        match fails_before {
            true => power.cut(),
            false => power.cut_at(1),
        }
        assert!(mounted.replace(path, &[b"n", b"ew"]).is_err());
        mounted.read(path).unwrap()
    }

    #[test]
    fn process_without_power_replaces_no_file() {
        for seed in 0..32 {
            assert_eq!(after_replacement(seed, true), b"old", "seed {seed}");
        }
    }

    #[test]
    fn failing_power_leaves_old_or_new_file() {
        let left: Vec<_> = (0..32).map(|seed| after_replacement(seed, false)).collect();
        for expected in ["old", "new"] {
            assert!(left.contains(&expected.as_bytes().to_vec()), "{expected}");
        }
    }
}
