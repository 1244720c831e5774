//! Test cluster with reported usage: the real state machine, its usage records, and a ledger that follows them. Time
//! advances only on request.

use async_trait::async_trait;
use lattice_ledger::{Ledger, Usage};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, Applied, Command, Envelope, NodeId, Outcome, ProjectPath, Refusal, UnixMillis,
    VclusterName,
    accounting_month::{AccountingMonth, MonthDifferences},
    allocation::RankExit,
    audit::AuditAction,
    budget::{Credit, SoftPatch},
    command::{ExpectedNode, Fence, Principal, Privilege, RankReport, SCHEMA},
    id::LeaseName,
    limit::{LimitPatch, Limits},
    node::Lifecycle,
    spec::{AllocationSpec, Constraints, Requeue, Workload},
    usage_record::{UsagePeriod, UsageRecord, UsageRecordsHead},
    view::{Answer, Query},
};
use lattice_waldur::cluster::{AccountedCluster, ClusterError, NodeHardware, UsageTotals};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

/// Number of GPUs of each node.
pub const GPUS: u32 = 4;
/// 2026-11-10T00:00:00Z
pub const BEGIN: UnixMillis = UnixMillis(1_794_268_800_000);
pub const HOUR: u64 = 3_600_000;

pub fn path(text: &str) -> ProjectPath {
    ProjectPath::new(text).unwrap()
}

pub fn vcluster(text: &str) -> VclusterName {
    VclusterName::new(text).unwrap()
}

struct Inner {
    state: State,
    ledger: Ledger,
    now: UnixMillis,
    index: u64,
    nodes: usize,
}

/// Test cluster; see the module.
pub struct World {
    cluster: &'static str,
    inner: Mutex<Inner>,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    pub fn new() -> Self {
        Self::of("alps")
    }

