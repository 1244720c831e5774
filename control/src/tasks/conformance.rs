//! Conformance: documents and preimages behind newly gossiped digests are fetched, and every node
//! is judged anew by its baseline, or else by its cohort. What follows for placement follows from
//! here, on gossip: it only ever keeps work away. What drains is `tasks/autodrain`.

use crate::{
    core::Core,
    drift::{self, Judged},
    observe,
    preimages::Preimages,
    tasks::activation::Activation,
    view::{NodeEntry, View},
};
use futures::{StreamExt, stream};
use lattice_hwprobe::{Class, ClassRecord, Digest, NodeDocument};
use lattice_quorum_types::NodeId;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Looks at least this often: what could not be fetched is asked for again.
const PERIOD: Duration = Duration::from_secs(2);
/// A rolling update changes many digests at a time.
const SPACING: Duration = Duration::from_millis(200);
/// Fetches under way at a time.
const AT_A_TIME: usize = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct Conformance {
    core: Arc<Core>,
    /// What was compared last, and nothing was missing.
    compared: Option<u64>,
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
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
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
        let (_, missing) = self.compare(&view);
        report.records = self.fetch_records(&view, &missing).await;
        let (found, missing) = self.compare(&view);
        report.missing = missing.len() + without;
        report.drifted = found.report.drifted.len();
        observe::judged(&self.core, found);
        self.compared = (report.missing == 0).then_some(version);
        report
    }

    /// Drift by the records at hand, and the digests it would have opened.
    fn compare(&self, view: &View) -> (Judged, BTreeSet<Digest>) {
        let missing = RefCell::new(BTreeSet::new());
        let at_hand = |digest: &Digest| -> Option<ClassRecord> {
            let record = self.core.preimages.record(digest);
            if record.is_none() {
                missing.borrow_mut().insert(*digest);
            }
            record.map(|record| ClassRecord::clone(&record))
        };
        let judged = drift::judge(view, &at_hand);
        (judged, missing.into_inner())
    }

    async fn fetch_records(&self, view: &View, missing: &BTreeSet<Digest>) -> usize {
        let fetch = |digest: Digest| async move {
            let has = |class: &Class| {
                let mut nodes = view.nodes.values();
                nodes
                    .find(|node| node.names(*class).any(|name| name == digest))
                    .map(|node| (*class, node))
            };
            let (class, node) = Class::ALL.iter().find_map(has)?;
            let preimages = &self.core.preimages;
            if let Some(record) = earlier_of(preimages, node, class, digest) {
                preimages.put_record(&node.id, digest, Arc::clone(&record));
                return Some(record);
            }
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
        let (core, seen) = (&self.core, &view);
        let fetch = |(node, digest): (NodeId, Digest)| async move {
            let (preimages, agents) = (&core.preimages, &core.agents);
            let fetched = preimages.fetch_document(agents, seen, digest, &node);
            let document = fetched.await.ok()?;
            Some((node, (digest, document)))
        };
        let fetches = stream::iter(wanted).map(fetch).buffer_unordered(AT_A_TIME);
        let found: BTreeMap<NodeId, (Digest, Arc<NodeDocument>)> =
            fetches.filter_map(std::future::ready).collect().await;
        // A document speaks for one node only, whoever gossips its digest.
        let own = |(id, (_, document)): &(NodeId, (Digest, Arc<NodeDocument>))| {
            document.node == id.as_str()
        };
        let found: BTreeMap<_, _> = found.into_iter().filter(own).collect();
        let count = found.len();
        observe::documents(core, found);
        (count, asked - count)
    }
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
