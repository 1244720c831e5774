//! Scheduling of one vCluster: a planner, kept warm by the differences between two views. What it
//! plans is proposed under that vCluster's lease, with the node versions it planned on; the quorum
//! judges. A refusal costs a retry in the next cycle.

use crate::{
    core::{Core, Wakes},
    feed::{Change, Observed},
    plans::Planned,
    tasks::{
        claims::Claims,
        lease::Lease,
        reboots,
        reconciler::{Pace, Reconciler},
    },
    view::View,
};
use lattice_placement::{Blocker, Delta, Explanation, Placement, Plan, Planner};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, Envelope, Refusal, Revision, VclusterName,
    command::{ExpectedNode, Fence},
    weight,
    wire::MAX_COMMAND_BYTES,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, timeout};

pub(crate) mod inputs;

pub(crate) use inputs::whole;
use inputs::{changes, delta};

/// Walltimes run, and estimates with them: it is planned this often at least.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);
/// Submits that come within the spacing are planned together.
const PACE: Pace = Pace {
    period: PERIOD,
    spacing: Duration::from_millis(20),
};
/// For how long a plan holds that had nothing to place, while nothing changes that it depends on but the
/// time. A little less than the period, so that each period's own wake plans.
const REST: Duration = Duration::from_millis(4_500);
/// How long a cycle waits to see its own assignments before it plans on the older view.
const OWN_WRITES: Duration = Duration::from_secs(1);

/// What one cycle did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ScheduleReport {
    /// Placements proposed.
    pub(crate) proposed: usize,
    /// Of those, committed.
    pub(crate) assigned: usize,
    /// Of those, refused; planned again on a newer view.
    pub(crate) refused: usize,
    /// Allocations that wait.
    pub(crate) waiting: usize,
    /// The newest revision it made.
    pub(crate) revision: Revision,
}

/// Since the last plan, which had nothing to place, there may be nothing to plan.
#[derive(Debug, Clone, Copy)]
struct Rest {
    since: Instant,
    /// Of the lease that it was made under.
    epoch: u64,
}

/// A planner with the view it knows.
#[derive(Debug)]
struct Warm {
    planner: Planner,
    known: Arc<View>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Schedule {
    core: Arc<Core>,
    lease: Arc<Lease>,
    vcluster: VclusterName,
    claims: Claims,
    warm: Option<Warm>,
    rest: Option<Rest>,
    /// Longest command that is proposed, bytes.
    max_command_bytes: usize,
    /// Whose assignment is longer. They are planned again when they change or the lease does: till
    /// then they must not take nodes from those behind them in every plan.
    too_long: BTreeMap<AllocationId, Explanation>,
    /// Settings that nobody can read, as the log has them.
    unread: Vec<String>,
}

impl Reconciler for Schedule {
    const NAME: &'static str = "schedule";

    fn pace(&self) -> Pace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        let report = self.reconcile(fence).await;
        if report.proposed > 0 {
            tracing::debug!(?report, "schedule");
            // The next plan must see what this one took. It is a few milliseconds away.
            let _ = timeout(OWN_WRITES, self.core.reached(report.revision)).await;
        }
    }

    /// What was planned under a lease that is over is nobody's plan any more.
    fn forget(&mut self) {
        self.warm = None;
        self.rest = None;
        self.too_long.clear();
        forget(&self.core, &self.vcluster);
    }

    async fn wakes(&mut self) {
        self.claims.answered().await;
        self.rest = None;
    }
}

impl Schedule {
    pub(crate) fn new(core: Arc<Core>, lease: Arc<Lease>, vcluster: VclusterName) -> Self {
        Self {
            claims: Claims::new(core.clone()),
            core,
            lease,
            vcluster,
            warm: None,
            rest: None,
            max_command_bytes: MAX_COMMAND_BYTES,
            too_long: BTreeMap::new(),
            unread: Vec::new(),
        }
    }

