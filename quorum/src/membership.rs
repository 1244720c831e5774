//! Membership changes at runtime, one step at a time, made by the leader alone. A step takes a few seconds at most and
//! is idempotent, so repeating an interrupted change completes it. See `../0006-membership.md`.

pub(crate) mod formation;
pub(crate) mod overview;

use crate::{leadership::handover, member::Member, raft::types::RaftMetrics, service::Service};
use lattice_mesh::{ExpectedIdentity, Mesh, Role};
use lattice_quorum_types::{
    Command, Envelope, VoterId,
    audit::AuditAction,
    command::{Principal, SCHEMA},
    membership::{
        ChangeProgress, ChangeQuorum, ChangeRefusal, GetMember, Incarnation, MemberReport,
        MembershipChange,
    },
    wire::Unavailable,
};
use openraft::{
    BasicNode, ChangeMembers,
    error::{ChangeMembershipError, ClientWriteError, RaftError},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// Longest wait of one step for a new member to catch up.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait of one step for a commit. A commit in progress continues after the wait.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout for the report of a new member, including the dial.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
/// Silence of the leader after which a member checks whether it has been removed.
const LONG_SILENCE: Duration = Duration::from_secs(2);
/// Interval between two such checks.
const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reason why a step did not complete.
enum StepStopped {
    Refused(ChangeRefusal),
    Unavailable(Unavailable),
    /// Neither complete nor refused: the caller repeats the request.
    Incomplete(ChangeProgress),
}

impl From<ChangeRefusal> for StepStopped {
    fn from(refused: ChangeRefusal) -> Self {
        Self::Refused(refused)
    }
}
impl From<Unavailable> for StepStopped {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}

/// Current membership.
struct CurrentMembership {
    /// Voters; two sets during a change.
    voter_sets: Vec<BTreeSet<VoterId>>,
    /// All members with their addresses, including learners.
    nodes: BTreeMap<VoterId, String>,
}

impl CurrentMembership {
    fn of(member: &Member) -> Self {
        let metrics = member.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        Self {
            voter_sets: membership.get_joint_config().clone(),
            nodes: membership
                .nodes()
                .map(|(id, node)| (*id, node.addr.clone()))
                .collect(),
        }
    }
    fn present_voters(&self) -> BTreeSet<VoterId> {
        self.voter_sets.first().cloned().unwrap_or_default()
    }
    /// Voters after the change in progress, or the present ones without a change.
    fn target_voters(&self) -> BTreeSet<VoterId> {
        self.voter_sets.last().cloned().unwrap_or_default()
    }
    fn is_changing(&self) -> bool {
        self.voter_sets.len() > 1
    }
    fn learners(&self) -> impl Iterator<Item = VoterId> {
        self.nodes
            .keys()
            .copied()
            .filter(|id| !self.voter_sets.iter().any(|config| config.contains(id)))
    }
    /// Refuses while a change to other voters than `wanted` is in progress.
    fn check_no_other(&self, wanted: &BTreeSet<VoterId>) -> Result<(), ChangeRefusal> {
        if !self.is_changing() || self.target_voters() == *wanted {
            return Ok(());
        }
        let what = format!(
            "the voters are changing from {} to {}",
            list(&self.present_voters()),
            list(&self.target_voters())
        );
        Err(ChangeRefusal::UnderWay { what })
    }
}

fn list(ids: &BTreeSet<VoterId>) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(", ")
}

/// One step of a change, with the principal that requested it.
struct Step<'a> {
    service: &'a Service,
    member: &'a Arc<Member>,
    mesh: Mesh,
    by: &'a Principal,
    key: &'a str,
}

