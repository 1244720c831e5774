//! Results of applied commands.

use super::IssuedCertificate;
use crate::{AllocationId, Event, Revision, UnixMillis, id::DagId};
use serde::{Deserialize, Serialize};

/// Value that an applied command returns to its proposer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The command returns no value.
    Done,
    /// An allocation was submitted.
    Submitted {
        /// Number of the allocation.
        id: AllocationId,
    },
    /// An assignment began an attempt.
    Assigned {
        /// Number of the attempt.
        attempt: u32,
    },
    /// A lease was granted.
    Leased {
        /// Fencing epoch of the lease.
        epoch: u64,
        /// Expiry of the lease, in state time.
        expires_at: UnixMillis,
    },
    /// A certificate may be issued. A repeat of the command may issue the same certificate again.
    Certified {
        /// Validity that the first of the repeated commands requested.
        certificate: IssuedCertificate,
    },
    /// A baseline was set.
    BaselineSet {
        /// Number of the version in force.
        version: u32,
    },
    /// A vCluster was set.
    VclusterSet {
        /// Number of the version in force.
        version: u32,
    },
    /// A DAG was submitted.
    DagSubmitted {
        /// Number of the DAG.
        id: DagId,
    },
    /// A checkpoint was requested.
    Checkpoint {
        /// Number of the checkpoint.
        number: u32,
    },
}

/// Result of an applied command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Revision that the command created, or the present revision if nothing changed.
    pub revision: Revision,
    /// Value for the proposer.
    pub outcome: Outcome,
    /// Events for watchers; empty when nothing changed (a repeat, a renewal).
    pub events: Vec<Event>,
}
