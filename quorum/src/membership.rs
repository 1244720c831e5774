//! Changing who the members are while they run, one step at a time and by the leader alone. A step
//! takes some seconds at most, and each can be asked for again: what was done is not done twice, so
//! who repeats a change that was cut short finishes it. See `../0006-membership.md`.

use crate::{handover, member::Member, overview, service::Service, types::RaftMetrics};
use lattice_mesh::{Expect, Mesh, Role};
use lattice_quorum_types::{
    Command, Envelope, VoterId,
    audit::AuditAction,
    command::{Principal, SCHEMA},
    membership::{
        Change, ChangeQuorum, ChangeRefused, GetMember, Incarnation, MemberAccount, Progress,
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

/// How long one step may wait for a new member to catch up.
const CATCH_UP: Duration = Duration::from_secs(3);
/// How long one step may wait for a commit. What is not committed by then goes on by itself.
const COMMIT: Duration = Duration::from_secs(3);
/// How long a new member may take to say who it is, dialling included.
const ASK_TIMEOUT: Duration = Duration::from_secs(3);
/// A member that hears no leader for so long asks whether it still is one.
const LONG_SILENCE: Duration = Duration::from_secs(2);
/// Between two such questions.
const PERIOD: Duration = Duration::from_secs(1);

/// Why a step did not come to its end.
enum Stop {
    Refused(ChangeRefused),
    Unavailable(Unavailable),
    /// Not done and not refused: ask again.
    Later(Progress),
}

impl From<ChangeRefused> for Stop {
    fn from(refused: ChangeRefused) -> Self {
        Self::Refused(refused)
    }
}
impl From<Unavailable> for Stop {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}

/// The members as they stand.
struct Standing {
    /// The voters; two sets while they change.
    configs: Vec<BTreeSet<VoterId>>,
    /// Everybody with an address, learners included.
    nodes: BTreeMap<VoterId, String>,
}

impl Standing {
    fn of(member: &Member) -> Self {
        let metrics = member.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        Self {
            configs: membership.get_joint_config().clone(),
            nodes: membership
                .nodes()
                .map(|(id, node)| (*id, node.addr.clone()))
                .collect(),
        }
    }
    fn before(&self) -> BTreeSet<VoterId> {
        self.configs.first().cloned().unwrap_or_default()
    }
    /// The voters as they are, or will be once the change under way is done.
    fn goal(&self) -> BTreeSet<VoterId> {
        self.configs.last().cloned().unwrap_or_default()
    }
    fn is_changing(&self) -> bool {
        self.configs.len() > 1
    }
    fn learners(&self) -> impl Iterator<Item = VoterId> {
        self.nodes
            .keys()
            .copied()
            .filter(|id| !self.configs.iter().any(|config| config.contains(id)))
    }
    /// Refuses while another change than the one to `wanted` stands half way.
    fn check_no_other(&self, wanted: &BTreeSet<VoterId>) -> Result<(), ChangeRefused> {
        if !self.is_changing() || self.goal() == *wanted {
            return Ok(());
        }
        let what = format!(
            "the voters are changing from {} to {}",
            list(&self.before()),
            list(&self.goal())
        );
        Err(ChangeRefused::UnderWay { what })
    }
}

fn list(ids: &BTreeSet<VoterId>) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(", ")
}

/// One step, on behalf of whom.
struct Step<'a> {
    service: &'a Service,
    member: &'a Arc<Member>,
    mesh: Mesh,
    by: &'a Principal,
    key: &'a str,
}

/// Does one step of a change.
pub(crate) async fn change(
    service: &Service,
    request: &ChangeQuorum,
) -> Result<Result<Progress, ChangeRefused>, Unavailable> {
    let member = &service.member;
    let mesh = service.mesh.upgrade().ok_or(Unavailable::NoMajority)?;
    // Only a leader that still leads knows who the members are.
    service.reads.barrier().await?;
    let Ok(_one) = member.changing.try_lock() else {
        return Ok(Ok(Progress::UnderWay));
    };
    let step = Step {
        service,
        member,
        mesh,
        by: &request.by,
        key: &request.key,
    };
    let done = match &request.change {
        Change::Add { id, addr } => step.add(*id, *addr).await,
        Change::Remove { id, force, reason } => step.remove(*id, *force, reason).await,
        Change::StepDown { to } => step.step_down(*to).await,
    };
    match done {
        Ok(progress) | Err(Stop::Later(progress)) => Ok(Ok(progress)),
        Err(Stop::Refused(refused)) => Ok(Err(refused)),
        Err(Stop::Unavailable(unavailable)) => Err(unavailable),
    }
}

