//! Rate limit for a flapping BMC: a limited number of its transitions is recorded, and the rest are merged.

use crate::history::BmcEntry;
use lattice_conformance::{Class, ClassMark, ClassRecord, history::Entry};
use std::collections::{BTreeMap, VecDeque};

/// Maximum transitions of one class recorded per hour. A transition leads to unknown, or back to the last known value.
pub(super) const MAX_TRANSITIONS_PER_HOUR: usize = 12;
const HOUR_MS: u64 = 3_600_000;

/// A history entry to be written, with the record that it names.
pub(super) type UnwrittenEntry = (BmcEntry, Option<ClassRecord>);

/// Transitions by class: those written in the last hour, and the last one while it is held back.
#[derive(Debug, Default)]
pub(super) struct RecentTransitions(BTreeMap<Class, ClassTransitions>);

#[derive(Debug, Default)]
struct ClassTransitions {
    /// Mark of the last written entry.
    written: Option<ClassMark>,
    /// Times of written transitions, in Unix milliseconds.
    written_at: VecDeque<u64>,
    /// The last transition, while it is not written.
    held: Option<(Entry, Option<ClassRecord>)>,
    /// Number of entries merged since the last written one.
    left_out: u32,
}

impl RecentTransitions {
    /// Continues from the entries written by an earlier process.
    pub(super) fn resume(&mut self, published: BTreeMap<Class, ClassMark>) {
        for (class, mark) in published {
            self.0.entry(class).or_default().written = Some(mark);
        }
    }

    /// Takes an entry and returns the entries to write now. `is_transition`: the class became unknown or has its last
    /// known value again; the entry reports no other change.
    pub(super) fn take(
        &mut self,
        now: u64,
        (entry, record): (Entry, Option<ClassRecord>),
        is_transition: bool,
    ) -> Vec<UnwrittenEntry> {
        let turning = self.0.entry(entry.class).or_default();
        if is_transition {
            let before = turning.held.replace((entry, record));
            turning.left_out += u32::from(before.is_some());
            return turning.due(now).into_iter().collect();
        }
        // A change is always written, after the transition that precedes it.
        let mut all: Vec<UnwrittenEntry> = turning.take_held().into_iter().collect();
        turning.written = Some(entry.to);
        all.push((turning.write(entry, false), record));
        all
    }

    /// Held transitions that may be written now.
    pub(super) fn due(&mut self, now: u64) -> Vec<UnwrittenEntry> {
        let turnings = self.0.values_mut();
        turnings.filter_map(|turning| turning.due(now)).collect()
    }
}

impl ClassTransitions {
    fn due(&mut self, now: u64) -> Option<UnwrittenEntry> {
        self.held.as_ref()?;
        // Times later than `now` are dropped as well: the clock was set back.
        self.written_at
            .retain(|at| *at <= now && now - at < HOUR_MS);
        if self.written_at.len() >= MAX_TRANSITIONS_PER_HOUR {
            return None;
        }
        let due = self.take_held()?;
        self.written_at.push_back(now);
        Some(due)
    }

    /// Takes the held transition; `None` if there is none, or if it leads to the mark that was written last.
    fn take_held(&mut self) -> Option<UnwrittenEntry> {
        let (entry, record) = self.held.take()?;
        if self.written == Some(entry.to) {
            self.left_out += 1;
            return None;
        }
        self.written = Some(entry.to);
        Some((self.write(entry, true), record))
    }

    fn write(&mut self, entry: Entry, is_turn: bool) -> BmcEntry {
        BmcEntry {
            entry,
            is_transition: is_turn,
            left_out: std::mem::take(&mut self.left_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_conformance::{Digest, history::Cause};

    const A: ClassMark = mark(1);
    const DOWN: ClassMark = ClassMark::Incomplete;

    const fn mark(byte: u8) -> ClassMark {
        ClassMark::Complete {
            schema: 1,
            digest: Digest([byte; 32]),
        }
    }

    fn entry(at: u64, from: ClassMark, to: ClassMark) -> (Entry, Option<ClassRecord>) {
        let entry = Entry {
            seq: at,
            at,
            boot_id: String::new(),
            cause: Cause::Periodic,
            class: Class::Bmc,
            revision: at,
            from: Some(from),
            to,
            changes: Vec::new(),
            more: 0,
        };
        (entry, None)
    }

    /// Alternates each minute between known and unknown, from minute `from` on, for `minutes` minutes.
    fn flap(turns: &mut RecentTransitions, from: u64, minutes: u64) -> Vec<BmcEntry> {
        let mut written = Vec::new();
        for minute in from..from + minutes {
            let at = minute * 60_000;
            let (before, after) = [(A, DOWN), (DOWN, A)][(minute % 2) as usize];
            written.extend(turns.take(at, entry(at, before, after), true));
            written.extend(turns.due(at + 1_000));
        }
        written.into_iter().map(|(from_bmc, _)| from_bmc).collect()
    }

    #[test]
    fn flapping_bmc_is_rate_limited_and_counted() {
        let mut turns = RecentTransitions::default();
        turns.resume([(Class::Bmc, A)].into());
        let day = flap(&mut turns, 0, 24 * 60);
        assert!(
            day.len() <= 24 * MAX_TRANSITIONS_PER_HOUR + MAX_TRANSITIONS_PER_HOUR,
            "{}",
            day.len()
        );
        assert!(
            day.len() >= 24 * MAX_TRANSITIONS_PER_HOUR - MAX_TRANSITIONS_PER_HOUR,
            "{}",
            day.len()
        );
        let counted: usize = day.iter().map(|one| 1 + one.left_out as usize).sum();
        assert!((24 * 60 - 60..=24 * 60).contains(&counted), "{counted}");
        // Each entry differs from the one written before it.
        assert!(day.windows(2).all(|two| two[0].entry.to != two[1].entry.to));
    }

    #[test]
    fn a_change_is_written_also_in_the_midst_of_it_and_so_is_the_end() {
        let mut turns = RecentTransitions::default();
        turns.resume([(Class::Bmc, A)].into());
        assert_eq!(flap(&mut turns, 0, 13).len(), MAX_TRANSITIONS_PER_HOUR);
        // The class is unknown since minute 12, which is not written; then the firmware changes.
        let at = 13 * 60_000;
        let written = turns.take(at, entry(at, DOWN, mark(2)), false);
        let tos: Vec<ClassMark> = written.iter().map(|(one, _)| one.entry.to).collect();
        assert_eq!(tos, [DOWN, mark(2)]);
        assert_eq!(turns.due(at), []);
        // The class stays unknown: the entry is written once the hourly limit allows it.
        assert_eq!(turns.take(at, entry(at, mark(2), DOWN), true), []);
        assert_eq!(turns.due(59 * 60_000), []);
        let late = turns.due(61 * 60_000);
        assert_eq!(late.len(), 1);
        assert_eq!((late[0].0.entry.to, late[0].0.entry.at), (DOWN, at));
        assert!(late[0].0.is_transition && turns.due(99 * 60_000).is_empty());
    }
}
