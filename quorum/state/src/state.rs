//! The replicated state and its records.

use crate::{
    archive::Archive,
    audit::Audit,
    baseline::Baselines,
    clock::Clock,
    dags::Dags,
    dependency_index::DependencyIndex,
    keys::IdempotencyKeys,
    lease::Leases,
    node_claim::NodeClaims,
    policy::Policy,
    reservations::Reservations,
    segment::{SealedSegment, Segment},
    table::SegmentLimits,
    token::Tokens,
    tree::Tree,
    trust::{Identity, Trust},
    unstarted::UncountedAttempts,
    usage_records::UsageRecords,
    vcluster::Vclusters,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, ProjectPath, Refusal, Revision, UnixMillis,
    VclusterName,
    accounting_month::{AccountingMonth, MAX_MONTHS, MonthDifferences},
    baseline::{Baseline, Brake},
    budget::TenantBudget,
    dag::Dag,
    id::{BaselineName, DagId, ReservationName},
    limit::{Limits, OnLimit, SensitivePool, SystemLimits, Usage},
    limit_policy::SystemView,
    node::{Lifecycle, Node},
    project::Project,
    refusal::LimitRequest,
    reservation::Reservation,
    rpc::Role,
    usage_record::UsageRecordsHead,
    vcluster::Vcluster,
    view::{Headroom, TrustView},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// Records that were added to the state after its format was set, in the order in which they were added. A snapshot holds
/// them only if there are any, so a state without them has the same bytes as before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LaterRecords {
    /// Handling of submits that do not fit with the present usage, by tenant. Only tenants with another handling than
    /// the default have an entry.
    pub(crate) on_limit: BTreeMap<ProjectPath, OnLimit>,
    /// Ended months with open or accepted differences of accounting; at most [`MAX_MONTHS`].
    pub(crate) months: BTreeMap<AccountingMonth, MonthDifferences>,
}

impl LaterRecords {
    /// Stores the differences of a month; `None` for no differences. The earliest month gives way to one above
    /// [`MAX_MONTHS`].
    pub(crate) fn set_month(&mut self, month: AccountingMonth, found: Option<MonthDifferences>) {
        match found {
            Some(found) => self.months.insert(month, found),
            None => self.months.remove(&month),
        };
        while self.months.len() > MAX_MONTHS {
            self.months.pop_first();
        }
    }

    /// The earliest month, if `month` would be displaced at once: it is before all months, and their number is at its
    /// limit.
    pub(crate) fn displaced_by(&self, month: AccountingMonth) -> Option<AccountingMonth> {
        let earliest = *self.months.keys().next()?;
        (self.months.len() >= MAX_MONTHS && month < earliest).then_some(earliest)
    }
}

