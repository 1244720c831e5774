//! Cluster with projects and usage in memory, for measurements.

use async_trait::async_trait;
use lattice_ledger::{Usage, UsageByKind};
use lattice_quorum_types::{
    AllocationId, AllocationState, NodeId, ProjectPath, Revision, UnixMillis, VclusterName,
    accounting_month::{AccountingMonth, MonthDifferences},
    budget::Credit,
    command::Principal,
    limit::{LimitPatch, Limits},
    usage_record::{
        AccountedAllocation, UsagePeriod, UsageRecord, UsageRecordKind, UsageRecordsHead,
    },
};
use lattice_waldur::cluster::{AccountedCluster, ClusterError, NodeHardware, UsageTotals};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

const HOUR_MS: u64 = 3_600_000;
/// Projects of each tenant.
const PROJECTS_PER_TENANT: usize = 5;

#[derive(Default)]
struct Inner {
    projects: BTreeSet<ProjectPath>,
    used: BTreeMap<(ProjectPath, VclusterName), UsageByKind>,
    records: Vec<UsageRecord>,
    acknowledged: u64,
    credits: usize,
}

/// Cluster; see the module documentation.
#[derive(Default)]
pub struct Site(Mutex<Inner>);

/// Path of the project with this number, such as `t007/p3`.
pub fn project(number: usize) -> ProjectPath {
    let (tenant, place) = (number / PROJECTS_PER_TENANT, number % PROJECTS_PER_TENANT);
    ProjectPath::new(format!("t{tenant:03}/p{place}")).unwrap()
}

pub fn vcluster() -> VclusterName {
    VclusterName::new("batch").unwrap()
}

impl Site {
    /// Site with this number of projects.
    pub fn new(projects: usize) -> Self {
        let site = Self::default();
        site.set_projects(0..projects);
        site
    }

    pub fn set_projects(&self, numbers: std::ops::Range<usize>) {
        self.0.lock().unwrap().projects = numbers.map(project).collect();
    }

    /// Adds an hour on one node with four GPUs to these projects.
    pub fn use_hour(&self, numbers: std::ops::Range<usize>) {
        let mut inner = self.0.lock().unwrap();
        for number in numbers {
            let used = inner.used.entry((project(number), vcluster()));
            let used = &mut used.or_default().work;
            used.node_ms += HOUR_MS;
            used.gpu_ms += 4 * HOUR_MS;
        }
    }

    /// Adds the records of this number of ended allocations.
    pub fn add_records(&self, count: usize) {
        let now = self.now();
        let mut inner = self.0.lock().unwrap();
        for _ in 0..count {
            let number = inner.records.len() as u64 + 1;
            let work = AccountedAllocation {
                allocation: AllocationId(number),
                attempt: 1,
                user: "alice".to_owned(),
                project: project(number as usize % 1_000),
                vcluster: vcluster(),
                sensitive: false,
            };
            let nodes = vec![NodeId::new(format!("gpu{:05}", number % 10_000)).unwrap()];
            let from = UnixMillis(now.0.saturating_sub(HOUR_MS));
            let until = now;
            let uses = vec![UsagePeriod { nodes, from, until }];
            let kind = UsageRecordKind::Completed {
                work,
                state: AllocationState::Completed,
                cause: None,
                started_at: Some(from),
                uses,
                node_ms: HOUR_MS,
            };
            inner.records.push(UsageRecord {
                number,
                revision: Revision(number),
                ordinal: 0,
                at: now,
                kind,
            });
        }
    }

    /// Number of records that are not acknowledged.
    pub fn behind(&self) -> u64 {
        let inner = self.0.lock().unwrap();
        inner.records.len() as u64 - inner.acknowledged
    }

    /// Number of tenants with a credit in the last round.
    pub fn credits(&self) -> usize {
        self.0.lock().unwrap().credits
    }
}

#[async_trait]
impl AccountedCluster for Site {
    fn cluster(&self) -> &str {
        "alps"
    }
    fn now(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        UnixMillis(since.as_millis() as u64)
    }
    async fn usage_records(
        &self,
        after: u64,
        limit: u32,
        _: UnixMillis,
    ) -> Result<(Vec<UsageRecord>, UsageRecordsHead), ClusterError> {
        let at = self.now();
        let inner = self.0.lock().unwrap();
        let records = inner.records.iter().skip(after as usize);
        let head = UsageRecordsHead {
            last: inner.records.len() as u64,
            acknowledged: inner.acknowledged,
            dropped: 0,
            revision: Revision(inner.records.len() as u64),
            at,
        };
        Ok((records.take(limit as usize).cloned().collect(), head))
    }
    async fn acknowledge(&self, through: u64, _: u64) -> Result<(), ClusterError> {
        self.0.lock().unwrap().acknowledged = through;
        Ok(())
    }
    async fn months(&self) -> Result<BTreeMap<AccountingMonth, MonthDifferences>, ClusterError> {
        Ok(BTreeMap::new())
    }
    async fn note_open_month(&self, _: AccountingMonth, _: bool) -> Result<(), ClusterError> {
        Ok(())
    }
    async fn accept_month(
        &self,
        _: AccountingMonth,
        _: &Principal,
        _: u32,
    ) -> Result<(), ClusterError> {
        Ok(())
    }
    fn totals(&self, _: UnixMillis, until: UnixMillis) -> Option<UsageTotals> {
        let begins_now = until.0 + HOUR_MS < self.now().0;
        let inner = self.0.lock().unwrap();
        Some(UsageTotals {
            // The usage is that of the present month.
            used: match begins_now {
                true => BTreeMap::new(),
                false => inner.used.clone(),
            },
            through: inner.records.len() as u64,
            until: until.min(self.now()),
        })
    }
    fn consumed(&self, _: AllocationId, _: &[UsagePeriod]) -> Usage {
        Usage {
            node_ms: HOUR_MS,
            gpu_ms: 4 * HOUR_MS,
        }
    }
    fn node_hardware(&self, _: &NodeId) -> NodeHardware {
        NodeHardware {
            gpus: 4,
            gpu_model: Some("H100".to_owned()),
        }
    }
    fn projects(&self) -> BTreeSet<ProjectPath> {
        self.0.lock().unwrap().projects.clone()
    }
    fn limits(&self, _: &ProjectPath) -> Option<Limits> {
        Some(Limits {
            max_nodes: None,
            max_concurrent_allocations: None,
        })
    }
    async fn note_credits(
        &self,
        credits: BTreeMap<ProjectPath, Credit>,
    ) -> Result<(), ClusterError> {
        let with_hours = credits.values().filter(|credit| credit.gpu.is_some());
        self.0.lock().unwrap().credits = with_hours.count();
        Ok(())
    }
    async fn set_limits(&self, _: &ProjectPath, _: LimitPatch) -> Result<(), ClusterError> {
        Ok(())
    }
}
