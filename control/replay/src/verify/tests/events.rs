//! Records in which allocations leave and enter the queue and the running set, for each reason that the state machine
//! has. The real state machine, view and solver write them.

use super::{
    scene::{HOUR_MS, running, scene, verified},
    *,
};
use lattice_quorum_types::{
    Command, NodeId,
    allocation::RankExit,
    command::{ExpectedNode, RankReport, Victim},
    scheduler::{PlannedReservations, SchedulerPatch, SettingPatch},
    spec::AllocationSpec,
};

#[test]
fn requeued_allocation_starts_twice() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    for _ in 0..2 {
        scene.admin(Command::Requeue { id });
        scene.plan();
        scene.end_ranks(id, None, RankExit::Stopped);
        scene.plan();
    }
    assert_eq!(scene.placements(id), 3);
    assert!(scene.has_change(id, AllocationChange::Requeued));
    scene.complete(id);
    verified(scene, bystander);
}

#[test]
fn suspended_allocation_is_resumed() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    scene.admin(Command::Suspend { id });
    scene.end_ranks(id, None, RankExit::Stopped);
    assert_eq!(scene.state_of(id), AllocationState::Suspended);
    let spec = scene.spec(6);
    let other = scene.submit(spec);
    scene.plan();
    scene.plan();
    scene.admin(Command::Resume { id });
    scene.plan();
    // The other allocation has the nodes.
    assert_eq!((scene.placements(id), scene.placements(other)), (1, 1));
    scene.complete(other);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    scene.complete(id);
    verified(scene, bystander);
}

/// Another allocation gets nodes ahead of the victim, without a plan: they were promised to it.
#[test]
fn preempted_allocation_waits_again() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let spec = AllocationSpec {
        class: 9,
        ..scene.spec(5)
    };
    let high = scene.submit(spec);
    let nodes: Vec<NodeId> = scene.nodes_of(id);
    let free = scene
        .state
        .nodes()
        .filter(|node| node.holder.is_none())
        .map(|node| node.id.clone());
    let nodes: Vec<NodeId> = nodes.into_iter().chain(free.take(2)).collect();
    let victims = vec![Victim {
        id,
        attempt: 1,
        checkpoint: None,
    }];
    let preempt = Command::Preempt {
        id: high,
        nodes: nodes.clone(),
        victims,
    };
    scene.scheduler(preempt).unwrap();
    scene.plan();
    scene.end_ranks(id, None, RankExit::Stopped);
    assert_eq!(scene.state_of(id), AllocationState::Pending);
    let promised = nodes.into_iter().map(|node| ExpectedNode {
        version: scene.state.node(&node).unwrap().version,
        node,
        boot: None,
    });
    let nodes = promised.collect();
    scene
        .scheduler(Command::Assign { id: high, nodes })
        .unwrap();
    scene.start_ranks(high);
    scene.plan();
    assert_eq!((scene.placements(id), scene.placements(high)), (1, 0));
    scene.complete(high);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    scene.complete(id);
    verified(scene, bystander);
}

#[test]
fn held_allocation_is_released() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let spec = scene.spec(6);
    let held = scene.submit(spec);
    scene.plan();
    scene.admin(Command::Hold { id: held });
    scene.complete(id);
    scene.plan();
    assert_eq!(scene.placements(held), 0);
    scene.admin(Command::Release { id: held });
    scene.plan();
    assert_eq!(scene.placements(held), 1);
    scene.complete(held);
    verified(scene, bystander);
}

/// A longer walltime moves the reservation of a blocked allocation, and with it what may be backfilled.
#[test]
fn extended_walltime_delays_others() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let spec = scene.spec(6);
    let blocked = scene.submit(spec);
    scene.plan();
    scene.admin(Command::SetWalltime {
        id,
        walltime_ms: 3 * HOUR_MS,
    });
    let spec = AllocationSpec {
        walltime_ms: Some(2 * HOUR_MS),
        ..scene.spec(2)
    };
    let short = scene.submit(spec);
    scene.plan();
    scene.admin(Command::SetWalltime {
        id,
        walltime_ms: HOUR_MS / 2,
    });
    scene.plan();
    assert!(scene.has_change(id, AllocationChange::Extended));
    assert_eq!(scene.placements(short), 1);
    scene.complete(id);
    scene.complete(short);
    scene.plan();
    assert_eq!(scene.placements(blocked), 1);
    scene.complete(blocked);
    verified(scene, bystander);
}

#[test]
fn allocation_grows_and_shrinks() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let added = scene.free_node();
    scene.admin(Command::Grow {
        id,
        nodes: vec![added.clone()],
    });
    scene.report(
        id,
        Some(&added.node),
        &RankReport::Started { at: scene.now },
    );
    let spec = scene.spec(3);
    let waits = scene.submit(spec);
    scene.plan();
    assert_eq!(scene.placements(waits), 0, "two nodes are free");
    let leaves = scene.nodes_of(id).first().cloned().unwrap();
    scene.admin(Command::Shrink {
        id,
        nodes: vec![leaves.clone()],
    });
    scene.plan();
    scene.end_ranks(id, Some(&leaves), RankExit::Stopped);
    scene.plan();
    assert_eq!(scene.placements(waits), 1);
    scene.complete(waits);
    scene.complete(id);
    verified(scene, bystander);
}

#[test]
fn lost_node_requeues_its_allocation() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let lost = scene.nodes_of(id).first().cloned().unwrap();
    let evidence = "the node has rebooted".to_owned();
    scene.end_ranks(id, Some(&lost), RankExit::Lost { evidence });
    scene.plan();
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    scene.complete(id);
    verified(scene, bystander);
}

