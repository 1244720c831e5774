//! Schedulers of all vClusters: one scheduler per vCluster, each under its own lease.
//!
//! A control takes every free lease. A control with more leases tries later, so that controls that start or take over
//! together share them. One proposal renews all leases of a control.

#[cfg(test)]
mod tests;

use crate::{
    core::Wakes,
    feed::Change,
    tasks::{
        activation::Activation,
        lease::{Lease, LeaseReport, RENEWAL, RETRY},
        reconciler::{self, restart_forever},
        scale::Scale,
        schedule::{self, Schedule},
        scheduler_parts::SchedulerParts,
    },
};
use lattice_quorum_types::{VclusterName, id::LeaseName};
use lattice_view::View;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// Longest and shortest time between two passes; vClusters appear and disappear rarely, by user actions.
const PERIOD: Duration = Duration::from_secs(5);
const SPACING: Duration = Duration::from_millis(250);
/// Time between two lease rounds.
const ROUND_INTERVAL: Duration = Duration::from_millis(250);
/// Delay of a request for a free lease, per lease already held; and its maximum.
const DELAY_PER_HELD_LEASE: Duration = Duration::from_millis(100);
const MAX_REQUEST_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of leases not held that are requested per round, or a quarter of them if that is more.
const MIN_REQUESTS_PER_ROUND: usize = 4;
/// Timeout for releasing the lease of a deleted vCluster.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Schedulers of all vClusters; see the module.
#[derive(Debug)]
pub struct Schedulers {
    parts: SchedulerParts,
    holder: String,
    leases: Mutex<BTreeMap<VclusterName, Arc<Lease>>>,
    /// Starts a lease round at once after the set of vClusters was updated.
    news: Notify,
}

/// Request state of one lease.
#[derive(Debug)]
struct LeaseState {
    ask_at: Instant,
    last_report: Option<LeaseReport>,
}

impl Schedulers {
    /// New [`Schedulers`]; it does nothing until it is run.
    pub fn new(parts: SchedulerParts, holder: String) -> Arc<Self> {
        Arc::new(Self {
            parts,
            holder,
            leases: Mutex::default(),
            news: Notify::new(),
        })
    }

    fn leases(&self) -> BTreeMap<VclusterName, Arc<Lease>> {
        let leases = self.leases.lock();
        leases.clone()
    }

    /// Starts a scheduler for each new vCluster and stops those of deleted ones, forever.
    pub async fn run(self: Arc<Self>) {
        let mut activation = Activation::new(&self.parts.core, PERIOD, SPACING);
        let mut running = BTreeMap::new();
        let mut known = Arc::<View>::default();
        loop {
            activation.next().await;
            let view = self.parts.core.view();
            let same = Arc::ptr_eq(&known.nodes, &view.nodes)
                && Arc::ptr_eq(&known.allocations, &view.allocations)
                && Arc::ptr_eq(&known.vclusters, &view.vclusters);
            // Before the state has been read, the set of vClusters is unknown.
            if !same && self.parts.core.view_age_ms().is_some() {
                self.follow(&view, &mut running).await;
                known = view;
            }
        }
    }

    async fn follow(
        &self,
        view: &View,
        running: &mut BTreeMap<VclusterName, AbortOnDropHandle<()>>,
    ) {
        let there = vclusters(view);
        let mut gone = self.leases();
        gone.retain(|name, _| !there.contains(name));
        for (name, lease) in gone {
            running.remove(&name);
            schedule::forget(&self.parts.core, &name);
            self.leases.lock().remove(&name);
            // A lease that is not released expires.
            let _ = timeout(RELEASE_TIMEOUT, lease.release(&self.parts.core)).await;
            tracing::info!(vcluster = %name, "vCluster deleted; its scheduler stopped");
        }
        for name in there {
            if running.contains_key(name) {
                continue;
            }
            let mut leases = self.leases.lock();
            let lease = leases
                .entry(name.clone())
                .or_insert_with(|| Lease::new(LeaseName::of_scheduler(name), self.holder.clone()));
            let started = self.start(name.clone(), lease.clone());
            running.insert(name.clone(), started);
        }
        self.news.notify_one();
    }

    fn start(&self, name: VclusterName, lease: Arc<Lease>) -> AbortOnDropHandle<()> {
        let parts = self.parts.clone();
        let (of_scale, of_lease, of) = (parts.clone(), lease.clone(), name.clone());
        let work = move || {
            let schedule = Schedule::new(parts.clone(), lease.clone(), name.clone());
            reconciler::run(parts.core.clone(), lease.clone(), schedule)
        };
        let scale = move || {
            let scale = Scale::new(of_scale.clone(), of_lease.clone(), of.clone());
            reconciler::run(of_scale.core.clone(), of_lease.clone(), scale)
        };
        let both = async move {
            tokio::join!(
                restart_forever("schedule", work),
                restart_forever("scale", scale)
            );
        };
        AbortOnDropHandle::new(tokio::spawn(both))
    }

