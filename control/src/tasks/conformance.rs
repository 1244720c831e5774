//! Conformance: documents and preimages behind newly gossiped digests are fetched, and every node
//! is judged anew by its baseline, or else by its cohort. What follows for placement follows from
//! here, on gossip: it only ever keeps work away. What drains is `tasks/autodrain`.

use crate::{
    core::Core,
    drift::{self, Judged},
    history::{HistoryError, Then},
    observe,
    preimages::Preimages,
    tasks::activation::Activation,
    view::{NodeEntry, Seen, View},
};
use futures::{StreamExt, stream};
use lattice_hwprobe::{Class, ClassMark, ClassRecord, Digest, NodeDocument};
use lattice_quorum_types::NodeId;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Looks at least this often: what could not be fetched is asked for again.
const PERIOD: Duration = Duration::from_secs(2);
/// A rolling update changes many digests at a time.
const SPACING: Duration = Duration::from_millis(200);
/// Fetches under way at a time.
const AT_A_TIME: usize = 32;
/// Who gossips nothing so long after the start is down, and is what it was.
const GOSSIP_WITHIN: Duration = Duration::from_secs(5);
/// Nodes that are looked up in the history in one round: whoever waits to be judged does not wait for
/// ten thousand of them.
const RECALLED_A_ROUND: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Conformance {
    core: Arc<Core>,
    /// What was compared last, and nothing was missing.
    compared: Option<u64>,
    started_at: Instant,
    /// Nodes that were looked up in the history.
    recalled: BTreeSet<NodeId>,
}

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ConformanceReport {
    /// Nodes whose document came.
    pub(crate) documents: usize,
    /// Records that came.
    pub(crate) records: usize,
    /// Records and documents still missing.
    pub(crate) missing: usize,
    /// Keys in which nodes are not what they are meant to be.
    pub(crate) drifted: usize,
}

impl Conformance {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            compared: None,
            started_at: Instant::now(),
            recalled: BTreeSet::new(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(self) {
        let core = Arc::clone(&self.core);
        futures::join!(self.rounds(), promptly(&core));
    }

    async fn rounds(mut self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING);
        loop {
            activation.next().await;
            let report = self.reconcile().await;
            if report.documents + report.records > 0 {
                tracing::debug!(?report, "conformance");
            }
        }
    }

    /// Fetches what is missing and compares.
    pub(crate) async fn reconcile(&mut self) -> ConformanceReport {
        if self.started_at.elapsed() >= GOSSIP_WITHIN {
            self.recall(RECALLED_A_ROUND).await;
        }
        // Of before the first look: what nodes tell during a round is for the next one.
        let version = self.core.view().conformance_version;
        if self.compared == Some(version) {
            return ConformanceReport::default();
        }
        let (documents, without) = self.fetch_documents().await;
        let mut report = ConformanceReport {
            documents,
            ..ConformanceReport::default()
        };
        let view = self.core.view();
        let (_, missing) = compare(&self.core, &view);
        report.records = self.fetch_records(&view, &missing).await;
        // By the baselines of now: another may have been set meanwhile.
        let view = self.core.view();
        let (found, missing) = compare(&self.core, &view);
        report.missing = to_come(&view, &missing) + without;
        report.drifted = found.report.drifted.len();
        observe::judged(&self.core, found);
        self.compared = (report.missing == 0).then_some(version);
        report
    }

    async fn fetch_records(&self, view: &View, missing: &BTreeSet<Digest>) -> usize {
        let fetch = |digest: Digest| async move {
            let told = naming(gossiping(view), digest);
            let (class, node) = told.or_else(|| naming(view.as_known_all(), digest))?;
            let preimages = &self.core.preimages;
            if let Some(record) = earlier_of(preimages, node, class, digest) {
                preimages.put_record(&node.id, digest, Arc::clone(&record));
                return Some(record);
            }
            // Also of a node that is down since before this control was started.
            if let Ok(Some(record)) = self.core.history.record(digest).await {
                let record = Arc::new(record);
                preimages.put_record(&node.id, digest, Arc::clone(&record));
                return Some(record);
            }
            // Who is gone cannot be asked.
            let (_, node) = told?;
            let fetched = preimages.fetch_record(&self.core.agents, view, digest, node);
            fetched.await.ok()
        };
        let fetches = stream::iter(missing.iter().copied()).map(fetch);
        let fetched = fetches.buffer_unordered(AT_A_TIME);
        fetched.filter_map(std::future::ready).count().await
    }

