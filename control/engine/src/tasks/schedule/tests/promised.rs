//! Jobs with promised nodes: when they receive them, and when other nodes sooner.

use super::{
    inputs::{alive, edited, folded, id, well},
    refused::{limit, scheduler, submit},
    *,
};
use crate::tasks::{
    schedule::unassigned::PERSISTENT_REFUSAL_TIME,
    testing::world::{NODE, World},
};
use lattice_conformance::{Class, ClassMark, Digest};
use lattice_quorum_types::{
    allocation::RankExit,
    command::{RankReport, Victim},
};

/// The allocation 1, which needs two nodes and goes first.
fn wide() -> Arc<Allocation> {
    let mut wide = Allocation::clone(&allocation(1, AllocationState::Pending));
    wide.spec.nodes = 2;
    wide.spec.class = 9;
    Arc::new(wide)
}

fn promised(entry: &Arc<NodeEntry>) -> Arc<NodeEntry> {
    edited(entry, |record| record.promised = Some(AllocationId(1)))
}

fn hold(record: &mut Node) {
    let allocation = AllocationId(9);
    record.holder = Some(Holder {
        allocation,
        attempt: 1,
    });
}

/// Promised nodes are assigned once all of them are free and alive; a promise with an unusable node is withdrawn.
#[test]
fn a_promise_waits_for_a_suspect_node_and_ends_with_an_unreachable_one() {
    use promises::Promise::{self, Broken, Ready, Waits};
    let promise = |liveness: Liveness, edit: fn(&mut Node)| -> Promise {
        let other = edited(&node("n2", 1, "default", liveness), edit);
        let nodes = [alive("n1"), other].map(|entry| promised(&entry));
        let mut found =
            promises::promises(&folded(1, &nodes, &[wide()]), &vcluster(), UnixMillis(0));
        assert_eq!(found.len(), 1);
        found.remove(0).1
    };
    let given = |promise| match promise {
        Ready(nodes) => nodes.into_iter().map(|node| node.node).collect(),
        _ => Vec::new(),
    };
    let nobody = |_: &mut Node| {};
    let free = promise(Liveness::Alive, nobody);
    assert_eq!(given(free), [id("n1"), id("n2")]);
    assert_eq!(promise(Liveness::Alive, hold), Waits(1));
    assert_eq!(promise(Liveness::Suspect, nobody), Waits(1));
    assert_eq!(promise(Liveness::Unknown, nobody), Waits(1));
    assert_eq!(promise(Liveness::Unreachable, nobody), Broken);
    let drained = |record: &mut Node| record.lifecycle = Lifecycle::Draining;
    assert_eq!(promise(Liveness::Suspect, drained), Broken);
}

/// A killed process that hangs on a promised node would keep the others idle forever.
#[test]
fn a_promise_ends_where_what_makes_room_does_not_end() {
    use promises::Promise::{Broken, Waits};
    let nodes = [
        promised(&edited(&alive("n1"), hold)),
        promised(&alive("n2")),
    ];
    let holder = |state: AllocationState| allocation(9, state);
    let at = |state: AllocationState, now: u64| {
        let view = folded(1, &nodes, &[wide(), holder(state)]);
        promises::promises(&view, &vcluster(), UnixMillis(now))
            .remove(0)
            .1
    };
    let since = holder(AllocationState::Stopping).state_since.0;
    assert_eq!(at(AllocationState::Stopping, since + 600_000), Waits(1));
    assert_eq!(at(AllocationState::Stopping, since + 600_001), Broken);
    assert_eq!(
        at(AllocationState::Checkpointing, since + 600_001),
        Waits(1)
    );
}

/// Placements of one cycle, each with its nodes.
fn placed(nodes: &[Arc<NodeEntry>], waits: &[Arc<Allocation>]) -> Vec<(u64, Vec<String>)> {
    let view = folded(1, nodes, waits);
    let given = full_input(&view, &vcluster(), 7);
    let mut planner = Planner::new(given.clone());
    let promised = earlier_placement::waiting(&view, &vcluster(), UnixMillis(1000));
    let plan = planner.plan_with_promised(promised, UnixMillis(1000));
    assert_eq!(planner.view(), &given, "the queue is as it was");
    let names = |nodes: &[ExpectedNode]| nodes.iter().map(|at| at.node.to_string()).collect();
    let placements = plan.placements.iter();
    placements
        .map(|placed| (placed.id.0, names(&placed.nodes)))
        .collect()
}

