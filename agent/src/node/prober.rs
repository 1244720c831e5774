//! Prober: the loop that reads the node.

use super::events::{self, SharedPublication};
use super::history::NodeHistory;
use super::triggers::ReadIntervals;
use super::view::{NodeView, ReadRequest};
use super::{Announcement, Step};
use bytes::Bytes;
use lattice_conformance::{
    Inventory,
    history::{Cause, ReadContext},
};
use lattice_hwprobe::Host;
use lattice_mesh::Clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Capacity of the queue of fresh-read requests; one read serves several callers.
const REQUEST_QUEUE: usize = 16;

/// Function that reads a host. It blocks for a bounded time.
#[derive(Clone)]
pub struct Reader(Arc<dyn Fn(&Host) -> Inventory + Send + Sync>);

impl Reader {
    /// Wraps a read function.
    pub fn new(read: impl Fn(&Host) -> Inventory + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

/// Settings of the prober.
#[derive(Debug, Clone)]
pub struct ProbeSettings {
    /// Machine to probe, or a captured tree of one.
    pub host: Host,
    /// Mean time between two reads: each node spreads its own interval by a tenth. After a read with an incomplete
    /// class, the next read is sooner.
    pub interval: Duration,
    /// Delay before a read that confirms a change.
    pub confirm_after: Duration,
    /// Age up to which a routine request gets the last read.
    pub fresh_for: Duration,
    /// Whether a device event of the kernel triggers a read.
    pub device_events: bool,
}

/// Dependencies of the prober, apart from the node itself.
pub struct ProberDependencies {
    /// Clock for the time of a publication.
    pub clock: Arc<dyn Clock>,
    /// Boot id of the reads.
    pub boot_id: String,
    /// Receives changes for the journal.
    pub history: NodeHistory,
    /// Random seed that spreads the reads.
    pub seed: u64,
    /// Causes that trigger a read.
    pub triggers: mpsc::Receiver<Cause>,
}

impl fmt::Debug for ProberDependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProberDependencies({:?})", self.boot_id)
    }
}

/// Reads the node and produces the announcement.
#[derive(Debug)]
pub struct Prober {
    settings: ProbeSettings,
    reader: Reader,
    dependencies: ProberDependencies,
    intervals: ReadIntervals,
    /// Strongest cause since the last read for an announcement.
    cause: Option<Cause>,
    /// Whether the last read failed.
    has_failed: bool,
    view: NodeView,
    latest: watch::Sender<Option<Bytes>>,
    requests: mpsc::Receiver<ReadRequest>,
    announcement: watch::Sender<Announcement>,
    last_read_at: Instant,
    /// Requests without an answer yet.
    waiting: Vec<ReadRequest>,
}

impl Prober {
    /// Creates a prober; it reads nothing before [`Prober::run`].
    pub fn new(
        settings: ProbeSettings,
        reader: Reader,
        publication: SharedPublication,
        surroundings: ProberDependencies,
    ) -> Self {
        let (latest, seen) = watch::channel(None);
        let (wish, wishes) = mpsc::channel(REQUEST_QUEUE);
        let start = events::publication(&publication)
            .history()
            .start_cause(&surroundings.boot_id);
        Self {
            intervals: ReadIntervals::new(settings.interval, surroundings.seed),
            cause: Some(start),
            has_failed: false,
            settings,
            reader,
            dependencies: surroundings,
            view: NodeView::new(publication, seen, wish),
            latest,
            requests: wishes,
            announcement: watch::Sender::new(Announcement::default()),
            last_read_at: Instant::now(),
            waiting: Vec::new(),
        }
    }

    /// View of the node for request handlers.
    pub fn view(&self) -> NodeView {
        self.view.clone()
    }

    /// Announcement to publish, with notification of changes.
    pub fn announcements(&self) -> watch::Receiver<Announcement> {
        self.announcement.subscribe()
    }

    /// Reads at once, then at every interval, on request, on a trigger such as a device event, and soon after a change.
    pub async fn run(mut self) {
        let mut step = self.read(Purpose::Announce).await;
        loop {
            let pause = match step {
                Step::Rest => self.intervals.next(self.is_incomplete()),
                Step::Confirm => self.settings.confirm_after,
            };
            step = self.serve_until(Instant::now() + pause, step).await;
        }
    }

    fn is_incomplete(&self) -> bool {
        self.has_failed || !self.announcement.borrow().incomplete.is_empty()
    }

    /// Adds a cause to the next read for an announcement; the stronger cause stays.
    fn add_cause(&mut self, cause: Cause) {
        self.cause = Some(match self.cause.take() {
            Some(noted) => noted.or_stronger(cause),
            None => cause,
        });
    }

