//! Scheduler of one vCluster: a planner that is kept warm by applying the differences between two views.
//!
//! The placements of the planner are proposed under the lease of the vCluster, with the node versions that they were
//! planned on. The quorum decides; a rejection costs a retry in the next cycle.

use crate::{
    checkpoint_storage::CheckpointStorage,
    core::{Core, Wakes},
    cycles::CycleDurations,
    decisions::{Decisions, Planned as Written},
    feed::{Change, Observed},
    tasks::{
        attestations::Attestations,
        lease::Lease,
        reboots,
        reconciler::{Reconciler, ReconcilerPace},
        scheduler_parts::{PlanningTurns, SchedulerParts},
    },
};
use lattice_placement::{Blocker, ClusterView, Delta, Plan, Planner, record::Outcome};
use lattice_quorum_types::{
    Allocation, AllocationId, Command, Envelope, NodeId, Refusal, Revision, VclusterName,
    command::{ExpectedNode, Fence},
    size,
    wire::MAX_COMMAND_BYTES,
};
use lattice_view::{
    HomeRule, Planned, View, affects_plan, delta, full_input,
    settings::{
        movement::{SettingMisfit, misfits, movement_of},
        scheduler::policy,
    },
    waiting,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, timeout};

mod earlier_placement;
mod late_jobs;
pub mod preemption_search;
mod promises;
mod unassigned;

use late_jobs::ConsideredAt;
use preemption_search::{PreemptionProposal, Search};
use promises::RejectedPromises;
use unassigned::{PlacedAllocation, Unassigned, UnassignedReason, pending};

/// Submissions within the spacing are planned together.
const PACE: ReconcilerPace = ReconcilerPace {
    period: crate::timings::PLAN_PERIOD,
    spacing: Duration::from_millis(20),
};
/// Time for which a plan without placements stays valid while nothing but the time changes. Slightly less than the
/// period, so that each periodic wake-up plans.
const EMPTY_PLAN_VALIDITY: Duration = Duration::from_millis(4_500);
/// Longest wait of a cycle for a view with its own assignments; after that it plans on the older view.
const OWN_WRITES: Duration = Duration::from_secs(1);

/// Result of one cycle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleReport {
    /// Placements proposed.
    pub proposed: usize,
    /// Proposed placements that were committed.
    pub(crate) assigned: usize,
    /// Proposed placements that were rejected; they are planned again on a newer view.
    pub(crate) refused: usize,
    /// Allocations that wait.
    pub waiting: usize,
    /// Newest revision created by the cycle.
    pub(crate) revision: Revision,
}

/// Marks the last plan as having no placements, so that the next plan may be skipped.
#[derive(Debug, Clone, Copy)]
struct EmptyPlanMark {
    since: Instant,
    /// Epoch of the lease under which the plan was made.
    epoch: u64,
}

/// A planner and the view it was last updated to.
#[derive(Debug)]
struct WarmPlanner {
    planner: Planner,
    known: Arc<View>,
    considered_at: ConsideredAt,
}

/// Scheduler of one vCluster; see the module.
#[derive(Debug)]
pub struct Schedule {
    core: Arc<Core>,
    decisions: Arc<Decisions>,
    checkpoints: Arc<CheckpointStorage>,
    turns: PlanningTurns,
    lease: Arc<Lease>,
    vcluster: VclusterName,
    durations: Arc<CycleDurations>,
    attestations: Attestations,
    warm: Option<WarmPlanner>,
    empty_plan: Option<EmptyPlanMark>,
    /// Longest command that may be proposed, bytes.
    max_command_bytes: usize,
    /// Placed but unassigned allocations.
    unassigned: Unassigned,
    /// Allocations with a rejected assignment to their promised nodes.
    promised_refused: RejectedPromises,
    /// An allocation was set aside, so others may have its nodes at once.
    is_due: bool,
    /// Inconsistent settings, as last logged.
    misfits: Vec<SettingMisfit>,
}

impl Reconciler for Schedule {
    const NAME: &'static str = "schedule";

