//! User folders, access rights, and failing filesystems.

use super::fixture::*;
use crate::hanging::{Hang, Hanging};
use crate::support::{self, is_skipped_without_root, recorded_pid, status_of, threads};

#[tokio::test]
async fn an_answer_that_was_there_before_is_none() {
    let scene = Scene::new();
    scene
        .count(key(1), CheckpointMode::Signal, "--never-answer")
        .await;
    let order = scene.order(7, 500);
    std::fs::create_dir_all(scene.path(&order)).unwrap();
    std::fs::write(scene.path(&order).join("complete"), "7\n").unwrap();
    if is_root() {
        let home = scene.directory.parent().unwrap();
        let all = ["-R", "65534:65534", home.to_str().unwrap()];
        let chown = std::process::Command::new("chown").args(all).status();
        assert!(chown.unwrap().success());
    }
    let (cause, _) = failure(&scene.outcome(key(1), &order).await);
    assert_eq!(cause, CheckpointFailure::Unresponsive);
    // A completion with another number does not count for this checkpoint.
    let order = scene.order(8, 500);
    scene.ask(key(1), &order).await.unwrap();
    scene.says(key(1), "asked 8").await;
    std::fs::write(scene.path(&order).join("complete"), "7\n").unwrap();
    let (_, reason) = failure(&scene.outcome(key(1), &order).await);
    assert!(
        reason.contains("complete is not a valid answer: it contains number \"7\", expected 8"),
        "{reason}"
    );
    scene.executor.terminate(terminate(key(1))).await.unwrap();
    scene.executor.stop().await;
}

