//! Client errors: reasons why a request to the quorum has no answer. A refusal is an answer.

use lattice_mesh::CallError;
use std::time::Duration;

/// Reason why a request to the quorum has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The client has no address of a member.
    #[error("no address of a quorum member is configured")]
    NoMembers,
    /// The quorum did not answer in time. For a proposal: nothing was committed, except earlier parts of a
    /// [`crate::QuorumClient::propose_all`] that takes several requests.
    #[error("the quorum did not answer within {} ms: {reason}", .after.as_millis())]
    Unavailable {
        /// Duration of all attempts.
        after: Duration,
        /// Error of the last attempt.
        reason: String,
    },
    /// The command may have been committed, or may still be committed. A caller proposes a command with an idempotency
    /// key again under the same key, and receives the first outcome.
    #[error(
        "the outcome is unknown ({reason}); propose the same command again with the same \
         idempotency key"
    )]
    OutcomeUnknown {
        /// Error of the last attempt.
        reason: String,
    },
    /// The command may have been committed, or may still be committed. It has no idempotency key and was not repeated,
    /// since it could be applied twice.
    #[error(
        "the outcome is unknown ({reason}); the command has no idempotency key and was not \
         repeated: read the state before proposing it again"
    )]
    OutcomeUnknownWithoutKey {
        /// Error of the attempt.
        reason: String,
    },
    /// A member permanently rejected the request: wrong role, other version, too large.
    #[error(transparent)]
    Rejected(CallError),
    /// The client was dropped, or its runtime ended.
    #[error("this quorum client is shut down")]
    Closed,
}
