//! Wipes of released nodes, confirmed by their agent.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tasks::testing::{
    id,
    world::{NODE, World},
};
use bytes::Bytes;
use lattice_mesh::{Clock as _, SystemClock};
use lattice_quorum_types::{
    ProjectPath, UnixMillis,
    attestation::{Attestation, Proof},
    command::{AttestedNode, ExpectedNode},
    node::Lifecycle,
    node_claim::{NodeClaimPhase, WipeOutcome},
};

/// A node claimed and released by alice. Returns the number of the pending wipe.
fn given_back(world: &World) -> u64 {
    let attestation = Attestation {
        node: id(NODE),
        boot_id: "b1".to_owned(),
        cohort: Some(Default::default()),
        classes: BTreeMap::new(),
        read_at: SystemClock.now(),
        nonce: [0; 16],
    };
    let node = AttestedNode {
        expected: ExpectedNode {
            node: id(NODE),
            version: world.node().version,
            boot: Some("b1".to_owned()),
        },
        proof: Proof {
            attestation,
            signature: Bytes::new(),
            completed: BTreeMap::new(),
            conforms: BTreeMap::new(),
        },
    };
    world.user(
        "alice",
        Command::ClaimNodes {
            project: ProjectPath::new("atlas").unwrap(),
            nodes: vec![node],
            purpose: String::new(),
        },
    );
    world.user(
        "alice",
        Command::ReleaseNodes {
            nodes: vec![id(NODE)],
            reason: None,
        },
    );
    awaited(world)
}

/// Number of the pending wipe, after an update of the view.
fn awaited(world: &World) -> u64 {
    world.fold();
    let node_claim = world.node().node_claim.unwrap();
    node_claim.awaits_wipe().unwrap()
}

/// Sets the state of the agent's wipe with this number.
fn stands(world: &World, number: u64, status: WipeStatus) {
    world
        .agent_answers
        .lock()
        .unwrap()
        .wipes
        .insert(number, status);
}

fn wiped() -> WipeStatus {
    WipeStatus::Ended(WipeOutcome::Wiped {
        at: UnixMillis(5),
        boot: "b1".to_owned(),
        evidence: "all clean".to_owned(),
    })
}

/// Numbers of the orders received by the agent.
fn ordered(world: &World) -> Vec<u64> {
    let says = world.agent_answers.lock().unwrap();
    says.wipe_orders.iter().map(|wipe| wipe.number).collect()
}

/// One pass under this fence, on the committed view.
async fn pass(wipes: &mut Wipes, world: &World, fence: &Fence) -> usize {
    world.fold();
    wipes.reconcile(fence).await
}

#[tokio::test]
async fn wipe_order_names_user_and_frees_node() {
    let world = World::new();
    let mut wipes = Wipes::new(world.core.clone());
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 0);
    assert!(ordered(&world).is_empty(), "nobody has given it back");

    let number = given_back(&world);
    let since = UnixMillis(4);
    stands(&world, number, WipeStatus::Running { since });
    let before = world.commands();
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 0);
    assert_eq!(world.commands(), before, "it runs: nothing is to be said");
    assert_eq!(awaited(&world), number);
    assert!(!world.node().is_assignable());
    let order = world.agent_answers.lock().unwrap().wipe_orders[0].clone();
    assert_eq!(
        (order.number, order.user.as_str(), order.project.as_str()),
        (number, "alice", "atlas")
    );

    stands(&world, number, wiped());
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 1);
    let node = world.node();
    assert_eq!(
        (node.node_claim.as_ref(), node.is_assignable()),
        (None, true)
    );
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 0);
    assert_eq!(ordered(&world), [number, number], "it is not asked again");
}

