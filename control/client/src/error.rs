//! Client errors.

use crate::context::ContextError;
use lattice_api::Problem;

/// Error of a call. The variants are those that a caller handles differently; see [`ClientError::exit_code`] for the
/// exit codes of the command line.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server understood and refused the request: a limit, nodes that cannot exist, a conflict with the present
    /// state, a revision that is no longer kept, or too many requests.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The object does not exist.
    #[error("{0}")]
    NotFound(Box<Problem>),
    /// The token is unknown, or its role does not permit the request.
    #[error("{0}")]
    NotAllowed(Box<Problem>),
    /// The request cannot be read, or can never be valid.
    #[error("{0}")]
    Invalid(Box<Problem>),
    /// The server answers, but the quorum or a node behind it does not. A retry may succeed.
    #[error("{0}")]
    Unavailable(Box<Problem>),
    /// The server reports an internal error.
    #[error("{0}")]
    Server(Box<Problem>),
    /// There is no complete answer: nothing listens there, the certificate is not trusted, the request timed out, or
    /// the connection broke.
    #[error("{url} cannot be reached")]
    Unreachable {
        /// Address of the server.
        url: String,
        /// Cause of the failure.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// This build of the SDK does not understand the answer.
    #[error("{url} sent an unexpected response: {reason}")]
    Protocol {
        /// URL of the request.
        url: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// There is no usable context.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The URL, certificate or token of the endpoint is invalid.
    #[error("the endpoint cannot be used: {reason}")]
    Endpoint {
        /// What is wrong with the endpoint.
        reason: String,
    },
}

impl ClientError {
    /// Returns the variant for the status of a problem.
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

    /// Returns the server's problem document, if there is one.
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

    /// Returns the exit code for a command: 1 refused, server error or unexpected answer; 2 invalid request or endpoint,
    /// unusable context file, or several demos; 3 unreachable, unavailable or no context; 4 not found; 5 not allowed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Context(ContextError::None) => 3,
            Self::Refused(_) | Self::Server(_) | Self::Protocol { .. } => 1,
            Self::Invalid(_) | Self::Endpoint { .. } | Self::Context(_) => 2,
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
    fn contexts_have_exit_codes_of_usage_except_a_missing_one() {
        let none = ClientError::from(ContextError::None);
        assert_eq!(none.exit_code(), 3);
        let several = ContextError::Several { demos: Vec::new() };
        assert_eq!(ClientError::from(several).exit_code(), 2);
        let path = "context.json".into();
        let other = ClientError::from(ContextError::OtherOwner { path });
        assert_eq!(other.exit_code(), 2);
    }

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