    /// One cycle; it plans nothing where nothing has changed since the last one had nothing to place.
    pub(crate) async fn reconcile(&mut self, fence: Fence) -> ScheduleReport {
        let view = self.core.view();
        if self.core.view_age_ms().is_none() {
            return ScheduleReport::default();
        }
        self.claims.forget_old();
        let (since, epoch) = (Instant::now(), fence.epoch);
        let rests = |rest: Rest| rest.epoch == epoch && since < rest.since + REST;
        let may_rest = self.rest.is_some_and(rests);
        let Some(plan) = self.plan(&view, may_rest).await else {
            return ScheduleReport::default();
        };
        // What was placed and could not be proposed, or was refused, is planned again whatever changes.
        let has_placed = !plan.placements.is_empty();
        self.rest = (!has_placed).then_some(Rest { since, epoch });
        let envelopes = self.assignments(&view, &plan, &fence);
        let envelopes = self.without_too_long(&view, envelopes);
        let waiting = plan.waiting.len();
        self.explain(plan);
        let mut report = ScheduleReport {
            waiting: waiting + self.too_long.len(),
            ..ScheduleReport::default()
        };
        if !envelopes.is_empty() {
            self.propose(envelopes, &fence, &mut report).await;
        }
        report
    }

    /// What was placed as commands, but where a node has not said yet what that needs.
    fn assignments(
        &mut self,
        view: &View,
        plan: &Plan,
        fence: &Fence,
    ) -> Vec<(AllocationId, Envelope)> {
        let (core, claims) = (&self.core, &mut self.claims);
        let assign = |placement: &Placement| {
            let (id, held) = (placement.id, view.allocation(placement.id)?);
            let nodes = under_boots(view, held, &placement.nodes);
            let command = match held.spec.sensitive {
                false => Command::Assign { id, nodes: nodes? },
                // They are asked although one of them has not named its boot yet.
                true => {
                    let claimed = claims.confirm(view, nodes.as_ref().unwrap_or(&placement.nodes));
                    let nodes = nodes.and(claimed)?;
                    Command::AssignSensitive { id, nodes }
                }
            };
            let (service, fence) = (core.service(), Some(fence.clone()));
            Some((id, core.envelope(service, None, fence, command)))
        };
        plan.placements.iter().filter_map(assign).collect()
    }

    /// Keeps back what no member would take: a request that is too long fails with everything that
    /// is proposed with it.
    fn without_too_long(
        &mut self,
        view: &View,
        envelopes: Vec<(AllocationId, Envelope)>,
    ) -> Vec<Envelope> {
        let waits = |id: &AllocationId| {
            let held = view.allocation(*id);
            held.filter(|held| held.state == AllocationState::Pending)
        };
        self.too_long.retain(|id, _| waits(id).is_some());
        let mut fit = Vec::new();
        for (id, envelope) in envelopes {
            let bytes = weight::on_wire(&envelope);
            match waits(&id) {
                Some(held) if bytes > self.max_command_bytes => self.set_aside(view, held, bytes),
                _ => {
                    self.too_long.remove(&id);
                    fit.push(envelope);
                }
            }
        }
        fit
    }

    fn set_aside(&mut self, view: &View, held: &Allocation, bytes: usize) {
        let mut total = 0;
        if let Some(warm) = &mut self.warm {
            total = u32::try_from(warm.planner.view().nodes.len()).unwrap_or(u32::MAX);
            warm.planner.update(Delta {
                revision: view.revision,
                age_ms: self.core.view_age_ms().unwrap_or(0),
                pending: BTreeMap::from([(held.id, None)]),
                ..Delta::default()
            });
        }
        let blocker = Blocker::TooMuchToProve {
            bytes: bytes as u64,
            limit_bytes: self.max_command_bytes as u64,
        };
        tracing::warn!(id = %held.id, %blocker, "an allocation is not assigned");
        let explanation = Explanation {
            needed: held.spec.nodes,
            total,
            steps: Vec::new(),
            blocker,
            estimated_start: None,
            score: None,
            ahead: 0,
        };
        self.too_long.insert(held.id, explanation);
    }

