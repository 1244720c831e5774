//! Conformance: documents and preimages behind newly gossiped digests are fetched, and every node
//! is judged anew by its baseline, or else by its cohort. What follows for placement follows from
//! here, on gossip: it only ever keeps work away. What drains is `tasks/autodrain`.
//!
//! What is fetched ([`fetch`]) is judged as it comes: a node that does not answer delays the judgement
//! of no other one.

mod fetch;

use crate::{
    core::Core,
    drift::{self, Judged},
    history::{HistoryError, Then},
    observe,
    tasks::activation::{Activation, due},
    view::{NodeEntry, Seen, View},
};
use fetch::Fetches;
use lattice_hwprobe::{ClassMark, ClassRecord, Digest};
use lattice_quorum_types::NodeId;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// Looks at least this often: what could not be fetched may be asked for again.
const PERIOD: Duration = Duration::from_secs(2);
/// A rolling update changes many digests at a time.
const SPACING: Duration = Duration::from_millis(200);
/// What comes so soon after the first is judged together with it.
const GATHER: Duration = Duration::from_millis(20);
/// And so many times as long as it took to judge the last time.
const GATHER_TIMES: u32 = 4;
/// What is told by what is at hand waits so long for what was just asked for.
const AT_HAND: Duration = Duration::from_millis(250);
/// The same for who set a baseline, who may come right after another change.
const PROMPTLY: Duration = Duration::from_millis(500);
/// Who gossips nothing so long after the start is down, and is what it was.
const GOSSIP_WITHIN: Duration = Duration::from_secs(5);
/// Nodes that are looked up in the history in one round: whoever waits to be judged does not wait for
/// ten thousand of them.
const RECALLED_A_ROUND: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Conformance {
    core: Arc<Core>,
    fetches: Fetches,
    /// What was compared last.
    compared: Option<u64>,
    /// How long that took.
    took: Duration,
    /// Digests that it would have opened.
    missing: BTreeSet<Digest>,
    /// Since when what was found is not told, because more is asked for.
    untold_since: Option<Instant>,
    /// When it is compared again, because something came or was waited for long enough.
    judge_at: Option<Instant>,
    started_at: Instant,
    /// Nodes that were looked up in the history.
    recalled: BTreeSet<NodeId>,
}

/// What one round did.
#[cfg(test)]
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
            fetches: Fetches::new(core.clone()),
            core,
            compared: None,
            took: Duration::ZERO,
            missing: BTreeSet::new(),
            untold_since: None,
            judge_at: None,
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
            tokio::select! {
                () = activation.next() => self.round().await,
                () = self.fetches.next() => self.fetched(),
                () = due(self.judge_at) => self.look().await,
            }
        }
    }

    async fn round(&mut self) {
        if self.started_at.elapsed() >= GOSSIP_WITHIN {
            self.recall(RECALLED_A_ROUND).await;
        }
        self.look().await;
    }

    /// Something came, or will not: what came is judged with what comes in the same moment.
    fn fetched(&mut self) {
        let now = Instant::now();
        if self.fetches.has_come() {
            let gather = GATHER.max(self.took * GATHER_TIMES).min(PERIOD);
            let at = self.judge_at.unwrap_or(now + gather);
            self.judge_at = Some(at.min(now + gather));
        }
        // Nothing else is worth waiting for.
        if self.judge_at.is_some() && !self.fetches.is_anything_new_asked_for() {
            self.judge_at = Some(now);
        }
    }

    /// Compares if there is anything new, asks for what is missing, and tells what was found. While
    /// something is asked for the first time that waits for a moment, so that nobody is shown as
    /// unknown whose record is on its way.
    async fn look(&mut self) {
        self.judge_at = None;
        let is_news = self.fetches.take_records() > 0;
        self.fetches.put_documents().await;
        // Of before the comparison: what nodes tell during it is for the next one.
        let view = self.core.view();
        let version = Some(view.conformance_version);
        let now = Instant::now();
        let mut found = None;
        if is_news || self.untold_since.is_some() || self.compared != version {
            let (judged, missing) = compare(&self.core, &view);
            (self.compared, self.missing) = (version, missing);
            self.took = now.elapsed();
            self.untold_since.get_or_insert(now);
            found = Some(judged);
        }
        self.fetches.ask(&view, &self.missing);
        let (Some(found), Some(since)) = (found, self.untold_since) else {
            return;
        };
        if self.fetches.is_anything_new_asked_for() && now < since + AT_HAND {
            self.judge_at = Some(since + AT_HAND);
            return;
        }
        self.untold_since = None;
        observe::judged(&self.core, found);
    }

    /// One round, until nothing is asked for any more, whatever was asked for in vain before.
    #[cfg(test)]
    pub(crate) async fn reconcile(&mut self) -> ConformanceReport {
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
        let (documents, records) = self.fetches.came();
        let view = self.core.view();
        ConformanceReport {
            documents,
            records,
            missing: self.fetches.still_missing(&view, &self.missing),
            drifted: view.judged.drifted.len(),
        }
    }
}

/// Who has just set a baseline waits for no node that does not answer: he is told by what is at hand,
/// once those that do had the time to.
async fn promptly(core: &Core) {
    loop {
        core.unjudged().await;
        if timeout(PROMPTLY, core.judged()).await.is_err() {
            observe::judged(core, compare(core, &core.view()).0);
        }
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

impl Conformance {
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

#[cfg(test)]
mod tests;
