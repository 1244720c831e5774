//! Starvation: a month of small jobs that keep the machine busy, with large jobs among them.
//!
//! Let `r` be the reference wait, and `D` the largest difference of the other factors. No job that has waited `x` is
//! served before one that has waited `t` if `w2·ln((r + t) / (r + x))` exceeds that difference. Let small jobs wait at
//! most `W`. A large job is then first in the queue from a wait of `(r + W)·exp(D / w2) - r` on, and stays first. It
//! then has a reservation, which no backfilled job delays. It starts when the jobs running then have ended, after the
//! longest walltime at the latest.

use lattice_placement::{
    ClusterView, ConformanceKey, Delta, Health, LevelView, Liveness, NodeFacts, NodeView,
    PendingView, PlannedReservations, Planner, Policy, RunningView,
};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis,
    limit::{Limits, Usage},
    spec::Constraints,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::collections::{BTreeMap, BTreeSet};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const START: u64 = 1_000 * DAY;
const GROUPS: usize = 4;
const NODES: usize = 32;
const LARGE: u32 = 28;
/// Longest walltime of any job.
const LONGEST: u64 = 4 * HOUR;

fn node(n: usize) -> (NodeId, NodeView) {
    let facts = NodeFacts {
        liveness: Liveness::Alive,
        health: Health::Healthy,
        group: Some(format!("g{}", n % GROUPS)),
        conformance: ConformanceKey::Known([1; 32]),
        ..NodeFacts::default()
    };
    let node = NodeView {
        version: 1,
        in_service: true,
        promised: false,
        holder: None,
        owner: None,
        borrowed: false,
        facts,
    };
    (NodeId::new(format!("n{n:02}")).unwrap(), node)
}

fn job(nodes: u32, walltime_ms: u64, at: u64) -> PendingView {
    PendingView {
        user: "alice".to_owned(),
        project: ProjectPath::new("t").unwrap(),
        nodes,
        walltime_ms: Some(walltime_ms),
        class: 5,
        sensitive: false,
        constraints: Constraints::default(),
        submitted_at: UnixMillis(at),
        eligible_at: UnixMillis(at),
        data_ready: None,
        checkpoint_ms: None,
        storage_mb_s: BTreeMap::new(),
        reservation: None,
        home_only: false,
    }
}

/// A machine that carries out the plans of its planner, with its own clock.
struct Month {
    planner: Planner,
    /// Ends of running jobs.
    ends: BTreeSet<(u64, AllocationId)>,
    held: BTreeMap<AllocationId, Vec<NodeId>>,
    /// Waits of large jobs that have started.
    waits: Vec<u64>,
    /// Number of small jobs that have started, and their longest wait.
    small_started: u64,
    small_waited: u64,
}

impl Month {
    fn new(policy: Policy) -> Self {
        let level = LevelView {
            limits: Limits {
                max_nodes: None,
                max_concurrent_allocations: None,
            },
            own: Usage::default(),
            subtree: Usage::default(),
        };
        let mut view = ClusterView {
            nodes: (0..NODES).map(node).collect(),
            ..ClusterView::default()
        };
        view.levels.insert(ProjectPath::new("t").unwrap(), level);
        Self {
            planner: Planner::with_policy(view, policy),
            ends: BTreeSet::new(),
            held: BTreeMap::new(),
            waits: Vec::new(),
            small_started: 0,
            small_waited: 0,
        }
    }

    fn hold(&self, nodes: &[NodeId], holder: Option<AllocationId>, delta: &mut Delta) {
        for id in nodes {
            let node = &self.planner.view().nodes[id];
            let version = node.version + 1;
            let changed = NodeView {
                holder,
                version,
                ..node.clone()
            };
            delta.nodes.insert(id.clone(), Some(changed));
        }
    }

