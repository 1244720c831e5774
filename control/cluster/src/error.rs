//! Errors of starting a cluster.

use lattice_mesh::{CredentialsError, MeshError};
use lattice_quorum::MemberStartError;
use lattice_quorum_types::NodeId;

/// A daemon or an endpoint of the cluster cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A certificate cannot be issued.
    #[error("cannot issue a certificate for {role}/{id}")]
    Credentials {
        /// Role in the certificate.
        role: &'static str,
        /// Name in the certificate.
        id: String,
        /// Cause.
        source: CredentialsError,
    },
    /// A quorum member cannot be started.
    #[error(transparent)]
    Member(#[from] MemberStartError),
    /// A control cannot be bound.
    #[error("control {name} cannot be bound")]
    Control {
        /// Name of the control.
        name: String,
        /// Cause.
        source: Box<lattice_control::StartError>,
    },
    /// The boot id of this machine cannot be read.
    #[error("boot id of this machine cannot be read")]
    BootId(#[source] std::io::Error),
    /// An agent cannot be started.
    #[error("agent {node} cannot be started")]
    Agent {
        /// Node of the agent.
        node: NodeId,
        /// Cause.
        source: Box<lattice_agent::StartError>,
    },
    /// The endpoint of an administrator cannot be opened.
    #[error("administrator {name} cannot open a mesh endpoint")]
    Administrator {
        /// Name of the administrator.
        name: String,
        /// Cause.
        source: Box<MeshError>,
    },
}
