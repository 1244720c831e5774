//! Node status: liveness, health, lifecycle, claim and use of a node combined into one word, the worst of them.

use super::node::NodeView;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use utoipa::ToSchema;

/// Combined status of a node, worst first: of several parts, the first in this order is the status.
///
/// The order has one exception to severity: a retired node is shown as retired, whatever else is known about it,
/// because it is no longer part of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeStatus {
    /// Permanently removed.
    Retired,
    /// The node is confirmed not to answer.
    Unreachable,
    /// The node missed pings.
    Suspect,
    /// A health check reports a fault that makes the node unusable.
    Faulty,
    /// Out of use until an operator has checked the node.
    Quarantined,
    /// The wipe after a node claim failed; the node cannot be used.
    Unclean,
    /// Drained and empty.
    Drained,
    /// Drained; the running allocation continues.
    Draining,
    /// The node gossips but is not registered.
    Unregistered,
    /// Registered, not yet in service.
    Joining,
    /// Liveness or health is not known, or not completely; the node gets no new allocation.
    Unknown,
    /// Usable, with a fault.
    Degraded,
    /// Released by its claimant and not wiped yet.
    Releasing,
    /// Held by an allocation.
    Allocated,
    /// Claimed by a user, and held by no allocation.
    Claimed,
    /// In service and free.
    Ready,
}

impl NodeStatus {
    /// All statuses, worst first.
    pub const ALL: [Self; 16] = [
        Self::Retired,
        Self::Unreachable,
        Self::Suspect,
        Self::Faulty,
        Self::Quarantined,
        Self::Unclean,
        Self::Drained,
        Self::Draining,
        Self::Unregistered,
        Self::Joining,
        Self::Unknown,
        Self::Degraded,
        Self::Releasing,
        Self::Allocated,
        Self::Claimed,
        Self::Ready,
    ];

    /// Combines the parts: the worst one is the status. A word that this version does not know counts as unknown.
    pub fn of(parts: &StatusParts<'_>) -> Self {
        let lifecycle = match parts.lifecycle {
            "ready" => Self::Ready,
            "retired" => Self::Retired,
            "quarantined" => Self::Quarantined,
            "drained" => Self::Drained,
            "draining" => Self::Draining,
            "unregistered" => Self::Unregistered,
            "joining" => Self::Joining,
            _ => Self::Unknown,
        };
        let liveness = match parts.liveness {
            "alive" => Self::Ready,
            "suspect" => Self::Suspect,
            "unreachable" => Self::Unreachable,
            _ => Self::Unknown,
        };
        let health = match parts.health {
            "healthy" => Self::Ready,
            "degraded" => Self::Degraded,
            "faulty" => Self::Faulty,
            _ => Self::Unknown,
        };
        let claim = match parts.claim {
            None => Self::Ready,
            Some("claimed") => Self::Claimed,
            Some("releasing") => Self::Releasing,
            Some("unclean") => Self::Unclean,
            Some(_) => Self::Unknown,
        };
        let usage = match parts.is_held {
            true => Self::Allocated,
            false => Self::Ready,
        };
        lifecycle.min(liveness).min(health).min(claim).min(usage)
    }

    /// Status of a node as shown.
    pub fn of_view(node: &NodeView) -> Self {
        Self::of(&StatusParts {
            lifecycle: &node.lifecycle,
            liveness: &node.liveness,
            health: &node.health.verdict,
            claim: node.claim.as_ref().map(|claim| claim.state.as_str()),
            is_held: node.holder.is_some(),
        })
    }

    /// Whether something is wrong with the node, or it is out of service or unknown.
    pub fn is_problem(self) -> bool {
        self <= Self::Degraded
    }

    /// Whether an allocation on the node probably does not work any more.
    pub fn is_severe(self) -> bool {
        matches!(self, Self::Unreachable | Self::Suspect | Self::Faulty)
    }

    /// Lower-case name as printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retired => "retired",
            Self::Unreachable => "unreachable",
            Self::Suspect => "suspect",
            Self::Faulty => "faulty",
            Self::Quarantined => "quarantined",
            Self::Unclean => "unclean",
            Self::Drained => "drained",
            Self::Draining => "draining",
            Self::Unregistered => "unregistered",
            Self::Joining => "joining",
            Self::Unknown => "unknown",
            Self::Degraded => "degraded",
            Self::Releasing => "releasing",
            Self::Allocated => "allocated",
            Self::Claimed => "claimed",
            Self::Ready => "ready",
        }
    }
}

