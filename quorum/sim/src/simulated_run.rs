//! Shared objects of one simulated run: network, disks, clocks, agreed history and trace.

use crate::{agreed_history::AgreedHistory, disk::Disk, network::Network, registers::Registers};
use lattice_mesh::{Authority, Clock, Credentials, Identity, Role, Validity};
use lattice_quorum_state::SegmentLimits;
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

/// Name of the cluster.
pub const CLUSTER: &str = "sim";
/// Start time of every run.
pub const START: UnixMillis = UnixMillis(1_800_000_000_000);
/// Largest number of clients in a run: workers, then two watchers, then three clients of the registers.
pub const MAX_CLIENTS: u64 = 11;
/// Number of the first client of the registers.
pub const FIRST_REGISTER: u64 = 8;

/// Clock of a host: simulated time plus an error.
pub struct HostClock {
    since: Instant,
    /// Error in milliseconds, positive or negative.
    error_ms: AtomicI64,
}

impl HostClock {
    fn new(since: Instant) -> Arc<Self> {
        let wrong_by = AtomicI64::new(0);
        Arc::new(Self {
            since,
            error_ms: wrong_by,
        })
    }
    /// Sets the error of the clock.
    pub fn set_error_ms(&self, ms: i64) {
        self.error_ms.store(ms, Relaxed);
    }
}

impl Clock for HostClock {
    fn now(&self) -> UnixMillis {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(0);
        UnixMillis((START.0 + passed).saturating_add_signed(self.error_ms.load(Relaxed)))
    }
}

/// Certificates of all members and clients, created once. The simulation does not verify them.
struct ProcessCertificates {
    members: Vec<Credentials>,
    clients: Vec<Credentials>,
}

fn certificates() -> &'static ProcessCertificates {
    static PAPERS: OnceLock<ProcessCertificates> = OnceLock::new();
    #[expect(clippy::expect_used, reason = "test support")]
    PAPERS.get_or_init(|| {
        let ten_years = Duration::from_secs(10 * 365 * 86_400);
        let validity = Validity::from_now(START, ten_years);
        let authority = Authority::create(CLUSTER, validity).expect("an authority");
        let make = |role, id: u64| {
            let identity = Identity::new(CLUSTER, role, id.to_string()).expect("an identity");
            Credentials::issued_by(&authority, &identity, validity).expect("a certificate")
        };
        ProcessCertificates {
            members: (1..=5).map(|id| make(Role::Quorum, id)).collect(),
            clients: (1..=MAX_CLIENTS)
                .map(|id| make(Role::Control, id))
                .collect(),
        }
    })
}

