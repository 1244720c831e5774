//! Views and simulated parties for the tests of reconcilers.
#![expect(clippy::unwrap_used, missing_docs, reason = "tests")]

mod agent;
pub mod bmc;
#[cfg(test)]
mod day;
#[cfg(test)]
mod direct;
#[cfg(test)]
mod launches;
pub mod store;
#[cfg(test)]
mod walltimes;
pub mod world;

use lattice_agent_rpc::AttemptKey;
use lattice_placement::{Health, Liveness};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, ProjectPath, Revision, UnixMillis,
    VclusterName,
    allocation::{Rank, RankPhase},
    node::{Holder, Lifecycle, Node},
    spec::{AllocationSpec, Constraints, Requeue, Workload},
};
use lattice_view::{BaseView, GossipedNode, NodeEntry, View};
use std::{collections::BTreeMap, sync::Arc};

/// The attempt in these views.
pub const KEY: AttemptKey = AttemptKey {
    allocation: AllocationId(7),
    attempt: 2,
};

pub fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// A ready, alive node that is held for [`KEY`].
pub fn entry(name: &str) -> NodeEntry {
    let vcluster = VclusterName::new("default").unwrap();
    let record = Node {
        id: id(name),
        lifecycle: Lifecycle::Ready,
        drain: Vec::new(),
        holder: Some(Holder {
            allocation: KEY.allocation,
            attempt: KEY.attempt,
        }),
        version: 1,
        home: vcluster.clone(),
        current: vcluster,
        registered_at: UnixMillis(0),
        revision: Revision(1),
        node_claim: None,
        promised: None,
        reclaimed_at: None,
    };
    let mut entry = NodeEntry::registered(record);
    entry.gossip = Some(seen(1));
    entry.liveness = Liveness::Alive;
    entry
}

/// Gossip of an agent with this generation number.
pub fn seen(generation: u64) -> GossipedNode {
    GossipedNode {
        cell: "c0".to_owned(),
        addr: "127.0.0.1:1".parse().unwrap(),
        marks: BTreeMap::new(),
        earlier: BTreeMap::new(),
        document: None,
        health: Health::Healthy,
        health_reasons: Vec::new(),
        boot_id: None,
        generation,
        agent_version: None,
        group: None,
        history: None,
        grace_ms: None,
        keep_output_s: None,
        is_alive: true,
    }
}

/// The allocation of [`KEY`] with these ranks.
pub fn allocation(state: AllocationState, ranks: Vec<Rank>) -> Allocation {
    let at = UnixMillis(10);
    Allocation {
        id: KEY.allocation,
        user: "alice".to_owned(),
        spec: AllocationSpec {
            name: None,
            project: ProjectPath::new("atlas").unwrap(),
            vcluster: VclusterName::new("default").unwrap(),
            nodes: u32::try_from(ranks.len()).unwrap(),
            workload: Workload::default(),
            walltime_ms: None,
            class: 5,
            sensitive: false,
            constraints: Constraints::default(),
            requeue: Requeue::Never,
            hold: false,
            demand: Default::default(),
            terms: Default::default(),
        },
        state,
        state_since: at,
        submitted_at: at,
        eligible_at: at,
        started_at: None,
        ended_at: None,
        attempt: KEY.attempt,
        ranks,
        stop: None,
        revision: Revision(1),
        progress: Default::default(),
    }
}

pub fn view_of(nodes: impl IntoIterator<Item = NodeEntry>, held: Allocation) -> View {
    let nodes = nodes.into_iter().map(|n| (n.id.clone(), Arc::new(n)));
    let mut view = View::from(BaseView {
        nodes: Arc::new(nodes.collect()),
        ..BaseView::default()
    });
    view.set_allocation(held);
    view
}

/// View of one rank on one node, with the boot id of the assignment and the last boot id that the node reported.
pub fn view_of_rank(
    name: &str,
    assigned_under: Option<&str>,
    phase: RankPhase,
    confirmed: Option<&str>,
) -> View {
    let rank = Rank {
        node: id(name),
        boot: assigned_under.map(str::to_owned),
        phase,
    };
    let mut node = entry(name);
    node.boot = confirmed.map(str::to_owned);
    view_of([node], allocation(AllocationState::Running, vec![rank]))
}
