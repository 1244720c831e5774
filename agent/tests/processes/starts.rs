//! Starts that hang in a filesystem with a dead server, before the job's program runs. Needs root, to mount the
//! filesystem.

use crate::hanging::{Hang, Hanging};
use crate::support;
use crate::support::{Bench, Ledger, eventually, executable, key, runs, shell, terminate};
use lattice_agent::attempt::{AttemptDir, Hook};
use lattice_agent::executor::{BlockReason, Executor};
use lattice_agent_rpc::{Launch, ReportAnswer};
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Upper bound for "at once" on a busy machine; far below the grace.
const SOON: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(120);
/// Hook timeout: a hanging start is detected by then.
const HOOK_DEADLINE: Duration = Duration::from_secs(4);

/// Place where a start hangs.
#[derive(Debug, Clone, Copy)]
enum HangPoint {
    Directory,
    Output,
    Program,
}

const PLACES: [HangPoint; 3] = [HangPoint::Directory, HangPoint::Output, HangPoint::Program];

impl HangPoint {
    /// Job that leaves a note if it ever runs, with `dead` in its path.
    fn job(self, bench: &Bench, number: u64, dead: &Path) -> Launch {
        let note = format!("echo x >> {}", bench.file("ran").display());
        let mut wanted = shell(key(number), &note);
        let path = |name: &str| dead.join(name).display().to_string();
        match self {
            Self::Directory => wanted.workload.working_dir = Some(path("")),
            Self::Output => wanted.workload.output.stderr = Some(path("errors")),
            Self::Program => wanted.workload.argv = vec![path("program")],
        }
        wanted
    }

    fn words(self, dead: &Path) -> String {
        let dead = dead.display();
        match self {
            Self::Directory => format!("working directory {dead}/"),
            Self::Output => format!("output file {dead}/errors"),
            Self::Program => format!("program {dead}/program"),
        }
    }
}

struct Scene {
    bench: Bench,
    /// Mount point of the dead filesystem.
    dead: PathBuf,
    watched: Arc<Mutex<Vec<i32>>>,
    alive_at_end: Arc<Mutex<Vec<i32>>>,
}

impl Scene {
    fn new() -> Self {
        let (watched, alive_at_end) = (Arc::<Mutex<Vec<i32>>>::default(), Arc::default());
        let (at, noted) = (
            watched.clone(),
            Arc::<Mutex<Vec<i32>>>::clone(&alive_at_end),
        );
        let ledger = Ledger::answering(move |report, _| {
            if matches!(report.report, RankReport::Ended { .. }) {
                let all = at.lock().unwrap();
                let alive = all.iter().copied().filter(|pid| runs(*pid));
                noted.lock().unwrap().extend(alive);
            }
            Ok(ReportAnswer::Committed)
        });
        let mut bench = Bench::reporting_to(ledger);
        bench.settings.grace = GRACE;
        let dead = bench.file("dead");
        std::fs::create_dir(&dead).unwrap();
        Self {
            bench,
            dead,
            watched,
            alive_at_end,
        }
    }

    /// Launches a job, waits until its start hangs, and returns its process and its supervisor.
    async fn launch(&self, executor: &Executor, place: HangPoint, number: u64) -> (i32, i32) {
        let wanted = place.job(&self.bench, number, &self.dead);
        executor.launch(wanted).await.unwrap();
        self.hung(number).await
    }

    async fn hung(&self, number: u64) -> (i32, i32) {
        let attempt = AttemptDir::at(self.bench.attempt_dir(key(number)));
        let (child, supervisor) = eventually("a start that hangs", || {
            let supervisor = attempt.supervisor().unwrap()?.pid;
            Some((waiting_child(supervisor)?, supervisor))
        })
        .await;
        self.watched.lock().unwrap().push(child);
        (child, supervisor)
    }

    /// Returns the result. Checks that all processes had ended by its report, and that the job never ran.
    async fn end(&self, number: u64) -> RankExit {
        let end = self.bench.ledger.end(key(number)).await;
        let alive = self.alive_at_end.lock().unwrap().clone();
        assert!(
            alive.is_empty(),
            "{alive:?} were there when the end was told"
        );
        let started = |report: &lattice_agent_rpc::Report| {
            report.key == key(number) && matches!(report.report, RankReport::Started { .. })
        };
        assert!(!self.bench.ledger.all().iter().any(started));
        assert!(!self.bench.file("ran").exists(), "its program ran");
        end
    }

