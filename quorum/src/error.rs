//! Why a member does not start.

use crate::store::OpenError;
use lattice_mesh::{CaError, CredentialsError, MeshError};
use lattice_quorum_types::VoterId;

/// Why a member does not start. What is on disk is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used: a newer format, damage, another process or owner.
    #[error(transparent)]
    Data(#[from] OpenError),
    /// The port is taken, or the socket cannot be opened.
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
        /// As in the certificate.
        found: String,
        /// As configured.
        expected: String,
    },
    /// The list of members lacks this one.
    #[error("member {id} is not among the members it was started with")]
    NotAMember {
        /// This member.
        id: VoterId,
    },
    /// Raft did not start.
    #[error("the consensus engine did not start: {reason}")]
    Raft {
        /// What it said.
        reason: String,
    },
}

impl StartError {
    /// Whether another socket holds an address that was to be bound.
    pub fn is_address_in_use(&self) -> bool {
        matches!(self, StartError::Mesh(MeshError::AddressInUse { .. }))
    }
}