    fn pace(&self) -> ReconcilerPace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        let report = self.reconcile(fence).await;
        if report.proposed > 0 {
            tracing::debug!(?report, "schedule");
            // The next plan must see the assignments of this cycle, which usually arrive within milliseconds.
            let _ = timeout(OWN_WRITES, self.core.reached(report.revision)).await;
        }
    }

    /// Discards plans made under a lease that is over.
    fn forget(&mut self) {
        self.warm = None;
        self.empty_plan = None;
        self.unassigned.clear();
        self.promised_refused.clear();
        self.is_due = false;
        forget(&self.core, &self.vcluster);
    }

    async fn wakes(&mut self) {
        if !self.is_due {
            self.attestations.answered().await;
            self.empty_plan = None;
        }
    }
}

impl Schedule {
    /// New [`Schedule`]; it does nothing until it is run.
    pub fn new(parts: SchedulerParts, lease: Arc<Lease>, vcluster: VclusterName) -> Self {
        let SchedulerParts {
            core,
            decisions,
            checkpoints,
            turns,
            metrics_source: _,
        } = parts;
        Self {
            decisions,
            checkpoints,
            turns,
            attestations: Attestations::new(core.clone()),
            durations: core.metrics.of(),
            core,
            lease,
            vcluster,
            warm: None,
            empty_plan: None,
            max_command_bytes: MAX_COMMAND_BYTES,
            unassigned: Unassigned::default(),
            promised_refused: RejectedPromises::default(),
            is_due: false,
            misfits: Vec::new(),
        }
    }

    /// Runs one cycle. A cycle skips planning if the last plan is recent and had no placements, and nothing that a plan
    /// depends on has changed since.
    pub async fn reconcile(&mut self, fence: Fence) -> ScheduleReport {
        self.is_due = false;
        let view = self.core.view();
        if self.core.view_age_ms().is_none() {
            return ScheduleReport::default();
        }
        self.attestations.forget_old();
        let (since, epoch) = (Instant::now(), fence.epoch);
        let rests =
            |rest: EmptyPlanMark| rest.epoch == epoch && since < rest.since + EMPTY_PLAN_VALIDITY;
        let may_rest = self.empty_plan.is_some_and(rests);
        self.unassigned.follow(&view, since);
        self.keep_promises(&view, &fence).await;
        let Some((plan, sought)) = self.plan(&view, may_rest, epoch).await else {
            return ScheduleReport::default();
        };
        self.make_room(sought, &fence).await;
        // Placements that could not be proposed, or were rejected, are planned again even without changes.
        let has_placed = !plan.placements.is_empty();
        self.empty_plan = (!has_placed).then_some(EmptyPlanMark { since, epoch });
        let plan = Arc::new(plan);
        self.unassigned.planned(&plan);
        let ready = self.assignments(&view, &plan, &fence);
        let ready = self.without_oversized(ready);
        self.explain(&plan);
        let mut report = ScheduleReport {
            waiting: plan.waiting.len() + self.unassigned.len(),
            ..ScheduleReport::default()
        };
        if !ready.is_empty() {
            self.propose(ready, &fence, &mut report).await;
            if report.assigned < report.proposed {
                self.explain(&plan);
            }
        }
        self.durations.note(&self.vcluster, since.elapsed());
        report
    }

