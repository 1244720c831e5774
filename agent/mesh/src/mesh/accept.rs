//! Acceptor of an endpoint: handshakes, and the protocol of each connection.

use crate::{
    Router,
    endpoint::state::Core,
    enrolment::server::serve_enrolment,
    limits::{admission::Admission, source_limiter::source_of},
    outdated::BundleServer,
    transport::{
        close::CLOSE_RATE_LIMITED,
        tls::{ENROL_ALPN, TRUST_ALPN},
    },
};
use quinn::Incoming;
use std::{sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Concurrent handshakes above which a client must prove its address with a QUIC Retry.
const EASY_HANDSHAKES: usize = 64;
/// Maximum number of concurrent handshakes.
const MAX_HANDSHAKES: usize = 1024;
/// Timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Acceptor of incoming connections, and the services that it offers.
pub(crate) struct Acceptor {
    pub(crate) core: Arc<Core>,
    pub(crate) router: Arc<Router>,
    pub(crate) admission: Arc<Admission>,
    /// Server configuration for sources that have used up their enrolment tries and retry answers.
    pub(crate) without_enrolment: Arc<quinn::ServerConfig>,
    pub(crate) outdated: BundleServer,
}

/// Accepts connections until shutdown.
pub(crate) async fn accept_loop(acceptor: Acceptor) {
    let core = acceptor.core.clone();
    let acceptor = Arc::new(acceptor);
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    loop {
        let incoming = tokio::select! {
            () = core.cancel.cancelled() => return,
            incoming = core.quic.accept() => match incoming {
                Some(incoming) => incoming,
                None => return,
            },
        };
        let Ok(permit) = handshakes.clone().try_acquire_owned() else {
            incoming.ignore();
            continue;
        };
        let busy = MAX_HANDSHAKES - handshakes.available_permits();
        if core.open_count() >= core.config.max_connections {
            let addr = incoming.remote_address();
            if let Some(suppressed) = core.refusal_logs.full.admit(&source_of(addr.ip())) {
                tracing::warn!(%addr, suppressed, "too many mesh connections; refused");
            }
            incoming.refuse();
            continue;
        }
        if busy > EASY_HANDSHAKES && incoming.may_retry() && !incoming.remote_address_validated() {
            let _ = incoming.retry();
            continue;
        }
        let acceptor = acceptor.clone();
        core.tasks
            .spawn(async move { acceptor.accept_one(incoming, permit).await });
    }
}

impl Acceptor {
    async fn accept_one(&self, incoming: Incoming, handshaking: OwnedSemaphorePermit) {
        let core = &self.core;
        let addr = incoming.remote_address();
        let made = core.handshake_state();
        let handshake = async {
            if self.admission.may_answer(addr.ip()) {
                incoming.accept()?.await
            } else {
                incoming.accept_with(self.without_enrolment.clone())?.await
            }
        };
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake);
        let connection = match core.cancel.run_until_cancelled(handshake).await {
            Some(Ok(Ok(connection))) => connection,
            Some(Ok(Err(error))) => {
                let limiter = &core.refusal_logs.handshakes;
                if let Some(suppressed) = limiter.admit(&source_of(addr.ip())) {
                    tracing::info!(%addr, %error, suppressed, "mesh handshake refused");
                }
                return;
            }
            Some(Err(_)) | None => return,
        };
        drop(handshaking);
        let protocol = connection
            .handshake_data()
            .and_then(|any| any.downcast::<quinn::crypto::rustls::HandshakeData>().ok())
            .and_then(|data| data.protocol);
        if protocol.as_deref() == Some(ENROL_ALPN) {
            let (Some(enroller), Some(_place)) =
                (&self.router.enroller, self.admission.take_slot())
            else {
                connection.close(CLOSE_RATE_LIMITED.into(), b"1000");
                return;
            };
            serve_enrolment(core, enroller.as_ref(), &self.admission, connection).await;
            return;
        }
        match core.link(connection, made) {
            Ok(link) if protocol.as_deref() == Some(TRUST_ALPN) => {
                self.outdated.serve(core, &link).await;
            }
            Ok(link) => core.adopt(link),
            Err(error) => {
                let limiter = &core.refusal_logs.connections;
                if let Some(suppressed) = limiter.admit(&source_of(addr.ip())) {
                    tracing::info!(%addr, %error, suppressed, "mesh connection refused");
                }
            }
        }
    }
}
