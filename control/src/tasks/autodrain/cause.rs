//! Why nodes are drained automatically: what makes one a candidate, what confirms it, and what is
//! said of it. Everything else is the same for all causes.

use crate::{
    bmc::Readings,
    core::Core,
    tasks::{
        faults,
        told::{self, Answer, Freshness, bmc::Bmc},
    },
    view::{EXECUTOR_REASONS, NodeEntry, View},
};
use lattice_placement::Health;
use lattice_quorum_types::NodeId;

/// One cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Its health checks or its BMC name something that needs the node empty.
    Health,
    /// It differs from a baseline that says to drain it.
    Conformance,
}

impl Cause {
    /// The more urgent first: both share one brake.
    pub(crate) const ALL: [Self; 2] = [Self::Health, Self::Conformance];

    /// The owner of the drain reason: the same for every control, so that the next one can clear it.
    pub(crate) const fn owner(self) -> &'static str {
        match self {
            Self::Health => "service:health",
            Self::Conformance => "service:conformance",
        }
    }

    /// This service's drain reason of a node.
    pub(super) fn own_reason(self, entry: &NodeEntry) -> Option<&str> {
        faults::reason_of(entry, self.owner())
    }

    /// Whether by what is gossiped of it, or by what its BMC told last, the node is to be asked.
    pub(super) fn suspects(self, bmcs: &Readings, entry: &NodeEntry) -> bool {
        match self {
            Self::Health => is_faulty(entry) || bmcs.drains_now(&entry.id),
            Self::Conformance => entry.effect.as_ref().is_some_and(|e| e.drain.is_some()),
        }
    }

    /// Whether it may be asked if nothing is left of the cause. Of its health it always may: others
    /// can gossip of it what they like, and a site's table may call faulty what drains nobody.
    pub(super) fn may_be_over(self, view: &View, entry: &NodeEntry) -> bool {
        match self {
            Self::Health => true,
            Self::Conformance => entry.effect.as_ref().is_none_or(|effect| {
                effect.drain.is_none()
                    && !effect.drain_unknown
                    && effect.is_of(entry, &view.baselines)
            }),
        }
    }

    /// Whether a drain that was wanted under the baselines of that number is wanted now.
    pub(super) fn still_wanted(
        self,
        bmcs: &Readings,
        now: &View,
        number: u64,
        node: &NodeId,
    ) -> bool {
        let is_same_question = match self {
            Self::Health => true,
            Self::Conformance => now.baselines.number == number,
        };
        now.brake.is_none()
            && is_same_question
            && now
                .node(node)
                .is_some_and(|entry| self.suspects(bmcs, entry))
    }

    /// Asks the node itself, and its BMC, now. Who cannot be asked confirms nothing.
    pub(super) async fn ask(self, core: &Core, view: &View, entry: &NodeEntry) -> Answer {
        let (node, now) = (&entry.id, &Freshness::NOW);
        let bmc = Bmc::new(core, node, now, self.owner());
        let said = match self {
            Self::Health => told::health::ask(core, view, node, now, &bmc).await,
            Self::Conformance => told::conformance::ask(core, view, entry, now, &bmc).await,
        };
        said.unwrap_or_else(|error| Answer::Unknown(error.to_string()))
    }

    /// So many of so many nodes by their own word, for who is asked about the brake; and how many more
    /// are only said to be so.
    pub(super) fn of_nodes(self, count: usize, more: usize, nodes: usize) -> String {
        let how = match self {
            Self::Health => "are faulty by their own checks or their BMC's word",
            Self::Conformance => "differ from baselines that say to drain them",
        };
        match more {
            0 => format!("{count} of {nodes} nodes {how}"),
            _ => format!("{count} of {nodes} nodes {how} and {more} more are still to be asked"),
        }
    }
}

/// Whether it gossips a fault of its hardware. What keeps its executor from taking work is the
/// dispatcher's matter.
fn is_faulty(entry: &NodeEntry) -> bool {
    let Some(seen) = &entry.seen else {
        return false;
    };
    let codes = &seen.health_reasons;
    let is_executor = |code: &String| code.starts_with(EXECUTOR_REASONS);
    seen.health == Health::Faulty && (codes.is_empty() || !codes.iter().all(is_executor))
}
