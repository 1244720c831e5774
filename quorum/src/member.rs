//! Shared state of a running member: Raft, replicated state, leader, and addresses of the others.

pub(crate) mod contacts;
mod handover_lock;
pub(crate) mod incarnation;
pub(crate) mod last_contact;
mod term_floor;

use crate::{
    member::{
        contacts::Contacts, handover_lock::HandoverLock, incarnation::MemberIncarnation,
        last_contact::LastContact, term_floor::TermFloor,
    },
    raft::types::{LogId, Raft, RaftMetrics},
    state_machine::replica::Replica,
    store::LogStore,
};
use lattice_mesh::Clock;
use lattice_quorum_types::{VoterId, membership::MemberStatus, wire::Unavailable};
use openraft::ServerState;
use parking_lot::RwLock;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;

/// Time without an acknowledgement by a majority after which a leader is not a confirmed leader, milliseconds.
const LEADER_SILENCE_MS: u64 = 1500;

/// Configured addresses of the members. They take precedence over the addresses in the committed membership, so that
/// members can move.
#[derive(Clone, Default)]
pub(crate) struct Addresses(Arc<RwLock<BTreeMap<VoterId, SocketAddr>>>);

impl Addresses {
    pub(crate) fn set(&self, addrs: BTreeMap<VoterId, SocketAddr>) {
        *self.0.write() = addrs;
    }
    pub(crate) fn all(&self) -> BTreeMap<VoterId, SocketAddr> {
        self.0.read().clone()
    }
    /// Returns the address of a member. `committed` is the address in the membership.
    pub(crate) fn of(&self, id: VoterId, committed: Option<&str>) -> Option<SocketAddr> {
        let configured = self.0.read();
        let configured = configured.get(&id).copied();
        configured.or_else(|| committed?.parse().ok())
    }
}

/// Running quorum member.
pub(crate) struct Member {
    pub(crate) id: VoterId,
    pub(crate) raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) replica: Replica,
    pub(crate) leader_contact: LastContact,
    pub(crate) addresses: Addresses,
    pub(crate) clock: Arc<dyn Clock>,
    /// Incarnation of the cluster to which the member belongs.
    pub(crate) incarnation: MemberIncarnation,
    /// Reachability of the other members.
    pub(crate) contacts: Contacts,
    /// Lock between proposals and a handover.
    pub(crate) handover: HandoverLock,
    /// Allows one membership change at a time.
    pub(crate) membership_lock: tokio::sync::Mutex<()>,
    /// Time of the election gate's last check.
    pub(crate) gate_checked: LastContact,
    /// Other members report that this member was removed.
    removed: AtomicBool,
    /// Term floor of a member that started without a log.
    pub(crate) floor: TermFloor,
    metrics: watch::Receiver<RaftMetrics>,
}

impl Member {
    pub(crate) fn new(
        id: VoterId,
        raft: Raft,
        (log, replica): (LogStore, Replica),
        leader_contact: LastContact,
        (addresses, contacts): (Addresses, Contacts),
        clock: Arc<dyn Clock>,
        lineage: MemberIncarnation,
    ) -> Self {
        let metrics = raft.metrics();
        Self {
            id,
            raft,
            log,
            replica,
            leader_contact,
            addresses,
            clock,
            incarnation: lineage,
            contacts,
            handover: HandoverLock::default(),
            membership_lock: tokio::sync::Mutex::default(),
            gate_checked: LastContact::never(),
            removed: AtomicBool::new(false),
            floor: TermFloor::default(),
            metrics,
        }
    }

    /// Returns whether this member must not vote for a candidate with the last entry `candidate_last`.
    ///
    /// A member that starts without a log may have lost one, with entries that it had acknowledged and votes that it
    /// had given. It abstains until it has caught up with a leader, which must be elected without it. Before that, its
    /// vote could discard committed entries. A candidate with only the founding entry is founding the cluster.
    pub(crate) fn must_abstain(&self, candidate_last: Option<LogId>) -> bool {
        self.is_blank() && candidate_last.is_some_and(|id| id.index > 0)
    }

    /// Returns whether this member may stand for election. A member that must not vote for a candidate must not vote
    /// for itself either. A member that is half caught up has a longer log than one that was cut off, but lacks
    /// acknowledged entries. A single voter is exempt, because no other member could report the lost entries.
    pub(crate) fn may_campaign_now(&self) -> bool {
        !self.must_abstain(self.log.last()) || self.voters().len() == 1
    }

