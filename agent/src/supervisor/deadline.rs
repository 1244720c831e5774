//! Walltime of a job, including changes while the job runs.

use super::supervisor_log::log_line;
use crate::attempt::{AttemptDir, LaunchRecord};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Duration that stands for "never" in timers, close to tokio's own limit.
pub(super) const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// End of one job's walltime, counted from its start by a monotonic clock.
pub(super) struct Deadline {
    /// Folder with walltime changes; `None`: the deadline is fixed.
    dir: Option<AttemptDir>,
    started_at: Instant,
    at: Instant,
    /// Number of the change in force; 0: the launch's walltime.
    change_number: u32,
}

impl Deadline {
    /// Deadline of a job that starts at `began`.
    pub(super) fn for_job(dir: &AttemptDir, launch: &LaunchRecord, began: Instant) -> Self {
        let mut deadline = Self {
            dir: Some(dir.clone()),
            started_at: began,
            at: began + launch.walltime_ms.map_or(NEVER, capped_duration),
            change_number: 0,
        };
        // The agent may have recorded a change before this process started.
        deadline.apply_recorded_change();
        deadline
    }

    /// Deadline that no walltime change affects.
    pub(super) fn fixed(at: Instant) -> Self {
        Self {
            dir: None,
            started_at: at,
            at,
            change_number: 0,
        }
    }

    /// Reads a walltime change, if there is one. If the record is unreadable, the deadline stays.
    pub(super) fn apply_recorded_change(&mut self) {
        let said = self.dir.as_ref().map_or(Ok(None), AttemptDir::walltime);
        match said {
            Ok(Some(said)) if said.number > self.change_number => {
                self.change_number = said.number;
                self.at = self.started_at + capped_duration(said.walltime_ms);
            }
            Ok(_) => {}
            Err(error) => log_line(format_args!(
                "walltime change unreadable; the previous walltime stays in force: {}",
                crate::with_causes(&error)
            )),
        }
    }

    /// Resolves when the deadline has passed. Cancel safe.
    pub(super) async fn passed(&mut self) {
        loop {
            sleep_until(self.at).await;
            if self.is_over(Instant::now()) {
                return;
            }
        }
    }

    /// Whether the deadline has passed at `now`. Changes recorded until then count even without a signal.
    fn is_over(&mut self, now: Instant) -> bool {
        if self.at <= now {
            self.apply_recorded_change();
        }
        self.at <= now
    }
}

fn capped_duration(walltime_ms: u64) -> Duration {
    Duration::from_millis(walltime_ms).min(NEVER)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::testing::launch;
    use super::*;
    use crate::attempt::WalltimeRecord;
    use lattice_quorum_types::UnixMillis;

    struct Scene {
        folder: tempfile::TempDir,
        began: Instant,
    }

    impl Scene {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let began = Instant::now();
            Self { folder, began }
        }

        fn dir(&self) -> AttemptDir {
            AttemptDir::at(self.folder.path())
        }

        fn begin(&self, walltime_ms: Option<u64>) -> Deadline {
            let record = LaunchRecord {
                walltime_ms,
                ..launch(&[])
            };
            Deadline::for_job(&self.dir(), &record, self.began)
        }

        fn say(&self, number: u32, walltime_ms: u64) {
            let taken_at = UnixMillis(1);
            let record = WalltimeRecord {
                number,
                walltime_ms,
                taken_at,
            };
            self.dir().write_walltime(&record).unwrap();
        }

        fn is_over(&self, deadline: &mut Deadline, after_s: u64) -> bool {
            deadline.is_over(self.began + Duration::from_secs(after_s))
        }
    }

    #[test]
    fn launch_deadline_holds_unless_changed_before() {
        let scene = Scene::new();
        let mut deadline = scene.begin(Some(3_000));
        assert!(!scene.is_over(&mut deadline, 2));
        assert!(scene.is_over(&mut deadline, 3));
        scene.say(1, 8_000);
        let mut deadline = scene.begin(Some(3_000));
        assert!(!scene.is_over(&mut deadline, 7));
        assert!(scene.is_over(&mut deadline, 8));
    }

    #[test]
    fn a_walltime_counts_from_the_start_and_the_last_one_counts() {
        let scene = Scene::new();
        let mut deadline = scene.begin(Some(3_000));
        scene.say(1, 10_000);
        deadline.apply_recorded_change();
        assert!(!scene.is_over(&mut deadline, 9));
        scene.say(2, 6_000);
        deadline.apply_recorded_change();
        assert!(!scene.is_over(&mut deadline, 5));
        assert!(scene.is_over(&mut deadline, 6));
    }

    #[test]
    fn early_report_counts_without_signal() {
        let scene = Scene::new();
        let mut deadline = scene.begin(Some(3_000));
        scene.say(1, 10_000);
        assert!(!scene.is_over(&mut deadline, 3));
        assert!(scene.is_over(&mut deadline, 10));
    }

    #[test]
    fn what_has_no_end_is_given_one_and_a_hook_keeps_its_own() {
        let scene = Scene::new();
        let mut deadline = scene.begin(None);
        assert!(!scene.is_over(&mut deadline, 1 << 20));
        scene.say(1, 5_000);
        deadline.apply_recorded_change();
        assert!(scene.is_over(&mut deadline, 5));
        let mut fixed = Deadline::fixed(scene.began + Duration::from_secs(2));
        fixed.apply_recorded_change();
        assert!(!scene.is_over(&mut fixed, 1));
        assert!(scene.is_over(&mut fixed, 2));
    }

    #[test]
    fn an_earlier_change_and_one_that_cannot_be_read_change_nothing() {
        let scene = Scene::new();
        let mut deadline = scene.begin(Some(3_000));
        scene.say(2, 9_000);
        deadline.apply_recorded_change();
        scene.say(1, 4_000);
        deadline.apply_recorded_change();
        assert!(!scene.is_over(&mut deadline, 8));
        std::fs::write(scene.folder.path().join("walltime.json"), b"{").unwrap();
        deadline.apply_recorded_change();
        assert!(!scene.is_over(&mut deadline, 8));
        assert!(scene.is_over(&mut deadline, 9));
    }
}
