//! Enrolment, client side: a process with a join token obtains a certificate.

use super::{
    proof::{self, CaProofFault},
    rate_wait::repeat_while_limited,
    request::{EXCHANGE_TIMEOUT, WireRequest},
};
use crate::{
    Credentials, CredentialsError, EnrolRefused, Identity, InvalidIdentity, Issued, JoinToken,
    KeyAndCsr, MeshConfig, MeshError, Pin,
    encoding::{decode, encode},
    pki::{certificate::CertificateFields, pin::join_pins},
    rpc::frame::{ENROL, Status, read_frame, request_bytes},
    transport::{
        close::{CLOSE_DONE, CLOSE_RATE_LIMITED},
        dial_error::{ALERT_BUSY, alert, dial_error},
        tls::{SERVER_NAME, enrol_config},
    },
};
use quinn::{Connection, ConnectionError};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer};
use secrecy::ExposeSecret;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Longest answer, bytes: a chain and some roots.
const MAX_ANSWER_BYTES: usize = 256 << 10;

/// Result of an enrolment.
#[derive(Debug, Clone)]
pub struct Enrolment {
    /// Credentials, ready for [`crate::Mesh::bind`] and [`Credentials::save`].
    pub credentials: Credentials,
    /// Gossip cell, for agents.
    pub cell: Option<String>,
}

/// Error of an enrolment.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The server proved that it belongs to a pinned authority neither by its certificate nor by a key.
    #[error(
        "the server at {addr} did not prove that it belongs to the cluster of this token (CA pin {}); the secret was not sent to it. {}", join_pins(.pins, " or "), pin_mismatch_advice(.shown.as_ref())
    )]
    PinMismatch {
        /// Address of the server.
        addr: SocketAddr,
        /// Pins of the token.
        pins: Vec<Pin>,
        /// Another authority that the server presents as its own, if any. Nothing proves that claim.
        shown: Option<Pin>,
    },
    /// The server refused the enrolment.
    #[error(transparent)]
    Refused(#[from] EnrolRefused),
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidIdentity),
    /// The server could not be reached, or the local endpoint could not be set up.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The connection broke; the token may be used up.
    #[error("enrolment at {addr} was interrupted: {reason}")]
    Lost {
        /// Address of the server.
        addr: SocketAddr,
        /// Cause in words.
        reason: String,
    },
    /// The issued certificate does not match the request.
    #[error("the server issued a certificate that differs from the request: {reason}")]
    WrongCertificate {
        /// Reason in words.
        reason: String,
    },
    /// The process was stopped while it waited for the rate limit.
    #[error(
        "the enrolment was cancelled while it waited for the rate limit; start the process again to enrol"
    )]
    Cancelled,
    /// The key could not be created, or the certificate is not usable.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Returns advice for the operator.
fn pin_mismatch_advice(shown: Option<&Pin>) -> String {
    let make = "make a new one with `lattice admin token create`";
    match shown {
        Some(shown) => format!(
            "Either the server belongs to another cluster, or the authority of this token was \
             retired and replaced by authority {shown}; in the latter case, {make}"
        ),
        None => format!("If the cluster's authority was changed since the token was made, {make}"),
    }
}

impl EnrolError {
    /// Returns whether another member would give the same answer: one member decides for the cluster.
    pub fn is_final(&self) -> bool {
        use EnrolRefused::{Invalid, NameTaken, TokenRefused};
        matches!(
            self,
            Self::Refused(TokenRefused | NameTaken { .. } | Invalid { .. })
                | Self::Name(_)
                | Self::Credentials(_)
        )
    }

    /// Returns the wait that a member requested before the next try; `None` for other errors.
    pub fn requested_wait(&self) -> Option<Duration> {
        match self {
            Self::Refused(EnrolRefused::RateLimited { retry_in_ms }) => {
                Some(Duration::from_millis(*retry_in_ms))
            }
            _ => None,
        }
    }

