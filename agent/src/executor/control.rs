//! Control as the receiver of an executor's reports.

use futures::future::BoxFuture;
use lattice_agent_rpc::{Report, ReportAnswer};

/// Reason that control has not accepted a report; the report is repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotReported {
    /// Reason, in words.
    pub reason: String,
}

/// Receiver of reports.
pub trait Control: Send + Sync + 'static {
    /// Sends the report once, with a timeout of its own.
    fn report(&self, report: Report) -> BoxFuture<'_, Result<ReportAnswer, NotReported>>;
}
