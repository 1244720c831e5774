//! Node entry of the view: record, gossip, ping results, and derived state.

use crate::view::BaselineEffect;
use lattice_conformance::{
    Class, ClassMark, CohortKey, Digest, EarlierDigest, NodeDocument, NodeResources, NodeView,
    fingerprint,
};
use lattice_gossip::HistoryMark;
use lattice_placement::{ConformanceKey, Health, Liveness, NodeFacts};
use lattice_quorum_types::{NodeId, UnixMillis, node::Node};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::time::Instant;

/// Prefix of health reasons for which an agent accepts no allocation, although its hardware may be sound.
pub const EXECUTOR_REASONS: &str = "executor.";

/// Health reason: the agent does not answer.
pub const SILENT: &str = "agent.silent";

/// One node, from all sources.
#[derive(Debug, Clone)]
pub struct NodeEntry {
    /// Node name.
    pub id: NodeId,
    /// Replicated record; `None` for a node that gossips and is not registered.
    pub record: Option<Node>,
    /// Gossip of the node; `None` for a node that was not seen since this control started.
    pub seen: Option<GossipedNode>,
    /// Document of the node, once fetched and verified. While a newer document is being fetched, the previous one.
    pub document: Option<Arc<NodeDocument>>,
    /// Digest of `document`.
    pub(crate) document_digest: Option<Digest>,
    /// Result of the pings.
    pub liveness: Liveness,
    /// Reason why the node is not alive; `None` while it is alive, or was not pinged yet.
    pub liveness_reason: Option<String>,
    /// Boot id in the last reply to a ping of this control. It is confirmed, while [`GossipedNode::boot_id`] is only gossiped.
    pub boot: Option<String>,
    /// Time of the reply with that boot id; an older reply does not replace it.
    pub(crate) boot_heard_at: Option<Instant>,
    /// Classes with a part from the BMC, merged with the agent's part.
    pub united: BTreeMap<Class, MergedMark>,
    /// Marks of all classes including the merged ones; `None` where there are no merged classes.
    pub(crate) effective: Option<Arc<PublishedMarks>>,
    /// Faults reported by the BMC; empty where no BMC is read.
    pub(crate) named: Arc<BmcFaults>,
    /// Marks used for comparison with other nodes, where nodes publish different schemas and these marks differ from
    /// the node's own.
    pub(crate) common: Option<Arc<BTreeMap<Class, ClassMark>>>,
    /// Last known state while the node does not gossip, from this control's memory or its history.
    pub(crate) was: Option<Arc<NodeEntry>>,
    /// Contradiction between the node's signed attestation and its gossip, found when the attestation was last
    /// requested. The node receives no sensitive allocations then.
    pub claim_refused: Option<String>,
    /// Effects of the baselines; `None` while there are no baselines, or the node was not compared yet.
    pub effect: Option<Arc<BaselineEffect>>,
    /// Mark of each class, with the time when this control first saw the mark or its earlier form.
    pub(crate) first_seen: BTreeMap<Class, (ClassMark, UnixMillis)>,
    /// Address of the last reply to a ping of this control.
    pub(crate) reached_at: Option<SocketAddr>,
    /// Time of the last reply in Unix milliseconds, 0 for none. Shared with the ping task, so that a reply alone
    /// creates no new view.
    pub(crate) answered_at: Arc<AtomicU64>,
}

/// Class mark merged from agent and BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergedMark {
    /// Mark published by the agent; `None` where it publishes none.
    pub base: Option<ClassMark>,
    /// Mark of the merged record.
    pub mark: ClassMark,
    /// Mark of the merged record in an earlier schema.
    pub earlier: Option<EarlierDigest>,
}

impl MergedMark {
    /// A class with an unknown merged record.
    pub const fn unknown(base: Option<ClassMark>) -> Self {
        Self {
            base,
            mark: ClassMark::Incomplete,
            earlier: None,
        }
    }
}

/// Faults that a BMC reports for its node, without observe-only ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BmcFaults {
    /// Effect on placement. A silent BMC has no effect, because silence shows nothing about the node.
    pub(crate) health: Health,
    /// All reasons by code and entity, including silence.
    pub(crate) reasons: BTreeSet<(String, String)>,
}