impl fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Error of a word that is not a node status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a node status; write one of {}", names())]
pub struct InvalidNodeStatus {
    /// Word as given.
    pub text: String,
}

fn names() -> String {
    NodeStatus::ALL.map(NodeStatus::as_str).join(", ")
}

impl FromStr for NodeStatus {
    type Err = InvalidNodeStatus;

    fn from_str(text: &str) -> Result<Self, InvalidNodeStatus> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|status| status.as_str() == text);
        found.ok_or_else(|| InvalidNodeStatus {
            text: text.to_owned(),
        })
    }
}

/// Parts of a node's status, by their names in [`NodeView`].
#[derive(Debug, Clone, Copy)]
pub struct StatusParts<'a> {
    /// Lifecycle, or `unregistered`.
    pub lifecycle: &'a str,
    /// Liveness.
    pub liveness: &'a str,
    /// Health verdict.
    pub health: &'a str,
    /// State of the node claim; `None` without a claim.
    pub claim: Option<&'a str>,
    /// Whether an allocation holds the node.
    pub is_held: bool,
}

/// Nodes of an allocation with the same problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeProblemView {
    /// Combined status of the nodes, such as `unreachable`, `suspect`, `faulty` or `draining`.
    pub status: String,
    /// Nodes, as a hostlist.
    pub nodes: String,
    /// Reason for the status, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const FREE: StatusParts<'_> = StatusParts {
        lifecycle: "ready",
        liveness: "alive",
        health: "healthy",
        claim: None,
        is_held: false,
    };

    fn status(parts: StatusParts<'_>) -> &'static str {
        NodeStatus::of(&parts).as_str()
    }

    #[test]
    fn worst_part_is_the_status() {
        let unreachable = StatusParts {
            liveness: "unreachable",
            ..FREE
        };
        let suspect = StatusParts {
            liveness: "suspect",
            ..FREE
        };
        let drained = StatusParts {
            lifecycle: "drained",
            ..FREE
        };
        let held = StatusParts {
            is_held: true,
            ..FREE
        };
        let degraded = StatusParts {
            health: "degraded",
            ..FREE
        };
        let expected = [
            (FREE, "ready"),
            (unreachable, "unreachable"),
            (suspect, "suspect"),
            (drained, "drained"),
            (held, "allocated"),
            (degraded, "degraded"),
            (
                StatusParts {
                    health: "faulty",
                    ..unreachable
                },
                "unreachable",
            ),
            (
                StatusParts {
                    health: "faulty",
                    ..suspect
                },
                "suspect",
            ),
            (
                StatusParts {
                    health: "faulty",
                    ..drained
                },
                "faulty",
            ),
            (
                StatusParts {
                    health: "unknown",
                    ..drained
                },
                "drained",
            ),
            (
                StatusParts {
                    health: "unknown",
                    ..held
                },
                "unknown",
            ),
            (
                StatusParts {
                    health: "degraded",
                    ..held
                },
                "degraded",
            ),
            (
                StatusParts {
                    lifecycle: "draining",
                    ..held
                },
                "draining",
            ),
            (
                StatusParts {
                    claim: Some("claimed"),
                    ..held
                },
                "allocated",
            ),
            (
                StatusParts {
                    claim: Some("claimed"),
                    ..FREE
                },
                "claimed",
            ),
            (
                StatusParts {
                    claim: Some("unclean"),
                    ..drained
                },
                "unclean",
            ),
            (
                StatusParts {
                    lifecycle: "retired",
                    ..unreachable
                },
                "retired",
            ),
            (
                StatusParts {
                    lifecycle: "unregistered",
                    ..FREE
                },
                "unregistered",
            ),
            (
                StatusParts {
                    liveness: "a later word",
                    ..FREE
                },
                "unknown",
            ),
        ];
        for (parts, word) in expected {
            assert_eq!(status(parts), word, "{parts:?}");
        }
    }

    /// The names and the order of the list are those of the variants, and every name is read back.
    #[test]
    fn order_is_that_of_the_list() {
        assert!(NodeStatus::ALL.is_sorted());
        for status in NodeStatus::ALL {
            assert_eq!(status.as_str().parse::<NodeStatus>().unwrap(), status);
        }
        let error = "drian".parse::<NodeStatus>().unwrap_err().to_string();
        assert!(error.contains("\"drian\"") && error.contains("unreachable, suspect"));
        let severe = NodeStatus::ALL.into_iter().filter(|s| s.is_severe());
        assert_eq!(severe.count(), 3);
        assert!(NodeStatus::Degraded.is_problem() && !NodeStatus::Allocated.is_problem());
    }
}
