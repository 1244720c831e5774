//! Cell snapshots: all members according to gossip.

use crate::{CellName, PublishedState, text::from_texts};
use chitchat::{Chitchat, ChitchatId, NodeState};
use lattice_mesh::Identity;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
};

/// Maximum number of members of a snapshot: eight times a full cell. A malicious member could forge any number.
const MAX_MEMBERS: usize = 1024;
/// Maximum number of generations read, including earlier ones that are not forgotten yet.
const MAX_GENERATIONS: usize = 4096;

/// Liveness of a member in gossip. It does not show whether the member is unreachable: only a direct request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GossipLiveness {
    /// The heartbeat advances.
    Alive,
    /// The heartbeat has not advanced for several intervals, or has been received only once so far.
    Silent,
}

/// State of one member in gossip. A hint: another member could have forged it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Identity of the member.
    pub identity: Identity,
    /// Mesh address of the member. Callers dial it with `identity` as the expected peer, so a forged address has no
    /// effect.
    pub addr: SocketAddr,
    /// Generation of the process.
    pub generation: u64,
    /// Liveness.
    pub liveness: GossipLiveness,
    /// Published state.
    pub published: PublishedState,
    /// Keys that could not be read: of another version, or invalid.
    pub unreadable: Vec<String>,
    /// Version of the published state; grows within a generation with each change.
    pub version: u64,
}

/// State of a cell at one moment. Immutable; each change produces a new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Name of the cell.
    pub cell: CellName,
    /// All known members, this process included, by identity. Snapshots share unchanged members, so comparing pointers
    /// detects changes.
    pub members: BTreeMap<Identity, Arc<Member>>,
}

impl Snapshot {
    pub(crate) fn empty(cell: CellName) -> Self {
        Self {
            cell,
            members: BTreeMap::new(),
        }
    }

    /// Members with a heartbeat that advances.
    pub fn alive(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members
            .values()
            .filter(|m| m.liveness == GossipLiveness::Alive)
    }
}

/// Name of a member within chitchat: `<role>/<id>`. The cluster is always that of the mesh.
pub(crate) fn node_name(identity: &Identity) -> String {
    format!("{}/{}", identity.role(), identity.id())
}

/// Identity of a chitchat name.
pub(crate) fn identity_of(cluster: &str, name: &str) -> Option<Identity> {
    let (role, id) = name.split_once('/')?;
    Identity::new(cluster, role.parse().ok()?, id).ok()
}

/// Creates snapshots, and keeps the members of the last one, so that only changed members are decoded again.
pub(crate) struct Roster {
    cluster: String,
    cell: CellName,
    /// All generations of all members; names that are not valid identities are excluded.
    generations: HashMap<ChitchatId, Arc<Member>>,
}

impl Roster {
    pub(crate) fn new(cluster: &str, cell: CellName) -> Self {
        Self {
            cluster: cluster.to_owned(),
            cell,
            generations: HashMap::new(),
        }
    }

    /// Snapshot of the present state.
    pub(crate) fn take(&mut self, chitchat: &Chitchat) -> Snapshot {
        let live: HashSet<&ChitchatId> = chitchat.live_nodes().collect();
        let mut last = std::mem::take(&mut self.generations);
        let mut members: BTreeMap<Identity, Arc<Member>> = BTreeMap::new();
        for (id, state) in chitchat.node_states().iter().take(MAX_GENERATIONS) {
            let belief = if live.contains(id) {
                GossipLiveness::Alive
            } else {
                GossipLiveness::Silent
            };
            let Some(member) = self.member(last.remove(id), id, state, belief) else {
                continue;
            };
            self.generations.insert(id.clone(), member.clone());
            let full = members.len() >= MAX_MEMBERS;
            match members.get_mut(&member.identity) {
                Some(shown) if rank(&member) > rank(shown) => *shown = member,
                None if !full => {
                    members.insert(member.identity.clone(), member);
                }
                Some(_) | None => {}
            }
        }
        let cell = self.cell.clone();
        Snapshot { cell, members }
    }