impl Step<'_> {
    fn done(&self, already: bool) -> Progress {
        let metrics = self.member.metrics();
        let leader = metrics.borrow().current_leader;
        Progress::Done { already, leader }
    }

    /// Writes down what is about to be done. Once for each request, however often it is repeated.
    async fn note(&self, action: AuditAction) -> Result<(), Stop> {
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
            Some(Err(refusal)) => Err(ChangeRefused::NotAllowed {
                reason: refusal.to_string(),
            }
            .into()),
            None => Err(Unavailable::OutcomeUnknown.into()),
        }
    }

    async fn add(&self, id: VoterId, addr: SocketAddr) -> Result<Progress, Stop> {
        let standing = Standing::of(self.member);
        let mut wanted = standing.before();
        wanted.insert(id);
        standing.check_no_other(&wanted)?;
        match standing.nodes.get(&id) {
            Some(known) if *known != addr.to_string() => {
                let addr = known.clone();
                return Err(ChangeRefused::IdTaken { id, addr }.into());
            }
            Some(_) if !standing.is_changing() && standing.before().contains(&id) => {
                return Ok(self.done(true));
            }
            Some(_) => {}
            None => {
                self.check_new(&standing, id, addr)?;
                self.check_newcomer(id, addr).await?;
                self.note(AuditAction::MemberAdded {
                    member: id,
                    addr: addr.to_string(),
                })
                .await?;
                let node = BasicNode::new(addr);
                let learner = ChangeMembers::AddNodes(BTreeMap::from([(id, node)]));
                self.commit(learner, true).await?;
            }
        }
        self.caught_up(id).await?;
        let voter = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
        self.commit(voter, true).await?;
        tracing::info!(member = id, %addr, by = %self.by.name, "a member was added");
        Ok(self.done(false))
    }

    /// Whether number and address are free.
    fn check_new(
        &self,
        standing: &Standing,
        id: VoterId,
        addr: SocketAddr,
    ) -> Result<(), ChangeRefused> {
        let text = addr.to_string();
        let mut known = standing.nodes.iter();
        if let Some((other, _)) = known.find(|(_, known)| **known == text) {
            let (addr, id) = (text, *other);
            return Err(ChangeRefused::AddressTaken { addr, id });
        }
        let configured = self.member.addresses.all();
        if let Some(configured) = configured.get(&id).filter(|known| **known != addr) {
            let addr = configured.to_string();
            return Err(ChangeRefused::AddressConfigured { id, addr });
        }
        match standing.learners().next() {
            Some(other) => {
                let what = format!("member {other} is being added");
                Err(ChangeRefused::UnderWay { what })
            }
            None => Ok(()),
        }
    }

    /// Whether who answers there may become a member: by its certificate, and by its data.
    async fn check_newcomer(&self, id: VoterId, addr: SocketAddr) -> Result<(), ChangeRefused> {
        let expect = Expect::exactly(Role::Quorum, id.to_string());
        let peer = self.mesh.peer(addr, expect);
        let answer = peer.call(&GetMember, ASK_TIMEOUT).await;
        let account = answer.map_err(|error| ChangeRefused::NotReached {
            id,
            addr: addr.to_string(),
            reason: error.to_string(),
            cluster: self.member.lineage.cluster().to_owned(),
        })?;
        let ours = self.member.lineage.current();
        if may_join(&account, ours, self.member.id) {
            return Ok(());
        }
        Err(ChangeRefused::OtherHistory {
            id,
            cluster: account.cluster,
            theirs: account.incarnation,
            ours,
        })
    }

    /// Waits until the new member has what there is now.
    async fn caught_up(&self, id: VoterId) -> Result<(), Stop> {
        let mut metrics = self.member.metrics();
        let of = metrics.borrow().last_log_index.unwrap_or_default();
        let matched = |m: &RaftMetrics| {
            let matched = m.replication.as_ref().and_then(|all| *all.get(&id)?);
            matched.map(|id| id.index)
        };
        let reached = metrics.wait_for(|m| matched(m).is_some_and(|at| at >= of));
        if let Ok(Ok(_)) = timeout(CATCH_UP, reached).await {
            return Ok(());
        }
        if self.member.leads().is_none() {
            return Err(self.member.not_leader().into());
        }
        let at = matched(&metrics.borrow()).unwrap_or_default();
        let fault = self.member.contacts.of(id).fault();
        Err(Stop::Later(Progress::CatchingUp { at, of, fault }))
    }

    async fn remove(&self, id: VoterId, force: bool, reason: &str) -> Result<Progress, Stop> {
        let standing = Standing::of(self.member);
        let mut wanted = standing.before();
        wanted.remove(&id);
        standing.check_no_other(&wanted)?;
        let Some(addr) = standing.nodes.get(&id).cloned() else {
            return Ok(self.done(true));
        };
        let votes = standing.configs.iter().any(|config| config.contains(&id));
        if votes {
            self.check_rest(id, &wanted, force).await?;
            if id == self.member.id {
                // It writes nothing down: who leads then does all of it.
                handover::step_down(self.member, &self.mesh, None).await?;
                return Err(self.member.not_leader().into());
            }
        }
        let reason = match force {
            true => format!("by force: {reason}"),
            false => reason.to_owned(),
        };
        self.note(AuditAction::MemberRemoved {
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
        tracing::info!(member = id, by = %self.by.name, "a member was removed");
        Ok(self.done(false))
    }

    /// Whether those that are left are a majority without `id`. They are asked now: a change that
    /// begins without them could neither be finished nor undone.
    async fn check_rest(
        &self,
        id: VoterId,
        rest: &BTreeSet<VoterId>,
        force: bool,
    ) -> Result<(), ChangeRefused> {
        if rest.is_empty() {
            return Err(ChangeRefused::LastMember { id });
        }
        let voters = self.member.voters();
        let others = rest.iter().filter(|other| **other != self.member.id);
        let whom = others
            .filter_map(|other| Some((*other, voters.get(other).copied().flatten()?)))
            .collect();
        let answers = overview::ask(&self.mesh, &whom).await;
        let itself = usize::from(rest.contains(&self.member.id));
        let reached = itself + answers.values().filter(|answer| answer.is_ok()).count();
        if reached * 2 > rest.len() || force {
            return Ok(());
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Err(ChangeRefused::NoMajorityLeft {
            id,
            voters: count(rest.len()),
            reached: count(reached),
        })
    }

    async fn step_down(&self, to: Option<VoterId>) -> Result<Progress, Stop> {
        if to == Some(self.member.id) {
            return Ok(self.done(true));
        }
        let voters: BTreeSet<VoterId> = self.member.voters().into_keys().collect();
        if let Some(id) = to.filter(|id| !voters.contains(id)) {
            let members = list(&voters);
            return Err(ChangeRefused::NoSuchMember { id, members }.into());
        }
        self.note(AuditAction::SteppedDown {
            member: self.member.id,
            to,
        })
        .await?;
        let leader = handover::step_down(self.member, &self.mesh, to).await?;
        Ok(Progress::Done {
            already: false,
            leader: Some(leader),
        })
    }

    /// Makes Raft change the members. In a task of its own: who asked may go, and half a change must
    /// not stay behind for it.
    async fn commit(
        &self,
        change: ChangeMembers<VoterId, BasicNode>,
        retain: bool,
    ) -> Result<(), Stop> {
        let raft = self.member.raft.clone();
        let committing = tokio::spawn(async move { raft.change_membership(change, retain).await });
        let committed = match timeout(COMMIT, committing).await {
            Ok(Ok(committed)) => committed,
            Ok(Err(_)) => return Err(Unavailable::NoMajority.into()),
            Err(_) => return Err(Stop::Later(Progress::UnderWay)),
        };
        match committed {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                Err(self.member.not_leader().into())
            }
            Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(
                ChangeMembershipError::InProgress(_),
            ))) => Err(Stop::Later(Progress::UnderWay)),
            Err(error) => Err(ChangeRefused::NotCommitted {
                reason: error.to_string(),
            }
            .into()),
        }
    }
}

