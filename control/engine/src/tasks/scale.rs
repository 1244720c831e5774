//! Autoscaling of services: adjusts the number of nodes of each service in one vCluster to a metric. The reconciler
//! runs next to the vCluster's scheduler and under the same lease, because growing a service chooses nodes.
//!
//! [`decide`] determines when a service gains or releases a node. This module reads due metrics, chooses nodes as the
//! solver would, and proposes the change.
//!
//! State between evaluations is held in memory only: a control that takes over starts its windows again, and reads from
//! the record when nodes last changed. A released node is not free at once: its processes receive SIGTERM and their
//! grace period, and the node stays held until they are gone.
//!
//! A reclaimed node is released at once, whatever the metric, and a replacement is sought.

mod choose;
mod read;
mod service;
#[cfg(test)]
mod tests;

use crate::{
    core::Core,
    error::ProposeError,
    metrics_source::Metrics,
    scaling_metrics::ScalingMetrics,
    tasks::{
        lease::Lease,
        reconciler::{Reconciler, ReconcilerPace},
        schedule::under_boots,
        scheduler_parts::{PlanningTurns, SchedulerParts},
    },
};
use futures::{StreamExt as _, stream};
use lattice_placement::{
    Blocker,
    movement::scale::{
        Alert, Cause, Damping, Decision, Input, Outcome, ProposalOutcome, ScalePolicy, ScaleState,
        Source, decide,
    },
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Applied, Command, NodeId, Refusal, Revision,
    UnixMillis, VclusterName, command::Fence,
};
use lattice_view::View;
use read::Reading;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;

/// Evaluations are a minute apart, or as configured in the vCluster; a missing node is noticed at once.
const PACE: ReconcilerPace = ReconcilerPace {
    period: Duration::from_secs(1),
    spacing: Duration::from_millis(200),
};
/// Maximum number of metrics read concurrently.
const AT_A_TIME: usize = 16;
/// Longest wait for the view to show this control's own writes.
const OWN_WRITES: Duration = Duration::from_secs(1);

/// Result of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ScaleReport {
    /// Metrics read.
    pub(crate) read: usize,
    /// Metrics read without a value.
    pub(crate) missing: usize,
    /// Services that gained nodes.
    pub(crate) grown: usize,
    /// Services that release nodes.
    pub(crate) shrunk: usize,
    /// Changes that were wanted but not made.
    pub(crate) refused: usize,
    /// Newest revision created by the pass.
    pub(crate) revision: Revision,
}

/// Autoscaling reconciler; see the module.
#[derive(Debug)]
pub(crate) struct Scale {
    core: Arc<Core>,
    turns: PlanningTurns,
    metrics_source: Option<Metrics>,
    lease: Arc<Lease>,
    vcluster: VclusterName,
    metrics: Arc<ScalingMetrics>,
    service_states: BTreeMap<AllocationId, ServiceState>,
}

/// State kept for a service that is running or was running.
#[derive(Debug)]
struct ServiceState {
    attempt: u32,
    /// Start of the attempt, as first seen: nodes added later do not change it.
    began_at: Option<UnixMillis>,
    state: ScaleState,
    /// Load of each node at the last evaluation, if nodes were queried.
    loads: BTreeMap<NodeId, f64>,
    /// The metric is unknown, and this was reported.
    is_silent: bool,
}

impl Reconciler for Scale {
    const NAME: &'static str = "scale";

    fn pace(&self) -> ReconcilerPace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        let report = self.reconcile(&fence).await;
        if report.grown + report.shrunk + report.refused > 0 {
            tracing::debug!(vcluster = %self.vcluster, ?report, "scale");
            // The next pass must see the changes of this one.
            let _ = timeout(OWN_WRITES, self.core.reached(report.revision)).await;
        }
    }

    fn forget(&mut self) {
        if !self.service_states.is_empty() {
            self.service_states.clear();
            self.metrics.retain(&self.vcluster, |_| false);
        }
    }
}