    /// World of the cluster with this name.
    pub fn of(cluster: &'static str) -> Self {
        let mut ledger = Ledger::new(UnixMillis(0), Vec::new(), 0, BEGIN);
        ledger.compute_curves();
        let inner = Mutex::new(Inner {
            state: State::new(),
            ledger,
            now: BEGIN,
            index: 0,
            nodes: 0,
        });
        let world = Self { cluster, inner };
        // State time advances only by a limited step with each command.
        world.project("seed", 0);
        world
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Moves the clock of control, but not the state time and the ledger.
    pub fn shift_clock(&self, ms: i64) {
        let mut inner = self.inner();
        inner.now = UnixMillis(inner.now.0.checked_add_signed(ms).unwrap());
    }

    /// Advances time, with commands to the quorum as in a live cluster.
    pub fn wait(&self, ms: u64) {
        let end = {
            let mut inner = self.inner();
            inner.now = inner.now.after(ms);
            inner.now
        };
        // The state clock follows a jump in limited steps.
        while self.inner().state.now() < end {
            let before = self.inner().state.now();
            let lease = LeaseName::new("clock").unwrap();
            let (holder, ttl_ms) = ("c1".to_owned(), 1_000);
            self.propose(
                Privilege::Admin,
                "root",
                Command::AcquireLease {
                    lease,
                    holder,
                    ttl_ms,
                },
            )
            .unwrap();
            if self.inner().state.now() == before {
                break;
            }
        }
        let mut inner = self.inner();
        let at = inner.now;
        inner.ledger.advance(at);
    }

    pub fn head(&self) -> UsageRecordsHead {
        self.inner().state.usage_records_head()
    }

    /// Copy of the state, for [`World::restore`].
    pub fn saved(&self) -> State {
        self.inner().state.clone()
    }

    /// Replaces the state by a saved one, as the restore of a backup does. The ledger is built again.
    pub fn restore(&self, mut state: State) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        let note = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: "restore".to_owned(),
                privilege: Privilege::Admin,
            },
            key: None,
            at: inner.now,
            fence: None,
            command: Command::NoteQuorum {
                action: Box::new(AuditAction::SteppedDown {
                    member: 1,
                    to: None,
                }),
            },
        };
        state.begin_restored(&note).unwrap();
        let mut ledger = Ledger::new(UnixMillis(0), Vec::new(), 0, BEGIN);
        for node in state.nodes() {
            ledger.set_gpus(&node.id, Some(GPUS));
        }
        ledger.compute_curves();
        let (after, limit, since) = (0, 10_000, UnixMillis(0));
        let Answer::UsageRecords(facts, _) = state.query(&Query::UsageRecords {
            after,
            limit,
            since,
        }) else {
            panic!("facts")
        };
        for fact in &facts {
            ledger.add(fact);
        }
        (inner.state, inner.ledger) = (state, ledger);
    }

    pub fn propose(
        &self,
        power: Privilege,
        name: &str,
        command: Command,
    ) -> Result<Applied, Refusal> {
        self.propose_under(power, name, None, command)
    }

    fn propose_under(
        &self,
        power: Privilege,
        name: &str,
        fence: Option<Fence>,
        command: Command,
    ) -> Result<Applied, Refusal> {
        let mut inner = self.inner();
        let inner = &mut *inner;
        inner.index += 1;
        let name = name.to_owned();
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name,
                privilege: power,
            },
            key: None,
            at: inner.now,
            fence,
            command,
        };
        let applied = inner.state.apply(inner.index, &envelope);
        let after = inner.ledger.last();
        let (limit, since) = (10_000, UnixMillis(0));
        let Answer::UsageRecords(facts, _) = inner.state.query(&Query::UsageRecords {
            after,
            limit,
            since,
        }) else {
            panic!("facts")
        };
        for fact in &facts {
            inner.ledger.add(fact);
        }
        applied
    }

    pub fn admin(&self, command: Command) -> Applied {
        self.propose(Privilege::Admin, "root", command).unwrap()
    }

    fn service(&self, command: Command) -> Result<Applied, Refusal> {
        let lease = LeaseName::new("accounting").unwrap();
        self.admin(Command::AcquireLease {
            lease: lease.clone(),
            holder: "c1".to_owned(),
            ttl_ms: 60_000,
        });
        let epoch = self.inner().state.lease("accounting").unwrap().0;
        let fence = Some(Fence { lease, epoch });
        self.propose_under(Privilege::Service, "service:control/c1", fence, command)
    }

    pub fn project(&self, project: &str, nodes: u64) {
        self.admin(Command::CreateProject {
            path: path(project),
            limits: Some(Limits {
                max_nodes: Some(nodes),
                max_concurrent_allocations: None,
            }),
            admins: Vec::new(),
            description: String::new(),
        });
    }

    fn free(&self, count: usize, vc: &VclusterName) -> Vec<ExpectedNode> {
        let find = || -> Vec<ExpectedNode> {
            let inner = self.inner();
            let free = inner
                .state
                .nodes()
                .filter(|n| n.is_assignable() && n.current == *vc);
            let free = free.take(count).map(|n| ExpectedNode {
                node: n.id.clone(),
                version: n.version,
                boot: None,
            });
            free.collect()
        };
        while find().len() < count {
            let number = {
                let mut inner = self.inner();
                inner.nodes += 1;
                inner.nodes
            };
            let node = NodeId::new(format!("gpu{number:03}")).unwrap();
            self.admin(Command::RegisterNode {
                node: node.clone(),
                vcluster: vc.clone(),
            });
            let lifecycle = Lifecycle::Ready;
            self.admin(Command::SetLifecycle {
                node: node.clone(),
                lifecycle,
            });
            let mut inner = self.inner();
            inner.ledger.set_gpus(&node, Some(GPUS));
            inner.ledger.compute_curves();
        }
        find()
    }

    /// Starts an allocation that runs from now on.
    pub fn start(&self, project: &str, vc: &str, nodes: u32) -> AllocationId {
        let vc = vcluster(vc);
        // A vCluster exists once it has nodes.
        let _ = self.free(nodes as usize, &vc);
        let spec = AllocationSpec {
            name: None,
            project: path(project),
            vcluster: vc.clone(),
            nodes,
            workload: Workload {
                argv: vec!["true".to_owned()],
                ..Workload::default()
            },
            walltime_ms: Some(HOUR),
            class: 5,
            sensitive: false,
            constraints: Constraints::default(),
            requeue: Requeue::Never,
            hold: false,
            demand: Default::default(),
            terms: Default::default(),
        };
        let spec = Box::new(spec);
        let applied = self
            .propose(Privilege::User, "alice", Command::Submit { spec })
            .unwrap();
        let Outcome::Submitted { id } = applied.outcome else {
            panic!("{applied:?}")
        };
        let nodes = self.free(nodes as usize, &vc);
        self.admin(Command::Assign { id, nodes });
        let at = self.inner().now;
        self.report(id, |_| RankReport::Started { at });
        id
    }

    pub fn end(&self, id: AllocationId) {
        let at = self.inner().now;
        self.report(id, |_| RankReport::Ended {
            at,
            exit: RankExit::Exited { code: 0 },
            fault: None,
        });
    }

    fn report(&self, id: AllocationId, report: impl Fn(&NodeId) -> RankReport) {
        let (nodes, attempt) = {
            let inner = self.inner();
            let record = inner.state.allocation(id).unwrap();
            (record.nodes().cloned().collect::<Vec<_>>(), record.attempt)
        };
        for node in nodes {
            let report = report(&node);
            let command = Command::Report {
                id,
                attempt,
                node,
                report,
            };
            self.propose(Privilege::Service, "service:control/c1", command)
                .unwrap();
        }
    }

    /// Runs an allocation on `nodes` nodes for `ms` milliseconds.
    pub fn ran(&self, project: &str, vc: &str, nodes: u32, ms: u64) {
        let id = self.start(project, vc, nodes);
        self.wait(ms);
        self.end(id);
    }

    /// Months with differences, as the quorum has them.
    pub fn found_months(&self) -> BTreeMap<AccountingMonth, MonthDifferences> {
        match self.inner().state.query(&Query::AccountingMonths) {
            Answer::AccountingMonths(found) => found,
            other => panic!("{other:?}"),
        }
    }

    pub fn credit(&self, tenant: &str) -> Option<Credit> {
        self.inner().state.budget(&path(tenant))?.credit.clone()
    }

    pub fn max_nodes(&self, tenant: &str) -> Option<u64> {
        self.inner().state.project(&path(tenant))?.limits.max_nodes
    }

    /// Usage of each project in each vCluster by the records, in hundredths of hours by component.
    pub fn truth(&self, from: UnixMillis, until: UnixMillis) -> BTreeMap<(String, String), i128> {
        let inner = self.inner();
        let totals = inner.ledger.totals(from, until);
        let mut truth = BTreeMap::new();
        for ((project, vc), used) in totals {
            let used = used.billed();
            let hundredths = |ms: u64| i128::from((ms + 18_000) / 36_000);
            let id = format!("lattice:alps:{project}@{vc}");
            truth.insert(
                (id.clone(), "gpu_hours".to_owned()),
                hundredths(used.gpu_ms),
            );
            truth.insert((id, "node_hours".to_owned()), hundredths(used.node_ms));
        }
        truth.retain(|_, amount| *amount > 0);
        truth
    }
}

