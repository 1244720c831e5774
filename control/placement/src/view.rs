//! What the solver looks at: one vCluster's nodes, queue, running work and limits, as one value.

use crate::fraction::Fraction;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, ProjectPath, Revision, UnixMillis,
    VclusterName,
    id::ReservationName,
    limit::{LimitPolicy, Limits, SensitivePool, Usage},
    node::{Lifecycle, Node},
    project::Project,
    reservation::ReservationSpec,
    spec::Constraints,
    tenure::Tenure,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Everything a plan depends on, apart from the time and the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The revision of the replicated state it shows.
    pub revision: Revision,
    /// How old the oldest part of it was when it was made, milliseconds. A stale view costs a
    /// refused proposal, never a breach: the quorum judges again.
    pub age_ms: u64,
    /// The nodes this scheduler may use.
    pub nodes: BTreeMap<NodeId, NodeView>,
    /// Nodes of the vCluster's own that another one uses now. Nothing is placed on them; plans for later count
    /// on them from when they are back at the latest. One that is among `nodes` is not lent.
    #[serde(default)]
    pub on_loan: BTreeMap<NodeId, LoanView>,
    /// Nodes that administrators keep for some for a time: all reservations of the site, those of other nodes
    /// too, since nodes change hands.
    #[serde(default)]
    pub reserved: BTreeMap<ReservationName, ReservationSpec>,
    /// The queue: allocations that wait for nodes.
    pub pending: BTreeMap<AllocationId, PendingView>,
    /// Allocations that hold nodes.
    pub running: BTreeMap<AllocationId, RunningView>,
    /// Limits and usage of every project on the path of a pending allocation.
    pub levels: BTreeMap<ProjectPath, LevelView>,
    /// What limits mean.
    pub limit_policy: LimitPolicy,
    /// Nodes in sensitive use in the whole cluster, and how many may be.
    #[serde(default)]
    pub sensitive_pool: SensitivePool,
    /// Shares and budgets of tenants. One that is not here has no share to reach and no budget.
    #[serde(default)]
    pub tenants: BTreeMap<ProjectPath, TenantView>,
    /// Storage systems whose bandwidth is rationed. One that is not here is not.
    #[serde(default)]
    pub storage: BTreeMap<String, StorageView>,
    /// Power domains that have a budget.
    #[serde(default)]
    pub power: BTreeMap<String, DomainView>,
    /// Price of energy now, from the cheapest (0) to the dearest (1) that is known; `None` where no
    /// price is.
    #[serde(default)]
    pub energy_price: Option<Fraction>,
}

/// What a tenant was promised and has had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantView {
    /// The share of the machine that it should get.
    pub share_target: Option<Fraction>,
    /// The share that it has had.
    pub share_used: Fraction,
    /// Hours of GPUs.
    pub gpu_hours: Option<Budget>,
    /// Hours of nodes.
    pub node_hours: Option<Budget>,
}

/// Hours granted and used, in milliseconds of one GPU or node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// How much may be used.
    pub granted_ms: u64,
    /// How much is.
    pub used_ms: u64,
}

impl Budget {
    /// The part that is used; 1 of nothing granted.
    pub fn fraction(self) -> f64 {
        if self.granted_ms == 0 {
            return 1.0;
        }
        self.used_ms as f64 / self.granted_ms as f64
    }
}

impl TenantView {
    /// The part used of the budget that is nearer its end; 0 without any.
    pub fn budget_used(&self) -> f64 {
        let budgets = [self.gpu_hours, self.node_hours].into_iter().flatten();
        budgets.map(Budget::fraction).fold(0.0, f64::max)
    }
}

/// What a storage system still has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageView {
    /// Bandwidth that nothing uses or is promised, MB/s; below 0 where more is than there is.
    pub left_mb_s: i64,
}

/// What a power domain still has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainView {
    /// The domain it is part of, which pays too.
    pub parent: Option<String>,
    /// Power that nothing draws or is promised, milliwatts; below 0 where more is than there is.
    pub headroom_mw: i64,
}

/// What giving a node work costs in power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The innermost domain that pays.
    pub domain: String,
    /// What it draws more when it works, milliwatts.
    pub mw: u64,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// The version an assignment will name.
    pub version: u64,
    /// It takes new work: its lifecycle is ready, no drain reason is open, and it is not promised.
    pub in_service: bool,
    /// Nothing else keeps it from that than that somebody else gets it next: it is promised to who others make room
    /// for, or its own vCluster wants it back.
    #[serde(default)]
    pub promised: bool,
    /// The allocation that holds it.
    pub holder: Option<AllocationId>,
    /// Whose it is: a claimed node takes nothing but their sensitive work.
    #[serde(default)]
    pub owner: Option<Owner>,
    /// It is another vCluster's, and only lent to this one.
    #[serde(default)]
    pub borrowed: bool,
    /// What is known of it from gossip and direct reads.
    pub facts: NodeFacts,
}