impl Scale {
    pub(crate) fn new(parts: SchedulerParts, lease: Arc<Lease>, vcluster: VclusterName) -> Self {
        Self {
            metrics: parts.core.metrics.of(),
            core: parts.core,
            turns: parts.turns,
            metrics_source: parts.metrics_source,
            lease,
            vcluster,
            service_states: BTreeMap::new(),
        }
    }

    /// Evaluates due services and proposes the resulting changes.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> ScaleReport {
        let mut report = ScaleReport::default();
        if self.core.view_age_ms().is_none() {
            return report;
        }
        let view = self.core.view();
        let services = self.services(&view);
        self.follow(&services);
        if services.is_empty() {
            return report;
        }
        // Reading a metric may take long, and owners of reclaimed nodes must not wait for it.
        for service in &services {
            self.release_reclaimed(&view, service, fence, &mut report)
                .await;
        }
        let damping = view.damping_of(&self.vcluster);
        let mut readings = self.read(&view, &services, &damping).await;
        // Reading may have taken a while, so a new view is used.
        let view = self.core.view();
        let mut taken = self.planned_nodes(&view);
        for service in self.services(&view) {
            let reading = readings.remove(&service.id);
            if let Some(reading) = &reading {
                report.read += 1;
                report.missing += usize::from(reading.value.is_err());
            }
            let policy = service::policy(&service, &damping);
            let Some(policy) = policy else { continue };
            // A service that became due while others were read is read in the next pass; its metric is not missing.
            if reading.is_none() && self.is_due(&service, self.core.now(), &policy) {
                continue;
            }
            let Some(outcome) = self.evaluate(&view, &service, &policy, reading) else {
                continue;
            };
            self.alert(&service, &outcome.alerts);
            let order = ChangeContext {
                view: &view,
                service: &service,
                policy: &policy,
                fence,
            };
            self.carry_out(order, outcome.decision, &mut taken, &mut report)
                .await;
        }
        report
    }

    fn services(&self, view: &View) -> Vec<Arc<Allocation>> {
        let scaled = view.scaled.iter().filter_map(|id| view.allocation(*id));
        let own = scaled.filter(|held| held.spec.vcluster == self.vcluster);
        own.cloned().collect()
    }

    /// Updates the state of restarted services, and drops that of services that are gone.
    fn follow(&mut self, services: &[Arc<Allocation>]) {
        let present: BTreeSet<AllocationId> = services.iter().map(|held| held.id).collect();
        self.service_states.retain(|id, _| present.contains(id));
        self.metrics
            .retain(&self.vcluster, |id| present.contains(&id));
        let now = self.core.now();
        for held in services {
            if held.state != AllocationState::Running {
                continue;
            }
            let began_at = held.attempt_began_at();
            let known = self
                .service_states
                .entry(held.id)
                .or_insert_with(|| ServiceState {
                    attempt: held.attempt,
                    began_at,
                    state: ScaleState::taken_over(began_at, service::changed_at(held, now)),
                    loads: BTreeMap::new(),
                    is_silent: false,
                });
            if known.attempt != held.attempt {
                known.attempt = held.attempt;
                known.began_at = began_at;
                known.loads.clear();
            }
        }
    }

    fn is_due(&self, held: &Allocation, now: UnixMillis, policy: &ScalePolicy) -> bool {
        let runs = held.state == AllocationState::Running;
        let known = self.service_states.get(&held.id).filter(|_| runs);
        known.is_some_and(|known| known.state.is_due(now, &policy.damping))
    }

    /// Reads the metrics of the services that are due.
    async fn read(
        &self,
        view: &Arc<View>,
        services: &[Arc<Allocation>],
        damping: &Damping,
    ) -> BTreeMap<AllocationId, Reading> {
        let now = self.core.now();
        let is_due = |held: &&Arc<Allocation>| {
            let policy = service::policy(held, damping);
            policy.is_some_and(|policy| self.is_due(held, now, &policy))
        };
        let due: Vec<Arc<Allocation>> = services.iter().filter(is_due).cloned().collect();
        let (core, source) = (&self.core, self.metrics_source.as_ref());
        let read = |held: Arc<Allocation>| async move {
            let reading = read::read(core, source, view, &held).await;
            (held.id, reading)
        };
        let readings = stream::iter(due).map(read).buffer_unordered(AT_A_TIME);
        readings.collect().await
    }

    fn evaluate(
        &mut self,
        view: &View,
        service: &Allocation,
        policy: &ScalePolicy,
        reading: Option<Reading>,
    ) -> Option<Outcome> {
        let (core, metrics) = (&self.core, &self.metrics);
        let (vcluster, id) = (&self.vcluster, service.id);
        let known = self.service_states.get_mut(&id)?;
        let metric = match reading {
            None => None,
            Some(Reading { value, loads }) => {
                known.loads = loads;
                match value {
                    Ok(value) => {
                        if known.is_silent {
                            tracing::info!(%id, "service metric available again");
                        }
                        known.is_silent = false;
                        metrics.record_metric(vcluster, id, Some(value), policy.target);
                        Some(value)
                    }
                    Err(why) => {
                        if !known.is_silent {
                            tracing::warn!(%id, %why, "service metric unavailable; size unchanged");
                        }
                        known.is_silent = true;
                        metrics.record_query_failure(vcluster);
                        metrics.record_metric(vcluster, id, None, policy.target);
                        None
                    }
                }
            }
        };
        let now = core.now();
        let nodes = service::held(view, service, &known.loads, now);
        let input = Input {
            now,
            state: service.state,
            started_at: known.began_at,
            nodes: &nodes,
            metric,
            headroom: service::headroom(view, &service.spec.project),
        };
        let outcome = decide(&input, policy, &mut known.state);
        tracing::trace!(%id, ?metric, decision = ?outcome.decision, "service evaluated");
        Some(outcome)
    }

    /// Nodes that the last plan gives to, or reserves for, waiting jobs. The plan may still name jobs that no longer
    /// wait, because it stays published while it has no news.
    fn planned_nodes(&self, view: &View) -> BTreeSet<NodeId> {
        let Some(planned) = view.plan.of(&self.vcluster) else {
            return BTreeSet::new();
        };
        let waits = |id| view.waiting(id).is_some();
        let placed = planned.plan.placements.iter().filter(|of| waits(of.id));
        let placed = placed.flat_map(|of| &of.nodes);
        let reserved = planned.plan.reservations.iter();
        let reserved = reserved.filter(|of| waits(of.id)).flat_map(|of| &of.nodes);
        placed
            .map(|expected| &expected.node)
            .chain(reserved)
            .cloned()
            .collect()
    }

    async fn release_reclaimed(
        &self,
        view: &View,
        service: &Allocation,
        fence: &Fence,
        report: &mut ScaleReport,
    ) {
        let nodes = service::reclaimed_nodes(view, service);
        if nodes.is_empty() {
            return;
        }
        let (id, given) = (service.id, nodes.len());
        let command = Command::Shrink { id, nodes };
        let proposed = self.core.propose_as_service(Some(fence.clone()), command);
        match proposed.await {
            Ok(applied) => {
                tracing::info!(%id, given, "service returns nodes that their owners reclaim");
                report.shrunk += 1;
                report.revision = report.revision.max(applied.revision);
            }
            Err(error) => {
                tracing::debug!(%id, %error, "nodes not returned yet");
                report.refused += 1;
            }
        }
    }

    async fn carry_out(
        &mut self,
        order: ChangeContext<'_>,
        decision: Decision,
        taken: &mut BTreeSet<NodeId>,
        report: &mut ScaleReport,
    ) {
        let id = order.service.id;
        let answer = match decision {
            Decision::Wait(_) => return,
            Decision::Grow { nodes, from, cause } => {
                let answer = self
                    .grow(order, TargetSize { nodes, from, cause }, taken, report)
                    .await;
                report.grown += usize::from(answer == Some(ProposalOutcome::Done));
                answer
            }
            Decision::Shrink { node, cause } => {
                tracing::info!(%id, %node, ?cause, "service returns a node");
                let nodes = vec![node];
                let command = Command::Shrink { id, nodes };
                let answer = self.propose(order, command, report).await;
                report.shrunk += usize::from(answer == Some(ProposalOutcome::Done));
                answer
            }
        };
        report.refused += usize::from(answer != Some(ProposalOutcome::Done));
        // Without an answer, the effect of the proposal becomes visible in a later view.
        let (Some(answer), Some(known)) = (answer, self.service_states.get_mut(&id)) else {
            return;
        };
        let now = self.core.now();
        let alert = known.state.record_outcome(answer, now, order.policy);
        self.alert(order.service, alert.as_slice());
    }

    async fn grow(
        &self,
        order: ChangeContext<'_>,
        wanted: TargetSize,
        taken: &mut BTreeSet<NodeId>,
        report: &mut ScaleReport,
    ) -> Option<ProposalOutcome> {
        let (id, cause) = (order.service.id, wanted.cause);
        let chosen = choose::nodes(
            (&self.core, &self.turns),
            order.view,
            order.service,
            &wanted,
            taken,
        )
        .await?;
        let nodes = match chosen {
            Ok(nodes) => nodes,
            Err(Blocker::QuotaHeadroom { .. }) => return Some(ProposalOutcome::LimitReached),
            Err(blocker) => {
                tracing::info!(%id, %blocker, ?cause, "no free node for service");
                return Some(ProposalOutcome::Refused);
            }
        };
        let nodes = match under_boots(order.view, order.service, &nodes) {
            Ok(nodes) => nodes,
            Err(nameless) => {
                tracing::info!(%id, ?nameless, "boot id of the service's new nodes not published yet");
                return Some(ProposalOutcome::Refused);
            }
        };
        // Nodes chosen for one service are not given to another in this pass.
        let names = nodes.iter().map(|expected| expected.node.clone());
        taken.extend(names);
        tracing::info!(%id, nodes = nodes.len(), ?cause, "service grows");
        self.propose(order, Command::Grow { id, nodes }, report)
            .await
    }

    /// Proposes the change and returns its result; `None` if the result is unknown or the lease is lost.
    async fn propose(
        &self,
        order: ChangeContext<'_>,
        command: Command,
        report: &mut ScaleReport,
    ) -> Option<ProposalOutcome> {
        let id = order.service.id;
        let fence = order.fence.clone();
        let proposed = self.core.propose_as_service(Some(fence), command).await;
        let refusal = match proposed {
            Ok(Applied { revision, .. }) => {
                report.revision = report.revision.max(revision);
                return Some(ProposalOutcome::Done);
            }
            Err(ProposeError::Refused(refusal)) => refusal,
            Err(ProposeError::Unavailable(error)) => {
                tracing::warn!(%id, %error, "service change not answered; evaluating again");
                return None;
            }
        };
        tracing::info!(%id, %refusal, "service change refused");
        match refusal {
            Refusal::LimitExceeded { .. } => Some(ProposalOutcome::LimitReached),
            Refusal::StaleEpoch { .. } => {
                self.lease.report_expired(order.fence.epoch);
                None
            }
            _ => Some(ProposalOutcome::Refused),
        }
    }

    fn alert(&self, service: &Allocation, alerts: &[Alert]) {
        let id = service.id;
        for alert in alerts {
            match alert {
                Alert::MetricMissing { in_a_row } => {
                    tracing::warn!(%id, in_a_row, "service metric stays unavailable; check its \
                        query and its nodes");
                }
                Alert::BelowMin { nodes, min_nodes } => {
                    tracing::warn!(%id, nodes, min_nodes, "service has fewer nodes than its minimum");
                }
                Alert::Oscillating { turns } => {
                    tracing::warn!(%id, turns, "service size oscillates; use a longer cooldown \
                        or a lower threshold");
                }
            }
            self.metrics.record_alert(&self.vcluster, *alert);
        }
    }
}

/// Context of a proposed change.
#[derive(Debug, Clone, Copy)]
struct ChangeContext<'a> {
    view: &'a Arc<View>,
    service: &'a Allocation,
    policy: &'a ScalePolicy,
    fence: &'a Fence,
}

/// Nodes that a service is to gain.
#[derive(Debug, Clone, Copy)]
struct TargetSize {
    nodes: u32,
    from: Source,
    cause: Cause,
}