    /// Answers requests and follows triggers until the next read is due, then reads. Requests and triggers
    /// neither delay that read nor confirm a change earlier: a device under reset returns the same values for seconds.
    async fn serve_until(&mut self, due: Instant, step: Step) -> Step {
        loop {
            self.waiting.retain(|wish| !wish.answer.is_closed());
            let is_asked = !self.waiting.is_empty();
            let read_again_at = self.last_read_at + self.settings.fresh_for;
            tokio::select! {
                () = tokio::time::sleep_until(due) => return self.read(Purpose::Announce).await,
                // A waiting request, usually of an operator, is due.
                () = tokio::time::sleep_until(read_again_at), if is_asked => {}
                Some(wish) = self.requests.recv() => {
                    self.handle_request(wish);
                    if Instant::now() < read_again_at {
                        continue;
                    }
                }
                Some(cause) = self.dependencies.triggers.recv() => {
                    self.add_cause(cause);
                    if step == Step::Confirm {
                        continue;
                    }
                }
            }
            match step {
                Step::Rest => match self.read(Purpose::Announce).await {
                    Step::Rest => {}
                    Step::Confirm => return Step::Confirm,
                },
                Step::Confirm => {
                    self.read(Purpose::Answer).await;
                }
            }
        }
    }

    /// Sends the last read to all waiting callers.
    fn answer(&mut self) {
        let Some(json) = self.latest.borrow().clone() else {
            return;
        };
        for wish in self.waiting.drain(..) {
            let _ = wish.answer.send(json.clone());
        }
        // Serves requests that arrived during the read.
        while let Ok(wish) = self.requests.try_recv() {
            self.handle_request(wish);
        }
    }

    /// Serves or queues a request. A routine request gets the last read while it is fresh. An operator may just have
    /// changed the node, and gets a read that begins after the request.
    fn handle_request(&mut self, request: ReadRequest) {
        let is_fresh = self.last_read_at.elapsed() < self.settings.fresh_for;
        let latest = self.latest.borrow().clone();
        match (&request.by, latest) {
            (None, Some(json)) if is_fresh => {
                let _ = request.answer.send(json);
                return;
            }
            (Some(user), _) => self.add_cause(Cause::Operator { who: user.clone() }),
            (None, _) => {}
        }
        self.waiting.push(request);
    }

    async fn read(&mut self, purpose: Purpose) -> Step {
        let (host, view) = (self.settings.host.clone(), self.view.clone());
        let reader = self.reader.clone();
        let seen = match purpose {
            Purpose::Announce => Some(self.cause.take().unwrap_or(Cause::Periodic)),
            Purpose::Answer => None,
        };
        let (clock, boot_id) = (
            self.dependencies.clock.clone(),
            self.dependencies.boot_id.clone(),
        );
        let history = self.dependencies.history.clone();
        let read = move || {
            let inventory = (reader.0)(&host);
            let seen = seen.map(|cause| ReadContext {
                at: clock.now().0,
                boot_id,
                cause,
            });
            observe(&inventory, &view, seen, &history)
        };
        let read = tokio::task::spawn_blocking(read).await;
        // Set whatever the result: the next request must not repeat the read at once.
        self.last_read_at = Instant::now();
        self.has_failed = !read.as_ref().is_ok_and(|read| read.json.is_some());
        if self.has_failed {
            // Without a result, waiting callers get an error and may repeat the request.
            self.waiting.clear();
        }
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%error, "probe panicked; the previous announcement stays");
                return Step::Rest;
            }
        };
        if let Some(json) = read.json {
            self.latest.send_replace(Some(json));
            self.answer();
        }
        self.announcement.send_if_modified(|now| {
            let is_news = *now != read.announcement;
            if is_news {
                *now = read.announcement;
            }
            is_news
        });
        read.step
    }
}

/// Purpose of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The read announces or confirms a change.
    Announce,
    /// The read answers a request while a change awaits its confirmation.
    Answer,
}

struct ReadOutcome {
    json: Option<Bytes>,
    announcement: Announcement,
    step: Step,
}

/// Evaluates a read. `seen`: circumstances of a read that may announce or confirm a change.
fn observe(
    inventory: &Inventory,
    view: &NodeView,
    seen: Option<ReadContext>,
    history: &NodeHistory,
) -> ReadOutcome {
    log(inventory);
    let mut publication = view.publication();
    let step = seen.map_or(Step::Confirm, |seen| {
        let observed = publication.observe(inventory, seen);
        if let Some(error) = observed.document {
            let error = crate::with_causes(&error);
            tracing::error!(%error, "node document could not be encoded");
        }
        history.record(observed.lines, observed.preimages);
        observed.step
    });
    let json = serde_json::to_vec(inventory).map(Bytes::from);
    let json = json.inspect_err(|error| tracing::error!(%error, "inventory could not be encoded"));
    ReadOutcome {
        json: json.ok(),
        announcement: publication.announcement().clone(),
        step,
    }
}

fn log(inventory: &Inventory) {
    for probe in &inventory.probes {
        tracing::debug!(
            probe = probe.name,
            outcome = %probe.outcome,
            duration_us = probe.duration_us,
            keys = probe.keys,
            unknown = probe.unknown,
            "probed"
        );
        if let Some(why) = &probe.why {
            tracing::warn!(class = %probe.class, "{why}");
        }
    }
    for (probe, processes) in &inventory.stuck {
        tracing::warn!(
            probe,
            processes,
            "processes of a hung probe cannot be killed"
        );
    }
}

#[cfg(test)]
mod tests;