    /// Removes jobs that end by `now`, adds `submitted`, plans, and starts the placed jobs. Jobs run for their full
    /// walltime.
    fn step(&mut self, now: u64, submitted: Option<(AllocationId, PendingView)>) {
        let mut delta = Delta::default();
        while let Some(ended) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            self.ends.remove(&ended);
            let nodes = self.held.remove(&ended.1).unwrap();
            self.hold(&nodes, None, &mut delta);
            delta.running.insert(ended.1, None);
        }
        delta
            .pending
            .extend(submitted.map(|(id, job)| (id, Some(job))));
        self.planner.update(delta);
        let plan = self.planner.plan(UnixMillis(now));
        let mut delta = Delta::default();
        for placement in plan.placements {
            let job = self.planner.view().pending[&placement.id].clone();
            let waited = now - job.submitted_at.0;
            match job.nodes {
                LARGE => self.waits.push(waited),
                _ => {
                    self.small_started += 1;
                    self.small_waited = self.small_waited.max(waited);
                }
            }
            let end = now + job.walltime_ms.unwrap();
            let nodes: Vec<NodeId> = placement.nodes.into_iter().map(|n| n.node).collect();
            self.hold(&nodes, Some(placement.id), &mut delta);
            let running = RunningView {
                ends_at: Some(UnixMillis(end)),
                walltime_ms: job.walltime_ms,
                ..RunningView::default()
            };
            delta.running.insert(placement.id, Some(running));
            delta.pending.insert(placement.id, None);
            self.ends.insert((end, placement.id));
            self.held.insert(placement.id, nodes);
        }
        self.planner.update(delta);
    }
}

/// Thirty days, with a large job every third day. Small jobs request nine tenths of the machine, large ones a
/// twentieth.
fn month(reservations: PlannedReservations) -> Month {
    let policy = Policy {
        reservations,
        ..Policy::default()
    };
    let mut month = Month::new(policy);
    let mut random = StdRng::seed_from_u64(30);
    let (mut id, mut now) = (0, START);
    let mut next_large = START + DAY;
    while now < START + 30 * DAY {
        // 1 to 4 nodes for 1 to 4 hours are 6.25 node-hours on average.
        let pause = random.random_range(0..2 * 625 * HOUR / (90 * NODES as u64));
        let next = now + pause;
        while let Some((end, _)) = month.ends.first().copied().filter(|(end, _)| *end < next) {
            month.step(end, None);
        }
        now = next;
        id += 1;
        let small = job(
            random.random_range(1..=4),
            random.random_range(HOUR..=LONGEST),
            now,
        );
        month.step(now, Some((AllocationId(id), small)));
        if now >= next_large {
            id += 1;
            month.step(now, Some((AllocationId(id), job(LARGE, LONGEST, now))));
            next_large += 3 * DAY;
        }
    }
    month
}

#[test]
fn a_large_job_starts_within_its_bound_in_a_month_of_small_ones() {
    let hours = |ms: u64| ms as f64 / HOUR as f64;
    let easy = month(PlannedReservations::First(1));
    let policy = Policy::default();
    let weights = policy.weights.get();
    // Jobs differ only by their wait and by f4: one group against all of them.
    let most = weights.topology * (1.0 - 1.0 / GROUPS as f64);
    let reference = hours(policy.reference_wait_ms);
    let first =
        (reference + hours(easy.small_waited)) * (most / weights.wait_time).exp() - reference;
    let bound = first + hours(LONGEST);
    let longest = easy
        .waits
        .iter()
        .copied()
        .max()
        .map_or(f64::INFINITY, hours);
    println!(
        "a reservation for the first blocked job: {} small and {} of 10 large jobs started; the longest \
         wait of a small one is {:.1} h, of a large one {longest:.1} h (bound {bound:.1} h)",
        easy.small_started,
        easy.waits.len(),
        hours(easy.small_waited),
    );
    let none = month(PlannedReservations::First(0));
    println!(
        "no reservation: {} small and {} of 10 large jobs started",
        none.small_started,
        none.waits.len(),
    );
    assert_eq!(easy.waits.len(), 10);
    assert!(longest <= bound);
    assert!(none.waits.len() < 5, "it is the reservation that does it");
}
