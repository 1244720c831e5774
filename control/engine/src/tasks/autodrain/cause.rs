//! Causes of automatic draining: what makes a node a candidate, what confirms the cause, and its description.
//! Everything else is the same for all causes.

use crate::{
    bmc::Readings,
    tasks::{
        faults,
        node_evidence::{self, Answer, Freshness, NodeAccess, bmc::Bmc},
    },
};
use lattice_placement::Health;
use lattice_quorum_types::NodeId;
use lattice_view::{NodeEntry, View, node::EXECUTOR_REASONS};

/// Cause of an automatic drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Health checks or the BMC report a fault that requires an empty node.
    Health,
    /// The node differs from a baseline with a drain rule.
    Conformance,
}

impl Cause {
    /// All causes, the more urgent first: both share one brake.
    pub(crate) const ALL: [Self; 2] = [Self::Health, Self::Conformance];

    /// Owner of the drain reason. The owner is the same for every control, so that any control can clear the reason.
    pub(crate) const fn owner(self) -> &'static str {
        match self {
            Self::Health => "service:health",
            Self::Conformance => "service:conformance",
        }
    }

    /// Drain reason that this cause has set on the node.
    pub(super) fn own_reason(self, entry: &NodeEntry) -> Option<&str> {
        faults::reason_of(entry, self.owner())
    }

    /// Whether gossip or the last BMC reading is a reason to query the node.
    pub(super) fn suspects(self, bmcs: &Readings, entry: &NodeEntry) -> bool {
        match self {
            Self::Health => is_faulty(entry) || bmcs.drains_now(&entry.id),
            Self::Conformance => entry
                .baseline_effect
                .as_ref()
                .is_some_and(|e| e.drain.is_some()),
        }
    }

    /// Whether a query of the node may show that the cause is over. For health it always may: other nodes can gossip
    /// any health for it, and a site rule may report faults that cause no drain.
    pub(super) fn may_be_over(self, view: &View, entry: &NodeEntry) -> bool {
        match self {
            Self::Health => true,
            Self::Conformance => entry.baseline_effect.as_ref().is_none_or(|effect| {
                effect.drain.is_none()
                    && !effect.drain_unknown
                    && effect.is_of(entry, &view.baselines)
            }),
        }
    }

    /// Whether a drain decided under baseline set `number` is still wanted.
    pub(super) fn is_drain_current(
        self,
        bmcs: &Readings,
        now: &View,
        number: u64,
        node: &NodeId,
    ) -> bool {
        let is_same_question = match self {
            Self::Health => true,
            Self::Conformance => now.baselines.generation == number,
        };
        now.brake.is_none()
            && is_same_question
            && now
                .node(node)
                .is_some_and(|entry| self.suspects(bmcs, entry))
    }

    /// Queries the node and its BMC now. A node that cannot be queried confirms nothing.
    pub(super) async fn ask(self, nodes: &NodeAccess, view: &View, entry: &NodeEntry) -> Answer {
        let (node, now) = (&entry.id, &Freshness::NOW);
        let core = &*nodes.core;
        let bmc = Bmc::new(nodes, node, now, self.owner());
        let said = match self {
            Self::Health => node_evidence::health::ask(core, view, node, now, &bmc).await,
            Self::Conformance => {
                node_evidence::conformance::ask(core, view, entry, now, &bmc).await
            }
        };
        said.unwrap_or_else(|error| Answer::Unknown(error.to_string()))
    }

    /// Text for the operator: `count` of `nodes` nodes confirmed this cause, and `more` are only suspected.
    pub(super) fn describe(self, count: usize, more: usize, nodes: usize) -> String {
        let how = match self {
            Self::Health => "report faults (health checks or BMC)",
            Self::Conformance => "differ from baselines with policy drain",
        };
        match more {
            0 => format!("{count} of {nodes} nodes {how}"),
            _ => format!(
                "{count} of {nodes} nodes {how}; {more} more are suspected, not confirmed yet"
            ),
        }
    }
}

/// Whether the node gossips a hardware fault. Faults of its executor are handled by the dispatcher.
fn is_faulty(entry: &NodeEntry) -> bool {
    let Some(seen) = &entry.gossip else {
        return false;
    };
    let codes = &seen.health_reasons;
    let is_executor = |code: &String| code.starts_with(EXECUTOR_REASONS);
    seen.health == Health::Faulty && (codes.is_empty() || !codes.iter().all(is_executor))
}
