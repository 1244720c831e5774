//! Enrolment: a process with a join token obtains a certificate.
//!
//! Enrolment has a separate protocol, on which the server serves nothing else. The unenrolled process verifies the
//! server by the token's pins. The server authorises the process by the token alone. The token determines the name in
//! the certificate, never the CSR.

use crate::{
    Credentials, CredentialsError, Identity, InvalidIdentity, JoinToken, MeshConfig, MeshError,
    Pin, Role,
    admission::Door,
    ca_proof::{self, OfficeProof, OfficeSession, Unproven},
    credentials::KeyAndCsr,
    endpoint::{ALERT_BUSY, CLOSE_DONE, CLOSE_RATE_LIMITED, Core, alert, dial_error},
    tls::{SERVER_NAME, enrol_config},
    token::{hash_secret, in_words},
    verify::Leaf,
    wire::{
        ENROL, Fault, PROVE, ReadFault, Status, decode, encode, fault_bytes, frame_bytes,
        read_body, read_frame, read_method, request_bytes, send_last,
    },
};
use futures::future::BoxFuture;
use lattice_quorum_types::{
    UnixMillis,
    cidr::{self, Cidr},
};
use quinn::{Connection, ConnectionError, RecvStream};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Longest enrolment request, bytes: token, name and CSR are about 600 bytes.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Longest answer, bytes: a chain and some roots.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Longest duration of the whole exchange after the dial.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(20);

/// Enrolment request, as the enroller receives it. The secret itself stays in the transport.
#[derive(Debug, Clone)]
pub struct EnrolRequest {
    /// blake3 digest of the token's secret, lower-case hex, as stored when the token was created.
    pub token_hash: String,
    /// Role in the token's text. The role of the stored token is authoritative.
    pub role: Role,
    /// Requested name.
    pub name: String,
    /// Whether the request may replace a member of that name.
    pub replace: bool,
    /// CSR with the new public key. Issuers must take only the key from it.
    pub csr: CertificateSigningRequestDer<'static>,
    /// Time of the request, by the endpoint's clock, in whole seconds. A certificate with
    /// `Validity::from_now(issued_at, …)` counts as issued at exactly this moment, which is the time to record.
    pub issued_at: UnixMillis,
}

/// Certificate that an enroller issues, with the trust that goes with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Issued {
    /// Certificate chain (DER), leaf first.
    pub chain: Vec<Vec<u8>>,
    /// Certificates (DER) to trust from now on; a pinned one must be among them.
    pub roots: Vec<Vec<u8>>,
    /// Gossip cell, for agents.
    pub cell: Option<String>,
}

/// Reason why an enrolment was refused. Reveals nothing that is useful without a valid token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EnrolRefused {
    /// The token is wrong, used up, expired, or not for this role or name. The refusal does not reveal which.
    #[error(
        "the join token is not valid for this role and name (wrong, used, or expired); create a new one with `lattice admin token create`"
    )]
    TokenRefused,
    /// The name is taken.
    #[error("the name {name} is enrolled already; {needs}")]
    NameTaken {
        /// Requested name.
        name: String,
        /// Requirement for replacing the member of that name.
        needs: String,
    },
    /// The request is malformed.
    #[error("the enrolment request is not valid: {reason}")]
    Invalid {
        /// Reason in words.
        reason: String,
    },
    /// Too many tries from this address, or from all addresses together.
    #[error("too many enrolments at present; try again in {retry_in_ms} ms")]
    RateLimited {
        /// Wait until the next try, milliseconds.
        retry_in_ms: u64,
    },
    /// The server cannot decide at present.
    #[error("enrolment is not possible at present: {reason}")]
    Unavailable {
        /// Reason in words.
        reason: String,
    },
    /// The token is valid, but not at this address.
    #[error(
        "the join token is not for use from {from}, the address the quorum member sees; it is for {}; enrol from there, or create one for this network with `lattice admin token create --cidr`",
        cidr::list(.networks)
    )]
    WrongNetwork {
        /// Source address of the request.
        from: IpAddr,
        /// Networks in which the token is valid.
        networks: Vec<Cidr>,
    },
}

/// Decides on enrolments. The daemon that holds the issuing key implements this trait.
pub trait Enroller: Send + Sync + 'static {
    /// Authorises a request and issues a certificate. Implementations must consume the token durably before they return
    /// the certificate.
    fn enrol(
        &self,
        request: EnrolRequest,
        remote: SocketAddr,
    ) -> BoxFuture<'_, Result<Issued, EnrolRefused>>;

    /// Proves with [`crate::Authority::prove`] that this server holds the key of one of `pins`, if that authority is
    /// trusted at present. Returns `None` without such a key.
    fn prove(&self, _pins: &[Pin], _session: &OfficeSession) -> Option<OfficeProof> {
        None
    }
}