    /// Returns the more informative error of two members: the shorter of two requested waits, else a requested wait,
    /// else a member's refusal rather than another member's absence.
    fn or_better(self, other: Self) -> Self {
        match (self.requested_wait(), other.requested_wait()) {
            (Some(wait), Some(shorter)) if shorter < wait => other,
            (Some(_), _) => self,
            (None, Some(_)) => other,
            (None, None) if matches!(self, Self::Refused(_)) => self,
            (None, None) => other,
        }
    }
}

/// Enrols `name` at the quorum member at `addr`. Creates the key, which never leaves this process.
pub async fn enrol(
    addr: SocketAddr,
    token: &JoinToken,
    name: &str,
) -> Result<Enrolment, EnrolError> {
    enrol_with(addr, token, name, false, &MeshConfig::default()).await
}

/// Enrols as [`enrol_with`] does, at each of `addrs` in turn and with one key, until a member enrols the process or an
/// error is final ([`EnrolError::is_final`]). While a member answers that too many processes enrol at present, waits at
/// least as long as the member requests, without a bound on the number of waits, and tries again. Returns `None` when
/// `addrs` is empty.
///
/// Only `cancel` may end an enrolment early. A caller that drops the future may lose the key of a certificate that a
/// member has already issued, and the name is then taken.
///
/// # Errors
/// A final error, or the most informative one of the members; [`EnrolError::Cancelled`] if `cancel` ended a wait.
pub async fn enrol_at_any(
    addrs: impl IntoIterator<Item = SocketAddr>,
    token: &JoinToken,
    name: &str,
    replace: bool,
    config: &MeshConfig,
    cancel: &CancellationToken,
) -> Option<Result<Enrolment, EnrolError>> {
    let addrs: Vec<SocketAddr> = addrs.into_iter().collect();
    let new = match Credentials::generate_key_and_csr() {
        Ok(new) => new,
        Err(error) => return Some(Err(error.into())),
    };
    let round = || enrol_at_each(&addrs, token, name, replace, &new, config);
    let outcome = repeat_while_limited(round, rand::random::<f64>, cancel).await;
    if let Some(Ok(enrolled)) = &outcome {
        tracing::info!(identity = %enrolled.credentials.identity(), "enrolled");
    }
    outcome
}

/// Tries each member once, until a member enrols the process or an error is final.
async fn enrol_at_each(
    addrs: &[SocketAddr],
    token: &JoinToken,
    name: &str,
    replace: bool,
    new: &KeyAndCsr,
    config: &MeshConfig,
) -> Option<Result<Enrolment, EnrolError>> {
    let mut failure: Option<EnrolError> = None;
    for addr in addrs {
        let error = match enrol_as(*addr, token, name, replace, new, config).await {
            Ok(enrolled) => return Some(Ok(enrolled)),
            Err(error) if error.is_final() => return Some(Err(error)),
            Err(error) => error,
        };
        if error.requested_wait().is_none() {
            tracing::warn!(%addr, %error, "enrolment attempt failed");
        }
        failure = Some(match failure.take() {
            Some(earlier) => earlier.or_better(error),
            None => error,
        });
    }
    failure.map(Err)
}

/// Enrols like [`enrol`], with options: `replace` takes over an existing name; timeouts and clock come from `config`.
pub async fn enrol_with(
    addr: SocketAddr,
    token: &JoinToken,
    name: &str,
    replace: bool,
    config: &MeshConfig,
) -> Result<Enrolment, EnrolError> {
    let new = Credentials::generate_key_and_csr()?;
    enrol_as(addr, token, name, replace, &new, config).await
}

