//! What snapshots of format 5 and segments of version 1 hold, as they hold it: allocations that say
//! nothing of their demand, and in what order the state has its parts. They are read for ever, and segments
//! of such allocations are still written so. As in [`crate::v4`], the other parts are used from where they
//! are.

use crate::{
    archive::{self, FormerIndex},
    audit::Audit,
    baseline::Baselines,
    clock::Clock,
    dags::Dags,
    facts::Facts,
    keys::Keys,
    lease::Leases,
    order::Order,
    policy::Policy,
    reservations::Reservations,
    table::Log,
    tenure::Tenures,
    token::Tokens,
    tree::Tree,
    trust::Trust,
    unstarted::Unstarted,
    v4::by_key,
    v6::Node,
    vcluster::Vclusters,
};
use lattice_quorum_types::{
    self as now, AllocationId, AllocationState, NodeId, Revision, limit::SystemLimits,
};
use serde::{Deserialize, Serialize, Serializer};
use std::{collections::BTreeMap, sync::Arc};

/// It was the same in formats 2 to 4.
pub(crate) use crate::v4::Allocation;

/// The first version of segments whose allocations may say their demand.
pub(crate) const DEMAND_IN_SEGMENTS: u16 = 2;

/// Writes an allocation that says nothing of its demand as [`Allocation`] is read.
pub(crate) struct Written<'a>(pub(crate) &'a now::Allocation);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        of_then(self.0, spec(&self.0.spec)).serialize(serializer)
    }
}

/// Encoded as a record of the same fields in the same order; the request as `spec` writes it.
pub(crate) fn of_then<'a>(
    record: &'a now::Allocation,
    spec: impl Serialize + 'a,
) -> impl Serialize + 'a {
    let now::Allocation {
        id,
        user,
        spec: _,
        state,
        state_since,
        submitted_at,
        eligible_at,
        started_at,
        ended_at,
        attempt,
        ranks,
        stop,
        revision,
        course: _,
    } = record;
    let (before, after) = (
        (state, state_since, submitted_at, eligible_at),
        (started_at, ended_at, attempt, ranks, stop, revision),
    );
    // Parts of parts are encoded as parts of the whole.
    (id, user, spec, before, after)
}

/// The same for the request of then.
pub(crate) fn spec(spec: &now::spec::AllocationSpec) -> impl Serialize + '_ {
    let now::spec::AllocationSpec {
        name,
        project,
        vcluster,
        nodes,
        workload,
        walltime_ms,
        class,
        sensitive,
        constraints,
        requeue,
        hold,
        demand: _,
        terms: _,
    } = spec;
    (
        (name, project, vcluster, nodes, workload, walltime_ms),
        (class, sensitive, constraints, requeue, hold),
    )
}

/// Ended allocations. The last of them are here, those before in segments of version 1.
#[derive(Debug, Deserialize)]
pub(crate) struct Archive {
    pub(crate) log: Log<Allocation>,
    pub(crate) index: FormerIndex,
}

#[derive(Debug, Deserialize)]
pub(crate) struct State {
    policy: Policy,
    revision: Revision,
    last_index: u64,
    clock: Clock,
    tree: Tree,
    nodes: BTreeMap<NodeId, Node>,
    registered: u64,
    hot: BTreeMap<AllocationId, Allocation>,
    archive: Archive,
    counts: [u64; AllocationState::ALL.len()],
    last_id: u64,
    leases: Leases,
    tokens: Tokens,
    keys: Keys,
    trust: Trust,
    audit: Audit,
    unstarted: Unstarted,
    baselines: Baselines,
    system: SystemLimits,
    tenures: Tenures,
    vclusters: Vclusters,
}

impl From<State> for crate::State {
    fn from(old: State) -> Self {
        let hot = old.hot.into_iter();
        let bounds = old.archive.log.bounds();
        let dags = Dags::new(bounds);
        crate::State {
            policy: old.policy,
            revision: old.revision,
            last_index: old.last_index,
            clock: old.clock,
            tree: old.tree,
            nodes: by_key(old.nodes),
            registered: old.registered,
            hot: hot
                .map(|(id, record)| (id, Arc::new(record.into())))
                .collect(),
            archive: archive::Archive::of_fifth(old.archive),
            counts: old.counts,
            last_id: old.last_id,
            leases: old.leases,
            tokens: old.tokens,
            keys: old.keys,
            trust: old.trust,
            audit: old.audit,
            unstarted: old.unstarted,
            baselines: old.baselines,
            system: old.system,
            tenures: old.tenures,
            vclusters: old.vclusters,
            dags,
            reservations: Reservations::default(),
            budgets: BTreeMap::new(),
            facts: Facts::new(bounds),
            order: Order::default(),
            sealed: Vec::new(),
        }
    }
}
