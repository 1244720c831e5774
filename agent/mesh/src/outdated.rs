//! Trust bundle service for members that were offline during a rotation of the authority.
//!
//! Such a member trusts the former authority only. It refuses every peer that has renewed since, although those peers
//! still accept its certificate. It would be cut off until its certificate expires. The member therefore requests the
//! bundle from a quorum member over a separate protocol, `lattice-trust/1`. There the member presents its certificate,
//! but does not verify the server's. The signatures of the bundle verify the bundle itself: an authority that the
//! member trusts must have signed it. The protocol carries nothing else.

use crate::{
    GetTrust, MAX_BUNDLE_BYTES, MeshError, Peer, Rpc, SignedBundle,
    encoding::{decode, encode},
    endpoint::{link::Link, state::Core},
    rpc::frame::{
        Fault, ReadFault, Status, fault_bytes, frame_bytes, read_body, read_frame, read_method,
        request_bytes, send_last,
    },
    transport::{
        close::{CLOSE_DONE, CLOSE_RATE_LIMITED},
        dial_error::dial_error,
        tls::{SERVER_NAME, outdated_config},
    },
};
use parking_lot::Mutex;
use quinn::{Connection, RecvStream};
use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

/// Longest duration of a connection of this protocol.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent connections: the protocol serves members that were offline, not a whole fleet.
const MAX_AT_A_TIME: usize = 64;
/// Longest request, bytes: the request is one number.
const MAX_REQUEST_BYTES: usize = 64;
/// Longest answer, bytes: a bundle and its signatures.
const MAX_ANSWER_BYTES: usize = MAX_BUNDLE_BYTES + (16 << 10);

/// Serves the trust bundle in force. Each identity may hold one slot.
#[derive(Default)]
pub(crate) struct BundleServer(Mutex<BTreeSet<String>>);

/// Slot of one member, released on drop.
struct RequestSlot<'a> {
    server: &'a BundleServer,
    identity_uri: String,
}

impl Drop for RequestSlot<'_> {
    fn drop(&mut self) {
        self.server.0.lock().remove(&self.identity_uri);
    }
}

impl BundleServer {
    fn take_slot(&self, peer_uri: String) -> Option<RequestSlot<'_>> {
        let mut taken = self.0.lock();
        if taken.len() >= MAX_AT_A_TIME || !taken.insert(peer_uri.clone()) {
            return None;
        }
        Some(RequestSlot {
            server: self,
            identity_uri: peer_uri,
        })
    }

    /// Answers one request of a member. The member's certificate has been verified as on any connection.
    pub(crate) async fn serve(&self, core: &Core, link: &Link) {
        let connection = &link.connection;
        let Some(_place) = self.take_slot(link.identity.uri()) else {
            connection.close(CLOSE_RATE_LIMITED.into(), b"1000");
            return;
        };
        let answer = async {
            let Ok((mut send, mut recv)) = connection.accept_bi().await else {
                return;
            };
            let bytes = answer(core, &mut recv).await;
            send_last(
                &mut send,
                &bytes.unwrap_or_else(|fault| fault_bytes(&fault)),
            )
            .await;
            let _ = send.stopped().await;
            tracing::info!(
                peer = %link.identity,
                "member with an outdated trust bundle requested the current one"
            );
        };
        tokio::select! {
            () = core.cancel.cancelled() => {}
            _ = tokio::time::timeout(TIMEOUT, answer) => {}
        }
        connection.close(CLOSE_DONE.into(), b"done");
    }
}

async fn answer(core: &Core, recv: &mut RecvStream) -> Result<Vec<u8>, Fault> {
    let method = read_method(recv).await.map_err(ReadFault::into_fault)?;
    let body = read_body(recv, MAX_REQUEST_BYTES).await;
    let body = body.map_err(ReadFault::into_fault)?;
    if method != GetTrust::METHOD {
        return Err(Fault::UnknownMethod { method });
    }
    let asked: GetTrust = decode(&body).map_err(Fault::malformed)?;
    let failed = |reason| Fault::HandlerFailed { reason };
    let newer = encode(&core.trust().credentials.bundle_above(asked.have)).map_err(failed)?;
    Ok(frame_bytes(Status::Item, &newer))
}

impl Peer {
    /// Requests the trust bundle from the process at this peer's address, whichever authority issued that process's
    /// certificate. Returns `None` when the peer has no bundle with a number above `have`, and an error when its bundle
    /// cannot be put in force.
    pub(crate) async fn fetch_trust_unverified(
        &self,
        have: u64,
    ) -> Result<Option<SignedBundle>, MeshError> {
        let core = self.core()?;
        let addr = self.addr();
        let client = outdated_config(&core.trust, &core.config)?;
        let asking = tokio::time::timeout(TIMEOUT, async {
            let connecting = core.quic.connect_with(client, addr, SERVER_NAME);
            let connection = connecting
                .map_err(|e| unreachable(addr, e.to_string()))?
                .await
                .map_err(|e| dial_error(addr, &e))?;
            let asked = request_bundle(&connection, have).await;
            connection.close(CLOSE_DONE.into(), b"done");
            asked.map_err(|reason| match connection.close_reason() {
                Some(quinn::ConnectionError::LocallyClosed) | None => unreachable(addr, reason),
                Some(error) => dial_error(addr, &error),
            })
        });
        let asked = core.cancel.run_until_cancelled(asking).await;
        let asked = asked.ok_or(MeshError::Closed)?;
        let silent = |_| Err(unreachable(addr, "no answer in time".to_owned()));
        let bundle = asked.unwrap_or_else(silent)?;
        // Verified here, so that a bundle that cannot be put in force does not end the search among the other members.
        if let Some(bundle) = &bundle {
            core.trust().credentials.with_bundle(bundle)?;
        }
        Ok(bundle)
    }
}

fn unreachable(addr: SocketAddr, reason: String) -> MeshError {
    MeshError::Unreachable { addr, reason }
}

async fn request_bundle(
    connection: &Connection,
    have: u64,
) -> Result<Option<SignedBundle>, String> {
    let opened = connection.open_bi().await;
    let (mut send, mut recv) = opened.map_err(|e| e.to_string())?;
    let request = request_bytes(GetTrust::METHOD, &encode(&GetTrust { have })?);
    let sent = send.write_all(&request).await;
    sent.map_err(|e| e.to_string())?;
    let _ = send.finish();
    match read_frame(&mut recv, MAX_ANSWER_BYTES).await {
        Ok((Status::Item, payload)) => decode(&payload),
        Ok((status, _)) => Err(format!("{status:?} instead of an answer")),
        Err(ReadFault::Lost(reason)) => Err(reason),
        Err(ReadFault::Bad(fault)) => Err(format!("{fault:?}")),
    }
}