impl Default for BmcFaults {
    fn default() -> Self {
        Self {
            health: Health::Healthy,
            reasons: BTreeSet::new(),
        }
    }
}

/// Published marks of a node's classes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PublishedMarks {
    pub(crate) marks: BTreeMap<Class, ClassMark>,
    pub(crate) earlier: BTreeMap<Class, EarlierDigest>,
}

/// Values that a node publishes in gossip. They are hints: an action that drains or admits a node, or moves power, is
/// confirmed by a direct read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GossipedNode {
    /// Gossip cell of the node.
    pub cell: String,
    /// Mesh address of the node.
    pub addr: SocketAddr,
    /// Mark of each published class.
    pub marks: BTreeMap<Class, ClassMark>,
    /// Marks in earlier schemas, published while the cluster is upgraded.
    pub earlier: BTreeMap<Class, EarlierDigest>,
    /// Digest of the node's document.
    pub document: Option<Digest>,
    /// Verdict of the node's health checks.
    pub health: Health,
    /// Stable codes of the reasons for the verdict.
    pub health_reasons: Vec<String>,
    /// Boot id of the host.
    pub boot_id: Option<String>,
    /// Incarnation of the agent process.
    pub generation: u64,
    /// Version of the agent.
    pub agent_version: Option<String>,
    /// Topology group reported by the node.
    pub group: Option<String>,
    /// Position up to which the node's own history goes.
    pub history: Option<HistoryMark>,
    /// Whether gossip considers the node alive. Liveness itself is in [`NodeEntry::liveness`].
    pub heard: bool,
}

impl GossipedNode {
    /// State of a node that is down since before this control started, limited to its stored marks.
    pub fn before(marks: BTreeMap<Class, ClassMark>) -> Self {
        Self {
            cell: String::new(),
            addr: SocketAddr::from(([0, 0, 0, 0], 0)),
            marks,
            earlier: BTreeMap::new(),
            document: None,
            health: Health::Unknown,
            health_reasons: Vec::new(),
            boot_id: None,
            generation: 0,
            agent_version: None,
            group: None,
            history: None,
            heard: false,
        }
    }
}

impl NodeEntry {
    /// Removes the node from gossip; its last state is kept.
    pub(crate) fn leave(&mut self) {
        if self.seen.is_some() {
            self.was = Some(Arc::new(self.clone()));
        }
        self.seen = None;
        self.merge_marks();
    }

    /// A node without any known data.
    pub(crate) fn new(id: NodeId) -> Self {
        Self {
            id,
            record: None,
            seen: None,
            document: None,
            document_digest: None,
            liveness: Liveness::Unknown,
            liveness_reason: None,
            boot: None,
            boot_heard_at: None,
            united: BTreeMap::new(),
            effective: None,
            named: Arc::default(),
            common: None,
            was: None,
            claim_refused: None,
            effect: None,
            first_seen: BTreeMap::new(),
            reached_at: None,
            answered_at: Arc::default(),
        }
    }

    /// Time of the last reply to a ping, by this control's clock.
    pub fn answered_at(&self) -> Option<UnixMillis> {
        match self.answered_at.load(Ordering::Relaxed) {
            0 => None,
            millis => Some(UnixMillis(millis)),
        }
    }

    /// Address for calls to the agent: that of the last reply, else the gossiped one.
    pub(crate) fn addr(&self) -> Option<SocketAddr> {
        self.reached_at.or(self.seen.as_ref().map(|seen| seen.addr))
    }

    /// Class marks from all sources; empty while nothing is known of the node.
    pub fn marks(&self) -> &BTreeMap<Class, ClassMark> {
        static NONE: BTreeMap<Class, ClassMark> = BTreeMap::new();
        let said = self.seen.as_ref().map_or(&NONE, |seen| &seen.marks);
        self.effective.as_ref().map_or(said, |says| &says.marks)
    }

    /// Earlier marks from all sources.
    pub fn earlier(&self) -> &BTreeMap<Class, EarlierDigest> {
        static NONE: BTreeMap<Class, EarlierDigest> = BTreeMap::new();
        let said = self.seen.as_ref().map_or(&NONE, |seen| &seen.earlier);
        self.effective.as_ref().map_or(said, |says| &says.earlier)
    }

