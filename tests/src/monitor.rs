//! Watches the one thing that must never be: a node that is free, or another's, while a process of
//! a job lives on it.

use crate::{observer::Observer, procs::Jobs};
use lattice_quorum_types::node::Holder;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::JoinHandle, time::MissedTickBehavior};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Looks.
    pub looks: u64,
    /// Longest time between two of them: without a leader nobody says who holds a node.
    pub longest_gap: Duration,
    /// Most processes of jobs that lived at one look.
    pub most_processes: usize,
    /// What must not be, each once.
    pub violations: BTreeSet<String>,
}

/// Runs until it is asked what it saw.
#[derive(Debug)]
pub struct Monitor {
    stop: oneshot::Sender<()>,
    watching: JoinHandle<Seen>,
}

impl Monitor {
    /// Begins to watch.
    pub fn start(observer: Observer, mut jobs: Jobs) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let watching = tokio::spawn(async move {
            let (mut seen, mut last) = (Seen::default(), Instant::now());
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

    /// Ends it.
    pub async fn seen(self) -> Seen {
        let _ = self.stop.send(());
        self.watching.await.unwrap()
    }
}

/// A process that lives before and after the quorum was asked lived while it answered, so whom the
/// answer names has to be its holder.
async fn look(observer: &Observer, jobs: &mut Jobs, seen: &mut Seen) {
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
            let who = holder.map_or("nobody".to_owned(), |h| {
                format!("{}.{}", h.allocation, h.attempt)
            });
            seen.violations.insert(format!(
                "{} is held by {who} while process {} of {}.{} lives there",
                of.node, process.pid, of.allocation, of.attempt
            ));
        }
    }
}
