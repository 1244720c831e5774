//! Fetches of missing documents and records from the nodes that name them. Concurrency is limited. A failed fetch is
//! repeated after a pause that doubles each time, or as soon as the nodes that name the item or their liveness change.

use crate::{node_records::NodeRecords, observed_state, preimages::Preimages};
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use lattice_conformance::{Class, ClassRecord, Digest, NodeDocument};
use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use lattice_view::{NodeEntry, View};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Maximum number of concurrent fetches.
const AT_A_TIME: usize = 32;
/// Pause before a failed fetch is repeated; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Document of a node, with its digest.
type NodeWithDocument = (NodeId, (Digest, Arc<NodeDocument>));

/// Item to fetch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum FetchRequest {
    Document(NodeId, Digest),
    Record(Digest),
}

/// Result of a fetch.
enum FetchResult {
    Document {
        found: NodeWithDocument,
        /// The document came from the history and need not be stored again.
        was_kept: bool,
    },
    Record,
    Nothing,
}

/// State of an item after a fetch has ended, successfully or not, while the item is wanted.
#[derive(Debug)]
struct FailedItem {
    again_at: Instant,
    pause: Duration,
    /// Hash of the nodes that named the item and of their liveness. A change makes a new fetch worthwhile.
    named_by: u64,
}

/// Fetches of documents and records; see the module.
pub(super) struct Fetches {
    records: NodeRecords,
    under_way: FuturesUnordered<BoxFuture<'static, (FetchRequest, FetchResult)>>,
    /// Items under way or queued, with the hash of the nodes that name them.
    asked_for: BTreeMap<FetchRequest, u64>,
    /// Items not fetched before.
    queue: VecDeque<FetchRequest>,
    /// Items to fetch again; they wait behind new items.
    retries: VecDeque<FetchRequest>,
    failed: BTreeMap<FetchRequest, FailedItem>,
    /// Documents that have arrived but are not yet attached to their nodes, each with whether it came from the history.
    documents: Vec<(NodeWithDocument, bool)>,
    /// Records that arrived since the last call of [`Self::take_records`].
    arrived_records: usize,
    /// Totals of documents and records, for reports.
    counted: (usize, usize),
}

impl fmt::Debug for Fetches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (under_way, queue) = (self.under_way.len(), self.queue.len() + self.retries.len());
        let in_vain = self.failed.len();
        write!(
            f,
            "Fetches({under_way} under way, {queue} wait, {in_vain} in vain)"
        )
    }
}

impl Fetches {
    pub(super) fn new(records: NodeRecords) -> Self {
        Self {
            records,
            under_way: FuturesUnordered::new(),
            asked_for: BTreeMap::new(),
            queue: VecDeque::new(),
            retries: VecDeque::new(),
            failed: BTreeMap::new(),
            documents: Vec::new(),
            arrived_records: 0,
            counted: (0, 0),
        }
    }

    /// Resolves when a fetch ends; never while none is under way. Cancel safe.
    pub(super) async fn next(&mut self) {
        let Some((wanted, came)) = self.under_way.next().await else {
            return std::future::pending().await;
        };
        let named_by = self.asked_for.remove(&wanted).unwrap_or_default();
        match came {
            FetchResult::Document { found, was_kept } => self.documents.push((found, was_kept)),
            FetchResult::Record => self.arrived_records += 1,
            FetchResult::Nothing => {}
        }
        // A successful item is listed as well, because the cache may have dropped it. The next call to `ask` removes
        // every item that is no longer missing.
        let before = self.failed.get(&wanted);
        let pause = before.map_or(FIRST_PAUSE, |before| {
            before.pause.saturating_mul(2).min(LONGEST_PAUSE)
        });
        let vain = FailedItem {
            again_at: Instant::now() + pause,
            pause,
            named_by,
        };
        self.failed.insert(wanted, vain);
        self.begin();
    }

    /// Whether anything arrived that was not taken yet.
    pub(super) fn has_arrivals(&self) -> bool {
        self.arrived_records > 0 || !self.documents.is_empty()
    }

