//! Dials, admission of peers, and registration of connections.

use super::{
    link::{CallCounter, HandshakeState, Link},
    serve::serve_link,
    state::Core,
};
use crate::{
    ExpectedIdentity, MeshError,
    rpc::frame::{HELLO, Status, read_frame, request_bytes},
    transport::{
        close::{CLOSE_NO_CERTIFICATE, CLOSE_REVOKED, CLOSE_UNEXPECTED},
        dial_error::{dial_error, reports_revocation},
        tls::SERVER_NAME,
    },
    trust::in_force::DistrustReason,
};
use quinn::{Connection, ConnectionError};
use rustls_pki_types::CertificateDer;
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

impl Core {
    /// Dials, verifies the peer, and waits until the peer has accepted this process. With TLS 1.3 a connection is open
    /// on this side before the other side has received this side's certificate.
    pub(crate) async fn dial(
        self: &Arc<Self>,
        addr: SocketAddr,
        expect: &ExpectedIdentity,
    ) -> Result<Link, MeshError> {
        if self.cancel.is_cancelled() {
            return Err(MeshError::Closed);
        }
        let limit = self.config.connect_timeout;
        let made = self.handshake_state();
        let dial = async {
            let connection = self
                .quic
                .connect_with(self.client.to(expect.role), addr, SERVER_NAME)
                .map_err(|e| MeshError::Unreachable {
                    addr,
                    reason: e.to_string(),
                })?
                .await
                .map_err(|e| self.dial_failure(made, addr, &e))?;
            let link = self.link(connection, made)?;
            if !expect.matches(&link.identity) {
                link.connection
                    .close(CLOSE_UNEXPECTED.into(), b"another peer was expected");
                let (expected, found) = (expect.clone(), link.identity);
                return Err(MeshError::UnexpectedPeer {
                    addr,
                    expected,
                    found,
                });
            }
            hello(&link.connection).await.map_err(|reason| {
                match link.connection.close_reason() {
                    Some(e) => self.dial_failure(made, addr, &e),
                    None => MeshError::Unreachable { addr, reason },
                }
            })?;
            Ok(link)
        };
        let dial = tokio::time::timeout(limit, dial);
        // A dial must not keep the socket open after shutdown.
        let dialled = self.cancel.run_until_cancelled(dial).await;
        let link = dialled.ok_or(MeshError::Closed)?.unwrap_or_else(|_| {
            let reason = format!("no answer within {} ms", limit.as_millis());
            Err(MeshError::Unreachable { addr, reason })
        })?;
        self.adopt(link.clone());
        Ok(link)
    }

    /// Returns the error of a failed dial, and reports this process's own revocation if that is the cause.
    fn dial_failure(
        &self,
        made: HandshakeState,
        addr: SocketAddr,
        error: &ConnectionError,
    ) -> MeshError {
        self.report_if_revoked(made, addr, error);
        dial_error(addr, error)
    }

    /// Reports that this process's certificate is revoked if the peer closed the connection for that reason. A
    /// connection that presented an earlier certificate does not concern the present one.
    fn report_if_revoked(&self, made: HandshakeState, addr: SocketAddr, error: &ConnectionError) {
        let is_present = made.generation == self.generation.load(Ordering::Acquire);
        if is_present && reports_revocation(error) {
            self.report_revoked(&format!("peer at {addr}"));
        }
    }

    /// Reads the peer's identity from a finished handshake. Closes the connection if the peer is not trusted.
    pub(crate) fn link(
        &self,
        connection: Connection,
        made: HandshakeState,
    ) -> Result<Link, MeshError> {
        let addr = connection.remote_address();
        let chain = connection
            .peer_identity()
            .and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok())
            .map(|chain| *chain)
            .unwrap_or_default();
        let admitted = match chain.first() {
            Some(leaf) => self.trust().admit(leaf),
            None => Err(DistrustReason::Other(
                "it presented no certificate".to_owned(),
            )),
        };
        let reason = match admitted {
            Ok(member) => {
                return Ok(Link {
                    connection,
                    identity: member.identity,
                    issued_at: member.issued_at,
                    expires_at: member.expires_at,
                    chain: Arc::new(chain),
                    handshake: made,
                    no_new_calls: Arc::default(),
                    running_calls: CallCounter::default(),
                });
            }
            Err(distrust) => distrust,
        };
        let (code, text): (u32, &[u8]) = match &reason {
            DistrustReason::Revoked { .. } => (CLOSE_REVOKED, b"the certificate was revoked"),
            DistrustReason::Other(_) => (CLOSE_NO_CERTIFICATE, b"a mesh certificate is required"),
        };
        connection.close(code.into(), text);
        let reason = reason.to_string();
        Err(MeshError::NotTrusted { addr, reason })
    }

    /// Registers a connection and serves it until it closes.
    pub(crate) fn adopt(self: &Arc<Self>, link: Link) {
        let id = self.register(&link);
        // Trust may have changed since the handshake began, and the task that changed it may have missed this
        // connection.
        if self.trust_version.load(Ordering::Acquire) != link.handshake.trust_version {
            self.close_if_distrusted(&self.trust(), &link, true);
        }
        if self.generation.load(Ordering::Acquire) != link.handshake.generation {
            self.leave([link.clone()]);
        }
        let core = self.clone();
        self.tasks.spawn(async move {
            let reason = serve_link(&core, &link).await;
            core.unregister(id, &link);
            if let Some(error) = link.connection.close_reason() {
                let addr = link.connection.remote_address();
                core.report_if_revoked(link.handshake, addr, &error);
            }
            tracing::debug!(peer = %link.identity, addr = %link.connection.remote_address(), %reason, "mesh connection closed");
        });
    }
}

/// Sends `mesh.hello`. The peer answers as soon as it has accepted this process, and never otherwise.
async fn hello(connection: &Connection) -> Result<(), String> {
    let (mut send, mut recv) = connection.open_bi().await.map_err(|e| e.to_string())?;
    send.write_all(&request_bytes(HELLO, &[]))
        .await
        .map_err(|e| e.to_string())?;
    let _ = send.finish();
    match read_frame(&mut recv, 1024).await {
        Ok((Status::Item, _)) => Ok(()),
        other => Err(format!("no greeting: {other:?}")),
    }
}
