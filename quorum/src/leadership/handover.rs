//! Handover of leadership to another member, with the shortest possible pause. openraft 0.9 has no call for it; see
//! `../../0006-membership.md`.
//!
//! The leader stops proposing, waits until the successor has all entries, and requests an immediate election by the
//! successor. The votes of the two are a majority of three. Of five, one more voter is needed; its lease on the old
//! leader must expire first.

use crate::{
    member::{Member, leading_term_of},
    raft::rpc::TakeLeadership,
};
use lattice_mesh::{ExpectedIdentity, Mesh, Role};
use lattice_quorum_types::{VoterId, membership::ChangeRefusal};
use std::{net::SocketAddr, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// Timeout for commands in flight, and again for entries that the successor lacks.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest campaign of the successor. Voters' leases on the old leader expire after half a second.
const CAMPAIGN_TIMEOUT: Duration = Duration::from_millis(1500);
/// Longest wait for one election before the next try. More than a few disk writes.
const ELECTION_TIMEOUT: Duration = Duration::from_millis(100);
/// Time that the call to the successor may take beyond [`CAMPAIGN_TIMEOUT`].
const CALL_MARGIN: Duration = Duration::from_millis(500);
/// Longest wait of an orderly stop for the handover.
const STOP_HANDOVER_TIMEOUT: Duration = Duration::from_millis(2500);

/// Hands leadership to `to`, or to the voter with the longest log. Proposals wait meanwhile.
///
/// # Errors
/// The reason why no other member took over. This member may still have lost leadership.
pub(crate) async fn step_down(
    member: &Member,
    mesh: &Mesh,
    to: Option<VoterId>,
) -> Result<VoterId, ChangeRefusal> {
    let refused = |reason: String| ChangeRefusal::NotHandedOver {
        leader: member.id,
        reason,
    };
    let term = member.leading_term();
    let term = term.ok_or_else(|| refused("this member does not lead".to_owned()))?;
    let (target, addr) = successor(member, to).map_err(refused)?;
    let turn = timeout(DRAIN_TIMEOUT, member.handover.lock()).await;
    let _turn =
        turn.map_err(|_| refused("commands in progress were not committed in time".to_owned()))?;
    if !has_everything(member, target).await {
        return Err(refused(format!(
            "member {target} did not receive all log entries within {} s",
            DRAIN_TIMEOUT.as_secs()
        )));
    }
    let request = TakeLeadership {
        incarnation: member.incarnation.current(),
        term,
        last_log_id: member.log.last(),
    };
    // The gate must not treat the silence of the next moment as a reason to campaign.
    member.leader_contact.record();
    let peer = mesh.peer(
        addr,
        ExpectedIdentity::exactly(Role::Quorum, target.to_string()),
    );
    let answer = peer.call(&request, CAMPAIGN_TIMEOUT + CALL_MARGIN).await;
    member.leader_contact.record();
    match answer {
        Ok(Ok(new_term)) => {
            tracing::info!(
                member = member.id,
                to = target,
                new_term,
                "leadership handed over"
            );
            let mut metrics = member.metrics();
            let _ = timeout(
                DRAIN_TIMEOUT,
                metrics.wait_for(|m| leading_term_of(m) != Some(term)),
            )
            .await;
            Ok(target)
        }
        Ok(Err(reason)) => Err(refused(reason)),
        Err(error) => Err(refused(format!("member {target}: {error}"))),
    }
}

/// Selects the successor: a voter that answered recently.
fn successor(member: &Member, to: Option<VoterId>) -> Result<(VoterId, SocketAddr), String> {
    let voters = member.voters();
    if let Some(to) = to {
        if to == member.id {
            return Err(format!("member {to} leads already"));
        }
        let addr = voters.get(&to).copied().flatten();
        let addr = addr.ok_or_else(|| format!("there is no voter {to} with an address"))?;
        let contact = member.contacts.of(to);
        return match contact.is_recent() {
            true => Ok((to, addr)),
            false => Err(format!(
                "member {to} does not answer: {}",
                contact
                    .fault()
                    .unwrap_or_else(|| "no request was sent yet".to_owned())
            )),
        };
    }
    let metrics = member.metrics();
    let matched = metrics.borrow().replication.clone().unwrap_or_default();
    let reached = voters
        .into_iter()
        .filter(|(id, _)| *id != member.id && member.contacts.of(*id).is_recent())
        .filter_map(|(id, addr)| Some((matched.get(&id).copied().flatten(), id, addr?)));
    let best = reached.max_by_key(|(matched, id, _)| (*matched, std::cmp::Reverse(*id)));
    best.map(|(_, id, addr)| (id, addr))
        .ok_or_else(|| "no other voter answers".to_owned())
}

/// Waits until the successor has all entries.
async fn has_everything(member: &Member, target: VoterId) -> bool {
    let mut metrics = member.metrics();
    let has_all = metrics.wait_for(|m| {
        let matched = m.replication.as_ref().and_then(|all| *all.get(&target)?);
        matched.map(|id| id.index) == m.last_log_index
    });
    matches!(timeout(DRAIN_TIMEOUT, has_all).await, Ok(Ok(_)))
}

/// Starts an election at once, as requested by the leader. Returns the new term.
///
/// # Errors
/// The reason why this member does not lead.
pub(crate) async fn take_over(
    member: &Member,
    leader: &str,
    request: &TakeLeadership,
) -> Result<u64, String> {
    let mut metrics = member.metrics();
    {
        let now = metrics.borrow_and_update();
        let known = now.current_leader.map(|id| id.to_string());
        if now.current_term != request.term || known.as_deref() != Some(leader) {
            return Err(format!(
                "member {} has another leader than member {leader} in term {}",
                member.id, request.term
            ));
        }
    }
    if member.is_blank() || member.log.last() < request.last_log_id {
        return Err(format!(
            "the log of member {} lacks entries of the leader",
            member.id
        ));
    }
    let until = Instant::now() + CAMPAIGN_TIMEOUT;
    while Instant::now() < until {
        let begun = member.raft.trigger().elect().await;
        begun.map_err(|error| error.to_string())?;
        let soon = (Instant::now() + ELECTION_TIMEOUT).min(until);
        let leads =
            metrics.wait_for(|m| leading_term_of(m).is_some_and(|term| term > request.term));
        if let Ok(Ok(now)) = timeout_at(soon, leads).await {
            return Ok(now.current_term);
        }
    }
    Err(format!(
        "member {} was not elected within {} ms",
        member.id,
        CAMPAIGN_TIMEOUT.as_millis()
    ))
}

/// Hands over leadership before an orderly stop, if this member leads and a successor is reachable. Without a handover,
/// the others notice after half a second of silence.
pub(crate) async fn before_stop(member: &Member, mesh: &Mesh) {
    if member.leading_term().is_none() || successor(member, None).is_err() {
        return;
    }
    match timeout(STOP_HANDOVER_TIMEOUT, step_down(member, mesh, None)).await {
        Ok(Ok(_)) => {}
        Ok(Err(refused)) => tracing::info!(reason = %refused, "stopping as the leader"),
        Err(_) => tracing::info!("stopping as the leader: no member took over in time"),
    }
}
