//! Selection of late jobs, in turn.

use super::super::late_jobs::LateJob;
use super::{
    inputs::{edited, folded, id, well},
    *,
};
use crate::tasks::testing::world::World;
use lattice_placement::{Layout, LevelView, PlannedReservation, movement::preempt};
use lattice_quorum_types::{
    allocation::{Rank, RankPhase},
    limit::{Limits, Usage},
};
use lattice_view::PreemptionRules;

const NOW: UnixMillis = UnixMillis(100_000_000);
const SECOND: u64 = 1_000;

/// A node, and the allocation on it with this remaining time.
fn held(name: &str, by: u64, class: u8, left_ms: u64) -> (Arc<NodeEntry>, Arc<Allocation>) {
    let holder = Holder {
        allocation: AllocationId(by),
        attempt: 1,
    };
    let node = edited(&well(name), |record| record.holder = Some(holder));
    let mut runs = Allocation::clone(&allocation(by, AllocationState::Running));
    let at = UnixMillis(NOW.0 - 1_800 * SECOND);
    runs.spec.class = class;
    runs.spec.walltime_ms = Some(1_800 * SECOND + left_ms);
    (runs.attempt, runs.started_at) = (1, Some(at));
    runs.ranks = vec![Rank {
        node: id(name),
        phase: RankPhase::Running { at },
        boot: None,
    }];
    (node, Arc::new(runs))
}

fn waits(id: u64, class: u8, nodes: u32) -> Arc<Allocation> {
    let mut waits = Allocation::clone(&allocation(id, AllocationState::Pending));
    (waits.spec.class, waits.spec.nodes) = (class, nodes);
    waits.spec.walltime_ms = Some(3_600 * SECOND);
    Arc::new(waits)
}

fn rules(patience_ms: u64) -> PreemptionRules {
    PreemptionRules {
        policy: preempt::Policy {
            near_completion_ms: 0,
            ..preempt::Policy::default()
        },
        patience_ms,
        timeout_ms: 600 * SECOND,
    }
}

fn planned(view: &Arc<View>) -> (Planner, Plan) {
    let mut planner = Planner::new(full_input(view, &vcluster(), 7));
    let plan = planner.plan(NOW);
    (planner, plan)
}

/// Of several waiting jobs, a plan estimates the start of one.
#[test]
fn soon_starting_job_preempts_nothing() {
    let ((n1, first), (n2, second)) =
        (held("n1", 1, 3, 20 * SECOND), held("n2", 2, 3, 25 * SECOND));
    let waiting = [waits(3, 8, 1), waits(4, 8, 1)];
    let [one, other] = waiting;
    let view = folded(1, &[n1, n2], &[first, second, one, other]);
    let (mut planner, plan) = planned(&view);
    let said = |id| plan.waiting.get(AllocationId(id)).unwrap().estimated_start;
    assert_eq!((said(3).is_some(), said(4)), (true, None));
    let mut late = |patience_ms| {
        let mut turns = ConsideredAt::default();
        let late = turns.late(&mut planner, &view, &plan, &rules(patience_ms), NOW);
        let late = late.into_iter();
        let left_ms = |at: Option<UnixMillis>| at.map(|at| at.since(NOW));
        late.map(|of| (of.id.0, left_ms(of.planned_start)))
            .collect::<Vec<_>>()
    };
    assert_eq!(late(60 * SECOND), []);
    let starts = late(10 * SECOND);
    assert_eq!(starts.len(), 2);
    // The patience ends before either job does.
    assert!(
        starts
            .iter()
            .all(|(_, ms)| ms.is_some_and(|ms| ms < 60 * SECOND)),
        "{starts:?}"
    );
}

