//! History reader: copies the agents' journals into this control's own history, so that this control can answer while a
//! node is down. Every control reads independently: the history is a cache and needs no lease.

use crate::{
    error::AgentError,
    history::{Cursor, History, HistoryError},
    node_records::NodeRecords,
    tasks::activation::Activation,
};
use futures::StreamExt;
use lattice_agent_rpc::{GetHistory, HistoryPage};
use lattice_conformance::{
    ClassMark, Digest,
    history::{HistoryRecord, MAX_CHANGES},
};
use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use lattice_view::View;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use tokio::time::Instant;

/// Longest time between two rounds; a failed read may be repeated then.
const PERIOD: Duration = Duration::from_secs(10);
/// Shortest time between two rounds; a rolling update changes many nodes at a time.
const SPACING: Duration = Duration::from_millis(500);
/// Maximum number of nodes read concurrently.
const AT_A_TIME: usize = 16;
/// Entries requested per page; an agent returns fewer if they are long.
const PAGE: u32 = 512;
/// Pages read from one node before the next node's turn.
const PAGES: usize = 24;
/// Timeout of one page.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for all pages of one node.
const NODE_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest pause between attempts for a node that keeps failing.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Maximum bytes of an entry: agents list at most 32 KiB of changed keys and values.
const MOST_ENTRY_BYTES: usize = 128 << 10;
/// Maximum bytes of an event: its texts have at most 300 characters each.
const MOST_EVENT_BYTES: usize = 16 << 10;
/// Maximum bytes of records kept per node and hour. An agent keeps 4 MiB of them.
const MOST_RECORDS_BYTES: usize = 16 << 20;
/// Pauses before the first sweep of unreferenced records, before the second, and between later ones. A record is
/// deleted when two sweeps have found it unreferenced.
const SWEEP_PAUSES: [Duration; 3] = [
    Duration::from_secs(900),
    Duration::from_secs(3_600),
    Duration::from_secs(6 * 3_600),
];
/// Maximum number of new journals of one node read within an hour. An agent starts a new journal when it has lost the
/// old one.
const MOST_JOURNALS: usize = 6;
const HOUR: Duration = Duration::from_secs(3_600);

/// History reader; see the module.
#[derive(Debug)]
pub struct ReadHistories {
    source: NodeRecords,
    /// Read position of each node, as stored in the database.
    read: BTreeMap<NodeId, Cursor>,
    /// Nodes with an unreadable journal, and when to try again.
    failed: BTreeMap<NodeId, JournalReadFailure>,
    /// Times within the last hour at which each node presented a new journal.
    journals: BTreeMap<NodeId, VecDeque<Instant>>,
    /// Bytes of records kept per node in the last hour.
    budgets: BTreeMap<NodeId, RecordQuota>,
}

/// A journal that could not be read.
#[derive(Debug, Clone, Copy)]
struct JournalReadFailure {
    ask_again_at: Instant,
    pause: Duration,
}

/// Storage that one node has used in the current hour.
#[derive(Debug, Clone, Copy)]
struct RecordQuota {
    since: Instant,
    bytes: usize,
}

impl RecordQuota {
    const fn new(since: Instant) -> Self {
        Self { since, bytes: 0 }
    }

    /// Whether `bytes` more fit into the budget; if so, they are counted.
    fn try_reserve(&mut self, bytes: usize, now: Instant) -> bool {
        if now.duration_since(self.since) >= HOUR {
            *self = Self::new(now);
        }
        if self.bytes + bytes > MOST_RECORDS_BYTES {
            return false;
        }
        self.bytes += bytes;
        true
    }
}

/// Result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HistoryReport {
    /// Nodes queried.
    pub(crate) asked: usize,
    /// Entries received.
    pub(crate) entries: u64,
    /// Nodes with a journal that could not be read, or not be stored here.
    pub(crate) failed: usize,
}

/// Sweeps unreferenced records periodically, in parallel with the readers.
async fn sweeps(history: &History) {
    let [first, second, then] = SWEEP_PAUSES;
    let pauses = [first, second].into_iter().chain(std::iter::repeat(then));
    for pause in pauses {
        tokio::time::sleep(pause).await;
        if let Err(error) = history.sweep().await {
            tracing::warn!(%error, "preimage garbage collection failed; unused records are kept for now");
        }
    }
}

/// Reason why a journal was not read to its end.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("node {node}: journal unreadable: {reason}")]
    Journal { node: NodeId, reason: String },
    #[error(transparent)]
    History(#[from] HistoryError),
}

impl ReadHistories {
    /// New [`ReadHistories`]; it does nothing until it is run.
    pub const fn new(source: NodeRecords) -> Self {
        Self {
            source,
            read: BTreeMap::new(),
            failed: BTreeMap::new(),
            journals: BTreeMap::new(),
            budgets: BTreeMap::new(),
        }
    }

