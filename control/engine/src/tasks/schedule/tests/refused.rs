//! Placed but unassigned allocations, and their explanations.

use super::*;
use crate::{
    explanation::explain,
    requested_plans::PlanCache,
    tasks::{
        reconciler,
        schedule::unassigned::{
            PERSISTENT_REFUSAL_TIME, PlacedAllocation, SET_ASIDE_TIME, Unassigned, UnassignedReason,
        },
        testing::{self, world::World},
    },
};
use lattice_api::{allocation::WorkloadAccess, explanation::ExplanationView};
use lattice_conformance::{Class, ClassMark, Digest};
use lattice_placement::Fraction;
use lattice_quorum_types::{
    Outcome,
    command::LimitChange,
    limit::{LimitPatch, Patch},
};
use lattice_view::plan_of;
use tokio_util::task::AbortOnDropHandle;

pub(super) fn submit(world: &World, edit: impl FnOnce(&mut AllocationSpec)) -> AllocationId {
    let mut spec = allocation(1, AllocationState::Pending).spec.clone();
    spec.workload.argv = vec!["true".to_owned()];
    edit(&mut spec);
    let spec = Box::new(spec);
    let Outcome::Submitted { id } = world.admin(Command::Submit { spec }) else {
        panic!("not submitted")
    };
    id
}

pub(super) fn scheduler(world: &World) -> Schedule {
    let lease = Lease::new(world.fence.lease.clone(), "c1".to_owned());
    Schedule::new(world.scheduler_parts(), lease, vcluster())
}

/// Explanation for users.
fn why(world: &World, id: AllocationId) -> ExplanationView {
    let view = world.core.view();
    let why = explain(
        &view,
        &view.plan,
        view.allocation(id).unwrap(),
        WorkloadAccess::Full,
        &|id| view.name_of(id),
    );
    println!("{}", why.summary);
    why
}

fn expect_blocker(why: &ExplanationView, blocker: &str) {
    assert!(why.blocker.as_ref().unwrap().contains(blocker), "{why:?}");
    assert!(why.summary.contains(blocker), "{why:?}");
    assert_eq!(why.score.as_ref().unwrap().factors.len(), 9);
    assert!(!why.steps.is_empty() && why.as_of.is_some(), "{why:?}");
}

/// Sets the site's data readiness.
fn is_ready(world: &World, ready: &[(AllocationId, u32)]) {
    let fraction = |(id, millionths): &(_, u32)| (*id, Fraction::millionths(*millionths));
    let ready = Arc::new(ready.iter().map(fraction).collect());
    world.core.publish(Wakes::Readers, |view| {
        view.inputs.data_ready = ready;
        Some(Vec::new())
    });
}

fn readiness(why: &ExplanationView) -> f64 {
    let mut factors = why.score.as_ref().unwrap().factors.iter();
    factors.find(|f| f.name == "data_ready").unwrap().value
}

pub(super) fn limit(project: &str, max_nodes: u64) -> Command {
    let change = LimitChange {
        path: ProjectPath::new(project).unwrap(),
        patch: LimitPatch {
            max_nodes: Patch::Set(max_nodes),
            ..LimitPatch::default()
        },
    };
    Command::SetLimits {
        changes: vec![change],
    }
}

fn second_tenant(world: &World) {
    world.admin(Command::CreateProject {
        path: ProjectPath::new("boreas").unwrap(),
        limits: Some(Limits {
            max_nodes: Some(8),
            max_concurrent_allocations: None,
        }),
        admins: Vec::new(),
        description: String::new(),
    });
}

