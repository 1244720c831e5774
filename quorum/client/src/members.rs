//! Who the members are and which of them leads, as far as we know.

use futures::{StreamExt, stream::FuturesUnordered};
use lattice_mesh::{CallError, Expect, Mesh, Peer, Role};
use lattice_quorum_types::{view::MemberStatus, wire::GetMemberStatus};
use std::{
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// How long members are asked who leads.
const LOCATE_TIMEOUT: Duration = Duration::from_millis(250);

/// The members' addresses and the presumed leader.
pub(crate) struct Members {
    mesh: Mesh,
    addrs: Vec<SocketAddr>,
    leader: Mutex<Option<SocketAddr>>,
    turn: AtomicUsize,
}

impl Members {
    pub(crate) fn new(mesh: Mesh, addrs: Vec<SocketAddr>) -> Self {
        Self {
            mesh,
            addrs,
            leader: Mutex::new(None),
            turn: AtomicUsize::new(0),
        }
    }

    pub(crate) fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    pub(crate) fn peer(&self, addr: SocketAddr) -> Peer {
        self.mesh.peer(addr, Expect::role(Role::Quorum))
    }

    fn leader(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This one leads, by its own word or by another's.
    pub(crate) fn follow(&self, addr: SocketAddr) {
        *self.leader() = Some(addr);
    }

    /// This one does not lead, or does not answer.
    pub(crate) fn doubt(&self, addr: SocketAddr) {
        let mut leader = self.leader();
        if *leader == Some(addr) {
            *leader = None;
        }
    }

    /// Whom to ask now: the leader when one is known or can be found, else the next in turn.
    pub(crate) async fn target(&self) -> Option<SocketAddr> {
        let known = *self.leader();
        if known.is_some() {
            return known;
        }
        if let Some(found) = self.locate().await {
            self.follow(found);
            return Some(found);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.addrs.get(turn.checked_rem(self.addrs.len())?).copied()
    }

    /// Asks all members who leads, and believes the highest term once a majority has answered.
    pub(crate) async fn locate(&self) -> Option<SocketAddr> {
        let mut asked: FuturesUnordered<_> = self
            .addrs
            .iter()
            .map(|addr| {
                let peer = self.peer(*addr);
                async move { peer.call(&GetMemberStatus, LOCATE_TIMEOUT).await }
            })
            .collect();
        let (mut answers, mut newest) = (0, None::<MemberStatus>);
        while let Some(answer) = asked.next().await {
            let Ok(status) = answer else { continue };
            answers += 1;
            // Of one term there is one leader, but not everybody has heard of it.
            let rank = |s: &MemberStatus| (s.term, s.leader.is_some());
            if newest.as_ref().is_none_or(|n| rank(&status) > rank(n)) {
                newest = Some(status);
            }
            let knows = newest.as_ref().is_some_and(|n| n.leader.is_some());
            if answers * 2 > self.addrs.len() && knows {
                break;
            }
        }
        let newest = newest?;
        let leader = newest.leader?;
        let (_, addr) = newest.members.iter().find(|(id, _)| *id == leader)?;
        addr.parse().ok()
    }

    /// Every member's account of itself.
    pub(crate) async fn status(
        &self,
        timeout: Duration,
    ) -> Vec<(SocketAddr, Result<MemberStatus, CallError>)> {
        let asked = self.addrs.iter().map(|addr| {
            let peer = self.peer(*addr);
            async move { (*addr, peer.call(&GetMemberStatus, timeout).await) }
        });
        futures::future::join_all(asked).await
    }
}
