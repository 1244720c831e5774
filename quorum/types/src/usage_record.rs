//! Usage records: the append-only log of resource usage for billing.
//!
//! Usage records are rows of an append-only table of the state, so a reader can restart at any row.
//!
//! The records contain node time only. GPU-hours are derived from the nodes' inventory, which the quorum does not hold.

use crate::{
    AllocationId, AllocationState, NodeId, ProjectPath, Revision, UnixMillis, VclusterName,
    budget::SoftLimits, limit::Limits, restoration::is_restored_between,
};
use serde::{Deserialize, Serialize};

/// One usage record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// Sequence number, starting at 1.
    pub number: u64,
    /// Revision that created the record.
    pub revision: Revision,
    /// Position among the records of that revision, from 0. Revision and position identify the record permanently.
    pub ordinal: u32,
    /// State time of the record.
    pub at: UnixMillis,
    /// Recorded event.
    pub kind: UsageRecordKind,
}

/// Event that a usage record describes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageRecordKind {
    /// All ranks of an attempt run: its nodes are in use from now on.
    Started {
        /// The allocation.
        work: AccountedAllocation,
        /// Nodes that are now in use.
        nodes: Vec<NodeId>,
        /// Remaining walltime, milliseconds; `None`: unbounded.
        walltime_ms: Option<u64>,
    },
    /// A running allocation uses more nodes.
    Grew {
        /// The allocation.
        work: AccountedAllocation,
        /// Nodes that were added.
        nodes: Vec<NodeId>,
    },
    /// An allocation that has not ended stopped using nodes: it shrank, was suspended, or is queued again.
    Used {
        /// The allocation.
        work: AccountedAllocation,
        /// Nodes that are no longer in use, with the period of use.
        uses: Vec<UsagePeriod>,
    },
    /// An allocation ended.
    Completed {
        /// The allocation.
        work: AccountedAllocation,
        /// Terminal state.
        state: AllocationState,
        /// Cause; `None` if the allocation ended by itself.
        cause: Option<String>,
        /// Time at which the first attempt began to run.
        started_at: Option<UnixMillis>,
        /// Nodes that were in use until now, with the period of use.
        uses: Vec<UsagePeriod>,
        /// Usage of all attempts together, node-milliseconds.
        node_ms: u64,
    },
    /// A checkpoint is complete.
    Checkpointed {
        /// The allocation.
        work: AccountedAllocation,
        /// Number of the checkpoint.
        number: u32,
        /// Size, bytes; `None` if a rank did not report its size.
        bytes: Option<u64>,
        /// Duration, milliseconds.
        took_ms: u64,
    },
    /// A user claimed nodes. The nodes are idle until an allocation of that user runs on them.
    Claimed {
        /// The node claim.
        claim: Claimant,
        /// Claimed nodes.
        nodes: Vec<NodeId>,
    },
    /// Claimed nodes are idle from now on.
    Idles {
        /// The node claim.
        claim: Claimant,
        /// Idle nodes.
        nodes: Vec<NodeId>,
    },
    /// Claimed nodes were idle until now.
    Idled {
        /// The node claim.
        claim: Claimant,
        /// Nodes that were idle, with the period.
        uses: Vec<UsagePeriod>,
    },
    /// The node claim of a node ended.
    Released {
        /// The former node claim.
        claim: Claimant,
        /// Released node.
        node: NodeId,
        /// Time at which the user claimed the node.
        claimed_at: UnixMillis,
        /// Time at which the claim was released.
        released_at: UnixMillis,
        /// Description of the wipe's result.
        wipe: String,
        /// Whether the node reported a successful wipe, or the site's configuration requires no wipe.
        wiped: bool,
    },
    /// The limits of a tenant changed.
    LimitsChanged {
        /// Tenant.
        tenant: ProjectPath,
        /// New hard limits.
        limits: Limits,
        /// New soft limits.
        soft: SoftLimits,
        /// Principal that changed the limits.
        by: String,
    },
}

/// An allocation with its owner and its vCluster, for a usage record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccountedAllocation {
    /// Allocation number.
    pub allocation: AllocationId,
    /// Attempt number; 0 for an allocation that never had nodes.
    pub attempt: u32,
    /// User that submitted the allocation.
    pub user: String,
    /// Project of the allocation.
    pub project: ProjectPath,
    /// vCluster of the allocation.
    pub vcluster: VclusterName,
    /// Whether the allocation is sensitive.
    pub sensitive: bool,
}

/// Holder of a node claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claimant {
    /// User that claimed the nodes.
    pub user: String,
    /// Project for which the nodes are claimed.
    pub project: ProjectPath,
    /// Home vCluster of the nodes.
    pub vcluster: VclusterName,
}

/// A period during which nodes were in use, or claimed and idle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsagePeriod {
    /// Nodes in use.
    pub nodes: Vec<NodeId>,
    /// Start of the period.
    pub from: UnixMillis,
    /// End of the period.
    pub until: UnixMillis,
}

impl UsagePeriod {
    /// Node-milliseconds: the number of nodes times the period.
    pub fn node_ms(&self) -> u64 {
        let nodes = self.nodes.len() as u64;
        nodes.saturating_mul(self.until.since(self.from))
    }
}

/// Nodes that are in use, or claimed and idle, at present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenUse {
    /// User of the nodes.
    pub by: NodeUser,
    /// Nodes in use.
    pub nodes: Vec<NodeId>,
    /// Start of the period.
    pub from: UnixMillis,
}

/// User of nodes: an allocation or a node claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeUser {
    /// An allocation.
    Work(AccountedAllocation),
    /// A node claim, for its idle nodes.
    Claim(Claimant),
}

/// Head of the usage records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecordsHead {
    /// Number of the last record; 0 before the first.
    pub last: u64,
    /// Number of the last record that the accounting system acknowledged.
    pub acknowledged: u64,
    /// Number of acknowledged records that the accounting system never received.
    pub dropped: u64,
    /// Revision at which the head was read.
    pub revision: Revision,
    /// State time at that revision.
    pub at: UnixMillis,
}

impl UsageRecordsHead {
    /// Whether the quorum was restored from a backup after a read of the records up to `last` at revision `read_at`
    /// (`None`: unknown). The records of a restored cluster continue after those of the backup, so they use the numbers
    /// of the lost records again. Fewer records than were read show the restore, and otherwise the revision does.
    pub fn is_restored_since(&self, last: u64, read_at: Option<Revision>) -> bool {
        let is_later = |read_at| is_restored_between(read_at, self.revision);
        self.last < last || read_at.is_some_and(is_later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restoration::REVISION_GAP;

    #[test]
    fn restore_shows_in_last_record_or_revision() {
        let head = |last, revision| UsageRecordsHead {
            last,
            revision: Revision(revision),
            ..UsageRecordsHead::default()
        };
        let read_at = Some(Revision(40));
        assert!(!head(7, 40).is_restored_since(7, read_at));
        assert!(!head(9, 45).is_restored_since(7, read_at));
        assert!(head(6, 45).is_restored_since(7, read_at));
        // The backup was made at revision 30, and the restored cluster has as many records as were read, or more.
        for last in [7, 9] {
            let restored = head(last, 30 + REVISION_GAP + 5);
            assert!(restored.is_restored_since(7, read_at), "{last}");
            assert!(!restored.is_restored_since(7, None), "{last}");
        }
    }
}
