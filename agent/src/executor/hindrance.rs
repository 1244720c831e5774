//! Why no work can be placed on this node, or what else is wrong, whatever its hardware is like.

use lattice_quorum_types::wire::AttemptKey;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;

/// A reason to place nothing here, or for people to look ([`Hindrance::stops_work`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    /// It is configured not to run any.
    Off,
    /// What it would run cannot be recorded.
    Journal,
    /// Processes run of which nothing is recorded.
    Orphans,
    /// Processes call themselves ours, of which nothing is recorded, and cannot be ended.
    Strays,
    /// What the site runs after a rank is not done since the node was booted.
    Finishing,
    /// What an attempt starts hangs on its way to its program. Its node is kept by it anyway.
    Starting,
    /// The site's health gate failed, or was not passed yet.
    Gate,
}

impl Hindrance {
    /// Its code among the reasons; control knows them by their first word.
    pub fn code(self) -> &'static str {
        match self {
            Self::Off => "executor.off",
            Self::Journal => "executor.journal",
            Self::Orphans => "executor.orphans",
            // Control takes whatever begins with `executor.` for a reason to place nothing.
            Self::Strays => "orphans.left",
            Self::Starting => "start.hangs",
            Self::Finishing => "executor.finishing",
            Self::Gate => "executor.gate",
        }
    }

    /// Whether work is kept away because of it.
    pub fn stops_work(self) -> bool {
        !matches!(self, Self::Strays | Self::Starting)
    }
}

/// What holds now, beside the journal.
#[derive(Debug)]
pub(super) struct Hindrances {
    held: watch::Sender<Held>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Held {
    gate: Option<String>,
    attempts: BTreeMap<Hindrance, BTreeSet<AttemptKey>>,
}

impl Hindrances {
    pub(super) fn new() -> Self {
        Self {
            held: watch::Sender::new(Held::default()),
        }
    }

    /// What holds, and is followed by `changed`.
    pub(super) fn now(&self) -> Vec<Hindrance> {
        let held = self.held.borrow();
        let gate = held.gate.is_some().then_some(Hindrance::Gate);
        held.attempts.keys().copied().chain(gate).collect()
    }

    /// Resolves when something changed since the receiver was last looked at.
    pub(super) fn changes(&self) -> Changes {
        Changes(self.held.subscribe())
    }

    /// The gate's word; `None`: passed.
    pub(super) fn say_gate(&self, failure: Option<String>) {
        self.held.send_if_modified(|held| {
            let is_news = held.gate != failure;
            held.gate = failure;
            is_news
        });
    }

    /// An attempt gives cause for it.
    pub(super) fn add(&self, hindrance: Hindrance, key: AttemptKey) {
        self.held
            .send_if_modified(|held| held.attempts.entry(hindrance).or_default().insert(key));
    }

    /// It gives none any more.
    pub(super) fn remove(&self, hindrance: Hindrance, key: AttemptKey) {
        self.held.send_if_modified(|held| {
            let Some(keys) = held.attempts.get_mut(&hindrance) else {
                return false;
            };
            let was_there = keys.remove(&key);
            if keys.is_empty() {
                held.attempts.remove(&hindrance);
            }
            was_there
        });
    }

    /// The attempts that give cause for it.
    pub(super) fn attempts(&self, hindrance: Hindrance) -> BTreeSet<AttemptKey> {
        let held = self.held.borrow();
        held.attempts.get(&hindrance).cloned().unwrap_or_default()
    }
}

/// Follows the hindrances of an executor.
#[derive(Debug, Clone)]
pub struct Changes(watch::Receiver<Held>);

impl Changes {
    /// What was there until now is known.
    pub fn mark_seen(&mut self) {
        self.0.mark_unchanged();
    }
    /// Resolves with the next change; `false` when the executor is gone.
    pub async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}
