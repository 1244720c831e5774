//! Checkpoints across agent restarts and job ends.

use super::fixture::*;
use crate::support::recorded_pid;
use lattice_agent::attempt::{AttemptDir, OrderRecord};
use lattice_mesh::{Clock, SystemClock};
use rustix::process::{Pid, Signal, kill_process};

#[tokio::test]
async fn agent_may_restart_meanwhile() {
    let scene = Scene::new();
    for (number, mode) in (1..).zip(CheckpointMode::ALL) {
        scene.count(key(number), mode, "--write-ms 600").await;
        let order = scene.order(1, LONG_MS);
        scene.stands(key(number), &order, is_writing).await;
    }
    scene.executor.stop().await;
    let ends = |number| {
        let path = scene
            .bench
            .attempt_dir(key(number))
            .join("checkpoint.state.json");
        eventually("an end without an agent", move || {
            let text = std::fs::read_to_string(&path).ok()?;
            text.contains("written").then_some(())
        })
    };
    for number in 1..=3 {
        ends(number).await;
    }
    let again = scene.bench.open();
    for number in 1..=3 {
        let order = scene.order(1, LONG_MS);
        assert!(outcome(&again, key(number), &order).await.is_written());
        // An agent that did not start the job also reaches it.
        let next = scene.order(2, LONG_MS);
        assert!(outcome(&again, key(number), &next).await.is_written());
        again.terminate(terminate(key(number))).await.unwrap();
        scene.bench.ledger.end(key(number)).await;
    }
    again.stop().await;
}

#[tokio::test]
async fn an_order_that_an_agent_wrote_and_did_not_pass_on_is_carried_out() {
    let scene = Scene::new();
    scene.count(key(1), CheckpointMode::SharedMemory, "").await;
    scene.executor.stop().await;
    let order = scene.order(1, LONG_MS);
    let record = OrderRecord {
        order: order.clone(),
        asked_at: SystemClock.now(),
    };
    let dir = AttemptDir::at(scene.bench.attempt_dir(key(1)));
    dir.write_checkpoint_order(&record).unwrap();
    let next = scene.bench.open();
    assert!(outcome(&next, key(1), &order).await.is_written());
    next.terminate(terminate(key(1))).await.unwrap();
    scene.bench.ledger.end(key(1)).await;
    next.stop().await;
}

#[tokio::test]
async fn a_checkpoint_that_is_not_whole_when_its_job_ends_never_is() {
    let scene = Scene::new();
    for (number, mode) in (1..).zip(CheckpointMode::ALL) {
        let (stopped, late, lost) = (key(number), key(10 + number), key(20 + number));
        let order = scene.order(1, LONG_MS);
        scene.count(stopped, mode, "--write-ms 60000").await;
        scene.stands(stopped, &order, is_writing).await;
        scene.executor.terminate(terminate(stopped)).await.unwrap();
        assert_eq!(scene.bench.ledger.end(stopped).await, RankExit::Stopped);

        let order = scene.order(1, LONG_MS);
        let mut job = counter(late, "--write-ms 60000");
        job.walltime_ms = Some(2500);
        scene.launch(job, scene.setup(mode)).await;
        scene.says(late, "step 1\n").await;
        scene.stands(late, &order, is_writing).await;
        assert_eq!(scene.bench.ledger.end(late).await, RankExit::Walltime);

        scene.count(lost, mode, "--write-ms 60000").await;
        scene.stands(lost, &order, is_writing).await;
        let supervisor = recorded_pid(&scene.bench.attempt_dir(lost), "supervisor.json");
        kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
        assert!(matches!(
            scene.bench.ledger.end(lost).await,
            RankExit::Lost { .. }
        ));

        for key in [stopped, late, lost] {
            let (cause, _) = failure(&scene.outcome(key, &order).await);
            assert_eq!(cause, CheckpointFailure::JobEnded, "{mode}");
            // No other checkpoint was requested, and none can be.
            let next = scene.order(2, LONG_MS);
            assert_eq!(scene.ask(key, &next).await, Ok(CheckpointStatus::Gone));
        }
    }
    scene.executor.stop().await;
}

#[tokio::test]
async fn one_that_is_whole_counts_when_its_job_ends_with_it() {
    let scene = Scene::new();
    for (number, mode) in (1..).zip(CheckpointMode::ALL) {
        scene
            .count(key(number), mode, "--end-after-checkpoint")
            .await;
        let order = scene.order(1, LONG_MS);
        scene.ask(key(number), &order).await.unwrap();
        let end = scene.bench.ledger.end(key(number)).await;
        assert_eq!(end, RankExit::Exited { code: 0 }, "{mode}");
        assert!(
            scene.outcome(key(number), &order).await.is_written(),
            "{mode}"
        );
    }
    scene.executor.stop().await;
}
