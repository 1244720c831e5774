//! Planner: the solver with a view kept between plans.

use crate::{
    bits::BitSet,
    cycle::Cycle,
    eligibility::sets::EligibilityCache,
    input::CycleInput,
    limits::headroom::Paths,
    machine::Machine,
    plan::Plan,
    priority::{factors::Score, policy::Policy},
    queue::{Job, Queue},
    queue_order::{Scorer, order},
    view::{ClusterView, Delta, DomainView, PendingView, RunningView},
};
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis};
use std::collections::BTreeMap;

/// Largest mean number of changes of holder per node that are not yet in the view; above it, the view is updated.
const MAX_UNAPPLIED_PER_NODE: usize = 16;

/// Holds a view and plans on that view. Between plans, changes are applied as deltas. A plan has the same bytes whether
/// the view was given at once or built from deltas.
#[derive(Debug)]
pub struct Planner {
    view: ClusterView,
    policy: Policy,
    machine: Machine,
    queue: Queue,
    eligible: EligibilityCache,
    paths: Paths,
    last_order: Vec<u32>,
    /// Changes of holder that are not yet in the view, by node number; later entries override earlier ones.
    unapplied_holders: Vec<(usize, Option<AllocationId>)>,
}

impl Planner {
    /// Planner with the default policy.
    pub fn new(view: ClusterView) -> Self {
        Self::with_policy(view, Policy::default())
    }

    /// Planner with the given policy.
    pub fn with_policy(view: ClusterView, policy: Policy) -> Self {
        Self {
            machine: Machine::with_loans(&view),
            queue: Queue::new(&view.pending),
            eligible: EligibilityCache::default(),
            paths: Paths::default(),
            last_order: Vec::new(),
            unapplied_holders: Vec::new(),
            view,
            policy,
        }
    }

    /// View that the planner uses. Changes by [`Planner::follow_start`] and [`Planner::follow_end`] appear in its nodes
    /// only after [`Planner::apply_holders`].
    pub fn view(&self) -> &ClusterView {
        &self.view
    }

    /// Policy of the planner.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Sets the policy from the next plan on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Applies changes to the view.
    pub fn update(&mut self, delta: Delta) {
        // These changes may rebuild the machine from the view, so the view must be complete.
        if !delta.nodes.is_empty() || !delta.on_loan.is_empty() || !delta.power.is_empty() {
            self.apply_holders();
        }
        let before = self.view.apply(delta);
        let view = &self.view;
        let is_known =
            |(path, old): &(_, Option<_>)| old.is_some() == view.levels.contains_key(path);
        if !before.levels.iter().all(is_known) {
            self.paths.forget();
        }
        let parent = |domain: Option<&DomainView>| domain.map(|d| d.parent.clone());
        let mut domains = before.power.iter();
        let same_domains =
            domains.all(|(name, old)| parent(old.as_ref()) == parent(view.power.get(name)));
        let followed = same_domains && self.machine.apply_changes(&before, view);
        if !followed {
            self.machine = Machine::with_loans(view);
            self.eligible = EligibilityCache::default();
        }
        self.follow_queue(&before.pending);
    }

    /// Applies the start of a pending job on these nodes, which must be free. Has the effect of an equivalent
    /// [`Delta`], at much lower cost.
    pub fn follow_start(&mut self, id: AllocationId, nodes: &[NodeId], running: RunningView) {
        let ends_at = running.ends_at.map(|at| at.0);
        self.view.running.insert(id, running);
        let waited = self.view.pending.remove(&id);
        let numbers: Vec<usize> = self.machine.index.find_all(nodes).collect();
        let held = numbers.iter().map(|n| (*n, Some(id)));
        self.unapplied_holders.extend(held);
        self.machine.hold(id, numbers.into_iter(), ends_at);
        if let Some(waited) = waited {
            self.follow_queue(&[(id, Some(waited))]);
        }
        self.apply_holders_if_many();
    }

    /// Applies the end of a running job: its nodes are free.
    pub fn follow_end(&mut self, id: AllocationId) {
        self.view.running.remove(&id);
        let freed = self.machine.release(id);
        self.unapplied_holders
            .extend(freed.into_iter().map(|n| (n, None)));
        self.apply_holders_if_many();
    }

    /// Updates the nodes of the view with the starts and ends applied so far.
    pub fn apply_holders(&mut self) {
        let mut is_applied = BitSet::empty(self.machine.index.size());
        for (n, holder) in std::mem::take(&mut self.unapplied_holders)
            .into_iter()
            .rev()
        {
            // Iteration is in reverse, so the last entry of a node is the first one found.
            if is_applied.contains(n) {
                continue;
            }
            is_applied.insert(n);
            let name = &self.machine.index.names[n];
            if let Some(node) = self.view.nodes.get_mut(name) {
                (node.holder, node.version) = (holder, self.machine.versions[n]);
            }
        }
    }