#[async_trait]
impl AccountedCluster for World {
    fn cluster(&self) -> &str {
        self.cluster
    }
    fn now(&self) -> UnixMillis {
        self.inner().now
    }
    async fn usage_records(
        &self,
        after: u64,
        limit: u32,
        since: UnixMillis,
    ) -> Result<(Vec<UsageRecord>, UsageRecordsHead), ClusterError> {
        match self.inner().state.query(&Query::UsageRecords {
            after,
            limit,
            since,
        }) {
            Answer::UsageRecords(facts, head) => Ok((facts, head)),
            other => panic!("{other:?}"),
        }
    }
    async fn acknowledge(&self, through: u64, dropped: u64) -> Result<(), ClusterError> {
        done(self.service(Command::AcknowledgeUsage { through, dropped }))
    }
    async fn months(&self) -> Result<BTreeMap<AccountingMonth, MonthDifferences>, ClusterError> {
        Ok(self.found_months())
    }
    async fn note_open_month(
        &self,
        month: AccountingMonth,
        is_open: bool,
    ) -> Result<(), ClusterError> {
        done(self.service(Command::NoteOpenMonth { month, is_open }))
    }
    async fn accept_month(
        &self,
        month: AccountingMonth,
        by: &Principal,
        differences: u32,
    ) -> Result<(), ClusterError> {
        let command = Command::AcceptMonth { month, differences };
        done(self.propose(by.privilege, &by.name, command))
    }
    fn totals(&self, from: UnixMillis, until: UnixMillis) -> Option<UsageTotals> {
        let inner = self.inner();
        let until = until.min(inner.ledger.at());
        Some(UsageTotals {
            used: inner.ledger.totals(from, until),
            through: inner.ledger.last(),
            until,
        })
    }
    fn consumed(&self, allocation: AllocationId, uses: &[UsagePeriod]) -> Usage {
        self.inner().ledger.consumed(allocation, uses)
    }
    fn node_hardware(&self, _: &NodeId) -> NodeHardware {
        NodeHardware {
            gpus: GPUS,
            gpu_model: Some("H100".to_owned()),
        }
    }
    fn projects(&self) -> BTreeSet<ProjectPath> {
        self.inner()
            .state
            .projects()
            .map(|p| p.path.clone())
            .collect()
    }
    fn limits(&self, tenant: &ProjectPath) -> Option<Limits> {
        self.inner().state.project(tenant).map(|p| p.limits)
    }
    async fn note_credits(
        &self,
        credits: BTreeMap<ProjectPath, Credit>,
    ) -> Result<(), ClusterError> {
        done(self.service(Command::NoteCredits { credits }))
    }
    async fn set_limits(
        &self,
        tenant: &ProjectPath,
        limits: LimitPatch,
    ) -> Result<(), ClusterError> {
        let command = Command::UpdateTenant {
            tenant: tenant.clone(),
            limits,
            soft: SoftPatch::default(),
            force: false,
        };
        done(self.propose(Privilege::Accounting, "waldur", command))
    }
}

fn done(answer: Result<Applied, Refusal>) -> Result<(), ClusterError> {
    let refused = |refusal: Refusal| ClusterError::Refused {
        text: refusal.to_string(),
    };
    answer.map(drop).map_err(refused)
}
