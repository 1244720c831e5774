//! What an applied command comes to.

use super::IssuedCertificate;
use crate::{AllocationId, Event, Revision, UnixMillis, id::DagId};
use serde::{Deserialize, Serialize};

/// What an applied command returns to its proposer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing beyond "done".
    Done,
    /// The allocation submitted.
    Submitted {
        /// Its number.
        id: AllocationId,
    },
    /// The attempt an assignment began.
    Assigned {
        /// Its number.
        attempt: u32,
    },
    /// The lease granted.
    Leased {
        /// Fencing epoch.
        epoch: u64,
        /// Until when, in state time.
        expires_at: UnixMillis,
    },
    /// What may be issued; a repeat may issue the same again.
    Certified {
        /// As the first of the repeats asked.
        certificate: IssuedCertificate,
    },
    /// The version of the baseline that is in force.
    BaselineSet {
        /// Its number.
        version: u32,
    },
    /// The version of the vCluster that holds.
    VclusterSet {
        /// Its number.
        version: u32,
    },
    /// The graph submitted.
    DagSubmitted {
        /// Its number.
        id: DagId,
    },
    /// The checkpoint asked for.
    Checkpoint {
        /// Its number.
        number: u32,
    },
}

/// The result of an applied command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The revision it made, or the present one when nothing changed.
    pub revision: Revision,
    /// For the proposer.
    pub outcome: Outcome,
    /// For everyone; empty when nothing changed (a repeat, a renewal).
    pub events: Vec<Event>,
}
