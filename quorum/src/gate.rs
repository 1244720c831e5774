//! Who may start an election. openraft 0.9 has no pre-vote: a member that was cut off and comes
//! back would depose the leader with its higher term, at every return. So a member may campaign
//! only while a majority, itself included, says that it has heard no leader for a while and that
//! the candidate's log is no shorter than its own: the rest would cost a term and win nothing. A
//! leader says so when no majority has acknowledged it.

use crate::{member::Member, raft_rpc::MayCampaign, types::LogId};
use futures::{StreamExt, stream::FuturesUnordered};
use lattice_mesh::{Expect, Mesh, Role};
use lattice_quorum_types::VoterId;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Without a word from a leader for this long, there is none. Five heartbeats, so that a slow
/// disk or a busy machine does not look like a death.
pub(crate) const SILENCE: Duration = Duration::from_millis(500);
/// Between two looks.
const PERIOD: Duration = Duration::from_millis(40);
/// Before the first look. Members that are started together are dialled once they listen: a dial
/// that comes too soon is repeated only after a second.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(150);
/// How long others may take to say what they heard.
const ASK_TIMEOUT: Duration = Duration::from_millis(100);

/// Whether this member has reason to believe that nobody leads.
pub(crate) fn is_silent(member: &Member) -> bool {
    // Who is no member any more hears no leader, and is right about it.
    if member.is_removed() {
        return false;
    }
    if member.leads().is_some() {
        let metrics = member.metrics();
        let since = metrics.borrow().millis_since_quorum_ack;
        return since.is_some_and(|ms| u128::from(ms) >= SILENCE.as_millis());
    }
    member.heard.silent_for(SILENCE)
}

/// Whether this member would vote for one whose last entry is `theirs`.
pub(crate) fn may_campaign(member: &Member, theirs: Option<LogId>) -> bool {
    is_silent(member) && theirs >= member.log.last() && !member.must_abstain(theirs)
}

/// Whether `silent` of `voters` are a majority.
pub(crate) fn is_open(silent: usize, voters: usize) -> bool {
    silent * 2 > voters
}

/// Opens and closes the gate for as long as it runs.
pub(crate) async fn run(member: Arc<Member>, mesh: Mesh) {
    let mut tick = tokio::time::interval_at(Instant::now() + FIRST_LOOK, PERIOD);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_open = false;
    loop {
        tick.tick().await;
        member.gate_looked.now();
        if member.leads().is_some() {
            // It founded the cluster, or was elected: its log is what counts.
            member.caught_up_to(member.log.last());
        }
        let silent = is_silent(&member);
        member
            .contacts
            .set_alone(silent && member.leads().is_some());
        let open = silent && member.may_stand() && others_agree(&member, &mesh).await;
        member.raft.runtime_config().elect(open);
        if open && !was_open {
            tracing::info!(
                member = member.id,
                "no leader is heard by a majority: elections allowed"
            );
        }
        was_open = open;
    }
}

async fn others_agree(member: &Member, mesh: &Mesh) -> bool {
    let (voters, last_log_id) = (member.voters(), member.log.last());
    let (configs, incarnation) = (member.configs(), member.lineage.current());
    let request = &MayCampaign {
        incarnation,
        last_log_id,
    };
    let mut asked: FuturesUnordered<_> = voters
        .iter()
        .filter(|(id, _)| **id != member.id)
        .filter_map(|(id, addr)| {
            let expect = Expect::exactly(Role::Quorum, id.to_string());
            Some((*id, mesh.peer((*addr)?, expect)))
        })
        .map(|(id, peer)| async move { (id, peer.call(request, ASK_TIMEOUT).await) })
        .collect();
    let mut silent = BTreeSet::from([member.id]);
    // While the members change there are two sets of voters, and a leader needs both.
    let is_open_in = |silent: &BTreeSet<VoterId>, config: &BTreeSet<VoterId>| {
        is_open(config.intersection(silent).count(), config.len())
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
    use super::is_open;

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
            assert_eq!(is_open(silent, voters), open, "{silent} of {voters}");
        }
    }
}
