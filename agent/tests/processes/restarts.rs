//! Agent restarts while a rank runs, and lost supervisors.

use crate::support;
use crate::support::{Bench, Ledger, eventually, key, pid_in, runs, shell, terminate};
use lattice_agent::executor::NotReported;
use lattice_agent_rpc::ReportAnswer;
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use rustix::process::{Pid, Signal, kill_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Script that runs until the file exists, then exits with code 6.
fn until(file: &std::path::Path, pid_file: &std::path::Path) -> String {
    format!(
        "echo $$ > {}; until [ -e {} ]; do sleep 0.02; done; echo bye; exit 6",
        pid_file.display(),
        file.display()
    )
}

#[tokio::test]
async fn next_agent_reports_end_of_rank() {
    let bench = Bench::new();
    let (go, pid_file) = (bench.file("go"), bench.file("pid"));
    let first = bench.open();
    first
        .launch(shell(key(1), &until(&go, &pid_file)))
        .await
        .unwrap();
    let pid = pid_in(&pid_file).await;
    bench.ledger.started(key(1)).await;
    first.stop().await;
    assert!(runs(pid));
    let second = bench.open();
    eventually("it to be found again", || {
        (second.running() == 1).then_some(())
    })
    .await;
    std::fs::write(&go, "").unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 6 });
    assert_eq!(bench.stdout(key(1)), "bye\n");
    second.stop().await;
}

#[tokio::test]
async fn end_without_agent_is_reported_later() {
    let bench = Bench::new();
    let (go, pid_file) = (bench.file("go"), bench.file("pid"));
    let first = bench.open();
    first
        .launch(shell(key(1), &until(&go, &pid_file)))
        .await
        .unwrap();
    let pid = pid_in(&pid_file).await;
    first.stop().await;
    std::fs::write(&go, "").unwrap();
    eventually("the process to end", || (!runs(pid)).then_some(())).await;
    let exit_file = bench.attempt_dir(key(1)).join("exit.json");
    eventually("the end to be written", || exit_file.exists().then_some(())).await;
    let second = bench.open();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 6 });
    second.stop().await;
}

#[tokio::test]
async fn unconfirmed_end_is_reported_after_restart() {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = is_up.clone();
    let ledger = Ledger::answering(move |_, _| match up.load(Ordering::SeqCst) {
        true => Ok(ReportAnswer::Committed),
        false => Err(NotReported {
            reason: "control is down".to_owned(),
        }),
    });
    let bench = Bench::reporting_to(ledger);
    let first = bench.open();
    first.launch(shell(key(1), "exit 3")).await.unwrap();
    bench.ledger.end(key(1)).await;
    first.stop().await;
    let refused = bench.ledger.all().len();
    is_up.store(true, Ordering::SeqCst);
    let second = bench.open();
    eventually("the end to be taken", || {
        second.list().is_empty().then_some(())
    })
    .await;
    let all = bench.ledger.all();
    assert!(all.len() > refused);
    let RankReport::Ended { exit, .. } = &all.last().unwrap().report else {
        panic!("{all:?}");
    };
    assert_eq!(*exit, RankExit::Exited { code: 3 });
    second.stop().await;
}

#[tokio::test]
async fn a_rank_can_be_ended_by_the_agent_after_the_one_that_started_it() {
    let bench = Bench::new();
    let pid_file = bench.file("pid");
    let first = bench.open();
    let script = format!("echo $$ > {}; sleep 1000", pid_file.display());
    first.launch(shell(key(1), &script)).await.unwrap();
    let pid = pid_in(&pid_file).await;
    first.stop().await;
    let second = bench.open();
    second.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Stopped);
    assert!(!runs(pid));
    second.stop().await;
}

