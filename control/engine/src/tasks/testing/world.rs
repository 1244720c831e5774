//! Core of a control over one copy of the state machine, and one real agent endpoint, `a`.

use super::{
    agent::{self, AgentAnswers},
    id,
    store::SingleCopy,
};
use crate::{
    History, Store, Timings,
    bmc::Readings,
    checkpoint_storage::CheckpointStorage,
    core::{Core, Parts},
    node_records::NodeRecords,
    observed_state,
    preimages::Preimages,
    tasks::{
        node_evidence::NodeAccess,
        scheduler_parts::{PlanningTurns, SchedulerParts},
    },
    usage::UsageLedger,
};
use futures::stream::{self, BoxStream, StreamExt};
use lattice_agent_rpc::{AttemptKey, HistoryPage};
use lattice_conformance::{Class, ClassMark, Digest, NodeDocument};
use lattice_mesh::{
    Authority, Clock as _, Credentials, Identity, Mesh, MeshConfig, Role, Router, SystemClock,
    Validity,
};
use lattice_placement::Liveness;
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Allocation, AllocationId, Applied, Command, Envelope, Outcome, ProjectPath, Refusal, Revision,
    UnixMillis, VclusterName,
    baseline::{
        BaselineDefinition, ClassRule, Constraint, DriftPolicy, Rule, Scalar, SensitivePolicy,
    },
    command::{
        ExpectedNode, Fence, IssuedCertificate, Principal, Privilege, RankReport, SCHEMA,
        TokenGrant,
    },
    id::{BaselineName, LeaseName},
    limit::Limits,
    node::{Lifecycle, Node},
    size,
    spec::{AllocationSpec, Constraints, Requeue, Workload},
    terms::Terms,
    view::{Answer, Query, WatchItem},
    wire::Unavailable,
};
use lattice_view::{PingOutcome, node::JournalPosition};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

pub use super::agent::health;

/// Name of the only node.
pub const NODE: &str = "a";

/// The single copy, with the core that holds the view. [`Self::fold`] updates the view; there is no watch.
#[derive(Default)]
struct WorldStore {
    copy: SingleCopy,
    core: OnceLock<Weak<Core>>,
    reads: Mutex<Vec<Query>>,
    /// Bytes of the longest proposed command.
    longest: AtomicUsize,
}

#[async_trait::async_trait]
impl Store for WorldStore {
    async fn propose(
        &self,
        envelopes: Vec<Envelope>,
    ) -> Result<Vec<Result<Applied, Refusal>>, Unavailable> {
        let longest = envelopes.iter().map(size::encoded_bytes).max().unwrap_or(0);
        self.longest.fetch_max(longest, Ordering::Relaxed);
        self.copy.propose(envelopes).await
    }
    async fn read(&self, query: Query) -> Result<Answer, Unavailable> {
        self.reads.lock().unwrap().push(query.clone());
        let is_revision = query == Query::Revision;
        let answer = self.copy.read(query).await?;
        if is_revision {
            self.fold();
        }
        Ok(answer)
    }
    fn watch(&self, _: Revision) -> BoxStream<'static, WatchItem> {
        stream::pending().boxed()
    }
}

impl WorldStore {
    fn fold(&self) {
        let Answer::Hot(hot) = self.copy.state().query(&Query::Hot) else {
            panic!("another answer")
        };
        let core = self.core.get().and_then(Weak::upgrade).unwrap();
        core.record_contact();
        let Answer::Baselines(baselines) = self.copy.state().query(&Query::Baselines) else {
            panic!("another answer")
        };
        let Answer::Budgets(budgets) = self.copy.state().query(&Query::Budgets) else {
            panic!("another answer")
        };
        let Answer::OnLimits(on_limits) = self.copy.state().query(&Query::OnLimits) else {
            panic!("another answer")
        };
        let facts = self.copy.state().usage_records_head().last;
        core.restart(|view| {
            view.replace(*hot);
            view.replace_baselines(*baselines);
            let named = budgets.into_iter().map(|b| (b.tenant.clone(), Arc::new(b)));
            view.budgets = Arc::new(named.collect());
            view.on_limits = Arc::new(on_limits);
            view.usage_records = facts;
        });
    }
}