    fn errors(&self, number: u64) -> String {
        std::fs::read_to_string(self.bench.attempt_dir(key(number)).join("stderr")).unwrap()
    }
}

/// Child before exec that waits: only a hanging start has one.
fn waiting_child(parent: i32) -> Option<i32> {
    let all = std::fs::read_dir("/proc").unwrap();
    let mut pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| {
        let read = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let stat = read("stat").unwrap_or_default();
        let waits = ["D", "S"].map(|state| format!(") {state} {parent} "));
        let waits = waits.iter().any(|waits| stat.contains(waits));
        waits && read("cmdline").is_ok_and(|command| command.contains("__supervise"))
    })
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn stop_reaches_hanging_start() {
    let scene = Scene::new();
    let Some(_dead) = Hanging::over(&scene.dead, Hang::Killable) else {
        return;
    };
    let executor = scene.bench.open();
    for (number, place) in (1..).zip(PLACES) {
        let (child, _) = scene.launch(&executor, place, number).await;
        let asked_at = Instant::now();
        executor.terminate(terminate(key(number))).await.unwrap();
        assert_eq!(scene.end(number).await, RankExit::Stopped, "{place:?}");
        let took = asked_at.elapsed();
        println!("{place:?}: process {child} hung, and was gone {took:?} after the request");
        assert!(took < SOON, "{place:?}: {took:?}");
        let expected = format!(
            "[lattice: ended during the start, at: {}]\n",
            place.words(&scene.dead)
        );
        assert_eq!(scene.errors(number), expected);
    }
    executor.stop().await;
}

#[tokio::test]
async fn the_walltime_counts_from_the_beginning_of_the_start() {
    let scene = Scene::new();
    let Some(_dead) = Hanging::over(&scene.dead, Hang::Killable) else {
        return;
    };
    let executor = scene.bench.open();
    // If the machine is too busy to start within the first walltime, the next is tried.
    let walltimes = [700, 4_000, 15_000].map(Duration::from_millis);
    let mut number = 0;
    for place in PLACES {
        let mut has_hung = false;
        for walltime in walltimes {
            number += 1;
            let mut wanted = place.job(&scene.bench, number, &scene.dead);
            wanted.walltime_ms = u64::try_from(walltime.as_millis()).ok();
            let launched_at = Instant::now();
            executor.launch(wanted).await.unwrap();
            tokio::select! {
                _ = scene.hung(number) => has_hung = true,
                _ = scene.bench.ledger.end(key(number)) => {}
            }
            assert_eq!(scene.end(number).await, RankExit::Walltime, "{place:?}");
            let took = launched_at.elapsed();
            println!("{place:?}: a walltime of {walltime:?} ended it after {took:?}");
            assert!(took > walltime, "{place:?}: {took:?}");
            assert!(took < walltime + SOON, "{place:?}: {took:?}");
            if has_hung {
                break;
            }
        }
        assert!(has_hung, "{place:?} was ended before it hung");
    }
    executor.stop().await;
}

#[tokio::test]
async fn next_agent_finds_hanging_start() {
    let scene = Scene::new();
    let Some(_dead) = Hanging::over(&scene.dead, Hang::Killable) else {
        return;
    };
    let first = scene.bench.open();
    let (child, supervisor) = scene.launch(&first, HangPoint::Directory, 1).await;
    eventually("the hang to be told", || {
        (first.block_reasons() == [BlockReason::Starting]).then_some(())
    })
    .await;
    assert!(!BlockReason::Starting.blocks_jobs());
    let attempt = AttemptDir::at(scene.bench.attempt_dir(key(1)));
    let hanging_start = attempt.starting().unwrap().unwrap();
    println!("{hanging_start}");
    let words = HangPoint::Directory.words(&scene.dead);
    assert_eq!(
        hanging_start.to_string(),
        format!("the start hangs at {words}")
    );
    let log = std::fs::read_to_string(attempt.supervisor_log()).unwrap();
    assert_eq!(log, format!("{hanging_start}\n"));
    first.stop().await;
    assert!(runs(child) && runs(supervisor));

    let second = scene.bench.open();
    assert_eq!(second.list().len(), 1);
    eventually("the next agent to see it", || {
        (second.block_reasons() == [BlockReason::Starting]).then_some(())
    })
    .await;
    let asked_at = Instant::now();
    second.terminate(terminate(key(1))).await.unwrap();
    assert_eq!(scene.end(1).await, RankExit::Stopped);
    assert!(asked_at.elapsed() < SOON, "{:?}", asked_at.elapsed());
    eventually("the hang to be over", || {
        second.block_reasons().is_empty().then_some(())
    })
    .await;
    second.stop().await;
}

