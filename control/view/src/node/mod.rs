//! One node of the view: its record, its gossip, the results of pings and BMC readings, and its derived conformance.

mod conformance;
mod gossiped;
#[cfg(test)]
mod tests;

pub use conformance::{ConformanceInputs, MergedMark, NodeConformance};
pub use gossiped::{EXECUTOR_REASONS, GossipedNode, JournalPosition};

use crate::{drift::BaselineEffect, state::ViewNode};
use conformance::FirstSeen;
use lattice_conformance::{
    Class, ClassMark, CohortKey, Digest, EarlierDigest, Levels, NodeDocument, NodeResources,
    NodeView,
};
use lattice_placement::{Health, Liveness, NodeFacts};
use lattice_quorum_types::{NodeId, UnixMillis, node::Node};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

/// Health reason: the agent does not answer.
pub const SILENT: &str = "agent.silent";

/// One node, from all sources.
#[derive(Debug, Clone)]
pub struct NodeEntry {
    /// Node name.
    pub id: NodeId,
    /// Replicated record; `None` for a node that gossips and is not registered.
    pub record: Option<Node>,
    /// Gossip of the node; `None` while the node does not gossip.
    pub gossip: Option<GossipedNode>,
    /// Document of the node, once fetched and verified. While a newer document is being fetched, the previous one.
    pub document: Option<Arc<NodeDocument>>,
    /// Digest of `document`.
    pub document_digest: Option<Digest>,
    /// Result of the pings.
    pub liveness: Liveness,
    /// Reason why the node is not alive; `None` while it is alive, or was not pinged yet.
    pub liveness_reason: Option<String>,
    /// Boot id in the last reply of the agent to this control. It is confirmed, while [`GossipedNode::boot_id`] is only
    /// gossiped.
    pub boot: Option<String>,
    /// Time of the reply with that boot id, since the start of this control. An older reply does not replace it.
    pub boot_replied_at: Option<Duration>,
    /// Address of the last reply to a ping of this control.
    pub reply_addr: Option<SocketAddr>,
    /// Classes with a part from the BMC, merged with the agent's part.
    pub merged_marks: BTreeMap<Class, MergedMark>,
    /// Faults reported by the BMC; empty where no BMC is read.
    pub bmc_faults: Arc<BmcFaults>,
    /// Contradiction between the node's signed attestation and its gossip, found when the attestation was last
    /// requested. The node receives no sensitive allocations then.
    pub attestation_fault: Option<String>,
    /// Effects of the baselines; `None` while there are no baselines, or the node was not compared yet.
    pub baseline_effect: Option<Arc<BaselineEffect>>,
    /// Last known state while the node does not gossip, from this control's memory or its history.
    pub last_known: Option<Arc<NodeEntry>>,
    conformance: NodeConformance,
    first_seen: FirstSeen,
}

/// Faults that a BMC reports for its node, without observe-only ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BmcFaults {
    /// Effect on placement. A silent BMC has no effect, because silence shows nothing about the node.
    pub health: Health,
    /// All reasons by code and entity, including silence.
    pub reasons: BTreeSet<(String, String)>,
}

impl Default for BmcFaults {
    fn default() -> Self {
        Self {
            health: Health::Healthy,
            reasons: BTreeSet::new(),
        }
    }
}

impl ViewNode for NodeEntry {
    fn unknown(id: NodeId) -> Self {
        Self::new(id)
    }

    fn record(&self) -> Option<&Node> {
        self.record.as_ref()
    }

    fn set_record(&mut self, record: Node) -> Option<Node> {
        self.record.replace(record)
    }

    fn facts(&self) -> NodeFacts {
        self.facts()
    }
}

impl NodeEntry {
    /// A node without any known data.
    pub fn new(id: NodeId) -> Self {
        Self {
            id,
            record: None,
            gossip: None,
            document: None,
            document_digest: None,
            liveness: Liveness::Unknown,
            liveness_reason: None,
            boot: None,
            boot_replied_at: None,
            reply_addr: None,
            merged_marks: BTreeMap::new(),
            bmc_faults: Arc::default(),
            attestation_fault: None,
            baseline_effect: None,
            last_known: None,
            conformance: NodeConformance::default(),
            first_seen: FirstSeen::default(),
        }
    }

    /// A node with this record.
    pub fn registered(record: Node) -> Self {
        let mut entry = Self::new(record.id.clone());
        entry.record = Some(record);
        entry
    }

    /// The node as it was last known, from stored marks and a stored document. Present BMC readings are left out:
    /// without data of the agent they would hide everything else.
    pub fn as_last_known(
        &self,
        marks: BTreeMap<Class, ClassMark>,
        document: Option<(Digest, Arc<NodeDocument>)>,
    ) -> Self {
        let mut then = self.clone();
        then.gossip = Some(GossipedNode::before(marks));
        then.merged_marks.clear();
        then.document_digest = document.as_ref().map(|(digest, _)| *digest);
        then.document = document.map(|(_, document)| document);
        then.conformance = then.derived(&Levels::default());
        then
    }

    /// Removes the node from gossip; its last state is kept.
    pub(crate) fn leave(&mut self) {
        if self.gossip.is_some() {
            self.last_known = Some(Arc::new(self.clone()));
        }
        self.gossip = None;
    }

