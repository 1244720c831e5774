//! Supervision of BMC readers: one reader per BMC runs as long as control does. A reader that cannot start or that
//! panics is restarted; until then its nodes are reported as silent, with the reason.

use super::{
    config::{BmcPlan, BmcTarget},
    node::{Node, ReadingCause, no_power},
    reading_requests::{ReadingRequest, RequestedReading},
    worker::{Edges, RETRY_PAUSE, Shared, Worker, answer_requests, nodes, open_request_queue},
};
use crate::keyed_tasks::{KeyedTasks, PanickedTask};
use lattice_host::error_text::with_causes;
use lattice_quorum_types::NodeId;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

/// Reads every BMC of the plan until control stops, and closes the sessions: a BMC allows only few.
pub async fn run(plan: Arc<BmcPlan>, edges: Edges) {
    let shared = Shared {
        edges,
        at_a_time: Arc::new(Semaphore::new(plan.at_a_time)),
        plan: plan.clone(),
    };
    let start = |place: usize, pause: Duration| {
        let (target, shared) = (plan.targets[place].clone(), shared.clone());
        async move {
            let stop = shared.edges.stop.clone();
            if stop.run_until_cancelled(sleep(pause)).await.is_some() {
                supervise(target, shared).await;
            }
        }
    };
    run_all(plan.targets.len(), RETRY_PAUSE, start).await;
}

/// Runs one task for each place until all have ended. `start` creates the task of a place, which begins after the given
/// pause. A task that panics is started again after `restart_pause`.
async fn run_all<F>(places: usize, restart_pause: Duration, start: impl Fn(usize, Duration) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut running = KeyedTasks::new();
    for place in 0..places {
        running.spawn(place, start(place, Duration::ZERO));
    }
    while let Some(ended) = running.join_next().await {
        if let Err(PanickedTask { key: place, error }) = ended {
            tracing::error!(%error, "BMC reader task panicked, restarting");
            running.spawn(place, start(place, restart_pause));
        }
    }
}

/// Reads `target` until control stops.
async fn supervise(target: BmcTarget, shared: Shared) {
    let now = shared.edges.clock.now();
    let mut nodes = nodes(&target, &shared);
    for (name, node) in &nodes {
        let parts = node.parts(now);
        shared.edges.readings.put_parts(name.clone(), parts);
    }
    let stop = shared.edges.stop.clone();
    let bmc = target.endpoint.0.address();
    let mut failures = 0;
    let mut asked = Vec::new();
    while !stop.is_cancelled() {
        let began_at = Instant::now();
        let why = match Worker::new(&target, &shared, &mut nodes) {
            Ok(worker) => match worker.run(std::mem::take(&mut asked)).await {
                Ok(()) => return,
                Err(broke_down) => broke_down.to_string(),
            },
            Err(error) => with_causes(&error),
        };
        tracing::error!(bmc, why, "BMC reading paused");
        if began_at.elapsed() >= shared.plan.interval {
            failures = 0;
        }
        let pause = RETRY_PAUSE.saturating_mul(1 << failures.min(16));
        failures += 1;
        let begin_anew = std::mem::take(&mut nodes).into_iter();
        nodes = begin_anew
            .map(|(name, node)| (name, node.reset()))
            .collect();
        let mut asks = open_request_queue(&target, &shared);
        let unread = report_unreadable(&mut nodes, &shared, &why, std::mem::take(&mut asked));
        let unread = async {
            unread.await;
            // A request ends the pause early, because the operator may have repaired the cause.
            let ask = timeout(pause.min(max_pause(&shared)), asks.recv()).await;
            ask.ok().flatten().into_iter().collect()
        };
        asked = stop.run_until_cancelled(unread).await.unwrap_or_default();
    }
}

/// Longest pause between two attempts.
fn max_pause(shared: &Shared) -> Duration {
    shared.plan.interval.max(RETRY_PAUSE)
}

/// Reports for all nodes of the BMC that they cannot be read, in the published readings and to pending requests. Faults
/// that were reported before remain.
async fn report_unreadable(
    nodes: &mut BTreeMap<NodeId, Node>,
    shared: &Shared,
    why: &str,
    asked: Vec<ReadingRequest>,
) {
    let edges = &shared.edges;
    let look = ReadingCause::of(&asked, edges.clock.now());
    let mut looked: BTreeMap<NodeId, RequestedReading> = BTreeMap::new();
    for (name, node) in nodes {
        node.resume(&edges.history).await;
        let came = node.cannot_be_read(why, &look);
        node.write(&edges.history, look.at).await;
        let readings = &edges.readings;
        readings.put_parts(name.clone(), node.parts(look.at));
        readings.put_power(name.clone(), no_power(why), look.at);
        looked.insert(name.clone(), came);
    }
    answer_requests(asked, &looked);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn panicked_reader_is_restarted_alone() {
        let starts: Arc<[AtomicUsize; 2]> = Arc::default();
        let counts = starts.clone();
        let pause = Duration::from_millis(1);
        let start = |place: usize, pause: Duration| {
            let counts = counts.clone();
            async move {
                let before = counts[place].fetch_add(1, Ordering::SeqCst);
                assert_eq!(pause.is_zero(), before == 0, "a restart has a pause");
                assert!(place == 0 || before >= 2, "a bug");
            }
        };
        run_all(2, pause, start).await;
        let starts = starts.each_ref().map(|count| count.load(Ordering::SeqCst));
        assert_eq!(starts, [1, 3]);
    }
}
