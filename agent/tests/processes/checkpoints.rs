//! Checkpoints of a real program below a real supervisor, in each mode: in time and late. `checkpoints/` covers all
//! other cases.

mod ends;
mod fixture;
mod killed;
mod orders;
mod page;
mod user_folders;

use crate::support::{recorded_pid, runs, status_of};
use fixture::*;
use std::ffi::OsString;

/// Job of most tests: this test program again, because Cargo passes a test no path of another package's programs.
#[test]
fn job() {
    let Ok(flags) = std::env::var("CHECKPOINTER") else {
        return;
    };
    let flags = flags.split_whitespace().map(OsString::from);
    let args = std::iter::once("checkpointer".into()).chain(flags);
    std::process::exit(lattice_checkpointer::main(args).into());
}

/// Anonymous memory of the supervisor, in kB.
fn own_kb(scene: &Scene, key: AttemptKey) -> String {
    let supervisor = recorded_pid(&scene.bench.attempt_dir(key), "supervisor.json");
    status_of(supervisor, "RssAnon").remove(0)
}

#[tokio::test]
async fn in_each_mode_work_writes_checkpoints_and_another_goes_on_from_the_last() {
    let scene = Scene::new();
    let plain = key(1000);
    scene
        .executor
        .launch(shell(plain, "sleep 600"))
        .await
        .unwrap();
    scene.bench.ledger.started(plain).await;
    println!(
        "without: its supervisor has {} kB of its own",
        own_kb(&scene, plain)
    );
    scene.executor.terminate(terminate(plain)).await.unwrap();
    for (number, mode) in (1..).zip(CheckpointMode::ALL) {
        let (first, second) = (key(number), key(100 + number));
        scene
            .count(first, mode, "--bytes 5000 --write-ms 100")
            .await;
        let mut before = 0;
        for n in 1..=2 {
            let order = CheckpointOrder {
                directory: scene
                    .directory
                    .join(mode.as_str())
                    .to_str()
                    .unwrap()
                    .to_owned(),
                ..scene.order(n, LONG_MS)
            };
            let outcome = scene.outcome(first, &order).await;
            let CheckpointOutcome::Written { bytes, took_ms, .. } = outcome else {
                panic!("{mode}: {outcome:?}");
            };
            let folder = std::fs::read_dir(scene.path(&order)).unwrap();
            let on_disk: u64 = folder.map(|e| e.unwrap().metadata().unwrap().len()).sum();
            assert!(on_disk > 5000);
            assert_eq!(bytes, Some(on_disk), "{mode}");
            println!("{mode}: checkpoint {n} took {took_ms} ms");
            assert!(took_ms >= 100, "{mode}: {took_ms}");
            let state = scene.state(&order);
            assert!(state > before, "{mode}: {state} after {before}");
            before = state;
            println!(
                "{mode}: its supervisor has {} kB of its own",
                own_kb(&scene, first)
            );
            // The job continues.
            scene
                .says(
                    first,
                    &format!("written {n} at {state}\nstep {}\n", state + 1),
                )
                .await;
        }
        scene.executor.terminate(terminate(first)).await.unwrap();
        assert_eq!(scene.bench.ledger.end(first).await, RankExit::Stopped);
        let restore = Some(Restore {
            number: 2,
            directory: scene
                .directory
                .join(mode.as_str())
                .to_str()
                .unwrap()
                .to_owned(),
        });
        let mut next = counter(second, "");
        let flags = format!("--step-ms 1 --steps {}", before + 3);
        next.workload.env.insert("CHECKPOINTER".to_owned(), flags);
        let setup = CheckpointSetup {
            restore,
            ..scene.setup(mode)
        };
        scene.launch(next, setup).await;
        assert_eq!(
            scene.bench.ledger.end(second).await,
            RankExit::Exited { code: 0 }
        );
        let said = scene.bench.stdout(second);
        let (restored, done) = (
            format!("restored {before}\n"),
            format!("done {}\n", before + 3),
        );
        assert!(said.contains(&restored) && said.contains(&done), "{said}");
        // The shared folder is removed with the job.
        let left = std::fs::read_dir(&scene.bench.settings.checkpoints.runtime_dir);
        let left = left
            .into_iter()
            .flatten()
            .flat_map(|agent| std::fs::read_dir(agent.unwrap().path()).unwrap());
        assert_eq!(left.count(), 0);
    }
    scene.executor.stop().await;
}

#[tokio::test]
async fn work_that_never_answers_fails_in_time_and_runs_on() {
    let scene = Scene::new();
    for (number, mode) in (1..).zip(CheckpointMode::ALL) {
        scene.count(key(number), mode, "--never-answer").await;
        let order = scene.order(1, 700);
        let first = scene.ask(key(number), &order).await.unwrap();
        let CheckpointStatus::Asked { at } = first else {
            panic!("{first:?}");
        };
        scene.says(key(number), "asked 1 at").await;
        let again = scene.ask(key(number), &order).await.unwrap();
        assert_eq!(
            again,
            CheckpointStatus::Asked { at },
            "nothing was heard since"
        );
        let outcome = scene.outcome(key(number), &order).await;
        let (cause, reason) = failure(&outcome);
        assert_eq!(cause, CheckpointFailure::Unresponsive, "{mode}: {reason}");
        assert!(reason.starts_with("no report within 0.7 s"), "{reason}");
        assert!(runs(recorded_pid(
            &scene.bench.attempt_dir(key(number)),
            "started.json"
        )));
        // The next checkpoint has its own timeout.
        let next = scene.order(2, 300);
        let (cause, _) = failure(&scene.outcome(key(number), &next).await);
        assert_eq!(cause, CheckpointFailure::Unresponsive);
        scene
            .executor
            .terminate(terminate(key(number)))
            .await
            .unwrap();
    }
    scene.executor.stop().await;
}

