//! The agent, a supervisor, or both killed with SIGKILL at each step of an attempt. A job runs at most once, its end is
//! the true one or `Lost`, and no process of it runs when the end is reported.

use crate::cluster::Cluster;
use crate::daemon::{Daemon, configure};
use crate::support;
use crate::support::{
    Ledger, PATIENCE, executable, key, pid_in, recorded_pid, runs, shell, terminate,
};
use lattice_agent::executor::NotReported;
use lattice_agent_rpc::{AttemptKey, ListAttempts, Report, ReportAnswer};
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Prolog,
    Running,
    Stopping,
    Epilog,
    /// The end is on disk, and control does not acknowledge it.
    Untold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Agent,
    Supervisor,
    Both,
}

/// Required result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedOutcome {
    TrueStatus,
    Stopped,
    Lost,
}

const STEPS: [Step; 5] = [
    Step::Prolog,
    Step::Running,
    Step::Stopping,
    Step::Epilog,
    Step::Untold,
];
const VICTIMS: [Victim; 3] = [Victim::Agent, Victim::Supervisor, Victim::Both];
const CODE: i32 = 23;

fn expected(step: Step, victim: Victim) -> Option<ExpectedOutcome> {
    match (step, victim) {
        (Step::Prolog | Step::Running, Victim::Agent) => Some(ExpectedOutcome::TrueStatus),
        (Step::Stopping, Victim::Agent) => Some(ExpectedOutcome::Stopped),
        (Step::Prolog | Step::Running | Step::Stopping, _) => Some(ExpectedOutcome::Lost),
        (Step::Epilog, _) => Some(ExpectedOutcome::TrueStatus),
        (Step::Untold, Victim::Agent) => Some(ExpectedOutcome::TrueStatus),
        // The supervisor has ended by then.
        (Step::Untold, _) => None,
    }
}

struct Scene {
    cluster: Cluster,
    data: PathBuf,
    config: PathBuf,
    daemon: Daemon,
    takes: Arc<AtomicBool>,
    watched: Arc<Mutex<Vec<i32>>>,
    alive_at_end: Arc<Mutex<Vec<i32>>>,
}

/// Writes its process id, and waits for permission to continue.
const HOOK: &str = "f=FOLDER/$LATTICE_HOOK.$LATTICE_ALLOCATION_ID; echo x >> $f.ran; \
                    echo $$ > $f.pid; until [ -e $f.go ]; do sleep 0.02; done";

impl Scene {
    async fn begin() -> Self {
        let takes = Arc::new(AtomicBool::new(true));
        let (watched, alive_at_end) = (Arc::<Mutex<Vec<i32>>>::default(), Arc::default());
        let (is_taken, at, noted) = (takes.clone(), watched.clone(), Arc::clone(&alive_at_end));
        let ledger = Ledger::answering(move |report: &Report, _| {
            if matches!(report.report, RankReport::Ended { .. }) {
                let alive: Vec<i32> = at
                    .lock()
                    .unwrap()
                    .iter()
                    .copied()
                    .filter(|p| runs(*p))
                    .collect();
                let noted: &Mutex<Vec<i32>> = &noted;
                noted.lock().unwrap().extend(alive);
            }
            match is_taken.load(Ordering::SeqCst) {
                true => Ok(ReportAnswer::Committed),
                false => Err(NotReported {
                    reason: "no majority".to_owned(),
                }),
            }
        });
        let cluster = Cluster::reporting_to(ledger).await;
        let folder = cluster.folder.path();
        let hooks = folder.join("hooks");
        std::fs::create_dir(&hooks).unwrap();
        let text = HOOK.replace("FOLDER", folder.to_str().unwrap());
        let hook = executable(hooks.join("hook"), &text);
        let hook = hook.display();
        let work = format!(", hooks: {{prolog: {{program: {hook}}}, epilog: {{program: {hook}}}}}");
        let data = folder.join("n1");
        let config = configure(&cluster, &data, &work);
        let daemon = Daemon::start(&support::program(), &config);
        Self {
            cluster,
            data,
            config,
            daemon,
            takes,
            watched,
            alive_at_end,
        }
    }

    fn file(&self, name: &str, of: AttemptKey, what: &str) -> PathBuf {
        let name = format!("{name}.{}.{what}", of.allocation);
        self.cluster.folder.path().join(name)
    }

    fn let_go(&self, name: &str, of: AttemptKey) {
        std::fs::write(self.file(name, of, "go"), "").unwrap();
    }

    fn lines(path: &Path) -> usize {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().count()
    }