    /// Marks used for comparison with all other nodes.
    pub fn common_marks(&self) -> &BTreeMap<Class, ClassMark> {
        self.common.as_deref().unwrap_or_else(|| self.marks())
    }

    /// Digests that name a record of the class: the mark and the earlier mark.
    pub(crate) fn names(&self, class: Class) -> impl Iterator<Item = Digest> {
        let mark = self.marks().get(&class).and_then(ClassMark::digest);
        let earlier = self.earlier().get(&class).map(|earlier| earlier.digest);
        mark.into_iter().chain(earlier)
    }

    /// Mark of a class published by the agent, without the BMC's part.
    pub fn said(&self, class: Class) -> Option<ClassMark> {
        self.seen.as_ref()?.marks.get(&class).copied()
    }

    /// Merges the marks of agent and BMC after one of them changed. A class merged with an outdated mark of the agent
    /// is unknown until it is merged again.
    pub(crate) fn merge_marks(&mut self) {
        if self.united.is_empty() {
            self.effective = None;
            return;
        }
        let said = self.seen.as_ref().map(|seen| PublishedMarks {
            marks: seen.marks.clone(),
            earlier: seen.earlier.clone(),
        });
        let mut says = said.unwrap_or_default();
        for (class, united) in &self.united {
            says.earlier.remove(class);
            let is_current = self.said(*class) == united.base;
            let mark = match is_current {
                true => united.mark,
                false => ClassMark::Incomplete,
            };
            if is_current && let Some(earlier) = united.earlier {
                says.earlier.insert(*class, earlier);
            }
            says.marks.insert(*class, mark);
        }
        self.effective = Some(Arc::new(says));
    }

    /// Node fingerprint used for comparison with all other nodes; `None` while a class is incomplete or the node was
    /// not seen.
    pub fn fingerprint(&self) -> Option<Digest> {
        self.seen.as_ref()?;
        fingerprint(self.common_marks()).digest()
    }

    /// Health verdict published by the agent; unknown while the node was not seen.
    pub fn health(&self) -> Health {
        self.seen
            .as_ref()
            .map_or(Health::Unknown, |seen| seen.health)
    }

    /// Whether the node does not answer, so that its data may be outdated.
    pub fn is_silent(&self) -> bool {
        let is_silent = matches!(self.liveness, Liveness::Suspect | Liveness::Unreachable);
        self.seen.is_none() || is_silent
    }

