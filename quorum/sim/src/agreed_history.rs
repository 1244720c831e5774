//! Agreed history, built from the log entries that members apply: the command at each position, its result and its
//! events. The first member that applies a command records it, and every further member is compared with that record.

use crate::invariants::{LimitCheck, audit, owners, usage};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Applied, Envelope, Event, Outcome, Refusal, Revision, UnixMillis, audit::AuditEntry,
};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;

/// Number of log entries between comparisons of the digests of all members' states.
const DIGEST_INTERVAL_ENTRIES: u64 = 8;

/// Position of a command: index of the log entry, and number within the entry.
pub type CommandPosition = (u64, usize);

struct AgreedCommand {
    hash: [u8; 32],
}

/// A command with an idempotency key that took effect.
struct KeyedCommand {
    revision: Revision,
    outcome: Outcome,
    at: UnixMillis,
}

#[derive(Default)]
struct Inner {
    agreed: BTreeMap<CommandPosition, AgreedCommand>,
    digests: BTreeMap<u64, ([u8; 32], u64)>,
    keyed: BTreeMap<(String, String), KeyedCommand>,
    events: BTreeMap<Revision, [u8; 32]>,
    limits: LimitCheck,
    audit: Vec<AuditEntry>,
    highest: u64,
    installed: u64,
    commands: u64,
    refused: u64,
    repeats: u64,
}

/// The agreed history.
#[derive(Default)]
pub struct AgreedHistory(Mutex<Inner>);

/// Counters of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunCounters {
    /// Commands in the log.
    pub commands: u64,
    /// Commands that were refused at application.
    pub refused: u64,
    /// Repeats of a command with the same key.
    pub repeats: u64,
    /// Snapshots that a member installed from a leader.
    pub installed: u64,
    /// Highest log entry that any member applied.
    pub highest: u64,
}

/// Hash of a value's debug form.
pub fn hash<T: std::fmt::Debug>(value: &T) -> [u8; 32] {
    *blake3::hash(format!("{value:?}").as_bytes()).as_bytes()
}

impl AgreedHistory {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Counters so far.
    pub fn counters(&self) -> RunCounters {
        let inner = self.lock();
        RunCounters {
            commands: inner.commands,
            refused: inner.refused,
            repeats: inner.repeats,
            installed: inner.installed,
            highest: inner.highest,
        }
    }

    /// Checks that the acknowledgement a client received matches the agreed history.
    pub fn check_acknowledgement(
        &self,
        envelope: &Envelope,
        applied: &Applied,
    ) -> Result<(), String> {
        let Some(key) = &envelope.key else {
            return Ok(());
        };
        let inner = self.lock();
        let name = (envelope.principal.name.clone(), key.clone());
        let Some(kept) = inner.keyed.get(&name) else {
            return Err(format!(
                "acknowledged but applied nowhere: {key} {:?}",
                envelope.command
            ));
        };
        if kept.revision != applied.revision || kept.outcome != applied.outcome {
            let (revision, outcome) = (applied.revision, &applied.outcome);
            return Err(format!(
                "{key} was acknowledged with {revision} {outcome:?}, and made {} {:?}",
                kept.revision, kept.outcome
            ));
        }
        Ok(())
    }

    /// Compares a command that a member applied with the agreed history, or adds it if the member is the first.
    pub fn check_applied(
        &self,
        member: u64,
        place: CommandPosition,
        envelope: &Envelope,
        result: &Result<Applied, Refusal>,
        state: &State,
    ) -> Result<(), String> {
        self.lock().apply(member, place, envelope, result, state)
    }

    /// Counts a snapshot that a member installed from a leader.
    pub fn snapshot_installed(&self) {
        self.lock().installed += 1;
    }

    /// Audit entries so far.
    pub fn audit(&self) -> Vec<AuditEntry> {
        self.lock().audit.clone()
    }

