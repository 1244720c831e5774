//! Class changes and agents' records in the database: appended as they are received, and read by node, by source, or
//! for the whole cluster.

use super::{
    entry::{BmcEntry, ClusterEntry, Cursor, HistoryEntry, Source},
    event::EventContent,
    store::HistoryStore,
    tables::{CURSORS, ENTRIES, HistoryError, TIMES, read_entry},
    writer::NodeTables,
};
use lattice_conformance::{Class, history::HistoryRecord};
use std::{collections::BTreeMap, ops::Bound};

/// Filter of a node's entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct HistoryFilter {
    pub(crate) class: Option<Class>,
    /// Only entries from this source.
    pub(crate) source: Option<Source>,
    /// Earliest time, in Unix milliseconds.
    pub(crate) since: Option<u64>,
    /// Latest time, in Unix milliseconds.
    pub(crate) until: Option<u64>,
    /// Only entries with a lower number.
    pub(crate) before: Option<u64>,
}

impl HistoryStore {
    /// Journal of `node` that was read, and the position up to which it was read.
    pub(crate) fn cursor(&self, node: &str) -> Result<Cursor, HistoryError> {
        self.read(|txn| {
            let cursors = txn.open_table(CURSORS)?;
            let found = cursors.get(node)?.map(|cursor| cursor.value());
            Ok(
                found.map_or_else(Cursor::default, |(journal, read, _)| Cursor {
                    journal,
                    read,
                }),
            )
        })
    }

    /// Number of a node's next history line; `None` if the node has no line yet.
    pub(super) fn next_number(&self, node: &str) -> Result<Option<u64>, HistoryError> {
        self.read(|txn| {
            let row = txn.open_table(CURSORS)?.get(node)?;
            Ok(row.map(|row| row.value().2))
        })
    }

    /// Adds records from the agent's journal that `cursor` names, received at `received_at`, and stores the new cursor.
    /// Records that are stored already are skipped. Returns the number of new records.
    pub(crate) fn append<R: Clone + Into<HistoryRecord>>(
        &self,
        node: &str,
        cursor: Cursor,
        records: &[R],
        received_at: u64,
    ) -> Result<u64, HistoryError> {
        self.write(|txn| {
            let mut book = NodeTables::open(txn, node)?;
            let known = book.cursor();
            let mut added = 0;
            for record in records {
                let record: HistoryRecord = record.clone().into();
                let is_news = known.journal != cursor.journal || record.seq() > Some(known.read);
                added += u64::from(is_news);
                let at = record.at();
                match record {
                    _ if !is_news => {}
                    HistoryRecord::Entry(entry) => book.entry(&entry, received_at)?,
                    HistoryRecord::Event(event) => {
                        book.agent_record(at, EventContent::Event(event), received_at)?
                    }
                    HistoryRecord::Other(value) => {
                        book.agent_record(at, EventContent::Other(value), received_at)?
                    }
                }
            }
            book.close(Some(cursor))?;
            Ok(added)
        })
    }

    /// Adds changes read from a node's BMC at `received_at`. Agent and BMC share one sequence of numbers.
    pub(crate) fn append_bmc<T: Clone + Into<BmcEntry>>(
        &self,
        node: &str,
        bmc_entries: &[T],
        received_at: u64,
    ) -> Result<(), HistoryError> {
        self.write(|txn| {
            let mut book = NodeTables::open(txn, node)?;
            for entry in bmc_entries {
                book.bmc_entry(&entry.clone().into(), received_at)?;
            }
            book.close(None)
        })
    }

    /// Entries of a node that match `wanted`, last received first, at most `most`.
    pub(crate) fn of_node(
        &self,
        node: &str,
        wanted: &HistoryFilter,
        most: usize,
    ) -> Result<Vec<HistoryEntry>, HistoryError> {
        self.read(|txn| {
            let table = txn.open_table(ENTRIES)?;
            let end = wanted.before.unwrap_or(u64::MAX);
            let mut found = Vec::new();
            for row in table.range((node, 0)..(node, end))?.rev() {
                let (key, json) = row?;
                let history_entry = read_entry(key.value().0, key.value().1, json.value())?;
                // The loop must not stop at the time limit, because entries of one source may arrive late.
                if wanted
                    .class
                    .is_none_or(|class| history_entry.entry.class == class)
                    && wanted
                        .source
                        .is_none_or(|source| history_entry.source == source)
                    && wanted.since.is_none_or(|since| history_entry.when >= since)
                    && wanted.until.is_none_or(|until| history_entry.when <= until)
                {
                    found.push(history_entry);
                }
                if found.len() >= most {
                    break;
                }
            }
            Ok(found)
        })
    }

    /// Last received entry of a node for each class and source.
    pub(super) fn last_of_each(
        &self,
        node: &str,
    ) -> Result<BTreeMap<(Class, Source), HistoryEntry>, HistoryError> {
        self.read(|txn| {
            let table = txn.open_table(ENTRIES)?;
            let mut last = BTreeMap::new();
            for row in table.range((node, 0)..(node, u64::MAX))?.rev() {
                let (key, json) = row?;
                let history_entry = read_entry(key.value().0, key.value().1, json.value())?;
                last.entry((history_entry.entry.class, history_entry.source))
                    .or_insert(history_entry);
            }
            Ok(last)
        })
    }

    /// Changes of all nodes from `since` on, newest first, only those before `before` if given, at most `most`.
    pub(crate) fn changes(
        &self,
        since: u64,
        before: Option<(u64, &str, u64)>,
        most: usize,
    ) -> Result<Vec<ClusterEntry>, HistoryError> {
        self.read(|txn| {
            let (times, table) = (txn.open_table(TIMES)?, txn.open_table(ENTRIES)?);
            let start = Bound::Included((since, "", 0));
            let end = match before {
                // The database treats a range that ends before its start as an error.
                Some(before) if before <= (since, "", 0) => return Ok(Vec::new()),
                Some(before) => Bound::Excluded(before),
                None => Bound::Unbounded,
            };
            let mut found = Vec::new();
            for row in times.range::<(u64, &str, u64)>((start, end))?.rev() {
                if found.len() >= most {
                    break;
                }
                let (key, ()) = row.map(|(key, unit)| (key, unit.value()))?;
                let (_, node, number) = key.value();
                let Some(json) = table.get((node, number))? else {
                    continue;
                };
                found.push(ClusterEntry {
                    node: node.to_owned(),
                    entry: read_entry(node, number, json.value())?,
                });
            }
            Ok(found)
        })
    }

    /// Simulates a failing database by deleting the table of entries.
    #[cfg(test)]
    pub(crate) fn lose_entries(&self) -> Result<(), HistoryError> {
        self.write(|txn| Ok(txn.delete_table(ENTRIES).map(|_| ())?))
    }

    /// Number of entries of all nodes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> Result<u64, HistoryError> {
        use redb::ReadableTableMetadata as _;
        self.read(|txn| Ok(txn.open_table(TIMES)?.len()?))
    }
}
