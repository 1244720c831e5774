//! Lost ranks: ends that no supervisor could write.

use super::Shared;
use super::rank::Rank;
use crate::attempt::{AttemptDir, ExitRecord, RecordError};
use crate::supervisor::{Cgroup, OrphanProcesses, Sought, left_of_attempt, signal_process};
use lattice_quorum_types::allocation::RankExit;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// First pause between two checks of killed processes; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause: a process that survives SIGKILL is stuck in the kernel.
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two writes of an end to a full disk.
const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// Processes found of a rank after its supervisor has ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// Process ids that were killed.
    ended: BTreeSet<i32>,
    /// Process ids that may belong to the rank and were waited for.
    awaited: BTreeSet<i32>,
}

impl Search {
    fn add(&mut self, left: &OrphanProcesses) {
        self.ended
            .extend(left.ours.iter().map(|process| process.pid));
        let unknown = left.unknown.iter().map(|process| process.pid);
        self.awaited.extend(unknown);
    }

    /// Number of processes that were ended.
    pub(super) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Evidence text: states only what was checked.
    fn evidence(&self) -> String {
        let mut text = "its supervisor ended without recording an end; ".to_owned();
        text += &match self.ended.len() {
            0 => "no process with its mark, in its cgroup, in its session or on its way to its \
                  program was found"
                .to_owned(),
            n => format!(
                "{n} processes with its mark, in its cgroup, in its session or on their way to its \
                 program were found and ended"
            ),
        };
        if !self.awaited.is_empty() {
            let n = self.awaited.len();
            text += &format!("; {n} of its user's that could not be read were waited for");
        }
        text
    }
}

/// Filter that passes a text only if it differs from the previous one.
#[derive(Default)]
struct Once(Option<String>);

impl Once {
    fn is_news(&mut self, text: Option<String>) -> bool {
        let is_news = self.0 != text;
        self.0 = text;
        is_news && self.0.is_some()
    }
}

/// Ends a rank after its supervisor exited without recording an end. The job's first process ended with the supervisor.
/// All other processes are killed here, and the rank is reported as lost only when none is left.
pub(super) async fn end(shared: &Shared, rank: &Arc<Rank>) {
    let search = clear(shared, rank).await;
    let dir = rank.dir().clone();
    let living = tokio::task::spawn_blocking(move || dir.living_supervisor()).await;
    if !matches!(living, Ok(Ok(None))) {
        // A supervisor that started meanwhile writes the end itself; otherwise the caller reads the state once more.
        return;
    }
    leave_place(rank).await;
    let evidence = search.evidence();
    tracing::warn!(attempt = %rank, %evidence, "a rank is lost");
    let lost = RankExit::Lost { evidence };
    let exit = ExitRecord::new(shared.clock.now(), lost);
    write_end(shared, rank, exit, AttemptDir::write_job_end_or_exit).await;
}

/// Removes the folder that the supervisor shared with its job.
async fn leave_place(rank: &Arc<Rank>) {
    let at = rank.clone();
    let leave = move || {
        let launch = at
            .dir()
            .launch()
            .map_err(|error| crate::with_causes(&error))?;
        let plan = launch.and_then(|launch| launch.checkpoint);
        let removed = plan.map_or(Ok(()), |plan| plan.remove_place());
        removed.map_err(|error| error.to_string())
    };
    if let Ok(Err(error)) = tokio::task::spawn_blocking(leave).await {
        tracing::warn!(
            attempt = %rank,
            %error,
            "shared folder of a lost rank could not be removed"
        );
    }
}

/// Ends all remaining processes of the rank, and returns when they have ended.
async fn clear(shared: &Shared, rank: &Arc<Rank>) -> Search {
    let (dir, boot_id) = (rank.dir().clone(), shared.settings.boot_id.clone());
    until_none_is_left(rank.as_ref(), move || {
        kill_left(&dir, &boot_id, Sought::Job)
    })
    .await
}

/// Ends hooks that a killed supervisor left. The job's processes had ended before.
pub(super) async fn clear_hooks(shared: &Shared, rank: &Arc<Rank>) {
    let (dir, boot_id) = (rank.dir().clone(), shared.settings.boot_id.clone());
    until_none_is_left(rank.as_ref(), move || {
        kill_left(&dir, &boot_id, Sought::Hooks)
    })
    .await;
}

