//! Wipe of a released node: once per order; the recorded result answers all repetitions.

use crate::support::{Bench, PATIENCE, executable, key, pid_in, runs, shell, terminate};
use lattice_agent::attempt::Hook;
use lattice_agent::executor::Executor;
use lattice_agent_rpc::{Wipe, WipeStatus};
use lattice_quorum_types::node_claim::WipeOutcome;
use std::collections::BTreeMap;
use std::time::Duration;

fn hook(bench: &Bench, text: &str, timeout_ms: u64) -> Hook {
    let ran = bench.file("ran");
    let text = format!(
        "echo $LATTICE_HOOK $LATTICE_USER $LATTICE_PROJECT >> {}\n{text}",
        ran.display()
    );
    // The bench's folder is writable for other users; the hooks' folder must not be.
    let folder = bench.file("hooks");
    let _ = std::fs::create_dir(&folder);
    Hook {
        program: executable(folder.join("wipe"), &text),
        args: Vec::new(),
        timeout_ms,
        env: BTreeMap::new(),
    }
}

fn ran(bench: &Bench) -> Vec<String> {
    let text = std::fs::read_to_string(bench.file("ran")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn order(number: u64) -> Wipe {
    Wipe {
        number,
        user: "alice".to_owned(),
        project: "t/a".to_owned(),
    }
}

/// Repeats the request until the wipe has ended, as control does.
async fn ended(executor: &Executor, number: u64) -> WipeOutcome {
    let asking = async {
        loop {
            if let Ok(WipeStatus::Ended(outcome)) = executor.wipe(order(number)).await {
                return outcome;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap()
}

fn reason(outcome: WipeOutcome) -> String {
    match outcome {
        WipeOutcome::Failed { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn it_runs_once_and_is_answered_with_what_was_written_down() {
    let mut bench = Bench::new();
    bench.settings.hooks.rank.wipe = Some(hook(&bench, "echo all clean", 20_000));
    let executor = bench.open();
    let first = ended(&executor, 7).await;
    let WipeOutcome::Wiped { boot, evidence, .. } = &first else {
        panic!("{first:?}")
    };
    assert_eq!(boot, "boot-1");
    assert!(
        evidence.contains("exit code 0") && evidence.contains("all clean"),
        "{evidence}"
    );
    assert_eq!(ended(&executor, 7).await, first);
    executor.stop().await;
    // The same result after a restart of the agent and a reboot of the node.
    bench.settings.boot_id = "boot-2".to_owned();
    let executor = bench.open();
    assert_eq!(ended(&executor, 7).await, first);
    assert_eq!(ran(&bench), ["wipe alice t/a"]);
    let older = executor.wipe(order(6)).await.unwrap_err();
    assert!(older.contains("stale wipe number 6"), "{older}");
    ended(&executor, 8).await;
    assert_eq!(ran(&bench).len(), 2);
    executor.stop().await;
}

#[tokio::test]
async fn wipe_failure_names_reason() {
    let mut bench = Bench::new();
    bench.settings.hooks.rank.wipe = Some(hook(&bench, "echo scratch is busy; exit 3", 20_000));
    let executor = bench.open();
    let why = reason(ended(&executor, 1).await);
    assert!(
        why.contains("exit code 3") && why.contains("scratch is busy"),
        "{why}"
    );
    executor.stop().await;

    let pid = bench.file("pid");
    let text = format!("echo $$ > {}; sleep 600", pid.display());
    bench.settings.hooks.rank.wipe = Some(hook(&bench, &text, 5_000));
    let executor = bench.open();
    executor.wipe(order(2)).await.unwrap();
    let hung = pid_in(&pid).await;
    let second = executor.wipe(order(3)).await.unwrap_err();
    assert!(
        second.contains("wipe 2 still runs"),
        "one at a time: {second}"
    );
    let why = reason(ended(&executor, 2).await);
    assert!(why.contains("timeout"), "{why}");
    assert!(!runs(hung));
    executor.stop().await;
}

#[tokio::test]
async fn missing_hook_means_site_declares_no_wipe() {
    let mut bench = Bench::new();
    let executor = bench.open();
    let why = reason(ended(&executor, 1).await);
    assert!(why.contains("executor.hooks.nothing_to_wipe"), "{why}");
    executor.stop().await;
    bench.settings.hooks.nothing_to_wipe = true;
    let executor = bench.open();
    let outcome = ended(&executor, 2).await;
    assert!(
        matches!(outcome, WipeOutcome::NotNeeded { .. }),
        "{outcome:?}"
    );
    executor.stop().await;
}

/// A process that left the hook's process group outlives the agent, as a killed agent's hook does.
#[tokio::test]
async fn interrupted_wipe_counts_as_failed() {
    for (boot, cut_short) in [("boot-1", "the agent ended"), ("boot-2", "rebooted")] {
        let mut bench = Bench::new();
        let pid = bench.file("pid");
        let child = format!("echo $$ > {}; exec sleep 600", pid.display());
        let text = format!("setsid sh -c '{child}' & sleep 600");
        bench.settings.hooks.rank.wipe = Some(hook(&bench, &text, 600_000));
        let executor = bench.open();
        executor.wipe(order(5)).await.unwrap();
        let left = pid_in(&pid).await;
        executor.stop_now();
        drop(executor);
        assert!(runs(left));
        bench.settings.boot_id = boot.to_owned();
        let executor = bench.open();
        let why = reason(ended(&executor, 5).await);
        assert!(
            why.contains("interrupted") && why.contains(cut_short),
            "{why}"
        );
        if boot == "boot-1" {
            assert!(!runs(left));
        } else {
            let left = rustix::process::Pid::from_raw(left).unwrap();
            rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();
        }
        assert_eq!(ran(&bench).len(), 1, "it is not run again by itself");
        executor.stop().await;
    }
}

#[tokio::test]
async fn nothing_is_wiped_while_work_runs() {
    let mut bench = Bench::new();
    bench.settings.hooks.rank.wipe = Some(hook(&bench, "true", 20_000));
    let executor = bench.open();
    let work = shell(key(1), "sleep 600");
    executor.launch(work).await.unwrap();
    bench.ledger.started(key(1)).await;
    let refused = executor.wipe(order(1)).await.unwrap_err();
    assert!(refused.contains("jobs still run"), "{refused}");
    executor.terminate(terminate(key(1))).await.unwrap();
    bench.ledger.end(key(1)).await;
    let outcome = ended(&executor, 1).await;
    assert!(matches!(outcome, WipeOutcome::Wiped { .. }), "{outcome:?}");
    executor.stop().await;
}