#[tokio::test]
async fn slow_work_that_answers_gets_half_as_much_time_again_once() {
    let scene = Scene::new();
    let ranks = || {
        (1..)
            .map(|n| (key(n), key(100 + n)))
            .zip(CheckpointMode::ALL)
    };
    // Each allocation has its own directory.
    let directory = |key: AttemptKey| {
        let directory = scene.directory.join(key.allocation.to_string());
        directory.to_str().unwrap().to_owned()
    };
    let order = |key, timeout_ms| CheckpointOrder::new(1, directory(key), timeout_ms);
    for ((slow, slower), mode) in ranks() {
        for (key, write_ms) in [(slow, 4500), (slower, 60_000)] {
            let setup = CheckpointSetup {
                directory: directory(key),
                ..scene.setup(mode)
            };
            let job = counter(key, &format!("--write-ms {write_ms}"));
            scene.launch(job, setup).await;
            scene.says(key, "step 1\n").await;
        }
    }
    for ((slow, slower), _) in ranks() {
        scene.ask(slow, &order(slow, 4000)).await.unwrap();
        scene.ask(slower, &order(slower, 2000)).await.unwrap();
    }
    for ((slow, slower), mode) in ranks() {
        let outcome = scene.outcome(slow, &order(slow, 4000)).await;
        let CheckpointOutcome::Written { took_ms, .. } = outcome else {
            panic!("{mode}: {outcome:?}");
        };
        println!("{mode}: 4500 ms of writing took {took_ms} ms");
        assert!((4500..6000).contains(&took_ms), "{mode}: {took_ms}");
        let outcome = scene.outcome(slower, &order(slower, 2000)).await;
        let (cause, reason) = failure(&outcome);
        assert_eq!(cause, CheckpointFailure::TooSlow, "{mode}: {reason}");
        let expected = "checkpoint not complete within 3.0 s; the last report was received 0.";
        assert!(reason.starts_with(expected), "{reason}");
        for key in [slow, slower] {
            scene.executor.terminate(terminate(key)).await.unwrap();
        }
    }
    scene.executor.stop().await;
}

#[tokio::test]
async fn work_may_say_that_it_cannot() {
    let scene = Scene::new();
    for (number, mode) in (1..).zip(CheckpointMode::ALL) {
        scene
            .count(key(number), mode, "--fail no-room-for-it")
            .await;
        let order = scene.order(1, LONG_MS);
        let (cause, reason) = failure(&scene.outcome(key(number), &order).await);
        assert_eq!(cause, CheckpointFailure::Declined);
        let says_why = reason == "no-room-for-it";
        assert_eq!(
            says_why,
            mode != CheckpointMode::SharedMemory,
            "{mode}: {reason}"
        );
        scene
            .executor
            .terminate(terminate(key(number)))
            .await
            .unwrap();
    }
    scene.executor.stop().await;
}

#[tokio::test]
async fn a_callback_puts_it_off_so_often_and_so_long_and_no_more() {
    let scene = Scene::new();
    let flags = "--defer-ms 300 --defer-ms 400 --defer-ms 100";
    scene.count(key(1), CheckpointMode::Callback, flags).await;
    let order = CheckpointOrder {
        most_deferrals: 2,
        ..scene.order(1, 500)
    };
    let is_second =
        |status: &CheckpointStatus| matches!(status, CheckpointStatus::Deferred { times: 2, .. });
    scene.stands(key(1), &order, is_second).await;
    let outcome = scene.outcome(key(1), &order).await;
    let CheckpointOutcome::Written { took_ms, .. } = outcome else {
        panic!("{outcome:?}");
    };
    // Longer than the timeout: the deferral did not count.
    assert!(took_ms >= 700, "{took_ms}");
    scene
        .says(key(1), "refused 1: the limit of 2 deferrals is reached")
        .await;
    // The total deferral time is limited.
    let order = CheckpointOrder {
        most_deferral_ms: 250,
        ..scene.order(2, 500)
    };
    assert!(scene.outcome(key(1), &order).await.is_written());
    scene
        .says(key(1), "refused 2: for_ms: 300 exceeds the remaining")
        .await;
    scene.executor.terminate(terminate(key(1))).await.unwrap();
    scene.executor.stop().await;
}

#[tokio::test]
async fn no_rank_speaks_for_another_in_the_same_directory() {
    let scene = Scene::new();
    for (number, mode) in (1..).step_by(2).zip(CheckpointMode::ALL) {
        let order = scene.order(number, 1500);
        let [first, second] = [u64::from(number), u64::from(number) + 1].map(key);
        scene.count(first, mode, "").await;
        let mut other = counter(second, "--never-answer");
        other.rank = 1;
        scene.launch(other, scene.setup(mode)).await;
        scene.says(second, "step 1\n").await;
        scene.ask(second, &order).await.unwrap();
        assert!(scene.outcome(first, &order).await.is_written(), "{mode}");
        let (cause, _) = failure(&scene.outcome(second, &order).await);
        assert_eq!(cause, CheckpointFailure::Unresponsive, "{mode}");
        for key in [first, second] {
            scene.executor.terminate(terminate(key)).await.unwrap();
        }
    }
    scene.executor.stop().await;
}