#[tokio::test]
async fn refuses_link_or_foreign_folder() {
    let scene = Scene::new();
    let elsewhere = scene.bench.file("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    support::open_to_others(&elsewhere);
    std::fs::create_dir(&scene.directory).unwrap();
    support::open_to_others(&scene.directory);
    for (number, mode) in (1..).zip(CheckpointMode::ALL) {
        let order = scene.order(u32::try_from(number).unwrap(), LONG_MS);
        let at = scene.directory.join(number.to_string());
        std::os::unix::fs::symlink(&elsewhere, &at).unwrap();
        scene.count(key(number), mode, "").await;
        let (cause, reason) = failure(&scene.outcome(key(number), &order).await);
        assert_eq!(cause, CheckpointFailure::Storage);
        assert!(reason.contains("links are not followed"), "{reason}");
        assert!(!scene.bench.stdout(key(number)).contains("asked"));
        if is_root() {
            let order = scene.order(10, LONG_MS);
            std::fs::create_dir_all(scene.directory.join("10")).unwrap();
            let (_, reason) = failure(&scene.outcome(key(number), &order).await);
            assert!(reason.contains("belongs to uid 0"), "{reason}");
        }
        scene
            .executor
            .terminate(terminate(key(number)))
            .await
            .unwrap();
    }
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    scene.executor.stop().await;
}

/// The supervisor stays root without capabilities; its file access thread has the user's ids for files only.
#[tokio::test]
async fn nothing_but_files_is_done_as_the_user() {
    if is_skipped_without_root() {
        return;
    }
    let scene = Scene::new();
    scene.count(key(1), CheckpointMode::Callback, "").await;
    let supervisor = recorded_pid(&scene.bench.attempt_dir(key(1)), "supervisor.json");
    let mut eyes = 0;
    for thread in threads(supervisor) {
        let folder = format!("/proc/{supervisor}/task/{thread}");
        let is_eyes = std::fs::read_to_string(format!("{folder}/comm")).unwrap() == "user-files\n";
        let ids = match is_eyes {
            true => ["0", "0", "0", "65534"],
            false => ["0"; 4],
        };
        assert_eq!(status_of(thread, "Uid"), ids);
        assert_eq!(status_of(thread, "Gid"), ids);
        assert_eq!(status_of(thread, "NoNewPrivs"), ["1"]);
        if is_eyes {
            eyes += 1;
            for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
                assert_eq!(status_of(thread, set), ["0000000000000000"], "{set}");
            }
        }
    }
    assert_eq!(eyes, 1);
    // The socket is accessible to its user only; root may open it, and is rejected.
    let runtime = &scene.bench.settings.checkpoints.runtime_dir;
    let agent = std::fs::read_dir(runtime).unwrap().next().unwrap().unwrap();
    let socket = agent.path().join("1.1/checkpoint.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(std::io::Read::read(&mut stream, &mut [0]).unwrap(), 0);
    let bob = |path: &Path| {
        let mut bob = std::process::Command::new("test");
        std::os::unix::process::CommandExt::uid(&mut bob, support::BOB);
        bob.arg("-w").arg(path).status().unwrap().success()
    };
    assert!(!bob(&socket) && !bob(socket.parent().unwrap()));
    scene.executor.terminate(terminate(key(1))).await.unwrap();
    scene.executor.stop().await;
}

/// A result that cannot be recorded is not reported, and is reported as soon as it is recorded.
#[tokio::test]
async fn a_full_disk_keeps_an_end_back_and_takes_no_order() {
    let mut bench = Bench::new();
    let Some(disk) = Disk::mount(&bench.file("disk"), "size=4m") else {
        return;
    };
    bench.settings.folder = disk.0.join("executor");
    let scene = Scene::on(bench);
    for (number, is_ended_first) in [(1, false), (2, true)] {
        let key = key(number);
        let flags = "--write-ms 1500";
        scene.count(key, CheckpointMode::SharedMemory, flags).await;
        let (first, next) = (scene.order(1, LONG_MS), scene.order(2, LONG_MS));
        let _ = std::fs::remove_file(scene.path(&first).join("state"));
        scene.stands(key, &first, is_writing).await;
        let fill = disk.0.join("fill");
        let full = std::fs::write(&fill, vec![1; 8 << 20]);
        assert!(full.is_err(), "there is room");
        let state = scene.path(&first).join("state");
        eventually("a checkpoint", || state.exists().then_some(())).await;
        // A caller that assumes a lost result must not receive the opposite later.
        for _ in 0..10 {
            let status = scene.ask(key, &first).await.unwrap();
            assert!(is_writing(&status), "{status:?}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        if is_ended_first {
            scene.executor.terminate(terminate(key)).await.unwrap();
            assert_eq!(scene.bench.ledger.end(key).await, RankExit::Stopped);
            let (cause, _) = failure(&scene.outcome(key, &first).await);
            assert_eq!(cause, CheckpointFailure::JobEnded);
            std::fs::remove_file(&fill).unwrap();
            let (cause, _) = failure(&scene.outcome(key, &first).await);
            assert_eq!(
                cause,
                CheckpointFailure::JobEnded,
                "nothing changes it any more"
            );
            continue;
        }
        std::fs::remove_file(&fill).unwrap();
        assert!(scene.outcome(key, &first).await.is_written());
        assert!(std::fs::write(&fill, vec![1; 8 << 20]).is_err());
        let refused = scene.ask(key, &next).await;
        assert!(
            matches!(refused, Err(CheckpointRefused::JournalFailed { .. })),
            "{refused:?}"
        );
        std::fs::remove_file(&fill).unwrap();
        assert!(
            scene.outcome(key, &next).await.is_written(),
            "it was not taken before"
        );
        scene.executor.terminate(terminate(key)).await.unwrap();
        scene.bench.ledger.end(key).await;
    }
    scene.executor.stop().await;
}

/// Only the thread that accesses the filesystem hangs: neither the checkpoint's timeout nor the job's end is delayed.
async fn a_dead_filesystem(hang: Hang) {
    let scene = Scene::new();
    let dead = scene.bench.file("dead");
    std::fs::create_dir(&dead).unwrap();
    let Some(_dead) = Hanging::over(&dead, hang) else {
        return;
    };
    for (number, mode) in (1..).zip(CheckpointMode::ALL) {
        scene.count(key(number), mode, "").await;
        let directory = dead.join("checkpoints");
        let order = CheckpointOrder::new(1, directory.to_str().unwrap(), 800);
        let (cause, reason) = failure(&scene.outcome(key(number), &order).await);
        assert_eq!(cause, CheckpointFailure::Storage, "{mode}: {reason}");
        assert!(reason.contains("is unresponsive"), "{reason}");
        scene
            .executor
            .terminate(terminate(key(number)))
            .await
            .unwrap();
        let asked_at = std::time::Instant::now();
        assert_eq!(scene.bench.ledger.end(key(number)).await, RankExit::Stopped);
        println!(
            "{mode}: its job's end was told after {:?}",
            asked_at.elapsed()
        );
    }
    scene.executor.stop_now();
}

#[tokio::test]
async fn a_dead_filesystem_costs_a_checkpoint_and_not_its_job() {
    a_dead_filesystem(Hang::Killable).await;
}

#[tokio::test]
async fn nor_does_one_from_which_nothing_comes_back() {
    a_dead_filesystem(Hang::Stuck).await;
}
