//! Enrolment: how a stranger with a join token becomes a member.
//!
//! It has a protocol of its own, on which nothing else is served. The stranger judges the server
//! by the token's pins; the server judges the stranger by the token alone, and what it issues is
//! named by what the token allows, never by the signing request.

use crate::{
    Credentials, CredentialsError, Identity, InvalidIdentity, JoinToken, MeshConfig, MeshError,
    Pin, Role,
    credentials::KeyAndCsr,
    door::Door,
    endpoint::{ALERT_BUSY, CLOSE_DONE, CLOSE_RATE_LIMITED, Core, alert, dial_error},
    office::{self, OfficeProof, OfficeSession, Unproven},
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

/// Longest enrolment request: token, name and a signing request are about 600 bytes.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Longest answer: a chain and some roots.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// A stranger has this long for everything.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(20);

/// What an enroller decides on. The secret itself stays in the transport.
#[derive(Debug, Clone)]
pub struct EnrolRequest {
    /// blake3 of the token's secret, lower-case hex: what was stored when it was created.
    pub token_hash: String,
    /// The role the token's text claims. The stored token is what counts.
    pub role: Role,
    /// The name asked for.
    pub name: String,
    /// Whether a member of that name may be replaced.
    pub replace: bool,
    /// Carries the new public key. Only that may be taken from it.
    pub csr: CertificateSigningRequestDer<'static>,
    /// When it was asked for, by the endpoint's clock, whole seconds. A certificate made with
    /// `Validity::from_now(issued_at, …)` counts as issued at this very moment, which is what is
    /// to be recorded of it.
    pub issued_at: UnixMillis,
}

/// What an enroller issues.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Issued {
    /// Certificates (DER), leaf first.
    pub chain: Vec<Vec<u8>>,
    /// Certificates (DER) to trust from now on; a pinned one must be among them.
    pub roots: Vec<Vec<u8>>,
    /// The gossip cell, for agents.
    pub cell: Option<String>,
}

/// Why a stranger was turned away. Says nothing that a stranger without a valid token could use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EnrolRefused {
    /// Wrong, used up, expired, or not for this role or name: a stranger is not told which.
    #[error(
        "the join token is not valid for this role and name (wrong, used, or expired); create a new one with `lattice admin token create`"
    )]
    TokenRefused,
    /// The name is taken.
    #[error("the name {name} is enrolled already; {needs}")]
    NameTaken {
        /// The name.
        name: String,
        /// What would allow to take it over.
        needs: String,
    },
    /// The request is not well formed.
    #[error("the enrolment request is not valid: {reason}")]
    Invalid {
        /// What is wrong.
        reason: String,
    },
    /// Too many tries from this address, or from all.
    #[error("too many enrolments at present; try again in {retry_in_ms} ms")]
    RateLimited {
        /// When, milliseconds from now.
        retry_in_ms: u64,
    },
    /// The server cannot decide now.
    #[error("enrolment is not possible at present: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// The token is good, but not at this address.
    #[error(
        "the join token is not for use from {from}, the address the quorum member sees; it is for {}; enrol from there, or create one for this network with `lattice admin token create --cidr`",
        cidr::list(.networks)
    )]
    WrongNetwork {
        /// Where the request came from.
        from: IpAddr,
        /// What the token is for.
        networks: Vec<Cidr>,
    },
}

/// Decides on enrolments. The daemon that holds the issuing key implements it.
pub trait Enroller: Send + Sync + 'static {
    /// Judges a request and issues a certificate. The token must be consumed, durably, before
    /// the certificate leaves.
    fn enrol(
        &self,
        request: EnrolRequest,
        remote: SocketAddr,
    ) -> BoxFuture<'_, Result<Issued, EnrolRefused>>;

    /// Proves with [`crate::Authority::prove`] that it holds the key of one of `pins`, if that is
    /// trusted at present. Who has no key proves nothing.
    fn prove(&self, _pins: &[Pin], _session: &OfficeSession) -> Option<OfficeProof> {
        None
    }
}

/// What an enrolment brought.
#[derive(Debug, Clone)]
pub struct Enrolled {
    /// Ready for [`crate::Mesh::bind`] and [`Credentials::save`].
    pub credentials: Credentials,
    /// The gossip cell, for agents.
    pub cell: Option<String>,
}