/// The quorum has a limit that the view does not show, for as long as the test needs.
#[tokio::test]
async fn repeatedly_refused_job_yields_nodes() {
    let world = World::new();
    second_tenant(&world);
    let first = submit(&world, |spec| spec.class = 9);
    let behind = submit(&world, |spec| {
        spec.project = ProjectPath::new("boreas").unwrap();
    });
    world.fold();
    is_ready(&world, &[(first, 800_000)]);
    world.admin(limit("atlas", 0));
    let mut schedule = scheduler(&world);
    tokio::time::pause();
    let mut cycle = async || {
        let report = schedule.reconcile(world.fence.clone()).await;
        let wakes = timeout(Duration::from_millis(1), schedule.wakes()).await;
        (report.assigned, report.refused, wakes.is_ok())
    };
    // A view that lags behind is rejected as well.
    assert_eq!(cycle().await, (0, 1, false));
    let refusal = "tenant \"atlas\" would exceed max_nodes quota";
    let explanation = why(&world, first);
    expect_blocker(
        &explanation,
        "placed on a, not assigned yet: the quorum refused it: ",
    );
    expect_blocker(&explanation, refusal);
    assert_eq!(cycle().await, (0, 1, false));
    assert_eq!(readiness(&why(&world, first)), 0.8);
    tokio::time::advance(PERSISTENT_REFUSAL_TIME).await;
    assert_eq!(cycle().await, (0, 1, true), "others get its node now");
    expect_blocker(&why(&world, first), "assignment refused repeatedly: ");
    assert_eq!(cycle().await, (1, 0, false));
    assert_eq!(world.allocation(behind).state, AllocationState::Starting);
    let explanation = why(&world, first);
    expect_blocker(&explanation, refusal);
    expect_blocker(
        &explanation,
        "next attempt after 30 s, its nodes are available to other allocations meanwhile",
    );
    // The view has caught up, and the site reports more. That is considered when the set-aside period is over.
    world.fold();
    is_ready(&world, &[(first, 900_000)]);
    assert_eq!(cycle().await, (0, 0, false));
    expect_blocker(&why(&world, first), refusal);
    tokio::time::advance(SET_ASIDE_TIME).await;
    assert_eq!(cycle().await, (0, 0, false));
    let explanation = why(&world, first);
    expect_blocker(&explanation, "waiting for quota headroom");
    assert_eq!(readiness(&explanation), 0.9);
}

/// A dry run reflects what the next cycle would do.
#[tokio::test]
async fn a_dry_run_is_planned_without_what_is_set_aside() {
    let world = World::new();
    second_tenant(&world);
    let first = submit(&world, |spec| spec.class = 9);
    world.fold();
    let mut dry = Allocation::clone(world.core.view().allocation(first).unwrap());
    dry.id = AllocationId(u64::MAX);
    dry.spec.project = ProjectPath::new("boreas").unwrap();
    dry.spec.class = 5;
    let starts = async || {
        let planned = PlanCache::default()
            .plan_with(&world.core, &dry)
            .await
            .unwrap()
            .unwrap();
        let mut placed = planned.plan.placements.iter();
        placed.any(|placed| placed.id == dry.id)
    };
    world.admin(limit("atlas", 0));
    let mut schedule = scheduler(&world);
    tokio::time::pause();
    schedule.reconcile(world.fence.clone()).await;
    assert!(!starts().await, "the node is for who is before it");
    tokio::time::advance(PERSISTENT_REFUSAL_TIME).await;
    schedule.reconcile(world.fence.clone()).await;
    assert!(starts().await);
}

/// Time in which a view lags behind does not count, nor time in which nothing is proposed.
#[tokio::test]
async fn only_what_lasts_is_refused_again_and_again() {
    let world = World::new();
    let id = submit(&world, |_| {});
    world.fold();
    let view = world.core.view();
    let plan = plan_of(&view, &vcluster(), None, world.core.now(), 0);
    let (placed, held) = (&plan.placements[0], view.allocation(id).unwrap());
    let (plan, mut unassigned) = (&plan, Unassigned::default());
    let of = PlacedAllocation { plan, placed, held };
    let taken = Refusal::NodesTaken { nodes: Vec::new() };
    let lasting = Refusal::Invalid {
        field: "nodes".to_owned(),
        reason: "of another vCluster".to_owned(),
    };
    let start = Instant::now();
    let mut refuse = |refusal: &Refusal, after: u32| {
        let now = start + after * PERSISTENT_REFUSAL_TIME;
        unassigned.refuse(of, refusal, &refusal.to_string(), now)
    };
    assert!(!refuse(&taken, 0));
    assert!(!refuse(&taken, 1));
    assert!(!refuse(&lasting, 2), "for the first time");
    assert!(refuse(&lasting, 3));
    assert!(!refuse(&taken, 4));
    assert!(!refuse(&lasting, 5), "anew");
    unassigned.hold_back(of, &UnassignedReason::BootsNotNamed(vec![testing::id("a")]));
    let now = start + 6 * PERSISTENT_REFUSAL_TIME;
    assert!(!unassigned.refuse(of, &lasting, &lasting.to_string(), now));
}

