//! Founding of the quorum at its first start: writes the membership as the first entry of the log.
//!
//! All members may do so, because all write the same entry. They take turns, so that the first election has one
//! candidate. A member that finds another member with a history waits for the leader instead. Its own data is lost or
//! has not arrived yet, and it must not found a new quorum.

use crate::{leadership::election_gate, member::Member};
use lattice_mesh::{ExpectedIdentity, Mesh, Role};
use lattice_quorum_types::{VoterId, membership::GetMemberStatus};
use openraft::{
    BasicNode,
    error::{InitializeError, RaftError},
};
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};
use tokio::time::sleep;

/// Delay of the first attempt for each member with a smaller id, and interval between two attempts.
const FOUNDING_INTERVAL: Duration = Duration::from_millis(1500);
/// Timeout for the status of another member.
const STATUS_TIMEOUT: Duration = Duration::from_millis(500);

/// Founds the quorum, unless it is founded already or becomes founded meanwhile.
pub(crate) async fn form(member: Arc<Member>, mesh: Mesh, members: BTreeMap<VoterId, SocketAddr>) {
    let rank = members.keys().take_while(|id| **id < member.id).count();
    let mut wait = election_gate::FIRST_CHECK_DELAY
        + FOUNDING_INTERVAL * u32::try_from(rank).unwrap_or(u32::MAX);
    loop {
        sleep(wait).await;
        wait = FOUNDING_INTERVAL;
        match member.raft.is_initialized().await {
            Ok(false) => {}
            Ok(true) | Err(_) => return,
        }
        if others_have_history(&member, &mesh, &members).await {
            continue;
        }
        if let Err(error) = member.incarnation.mark_founded() {
            tracing::warn!(error = error.reason, "quorum not founded; retrying");
            continue;
        }
        let nodes: BTreeMap<VoterId, BasicNode> = members
            .iter()
            .map(|(id, addr)| (*id, BasicNode::new(addr)))
            .collect();
        match member.raft.initialize(nodes).await {
            Ok(()) => {
                tracing::info!(member = member.id, "quorum founded");
                return;
            }
            Err(RaftError::APIError(InitializeError::NotAllowed(_))) => return,
            Err(error) => tracing::warn!(%error, "quorum not founded; retrying"),
        }
    }
}

async fn others_have_history(
    member: &Member,
    mesh: &Mesh,
    members: &BTreeMap<VoterId, SocketAddr>,
) -> bool {
    let asked = members
        .iter()
        .filter(|(id, _)| **id != member.id)
        .map(|(id, addr)| {
            let peer = mesh.peer(
                *addr,
                ExpectedIdentity::exactly(Role::Quorum, id.to_string()),
            );
            async move { peer.call(&GetMemberStatus, STATUS_TIMEOUT).await }
        });
    let answers = futures::future::join_all(asked).await;
    // The founding entry alone does not count as history: every member would write the same entry.
    answers
        .into_iter()
        .flatten()
        .any(|status| status.applied_index > 0)
}
