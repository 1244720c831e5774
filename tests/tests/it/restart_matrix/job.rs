//! A job at each step of its life, and the process that is killed meanwhile.

use lattice_client::AllocationView;
use lattice_quorum_types::AllocationId;
use lattice_tests::{
    script::{Behaviour, Script},
    site::{Hook, Site},
    wait::until,
};
use std::fmt;

/// Step of the job at the time of the kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The job has its node and the site's prolog runs; no process of the job runs.
    Starting,
    /// The job runs.
    Running,
    /// The job was cancelled and holds out.
    Stopping,
    /// The first process of the job has exited; another one lives.
    Completing,
    /// No process of the job lives; the site's epilog runs.
    Epilog,
}

impl Step {
    pub const ALL: [Self; 5] = [
        Self::Starting,
        Self::Running,
        Self::Stopping,
        Self::Completing,
        Self::Epilog,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Completing => "completing",
            Self::Epilog => "in the epilog",
        }
    }

    fn behaviour(self) -> Behaviour {
        match self {
            Self::Starting | Self::Running | Self::Epilog => Behaviour::Plain,
            Self::Stopping => Behaviour::Stubborn,
            Self::Completing => Behaviour::LeavesAnother,
        }
    }
}

/// Process that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    Agent,
    /// The agent while it starts the supervisor; at later steps, the agent that started the supervisor and then the
    /// agent that found it again.
    Parent,
    Control,
    Leader,
    Supervisor,
}

impl Victim {
    pub const ALL: [Self; 5] = [
        Self::Agent,
        Self::Parent,
        Self::Control,
        Self::Leader,
        Self::Supervisor,
    ];
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Agent => "agent",
            Self::Parent => "supervisor's parent",
            Self::Control => "control",
            Self::Leader => "quorum leader",
            Self::Supervisor => "supervisor",
        })
    }
}

/// One job on one node, on its way to a step.
pub struct Job<'a> {
    pub site: &'a Site,
    pub node: String,
    pub victim: Victim,
    pub step: Step,
    pub script: Script,
    pub id: AllocationId,
}

impl<'a> Job<'a> {
    /// Submits the job, which proceeds as far as the test permits.
    pub async fn submit(site: &'a Site, node: &str, victim: Victim, step: Step) -> Self {
        let folder = format!("{victim:?}-{step:?}").to_lowercase();
        Self::submit_in(site, &folder, node, victim, step).await
    }

    /// Submits as [`Job::submit`] does, with a folder of its own for each try.
    pub async fn submit_in(
        site: &'a Site,
        folder: &str,
        node: &str,
        victim: Victim,
        step: Step,
    ) -> Self {
        let script = Script::in_folder(site.path(folder));
        match step {
            Step::Starting => site.hold(node, Hook::Prolog),
            Step::Epilog => {
                site.hold(node, Hook::Epilog);
                script.may_exit();
            }
            _ => {}
        }
        let id = site.submit(node, &script.text(step.behaviour())).await;
        Self {
            site,
            node: node.to_owned(),
            victim,
            step,
            script,
            id,
        }
    }

    /// Waits until the job has reached its step.
    pub async fn arrives(&self) {
        let is_in = |hook| move || self.site.is_in(&self.node, hook);
        match self.step {
            Step::Starting => {
                until("the prolog runs", is_in(Hook::Prolog)).await;
                self.site.reaches(self.id, &["starting"]).await;
                return;
            }
            Step::Epilog => return until("the epilog runs", is_in(Hook::Epilog)).await,
            _ => {}
        }
        self.site.reaches(self.id, &["running"]).await;
        match self.step {
            Step::Starting | Step::Epilog => {}
            // The process exists before its first line is complete.
            Step::Running => {
                until("its script runs", || !self.script.effects().is_empty()).await;
            }
            Step::Stopping => {
                until("the job can be asked to end", || self.script.has("ready")).await;
                self.site.api().cancel(self.id).await.unwrap();
                until("the job was asked to end", || self.script.has("asked")).await;
            }
            Step::Completing => {
                let gone = || self.script.has("left") && self.script.main_is_gone();
                until("the first process has exited", gone).await;
            }
        }
    }

    /// Permits the job to continue to its end.
    pub fn release(&self) {
        self.script.may_exit();
        self.script.may_stop();
        self.site.let_go(&self.node, Hook::Prolog);
        self.site.let_go(&self.node, Hook::Epilog);
    }

    /// Whether the job ran and no process of it lives.
    pub fn is_over(&self) -> bool {
        !self.script.effects().is_empty() && !self.site.job_lives(self.id)
    }

    /// Checks that the API finally reports the true end.
    pub async fn ends(&self) -> AllocationView {
        let ended = ["completed", "failed", "cancelled"];
        let view = self.site.reaches(self.id, &ended).await;
        let (state, exit) = self.truth();
        let exit_text = view.ranks[0].exit.clone().unwrap_or_default();
        assert!(
            view.state == state && exit_text.starts_with(exit),
            "{} ({exit_text}) where {state} ({exit}) is true",
            view.state
        );
        let runs = self.script.effects();
        let attempt = view.attempt;
        let most = format!("{}.{attempt}.0", self.id);
        assert!(attempt == 1, "attempt {attempt} though it is not requeued");
        let may_have_run_not = self.victim == Victim::Supervisor && self.step == Step::Starting;
        assert!(
            runs == [most] || (may_have_run_not && runs.is_empty()),
            "it ran {runs:?}"
        );
        view
    }

    fn truth(&self) -> (&'static str, &'static str) {
        match (self.victim, self.step) {
            (Victim::Supervisor, Step::Stopping) => ("cancelled", "lost: the supervisor"),
            // The end of the job was recorded before the epilog.
            (Victim::Supervisor, Step::Epilog) => ("failed", "exit code 7"),
            (Victim::Supervisor, _) => ("failed", "lost: the supervisor"),
            (_, Step::Stopping) => ("cancelled", "stopped"),
            _ => ("failed", "exit code 7"),
        }
    }
}