thread_local! {
    /// Panics on this thread. Each run has one thread.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records panics for the run on the same thread. They are reported as violations.
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

/// Returns the panics on this thread since the last call.
pub fn panics() -> Vec<String> {
    PANICS.with_borrow_mut(std::mem::take)
}

#[derive(Default)]
struct RunLog {
    violations: Vec<String>,
    lines: Vec<String>,
    trace: blake3::Hasher,
    lines_traced: u64,
    counts: BTreeMap<String, u64>,
    leaderships: BTreeSet<(u64, VoterId)>,
    /// Member that lost its disk, and the log index that it must apply to be up to date again.
    lost_disk: Option<(VoterId, u64)>,
}

/// Shared objects of one simulated run.
pub struct SimulatedRun {
    /// Seed of the run.
    pub seed: u64,
    /// Members with their addresses.
    pub members: Vec<(VoterId, SocketAddr)>,
    /// Number of log entries between two snapshots.
    pub snapshot_every: u64,
    /// Bounds at which the newest rows of a table become a segment. They must be equal on all members.
    pub segment_bounds: SegmentLimits,
    /// The network.
    pub network: Arc<Network>,
    /// Disks, in the order of the members.
    pub disks: Vec<Arc<Disk>>,
    /// Clocks of the members, followed by those of the clients.
    pub clocks: Vec<Arc<HostClock>>,
    /// Agreed history.
    pub agreed_history: AgreedHistory,
    /// Results that clients received for register operations.
    pub registers: Registers,
    /// Set when faults are over.
    pub faults_ended: AtomicBool,
    /// Whether the trace is also printed.
    verbose: bool,
    started: Instant,
    noted: Mutex<RunLog>,
}

impl SimulatedRun {
    /// Creates an empty cluster with three or five members, as the seed determines.
    pub fn new(seed: u64, verbose: bool) -> Arc<Self> {
        let mut rng = Rng::new(seed, "world");
        let members = if rng.chance(300) { 5 } else { 3 };
        let snapshot_every = rng.range(20, 120);
        let rows = rng.range(8, 60) as u32;
        Self::build(seed, verbose, (members, snapshot_every, rows))
    }

    /// Creates an empty cluster of three members with frequent snapshots.
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
            segment_bounds: SegmentLimits {
                rows,
                bytes: 1 << 20,
            },
            network: Network::new(seed),
            disks: (1..=count).map(|id| Disk::new(seed, id)).collect(),
            clocks: (0..count + MAX_CLIENTS)
                .map(|_| HostClock::new(started))
                .collect(),
            members,
            agreed_history: AgreedHistory::default(),
            registers: Registers::default(),
            faults_ended: AtomicBool::new(false),
            verbose,
            started,
            noted: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, RunLog> {
        self.noted.lock()
    }

    /// Certificate of a member.
    pub fn of_member(id: VoterId) -> Credentials {
        certificates().members[id as usize - 1].clone()
    }

    /// Certificate of a client.
    pub fn of_client(nth: u64) -> Credentials {
        certificates().clients[nth as usize].clone()
    }

    /// Simulated time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Records a violation of an invariant.
    pub fn violation(&self, what: String) {
        self.trace(|| format!("VIOLATION {what}"));
        self.lock().violations.push(what);
    }

    /// All violations.
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// Checks whether there is any violation.
    pub fn is_broken(&self) -> bool {
        !self.lock().violations.is_empty()
    }

    /// Increments a counter by name.
    pub fn count(&self, what: &str) {
        let mut noted = self.lock();
        match noted.counts.get_mut(what) {
            Some(count) => *count += 1,
            None => {
                noted.counts.insert(what.to_owned(), 1);
            }
        }
    }

    /// Counters by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.lock().counts.clone()
    }

    /// Records that a member leads in a term. A term may have two leaders, one after the other, since openraft orders
    /// leaderships by term and member.
    pub fn record_leader(&self, term: u64, id: VoterId) {
        if self.lock().leaderships.insert((term, id)) {
            self.trace(|| format!("m{id} leads in term {term}"));
        }
    }

    /// Marks a member as losing its disk. Returns `false` while an earlier member is not up to date again, since the
    /// product tolerates one lost disk at a time.
    pub fn try_lose_disk(&self, id: VoterId) -> bool {
        let upto = self.agreed_history.counters().highest;
        let mut noted = self.lock();
        if noted.lost_disk.is_some() {
            return false;
        }
        noted.lost_disk = Some((id, upto));
        true
    }

    /// Records how far a member has applied the log.
    pub fn record_applied(&self, id: VoterId, applied: u64) {
        let mut noted = self.lock();
        let is_well = |(member, upto): (VoterId, u64)| member == id && applied > upto;
        if noted.lost_disk.is_some_and(is_well) {
            noted.lost_disk = None;
        }
    }

    /// Number of leaderships so far.
    pub fn elections(&self) -> u64 {
        self.lock().leaderships.len() as u64
    }

    /// Leader of the highest term recorded so far.
    pub fn leader(&self) -> Option<VoterId> {
        self.lock().leaderships.last().map(|(_, id)| *id)
    }

    /// Adds an event that is too frequent to print to the trace digest.
    pub fn add_to_digest(&self, what: &[u8]) {
        let us = self.started.elapsed().as_micros();
        let mut noted = self.lock();
        noted.trace.update(&us.to_le_bytes()).update(what);
    }

    /// Adds an event to the trace.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        let us = self.started.elapsed().as_micros();
        let line = format!("{:>9}.{:03} ms {}", us / 1000, us % 1000, what());
        let mut noted = self.lock();
        noted.trace.update(line.as_bytes());
        noted.lines_traced += 1;
        if self.verbose {
            println!("{line}");
        }
        // Only the last lines are needed to analyse a violation.
        if noted.lines.len() >= 400 {
            noted.lines.drain(..200);
        }
        noted.lines.push(line);
    }

    /// Digest of the trace. Two identical runs have equal digests.
    pub fn trace_digest(&self) -> String {
        self.lock().trace.finalize().to_hex()[..16].to_owned()
    }

    /// The last lines of the trace.
    pub fn last_lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }
}
