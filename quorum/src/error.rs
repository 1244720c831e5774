//! Errors that prevent a member from starting.

use crate::store::OpenError;
use lattice_mesh::{CaError, CredentialsError, MeshError};
use lattice_quorum_types::VoterId;

/// Reason why a member does not start. Existing data on disk is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used: another format, damage, or another process or owner.
    #[error(transparent)]
    Data(#[from] OpenError),
    /// The port is in use, or the socket cannot be opened.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The issuing key cannot be used.
    #[error("the authority for enrolment cannot be used")]
    Authority(#[from] CaError),
    /// The certificate is another process's.
    #[error(
        "the certificate is that of {found}, but this member is {expected}; correct `credentials`, \
         `cluster` or `id`"
    )]
    WrongIdentity {
        /// Identity in the certificate.
        found: String,
        /// Configured identity.
        expected: String,
    },
    /// This member is not in the list of members.
    #[error("member {id} is not among the members it was started with")]
    NotAMember {
        /// Number of this member.
        id: VoterId,
    },
    /// Raft did not start.
    #[error("the consensus engine did not start: {reason}")]
    Raft {
        /// Error text of Raft.
        reason: String,
    },
}

impl StartError {
    /// Returns whether another socket holds the address to bind.
    pub fn is_address_in_use(&self) -> bool {
        matches!(self, StartError::Mesh(MeshError::AddressInUse { .. }))
    }
}
