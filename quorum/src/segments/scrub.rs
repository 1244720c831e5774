//! Segment scrubber: fetches from other members the segments that were missing at the start. The scrubber also reads
//! all other segments repeatedly and slowly. It thus finds and repairs damage while other members have intact copies,
//! and not only when a query needs the segment.

use crate::{member::Member, segments};
use futures::future::join;
use lattice_mesh::Mesh;
use lattice_quorum_state::SegmentId;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// First wait before missing segments are requested again; doubles each time.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait before missing segments are requested again.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Pace of the scrubber. A segment holds one megabyte, or 1,024 rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubSettings {
    /// Pause between two segments.
    pub segment_interval: Duration,
    /// Pause between two rounds over all segments.
    pub round_interval: Duration,
}

impl Default for ScrubSettings {
    /// One segment per second at most; four hours between two rounds.
    fn default() -> Self {
        Self {
            segment_interval: Duration::from_secs(1),
            round_interval: Duration::from_secs(4 * 3600),
        }
    }
}

/// Scrubs until cancelled. With `None`, only fetches missing segments.
pub(crate) async fn run(member: Arc<Member>, mesh: Mesh, settings: Option<ScrubSettings>) {
    let read = async {
        match settings {
            Some(settings) => read_all(&member, &mesh, settings).await,
            None => std::future::pending().await,
        }
    };
    // Concurrent, because a segment that no member has must not stop the checks of the others.
    join(fetch_missing(&member, &mesh), read).await;
}

/// Checks all segments in rounds, until cancelled. [`fetch_missing`] handles segments that are known to be missing.
async fn read_all(member: &Member, mesh: &Mesh, settings: ScrubSettings) {
    loop {
        let named = |_, state: &lattice_quorum_state::State| -> Vec<SegmentId> {
            state.segments().map(|segment| segment.id).collect()
        };
        for id in member.replica.with_state(named) {
            sleep(settings.segment_interval).await;
            if !member.replica.segments().is_missing(&id) {
                check(member, mesh, &id).await;
            }
        }
        sleep(settings.round_interval).await;
    }
}

/// Fetches missing segments until none is missing.
async fn fetch_missing(member: &Member, mesh: &Mesh) {
    let mut pause = MIN_RETRY_INTERVAL;
    loop {
        let missing = member.replica.segments().missing();
        if missing.is_empty() {
            return;
        }
        let mut failed = None;
        for id in &missing {
            failed = segments::repair(member, mesh, id).await.err().or(failed);
        }
        let Some(reason) = failed else { continue };
        tracing::warn!(
            segments = member.replica.segments().missing().len(), %reason,
            "segments missing; their records cannot be read until another member sends them"
        );
        sleep(pause).await;
        pause = (pause * 2).min(MAX_RETRY_INTERVAL);
    }
}

/// Reads one segment, and replaces it if it is damaged.
async fn check(member: &Member, mesh: &Mesh, id: &SegmentId) {
    let Err(reason) = segments::read(member, *id).await else {
        member.replica.segments().note_checked();
        return;
    };
    tracing::error!(segment = %id, %reason, "segment unreadable");
    if let Err(reason) = segments::repair(member, mesh, id).await {
        tracing::error!(segment = %id, %reason, "no intact copy of the segment on any member");
    }
}
