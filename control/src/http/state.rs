//! What every handler has at hand.

use super::{
    auth::Auth, caller::Caller, connections::Connections, limiter::Limiter, meter::Meter,
    streams::Streams,
};
use crate::Core;
use lattice_api::problem::{Kind, Problem};
use lattice_mesh::Pin;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// How much the port takes, and until when.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Requests a second for each principal, and at once.
    pub(crate) requests_per_second: u32,
    /// Connections at the same time.
    pub(crate) connections: usize,
    /// Most members of one graph.
    pub(crate) max_dag_size: usize,
    /// Cancelled when the port closes.
    pub(crate) stop: CancellationToken,
}

/// Shared by all handlers, REST and gRPC.
#[derive(Clone)]
pub(crate) struct Api(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    auth: Arc<Auth>,
    limiter: Limiter,
    meter: Meter,
    streams: Arc<Streams>,
    connections: Connections,
    authority: Pin,
    max_dag_size: usize,
    stop: CancellationToken,
}

impl Api {
    pub(crate) fn new(core: Arc<Core>, auth: Arc<Auth>, authority: Pin, bounds: Bounds) -> Self {
        Self(Arc::new(Inner {
            core,
            auth,
            limiter: Limiter::new(bounds.requests_per_second),
            meter: Meter::default(),
            streams: Arc::default(),
            connections: Connections::new(bounds.connections),
            authority,
            max_dag_size: bounds.max_dag_size,
            stop: bounds.stop,
        }))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    /// Whose tokens are taken.
    pub(crate) fn auth(&self) -> &Auth {
        &self.0.auth
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Cancelled when the port closes, so that streams end and their readers resume elsewhere.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// Event streams and logs that are open.
    pub(crate) fn streams(&self) -> &Arc<Streams> {
        &self.0.streams
    }

    /// Connections that are open.
    pub(crate) fn connections(&self) -> &Connections {
        &self.0.connections
    }

    /// The authority that whoever joins the cluster is to trust.
    pub(crate) fn authority(&self) -> Pin {
        self.0.authority
    }

    /// Most members of one graph.
    pub(crate) fn max_dag_size(&self) -> usize {
        self.0.max_dag_size
    }

    /// Who an `Authorization` header stands for, within their rate.
    pub(crate) async fn authenticate(&self, header: Option<&str>) -> Result<Caller, Problem> {
        let secret = header.and_then(|text| {
            let (scheme, secret) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
        });
        let Some(secret) = secret else {
            let detail = "send a token: Authorization: Bearer …";
            return Err(Problem::new(
                Kind::Unauthenticated,
                "unauthenticated",
                detail,
            ));
        };
        let caller = self.0.auth.identify(secret, self.0.core.now()).await?;
        let taken = self.0.limiter.take(&caller.name, self.0.core.now());
        taken.map_err(|wait_ms| {
            let detail = format!(
                "{} asks too often; wait {wait_ms} ms, or read events instead of lists",
                caller.name
            );
            Problem::new(Kind::TooMany, "too_many_requests", detail)
        })?;
        Ok(caller)
    }
}
