//! Launch acceptance: checks, and the record that is written before anything starts.

use crate::attempt::{AttemptDir, CheckpointPlan, GpuChoice, LaunchRecord, RecordError};
use crate::executor::{BlockReason, JobAccount, Shared};
use lattice_agent_rpc::{AttemptKey, BlockedBy, CheckpointSetup, Launch, LaunchRefused};

impl Shared {
    /// Records an attempt, or removes its folder on failure: a rejected launch must not start later.
    pub(in crate::executor) fn record_launch(
        &self,
        key: AttemptKey,
        record: &LaunchRecord,
    ) -> Result<AttemptDir, RecordError> {
        let dir = self.attempts.create(key)?;
        let written = dir.keep_reserve().and_then(|()| dir.write_launch(record));
        if let Err(error) = written {
            let _ = dir.remove();
            return Err(error);
        }
        Ok(dir)
    }

    /// Rejects a launch of an earlier boot, and a launch while orphans or unfinished hooks block the node.
    pub(in crate::executor) fn check_node_ready(
        &self,
        launch: &Launch,
    ) -> Result<(), LaunchRefused> {
        let current = &self.settings.boot_id;
        if let Some(expected) = launch.boot.as_ref().filter(|boot| *boot != current) {
            return Err(LaunchRefused::OtherBoot {
                expected: expected.clone(),
                current: current.clone(),
            });
        }
        let blocked = [
            (BlockedBy::Orphans, BlockReason::Orphans),
            (BlockedBy::Finishing, BlockReason::Finishing),
        ];
        for (by, reason) in blocked {
            let attempts = self.block_reasons.attempts(reason);
            if !attempts.is_empty() {
                let attempts = attempts.into_iter().collect();
                return Err(LaunchRefused::Blocked { by, attempts });
            }
        }
        Ok(())
    }

    /// Checkpoint plan of an attempt. Each agent has its own folder, with one subfolder for each attempt.
    fn checkpoint_plan(&self, key: AttemptKey, setup: CheckpointSetup) -> CheckpointPlan {
        let settings = &self.settings.checkpoints;
        let attempt = format!("{}.{}", key.allocation, key.attempt);
        CheckpointPlan {
            setup,
            place: settings.runtime_dir.join(&self.agent).join(attempt),
            poll_ms: u64::try_from(settings.poll.as_millis()).unwrap_or(u64::MAX),
        }
    }

    pub(in crate::executor) fn launch_record(
        &self,
        mut launch: Launch,
        gpus: Option<GpuChoice>,
        chosen: JobAccount,
    ) -> LaunchRecord {
        let settings = &self.settings;
        if let (None, Some(folder)) = (&launch.workload.working_dir, &settings.working_dir) {
            launch.workload.working_dir = Some(folder.display().to_string());
        }
        let checkpoint = launch
            .checkpoint
            .map(|setup| self.checkpoint_plan(launch.key, setup));
        let JobAccount {
            become_user,
            account,
        } = chosen;
        LaunchRecord {
            key: launch.key,
            epoch: launch.epoch,
            revision: launch.revision,
            user: launch.user,
            project: launch.project,
            name: launch.name,
            element: launch.element,
            nodes: launch.nodes,
            node: settings.node.clone(),
            rank: launch.rank,
            workload: launch.workload,
            walltime_ms: launch.walltime_ms,
            gpus,
            sensitive: launch.sensitive,
            hooks: settings.hooks.rank.clone(),
            cgroup: self
                .cgroups
                .as_ref()
                .map(|groups| groups.record_for(launch.key)),
            checkpoint,
            become_user,
            account,
            output_cap_bytes: settings.output_cap_bytes,
            grace_ms: u64::try_from(settings.grace.as_millis()).unwrap_or(u64::MAX),
            mark: format!("{}-{:032x}", self.agent, rand::random::<u128>()),
            boot_id: settings.boot_id.clone(),
            recorded_at: self.clock.now(),
        }
    }
}
