//! What every part of a running member looks at: its Raft, its state, who leads, where the others
//! are.

use crate::{
    contacts::Contacts,
    floor::Floor,
    handover::Handover,
    heard::Heard,
    lineage::Lineage,
    replica::Replica,
    store::LogStore,
    types::{LogId, Raft, RaftMetrics},
};
use lattice_mesh::Clock;
use lattice_quorum_types::{VoterId, view::MemberStatus, wire::Unavailable};
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

/// A leader that no majority has acknowledged for this long does not answer as one, milliseconds.
const LEADER_SILENCE_MS: u64 = 1500;

/// Where members are, as this member's settings say. They win over the addresses that were
/// committed when the quorum was formed, so that members can move.
#[derive(Clone, Default)]
pub(crate) struct Addresses(Arc<RwLock<BTreeMap<VoterId, SocketAddr>>>);

impl Addresses {
    pub(crate) fn set(&self, addrs: BTreeMap<VoterId, SocketAddr>) {
        *self.0.write() = addrs;
    }
    pub(crate) fn all(&self) -> BTreeMap<VoterId, SocketAddr> {
        self.0.read().clone()
    }
    /// Where a member is; `committed` is what the membership says.
    pub(crate) fn of(&self, id: VoterId, committed: Option<&str>) -> Option<SocketAddr> {
        let configured = self.0.read();
        let configured = configured.get(&id).copied();
        configured.or_else(|| committed?.parse().ok())
    }
}

/// One running member.
pub(crate) struct Member {
    pub(crate) id: VoterId,
    pub(crate) raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) replica: Replica,
    pub(crate) heard: Heard,
    pub(crate) addresses: Addresses,
    pub(crate) clock: Arc<dyn Clock>,
    /// Which incarnation of the cluster it belongs to.
    pub(crate) lineage: Lineage,
    /// How the others answer.
    pub(crate) contacts: Contacts,
    /// Whether it is giving up leadership.
    pub(crate) handover: Handover,
    /// One change of the members at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// When the gate last looked.
    pub(crate) gate_looked: Heard,
    /// Others said that it is no member any more.
    removed: AtomicBool,
    /// What the others knew of terms when this member began without a log.
    pub(crate) floor: Floor,
    metrics: watch::Receiver<RaftMetrics>,
}

impl Member {
    pub(crate) fn new(
        id: VoterId,
        raft: Raft,
        (log, replica): (LogStore, Replica),
        heard: Heard,
        (addresses, contacts): (Addresses, Contacts),
        clock: Arc<dyn Clock>,
        lineage: Lineage,
    ) -> Self {
        let metrics = raft.metrics();
        Self {
            id,
            raft,
            log,
            replica,
            heard,
            addresses,
            clock,
            lineage,
            contacts,
            handover: Handover::default(),
            changing: tokio::sync::Mutex::default(),
            gate_looked: Heard::never(),
            removed: AtomicBool::new(false),
            floor: Floor::default(),
            metrics,
        }
    }

    /// Whether this member must not help a candidate whose last entry is `theirs` to win.
    ///
    /// One that begins without a log may have lost it, and with it entries it had acknowledged
    /// and votes it had given: until it has caught up with a leader, which then must exist
    /// without it, its vote could bury what was committed. A candidate with nothing but the
    /// founding entry is the founding itself.
    pub(crate) fn must_abstain(&self, theirs: Option<LogId>) -> bool {
        self.is_blank() && theirs.is_some_and(|id| id.index > 0)
    }

    /// Whether it may stand for election. What it must not do for another it must not do for itself:
    /// brought up to date half way, it has a longer log than one that was cut off, and less than what
    /// was acknowledged. The only voter has nobody to hear of what it lost.
    pub(crate) fn may_stand(&self) -> bool {
        !self.must_abstain(self.log.last()) || self.voters().len() == 1
    }

    /// Notes that a leader's entries up to its commit point are in the log.
    pub(crate) fn caught_up_to(&self, committed: Option<LogId>) {
        let reached = committed.is_some() && self.log.last() >= committed;
        if !reached || !self.is_blank() {
            return;
        }
        match self.lineage.caught_up() {
            Ok(true) => tracing::info!(
                member = self.id,
                "caught up with the leader: voting from now on"
            ),
            Ok(false) => {}
            Err(error) => tracing::warn!(member = self.id, %error, "it goes on as a blank member"),
        }
    }

    /// Whether it began without a log and was not brought up to date since.
    pub(crate) fn is_blank(&self) -> bool {
        self.lineage.is_blank()
    }

    /// Whether others said that it is no member any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Notes that; gives what was noted before.
    pub(crate) fn set_removed(&self, removed: bool) -> bool {
        self.removed.swap(removed, Ordering::Relaxed)
    }

    /// A receiver of what Raft says of itself.
    pub(crate) fn metrics(&self) -> watch::Receiver<RaftMetrics> {
        self.metrics.clone()
    }

    /// The term in which this member leads, as far as it knows.
    pub(crate) fn leads(&self) -> Option<u64> {
        leading(&self.metrics.borrow())
    }

    /// Whether it leads and a majority said so a moment ago.
    pub(crate) fn leads_surely(&self) -> bool {
        let metrics = self.metrics.borrow();
        leading(&metrics).is_some()
            && metrics
                .millis_since_quorum_ack
                .is_none_or(|ms| ms < LEADER_SILENCE_MS)
    }

    /// Where the leader is, when another member leads.
    pub(crate) fn leader_addr(&self) -> Option<(VoterId, SocketAddr)> {
        let metrics = self.metrics.borrow();
        let leader = metrics.current_leader.filter(|id| *id != self.id)?;
        let node = metrics.membership_config.membership().get_node(&leader);
        let addr = self.addresses.of(leader, node.map(|n| n.addr.as_str()))?;
        Some((leader, addr))
    }

    /// What callers are told who should ask the leader.
    pub(crate) fn not_leader(&self) -> Unavailable {
        let leader = self.leader_addr().map(|(_, addr)| addr.to_string());
        Unavailable::NotLeader { leader }
    }

    /// The sets of voters of each of which a majority is needed: two while they change.
    pub(crate) fn configs(&self) -> Vec<BTreeSet<VoterId>> {
        let metrics = self.metrics.borrow();
        let configs = metrics.membership_config.membership().get_joint_config();
        match configs.is_empty() {
            false => configs.clone(),
            true => vec![self.addresses.all().into_keys().collect()],
        }
    }

    /// Voters with their addresses: as committed, or as configured before anything is.
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

    /// This member's account of itself.
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
            incarnation: self.lineage.current(),
            membership_index: metrics.membership_config.log_id().map_or(0, |id| id.index),
        }
    }
}

/// The term in which the described member leads.
pub(crate) fn leading(metrics: &RaftMetrics) -> Option<u64> {
    (metrics.state == ServerState::Leader && metrics.running_state.is_ok())
        .then_some(metrics.current_term)
}