/// The released node stays drained, so the allocation restarts on other nodes.
#[test]
fn forced_release_requeues_elsewhere() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let node = scene.nodes_of(id).first().cloned().unwrap();
    scene.admin(Command::ForceRelease {
        node: node.clone(),
        reason: "its rack is without power".to_owned(),
        expected: None,
    });
    scene.plan();
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    assert!(!scene.nodes_of(id).contains(&node));
    scene.admin(Command::Drain {
        node: node.clone(),
        reason: None,
        expected: None,
    });
    let spec = scene.spec(3);
    let other = scene.submit(spec);
    scene.plan();
    assert!(scene.nodes_of(other).contains(&node));
    scene.complete(other);
    scene.complete(id);
    verified(scene, bystander);
}

#[test]
fn cancelled_allocations_leave() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let spec = scene.spec(6);
    let waits = scene.submit(spec);
    scene.plan();
    scene.admin(Command::Cancel { id: waits });
    scene.admin(Command::Cancel { id });
    scene.plan();
    scene.end_ranks(id, None, RankExit::Stopped);
    assert_eq!(scene.state_of(id), AllocationState::Cancelled);
    scene.plan();
    assert_eq!((scene.placements(id), scene.placements(waits)), (1, 0));
    verified(scene, bystander);
}

/// A lower limit stops further starts, also of a requeued allocation.
#[test]
fn changed_limits_stop_and_permit_starts() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    scene.admin(Command::Requeue { id });
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.set_max_nodes(4);
    scene.plan();
    assert_eq!(scene.placements(id), 1, "two of four nodes are used");
    scene.set_max_nodes(5);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    scene.complete(id);
    verified(scene, bystander);
}

#[test]
fn changed_scheduler_settings_apply() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    let spec = scene.spec(6);
    let blocked = scene.submit(spec);
    let spec = AllocationSpec {
        walltime_ms: Some(2 * HOUR_MS),
        ..scene.spec(2)
    };
    let small = scene.submit(spec);
    scene.plan();
    scene.set_scheduler(SchedulerPatch {
        reservations: SettingPatch::Set(PlannedReservations::First(0)),
        ..SchedulerPatch::default()
    });
    scene.plan();
    assert_eq!(scene.placements(small), 1);
    scene.admin(Command::Requeue { id });
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.plan();
    assert_eq!(scene.placements(id), 2);
    scene.complete(small);
    scene.complete(id);
    scene.plan();
    assert_eq!(scene.placements(blocked), 1);
    scene.complete(blocked);
    verified(scene, bystander);
}

#[test]
fn array_elements_are_requeued() {
    let (mut scene, bystander) = scene();
    let mut spec = scene.spec(2);
    spec.terms.array = Some("0-3%2".parse().unwrap());
    let array = scene.submit(spec);
    scene.plan();
    let elements: Vec<AllocationId> = scene
        .state
        .live_allocations()
        .filter(|held| held.progress.element.is_some())
        .map(|held| held.id)
        .collect();
    assert_eq!(elements.len(), 2);
    scene.admin(Command::Requeue { id: array });
    scene.plan();
    for id in &elements {
        scene.end_ranks(*id, None, RankExit::Stopped);
    }
    scene.plan();
    for id in &elements {
        assert_eq!(scene.placements(*id), 2, "element {id}");
        scene.complete(*id);
    }
    scene.plan();
    scene.admin(Command::Cancel { id: array });
    let left: Vec<AllocationId> = scene
        .state
        .live_allocations()
        .filter(|held| held.progress.element.is_some())
        .map(|held| held.id)
        .collect();
    for id in left {
        scene.end_ranks(id, None, RankExit::Stopped);
    }
    verified(scene, bystander);
}

/// The scheduler may have received no answer to a proposal that was committed.
#[test]
fn start_without_an_answer_is_taken_from_the_event() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    scene.admin(Command::Requeue { id });
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.plan();
    scene.complete(id);
    scene.plan();
    scene.complete(bystander);
    let is_answer = |line: &Line| matches!(line, Line::Outcome { id: of, .. } if *of == id);
    let mut lines = scene.lines;
    lines.retain(|line| !is_answer(line));
    let verdict = of(&lines);
    assert!(verdict.is_same(), "{verdict:#?}");
    assert_eq!(verdict.allocations, 2);
}

/// A start that the record does not have is named, and the allocation then runs for its recorded run time.
#[test]
fn missing_start_is_named_with_inputs() {
    let (mut scene, bystander) = scene();
    let id = running(&mut scene);
    scene.admin(Command::Requeue { id });
    scene.end_ranks(id, None, RankExit::Stopped);
    scene.plan();
    scene.complete(id);
    scene.plan();
    scene.complete(bystander);
    let mut lines = scene.lines;
    let again = cycles(&mut lines).filter(|cycle| cycle.placed.iter().any(|one| one.id == id));
    let again = again.last().unwrap();
    again.placed.retain(|one| one.id != id);
    let verdict = of(&lines);
    let first = verdict.first_divergence.as_ref().unwrap();
    assert_eq!(first.id, Some(id));
    assert!(
        first
            .what
            .starts_with(&format!("allocation {id} was not placed in the record")),
        "{first:#?}"
    );
    assert!(
        first.inputs[0].starts_with(&format!("allocation {id} was requeued at ")),
        "{first:#?}"
    );
    assert!(!verdict.is_same());
    assert_eq!((verdict.allocations, verdict.same_start), (2, 1));
}
