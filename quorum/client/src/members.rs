//! Addresses of the quorum members and the presumed leader. The membership may change at any time; every member's
//! status names all members.

use futures::{StreamExt, stream::FuturesUnordered};
use lattice_mesh::{CallError, ExpectedIdentity, Mesh, Peer, Role};
use lattice_quorum_types::membership::{GetMemberStatus, Incarnation, MemberStatus};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::sleep;

/// Timeout for the leader query to a member.
const LOCATE_TIMEOUT: Duration = Duration::from_millis(250);

/// Interval between periodic membership queries; every other status query also updates the membership. It is shorter
/// than any replacement of all members.
const REFRESH_INTERVAL: Duration = Duration::from_secs(15);

/// Membership, as the members report it.
#[derive(Debug, Default)]
struct MemberAddresses {
    /// Version of the membership; later ones are higher.
    version: (Incarnation, u64),
    addrs: Vec<SocketAddr>,
}

/// Addresses of the members, as the members report them. Clones share them and hold no mesh.
#[derive(Debug, Clone, Default)]
pub struct Addresses(Arc<Mutex<MemberAddresses>>);

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, MemberAddresses> {
        self.0.lock()
    }

    /// The present members first, followed by the other configured addresses.
    pub fn with(&self, configured: &[SocketAddr]) -> Vec<SocketAddr> {
        let reported = self.lock();
        let mut addrs = reported.addrs.clone();
        addrs.extend(
            configured
                .iter()
                .filter(|addr| !reported.addrs.contains(addr)),
        );
        addrs
    }
}

/// Addresses of the members, and the presumed leader.
pub(crate) struct Members {
    mesh: Mesh,
    /// Configured addresses. They locate the first member, and any member if the reported addresses become unreachable.
    addrs: Vec<SocketAddr>,
    reported: Addresses,
    leader: Mutex<Option<SocketAddr>>,
    next_member: AtomicUsize,
}

impl Members {
    pub(crate) fn new(mesh: Mesh, addrs: Vec<SocketAddr>) -> Self {
        Self {
            mesh,
            addrs,
            reported: Addresses::default(),
            leader: Mutex::new(None),
            next_member: AtomicUsize::new(0),
        }
    }

    /// The present members first, followed by the other configured addresses.
    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        self.reported.with(&self.addrs)
    }

    /// Addresses of the members, as the members report them. Holds no mesh.
    pub(crate) fn reported_addresses(&self) -> Addresses {
        self.reported.clone()
    }

    /// Stores the membership of a member's status if it is newer than the stored one.
    fn update_membership(&self, status: &MemberStatus) {
        let version = (status.incarnation, status.membership_index);
        let addrs: Option<Vec<SocketAddr>> = status
            .members
            .iter()
            .map(|(_, addr)| addr.parse().ok())
            .collect();
        let Some(addrs) = addrs.filter(|addrs| !addrs.is_empty() && !status.incarnation.is_none())
        else {
            return;
        };
        let mut reported = self.reported.lock();
        if version > reported.version {
            if !reported.addrs.is_empty() && reported.addrs != addrs {
                tracing::info!(?addrs, "quorum membership changed");
            }
            *reported = MemberAddresses { version, addrs };
        }
    }

    /// Refreshes the membership while `members` is in use.
    pub(crate) async fn refresh(members: Weak<Self>) {
        loop {
            sleep(REFRESH_INTERVAL).await;
            let Some(members) = members.upgrade() else {
                return;
            };
            let leader = *members.leader();
            let asked = match leader {
                Some(addr) => members
                    .peer(addr)
                    .call(&GetMemberStatus, LOCATE_TIMEOUT)
                    .await
                    .ok(),
                None => None,
            };
            match asked {
                Some(status) => members.update_membership(&status),
                None => drop(members.locate().await),
            }
        }
    }

    pub(crate) fn peer(&self, addr: SocketAddr) -> Peer {
        self.mesh.peer(addr, ExpectedIdentity::role(Role::Quorum))
    }

    fn leader(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.leader.lock()
    }

    /// Records the member at this address as the leader.
    pub(crate) fn set_leader(&self, addr: SocketAddr) {
        *self.leader() = Some(addr);
    }

    /// Clears the leader if it is the member at this address, which does not lead or does not answer.
    pub(crate) fn clear_leader(&self, addr: SocketAddr) {
        let mut leader = self.leader();
        if *leader == Some(addr) {
            *leader = None;
        }
    }

    /// Address for the next request: the leader if one is known or found, else the next member in turn.
    pub(crate) async fn target(&self) -> Option<SocketAddr> {
        let known = *self.leader();
        if known.is_some() {
            return known;
        }
        if let Some(found) = self.locate().await {
            self.set_leader(found);
            return Some(found);
        }
        let (turn, addrs) = (
            self.next_member.fetch_add(1, Ordering::Relaxed),
            self.addrs(),
        );
        addrs.get(turn.checked_rem(addrs.len())?).copied()
    }

    /// Queries all members for the leader, and returns the one of the highest term in the latest incarnation. Ends once
    /// a majority has answered and a leader is found, or once every member has answered or timed out.
    pub(crate) async fn locate(&self) -> Option<SocketAddr> {
        let addrs = self.addrs();
        let mut asked: FuturesUnordered<_> = addrs
            .iter()
            .map(|addr| {
                let peer = self.peer(*addr);
                async move { peer.call(&GetMemberStatus, LOCATE_TIMEOUT).await }
            })
            .collect();
        let (mut answers, mut newest) = (BTreeSet::new(), None::<MemberStatus>);
        while let Some(answer) = asked.next().await {
            let Ok(status) = answer else { continue };
            answers.insert(status.id);
            self.update_membership(&status);
            // A term has one leader, but some members may not have received its messages yet. Members that remain from
            // before a restore may be in any term.
            let rank = |s: &MemberStatus| (s.incarnation, s.term, s.leader.is_some());
            if newest.as_ref().is_none_or(|n| rank(&status) > rank(n)) {
                newest = Some(status);
            }
            let knows = newest.as_ref().is_some_and(|n| n.leader.is_some());
            let count = newest.as_ref().map_or(0, |newest| newest.members.len());
            if answers.len() * 2 > count && knows {
                break;
            }
        }
        let newest = newest?;
        let leader = newest.leader?;
        let (_, addr) = newest.members.iter().find(|(id, _)| *id == leader)?;
        addr.parse().ok()
    }

    /// Status of every member.
    pub(crate) async fn status(
        &self,
        timeout: Duration,
    ) -> Vec<(SocketAddr, Result<MemberStatus, CallError>)> {
        let asked = self.addrs().into_iter().map(|addr| {
            let peer = self.peer(addr);
            async move {
                let status = peer.call(&GetMemberStatus, timeout).await;
                if let Ok(status) = &status {
                    self.update_membership(status);
                }
                (addr, status)
            }
        });
        futures::future::join_all(asked).await
    }
}
