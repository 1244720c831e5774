//! Monitor of the main invariant: a node is never free or held by another allocation while a process of a job runs on
//! it.

use crate::{observer::Observer, procs::Jobs};
use lattice_quorum_types::node::Holder;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::JoinHandle, time::MissedTickBehavior};

/// Time between two samples.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Result of a monitor.
#[derive(Debug, Clone, Default)]
pub struct MonitorReport {
    /// Number of samples.
    pub looks: u64,
    /// Longest time between two samples. Without a leader there is no sample, because no member reports the holders.
    pub longest_gap: Duration,
    /// Largest number of job processes in one sample.
    pub most_processes: usize,
    /// Violations, each once.
    pub violations: BTreeSet<String>,
}

/// Running monitor; [`Monitor::seen`] ends it.
#[derive(Debug)]
pub struct Monitor {
    stop: oneshot::Sender<()>,
    watching: JoinHandle<MonitorReport>,
}

impl Monitor {
    /// Starts to sample.
    pub fn start(observer: Observer, mut jobs: Jobs) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let watching = tokio::spawn(async move {
            let (mut seen, mut last) = (MonitorReport::default(), Instant::now());
            let mut tick = tokio::time::interval(LOOK_EVERY);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
                look(&observer, &mut jobs, &mut seen).await;
                seen.longest_gap = seen.longest_gap.max(last.elapsed());
                last = Instant::now();
                tick.tick().await;
            }
            seen
        });
        Self { stop, watching }
    }

    /// Ends the monitor and returns its result.
    pub async fn seen(self) -> MonitorReport {
        let _ = self.stop.send(());
        self.watching.await.unwrap()
    }
}

/// Takes one sample. A process that lives before and after the quorum's answer lived at the time of the answer, so its
/// attempt must be the holder of the node.
async fn look(observer: &Observer, jobs: &mut Jobs, seen: &mut MonitorReport) {
    let before = jobs.alive();
    let Some(hot) = observer.hot().await else {
        return;
    };
    let after = jobs.alive();
    seen.looks += 1;
    seen.most_processes = seen.most_processes.max(after.len());
    let holders: BTreeMap<&str, Option<Holder>> = hot
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), node.holder))
        .collect();
    for (process, of) in before
        .iter()
        .filter(|(process, _)| after.contains_key(process))
    {
        let holder = holders.get(of.node.as_str()).copied().flatten();
        let holds = holder.is_some_and(|holder| {
            (holder.allocation.0, holder.attempt) == (of.allocation, of.attempt)
        });
        if !holds {
            let holder_text = holder.map_or("nobody".to_owned(), |h| {
                format!("{}.{}", h.allocation, h.attempt)
            });
            seen.violations.insert(format!(
                "{} is held by {holder_text} while process {} of {}.{} lives there",
                of.node, process.pid, of.allocation, of.attempt
            ));
        }
    }
}
