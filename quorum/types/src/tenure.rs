//! Nodes that belong to one user until they are given back. People call that a claim
//! (`lattice node claim`); here a claim is what a *node* says of itself ([`crate::claim`]), and what
//! a user has of a node is a tenure. See `quorum/0007-tenure.md`.

use crate::{AllocationId, NodeId, ProjectPath, UnixMillis, VclusterName, node::Lifecycle};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Nodes that a refusal's text names; its fields have all of them.
const MAX_NAMED: usize = 16;

/// A node belongs to one user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenure {
    /// Who claimed it.
    pub user: String,
    /// For which project, whose limits it counts against.
    pub project: ProjectPath,
    /// What for, in the user's words; may be empty.
    pub purpose: String,
    /// Since when.
    pub since: UnixMillis,
    /// Where it stands.
    pub phase: TenurePhase,
    /// The allocation from which the node was taken by force. That one counts the node until it ends,
    /// and so nothing else does.
    pub counted_by: Option<AllocationId>,
}

/// Where a tenure stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenurePhase {
    /// Takes sensitive work of its user in its project, and nothing else.
    Claimed,
    /// Given back. It takes nothing until its wipe is confirmed.
    Releasing {
        /// Names the wipe that is waited for: another number with each order.
        wipe: u64,
        /// Since when.
        since: UnixMillis,
        /// When the user, or an administrator for them, gave it back.
        released_at: UnixMillis,
        /// A wipe before this one failed.
        has_failed: bool,
    },
    /// Its wipe failed: it is quarantined until an administrator has it wiped again, or answers
    /// for it.
    Unclean {
        /// Which one failed.
        wipe: u64,
        /// How.
        reason: String,
        /// Since when.
        since: UnixMillis,
        /// As in [`TenurePhase::Releasing`].
        released_at: UnixMillis,
    },
}

impl Tenure {
    /// Whether it takes its user's work.
    pub fn is_open(&self) -> bool {
        self.phase == TenurePhase::Claimed
    }

    /// Whether it is this user's, for this project, and takes their work.
    pub fn is_open_to(&self, user: &str, project: &ProjectPath) -> bool {
        self.is_open() && self.user == user && self.project == *project
    }

    /// Whether a wipe after it has failed: then the node is quarantined.
    pub fn has_failed(&self) -> bool {
        match self.phase {
            TenurePhase::Claimed => false,
            TenurePhase::Releasing { has_failed, .. } => has_failed,
            TenurePhase::Unclean { .. } => true,
        }
    }

    /// The wipe it waits for.
    pub fn awaits_wipe(&self) -> Option<u64> {
        match self.phase {
            TenurePhase::Releasing { wipe, .. } => Some(wipe),
            TenurePhase::Claimed | TenurePhase::Unclean { .. } => None,
        }
    }
}

impl TenurePhase {
    /// Lower-case name as printed.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Releasing { .. } => "releasing",
            Self::Unclean { .. } => "unclean",
        }
    }
}

/// What became of a wipe, by the node's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WipeOutcome {
    /// The site's hook ran from its beginning to its end, and passed.
    Wiped {
        /// By the node's clock.
        at: UnixMillis,
        /// Under which boot.
        boot: String,
        /// What it said last.
        evidence: String,
    },
    /// The site says in the agent's configuration that there is nothing to wipe.
    NotNeeded {
        /// By the node's clock.
        at: UnixMillis,
        /// Under which boot.
        boot: String,
    },
    /// It failed, was cut short, or there is no hook.
    Failed {
        /// By the node's clock.
        at: UnixMillis,
        /// Under which boot.
        boot: String,
        /// How.
        reason: String,
    },
}

impl fmt::Display for WipeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wiped { evidence, .. } if evidence.is_empty() => f.write_str("wiped"),
            Self::Wiped { evidence, .. } => write!(f, "wiped: {evidence}"),
            Self::NotNeeded { .. } => f.write_str("the site says that nothing is to be wiped"),
            Self::Failed { reason, .. } => write!(f, "not wiped: {reason}"),
        }
    }
}

/// A node that cannot be had, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The node.
    pub node: NodeId,
    /// Whose it is.
    pub by: TakenBy,
}

/// Whose a node is that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakenBy {
    /// An allocation holds it.
    Allocation {
        /// Which.
        id: AllocationId,
        /// Whose.
        user: String,
    },
    /// A user has claimed it.
    User {
        /// Who.
        user: String,
        /// For which project.
        project: ProjectPath,
        /// Where that stands.
        phase: TenurePhase,
    },
    /// Nobody's, but it is not in service.
    OutOfService {
        /// What is intended for it.
        lifecycle: Lifecycle,
    },
    /// Nobody's, but it is not as it was when the asker looked.
    Changed,
    /// It belongs to a vCluster that was not named as the one to take it from.
    Vcluster {
        /// Which.
        home: VclusterName,
    },
    /// An allocation gets it next: others make room for that one.
    Promised {
        /// Which.
        id: AllocationId,
    },
}

impl fmt::Display for TakenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocation { id, user } => write!(f, "is held by allocation {id} of {user}"),
            Self::User {
                user,
                project,
                phase: TenurePhase::Claimed,
            } => write!(f, "is claimed by {user} for project \"{project}\""),
            Self::User {
                user,
                phase: TenurePhase::Releasing { .. },
                ..
            } => write!(f, "was given back by {user} and is not wiped yet"),
            Self::User {
                user,
                phase: TenurePhase::Unclean { reason, .. },
                ..
            } => write!(f, "could not be wiped after {user}: {reason}"),
            Self::OutOfService { lifecycle } => write!(f, "is {lifecycle}"),
            Self::Changed => f.write_str("has changed since it was looked at"),
            Self::Vcluster { home } => write!(f, "belongs to vCluster \"{home}\""),
            Self::Promised { id } => write!(f, "is promised to allocation {id}"),
        }
    }
}

/// As text: the first nodes with why, and how many there are besides.
pub(crate) fn fmt_taken(f: &mut fmt::Formatter<'_>, nodes: &[Taken]) -> fmt::Result {
    for (i, Taken { node, by }) in nodes.iter().take(MAX_NAMED).enumerate() {
        let separator = if i == 0 { " " } else { "; " };
        write!(f, "{separator}node {node} {by}")?;
    }
    match nodes.len().saturating_sub(MAX_NAMED) {
        0 => Ok(()),
        more => write!(f, "; and {more} nodes more"),
    }
}