pub struct World {
    pub core: Arc<Core>,
    pub history: History,
    pub preimages: Preimages,
    pub readings: Readings,
    pub usage: Arc<UsageLedger>,
    pub checkpoints: Arc<CheckpointStorage>,
    store: Arc<WorldStore>,
    agent: Mesh,
    pub agent_answers: Arc<Mutex<AgentAnswers>>,
    /// Fence of the lease `schedule.default`, which the tests use for every reconciler.
    pub fence: Fence,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// A world with a tenant and the node, which is free, alive and ready under the boot `b1`.
    pub fn new() -> Self {
        Self::with_agent(agent::router)
    }

    /// As [`World::new`], with another agent on the node.
    pub fn with_agent(
        router: impl FnOnce(Arc<Mutex<AgentAnswers>>, Credentials) -> Router,
    ) -> Self {
        let today = Validity::from_now(SystemClock.now(), Duration::from_secs(3_600));
        let authority = Authority::create("test", today).unwrap();
        let mesh = |role, name: &str| {
            let identity = Identity::new("test", role, name).unwrap();
            let credentials = Credentials::issued_by(&authority, &identity, today).unwrap();
            let addr = "127.0.0.1:0".parse().unwrap();
            Mesh::bind(addr, credentials, MeshConfig::default()).unwrap()
        };
        let agent = mesh(Role::Agent, NODE);
        let says = Arc::new(Mutex::new(AgentAnswers::healthy()));
        let signer = Credentials::issued_by(
            &authority,
            &Identity::new("test", Role::Agent, NODE).unwrap(),
            today,
        );
        agent.serve(router(says.clone(), signer.unwrap())).unwrap();
        let store = Arc::new(WorldStore::default());
        let core = Core::new(Parts {
            cluster: "test".to_owned(),
            name: "c1".to_owned(),
            clock: Arc::new(SystemClock),
            store: store.clone(),
            mesh: mesh(Role::Control, "c1"),
            timings: Timings {
                reboot_grace: Duration::ZERO,
                min_exclusion: Duration::ZERO,
                ..Timings::default()
            },
        });
        store.core.set(Arc::downgrade(&core)).unwrap();
        let lease = LeaseName::new("schedule.default").unwrap();
        let mut world = Self {
            core,
            history: History::open(None).unwrap(),
            preimages: Preimages::default(),
            readings: Readings::default(),
            usage: Arc::default(),
            checkpoints: Arc::default(),
            store,
            agent,
            agent_answers: says,
            fence: Fence { lease, epoch: 0 },
        };
        world.set_up();
        world
    }

    /// Sources of the records of nodes.
    pub fn records(&self) -> NodeRecords {
        NodeRecords {
            core: self.core.clone(),
            history: self.history.clone(),
            preimages: self.preimages.clone(),
            readings: self.readings.clone(),
        }
    }

    /// Access to the node's agent and BMC.
    pub fn nodes(&self) -> NodeAccess {
        NodeAccess::new(self.core.clone(), self.readings.clone())
    }

    /// Parts of schedulers that record nothing.
    pub fn scheduler_parts(&self) -> SchedulerParts {
        SchedulerParts {
            core: self.core.clone(),
            decisions: Arc::default(),
            checkpoints: self.checkpoints.clone(),
            metrics_source: None,
            turns: PlanningTurns::default(),
        }
    }

