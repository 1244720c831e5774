//! Whom a member may follow that began without a log. It may have lost what it had promised to a later
//! leader than the one that speaks now: with its word an old leader, cut off from the others, would
//! have a majority, answer reads that miss what was acknowledged, and commit what contradicts it.
//!
//! So it asks first. As many of the others as are a majority of all know of every leader that was
//! elected until then, since each had one of them; and none is elected by this member's vote. See
//! `../0001-consensus.md`.

use crate::{member::Member, types::LogId};
use futures::{StreamExt, stream::FuturesUnordered};
use lattice_mesh::{Expect, Failed, Mesh, Role, WeakMesh};
use lattice_quorum_types::{
    VoterId,
    planted::{self, Bug},
    view::MemberStatus,
    wire::GetMemberStatus,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

/// How long others may take to tell their term.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);

/// The lowest term of a leader that this member may follow, once it is known.
#[derive(Debug, Default)]
pub(crate) struct Floor {
    term: Mutex<Option<u64>>,
    /// Whoever asks; one at a time.
    asking: tokio::sync::Mutex<()>,
}

/// What others said.
struct Told {
    /// The highest term among them.
    term: u64,
    /// Whether no leader can be one that none of them knows of.
    is_enough: bool,
}

impl Floor {
    fn known(&self) -> Option<u64> {
        *self.term.lock()
    }
}

/// Refuses a leader of this term if this member is blank and there is, or may be, a later one.
/// `committed` is how far that leader says the log is committed.
///
/// # Errors
/// Why it is not followed.
pub(crate) async fn check(
    member: &Arc<Member>,
    mesh: &WeakMesh,
    term: u64,
    committed: Option<LogId>,
) -> Result<(), Failed> {
    if !member.is_blank() || planted::is(Bug::AnyLeaderFollowed) {
        return Ok(());
    }
    let later = |floor: u64| {
        Failed::new(format!(
            "this member began without a log, and the others know of term {floor}"
        ))
    };
    if let Some(floor) = member.floor.known() {
        return if term < floor {
            Err(later(floor))
        } else {
            Ok(())
        };
    }
    let mesh = mesh
        .upgrade()
        .ok_or_else(|| Failed::new("this member stops"))?;
    // In a task of its own: the caller's patience is shorter than a dial.
    let asker = member.clone();
    let told = tokio::spawn(async move { ask(&asker, &mesh).await });
    let told = told.await.map_err(Failed::new)?;
    if term < told.term {
        return Err(later(told.term));
    }
    // The members, and that somebody leads: the quorum is being founded, perhaps without some of them.
    let is_founding = committed.is_none_or(|id| id.index <= 1);
    if told.is_enough || is_founding {
        return Ok(());
    }
    Err(Failed::new(
        "this member began without a log, and does not hear enough of the others to know whom it \
         may follow",
    ))
}

/// Asks the others, and remembers what is certain.
async fn ask(member: &Member, mesh: &Mesh) -> Told {
    let _one = member.floor.asking.lock().await;
    if let Some(term) = member.floor.known() {
        let is_enough = true;
        return Told { term, is_enough };
    }
    let mut whom: BTreeMap<VoterId, SocketAddr> = member.addresses.all();
    let voters = member.voters();
    whom.extend(voters.iter().filter_map(|(id, addr)| Some((*id, (*addr)?))));
    whom.remove(&member.id);
    let mut asked: FuturesUnordered<_> = whom
        .into_iter()
        .map(|(id, addr)| {
            let peer = mesh.peer(addr, Expect::exactly(Role::Quorum, id.to_string()));
            async move { peer.call(&GetMemberStatus, ASK_TIMEOUT).await.ok() }
        })
        .collect();
    let mut answers: Vec<MemberStatus> = Vec::new();
    let mut told = judge(member.id, &answers);
    while !told.is_enough {
        match asked.next().await {
            Some(answer) => answers.extend(answer),
            None => break,
        }
        told = judge(member.id, &answers);
    }
    if told.is_enough {
        *member.floor.term.lock() = Some(told.term);
    }
    told
}

/// What follows from answers: the members are those of the latest of them.
fn judge(own: VoterId, answers: &[MemberStatus]) -> Told {
    let term = answers.iter().map(|answer| answer.term).max();
    let latest = answers.iter().max_by_key(|answer| answer.membership_index);
    let members = latest.map_or(&[][..], |answer| &answer.members);
    let counts = |id: VoterId| members.iter().any(|(member, _)| *member == id);
    let others = answers
        .iter()
        .filter(|answer| answer.id != own && counts(answer.id));
    // Who is no voter has promised nothing, and its word does not count.
    let is_enough = !members.is_empty() && (!counts(own) || others.count() * 2 > members.len());
    Told {
        term: term.unwrap_or_default(),
        is_enough,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let told = judge(1, answers);
            (told.term, told.is_enough)
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