    /// Whether any item that is queued or being fetched has not failed before.
    pub(super) fn has_new_requests(&self) -> bool {
        let mut asked_for = self.asked_for.keys();
        asked_for.any(|wanted| !self.failed.contains_key(wanted))
    }

    /// Number of records that arrived since the last call. The records are in the cache.
    pub(super) fn take_records(&mut self) -> usize {
        self.counted.1 += self.arrived_records;
        std::mem::take(&mut self.arrived_records)
    }

    /// Attaches arrived documents to their nodes and stores them, so that they are available when the nodes are down
    /// and this control restarts.
    pub(super) async fn put_documents(&mut self) {
        let came = std::mem::take(&mut self.documents);
        if came.is_empty() {
            return;
        }
        self.counted.0 += came.len();
        let new = came.iter().filter(|(_, was_kept)| !was_kept);
        let new = new.filter_map(|((node, (_, document)), _)| {
            let (digest, bytes) = document.encode().ok()?;
            Some((node.to_string(), digest, bytes))
        });
        let new: Vec<_> = new.collect();
        let found = came.into_iter().map(|(found, _)| found).collect();
        observed_state::documents(&self.records.core, found);
        if new.is_empty() {
            return;
        }
        if let Err(error) = self.records.history.keep_documents(new).await {
            tracing::warn!(%error, "node documents not stored");
        }
    }

    /// Starts fetches for these digests and for published documents that are not available, unless the fetch is under
    /// way or has just failed.
    pub(super) fn ask(&mut self, view: &View, missing: &BTreeSet<Digest>) {
        let wanted = wanted(view, missing);
        self.failed.retain(|of, _| wanted.contains_key(of));
        for queue in [&mut self.queue, &mut self.retries] {
            queue.retain(|of| {
                let is_wanted = wanted.contains_key(of);
                if !is_wanted {
                    self.asked_for.remove(of);
                }
                is_wanted
            });
        }
        let now = Instant::now();
        for (of, named_by) in wanted {
            if self.asked_for.contains_key(&of) {
                continue;
            }
            match self.failed.get(&of) {
                None => self.queue.push_back(of.clone()),
                Some(vain) if vain.again_at <= now || vain.named_by != named_by => {
                    self.retries.push_back(of.clone());
                }
                Some(_) => continue,
            }
            self.asked_for.insert(of, named_by);
        }
        self.begin();
    }

