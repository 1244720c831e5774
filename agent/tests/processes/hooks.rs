//! Hooks around ranks and before a node returns to service: order, environment, and effects of failures.

use crate::support;
use crate::support::{
    Bench, PATIENCE, eventually, executable, key, pid_in, recorded_pid, runs, shell, terminate,
};
use lattice_agent::attempt::Hook;
use lattice_agent::executor::{BlockReason, Executor, OpenError};
use lattice_agent_rpc::{AttemptKey, Launch};
use lattice_mesh::SystemClock;
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Hook with this text. It first appends its name to the file `ran`.
fn hook(bench: &Bench, name: &str, text: &str) -> Hook {
    let ran = bench.file("ran");
    let text = format!("echo $LATTICE_HOOK >> {}\n{text}", ran.display());
    // The bench's folder is writable for other users; the hooks' folder must not be.
    let folder = bench.file("hooks");
    let _ = std::fs::create_dir(&folder);
    Hook {
        program: executable(folder.join(name), &text),
        args: vec!["an argument".to_owned()],
        timeout_ms: 20_000,
        env: BTreeMap::from([("SITE".to_owned(), "here".to_owned())]),
    }
}

fn ran(bench: &Bench) -> Vec<String> {
    let text = std::fs::read_to_string(bench.file("ran")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Result of the rank, and the fault of the node.
async fn end(bench: &Bench, key: AttemptKey) -> (RankExit, Option<String>) {
    let is_end = |r: &lattice_agent_rpc::Report| {
        r.key == key && matches!(r.report, RankReport::Ended { .. })
    };
    match bench.ledger.wait_for(is_end).await.report {
        RankReport::Ended { exit, fault, .. } => (exit, fault),
        other => unreachable!("{other:?}"),
    }
}

async fn run(bench: &Bench, wanted: Launch) -> (RankExit, Option<String>) {
    let executor = bench.open();
    let key = wanted.key;
    executor.launch(wanted).await.unwrap();
    let ended = end(bench, key).await;
    executor.stop().await;
    ended
}

fn job(bench: &Bench, number: u64, then: &str) -> Launch {
    let ran = bench.file("ran");
    // Writable for the rank's user.
    let _ = std::fs::File::create_new(&ran);
    std::fs::set_permissions(&ran, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    shell(
        key(number),
        &format!("echo job >> {}; {then}", ran.display()),
    )
}

#[tokio::test]
async fn hooks_run_in_order_with_job_environment() {
    let mut bench = Bench::new();
    let output = bench.file("told");
    let tell = format!(
        "id -u; env | grep -v _=; echo \"[$1]\"; pwd; ls /proc/$$/fd | wc -l; ) > {}.$LATTICE_HOOK; true",
        output.display()
    );
    let tell = format!("( {tell}");
    bench.settings.hooks.rank.prolog = Some(hook(&bench, "prolog", &tell));
    bench.settings.hooks.rank.epilog = Some(hook(&bench, "epilog", &tell));
    bench.settings.hooks.rank.wipe = Some(hook(&bench, "wipe", &tell));
    let mut wanted = job(&bench, 1, "exit 7");
    wanted.workload.env = BTreeMap::from([("LD_PRELOAD".to_owned(), "/evil.so".to_owned())]);
    assert_eq!(
        run(&bench, wanted).await,
        (RankExit::Exited { code: 7 }, None)
    );
    assert_eq!(ran(&bench), ["prolog", "job", "epilog"]);
    let epilog = std::fs::read_to_string(bench.file("told.epilog")).unwrap();
    let agent = rustix::process::geteuid().as_raw();
    let uid = bench.settings.run_as.fixed.map_or(agent, |ids| ids.uid);
    assert!(epilog.starts_with(&format!("{agent}\n")), "{epilog}");
    for line in [
        "LATTICE_HOOK=epilog",
        "LATTICE_ALLOCATION_ID=1",
        "LATTICE_ATTEMPT=1",
        "LATTICE_NODE=n1",
        "LATTICE_NODELIST=n[1-2]",
        "LATTICE_PROJECT=atlas/web",
        "LATTICE_USER=alice",
        &format!("LATTICE_LOCAL_UID={uid}"),
        "LATTICE_JOB_END=exited",
        "LATTICE_JOB_EXIT=7",
        "LATTICE_SENSITIVE=0",
        "SITE=here",
        "[an argument]",
    ] {
        assert!(
            epilog.lines().any(|l| l == line),
            "{line} is not in {epilog}"
        );
    }
    assert!(!epilog.contains("evil"), "{epilog}");
    let prolog = std::fs::read_to_string(bench.file("told.prolog")).unwrap();
    assert!(!prolog.contains("LATTICE_JOB_EXIT"), "{prolog}");

    let mut sensitive = job(&bench, 2, "kill -9 $$");
    sensitive.sensitive = true;
    assert_eq!(
        run(&bench, sensitive).await,
        (RankExit::Signaled { signal: 9 }, None)
    );
    assert_eq!(ran(&bench)[3..], ["prolog", "job", "epilog", "wipe"]);
    let wipe = std::fs::read_to_string(bench.file("told.wipe")).unwrap();
    for line in [
        "LATTICE_SENSITIVE=1",
        "LATTICE_JOB_EXIT=137",
        "LATTICE_JOB_END=signaled",
    ] {
        assert!(wipe.lines().any(|l| l == line), "{line} is not in {wipe}");
    }
}

#[tokio::test]
async fn failed_prolog_prevents_start() {
    let mut bench = Bench::new();
    let text = "echo checking; echo 'the filesystem is not mounted' >&2; exit 3";
    bench.settings.hooks.rank.prolog = Some(hook(&bench, "prolog", text));
    bench.settings.hooks.rank.epilog = Some(hook(&bench, "epilog", "true"));
    let (exit, fault) = run(&bench, job(&bench, 1, "true")).await;
    let reason = "prolog failed: exit code 3: the filesystem is not mounted";
    assert_eq!(
        exit,
        RankExit::SpawnFailed {
            reason: reason.to_owned()
        }
    );
    assert_eq!(fault.as_deref(), Some(reason));
    // The epilog reverts the prolog.
    assert_eq!(ran(&bench), ["prolog", "epilog"]);
    let log = std::fs::read_to_string(bench.attempt_dir(key(1)).join("prolog.log")).unwrap();
    assert_eq!(log, "checking\nthe filesystem is not mounted\n");
}

#[tokio::test]
async fn failures_after_the_job_are_the_nodes_and_its_exit_status_stays() {
    let mut bench = Bench::new();
    bench.settings.hooks.rank.epilog = Some(hook(&bench, "epilog", "kill -TERM $$"));
    bench.settings.hooks.rank.wipe = Some(hook(&bench, "wipe", "echo 'GPU 3 is stuck'; exit 1"));
    let mut wanted = job(&bench, 1, "exit 5");
    wanted.sensitive = true;
    let (exit, fault) = run(&bench, wanted).await;
    assert_eq!(exit, RankExit::Exited { code: 5 });
    let fault = fault.unwrap();
    assert_eq!(
        fault,
        "epilog failed: signal 15; wipe failed: exit code 1: GPU 3 is stuck"
    );
}

#[tokio::test]
async fn hook_deadline_ends_all_processes() {
    let mut bench = Bench::new();
    let child = bench.file("child");
    let text = format!(
        "setsid sh -c 'trap \"\" TERM; echo $$ > {}; while :; do sleep 0.05; done' &\n\
         head -c 1000000 /dev/zero | tr '\\0' x; while :; do sleep 0.05; done",
        child.display()
    );
    let mut slow = hook(&bench, "epilog", &text);
    // By then the hook has started all its processes.
    slow.timeout_ms = 3000;
    bench.settings.hooks.rank.epilog = Some(slow);
    let began = Instant::now();
    let (exit, fault) = run(&bench, job(&bench, 1, "exit 4")).await;
    // The usual timeout of these hooks is 20 s.
    assert!(began.elapsed() < Duration::from_secs(18));
    assert_eq!(exit, RankExit::Exited { code: 4 });
    let fault = fault.unwrap();
    assert!(
        fault.starts_with("epilog failed: killed after the timeout of 3 s"),
        "{fault}"
    );
    assert!(fault.len() < 500, "{fault}");
    assert!(!runs(pid_in(&child).await));
    let log = bench.attempt_dir(key(1)).join("epilog.log");
    assert!(std::fs::metadata(log).unwrap().len() < 70_000);
}

#[tokio::test]
async fn a_rank_that_is_ended_during_its_prolog_never_starts() {
    let mut bench = Bench::new();
    let pid_file = bench.file("pid");
    let text = format!(
        "echo $$ > {}; while :; do sleep 0.05; done",
        pid_file.display()
    );
    bench.settings.hooks.rank.prolog = Some(hook(&bench, "prolog", &text));
    bench.settings.hooks.rank.epilog = Some(hook(&bench, "epilog", "true"));
    let executor = bench.open();
    executor.launch(job(&bench, 1, "true")).await.unwrap();
    let pid = pid_in(&pid_file).await;
    executor.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(end(&bench, key(1)).await, (RankExit::Stopped, None));
    assert!(!runs(pid));
    assert_eq!(ran(&bench), ["prolog", "epilog"]);
    executor.stop().await;
}

/// Epilog that writes its process id and waits for a file.
fn waiting(bench: &Bench, name: &str) -> (Hook, PathBuf, PathBuf) {
    let (go, pid_file) = (bench.file("go"), bench.file("hook-pid"));
    let text = format!(
        "echo $$ > {}; until [ -e {} ]; do sleep 0.02; done",
        pid_file.display(),
        go.display()
    );
    (hook(bench, name, &text), go, pid_file)
}

#[tokio::test]
async fn an_epilog_outlives_its_agent_and_the_nodes_end_waits_for_it() {
    let mut bench = Bench::new();
    let (epilog, go, pid_file) = waiting(&bench, "epilog");
    bench.settings.hooks.rank.epilog = Some(epilog);
    let first = bench.open();
    first.launch(job(&bench, 1, "exit 6")).await.unwrap();
    let pid = pid_in(&pid_file).await;
    first.stop().await;
    assert!(runs(pid), "the epilog runs without its agent");
    let second = bench.open();
    assert_eq!(second.list().len(), 1);
    let ends = bench.ledger.all();
    assert!(
        ends.iter()
            .all(|r| !matches!(r.report, RankReport::Ended { .. })),
        "{ends:?}"
    );
    std::fs::write(&go, "").unwrap();
    assert_eq!(
        end(&bench, key(1)).await,
        (RankExit::Exited { code: 6 }, None)
    );
    assert_eq!(ran(&bench), ["job", "epilog"]);
    second.stop().await;
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn epilog_reruns_after_supervisor_kill() {
    let mut bench = Bench::new();
    let (epilog, go, pid_file) = waiting(&bench, "epilog");
    bench.settings.hooks.rank.epilog = Some(epilog);
    let executor = bench.open();
    executor.launch(job(&bench, 1, "exit 6")).await.unwrap();
    let pid = pid_in(&pid_file).await;
    // The parent of the epilog is its supervisor.
    let supervisor: i32 = support::status_of(pid, "PPid")[0].parse().unwrap();
    kill(supervisor);
    eventually("the first epilog to be gone", || (!runs(pid)).then_some(())).await;
    std::fs::write(&go, "").unwrap();
    assert_eq!(
        end(&bench, key(1)).await,
        (RankExit::Exited { code: 6 }, None)
    );
    assert_eq!(ran(&bench), ["job", "epilog", "epilog"]);
    executor.stop().await;
}

#[tokio::test]
async fn a_lost_rank_has_its_epilog_too() {
    let mut bench = Bench::new();
    bench.settings.hooks.rank.epilog = Some(hook(&bench, "epilog", "exit 9"));
    let executor = bench.open();
    let wanted = job(&bench, 1, "while :; do sleep 0.05; done");
    executor.launch(wanted).await.unwrap();
    bench.ledger.started(key(1)).await;
    kill(recorded_pid(&bench.attempt_dir(key(1)), "supervisor.json"));
    let (exit, fault) = end(&bench, key(1)).await;
    assert!(matches!(exit, RankExit::Lost { .. }), "{exit:?}");
    assert_eq!(fault.as_deref(), Some("epilog failed: exit code 9"));
    executor.stop().await;
}

#[tokio::test]
async fn after_a_reboot_what_is_to_be_wiped_is_wiped_before_the_node_takes_work() {
    let mut bench = Bench::new();
    let (wipe, go, pid_file) = waiting(&bench, "wipe");
    bench.settings.hooks.rank.wipe = Some(wipe);
    let first = bench.open();
    let mut wanted = job(&bench, 1, "while :; do sleep 0.05; done");
    wanted.sensitive = true;
    first.launch(wanted).await.unwrap();
    bench.ledger.started(key(1)).await;
    first.stop().await;
    let supervisor = recorded_pid(&bench.attempt_dir(key(1)), "supervisor.json");
    kill(supervisor);
    eventually("it to be gone", || (!runs(supervisor)).then_some(())).await;
    bench.settings.boot_id = "boot-2".to_owned();
    // These files are not flushed: a power failure leaves them empty.
    for name in ["supervisor.json", "started.json"] {
        std::fs::write(bench.attempt_dir(key(1)).join(name), "").unwrap();
    }
    let second = bench.open();
    pid_in(&pid_file).await;
    assert_eq!(second.block_reasons(), [BlockReason::Finishing]);
    let refused = second.launch(shell(key(2), "true")).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("wipe of allocation 1 attempt 1 has not completed"),
        "{refused}"
    );
    std::fs::write(&go, "").unwrap();
    let (exit, fault) = end(&bench, key(1)).await;
    let RankExit::Lost { evidence } = exit else {
        panic!("{exit:?}");
    };
    assert!(evidence.contains("boot-2"), "{evidence}");
    assert_eq!(fault, None);
    eventually("the node to be fit", || {
        second.block_reasons().is_empty().then_some(())
    })
    .await;
    second.stop().await;
}

#[test]
fn gate_leftovers_block_nothing() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let left = runtime.block_on(pass_a_gate_that_leaves_something());
    // Waits for threads that are still reading.
    drop(runtime);
    assert!(runs(left), "it was waited for");
    kill(left);
}

async fn pass_a_gate_that_leaves_something() -> i32 {
    let mut bench = Bench::new();
    let left = bench.file("left.pid");
    // A process that the gate starts keeps the gate's output open.
    let text = format!(
        "echo fine; setsid sh -c 'echo $$ > {}; exec sleep 60' & \
         while [ ! -s {} ]; do sleep 0.01; done",
        left.display(),
        left.display(),
    );
    bench.settings.hooks.health_gate = Some(hook(&bench, "gate", &text));
    let executor = bench.open();
    let left = pid_in(&left).await;
    eventually("the gate to be passed", || {
        executor.block_reasons().is_empty().then_some(())
    })
    .await;
    let log = bench.settings.folder.join("health_gate.log");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "fine\n");
    executor.stop().await;
    left
}

#[tokio::test]
async fn the_health_gate_keeps_a_node_out_until_it_is_passed() {
    let mut bench = Bench::new();
    let good = bench.file("good");
    let text = format!(
        "[ -e {} ] || {{ echo 'link 2 is down'; exit 2; }}",
        good.display()
    );
    bench.settings.hooks.health_gate = Some(hook(&bench, "gate", &text));
    let executor = bench.open();
    let mut changes = executor.block_reason_changes();
    assert_eq!(executor.block_reasons(), [BlockReason::Gate]);
    // The gate runs when the agent starts.
    tokio::time::timeout(PATIENCE, changes.next())
        .await
        .unwrap();
    assert_eq!(executor.block_reasons(), [BlockReason::Gate]);
    let failed = executor.check_health().await.unwrap_err();
    assert_eq!(failed.reason, "exit code 2: link 2 is down");
    std::fs::write(&good, "").unwrap();
    executor.check_health().await.unwrap();
    assert!(executor.block_reasons().is_empty());
    assert_eq!(ran(&bench), ["health_gate"; 3]);
    std::fs::remove_file(&good).unwrap();
    let (one, two) = tokio::join!(executor.check_health(), executor.check_health());
    assert!(one.is_err() && two.is_err());
    assert_eq!(executor.block_reasons(), [BlockReason::Gate]);
    executor.stop().await;
}

#[tokio::test]
async fn an_agent_that_comes_up_under_work_does_not_run_the_gate() {
    let mut bench = Bench::new();
    bench.settings.hooks.health_gate = Some(hook(&bench, "gate", "exit 1"));
    let first = bench.open();
    // Before the first launch: with a running job, the gate would not run.
    eventually("the first agent's", || {
        (!ran(&bench).is_empty()).then_some(())
    })
    .await;
    first.launch(shell(key(1), "sleep 1000")).await.unwrap();
    bench.ledger.started(key(1)).await;
    first.stop().await;
    let second = bench.open();
    assert!(second.block_reasons().is_empty());
    second.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(end(&bench, key(1)).await, (RankExit::Stopped, None));
    assert_eq!(ran(&bench), ["health_gate"]);
    second.stop().await;
}

#[tokio::test]
async fn a_health_gate_that_hangs_is_ended_with_all_it_started() {
    let mut bench = Bench::new();
    let child = bench.file("child");
    let text = format!("sleep 1000 & echo $! > {}; wait", child.display());
    let mut gate = hook(&bench, "gate", &text);
    gate.timeout_ms = 3000;
    bench.settings.hooks.health_gate = Some(gate);
    let executor = bench.open();
    let failed = executor.check_health().await.unwrap_err();
    assert_eq!(failed.reason, "killed after the timeout of 3 s");
    let pid = pid_in(&child).await;
    eventually("its child to be gone", || (!runs(pid)).then_some(())).await;
    executor.stop().await;
}

#[tokio::test]
async fn what_was_checked_is_run_whatever_becomes_of_a_link_to_it() {
    let mut bench = Bench::new();
    let checked = hook(&bench, "checked", "true");
    // A file that another user put in place would run with the agent's rights.
    let evil = executable(
        bench.file("evil"),
        &format!("echo evil >> {}", bench.file("ran").display()),
    );
    let links = bench.file("links");
    std::fs::create_dir(&links).unwrap();
    let (within, link) = (links.join("site"), links.join("hook"));
    std::os::unix::fs::symlink(&within, &link).unwrap();
    std::os::unix::fs::symlink(&checked.program, &within).unwrap();
    let linked = Hook {
        program: link,
        ..checked
    };
    bench.settings.hooks.rank.prolog = Some(linked.clone());
    bench.settings.hooks.rank.epilog = Some(linked.clone());
    bench.settings.hooks.health_gate = Some(linked);
    let executor = bench.open();
    eventually("the gate to be passed", || {
        executor.block_reasons().is_empty().then_some(())
    })
    .await;
    std::fs::remove_file(&within).unwrap();
    std::os::unix::fs::symlink(&evil, &within).unwrap();
    executor.launch(job(&bench, 1, "true")).await.unwrap();
    assert_eq!(
        end(&bench, key(1)).await,
        (RankExit::Exited { code: 0 }, None)
    );
    executor.check_health().await.unwrap();
    let ran_now = ran(&bench);
    assert_eq!(
        ran_now,
        ["health_gate", "prolog", "job", "epilog", "health_gate"]
    );
    executor.stop().await;
    // The next agent checks again, and rejects the hook: its folder is writable for all.
    std::fs::set_permissions(
        bench.folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let clock = Arc::new(SystemClock);
    let error = Executor::open(bench.settings.clone(), bench.ledger.clone(), clock).unwrap_err();
    assert!(matches!(error, OpenError::Hook { .. }), "{error:?}");
}

#[tokio::test]
async fn a_hook_that_others_could_change_keeps_the_agent_from_starting() {
    let mut bench = Bench::new();
    let prolog = hook(&bench, "prolog", "true");
    let open = |bench: &Bench, program: &Path| {
        let mut settings = bench.settings.clone();
        let program = program.to_owned();
        settings.hooks.rank.prolog = Some(Hook {
            program,
            ..prolog.clone()
        });
        let opened = Executor::open(settings, bench.ledger.clone(), Arc::new(SystemClock));
        opened.map(drop)
    };
    open(&bench, &prolog.program).unwrap();
    let loose = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&prolog.program, loose).unwrap();
    let error = open(&bench, &prolog.program).unwrap_err();
    assert!(
        matches!(error, OpenError::Hook { key: "prolog", .. }),
        "{error:?}"
    );
    assert!(open(&bench, Path::new("/nonexistent/prolog")).is_err());
    bench.settings.hooks.rank.prolog = None;
}