    async fn propose(
        &mut self,
        envelopes: Vec<Envelope>,
        fence: &Fence,
        report: &mut ScheduleReport,
    ) {
        report.proposed = envelopes.len();
        let answers = match self.core.store.propose(envelopes).await {
            Ok(answers) => answers,
            Err(error) => {
                tracing::warn!(%error, "assignments not answered; the next cycle plans on what became of them");
                return;
            }
        };
        for answer in answers {
            match answer {
                Ok(applied) => {
                    report.assigned += 1;
                    report.revision = report.revision.max(applied.revision);
                }
                Err(refusal) => {
                    report.refused += 1;
                    match &refusal {
                        Refusal::StaleEpoch { .. } => self.lease.is_over(fence.epoch),
                        Refusal::Unproven { faults, .. } => self.claims.refused(faults),
                        _ => {}
                    }
                    tracing::debug!(%refusal, "assignment refused; planned again");
                }
            }
        }
    }

    /// Plans on a thread of its own; it may take a while. `None` while the process ends, and where it
    /// `may_rest` and nothing that a plan depends on has changed: on a large cluster another node answers
    /// all the time.
    async fn plan(&mut self, view: &Arc<View>, may_rest: bool) -> Option<Plan> {
        let (core, vcluster, view) = (self.core.clone(), self.vcluster.clone(), view.clone());
        let turn = core.planning.clone().acquire_owned().await.ok()?;
        let settings = view.settings_of(&vcluster);
        self.tell_unread(settings.unread);
        // Where this is stopped meanwhile, the next one begins cold.
        let warm = self.warm.take();
        let planning = tokio::task::spawn_blocking(move || {
            let (now, age_ms) = (core.now(), core.view_age_ms().unwrap_or(0));
            let policy = settings.policy;
            let (mut planner, rests) = match warm {
                Some(Warm { mut planner, known }) => {
                    let delta = delta(&known, &view, &vcluster, age_ms);
                    let is_same = *planner.policy() == policy && !changes(&delta, planner.view());
                    let rests = may_rest && is_same;
                    if !rests {
                        planner.update(delta);
                    }
                    (planner, rests)
                }
                None => (Planner::new(whole(&view, &vcluster, age_ms)), false),
            };
            planner.set_policy(policy);
            let plan = (!rests).then(|| planner.plan(now));
            drop(turn);
            let known = view;
            (Warm { planner, known }, plan)
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

    /// Writes down which settings are taken as by default, where that is news.
    fn tell_unread(&mut self, unread: Vec<String>) {
        if unread != self.unread && !unread.is_empty() {
            let (vcluster, settings) = (&self.vcluster, unread.join(", "));
            tracing::warn!(%vcluster, settings, "settings that nobody can read; they are as by default");
        }
        self.unread = unread;
    }

    /// Puts the plan where people find it.
    fn explain(&self, plan: Plan) {
        let planned = Arc::new(Planned {
            made_at: self.core.now(),
            plan,
            set_aside: self.too_long.clone(),
        });
        // Found before it is published: who publishes keeps all other writers waiting, and a queue may
        // be long. Nobody else says anything of this vCluster.
        let view = self.core.view();
        let before = view.plan.of(&self.vcluster);
        let waiting = planned.news(before);
        let nobody = planned.waiting().next().is_none();
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

/// This control does not plan this vCluster any more.
pub(crate) fn forget(core: &Core, vcluster: &VclusterName) {
    // Whoever holds no lease comes here with every change.
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
    Change::Observed(Arc::new(Observed { nodes, waiting }))
}

/// The nodes of a placement, each with the boot it named itself when it last answered a ping: what
/// is assigned under one boot never starts under another. `None` while one of them has not, or has
/// not answered since a boot that is known to be over: another control may have heard of that first,
/// and would put the work back as fast as it is assigned here.
fn under_boots(
    view: &View,
    waits: &Allocation,
    nodes: &[ExpectedNode],
) -> Option<Vec<ExpectedNode>> {
    let with_boot = |expected: &ExpectedNode| {
        let boot = view.node(&expected.node)?.boot.clone();
        let is_over = |boot: &String| reboots::is_known_over(waits, &expected.node, boot);
        let boot = boot.filter(|boot| !is_over(boot));
        if boot.is_none() {
            let (id, node) = (waits.id, &expected.node);
            tracing::debug!(%id, %node, "not assigned yet: the node has not named its boot");
        }
        Some(ExpectedNode {
            boot: Some(boot?),
            ..expected.clone()
        })
    };
    nodes.iter().map(with_boot).collect()
}

#[cfg(test)]
mod tests;