/// Performs one step of a change.
pub(crate) async fn change(
    service: &Service,
    request: &ChangeQuorum,
) -> Result<Result<ChangeProgress, ChangeRefusal>, Unavailable> {
    let member = &service.member;
    let mesh = service.mesh.upgrade().ok_or(Unavailable::NoMajority)?;
    // Only a confirmed leader has the current membership.
    service.reads.barrier().await?;
    let Ok(_one) = member.membership_lock.try_lock() else {
        return Ok(Ok(ChangeProgress::UnderWay));
    };
    let step = Step {
        service,
        member,
        mesh,
        by: &request.by,
        key: &request.key,
    };
    let done = match &request.change {
        MembershipChange::Add { id, addr } => step.add(*id, *addr).await,
        MembershipChange::Remove { id, force, reason } => step.remove(*id, *force, reason).await,
        MembershipChange::StepDown { to } => step.step_down(*to).await,
    };
    match done {
        Ok(progress) | Err(StepStopped::Incomplete(progress)) => Ok(Ok(progress)),
        Err(StepStopped::Refused(refused)) => Ok(Err(refused)),
        Err(StepStopped::Unavailable(unavailable)) => Err(unavailable),
    }
}

impl Step<'_> {
    fn done(&self, already: bool) -> ChangeProgress {
        let metrics = self.member.metrics();
        let leader = metrics.borrow().current_leader;
        ChangeProgress::Done { already, leader }
    }

    /// Records the action in the audit log before the step performs it: once per request, even if the request is
    /// repeated.
    async fn record_in_audit(&self, action: AuditAction) -> Result<(), StepStopped> {
        let envelope = Envelope {
            schema: SCHEMA,
            principal: self.by.clone(),
            key: Some(format!("{}/{}", self.key, action.word())),
            at: self.member.clock.now(),
            fence: None,
            command: Command::NoteQuorum {
                action: Box::new(action),
            },
        };
        let proposals = &self.service.proposals;
        let mut replies = proposals.submit(self.member, vec![envelope]).await?;
        match replies.pop() {
            Some(Ok(_)) => Ok(()),
            Some(Err(refusal)) => Err(ChangeRefusal::NotAllowed {
                reason: refusal.to_string(),
            }
            .into()),
            None => Err(Unavailable::OutcomeUnknown.into()),
        }
    }

    async fn add(&self, id: VoterId, addr: SocketAddr) -> Result<ChangeProgress, StepStopped> {
        let standing = CurrentMembership::of(self.member);
        let mut wanted = standing.present_voters();
        wanted.insert(id);
        standing.check_no_other(&wanted)?;
        match standing.nodes.get(&id) {
            Some(known) if *known != addr.to_string() => {
                let addr = known.clone();
                return Err(ChangeRefusal::IdTaken { id, addr }.into());
            }
            Some(_) if !standing.is_changing() && standing.present_voters().contains(&id) => {
                return Ok(self.done(true));
            }
            Some(_) => {}
            None => {
                self.check_new(&standing, id, addr)?;
                self.check_newcomer(id, addr).await?;
                self.record_in_audit(AuditAction::MemberAdded {
                    member: id,
                    addr: addr.to_string(),
                })
                .await?;
                let node = BasicNode::new(addr);
                let learner = ChangeMembers::AddNodes(BTreeMap::from([(id, node)]));
                self.commit(learner, true).await?;
            }
        }
        self.wait_until_caught_up(id).await?;
        let voter = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
        self.commit(voter, true).await?;
        tracing::info!(member = id, %addr, by = %self.by.name, "member added");
        Ok(self.done(false))
    }

    /// Checks that no member has the address, that the configuration has no other address for the number, and that no
    /// other member is being added.
    fn check_new(
        &self,
        standing: &CurrentMembership,
        id: VoterId,
        addr: SocketAddr,
    ) -> Result<(), ChangeRefusal> {
        let text = addr.to_string();
        let mut known = standing.nodes.iter();
        if let Some((other, _)) = known.find(|(_, known)| **known == text) {
            let (addr, id) = (text, *other);
            return Err(ChangeRefusal::AddressTaken { addr, id });
        }
        let configured = self.member.addresses.all();
        if let Some(configured) = configured.get(&id).filter(|known| **known != addr) {
            let addr = configured.to_string();
            return Err(ChangeRefusal::AddressConfigured { id, addr });
        }
        match standing.learners().next() {
            Some(other) => {
                let what = format!("member {other} is being added");
                Err(ChangeRefusal::UnderWay { what })
            }
            None => Ok(()),
        }
    }

    /// Checks by its certificate and its data that the process at `addr` may become a member.
    async fn check_newcomer(&self, id: VoterId, addr: SocketAddr) -> Result<(), ChangeRefusal> {
        let expect = ExpectedIdentity::exactly(Role::Quorum, id.to_string());
        let peer = self.mesh.peer(addr, expect);
        let answer = peer.call(&GetMember, QUERY_TIMEOUT).await;
        let account = answer.map_err(|error| ChangeRefusal::NotReached {
            id,
            addr: addr.to_string(),
            reason: error.to_string(),
            cluster: self.member.incarnation.cluster().to_owned(),
        })?;
        let ours = self.member.incarnation.current();
        if may_join(&account, ours, self.member.id) {
            return Ok(());
        }
        Err(ChangeRefusal::OtherHistory {
            id,
            cluster: account.cluster,
            theirs: account.incarnation,
            ours,
        })
    }

    /// Waits until the new member has the log entries that exist now.
    async fn wait_until_caught_up(&self, id: VoterId) -> Result<(), StepStopped> {
        let mut metrics = self.member.metrics();
        let of = metrics.borrow().last_log_index.unwrap_or_default();
        let matched = |m: &RaftMetrics| {
            let matched = m.replication.as_ref().and_then(|all| *all.get(&id)?);
            matched.map(|id| id.index)
        };
        let reached = metrics.wait_for(|m| matched(m).is_some_and(|at| at >= of));
        if let Ok(Ok(_)) = timeout(CATCH_UP_TIMEOUT, reached).await {
            return Ok(());
        }
        if self.member.leading_term().is_none() {
            return Err(self.member.not_leader().into());
        }
        let at = matched(&metrics.borrow()).unwrap_or_default();
        let fault = self.member.contacts.of(id).fault();
        Err(StepStopped::Incomplete(ChangeProgress::CatchingUp {
            at,
            of,
            fault,
        }))
    }

    async fn remove(
        &self,
        id: VoterId,
        force: bool,
        reason: &str,
    ) -> Result<ChangeProgress, StepStopped> {
        let standing = CurrentMembership::of(self.member);
        let mut wanted = standing.present_voters();
        wanted.remove(&id);
        standing.check_no_other(&wanted)?;
        let Some(addr) = standing.nodes.get(&id).cloned() else {
            return Ok(self.done(true));
        };
        let votes = standing
            .voter_sets
            .iter()
            .any(|config| config.contains(&id));
        if votes {
            self.check_remaining_majority(id, &wanted, force).await?;
            if id == self.member.id {
                // This member records nothing: its successor performs and records the removal.
                handover::step_down(self.member, &self.mesh, None).await?;
                return Err(self.member.not_leader().into());
            }
        }
        let reason = match force {
            true => format!("by force: {reason}"),
            false => reason.to_owned(),
        };
        self.record_in_audit(AuditAction::MemberRemoved {
            member: id,
            addr,
            reason,
        })
        .await?;
        let ids = BTreeSet::from([id]);
        let change = match votes {
            true => ChangeMembers::RemoveVoters(ids),
            false => ChangeMembers::RemoveNodes(ids),
        };
        self.commit(change, false).await?;
        tracing::info!(member = id, by = %self.by.name, "member removed");
        Ok(self.done(false))
    }

    /// Refuses to remove the last voter. Checks that a majority of the remaining voters answers now, unless `force` is
    /// set. A change without that majority could neither complete nor be undone.
    async fn check_remaining_majority(
        &self,
        id: VoterId,
        rest: &BTreeSet<VoterId>,
        force: bool,
    ) -> Result<(), ChangeRefusal> {
        if rest.is_empty() {
            return Err(ChangeRefusal::LastMember { id });
        }
        let voters = self.member.voters();
        let others = rest.iter().filter(|other| **other != self.member.id);
        let addrs = others
            .filter_map(|other| Some((*other, voters.get(other).copied().flatten()?)))
            .collect();
        let answers = overview::request_reports(&self.mesh, &addrs).await;
        let itself = usize::from(rest.contains(&self.member.id));
        let reached = itself + answers.values().filter(|answer| answer.is_ok()).count();
        if reached * 2 > rest.len() || force {
            return Ok(());
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Err(ChangeRefusal::NoMajorityLeft {
            id,
            voters: count(rest.len()),
            reached: count(reached),
        })
    }

    async fn step_down(&self, to: Option<VoterId>) -> Result<ChangeProgress, StepStopped> {
        if to == Some(self.member.id) {
            return Ok(self.done(true));
        }
        let voters: BTreeSet<VoterId> = self.member.voters().into_keys().collect();
        if let Some(id) = to.filter(|id| !voters.contains(id)) {
            let members = list(&voters);
            return Err(ChangeRefusal::NoSuchMember { id, members }.into());
        }
        self.record_in_audit(AuditAction::SteppedDown {
            member: self.member.id,
            to,
        })
        .await?;
        let leader = handover::step_down(self.member, &self.mesh, to).await?;
        Ok(ChangeProgress::Done {
            already: false,
            leader: Some(leader),
        })
    }

    /// Commits the change through Raft. The commit runs in a task of its own: a caller that disconnects must not leave
    /// half a change.
    async fn commit(
        &self,
        change: ChangeMembers<VoterId, BasicNode>,
        retain: bool,
    ) -> Result<(), StepStopped> {
        let raft = self.member.raft.clone();
        let committing = tokio::spawn(async move { raft.change_membership(change, retain).await });
        let committed = match timeout(COMMIT_TIMEOUT, committing).await {
            Ok(Ok(committed)) => committed,
            Ok(Err(_)) => return Err(Unavailable::NoMajority.into()),
            Err(_) => return Err(StepStopped::Incomplete(ChangeProgress::UnderWay)),
        };
        match committed {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                Err(self.member.not_leader().into())
            }
            Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(
                ChangeMembershipError::InProgress(_),
            ))) => Err(StepStopped::Incomplete(ChangeProgress::UnderWay)),
            Err(error) => Err(ChangeRefusal::NotCommitted {
                reason: error.to_string(),
            }
            .into()),
        }
    }
}

