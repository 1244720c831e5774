//! Term floor: prevents a member that lost its log from acknowledging a stale leader.
//!
//! Such a member may have lost an acknowledgement that it gave to a later leader than the one that calls it now. With
//! its acknowledgement, an old leader that is cut off from the others would have a majority. That leader would answer
//! reads that miss acknowledged commands, and commit entries that contradict them.
//!
//! The member therefore first requests the terms of the other members. The answers must come from a majority of all
//! members: every election includes a vote from each majority, so the answers cover every leader elected so far. This
//! member's own vote elects no leader. See `../../0001-consensus.md`.

use crate::{member::Member, raft::types::LogId};
use futures::{StreamExt, stream::FuturesUnordered};
use lattice_mesh::{ExpectedIdentity, HandlerFailed, Mesh, Role, WeakMesh};
use lattice_quorum_types::{
    VoterId,
    membership::{GetMemberStatus, MemberStatus},
    planted::{self, Bug},
};
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

/// Timeout for the term of another member.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);

/// Result of the requests to the other members.
struct TermReport {
    /// Highest term among the answers.
    term: u64,
    /// Whether the answers rule out an elected leader of a later term.
    is_enough: bool,
}

/// Rejects a leader of `term` if this member is blank (started without a log) and a later leader exists, or may exist.
/// `committed` is the commit point that the leader reports.
///
/// # Errors
/// The reason for the rejection.
pub(crate) async fn check(
    member: &Arc<Member>,
    mesh: &WeakMesh,
    term: u64,
    committed: Option<LogId>,
) -> Result<(), HandlerFailed> {
    if !member.is_blank() || planted::is_planted(Bug::AnyLeaderFollowed) {
        return Ok(());
    }
    let later = |floor: u64| {
        HandlerFailed::new(format!(
            "this member started without a log, and the other members report term {floor}"
        ))
    };
    if let Some(floor) = member.floor.get() {
        return if term < floor {
            Err(later(floor))
        } else {
            Ok(())
        };
    }
    let mesh = mesh
        .upgrade()
        .ok_or_else(|| HandlerFailed::new("this member is stopping"))?;
    // A task of its own: the caller's timeout is shorter than a dial.
    let asker = member.clone();
    let known_terms = tokio::spawn(async move { query_terms(&asker, &mesh).await });
    let known_terms = known_terms.await.map_err(HandlerFailed::new)?;
    if term < known_terms.term {
        return Err(later(known_terms.term));
    }
    // At most the membership and the first entry of a leader are committed: the quorum is being founded, possibly
    // while some members are missing.
    let is_founding = committed.is_none_or(|id| id.index <= 1);
    if known_terms.is_enough || is_founding {
        return Ok(());
    }
    Err(HandlerFailed::new(
        "this member started without a log, and too few other members are reachable to confirm the \
         leader",
    ))
}

/// Requests the status of the others, and stores the term once the answers suffice.
async fn query_terms(member: &Member, mesh: &Mesh) -> TermReport {
    let _one = member.floor.lock_queries().await;
    if let Some(term) = member.floor.get() {
        let is_enough = true;
        return TermReport { term, is_enough };
    }
    let mut addrs: BTreeMap<VoterId, SocketAddr> = member.addresses.all();
    let voters = member.voters();
    addrs.extend(voters.iter().filter_map(|(id, addr)| Some((*id, (*addr)?))));
    addrs.remove(&member.id);
    let mut asked: FuturesUnordered<_> = addrs
        .into_iter()
        .map(|(id, addr)| {
            let peer = mesh.peer(
                addr,
                ExpectedIdentity::exactly(Role::Quorum, id.to_string()),
            );
            async move { peer.call(&GetMemberStatus, QUERY_TIMEOUT).await.ok() }
        })
        .collect();
    let mut answers: Vec<MemberStatus> = Vec::new();
    let mut known_terms = evaluate_answers(member.id, &answers);
    while !known_terms.is_enough {
        match asked.next().await {
            Some(answer) => answers.extend(answer),
            None => break,
        }
        known_terms = evaluate_answers(member.id, &answers);
    }
    if known_terms.is_enough {
        member.floor.set(known_terms.term);
    }
    known_terms
}

/// Evaluates answers. The membership is that of the answer with the latest membership index.
fn evaluate_answers(own: VoterId, answers: &[MemberStatus]) -> TermReport {
    let term = answers.iter().map(|answer| answer.term).max();
    let latest = answers.iter().max_by_key(|answer| answer.membership_index);
    let members = latest.map_or(&[][..], |answer| &answer.members);
    let counts = |id: VoterId| members.iter().any(|(member, _)| *member == id);
    let others = answers
        .iter()
        .filter(|answer| answer.id != own && counts(answer.id));
    // Only voters elect leaders: the answer of another member does not count, and one answer suffices if this member is
    // not a voter.
    let is_enough = !members.is_empty() && (!counts(own) || others.count() * 2 > members.len());
    TermReport {
        term: term.unwrap_or_default(),
        is_enough,
    }
}

#[cfg(test)]
mod tests {
    use crate::leadership::vote_guard::*;

    fn status(id: VoterId, term: u64, members: &[VoterId]) -> MemberStatus {
        MemberStatus {
            id,
            leader: None,
            term,
            applied_index: 0,
            revision: Default::default(),
            members: members.iter().map(|id| (*id, String::new())).collect(),
            incarnation: lattice_quorum_types::membership::Incarnation::FIRST,
            membership_index: term,
        }
    }

    #[test]
    fn enough_are_a_majority_without_oneself() {
        let three = [1, 2, 3];
        let five = [1, 2, 3, 4, 5];
        let judged = |answers: &[MemberStatus]| {
            let known_terms = evaluate_answers(1, answers);
            (known_terms.term, known_terms.is_enough)
        };
        assert_eq!(judged(&[]), (0, false));
        assert_eq!(judged(&[status(2, 2, &three)]), (2, false));
        let both = [status(2, 2, &three), status(3, 5, &three)];
        assert_eq!(judged(&both), (5, true));
        let two = [status(2, 2, &five), status(3, 3, &five)];
        assert_eq!(judged(&two), (3, false));
        let all = [&two[..], &[status(5, 1, &five)]].concat();
        assert_eq!(judged(&all), (3, true));
        assert_eq!(judged(&[status(2, 4, &[2, 3])]), (4, true), "a learner");
    }
}