    /// Fetches documents of nodes that have none, or an older one, beside them. How many came, and
    /// how many did not.
    async fn fetch_documents(&self) -> (usize, usize) {
        let view = self.core.view();
        let lacks = |node: &crate::view::NodeEntry| {
            let digest = node.seen.as_ref()?.document?;
            (node.document_digest != Some(digest)).then(|| (node.id.clone(), digest))
        };
        let wanted: Vec<(NodeId, Digest)> =
            view.nodes.values().filter_map(|node| lacks(node)).collect();
        if wanted.is_empty() {
            return (0, 0);
        }
        let asked = wanted.len();
        let (mut found, wanted) = self.kept_documents(wanted).await;
        let (core, seen) = (&self.core, &view);
        let fetch = |(node, digest): (NodeId, Digest)| async move {
            let (preimages, agents) = (&core.preimages, &core.agents);
            let fetched = preimages.fetch_document(agents, seen, digest, &node);
            let document = fetched.await.ok()?;
            Some((node, (digest, document)))
        };
        let fetches = stream::iter(wanted).map(fetch).buffer_unordered(AT_A_TIME);
        let fetched: Vec<Documented> = fetches.filter_map(std::future::ready).collect().await;
        // A document speaks for one node only, whoever gossips its digest.
        let own = |(id, (_, document)): &Documented| document.node == id.as_str();
        let fetched: Vec<Documented> = fetched.into_iter().filter(own).collect();
        self.keep_documents(&fetched).await;
        found.extend(fetched);
        let count = found.len();
        observe::documents(core, found);
        (count, asked - count)
    }
}

/// Who has just set a baseline waits for no node that does not answer: he is told by what is at hand.
async fn promptly(core: &Core) {
    loop {
        core.unjudged().await;
        observe::judged(core, compare(core, &core.view()).0);
    }
}

/// Drift by the records at hand, and the digests it would have opened.
fn compare(core: &Core, view: &View) -> (Judged, BTreeSet<Digest>) {
    let missing = RefCell::new(BTreeSet::new());
    let at_hand = |digest: &Digest| -> Option<ClassRecord> {
        let record = core.preimages.record(digest);
        if record.is_none() {
            missing.borrow_mut().insert(*digest);
        }
        record.map(|record| ClassRecord::clone(&record))
    };
    let judged = drift::judge(view, &at_hand);
    (judged, missing.into_inner())
}

fn gossiping(view: &View) -> impl Iterator<Item = &NodeEntry> {
    let seen = view.nodes.values().filter(|node| node.seen.is_some());
    seen.map(Arc::as_ref)
}

/// Who names a digest, and of which class.
fn naming<'v>(
    mut nodes: impl Iterator<Item = &'v NodeEntry>,
    digest: Digest,
) -> Option<(Class, &'v NodeEntry)> {
    nodes.find_map(|node| {
        let names = |class: &Class| node.names(*class).any(|name| name == digest);
        Class::ALL
            .into_iter()
            .find(names)
            .map(|class| (class, node))
    })
}

/// How many of these digests may still be told: a node names them that gossips. What only those name
/// that are gone is waited for by nobody; they come back with a change.
fn to_come(view: &View, missing: &BTreeSet<Digest>) -> usize {
    let of = |node| {
        Class::ALL
            .into_iter()
            .flat_map(move |class| NodeEntry::names(node, class))
    };
    let named = gossiping(view).flat_map(of);
    let named: BTreeSet<Digest> = named.filter(|digest| missing.contains(digest)).collect();
    named.len()
}

/// A node's document, with its digest.
type Documented = (NodeId, (Digest, Arc<NodeDocument>));

