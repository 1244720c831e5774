//! Looks after the segments of this member: those that were missing when it began are brought from
//! another one as soon as one has them; beside that the others are read again and again, slowly, so that
//! what a disk lost is found and replaced while others have it, and not when somebody asks.

use crate::{member::Member, segments};
use futures::future::join;
use lattice_mesh::Mesh;
use lattice_quorum_state::SegmentId;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// Until what could not be brought is asked for again; twice as long each time.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// No longer than this.
const ASK_AT_LEAST: Duration = Duration::from_secs(60);

/// How often segments are read. A segment has a megabyte, or 1,024 rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubSettings {
    /// Between two segments.
    pub pause: Duration,
    /// Between two rounds over all of them.
    pub rest: Duration,
}

impl Default for ScrubSettings {
    /// A megabyte a second at most, and each segment once in some hours.
    fn default() -> Self {
        Self {
            pause: Duration::from_secs(1),
            rest: Duration::from_secs(4 * 3600),
        }
    }
}

/// Never ends. `None`: brings what is missing, and reads nothing of itself.
pub(crate) async fn run(member: Arc<Member>, mesh: Mesh, settings: Option<ScrubSettings>) {
    let read = async {
        match settings {
            Some(settings) => read_all(&member, &mesh, settings).await,
            None => std::future::pending().await,
        }
    };
    // What nobody has is missing for good, and keeps nobody from reading the rest.
    join(bring_missing(&member, &mesh), read).await;
}

/// Never ends. What is known to be missing is brought elsewhere.
async fn read_all(member: &Member, mesh: &Mesh, settings: ScrubSettings) {
    loop {
        let named = |_, state: &lattice_quorum_state::State| -> Vec<SegmentId> {
            state.segments().map(|segment| segment.id).collect()
        };
        for id in member.replica.look(named) {
            sleep(settings.pause).await;
            if !member.replica.segments().is_missing(&id) {
                check(member, mesh, &id).await;
            }
        }
        sleep(settings.rest).await;
    }
}

/// Until all is here.
async fn bring_missing(member: &Member, mesh: &Mesh) {
    let mut pause = ASK_AGAIN;
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
            "segments are missing; what is in them cannot be read, and they are asked for again"
        );
        sleep(pause).await;
        pause = (pause * 2).min(ASK_AT_LEAST);
    }
}

/// Reads one, and brings it where it is not what it was.
async fn check(member: &Member, mesh: &Mesh, id: &SegmentId) {
    let Err(reason) = segments::read(member, *id).await else {
        member.replica.segments().note_checked();
        return;
    };
    tracing::error!(segment = %id, %reason, "a segment cannot be read");
    if let Err(reason) = segments::repair(member, mesh, id).await {
        tracing::error!(segment = %id, %reason, "nobody has a segment that is damaged here");
    }
}
