//! Maintenance of the usage ledger: an initial read, then updates by usage record.

mod gpus;
#[cfg(test)]
mod tests;

use crate::{
    core::{Core, Wakes},
    feed::{Change, Observed},
    tasks::activation::Activation,
    usage::{DAY_MS, KEPT_DAYS, UsageLedger},
};
use gpus::GpuCounts;
use lattice_ledger::{Ledger, UsageScope};
use lattice_quorum_types::{
    NodeId, ProjectPath, Revision, UnixMillis,
    budget::TenantBudget,
    usage_record::{UsageRecord, UsageRecordsHead},
    view::{Answer, Query},
    wire::Unavailable,
};
use lattice_view::{Hours, NodeEntry, UsedTime};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Maximum number of usage records per read.
const RECORDS_PER_PAGE: u32 = 10_000;
/// Maximum delay until a new usage record is in the ledger and the usage of running allocations is updated.
const PERIOD: Duration = Duration::from_secs(10);
/// Minimum interval between reads; records in between are read together.
const SPACING: Duration = Duration::from_secs(1);
/// Pause after a read without an answer.
const READ_PAUSE: Duration = Duration::from_secs(1);

/// Keeps `usage` up to date; never returns.
pub async fn follow(core: Arc<Core>, usage: Arc<UsageLedger>) {
    // GPU counts are kept when the ledger is read again.
    let mut gpus = GpuCounts::open(usage.folder());
    loop {
        match LedgerUpdater::begin(&core, &usage, &mut gpus).await {
            Ok(mut following) => following.follow_until_mismatch().await,
            Err(error) => tracing::warn!(%error, "usage unreadable, retrying"),
        }
        usage.set(None);
        tokio::time::sleep(READ_PAUSE).await;
    }
}

struct LedgerUpdater<'a> {
    core: Arc<Core>,
    usage: &'a UsageLedger,
    gpus: &'a mut GpuCounts,
    /// Node table from which the GPU counts in the ledger were last updated.
    nodes: Arc<BTreeMap<NodeId, Arc<NodeEntry>>>,
    /// Tenants with an exhausted budget, as published to subscribers.
    exhausted: BTreeSet<ProjectPath>,
    forgot_at: UnixMillis,
    /// Revision of the last read of usage records.
    read_at: Revision,
}

impl<'a> LedgerUpdater<'a> {
    /// Reads all usage within the retention period.
    async fn begin(
        core: &Arc<Core>,
        usage: &'a UsageLedger,
        gpus: &'a mut GpuCounts,
    ) -> Result<Self, Unavailable> {
        let (open, head) = match core.read(Query::OpenUses).await? {
            Answer::OpenUses(open, head) => (open, head),
            _ => return Err(unexpected_answer()),
        };
        let since = UnixMillis(head.at.0.saturating_sub(KEPT_DAYS * DAY_MS));
        let mut ledger = Ledger::new(since, open, head.last, head.at);
        let mut after = 0;
        while after < head.last {
            let (facts, _) = read(core, after, since).await?;
            let Some(last) = facts.last() else { break };
            after = last.number;
            let facts = facts.iter().filter(|fact| fact.number <= head.last);
            facts.for_each(|fact| ledger.add_ended(fact));
        }
        let view = core.view();
        gpus.update(&view);
        set_gpu_counts(&mut ledger, gpus);
        ledger.compute_curves();
        tracing::debug!(stretches = ledger.len(), "usage ledger read");
        usage.set(Some(ledger));
        Ok(Self {
            core: core.clone(),
            usage,
            gpus,
            nodes: view.nodes.clone(),
            exhausted: BTreeSet::new(),
            forgot_at: head.at,
            // Pages of a quorum that was restored meanwhile do not match; the next read notices the restore.
            read_at: head.revision,
        })
    }

