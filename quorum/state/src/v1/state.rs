//! The state as the first version's snapshots hold it.

use super::command::AllocationSpec;
use crate::{
    archive::Archive,
    audit::Audit,
    baseline::Baselines,
    clock::Clock,
    dags::Dags,
    facts::Facts,
    keys::{self, Digest},
    lease::Leases,
    order::Order,
    policy::Policy,
    reservations::Reservations,
    table::Bounds,
    tenure::Tenures,
    token::{self, Tokens},
    trust::Trust,
    unstarted::Unstarted,
    v4,
    vcluster::Vclusters,
};
use lattice_quorum_types::{
    self as now, AllocationId, AllocationState, NodeId, Outcome, Revision, UnixMillis,
    allocation::{RankPhase, StopCause},
    command::TokenGrant,
    course::Course,
    limit::SystemLimits,
    rpc::Role,
};
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Deserialize)]
pub(crate) struct State {
    policy: Policy,
    revision: Revision,
    last_index: u64,
    clock: Clock,
    tree: v4::Tree,
    nodes: BTreeMap<NodeId, v4::Node>,
    registered: u64,
    hot: BTreeMap<AllocationId, Allocation>,
    archive: BTreeMap<AllocationId, Allocation>,
    counts: [u64; 11],
    last_id: u64,
    leases: Leases,
    tokens: BTreeMap<String, Token>,
    keys: Keys,
}

#[derive(Debug, Deserialize)]
struct Allocation {
    id: AllocationId,
    user: String,
    spec: AllocationSpec,
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

#[derive(Debug, Deserialize)]
struct Rank {
    node: NodeId,
    phase: RankPhase,
}

#[derive(Debug, Deserialize)]
struct Token {
    role: Role,
    names: Option<Vec<NodeId>>,
    uses_left: u32,
    expires_at: UnixMillis,
}

#[derive(Debug, Deserialize)]
struct Keys {
    entries: BTreeMap<v4::Owned, Entry>,
    order: VecDeque<v4::Owned>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    digest: [u8; 32],
    outcome: Outcome,
    revision: Revision,
    at: UnixMillis,
}

impl From<Allocation> for now::Allocation {
    fn from(old: Allocation) -> Self {
        let ranks = old.ranks.into_iter().map(|rank| now::allocation::Rank {
            node: rank.node,
            boot: None,
            phase: rank.phase,
        });
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
            ranks: ranks.collect(),
            stop: old.stop,
            revision: old.revision,
            course: Course::default(),
        }
    }
}

/// Nobody wrote down who made it, and none of them permits to take a name.
fn token(hash: &str, old: Token) -> token::Token {
    token::Token {
        grant: TokenGrant {
            hash: hash.to_owned(),
            role: old.role,
            names: old.names,
            cidrs: Vec::new(),
            uses: old.uses_left,
            replace: false,
            expires_at: old.expires_at,
        },
        by: "unknown".to_owned(),
        created_at: UnixMillis(0),
    }
}

fn keys(mut old: Keys) -> keys::Keys {
    let entry = |entry: Entry| keys::Entry {
        digest: Digest::of_first_schema(entry.digest),
        outcome: entry.outcome,
        revision: entry.revision,
        at: entry.at,
    };
    v4::in_order(old.order, |owned| old.entries.remove(owned).map(entry))
}

impl From<State> for crate::State {
    fn from(old: State) -> Self {
        let (archive, sealed) = Archive::of(old.archive.into_values().map(Into::into));
        let mut counts = [0; AllocationState::ALL.len()];
        counts[..old.counts.len()].copy_from_slice(&old.counts);
        let tokens = old.tokens.into_iter().map(|(hash, old)| {
            let token = token(&hash, old);
            (hash, token)
        });
        let hot: BTreeMap<_, now::Allocation> = old
            .hot
            .into_iter()
            .map(|(id, record)| (id, record.into()))
            .collect();
        let tenures = Tenures::of_former(hot.values());
        crate::State {
            policy: old.policy,
            revision: old.revision,
            last_index: old.last_index,
            clock: old.clock,
            tree: old.tree.into(),
            nodes: old
                .nodes
                .into_iter()
                .map(|(id, node)| (id, node.into()))
                .collect(),
            registered: old.registered,
            archive,
            counts,
            last_id: old.last_id,
            leases: old.leases,
            tokens: Tokens(tokens.collect()),
            keys: keys(old.keys),
            trust: Trust::default(),
            audit: Audit::new(Bounds::default()),
            unstarted: Unstarted::default(),
            baselines: Baselines::default(),
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
