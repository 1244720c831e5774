//! What snapshots of format 7 hold, as they hold it: the state without budgets of tenants and without facts. They
//! are read for ever. All its parts are used from where they are.

use crate::{
    archive::Archive, audit::Audit, baseline::Baselines, clock::Clock, dags::Dags, facts::Facts,
    keys::Keys, lease::Leases, order::Order, policy::Policy, reservations::Reservations,
    tenure::Tenures, token::Tokens, tree::Tree, trust::Trust, unstarted::Unstarted,
    vcluster::Vclusters,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, Revision, limit::SystemLimits, node::Node,
};
use serde::Deserialize;
use std::{collections::BTreeMap, sync::Arc};

#[derive(Debug, Deserialize)]
pub(crate) struct State {
    policy: Policy,
    revision: Revision,
    last_index: u64,
    clock: Clock,
    tree: Tree,
    nodes: BTreeMap<NodeId, Node>,
    registered: u64,
    hot: BTreeMap<AllocationId, Arc<Allocation>>,
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
    dags: Dags,
    reservations: Reservations,
}

impl From<State> for crate::State {
    fn from(old: State) -> Self {
        let facts = Facts::new(old.dags.bounds());
        crate::State {
            policy: old.policy,
            revision: old.revision,
            last_index: old.last_index,
            clock: old.clock,
            tree: old.tree,
            nodes: old.nodes,
            registered: old.registered,
            hot: old.hot,
            archive: old.archive,
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
            dags: old.dags,
            reservations: old.reservations,
            budgets: BTreeMap::new(),
            facts,
            order: Order::default(),
            sealed: Vec::new(),
        }
    }
}