/// However long the view lags behind: the next one is correct.
#[tokio::test]
async fn refused_by_change_is_replanned() {
    let world = World::new();
    let id = submit(&world, |_| {});
    world.fold();
    let drain = |reason: Option<&str>| {
        world.admin(Command::Drain {
            node: testing::id("a"),
            reason: reason.map(str::to_owned),
            expected: None,
        });
    };
    drain(Some("a look inside"));
    drain(None);
    let mut schedule = scheduler(&world);
    tokio::time::pause();
    for _ in 0..3 {
        let report = schedule.reconcile(world.fence.clone()).await;
        assert_eq!((report.proposed, report.refused), (1, 1));
        expect_blocker(
            &why(&world, id),
            "the quorum refused it: ownership conflict: a has changed",
        );
        tokio::time::advance(PERSISTENT_REFUSAL_TIME).await;
    }
    world.fold();
    let report = schedule.reconcile(world.fence.clone()).await;
    assert_eq!((report.assigned, report.waiting), (1, 1));
}

#[tokio::test]
async fn attestation_wait_names_nodes() {
    let world = World::new();
    let digest = Digest([1; 32]);
    let digests = BTreeMap::from([(Class::Gpu.to_string(), digest.0)]);
    world.agent_answers.lock().unwrap().digests = digests;
    let mark = ClassMark::Complete { schema: 1, digest };
    let id = submit(&world, |spec| spec.sensitive = true);
    world.fold();
    world.set_marks(BTreeMap::from([(Class::Gpu, mark)]));
    let named = |boot: Option<&str>| {
        world.core.publish(Wakes::Readers, |view| {
            let nodes = Arc::make_mut(&mut view.nodes);
            let mut entry = NodeEntry::clone(&nodes[&testing::id("a")]);
            entry.boot = boot.map(str::to_owned);
            nodes.insert(entry.id.clone(), Arc::new(entry));
            Some(Vec::new())
        });
    };
    let mut schedule = scheduler(&world);
    named(None);
    let report = schedule.reconcile(world.fence.clone()).await;
    assert_eq!((report.proposed, report.waiting), (0, 1));
    expect_blocker(
        &why(&world, id),
        "not assigned yet: waiting for a to publish its boot id",
    );
    named(Some("b1"));
    let report = schedule.reconcile(world.fence.clone()).await;
    assert_eq!((report.proposed, report.waiting), (0, 1));
    expect_blocker(
        &why(&world, id),
        "sensitive: waiting for the attestation of a",
    );
    schedule.wakes().await;
    let report = schedule.reconcile(world.fence.clone()).await;
    assert_eq!((report.assigned, report.waiting), (1, 0));
    // Until this control sees the assignment.
    expect_blocker(&why(&world, id), "not assigned yet: that is under way");
    world.fold();
    assert!(why(&world, id).summary.starts_with("starting on a since"));
}

/// Another control takes over the lease between planning and proposal.
#[tokio::test]
async fn stale_epoch_stops_planning_until_new_lease() {
    let world = World::new();
    let lease = Lease::new(world.fence.lease.clone(), "c1".to_owned());
    lease.reconcile(&world.core).await;
    let fence = lease.fence().unwrap();
    let second = world.hand_lease_to_other_control();
    let id = submit(&world, |_| {});
    world.fold();
    let mut schedule = Schedule::new(world.scheduler_parts(), lease.clone(), vcluster());
    let report = schedule.reconcile(fence).await;
    let wanted = ScheduleReport {
        proposed: 1,
        refused: 1,
        ..ScheduleReport::default()
    };
    assert_eq!(report, wanted);
    assert_eq!(world.allocation(id).state, AllocationState::Pending);
    assert_eq!(lease.fence(), None);
    // As in normal operation: the scheduler discards its plan, and plans nothing.
    let planned = || world.core.view().plan.of(&vcluster()).is_some();
    assert!(planned());
    let running = reconciler::run(world.core.clone(), lease.clone(), schedule);
    let _running = AbortOnDropHandle::new(tokio::spawn(running));
    let until = async |is_so: &dyn Fn() -> bool| {
        let reached = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), reached).await.unwrap();
    };
    until(&|| !planned()).await;
    let before = world.commands();
    world.fold();
    tokio::time::sleep(10 * PACE.spacing).await;
    assert!(!planned());
    assert_eq!(world.commands(), before);
    world.release_lease(&second.lease, "c2");
    lease.reconcile(&world.core).await;
    until(&|| world.allocation(id).state == AllocationState::Starting).await;
}
