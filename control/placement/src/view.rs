//! Cluster view, the solver's input: nodes, queue, running allocations and limits of one vCluster, as one value.

use crate::{
    fraction::Fraction,
    priority::factors::{self, TenantFactors},
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, ProjectPath, Revision, UnixMillis,
    VclusterName,
    id::ReservationName,
    limit::{Limits, SensitivePool, Usage},
    limit_policy::LimitPolicy,
    node::{Lifecycle, Node},
    node_claim::NodeClaim,
    project::Project,
    reservation::ReservationSpec,
    spec::Constraints,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that a plan depends on, apart from the time and the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// Revision of the replicated state shown by the view.
    pub revision: Revision,
    /// Age of the oldest part of the view at its creation, milliseconds. A stale view may cause a rejected proposal,
    /// but never a violated limit: the quorum checks every proposal.
    pub age_ms: u64,
    /// Nodes that this scheduler may use.
    pub nodes: BTreeMap<NodeId, NodeView>,
    /// Nodes of this vCluster that another vCluster uses now. No job is placed on these nodes. Planned reservations
    /// count on each from its latest return. A node that is also in `nodes` is not lent.
    #[serde(default)]
    pub on_loan: BTreeMap<NodeId, LoanView>,
    /// Reservation windows of operators: all windows of the site, since nodes change their vCluster.
    #[serde(default)]
    pub reserved: BTreeMap<ReservationName, ReservationSpec>,
    /// The queue: allocations that wait for nodes.
    pub pending: BTreeMap<AllocationId, PendingView>,
    /// Allocations that hold nodes.
    pub running: BTreeMap<AllocationId, RunningView>,
    /// Limits and usage of projects, at least of every project on the path of a pending allocation.
    pub levels: BTreeMap<ProjectPath, LevelView>,
    /// Limit policy in force.
    pub limit_policy: LimitPolicy,
    /// Nodes in sensitive use in the whole cluster, and their limit.
    #[serde(default)]
    pub sensitive_pool: SensitivePool,
    /// Shares and budgets of tenants. A tenant without an entry has no target share and no budget.
    #[serde(default)]
    pub tenants: BTreeMap<ProjectPath, TenantView>,
    /// Storage systems with rationed bandwidth. A system without an entry is not rationed.
    #[serde(default)]
    pub storage: BTreeMap<String, StorageView>,
    /// Power domains with a budget.
    #[serde(default)]
    pub power: BTreeMap<String, DomainView>,
    /// Present energy price, from the lowest (0) to the highest (1) known price; `None` if no price is known.
    #[serde(default)]
    pub energy_price: Option<Fraction>,
}

/// Share and budgets of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantView {
    /// Target share of the machine.
    pub share_target: Option<Fraction>,
    /// Share used.
    pub share_used: Fraction,
    /// Budget of GPU hours.
    pub gpu_hours: Option<Budget>,
    /// Budget of node hours.
    pub node_hours: Option<Budget>,
    /// Whether the tenant holds at least as many nodes as its burst allowance permits. Its jobs then rank behind those
    /// of others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub beyond_burst: bool,
    /// Whether an accounting system requests that the jobs of the tenant rank behind those of others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub downscaled: bool,
}

/// Hours granted and used, in milliseconds of one GPU or node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Granted amount.
    pub granted_ms: u64,
    /// Used amount.
    pub used_ms: u64,
}

impl Budget {
    /// Used part of the budget; 1 if nothing is granted.
    pub fn fraction(self) -> f64 {
        if self.granted_ms == 0 {
            return 1.0;
        }
        self.used_ms as f64 / self.granted_ms as f64
    }
}

impl TenantView {
    /// Used part of the budget that is closer to exhaustion; 0 without a budget.
    pub fn budget_used(&self) -> f64 {
        let budgets = [self.gpu_hours, self.node_hours].into_iter().flatten();
        budgets.map(Budget::fraction).fold(0.0, f64::max)
    }