    /// Checks the next events that a watcher received after `since`. Returns the revision that the watcher has reached.
    pub fn check_watch_events(
        &self,
        since: Revision,
        events: &[Event],
    ) -> Result<Revision, String> {
        let inner = self.lock();
        let mut at = since;
        for of_revision in events.chunk_by(|a, b| a.revision == b.revision) {
            let Some(revision) = of_revision.first().map(|e| e.revision) else {
                continue;
            };
            let after = (std::ops::Bound::Excluded(at), std::ops::Bound::Unbounded);
            let expected = inner.events.range(after).next();
            match expected {
                Some((next, made)) if *next == revision && *made == hash(&of_revision) => {
                    at = revision;
                }
                other => {
                    let next = other.map(|(next, _)| next.0);
                    let came = of_revision.len();
                    return Err(format!(
                        "watch at {at} received {came} events of revision {revision}; expected \
                         revision {next:?}"
                    ));
                }
            }
        }
        Ok(at)
    }

    /// Returns the first revision after `since`, up to `upto`, that a watcher has missed.
    pub fn missed(&self, since: Revision, upto: Revision) -> Option<Revision> {
        if since >= upto {
            return None;
        }
        let after = (
            std::ops::Bound::Excluded(since),
            std::ops::Bound::Included(upto),
        );
        self.lock()
            .events
            .range(after)
            .next()
            .map(|(next, _)| *next)
    }
}

impl Inner {
    fn apply(
        &mut self,
        member: u64,
        place: CommandPosition,
        envelope: &Envelope,
        result: &Result<Applied, Refusal>,
        state: &State,
    ) -> Result<(), String> {
        let found = hash(&(envelope, result));
        match self.agreed.get(&place) {
            Some(agreed) if agreed.hash == found => {}
            Some(_) => {
                return Err(format!(
                    "member {member} has another command, or another answer, at {place:?}: \
                     {envelope:?} {result:?}"
                ));
            }
            None => {
                self.agreed.insert(place, AgreedCommand { hash: found });
                self.highest = self.highest.max(place.0);
                self.record_first(place, envelope, result, state)?;
            }
        }
        if place.1 == 0 && place.0.is_multiple_of(DIGEST_INTERVAL_ENTRIES) {
            let digest = state.digest();
            let (expected, by) = *self.digests.entry(place.0).or_insert((digest, member));
            if expected != digest {
                return Err(format!("members {by} and {member} differ after {place:?}"));
            }
        }
        Ok(())
    }

    /// Records and checks a command when the first member applies it.
    fn record_first(
        &mut self,
        place: CommandPosition,
        envelope: &Envelope,
        result: &Result<Applied, Refusal>,
        state: &State,
    ) -> Result<(), String> {
        self.commands += 1;
        match result {
            Err(_) => self.refused += 1,
            Ok(applied) => {
                self.check_key(place, envelope, applied)?;
                if let Some(first) = applied.events.first() {
                    let made = hash(&applied.events.as_slice());
                    if self.events.insert(first.revision, made).is_some() {
                        return Err(format!("revision {} was made twice", first.revision));
                    }
                }
            }
        }
        let usage = usage(state)?;
        self.limits.check(state, usage)?;
        owners(state)?;
        let events = result.as_ref().map_or(&[][..], |applied| &applied.events);
        audit(state, events, &mut self.audit)
    }

    /// Checks that a command with a key takes effect once.
    fn check_key(
        &mut self,
        place: CommandPosition,
        envelope: &Envelope,
        applied: &Applied,
    ) -> Result<(), String> {
        let Some(key) = &envelope.key else {
            return Ok(());
        };
        let name = (envelope.principal.name.clone(), key.clone());
        if let Some(first) = self.keyed.get(&name) {
            self.repeats += 1;
            let is_same = first.revision == applied.revision && first.outcome == applied.outcome;
            if !is_same {
                return Err(format!(
                    "{key} took effect twice: {} {:?} at {}, and at {place:?} {} {:?}",
                    first.revision, first.outcome, first.at, applied.revision, applied.outcome
                ));
            }
            return Ok(());
        }
        let kept = KeyedCommand {
            revision: applied.revision,
            outcome: applied.outcome.clone(),
            at: envelope.at,
        };
        self.keyed.insert(name, kept);
        Ok(())
    }
}
