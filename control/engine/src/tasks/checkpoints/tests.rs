//! Unwritable checkpoint storage, as reported by an agent.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{
    exposition::Exposition,
    tasks::{schedule::preemption_search::work_of, testing::world::World},
};
use lattice_agent_rpc::WriteCheckpoint;
use lattice_mesh::Router;
use lattice_placement::movement::preempt::CheckpointAbility;
use lattice_quorum_types::{
    AllocationState, Revision, VclusterName,
    checkpoint::CheckpointMode,
    scheduler::{CheckpointSettings, SchedulerSettings},
    terms::{CheckpointTerms, CheckpointTrigger, Terms},
    vcluster::{Vcluster, VclusterDefinition},
};
use std::sync::atomic::{AtomicBool, Ordering};

const PATIENCE: Duration = Duration::from_secs(60);
const OUT: &str = "lattice_checkpoint_storage_unavailable{vcluster=\"default\"} 1\n";

/// An agent that writes checkpoints, or cannot.
fn agent(can_write: Arc<AtomicBool>) -> Router {
    Router::new().rpc(move |_, _: WriteCheckpoint| {
        let at = UnixMillis(1);
        let outcome = match can_write.load(Ordering::SeqCst) {
            true => CheckpointOutcome::Written {
                at,
                bytes: Some(1),
                took_ms: 1,
            },
            false => CheckpointOutcome::Failed {
                at,
                cause: CheckpointFailure::Storage,
                reason: "read-only file system".to_owned(),
            },
        };
        async move { Ok(Ok(CheckpointStatus::Ended(outcome))) }
    })
}

/// A running job that can write checkpoints; one is due whenever a millisecond has passed.
fn saver(world: &World) -> AllocationId {
    let name = VclusterName::new("default").unwrap();
    let scheduler = SchedulerSettings {
        checkpoint: CheckpointSettings {
            min_interval_ms: Some(1),
            max_interval_ms: Some(1),
            ..CheckpointSettings::default()
        },
        ..SchedulerSettings::default()
    };
    let known = Vcluster {
        name: name.clone(),
        definition: VclusterDefinition {
            scheduler,
            ..VclusterDefinition::default()
        },
        version: 1,
        revision: Revision(1),
    };
    let terms = CheckpointTerms {
        mode: CheckpointMode::Signal,
        trigger: CheckpointTrigger::Automatic,
        directory: Some("/ckpt".to_owned()),
    };
    let terms = Terms {
        checkpoint: Some(terms),
        ..Terms::default()
    };
    let key = world.start_with_terms("b1", terms);
    world.core.restart(|view| {
        view.vclusters = Arc::new([(name, known)].into());
    });
    key.allocation
}

/// Requests a checkpoint and handles its result.
async fn one(world: &World, checkpoints: &mut Checkpoints, id: AllocationId) {
    one_to(world, checkpoints, id, format!("/ckpt/{id}")).await;
}

async fn one_to(world: &World, checkpoints: &mut Checkpoints, id: AllocationId, directory: String) {
    world.service(Command::WriteCheckpoint {
        id,
        directory,
        timeout_ms: 60_000,
    });
    world.fold();
    assert_eq!(checkpoints.reconcile(&world.fence).await.asked, 1);
    let woken = tokio::time::timeout(PATIENCE, checkpoints.wakes());
    woken.await.unwrap();
    checkpoints.reconcile(&world.fence).await;
    assert_eq!(world.allocation(id).state, AllocationState::Running);
    world.fold();
}