    /// Factors of the tenant, the lowest of which multiplies the scores of its jobs.
    pub fn factors(&self) -> TenantFactors {
        TenantFactors {
            budget: factors::budget(self.budget_used()),
            share: factors::rank_behind(self.beyond_burst),
            accounting: factors::rank_behind(self.downscaled),
        }
    }
}

/// Remaining capacity of a storage system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageView {
    /// Bandwidth that is neither in use nor promised, MB/s; negative if overcommitted.
    pub left_mb_s: i64,
}

/// Remaining capacity of a power domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainView {
    /// Domain that contains this one and also limits it.
    pub parent: Option<String>,
    /// Power that is neither drawn nor promised, milliwatts; negative if overcommitted.
    pub headroom_mw: i64,
}

/// Power that a node draws for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// Innermost domain that supplies the node.
    pub domain: String,
    /// Additional power under load, milliwatts.
    pub mw: u64,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Version of the node record, which an assignment must contain.
    pub version: u64,
    /// Whether the node accepts jobs: lifecycle `ready`, no drain reason, no ended claim before the wipe, not promised
    /// and not reclaimed.
    pub in_service: bool,
    /// Whether only a promise to a pending allocation or a reclaim by the home vCluster keeps the node from being in
    /// service.
    #[serde(default)]
    pub promised: bool,
    /// Allocation that holds the node.
    pub holder: Option<AllocationId>,
    /// Claimant, if the node is claimed: it then accepts only sensitive allocations of that user and project.
    #[serde(default)]
    pub owner: Option<Owner>,
    /// Whether the node belongs to another vCluster and is lent to this one.
    #[serde(default)]
    pub borrowed: bool,
    /// Facts from gossip and direct reads.
    pub facts: NodeFacts,
}

/// A lent node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoanView {
    /// View of the node for its owner, in which a reclaim does not put the node out of service.
    pub node: NodeView,
    /// Longest time from a reclaim until the node is free, milliseconds. The node is free sooner if the borrower's job
    /// ends before. See [`crate::movement::lend::loan_release_at`].
    pub release_after_ms: u64,
    /// Time of the reclaim; `None`: not reclaimed, so plans assume a reclaim now.
    #[serde(rename = "recalled_at")]
    pub reclaimed_at: Option<UnixMillis>,
}

/// Claimant of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// User that claimed the node.
    pub user: String,
    /// Project for which the node is claimed; the node counts against its limits.
    pub project: ProjectPath,
}

/// Properties and state of a node. Not replicated; each part may be unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Whether the node answers pings.
    pub liveness: Liveness,
    /// Result of the node's health checks.
    pub health: Health,
    /// Whether the node is used only if no other suffices. A degraded node is treated the same.
    pub deprioritised: bool,
    /// Topology (dragonfly) group; `None` if unknown: the node then counts as a group of its own.
    pub group: Option<String>,
    /// Conformance group.
    pub conformance: ConformanceKey,
    /// Model of the node's GPUs.
    pub gpu_model: Option<String>,
    /// Number of the node's GPUs; `Some(0)` for a node known to have none.
    pub gpu_count: Option<u32>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory of all GPUs of the node, bytes.
    #[serde(default)]
    pub gpu_memory_bytes: Option<u64>,
    /// Features of the node.
    pub features: BTreeSet<String>,
    /// Power domain and power of the node; `None` if its power is not counted.
    #[serde(default)]
    pub charge: Option<Charge>,
}

/// Whether a node answers pings. Only an alive node gets new jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// Not pinged yet.
    #[default]
    Unknown,
    /// The node answers.
    Alive,
    /// The node missed pings.
    Suspect,
    /// The node is confirmed not to answer.
    Unreachable,
}

impl Liveness {
    /// Lower-case name as printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Liveness::Unknown => "unknown",
            Liveness::Alive => "alive",
            Liveness::Suspect => "suspect",
            Liveness::Unreachable => "unreachable",
        }
    }
}