/// A node that is lent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoanView {
    /// As it is for its owner: that it is asked back does not put it out of service.
    pub node: NodeView,
    /// So long after it is asked back it is free at the latest, milliseconds; sooner where the borrower's work
    /// ends before. See [`crate::movement::lend::loan_release_at`].
    pub release_after_ms: u64,
    /// When it was asked back; `None`: it could be now.
    pub recalled_at: Option<UnixMillis>,
}

/// Who has claimed a node, and for which project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub user: String,
    /// The project whose limits it counts against.
    pub project: ProjectPath,
}

/// What a node is, and how it is. Not replicated; each part may be unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Whether it answers.
    pub liveness: Liveness,
    /// What its checks say.
    pub health: Health,
    /// It may be used, but only where no other node will do. So it is with a degraded one anyway.
    pub deprioritised: bool,
    /// Its topology (dragonfly) group; `None` when not known: then it shares one with no node.
    pub group: Option<String>,
    /// Its conformance group.
    pub conformance: ConformanceKey,
    /// Model of its GPUs.
    pub gpu_model: Option<String>,
    /// Number of its GPUs; `Some(0)` for a node known to have none.
    pub gpu_count: Option<u32>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory of all its GPUs, bytes.
    #[serde(default)]
    pub gpu_memory_bytes: Option<u64>,
    /// Features it carries.
    pub features: BTreeSet<String>,
    /// Who pays for its power, and how much; `None` where nobody counts it.
    #[serde(default)]
    pub charge: Option<Charge>,
}

/// Whether a node answers. Only an alive one gets new work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// Not asked yet.
    #[default]
    Unknown,
    /// It answers.
    Alive,
    /// It missed answers.
    Suspect,
    /// It is confirmed not to answer.
    Unreachable,
}

/// What is known of a node's health, the better before the worse: of several words on one node the
/// greatest counts. What is not known may be worse than a fault that leaves the node usable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All checks pass.
    Healthy,
    /// Still usable, with a fault: it gets new work where no other node will do, and none that is
    /// sensitive.
    Degraded,
    /// Not known, or not all of it: no new work.
    #[default]
    Unknown,
    /// Must not be used.
    Faulty,
}

impl Health {
    /// Whether new work may be given to the node.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Healthy | Self::Degraded)
    }
}

/// The digest nodes must share to be one conformance group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConformanceKey {
    /// Equal to no node, not even to another unknown one.
    #[default]
    Unknown,
    /// A complete node fingerprint.
    Known([u8; 32]),
}

/// One allocation in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingView {
    /// Whose it is.
    #[serde(default)]
    pub user: String,
    /// The project whose limits apply.
    pub project: ProjectPath,
    /// Nodes it needs, at least 1.
    pub nodes: u32,
    /// Longest run time, milliseconds; `None` is unbounded.
    pub walltime_ms: Option<u64>,
    /// Priority class 0-10.
    pub class: u8,
    /// Its nodes must be healthy and share one known conformance key.
    pub sensitive: bool,
    /// What its nodes must be like.
    pub constraints: Constraints,
    /// When it was submitted.
    pub submitted_at: UnixMillis,
    /// Since when it could have been placed.
    pub eligible_at: UnixMillis,
    /// The part of its input data that is on the hot tier; `None` where that is not known.
    #[serde(default)]
    pub data_ready: Option<Fraction>,
    /// How long a checkpoint of it takes, milliseconds; `None`: as its GPUs' memory makes it.
    #[serde(default)]
    pub checkpoint_ms: Option<u64>,
    /// Bandwidth that it needs of storage systems while it runs, MB/s of the whole job.
    #[serde(default)]
    pub storage_mb_s: BTreeMap<String, u64>,
    /// It uses nodes that are reserved under this name, and no others.
    #[serde(default)]
    pub reservation: Option<ReservationName>,
    /// It is not placed on borrowed nodes: nobody could stop it for their owner. See
    /// [`crate::movement::lend::may_borrow`].
    #[serde(default)]
    pub home_only: bool,
}

/// One allocation that holds nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningView {
    /// When it must be over: its start plus its walltime. `None`: unbounded, nobody can plan on
    /// its nodes.
    pub ends_at: Option<UnixMillis>,
    /// Longest run time, milliseconds.
    #[serde(default)]
    pub walltime_ms: Option<u64>,
    /// Bandwidth that comes back with its end, MB/s of each storage system.
    #[serde(default)]
    pub storage_mb_s: BTreeMap<String, u64>,
}