    fn member(
        &self,
        last: Option<Arc<Member>>,
        id: &ChitchatId,
        state: &NodeState,
        belief: GossipLiveness,
    ) -> Option<Arc<Member>> {
        let version = state.max_version();
        let identity = match last {
            Some(same) if (same.liveness, same.version) == (belief, version) => return Some(same),
            Some(last) => last.identity.clone(),
            None => identity_of(&self.cluster, &id.node_id)?,
        };
        let (published, unreadable) = from_texts(state.key_values());
        Some(Arc::new(Member {
            identity,
            addr: id.gossip_advertise_addr,
            generation: id.generation_id,
            liveness: belief,
            published,
            unreadable,
            version,
        }))
    }
}

/// Order among generations of a member: an alive one comes first, then the latest.
fn rank(member: &Member) -> (bool, u64) {
    (member.liveness == GossipLiveness::Alive, member.generation)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use chitchat::{ChitchatConfig, FailureDetectorConfig, ProtocolVersion, VersionedValue};
    use std::time::Duration;

    fn id(name: &str, generation: u64) -> ChitchatId {
        ChitchatId::new(name, generation, SocketAddr::from(([127, 0, 0, 1], 7)))
    }

    /// State after gossip: `(name, generation, version, ver)` of each generation.
    fn state(runs: &[(&str, u64, u64, &str)]) -> Chitchat {
        let seeds = tokio::sync::watch::channel(HashSet::new()).1;
        let config = ChitchatConfig {
            chitchat_id: id("agent/me", 1),
            cluster_id: "demo/c0".to_owned(),
            gossip_interval: Duration::from_secs(1),
            listen_addr: SocketAddr::from(([127, 0, 0, 1], 7)),
            seed_nodes: Vec::new(),
            failure_detector_config: FailureDetectorConfig::default(),
            marked_for_deletion_grace_period: Duration::from_secs(600),
            catchup_callback: None,
            extra_liveness_predicate: None,
            protocol_version: ProtocolVersion::V1,
        };
        let mut chitchat = Chitchat::with_chitchat_id_and_seeds(config, seeds, Vec::new());
        for &(name, generation, version, text) in runs {
            let value = VersionedValue {
                value: text.to_owned(),
                version,
                status: chitchat::DeletionStatus::Set,
            };
            let pairs = std::iter::once(("ver".to_owned(), value));
            chitchat.reset_node_state_if_update(&id(name, generation), pairs, version, 0);
        }
        chitchat
    }

    #[test]
    fn the_latest_run_counts_and_names_that_are_no_identity_do_not() {
        let runs = [
            ("agent/a", 5, 3, "old"),
            ("agent/a", 6, 1, "new"),
            ("agent/../b", 1, 1, "x"),
            ("root/b", 1, 1, "x"),
            ("nameless", 1, 1, "x"),
        ];
        let mut roster = Roster::new("demo", "c0".parse().unwrap());
        let snapshot = roster.take(&state(&runs));
        let ids: Vec<_> = snapshot.members.keys().map(Identity::id).collect();
        assert_eq!(ids, ["a", "me"]);
        let a = Identity::new("demo", lattice_mesh::Role::Agent, "a").unwrap();
        let a = &snapshot.members[&a];
        assert_eq!((a.generation, a.liveness), (6, GossipLiveness::Silent));
        assert_eq!(a.published.version.as_deref(), Some("new"));
        let alive: Vec<_> = snapshot.alive().map(|m| m.identity.id()).collect();
        assert_eq!(alive, ["me"]);
    }

    #[test]
    fn what_has_not_changed_is_the_same_member() {
        let mut roster = Roster::new("demo", "c0".parse().unwrap());
        let first = roster.take(&state(&[("agent/a", 1, 1, "x"), ("agent/b", 1, 1, "x")]));
        let next = roster.take(&state(&[("agent/a", 1, 1, "x"), ("agent/b", 1, 2, "y")]));
        let same = |id: &str| {
            let id = Identity::new("demo", lattice_mesh::Role::Agent, id).unwrap();
            Arc::ptr_eq(&first.members[&id], &next.members[&id])
        };
        assert!(same("a") && !same("b"));
    }

    #[test]
    fn any_number_of_forged_members_is_bounded() {
        let names: Vec<String> = (0..6000).map(|n| format!("agent/f{n}")).collect();
        let runs: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), 1, 1, "x"))
            .collect();
        let mut roster = Roster::new("demo", "c0".parse().unwrap());
        let snapshot = roster.take(&state(&runs));
        assert_eq!(snapshot.members.len(), MAX_MEMBERS);
        assert_eq!(roster.generations.len(), MAX_GENERATIONS);
    }
}
