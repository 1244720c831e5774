//! History state machine: reads in, entries out.

use super::changes::{PreviousState, key_changes};
use super::{Cause, Checkpoint, Entry, Event, EventKind, FoldedLine, Line};
use crate::{
    Class, ClassMark, ClassRecord, ClassState, Debounce, Digest, Publication, Reading, Value, text,
};
use std::collections::{BTreeMap, BTreeSet};

/// Circumstances of one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadContext {
    /// Time of the read, in Unix milliseconds.
    pub at: u64,
    /// Boot id of the host.
    pub boot_id: String,
    /// Cause of the read.
    pub cause: Cause,
}

/// Result of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObserveOutcome {
    /// Lines to persist, in this order; at most one entry per class.
    pub lines: Vec<Line>,
    /// A change was seen once; read again soon to confirm it.
    pub confirm: bool,
}

/// The history of one node.
#[derive(Clone, Debug, Default)]
pub struct History {
    checkpoint: Checkpoint,
    live: BTreeMap<Class, LiveClass>,
}

/// In-memory state of a class.
#[derive(Clone, Debug, Default)]
struct LiveClass {
    debounce: Debounce,
    /// Cause of the read that first found the unconfirmed change.
    cause: Option<Cause>,
    /// The last complete record.
    record: Option<ClassRecord>,
    /// Record of the previous read, while it awaits confirmation.
    unconfirmed: Option<ClassRecord>,
}

impl History {
    /// Restores a history from a checkpoint. `record` returns the record of a digest, if it is kept; without it the
    /// next change of the class cannot list its keys.
    pub fn restore(
        checkpoint: Checkpoint,
        mut record: impl FnMut(&Digest) -> Option<ClassRecord>,
    ) -> Self {
        let live = checkpoint.classes.iter().map(|(class, standing)| {
            let digest = standing.last_complete.and_then(|mark| mark.digest());
            let live = LiveClass {
                debounce: Debounce::restore(
                    Some(standing.published),
                    standing.last_complete,
                    standing.revision,
                ),
                cause: None,
                unconfirmed: None,
                record: digest.and_then(|digest| record(&digest)),
            };
            (*class, live)
        });
        Self {
            live: live.collect(),
            checkpoint,
        }
    }

    /// State after all lines so far.
    #[must_use]
    pub const fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The published mark of each class.
    #[must_use]
    pub fn published(&self) -> BTreeMap<Class, ClassMark> {
        let classes = self.checkpoint.classes.iter();
        classes
            .map(|(class, standing)| (*class, standing.published))
            .collect()
    }

    /// The last complete record of a class, if known.
    #[must_use]
    pub fn record(&self, class: Class) -> Option<&ClassRecord> {
        self.live.get(&class)?.record.as_ref()
    }

    /// The cause of the first read of a process.
    #[must_use]
    pub fn start_cause(&self, boot_id: &str) -> Cause {
        match &self.checkpoint.boot_id {
            Some(before) if before != boot_id => Cause::Boot,
            Some(_) | None => Cause::AgentStart,
        }
    }

    /// Records an event other than a class change. Returns the line to persist, with the next sequence number.
    pub fn record_event(&mut self, boot_id: &str, folded: FoldedLine<EventKind>) -> Line {
        let line = Line::Event(Event {
            seq: self.checkpoint.seq + 1,
            at: folded.at,
            boot_id: boot_id.to_owned(),
            count: folded.count,
            first_at: (folded.count > 1).then_some(folded.first_at),
            left_out: folded.left_out,
            event: folded.what.truncated(),
        });
        self.checkpoint.fold(&line);
        line
    }

    /// The boot id of the last recorded event, or without an event that of the last [`Line::Boot`], if it differs from
    /// `boot_id`: the host was booted since.
    #[must_use]
    pub fn boot_before(&self, boot_id: &str) -> Option<&str> {
        let seen = self.checkpoint.seen_boot.as_ref();
        let before = seen.or(self.checkpoint.boot_id.as_ref())?;
        (before != boot_id).then_some(before)
    }

