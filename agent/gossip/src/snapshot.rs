//! Everyone in a cell, as gossip tells.

use crate::{CellName, Published, text::from_texts};
use chitchat::{Chitchat, ChitchatId};
use lattice_mesh::Identity;
use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    sync::Arc,
};

/// Members taken from gossip at most: eight times a full cell. A forger could name any number.
const MAX_MEMBERS: usize = 1024;

/// Whether gossip hears of a member. No more than that: whether it is unreachable is found out by
/// asking it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Belief {
    /// Its heartbeat moves.
    Alive,
    /// Its heartbeat has not moved for several intervals, or was seen only once so far.
    Silent,
}

/// What gossip tells of one member. A hint: another member could have forged it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Who it is.
    pub identity: Identity,
    /// Where its mesh endpoint is. Whoever dials it names `identity` as expected, so that a
    /// forged address leads nowhere.
    pub addr: SocketAddr,
    /// Which run of it.
    pub generation: u64,
    /// Whether it is heard of.
    pub belief: Belief,
    /// What it says.
    pub published: Published,
    /// Keys of it that could not be read: of another version, or wrong.
    pub unreadable: Vec<String>,
    /// Grows within a generation with each change of what it says.
    pub version: u64,
}

/// A cell at one moment. Never changes; the next one is another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The cell.
    pub cell: CellName,
    /// Everyone known, this process included, by identity. Unchanged members are shared between
    /// snapshots: comparing the pointers tells whether there is anything to do.
    pub members: BTreeMap<Identity, Arc<Member>>,
}

impl Snapshot {
    pub(crate) fn empty(cell: CellName) -> Self {
        Self {
            cell,
            members: BTreeMap::new(),
        }
    }

    /// Members heard of.
    pub fn alive(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members.values().filter(|m| m.belief == Belief::Alive)
    }
}

/// `<role>/<id>`: the name of a member within chitchat. The cluster is the mesh's own, always.
pub(crate) fn node_name(identity: &Identity) -> String {
    format!("{}/{}", identity.role(), identity.id())
}

/// The identity behind a name in chitchat.
pub(crate) fn identity_of(cluster: &str, name: &str) -> Option<Identity> {
    let (role, id) = name.split_once('/')?;
    Identity::new(cluster, role.parse().ok()?, id).ok()
}

/// The next snapshot; takes over from the last what has not changed.
pub(crate) fn take(chitchat: &Chitchat, cluster: &str, last: &Snapshot) -> Snapshot {
    let live: HashSet<&ChitchatId> = chitchat.live_nodes().collect();
    let mut newest: BTreeMap<Identity, (&ChitchatId, Belief)> = BTreeMap::new();
    for id in chitchat.node_states().keys() {
        let Some(identity) = identity_of(cluster, &id.node_id) else {
            continue;
        };
        let belief = if live.contains(id) {
            Belief::Alive
        } else {
            Belief::Silent
        };
        if newest.len() >= MAX_MEMBERS && !newest.contains_key(&identity) {
            continue;
        }
        // Of several runs the one that is heard of counts, then the latest.
        let rank = |id: &ChitchatId, belief| (belief == Belief::Alive, id.generation_id);
        let entry = newest.entry(identity).or_insert((id, belief));
        if rank(id, belief) > rank(entry.0, entry.1) {
            *entry = (id, belief);
        }
    }
    let members = newest
        .into_iter()
        .filter_map(|(identity, (id, belief))| {
            let member = member(chitchat, identity, id, belief, last)?;
            Some((member.identity.clone(), member))
        })
        .collect();
    Snapshot {
        cell: last.cell.clone(),
        members,
    }
}

fn member(
    chitchat: &Chitchat,
    identity: Identity,
    id: &ChitchatId,
    belief: Belief,
    last: &Snapshot,
) -> Option<Arc<Member>> {
    let state = chitchat.node_state(id)?;
    let head = (
        id.gossip_advertise_addr,
        id.generation_id,
        belief,
        state.max_version(),
    );
    if let Some(same) = last
        .members
        .get(&identity)
        .filter(|m| (m.addr, m.generation, m.belief, m.version) == head)
    {
        return Some(same.clone());
    }
    let (published, unreadable) = from_texts(state.key_values());
    let (addr, generation, belief, version) = head;
    Some(Arc::new(Member {
        identity,
        addr,
        generation,
        belief,
        published,
        unreadable,
        version,
    }))
}
