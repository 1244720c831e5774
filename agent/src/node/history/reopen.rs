//! Journals that were unreadable at the start and become readable later.

use super::journal::Journal;
use super::preimage_files;
use super::{NodeHistory, RECENT, RestoredHistory};
use lattice_conformance::history::{Event, EventKind, FoldedLine, History, HistoryRecord, Line};
use std::collections::VecDeque;
use std::path::Path;

/// Continuation for a reopened journal. The continuation takes the locks that exclude writers meanwhile.
type Continuation = dyn Fn(&NodeHistory, ReopenedJournal<'_>) + Send + Sync;

pub(super) struct Resume(Box<Continuation>);

impl std::fmt::Debug for Resume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resume")
    }
}

/// Journal that has become readable.
#[derive(Debug)]
pub struct ReopenedJournal<'j> {
    journal: &'j Journal,
    restored: RestoredHistory,
    records: VecDeque<HistoryRecord>,
}

impl ReopenedJournal<'_> {
    /// Returns the state to continue from, and the waiting events, which need new numbers. Waiting entries are
    /// discarded: they were compared with an empty history, and the next read creates them again.
    pub fn take(self, history: &NodeHistory) -> (RestoredHistory, Vec<FoldedLine<EventKind>>) {
        let mut state = history.state();
        state.reset_to(self.journal, self.records);
        state.dropped.clear();
        let waiting = std::mem::take(&mut state.waiting).into_iter();
        let events = waiting.filter_map(|waiting| match waiting.line {
            Line::Event(event) => Some(folded(event)),
            Line::Entry(_) | Line::Checkpoint(_) | Line::Boot { .. } | Line::Other(_) => None,
        });
        (self.restored, events.collect())
    }
}

fn folded(event: Event) -> FoldedLine<EventKind> {
    FoldedLine {
        what: event.event,
        at: event.at,
        first_at: event.first_at.unwrap_or(event.at),
        count: event.count,
        left_out: event.left_out,
    }
}

/// State of each class according to the journal; empty without one.
pub(super) fn restore(
    folder: &Path,
    journal: Option<&Journal>,
    records: &VecDeque<HistoryRecord>,
) -> RestoredHistory {
    let checkpoint = journal.map(|journal| journal.checkpoint.clone());
    let mut preimages = Vec::new();
    let content = folder.join("content");
    let history = History::restore(checkpoint.unwrap_or_default(), |digest| {
        let (bytes, record) = preimage_files::read(&content, digest)?;
        preimages.push((record.class, *digest, bytes));
        Some(record)
    });
    RestoredHistory {
        history,
        preimages,
        newest: records.iter().cloned().collect(),
    }
}

impl NodeHistory {
    /// Registers the continuation for a journal that becomes readable later. Numbers and states then come from the
    /// journal, not from the replacement in memory. Only the first registration counts.
    pub fn set_continuation(
        &self,
        continuation: impl Fn(&Self, ReopenedJournal<'_>) + Send + Sync + 'static,
    ) {
        let _ = self.0.resume.set(Resume(Box::new(continuation)));
    }

    /// Tries again to open the journal. Without a registered continuation, returns `None`.
    pub(super) fn reopen(&self) -> Option<Journal> {
        let resume = self.0.resume.get()?;
        let shared = &self.0;
        let found = Journal::open(&shared.folder, shared.limits.clone(), shared.new_id, RECENT);
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let fault = Some(error.to_string());
                shared.status.send_if_modified(|now| {
                    let is_news = now.fault != fault;
                    now.fault = fault;
                    is_news
                });
                return None;
            }
        };
        let (journal, records) = (found.journal, found.records);
        let reopened = ReopenedJournal {
            restored: restore(&shared.folder, Some(&journal), &records),
            journal: &journal,
            records,
        };
        tracing::info!(last = journal.last(), "history readable again");
        (resume.0)(self, reopened);
        shared.status.send_if_modified(|now| {
            now.damaged = journal.damaged > 0;
            now.damaged
        });
        Some(journal)
    }
}