#[tokio::test]
async fn a_killed_supervisor_takes_its_rank_with_it_and_the_rank_is_lost() {
    let bench = Bench::new();
    let executor = bench.open();
    let (main, daemon) = (bench.file("main"), bench.file("daemon"));
    let script = format!(
        "(setsid sh -c 'echo $$ > {}; while :; do sleep 0.05; done' >/dev/null 2>&1 &); \
         echo $$ > {}; while :; do sleep 0.05; done",
        daemon.display(),
        main.display()
    );
    executor.launch(shell(key(1), &script)).await.unwrap();
    let (main, daemon) = (pid_in(&main).await, pid_in(&daemon).await);
    bench.ledger.started(key(1)).await;
    let record = std::fs::read(bench.attempt_dir(key(1)).join("supervisor.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let supervisor = i32::try_from(record["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
    match bench.ledger.end(key(1)).await {
        RankExit::Lost { evidence } => assert!(evidence.contains("supervisor"), "{evidence}"),
        other => panic!("{other:?}"),
    }
    assert!(!runs(main) && !runs(daemon));
    executor.stop().await;
}

#[tokio::test]
async fn after_a_reboot_an_unfinished_rank_is_lost_with_evidence() {
    let mut bench = Bench::new();
    let first = bench.open();
    let pid_file = bench.file("pid");
    let script = format!("echo $$ > {}; sleep 1000", pid_file.display());
    first.launch(shell(key(1), &script)).await.unwrap();
    let pid = pid_in(&pid_file).await;
    first.stop().await;
    bench.settings.boot_id = "boot-2".to_owned();
    let second = bench.open();
    match bench.ledger.end(key(1)).await {
        RankExit::Lost { evidence } => {
            assert!(
                evidence.contains("boot-1") && evidence.contains("boot-2"),
                "{evidence}"
            );
        }
        other => panic!("{other:?}"),
    }
    second.stop().await;
    // There was no reboot: processes that the agent has not ended yet must not outlive the test.
    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

#[tokio::test]
async fn an_attempt_recorded_before_a_crash_is_started_by_the_next_agent() {
    let mut bench = Bench::new();
    let working = bench.settings.program.clone();
    // A supervisor that never starts: the agent stops during its attempts.
    bench.settings.program = "/bin/false".into();
    let first = bench.open();
    let file = bench.file("ran");
    let script = format!("echo run >> {}", file.display());
    first.launch(shell(key(1), &script)).await.unwrap();
    first.stop().await;
    bench.settings.program = working;
    let second = bench.open();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 0 });
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "run\n");
    second.stop().await;
}

#[tokio::test]
async fn a_supervisor_that_never_comes_up_is_an_end_and_not_a_riddle() {
    let mut bench = Bench::new();
    bench.settings.program = "/bin/false".into();
    let executor = bench.open();
    executor.launch(shell(key(1), "true")).await.unwrap();
    match bench.ledger.end(key(1)).await {
        RankExit::SpawnFailed { reason } => assert!(reason.contains("supervisor.log"), "{reason}"),
        other => panic!("{other:?}"),
    }
    executor.stop().await;
}

#[tokio::test]
async fn old_output_goes_but_an_end_stays_for_late_launches() {
    let mut bench = Bench::new();
    let first = bench.open();
    let wanted = shell(key(1), "echo hello; exit 8");
    first.launch(wanted.clone()).await.unwrap();
    eventually("the end to be taken", || {
        first.list().is_empty().then_some(())
    })
    .await;
    first.stop().await;
    let second = bench.open();
    second.launch(shell(key(2), "true")).await.unwrap();
    eventually("the end to be taken", || {
        second.list().is_empty().then_some(())
    })
    .await;
    assert_eq!(bench.stdout(key(1)), "hello\n");
    second.stop().await;
    bench.settings.keep_output = Duration::ZERO;
    let third = bench.open();
    let stdout = bench.attempt_dir(key(1)).join("stdout");
    eventually("the output to be removed", || {
        (!stdout.exists()).then_some(())
    })
    .await;
    let late = third.launch(wanted).await.unwrap();
    let Some(RankReport::Ended { exit, .. }) = late.report else {
        panic!("{late:?}");
    };
    assert_eq!(exit, RankExit::Exited { code: 8 });
    third.stop().await;
}

#[tokio::test]
async fn a_cluster_that_goes_for_good_takes_its_work_with_it() {
    let bench = Bench::new();
    let executor = bench.open();
    let mut pids = Vec::new();
    for n in 1..=3 {
        let pid_file = bench.file(&format!("pid{n}"));
        let script = format!("echo $$ > {}; sleep 1000", pid_file.display());
        executor.launch(shell(key(n), &script)).await.unwrap();
        pids.push(pid_in(&pid_file).await);
    }
    assert_eq!(executor.end_all_ranks(support::PATIENCE).await, 0);
    assert!(pids.iter().all(|pid| !runs(*pid)));
    assert_eq!(bench.ledger.end(key(3)).await, RankExit::Stopped);
    executor.stop().await;
}
