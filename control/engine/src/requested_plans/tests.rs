#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::tasks::{lease::Lease, schedule::Schedule, testing::world::World};
use lattice_quorum_types::{
    Allocation,
    spec::{Constraints, Requeue},
};

fn vcluster() -> VclusterName {
    VclusterName::new("default").unwrap()
}

/// An allocation that fits no node, so that it waits with a reason.
fn waits(world: &World) -> Arc<Allocation> {
    let constraints = Constraints {
        gpu_models: vec!["none of them".to_owned()],
        ..Constraints::default()
    };
    let id = world.submit_with_constraints(Requeue::Never, constraints);
    world.fold();
    world.core.view().allocation(id).unwrap().clone()
}

#[tokio::test]
async fn non_scheduling_control_plans_dry_runs() {
    let world = World::new();
    let waits = waits(&world);
    let view = world.core.view();
    assert!(view.plan.of(&vcluster()).is_none());
    let plans = PlanCache::default();
    let asked = plans.plan_for(&world.core, &view, [&*waits]).await;
    let why = asked
        .of(&vcluster())
        .unwrap()
        .explanation(waits.id)
        .unwrap();
    println!("{why}");
    let lease = Lease::new(world.fence.lease.clone(), "c1".to_owned());
    let mut schedule = Schedule::new(world.scheduler_parts(), lease, vcluster());
    schedule.reconcile(world.fence.clone()).await;
    let scheduled = world.core.view();
    let of_schedule = scheduled.plan.of(&vcluster()).unwrap();
    let theirs = of_schedule.explanation(waits.id).unwrap();
    // Equal except for the elapsed time.
    assert_eq!((&theirs.steps, &theirs.blocker), (&why.steps, &why.blocker));
    assert_eq!(theirs.to_string(), why.to_string());
    // A control that schedules the vCluster answers from its own plan.
    let own = plans.plan_for(&world.core, &scheduled, [&*waits]).await;
    assert_eq!(own.of(&vcluster()).unwrap().made_at, of_schedule.made_at);
    assert!(Arc::ptr_eq(&own, &scheduled.plan));
}

#[tokio::test]
async fn dry_run_queue_is_bounded() {
    let world = World::new();
    let mut dry = Allocation::clone(&*waits(&world));
    dry.id = AllocationId(u64::MAX);
    let asked = Arc::new(PlanCache::default());
    let busy = asked.cores.clone().acquire_owned().await.unwrap();
    let ask = || {
        let (plans, core, dry) = (asked.clone(), world.core.clone(), dry.clone());
        tokio::spawn(async move { plans.plan_with(&core, &dry).await })
    };
    let asking: Vec<_> = (0..DRY_RUNS).map(|_| ask()).collect();
    let all_wait = async {
        while asked.dry_runs.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(30);
    tokio::time::timeout(patience, all_wait).await.unwrap();
    assert_eq!(
        asked.plan_with(&world.core, &dry).await.unwrap_err(),
        DryRunsBusy
    );
    // The dry runs plan on the view at their turn, not at their request.
    let since = waits(&world);
    drop(busy);
    for asking in asking {
        let planned = asking.await.unwrap().unwrap().unwrap();
        assert!(planned.explanation(dry.id).is_some());
        assert!(planned.explanation(since.id).is_some());
    }
    assert!(asked.plan_with(&world.core, &dry).await.is_ok());
}

#[tokio::test]
async fn one_plan_answers_all_of_same_view() {
    let world = World::new();
    let first = waits(&world);
    let view = world.core.view();
    let plans = Arc::new(PlanCache::default());
    let ask = |of: Arc<Allocation>, view: Arc<View>| {
        let (plans, core) = (plans.clone(), world.core.clone());
        async move {
            let plan = plans.plan_for(&core, &view, [&*of]).await;
            plan.of(&vcluster()).cloned().unwrap()
        }
    };
    let (one, two) = tokio::join!(
        ask(first.clone(), view.clone()),
        ask(first.clone(), view.clone())
    );
    assert!(Arc::ptr_eq(&one, &two));
    let second = waits(&world);
    let view = world.core.view();
    assert!(one.explanation(second.id).is_none());
    let three = ask(second.clone(), view.clone()).await;
    assert!(three.explanation(second.id).is_some());
    assert!(Arc::ptr_eq(&three, &ask(first, view).await));
}

/// On a quiet cluster only the time changes. A cached answer without an age limit would stay that of the first request.
#[tokio::test]
async fn dry_run_plan_is_as_fresh_as_scheduler() {
    let world = World::new();
    let waits = waits(&world);
    let view = world.core.view();
    let plans = PlanCache::default();
    let ask = async || {
        let plan = plans.plan_for(&world.core, &view, [&*waits]).await;
        plan.of(&vcluster()).cloned().unwrap()
    };
    let first = ask().await;
    tokio::time::pause();
    tokio::time::advance(PLAN_PERIOD - std::time::Duration::from_millis(1)).await;
    assert!(Arc::ptr_eq(&first, &ask().await));
    tokio::time::advance(std::time::Duration::from_millis(1)).await;
    assert!(!Arc::ptr_eq(&first, &ask().await));
}
