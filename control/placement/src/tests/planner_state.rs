//! State kept from plan to plan, and state that a plan keeps for itself.

use super::{arbitrary::*, build::*};
use crate::{eligibility::sets::EligibilityCache, machine::Machine, queue::Queue, *};
use lattice_quorum_types::{AllocationId, NodeId, spec::Constraints};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
};
use std::collections::BTreeMap;

fn asking(memory_bytes: u64, sensitive: bool) -> PendingView {
    let constraints = Constraints {
        memory_bytes: Some(memory_bytes),
        ..Constraints::default()
    };
    PendingView {
        constraints,
        sensitive,
        ..job(1, None)
    }
}

/// 4 nodes with 1 to 4 TiB.
fn unlike() -> ClusterView {
    let mut view = machine(1, 4);
    for (n, node) in (1..).zip(view.nodes.values_mut()) {
        node.facts.memory_bytes = Some(n << 40);
    }
    view
}

/// Two requests with the same fitting nodes keep separate funnels in their explanations.
#[test]
fn requests_with_the_same_nodes_share_their_set_and_not_their_steps() {
    let view = unlike();
    let machine = Machine::new(&view);
    let asked = [
        (1, false),
        (3 << 40, false),
        ((2 << 40) + 1, false),
        (3 << 40, true),
    ];
    let jobs = asked.map(|(memory, sensitive)| asking(memory, sensitive));
    let queue = Queue::new(&(1..).map(AllocationId).zip(jobs).collect());
    let sets = EligibilityCache::default().prepare(&machine, &queue);
    assert_eq!([0, 1, 2, 3].map(|job| sets.number(job)), [0, 1, 1, 2]);
    assert_eq!(sets.requests(), 4);
    let removed = [0, 1, 2, 3].map(|job| sets.asked(job).steps[0].removed);
    assert_eq!(removed, [0, 2, 2, 2]);
    let counts: Vec<u32> = sets.iter().map(|set| set.count).collect();
    assert_eq!(counts, [4, 2, 2]);
}

/// A queue with changing requests costs only what it contains.
#[test]
fn finished_jobs_yield_no_request() {
    let machine = Machine::new(&unlike());
    let (mut pending, mut order) = (BTreeMap::new(), Vec::new());
    let mut queue = Queue::new(&pending);
    for round in 0..50_u64 {
        let goes = std::mem::take(&mut pending);
        let comes = (0..10).map(|n| round * 10 + n);
        let comes = comes.map(|n| (AllocationId(n), asking((n + 1) << 33, false)));
        pending = comes.collect();
        let new = pending.keys().map(|id| (*id, None));
        let gone = goes.into_iter().map(|(id, job)| (id, Some(job)));
        let changes: Vec<_> = gone.chain(new).collect();
        queue.follow(&changes, &pending, &mut order);
    }
    assert_eq!((queue.requests.len(), queue.jobs.len()), (500, 10));
    let sets = EligibilityCache::default().prepare(&machine, &queue);
    // All of the last ones request less than 4 TiB and more than 3.
    assert_eq!((sets.requests(), sets.len()), (10, 1));
}

/// An overdue job moves the times of jobs that wait for it with each plan; these times are compared to the minute.
#[test]
fn times_that_move_within_a_minute_are_no_news() {
    let mut view = machine(1, 2);
    run(&mut view, 90, &["n0-00"], Some(0));
    submit(&mut view, 1, job(2, Some(60)));
    submit(&mut view, 2, job(1, None));
    let mut planner = Planner::new(view);
    let mut waiting = |ms: u64| planner.plan(NOW.after(ms)).waiting;
    let first = waiting(0);
    assert_eq!(first.len(), 2);
    let (soon, later) = (waiting(1_000), waiting(60_000));
    let start = |of: &WaitingJobs| of.get(AllocationId(1)).unwrap().estimated_start;
    assert_ne!(start(&first), start(&soon));
    assert_eq!(soon.changed_since(&first).count(), 0);
    let changed: Vec<AllocationId> = later.changed_since(&first).collect();
    assert_eq!(changed, [1, 2].map(AllocationId));
}

/// The delta that applies the placements of a plan and ends some running jobs.
fn carried_out(view: &ClusterView, plan: &Plan, ended: &[AllocationId]) -> Delta {
    let mut delta = Delta {
        revision: view.revision,
        age_ms: view.age_ms,
        limit_policy: view.limit_policy,
        sensitive_pool: view.sensitive_pool,
        energy_price: view.energy_price,
        ..Delta::default()
    };
    let mut set = |name: &NodeId, holder: Option<AllocationId>| {
        let known = delta.nodes.get(name).cloned().flatten();
        let known = known.or_else(|| view.nodes.get(name).cloned());
        let node = known.map(|node| NodeView {
            version: node.version + 1,
            holder,
            ..node
        });
        delta.nodes.insert(name.clone(), node);
    };
    for id in ended {
        let held = view
            .nodes
            .iter()
            .filter(|(_, node)| node.holder == Some(*id));
        held.for_each(|(name, _)| set(name, None));
    }
    for placed in &plan.placements {
        placed
            .nodes
            .iter()
            .for_each(|node| set(&node.node, Some(placed.id)));
    }
    for id in ended {
        delta.running.insert(*id, None);
    }
    for placed in &plan.placements {
        delta.pending.insert(placed.id, None);
        delta.running.insert(placed.id, Some(runs(view, placed.id)));
    }
    delta
}