#[test]
fn preempting_job_has_its_turn_in_long_queue() {
    let ((n1, first), (n2, second)) = (
        held("n1", 1, 2, 1_800 * SECOND),
        held("n2", 2, 2, 1_800 * SECOND),
    );
    let mut all = vec![first, second];
    all.extend((3..=6).map(|id| waits(id, 9, 2)));
    all.push(waits(7, 8, 1));
    // No nodes satisfy this job, even with preemption.
    all.push(waits(8, 9, 3));
    let view = folded(1, &[n1, n2], &all);
    let (mut planner, plan) = planned(&view);
    let mut turns = ConsideredAt::default();
    let mut cycle = |n: u64| {
        let now = NOW.after(n);
        let late = turns.late(&mut planner, &view, &plan, &rules(0), now);
        late.iter().map(|late| late.id.0).collect::<Vec<_>>()
    };
    assert_eq!(cycle(0), [3, 4, 5]);
    assert_eq!(cycle(1), [3, 6, 7]);
    assert_eq!(cycle(2), [3, 4, 5]);
    assert_eq!(cycle(3), [3, 6, 7]);
}

/// A planned reservation is not a promise: a job of a higher class goes first.
#[tokio::test]
async fn nodes_that_are_planned_for_a_lower_class_can_be_made_room_on() {
    let world = World::new();
    let names = ["n1", "n2"];
    let held = [(1, "n1"), (2, "n2")].map(|(by, name)| held(name, by, 2, 1_800 * SECOND));
    let (nodes, mut all): (Vec<_>, Vec<_>) = held.into_iter().unzip();
    all.extend([waits(3, 3, 2), waits(4, 9, 1), waits(5, 9, 2)]);
    let view = folded(1, &nodes, &all);
    let (planner, mut plan) = planned(&view);
    let mut victims = |reserved_for| {
        plan.reservations = vec![PlannedReservation {
            id: AllocationId(reserved_for),
            starts_at: NOW.after(1_800 * SECOND),
            nodes: names.map(id).into(),
            layout: Layout {
                groups: Vec::new(),
                ungrouped: 2,
                topology: 0.0,
                conformance: 1.0,
            },
        }];
        let search = Search {
            checkpoints: &world.checkpoints,
            view: &view,
            vcluster: &vcluster(),
            cluster: planner.view(),
            solver: planner.policy(),
            rules: rules(0),
            now: NOW,
        };
        let late = LateJob {
            id: AllocationId(4),
            planned_start: None,
        };
        search.run(&plan, vec![late]).len()
    };
    assert_eq!(victims(3), 1);
    assert_eq!(victims(5), 0, "its own class has it reserved");
}

/// A job with promised nodes uses the remaining limits, and so does a job with victims found in the same cycle.
#[tokio::test]
async fn limited_job_preempts_nothing() {
    let world = World::new();
    let held = [(1, "n1"), (2, "n2")].map(|(by, name)| held(name, by, 2, 1_800 * SECOND));
    let (nodes, mut all): (Vec<_>, Vec<_>) = held.into_iter().unzip();
    all.extend([waits(3, 9, 1), waits(4, 9, 1)]);
    let promised = edited(&nodes[0], |record| record.promised = Some(AllocationId(3)));
    let promised = folded(1, &[promised, nodes[1].clone()], &all);
    let unpromised = folded(1, &nodes, &all);
    let sought = |view: &Arc<View>, jobs: &[u64], max_nodes| {
        let (planner, plan) = planned(view);
        let mut cluster = planner.view().clone();
        let level = LevelView {
            limits: Limits {
                max_nodes: Some(max_nodes),
                max_concurrent_allocations: None,
            },
            own: Usage::default(),
            subtree: Usage::default(),
        };
        let project = all[0].spec.project.clone();
        cluster.levels.insert(project, level);
        let search = Search {
            checkpoints: &world.checkpoints,
            view,
            vcluster: &vcluster(),
            cluster: &cluster,
            solver: planner.policy(),
            rules: rules(0),
            now: NOW,
        };
        let late = |id: &u64| LateJob {
            id: AllocationId(*id),
            planned_start: None,
        };
        let sought = search.run(&plan, jobs.iter().map(late).collect());
        sought.iter().map(|made| made.id.0).collect::<Vec<_>>()
    };
    assert_eq!(sought(&unpromised, &[3, 4], 2), [3, 4]);
    assert_eq!(sought(&unpromised, &[3, 4], 1), [3]);
    assert_eq!(sought(&promised, &[4], 2), [4]);
    assert!(sought(&promised, &[4], 1).is_empty());
}