    /// Sets a baseline that requires the NIC firmware 28.41 on the nodes of the given scope.
    pub fn require_firmware(&self, policy: DriftPolicy, scope: BaselineDefinition) {
        let constraint = Constraint {
            key: "nic.*.firmware".to_owned(),
            any_of: vec![Scalar::Text("28.41".to_owned())],
            or_absent: false,
        };
        let rule = ClassRule {
            policy,
            sensitive: SensitivePolicy::Strict,
            rule: Rule::Partial {
                constraints: vec![constraint],
            },
        };
        let definition = BaselineDefinition {
            classes: BTreeMap::from([("nic".to_owned(), rule)]),
            ..scope
        };
        self.admin(Command::SetBaseline {
            name: BaselineName::new("fw").unwrap(),
            definition: Box::new(definition),
            expected_version: None,
        });
        self.fold();
    }

    fn set_up(&mut self) {
        self.admin(Command::CreateProject {
            path: ProjectPath::new("atlas").unwrap(),
            limits: Some(Limits {
                max_nodes: Some(8),
                max_concurrent_allocations: None,
            }),
            admins: Vec::new(),
            description: String::new(),
        });
        let node = id(NODE);
        self.admin(Command::RegisterNode {
            node: node.clone(),
            vcluster: VclusterName::new("default").unwrap(),
        });
        let lifecycle = Lifecycle::Ready;
        self.admin(Command::SetLifecycle { node, lifecycle });
        let lease = self.fence.lease.clone();
        let acquired = self.service(Command::AcquireLease {
            lease,
            holder: "c1".to_owned(),
            ttl_ms: 600_000,
        });
        let Outcome::Leased { epoch, .. } = acquired else {
            panic!("{acquired:?}")
        };
        self.fence.epoch = epoch;
        self.set_marks(BTreeMap::new());
        self.confirm_boot("b1");
    }

    /// Simulates a ping that just found the node alive under this boot.
    pub fn confirm_boot(&self, boot: &str) {
        self.fold();
        self.record_ping_now(Liveness::Alive, boot);
    }

    /// Simulates pings with this result and the boot id `b1`.
    pub fn set_liveness(&self, liveness: Liveness) {
        self.record_ping_now(liveness, "b1");
    }

    fn record_ping_now(&self, liveness: Liveness, boot: &str) {
        self.record_ping(liveness, boot, Instant::now());
    }

    /// Records a simulated ping that was answered at `at`.
    pub fn record_ping_at(&self, boot: &str, at: Instant) {
        self.record_ping(Liveness::Alive, boot, at);
    }

    fn record_ping(&self, liveness: Liveness, boot: &str, at: Instant) {
        let found = PingOutcome {
            liveness,
            reason: None,
            boot: Some((boot.to_owned(), self.core.since_start(at))),
            reply_addr: Some(self.agent.local_addr()),
        };
        observed_state::liveness(&self.core, &BTreeMap::from([(id(NODE), found)]));
    }

    /// Stops the agent and waits until control has noticed.
    pub async fn stop_agent(&self) {
        self.agent.shutdown(Duration::ZERO).await;
        let mesh = self.core.agents.mesh();
        let gone = async {
            while !mesh.connections().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone)
            .await
            .unwrap();
    }

    /// Simulates gossip of these marks for the node.
    pub fn set_marks(&self, marks: BTreeMap<Class, ClassMark>) {
        let seen = lattice_view::GossipedNode {
            marks,
            ..super::seen(1)
        };
        self.set_gossip(seen);
    }

    /// Simulates gossip of this health for the node, independent of the agent's own health answer.
    pub fn set_gossiped_health(&self, health: lattice_placement::Health, codes: &[&str]) {
        let view = self.core.view();
        let known = view.node(&id(NODE)).and_then(|entry| entry.gossip.clone());
        let seen = lattice_view::GossipedNode {
            health,
            health_reasons: codes.iter().map(|&code| code.to_owned()).collect(),
            ..known.unwrap_or_else(|| super::seen(1))
        };
        self.set_gossip(seen);
    }

    fn set_gossip(&self, seen: lattice_view::GossipedNode) {
        let addr = self.agent.local_addr();
        let seen = lattice_view::GossipedNode { addr, ..seen };
        observed_state::cell(&self.core, "c0", BTreeMap::from([(id(NODE), seen)]));
    }

