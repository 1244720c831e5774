//! Election gate: decides when this member may start an election. Version 0.9 of openraft has no pre-vote: a member
//! that was cut off would depose the leader with its higher term at every return. A member may therefore campaign only
//! with the agreement of a majority, itself included. A member agrees if it has received no heartbeat for a while, and
//! the candidate's log is at least as up to date as its own. Any other election would cost a term and win nothing. A
//! leader also agrees when no majority has acknowledged it for a while. A member that started without a log agrees only
//! to the founding election until it has caught up.

use crate::{
    member::Member,
    raft::{rpc::MayCampaign, types::LogId},
};
use futures::{StreamExt, stream::FuturesUnordered};
use lattice_mesh::{ExpectedIdentity, Mesh, Role};
use lattice_quorum_types::VoterId;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Silence after which the leader counts as lost. Five heartbeats, so that a slow disk or a busy machine does not look
/// like a failure.
pub(crate) const LEADER_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(40);
/// Delay of the first check. Members that start together are dialled once they listen: a premature dial is repeated
/// only after a second.
pub(crate) const FIRST_CHECK_DELAY: Duration = Duration::from_millis(150);
/// Timeout for the answers of other members.
const QUERY_TIMEOUT: Duration = Duration::from_millis(100);

/// Returns whether this member has reason to assume that the cluster has no leader.
pub(crate) fn is_silent(member: &Member) -> bool {
    // A removed member receives no heartbeats; its silence is no evidence.
    if member.is_removed() {
        return false;
    }
    if member.leading_term().is_some() {
        let metrics = member.metrics();
        let since = metrics.borrow().millis_since_quorum_ack;
        return since.is_some_and(|ms| u128::from(ms) >= LEADER_TIMEOUT.as_millis());
    }
    member.leader_contact.silent_for(LEADER_TIMEOUT)
}

/// Returns whether this member would vote for a candidate with the last entry `candidate_last`.
pub(crate) fn may_campaign(member: &Member, candidate_last: Option<LogId>) -> bool {
    is_silent(member) && candidate_last >= member.log.last() && !member.must_abstain(candidate_last)
}

/// Returns whether `silent` of `voters` are a majority.
pub(crate) fn is_majority(silent: usize, voters: usize) -> bool {
    silent * 2 > voters
}

/// Opens and closes the gate until cancelled.
pub(crate) async fn run(member: Arc<Member>, mesh: Mesh) {
    let mut tick = tokio::time::interval_at(Instant::now() + FIRST_CHECK_DELAY, CHECK_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_open = false;
    loop {
        tick.tick().await;
        member.gate_checked.record();
        if member.leading_term().is_some() {
            // This member founded the cluster or was elected, so its log is authoritative.
            member.caught_up_to(member.log.last());
        }
        let silent = is_silent(&member);
        member
            .contacts
            .set_without_majority(silent && member.leading_term().is_some());
        let open = silent && member.may_campaign_now() && others_agree(&member, &mesh).await;
        member.raft.runtime_config().elect(open);
        if open && !was_open {
            tracing::info!(
                member = member.id,
                "no leader is reachable for a majority; elections allowed"
            );
        }
        was_open = open;
    }
}

async fn others_agree(member: &Member, mesh: &Mesh) -> bool {
    let (voters, last_log_id) = (member.voters(), member.log.last());
    let (configs, incarnation) = (member.voter_sets(), member.incarnation.current());
    let request = &MayCampaign {
        incarnation,
        last_log_id,
    };
    let mut asked: FuturesUnordered<_> = voters
        .iter()
        .filter(|(id, _)| **id != member.id)
        .filter_map(|(id, addr)| {
            let expect = ExpectedIdentity::exactly(Role::Quorum, id.to_string());
            Some((*id, mesh.peer((*addr)?, expect)))
        })
        .map(|(id, peer)| async move { (id, peer.call(request, QUERY_TIMEOUT).await) })
        .collect();
    let mut silent = BTreeSet::from([member.id]);
    // During a membership change there are two sets of voters, and a leader needs a majority of both.
    let is_open_in = |silent: &BTreeSet<VoterId>, config: &BTreeSet<VoterId>| {
        is_majority(config.intersection(silent).count(), config.len())
    };
    while !configs.iter().all(|config| is_open_in(&silent, config)) {
        match asked.next().await {
            Some((id, Ok(true))) => drop(silent.insert(id)),
            Some(_) => {}
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use crate::leadership::election_gate::is_majority;

    #[test]
    fn a_majority_must_hear_nothing() {
        for (silent, voters, open) in [
            (1, 1, true),
            (0, 1, false),
            (1, 2, false),
            (1, 3, false),
            (2, 3, true),
            (2, 5, false),
            (3, 5, true),
            (0, 0, false),
        ] {
            assert_eq!(is_majority(silent, voters), open, "{silent} of {voters}");
        }
    }
}
