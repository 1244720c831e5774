//! Plans made on request: dry runs, and explanations in vClusters that this control does not schedule.

#[cfg(test)]
mod tests;

use crate::{core::Core, timings::PLAN_PERIOD};
use lattice_placement::PendingView;
use lattice_quorum_types::{Allocation, AllocationId, AllocationState, VclusterName};
use lattice_view::{HomeRule, LastPlan, Planned, View, plan_of};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::Instant};

/// Time for which a plan answers requests although the view has changed, as it does constantly on a busy cluster. The
/// answer contains the time of the plan.
const FRESH: Duration = Duration::from_secs(1);
/// Time after which an unused plan is dropped.
const KEPT: Duration = Duration::from_secs(60);

/// Maximum number of dry runs that are planned or wait at the same time. They share one core, and each holds a request
/// that may be large.
const DRY_RUNS: usize = 8;

/// The maximum number of dry runs is planned or waits already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{DRY_RUNS} dry runs are being planned already; try again in a few seconds")]
pub struct DryRunsBusy;

/// A plan made for one view.
#[derive(Debug)]
struct CachedPlan {
    version: u64,
    at: Instant,
    planned: Arc<Planned>,
}

/// Holds the plan of one vCluster; concurrent requests wait for the same plan.
type Slot = Arc<tokio::sync::Mutex<Option<CachedPlan>>>;

/// Cache of plans made on request; see the module.
#[derive(Debug)]
pub struct PlanCache {
    made: Mutex<BTreeMap<VclusterName, (Instant, Slot)>>,
    /// Plans on request share one core, so that scheduling does not wait for them.
    cores: Arc<Semaphore>,
    dry_runs: Semaphore,
}

impl Default for PlanCache {
    fn default() -> Self {
        Self {
            made: Mutex::default(),
            cores: Arc::new(Semaphore::new(1)),
            dry_runs: Semaphore::new(DRY_RUNS),
        }
    }
}

impl PlanCache {
    fn slot(&self, vcluster: &VclusterName) -> Slot {
        let now = Instant::now();
        let mut made = self.made.lock();
        made.retain(|name, (asked_at, _)| name == vcluster || now < *asked_at + KEPT);
        let (asked_at, slot) = made
            .entry(vcluster.clone())
            .or_insert_with(|| (now, Slot::default()));
        *asked_at = now;
        slot.clone()
    }

    async fn plan(
        &self,
        core: &Core,
        view: &Arc<View>,
        vcluster: &VclusterName,
        newest: AllocationId,
    ) -> Option<Arc<Planned>> {
        core.view_age_ms()?;
        let slot = self.slot(vcluster);
        let mut slot = slot.lock().await;
        if let Some(made) = &*slot {
            // Wait times and walltimes advance without changes, so a plan is used no longer than a scheduler's period.
            let age = made.at.elapsed();
            let is_of_this = made.version >= view.version && age < PLAN_PERIOD;
            let is_fresh = age < FRESH && made.planned.explanation(newest).is_some();
            if is_of_this || is_fresh {
                return Some(made.planned.clone());
            }
        }
        let planned = self.make(core, || view.clone(), vcluster, None);
        let planned = Arc::new(planned.await?);
        *slot = Some(CachedPlan {
            version: view.version,
            at: Instant::now(),
            planned: planned.clone(),
        });
        Some(planned)
    }

    /// Plans on the `view` at the time when a core becomes free.
    async fn make(
        &self,
        core: &Core,
        view: impl FnOnce() -> Arc<View>,
        vcluster: &VclusterName,
        extra: Option<(AllocationId, PendingView)>,
    ) -> Option<Planned> {
        let core_of = self.cores.clone().acquire_owned().await.ok()?;
        let (view, made_at, age_ms) = (view(), core.now(), core.view_age_ms()?);
        let name = vcluster.clone();
        let plan = tokio::task::spawn_blocking(move || {
            let plan = plan_of(&view, &name, extra, made_at, age_ms);
            drop(core_of);
            plan
        });
        match plan.await {
            Ok(plan) => Some(Planned {
                made_at,
                plan: Arc::new(plan),
                not_assigned: BTreeMap::new(),
                is_own: false,
            }),
            Err(error) => {
                tracing::error!(%vcluster, %error, "dry run task panicked");
                None
            }
        }
    }
}

impl PlanCache {
    /// Decisions of a cycle now with `extra` added to the queue; nothing is stored. `None` before the first message of
    /// the quorum, or if planning panics.
    ///
    /// # Errors
    /// Returns [`DryRunsBusy`] when too many dry runs are in progress.
    pub async fn plan_with(
        &self,
        core: &Core,
        extra: &Allocation,
    ) -> Result<Option<Planned>, DryRunsBusy> {
        let (view, vcluster) = (|| core.view(), &extra.spec.vcluster);
        let home = HomeRule::of(&view().vclusters);
        let _one_of_few = self.dry_runs.try_acquire().map_err(|_| DryRunsBusy)?;
        let waits = extra.state == AllocationState::Pending;
        let extra = waits.then(|| {
            let mut pending = PendingView::from(extra);
            home.apply(&extra.spec, &mut pending);
            (extra.id, pending)
        });
        Ok(self.make(core, view, vcluster, extra).await)
    }

    /// Plans for these allocations, including vClusters that another control schedules.
    pub async fn plan_for<'a>(
        &self,
        core: &Core,
        view: &Arc<View>,
        asked: impl IntoIterator<Item = &'a Allocation>,
    ) -> Arc<LastPlan> {
        let mut elsewhere: BTreeMap<&VclusterName, AllocationId> = BTreeMap::new();
        for allocation in asked {
            let vcluster = &allocation.spec.vcluster;
            let waits = allocation.state == AllocationState::Pending;
            if waits && view.plan.of(vcluster).is_none() {
                let newest = elsewhere.entry(vcluster).or_insert(allocation.id);
                *newest = allocation.id.max(*newest);
            }
        }
        let mut plan = view.plan.clone();
        for (vcluster, newest) in elsewhere {
            if let Some(planned) = self.plan(core, view, vcluster, newest).await {
                Arc::make_mut(&mut plan).set(vcluster.clone(), planned);
            }
        }
        plan
    }
}
