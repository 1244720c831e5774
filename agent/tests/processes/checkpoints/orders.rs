//! Checkpoint orders that an agent accepts and rejects.

use super::fixture::*;
use crate::support::{pid_in, runs};

#[tokio::test]
async fn an_order_is_taken_once_and_refused_where_it_makes_no_sense() {
    let scene = Scene::new();
    scene
        .count(key(1), CheckpointMode::Signal, "--write-ms 1500")
        .await;
    let (second, third) = (scene.order(2, LONG_MS), scene.order(3, LONG_MS));
    scene.stands(key(1), &second, is_writing).await;
    let refused = |given, current| Err(CheckpointRefused::StaleNumber { given, current });
    assert_eq!(
        scene.ask(key(1), &scene.order(1, LONG_MS)).await,
        refused(1, 2)
    );
    let busy = CheckpointRefused::InProgress {
        given: 3,
        current: 2,
    };
    assert_eq!(scene.ask(key(1), &third).await, Err(busy));
    // A repeat changes nothing, whatever its other fields.
    let changed = CheckpointOrder {
        timeout_ms: 1,
        ..second.clone()
    };
    assert!(is_writing(&scene.ask(key(1), &changed).await.unwrap()));
    assert!(scene.outcome(key(1), &second).await.is_written());
    let asked = scene.bench.stdout(key(1)).matches("asked 2 ").count();
    assert_eq!(asked, 1);

    let relative = CheckpointOrder::new(3, "here", LONG_MS);
    let Err(CheckpointRefused::Invalid { reason }) = scene.ask(key(1), &relative).await else {
        panic!("a relative path was taken");
    };
    assert!(reason.starts_with("directory \"here\""), "{reason}");
    let stale = WriteCheckpoint {
        key: key(1),
        epoch: 0,
        order: third.clone(),
    };
    let refused = CheckpointRefused::StaleEpoch {
        given: 0,
        current: 1,
    };
    assert_eq!(scene.executor.write_checkpoint(stale).await, Err(refused));
    assert_eq!(scene.ask(key(9), &third).await, Ok(CheckpointStatus::Gone));
    scene
        .executor
        .launch(shell(key(2), "sleep 60"))
        .await
        .unwrap();
    assert_eq!(
        scene.ask(key(2), &third).await,
        Err(CheckpointRefused::NotPrepared)
    );
    for number in [1, 2] {
        scene
            .executor
            .terminate(terminate(key(number)))
            .await
            .unwrap();
        scene.bench.ledger.end(key(number)).await;
    }
    scene.executor.stop().await;
}

#[tokio::test]
async fn failed_preparation_names_reason() {
    let scene = Scene::new();
    let mut setup = scene.setup(CheckpointMode::Signal);
    setup.directory = "s3://atlas/12".to_owned();
    scene.launch(shell(key(1), "true"), setup).await;
    let RankExit::SpawnFailed { reason } = scene.bench.ledger.end(key(1)).await else {
        panic!("it was started");
    };
    assert!(
        reason.contains("s3://atlas/12") && reason.contains("callback"),
        "{reason}"
    );
    scene.executor.stop().await;
}

#[tokio::test]
async fn an_object_store_is_the_works_business() {
    let scene = Scene::new();
    let mut setup = scene.setup(CheckpointMode::Callback);
    setup.directory = "s3://atlas/12".to_owned();
    scene.launch(counter(key(1), "--fail told"), setup).await;
    scene.says(key(1), "step 1\n").await;
    let order = CheckpointOrder::new(1, "s3://atlas/12", LONG_MS);
    assert_eq!(failure(&scene.outcome(key(1), &order).await).1, "told");
    scene.executor.terminate(terminate(key(1))).await.unwrap();
    scene.executor.stop().await;
}

#[tokio::test]
async fn a_program_without_a_handler_is_not_ended_by_the_signal() {
    let scene = Scene::new();
    let pid = scene.bench.file("pid");
    let script = format!("echo $$ > '{}'; exec sleep 60", pid.display());
    scene
        .launch(shell(key(1), &script), scene.setup(CheckpointMode::Signal))
        .await;
    let first = pid_in(&pid).await;
    let order = scene.order(1, 400);
    let (cause, reason) = failure(&scene.outcome(key(1), &order).await);
    assert_eq!(cause, CheckpointFailure::Unresponsive);
    assert!(reason.contains("has no handler for SIGUSR1"), "{reason}");
    assert!(runs(first));
    scene.executor.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(scene.bench.ledger.end(key(1)).await, RankExit::Stopped);
    scene.executor.stop().await;
}
