//! Allocations that were accepted above the usage of their tenant, and wait for quota headroom.

use super::{
    refused::{limit, scheduler, submit},
    *,
};
use crate::{
    observed_state,
    tasks::testing::{self, world::World},
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, NodeId, Outcome, ProjectPath,
    allocation::RankExit,
    command::RankReport,
    limit::{Limits, OnLimit},
    node::Lifecycle,
};
use lattice_view::PingOutcome;

/// Adds a second node, alive and ready like the first.
fn second_node(world: &World) {
    let [first, second] = ["a", "b"].map(testing::id);
    world.admin(Command::RegisterNode {
        node: second.clone(),
        vcluster: vcluster(),
    });
    world.admin(Command::SetLifecycle {
        node: second.clone(),
        lifecycle: Lifecycle::Ready,
    });
    world.fold();
    let both = [first, second];
    let gossip = both.iter().map(|id| (id.clone(), testing::seen(1)));
    observed_state::cell(&world.core, "c0", gossip.collect());
    let alive = PingOutcome {
        liveness: Liveness::Alive,
        reason: None,
        boot: Some(("b1".to_owned(), std::time::Duration::ZERO)),
        reply_addr: None,
    };
    let pings = both.iter().map(|id| (id.clone(), alive.clone()));
    observed_state::liveness(&world.core, &pings.collect());
}

fn submit_waiting(world: &World) -> AllocationId {
    let mut spec = allocation(1, AllocationState::Pending).spec.clone();
    spec.workload.argv = vec!["true".to_owned()];
    spec.class = 9;
    let command = Command::SubmitOnLimit {
        spec: Box::new(spec),
        on_limit: OnLimit::Wait,
    };
    let Outcome::Submitted { id } = world.admin(command) else {
        panic!("not submitted")
    };
    id
}

fn end(world: &World, id: AllocationId, node: NodeId) {
    let report = RankReport::Ended {
        at: world.core.now(),
        exit: RankExit::Exited { code: 0 },
        fault: None,
    };
    world.service(Command::Report {
        id,
        attempt: 1,
        node,
        report,
    });
    world.fold();
}

#[tokio::test]
async fn accepted_above_usage_starts_with_headroom() {
    let world = World::new();
    second_node(&world);
    let project = ProjectPath::new("boreas").unwrap();
    world.admin(Command::CreateProject {
        path: project.clone(),
        limits: Some(Limits {
            max_nodes: Some(8),
            max_concurrent_allocations: None,
        }),
        admins: Vec::new(),
        description: String::new(),
    });
    let running = world.start("b1");
    world.admin(limit("atlas", 1));
    let waiting = submit_waiting(&world);
    let other = submit(&world, |spec| spec.project = project);
    world.fold();
    let mut schedule = scheduler(&world);
    let report = schedule.reconcile(world.fence.clone()).await;
    assert_eq!((report.assigned, report.waiting), (1, 1));
    let state = |id| world.allocation(id).state;
    assert_eq!(state(waiting), AllocationState::Pending);
    assert_eq!(
        state(other),
        AllocationState::Starting,
        "not delayed by the allocation before it"
    );
    world.fold();
    let view = world.core.view();
    let why = view.plan.explanation(view.allocation(waiting).unwrap());
    let why = why.unwrap().to_string();
    assert!(
        why.contains(
            "waiting for quota headroom; tenant \"atlas\" max_nodes (current: 1, requested: 1, \
             limit: 1)"
        ),
        "{why}"
    );
    end(&world, running.allocation, testing::id("a"));
    let report = schedule.reconcile(world.fence.clone()).await;
    assert_eq!((report.assigned, report.waiting), (1, 0));
    assert_eq!(state(waiting), AllocationState::Starting);
}