#[tokio::test]
async fn a_start_that_nothing_can_end_keeps_its_node_until_it_is_gone() {
    let scene = Scene::new();
    let Some(dead) = Hanging::over(&scene.dead, Hang::Stuck) else {
        return;
    };
    let executor = scene.bench.open();
    let (child, _) = scene.launch(&executor, HangPoint::Directory, 1).await;
    executor.terminate(terminate(key(1))).await.unwrap();
    let attempt = AttemptDir::at(scene.bench.attempt_dir(key(1)));
    let hanging_start = eventually("it to be told that SIGKILL did not help", || {
        attempt
            .starting()
            .unwrap()
            .filter(|hanging_start| hanging_start.is_killed)
    })
    .await;
    println!("{hanging_start}");
    assert!(
        hanging_start.to_string().contains("stuck in the kernel"),
        "{hanging_start}"
    );
    eventually("the agent to say so", || {
        (executor.block_reasons() == [BlockReason::Starting]).then_some(())
    })
    .await;
    assert!(runs(child));
    assert_eq!(executor.list()[0].report, None, "its end was told");
    drop(dead);
    assert_eq!(scene.end(1).await, RankExit::Stopped);
    executor.stop().await;
}

#[tokio::test]
async fn hanging_start_is_lost_only_without_process() {
    for hang in [Hang::Killable, Hang::Stuck] {
        let scene = Scene::new();
        let Some(dead) = Hanging::over(&scene.dead, hang) else {
            return;
        };
        let executor = scene.bench.open();
        let (child, supervisor) = scene.launch(&executor, HangPoint::Directory, 1).await;
        kill(supervisor);
        eventually("it to be gone", || (!runs(supervisor)).then_some(())).await;
        if hang == Hang::Stuck {
            // The agent searches for remaining processes, and finds the child.
            eventually("SIGKILL from the agent", || {
                let pending = support::status_of(child, "ShdPnd");
                (pending == ["0000000000000100"]).then_some(())
            })
            .await;
            assert!(runs(child));
            assert_eq!(executor.list()[0].report, None, "its end was told");
            drop(dead);
        }
        let RankExit::Lost { evidence } = scene.end(1).await else {
            panic!("{hang:?}");
        };
        println!("{hang:?}: {evidence}");
        executor.stop().await;
    }
}

#[tokio::test]
async fn late_start_failure_names_reason() {
    let scene = Scene::new();
    let Some(dead) = Hanging::over(&scene.dead, Hang::Stuck) else {
        return;
    };
    let executor = scene.bench.open();
    scene.launch(&executor, HangPoint::Program, 1).await;
    drop(dead);
    let RankExit::SpawnFailed { reason } = scene.end(1).await else {
        panic!("it was started");
    };
    println!("{reason}");
    assert!(reason.contains("dead/program"), "{reason}");
    executor.stop().await;
}

/// Linux constant; the C library's header defines it only on request.
const F_SETSIG: libc::c_int = 10;

/// File lease: a process that opens `path` waits until this value is dropped, or for 45 s.
struct Leased {
    _held: std::fs::File,
}

impl Leased {
    /// Takes the lease. Prints a note and returns `None` if the filesystem does not support leases.
    #[expect(unsafe_code, reason = "fcntl has no wrapper for leases")]
    fn take(path: &Path) -> Option<Self> {
        let file = std::fs::File::open(path).unwrap();
        // SAFETY: both commands take one number, and the descriptor is open. The signal that requests the lease is one
        // that is ignored.
        let taken = unsafe {
            libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG)
                | libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
        };
        if taken != 0 {
            let error = std::io::Error::last_os_error();
            eprintln!("SKIPPED: no lease on {}: {error}", path.display());
            return None;
        }
        Some(Self { _held: file })
    }
}