#[test]
fn promised_job_takes_free_nodes_meanwhile() {
    let given = [
        promised(&edited(&well("n1"), hold)),
        promised(&well("n2")),
        well("n3"),
        well("n4"),
    ];
    let small = allocation(2, AllocationState::Pending);
    let waits = [wide(), small.clone()];
    let both = |id: u64, names: &[&str]| (id, names.iter().map(|n| (*n).to_owned()).collect());
    assert_eq!(placed(&given, &waits), [both(1, &["n3", "n4"])]);
    // One node is not enough, and is not held back for the job.
    assert_eq!(placed(&given[..3], &waits), [both(2, &["n3"])]);
    // Enough nodes, but some of them are excluded: again nothing is held back.
    let mut picky = Allocation::clone(&wide());
    picky.spec.constraints.exclude = vec![id("n3")];
    let waits = [Arc::new(picky), small];
    assert_eq!(placed(&given, &waits).len(), 1);
    assert_eq!(placed(&given, &waits)[0].0, 2);
    // Promised nodes that are free are assigned by the promise alone.
    let ready = [
        promised(&well("n1")),
        promised(&well("n2")),
        well("n3"),
        well("n4"),
    ];
    assert_eq!(placed(&ready, &[wide()]), []);
}

/// An allocation of a higher class than the previous holder of the only node, which is promised to it and free by now.
fn promised_a_free_node(world: &World, is_sensitive: bool) -> AllocationId {
    let runs = world.start("b1");
    let urgent = submit(world, |spec| {
        (spec.class, spec.sensitive) = (9, is_sensitive)
    });
    let victim = Victim {
        id: runs.allocation,
        attempt: runs.attempt,
        checkpoint: None,
    };
    world.service(Command::Preempt {
        id: urgent,
        nodes: vec![id(NODE)],
        victims: vec![victim],
    });
    let report = RankReport::Ended {
        at: world.core.now(),
        exit: RankExit::Stopped,
        fault: None,
    };
    world.service(Command::Report {
        id: runs.allocation,
        attempt: runs.attempt,
        node: id(NODE),
        report,
    });
    world.fold();
    let node = world.node();
    assert_eq!((node.promised, node.holder), (Some(urgent), None));
    urgent
}

/// The only node gossips one digest and attests this one.
async fn sensitive_work_and_a_node_that_claims(digest: u8) -> (World, Schedule, AllocationId) {
    let world = World::new();
    world.agent_answers.lock().unwrap().digests =
        BTreeMap::from([("gpu".to_owned(), [digest; 32])]);
    let mark = ClassMark::Complete {
        schema: 1,
        digest: Digest([1; 32]),
    };
    world.set_marks(BTreeMap::from([(Class::Gpu, mark)]));
    let secret = promised_a_free_node(&world, true);
    let mut schedule = scheduler(&world);
    schedule.reconcile(world.fence.clone()).await;
    let is_asked = world.allocation(secret).state == AllocationState::Pending;
    assert!(is_asked && world.node().promised == Some(secret));
    schedule.wakes().await;
    schedule.reconcile(world.fence.clone()).await;
    (world, schedule, secret)
}

#[tokio::test]
async fn sensitive_job_gets_promise_after_attestation() {
    let (world, _, secret) = sensitive_work_and_a_node_that_claims(1).await;
    assert_eq!(world.allocation(secret).state, AllocationState::Starting);
    let holder = world.node().holder.map(|holder| holder.allocation);
    assert_eq!((holder, world.node().promised), (Some(secret), None));
}

#[tokio::test]
async fn changed_node_breaks_sensitive_promise() {
    let (world, _, secret) = sensitive_work_and_a_node_that_claims(2).await;
    assert_eq!(world.allocation(secret).state, AllocationState::Pending);
    assert_eq!((world.node().holder, world.node().promised), (None, None));
}

/// No node stays idle for a job that does not receive it.
#[tokio::test]
async fn a_promise_that_is_refused_again_and_again_is_withdrawn() {
    let world = World::new();
    let urgent = promised_a_free_node(&world, false);
    world.admin(limit("atlas", 0));
    let mut schedule = scheduler(&world);
    tokio::time::pause();
    // A view may lag behind.
    for _ in 0..2 {
        schedule.reconcile(world.fence.clone()).await;
        assert_eq!(world.node().promised, Some(urgent));
    }
    tokio::time::advance(PERSISTENT_REFUSAL_TIME).await;
    schedule.reconcile(world.fence.clone()).await;
    assert_eq!((world.node().holder, world.node().promised), (None, None));
    assert_eq!(world.allocation(urgent).state, AllocationState::Pending);
    // After the limit is corrected, assignment works as before.
    world.admin(limit("atlas", 8));
    world.fold();
    schedule.reconcile(world.fence.clone()).await;
    assert_eq!(world.allocation(urgent).state, AllocationState::Starting);
}

/// Limited by the length of the command that would assign the nodes.
#[tokio::test]
async fn a_promise_that_no_command_could_keep_is_withdrawn() {
    let world = World::new();
    promised_a_free_node(&world, false);
    let mut schedule = scheduler(&world);
    schedule.max_command_bytes = 10;
    schedule.reconcile(world.fence.clone()).await;
    assert_eq!((world.node().holder, world.node().promised), (None, None));
}
