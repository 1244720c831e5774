//! What every handler has at hand.

use super::{auth::Auth, caller::Caller, limiter::Limiter, meter::Meter};
use crate::Core;
use lattice_api::problem::{Kind, Problem};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio_util::sync::CancellationToken;

/// Event streams and followed logs open at the same time, all principals together.
const MAX_STREAMS: usize = 2_048;

/// Shared by all handlers, REST and gRPC.
#[derive(Clone)]
pub(crate) struct Api(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    auth: Arc<Auth>,
    limiter: Limiter,
    meter: Meter,
    streams: Arc<AtomicUsize>,
    stop: CancellationToken,
}

impl Api {
    pub(crate) fn new(
        core: Arc<Core>,
        auth: Arc<Auth>,
        requests_per_second: u32,
        stop: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            core,
            auth,
            limiter: Limiter::new(requests_per_second),
            meter: Meter::default(),
            streams: Arc::default(),
            stop,
        }))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Cancelled when the port closes, so that streams end and their readers resume elsewhere.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// Streams open now.
    pub(crate) fn streams(&self) -> usize {
        self.0.streams.load(Ordering::Relaxed)
    }

    /// Who an `Authorization` header stands for, within their rate.
    pub(crate) fn authenticate(&self, header: Option<&str>) -> Result<Caller, Problem> {
        let secret = header.and_then(|text| {
            let (scheme, secret) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
        });
        let Some(caller) = secret.and_then(|secret| self.0.auth.find(secret)) else {
            let detail = match secret {
                None => "send a token: Authorization: Bearer …",
                Some(_) => "the token is not known here; ask an administrator for one",
            };
            return Err(Problem::new(
                Kind::Unauthenticated,
                "unauthenticated",
                detail,
            ));
        };
        let taken = self.0.limiter.take(&caller.name, self.0.core.now());
        taken.map_err(|wait_ms| {
            let detail = format!(
                "{} asks too often; wait {wait_ms} ms, or read events instead of lists",
                caller.name
            );
            Problem::new(Kind::TooMany, "too_many_requests", detail)
        })?;
        Ok(caller.clone())
    }

    /// A place among the open streams; it is given back when dropped.
    pub(crate) fn open_stream(&self) -> Result<StreamPlace, Problem> {
        let streams = &self.0.streams;
        if streams.fetch_add(1, Ordering::Relaxed) >= MAX_STREAMS {
            streams.fetch_sub(1, Ordering::Relaxed);
            let detail = format!("{MAX_STREAMS} streams are open already; try again later");
            return Err(Problem::new(Kind::Unavailable, "too_many_streams", detail));
        }
        Ok(StreamPlace(streams.clone()))
    }
}

/// See [`Api::open_stream`].
pub(crate) struct StreamPlace(Arc<AtomicUsize>);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
