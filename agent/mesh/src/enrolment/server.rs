//! Enrolment, server side: reads the request of an unenrolled process, and answers with the enroller's decision.

use super::{
    proof,
    request::{EXCHANGE_TIMEOUT, WireRequest},
};
use crate::{
    EnrolRequest, Enroller, Identity,
    encoding::{decode, encode},
    endpoint::state::Core,
    limits::{admission::Admission, source_limiter::source_of},
    rpc::frame::{
        ENROL, Fault, PROVE, ReadFault, Status, fault_bytes, frame_bytes, read_body, read_method,
        send_last,
    },
    transport::close::{CLOSE_DONE, CLOSE_RATE_LIMITED},
    trust::token::hash_secret,
};
use lattice_quorum_types::UnixMillis;
use quinn::{Connection, RecvStream};
use secrecy::{ExposeSecret, SecretString};
use std::net::SocketAddr;

/// Longest enrolment request, bytes: token, name and CSR are about 600 bytes.
const MAX_REQUEST_BYTES: usize = 16 << 10;

/// Serves at most one proof request and one enrolment request on `connection`.
pub(crate) async fn serve_enrolment(
    core: &Core,
    enroller: &dyn Enroller,
    admission: &Admission,
    connection: Connection,
) {
    let remote = connection.remote_address();
    if let Err(retry_in_ms) = admission.take_try(remote.ip()) {
        let limiter = &core.refusal_logs.enrolment_rate;
        if let Some(suppressed) = limiter.admit(&source_of(remote.ip())) {
            tracing::info!(%remote, suppressed, "enrolment refused: rate limit");
        }
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
                let proof = proof::prove(&connection, &mut recv, enroller).await;
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
        _ = tokio::time::timeout(EXCHANGE_TIMEOUT, serve) => {}
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
    let request = match read_enrol_request(recv, core.config.clock.now()).await {
        Ok(request) => request,
        Err(fault) => return fault_bytes(&fault),
    };
    let (name, role) = (request.name.clone(), request.role);
    let answer = enroller.enrol(request, remote).await;
    match &answer {
        Ok(_) => tracing::info!(%remote, name, %role, "enrolled"),
        Err(refused) => {
            let key = (source_of(remote.ip()), name.clone());
            if let Some(suppressed) = core.refusal_logs.enrolments.admit(&key) {
                tracing::info!(%remote, name, %role, %refused, suppressed, "enrolment refused");
            }
        }
    }
    match encode(&answer) {
        Ok(payload) => frame_bytes(Status::Item, &payload),
        Err(reason) => fault_bytes(&Fault::HandlerFailed { reason }),
    }
}

async fn read_enrol_request(recv: &mut RecvStream, now: UnixMillis) -> Result<EnrolRequest, Fault> {
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
