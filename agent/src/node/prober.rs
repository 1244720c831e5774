//! The loop that reads the node.

use super::view::{NodeView, Wish};
use super::{Announcement, Publication, Step};
use bytes::Bytes;
use lattice_hwprobe::{Host, Inventory, probe_all};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

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
}

/// Reads the node, and says what is to be announced.
#[derive(Debug)]
pub struct Prober {
    settings: ProbeSettings,
    view: NodeView,
    latest: watch::Sender<Option<Bytes>>,
    wishes: mpsc::Receiver<Wish>,
    announcement: watch::Sender<Announcement>,
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
        let mut wishes = Vec::new();
        loop {
            let step = self.read(&mut wishes).await;
            let rest = match step {
                Step::Rest => self.settings.interval,
                Step::Confirm => self.settings.confirm_after,
            };
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                wish = self.wishes.recv() => wishes.extend(wish),
            }
            while let Ok(wish) = self.wishes.try_recv() {
                wishes.push(wish);
            }
        }
    }

    async fn read(&mut self, wishes: &mut Vec<Wish>) -> Step {
        let (host, view) = (self.settings.host.clone(), self.view.clone());
        let read = tokio::task::spawn_blocking(move || observe(&host, &view)).await;
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%error, "a probe panicked; what was announced stays");
                return Step::Rest;
            }
        };
        if let Some(json) = read.json {
            for wish in wishes.drain(..) {
                let _ = wish.send(json.clone());
            }
            self.latest.send_replace(Some(json));
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

struct Read {
    json: Option<Bytes>,
    announcement: Announcement,
    step: Step,
}

fn observe(host: &Host, view: &NodeView) -> Read {
    let inventory = probe_all(host);
    log(&inventory);
    let mut publication = view.publication();
    let step = publication.observe(&inventory).unwrap_or_else(|error| {
        let error = crate::with_causes(&error);
        tracing::error!(%error, "the node's document cannot be written");
        Step::Rest
    });
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
