//! Reports of agents about ranks.

use crate::AttemptKey;
use lattice_quorum_types::{
    command::RankReport,
    rpc::{Role, Rpc},
    wire::Unavailable,
};
use serde::{Deserialize, Serialize};

/// An agent's report of one rank. The agent repeats it until it receives a [`ReportAnswer`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Content of the report.
    pub report: RankReport,
}
impl Rpc for Report {
    const METHOD: &'static str = "control.report";
    const CALLERS: &'static [Role] = &[Role::Agent];
    type Reply = Result<ReportAnswer, Unavailable>;
}

/// Result of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportAnswer {
    /// The report is committed. The agent may delete the record of an ended attempt.
    Committed,
    /// The report is outdated: the allocation has another attempt, is unknown, or is terminal. The agent may delete its
    /// record.
    Superseded {
        /// Reason that the state machine gave.
        reason: String,
    },
}
