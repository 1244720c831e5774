//! History pages for requests over the mesh.

use super::journal::{read_bounded, record};
use super::line::scan;
use super::{NodeHistory, State};
use bytes::Bytes;
use lattice_agent_rpc::{GetHistory, HistoryPage};
use lattice_conformance::history::HistoryRecord;
use std::path::PathBuf;

/// Maximum number of entries of a page.
const MAX_ENTRIES: usize = 1000;
/// Maximum number of bytes of a page; one entry always fits.
const MAX_PAGE_BYTES: usize = 256 << 10;
/// Maximum number of bytes of unwritten entries in a page.
const MAX_UNWRITTEN_BYTES: usize = 64 << 10;

/// Source of the next entries.
enum Source {
    Memory(Vec<HistoryRecord>),
    Disk(PathBuf),
}

impl NodeHistory {
    /// Entries and events on disk after `since`, and those that wait for the disk.
    ///
    /// # Errors
    /// The disk could not be read, or does not answer.
    pub async fn page(&self, request: GetHistory) -> Result<HistoryPage, String> {
        let GetHistory { since, most } = request;
        let most = usize::try_from(most)
            .unwrap_or(MAX_ENTRIES)
            .clamp(1, MAX_ENTRIES);
        // Read under one lock: an entry that is not on disk yet is in the queue.
        let (source, unwritten, first_kept, journal, last) = {
            let state = self.state();
            let (source, unwritten) = (state.source(since), state.unwritten());
            (
                source,
                unwritten,
                state.first_kept,
                state.journal,
                state.last,
            )
        };
        let is_there = matches!(source, Source::Disk(_));
        let found = match source {
            Source::Memory(entries) => entries,
            Source::Disk(path) => self.read(path).await?,
        };
        let mut after = found
            .into_iter()
            .filter(|record| number(record) > since && number(record) <= last);
        let (entries, next) = json_list(after.by_ref().take(most), MAX_PAGE_BYTES)?;
        if is_there && next.is_none() {
            return Err("a history segment was modified on disk".to_owned());
        }
        Ok(HistoryPage {
            journal,
            entries,
            first_kept,
            next: next.unwrap_or(last.max(since)),
            last,
            unwritten: json_list(unwritten.into_iter(), MAX_UNWRITTEN_BYTES)?.0,
        })
    }

    async fn read(&self, path: PathBuf) -> Result<Vec<HistoryRecord>, String> {
        let turn = self.turn().await;
        let turn = turn.ok_or("the disk does not respond; repeat the request later")?;
        let limits = self.0.limits.clone();
        let read = tokio::task::spawn_blocking(move || {
            let bytes = read_bounded(&path, &limits);
            drop(turn);
            bytes.map(|bytes| scan(&bytes))
        });
        let scan = read.await.map_err(|error| error.to_string())?;
        let scan = scan.map_err(|error| format!("the history cannot be read: {error}"))?;
        let records = scan.lines.into_iter().map(|(line, _)| line);
        Ok(records.filter_map(record).collect())
    }
}

/// Record number; records of the journal have one.
fn number(record: &HistoryRecord) -> u64 {
    record.seq().unwrap_or_default()
}

impl State {
    /// Source of the records after `since`. A page never spans two segments: the next request reads the next one.
    fn source(&self, since: u64) -> Source {
        let oldest = self.recent.front().map(number);
        let is_recent = oldest.is_none_or(|oldest| oldest <= since.saturating_add(1));
        let reaches = |span: Option<(u64, u64)>| span.is_some_and(|(_, last)| last > since);
        let segment = self.segments.iter().find(|segment| reaches(segment.span));
        match segment {
            Some(segment) if !is_recent => Source::Disk(segment.path.clone()),
            _ => Source::Memory(self.recent.iter().cloned().collect()),
        }
    }

    fn unwritten(&self) -> Vec<HistoryRecord> {
        let waiting = self.waiting.iter();
        let waiting = waiting.filter_map(|waiting| record(waiting.line.clone()));
        waiting.collect()
    }
}

/// JSON list of as many records as fit, at least one, and the number of the last.
fn json_list(
    records: impl Iterator<Item = HistoryRecord>,
    most_bytes: usize,
) -> Result<(Bytes, Option<u64>), String> {
    let mut json = b"[".to_vec();
    let mut last = None;
    for record in records {
        let one = serde_json::to_vec(&record).map_err(|error| error.to_string())?;
        if last.is_some() {
            if json.len() + one.len() > most_bytes {
                break;
            }
            json.push(b',');
        }
        json.extend(one);
        last = Some(number(&record));
    }
    json.push(b']');
    Ok((json.into(), last))
}
