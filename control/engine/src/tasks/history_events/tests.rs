#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{
    history::{EventContent, HistoryItem, Listing},
    tasks::testing::world::{NODE, World},
};
use lattice_quorum_types::{
    Command,
    baseline::{BaselineDefinition, DriftPolicy},
};

fn node() -> NodeId {
    NodeId::new(NODE).unwrap()
}

fn drain(world: &World, reason: Option<&str>) {
    world.admin(Command::Drain {
        node: node(),
        reason: reason.map(str::to_owned),
        expected: None,
    });
    world.fold();
}

/// All notes, newest first.
async fn noted(world: &World) -> Vec<(u64, NodeObservation)> {
    let listing = Listing::default();
    let items = world.history.list(NODE.to_owned(), listing, 1_000);
    let items = items
        .await
        .unwrap()
        .into_iter()
        .filter_map(|item| match item {
            HistoryItem::Event(happened) => match happened.what {
                EventContent::Noted(noted) => Some((happened.when, noted)),
                _ => None,
            },
            HistoryItem::Change(_) => None,
        });
    items.collect()
}

fn drains(noted: &[(u64, NodeObservation)]) -> Vec<(DrainTurn, String, bool)> {
    let drains = noted.iter().filter_map(|(_, noted)| match noted {
        NodeObservation::Drain {
            turn, reason, late, ..
        } => Some((*turn, reason.clone(), *late)),
        _ => None,
    });
    drains.collect()
}

fn turns(noted: &[(u64, NodeObservation)]) -> Vec<(bool, u32)> {
    let turns = noted.iter().filter_map(|(_, noted)| match noted {
        NodeObservation::Liveness {
            is_alive, left_out, ..
        } => Some((*is_alive, *left_out)),
        _ => None,
    });
    turns.collect()
}

#[tokio::test]
async fn a_drain_is_noted_at_its_own_time_and_once_and_so_is_its_end() {
    let world = World::new();
    let mut notes = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    drain(&world, Some("fan is loud"));
    notes.reconcile().await.unwrap();
    let since = world.node().drain[0].since.0;
    let all = noted(&world).await;
    assert_eq!(
        drains(&all),
        [(DrainTurn::Set, "fan is loud".to_owned(), false)]
    );
    let (when, _) = all
        .iter()
        .find(|(_, n)| matches!(n, NodeObservation::Drain { .. }))
        .unwrap();
    assert_eq!(*when, since);
    let before = all.len();
    assert_eq!(
        notes.reconcile().await.unwrap(),
        HistoryEventsReport::default()
    );
    assert_eq!(noted(&world).await.len(), before);
    drain(&world, Some("fan is very loud"));
    notes.reconcile().await.unwrap();
    drain(&world, None);
    notes.reconcile().await.unwrap();
    let turns: Vec<DrainTurn> = drains(&noted(&world).await).iter().map(|d| d.0).collect();
    assert_eq!(
        turns,
        [DrainTurn::Cleared, DrainTurn::Changed, DrainTurn::Set]
    );
}

#[tokio::test]
async fn restarted_control_notes_late_changes_once() {
    let world = World::new();
    let mut notes = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    drain(&world, Some("fan is loud"));
    notes.reconcile().await.unwrap();
    let before = noted(&world).await;
    drop(notes);
    let mut again = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    assert_eq!(again.reconcile().await.unwrap().noted, 0);
    assert_eq!(noted(&world).await, before);
    drop(again);
    // The node is undrained and drained again for another owner's reason while no control observes it.
    drain(&world, None);
    let mut third = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    third.reconcile().await.unwrap();
    let expected = (DrainTurn::Cleared, "fan is loud".to_owned(), true);
    assert_eq!(drains(&noted(&world).await)[0], expected);
    // Later changes are seen as they happen.
    drain(&world, Some("again"));
    third.reconcile().await.unwrap();
    let expected = (DrainTurn::Set, "again".to_owned(), false);
    assert_eq!(drains(&noted(&world).await)[0], expected);
}

#[tokio::test]
async fn a_node_that_goes_and_comes_is_noted_so_often_and_then_counted() {
    let world = World::new();
    let mut notes = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    notes.reconcile().await.unwrap();
    assert_eq!(turns(&noted(&world).await), [], "it was alive all the time");
    world.set_liveness(Liveness::Suspect);
    notes.reconcile().await.unwrap();
    assert_eq!(turns(&noted(&world).await), [], "suspicion is no turn");
    for _ in 0..50 {
        world.set_liveness(Liveness::Unreachable);
        notes.reconcile().await.unwrap();
        world.set_liveness(Liveness::Alive);
        notes.reconcile().await.unwrap();
    }
    let all = turns(&noted(&world).await);
    assert_eq!(all.len(), MAX_LIVENESS_CHANGES);
    assert_eq!(all[0], (true, 0));
    assert_eq!(all[1], (false, 0));
}

