//! Why a call did not return what was asked for.

use crate::context::ContextError;
use lattice_api::Problem;

/// A call that failed. The kinds are those a caller acts on differently; a command line gives each
/// its own exit code.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Understood, judged and refused: a limit, a conflict with the present state, too often.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// No such thing.
    #[error("{0}")]
    NotFound(Box<Problem>),
    /// The token is unknown, or its role does not permit it.
    #[error("{0}")]
    NotAllowed(Box<Problem>),
    /// The request cannot be read, or can never be right.
    #[error("{0}")]
    Invalid(Box<Problem>),
    /// The server answers, but the quorum or a node behind it does not. Trying again may help.
    #[error("{0}")]
    Unavailable(Box<Problem>),
    /// The server reports a fault of its own.
    #[error("{0}")]
    Server(Box<Problem>),
    /// No answer: nothing listens there, the certificate is not trusted, or the time ran out.
    #[error("{url} cannot be reached")]
    Unreachable {
        /// Where the server was expected.
        url: String,
        /// What happened.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer is not what this build of the SDK understands.
    #[error("{url} answered what is not understood: {reason}")]
    Protocol {
        /// What was asked.
        url: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// No context tells which cluster is meant.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The endpoint's URL, certificate or token cannot be used at all.
    #[error("the endpoint cannot be used: {reason}")]
    Endpoint {
        /// What is wrong with it.
        reason: String,
    },
}

impl ClientError {
    /// The kind that belongs to a problem's status.
    pub fn from_problem(problem: Problem) -> Self {
        let problem = Box::new(problem);
        match problem.status {
            401 | 403 => Self::NotAllowed(problem),
            404 => Self::NotFound(problem),
            409 | 410 | 422 | 429 => Self::Refused(problem),
            503 => Self::Unavailable(problem),
            400..500 => Self::Invalid(problem),
            _ => Self::Server(problem),
        }
    }

    /// What the server said, where it said something.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(p)
            | Self::NotFound(p)
            | Self::NotAllowed(p)
            | Self::Invalid(p)
            | Self::Unavailable(p)
            | Self::Server(p) => Some(p),
            Self::Unreachable { .. }
            | Self::Protocol { .. }
            | Self::Context(_)
            | Self::Endpoint { .. } => None,
        }
    }

    /// The exit code of a command that ends with this: 1 refused (or the server's fault), 2 usage,
    /// 3 unreachable, 4 not found, 5 not allowed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Context(ContextError::None) => 3,
            Self::Refused(_) | Self::Server(_) | Self::Protocol { .. } | Self::Context(_) => 1,
            Self::Invalid(_) | Self::Endpoint { .. } => 2,
            Self::Unreachable { .. } | Self::Unavailable(_) => 3,
            Self::NotFound(_) => 4,
            Self::NotAllowed(_) => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_api::problem::Kind;

    #[test]
    fn every_kind_of_problem_has_its_exit_code() {
        for (kind, code) in [
            (Kind::Invalid, 2),
            (Kind::MediaType, 2),
            (Kind::Unauthenticated, 5),
            (Kind::Forbidden, 5),
            (Kind::NotFound, 4),
            (Kind::Impossible, 1),
            (Kind::Conflict, 1),
            (Kind::TooMany, 1),
            (Kind::Gone, 1),
            (Kind::Unavailable, 3),
            (Kind::Internal, 1),
        ] {
            let error = ClientError::from_problem(Problem::new(kind, "x", "why"));
            assert_eq!(error.exit_code(), code, "{kind:?}");
            assert_eq!(error.to_string(), "why");
        }
    }
}
