//! The state and its two entrances, `check` and `apply`.

use crate::{
    archive::Archive,
    audit::Audit,
    baseline::Baselines,
    change::Verdict,
    clock::Clock,
    dags::Dags,
    facts::Facts,
    judge,
    keys::{Keys, NewKey, Seen},
    lease::Leases,
    order::Order,
    policy::Policy,
    reservations::Reservations,
    segment::{Sealed, Segment},
    table::Bounds,
    tenure::Tenures,
    token::Tokens,
    tree::Tree,
    trust::{Identity, Trust},
    unstarted::Unstarted,
    vcluster::Vclusters,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Applied, Envelope, NodeId, ProjectPath, Refusal,
    Revision, UnixMillis, VclusterName,
    baseline::{Baseline, Brake},
    budget::TenantBudget,
    command::SCHEMA,
    dag::Dag,
    fact::FactsHead,
    id::{BaselineName, DagId, ReservationName},
    limit::{Limits, SensitivePool, SystemLimits, Usage},
    node::{Lifecycle, Node},
    project::Project,
    refusal::Asked,
    reservation::Reservation,
    rpc::Role,
    vcluster::Vcluster,
    view::{Headroom, SystemView, TrustView},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// Everything the quorum agrees on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// What a limit means here. Replicated, because every voter must judge alike.
    pub(crate) policy: Policy,
    pub(crate) revision: Revision,
    /// Log index of the last command that changed something.
    pub(crate) last_index: u64,
    pub(crate) clock: Clock,
    pub(crate) tree: Tree,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    /// Nodes that are not retired.
    pub(crate) registered: u64,
    /// Allocations that are not terminal.
    pub(crate) hot: BTreeMap<AllocationId, Arc<Allocation>>,
    pub(crate) archive: Archive,
    /// Allocations by state, in the order of [`AllocationState::ALL`].
    pub(crate) counts: [u64; AllocationState::ALL.len()],
    /// The highest allocation number given.
    pub(crate) last_id: u64,
    pub(crate) leases: Leases,
    pub(crate) tokens: Tokens,
    pub(crate) keys: Keys,
    pub(crate) trust: Trust,
    pub(crate) audit: Audit,
    pub(crate) unstarted: Unstarted,
    pub(crate) baselines: Baselines,
    /// What is limited for the whole cluster.
    pub(crate) system: SystemLimits,
    pub(crate) tenures: Tenures,
    pub(crate) vclusters: Vclusters,
    pub(crate) dags: Dags,
    pub(crate) reservations: Reservations,
    /// Tenants of which nothing is known are not in it.
    pub(crate) budgets: BTreeMap<ProjectPath, TenantBudget>,
    pub(crate) facts: Facts,
    /// Who waits for whom. Follows from allocations and is made anew with them.
    #[serde(skip)]
    pub(crate) order: Order,
    /// Segments that nobody has taken yet. Not part of what is encoded: their names are.
    #[serde(skip)]
    pub(crate) sealed: Vec<Sealed>,
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// The empty cluster with the strict limit policy.
    pub fn new() -> Self {
        Self::with_policy(Policy::Strict)
    }

    /// The empty cluster with another limit policy. It is part of the state: all voters must
    /// start with the same one.
    pub fn with_policy(policy: Policy) -> Self {
        Self::with_bounds(policy, Bounds::default())
    }

    /// The empty cluster with segments of another size, which all voters must start with as well.
    pub fn with_bounds(policy: Policy, bounds: Bounds) -> Self {
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
            keys: Keys::default(),
            trust: Trust::default(),
            audit: Audit::new(bounds),
            unstarted: Unstarted::default(),
            baselines: Baselines::default(),
            system: SystemLimits::default(),
            tenures: Tenures::default(),
            vclusters: Vclusters::default(),
            dags: Dags::new(bounds),
            reservations: Reservations::default(),
            budgets: BTreeMap::new(),
            facts: Facts::new(bounds),
            order: Order::default(),
            sealed: Vec::new(),
        }
    }

    /// The same with what follows from its allocations and nodes.
    pub(crate) fn with_order(mut self) -> Self {
        let records = self.hot.values().map(Arc::as_ref);
        self.order = Order::of(records, self.nodes.values());
        self
    }

    /// Judges `envelope` on the present state without changing it. The leader calls it before
    /// proposing; `apply` calls the same code again at commit.
    ///
    /// # Errors
    /// The refusal `apply` would give on this state.
    pub fn check(&self, envelope: &Envelope) -> Result<(), Refusal> {
        self.judge(envelope).map(|_| ())
    }

    /// Applies the command at log position `index`. A refused command changes nothing at all and
    /// makes no revision.
    ///
    /// # Errors
    /// Why the command was not applied.
    pub fn apply(&mut self, index: u64, envelope: &Envelope) -> Result<Applied, Refusal> {
        match self.judge(envelope)? {
            Judged::Repeat(applied) => Ok(applied),
            Judged::New { verdict, now, key } => {
                Ok(self.commit(index, envelope, now, verdict, key))
            }
        }
    }

    fn judge(&self, envelope: &Envelope) -> Result<Judged, Refusal> {
        if envelope.schema != SCHEMA {
            let given = envelope.schema;
            return Err(Refusal::UnsupportedSchema {
                given,
                supported: SCHEMA,
            });
        }
        let now = self.clock.next(envelope.at);
        let mut new_key = None;
        if let Some(key) = &envelope.key {
            let Envelope {
                principal, command, ..
            } = envelope;
            match self.keys.look_up(&principal.name, key, command, now) {
                Seen::Before(applied) => return Ok(Judged::Repeat(applied)),
                Seen::OtherCommand => return Err(Refusal::KeyReused { key: key.clone() }),
                Seen::Never(key) => new_key = Some(key),
            }
        }
        let verdict = judge::judge(self, envelope, now)?;
        Ok(Judged::New {
            verdict,
            now,
            key: new_key,
        })
    }

    /// The last revision made.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// State time: the highest time stamped on a command that took effect, forward jumps bounded.
    pub fn now(&self) -> UnixMillis {
        self.clock.now
    }

    /// Log index of the last command that changed something.
    pub fn last_index(&self) -> u64 {
        self.last_index
    }

    /// How often a stamped time was more than [`crate::MAX_FORWARD_MS`] ahead of state time. A
    /// growing number means a proposer's clock is wrong and deserves an alarm.
    pub fn clock_jumps(&self) -> u64 {
        self.clock.jumps
    }

    /// One node's record.
    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// All nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// One project's record.
    pub fn project(&self, path: &ProjectPath) -> Option<&Project> {
        self.tree.get(path).map(|entry| &entry.record)
    }

    /// All projects, parents before their children.
    pub fn projects(&self) -> impl Iterator<Item = &Project> {
        self.tree.iter().map(|entry| &entry.record)
    }

    /// One allocation; of those that have ended, the last ones. [`State::look_up`] finds all of them.
    pub fn allocation(&self, id: AllocationId) -> Option<&Allocation> {
        let hot = self.hot.get(&id).map(Arc::as_ref);
        hot.or_else(|| self.archive.get(id))
    }

    /// The segments that were made since the last time. Whoever holds the state keeps them for as long
    /// as [`State::segments`] names them: nothing else has what is in them. Making them anew from the
    /// log gives the same ones.
    pub fn take_sealed(&mut self) -> Vec<Sealed> {
        std::mem::take(&mut self.sealed)
    }

    /// All segments, those that were not taken yet too.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.archive
            .sealed()
            .iter()
            .chain(self.audit.sealed().iter())
            .chain(self.dags.sealed().iter())
            .chain(self.facts.sealed().iter())
    }

    /// A graph that runs; [`State::look_up`] finds those that have ended too.
    pub fn dag(&self, id: DagId) -> Option<&Dag> {
        self.dags.live(id)
    }

    /// A reservation.
    pub fn reservation(&self, name: &ReservationName) -> Option<&Reservation> {
        self.reservations.get(name)
    }

    /// Allocations that are not terminal, by id.
    pub fn live_allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.hot.values().map(Arc::as_ref)
    }

    /// The current epoch of a lease and its holder, if there is one.
    pub fn lease(&self, name: &str) -> Option<(u64, Option<&str>)> {
        self.leases
            .get(name)
            .map(|lease| (lease.epoch, lease.holder.as_deref()))
    }

    /// The version of a baseline that is in force.
    pub fn baseline(&self, name: &BaselineName) -> Option<&Baseline> {
        self.baselines.current(name)
    }

    /// Why automatic draining stands still, if it does.
    pub fn brake(&self) -> Option<&Brake> {
        self.baselines.brake()
    }

    /// Who is trusted.
    pub fn trust(&self) -> TrustView {
        self.trust.view()
    }

    /// Revision of the last change of who is trusted.
    pub fn trust_number(&self) -> Revision {
        self.trust.number()
    }

    /// The earliest moment at which the next certificate of this name may be issued.
    pub fn next_issue(&self, role: Role, name: &str) -> UnixMillis {
        let identity = self.trust.identity(role, name);
        identity.map_or(UnixMillis(0), Identity::next_issue)
    }

    /// Whether so much more fits at `path` and above it, as a submit, an assignment or a growth is
    /// judged.
    ///
    /// # Errors
    /// Every violated level, from the project up, or the first that is not known.
    pub fn check_fits(&self, path: &ProjectPath, asked: Usage) -> Result<(), Refusal> {
        self.tree
            .check_fits(self.policy, path, asked, Asked::Allocation)
    }

    /// How much more `path` could be given now as far as limits go; `None` for an unknown project.
    pub fn headroom(&self, path: &ProjectPath) -> Option<Headroom> {
        self.tree.headroom(self.policy, path, self.revision)
    }

    /// Nodes in sensitive use, and how many may be.
    pub fn sensitive_pool(&self) -> SensitivePool {
        SensitivePool {
            used: self.tenures.pool(),
            size: self.system.sensitive_pool_size,
        }
    }

    /// Refuses where so many nodes more would be in sensitive use than the cluster allows.
    pub(crate) fn check_pool(&self, requested: u64) -> Result<(), Refusal> {
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

    /// A vCluster, if somebody has said what it is.
    pub fn vcluster(&self, name: &VclusterName) -> Option<&Vcluster> {
        self.vclusters.get(name)
    }

    /// What is known of a tenant's budgets.
    pub fn budget(&self, tenant: &ProjectPath) -> Option<&TenantBudget> {
        self.budgets.get(tenant)
    }

    /// Where the facts stand.
    pub fn facts_head(&self) -> FactsHead {
        self.facts.head(self.revision, self.clock.now)
    }

    /// What holds for the whole cluster.
    pub fn system(&self) -> SystemView {
        SystemView {
            limit_policy: self.policy,
            limits: self.system,
        }
    }

    /// What a project created at `path` without limits gets: closed, for what is limited above it.
    pub fn default_limits(&self, path: &ProjectPath) -> Limits {
        let above = path.ancestors().skip(1).filter_map(|up| self.project(&up));
        self.policy
            .rules()
            .closed(&above.map(|project| project.limits).collect::<Vec<_>>())
    }

    pub(crate) fn recount_node(&mut self, before: Option<Lifecycle>, after: Lifecycle) {
        let counts = |l: Lifecycle| u64::from(l != Lifecycle::Retired);
        self.registered = self.registered + counts(after) - before.map_or(0, counts);
    }
}

/// A judged command.
enum Judged {
    /// It was applied before under the same key.
    Repeat(Applied),
    /// It may be committed.
    New {
        verdict: Verdict,
        now: UnixMillis,
        key: Option<NewKey>,
    },
}
