//! Scheduling: one planner per vCluster, kept warm by the differences between two views. What it
//! plans is proposed under the lease, with the node versions it planned on; the quorum judges. A
//! refusal costs a retry in the next cycle.

use crate::{
    core::{Core, Wakes},
    feed::{Change, Observed},
    tasks::{
        claims::Claims,
        lease::Lease,
        reboots,
        reconciler::{Pace, Reconciler},
    },
    view::{LastPlan, View},
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
use tokio::time::timeout;

mod inputs;

use inputs::delta;
pub(crate) use inputs::whole;

/// Walltimes run, and estimates with them; submits that come within the spacing are planned together.
const PACE: Pace = Pace {
    period: Duration::from_secs(5),
    spacing: Duration::from_millis(20),
};
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
    claims: Claims,
    warm: BTreeMap<VclusterName, Warm>,
    /// Longest command that is proposed, bytes.
    max_command_bytes: usize,
    /// Whose assignment is longer. They are planned again when they change or the lease does: till
    /// then they must not take nodes from those behind them in every plan.
    too_long: BTreeMap<AllocationId, Explanation>,
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
        self.warm.clear();
        self.too_long.clear();
        self.core.publish(Wakes::Readers, |view| {
            view.plan.made_at?;
            let waiting = view.plan.waiting().collect();
            view.plan = Arc::default();
            let nodes = BTreeSet::new();
            Some(vec![Change::Observed(Arc::new(Observed {
                nodes,
                waiting,
            }))])
        });
    }

    async fn wakes(&mut self) {
        self.claims.answered().await;
    }
}

impl Schedule {
    pub(crate) fn new(core: Arc<Core>, lease: Arc<Lease>) -> Self {
        Self {
            claims: Claims::new(core.clone()),
            core,
            lease,
            warm: BTreeMap::new(),
            max_command_bytes: MAX_COMMAND_BYTES,
            too_long: BTreeMap::new(),
        }
    }

    /// One cycle over every vCluster.
    pub(crate) async fn reconcile(&mut self, fence: Fence) -> ScheduleReport {
        let view = self.core.view();
        if self.core.view_age_ms().is_none() {
            return ScheduleReport::default();
        }
        self.claims.forget_old();
        let plans = self.plan(&view);
        let envelopes = self.assignments(&view, &plans, &fence);
        let envelopes = self.without_too_long(&view, envelopes);
        let waiting: usize = plans.values().map(|plan| plan.waiting.len()).sum();
        self.explain(plans);
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
        plans: &BTreeMap<VclusterName, Plan>,
        fence: &Fence,
    ) -> Vec<(AllocationId, Envelope)> {
        let placements = plans.values().flat_map(|plan| &plan.placements);
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
        placements.filter_map(assign).collect()
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
        let vcluster = &held.spec.vcluster;
        let mut total = 0;
        if let Some(warm) = self.warm.get_mut(vcluster) {
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

    fn plan(&mut self, view: &Arc<View>) -> BTreeMap<VclusterName, Plan> {
        let nodes = view.nodes.values();
        let of_nodes = nodes.filter_map(|node| node.record.as_ref().map(|r| &r.current));
        let of_queue = view.allocations.values().map(|a| &a.spec.vcluster);
        let vclusters: BTreeSet<VclusterName> = of_nodes.chain(of_queue).cloned().collect();
        self.warm.retain(|name, _| vclusters.contains(name));
        let (now, age_ms) = (self.core.now(), self.core.view_age_ms().unwrap_or(0));
        let plan_one = |name: VclusterName| {
            let warm = self.warm.entry(name.clone());
            let warm = match warm {
                std::collections::btree_map::Entry::Occupied(warm) => {
                    let (name, warm) = (warm.key().clone(), warm.into_mut());
                    let delta = delta(&warm.known, view, &name, age_ms);
                    warm.planner.update(delta);
                    warm.known = view.clone();
                    warm
                }
                std::collections::btree_map::Entry::Vacant(place) => {
                    let planner = Planner::new(whole(view, place.key(), age_ms));
                    place.insert(Warm {
                        planner,
                        known: view.clone(),
                    })
                }
            };
            warm.planner.set_policy(view.policy_of(&name));
            (name, warm.planner.plan(now))
        };
        vclusters.into_iter().map(plan_one).collect()
    }

    /// Puts the plans where people find them.
    fn explain(&self, plans: BTreeMap<VclusterName, Plan>) {
        let last = LastPlan {
            made_at: Some(self.core.now()),
            plans,
            set_aside: self.too_long.clone(),
        };
        self.core.publish(Wakes::Readers, |view| {
            let before = &view.plan;
            let waiting = last.news(before);
            let ended = before.waiting().count() != last.waiting().count();
            if waiting.is_empty()
                && !ended
                && before.made_at.is_some()
                && last.waiting().next().is_none()
            {
                return None;
            }
            view.plan = Arc::new(last);
            if waiting.is_empty() {
                return Some(Vec::new());
            }
            let nodes = BTreeSet::new();
            Some(vec![Change::Observed(Arc::new(Observed {
                nodes,
                waiting,
            }))])
        });
    }
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