    /// Runs forever.
    pub async fn run(self) {
        let history = self.source.history.clone();
        futures::join!(self.rounds(), sweeps(&history));
    }

    async fn rounds(mut self) {
        let mut activation = Activation::new(&self.source.core, PERIOD, SPACING);
        loop {
            activation.next().await;
            let report = self.reconcile().await;
            if report.entries > 0 || report.failed > 0 {
                tracing::debug!(?report, "histories read");
            }
        }
    }

    /// Reads every journal that has unread entries.
    pub(crate) async fn reconcile(&mut self) -> HistoryReport {
        let view = self.source.core.view();
        let mut behind = Vec::new();
        for (id, node) in view.nodes.iter() {
            let Some(mark) = node.gossip.as_ref().and_then(|seen| seen.history) else {
                continue;
            };
            let gossiped = Cursor {
                journal: mark.journal,
                read: mark.seq,
            };
            let failed = self.failed.get(id);
            let waits = failed.is_some_and(|failed| Instant::now() < failed.ask_again_at);
            if node.liveness != Liveness::Alive || waits {
                continue;
            }
            let is_news = self
                .read
                .get(id)
                .is_none_or(|read| read.journal != gossiped.journal || read.read < gossiped.read);
            if is_news && !self.has_too_many_journals(id) {
                behind.push(id.clone());
            }
        }
        let mut report = HistoryReport {
            asked: behind.len(),
            ..HistoryReport::default()
        };
        let (source, view) = (&self.source, &view);
        let now = Instant::now();
        let budgets = &self.budgets;
        let reads = futures::stream::iter(behind).map(|node| async move {
            let mut budget = budgets.get(&node).copied().unwrap_or(RecordQuota::new(now));
            let read = source.read_within(view, &node, &mut budget).await;
            (node, read, budget)
        });
        let mut spent = Vec::new();
        let mut reads = reads.buffer_unordered(AT_A_TIME);
        while let Some((node, read, budget)) = reads.next().await {
            spent.push((node.clone(), budget));
            match read {
                Ok((cursor, entries)) => {
                    report.entries += entries;
                    self.failed.remove(&node);
                    let before = self.read.get(&node).map(|read| read.journal);
                    if before.is_some_and(|before| before != cursor.journal) {
                        let journals = self.journals.entry(node.clone()).or_default();
                        journals.push_back(Instant::now());
                    }
                    self.read.insert(node, cursor);
                }
                Err(error) => {
                    report.failed += 1;
                    let before = self.failed.get(&node).map(|failed| failed.pause);
                    let pause = before.map_or(PERIOD, |pause| (pause * 2).min(LONGEST_PAUSE));
                    tracing::debug!(%node, %error, ?pause, "node history not read");
                    let ask_again_at = Instant::now() + pause;
                    let failed = JournalReadFailure {
                        ask_again_at,
                        pause,
                    };
                    self.failed.insert(node, failed);
                }
            }
        }
        drop(reads);
        self.budgets.extend(spent);
        self.budgets
            .retain(|_, budget| budget.since.elapsed() < HOUR);
        report
    }
}

impl ReadHistories {
    /// Whether the node has presented too many journals in the last hour. Each new journal is read from its beginning,
    /// with every record it names, so such a node has to wait.
    fn has_too_many_journals(&mut self, node: &NodeId) -> bool {
        let Some(journals) = self.journals.get_mut(node) else {
            return false;
        };
        journals.retain(|at| at.elapsed() < HOUR);
        journals.len() >= MOST_JOURNALS
    }
}

impl NodeRecords {
    /// Reads one node with a timeout, so that a slow node holds its slot only for a limited time.
    async fn read_within(
        &self,
        view: &View,
        node: &NodeId,
        budget: &mut RecordQuota,
    ) -> Result<(Cursor, u64), ReadError> {
        let read = tokio::time::timeout(NODE_TIMEOUT, self.read(view, node, budget)).await;
        read.unwrap_or_else(|_| {
            Err(ReadError::Journal {
                node: node.clone(),
                reason: format!("not read within {NODE_TIMEOUT:?}"),
            })
        })
    }

