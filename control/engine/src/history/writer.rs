//! Transactional writer of one node's history.

use super::{
    entry::{BmcEntry, Cursor, HistoryEntry, Source},
    event::{EventContent, MAX_EVENT_AGE_MS, PositionedEvent},
    line_kind::LineKind,
    tables::{
        CURSORS, ENTRIES, EVENTS, Failure, MARKS, ORDER, TIMES, UNREAD, encode, read_entry,
        read_event,
    },
};
use lattice_conformance::history::Entry;
use redb::{ReadableTable, Table, WriteTransaction};
use std::collections::BTreeMap;

/// Maximum total size in bytes of the lines of one kind kept per node.
const MOST_BYTES: u64 = 32 << 20;
/// A node's lines are counted once per this number of new lines. Until then the limits may be exceeded by as many
/// lines.
const COUNT_INTERVAL_LINES: u64 = 64;

type Rows<'t> = Table<'t, (&'static str, u64), &'static [u8]>;

/// Tables of one node's history, and the number of its next line.
pub(super) struct NodeTables<'t, 'n> {
    txn: &'t WriteTransaction,
    node: &'n str,
    cursor: Cursor,
    /// Number of the next line when the tables were opened.
    first: u64,
    number: u64,
    /// Time of the last change that this writer added, of agent and of BMC; `None` before the first.
    last: [Option<u64>; 2],
    cursors: Table<'t, &'static str, (u64, u64, u64)>,
    entries: Rows<'t>,
    events: Rows<'t>,
    times: Table<'t, (u64, &'static str, u64), ()>,
    order: Table<'t, (&'static str, u64, u64), u8>,
}

impl<'t, 'n> NodeTables<'t, 'n> {
    pub(super) fn open(txn: &'t WriteTransaction, node: &'n str) -> Result<Self, Failure> {
        let cursors = txn.open_table(CURSORS)?;
        let known = cursors.get(node)?.map(|known| known.value());
        let (journal, read, number) = known.unwrap_or((0, 0, 1));
        Ok(Self {
            txn,
            node,
            cursor: Cursor { journal, read },
            first: number,
            number,
            last: [None; 2],
            cursors,
            entries: txn.open_table(ENTRIES)?,
            events: txn.open_table(EVENTS)?,
            times: txn.open_table(TIMES)?,
            order: txn.open_table(ORDER)?,
        })
    }

    /// Position up to which the agent's journal was read.
    pub(super) const fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Adds a change reported by the agent and received at `received_at`.
    pub(super) fn entry(&mut self, entry: &Entry, received_at: u64) -> Result<(), Failure> {
        let one = BmcEntry::from(entry.clone());
        self.change(Source::Agent, &one, received_at)
    }

    /// Adds a change reported by the BMC and received at `received_at`.
    pub(super) fn bmc_entry(
        &mut self,
        reported: &BmcEntry,
        received_at: u64,
    ) -> Result<(), Failure> {
        self.change(Source::Bmc, reported, received_at)
    }

    fn change(&mut self, source: Source, from: &BmcEntry, received_at: u64) -> Result<(), Failure> {
        let last = self.last(source)?;
        // After a clock was set back, a change does not precede earlier changes of the same source.
        let when = from.entry.at.min(received_at).max(last);
        self.last[usize::from(source == Source::Bmc)] = Some(when);
        let number = self.next(when, LineKind::of_entry(source, from.is_transition))?;
        let history_entry = HistoryEntry {
            number,
            when,
            source,
            entry: from.entry.clone(),
            left_out: from.left_out,
        };
        let json = serde_json::to_vec(&history_entry).map_err(encode)?;
        self.entries.insert((self.node, number), json.as_slice())?;
        self.times.insert((when, self.node, number), ())?;
        Ok(())
    }

    fn last(&self, source: Source) -> Result<u64, Failure> {
        match self.last[usize::from(source == Source::Bmc)] {
            Some(last) => Ok(last),
            None => Ok(last_of(&self.entries, self.node, source)?.unwrap_or(0)),
        }
    }

