//! Values that a node publishes in gossip.

use lattice_conformance::{Class, ClassMark, Digest, EarlierDigest};
use lattice_placement::Health;
use std::{collections::BTreeMap, net::SocketAddr};

/// Prefix of health reasons for which an agent accepts no allocation, although its hardware may be sound.
pub const EXECUTOR_REASONS: &str = "executor.";

/// Position of the last entry of a node's own history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalPosition {
    /// Id of the journal; a new journal starts its sequence again.
    pub journal: u64,
    /// Sequence number of the last entry on disk.
    pub seq: u64,
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
    pub history: Option<JournalPosition>,
    /// Time between SIGTERM and SIGKILL of ranks on the node, milliseconds; `None` for an agent of an earlier version.
    pub grace_ms: Option<u64>,
    /// Seconds for which the node keeps the output of an allocation after its end.
    pub keep_output_s: Option<u64>,
    /// Whether gossip considers the node alive. Liveness itself is in [`NodeEntry::liveness`](super::NodeEntry).
    pub is_alive: bool,
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
            grace_ms: None,
            keep_output_s: None,
            is_alive: false,
        }
    }

    /// Whether the node reports that its executor accepts no allocation: [`EXECUTOR_REASONS`].
    pub fn rejects_allocations(&self) -> bool {
        let mut reasons = self.health_reasons.iter();
        reasons.any(|reason| reason.starts_with(EXECUTOR_REASONS))
    }

    /// Whether `other` publishes the same inputs of conformance: marks and document.
    pub(crate) fn has_same_marks(&self, other: &Self) -> bool {
        self.marks == other.marks
            && self.earlier == other.earlier
            && self.document == other.document
    }
}
