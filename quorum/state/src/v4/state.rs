//! The whole state as it was.

use super::{
    keys::Keys,
    records::{Allocation, Node, Tree, by_key},
};
use crate::{
    archive::Archive, audit::Audit, baseline::Baselines, clock::Clock, dags::Dags, facts::Facts,
    lease::Leases, order::Order, policy::Policy, reservations::Reservations, table::Bounds,
    tenure::Tenures, token::Tokens, trust::Trust, unstarted::Unstarted, vcluster::Vclusters,
};
use lattice_quorum_types::{
    AllocationId, AllocationState, NodeId, Revision, audit::AuditEntry, limit::SystemLimits,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Of format 4. Those of format 3 end before the baselines, those of format 2 before `unstarted`.
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
    archive: BTreeMap<AllocationId, Allocation>,
    counts: [u64; 11],
    last_id: u64,
    leases: Leases,
    tokens: Tokens,
    keys: Keys,
    trust: Trust,
    audit: Vec<AuditEntry>,
    unstarted: Unstarted,
    baselines: Baselines,
}

impl From<State> for crate::State {
    fn from(old: State) -> Self {
        let mut counts = [0; AllocationState::ALL.len()];
        counts[..old.counts.len()].copy_from_slice(&old.counts);
        let (archive, mut sealed) = Archive::of(old.archive.into_values().map(Into::into));
        let (audit, also) = Audit::of(old.audit);
        sealed.extend(also);
        let hot: BTreeMap<_, lattice_quorum_types::Allocation> = by_key(old.hot);
        let tenures = Tenures::of_former(hot.values());
        crate::State {
            policy: old.policy,
            revision: old.revision,
            last_index: old.last_index,
            clock: old.clock,
            tree: old.tree.into(),
            nodes: by_key(old.nodes),
            registered: old.registered,
            archive,
            counts,
            last_id: old.last_id,
            leases: old.leases,
            tokens: old.tokens,
            keys: old.keys.into(),
            trust: old.trust,
            audit,
            unstarted: old.unstarted,
            baselines: old.baselines,
            system: SystemLimits::default(),
            tenures,
            vclusters: Vclusters::default(),
            dags: Dags::new(Bounds::default()),
            reservations: Reservations::default(),
            budgets: BTreeMap::new(),
            facts: Facts::new(Bounds::default()),
            order: Order::default(),
            hot: hot
                .into_iter()
                .map(|(id, record)| (id, record.into()))
                .collect(),
            sealed,
        }
    }
}
