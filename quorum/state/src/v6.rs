//! What snapshots of format 6 and segments of version 2 hold, as they hold it: allocations that have no
//! terms and to which nothing was done, nodes that are promised to nobody, and in what order the state has
//! its parts. They are read for ever, and segments of such allocations are still written so. As in
//! [`crate::v5`], the other parts are used from where they are.

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
    v5,
    vcluster::Vclusters,
};
use lattice_quorum_types::{
    self as now, AllocationId, AllocationState, NodeId, Revision, UnixMillis, VclusterName,
    allocation::{Rank, StopCause},
    course::Course,
    limit::SystemLimits,
    node::{DrainReason, Holder, Lifecycle},
    spec::FifthSpec,
    tenure::Tenure,
};
use serde::{Deserialize, Serialize, Serializer};
use std::{collections::BTreeMap, sync::Arc};

/// The first version of segments whose allocations may have terms and a course.
pub(crate) const TERMS_IN_SEGMENTS: u16 = 3;

/// Writes an allocation without terms and course as [`Allocation`] is read.
pub(crate) struct Written<'a>(pub(crate) &'a now::Allocation);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let spec = (v5::spec(&self.0.spec), &self.0.spec.demand);
        v5::of_then(self.0, spec).serialize(serializer)
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Allocation {
    id: AllocationId,
    user: String,
    spec: FifthSpec,
    state: AllocationState,
    state_since: UnixMillis,
    submitted_at: UnixMillis,
    eligible_at: UnixMillis,
    started_at: Option<UnixMillis>,
    ended_at: Option<UnixMillis>,
    attempt: u32,
    ranks: Vec<Rank>,
    stop: Option<StopCause>,
    revision: Revision,
}

impl From<Allocation> for now::Allocation {
    fn from(old: Allocation) -> Self {
        now::Allocation {
            id: old.id,
            user: old.user,
            spec: old.spec.into(),
            state: old.state,
            state_since: old.state_since,
            submitted_at: old.submitted_at,
            eligible_at: old.eligible_at,
            started_at: old.started_at,
            ended_at: old.ended_at,
            attempt: old.attempt,
            ranks: old.ranks,
            stop: old.stop,
            revision: old.revision,
            course: Course::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    id: NodeId,
    lifecycle: Lifecycle,
    drain: Vec<DrainReason>,
    holder: Option<Holder>,
    version: u64,
    home: VclusterName,
    current: VclusterName,
    registered_at: UnixMillis,
    revision: Revision,
    tenure: Option<Tenure>,
}

impl From<Node> for now::node::Node {
    fn from(old: Node) -> Self {
        now::node::Node {
            id: old.id,
            lifecycle: old.lifecycle,
            drain: old.drain,
            holder: old.holder,
            version: old.version,
            home: old.home,
            current: old.current,
            registered_at: old.registered_at,
            revision: old.revision,
            tenure: old.tenure,
            promised: None,
            recalled_at: None,
        }
    }
}

/// Ended allocations. The last of them are here, those before in segments of versions 1 and 2.
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
            archive: archive::Archive::of_sixth(old.archive),
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
