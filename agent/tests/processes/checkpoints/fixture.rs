//! Executor with a directory for checkpoints, requests and answers.

pub(crate) use crate::support::{
    Bench, Disk, NOBODY, PATIENCE, eventually, is_root, key, launch, shell, terminate,
};
pub(crate) use lattice_agent_rpc::{
    AttemptKey, CheckpointOrder, CheckpointRefused, CheckpointSetup, CheckpointStatus, Launch,
    Restore, WriteCheckpoint,
};
pub(crate) use lattice_quorum_types::allocation::RankExit;
pub(crate) use lattice_quorum_types::checkpoint::{
    CheckpointFailure, CheckpointMode, CheckpointOutcome,
};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::time::Duration;

use crate::support::folder_of;
use lattice_agent::executor::Executor;

/// Longer than any step takes.
pub(crate) const LONG_MS: u64 = 60_000;

pub(crate) struct Scene {
    pub(crate) bench: Bench,
    pub(crate) executor: Executor,
    /// Destination of checkpoints; only the job's user may read it.
    pub(crate) directory: PathBuf,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::on(Bench::new())
    }

    pub(crate) fn on(bench: Bench) -> Self {
        let home = bench.file("home");
        match is_root() {
            true => drop(folder_of(home.clone(), NOBODY.uid)),
            false => std::fs::create_dir(&home).unwrap(),
        }
        Self {
            executor: bench.open(),
            directory: home.join("check points"),
            bench,
        }
    }

    pub(crate) fn setup(&self, mode: CheckpointMode) -> CheckpointSetup {
        CheckpointSetup {
            mode,
            directory: self.directory.to_str().unwrap().to_owned(),
            restore: None,
        }
    }

    pub(crate) fn order(&self, number: u32, timeout_ms: u64) -> CheckpointOrder {
        CheckpointOrder::new(number, self.directory.to_str().unwrap(), timeout_ms)
    }

    pub(crate) async fn launch(&self, launch: Launch, checkpoint: CheckpointSetup) {
        let wanted = Launch {
            checkpoint: Some(checkpoint),
            ..launch
        };
        self.executor.launch(wanted).await.unwrap();
    }

    /// Launches the program with these flags, and waits until it counts.
    pub(crate) async fn count(&self, key: AttemptKey, mode: CheckpointMode, flags: &str) {
        self.launch(counter(key, flags), self.setup(mode)).await;
        self.says(key, "step 1\n").await;
    }

    pub(crate) async fn says(&self, key: AttemptKey, text: &str) {
        let path = self.bench.attempt_dir(key).join("stdout");
        eventually(text, || {
            let said = std::fs::read_to_string(&path).ok()?;
            said.contains(text).then_some(())
        })
        .await;
    }

    pub(crate) async fn ask(
        &self,
        key: AttemptKey,
        order: &CheckpointOrder,
    ) -> Result<CheckpointStatus, CheckpointRefused> {
        ask(&self.executor, key, order).await
    }

    /// Repeats the request until the status satisfies the condition.
    pub(crate) async fn stands(
        &self,
        key: AttemptKey,
        order: &CheckpointOrder,
        wanted: impl Fn(&CheckpointStatus) -> bool,
    ) -> CheckpointStatus {
        stands(&self.executor, key, order, wanted).await
    }

    pub(crate) async fn outcome(
        &self,
        key: AttemptKey,
        order: &CheckpointOrder,
    ) -> CheckpointOutcome {
        outcome(&self.executor, key, order).await
    }

    pub(crate) fn path(&self, order: &CheckpointOrder) -> PathBuf {
        order.folder(0).into()
    }

    /// State number in a checkpoint.
    pub(crate) fn state(&self, order: &CheckpointOrder) -> u64 {
        let text = std::fs::read_to_string(self.path(order).join("state")).unwrap();
        text.lines().next().unwrap().parse().unwrap()
    }
}

pub(crate) fn counter(key: AttemptKey, flags: &str) -> Launch {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let mut job = launch(
        key,
        &[program, "--exact", "checkpoints::job", "--nocapture"],
    );
    let flags = format!("--steps 1000000 --step-ms 5 {flags}");
    job.workload.env.insert("CHECKPOINTER".to_owned(), flags);
    job
}

pub(crate) async fn ask(
    executor: &Executor,
    key: AttemptKey,
    order: &CheckpointOrder,
) -> Result<CheckpointStatus, CheckpointRefused> {
    let wanted = WriteCheckpoint {
        key,
        epoch: 1,
        order: order.clone(),
    };
    executor.write_checkpoint(wanted).await
}

pub(crate) async fn stands(
    executor: &Executor,
    key: AttemptKey,
    order: &CheckpointOrder,
    wanted: impl Fn(&CheckpointStatus) -> bool,
) -> CheckpointStatus {
    let wait = async {
        loop {
            let status = ask(executor, key, order).await.unwrap();
            if wanted(&status) {
                return status;
            }
            let is_over = matches!(status, CheckpointStatus::Ended(_) | CheckpointStatus::Gone);
            assert!(!is_over, "{status:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap()
}

pub(crate) async fn outcome(
    executor: &Executor,
    key: AttemptKey,
    order: &CheckpointOrder,
) -> CheckpointOutcome {
    let is_end = |status: &CheckpointStatus| matches!(status, CheckpointStatus::Ended(_));
    match stands(executor, key, order, is_end).await {
        CheckpointStatus::Ended(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn failure(outcome: &CheckpointOutcome) -> (CheckpointFailure, String) {
    match outcome {
        CheckpointOutcome::Failed { cause, reason, .. } => (*cause, reason.clone()),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn is_writing(status: &CheckpointStatus) -> bool {
    matches!(status, CheckpointStatus::Writing { .. })
}
