//! The loop that reads the node.

use super::view::{NodeView, Wish};
use super::{Announcement, Publication, Step};
use bytes::Bytes;
use lattice_hwprobe::{Host, Inventory, probe_all};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Callers that wait for a fresh read at a time; more than one read serves them all.
const MOST_WISHES: usize = 16;

/// What is read, and how often.
#[derive(Debug, Clone)]
pub struct ProbeSettings {
    /// The machine, or a captured tree of one.
    pub host: Host,
    /// Between two reads.
    pub interval: Duration,
    /// After a read that differs from what is announced.
    pub confirm_after: Duration,
    /// Whoever asks for a read gets the last one while it is younger than this.
    pub fresh_for: Duration,
}

/// Reads the node, and says what is to be announced.
#[derive(Debug)]
pub struct Prober {
    settings: ProbeSettings,
    view: NodeView,
    latest: watch::Sender<Option<Bytes>>,
    wishes: mpsc::Receiver<Wish>,
    announcement: watch::Sender<Announcement>,
    last_read_at: Instant,
    /// Callers without an answer yet.
    waiting: Vec<Wish>,
}

impl Prober {
    /// Nothing is read before [`Prober::run`].
    pub fn new(settings: ProbeSettings, publication: Publication) -> Self {
        let (latest, seen) = watch::channel(None);
        let (wish, wishes) = mpsc::channel(MOST_WISHES);
        Self {
            settings,
            view: NodeView::new(publication, seen, wish),
            latest,
            wishes,
            announcement: watch::Sender::new(Announcement::default()),
            last_read_at: Instant::now(),
            waiting: Vec::new(),
        }
    }

    /// For those who ask.
    pub fn view(&self) -> NodeView {
        self.view.clone()
    }

    /// What is to be announced, whenever it changes.
    pub fn announcements(&self) -> watch::Receiver<Announcement> {
        self.announcement.subscribe()
    }

    /// Reads at once, then at every interval, on a wish, and soon after a change.
    pub async fn run(mut self) {
        let mut step = self.read(Purpose::Announce).await;
        loop {
            let due = Instant::now()
                + match step {
                    Step::Rest => self.settings.interval,
                    Step::Confirm => self.settings.confirm_after,
                };
            step = self.serve_until(due, step).await;
        }
    }

    /// Answers wishes until the next read is due, and makes it. A wish never makes it come later,
    /// nor confirms a change earlier: a device that is being reset reads the same for seconds.
    async fn serve_until(&mut self, due: Instant, step: Step) -> Step {
        loop {
            let first = tokio::select! {
                () = tokio::time::sleep_until(due) => return self.read(Purpose::Announce).await,
                wish = self.wishes.recv() => wish,
            };
            self.waiting.extend(first);
            if self.last_read_at.elapsed() < self.settings.fresh_for {
                self.answer();
                continue;
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

    /// Gives the last read to everybody who waits for one.
    fn answer(&mut self) {
        let Some(json) = self.latest.borrow().clone() else {
            return;
        };
        while let Ok(wish) = self.wishes.try_recv() {
            self.waiting.push(wish);
        }
        for wish in self.waiting.drain(..) {
            let _ = wish.send(json.clone());
        }
    }

    async fn read(&mut self, purpose: Purpose) -> Step {
        let (host, view) = (self.settings.host.clone(), self.view.clone());
        let read = tokio::task::spawn_blocking(move || observe(&host, &view, purpose)).await;
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%error, "a probe panicked; what was announced stays");
                return Step::Rest;
            }
        };
        if let Some(json) = read.json {
            self.latest.send_replace(Some(json));
            self.last_read_at = Instant::now();
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

/// What a read is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It counts as one of the reads that announce or confirm.
    Announce,
    /// Somebody wants to know; a change is being confirmed at its own time.
    Answer,
}

struct Read {
    json: Option<Bytes>,
    announcement: Announcement,
    step: Step,
}

fn observe(host: &Host, view: &NodeView, purpose: Purpose) -> Read {
    let inventory = probe_all(host);
    log(&inventory);
    let mut publication = view.publication();
    let step = match purpose {
        Purpose::Answer => Step::Confirm,
        Purpose::Announce => publication.observe(&inventory).unwrap_or_else(|error| {
            let error = crate::with_causes(&error);
            tracing::error!(%error, "the node's document cannot be written");
            Step::Rest
        }),
    };
    let json = serde_json::to_vec(&inventory).map(Bytes::from);
    let json = json.inspect_err(|error| tracing::error!(%error, "the inventory cannot be written"));
    Read {
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
    }
}

#[cfg(test)]
mod tests;