/// Calls `kill_left`, which ends the processes that it finds, until it finds none.
pub(super) async fn until_none_is_left(
    rank: &impl std::fmt::Display,
    kill_left: impl Fn() -> Result<OrphanProcesses, String> + Clone + Send + 'static,
) -> Search {
    let mut search = Search::default();
    let mut pause = FIRST_PAUSE;
    let mut said = Once::default();
    loop {
        let look = tokio::task::spawn_blocking(kill_left.clone()).await;
        let obstacle = match look.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(left) if left.ours.is_empty() && left.unknown.is_empty() => return search,
            Ok(left) => {
                search.add(&left);
                obstacle(&left)
            }
            Err(error) => Some(error),
        };
        if said.is_news(obstacle.clone())
            && let Some(error) = obstacle
        {
            tracing::error!(
                attempt = %rank, %error,
                "processes of a lost rank may remain; the node is not released"
            );
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Reason that the end cannot be recorded yet, apart from processes that were just killed.
fn obstacle(left: &OrphanProcesses) -> Option<String> {
    let pids = |all: &[crate::supervisor::Process]| {
        let all: Vec<String> = all.iter().map(|process| process.pid.to_string()).collect();
        all.join(", ")
    };
    let stuck = left.ours.iter().copied();
    let stuck: Vec<_> = stuck.filter(|process| process.state == 'D').collect();
    let mut parts = Vec::new();
    if !stuck.is_empty() {
        parts.push(format!("stuck in the kernel: {}", pids(&stuck)));
    }
    if !left.unknown.is_empty() {
        let unknown = pids(&left.unknown);
        parts.push(format!(
            "the environment of processes of its user cannot be read: {unknown}; end them if they \
             are its own"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Kills remaining processes and returns them. The result is empty while a supervisor lives: it started meanwhile, and
/// the running processes are its own.
fn kill_left(dir: &AttemptDir, boot_id: &str, sought: Sought) -> Result<OrphanProcesses, String> {
    let failed = |error: &dyn std::error::Error| crate::with_causes(error);
    let launch = dir.launch().map_err(|e| failed(&e))?;
    let launch = launch.ok_or("the record of what was to run is missing")?;
    // Process ids are valid only for the boot that assigned them. These files are not flushed: after a machine crash
    // they may be empty.
    let (supervisor, started) = match launch.boot_id == boot_id {
        true => (
            dir.supervisor().map_err(|e| failed(&e))?,
            dir.started().map_err(|e| failed(&e))?,
        ),
        false => (None, None),
    };
    let left = left_of_attempt(
        &launch,
        supervisor.as_ref(),
        started.as_ref(),
        (dir.path(), sought),
    );
    let left = left.map_err(|e| failed(&e))?;
    if dir.living_supervisor().map_err(|e| failed(&e))?.is_some() {
        return Ok(OrphanProcesses::default());
    }
    let group = launch.cgroup.map(|group| Cgroup::at(group.path));
    kill(&left, group.as_ref());
    Ok(left)
}

/// Sends SIGKILL to all processes; removes the cgroup if it is empty.
pub(super) fn kill(left: &OrphanProcesses, group: Option<&Cgroup>) {
    if let Some(group) = group {
        group.kill();
    }
    for process in &left.ours {
        signal_process(process, Signal::KILL);
    }
    if let (Some(group), true) = (group, left.ours.is_empty())
        && let Err(error) = group.remove()
    {
        tracing::debug!(%error, "empty cgroup could not be removed");
    }
}

/// Writes an end in place of the supervisor, and retries until the disk has space for it.
pub(super) async fn write_end(
    shared: &Shared,
    rank: &Arc<Rank>,
    record: ExitRecord,
    how: fn(&AttemptDir, &ExitRecord) -> Result<(), RecordError>,
) {
    let mut said = Once::default();
    loop {
        let (dir, body) = (rank.dir().clone(), record.clone());
        let written = tokio::task::spawn_blocking(move || how(&dir, &body)).await;
        let error = match written {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                shared.journal.failed(&error);
                crate::with_causes(&error)
            }
            Err(error) => error.to_string(),
        };
        if said.is_news(Some(error.clone())) {
            tracing::error!(attempt = %rank, %error, "end of an attempt could not be written");
        }
        tokio::time::sleep(WRITE_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::Process;

    fn process(pid: i32, state: char) -> Process {
        Process {
            pid,
            parent: 1,
            session: 1,
            state,
            threads: 1,
            start_ticks: 1,
        }
    }

    #[test]
    fn the_evidence_says_what_was_checked_and_no_more() {
        let mut search = Search::default();
        assert!(search.evidence().contains("no process with its mark"));
        for _ in 0..2 {
            search.add(&OrphanProcesses {
                ours: vec![process(7, 'R'), process(8, 'D')],
                unknown: vec![process(9, 'S')],
            });
        }
        let text = search.evidence();
        assert!(text.contains("2 processes with its mark"), "{text}");
        assert!(
            text.contains("1 of its user's that could not be read"),
            "{text}"
        );
    }

    #[test]
    fn an_obstacle_is_said_once_until_it_changes() {
        let left = |unknown| OrphanProcesses {
            ours: vec![process(7, 'R')],
            unknown,
        };
        let mut said = Once::default();
        assert!(!said.is_news(obstacle(&left(vec![]))));
        assert!(said.is_news(obstacle(&left(vec![process(9, 'S')]))));
        assert!(!said.is_news(obstacle(&left(vec![process(9, 'S')]))));
        assert!(said.is_news(obstacle(&left(vec![process(10, 'S')]))));
        assert!(!said.is_news(obstacle(&left(vec![]))));
        let stuck = OrphanProcesses {
            ours: vec![process(8, 'D')],
            unknown: vec![],
        };
        assert!(said.is_news(obstacle(&stuck)));
    }
}