    /// Sets the journal of the node, and gossips its last entry.
    pub fn set_journal(&self, page: HistoryPage) {
        let (journal, seq) = (page.journal, page.last);
        self.agent_answers.lock().unwrap().history = Some(page);
        self.set_gossip(lattice_view::GossipedNode {
            history: Some(JournalPosition { journal, seq }),
            ..super::seen(1)
        });
    }

    /// Simulates that control has fetched the complete first reading of the node.
    pub fn set_first_reading(&self) {
        self.set_first_reading_as(lattice_conformance::Identity::default());
    }

    /// As [`World::set_first_reading`], with this identity of the node.
    pub fn set_first_reading_as(&self, identity: lattice_conformance::Identity) {
        let marks = Class::ALL.into_iter().map(|c| (c, ClassMark::Disabled));
        self.set_marks(marks.collect());
        let document = NodeDocument {
            version: 1,
            node: NODE.to_owned(),
            topology_group: None,
            identity,
            resources: Default::default(),
        };
        let document = (Digest([1; 32]), Arc::new(document));
        observed_state::documents(&self.core, BTreeMap::from([(id(NODE), document)]));
    }

    /// Updates the view from the state.
    pub fn fold(&self) {
        self.store.fold();
    }

    /// Queries made since the last call.
    pub fn reads(&self) -> Vec<Query> {
        std::mem::take(&mut self.store.reads.lock().unwrap())
    }

    /// Bytes of the longest proposed command.
    pub fn longest_proposal(&self) -> usize {
        self.store.longest.load(Ordering::Relaxed)
    }

    /// Simulates a quorum member that enrols another machine under the node's name.
    pub fn take_over_name(&self, issued_at: UnixMillis) {
        let hash = "ab".repeat(32);
        let grant = TokenGrant {
            hash: hash.clone(),
            role: Role::Agent,
            names: None,
            cidrs: Vec::new(),
            uses: 1,
            replace: true,
            expires_at: SystemClock.now().after(600_000),
        };
        self.admin(Command::CreateToken { grant });
        let certificate = IssuedCertificate {
            issued_at,
            expires_at: issued_at.after(86_400_000),
        };
        let command = Command::ConsumeToken {
            hash,
            name: NODE.to_owned(),
            role: Role::Agent,
            from: None,
            replace: true,
            certificate,
        };
        self.apply("service:quorum", Privilege::Service, None, command);
    }

    /// Number of committed commands, whatever their results.
    pub fn commands(&self) -> u64 {
        self.copy().state().last_index()
    }

    /// Copy of the state machine, for the faults that tests cause.
    pub fn copy(&self) -> &SingleCopy {
        &self.store.copy
    }

    /// Simulates another control that takes over the lease; returns the fence of that control.
    pub fn hand_lease_to_other_control(&self) -> Fence {
        let lease = self.fence.lease.clone();
        self.release_lease(&lease, "c1");
        let acquire = Command::AcquireLease {
            lease: lease.clone(),
            holder: "c2".to_owned(),
            ttl_ms: 600_000,
        };
        let acquired = self.apply("service:control/c2", Privilege::Service, None, acquire);
        let Outcome::Leased { epoch, .. } = acquired else {
            panic!("{acquired:?}")
        };
        Fence { lease, epoch }
    }

    /// Simulates a restore of the quorum from a backup of the present state. The lease is acquired again.
    pub fn restore_from_backup(&mut self) {
        self.restore(self.saved());
    }

    /// Copy of the state, for [`Self::restore`].
    pub fn saved(&self) -> State {
        self.copy().saved()
    }

    /// Simulates a restore of the quorum from a backup of this state. The lease is acquired again.
    pub fn restore(&mut self, backup: State) {
        self.copy().restore(backup);
        self.fence.epoch = 0;
        let acquired = self.service(Command::AcquireLease {
            lease: self.fence.lease.clone(),
            holder: "c1".to_owned(),
            ttl_ms: 600_000,
        });
        let Outcome::Leased { epoch, .. } = acquired else {
            panic!("{acquired:?}")
        };
        self.fence.epoch = epoch;
        self.fold();
    }