    /// Returns the placements of waiting allocations as commands. Held back are those with a node that still has to
    /// report its boot id or, for a sensitive allocation, its attestation.
    fn assignments<'a>(
        &mut self,
        view: &'a View,
        plan: &'a Plan,
        fence: &Fence,
    ) -> Vec<(PlacedAllocation<'a>, Envelope)> {
        let (core, claims) = (&self.core, &mut self.attestations);
        let vcluster = &self.vcluster;
        let mut ready = Vec::new();
        for placed in &plan.placements {
            let Some(held) = pending(view, placed.id) else {
                continue;
            };
            let (id, of) = (placed.id, PlacedAllocation { plan, placed, held });
            let nodes = under_boots(view, held, &placed.nodes);
            // Attestations are requested even if a node has not reported its boot yet.
            let claimed = held.spec.sensitive.then(|| {
                let nodes = nodes.as_ref().unwrap_or(&placed.nodes);
                let claimed = claims.confirm(view, nodes);
                claimed.ok_or_else(|| UnassignedReason::Attestations(claims.pending_nodes(nodes)))
            });
            let command = match (nodes, claimed) {
                (Err(nameless), _) => Err(UnassignedReason::BootsNotNamed(nameless)),
                (Ok(nodes), None) => Ok(Command::Assign { id, nodes }),
                (Ok(_), Some(claimed)) => {
                    claimed.map(|nodes| Command::AssignSensitive { id, nodes })
                }
            };
            match command {
                Ok(command) => {
                    self.unassigned.record_proposal(id);
                    let fence = Some(fence.clone());
                    ready.push((of, core.envelope(core.service(), None, fence, command)));
                }
                Err(why) => {
                    let outcome = Outcome::HeldBack {
                        reason: why.to_string(),
                    };
                    self.decisions.outcome(vcluster, plan.made_at, id, outcome);
                    tracing::debug!(%id, %why, "allocation not assigned yet");
                    self.unassigned.hold_back(of, &why);
                }
            }
        }
        ready
    }

    /// Holds back commands that exceed the size limit of the quorum: an oversized request fails together with
    /// everything proposed with it.
    fn without_oversized<'a>(
        &mut self,
        ready: Vec<(PlacedAllocation<'a>, Envelope)>,
    ) -> Vec<(PlacedAllocation<'a>, Envelope)> {
        let most = self.max_command_bytes;
        let (fit, too_long): (Vec<_>, Vec<_>) = ready
            .into_iter()
            .map(|(of, envelope)| (size::encoded_bytes(&envelope), of, envelope))
            .partition(|(bytes, ..)| *bytes <= most);
        for (bytes, of, _) in too_long {
            let blocker = Blocker::TooMuchToProve {
                bytes: bytes as u64,
                limit_bytes: most as u64,
            };
            tracing::warn!(id = %of.placed.id, %blocker, "allocation not assigned");
            self.unassigned.record_oversized(of, blocker);
            self.is_due = true;
        }
        fit.into_iter()
            .map(|(_, of, envelope)| (of, envelope))
            .collect()
    }

    async fn propose(
        &mut self,
        ready: Vec<(PlacedAllocation<'_>, Envelope)>,
        fence: &Fence,
        report: &mut ScheduleReport,
    ) {
        report.proposed = ready.len();
        let (proposed, envelopes): (Vec<_>, Vec<_>) = ready.into_iter().unzip();
        let answers = match self.core.store.propose(envelopes).await {
            Ok(answers) => answers,
            Err(error) => {
                tracing::warn!(%error, "assignment proposal not answered; the next cycle plans again");
                let why = UnassignedReason::NoAnswer(error.to_string());
                for of in proposed {
                    self.unassigned.hold_back(of, &why);
                }
                return;
            }
        };
        for (of, answer) in proposed.into_iter().zip(answers) {
            let outcome = match &answer {
                Ok(applied) => Outcome::Assigned {
                    revision: applied.revision,
                },
                Err(refusal) => Outcome::Refused {
                    refusal: refusal.to_string(),
                },
            };
            let (decisions, planned_at) = (&self.decisions, of.plan.made_at);
            decisions.outcome(&self.vcluster, planned_at, of.placed.id, outcome);
            match answer {
                Ok(applied) => {
                    report.assigned += 1;
                    report.revision = report.revision.max(applied.revision);
                    self.unassigned.assigned(of.placed.id);
                }
                Err(refusal) => {
                    report.refused += 1;
                    self.refused(of, &refusal, fence);
                }
            }
        }
    }

    fn refused(&mut self, of: PlacedAllocation<'_>, refusal: &Refusal, fence: &Fence) {
        self.handle_refusal(refusal, fence);
        let (id, view) = (of.placed.id, self.core.view());
        let text = refusal.text(&|id| view.name_of(id));
        match self.unassigned.refuse(of, refusal, &text, Instant::now()) {
            true => {
                self.is_due = true;
                tracing::warn!(%id, %refusal, "assignment refused repeatedly; its nodes are open \
                    to other allocations for a while");
            }
            false => tracing::debug!(%id, %refusal, "assignment refused; planning again"),
        }
    }

    /// Handles refusals with consequences beyond the one assignment.
    fn handle_refusal(&mut self, refusal: &Refusal, fence: &Fence) {
        match refusal {
            Refusal::StaleEpoch { .. } => self.lease.report_expired(fence.epoch),
            Refusal::Unproven { faults, .. } => self.attestations.refused(faults),
            _ => {}
        }
    }

    /// Plans on a blocking thread, because planning may take a while. `None` while the process ends, or if the plan
    /// `may_rest` and nothing it depends on has changed. On a large cluster, views change constantly for other reasons.
    async fn plan(
        &mut self,
        view: &Arc<View>,
        may_rest: bool,
        epoch: u64,
    ) -> Option<(Plan, Vec<PreemptionProposal>)> {
        let (core, vcluster, view) = (self.core.clone(), self.vcluster.clone(), view.clone());
        let (decisions, checkpoints) = (self.decisions.clone(), self.checkpoints.clone());
        let turn = self.turns.next().await?;
        let asides = self.unassigned.set_aside_entries();
        let settings = view.settings_of(&vcluster);
        let rules = movement_of(&settings).preemption;
        self.report_misfits(misfits(&settings));
        // If this future is dropped meanwhile, the next plan starts with a cold planner.
        let warm = self.warm.take();
        let planning = tokio::task::spawn_blocking(move || {
            let (now, age_ms) = (core.now(), core.view_age_ms().unwrap_or(0));
            let policy = policy(&settings);
            let is_kept = decisions.is_enabled();
            let mut recorded_delta = None;
            let (mut planner, mut turns, rests) = match warm {
                Some(WarmPlanner {
                    mut planner,
                    known,
                    considered_at: turns,
                }) => {
                    let mut delta = delta(&known, &view, &vcluster, age_ms);
                    set_aside(&asides, &view, planner.view(), &mut delta);
                    let is_same =
                        *planner.policy() == policy && !affects_plan(&delta, planner.view());
                    let rests = may_rest && is_same;
                    if !rests {
                        recorded_delta = is_kept.then(|| delta.clone());
                        planner.update(delta);
                    }
                    (planner, turns, rests)
                }
                None => {
                    let mut given = full_input(&view, &vcluster, age_ms);
                    given.pending.retain(|id, _| asides.get(id) != Some(&true));
                    (Planner::new(given), ConsideredAt::default(), false)
                }
            };
            planner.set_policy(policy);
            let plan = (!rests).then(|| {
                let promised = earlier_placement::waiting(&view, &vcluster, now);
                let written = is_kept.then(|| Written {
                    vcluster: &vcluster,
                    at: now,
                    epoch,
                    policy,
                    delta: recorded_delta,
                    promised: promised.clone(),
                });
                let plan = planner.plan_with_promised(promised, now);
                if let Some(written) = written {
                    decisions.planned(written, planner.view(), &plan);
                }
                let late = turns.late(&mut planner, &view, &plan, &rules, now);
                let search = Search {
                    checkpoints: &checkpoints,
                    view: &view,
                    vcluster: &vcluster,
                    cluster: planner.view(),
                    solver: planner.policy(),
                    rules,
                    now,
                };
                let sought = search.run(&plan, late);
                (plan, sought)
            });
            drop(turn);
            let known = view;
            let warm = WarmPlanner {
                planner,
                known,
                considered_at: turns,
            };
            (warm, plan)
        });
        match planning.await {
            Ok((warm, plan)) => {
                self.warm = Some(warm);
                plan
            }
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => None,
        }
    }

    async fn make_room(&mut self, sought: Vec<PreemptionProposal>, fence: &Fence) {
        for PreemptionProposal { id, command } in sought {
            let proposed = self.core.propose_as_service(Some(fence.clone()), command);
            if let Err(error) = proposed.await {
                tracing::info!(%id, %error, "preemption not started; victims are selected again");
            }
        }
    }

    /// Logs inconsistent settings when they change.
    fn report_misfits(&mut self, misfits: Vec<SettingMisfit>) {
        if misfits != self.misfits && !misfits.is_empty() {
            let settings: Vec<String> = misfits.iter().map(SettingMisfit::to_string).collect();
            let (vcluster, settings) = (&self.vcluster, settings.join(", "));
            tracing::warn!(%vcluster, settings, "scheduling settings are inconsistent; defaults apply");
        }
        self.misfits = misfits;
    }

    /// Publishes the plan and its explanations in the view.
    fn explain(&self, plan: &Arc<Plan>) {
        let planned = Arc::new(Planned {
            made_at: plan.made_at,
            plan: plan.clone(),
            not_assigned: self.unassigned.explanations(),
            is_own: true,
        });
        // The news is computed before publication, because publishing blocks all other writers and the queue may be
        // long. No other task publishes about this vCluster.
        let view = self.core.view();
        let before = view.plan.of(&self.vcluster);
        let waiting = planned.news(before.map(|before| &**before));
        let nobody = planned.waiting().next().is_none() && plan.placements.is_empty();
        let same = before.is_some_and(|before| {
            waiting.is_empty() && before.waiting().count() == planned.waiting().count()
        });
        if same && nobody {
            return;
        }
        let changes = match waiting.is_empty() {
            true => Vec::new(),
            false => vec![observed(waiting)],
        };
        self.core.publish(Wakes::Readers, |view| {
            Arc::make_mut(&mut view.plan).set(self.vcluster.clone(), planned);
            Some(changes)
        });
    }
}