    /// Reads and stores the unread entries of one node, up to [`PAGES`] pages.
    async fn read(
        &self,
        view: &View,
        node: &NodeId,
        budget: &mut RecordQuota,
    ) -> Result<(Cursor, u64), ReadError> {
        let mut cursor = self.history.cursor(node.to_string()).await?;
        let mut added = 0;
        let gossip = view.node(node).and_then(|entry| entry.gossip.as_ref());
        if let Some(mark) = gossip.and_then(|seen| seen.history)
            && (mark.journal, mark.seq) == (cursor.journal, cursor.read)
        {
            return Ok((cursor, 0));
        }
        for _ in 0..PAGES {
            let page = self.ask(view, node, cursor.read).await?;
            if page.journal != cursor.journal && cursor.read > 0 {
                // A new journal is read from its beginning.
                cursor = Cursor {
                    journal: page.journal,
                    read: 0,
                };
                continue;
            }
            let records: Vec<HistoryRecord> = parse(node, &page)?;
            self.keep_records(view, node, &records, budget).await?;
            cursor = Cursor {
                journal: page.journal,
                read: read_up_to(&page, &records, cursor.read),
            };
            let received_at = self.core.now().0;
            let name = node.to_string();
            added += self
                .history
                .append(name, cursor, records, received_at)
                .await?;
            if cursor.read >= page.last || page.next == 0 {
                break;
            }
        }
        Ok((cursor, added))
    }

    async fn ask(&self, view: &View, node: &NodeId, since: u64) -> Result<HistoryPage, ReadError> {
        let request = GetHistory { since, most: PAGE };
        let page = self
            .core
            .agents
            .fetch(view, node, &request, TIMEOUT)
            .await?;
        page.map_err(|reason| ReadError::Journal {
            node: node.clone(),
            reason,
        })
    }

    /// Keeps the records behind entries, so that a class can be compared with its earlier state. An entry stays without a
    /// record if the record is unavailable or exceeds the budget; later requests then report that the record is not kept.
    async fn keep_records(
        &self,
        view: &View,
        node: &NodeId,
        records: &[HistoryRecord],
        budget: &mut RecordQuota,
    ) -> Result<(), ReadError> {
        for record in records {
            let HistoryRecord::Entry(entry) = record else {
                continue;
            };
            let ClassMark::Complete { digest, .. } = entry.to else {
                continue;
            };
            if self.history.has_record(digest).await? {
                continue;
            }
            let Some(bytes) = self.fetch_record(view, node, digest).await? else {
                continue;
            };
            if budget.try_reserve(bytes.len(), Instant::now()) {
                self.history.keep_record(digest, bytes).await?;
            } else {
                tracing::warn!(
                    %node, %digest, bytes = bytes.len(),
                    "history record of the node dropped: more than {MOST_RECORDS_BYTES} bytes of \
                     records within an hour"
                );
            }
        }
        Ok(())
    }

    /// Fetches one record. An error means that the node does not answer. `None`: the node has lost the record, or returns a
    /// wrong or overlong one.
    async fn fetch_record(
        &self,
        view: &View,
        node: &NodeId,
        digest: Digest,
    ) -> Result<Option<Vec<u8>>, AgentError> {
        if let Some(record) = self.preimages.record(&digest) {
            return Ok(Some(record.encode()));
        }
        let answer = match self.core.agents.preimage(view, node, digest, TIMEOUT).await {
            Err(error) if error.is_too_long() => {
                tracing::warn!(%node, %digest, %error, "history record of the node not stored");
                None
            }
            answer => answer?,
        };
        let verified = answer.filter(|bytes| lattice_conformance::verify(&digest, bytes).is_ok());
        Ok(verified.map(|bytes| bytes.to_vec()))
    }
}

/// Position up to which a page has been read. A `next` beyond the last line must not skip the rest forever, and an
/// earlier `next` must not cause an endless repeat.
fn read_up_to(page: &HistoryPage, records: &[HistoryRecord], read: u64) -> u64 {
    let last_seq = records.last().and_then(HistoryRecord::seq).unwrap_or(0);
    page.next.min(page.last).max(last_seq).max(read)
}

fn parse(node: &NodeId, page: &HistoryPage) -> Result<Vec<HistoryRecord>, ReadError> {
    let unreadable = |reason: String| ReadError::Journal {
        node: node.clone(),
        reason,
    };
    let records: Vec<HistoryRecord> =
        serde_json::from_slice(&page.entries).map_err(|error| unreadable(error.to_string()))?;
    if records.len() > PAGE as usize {
        return Err(unreadable(format!(
            "{} entries received where {PAGE} were requested",
            records.len()
        )));
    }
    let mut before = None;
    for record in &records {
        let Some(seq) = record.seq() else {
            return Err(unreadable("an entry has no sequence number".to_owned()));
        };
        let weight = serde_json::to_vec(record).map_or(usize::MAX, |json| json.len());
        let is_long = match record {
            HistoryRecord::Entry(entry) => {
                entry.changes.len() > MAX_CHANGES || weight > MOST_ENTRY_BYTES
            }
            HistoryRecord::Event(_) | HistoryRecord::Other(_) => weight > MOST_EVENT_BYTES,
        };
        if is_long {
            let reason = format!("entry {seq} exceeds the size limit of an entry");
            return Err(unreadable(reason));
        }
        if before >= Some(seq) {
            return Err(unreadable("its entries are out of order".to_owned()));
        }
        before = Some(seq);
    }
    Ok(records)
}

#[cfg(test)]
mod tests;