/// Health of a node, best first: of several reports about one node, the greatest counts. `Unknown` is worse than
/// `Degraded`, since the true state may be worse than a fault that leaves the node usable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All checks pass.
    Healthy,
    /// Usable, but with a fault: the node gets new jobs only if no other node suffices, and no sensitive ones.
    Degraded,
    /// Not known, or not completely: the node gets no new jobs.
    #[default]
    Unknown,
    /// Not usable: the node gets no new jobs.
    Faulty,
}

impl Health {
    /// Lower-case name as printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Health::Unknown => "unknown",
            Health::Healthy => "healthy",
            Health::Degraded => "degraded",
            Health::Faulty => "faulty",
        }
    }

    /// Whether the node may get new jobs.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Healthy | Self::Degraded)
    }
}

/// Digest that nodes must share to be in one conformance group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConformanceKey {
    /// Equal to no node, not even to another unknown one.
    #[default]
    Unknown,
    /// A complete node fingerprint.
    Known([u8; 32]),
}

/// One queued allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingView {
    /// User of the allocation.
    #[serde(default)]
    pub user: String,
    /// Project of the allocation; its limits apply.
    pub project: ProjectPath,
    /// Nodes requested, at least 1.
    pub nodes: u32,
    /// Longest remaining run time, milliseconds; `None`: unbounded.
    pub walltime_ms: Option<u64>,
    /// Priority class 0-10.
    pub class: u8,
    /// Whether the allocation is sensitive: its nodes must be healthy and share one known conformance key.
    pub sensitive: bool,
    /// Constraints on the nodes of the job.
    pub constraints: Constraints,
    /// Time of submission.
    pub submitted_at: UnixMillis,
    /// Earliest time at which the job could have been placed (after dependencies and holds).
    pub eligible_at: UnixMillis,
    /// Part of the job's input data that is on the hot tier; `None` if unknown.
    #[serde(default)]
    pub data_ready: Option<Fraction>,
    /// Duration of a checkpoint, milliseconds; `None`: derived from the GPU memory of nodes that fit.
    #[serde(default)]
    pub checkpoint_ms: Option<u64>,
    /// Bandwidth of storage systems during the run, MB/s for all nodes of the job together.
    #[serde(default)]
    pub storage_mb_s: BTreeMap<String, u64>,
    /// Reservation that the job names: the job uses only nodes of that reservation.
    #[serde(default)]
    pub reservation: Option<ReservationName>,
    /// Whether the job must not be placed on borrowed nodes, since the job could not be stopped for the owner of the
    /// nodes. See [`crate::movement::lend::may_borrow`].
    #[serde(default)]
    pub home_only: bool,
}

/// One allocation that holds nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningView {
    /// Latest end: start plus walltime. `None`: unbounded, so no plan can count on the nodes of the allocation.
    pub ends_at: Option<UnixMillis>,
    /// Walltime left at the start of the present attempt, milliseconds; `None`: unbounded.
    #[serde(default)]
    pub walltime_ms: Option<u64>,
    /// Bandwidth released at the end of the job, MB/s by storage system.
    #[serde(default)]
    pub storage_mb_s: BTreeMap<String, u64>,
}

/// Limits and usage of one project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelView {
    /// Limits of the project.
    pub limits: Limits,
    /// Usage of the project itself.
    pub own: Usage,
    /// Usage of all projects below the project, without its own.
    pub subtree: Usage,
}