    /// Stores the boot id in a reply of the agent. Replies may be processed in another order than they arrived: an
    /// older reply does not replace a newer boot id.
    pub(crate) fn set_boot(&mut self, boot: &str, replied_at: Duration) {
        if self.boot_replied_at.is_none_or(|known| known <= replied_at) {
            self.boot = Some(boot.to_owned());
            self.boot_replied_at = Some(replied_at);
        }
    }

    /// Stores a newly derived conformance, and since when its marks are known.
    pub(crate) fn set_conformance(&mut self, derived: NodeConformance, now: UnixMillis) {
        self.conformance = derived;
        if self.gossip.is_some() {
            self.first_seen.observe(&self.conformance, now);
        }
    }

    /// Conformance of the node by its present inputs.
    pub(crate) fn derived(&self, levels: &Levels) -> NodeConformance {
        NodeConformance::derive(ConformanceInputs {
            gossip: self.gossip.as_ref(),
            merged: &self.merged_marks,
            baselines: self.baseline_effect.as_deref(),
            contradiction: self.attestation_fault.as_deref(),
            levels,
        })
    }

    /// Conformance of the node, from all sources.
    pub fn conformance(&self) -> &NodeConformance {
        &self.conformance
    }

    /// Address for calls to the agent: that of the last reply, else the gossiped one.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.reply_addr
            .or(self.gossip.as_ref().map(|seen| seen.addr))
    }

    /// Class marks from all sources; empty while nothing is known of the node.
    pub fn marks(&self) -> &BTreeMap<Class, ClassMark> {
        &self.conformance.marks
    }

    /// Marks in earlier schemas, from all sources.
    pub fn earlier(&self) -> &BTreeMap<Class, EarlierDigest> {
        &self.conformance.earlier
    }

    /// Mark of a class published by the agent, without the BMC's part.
    pub fn published(&self, class: Class) -> Option<ClassMark> {
        self.gossip.as_ref()?.marks.get(&class).copied()
    }

    /// Health verdict published by the agent; unknown while the node does not gossip.
    pub fn health(&self) -> Health {
        self.gossip
            .as_ref()
            .map_or(Health::Unknown, |seen| seen.health)
    }

    /// Whether the node does not gossip or does not answer pings, so that its data may be outdated.
    pub fn is_silent(&self) -> bool {
        let is_silent = matches!(self.liveness, Liveness::Suspect | Liveness::Unreachable);
        self.gossip.is_none() || is_silent
    }

    /// Health verdict for display, with the reasons. The verdict is at best unknown where the node does not answer, or
    /// its BMC does not return a class that it should. Placement uses [`NodeEntry::facts`] instead: a silent BMC only
    /// excludes allocations that require the classes it contributes to.
    pub fn shown_health(&self) -> (Health, Vec<String>) {
        let Some(seen) = &self.gossip else {
            return (Health::Unknown, Vec::new());
        };
        let mut reasons = seen.health_reasons.clone();
        let is_incomplete =
            |class: &&Class| self.marks().get(class) == Some(&ClassMark::Incomplete);
        for class in self.merged_marks.keys().filter(is_incomplete) {
            let reason = format!("{class}.incomplete");
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        if self.is_silent() {
            reasons.push(SILENT.to_owned());
        }
        let verdict = match reasons.len() == seen.health_reasons.len() {
            true => seen.health,
            false => seen.health.max(Health::Unknown),
        };
        (verdict, reasons)
    }

    /// Whether the node reports that its executor accepts no allocation: [`EXECUTOR_REASONS`].
    pub fn rejects_allocations(&self) -> bool {
        self.gossip
            .as_ref()
            .is_some_and(GossipedNode::rejects_allocations)
    }

    /// Time between SIGTERM and SIGKILL of ranks on the node, milliseconds, as last gossiped; `None` if the node never
    /// published it.
    pub fn grace_ms(&self) -> Option<u64> {
        let earlier = || self.last_known.as_ref()?.gossip.as_ref();
        self.gossip.as_ref().or_else(earlier)?.grace_ms
    }

    /// Topology group by the verified document, else by gossip.
    pub fn group(&self) -> Option<&str> {
        let by_document = self.document.as_ref().map(|d| &d.topology_group);
        let by_gossip = self.gossip.as_ref().map(|s| &s.group);
        by_document.or(by_gossip)?.as_deref()
    }

    /// Cohort of the node, if its document is available and sufficient.
    pub fn cohort(&self) -> Option<CohortKey> {
        CohortKey::of(&self.document.as_ref()?.identity)
    }

    /// The node in the form used for drift and conformance groups.
    pub fn compared(&self) -> NodeView {
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
        self.first_seen.of(class, self.marks().get(&class))
    }

    /// Facts for placement, with the worse verdict of agent and BMC; the drain brake does not affect them.
    pub fn facts(&self) -> NodeFacts {
        let by_agent = match self.rejects_allocations() {
            true => Health::Faulty,
            false => self.health(),
        };
        let mut facts = NodeFacts {
            liveness: self.liveness,
            health: by_agent.max(self.bmc_faults.health),
            conformance: self.conformance.key(),
            deprioritised: self.conformance.deprioritised,
            ..NodeFacts::default()
        };
        facts.group = self.group().map(str::to_owned);
        if let Some(document) = &self.document {
            facts.gpu_model = document.resources.gpu_model.present().cloned();
            facts.gpu_count = document.resources.gpus();
            facts.gpu_memory_bytes = gpu_memory(&document.resources);
            facts.memory_bytes = document.resources.memory_bytes.present().copied();
            facts.features.clone_from(&document.resources.features);
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
