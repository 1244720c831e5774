//! Quorum overview: all members in one table, with leader, progress and warnings for the operator. Available without a
//! leader too, when it is needed most.

use crate::{member::Member, store::FORMAT};
use futures::future::join_all;
use lattice_mesh::{ExpectedIdentity, Mesh, Role};
use lattice_quorum_types::{
    VoterId,
    membership::{
        Follower, GetMember, KnownMember, MemberReport, MemberRole, MemberRow, QuorumView,
        SegmentCounts,
    },
};
use openraft::ServerState;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

/// Timeout for the report of a member.
const REPORT_TIMEOUT: Duration = Duration::from_millis(700);
/// Number of entries behind the leader above which a member gets a warning.
const MAX_LAG_ENTRIES: u64 = 1000;

/// Full report of this member.
pub(crate) fn own_report(member: &Member) -> MemberReport {
    let status = member.status();
    let metrics = member.metrics();
    let metrics = metrics.borrow();
    let stored = &metrics.membership_config;
    let membership = stored.membership();
    let voters: BTreeSet<VoterId> = membership.voter_ids().collect();
    let members = membership.nodes().map(|(id, node)| KnownMember {
        id: *id,
        addr: addr_of(member, *id, &node.addr),
        votes: voters.contains(id),
    });
    let leads = metrics.state == ServerState::Leader;
    let followers = metrics.replication.iter().flatten();
    let followers = followers
        .filter(|(id, _)| **id != member.id)
        .map(|(id, matched)| {
            let contact = member.contacts.of(*id);
            Follower {
                id: *id,
                matched: matched.map(|id| id.index),
                last_contact_ms: contact.millis_since_answer(),
                fault: contact.fault(),
            }
        });
    MemberReport {
        id: member.id,
        cluster: member.incarnation.cluster().to_owned(),
        incarnation: member.incarnation.current(),
        term: metrics.current_term,
        leader: metrics.current_leader,
        last_log_index: metrics.last_log_index.unwrap_or_default(),
        applied_index: status.applied_index,
        snapshot_index: metrics.snapshot.map_or(0, |id| id.index),
        revision: status.revision,
        last_contact_ms: member.leader_contact.millis().filter(|_| !leads),
        // A blank member that was elected has the authoritative log.
        blank: member.is_blank() && !leads,
        removed: member.is_removed(),
        members: members.collect(),
        membership_index: stored.log_id().map_or(0, |id| id.index),
        changing: membership.get_joint_config().len() > 1,
        followers: followers.collect(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        data_format: FORMAT,
        segments: member.replica.segments().counts(),
    }
}

fn addr_of(member: &Member, id: VoterId, committed: &str) -> String {
    let addr = member.addresses.of(id, Some(committed));
    addr.map_or_else(|| committed.to_owned(), |addr| addr.to_string())
}

type MemberReports = BTreeMap<VoterId, Result<MemberReport, String>>;

/// Requests the reports of the given members concurrently.
pub(crate) async fn request_reports(
    mesh: &Mesh,
    members: &BTreeMap<VoterId, SocketAddr>,
) -> MemberReports {
    let asked = members.iter().map(|(id, addr)| {
        let peer = mesh.peer(
            *addr,
            ExpectedIdentity::exactly(Role::Quorum, id.to_string()),
        );
        async move { (*id, peer.call(&GetMember, REPORT_TIMEOUT).await) }
    });
    let answers = join_all(asked).await.into_iter();
    answers
        .map(|(id, answer)| (id, answer.map_err(|error| error.to_string())))
        .collect()
}

/// Members with known addresses that a report lists, or the configured members if the report lists none.
fn listed_members(member: &Member, account: &MemberReport) -> BTreeMap<VoterId, SocketAddr> {
    if account.members.is_empty() {
        return member.addresses.all();
    }
    let known = account.members.iter();
    known
        .filter_map(|known| Some((known.id, known.addr.parse().ok()?)))
        .collect()
}

/// Builds the overview of all members from their reports.
pub(crate) async fn quorum_view(member: &Member, mesh: &Mesh) -> QuorumView {
    let own = own_report(member);
    let mut answers = MemberReports::new();
    answers.insert(own.id, Ok(own.clone()));
    // A member that is behind lists former members; their reports name the current ones.
    for _ in 0..2 {
        let newest = newest_report(&own, &answers);
        let mut addrs = listed_members(member, newest);
        addrs.retain(|id, _| !answers.contains_key(id));
        if addrs.is_empty() {
            break;
        }
        answers.extend(request_reports(mesh, &addrs).await);
    }
    let newest = newest_report(&own, &answers).clone();
    table(&own, &newest, answers)
}

/// Returns the report with the newest membership. Reports of other incarnations are skipped once this member has an
/// incarnation.
fn newest_report<'a>(own: &'a MemberReport, answers: &'a MemberReports) -> &'a MemberReport {
    let accounts = answers.values().flatten();
    let of_ours =
        accounts.filter(|a| a.incarnation == own.incarnation || own.incarnation.is_none());
    of_ours
        .max_by_key(|a| (a.incarnation, a.membership_index, a.term))
        .unwrap_or(own)
}

fn table(own: &MemberReport, newest: &MemberReport, mut answers: MemberReports) -> QuorumView {
    let incarnation = newest.incarnation;
    let leader = answers
        .values()
        .flatten()
        .filter(|a| a.leader == Some(a.id) && a.incarnation == incarnation)
        .max_by_key(|a| a.term)
        .cloned();
    let known = match newest.members.is_empty() {
        false => newest.members.clone(),
        true => answers
            .keys()
            .map(|id| KnownMember {
                id: *id,
                addr: String::new(),
                votes: true,
            })
            .collect(),
    };
    let members: Vec<MemberRow> = known
        .into_iter()
        .map(|known| {
            let answer = answers.remove(&known.id);
            row(known, answer, leader.as_ref())
        })
        .collect();
    let voters = members.iter().filter(|m| m.role != MemberRole::Learner);
    let reached = |m: &&MemberRow| m.fault.is_none();
    let (count, reachable) = (voters.clone().count(), voters.filter(reached).count());
    let mut view = QuorumView {
        cluster: own.cluster.clone(),
        incarnation,
        answered_by: own.id,
        leader: leader.as_ref().map(|a| a.id),
        term: newest.term.max(leader.as_ref().map_or(0, |a| a.term)),
        majority: u32::try_from(count / 2 + 1).unwrap_or(u32::MAX),
        reachable: u32::try_from(reachable).unwrap_or(u32::MAX),
        members,
        warnings: Vec::new(),
    };
    view.warnings = warnings(&view, newest);
    view
}

/// Builds the row of one member. `answer` is its report or error, if it was requested.
fn row(
    known: KnownMember,
    answer: Option<Result<MemberReport, String>>,
    leader: Option<&MemberReport>,
) -> MemberRow {
    let (account, fault) = match answer {
        Some(Ok(account)) => (Some(account), None),
        Some(Err(fault)) => (None, Some(fault)),
        None => (None, Some("its address is unknown".to_owned())),
    };
    let leads = leader.is_some_and(|leader| leader.id == known.id);
    let followed = leader.and_then(|l| l.followers.iter().find(|f| f.id == known.id));
    // A report of another incarnation comes from a member of another history.
    let of_ours = |account: &MemberReport| {
        leader.is_none_or(|l| account.incarnation == l.incarnation || account.incarnation.is_none())
    };
    let fault = match &account {
        Some(account) if !of_ours(account) => Some(format!(
            "belongs to incarnation {} of the cluster; stop the member and give it an empty data \
             directory",
            account.incarnation
        )),
        _ => fault,
    };
    let lag = leader.and_then(|leader| {
        // Positions in the log of another history cannot be compared.
        let comparable = account.as_ref().filter(|account| of_ours(account));
        let at = comparable.map(|account| account.last_log_index);
        let at = at.or_else(|| followed?.matched)?;
        Some(leader.last_log_index.saturating_sub(at))
    });
    MemberRow {
        id: known.id,
        addr: known.addr,
        role: match (leads, known.votes) {
            (true, _) => MemberRole::Leader,
            (false, true) => MemberRole::Voter,
            (false, false) => MemberRole::Learner,
        },
        fault,
        last_contact_ms: followed.and_then(|followed| followed.last_contact_ms),
        lag,
        account,
    }
}

/// Warnings for the operator, the most severe first.
fn warnings(view: &QuorumView, newest: &MemberReport) -> Vec<String> {
    let mut warnings = Vec::new();
    let voters = view
        .members
        .iter()
        .filter(|m| m.role != MemberRole::Learner);
    let (count, reachable) = (voters.clone().count(), view.reachable);
    let majority = view.majority;
    if reachable < majority {
        warnings.push(format!(
            "no majority: {reachable} of {count} voters are reachable, {majority} are needed; no \
             change is possible until one more is back"
        ));
    } else if reachable == majority && count > 1 {
        warnings.push(format!(
            "the loss of one more member loses the majority: {reachable} of {count} voters are \
             reachable, {majority} are needed"
        ));
    }
    if view.leader.is_none() && reachable >= majority {
        warnings
            .push("no leader: an election is in progress, or is prevented; check again".to_owned());
    }
    for member in &view.members {
        let id = member.id;
        if let Some(fault) = &member.fault {
            warnings.push(format!("member {id}: {fault}"));
        }
        if let Some(lag) = member.lag.filter(|lag| *lag > MAX_LAG_ENTRIES) {
            warnings.push(format!("member {id} is {lag} log entries behind"));
        }
        if member.role == MemberRole::Learner {
            warnings.push(format!(
                "member {id} does not vote yet: finish with `lattice admin quorum add {id} {}`, or \
                 remove it",
                member.addr
            ));
        }
        let segments = member.account.as_ref().map(|account| account.segments);
        let SegmentCounts {
            missing, replaced, ..
        } = segments.unwrap_or_default();
        if missing > 0 {
            warnings.push(format!(
                "member {id} lacks {missing} history segments and is fetching them from the other \
                 members"
            ));
        }
        if replaced > 0 {
            warnings.push(format!(
                "member {id} has fetched {replaced} history segments from other members since it \
                 started, because they were missing or damaged; check its disk"
            ));
        }
        if member.account.as_ref().is_some_and(|account| account.blank) {
            warnings.push(format!(
                "member {id} started without a log and is being brought up to date"
            ));
        }
    }
    if newest.changing {
        warnings.push(
            "a membership change is incomplete; repeat the command that started the change"
                .to_owned(),
        );
    }
    if count > 1 && count % 2 == 0 {
        warnings.push(format!(
            "{count} voters tolerate no more failures than {}: add or remove one",
            count - 1
        ));
    }
    let accounts = view.members.iter().filter_map(|m| m.account.as_ref());
    let builds: BTreeSet<&str> = accounts.map(|account| account.build.as_str()).collect();
    if builds.len() > 1 {
        let builds = builds.into_iter().collect::<Vec<_>>().join(", ");
        warnings.push(format!("members run different builds: {builds}"));
    }
    warnings
}

#[cfg(test)]
mod tests;
