//! The replicated state machine as ledger: every change is a command that the state machine accepts or refuses. Solver
//! input is derived from the events of the state machine as in a control (`control/view`).

use super::{
    LiveError,
    ledger::{Ledger, Power, VclusterChanges, delta_of},
};
use crate::cluster::{Cluster, ClusterError, Host};
use lattice_placement::{ClusterView, Delta, NodeFacts};
use lattice_quorum_state::{MAX_FORWARD_MS, MAX_LEASE_MS, State};
use lattice_quorum_types::{
    AllocationId, Applied, Command, Envelope, Event, NodeId, Outcome, ProjectPath, Refusal,
    UnixMillis, VclusterName,
    allocation::RankExit,
    command::{ExpectedNode, Fence, Principal, Privilege as Role, RankReport, SCHEMA},
    event::EventKind,
    id::LeaseName,
    limit::Limits,
    node::{Lifecycle, Node},
    spec::AllocationSpec,
};
use lattice_view::{BaseView, Changes, ViewNode, full_input};
use std::{collections::BTreeMap, sync::Arc};

const ADMIN: &str = "replay";
const SERVICE: &str = "service:control/replay";
/// Limit of a project without one: more nodes than any machine has.
const NO_LIMIT: u64 = 1 << 60;
/// Remaining time at which a lease is renewed, milliseconds.
const RENEW_BEFORE_MS: u64 = 1000;
/// Number of commands after which records of ended allocations are removed from the state, to save memory.
const DROP_ENDED_EVERY: u64 = 4096;

/// A node of the cluster's description, with its committed record.
#[derive(Clone, Default)]
struct DescribedNode {
    record: Option<Node>,
    facts: NodeFacts,
}

impl ViewNode for DescribedNode {
    fn unknown(_: NodeId) -> Self {
        Self::default()
    }

    fn record(&self) -> Option<&Node> {
        self.record.as_ref()
    }

    fn set_record(&mut self, record: Node) -> Option<Node> {
        self.record.replace(record)
    }

    fn facts(&self) -> NodeFacts {
        self.facts.clone()
    }
}

/// The replicated state machine as ledger.
pub(super) struct Quorum<'a> {
    cluster: &'a Cluster,
    state: State,
    /// View of the state as a control builds it, updated with each event.
    view: BaseView<DescribedNode>,
    /// Changes of `view` since the schedulers' last update.
    changes: Changes,
    has_changes: bool,
    index: u64,
    news: VclusterChanges,
    power: Power<'a>,
    leases: BTreeMap<VclusterName, (Fence, UnixMillis)>,
    service: Principal,
    /// Lease without a purpose of its own: its renewal advances the state time.
    clock_lease: LeaseName,
}

impl<'a> Quorum<'a> {
    pub(super) fn new(
        cluster: &'a Cluster,
        more: Vec<ProjectPath>,
        now: UnixMillis,
    ) -> Result<Self, LiveError> {
        let principal = |name: &str, power| Principal {
            name: name.to_owned(),
            privilege: power,
        };
        let state = State::with_policy(cluster.limit_policy);
        let described = |host: &Host| DescribedNode {
            record: None,
            facts: host.facts.clone(),
        };
        let nodes = cluster.nodes.iter();
        let nodes = nodes.map(|(id, host)| (id.clone(), Arc::new(described(host))));
        let seen = BaseView {
            system: state.system(),
            nodes: Arc::new(nodes.collect()),
            ..BaseView::default()
        };
        let mut quorum = Self {
            cluster,
            changes: Changes::since(&seen),
            has_changes: false,
            view: seen,
            state,
            index: 0,
            news: VclusterChanges::new(),
            power: Power::new(cluster),
            leases: BTreeMap::new(),
            service: principal(SERVICE, Role::Service),
            clock_lease: LeaseName::new("replay").map_err(ClusterError::from)?,
        };
        let admin = principal(ADMIN, Role::Admin);
        let open = Limits {
            max_nodes: None,
            max_concurrent_allocations: None,
        };
        let known = cluster
            .projects
            .iter()
            .map(|(path, limits)| (path.clone(), *limits));
        for (path, limits) in known.chain(more.into_iter().map(|path| (path, open))) {
            // Limits must be finite, and the limits of children must not add up to more than the parent's. Each level
            // below gets a much lower limit, which is still never reached.
            let below = path.depth().saturating_sub(1).min(3) * 10;
            let limits = Limits {
                max_nodes: limits.max_nodes.or(Some(NO_LIMIT >> below)),
                ..limits
            };
            quorum.set_up(&admin, new_project(path, limits), now)?;
        }
        for (node, host) in &cluster.nodes {
            let register = Command::RegisterNode {
                node: node.clone(),
                vcluster: host.vcluster.clone(),
            };
            quorum.set_up(&admin, register, now)?;
            let ready = Command::SetLifecycle {
                node: node.clone(),
                lifecycle: Lifecycle::Ready,
            };
            quorum.set_up(&admin, ready, now)?;
        }
        Ok(quorum)
    }

    fn set_up(
        &mut self,
        admin: &Principal,
        command: Command,
        at: UnixMillis,
    ) -> Result<(), LiveError> {
        let applied = self.apply(admin.clone(), None, command, at);
        applied.map(drop).map_err(LiveError::Setup)
    }