#[tokio::test]
async fn a_start_that_hangs_and_then_goes_on_runs_the_job_to_its_end() {
    let bench = Bench::new();
    let program = executable(bench.file("program"), "echo here; exit 3");
    let Some(leased) = Leased::take(&program) else {
        return;
    };
    let executor = bench.open();
    let wanted = support::launch(key(1), &[program.to_str().unwrap()]);
    executor.launch(wanted).await.unwrap();
    let attempt = AttemptDir::at(bench.attempt_dir(key(1)));
    let hanging_start = eventually("the hang to be told", || attempt.starting().unwrap()).await;
    let program = program.display();
    assert_eq!(
        hanging_start.to_string(),
        format!("the start hangs at program {program}")
    );
    eventually("the agent to say so", || {
        (executor.block_reasons() == [BlockReason::Starting]).then_some(())
    })
    .await;
    drop(leased);
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Exited { code: 3 });
    assert_eq!(bench.stdout(key(1)), "here\n");
    assert_eq!(executor.block_reasons(), []);
    executor.stop().await;
}

/// Hook in `folder`, which is covered by a dead filesystem later.
fn hook(folder: &Path, name: &str) -> Hook {
    Hook {
        program: executable(folder.join(name), "true"),
        args: Vec::new(),
        timeout_ms: u64::try_from(HOOK_DEADLINE.as_millis()).unwrap(),
        env: std::collections::BTreeMap::new(),
    }
}

#[tokio::test]
async fn hanging_prolog_start_obeys_deadline_and_stop() {
    let mut scene = Scene::new();
    let mut prolog = hook(&scene.dead, "prolog");
    scene.bench.settings.hooks.rank.prolog = Some(prolog.clone());
    let executor = scene.bench.open();
    let Some(dead) = Hanging::over(&scene.dead, Hang::Killable) else {
        return;
    };
    let launched_at = Instant::now();
    executor.launch(shell(key(1), "true")).await.unwrap();
    scene.hung(1).await;
    let RankExit::SpawnFailed { reason } = scene.end(1).await else {
        panic!("it was started");
    };
    println!("{reason}");
    assert_eq!(reason, "prolog failed: killed after the timeout of 4 s");
    assert!(launched_at.elapsed() < HOOK_DEADLINE + SOON);
    executor.stop().await;

    prolog.timeout_ms = 60_000;
    drop(dead);
    scene.bench.settings.hooks.rank.prolog = Some(prolog);
    let executor = scene.bench.open();
    let Some(_dead) = Hanging::over(&scene.dead, Hang::Killable) else {
        return;
    };
    executor.launch(shell(key(2), "true")).await.unwrap();
    scene.hung(2).await;
    let asked_at = Instant::now();
    executor.terminate(terminate(key(2))).await.unwrap();
    assert_eq!(scene.end(2).await, RankExit::Stopped);
    assert!(asked_at.elapsed() < SOON, "{:?}", asked_at.elapsed());
    executor.stop().await;
}

#[tokio::test]
async fn hanging_gate_start_fails_at_deadline() {
    let mut scene = Scene::new();
    scene.bench.settings.hooks.health_gate = Some(hook(&scene.dead, "gate"));
    let executor = scene.bench.open();
    eventually("the gate to be passed", || {
        executor.block_reasons().is_empty().then_some(())
    })
    .await;
    let Some(dead) = Hanging::over(&scene.dead, Hang::Killable) else {
        return;
    };
    let asking = executor.clone();
    let asked_at = Instant::now();
    let asked = tokio::spawn(async move { asking.check_health().await });
    // On the same thread as the gate.
    executor.launch(shell(key(1), "exit 4")).await.unwrap();
    let end = scene.bench.ledger.end(key(1)).await;
    assert_eq!(end, RankExit::Exited { code: 4 });
    let failed = asked.await.unwrap().unwrap_err();
    println!("{}", failed.reason);
    assert!(
        failed
            .reason
            .ends_with("the start did not complete within 4 s"),
        "{failed:?}"
    );
    assert!(asked_at.elapsed() < HOOK_DEADLINE + SOON);
    // A second start is rejected while the first hangs.
    let again = executor.check_health().await.unwrap_err();
    assert!(
        again
            .reason
            .ends_with("an earlier start of this hook has not completed"),
        "{again:?}"
    );
    assert_eq!(executor.block_reasons(), [BlockReason::Gate]);
    drop(dead);
    let passed = async {
        while executor.check_health().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(support::PATIENCE, passed)
        .await
        .unwrap();
    assert_eq!(executor.block_reasons(), []);
    executor.stop().await;
}