/// Result of an enrolment.
#[derive(Debug, Clone)]
pub struct Enrolled {
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
        "the server at {addr} did not prove that it belongs to the cluster of this token (CA pin {}); the secret was not sent to it. {}", in_words(.pins, " or "), why_unknown(.shown.as_ref())
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
    /// The server could not be reached.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The connection broke; the token may be used up.
    #[error("the enrolment with {addr} broke off: {reason}")]
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
    /// The key could not be created, or the certificate is not usable.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Returns advice for the operator.
fn why_unknown(shown: Option<&Pin>) -> String {
    let make = "make a new one with `lattice admin token create`";
    match shown {
        Some(shown) => format!(
            "Either it is of another cluster, or this token was made before authority {shown} and \
             the one it names was retired since: then {make}"
        ),
        None => format!("If the cluster's authority was changed since the token was made, {make}"),
    }
}

impl EnrolError {
    /// Returns whether another member would give the same answer. A member's refusal is the cluster's.
    pub fn is_final(&self) -> bool {
        use EnrolRefused::{Invalid, NameTaken, TokenRefused};
        matches!(
            self,
            Self::Refused(TokenRefused | NameTaken { .. } | Invalid { .. })
                | Self::Name(_)
                | Self::Credentials(_)
        )
    }
}

/// Enrolment request on the wire.
#[derive(Serialize, Deserialize)]
struct WireRequest {
    secret: String,
    role: Role,
    name: String,
    replace: bool,
    csr: Vec<u8>,
}

/// Enrols `name` at the quorum member at `addr`. Creates the key, which never leaves this process.
pub async fn enrol(
    addr: SocketAddr,
    token: &JoinToken,
    name: &str,
) -> Result<Enrolled, EnrolError> {
    enrol_with(addr, token, name, false, &MeshConfig::default()).await
}

/// Calls [`enrol_with`] at each of `addrs` in turn, with one key, until a member enrols the process or the cluster
/// refuses. Returns `None` when `addrs` is empty.
pub async fn enrol_at_any(
    addrs: impl IntoIterator<Item = SocketAddr>,
    token: &JoinToken,
    name: &str,
    replace: bool,
    config: &MeshConfig,
) -> Option<Result<Enrolled, EnrolError>> {
    let mut last = None;
    let new = match Credentials::generate_key_and_csr() {
        Ok(new) => new,
        Err(error) => return Some(Err(error.into())),
    };
    for addr in addrs {
        match enrol_as(addr, token, name, replace, &new, config).await {
            Ok(enrolled) => {
                tracing::info!(identity = %enrolled.credentials.identity(), "enrolled");
                return Some(Ok(enrolled));
            }
            Err(error) if error.is_final() => return Some(Err(error)),
            Err(error) => {
                tracing::warn!(%addr, %error, "not enrolled here");
                // A member's refusal is more informative than another member's absence.
                if !matches!(last, Some(Err(EnrolError::Refused(_)))) {
                    last = Some(Err(error));
                }
            }
        }
    }
    last
}

/// As [`enrol`], with options: `replace` takes over an existing name; timeouts and clock come from `config`.
pub async fn enrol_with(
    addr: SocketAddr,
    token: &JoinToken,
    name: &str,
    replace: bool,
    config: &MeshConfig,
) -> Result<Enrolled, EnrolError> {
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
) -> Result<Enrolled, EnrolError> {
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
    Ok(Enrolled {
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
    // The cluster name comes with the certificate; until then only the name is checked.
    Identity::new("unknown", token.role(), name)?;
    let any: SocketAddr = if addr.is_ipv4() {
        (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let quic = quinn::Endpoint::client(any).map_err(|source| MeshError::Bind {
        addr: any,
        source: source.into(),
    })?;
    let asked = WireRequest {
        secret: token.secret().expose_secret().to_owned(),
        role: token.role(),
        name: name.to_owned(),
        replace,
        csr: csr.to_vec(),
    };
    let issued = ask(&quic, addr, token.pins(), asked, config).await;
    quic.close(CLOSE_DONE.into(), b"done");
    // Waits for the close to be sent. A lost close only costs the server an idle timeout.
    let _ = tokio::time::timeout(Duration::from_millis(200), quic.wait_idle()).await;
    let issued = issued?;
    let is_pinned = |root: &Vec<u8>| token.pins().contains(&Pin::of(&root.as_slice().into()));
    if issued.roots.iter().any(is_pinned) {
        Ok(issued)
    } else {
        let reason = "the pinned authority is not among the roots".to_owned();
        Err(EnrolError::WrongCertificate { reason })
    }
}

async fn ask(
    quic: &quinn::Endpoint,
    addr: SocketAddr,
    pins: &[Pin],
    asked: WireRequest,
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
    let body = SecretBody::of(&asked).map_err(lost)?;
    let exchange = async {
        if unproven.load(Ordering::SeqCst) {
            let proved = ca_proof::demand(&connection, pins, config).await;
            proved.map_err(|unproven| match unproven {
                Unproven::Lost(reason) => lost(reason),
                Unproven::NoProof => EnrolError::PinMismatch {
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
    tokio::time::timeout(STRANGER_TIMEOUT, exchange)
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
    let is_ca = |c: &&CertificateDer<'_>| Leaf::read(c).is_ok_and(|read| read.is_ca);
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

/// Serves one enrolment request on `connection`.
pub(crate) async fn serve_stranger(
    core: &Core,
    enroller: &dyn Enroller,
    door: &Door,
    connection: Connection,
) {
    let remote = connection.remote_address();
    if let Err(retry_in_ms) = door.try_of(remote.ip()) {
        tracing::info!(%remote, "enrolment refused: rate limit");
        connection.close(
            CLOSE_RATE_LIMITED.into(),
            retry_in_ms.to_string().as_bytes(),
        );
        return;
    }
    let serve = async {
        let mut may_ask_for_proof = true;
        while let Ok((mut send, mut recv)) = connection.accept_bi().await {
            let method = read_method(&mut recv).await.map_err(ReadFault::into_fault);
            let asks_for_proof = matches!(&method, Ok(method) if method == PROVE);
            if may_ask_for_proof && asks_for_proof {
                may_ask_for_proof = false;
                let proof = ca_proof::prove(&connection, &mut recv, enroller).await;
                send_last(&mut send, &proof).await;
                continue;
            }
            let last = match method {
                Ok(method) if method == ENROL => decide(core, enroller, remote, &mut recv).await,
                Ok(method) => fault_bytes(&Fault::UnknownMethod { method }),
                Err(fault) => fault_bytes(&fault),
            };
            send_last(&mut send, &last).await;
            let _ = recv.stop(0u32.into());
            let _ = send.stopped().await;
            return;
        }
    };
    tokio::select! {
        () = core.cancel.cancelled() => {}
        _ = tokio::time::timeout(STRANGER_TIMEOUT, serve) => {}
    }
    connection.close(CLOSE_DONE.into(), b"done");
}

/// Returns the answer to one enrolment, as a frame.
async fn decide(
    core: &Core,
    enroller: &dyn Enroller,
    remote: SocketAddr,
    recv: &mut RecvStream,
) -> Vec<u8> {
    let request = match read_asked(recv, core.config.clock.now()).await {
        Ok(request) => request,
        Err(fault) => return fault_bytes(&fault),
    };
    let (name, role) = (request.name.clone(), request.role);
    let answer = enroller.enrol(request, remote).await;
    match &answer {
        Ok(_) => tracing::info!(%remote, name, %role, "enrolled"),
        Err(refused) => tracing::info!(%remote, name, %role, %refused, "enrolment refused"),
    }
    match encode(&answer) {
        Ok(payload) => frame_bytes(Status::Item, &payload),
        Err(reason) => fault_bytes(&Fault::HandlerFailed { reason }),
    }
}

async fn read_asked(recv: &mut RecvStream, now: UnixMillis) -> Result<EnrolRequest, Fault> {
    let body = read_body(recv, MAX_REQUEST_BYTES)
        .await
        .map_err(ReadFault::into_fault)?;
    let asked: WireRequest = decode(&body).map_err(Fault::malformed)?;
    let secret = SecretString::from(asked.secret);
    // Checks the form of the name before any comparison.
    Identity::new("unknown", asked.role, asked.name.as_str()).map_err(Fault::malformed)?;
    Ok(EnrolRequest {
        token_hash: hash_secret(secret.expose_secret()),
        role: asked.role,
        name: asked.name,
        replace: asked.replace,
        csr: asked.csr.into(),
        issued_at: UnixMillis(now.0 / 1000 * 1000),
    })
}