impl Conformance {
    /// Those documents that are kept from before, and who is to be asked for the others.
    async fn kept_documents(
        &self,
        wanted: Vec<(NodeId, Digest)>,
    ) -> (
        BTreeMap<NodeId, (Digest, Arc<NodeDocument>)>,
        Vec<(NodeId, Digest)>,
    ) {
        let names = wanted.iter().map(|(node, _)| node.to_string()).collect();
        let kept = self.core.history.documents(names).await;
        let mut kept = kept.unwrap_or_default();
        let mut found = BTreeMap::new();
        let mut left = Vec::new();
        for (node, digest) in wanted {
            match kept.remove(node.as_str()) {
                Some((is, document)) if is == digest => {
                    found.insert(node, (digest, Arc::new(document)));
                }
                _ => left.push((node, digest)),
            }
        }
        (found, left)
    }

    /// For the time when their nodes are down and this control starts anew.
    async fn keep_documents(&self, fetched: &[Documented]) {
        let encoded = fetched.iter().filter_map(|(node, (_, document))| {
            let (digest, bytes) = document.encode().ok()?;
            Some((node.to_string(), digest, bytes))
        });
        let encoded: Vec<_> = encoded.collect();
        if encoded.is_empty() {
            return;
        }
        if let Err(error) = self.core.history.keep_documents(encoded).await {
            tracing::warn!(%error, "the documents of nodes are not kept");
        }
    }

    /// Looks up, once, what those nodes were that gossip nothing since this control was started: `most`
    /// of them.
    async fn recall(&mut self, most: usize) {
        let view = self.core.view();
        let is_unheard = |entry: &NodeEntry| entry.seen.is_none() && entry.was.is_none();
        let unheard = view.nodes.values().filter(|entry| is_unheard(entry));
        let unheard = unheard.filter(|entry| !self.recalled.contains(&entry.id));
        let unheard: Vec<&Arc<NodeEntry>> = unheard.take(most).collect();
        let mut found = Vec::new();
        for entry in unheard {
            let (was, node) = (recall(&self.core, entry).await, &entry.id);
            match was {
                Ok(was) => found.extend(was),
                // That line will not become a better one.
                Err(error @ HistoryError::Entry { .. }) => {
                    tracing::warn!(%node, %error, "what the node was is not known");
                }
                // It is asked again, in the next round.
                Err(error) => {
                    tracing::warn!(%node, %error, "what the node was cannot be read now");
                    break;
                }
            }
            self.recalled.insert(node.clone());
        }
        observe::recalled(&self.core, found);
    }
}

/// What a node was by what is kept of it; none where nothing is.
async fn recall(core: &Core, entry: &NodeEntry) -> Result<Option<NodeEntry>, HistoryError> {
    let name = entry.id.to_string();
    let mut marks = BTreeMap::new();
    for (class, then) in core.history.last_known(name.clone()).await? {
        let mark = match then {
            Then::Known { record, .. } => {
                let mark = record.state().mark();
                if let Some(digest) = mark.digest() {
                    let record = Arc::new(*record);
                    core.preimages.put_record(&entry.id, digest, record);
                }
                mark
            }
            Then::Incomplete { .. } | Then::Lost { .. } => ClassMark::Incomplete,
            Then::Disabled => ClassMark::Disabled,
            Then::NotKept => continue,
        };
        marks.insert(class, mark);
    }
    if marks.is_empty() {
        return Ok(None);
    }
    let documents = core.history.documents(vec![name]).await?;
    let document = documents.into_iter().next().map(|(_, document)| document);
    let mut was = entry.clone();
    was.seen = Some(Seen::before(marks));
    // What its BMC tells now, without what its agent told, would hide all the rest.
    was.united.clear();
    (was.effective, was.common) = (None, None);
    was.document_digest = document.as_ref().map(|(digest, _)| *digest);
    was.document = document.map(|(_, document)| Arc::new(document));
    Ok(Some(was))
}

/// What a node's class was under the schema before, by its record of now, where that is at hand and
/// this build knows how to tell it. It is what the node says, or it is nothing.
fn earlier_of(
    preimages: &Preimages,
    node: &NodeEntry,
    class: Class,
    digest: Digest,
) -> Option<Arc<ClassRecord>> {
    let earlier = node.earlier().get(&class)?;
    let now = preimages.record(&node.marks().get(&class)?.digest()?)?;
    let told = now.under(earlier.schema).ok()?;
    (told.state().digest() == Some(digest)).then(|| Arc::new(told))
}

#[cfg(test)]
mod tests;