/// Why an enrolment failed.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The server was judged by the token's pins, and neither its certificate nor a key it holds is
    /// of one of them.
    #[error(
        "the server at {addr} did not show that it belongs to the cluster of this token (CA pin {}); the secret was not sent to it. {}", in_words(.pins, " or "), why_unknown(.shown.as_ref())
    )]
    PinMismatch {
        /// Whom we asked.
        addr: SocketAddr,
        /// The token's pins.
        pins: Vec<Pin>,
        /// Another authority that it names as its own, if it does. Nothing proves that.
        shown: Option<Pin>,
    },
    /// The server said no.
    #[error(transparent)]
    Refused(#[from] EnrolRefused),
    /// The name is not one.
    #[error(transparent)]
    Name(#[from] InvalidIdentity),
    /// The server could not be asked.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The connection broke; the token may be used up.
    #[error("the enrolment with {addr} broke off: {reason}")]
    Lost {
        /// Whom we asked.
        addr: SocketAddr,
        /// What happened.
        reason: String,
    },
    /// What the server issued is not what was asked for.
    #[error("the server issued something else than asked for: {reason}")]
    WrongCertificate {
        /// What is wrong.
        reason: String,
    },
    /// The key could not be made, or the certificate not be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// What a person can do about it.
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
    /// Whether another member would say the same: a member's "no" is the cluster's.
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

/// The request on the wire.
#[derive(Serialize, Deserialize)]
struct Asked {
    secret: String,
    role: Role,
    name: String,
    replace: bool,
    csr: Vec<u8>,
}

/// Enrols `name` at the quorum member at `addr`. Makes the key; it never leaves this process.
pub async fn enrol(
    addr: SocketAddr,
    token: &JoinToken,
    name: &str,
) -> Result<Enrolled, EnrolError> {
    enrol_with(addr, token, name, false, &MeshConfig::default()).await
}

/// [`enrol_with`] at each of `addrs` in turn, until one enrols or the cluster says no. `None` when
/// there is nobody to ask.
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
                // What one said counts for more than that another was not reached.
                if !matches!(last, Some(Err(EnrolError::Refused(_)))) {
                    last = Some(Err(error));
                }
            }
        }
    }
    last
}

/// [`enrol`] with a choice: `replace` takes over an existing name; timeouts and clock come from
/// `config`.
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

/// With a key that is at hand: the cluster knows a repeat by it, whichever member is asked, so an
/// answer that was lost costs neither the token nor the name.
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

/// Enrols a key that the caller has made, for a process that runs already: what is issued is for
/// `csr`, under roots with one of the token's pins among them. Whose it is the caller checks.
pub async fn enrol_key(
    addr: SocketAddr,
    token: &JoinToken,
    name: &str,
    replace: bool,
    csr: &CertificateSigningRequestDer<'_>,
    config: &MeshConfig,
) -> Result<Issued, EnrolError> {
    // The cluster is learned from the certificate; until then the name alone is checked.
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
    let asked = Asked {
        secret: token.secret().expose_secret().to_owned(),
        role: token.role(),
        name: name.to_owned(),
        replace,
        csr: csr.to_vec(),
    };
    let issued = ask(&quic, addr, token.pins(), asked, config).await;
    quic.close(CLOSE_DONE.into(), b"done");
    // Lets the close leave; a lost one only costs the server an idle timeout.
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
    asked: Asked,
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
            let proved = office::demand(&connection, pins, config).await;
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
        // Not worth a handshake to it, and so without a word of when.
        ConnectionError::ConnectionClosed(close) if alert(close.error_code) == Some(ALERT_BUSY) => {
            let retry_in_ms = 1000;
            EnrolRefused::RateLimited { retry_in_ms }.into()
        }
        other => dial_error(addr, other).into(),
    })
}

/// The first authority behind the server's own certificate that the token does not name: as it says.
fn shown_authority(connection: &Connection, pins: &[Pin]) -> Option<Pin> {
    let identity = connection.peer_identity()?;
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    let is_ca = |c: &&CertificateDer<'_>| Leaf::read(c).is_ok_and(|read| read.is_ca);
    let mut shown = chain.iter().filter(is_ca).map(Pin::of);
    shown.find(|pin| !pins.contains(pin))
}

/// An encoded request; named so that nobody logs it.
struct SecretBody(Vec<u8>);

impl SecretBody {
    fn of(asked: &Asked) -> Result<Self, String> {
        encode(asked).map(Self)
    }
}

/// Serves one stranger one request.
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
                let proof = office::prove(&connection, &mut recv, enroller).await;
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

/// The answer to one enrolment, as a frame.
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
    let asked: Asked = decode(&body).map_err(Fault::malformed)?;
    let secret = SecretString::from(asked.secret);
    // Checks the name's form before anyone compares it with anything.
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