#[tokio::test]
async fn a_place_that_cannot_be_written_to_is_left_alone_until_one_is_whole() {
    let can_write = Arc::new(AtomicBool::new(false));
    let says = can_write.clone();
    let world = World::with_agent(|_, _| agent(says));
    let id = saver(&world);
    let core = world.core.clone();
    let mut checkpoints = Checkpoints::new(core.clone(), world.checkpoints.clone());
    // The test evaluates the benefit itself, not the pass.
    checkpoints.evaluated_at = Some(Instant::now());
    let due = || async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        selection::due(&world.checkpoints, &core.view(), core.now()).len()
    };
    let saves = || {
        let view = core.view();
        work_of(
            &world.checkpoints,
            &view,
            view.allocation(id).unwrap(),
            core.now(),
        )
        .saves
    };
    let orders = || {
        let mut exposition = Exposition::default();
        world.checkpoints.expose(&core.view(), &mut exposition);
        exposition.text()
    };
    assert_eq!(due().await, 1);
    assert!(matches!(saves(), CheckpointAbility::In { .. }));
    assert!(!orders().contains(OUT));

    // A checkpoint to another directory on request gives no information about the usual storage.
    one_to(&world, &mut checkpoints, id, "/elsewhere".to_owned()).await;
    assert_eq!(world.allocation(id).progress.failed_checkpoints, 1);
    assert!(matches!(saves(), CheckpointAbility::In { .. }));
    assert!(!orders().contains(OUT));

    one(&world, &mut checkpoints, id).await;
    assert_eq!(world.allocation(id).progress.failed_checkpoints, 2);
    assert_eq!(due().await, 0, "requests are paused");
    assert_eq!(
        saves(),
        CheckpointAbility::NotNow,
        "who must go is not asked for one"
    );
    assert!(orders().contains(OUT), "{}", orders());

    // An operator may request one all the same.
    can_write.store(true, Ordering::SeqCst);
    one(&world, &mut checkpoints, id).await;
    assert_eq!(world.allocation(id).progress.kept.unwrap().number, 3);
    assert_eq!(due().await, 1);
    assert!(matches!(saves(), CheckpointAbility::In { .. }));
    assert!(!orders().contains(OUT), "{}", orders());
}

#[tokio::test]
async fn what_is_to_leave_lent_nodes_begins_none_of_its_own() {
    let world = World::new();
    saver(&world);
    let core = world.core.clone();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(
        selection::due(&world.checkpoints, &core.view(), core.now()).len(),
        1
    );
    let recalled = |at: Option<UnixMillis>| {
        core.restart(|view| {
            for entry in Arc::make_mut(&mut view.nodes).values_mut() {
                Arc::make_mut(entry).record.as_mut().unwrap().reclaimed_at = at;
            }
        });
    };
    recalled(Some(UnixMillis(1)));
    assert_eq!(
        selection::due(&world.checkpoints, &core.view(), core.now()).len(),
        0,
        "it writes one when it goes"
    );
    recalled(None);
    assert_eq!(
        selection::due(&world.checkpoints, &core.view(), core.now()).len(),
        1
    );
}

#[tokio::test]
async fn panicked_call_is_repeated_alone() {
    let can_write = Arc::new(AtomicBool::new(true));
    let world = World::with_agent(|_, _| agent(can_write));
    let mut checkpoints = Checkpoints::new(world.core.clone(), world.checkpoints.clone());
    let part = |number| Part {
        key: lattice_agent_rpc::AttemptKey {
            allocation: AllocationId(7),
            attempt: 1,
        },
        number,
        node: crate::tasks::testing::id("n1"),
        asked_at: UnixMillis(1),
        most_pause: Duration::from_secs(1),
    };
    let last = Some(RankReportTime {
        at: UnixMillis(5),
        is_progressing: true,
    });
    for number in [1, 2] {
        checkpoints
            .parts
            .insert(part(number), CallState::UnderWay { last });
    }
    checkpoints.calls.spawn(part(1), std::future::pending());
    checkpoints.calls.spawn(part(2), async { panic!("a bug") });
    let woken = tokio::time::timeout(PATIENCE, checkpoints.wakes());
    woken.await.unwrap();
    assert_eq!(
        checkpoints.parts[&part(1)],
        CallState::UnderWay { last },
        "its call goes on"
    );
    let panicked = checkpoints.parts[&part(2)];
    assert!(
        matches!(panicked, CallState::Waits { until, last: known, .. }
            if until > Instant::now() && known == last),
        "{panicked:?}"
    );
    assert_eq!(checkpoints.calls.len(), 1);
}