/// Removes the plan of a vCluster that this control no longer plans.
pub(crate) fn forget(core: &Core, vcluster: &VclusterName) {
    // A control without the lease calls this function on every change.
    if core.view().plan.of(vcluster).is_none() {
        return;
    }
    core.publish(Wakes::Readers, |view| {
        let waiting = view.plan.of(vcluster)?.waiting().collect();
        Arc::make_mut(&mut view.plan).remove(vcluster);
        Some(vec![observed(waiting)])
    });
}

fn observed(waiting: BTreeSet<AllocationId>) -> Change {
    let nodes = BTreeSet::new();
    Change::Observed(Arc::new(Observed {
        nodes,
        waiting,
        ..Observed::default()
    }))
}

/// Hides set-aside allocations from the planner, and adds those again that are no longer set aside. Every other change
/// is already in the delta, also after a complete reload of the view.
fn set_aside(
    asides: &BTreeMap<AllocationId, bool>,
    view: &View,
    known: &ClusterView,
    delta: &mut Delta,
) {
    for (id, is_aside) in asides {
        let (is_planned, is_news) = (
            known.pending.contains_key(id),
            delta.pending.contains_key(id),
        );
        match (is_aside, pending(view, *id)) {
            (true, _) if is_planned || is_news => {
                delta.pending.insert(*id, None);
            }
            (false, Some(waits)) if !is_planned && !is_news => {
                let waits = waiting(view, &HomeRule::of(&view.vclusters), waits);
                delta.pending.insert(*id, Some(waits));
            }
            _ => {}
        }
    }
}

/// Adds to each node of a placement the boot that the node itself reported in its last direct reply. An attempt
/// assigned under one boot never starts under another.
///
/// # Errors
/// Nodes that have reported no boot, or none since a boot that is known to be over. Another control may have seen that
/// reboot first, and would requeue the allocation as fast as it is assigned here.
pub(crate) fn under_boots(
    view: &View,
    waits: &Allocation,
    nodes: &[ExpectedNode],
) -> Result<Vec<ExpectedNode>, Vec<NodeId>> {
    let boot_of = |expected: &ExpectedNode| {
        let boot = view.node(&expected.node)?.boot.clone();
        boot.filter(|boot| !reboots::is_boot_known_over(waits, &expected.node, boot))
    };
    let (mut named, mut nameless) = (Vec::with_capacity(nodes.len()), Vec::new());
    for expected in nodes {
        match boot_of(expected) {
            None => nameless.push(expected.node.clone()),
            boot => named.push(ExpectedNode {
                boot,
                ..expected.clone()
            }),
        }
    }
    match nameless.is_empty() {
        true => Ok(named),
        false => Err(nameless),
    }
}

#[cfg(test)]
mod tests;