    fn apply_holders_if_many(&mut self) {
        if self.unapplied_holders.len() > MAX_UNAPPLIED_PER_NODE * self.machine.index.size() {
            self.apply_holders();
        }
    }

    fn follow_queue(&mut self, changes: &[(AllocationId, Option<PendingView>)]) {
        let order = &mut self.last_order;
        if self.queue.follow(changes, &self.view.pending, order) {
            self.eligible = EligibilityCache::default();
            self.paths.forget();
        }
    }

    /// Applies changes to the queue only.
    pub fn update_queue(&mut self, pending: BTreeMap<AllocationId, Option<PendingView>>) {
        let view = &self.view;
        self.update(Delta {
            revision: view.revision,
            age_ms: view.age_ms,
            limit_policy: view.limit_policy,
            sensitive_pool: view.sensitive_pool,
            energy_price: view.energy_price,
            pending,
            ..Delta::default()
        });
    }

    /// Scores of all pending jobs at `now`, in order of id. Scores determine the order of the queue.
    pub fn scores(&mut self, now: UnixMillis) -> Vec<(AllocationId, Score)> {
        self.with_scorer(now, |given, scorer, _| {
            let jobs = given.queue.jobs.iter().enumerate();
            let score = |(place, job): (usize, &Job)| {
                let set = given.sets.number(place);
                (job.id, scorer.score(set, job))
            };
            jobs.map(score).collect()
        })
    }

    /// Plans the queue at `now`: one cycle.
    pub fn plan(&mut self, now: UnixMillis) -> Plan {
        self.plan_estimating(now, None)
    }

    /// Like [`Planner::plan`], with an estimated start for the given allocation if it waits without a reservation. The
    /// estimate ignores other waiting jobs without a reservation, and no node is held back for the allocation.
    pub fn plan_estimating(&mut self, now: UnixMillis, estimate_for: Option<AllocationId>) -> Plan {
        self.plan_with_explanations(now, estimate_for, true)
    }

    /// Like [`Planner::plan`], for callers that need only placements and reservations: [`Plan::waiting`] is empty. With
    /// long queues and few reservations, this call is several times as fast, since it skips each job that gets no
    /// reservation and requests more nodes than are free.
    pub fn plan_starts(&mut self, now: UnixMillis) -> Plan {
        self.plan_with_explanations(now, None, false)
    }

    fn plan_with_explanations(
        &mut self,
        now: UnixMillis,
        estimated: Option<AllocationId>,
        tells: bool,
    ) -> Plan {
        self.with_scorer(now, |given, scorer, last_order| {
            let given = CycleInput {
                estimated,
                explains: tells,
                ..given
            };
            let jobs = given.queue.jobs.iter().enumerate();
            let total = |(place, job)| scorer.score(given.sets.number(place), job).total;
            let totals: Vec<f64> = jobs.map(total).collect();
            *last_order = order(&given.queue.jobs, &totals, last_order);
            Cycle::new(given).run(last_order, scorer)
        })
    }

    /// Plans with jobs that wait for promised nodes (`promised`) added to the queue. Such a job is placed if enough
    /// other nodes are free. Otherwise it is removed from the queue again, and the queue is planned again: the job
    /// keeps its promised nodes, and no others are reserved for it.
    pub fn plan_with_promised(
        &mut self,
        mut promised: BTreeMap<AllocationId, PendingView>,
        now: UnixMillis,
    ) -> Plan {
        while !promised.is_empty() {
            let coming = promised
                .iter()
                .map(|(id, known)| (*id, Some(known.clone())));
            self.update_queue(coming.collect());
            let plan = self.plan(now);
            self.update_queue(promised.keys().map(|id| (*id, None)).collect());
            let before = promised.len();
            promised.retain(|id, _| plan.placements.iter().any(|placed| placed.id == *id));
            if promised.len() == before {
                return plan;
            }
        }
        self.plan(now)
    }

    /// Computes the inputs common to all jobs, and calls `go_on` with these inputs and the order of the previous cycle.
    fn with_scorer<T>(
        &mut self,
        now: UnixMillis,
        go_on: impl FnOnce(CycleInput<'_>, Scorer, &mut Vec<u32>) -> T,
    ) -> T {
        self.paths
            .add_missing(&self.view.levels, &self.queue.projects);
        let running_gpu_ms = self.machine.running_gpu_ms(&self.view.running);
        let sets = self.eligible.prepare(&self.machine, &self.queue);
        let given = CycleInput {
            view: &self.view,
            policy: &self.policy,
            machine: &self.machine,
            queue: &self.queue,
            sets: &sets,
            paths: &self.paths,
            now,
            estimated: None,
            explains: true,
        };
        let scorer = Scorer::new(&given, running_gpu_ms);
        go_on(given, scorer, &mut self.last_order)
    }
}