    /// Renews held leases and requests free ones, forever.
    pub async fn renew_forever(self: Arc<Self>) {
        let mut known = BTreeMap::new();
        loop {
            self.round(&mut known).await;
            tokio::select! {
                () = sleep(ROUND_INTERVAL) => {}
                () = self.news.notified() => {}
            }
        }
    }

    /// Makes one proposal: all held leases if any is due, and some free ones.
    async fn round(&self, known: &mut BTreeMap<VclusterName, LeaseState>) {
        let leases = self.leases();
        known.retain(|name, _| leases.contains_key(name));
        let asked_at = Instant::now();
        let (held, free): (Vec<_>, Vec<_>) = leases
            .into_iter()
            .partition(|(_, lease)| lease.epoch().is_some());
        let later = request_delay(held.len());
        for (name, _) in &free {
            known.entry(name.clone()).or_insert(LeaseState {
                ask_at: asked_at + later,
                last_report: None,
            });
        }
        let is_due =
            |name: &VclusterName| known.get(name).is_none_or(|known| known.ask_at <= asked_at);
        let bite = MIN_REQUESTS_PER_ROUND.max(free.len().div_ceil(4));
        let mut asked: Vec<_> = free.into_iter().filter(|(name, _)| is_due(name)).collect();
        asked.sort_by_key(|(name, _)| known.get(name).map(|known| known.ask_at));
        asked.truncate(bite);
        // Held leases are renewed together as soon as one of them is due.
        if held.iter().any(|(name, _)| is_due(name)) {
            asked.extend(held);
        }
        if !asked.is_empty() {
            let said = self.ask(&asked).await;
            for ((name, lease), said) in asked.into_iter().zip(said) {
                let ask_at = asked_at + pause(&said, lease.epoch().is_some(), later);
                let known = known.entry(name).or_insert(LeaseState {
                    ask_at,
                    last_report: None,
                });
                known.ask_at = ask_at;
                lease.log_change(&mut known.last_report, said);
            }
        }
        self.publish_schedules();
    }

    /// Requests leases and returns the result of each. The lease of a vCluster that was deleted meanwhile is released
    /// at once.
    async fn ask(&self, asked: &[(VclusterName, Arc<Lease>)]) -> Vec<LeaseReport> {
        let wished: Vec<_> = asked.iter().map(|(_, lease)| lease.clone()).collect();
        let said = Lease::acquire_all(&self.parts.core, &wished).await;
        let there = self.leases();
        let gone = asked.iter().filter(|(name, _)| !there.contains_key(name));
        let gone: Vec<_> = gone.map(|(_, lease)| lease.clone()).collect();
        // A lease that is not released expires.
        let _ = timeout(RELEASE_TIMEOUT, Lease::release_all(&self.parts.core, &gone)).await;
        said
    }

    /// Publishes in the view which vClusters this control schedules.
    fn publish_schedules(&self) {
        let leases = self.leases().into_iter();
        let held = leases.filter_map(|(name, lease)| Some((name, lease.epoch()?)));
        let held: BTreeMap<VclusterName, u64> = held.collect();
        if *self.parts.core.view().schedules == held {
            return;
        }
        self.parts.core.publish(Wakes::Readers, |view| {
            view.schedules = Arc::new(held);
            view.set_acting();
            // No node or allocation changed, but this change makes subscribers read the view again.
            Some(vec![Change::Observed(Arc::default())])
        });
    }

    /// Releases all leases, so that other controls need not wait for their expiry.
    pub async fn release_leases(&self) {
        let leases: Vec<_> = self.leases().into_values().collect();
        Lease::release_all(&self.parts.core, &leases).await;
    }
}

/// Time until a lease is requested again. A held lease cannot be taken by another control and must be renewed before it
/// ends. `request_delay` therefore delays only requests for leases not held.
fn pause(said: &LeaseReport, is_held: bool, later: Duration) -> Duration {
    match said {
        LeaseReport::Held { .. } => RENEWAL,
        LeaseReport::NoAnswer { .. } if is_held => RETRY,
        LeaseReport::HeldByOther { .. } | LeaseReport::NoAnswer { .. } => RETRY + later,
    }
}

/// Delay before a control with `held` leases requests another one.
fn request_delay(held: usize) -> Duration {
    let held = u32::try_from(held).unwrap_or(u32::MAX);
    DELAY_PER_HELD_LEASE
        .saturating_mul(held)
        .min(MAX_REQUEST_DELAY)
}

/// Every vCluster that is defined, is served by a node, or has an allocation. Settings alone do not define a vCluster.
fn vclusters(view: &View) -> BTreeSet<&VclusterName> {
    let defined = view.vclusters.values().filter(|is| is.is_defined());
    let mut names: BTreeSet<&VclusterName> = defined.map(|is| &is.name).collect();
    let records = view.nodes.values().filter_map(|node| node.record.as_ref());
    names.extend(records.map(|record| &record.current));
    names.extend(view.allocations.values().map(|waits| &waits.spec.vcluster));
    names
}