/// Checks that a process may be brought up to date: it belongs to no incarnation yet, or its data is from this history.
/// The latter holds after an interrupted addition, and for a former member.
fn may_join(account: &MemberReport, ours: Incarnation, leader: VoterId) -> bool {
    if account.incarnation.is_none() {
        return true;
    }
    // A process that founded a cluster of its own does not have this leader among its members.
    account.incarnation == ours && account.members.iter().any(|known| known.id == leader)
}

/// Checks regularly whether this member has been removed. A removed member no longer receives messages from the leader,
/// and would otherwise campaign forever.
pub(crate) async fn watch_removal(member: Arc<Member>, mesh: Mesh) {
    loop {
        sleep(REMOVAL_CHECK_INTERVAL).await;
        let silent =
            member.leading_term().is_none() && member.leader_contact.silent_for(LONG_SILENCE);
        let own = overview::own_report(&member);
        if !silent || own.members.is_empty() {
            if member.set_removed(false) {
                tracing::info!(
                    member = member.id,
                    "this member belongs to the quorum again"
                );
            }
            continue;
        }
        let mut addrs = member.addresses.all();
        addrs.extend(
            own.members
                .iter()
                .filter_map(|known| Some((known.id, known.addr.parse().ok()?))),
        );
        addrs.remove(&member.id);
        let answers = overview::request_reports(&mesh, &addrs).await;
        let removal_source = answers
            .into_values()
            .flatten()
            .find(|a| reports_removal(a, &own));
        let was = member.set_removed(removal_source.is_some());
        if let Some(removal_source) = removal_source.filter(|_| !was) {
            tracing::warn!(
                member = member.id,
                reported_by = removal_source.id,
                "this member was removed from the quorum; elections disabled, it can be stopped"
            );
        }
    }
}

/// Returns whether another member's report shows that this member was removed.
fn reports_removal(theirs: &MemberReport, own: &MemberReport) -> bool {
    theirs.incarnation == own.incarnation
        && theirs.leader.is_some()
        && theirs.membership_index > own.membership_index
        && !theirs.changing
        && theirs.members.iter().all(|known| known.id != own.id)
}