    /// Runs until the usage records no longer match the ledger: the cluster was restored from a backup.
    async fn follow_until_mismatch(&mut self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING);
        let mut asked_at = None;
        loop {
            self.publish();
            activation.next().await;
            let known = self.usage.ask(Ledger::last).unwrap_or(0);
            let is_behind = self.core.view().usage_records > known;
            let is_due =
                asked_at.is_none_or(|at| self.core.now().since(at) >= PERIOD.as_millis() as u64);
            if !(is_behind || is_due) {
                continue;
            }
            match self.catch_up(known).await {
                Ok(true) => asked_at = Some(self.core.now()),
                Ok(false) => return,
                Err(error) => tracing::debug!(%error, "new usage unreadable, retrying"),
            }
        }
    }

    /// Reads new usage records. Returns whether the ledger is still consistent with the quorum.
    async fn catch_up(&mut self, known: u64) -> Result<bool, Unavailable> {
        let mut after = known;
        loop {
            let (facts, head) = read(&self.core, after, UnixMillis(0)).await?;
            if head.is_restored_since(after, Some(self.read_at)) {
                tracing::info!(
                    known = after,
                    last = head.last,
                    revision = head.revision.0,
                    "quorum has other usage records than the ledger; reading all usage records again"
                );
                return Ok(false);
            }
            self.read_at = head.revision;
            let view = self.core.view();
            let has_news = !Arc::ptr_eq(&self.nodes, &view.nodes);
            let since = UnixMillis(head.at.0.saturating_sub(KEPT_DAYS * DAY_MS));
            let forgets = head.at.since(self.forgot_at) > DAY_MS;
            if has_news {
                self.gpus.update(&view);
            }
            self.usage.change(|ledger| {
                facts.iter().for_each(|fact| ledger.add(fact));
                if has_news {
                    set_gpu_counts(ledger, self.gpus);
                    ledger.compute_curves();
                }
                if facts.is_empty() {
                    ledger.advance(head.at);
                }
                if forgets {
                    ledger.forget_before(since);
                }
            });
            self.nodes = view.nodes.clone();
            if forgets {
                self.forgot_at = head.at;
            }
            match facts.last() {
                Some(last) => after = last.number,
                None => return Ok(true),
            }
        }
    }

    /// Publishes the usage of tenants with a budget, and the tenants that have newly exhausted it.
    fn publish(&mut self) {
        let (core, now) = (&self.core, self.core.now());
        let view = core.view();
        let from = UnixMillis(now.0.saturating_sub(self.usage.period_days() * DAY_MS));
        let hours = self.usage.ask(|ledger| {
            let of = |budget: &TenantBudget| {
                let used = ledger
                    .usage(UsageScope::Tenant(&budget.tenant), from, now)
                    .work;
                let used = UsedTime {
                    gpu_ms: used.gpu_ms,
                    node_ms: used.node_ms,
                };
                (budget.tenant.clone(), Hours::new(budget, used, now))
            };
            view.budgets
                .values()
                .map(|budget| of(budget))
                .collect::<BTreeMap<_, _>>()
        });
        let Some(hours) = hours else { return };
        let used_up = hours.iter().filter(|(_, hours)| hours.is_exhausted());
        let exhausted: BTreeSet<_> = used_up.map(|(tenant, _)| tenant.clone()).collect();
        let news: BTreeSet<_> = exhausted.difference(&self.exhausted).cloned().collect();
        self.exhausted = exhausted;
        let steps = hours
            .into_iter()
            .map(|(tenant, hours)| (tenant, hours.rounded_to_steps()));
        let hours: BTreeMap<_, _> = steps.collect();
        if *view.hours == hours && news.is_empty() {
            return;
        }
        core.publish(Wakes::Reconcilers, |view| {
            view.hours = Arc::new(hours);
            let observed = Observed {
                exhausted: news,
                ..Observed::default()
            };
            Some(match observed.exhausted.is_empty() {
                true => Vec::new(),
                false => vec![Change::Observed(Arc::new(observed))],
            })
        });
    }
}

/// Reads one page of usage records, with their present head.
async fn read(
    core: &Core,
    after: u64,
    since: UnixMillis,
) -> Result<(Vec<UsageRecord>, UsageRecordsHead), Unavailable> {
    let query = Query::UsageRecords {
        after,
        limit: RECORDS_PER_PAGE,
        since,
    };
    match core.read(query).await? {
        Answer::UsageRecords(facts, head) => Ok((facts, head)),
        _ => Err(unexpected_answer()),
    }
}

/// Error for an answer to another query, from a daemon of another version.
fn unexpected_answer() -> Unavailable {
    Unavailable::Rejected {
        reason: "the answer is for another query".to_owned(),
    }
}

fn set_gpu_counts(ledger: &mut Ledger, gpus: &GpuCounts) {
    for (id, gpus) in gpus.iter() {
        ledger.set_gpus(id, Some(gpus));
    }
}