    /// Adds a record of the agent other than a change. The record is placed at its own time, because the kernel log is
    /// reported late. If the host's clock was not set yet, the time is far in the past; such a record is placed at the
    /// time of the agent's previous record.
    pub(super) fn agent_record(
        &mut self,
        at: u64,
        what: EventContent,
        received_at: u64,
    ) -> Result<(), Failure> {
        let mut when = at.min(received_at);
        if when < received_at.saturating_sub(MAX_EVENT_AGE_MS) {
            let event = last_event(&self.events, self.node)?.unwrap_or(0);
            when = when.max(self.last(Source::Agent)?).max(event);
        }
        self.event(when, &what)
    }

    /// Adds an event at its own time. Observations of this control are independent of the times that the agent reports.
    pub(super) fn event(&mut self, when: u64, what: &EventContent) -> Result<(), Failure> {
        let number = self.next(when, LineKind::of_event(what))?;
        let happened = PositionedEvent {
            number,
            when,
            what: what.clone(),
        };
        let json = serde_json::to_vec(&happened).map_err(encode)?;
        self.events.insert((self.node, number), json.as_slice())?;
        Ok(())
    }

    fn next(&mut self, when: u64, kind: LineKind) -> Result<u64, Failure> {
        let number = self.number;
        self.order.insert((self.node, when, number), kind as u8)?;
        if kind == LineKind::Unread {
            // A newer control that opens the database may be able to read the record.
            self.txn.open_table(MARKS)?.insert(UNREAD, 1)?;
        }
        self.number += 1;
        Ok(number)
    }

    /// Deletes the oldest lines beyond the limits, and stores the journal cursor if it changed.
    pub(super) fn close(mut self, cursor: Option<Cursor>) -> Result<(), Failure> {
        for (kind, when, number) in self.surplus_lines()? {
            match kind.is_change() {
                true => {
                    self.entries.remove((self.node, number))?;
                    self.times.remove((when, self.node, number))?;
                }
                false => {
                    self.events.remove((self.node, number))?;
                }
            }
            self.order.remove((self.node, when, number))?;
        }
        let Cursor { journal, read } = cursor.unwrap_or(self.cursor);
        self.cursors
            .insert(self.node, (journal, read, self.number))?;
        Ok(())
    }

    /// The oldest lines of each kind beyond its limits.
    fn surplus_lines(&self) -> Result<Vec<(LineKind, u64, u64)>, Failure> {
        if self.first / COUNT_INTERVAL_LINES == self.number / COUNT_INTERVAL_LINES {
            return Ok(Vec::new());
        }
        let mut kept: BTreeMap<LineKind, (usize, u64)> = BTreeMap::new();
        let mut gone = Vec::new();
        let all = self
            .order
            .range((self.node, 0, 0)..=(self.node, u64::MAX, u64::MAX))?;
        for row in all.rev() {
            let (key, kind) = row?;
            let (_, when, number) = key.value();
            let kind = LineKind::of(kind.value());
            let rows = match kind.is_change() {
                true => &self.entries,
                false => &self.events,
            };
            let line = rows.get((self.node, number))?;
            let bytes = line.map_or(0, |line| line.value().len() as u64);
            let (lines, weight) = kept.entry(kind).or_default();
            *lines += 1;
            *weight += bytes;
            if *lines > kind.max_lines() || *weight > MOST_BYTES {
                gone.push((kind, when, number));
            }
        }
        Ok(gone)
    }
}

/// Time of the newest change of one source, if one is kept.
fn last_of(rows: &Rows<'_>, node: &str, source: Source) -> Result<Option<u64>, Failure> {
    for row in rows.range((node, 0)..(node, u64::MAX))?.rev() {
        let (key, json) = row?;
        let history_entry = read_entry(node, key.value().1, json.value())?;
        if history_entry.source == source {
            return Ok(Some(history_entry.when));
        }
    }
    Ok(None)
}

/// Time of the agent's last record other than changes, if it is kept.
fn last_event(rows: &Rows<'_>, node: &str) -> Result<Option<u64>, Failure> {
    for row in rows.range((node, 0)..(node, u64::MAX))?.rev() {
        let (key, json) = row?;
        let happened = read_event(node, key.value().1, json.value())?;
        if !matches!(happened.what, EventContent::Noted(_) | EventContent::Bmc(_)) {
            return Ok(Some(happened.when));
        }
    }
    Ok(None)
}