    /// Health verdict for display, with the reasons. The verdict is at best unknown where the node does not answer, or
    /// its BMC does not return a class that it should. Placement uses [`NodeEntry::facts`] instead: a silent BMC only
    /// excludes allocations that require the classes it contributes to.
    pub fn shown_health(&self) -> (Health, Vec<String>) {
        let Some(seen) = &self.seen else {
            return (Health::Unknown, Vec::new());
        };
        let mut reasons = seen.health_reasons.clone();
        let is_untold = |class: &&Class| self.marks().get(class) == Some(&ClassMark::Incomplete);
        for class in self.united.keys().filter(is_untold) {
            let reason = format!("{class}.incomplete");
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        if self.is_silent() {
            reasons.push(SILENT.to_owned());
        }
        let is_told = reasons.len() == seen.health_reasons.len();
        let verdict = match is_told {
            true => seen.health,
            false => seen.health.max(Health::Unknown),
        };
        (verdict, reasons)
    }

    /// Whether the node reports that its executor accepts no allocation: [`EXECUTOR_REASONS`].
    pub(crate) fn takes_no_work(&self) -> bool {
        let mut reasons = self.seen.iter().flat_map(|seen| &seen.health_reasons);
        reasons.any(|reason| reason.starts_with(EXECUTOR_REASONS))
    }

    /// Topology group by the verified document, else by gossip.
    pub fn group(&self) -> Option<&str> {
        let told = self.document.as_ref().map(|d| &d.topology_group);
        let said = self.seen.as_ref().map(|s| &s.group);
        told.or(said)?.as_deref()
    }

    /// Cohort of the node, if its document is available and sufficient.
    pub fn cohort(&self) -> Option<CohortKey> {
        CohortKey::of(&self.document.as_ref()?.identity)
    }

    /// The node in the form used for drift and conformance groups.
    pub fn conformance(&self) -> NodeView {
        NodeView {
            node: self.id.to_string(),
            cohort: self.cohort(),
            classes: self.marks().clone(),
            earlier: self.earlier().clone(),
        }
    }

    /// Time since which the node is known to have its present record of a class: when this control first saw the
    /// record, and so not before the start of this control.
    pub fn since(&self, class: Class) -> Option<UnixMillis> {
        let (mark, at) = self.first_seen.get(&class)?;
        (self.marks().get(&class) == Some(mark)).then_some(*at)
    }

    /// Records when the present marks were first seen. An equal record under a later schema keeps its time.
    pub(crate) fn note_marks(&mut self, now: UnixMillis) {
        for (class, mark) in self.marks().clone() {
            let as_before = self.earlier().get(&class).map(EarlierDigest::mark);
            match self.first_seen.get_mut(&class) {
                Some((known, _)) if *known == mark => {}
                Some((known, _)) if as_before == Some(*known) => *known = mark,
                _ => {
                    self.first_seen.insert(class, (mark, now));
                }
            }
        }
    }

    /// Reason why the node receives no sensitive allocations, from its attestation or its baseline.
    pub fn no_sensitive(&self) -> Option<&str> {
        let by_baseline = self.effect.as_ref().and_then(|e| e.no_sensitive.as_deref());
        self.claim_refused.as_deref().or(by_baseline)
    }

    /// Facts for placement, with the worse verdict of agent and BMC; the drain brake does not affect them. A node
    /// excluded from sensitive allocations has an unknown conformance key, which equals no other: that is the condition
    /// of such allocations.
    pub fn facts(&self) -> NodeFacts {
        let conformance = match self.fingerprint() {
            Some(digest) if self.no_sensitive().is_none() => ConformanceKey::Known(digest.0),
            _ => ConformanceKey::Unknown,
        };
        let by_agent = match self.takes_no_work() {
            true => Health::Faulty,
            false => self.health(),
        };
        let mut facts = NodeFacts {
            liveness: self.liveness,
            health: by_agent.max(self.named.health),
            conformance,
            deprioritised: self.effect.as_ref().is_some_and(|e| e.deprioritised),
            ..NodeFacts::default()
        };
        facts.group = self.group().map(str::to_owned);
        if let Some(document) = &self.document {
            facts.gpu_model = document.facts.gpu_model.present().cloned();
            facts.gpu_count = document.facts.gpus();
            facts.gpu_memory_bytes = gpu_memory(&document.facts);
            facts.memory_bytes = document.facts.memory_bytes.present().copied();
            facts.features.clone_from(&document.facts.features);
        }
        facts
    }
}

/// Memory of all GPUs of a node in bytes: their number times the memory of the smallest, which is the value a node
/// reports. `None` where it is unknown or the node has no GPU, because the size of a checkpoint then does not follow
/// from it.
fn gpu_memory(facts: &NodeResources) -> Option<u64> {
    let (count, smallest) = (facts.gpus()?, facts.gpu_memory_bytes.present()?);
    let all = u64::from(count).checked_mul(*smallest);
    all.filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_conformance::Reading;

    #[test]
    fn gpu_memory_needs_number_and_size() {
        let of = |count, memory| {
            let (gpu_count, gpu_memory_bytes) = (count, memory);
            gpu_memory(&NodeResources {
                gpu_count,
                gpu_memory_bytes,
                ..NodeResources::default()
            })
        };
        let memory = || Reading::Present(80_000_000_000);
        assert_eq!(of(Reading::Present(4), memory()), Some(320_000_000_000));
        assert_eq!(of(Reading::Absent, Reading::Absent), None);
        assert_eq!(of(Reading::Present(0), memory()), None);
        assert_eq!(of(Reading::Present(4), Reading::Unsupported), None);
        assert_eq!(of(Reading::failed("no driver"), memory()), None);
        let broken = Reading::Present(u64::MAX);
        assert_eq!(of(Reading::Present(4), broken), None);
    }
}
