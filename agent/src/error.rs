//! Start errors of the agent.

use crate::attempt::RecordError;
use crate::data_dir::DataDirError;
use crate::executor::{OpenError, UserMapError};
use lattice_gossip::{InvalidCellName, JoinError};
use lattice_mesh::{CredentialsError, EnrolError, MeshError};
use lattice_quorum_types::NodeId;

/// Reason that an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The records of earlier attempts cannot be used.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// The executor cannot run jobs with this configuration.
    #[error(transparent)]
    Executor(#[from] OpenError),
    /// The site's user map cannot be used.
    #[error(transparent)]
    UserMap(#[from] UserMapError),
    /// The certificate or key cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The node has no certificate, and no join token is configured.
    #[error(
        "this node is not enrolled; set join.token_file and join.quorum (an operator makes a \
         token with `lattice admin token create --role agent`)"
    )]
    NotEnrolled,
    /// The certificate is no longer valid, and no join token is configured.
    #[error(
        "the certificate of this node {why}; make a token with `lattice admin token create --role \
         agent --nodes {node} --replace`, set join.token_file and join.replace, and start again"
    )]
    NoLongerMember {
        /// Name of this node.
        node: NodeId,
        /// Reason, in words.
        why: String,
    },
    /// No quorum member is configured for enrolment.
    #[error("join.quorum is empty: configure at least one quorum member for enrolment")]
    NoQuorum,
    /// Enrolment failed.
    #[error("this node could not enrol")]
    Enrol(#[from] EnrolError),
    /// The certificate is that of another node or role.
    #[error(
        "the certificate is that of {found}, but this is node {node}; correct `node`, or move the \
         data directory away and enrol again"
    )]
    OtherIdentity {
        /// Configured node name.
        node: NodeId,
        /// Identity in the certificate.
        found: String,
    },
    /// The mesh socket could not be opened or set up.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// Neither enrolment nor the configuration names a gossip cell.
    #[error("no gossip cell is known: set gossip.cell (enrolment did not return one)")]
    NoCell,
    /// Enrolment returned a name that is not a valid cell name.
    #[error(transparent)]
    Cell(#[from] InvalidCellName),
    /// The table of health checks cannot be used.
    #[error(transparent)]
    Health(#[from] lattice_conformance::health::TableError),
    /// The cell could not be joined.
    #[error(transparent)]
    Gossip(#[from] JoinError),
    /// `start` was called a second time.
    #[error("this agent was started before")]
    StartedBefore,
}
