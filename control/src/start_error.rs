//! Why a control does not start.

use crate::{
    bmc::BmcFileError,
    history::HistoryError,
    http::{AuthError, IssuerError},
    inputs::SourceError,
};
use lattice_gossip::JoinError;
use lattice_host::private_file::ExposedFile;
use lattice_mesh::{CredentialsError, EnrolError, MeshError};
use std::{net::SocketAddr, path::PathBuf};

/// Why a control does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The UDP port is taken, or the socket cannot be opened.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The TCP port is taken.
    #[error(
        "TCP address {addr} is in use by another process; stop it (`ss -tlpn` names it) or choose \
         another port"
    )]
    AddressInUse {
        /// The address asked for.
        addr: SocketAddr,
    },
    /// The TCP socket cannot be opened.
    #[error("cannot listen on TCP {addr}: {reason}")]
    Listen {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system said.
        reason: String,
    },
    /// Others on this host can read the file of tokens.
    #[error("tokens: {0}, because each reader of this file can act with its tokens")]
    TokensExposed(ExposedFile),
    /// The file of BMCs cannot be used.
    #[error(transparent)]
    Bmcs(#[from] BmcFileError),
    /// A source of scheduling cannot be asked.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// An accounting system cannot be told.
    #[error("accounting: {0}")]
    Accounting(#[from] lattice_accounting::waldur::ClientError),
    /// The issuer of tokens cannot be asked.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// The history of the nodes cannot be opened.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// This control could not become a member.
    #[error("not enrolled")]
    Enrol(#[from] EnrolError),
    /// There is nobody to enrol with.
    #[error("not enrolled: no quorum member is configured")]
    NoQuorum,
    /// The certificate is another process's.
    #[error(
        "the certificate is that of {found}, but a control of this cluster is {expected}; correct \
         `credentials` or `cluster`"
    )]
    WrongIdentity {
        /// As in the certificate.
        found: String,
        /// As configured.
        expected: String,
    },
    /// A file that the configuration names.
    #[error("{key}: {}: {reason}", .path.display())]
    File {
        /// The configuration key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate and key of the TLS port do not make a server.
    #[error("https: certificate and key cannot be used: {reason}")]
    Tls {
        /// What rustls said.
        reason: String,
    },
    /// The tokens cannot be used.
    #[error("the tokens cannot be used")]
    Tokens(#[from] AuthError),
    /// The file of tokens cannot be used.
    #[error("tokens: {}", .path.display())]
    TokensFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: AuthError,
    },
    /// [`crate::App::start`] was called before.
    #[error("this control was started before")]
    StartedBefore,
    /// A gossip cell cannot be joined.
    #[error(transparent)]
    Gossip(#[from] JoinError),
    /// A name made from the configuration is not one.
    #[error("{reason}")]
    Name {
        /// What is wrong.
        reason: String,
    },
}

impl StartError {
    /// Whether another socket holds an address that was to be bound.
    pub fn is_address_in_use(&self) -> bool {
        matches!(
            self,
            StartError::Mesh(MeshError::AddressInUse { .. }) | StartError::AddressInUse { .. }
        )
    }
}