    fn apply(
        &mut self,
        principal: Principal,
        fence: Option<Fence>,
        command: Command,
        at: UnixMillis,
    ) -> Result<Outcome, Refusal> {
        self.catch_up(at)?;
        self.index += 1;
        let envelope = Envelope {
            schema: SCHEMA,
            principal,
            key: None,
            at,
            fence,
            command,
        };
        let Applied {
            outcome, events, ..
        } = self.state.apply(self.index, &envelope)?;
        for event in &events {
            self.follow(event);
        }
        if self.index.is_multiple_of(DROP_ENDED_EVERY) {
            drop(self.state.take_sealed());
        }
        Ok(outcome)
    }

    /// Returns the lease with which a vCluster's scheduler acts; renews a lease that is about to expire.
    fn fence(&mut self, vcluster: &VclusterName, at: UnixMillis) -> Result<Fence, Refusal> {
        if let Some((fence, until)) = self.leases.get(vcluster)
            && at.after(RENEW_BEFORE_MS) < *until
        {
            return Ok(fence.clone());
        }
        let lease = LeaseName::of_scheduler(vcluster);
        let epoch = self.acquire(&lease, at)?;
        let fence = Fence { lease, epoch };
        self.leases
            .insert(vcluster.clone(), (fence.clone(), at.after(MAX_LEASE_MS)));
        Ok(fence)
    }

    fn acquire(&mut self, lease: &LeaseName, at: UnixMillis) -> Result<u64, Refusal> {
        let command = Command::AcquireLease {
            lease: lease.clone(),
            holder: SERVICE.to_owned(),
            ttl_ms: MAX_LEASE_MS,
        };
        self.apply(self.service.clone(), None, command, at)?;
        Ok(self
            .state
            .lease(lease.as_str())
            .map_or(0, |(epoch, _)| epoch))
    }

    /// Advances the state time in steps after a long time without events: one command advances it by at most a day.
    fn catch_up(&mut self, at: UnixMillis) -> Result<(), Refusal> {
        let is_new = self.state.now() == UnixMillis(0);
        while !is_new && self.state.now().after(MAX_FORWARD_MS) < at {
            let step = self.state.now().after(MAX_FORWARD_MS);
            self.acquire(&self.clock_lease.clone(), step)?;
        }
        Ok(())
    }

    fn follow(&mut self, event: &Event) {
        if let EventKind::Node { record } = &event.kind {
            self.power
                .draw(&record.id, record.holder.is_some(), &mut self.news);
        }
        let event = self.view.expanded(event);
        (self.view.revision, self.view.at) = (event.revision, event.at);
        let former = self.view.apply(&event);
        self.changes.note(&event, former);
        self.has_changes = true;
    }
}

fn new_project(path: ProjectPath, limits: Limits) -> Command {
    Command::CreateProject {
        path,
        limits: Some(limits),
        admins: Vec::new(),
        description: String::new(),
    }
}

impl Ledger for Quorum<'_> {
    const PLANNERS_FOLLOW: bool = false;

    fn submit(
        &mut self,
        user: &str,
        spec: AllocationSpec,
        at: UnixMillis,
    ) -> Result<AllocationId, Refusal> {
        let user = Principal {
            name: user.to_owned(),
            privilege: Role::User,
        };
        let spec = Box::new(spec);
        match self.apply(user, None, Command::Submit { spec }, at)? {
            Outcome::Submitted { id } => Ok(id),
            // A submit has no other outcome.
            _ => Ok(AllocationId(0)),
        }
    }

    fn assign(
        &mut self,
        id: AllocationId,
        nodes: Vec<ExpectedNode>,
        vcluster: &VclusterName,
        at: UnixMillis,
    ) -> Result<(), Refusal> {
        let fence = self.fence(vcluster, at)?;
        let command = Command::Assign { id, nodes };
        self.apply(self.service.clone(), Some(fence), command, at)
            .map(drop)
    }

    fn end(&mut self, id: AllocationId, at: UnixMillis) -> Result<(), Refusal> {
        let held = self
            .state
            .allocation(id)
            .ok_or(Refusal::UnknownAllocation { id })?;
        let attempt = held.attempt;
        let nodes: Vec<NodeId> = held.ranks.iter().map(|rank| rank.node.clone()).collect();
        for node in nodes {
            let report = RankReport::Ended {
                at,
                exit: RankExit::Exited { code: 0 },
                fault: None,
            };
            let command = Command::Report {
                id,
                attempt,
                node,
                report,
            };
            self.apply(self.service.clone(), None, command, at)?;
        }
        Ok(())
    }

    fn view(&self, vcluster: &VclusterName) -> ClusterView {
        ClusterView {
            revision: self.state.revision(),
            power: self.power.domains().collect(),
            ..full_input(&self.view, vcluster, 0)
        }
    }

    fn take_changes(&mut self) -> VclusterChanges {
        let mut news = std::mem::take(&mut self.news);
        if std::mem::take(&mut self.has_changes) {
            let changes = std::mem::replace(&mut self.changes, Changes::since(&self.view));
            for vcluster in self.cluster.vclusters.keys() {
                let delta = delta_of(&mut news, vcluster);
                let power = std::mem::take(&mut delta.power);
                *delta = Delta {
                    revision: self.state.revision(),
                    power,
                    ..changes.delta(&self.view, vcluster, 0)
                };
            }
        }
        news
    }

    fn now(&self) -> UnixMillis {
        self.state.now()
    }

    fn commands(&self) -> u64 {
        self.index
    }
}
