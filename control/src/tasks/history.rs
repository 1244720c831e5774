//! Reads the agents' journals into this control's own history, so that it answers while a node is
//! down. Every control reads for itself: it is a cache, and needs no lease.

use crate::{
    core::Core,
    error::AgentError,
    history::{Cursor, HistoryError},
    tasks::activation::Activation,
    view::View,
};
use futures::StreamExt;
use lattice_hwprobe::{
    ClassMark, Digest,
    history::{MOST_CHANGES, Record},
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    NodeId,
    wire::{GetHistory, HistoryPage},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Looks at least this often: what could not be read is asked for again.
const PERIOD: Duration = Duration::from_secs(10);
/// A rolling update changes many nodes at a time.
const SPACING: Duration = Duration::from_millis(500);
/// Nodes read at a time.
const AT_A_TIME: usize = 16;
/// Entries asked for at a time; an agent gives fewer where they are long.
const PAGE: u32 = 512;
/// Pages read of one node before the next one's turn.
const PAGES: usize = 24;
/// Longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for all of one node.
const NODE_TIMEOUT: Duration = Duration::from_secs(20);
/// A node that fails again and again is asked this seldom.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Most bytes of an entry: agents list 32 KiB of changed keys and values at most.
const MOST_ENTRY_BYTES: usize = 128 << 10;
/// Most bytes of an event: its texts have 300 characters each at most.
const MOST_EVENT_BYTES: usize = 16 << 10;
/// Most bytes of records of one node that are kept within an hour. Its agent keeps 4 MiB of them.
const MOST_RECORDS_BYTES: usize = 16 << 20;
/// Records that no line names any more are looked for so long after the start, then after so long, and
/// at last so often. What goes was found unnamed twice.
const SWEEPS: [Duration; 3] = [
    Duration::from_secs(900),
    Duration::from_secs(3_600),
    Duration::from_secs(6 * 3_600),
];
/// New journals of one node that are read within an hour: one begins where an agent lost its own.
const MOST_JOURNALS: usize = 6;
const HOUR: Duration = Duration::from_secs(3_600);

/// See the module.
#[derive(Debug)]
pub(crate) struct ReadHistories {
    core: Arc<Core>,
    /// What was read of each node, as the database has it.
    read: BTreeMap<NodeId, Cursor>,
    /// Nodes whose journal could not be read, and when they are asked again.
    failed: BTreeMap<NodeId, Failed>,
    /// When nodes came with another journal than before, in the last hour.
    journals: BTreeMap<NodeId, VecDeque<Instant>>,
    /// Bytes of the records that were kept of each node in the last hour.
    budgets: BTreeMap<NodeId, Budget>,
}

/// A journal that could not be read.
#[derive(Debug, Clone, Copy)]
struct Failed {
    ask_again_at: Instant,
    pause: Duration,
}

/// What one node made us keep.
#[derive(Debug, Clone, Copy)]
struct Budget {
    since: Instant,
    bytes: usize,
}

impl Budget {
    const fn new(since: Instant) -> Self {
        Self { since, bytes: 0 }
    }

    /// Whether so many bytes more are taken.
    fn takes(&mut self, bytes: usize, now: Instant) -> bool {
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

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HistoryReport {
    /// Nodes that were asked.
    pub(crate) asked: usize,
    /// Entries that came.
    pub(crate) entries: u64,
    /// Nodes whose journal could not be read, or not written here.
    pub(crate) failed: usize,
}

/// Nobody's history waits for it.
async fn sweeps(core: &Core) {
    let [first, second, then] = SWEEPS;
    let pauses = [first, second].into_iter().chain(std::iter::repeat(then));
    for pause in pauses {
        tokio::time::sleep(pause).await;
        if let Err(error) = core.history.sweep().await {
            tracing::warn!(%error, "records that nothing names are kept for now");
        }
    }
}

/// Why a node's journal was not read to its end.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("node {node}: its journal cannot be read: {reason}")]
    Journal { node: NodeId, reason: String },
    #[error(transparent)]
    History(#[from] HistoryError),
}

impl ReadHistories {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            read: BTreeMap::new(),
            failed: BTreeMap::new(),
            journals: BTreeMap::new(),
            budgets: BTreeMap::new(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(self) {
        let core = Arc::clone(&self.core);
        futures::join!(self.rounds(), sweeps(&core));
    }

    async fn rounds(mut self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING);
        loop {
            activation.next().await;
            let report = self.reconcile().await;
            if report.entries > 0 || report.failed > 0 {
                tracing::debug!(?report, "histories read");
            }
        }
    }

    /// Reads every journal that has more than was read.
    pub(crate) async fn reconcile(&mut self) -> HistoryReport {
        let view = self.core.view();
        let mut behind = Vec::new();
        for (id, node) in view.nodes.iter() {
            let Some(mark) = node.seen.as_ref().and_then(|seen| seen.history) else {
                continue;
            };
            let told = Cursor {
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
                .is_none_or(|read| read.journal != told.journal || read.read < told.read);
            if is_news && !self.has_too_many_journals(id) {
                behind.push(id.clone());
            }
        }
        let mut report = HistoryReport {
            asked: behind.len(),
            ..HistoryReport::default()
        };
        let (core, view) = (&self.core, &view);
        let now = Instant::now();
        let budgets = &self.budgets;
        let reads = futures::stream::iter(behind).map(|node| async move {
            let mut budget = budgets.get(&node).copied().unwrap_or(Budget::new(now));
            let read = read_within(core, view, &node, &mut budget).await;
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
                    tracing::debug!(%node, %error, ?pause, "history not read");
                    let ask_again_at = Instant::now() + pause;
                    let failed = Failed {
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
    /// Each new journal is read from its beginning, with every record it names: one that has ever new
    /// ones waits.
    fn has_too_many_journals(&mut self, node: &NodeId) -> bool {
        let Some(journals) = self.journals.get_mut(node) else {
            return false;
        };
        journals.retain(|at| at.elapsed() < HOUR);
        journals.len() >= MOST_JOURNALS
    }
}

/// One node that dawdles holds its place for so long and no longer.
async fn read_within(
    core: &Core,
    view: &View,
    node: &NodeId,
    budget: &mut Budget,
) -> Result<(Cursor, u64), ReadError> {
    let read = tokio::time::timeout(NODE_TIMEOUT, read(core, view, node, budget)).await;
    read.unwrap_or_else(|_| {
        Err(ReadError::Journal {
            node: node.clone(),
            reason: format!("it takes more than {NODE_TIMEOUT:?}"),
        })
    })
}

/// Reads what one node has more.
async fn read(
    core: &Core,
    view: &View,
    node: &NodeId,
    budget: &mut Budget,
) -> Result<(Cursor, u64), ReadError> {
    let mut cursor = core.history.cursor(node.to_string()).await?;
    let mut added = 0;
    let told = view.node(node).and_then(|entry| entry.seen.as_ref());
    if let Some(mark) = told.and_then(|seen| seen.history)
        && (mark.journal, mark.seq) == (cursor.journal, cursor.read)
    {
        return Ok((cursor, 0));
    }
    for _ in 0..PAGES {
        let page = ask(core, view, node, cursor.read).await?;
        if page.journal != cursor.journal && cursor.read > 0 {
            // Another journal: from its beginning.
            cursor = Cursor {
                journal: page.journal,
                read: 0,
            };
            continue;
        }
        let told: Vec<Record> = parse(node, &page)?;
        keep_records(core, view, node, &told, budget).await?;
        cursor = Cursor {
            journal: page.journal,
            read: read_up_to(&page, &told, cursor.read),
        };
        let heard_at = core.now().0;
        let name = node.to_string();
        added += core.history.append(name, cursor, told, heard_at).await?;
        if cursor.read >= page.last || page.next == 0 {
            break;
        }
    }
    Ok((cursor, added))
}

/// Up to where a page has its journal read. One that names a number beyond its last line must not
/// have the rest left out for ever, and one that names an earlier one must not be asked for ever.
fn read_up_to(page: &HistoryPage, told: &[Record], read: u64) -> u64 {
    let last_told = told.last().and_then(Record::seq).unwrap_or(0);
    page.next.min(page.last).max(last_told).max(read)
}

async fn ask(
    core: &Core,
    view: &View,
    node: &NodeId,
    since: u64,
) -> Result<HistoryPage, ReadError> {
    let request = GetHistory { since, most: PAGE };
    let page = core.agents.fetch(view, node, &request, TIMEOUT).await?;
    page.map_err(|reason| ReadError::Journal {
        node: node.clone(),
        reason,
    })
}

fn parse(node: &NodeId, page: &HistoryPage) -> Result<Vec<Record>, ReadError> {
    let unreadable = |reason: String| ReadError::Journal {
        node: node.clone(),
        reason,
    };
    let told: Vec<Record> =
        serde_json::from_slice(&page.entries).map_err(|error| unreadable(error.to_string()))?;
    if told.len() > PAGE as usize {
        return Err(unreadable(format!(
            "{} entries came where {PAGE} were asked for",
            told.len()
        )));
    }
    let mut before = None;
    for record in &told {
        let Some(seq) = record.seq() else {
            return Err(unreadable("an entry has no number".to_owned()));
        };
        let weight = serde_json::to_vec(record).map_or(usize::MAX, |json| json.len());
        let is_long = match record {
            Record::Entry(entry) => entry.changes.len() > MOST_CHANGES || weight > MOST_ENTRY_BYTES,
            Record::Event(_) | Record::Other(_) => weight > MOST_EVENT_BYTES,
        };
        if is_long {
            let reason = format!("entry {seq} is longer than an agent makes them");
            return Err(unreadable(reason));
        }
        if before >= Some(seq) {
            return Err(unreadable("its entries are out of order".to_owned()));
        }
        before = Some(seq);
    }
    Ok(told)
}

/// Keeps the records behind entries, so that a class can be compared with what it was. An entry whose
/// record cannot be had, or is one too many, is without it: who asks what the class was then is told
/// that its record is not kept.
async fn keep_records(
    core: &Core,
    view: &View,
    node: &NodeId,
    told: &[Record],
    budget: &mut Budget,
) -> Result<(), ReadError> {
    for record in told {
        let Record::Entry(entry) = record else {
            continue;
        };
        let ClassMark::Complete { digest, .. } = entry.to else {
            continue;
        };
        if core.history.has_record(digest).await? {
            continue;
        }
        let Some(bytes) = fetch_record(core, view, node, digest).await? else {
            continue;
        };
        if budget.takes(bytes.len(), Instant::now()) {
            core.history.keep_record(digest, bytes).await?;
        } else {
            tracing::warn!(
                %node, %digest, bytes = bytes.len(),
                "a record of its history is not kept: more than {MOST_RECORDS_BYTES} bytes of them \
                 came within an hour"
            );
        }
    }
    Ok(())
}

/// A node that does not answer at all is given up; one that lost the record, or has something else or
/// something longer instead, is not.
async fn fetch_record(
    core: &Core,
    view: &View,
    node: &NodeId,
    digest: Digest,
) -> Result<Option<Vec<u8>>, AgentError> {
    if let Some(record) = core.preimages.record(&digest) {
        return Ok(Some(record.encode()));
    }
    let answer = match core.agents.preimage(view, node, digest, TIMEOUT).await {
        Err(error) if error.is_too_long() => {
            tracing::warn!(%node, %digest, %error, "a record of its history is not kept");
            None
        }
        answer => answer?,
    };
    let verified = answer.filter(|bytes| lattice_hwprobe::verify(&digest, bytes).is_ok());
    Ok(verified.map(|bytes| bytes.to_vec()))
}

#[cfg(test)]
mod tests;
