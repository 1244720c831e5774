//! Checkpoint reports, common to all modes.

use lattice_quorum_types::UnixMillis;
use lattice_quorum_types::checkpoint::CheckpointFailure;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// One report of a job, or of the task that sends the request.
#[derive(Debug)]
pub(super) struct CheckpointMessage {
    /// Number of the checkpoint.
    pub(super) number: u32,
    pub(super) content: ReportContent,
    /// Receives the reply, if the reporter waits for one.
    pub(super) reply: Option<oneshot::Sender<Answer>>,
    /// Queue slot, held until the report is processed.
    pub(super) slot: Option<OwnedSemaphorePermit>,
}

/// End of the deferral, if the checkpoint was deferred; the error is for the job.
pub(super) type Answer = Result<Option<UnixMillis>, ReportRejection>;

/// Reason that a report is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReportRejection {
    /// The checkpoint is not requested, or no longer requested.
    NotRequested(String),
    /// The content of the report is invalid.
    Invalid(String),
}

/// Content of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReportContent {
    /// The request was sent; later reports are answers to it.
    RequestSent,
    /// The job is writing.
    Alive,
    /// The job requests a deferral.
    Deferral { for_ms: u64 },
    /// The job's part is complete.
    Complete { bytes: Option<u64> },
    /// The job cannot write the checkpoint.
    Declined(String),
    /// The destination cannot be prepared.
    DestinationUnavailable(String),
    /// Present obstacle to the request or its answer; `None`: the obstacle is gone.
    Obstacle(Option<NoAnswerReason>),
}

/// Reason that no answer arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoAnswerReason {
    pub(super) cause: CheckpointFailure,
    pub(super) why: String,
}

/// Sender of reports on one checkpoint.
#[derive(Debug, Clone)]
pub(super) struct ReportSender {
    pub(super) number: u32,
    pub(super) to: mpsc::UnboundedSender<CheckpointMessage>,
}

impl ReportSender {
    pub(super) fn send(&self, word: ReportContent) {
        // The receiver is gone once the job has ended.
        let _ = self.to.send(CheckpointMessage {
            number: self.number,
            content: word,
            reply: None,
            slot: None,
        });
    }

    pub(super) fn report_obstacle(&self, cause: CheckpointFailure, why: impl Into<String>) {
        let why = why.into();
        self.send(ReportContent::Obstacle(Some(NoAnswerReason { cause, why })));
    }

    pub(super) fn clear_obstacle(&self) {
        self.send(ReportContent::Obstacle(None));
    }
}