    /// Records that this member has caught up, if its log reaches `committed`, the commit point of a leader.
    pub(crate) fn caught_up_to(&self, committed: Option<LogId>) {
        let reached = committed.is_some() && self.log.last() >= committed;
        if !reached || !self.is_blank() {
            return;
        }
        match self.incarnation.caught_up() {
            Ok(true) => tracing::info!(
                member = self.id,
                "log caught up with the leader; voting enabled"
            ),
            Ok(false) => {}
            Err(error) => tracing::warn!(
                member = self.id,
                %error,
                "caught-up marker cannot be written; voting stays disabled"
            ),
        }
    }

    /// Returns whether the member started without a log and has not caught up since.
    pub(crate) fn is_blank(&self) -> bool {
        self.incarnation.is_blank()
    }

    /// Returns whether other members report that this member was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Sets the removed flag and returns its previous value.
    pub(crate) fn set_removed(&self, removed: bool) -> bool {
        self.removed.swap(removed, Ordering::Relaxed)
    }

    /// Subscribes to the metrics of Raft.
    pub(crate) fn metrics(&self) -> watch::Receiver<RaftMetrics> {
        self.metrics.clone()
    }

    /// Term in which this member leads, by its own metrics.
    pub(crate) fn leading_term(&self) -> Option<u64> {
        leading_term_of(&self.metrics.borrow())
    }

    /// Returns whether this member leads and a majority acknowledged it recently.
    pub(crate) fn is_confirmed_leader(&self) -> bool {
        let metrics = self.metrics.borrow();
        leading_term_of(&metrics).is_some()
            && metrics
                .millis_since_quorum_ack
                .is_none_or(|ms| ms < LEADER_SILENCE_MS)
    }

    /// Returns number and address of the leader, when another member leads.
    pub(crate) fn leader_addr(&self) -> Option<(VoterId, SocketAddr)> {
        let metrics = self.metrics.borrow();
        let leader = metrics.current_leader.filter(|id| *id != self.id)?;
        let node = metrics.membership_config.membership().get_node(&leader);
        let addr = self.addresses.of(leader, node.map(|n| n.addr.as_str()))?;
        Some((leader, addr))
    }

    /// Returns the error that directs a caller to the leader.
    pub(crate) fn not_leader(&self) -> Unavailable {
        let leader = self.leader_addr().map(|(_, addr)| addr.to_string());
        Unavailable::NotLeader { leader }
    }

    /// Sets of voters, each of which must have a majority: two during a membership change. Before the first commit, one
    /// set with all configured members.
    pub(crate) fn voter_sets(&self) -> Vec<BTreeSet<VoterId>> {
        let metrics = self.metrics.borrow();
        let configs = metrics.membership_config.membership().get_joint_config();
        match configs.is_empty() {
            false => configs.clone(),
            true => vec![self.addresses.all().into_keys().collect()],
        }
    }

    /// Voters with their addresses: as committed, or as configured before the first commit.
    pub(crate) fn voters(&self) -> BTreeMap<VoterId, Option<SocketAddr>> {
        let metrics = self.metrics.borrow();
        let membership = metrics.membership_config.membership();
        let committed: BTreeMap<_, _> = membership
            .voter_ids()
            .map(|id| {
                let node = membership.get_node(&id).map(|n| n.addr.as_str());
                (id, self.addresses.of(id, node))
            })
            .collect();
        if !committed.is_empty() {
            return committed;
        }
        let configured = self.addresses.all();
        configured
            .into_iter()
            .map(|(id, addr)| (id, Some(addr)))
            .collect()
    }

    /// Status of this member.
    pub(crate) fn status(&self) -> MemberStatus {
        let members = self
            .voters()
            .into_iter()
            .map(|(id, addr)| (id, addr.map_or_else(String::new, |a| a.to_string())))
            .collect();
        let metrics = self.metrics.borrow();
        MemberStatus {
            id: self.id,
            leader: metrics.current_leader,
            term: metrics.current_term,
            applied_index: metrics.last_applied.map_or(0, |id| id.index),
            revision: self.replica.revision(),
            members,
            incarnation: self.incarnation.current(),
            membership_index: metrics.membership_config.log_id().map_or(0, |id| id.index),
        }
    }
}

/// Term in which the described member leads.
pub(crate) fn leading_term_of(metrics: &RaftMetrics) -> Option<u64> {
    (metrics.state == ServerState::Leader && metrics.running_state.is_ok())
        .then_some(metrics.current_term)
}
