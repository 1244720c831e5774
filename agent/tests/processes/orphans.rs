//! Processes without a record, and killed supervisors: a running process is never reported as ended. With cgroups if
//! the host has them, and without.

use crate::support::{
    Bench, Ledger, eventually, headless_program, is_root, key, pid_in, recorded_pid, runs, shell,
    terminate,
};
use lattice_agent::executor::{BlockReason, CgroupUse, Executor, OpenError, OrphanPolicy};
use lattice_agent_rpc::{BlockedBy, LaunchRefused, Report};
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Mount point of cgroup version 2, if this user may create cgroups.
fn cgroups() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let found = line
        .and_then(|line| line.split(' ').nth(4))
        .map(PathBuf::from);
    if found.is_none() || !is_root() {
        eprintln!("SKIPPED: no cgroup of version 2, or not root");
    }
    found.filter(|_| is_root())
}

fn with_cgroups(mut bench: Bench) -> Bench {
    bench.settings.cgroup.use_of_cgroups = CgroupUse::Required;
    bench
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// Cgroup of the attempt according to its record.
fn group_of(bench: &Bench, number: u64) -> PathBuf {
    let text = std::fs::read(bench.attempt_dir(key(number)).join("launch.json")).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
    read["cgroup"]["path"].as_str().unwrap().into()
}

fn members(group: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// Job with a process that has cleared its environment and created its own session.
fn with_escapee(bench: &Bench) -> (String, PathBuf, PathBuf) {
    let (main, escapee) = (bench.file("main"), bench.file("escapee"));
    let script = format!(
        "(env -i /usr/bin/setsid /bin/sh -c 'echo $$ > {}; while :; do /bin/sleep 0.05; done' \
         >/dev/null 2>&1 &); echo $$ > {}; while :; do sleep 0.05; done",
        escapee.display(),
        main.display()
    );
    (script, main, escapee)
}

/// Ledger that notes which processes of `watched` still run when the end of a rank is reported.
fn watching(watched: Arc<Mutex<Vec<i32>>>) -> (Arc<Ledger>, Arc<Mutex<Vec<i32>>>) {
    let alive_at_end = Arc::new(Mutex::new(Vec::new()));
    let noted = alive_at_end.clone();
    let ledger = Ledger::answering(move |report: &Report, _| {
        if matches!(report.report, RankReport::Ended { .. }) {
            let watched = watched.lock().unwrap();
            let alive = watched.iter().copied().filter(|pid| runs(*pid));
            noted.lock().unwrap().extend(alive);
        }
        Ok(lattice_agent_rpc::ReportAnswer::Committed)
    });
    (ledger, alive_at_end)
}

async fn lost(bench: &Bench, number: u64) -> String {
    match bench.ledger.end(key(number)).await {
        RankExit::Lost { evidence } => evidence,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_process_that_hides_from_a_killed_supervisor_is_found_by_its_cgroup() {
    if cgroups().is_none() {
        return;
    }
    let watched = Arc::new(Mutex::new(Vec::new()));
    let (ledger, alive_at_end) = watching(watched.clone());
    let bench = with_cgroups(Bench::reporting_to(ledger));
    let executor = bench.open();
    let (script, main, escapee) = with_escapee(&bench);
    executor.launch(shell(key(1), &script)).await.unwrap();
    let (main, escapee) = (pid_in(&main).await, pid_in(&escapee).await);
    bench.ledger.started(key(1)).await;
    let group = group_of(&bench, 1);
    let inside = members(&group);
    assert!(
        inside.contains(&main) && inside.contains(&escapee),
        "{inside:?}"
    );
    let supervisor = recorded_pid(&bench.attempt_dir(key(1)), "supervisor.json");
    assert!(!inside.contains(&supervisor));
    watched.lock().unwrap().extend([main, escapee]);
    kill(supervisor);
    let evidence = lost(&bench, 1).await;
    println!("{evidence}");
    assert!(evidence.contains("by marker, cgroup"), "{evidence}");
    assert!(!runs(main) && !runs(escapee));
    assert_eq!(
        *alive_at_end.lock().unwrap(),
        [0; 0],
        "told before all were gone"
    );
    eventually("its cgroup to be removed", || {
        (!group.exists()).then_some(())
    })
    .await;
    executor.stop().await;
    assert!(
        !group.parent().unwrap().exists(),
        "the agent's place is removed"
    );
}

#[tokio::test]
async fn job_cannot_leave_its_cgroup() {
    let Some(mount) = cgroups() else {
        return;
    };
    let bench = with_cgroups(Bench::new());
    let executor = bench.open();
    let (script, main, escapee) = with_escapee(&bench);
    let tried = bench.file("tried");
    let script = format!(
        "for to in {mount} {mount}/lattice $(dirname {mount}$(sed -n 's/^0:://p' /proc/self/cgroup)); do \
         echo $$ > $to/cgroup.procs && echo LEFT; done 2>/dev/null; \
         mkdir {mount}$(sed -n 's/^0:://p' /proc/self/cgroup)/mine 2>/dev/null && echo MADE; \
         sed -n 's/^0:://p' /proc/self/cgroup; echo > {}; {script}",
        tried.display(),
        mount = mount.display(),
    );
    executor.launch(shell(key(1), &script)).await.unwrap();
    let (main, escapee) = (pid_in(&main).await, pid_in(&escapee).await);
    let group = group_of(&bench, 1);
    assert!(members(&group).contains(&main));
    executor.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Stopped);
    assert!(!runs(main) && !runs(escapee) && !group.exists());
    let name = Path::new("/").join(group.strip_prefix(&mount).unwrap());
    assert_eq!(bench.stdout(key(1)), format!("{}\n", name.display()));
    executor.stop().await;
}

#[tokio::test]
async fn a_supervisor_is_not_in_the_agents_cgroup() {
    if cgroups().is_none() {
        return;
    }
    let bench = with_cgroups(Bench::new());
    let executor = bench.open();
    executor.launch(shell(key(1), "sleep 1000")).await.unwrap();
    bench.ledger.started(key(1)).await;
    let supervisor = recorded_pid(&bench.attempt_dir(key(1)), "supervisor.json");
    let beside = group_of(&bench, 1).with_file_name("supervisors");
    assert_eq!(members(&beside), [supervisor]);
    executor.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Stopped);
    executor.stop().await;
}

/// Job with a living supervisor and without any file of the attempt.
async fn forgotten(bench: &Bench, number: u64) -> (Executor, i32, i32) {
    let executor = bench.open();
    let pid_file = bench.file(&format!("pid{number}"));
    let script = format!(
        "echo $$ > {}; while :; do sleep 0.05; done",
        pid_file.display()
    );
    executor.launch(shell(key(number), &script)).await.unwrap();
    let main = pid_in(&pid_file).await;
    bench.ledger.started(key(number)).await;
    let attempt = bench.attempt_dir(key(number));
    let supervisor = recorded_pid(&attempt, "supervisor.json");
    (executor, main, supervisor)
}

async fn an_agent_that_comes_up_ends_what_nothing_is_recorded_of(bench: Bench) {
    let watched = Arc::new(Mutex::new(Vec::new()));
    let (ledger, alive_at_end) = watching(watched.clone());
    let bench = Bench { ledger, ..bench };
    let (first, main, supervisor) = forgotten(&bench, 1).await;
    first.stop().await;
    std::fs::remove_dir_all(bench.attempt_dir(key(1))).unwrap();
    watched.lock().unwrap().extend([main, supervisor]);
    let second = bench.open();
    let evidence = lost(&bench, 1).await;
    println!("{evidence}");
    assert!(evidence.contains("no record of the attempt"), "{evidence}");
    assert!(!runs(main) && !runs(supervisor));
    assert_eq!(
        *alive_at_end.lock().unwrap(),
        [0; 0],
        "told before all were gone"
    );
    eventually("the node to be fit again", || {
        second.block_reasons().is_empty().then_some(())
    })
    .await;
    // The attempt is never started again.
    let late = second.launch(shell(key(1), "true")).await.unwrap();
    assert!(matches!(
        late.report,
        Some(RankReport::Ended {
            exit: RankExit::Lost { .. },
            ..
        })
    ));
    second.stop().await;
}

/// Kills the child on drop. The child may have ended already, so only its id is used.
struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn ends_marked_orphans_without_report() {
    let bench = Bench::new();
    let (first, main, supervisor) = forgotten(&bench, 1).await;
    first.stop().await;
    std::fs::remove_dir_all(bench.attempt_dir(key(1))).unwrap();
    let reports_before = bench.ledger.all().len();
    let second = bench.open();
    assert_eq!(second.block_reasons(), [BlockReason::Orphans]);
    eventually("the node to be fit again", || {
        second.block_reasons().is_empty().then_some(())
    })
    .await;
    assert!(!runs(main) && !runs(supervisor));
    assert_eq!(bench.ledger.all().len(), reports_before);
    assert!(!bench.attempt_dir(key(1)).exists());
    second.stop().await;
}

/// Starts a process that carries the mark of a future attempt.
fn forged(number: u64, mark: &str) -> KillOnDrop {
    let mut command = std::process::Command::new("/bin/sleep");
    command
        .arg("1000")
        .env_clear()
        .env("LATTICE_ALLOCATION_ID", number.to_string())
        .env("LATTICE_ATTEMPT", "1")
        .env("LATTICE_ATTEMPT_MARK", mark);
    KillOnDrop(command.spawn().unwrap())
}

/// Restarts such a process whenever it ends, until this value is dropped.
struct Forger {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Forger {
    fn begin(number: u64, mark: String) -> Self {
        let mut now = forged(number, &mark);
        let stop = Arc::<AtomicBool>::default();
        let is_over = stop.clone();
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                if now.0.try_wait().unwrap().is_some() {
                    now = forged(number, &mark);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let thread = Some(thread);
        Self { stop, thread }
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Whether an agent that starts next to a forger blocks jobs first, and accepts them later while the forged processes
/// still exist.
async fn outlasts(agent: &Executor, bench: &Bench, number: u64) -> bool {
    // One of the processes may just have ended, so that the agent sees none.
    if agent.block_reasons() != [BlockReason::Orphans] {
        return false;
    }
    if agent.launch(shell(key(number), "true")).await.is_ok() {
        assert_ne!(
            agent.block_reasons(),
            [BlockReason::Orphans],
            "work is taken"
        );
        bench.ledger.end(key(number)).await;
    }
    let left = eventually("the node to take work", || {
        let now = agent.block_reasons();
        (now != [BlockReason::Orphans]).then_some(now)
    });
    left.await == [BlockReason::Strays]
}

#[tokio::test]
async fn forged_orphans_do_not_hold_node() {
    let mut bench = Bench::new();
    bench.settings.orphan_hold = Duration::from_secs(1);
    let (first, _, _) = forgotten(&bench, 1).await;
    let text = std::fs::read(bench.attempt_dir(key(1)).join("launch.json")).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let agent = read["mark"].as_str().unwrap().split('-').next().unwrap();
    first.terminate(terminate(key(1))).await.unwrap();
    bench.ledger.end(key(1)).await;
    first.stop().await;

    let mark = format!("{agent}-forged");
    let forger = Forger::begin(7, mark);
    // On a busy machine, the forger may be too slow to be seen; then the test repeats.
    let mut number = 100;
    let second = loop {
        let agent = bench.open();
        number += 1;
        if outlasts(&agent, &bench, number).await {
            break agent;
        }
        agent.stop().await;
        assert!(number < 120, "the agent finds nothing to end");
    };
    // The attempt with the forged mark runs like any other.
    let wanted = shell(key(7), "sleep 1.5; exit 3");
    second.launch(wanted).await.unwrap();
    assert_eq!(bench.ledger.end(key(7)).await, RankExit::Exited { code: 3 });
    drop(forger);
    second.stop().await;
}

#[tokio::test]
async fn orphans_are_found_by_their_cgroups_and_ended() {
    if cgroups().is_some() {
        an_agent_that_comes_up_ends_what_nothing_is_recorded_of(with_cgroups(Bench::new())).await;
    }
}

#[tokio::test]
async fn orphans_are_left_alone_where_the_site_wants_it_but_never_silently() {
    let mut bench = Bench::new();
    bench.settings.orphans = OrphanPolicy::Report;
    let (first, main, supervisor) = forgotten(&bench, 1).await;
    first.stop().await;
    std::fs::remove_dir_all(bench.attempt_dir(key(1))).unwrap();
    let second = bench.open();
    assert_eq!(second.block_reasons(), [BlockReason::Orphans]);
    for number in [1, 2] {
        let refused = second.launch(shell(key(number), "true")).await.unwrap_err();
        assert!(
            matches!(refused, LaunchRefused::Blocked { by: BlockedBy::Orphans, ref attempts } if *attempts == [key(1)]),
            "{refused}"
        );
        assert!(
            refused.to_string().contains("allocation 1 attempt 1"),
            "{refused}"
        );
    }
    assert!(runs(main) && runs(supervisor));
    // On request, the agent ends the processes.
    let status = second.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(status.report, None, "not before they are gone");
    lost(&bench, 1).await;
    assert!(!runs(main) && !runs(supervisor));
    eventually("the node to be fit again", || {
        second.block_reasons().is_empty().then_some(())
    })
    .await;
    second.launch(shell(key(2), "true")).await.unwrap();
    assert_eq!(bench.ledger.end(key(2)).await, RankExit::Exited { code: 0 });
    second.stop().await;
}

#[tokio::test]
async fn wiped_record_ends_processes_first() {
    let watched = Arc::new(Mutex::new(Vec::new()));
    let (ledger, alive_at_end) = watching(watched.clone());
    let bench = Bench::reporting_to(ledger);
    let (first, main, supervisor) = forgotten(&bench, 1).await;
    first.stop().await;
    // An agent from before the removal of the folder has no record of the attempt.
    let hidden = bench.file("hidden");
    std::fs::rename(bench.attempt_dir(key(1)), &hidden).unwrap();
    let mut other = Bench::reporting_to(bench.ledger.clone());
    other.settings = bench.settings.clone();
    other.settings.orphans = OrphanPolicy::Report;
    let second = other.open();
    watched.lock().unwrap().extend([main, supervisor]);
    let status = second.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(status.report, None);
    assert_eq!(second.list().len(), 1, "the node is not free");
    lost(&bench, 1).await;
    assert_eq!(
        *alive_at_end.lock().unwrap(),
        [0; 0],
        "told before all were gone"
    );
    second.stop().await;
}

#[tokio::test]
async fn an_agent_leaves_the_work_of_another_one_on_the_same_machine_alone() {
    let (one, two) = (Bench::new(), Bench::new());
    let (first, main, supervisor) = forgotten(&one, 1).await;
    // The same node name and attempt number.
    let second = two.open();
    let status = second.terminate(terminate(key(1))).await.unwrap();
    assert!(matches!(
        status.report,
        Some(RankReport::Ended {
            exit: RankExit::Stopped,
            ..
        })
    ));
    assert!(second.block_reasons().is_empty());
    assert!(runs(main) && runs(supervisor));
    second.stop().await;
    first.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(one.ledger.end(key(1)).await, RankExit::Stopped);
    first.stop().await;
}

#[tokio::test]
async fn required_cgroups_prevent_start_when_missing() {
    let mut bench = Bench::new();
    // Below a file or, for a user without root, below a folder of another user.
    bench.settings.cgroup.parent = "/cgroup.procs".into();
    bench.settings.cgroup.use_of_cgroups = CgroupUse::Required;
    let clock = Arc::new(lattice_mesh::SystemClock);
    let error = Executor::open(bench.settings.clone(), bench.ledger.clone(), clock).unwrap_err();
    assert!(matches!(error, OpenError::Cgroup(_)), "{error:?}");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    println!("{error}: {cause}");
    assert!(
        cause.contains("set executor.cgroup to auto or off"),
        "{cause}"
    );
    bench.settings.cgroup.use_of_cgroups = CgroupUse::Auto;
    let executor = bench.open();
    executor.launch(shell(key(1), "exit 2")).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 2 });
    executor.stop().await;
}

/// Job with a process in its own session and with its first thread ended.
async fn with_headless(bench: &Bench) -> (Executor, i32) {
    let (program, pid_file) = (
        headless_program(bench.folder.path()),
        bench.file("headless.pid"),
    );
    let executor = bench.open();
    let script = format!(
        "setsid {} {} & while :; do sleep 0.05; done",
        program.display(),
        pid_file.display()
    );
    executor.launch(shell(key(1), &script)).await.unwrap();
    bench.ledger.started(key(1)).await;
    let pid = pid_in(&pid_file).await;
    eventually("its first thread to end", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(") Z ").then_some(())
    })
    .await;
    assert!(runs(pid));
    (executor, pid)
}

#[tokio::test]
async fn ends_process_without_main_thread() {
    let bench = Bench::new();
    let (executor, pid) = with_headless(&bench).await;
    executor.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Stopped);
    assert!(!runs(pid));
    executor.stop().await;
}

#[tokio::test]
async fn finds_orphan_without_main_thread() {
    let watched = Arc::new(Mutex::new(Vec::new()));
    let (ledger, alive_at_end) = watching(watched.clone());
    let bench = Bench::reporting_to(ledger);
    let (executor, pid) = with_headless(&bench).await;
    watched.lock().unwrap().push(pid);
    kill(recorded_pid(&bench.attempt_dir(key(1)), "supervisor.json"));
    lost(&bench, 1).await;
    assert_eq!(
        *alive_at_end.lock().unwrap(),
        [0; 0],
        "told before it was gone"
    );
    assert!(!runs(pid));
    executor.stop().await;
}
