//! What all parts of one run share: network, disks, clocks, what was agreed on, what happened.

use crate::{disk::Disk, network::Network, registers::Registers, truth::Truth};
use lattice_mesh::{Authority, Clock, Credentials, Identity, Role, Validity};
use lattice_quorum_state::Bounds;
use lattice_quorum_types::{UnixMillis, VoterId};
use lattice_rng::Rng;
use parking_lot::{Mutex, MutexGuard};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// The cluster's name.
pub const CLUSTER: &str = "sim";
/// When every run begins.
pub const START: UnixMillis = UnixMillis(1_800_000_000_000);
/// Most clients of a run: workers, then two that watch, then three of the registers.
pub const MAX_CLIENTS: u64 = 11;
/// The first client of the registers.
pub const FIRST_REGISTER: u64 = 8;

/// A host's clock: simulated time, and what it is wrong by.
pub struct HostClock {
    since: Instant,
    /// Milliseconds, either way.
    wrong_by: AtomicI64,
}

impl HostClock {
    fn new(since: Instant) -> Arc<Self> {
        let wrong_by = AtomicI64::new(0);
        Arc::new(Self { since, wrong_by })
    }
    /// It is wrong by so much from now on.
    pub fn set_wrong_by(&self, ms: i64) {
        self.wrong_by.store(ms, Relaxed);
    }
}

impl Clock for HostClock {
    fn now(&self) -> UnixMillis {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(0);
        UnixMillis((START.0 + passed).saturating_add_signed(self.wrong_by.load(Relaxed)))
    }
}

/// Certificates of everybody, made once: they are judged by nothing here.
struct Papers {
    members: Vec<Credentials>,
    clients: Vec<Credentials>,
}

fn papers() -> &'static Papers {
    static PAPERS: OnceLock<Papers> = OnceLock::new();
    #[expect(clippy::expect_used, reason = "test support")]
    PAPERS.get_or_init(|| {
        let ten_years = Duration::from_secs(10 * 365 * 86_400);
        let validity = Validity::from_now(START, ten_years);
        let authority = Authority::create(CLUSTER, validity).expect("an authority");
        let make = |role, id: u64| {
            let identity = Identity::new(CLUSTER, role, id.to_string()).expect("an identity");
            Credentials::issued_by(&authority, &identity, validity).expect("a certificate")
        };
        Papers {
            members: (1..=5).map(|id| make(Role::Quorum, id)).collect(),
            clients: (1..=MAX_CLIENTS)
                .map(|id| make(Role::Control, id))
                .collect(),
        }
    })
}

thread_local! {
    /// Panics of this thread: one run is one thread.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Panics are kept for the run whose thread they are on, and said as violations.
pub fn note_panics() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
            before(info);
        }));
    });
}

/// Panics of this thread since it was asked last.
pub fn panics() -> Vec<String> {
    PANICS.with_borrow_mut(std::mem::take)
}

#[derive(Default)]
struct Noted {
    violations: Vec<String>,
    lines: Vec<String>,
    trace: blake3::Hasher,
    lines_traced: u64,
    counts: BTreeMap<String, u64>,
    reigns: BTreeSet<(u64, VoterId)>,
    /// The member that lost its disk, and what it has to apply until it counts again.
    blank: Option<(VoterId, u64)>,
}

/// One run.
pub struct World {
    /// Its seed.
    pub seed: u64,
    /// Members.
    pub members: Vec<(VoterId, SocketAddr)>,
    /// Entries between two snapshots.
    pub snapshot_every: u64,
    /// When a table's newest rows become a segment: all members must agree.
    pub segment_bounds: Bounds,
    /// The network.
    pub network: Arc<Network>,
    /// Disks, in the order of the members.
    pub disks: Vec<Arc<Disk>>,
    /// Clocks of members, then of clients.
    pub clocks: Vec<Arc<HostClock>>,
    /// What was agreed on.
    pub truth: Truth,
    /// What clients were told of what they wrote and read.
    pub registers: Registers,
    /// Set when faults are over.
    pub is_calm: AtomicBool,
    /// Whether the trace is kept as text.
    verbose: bool,
    started: Instant,
    noted: Mutex<Noted>,
}

impl World {
    /// An empty cluster of so many members.
    pub fn new(seed: u64, verbose: bool) -> Arc<Self> {
        let mut rng = Rng::new(seed, "world");
        let members = if rng.chance(300) { 5 } else { 3 };
        let snapshot_every = rng.range(20, 120);
        let rows = rng.range(8, 60) as u32;
        Self::build(seed, verbose, (members, snapshot_every, rows))
    }