/// Everything the quorum agrees on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// Limit policy in force. Replicated, because every voter must decide by the same policy.
    pub(crate) policy: Policy,
    pub(crate) revision: Revision,
    /// Log index of the last command that changed something.
    pub(crate) last_index: u64,
    pub(crate) clock: Clock,
    pub(crate) tree: Tree,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    /// Number of nodes that are not retired.
    pub(crate) registered: u64,
    /// Allocations that are not terminal.
    pub(crate) hot: BTreeMap<AllocationId, Arc<Allocation>>,
    pub(crate) archive: Archive,
    /// Number of allocations by state, in the order of [`AllocationState::ALL`].
    pub(crate) counts: [u64; AllocationState::ALL.len()],
    /// Highest id assigned to an allocation, array element or DAG.
    pub(crate) last_id: u64,
    pub(crate) leases: Leases,
    pub(crate) tokens: Tokens,
    pub(crate) keys: IdempotencyKeys,
    pub(crate) trust: Trust,
    pub(crate) audit: Audit,
    pub(crate) unstarted: UncountedAttempts,
    pub(crate) baselines: Baselines,
    /// Cluster-wide limits.
    pub(crate) system: SystemLimits,
    pub(crate) node_claims: NodeClaims,
    pub(crate) vclusters: Vclusters,
    pub(crate) dags: Dags,
    pub(crate) reservations: Reservations,
    /// Budgets by tenant; tenants without a budget have no entry.
    pub(crate) budgets: BTreeMap<ProjectPath, TenantBudget>,
    pub(crate) usage_records: UsageRecords,
    /// Records that the snapshot holds behind this record, if there are any (`snapshot.rs`).
    #[serde(skip)]
    pub(crate) later: LaterRecords,
    /// Index of dependencies, mutexes, arrays and promised nodes; rebuilt from the records on restore.
    #[serde(skip)]
    pub(crate) order: DependencyIndex,
    /// Segments that the user of the state has not taken yet. Not encoded: the state encodes only their names.
    #[serde(skip)]
    pub(crate) sealed: Vec<SealedSegment>,
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// Empty cluster with the strict limit policy.
    pub fn new() -> Self {
        Self::with_policy(Policy::Strict)
    }

    /// Empty cluster with another limit policy. The policy is part of the state: all voters must start with the same
    /// one.
    pub fn with_policy(policy: Policy) -> Self {
        Self::with_bounds(policy, SegmentLimits::default())
    }

    /// Empty cluster with another segment size; all voters must start with the same bounds.
    pub fn with_bounds(policy: Policy, bounds: SegmentLimits) -> Self {
        State {
            policy,
            revision: Revision(0),
            last_index: 0,
            clock: Clock::default(),
            tree: Tree::default(),
            nodes: BTreeMap::new(),
            registered: 0,
            hot: BTreeMap::new(),
            archive: Archive::new(bounds),
            counts: [0; AllocationState::ALL.len()],
            last_id: 0,
            leases: Leases::default(),
            tokens: Tokens::default(),
            keys: IdempotencyKeys::default(),
            trust: Trust::default(),
            audit: Audit::new(bounds),
            unstarted: UncountedAttempts::default(),
            baselines: Baselines::default(),
            system: SystemLimits::default(),
            node_claims: NodeClaims::default(),
            vclusters: Vclusters::default(),
            dags: Dags::new(bounds),
            reservations: Reservations::default(),
            budgets: BTreeMap::new(),
            usage_records: UsageRecords::new(bounds),
            later: LaterRecords::default(),
            order: DependencyIndex::default(),
            sealed: Vec::new(),
        }
    }

    /// Returns the state with its dependency index rebuilt from allocations and nodes.
    pub(crate) fn with_dependency_index(mut self) -> Self {
        let records = self.hot.values().map(Arc::as_ref);
        self.order = DependencyIndex::of(records, self.nodes.values());
        self
    }

    /// Last revision made.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// State time: the highest time stamp of a command that took effect, with forward steps capped.
    pub fn now(&self) -> UnixMillis {
        self.clock.now
    }

    /// Log index of the last command that changed something.
    pub fn last_index(&self) -> u64 {
        self.last_index
    }

    /// Number of commands stamped more than [`crate::MAX_FORWARD_MS`] ahead of state time. A growing number indicates a
    /// wrong proposer clock and deserves an alarm.
    pub fn clock_jumps(&self) -> u64 {
        self.clock.jumps
    }

    /// Record of a node.
    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Record of a project.
    pub fn project(&self, path: &ProjectPath) -> Option<&Project> {
        self.tree.get(path).map(|entry| &entry.record)
    }

    /// All projects, parents before their children.
    pub fn projects(&self) -> impl Iterator<Item = &Project> {
        self.tree.iter().map(|entry| &entry.record)
    }

    /// Record of an allocation that has not ended, or of an ended one that is still in memory. [`State::look_up`] finds
    /// all allocations.
    pub fn allocation(&self, id: AllocationId) -> Option<&Allocation> {
        let hot = self.hot.get(&id).map(Arc::as_ref);
        hot.or_else(|| self.archive.get(id))
    }

    /// Takes the segments sealed since the last call. The caller must store them as long as [`State::segments`] lists
    /// them: no other copy exists. Replaying the log produces the same segments.
    pub fn take_sealed(&mut self) -> Vec<SealedSegment> {
        std::mem::take(&mut self.sealed)
    }

    /// All segments, including those not taken yet.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.archive
            .sealed()
            .iter()
            .chain(self.audit.sealed().iter())
            .chain(self.dags.sealed().iter())
            .chain(self.usage_records.sealed().iter())
    }

    /// Record of a running DAG; [`State::look_up`] finds ended DAGs too.
    pub fn dag(&self, id: DagId) -> Option<&Dag> {
        self.dags.live(id)
    }

    /// Record of a reservation.
    pub fn reservation(&self, name: &ReservationName) -> Option<&Reservation> {
        self.reservations.get(name)
    }

    /// Allocations that are not terminal, by id.
    pub fn live_allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.hot.values().map(Arc::as_ref)
    }

    /// Current epoch of a lease, with its holder if any; `None` for an unknown lease.
    pub fn lease(&self, name: &str) -> Option<(u64, Option<&str>)> {
        self.leases
            .get(name)
            .map(|lease| (lease.epoch, lease.holder.as_deref()))
    }

    /// Version in force of a baseline.
    pub fn baseline(&self, name: &BaselineName) -> Option<&Baseline> {
        self.baselines.current(name)
    }

    /// The brake on automatic draining, while it is held.
    pub fn brake(&self) -> Option<&Brake> {
        self.baselines.brake()
    }

    /// Trusted CAs and revocations, as members sign them.
    pub fn trust(&self) -> TrustView {
        self.trust.view()
    }

    /// Revision of the last change of CAs or revocations.
    pub fn trust_number(&self) -> Revision {
        self.trust.number()
    }

    /// Earliest time at which the next certificate of this name may be issued.
    pub fn next_issue(&self, role: Role, name: &str) -> UnixMillis {
        let identity = self.trust.identity(role, name);
        identity.map_or(UnixMillis(0), Identity::next_issue)
    }

    /// Checks that `asked` more usage fits at `path` and above it, as for a submission, an assignment or growth.
    ///
    /// # Errors
    /// Every violated level, from the project up, or the first unknown level.
    pub fn check_fits(&self, path: &ProjectPath, asked: Usage) -> Result<(), Refusal> {
        self.tree
            .check_fits(self.policy, path, asked, LimitRequest::Allocation)
    }

    /// Headroom of `path` within all limits; `None` for an unknown project.
    pub fn headroom(&self, path: &ProjectPath) -> Option<Headroom> {
        self.tree.headroom(self.policy, path, self.revision)
    }

    /// Number of nodes in sensitive use, and its limit.
    pub fn sensitive_pool(&self) -> SensitivePool {
        SensitivePool {
            used: self.node_claims.sensitive_pool_nodes(),
            size: self.system.sensitive_pool_size,
        }
    }

    /// Rejects a request that would exceed the limit of nodes in sensitive use.
    pub(crate) fn check_sensitive_pool(&self, requested: u64) -> Result<(), Refusal> {
        let pool = self.sensitive_pool();
        match pool.size {
            Some(limit) if !pool.has_room_for(requested) => Err(Refusal::SensitivePool {
                current: pool.used,
                requested,
                limit,
            }),
            _ => Ok(()),
        }
    }

    /// Record of a vCluster that has a definition or scheduler settings.
    pub fn vcluster(&self, name: &VclusterName) -> Option<&Vcluster> {
        self.vclusters.get(name)
    }

    /// Handling of a tenant's submits that do not fit with the present usage and state no handling themselves.
    pub fn on_limit(&self, tenant: &ProjectPath) -> OnLimit {
        self.later.on_limit.get(tenant).copied().unwrap_or_default()
    }

    /// Budget of a tenant; `None` if the tenant has none.
    pub fn budget(&self, tenant: &ProjectPath) -> Option<&TenantBudget> {
        self.budgets.get(tenant)
    }

    /// Numbers of the last and of the last acknowledged usage record, and the number of dropped usage records.
    pub fn usage_records_head(&self) -> UsageRecordsHead {
        self.usage_records.head(self.revision, self.clock.now)
    }

    /// Cluster-wide limits and limit policy.
    pub fn system(&self) -> SystemView {
        SystemView {
            limit_policy: self.policy,
            limits: self.system,
        }
    }

    /// Limits of a project created at `path` without limits: closed for every resource limited above it.
    pub fn default_limits(&self, path: &ProjectPath) -> Limits {
        let above = path.ancestors().skip(1).filter_map(|up| self.project(&up));
        self.policy
            .rules()
            .default_limits(&above.map(|project| project.limits).collect::<Vec<_>>())
    }

    pub(crate) fn update_registered(&mut self, before: Option<Lifecycle>, after: Lifecycle) {
        let counts = |l: Lifecycle| u64::from(l != Lifecycle::Retired);
        self.registered = self.registered + counts(after) - before.map_or(0, counts);
    }
}
