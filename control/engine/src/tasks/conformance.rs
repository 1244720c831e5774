//! Conformance reconciler: fetches the documents and preimages behind newly gossiped digests, then compares every node
//! with its baselines, or else with its cohort.
//!
//! Comparisons rest on gossip, so their effect on placement only ever keeps jobs away from a node. Draining is in
//! `tasks/autodrain`.
//!
//! Fetched data ([`fetch`]) is compared soon after it arrives: a node that does not answer delays the comparison of no
//! other node.

mod fetch;

use crate::{
    history::{HistoryError, PastClassState},
    node_records::NodeRecords,
    observed_state,
    preimages::Preimages,
    tasks::activation::{Activation, due},
};
use fetch::Fetches;
use lattice_conformance::{ClassMark, ClassRecord, Digest};
use lattice_quorum_types::NodeId;
use lattice_view::{NodeEntry, View, drift::ComparisonResult};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// Longest time between two rounds; a failed fetch may be repeated then.
const PERIOD: Duration = Duration::from_secs(2);
/// Shortest time between two rounds; a rolling update changes many digests at a time.
const SPACING: Duration = Duration::from_millis(200);
/// Time for which fetched data is collected before one comparison.
const GATHER: Duration = Duration::from_millis(20);
/// The collection time is at least this multiple of the duration of the last comparison, up to [`PERIOD`].
const GATHER_FACTOR: u32 = 4;
/// Longest time for which a comparison of the available data is withheld while new fetches are under way.
const MAX_WITHHELD: Duration = Duration::from_millis(250);
/// Longest wait for a complete comparison after a baseline changes; then the available data is compared.
const JUDGEMENT_TIMEOUT: Duration = Duration::from_millis(500);
/// Time after the start of this reconciler after which a node that has not gossiped counts as down. The last known
/// state of such a node comes from the history.
const GOSSIP_WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of nodes looked up in the history per round, so that a large cluster does not delay comparisons.
const RECALLS_PER_ROUND: usize = 256;

/// Conformance reconciler; see the module.
#[derive(Debug)]
pub struct Conformance {
    records: NodeRecords,
    fetches: Fetches,
    /// Conformance version of the view compared last.
    compared: Option<u64>,
    /// Duration of the last comparison.
    took: Duration,
    /// Digests that the last comparison lacked.
    missing: BTreeSet<Digest>,
    /// Time since which a comparison is withheld, because new fetches are under way.
    withheld_since: Option<Instant>,
    /// Time of the next comparison, because data arrived or the withholding time ends.
    judge_at: Option<Instant>,
    started_at: Instant,
    /// Nodes that were looked up in the history.
    recalled: BTreeSet<NodeId>,
}

/// Result of one round.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConformanceReport {
    /// Documents fetched.
    pub(crate) documents: usize,
    /// Records fetched.
    pub(crate) records: usize,
    /// Records and documents still missing.
    pub(crate) missing: usize,
    /// Keys in which nodes differ from their baseline or cohort.
    pub(crate) drifted: usize,
}

impl Conformance {
    /// New [`Conformance`]; it does nothing until it is run.
    pub fn new(records: NodeRecords) -> Self {
        Self {
            fetches: Fetches::new(records.clone()),
            records,
            compared: None,
            took: Duration::ZERO,
            missing: BTreeSet::new(),
            withheld_since: None,
            judge_at: None,
            started_at: Instant::now(),
            recalled: BTreeSet::new(),
        }
    }

    /// Runs forever.
    pub async fn run(self) {
        let records = self.records.clone();
        futures::join!(self.rounds(), judge_promptly(&records));
    }

    async fn rounds(mut self) {
        let mut activation = Activation::new(&self.records.core, PERIOD, SPACING);
        loop {
            tokio::select! {
                () = activation.next() => self.round().await,
                () = self.fetches.next() => self.fetched(),
                () = due(self.judge_at) => self.look().await,
            }
        }
    }

    async fn round(&mut self) {
        if self.started_at.elapsed() >= GOSSIP_WITHIN {
            self.recall(RECALLS_PER_ROUND).await;
        }
        self.look().await;
    }

    /// Handles a completed or failed fetch: schedules a comparison that covers all data arriving within the collection
    /// time.
    fn fetched(&mut self) {
        let now = Instant::now();
        if self.fetches.has_arrivals() {
            let gather = GATHER.max(self.took * GATHER_FACTOR).min(PERIOD);
            let at = self.judge_at.unwrap_or(now + gather);
            self.judge_at = Some(at.min(now + gather));
        }
        // No other new fetch is under way, so the comparison need not wait.
        if self.judge_at.is_some() && !self.fetches.has_new_requests() {
            self.judge_at = Some(now);
        }
    }

