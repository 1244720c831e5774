//! What a replay comes to: when each job started, and where.

use crate::trace::{Job, UNKNOWN};
use lattice_placement::{ClusterView, Delta, Plan, Policy};
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis, VclusterName, hostlist};
use serde::{Deserialize, Serialize};

/// How one job was served. In the order of the workload's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// When it started; [`UNKNOWN`] where it never did.
    pub start_ms: u64,
    /// It started ahead of one that waited with a reservation.
    pub is_backfilled: bool,
    /// How often it was taken off its nodes.
    pub preempted: u32,
    /// Topology groups that its nodes are in; 0 where nodes have no place.
    pub span: u32,
}

impl Default for Served {
    fn default() -> Self {
        Self {
            start_ms: UNKNOWN,
            is_backfilled: false,
            preempted: 0,
            span: 0,
        }
    }
}

impl Served {
    /// Whether it started.
    pub fn has_started(&self) -> bool {
        self.start_ms != UNKNOWN
    }

    /// When it ended; [`UNKNOWN`] where it never started.
    pub fn end_ms(&self, job: &Job) -> u64 {
        self.start_ms.saturating_add(job.run_ms)
    }

    /// For how long it waited.
    pub fn wait_ms(&self, job: &Job) -> u64 {
        self.start_ms.saturating_sub(job.submit_ms)
    }
}

/// How events of the same instant are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SameInstant {
    /// All of them, ends before submits; then it is decided once. As the live system does.
    #[default]
    Together,
    /// One by one, ends before submits and submits as they stand in the trace; it is decided after each.
    OneByOne,
}

impl SameInstant {
    /// The order, for reports.
    pub fn told(self) -> &'static str {
        match self {
            Self::Together => {
                "events of one instant: ends, then submits in the trace's order, then one decision"
            }
            Self::OneByOne => {
                "events of one instant: ends, then submits in the trace's order, a decision after each"
            }
        }
    }
}

/// What a scheduler promised the first job that waits: a start no later than that, as long as it stays the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Its place among the jobs.
    pub job: u32,
    /// When that was said.
    pub at_ms: u64,
    /// The start.
    pub starts_ms: u64,
}

/// Who wants to know what a scheduler does.
pub trait Watch {
    /// A job starts.
    fn started(&mut self, job: u32, served: Served);

    /// The nodes of a job that starts, where they have names.
    fn placed(&mut self, job: u32, nodes: &[NodeId]) {
        let _ = (job, nodes);
    }

    /// A scheduler of the product begins with this.
    fn began(&mut self, vcluster: &VclusterName, view: &ClusterView) {
        let _ = (vcluster, view);
    }

    /// A scheduler of the product hears what has changed.
    fn heard(&mut self, vcluster: &VclusterName, delta: &Delta) {
        let _ = (vcluster, delta);
    }

    /// A scheduler of the product has planned by this policy: placements and reservations, and not why the others wait.
    fn planned(&mut self, vcluster: &VclusterName, policy: &Policy, plan: &Plan) {
        let _ = (vcluster, policy, plan);
    }

    /// What of a plan was proposed was taken, or refused.
    fn proposed(
        &mut self,
        vcluster: &VclusterName,
        at: UnixMillis,
        id: AllocationId,
        is_taken: bool,
    ) {
        let _ = (vcluster, at, id, is_taken);
    }

    /// Work of the product has ended.
    fn ended(&mut self, vcluster: &VclusterName, at: UnixMillis, id: AllocationId) {
        let _ = (vcluster, at, id);
    }

    /// The first job that waits is promised a start. Said again whenever it is decided.
    fn promised(&mut self, promise: Promise) {
        let _ = promise;
    }
}

/// Which nodes each job had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSets {
    names: Vec<NodeId>,
    sets: Vec<Box<[u32]>>,
}

impl NodeSets {
    /// Of so many jobs on these nodes, of which none has started.
    pub fn of<'n>(jobs: usize, names: impl Iterator<Item = &'n NodeId>) -> Self {
        Self {
            names: names.cloned().collect(),
            sets: vec![Box::default(); jobs],
        }
    }

    /// Places of a job's nodes in the machine.
    pub fn of_job(&self, job: usize) -> &[u32] {
        self.sets.get(job).map_or(&[], |set| set)
    }

    /// The name of a node.
    pub fn name(&self, node: u32) -> &NodeId {
        &self.names[node as usize]
    }

    /// How many nodes the machine has.
    pub fn size(&self) -> usize {
        self.names.len()
    }

    /// A job's nodes as a hostlist.
    pub fn hostlist(&self, job: usize) -> String {
        let names = self.of_job(job).iter().map(|node| self.name(*node));
        hostlist::fold(names)
    }

    fn put(&mut self, job: u32, nodes: &[NodeId]) {
        let place = |name: &NodeId| self.names.binary_search(name).ok();
        // There are not 2^32 nodes.
        let set = nodes.iter().filter_map(|name| Some(place(name)? as u32));
        self.sets[job as usize] = set.collect();
    }
}

/// A whole schedule, kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// By job.
    pub served: Vec<Served>,
    /// Promises, where they were asked for.
    pub promises: Option<Vec<Promise>>,
    /// Nodes, where they were asked for.
    pub nodes: Option<NodeSets>,
}

impl Schedule {
    /// Of so many jobs, of which none has started.
    pub fn of(jobs: usize, with_promises: bool) -> Self {
        Self {
            served: vec![Served::default(); jobs],
            promises: with_promises.then(Vec::new),
            nodes: None,
        }
    }

    /// The same bytes for the same schedule.
    pub fn digest(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for served in &self.served {
            hasher.update(&served.start_ms.to_le_bytes());
            hasher.update(&served.span.to_le_bytes());
            hasher.update(&served.preempted.to_le_bytes());
            hasher.update(&[u8::from(served.is_backfilled)]);
        }
        for set in self.nodes.iter().flat_map(|nodes| &nodes.sets) {
            for node in set {
                hasher.update(&node.to_le_bytes());
            }
        }
        hasher.finalize()
    }
}

impl Watch for Schedule {
    fn started(&mut self, job: u32, served: Served) {
        self.served[job as usize] = served;
    }

    fn placed(&mut self, job: u32, nodes: &[NodeId]) {
        if let Some(sets) = &mut self.nodes {
            sets.put(job, nodes);
        }
    }

    fn promised(&mut self, promise: Promise) {
        let Some(promises) = &mut self.promises else {
            return;
        };
        // The same again is no news.
        let is_known =
            |last: &Promise| last.job == promise.job && last.starts_ms == promise.starts_ms;
        if !promises.last().is_some_and(is_known) {
            promises.push(promise);
        }
    }
}