#[test]
fn suppressed_flaps_are_counted_later() {
    let hour = 3_600_000;
    let mut compared = ComparedNode {
        lifecycle: Lifecycle::Ready,
        drain: Vec::new(),
        is_alive: true,
        turns: VecDeque::new(),
        unnoted: 0,
        last_seen: true,
        baselines: BTreeSet::new(),
    };
    let mut node = crate::tasks::testing::entry(NODE);
    let mut counts = Vec::new();
    for second in 0..100 {
        node.liveness = match second % 2 {
            0 => Liveness::Unreachable,
            _ => Liveness::Alive,
        };
        counts.extend(compared.liveness(&node, hour + second * 1_000, false));
    }
    assert_eq!(counts.len(), MAX_LIVENESS_CHANGES);
    node.liveness = Liveness::Unreachable;
    let (when, noted) = compared.liveness(&node, 3 * hour, false).unwrap();
    let left_out = match noted {
        NodeObservation::Liveness { left_out, .. } => left_out,
        other => unreachable!("{other:?}"),
    };
    assert_eq!(
        (when, left_out as usize),
        (3 * hour, 100 - MAX_LIVENESS_CHANGES)
    );
}

#[tokio::test]
async fn audit_entries_join_history_with_their_time() {
    let world = World::new();
    let mut notes = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    notes.reconcile().await.unwrap();
    world.start("b1");
    world.admin(Command::ForceRelease {
        node: node(),
        reason: "the cage is dark".to_owned(),
        expected: None,
    });
    world.fold();
    // Another run: it reads the audit at once.
    let mut again = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    again.reconcile().await.unwrap();
    let mut third = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    third.reconcile().await.unwrap();
    let all = noted(&world).await;
    let audits: Vec<&(u64, NodeObservation)> = all
        .iter()
        .filter(|(_, noted)| matches!(noted, NodeObservation::Audit { .. }))
        .collect();
    let [
        (
            when,
            NodeObservation::Audit {
                action,
                by,
                summary,
                ..
            },
        ),
    ] = audits[..]
    else {
        unreachable!("{audits:?}");
    };
    assert_eq!((action.as_str(), by.as_str()), ("force_released", "root"));
    assert!(summary.contains("the cage is dark"), "{summary}");
    assert!(*when <= world.core.now().0 && *when > 0);
}

fn late_turns(noted: &[(u64, NodeObservation)]) -> Vec<(bool, bool)> {
    let turns = noted.iter().filter_map(|(_, noted)| match noted {
        NodeObservation::Liveness { is_alive, late, .. } => Some((*is_alive, *late)),
        _ => None,
    });
    turns.collect()
}

#[tokio::test]
async fn unobserved_departure_is_marked_late() {
    let world = World::new();
    let mut notes = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    notes.reconcile().await.unwrap();
    drop(notes);
    // A starting control does not know the liveness of any node for as long as the node may be silent.
    world.set_liveness(Liveness::Unknown);
    let mut again = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    again.reconcile().await.unwrap();
    again.reconcile().await.unwrap();
    assert_eq!(late_turns(&noted(&world).await), []);
    world.set_liveness(Liveness::Unreachable);
    again.reconcile().await.unwrap();
    assert_eq!(late_turns(&noted(&world).await), [(false, true)]);
    world.set_liveness(Liveness::Alive);
    again.reconcile().await.unwrap();
    world.set_liveness(Liveness::Suspect);
    again.reconcile().await.unwrap();
    world.set_liveness(Liveness::Unreachable);
    again.reconcile().await.unwrap();
    let seen = [(false, false), (true, false), (false, true)];
    assert_eq!(late_turns(&noted(&world).await), seen);
}

/// Notes from the audit, oldest first.
async fn audits(world: &World) -> Vec<String> {
    let all = noted(world).await.into_iter().rev();
    let audits = all.filter_map(|(_, noted)| match noted {
        NodeObservation::Audit { by, action, .. } => Some(format!("{by} {action}")),
        _ => None,
    });
    audits.collect()
}

/// A pass of a starting control, which reads the audit at once.
async fn looks_anew(world: &World) {
    let mut notes = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    notes.reconcile().await.unwrap();
}

fn names(nodes: &str) -> BaselineDefinition {
    BaselineDefinition {
        nodes: nodes.to_owned(),
        ..BaselineDefinition::default()
    }
}

