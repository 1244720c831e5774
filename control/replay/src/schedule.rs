//! Schedule: start and nodes of each job of a replay.

use crate::trace::{Job, UNKNOWN};
use lattice_placement::{ClusterView, Delta, Plan, Policy};
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis, VclusterName, hostlist};
use serde::{Deserialize, Serialize};

/// Start of one job. Lists of these are in the order of the workload's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobStart {
    /// Start, milliseconds; [`UNKNOWN`] if the job never started.
    pub start_ms: u64,
    /// Whether the job started ahead of a waiting job with a reservation.
    pub is_backfilled: bool,
    /// Number of preemptions.
    pub preempted: u32,
    /// Number of topology groups of the job's nodes; 0 if nodes are not known.
    pub span: u32,
}

impl Default for JobStart {
    fn default() -> Self {
        Self {
            start_ms: UNKNOWN,
            is_backfilled: false,
            preempted: 0,
            span: 0,
        }
    }
}

impl JobStart {
    /// Whether the job started.
    pub fn has_started(&self) -> bool {
        self.start_ms != UNKNOWN
    }

    /// End of the job, milliseconds; [`UNKNOWN`] if the job never started.
    pub fn end_ms(&self, job: &Job) -> u64 {
        self.start_ms.saturating_add(job.run_ms)
    }

    /// Wait of the job, milliseconds.
    pub fn wait_ms(&self, job: &Job) -> u64 {
        self.start_ms.saturating_sub(job.submit_ms)
    }
}

/// Order in which events of the same instant are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventOrder {
    /// All together: ends, then submits, then one decision. The live system does the same.
    #[default]
    Together,
    /// One by one: ends, then submits in the order of the trace, and one decision after each.
    OneByOne,
}

impl EventOrder {
    /// Description of the order, for reports.
    pub fn description(self) -> &'static str {
        match self {
            Self::Together => {
                "events at the same time: ends, then submits in trace order, then one decision"
            }
            Self::OneByOne => {
                "events at the same time: ends, then submits in trace order, one decision after each"
            }
        }
    }
}

/// Promised start: the latest start of the first waiting job, as long as that job stays the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromisedStart {
    /// Index of the job in the workload.
    pub job: u32,
    /// Time of the promise, milliseconds.
    pub at_ms: u64,
    /// Promised start, milliseconds.
    pub starts_ms: u64,
}

/// Observer of a scheduler's actions.
pub trait ReplayObserver {
    /// A job starts.
    fn started(&mut self, job: u32, served: JobStart);

    /// Nodes of a job that starts. Not called for schedulers on identical processors.
    fn placed(&mut self, job: u32, nodes: &[NodeId]) {
        let _ = (job, nodes);
    }

    /// A scheduler of the product begins with this view.
    fn began(&mut self, vcluster: &VclusterName, view: &ClusterView) {
        let _ = (vcluster, view);
    }

    /// A scheduler of the product receives a change.
    fn changed(&mut self, vcluster: &VclusterName, delta: &Delta) {
        let _ = (vcluster, delta);
    }

    /// A scheduler of the product has planned with this policy. The plan has placements and reservations, but not the
    /// reasons why other jobs wait.
    fn planned(&mut self, vcluster: &VclusterName, policy: &Policy, plan: &Plan) {
        let _ = (vcluster, policy, plan);
    }

    /// A proposal of a plan was accepted or rejected.
    fn proposed(
        &mut self,
        vcluster: &VclusterName,
        at: UnixMillis,
        id: AllocationId,
        is_taken: bool,
    ) {
        let _ = (vcluster, at, id, is_taken);
    }

    /// An allocation of the product has ended.
    fn ended(&mut self, vcluster: &VclusterName, at: UnixMillis, id: AllocationId) {
        let _ = (vcluster, at, id);
    }

    /// The first waiting job gets a promised start. The scheduler reports the promise again with each decision.
    fn promised(&mut self, promise: PromisedStart) {
        let _ = promise;
    }
}

/// Nodes of each job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSets {
    names: Vec<NodeId>,
    sets: Vec<Box<[u32]>>,
}

impl NodeSets {
    /// Creates empty sets for this number of jobs on these nodes.
    pub fn of<'n>(jobs: usize, names: impl Iterator<Item = &'n NodeId>) -> Self {
        Self {
            names: names.cloned().collect(),
            sets: vec![Box::default(); jobs],
        }
    }

    /// Indices of a job's nodes in the machine.
    pub fn of_job(&self, job: usize) -> &[u32] {
        self.sets.get(job).map_or(&[], |set| set)
    }

    /// Name of a node.
    pub fn name(&self, node: u32) -> &NodeId {
        &self.names[node as usize]
    }

    /// Number of nodes of the machine.
    pub fn size(&self) -> usize {
        self.names.len()
    }

    /// Nodes of a job as a hostlist.
    pub fn hostlist(&self, job: usize) -> String {
        let names = self.of_job(job).iter().map(|node| self.name(*node));
        hostlist::fold(names)
    }

    fn put(&mut self, job: u32, nodes: &[NodeId]) {
        let place = |name: &NodeId| self.names.binary_search(name).ok();
        // There are fewer than 2^32 nodes.
        let set = nodes.iter().filter_map(|name| Some(place(name)? as u32));
        self.sets[job as usize] = set.collect();
    }
}

/// Schedule of all jobs of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Start of each job.
    pub served: Vec<JobStart>,
    /// Promised starts; `None` if they are not recorded.
    pub promises: Option<Vec<PromisedStart>>,
    /// Nodes of each job; `None` if they are not recorded.
    pub nodes: Option<NodeSets>,
}

impl Schedule {
    /// Creates the schedule of this number of jobs; no job has started.
    pub fn of(jobs: usize, with_promises: bool) -> Self {
        Self {
            served: vec![JobStart::default(); jobs],
            promises: with_promises.then(Vec::new),
            nodes: None,
        }
    }

    /// Digest of starts, spans, preemptions, backfills and nodes. Equal schedules have equal digests.
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

impl ReplayObserver for Schedule {
    fn started(&mut self, job: u32, served: JobStart) {
        self.served[job as usize] = served;
    }

    fn placed(&mut self, job: u32, nodes: &[NodeId]) {
        if let Some(sets) = &mut self.nodes {
            sets.put(job, nodes);
        }
    }

    fn promised(&mut self, promise: PromisedStart) {
        let Some(promises) = &mut self.promises else {
            return;
        };
        // A repeated promise is not stored.
        let is_known =
            |last: &PromisedStart| last.job == promise.job && last.starts_ms == promise.starts_ms;
        if !promises.last().is_some_and(is_known) {
            promises.push(promise);
        }
    }
}