/// Changes since the last view. A value of `None` in a map removes the entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// Revision of the resulting view.
    pub revision: Revision,
    /// Age of the resulting view, milliseconds.
    pub age_ms: u64,
    /// Changed nodes.
    pub nodes: BTreeMap<NodeId, Option<NodeView>>,
    /// Changed lent nodes.
    #[serde(default)]
    pub on_loan: BTreeMap<NodeId, Option<LoanView>>,
    /// Changed reservations.
    #[serde(default)]
    pub reserved: BTreeMap<ReservationName, Option<ReservationSpec>>,
    /// Changed queue entries.
    pub pending: BTreeMap<AllocationId, Option<PendingView>>,
    /// Changed running allocations.
    pub running: BTreeMap<AllocationId, Option<RunningView>>,
    /// Changed limits and usage.
    pub levels: BTreeMap<ProjectPath, Option<LevelView>>,
    /// Limit policy from now on.
    pub limit_policy: LimitPolicy,
    /// Nodes in sensitive use from now on.
    #[serde(default)]
    pub sensitive_pool: SensitivePool,
    /// Changed shares and budgets.
    #[serde(default)]
    pub tenants: BTreeMap<ProjectPath, Option<TenantView>>,
    /// Changed storage systems.
    #[serde(default)]
    pub storage: BTreeMap<String, Option<StorageView>>,
    /// Changed power domains.
    #[serde(default)]
    pub power: BTreeMap<String, Option<DomainView>>,
    /// Energy price from now on.
    #[serde(default)]
    pub energy_price: Option<Fraction>,
}

impl ClusterView {
    /// Builds the view of one vCluster from replicated records: the nodes that the vCluster uses now, its queue, all
    /// allocations of the cluster that hold nodes, and the project tree. `facts` returns the gossip facts of a node.
    /// The caller fills in the revision, cluster-wide limits and all other fields.
    pub fn of_records<'a>(
        vcluster: &VclusterName,
        nodes: impl Iterator<Item = &'a Node>,
        allocations: impl Iterator<Item = &'a Allocation>,
        projects: impl Iterator<Item = &'a Project>,
        mut facts: impl FnMut(&NodeId) -> NodeFacts,
    ) -> Self {
        let nodes = nodes.filter(|n| n.current == *vcluster);
        let mut view = Self {
            nodes: nodes
                .map(|n| (n.id.clone(), NodeView::new(n, facts(&n.id))))
                .collect(),
            levels: projects
                .map(|p| (p.path.clone(), LevelView::from(p)))
                .collect(),
            ..Self::default()
        };
        for a in allocations {
            if a.state.holds() {
                view.running.insert(a.id, RunningView::from(a));
            } else if a.state == AllocationState::Pending && a.spec.vcluster == *vcluster {
                view.pending.insert(a.id, PendingView::from(a));
            }
        }
        view
    }

    /// Applies the changes of a delta.
    pub fn update(&mut self, delta: Delta) {
        drop(self.apply(delta));
    }

    /// Applies the changes, and returns the former entries.
    pub(crate) fn apply(&mut self, delta: Delta) -> FormerEntries {
        self.revision = delta.revision;
        self.age_ms = delta.age_ms;
        self.limit_policy = delta.limit_policy;
        self.sensitive_pool = delta.sensitive_pool;
        self.energy_price = delta.energy_price;
        merge(&mut self.tenants, delta.tenants);
        merge(&mut self.storage, delta.storage);
        let running = merge(&mut self.running, delta.running);
        let loans = merge(&mut self.on_loan, delta.on_loan);
        let reserved = merge(&mut self.reserved, delta.reserved);
        FormerEntries {
            loans_differ: differs(&loans, &self.on_loan),
            reserved_differ: differs(&reserved, &self.reserved),
            nodes: merge(&mut self.nodes, delta.nodes),
            pending: merge(&mut self.pending, delta.pending),
            running: running.into_iter().map(|(id, _)| id).collect(),
            levels: merge(&mut self.levels, delta.levels),
            power: merge(&mut self.power, delta.power),
        }
    }
}

/// Entries that a delta has replaced, by key; `None` for new ones.
#[derive(Debug)]
pub(crate) struct FormerEntries {
    pub(crate) nodes: Vec<(NodeId, Option<NodeView>)>,
    /// Whether lent nodes have changed.
    pub(crate) loans_differ: bool,
    /// Whether reservations have changed.
    pub(crate) reserved_differ: bool,
    pub(crate) pending: Vec<(AllocationId, Option<PendingView>)>,
    /// Ids of all changed entries, whether or not they had a former one.
    pub(crate) running: Vec<AllocationId>,
    pub(crate) levels: Vec<(ProjectPath, Option<LevelView>)>,
    pub(crate) power: Vec<(String, Option<DomainView>)>,
}