/// One project's ceilings and what counts against them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelView {
    /// Its ceilings.
    pub limits: Limits,
    /// Used by the project itself.
    pub own: Usage,
    /// Used by everything below it.
    pub subtree: Usage,
}

/// Changes since the last view. `None` takes the entry out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The revision it leads to.
    pub revision: Revision,
    /// Age of the resulting view, milliseconds.
    pub age_ms: u64,
    /// Nodes.
    pub nodes: BTreeMap<NodeId, Option<NodeView>>,
    /// Nodes that are lent.
    #[serde(default)]
    pub on_loan: BTreeMap<NodeId, Option<LoanView>>,
    /// Reservations of administrators.
    #[serde(default)]
    pub reserved: BTreeMap<ReservationName, Option<ReservationSpec>>,
    /// The queue.
    pub pending: BTreeMap<AllocationId, Option<PendingView>>,
    /// Running work.
    pub running: BTreeMap<AllocationId, Option<RunningView>>,
    /// Limits and usage.
    pub levels: BTreeMap<ProjectPath, Option<LevelView>>,
    /// What limits mean from now on.
    pub limit_policy: LimitPolicy,
    /// Nodes in sensitive use from now on.
    #[serde(default)]
    pub sensitive_pool: SensitivePool,
    /// Shares and budgets.
    #[serde(default)]
    pub tenants: BTreeMap<ProjectPath, Option<TenantView>>,
    /// Storage systems.
    #[serde(default)]
    pub storage: BTreeMap<String, Option<StorageView>>,
    /// Power domains.
    #[serde(default)]
    pub power: BTreeMap<String, Option<DomainView>>,
    /// Price of energy from now on.
    #[serde(default)]
    pub energy_price: Option<Fraction>,
}

impl ClusterView {
    /// What records tell of one vCluster: nodes it uses now, its queue, all that runs in the cluster, and the tree of
    /// projects. What gossip knows of a node is asked of `facts`. Revision, limits of the whole system and what else
    /// is known are for the caller to fill in.
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

    /// Applies the changes, and says what was there before.
    pub(crate) fn apply(&mut self, delta: Delta) -> Before {
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
        Before {
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

/// What a delta has replaced, by key; `None` where there was nothing.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) nodes: Vec<(NodeId, Option<NodeView>)>,
    /// Whether others are lent, or otherwise.
    pub(crate) loans_differ: bool,
    /// Whether others are reserved, or otherwise.
    pub(crate) reserved_differ: bool,
    pub(crate) pending: Vec<(AllocationId, Option<PendingView>)>,
    /// Whatever was there of them.
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

/// Whether anything of what was replaced is another thing now.
fn differs<K: Ord, V: PartialEq>(before: &[(K, Option<V>)], now: &BTreeMap<K, V>) -> bool {
    let mut before = before.iter();
    before.any(|(key, old)| old.as_ref() != now.get(key))
}

impl NodeView {
    /// The node as committed, with what else is known of it.
    pub fn new(node: &Node, facts: NodeFacts) -> Self {
        // One that was given back is nobody's, and takes nothing until it is wiped.
        let is_sound = node.lifecycle == Lifecycle::Ready
            && node.drain.is_empty()
            && node.tenure.as_ref().is_none_or(Tenure::is_open);
        // Who it is promised to is given it without being planned again.
        let is_promised = node.promised.is_some() || node.recalled_at.is_some();
        Self {
            version: node.version,
            in_service: is_sound && !is_promised,
            promised: is_sound && is_promised,
            holder: node.holder.map(|h| h.allocation),
            owner: node.tenure.as_ref().map(|tenure| Owner {
                user: tenure.user.clone(),
                project: tenure.project.clone(),
            }),
            borrowed: node.home != node.current,
            facts,
        }
    }

    /// Gets work only where no other node will do.
    pub fn is_last(&self) -> bool {
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
            // That is a rule of its vCluster, which is not known here.
            home_only: false,
        }
    }
}

impl LoanView {
    /// A node of the owner's that is lent, with what else is known of it. Its borrower gives it back within
    /// `release_after_ms` once it is asked to.
    pub fn new(node: &Node, facts: NodeFacts, release_after_ms: u64) -> Self {
        let home = Node {
            recalled_at: None,
            current: node.home.clone(),
            ..node.clone()
        };
        Self {
            node: NodeView::new(&home, facts),
            release_after_ms,
            recalled_at: node.recalled_at,
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