    fn begin(&mut self) {
        while self.under_way.len() < AT_A_TIME {
            let next = self.queue.pop_front();
            let Some(wanted) = next.or_else(|| self.retries.pop_front()) else {
                return;
            };
            let records = self.records.clone();
            self.under_way.push(Box::pin(async move {
                let view = records.core.view();
                let came = match &wanted {
                    FetchRequest::Document(node, digest) => {
                        records.document(&view, node, *digest).await
                    }
                    FetchRequest::Record(digest) => match records.record(&view, *digest).await {
                        true => FetchResult::Record,
                        false => FetchResult::Nothing,
                    },
                };
                (wanted, came)
            }));
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Fetches {
    /// Allows every failed fetch to be repeated at once.
    pub(super) fn forget(&mut self) {
        self.failed.clear();
        self.counted = (0, 0);
    }

    pub(super) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Documents and records that arrived since [`Fetches::forget`].
    pub(super) const fn totals(&self) -> (usize, usize) {
        self.counted
    }

    /// Number of missing items that a gossiping node names and that may therefore still arrive.
    pub(super) fn still_missing(&self, view: &View, missing: &BTreeSet<Digest>) -> usize {
        let named_by_nobody = DefaultHasher::new().finish();
        let wanted = wanted(view, missing).into_iter();
        wanted.filter(|(_, by)| *by != named_by_nobody).count()
    }
}

/// Items that are not available, with a hash of the nodes that name them.
fn wanted(view: &View, missing: &BTreeSet<Digest>) -> BTreeMap<FetchRequest, u64> {
    let mut records: BTreeMap<Digest, DefaultHasher> = missing
        .iter()
        .map(|digest| (*digest, DefaultHasher::new()))
        .collect();
    let mut wanted = BTreeMap::new();
    for node in gossiping(view) {
        let names = |hasher: &mut DefaultHasher| {
            (&node.id, node.liveness == Liveness::Alive).hash(hasher);
        };
        if let Some(digest) = node.gossip.as_ref().and_then(|seen| seen.document)
            && node.document_digest != Some(digest)
        {
            let mut hasher = DefaultHasher::new();
            names(&mut hasher);
            wanted.insert(
                FetchRequest::Document(node.id.clone(), digest),
                hasher.finish(),
            );
        }
        if records.is_empty() {
            continue;
        }
        let said = Class::ALL
            .into_iter()
            .flat_map(|class| node.conformance().digests(class));
        for digest in said {
            if let Some(hasher) = records.get_mut(&digest) {
                names(hasher);
            }
        }
    }
    let records = records.into_iter();
    wanted.extend(records.map(|(digest, by)| (FetchRequest::Record(digest), by.finish())));
    wanted
}

fn gossiping(view: &View) -> impl Iterator<Item = &NodeEntry> {
    let seen = view.nodes.values().filter(|node| node.gossip.is_some());
    seen.map(Arc::as_ref)
}

/// First node that names the digest, and the class of the digest.
fn naming<'v>(
    mut nodes: impl Iterator<Item = &'v NodeEntry>,
    digest: Digest,
) -> Option<(Class, &'v NodeEntry)> {
    nodes.find_map(|node| {
        let names = |class: &Class| {
            node.conformance()
                .digests(*class)
                .any(|name| name == digest)
        };
        Class::ALL
            .into_iter()
            .find(names)
            .map(|class| (class, node))
    })
}

impl NodeRecords {
    /// Document that a node publishes, from the history or from the node.
    async fn document(&self, view: &View, node: &NodeId, digest: Digest) -> FetchResult {
        let found = |document| (node.clone(), (digest, document));
        let name = node.to_string();
        let kept = self.history.documents(vec![name.clone()]).await;
        let kept = kept.ok().and_then(|mut kept| kept.remove(&name));
        if let Some((_, document)) = kept.filter(|(is, _)| *is == digest) {
            return FetchResult::Document {
                found: found(Arc::new(document)),
                was_kept: true,
            };
        }
        let (preimages, agents) = (&self.preimages, &self.core.agents);
        let fetched = preimages.fetch_document(agents, view, digest, node);
        match fetched.await {
            // A document is valid only for the node it names, whichever node gossips its digest.
            Ok(document) if document.node == node.as_str() => FetchResult::Document {
                found: found(document),
                was_kept: false,
            },
            _ => FetchResult::Nothing,
        }
    }

    /// Puts a record into the cache. Returns whether the record is available.
    async fn record(&self, view: &View, digest: Digest) -> bool {
        let gossiping_node = naming(gossiping(view), digest);
        let Some((class, node)) = gossiping_node.or_else(|| naming(view.as_known_all(), digest))
        else {
            return false;
        };
        let preimages = &self.preimages;
        if let Some(record) = earlier_of(preimages, node, class, digest) {
            preimages.put_record(&node.id, digest, record);
            return true;
        }
        // The history also serves nodes that have been down since before this control started.
        if let Ok(Some(record)) = self.history.record(digest).await {
            preimages.put_record(&node.id, digest, Arc::new(record));
            return true;
        }
        // A node that does not gossip cannot be queried.
        let Some((_, node)) = gossiping_node else {
            return false;
        };
        let fetched = preimages.fetch_record(&self.core.agents, view, digest, node);
        fetched.await.is_ok()
    }
}

/// Record of a node's class under the previous schema, derived from its current record if that is available and this
/// build supports the conversion. The result must match the digest that the node publishes.
fn earlier_of(
    preimages: &Preimages,
    node: &NodeEntry,
    class: Class,
    digest: Digest,
) -> Option<Arc<ClassRecord>> {
    let earlier = node.earlier().get(&class)?;
    let now = preimages.record(&node.marks().get(&class)?.digest()?)?;
    let converted = now.in_schema(earlier.schema).ok()?;
    (converted.state().digest() == Some(digest)).then(|| Arc::new(converted))
}
