//! Errors of starting a control.

use lattice_engine::{bmc::BmcFileError, history::HistoryError, inputs::SourceError};
use lattice_gossip::JoinError;
use lattice_host::private_file::ExposedFile;
use lattice_http::{AuthError, HttpsIdentityError, IssuerError};
use lattice_mesh::{CredentialsError, EnrolError, MeshError};
use std::{net::SocketAddr, path::PathBuf};

/// Reason why a control does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The UDP port is taken, or the mesh endpoint cannot be opened or served.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The TCP port is taken.
    #[error(
        "TCP address {addr} is in use by another process; stop it (`ss -tlpn` names it) or choose \
         another port"
    )]
    AddressInUse {
        /// Configured address.
        addr: SocketAddr,
    },
    /// The TCP socket cannot be opened or served.
    #[error("cannot listen on TCP {addr}: {reason}")]
    Listen {
        /// Configured address.
        addr: SocketAddr,
        /// Error text of the operating system.
        reason: String,
    },
    /// Other users of this host can read the tokens file.
    #[error("tokens: {0}; any user that can read the file can use its tokens")]
    TokensExposed(ExposedFile),
    /// Other users of this host can read the file with the join token.
    #[error("join.token: {0}; any user that can read the file can enrol with its token")]
    TokenExposed(ExposedFile),
    /// Other users of this host can read the private key of the TLS port.
    #[error("https.key: {0}; any user that can read the key can impersonate this control")]
    KeyExposed(ExposedFile),
    /// The BMC file cannot be used.
    #[error(transparent)]
    Bmcs(#[from] BmcFileError),
    /// A source of scheduling input cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The client of the accounting system cannot be created.
    #[error("accounting: {0}")]
    Accounting(#[from] lattice_waldur::client::ClientError),
    /// The client of the OIDC issuer cannot be created.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// The node history cannot be opened.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The credentials cannot be read, used or saved.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// Enrolment failed.
    #[error("enrolment failed")]
    Enrol(#[from] EnrolError),
    /// Enrolment is not possible: no quorum member is configured.
    #[error("enrolment failed: no quorum member is configured; set `quorum`")]
    NoQuorum,
    /// The certificate belongs to another cluster, or not to a control.
    #[error(
        "the certificate belongs to {found}, expected {expected}; correct `credentials` or `cluster`"
    )]
    WrongIdentity {
        /// Identity in the certificate.
        found: String,
        /// Identity required by the configuration.
        expected: String,
    },
    /// A file or folder named by the configuration cannot be used.
    #[error("{key}: {}: {reason}", .path.display())]
    File {
        /// Configuration key.
        key: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Reason why the file cannot be used.
        reason: String,
    },
    /// Certificate and key of the TLS port cannot be used.
    #[error(transparent)]
    Tls(#[from] HttpsIdentityError),
    /// The given tokens are not a valid list.
    #[error("the tokens cannot be used")]
    Tokens(#[from] AuthError),
    /// The content of the tokens file is not a valid list of tokens.
    #[error("tokens: {}", .path.display())]
    TokensFile {
        /// Path of the tokens file.
        path: PathBuf,
        /// Reason why the content is invalid.
        source: AuthError,
    },
    /// [`crate::App::start`] was called before.
    #[error("this control is already started")]
    StartedBefore,
    /// A gossip cell cannot be joined.
    #[error(transparent)]
    Gossip(#[from] JoinError),
    /// The name of a lease is invalid.
    #[error("{reason}")]
    Name {
        /// Reason why the name is invalid.
        reason: String,
    },
}

impl StartError {
    /// Whether another socket holds an address that this control was to bind.
    pub fn is_address_in_use(&self) -> bool {
        matches!(
            self,
            StartError::Mesh(MeshError::AddressInUse { .. }) | StartError::AddressInUse { .. }
        )
    }
}