/// Enrols with an existing key. The cluster recognises a repeated request by its key at every member, so that a lost
/// answer costs neither the token nor the name.
async fn enrol_as(
    addr: SocketAddr,
    token: &JoinToken,
    name: &str,
    replace: bool,
    new: &KeyAndCsr,
    config: &MeshConfig,
) -> Result<Enrolment, EnrolError> {
    let issued = enrol_key(addr, token, name, replace, &new.csr, config).await?;
    let certificates = |list: Vec<Vec<u8>>| list.into_iter().map(CertificateDer::from).collect();
    let credentials = Credentials::new(
        certificates(issued.chain),
        new.key.clone(),
        certificates(issued.roots),
    )?;
    let identity = credentials.identity();
    if (identity.role(), identity.id()) != (token.role(), name) {
        let reason = format!("{identity} instead of {}/{name}", token.role());
        return Err(EnrolError::WrongCertificate { reason });
    }
    Ok(Enrolment {
        credentials,
        cell: issued.cell,
    })
}

/// Enrols a key that the caller has created, for a process that runs already. The certificate is for `csr`, and one of
/// the returned roots has a pin of the token. The caller checks the identity in the certificate.
pub async fn enrol_key(
    addr: SocketAddr,
    token: &JoinToken,
    name: &str,
    replace: bool,
    csr: &CertificateSigningRequestDer<'_>,
    config: &MeshConfig,
) -> Result<Issued, EnrolError> {
    // The cluster name comes with the certificate; until then only the process name is checked.
    Identity::new("unknown", token.role(), name)?;
    let quic = client_endpoint(addr)?;
    let asked = WireRequest {
        secret: token.secret().expose_secret().to_owned(),
        role: token.role(),
        name: name.to_owned(),
        replace,
        csr: csr.to_vec(),
    };
    let issued = request_certificate(&quic, addr, token.pins(), asked, config).await;
    close(&quic).await;
    let issued = issued?;
    let is_pinned = |root: &Vec<u8>| token.pins().contains(&Pin::of(&root.as_slice().into()));
    if issued.roots.iter().any(is_pinned) {
        Ok(issued)
    } else {
        let reason = "the pinned authority is not among the roots".to_owned();
        Err(EnrolError::WrongCertificate { reason })
    }
}

/// Checks that the server at `addr` answers and belongs to the cluster of the token. Neither sends the secret nor uses
/// the token.
///
/// # Errors
/// The server does not answer, refuses unenrolled processes, or does not belong to the cluster.
pub async fn verify_member(
    addr: SocketAddr,
    token: &JoinToken,
    config: &MeshConfig,
) -> Result<(), EnrolError> {
    let quic = client_endpoint(addr)?;
    let unproven = Arc::new(AtomicBool::new(false));
    let client = enrol_config(token.pins(), unproven.clone(), config)?;
    let verified = async {
        let connection = dial(&quic, client, addr, config.connect_timeout).await?;
        if !unproven.load(Ordering::SeqCst) {
            return Ok(());
        }
        let proof = proof::request_proof(&connection, token.pins(), config);
        let proved = tokio::time::timeout(config.connect_timeout, proof).await;
        let late = CaProofFault::Lost("no answer in time".to_owned());
        proved.unwrap_or(Err(late)).map_err(|fault| match fault {
            CaProofFault::Lost(reason) => EnrolError::Lost { addr, reason },
            CaProofFault::NoProof => EnrolError::PinMismatch {
                addr,
                pins: token.pins().to_vec(),
                shown: shown_authority(&connection, token.pins()),
            },
        })
    };
    let verified = verified.await;
    close(&quic).await;
    verified
}