#[tokio::test]
async fn baseline_changes_join_node_history() {
    let world = World::new();
    world.require_firmware(DriftPolicy::Drain, names("b[1-4]"));
    looks_anew(&world).await;
    assert_eq!(
        audits(&world).await,
        Vec::<String>::new(),
        "it is for others"
    );
    world.require_firmware(DriftPolicy::Drain, names(NODE));
    looks_anew(&world).await;
    assert_eq!(audits(&world).await, ["root baseline_set"]);
    world.require_firmware(DriftPolicy::Warn, names("b[1-4]"));
    looks_anew(&world).await;
    let both = ["root baseline_set", "root baseline_set"];
    assert_eq!(audits(&world).await, both, "it is for it no more");
    let delete = || {
        world.admin(Command::DeleteBaseline {
            name: BaselineName::new("fw").unwrap(),
            expected_version: None,
        });
        world.fold();
    };
    delete();
    looks_anew(&world).await;
    assert_eq!(audits(&world).await, both, "it was for others");
    world.require_firmware(DriftPolicy::Warn, names(NODE));
    looks_anew(&world).await;
    delete();
    looks_anew(&world).await;
    looks_anew(&world).await;
    let all = audits(&world).await;
    assert_eq!(all[2..], ["root baseline_set", "root baseline_deleted"]);
}

#[tokio::test]
async fn the_brake_is_in_the_history_of_every_node() {
    let world = World::new();
    world.service(Command::HoldBrake {
        reason: "12 nodes at once".to_owned(),
    });
    world.admin(Command::ReleaseBrake {
        reason: "they are meant to".to_owned(),
    });
    world.fold();
    looks_anew(&world).await;
    let all = audits(&world).await;
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].ends_with(" brake_held"), "{all:?}");
    assert_eq!(all[1], "root brake_released");
}

#[tokio::test]
async fn suspect_periods_join_history() {
    let world = World::new();
    let mut notes = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    notes.reconcile().await.unwrap();
    let began = world.core.now().0;
    world.set_liveness(Liveness::Suspect);
    notes.reconcile().await.unwrap();
    let suspected = |noted: &[(u64, NodeObservation)]| -> Vec<(u64, u32)> {
        let found = noted.iter().filter_map(|(when, noted)| match noted {
            NodeObservation::Suspect { left_out, .. } => Some((*when, *left_out)),
            _ => None,
        });
        found.collect()
    };
    assert_eq!(suspected(&noted(&world).await), [], "it is not over");
    let back = world.core.now().0;
    world.set_liveness(Liveness::Alive);
    notes.reconcile().await.unwrap();
    let found = suspected(&noted(&world).await);
    assert_eq!(found.len(), 1);
    assert!((began..=back).contains(&found[0].0), "{found:?}");
    world.set_liveness(Liveness::Suspect);
    notes.reconcile().await.unwrap();
    world.set_liveness(Liveness::Unreachable);
    notes.reconcile().await.unwrap();
    world.set_liveness(Liveness::Alive);
    notes.reconcile().await.unwrap();
    let all = noted(&world).await;
    assert_eq!(suspected(&all).len(), 1, "it is noted as unreachable");
    assert_eq!(turns(&all).len(), 2);
    for _ in 0..50 {
        world.set_liveness(Liveness::Suspect);
        notes.reconcile().await.unwrap();
        world.set_liveness(Liveness::Alive);
        notes.reconcile().await.unwrap();
    }
    assert_eq!(suspected(&noted(&world).await).len(), MAX_LIVENESS_CHANGES);
}

#[tokio::test]
async fn deleted_baseline_joins_history_without_note() {
    let world = World::new();
    world.require_firmware(DriftPolicy::Warn, names(NODE));
    looks_anew(&world).await;
    // Like a node that joined after the baseline was set.
    let (compared, _) = world.history.comparison_progress().await.unwrap();
    let mut old: serde_json::Value = serde_json::from_slice(&compared[NODE]).unwrap();
    old["baselines"] = serde_json::json!([]);
    let note = TimedObservations {
        node: NODE.to_owned(),
        happened: Vec::new(),
        comparison_state: serde_json::to_vec(&old).ok(),
    };
    world.history.note(vec![note], None).await.unwrap();
    let mut notes = HistoryEventsTask::new(world.core.clone(), world.history.clone());
    let started_at = notes.started_at.checked_sub(SETTLES_AFTER);
    notes.started_at = started_at.unwrap();
    notes.reconcile().await.unwrap();
    assert_eq!(audits(&world).await, ["root baseline_set"]);
    world.admin(Command::DeleteBaseline {
        name: BaselineName::new("fw").unwrap(),
        expected_version: None,
    });
    world.fold();
    looks_anew(&world).await;
    let both = ["root baseline_set", "root baseline_deleted"];
    assert_eq!(audits(&world).await, both);
}