fn runs(view: &ClusterView, id: AllocationId) -> RunningView {
    let waited = &view.pending[&id];
    RunningView {
        ends_at: waited.walltime_ms.map(|ms| NOW.after(ms)),
        walltime_ms: waited.walltime_ms,
        storage_mb_s: BTreeMap::new(),
    }
}

proptest! {
    /// Starts and ends applied directly give the same plans as the equivalent delta, also later.
    #[test]
    fn tracked_changes_equal_delta(
        view in any_view(),
        deltas in vec(any_delta(), 0..3),
    ) {
        let (mut updated, mut followed) = (Planner::new(view.clone()), Planner::new(view));
        for (minute, delta) in (1..).zip(deltas.into_iter().map(Some).chain([None])) {
            let plan = updated.plan(NOW.after(minute * 60_000));
            let before = updated.view().clone();
            let mut ended: Vec<AllocationId> = before.running.keys().copied().collect();
            ended.truncate(2);
            updated.update(carried_out(&before, &plan, &ended));
            ended.iter().for_each(|id| followed.follow_end(*id));
            for placed in &plan.placements {
                let nodes: Vec<NodeId> = placed.nodes.iter().map(|node| node.node.clone()).collect();
                followed.follow_start(placed.id, &nodes, runs(&before, placed.id));
            }
            let at = NOW.after(minute * 90_000);
            let starts = followed.plan_starts(at);
            let plans = [&mut updated, &mut followed].map(|planner| planner.plan(at));
            prop_assert_eq!((&starts.placements, &starts.reservations), (&plans[0].placements, &plans[0].reservations));
            let plans = plans.map(|plan| serde_json::to_vec(&plan).unwrap());
            prop_assert_eq!(&plans[0], &plans[1]);
            if let Some(delta) = delta {
                updated.update(delta.clone());
                followed.update(delta);
            }
            followed.apply_holders();
            prop_assert_eq!(updated.view(), followed.view());
        }
    }

    /// Each node that is not free is listed once, with its expected free time.
    #[test]
    fn reports_holder_with_end(
        view in kept(rationed_view()),
        deltas in vec(kept_delta(), 0..4),
    ) {
        let mut view = view;
        let mut machine = Machine::with_loans(&view);
        for (minute, delta) in (1..).zip(deltas.into_iter().map(Some).chain([None])) {
            let now = NOW.after(minute * 60_000).0;
            let ends = machine.ends(now).flat_map(|(end, nodes)| nodes.iter().map(move |n| (*n, end)));
            let mut ends: Vec<(usize, u64)> = ends.collect();
            ends.sort_unstable();
            let busy = (0..machine.index.size()).filter(|n| !machine.free.contains(*n));
            let busy: Vec<_> = busy.map(|n| (n, machine.expected_free_at(n, now))).collect();
            prop_assert_eq!(ends, busy);
            if let Some(delta) = delta {
                let before = view.apply(delta);
                if !machine.apply_changes(&before, &view) {
                    machine = Machine::with_loans(&view);
                }
            }
        }
    }

    /// A job that keeps waiting keeps its position; new or changed jobs come after it.
    #[test]
    fn a_queue_that_is_followed_keeps_its_order(
        first in btree_map(0..40_u64, any_job(), 0..30),
        changes in vec(btree_map(0..40_u64, option::of(any_job()), 0..12), 1..4),
        turns in Just((0..30_u32).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let named = |(number, job)| (AllocationId(number), job);
        let mut pending: BTreeMap<_, _> = first.into_iter().map(named).collect();
        let mut queue = Queue::new(&pending);
        let mut order = turns;
        order.retain(|place| (*place as usize) < pending.len());
        let ids = |queue: &Queue, order: &[u32]| -> Vec<AllocationId> {
            order.iter().map(|place| queue.jobs[*place as usize].id).collect()
        };
        for change in changes {
            let before = ids(&queue, &order);
            let mut changed = Vec::new();
            for (number, job) in change {
                let id = AllocationId(number);
                let old = match job {
                    Some(job) => pending.insert(id, job),
                    None => pending.remove(&id),
                };
                changed.push((id, old));
            }
            let is_anew = queue.follow(&changed, &pending, &mut order);
            prop_assert!(!is_anew, "so few are not littered");
            let is_changed = |id: &AllocationId| changed.iter().any(|(other, _)| other == id);
            let on = before.into_iter().filter(|id| !is_changed(id));
            let new = changed.iter().map(|(id, _)| *id).filter(|id| pending.contains_key(id));
            let expected: Vec<_> = on.chain(new).collect();
            prop_assert_eq!(ids(&queue, &order), expected);
            let rows: Vec<_> = queue.jobs.iter().map(|job| (job.id, job.nodes)).collect();
            let waiting: Vec<_> = pending.iter().map(|(id, job)| (*id, job.nodes)).collect();
            prop_assert_eq!(rows, waiting);
        }
    }

    #[test]
    fn plan_is_independent_of_later_planner_use(
        view in any_view(),
        deltas in vec(any_delta(), 1..4),
    ) {
        let mut planner = Planner::new(view);
        let plan = planner.plan(NOW);
        let serialized = serde_json::to_vec(&plan).unwrap();
        for delta in deltas {
            planner.update(delta);
            planner.plan(NOW.after(60_000));
        }
        prop_assert_eq!(serde_json::to_vec(&plan).unwrap(), serialized);
    }
}