/// Opens an endpoint for one dial to `addr`, on a free port.
fn client_endpoint(addr: SocketAddr) -> Result<quinn::Endpoint, MeshError> {
    let any: SocketAddr = if addr.is_ipv4() {
        (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    quinn::Endpoint::client(any).map_err(|source| MeshError::Bind {
        addr: any,
        source: source.into(),
    })
}

/// Closes the endpoint, and waits until the close is sent. A lost close only costs the server an idle timeout.
async fn close(quic: &quinn::Endpoint) {
    quic.close(CLOSE_DONE.into(), b"done");
    let _ = tokio::time::timeout(Duration::from_millis(200), quic.wait_idle()).await;
}

async fn request_certificate(
    quic: &quinn::Endpoint,
    addr: SocketAddr,
    pins: &[Pin],
    wire_request: WireRequest,
    config: &MeshConfig,
) -> Result<Issued, EnrolError> {
    let unproven = Arc::new(AtomicBool::new(false));
    let client = enrol_config(pins, unproven.clone(), config)?;
    let connection = dial(quic, client, addr, config.connect_timeout).await?;
    let lost = |reason: String| match connection.close_reason() {
        Some(ConnectionError::ApplicationClosed(close))
            if close.error_code == CLOSE_RATE_LIMITED.into() =>
        {
            let text = String::from_utf8_lossy(&close.reason);
            let retry_in_ms = text.parse().unwrap_or(1000);
            EnrolError::Refused(EnrolRefused::RateLimited { retry_in_ms })
        }
        _ => EnrolError::Lost { addr, reason },
    };
    let body = SecretBody::of(&wire_request).map_err(lost)?;
    let exchange = async {
        if unproven.load(Ordering::SeqCst) {
            let proved = proof::request_proof(&connection, pins, config).await;
            proved.map_err(|unproven| match unproven {
                CaProofFault::Lost(reason) => lost(reason),
                CaProofFault::NoProof => EnrolError::PinMismatch {
                    addr,
                    pins: pins.to_vec(),
                    shown: shown_authority(&connection, pins),
                },
            })?;
        }
        let (mut send, mut recv) = connection
            .open_bi()
            .await
            .map_err(|e| lost(e.to_string()))?;
        let request = request_bytes(ENROL, &body.0);
        send.write_all(&request)
            .await
            .map_err(|e| lost(e.to_string()))?;
        let _ = send.finish();
        match read_frame(&mut recv, MAX_ANSWER_BYTES).await {
            Ok((Status::Item, payload)) => {
                let answer: Result<Issued, EnrolRefused> = decode(&payload).map_err(lost)?;
                Ok(answer?)
            }
            Ok((status, _)) => Err(lost(format!("{status:?} instead of an answer"))),
            Err(fault) => Err(lost(fault.into_error(addr).to_string())),
        }
    };
    tokio::time::timeout(EXCHANGE_TIMEOUT, exchange)
        .await
        .unwrap_or_else(|_| Err(lost("no answer in time".to_owned())))
}

async fn dial(
    quic: &quinn::Endpoint,
    client: quinn::ClientConfig,
    addr: SocketAddr,
    connect_timeout: Duration,
) -> Result<Connection, EnrolError> {
    let unreachable = |reason: String| MeshError::Unreachable { addr, reason };
    let connecting = quic
        .connect_with(client, addr, SERVER_NAME)
        .map_err(|e| unreachable(e.to_string()))?;
    let connected = tokio::time::timeout(connect_timeout, connecting).await;
    let silent = || format!("no answer within {} ms", connect_timeout.as_millis());
    let connected = connected.map_err(|_| unreachable(silent()))?;
    connected.map_err(|e| match &e {
        // The server refused before the handshake, and so could not send the time of the next try.
        ConnectionError::ConnectionClosed(close) if alert(close.error_code) == Some(ALERT_BUSY) => {
            let retry_in_ms = 1000;
            EnrolRefused::RateLimited { retry_in_ms }.into()
        }
        other => dial_error(addr, other).into(),
    })
}

/// Returns the first authority in the server's chain that the token does not pin. The claim is unverified.
fn shown_authority(connection: &Connection, pins: &[Pin]) -> Option<Pin> {
    let identity = connection.peer_identity()?;
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    let is_ca = |c: &&CertificateDer<'_>| CertificateFields::read(c).is_ok_and(|read| read.is_ca);
    let mut shown = chain.iter().filter(is_ca).map(Pin::of);
    shown.find(|pin| !pins.contains(pin))
}

/// An encoded request. The type has no `Debug`, so that the secret is not logged.
struct SecretBody(Vec<u8>);

impl SecretBody {
    fn of(asked: &WireRequest) -> Result<Self, String> {
        encode(asked).map(Self)
    }
}