    /// Releases a lease of the named control.
    pub fn release_lease(&self, lease: &LeaseName, control: &str) {
        let release = Command::ReleaseLease {
            lease: lease.clone(),
            holder: control.to_owned(),
        };
        let name = format!("service:control/{control}");
        self.apply(&name, Privilege::Service, None, release);
    }

    /// Applies a command of a user.
    pub fn user(&self, name: &str, command: Command) -> Outcome {
        self.apply(name, Privilege::User, None, command)
    }

    pub fn admin(&self, command: Command) -> Outcome {
        self.apply("root", Privilege::Admin, None, command)
    }

    pub fn service(&self, command: Command) -> Outcome {
        let fence = (self.fence.epoch > 0).then(|| self.fence.clone());
        self.apply("service:control/c1", Privilege::Service, fence, command)
    }

    fn apply(
        &self,
        name: &str,
        power: Privilege,
        fence: Option<Fence>,
        command: Command,
    ) -> Outcome {
        let name = name.to_owned();
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name,
                privilege: power,
            },
            key: None,
            at: SystemClock.now(),
            fence,
            command,
        };
        self.copy().apply(&envelope).unwrap().outcome
    }

    /// Submits an allocation for one node.
    pub fn submit(&self, requeue: Requeue) -> AllocationId {
        self.submit_with_constraints(requeue, Constraints::default())
    }

    pub fn submit_with_constraints(
        &self,
        requeue: Requeue,
        constraints: Constraints,
    ) -> AllocationId {
        self.submit_with_terms(requeue, constraints, Terms::default())
    }

    pub fn submit_with_terms(
        &self,
        requeue: Requeue,
        constraints: Constraints,
        terms: Terms,
    ) -> AllocationId {
        let spec = AllocationSpec {
            name: None,
            project: ProjectPath::new("atlas").unwrap(),
            vcluster: VclusterName::new("default").unwrap(),
            nodes: 1,
            workload: Workload {
                script: Some("true".to_owned()),
                ..Workload::default()
            },
            walltime_ms: Some(60_000),
            class: 5,
            sensitive: false,
            constraints,
            requeue,
            hold: false,
            demand: Default::default(),
            terms,
        };
        let spec = Box::new(spec);
        let Outcome::Submitted { id: allocation } = self.admin(Command::Submit { spec }) else {
            panic!("not submitted")
        };
        allocation
    }

    /// Assigns the node to the allocation under this boot.
    pub fn assign(&self, allocation: AllocationId, boot: &str) -> AttemptKey {
        let expected = ExpectedNode {
            node: id(NODE),
            version: self.node().version,
            boot: Some(boot.to_owned()),
        };
        self.service(Command::Assign {
            id: allocation,
            nodes: vec![expected],
        });
        self.fold();
        let attempt = self.allocation(allocation).attempt;
        AttemptKey {
            allocation,
            attempt,
        }
    }

    /// Submits an allocation and runs it on the node under this boot.
    pub fn start(&self, boot: &str) -> AttemptKey {
        self.start_with_terms(boot, Terms::default())
    }

    /// As [`World::start`], with these terms.
    pub fn start_with_terms(&self, boot: &str, terms: Terms) -> AttemptKey {
        let allocation = self.submit_with_terms(Requeue::Never, Constraints::default(), terms);
        let key = self.assign(allocation, boot);
        self.service(Command::Report {
            id: allocation,
            attempt: 1,
            node: id(NODE),
            report: RankReport::Started {
                at: SystemClock.now(),
            },
        });
        self.fold();
        key
    }

    pub fn node(&self) -> Node {
        self.copy().state().node(&id(NODE)).unwrap().clone()
    }

    pub fn allocation(&self, id: AllocationId) -> Allocation {
        match self.copy().state().query(&Query::Allocation { id }) {
            Answer::Allocation(Some(found)) => *found,
            other => panic!("{other:?}"),
        }
    }
}