#[tokio::test]
async fn failed_wipe_blocks_node_until_new_order() {
    let world = World::new();
    let mut wipes = Wipes::new(world.core.clone());
    let number = given_back(&world);
    let failed = WipeOutcome::Failed {
        at: UnixMillis(5),
        boot: "b1".to_owned(),
        reason: "scratch is busy".to_owned(),
    };
    stands(&world, number, WipeStatus::Ended(failed));
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 1);
    let node = world.node();
    assert_eq!(node.lifecycle, Lifecycle::Quarantined);
    let phase = node.node_claim.unwrap().phase;
    assert!(
        matches!(&phase, NodeClaimPhase::Unclean { wipe, reason, .. }
            if *wipe == number && reason == "scratch is busy"),
        "{phase:?}"
    );
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 0);
    assert_eq!(ordered(&world), [number], "only a person goes on from here");

    world.admin(Command::RepeatWipe {
        node: id(NODE),
        reason: "ended what held it".to_owned(),
    });
    let again = awaited(&world);
    assert!(again > number);
    stands(&world, again, wiped());
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 1);
    let node = world.node();
    assert_eq!(
        (node.node_claim, node.lifecycle),
        (None, Lifecycle::Drained)
    );
    assert_eq!(ordered(&world), [number, again]);
}

#[tokio::test]
async fn lost_answer_repeats_same_number() {
    let world = World::new();
    let mut wipes = Wipes::new(world.core.clone());
    let number = given_back(&world);
    let before = world.commands();
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 0);
    assert_eq!(wipes.logged_failures[&id(NODE)], "work still runs");

    stands(&world, number, wiped());
    world.agent_answers.lock().unwrap().loses_replies = true;
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 0);
    assert!(
        wipes.logged_failures[&id(NODE)].contains("cut off"),
        "{wipes:?}"
    );
    assert_eq!(world.commands(), before);
    assert_eq!(awaited(&world), number);

    world.agent_answers.lock().unwrap().loses_replies = false;
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 1);
    assert_eq!(ordered(&world), [number; 3]);
    assert_eq!(world.node().node_claim, None);
}

/// The agent's result reached the leader and was committed; then the leader failed.
#[tokio::test]
async fn committed_outcome_is_not_repeated() {
    let world = World::new();
    let mut wipes = Wipes::new(world.core.clone());
    let number = given_back(&world);
    stands(&world, number, wiped());
    world.copy().set_loses_answers(true);
    // Another control proposes on a view in which the node still waits.
    let late = world.core.view();
    assert_eq!(wipes.reconcile(&world.fence).await, 0, "nobody knows yet");
    world.copy().set_loses_answers(false);
    assert_eq!(due(&late).len(), 1);
    let freed = world.node();
    assert_eq!(freed.node_claim, None);
    assert_eq!(wipes.reconcile(&world.fence).await, 1, "it is said again");
    assert_eq!(world.node(), freed, "and changes nothing");
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 0);
    assert_eq!(ordered(&world), [number; 2]);
}

#[tokio::test]
async fn superseded_control_changes_nothing() {
    let world = World::new();
    let mut wipes = Wipes::new(world.core.clone());
    let number = given_back(&world);
    let since = UnixMillis(4);
    stands(&world, number, WipeStatus::Running { since });
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 0);
    let next = world.hand_lease_to_other_control();
    stands(&world, number, wiped());
    assert_eq!(pass(&mut wipes, &world, &world.fence).await, 0);
    assert_eq!(awaited(&world), number, "its lease is over");
    let mut wipes = Wipes::new(world.core.clone());
    assert_eq!(pass(&mut wipes, &world, &next).await, 1);
    assert_eq!(world.node().node_claim, None);
    assert_eq!(ordered(&world), [number; 3]);
}

#[tokio::test]
async fn silent_node_is_not_asked() {
    let world = World::new();
    let mut wipes = Wipes::new(world.core.clone());
    let number = given_back(&world);
    stands(&world, number, wiped());
    world.set_liveness(Liveness::Unreachable);
    assert_eq!(wipes.reconcile(&world.fence).await, 0);
    assert!(ordered(&world).is_empty());
    assert_eq!(awaited(&world), number);
    world.set_liveness(Liveness::Alive);
    assert_eq!(wipes.reconcile(&world.fence).await, 1);
    assert_eq!(world.node().node_claim, None);
}