    /// Brings an attempt to the step. Returns the process of that step below its supervisor.
    async fn bring_to(&self, step: Step, of: AttemptKey) -> i32 {
        let wait = match step {
            Step::Prolog => "prolog",
            Step::Running | Step::Stopping => "job",
            Step::Epilog => "epilog",
            Step::Untold => "none",
        };
        for name in ["prolog", "job", "epilog"] {
            if name != wait {
                self.let_go(name, of);
            }
        }
        self.takes.store(step != Step::Untold, Ordering::SeqCst);
        let job = self.file("job", of, "pid");
        let script = format!(
            "trap '' TERM; echo x >> {}; echo $$ > {}; until [ -e {} ]; do sleep 0.02; done; \
             exit {CODE}",
            self.file("job", of, "ran").display(),
            job.display(),
            self.file("job", of, "go").display()
        );
        let peer = self.daemon.peer(&self.cluster);
        peer.call(&shell(of, &script), DEADLINE)
            .await
            .unwrap()
            .unwrap();
        if step == Step::Untold {
            self.cluster.ledger.end(of).await;
            return 0;
        }
        let pid = pid_in(&self.file(wait, of, "pid")).await;
        if step == Step::Stopping {
            self.cluster.ledger.started(of).await;
            peer.call(&terminate(of), DEADLINE).await.unwrap().unwrap();
        }
        pid
    }

    /// Kills the victims, restarts a killed agent, and lets all processes continue.
    async fn strike(&mut self, step: Step, victim: Victim, of: AttemptKey, pid: i32) {
        let attempt = self
            .data
            .join(format!("executor/attempts/{}.1", of.allocation));
        // After the job another supervisor runs: the parent of the running hook.
        let supervisor = match step {
            Step::Epilog => support::status_of(pid, "PPid")[0].parse().unwrap(),
            Step::Untold => 0,
            _ => recorded_pid(&attempt, "supervisor.json"),
        };
        let mut watched = vec![pid];
        if victim != Victim::Agent && step != Step::Epilog {
            // A supervisor that writes the end lives for a moment after it.
            watched.push(supervisor);
        }
        *self.watched.lock().unwrap() = watched;
        if victim != Victim::Supervisor {
            self.daemon.end(Signal::KILL);
        }
        if victim != Victim::Agent {
            kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
        }
        if victim != Victim::Supervisor {
            self.daemon = Daemon::start(&support::program(), &self.config);
        }
        self.takes.store(true, Ordering::SeqCst);
        if step != Step::Stopping {
            self.let_go("job", of);
        }
        self.let_go("prolog", of);
        self.let_go("epilog", of);
    }

    /// Waits until control has the end and the agent has removed the attempt from memory.
    async fn settle(&self, of: AttemptKey) -> RankExit {
        let end = self.cluster.ledger.end(of).await;
        let peer = self.daemon.peer(&self.cluster);
        let taken = async {
            while !peer.call(&ListAttempts, DEADLINE).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, taken).await.unwrap();
        end
    }

    async fn cell(&mut self, step: Step, victim: Victim, of: AttemptKey) -> Option<String> {
        let expected = expected(step, victim)?;
        let pid = self.bring_to(step, of).await;
        self.strike(step, victim, of, pid).await;
        let end = self.settle(of).await;
        let is_right = match (&end, expected) {
            (RankExit::Exited { code }, ExpectedOutcome::TrueStatus) => *code == CODE,
            (RankExit::Stopped, ExpectedOutcome::Stopped) => true,
            (RankExit::Lost { evidence }, ExpectedOutcome::Lost) => {
                evidence.contains("the supervisor")
            }
            _ => false,
        };
        assert!(is_right, "{step:?} {victim:?}: {end:?}");
        let alive = std::mem::take(&mut *self.alive_at_end.lock().unwrap());
        assert!(
            alive.is_empty(),
            "{step:?} {victim:?}: {alive:?} ran when the end was told"
        );
        let runs = Self::lines(&self.file("job", of, "ran"));
        let never = step == Step::Prolog && expected == ExpectedOutcome::Lost;
        assert_eq!(runs, usize::from(!never), "{step:?} {victim:?}");
        let epilogs = Self::lines(&self.file("epilog", of, "ran"));
        let again = step == Step::Epilog && victim != Victim::Agent;
        assert_eq!(epilogs, 1 + usize::from(again), "{step:?} {victim:?}");
        let is_end = |r: &&Report| r.key == of && matches!(r.report, RankReport::Ended { .. });
        let end_reports = self.cluster.ledger.all().iter().filter(is_end).count();
        assert!(
            end_reports == 1 || step == Step::Untold,
            "{step:?} {victim:?}: told {end_reports} times"
        );
        let word = match end {
            RankExit::Lost { .. } => "lost".to_owned(),
            other => other.to_string(),
        };
        Some(format!("{word}, ran {runs}x"))
    }
}

#[tokio::test]
async fn whoever_is_killed_at_whatever_step_a_job_runs_once_and_its_end_is_true() {
    let mut scene = Scene::begin().await;
    let mut table = format!("{:10}", "");
    for victim in VICTIMS {
        let _ = write!(table, " | {:24}", format!("{victim:?} killed"));
    }
    let mut number = 0;
    for step in STEPS {
        let _ = write!(table, "\n{:10}", format!("{step:?}"));
        for victim in VICTIMS {
            number += 1;
            let cell = scene.cell(step, victim, key(number)).await;
            let _ = write!(table, " | {:24}", cell.as_deref().unwrap_or("-"));
        }
    }
    println!("{table}");
}