fn merge<K: Ord + Clone, V>(
    into: &mut BTreeMap<K, V>,
    changes: BTreeMap<K, Option<V>>,
) -> Vec<(K, Option<V>)> {
    let replace = |(key, change): (K, Option<V>)| {
        let before = match change {
            Some(value) => into.insert(key.clone(), value),
            None => into.remove(&key),
        };
        (key, before)
    };
    changes.into_iter().map(replace).collect()
}

/// Whether any replaced entry differs from the present one.
fn differs<K: Ord, V: PartialEq>(before: &[(K, Option<V>)], now: &BTreeMap<K, V>) -> bool {
    let mut before = before.iter();
    before.any(|(key, old)| old.as_ref() != now.get(key))
}

impl NodeView {
    /// View of a committed node record, with its facts.
    pub fn new(node: &Node, facts: NodeFacts) -> Self {
        // A node with a released claim accepts no job until it is wiped.
        let is_sound = node.lifecycle == Lifecycle::Ready
            && node.drain.is_empty()
            && node.node_claim.as_ref().is_none_or(NodeClaim::is_open);
        // A promised node is assigned to the allocation that holds the promise, without another plan.
        let is_promised = node.promised.is_some() || node.reclaimed_at.is_some();
        Self {
            version: node.version,
            in_service: is_sound && !is_promised,
            promised: is_sound && is_promised,
            holder: node.holder.map(|h| h.allocation),
            owner: node.node_claim.as_ref().map(|node_claim| Owner {
                user: node_claim.user.clone(),
                project: node_claim.project.clone(),
            }),
            borrowed: node.home != node.current,
            facts,
        }
    }

    /// Whether the node is used only if no other suffices.
    pub fn is_last_resort(&self) -> bool {
        self.facts.deprioritised || self.facts.health == Health::Degraded
    }
}

impl From<&Allocation> for PendingView {
    fn from(a: &Allocation) -> Self {
        Self {
            user: a.user.clone(),
            project: a.spec.project.clone(),
            nodes: a.spec.nodes,
            walltime_ms: a.walltime_left_ms(),
            class: a.spec.class,
            sensitive: a.spec.sensitive,
            constraints: a.spec.constraints.clone(),
            submitted_at: a.submitted_at,
            eligible_at: a.eligible_at,
            data_ready: a.spec.demand.data_ready_ppm.map(Fraction::millionths),
            checkpoint_ms: a.spec.demand.checkpoint_ms,
            storage_mb_s: a.spec.demand.storage_mb_s.clone(),
            reservation: a.spec.terms.reservation.clone(),
            // The value depends on a rule of the job's vCluster. The caller sets it.
            home_only: false,
        }
    }
}

impl LoanView {
    /// View of a lent node for its owner, with its facts. The borrower returns the node at most `release_after_ms`
    /// after a reclaim.
    pub fn new(node: &Node, facts: NodeFacts, release_after_ms: u64) -> Self {
        let home = Node {
            reclaimed_at: None,
            current: node.home.clone(),
            ..node.clone()
        };
        Self {
            node: NodeView::new(&home, facts),
            release_after_ms,
            reclaimed_at: node.reclaimed_at,
        }
    }
}

impl From<&Allocation> for RunningView {
    fn from(a: &Allocation) -> Self {
        Self {
            ends_at: a.ends_at(),
            walltime_ms: a.walltime_left_ms(),
            storage_mb_s: a.spec.demand.storage_mb_s.clone(),
        }
    }
}

impl From<&Project> for LevelView {
    fn from(p: &Project) -> Self {
        Self {
            limits: p.limits,
            own: p.own,
            subtree: p.subtree,
        }
    }
}
