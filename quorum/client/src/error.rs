//! Why a proposal or a read has no answer. A refusal is an answer.

use lattice_mesh::CallError;
use std::time::Duration;

/// Why a proposal or a read has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The client was made without a single address.
    #[error("no address of a quorum member is configured")]
    NoMembers,
    /// Nobody could answer in time. Nothing was committed.
    #[error("the quorum did not answer within {} ms: {reason}", .after.as_millis())]
    Unavailable {
        /// How long was tried.
        after: Duration,
        /// What the last try met.
        reason: String,
    },
    /// The command may have been committed, or may still be. It has an idempotency key: propose
    /// it again with the same key and the first outcome is the answer.
    #[error(
        "the outcome is not known ({reason}); propose the same command again with the same \
         idempotency key"
    )]
    OutcomeUnknown {
        /// What the last try met.
        reason: String,
    },
    /// The command may have been committed, or may still be. Without an idempotency key it was
    /// not repeated, since it could be applied twice.
    #[error(
        "the outcome is not known ({reason}); the command has no idempotency key and was not \
         repeated: read the state before proposing it again"
    )]
    OutcomeUnknownWithoutKey {
        /// What the try met.
        reason: String,
    },
    /// A member turned the request down for good: wrong role, other version, too large.
    #[error(transparent)]
    Rejected(CallError),
    /// The client was dropped, or its runtime ended.
    #[error("this quorum client is shut down")]
    Closed,
}
