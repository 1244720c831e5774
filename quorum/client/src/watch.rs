//! Watch: a stream of events that resumes automatically after a lost connection.

use crate::{
    ClientConfig,
    attempt::{Backoff, Pause},
    members::Members,
};
use futures::{Stream, StreamExt};
use lattice_mesh::ItemStream;
use lattice_quorum_types::{Event, Revision, view::WatchItem, wire};
use std::{
    fmt,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// Number of queued items for a slow reader. When the queue is full, the member waits.
const QUEUE_CAPACITY: usize = 16;
/// Silence after which the client queries the members for another leader. A leader sends at least [`WatchItem::Idle`]
/// twice a second.
const SILENCE: Duration = Duration::from_millis(800);
/// Silence after which the client gives up the connection, even without another leader.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);
/// Practically unlimited time for waits between attempts.
const UNLIMITED_WAIT: Duration = Duration::from_secs(3600);

/// A running watch: a stream of [`WatchItem`]s. Dropping it ends the watch.
pub struct RunningWatch {
    items: mpsc::Receiver<WatchItem>,
    _follow: AbortOnDropHandle<()>,
}

impl fmt::Debug for RunningWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunningWatch")
    }
}

impl RunningWatch {
    pub(crate) fn start(members: Arc<Members>, config: Arc<ClientConfig>, since: Revision) -> Self {
        let (out, items) = mpsc::channel(QUEUE_CAPACITY);
        let follow = follow(members, config, since, out);
        Self {
            items,
            _follow: AbortOnDropHandle::new(tokio::spawn(follow)),
        }
    }

    /// Returns the next item; `None` after [`WatchItem::Compacted`], or if no member address is configured.
    pub async fn next(&mut self) -> Option<WatchItem> {
        self.items.recv().await
    }
}

impl Stream for RunningWatch {
    type Item = WatchItem;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        self.items.poll_recv(cx)
    }
}

/// Reason for the end of one member's stream.
enum StreamEnd {
    /// The reader is gone, or the watch has ended.
    Done,
    /// The stream is lost. The watch is opened again, possibly at another member.
    Lost(String),
}

async fn follow(
    members: Arc<Members>,
    config: Arc<ClientConfig>,
    mut at: Revision,
    out: mpsc::Sender<WatchItem>,
) {
    let mut waits = Backoff::new(&config);
    while let Some(addr) = members.target().await {
        let request = wire::Watch { since: at };
        let peer = members.peer(addr);
        let opened = timeout(config.leader_check_after * 4, peer.open(&request)).await;
        let lost = match opened {
            Ok(Ok(items)) => match read(&members, addr, items, &mut at, &out, &mut waits).await {
                StreamEnd::Done => return,
                StreamEnd::Lost(reason) => reason,
            },
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("{addr} does not answer"),
        };
        if out.is_closed() {
            return;
        }
        tracing::debug!(%addr, at = %at, reason = %lost, "watch lost; resuming");
        members.clear_leader(addr);
        waits
            .wait(Pause::Yes, Instant::now() + UNLIMITED_WAIT)
            .await;
    }
    tracing::error!("watch stopped: no address of a quorum member is configured");
}

/// Forwards the items of one member after revision `at`.
async fn read(
    members: &Members,
    addr: SocketAddr,
    mut items: ItemStream<WatchItem>,
    at: &mut Revision,
    out: &mpsc::Sender<WatchItem>,
    waits: &mut Backoff,
) -> StreamEnd {
    let mut last_contact = Instant::now();
    loop {
        let item = match timeout(SILENCE, items.next()).await {
            Ok(Some(Ok(item))) => item,
            Ok(Some(Err(error))) => return StreamEnd::Lost(error.to_string()),
            Ok(None) => return StreamEnd::Lost(format!("{addr} ended the stream")),
            Err(_) => {
                let other = members.locate().await.filter(|other| *other != addr);
                if let Some(other) = other {
                    members.set_leader(other);
                    return StreamEnd::Lost(format!("{other} leads now"));
                }
                if last_contact.elapsed() > LONGEST_SILENCE {
                    return StreamEnd::Lost(format!(
                        "no message from {addr} for {} s",
                        LONGEST_SILENCE.as_secs()
                    ));
                }
                continue;
            }
        };
        last_contact = Instant::now();
        waits.reset();
        let (item, ends) = match item {
            WatchItem::Events(events) => match drop_received(events, at) {
                Some(events) => (WatchItem::Events(events), false),
                None => continue,
            },
            WatchItem::Idle(revision) => {
                *at = revision.max(*at);
                (WatchItem::Idle(*at), false)
            }
            compacted @ WatchItem::Compacted { .. } => (compacted, true),
        };
        if out.send(item).await.is_err() || ends {
            return StreamEnd::Done;
        }
    }
}

/// Drops events that the reader has received already, and advances `at`.
fn drop_received(mut events: Vec<Event>, at: &mut Revision) -> Option<Vec<Event>> {
    events.retain(|event| event.revision > *at);
    *at = events.last()?.revision.max(*at);
    Some(events)
}