    /// Compares if there is new data, fetches missing data and publishes the comparison. While a first fetch is under
    /// way, publication waits briefly, so that no node is shown as unknown when its record is about to arrive.
    async fn look(&mut self) {
        self.judge_at = None;
        let is_news = self.fetches.take_records() > 0;
        self.fetches.put_documents().await;
        // The view from before the comparison: gossip that arrives during the comparison is for the next one.
        let view = self.records.core.view();
        let version = Some(view.conformance_version);
        let now = Instant::now();
        let mut found = None;
        if is_news || self.withheld_since.is_some() || self.compared != version {
            let (judged, missing) = compare(&self.records.preimages, &view);
            (self.compared, self.missing) = (version, missing);
            self.took = now.elapsed();
            self.withheld_since.get_or_insert(now);
            found = Some(judged);
        }
        self.fetches.ask(&view, &self.missing);
        let (Some(found), Some(since)) = (found, self.withheld_since) else {
            return;
        };
        if self.fetches.has_new_requests() && now < since + MAX_WITHHELD {
            self.judge_at = Some(since + MAX_WITHHELD);
            return;
        }
        self.withheld_since = None;
        observed_state::comparison(&self.records.core, found);
    }

    /// Runs one round until no fetch is under way, including fetches that failed before.
    #[cfg(any(test, feature = "testing"))]
    pub async fn reconcile(&mut self) -> ConformanceReport {
        self.fetches.forget();
        self.round().await;
        while self.fetches.is_under_way() {
            self.fetches.next().await;
            self.fetched();
            if self.judge_at.is_some_and(|at| at <= Instant::now()) || !self.fetches.is_under_way()
            {
                self.look().await;
            }
        }
        let (documents, records) = self.fetches.totals();
        let view = self.records.core.view();
        ConformanceReport {
            documents,
            records,
            missing: self.fetches.still_missing(&view, &self.missing),
            drifted: view.cluster_drift.drifted.len(),
        }
    }
}

/// Publishes a comparison of the available data soon after a baseline changes, so that the caller does not wait for a
/// silent node. Nodes that answer have time to do so.
async fn judge_promptly(records: &NodeRecords) {
    let core = &records.core;
    loop {
        core.unjudged().await;
        if timeout(JUDGEMENT_TIMEOUT, core.judged()).await.is_err() {
            observed_state::comparison(core, compare(&records.preimages, &core.view()).0);
        }
    }
}

/// Compares all nodes by the available records; returns also the digests of the missing records.
fn compare(preimages: &Preimages, view: &View) -> (ComparisonResult, BTreeSet<Digest>) {
    let missing = RefCell::new(BTreeSet::new());
    let at_hand = |digest: &Digest| -> Option<ClassRecord> {
        let record = preimages.record(digest);
        if record.is_none() {
            missing.borrow_mut().insert(*digest);
        }
        record.map(|record| ClassRecord::clone(&record))
    };
    let judged = lattice_view::compare(view, &at_hand);
    (judged, missing.into_inner())
}

impl Conformance {
    /// Looks up, once, the last known state of at most `most` nodes that have not gossiped since this control started.
    async fn recall(&mut self, most: usize) {
        let view = self.records.core.view();
        let is_silent = |entry: &NodeEntry| entry.gossip.is_none() && entry.last_known.is_none();
        let silent = view.nodes.values().filter(|entry| is_silent(entry));
        let silent = silent.filter(|entry| !self.recalled.contains(&entry.id));
        let silent: Vec<&Arc<NodeEntry>> = silent.take(most).collect();
        let mut found = Vec::new();
        for entry in silent {
            let (was, node) = (self.records.recall(entry).await, &entry.id);
            match was {
                Ok(was) => found.extend(was),
                // A repeated read of this history entry would fail as well.
                Err(error @ HistoryError::Entry { .. }) => {
                    tracing::warn!(%node, %error, "earlier conformance of the node is unknown");
                }
                // Read again in the next round.
                Err(error) => {
                    tracing::warn!(%node, %error, "earlier conformance of the node is unreadable");
                    break;
                }
            }
            self.recalled.insert(node.clone());
        }
        observed_state::last_known(&self.records.core, found);
    }
}

impl NodeRecords {
    /// Last known state of a node from the history; `None` if the history has none.
    async fn recall(&self, entry: &NodeEntry) -> Result<Option<NodeEntry>, HistoryError> {
        let name = entry.id.to_string();
        let mut marks = BTreeMap::new();
        for (class, then) in self.history.last_known(name.clone()).await? {
            let mark = match then {
                PastClassState::Known { record, .. } => {
                    let mark = record.state().mark();
                    if let Some(digest) = mark.digest() {
                        let record = Arc::new(*record);
                        self.preimages.put_record(&entry.id, digest, record);
                    }
                    mark
                }
                PastClassState::Incomplete { .. } | PastClassState::Lost { .. } => {
                    ClassMark::Incomplete
                }
                PastClassState::Disabled => ClassMark::Disabled,
                PastClassState::NotKept => continue,
            };
            marks.insert(class, mark);
        }
        if marks.is_empty() {
            return Ok(None);
        }
        let documents = self.history.documents(vec![name]).await?;
        let document = documents.into_iter().next().map(|(_, document)| document);
        let document = document.map(|(digest, document)| (digest, Arc::new(document)));
        Ok(Some(entry.as_last_known(marks, document)))
    }
}

#[cfg(test)]
mod tests;
