//! Watcher clients.

use super::quorum;
use crate::simulated_run::SimulatedRun;
use lattice_quorum_types::view::{Answer, Query, WatchItem};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// Follows the watch and compares its events with the agreed history, until the task is aborted or finds a violation.
pub async fn watch(world: Arc<SimulatedRun>, nth: u64) -> Result<(), String> {
    let quorum = quorum(&world, nth)?;
    loop {
        let since = loop {
            match quorum.read(Query::Hot).await {
                Ok(Answer::Hot(hot)) => break hot.revision,
                _ => sleep(Duration::from_millis(100)).await,
            }
        };
        let (mut watching, mut at) = (quorum.watch(since), since);
        while let Some(item) = watching.next().await {
            match item {
                WatchItem::Events(events) => {
                    world.count("watch steps");
                    match world.agreed_history.check_watch_events(at, &events) {
                        Ok(reached) => at = reached,
                        Err(violation) => {
                            world.violation(violation);
                            return Ok(());
                        }
                    }
                }
                WatchItem::Idle(upto) => {
                    if let Some(missed) = world.agreed_history.missed(at, upto) {
                        world.violation(format!(
                            "watch at {at} received Idle up to {upto}, but missed revision {missed}"
                        ));
                        return Ok(());
                    }
                    at = at.max(upto);
                }
                WatchItem::Compacted { .. } => world.count("watch compacted"),
            }
        }
    }
}