/// Whether who gives this account may be brought up to date: it is blank, or its data is of this
/// very history, as it is when an addition was cut short and when it was a member before.
fn may_join(account: &MemberAccount, ours: Incarnation, leader: VoterId) -> bool {
    if account.incarnation.is_none() {
        return true;
    }
    // One that founded a cluster of its own has never heard of this leader.
    account.incarnation == ours && account.members.iter().any(|known| known.id == leader)
}

/// Looks, for as long as it runs, whether this member still is one: who was removed is told nothing
/// any more, and would campaign for ever.
pub(crate) async fn watch_own(member: Arc<Member>, mesh: Mesh) {
    loop {
        sleep(PERIOD).await;
        let silent = member.leads().is_none() && member.heard.silent_for(LONG_SILENCE);
        let own = overview::account(&member);
        if !silent || own.members.is_empty() {
            if member.set_removed(false) {
                tracing::info!(member = member.id, "this member is one again");
            }
            continue;
        }
        let mut whom = member.addresses.all();
        whom.extend(
            own.members
                .iter()
                .filter_map(|known| Some((known.id, known.addr.parse().ok()?))),
        );
        whom.remove(&member.id);
        let answers = overview::ask(&mesh, &whom).await;
        let told = answers
            .into_values()
            .flatten()
            .find(|a| says_removed(a, &own));
        let was = member.set_removed(told.is_some());
        if let Some(told) = told.filter(|_| !was) {
            tracing::warn!(
                member = member.id,
                told_by = told.id,
                "this member was removed from the quorum: it does not campaign, and can be stopped"
            );
        }
    }
}

/// Whether another member's account says that this one is none any more.
fn says_removed(theirs: &MemberAccount, own: &MemberAccount) -> bool {
    theirs.incarnation == own.incarnation
        && theirs.leader.is_some()
        && theirs.membership_index > own.membership_index
        && !theirs.changing
        && theirs.members.iter().all(|known| known.id != own.id)
}