    /// Processes a fresh read of every class.
    pub fn observe(
        &mut self,
        records: &BTreeMap<Class, ClassRecord>,
        seen: &ReadContext,
    ) -> ObserveOutcome {
        let mut observed = ObserveOutcome::default();
        // A class that the site no longer requests must not keep its last mark.
        let classes = self.checkpoint.classes.keys();
        let gone = classes.filter(|class| class.is_optional() && !records.contains_key(class));
        let gone: Vec<ClassRecord> = gone
            .map(|class| ClassRecord::disabled(*class, "no longer probed"))
            .collect();
        for record in records.values().chain(&gone) {
            let line = self.observe_class(record, seen, &mut observed.confirm);
            if let Some(line) = line {
                self.checkpoint.fold(&line);
                observed.lines.push(line);
            }
        }
        let is_waiting = self.live.values().any(|live| live.debounce.is_waiting());
        if !is_waiting && self.checkpoint.boot_id.as_ref() != Some(&seen.boot_id) {
            let line = Line::Boot {
                boot_id: seen.boot_id.clone(),
                at: seen.at,
            };
            self.checkpoint.fold(&line);
            observed.lines.push(line);
        }
        observed
    }

    fn observe_class(
        &mut self,
        record: &ClassRecord,
        seen: &ReadContext,
        confirm: &mut bool,
    ) -> Option<Line> {
        let class = record.class;
        let live = self.live.entry(class).or_default();
        let mut state = record.state();
        let mut restless = None;
        let before_it = live.unconfirmed.take();
        let (mark, revision) = match live.debounce.observe(state.mark()) {
            Publication::Publish { mark, revision } => (mark, revision),
            Publication::Confirm => {
                // If the value changed again before the first change was confirmed, the first cause stays, unless the
                // new one is stronger.
                live.cause = Some(match live.cause.take() {
                    Some(first) => first.or_stronger(seen.cause.clone()),
                    None => seen.cause.clone(),
                });
                live.unconfirmed = Some(record.clone());
                *confirm = true;
                return None;
            }
            Publication::Unstable => {
                live.cause = None;
                return None;
            }
            Publication::Unchanged => {
                live.cause = None;
                if live.record.is_none() && matches!(state, ClassState::Complete { .. }) {
                    // The preimage was lost; this record replaces it.
                    live.record = Some(record.clone());
                }
                return None;
            }
        };
        if mark == ClassMark::Incomplete && state.digest().is_some() {
            let last = before_it.as_ref().or(live.record.as_ref());
            let record = with_changing_keys(last, record);
            state = record.state();
            restless = Some(record);
        }
        let record = restless.as_ref().unwrap_or(record);
        let before = self.checkpoint.classes.get(&class);
        let from = before.map(|standing| standing.published);
        let first_seen = live.cause.take().unwrap_or_else(|| seen.cause.clone());
        let none = BTreeMap::new();
        let (changes, more) = key_changes(
            &PreviousState {
                mark: from,
                digest: before.and_then(|standing| standing.last_complete?.digest()),
                record: live.record.as_ref(),
                missing: before.map_or(&none, |standing| &standing.missing),
            },
            record,
            &state,
        );
        if matches!(state, ClassState::Complete { .. }) {
            live.record = Some(record.clone());
        }
        Some(Line::Entry(Entry {
            seq: self.checkpoint.seq + 1,
            at: seen.at,
            boot_id: seen.boot_id.clone(),
            cause: match from {
                Some(_) => first_seen,
                None => Cause::First,
            },
            class,
            revision,
            from,
            to: mark,
            changes,
            more,
        }))
    }
}

/// A copy of the record in which the keys that changed since the previous read are unknown.
fn with_changing_keys(before: Option<&ClassRecord>, now: &ClassRecord) -> ClassRecord {
    let mut record = now.clone();
    let keys = before.map_or_else(BTreeSet::new, |before| {
        let keys = before.entries.keys().chain(now.entries.keys());
        keys.filter(|key| before.get(key) != now.get(key)).collect()
    });
    for key in &keys {
        let was = before.map_or_else(Reading::default, |before| before.get(key));
        let why = format!("changes with every reading: {was}, then {}", now.get(key));
        record.require(key.as_str(), Reading::<Value>::failed(text::excerpt(&why)));
    }
    if record.state().digest().is_some() {
        // The changing keys are not known, so the whole record is unsettled.
        return record.unsettled("value changes with every reading");
    }
    record
}