    /// An empty cluster of three, of which little is enough for a snapshot.
    pub fn of_three(seed: u64, verbose: bool) -> Arc<Self> {
        Self::build(seed, verbose, (3, 20, 60))
    }

    fn build(
        seed: u64,
        verbose: bool,
        (count, snapshot_every, rows): (u64, u64, u32),
    ) -> Arc<Self> {
        let members: Vec<(VoterId, SocketAddr)> = (1..=count)
            .map(|id| (id, SocketAddr::from(([10, 0, 0, id as u8], 7101))))
            .collect();
        let started = Instant::now();
        Arc::new(Self {
            seed,
            snapshot_every,
            segment_bounds: Bounds {
                rows,
                bytes: 1 << 20,
            },
            network: Network::new(seed),
            disks: (1..=count).map(|id| Disk::new(seed, id)).collect(),
            clocks: (0..count + MAX_CLIENTS)
                .map(|_| HostClock::new(started))
                .collect(),
            members,
            truth: Truth::default(),
            registers: Registers::default(),
            is_calm: AtomicBool::new(false),
            verbose,
            started,
            noted: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock()
    }

    /// Certificate of a member.
    pub fn of_member(id: VoterId) -> Credentials {
        papers().members[id as usize - 1].clone()
    }

    /// Certificate of a client.
    pub fn of_client(nth: u64) -> Credentials {
        papers().clients[nth as usize].clone()
    }

    /// Simulated time since the beginning.
    pub fn passed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Something that must never happen has happened.
    pub fn violation(&self, what: String) {
        self.trace(|| format!("VIOLATION {what}"));
        self.lock().violations.push(what);
    }

    /// All of them.
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// Whether there is any.
    pub fn is_broken(&self) -> bool {
        !self.lock().violations.is_empty()
    }

    /// Counts something by name.
    pub fn count(&self, what: &str) {
        let mut noted = self.lock();
        match noted.counts.get_mut(what) {
            Some(count) => *count += 1,
            None => {
                noted.counts.insert(what.to_owned(), 1);
            }
        }
    }

    /// What was counted.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.lock().counts.clone()
    }

    /// Says that a member leads in a term. A term may have two leaders, one after the other: openraft
    /// orders reigns by term and member.
    pub fn leads(&self, term: u64, id: VoterId) {
        if self.lock().reigns.insert((term, id)) {
            self.trace(|| format!("m{id} leads in term {term}"));
        }
    }

    /// Says that a member lost its disk. Not before the one before is well again: what the product
    /// promises is for one at a time.
    pub fn may_lose_disk(&self, id: VoterId) -> bool {
        let upto = self.truth.counted().highest;
        let mut noted = self.lock();
        if noted.blank.is_some() {
            return false;
        }
        noted.blank = Some((id, upto));
        true
    }

    /// Says how far a member has applied.
    pub fn has_applied(&self, id: VoterId, applied: u64) {
        let mut noted = self.lock();
        let is_well = |(who, upto): (VoterId, u64)| who == id && applied > upto;
        if noted.blank.is_some_and(is_well) {
            noted.blank = None;
        }
    }

    /// How often somebody began to lead.
    pub fn elections(&self) -> u64 {
        self.lock().reigns.len() as u64
    }

    /// The member that led last.
    pub fn leader(&self) -> Option<VoterId> {
        self.lock().reigns.last().map(|(_, id)| *id)
    }

    /// Notes what happens too often to be printed.
    pub fn note(&self, what: &[u8]) {
        let us = self.started.elapsed().as_micros();
        let mut noted = self.lock();
        noted.trace.update(&us.to_le_bytes()).update(what);
    }

    /// Notes what happened.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        let us = self.started.elapsed().as_micros();
        let line = format!("{:>9}.{:03} ms {}", us / 1000, us % 1000, what());
        let mut noted = self.lock();
        noted.trace.update(line.as_bytes());
        noted.lines_traced += 1;
        if self.verbose {
            println!("{line}");
        }
        // The last ones are what is looked at when something is wrong.
        if noted.lines.len() >= 400 {
            noted.lines.drain(..200);
        }
        noted.lines.push(line);
    }

    /// A digest of everything that was noted: equal where two runs were the same.
    pub fn trace_digest(&self) -> String {
        self.lock().trace.finalize().to_hex()[..16].to_owned()
    }

    /// The last lines of it.
    pub fn last_lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }
}
