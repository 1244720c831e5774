//! Clearing: ends the remaining processes of a rank, and waits until none is left.

use crate::supervisor::{Cgroup, OrphanProcesses, Process, signal_process};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::Duration;

/// First pause between two checks of killed processes; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause: a process that survives SIGKILL is stuck in the kernel.
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Processes of a rank that were found after its supervisor had ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::executor) struct FoundProcesses {
    /// Process ids that were killed.
    ended: BTreeSet<i32>,
    /// Process ids that may belong to the rank and were waited for.
    unverified: BTreeSet<i32>,
}

impl FoundProcesses {
    fn add(&mut self, left: &OrphanProcesses) {
        self.ended
            .extend(left.of_attempt.iter().map(|process| process.pid));
        let unknown = left.possibly_of_attempt.iter().map(|process| process.pid);
        self.unverified.extend(unknown);
    }

    /// Number of processes that were ended.
    pub(in crate::executor) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Evidence text: states only what was checked.
    pub(in crate::executor) fn evidence(&self) -> String {
        let mut text = "the supervisor ended without recording an end; ".to_owned();
        text += &match self.ended.len() {
            0 => "no process of the attempt was found by marker, cgroup, session or pending start"
                .to_owned(),
            n => format!(
                "{n} processes of the attempt, found by marker, cgroup, session or pending start, \
                 were killed"
            ),
        };
        if !self.unverified.is_empty() {
            let n = self.unverified.len();
            text += &format!("; the end of {n} unreadable processes of the user was awaited");
        }
        text
    }
}

/// Filter that passes a text only if it differs from the previous one.
#[derive(Default)]
pub(in crate::executor) struct ChangeFilter(Option<String>);

impl ChangeFilter {
    pub(in crate::executor) fn is_changed(&mut self, text: Option<String>) -> bool {
        let is_news = self.0 != text;
        self.0 = text;
        is_news && self.0.is_some()
    }
}

/// Calls `kill_left`, which ends the processes that it finds, until it finds none.
pub(in crate::executor) async fn kill_until_empty(
    rank: &impl std::fmt::Display,
    kill_left: impl Fn() -> Result<OrphanProcesses, String> + Clone + Send + 'static,
) -> FoundProcesses {
    let mut search = FoundProcesses::default();
    let mut pause = FIRST_PAUSE;
    let mut said = ChangeFilter::default();
    loop {
        let look = tokio::task::spawn_blocking(kill_left.clone()).await;
        let obstacle = match look.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(left) if left.of_attempt.is_empty() && left.possibly_of_attempt.is_empty() => {
                return search;
            }
            Ok(left) => {
                search.add(&left);
                obstacle(&left)
            }
            Err(error) => Some(error),
        };
        if said.is_changed(obstacle.clone())
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
    let pids = |all: &[Process]| {
        let all: Vec<String> = all.iter().map(|process| process.pid.to_string()).collect();
        all.join(", ")
    };
    let stuck = left.of_attempt.iter().copied();
    let stuck: Vec<_> = stuck.filter(|process| process.state == 'D').collect();
    let mut parts = Vec::new();
    if !stuck.is_empty() {
        parts.push(format!("stuck in the kernel: {}", pids(&stuck)));
    }
    if !left.possibly_of_attempt.is_empty() {
        let unknown = pids(&left.possibly_of_attempt);
        parts.push(format!(
            "the environment of some processes of the user cannot be read: {unknown}; kill them if \
             they belong to the attempt"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Sends SIGKILL to the processes of the attempt in `left` and in `group`; removes `group` if `left` has none.
pub(in crate::executor) fn kill(left: &OrphanProcesses, group: Option<&Cgroup>) {
    if let Some(group) = group {
        group.kill();
    }
    for process in &left.of_attempt {
        signal_process(process, Signal::KILL);
    }
    if let (Some(group), true) = (group, left.of_attempt.is_empty())
        && let Err(error) = group.remove()
    {
        tracing::debug!(%error, "empty cgroup could not be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn evidence_lists_only_checked_items() {
        let mut search = FoundProcesses::default();
        assert!(search.evidence().contains("no process of the attempt"));
        for _ in 0..2 {
            search.add(&OrphanProcesses {
                of_attempt: vec![process(7, 'R'), process(8, 'D')],
                possibly_of_attempt: vec![process(9, 'S')],
            });
        }
        let text = search.evidence();
        assert!(text.contains("2 processes of the attempt"), "{text}");
        assert!(
            text.contains("1 unreadable processes of the user"),
            "{text}"
        );
    }

    #[test]
    fn reports_obstacle_once_until_changed() {
        let left = |unknown| OrphanProcesses {
            of_attempt: vec![process(7, 'R')],
            possibly_of_attempt: unknown,
        };
        let mut said = ChangeFilter::default();
        assert!(!said.is_changed(obstacle(&left(vec![]))));
        assert!(said.is_changed(obstacle(&left(vec![process(9, 'S')]))));
        assert!(!said.is_changed(obstacle(&left(vec![process(9, 'S')]))));
        assert!(said.is_changed(obstacle(&left(vec![process(10, 'S')]))));
        assert!(!said.is_changed(obstacle(&left(vec![]))));
        let stuck = OrphanProcesses {
            of_attempt: vec![process(8, 'D')],
            possibly_of_attempt: vec![],
        };
        assert!(said.is_changed(obstacle(&stuck)));
    }
}
