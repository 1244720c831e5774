//! State shared by all handlers.

use super::{
    auth::Auth, caller::Caller, connections::Connections, limiter::Limiter, response_times::Meter,
    streams::Streams,
};
use lattice_api::{
    problem::{Kind, Problem},
    text,
};
use lattice_engine::{
    Core, History, accounting_connection::AccountingConnection, bmc::Readings,
    checkpoint_storage::CheckpointStorage, decisions::Decisions, node_records::NodeRecords,
    preimages::Preimages, requested_plans::PlanCache, tasks::node_evidence::NodeAccess,
    usage::UsageLedger,
};
use lattice_mesh::Pin;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Limits and defaults of the port, and its stop signal.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Requests per second and principal, also the burst size.
    pub(crate) requests_per_second: u32,
    /// Maximum number of connections.
    pub(crate) connections: usize,
    /// Maximum number of members of a DAG.
    pub(crate) max_dag_size: usize,
    /// Default for the output files of requests that name none; `None`: the nodes keep the output.
    pub(crate) default_output: Option<String>,
    /// Stop signal: cancelled when the port closes.
    pub(crate) stop: CancellationToken,
}

/// Stores of the control that the interfaces show.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Node history.
    pub history: History,
    /// Records and documents by digest.
    pub preimages: Preimages,
    /// Latest readings of the BMCs.
    pub readings: Readings,
    /// Usage ledger.
    pub usage: Arc<UsageLedger>,
    /// Recorded inputs and decisions of the schedulers.
    pub decisions: Arc<Decisions>,
    /// Checkpoint directories, and outages of their storage.
    pub checkpoints: Arc<CheckpointStorage>,
    /// Connection to the accounting system; `None` when accounting is disabled.
    pub accounting: Option<Arc<AccountingConnection>>,
}

impl Stores {
    /// Sources of the records of nodes.
    pub fn records(&self, core: &Arc<Core>) -> NodeRecords {
        NodeRecords {
            core: core.clone(),
            history: self.history.clone(),
            preimages: self.preimages.clone(),
            readings: self.readings.clone(),
        }
    }

    /// Access to agents and BMCs for direct queries.
    pub fn nodes(&self, core: &Arc<Core>) -> NodeAccess {
        NodeAccess::new(core.clone(), self.readings.clone())
    }
}

/// Shared state of all handlers, REST and gRPC.
#[derive(Clone)]
pub(crate) struct Api(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    stores: Stores,
    plans: PlanCache,
    auth: Arc<Auth>,
    limiter: Limiter,
    meter: Meter,
    streams: Arc<Streams>,
    connections: Connections,
    authority: Pin,
    max_dag_size: usize,
    default_output: Option<String>,
    stop: CancellationToken,
}

impl Api {
    pub(crate) fn new(
        core: Arc<Core>,
        stores: Stores,
        auth: Arc<Auth>,
        authority: Pin,
        bounds: Bounds,
    ) -> Self {
        Self(Arc::new(Inner {
            core,
            stores,
            plans: PlanCache::default(),
            auth,
            limiter: Limiter::new(bounds.requests_per_second),
            meter: Meter::default(),
            streams: Arc::default(),
            connections: Connections::new(bounds.connections),
            authority,
            max_dag_size: bounds.max_dag_size,
            default_output: bounds.default_output,
            stop: bounds.stop,
        }))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    pub(crate) fn stores(&self) -> &Stores {
        &self.0.stores
    }

    /// Plans made on request.
    pub(crate) fn plans(&self) -> &PlanCache {
        &self.0.plans
    }

    /// Sources of the records of nodes.
    pub(crate) fn records(&self) -> NodeRecords {
        self.stores().records(self.core())
    }

    /// Access to agents and BMCs for direct queries.
    pub(crate) fn nodes(&self) -> NodeAccess {
        self.stores().nodes(self.core())
    }

    /// Authentication of callers, by token.
    pub(crate) fn auth(&self) -> &Auth {
        &self.0.auth
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Stop signal: cancelled when the port closes, so that streams end and their clients resume on another control.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// Open streams: events, logs, decisions, backups, and gRPC health and reflection.
    pub(crate) fn streams(&self) -> &Arc<Streams> {
        &self.0.streams
    }

    /// Open connections.
    pub(crate) fn connections(&self) -> &Connections {
        &self.0.connections
    }

    /// Certificate authority that join tokens name while the cluster state has none.
    pub(crate) fn authority(&self) -> Pin {
        self.0.authority
    }

    /// Maximum number of members of a DAG.
    pub(crate) fn max_dag_size(&self) -> usize {
        self.0.max_dag_size
    }

    /// Default for the output files of requests that name none; `None`: the nodes keep the output.
    pub(crate) fn default_output(&self) -> Option<&str> {
        self.0.default_output.as_deref()
    }

    /// Identifies the caller by an `Authorization` header, applies the request rate limit, and checks that this control
    /// has a view. Every route and call with a token begins here, so that none of them answers from an empty view.
    ///
    /// # Errors
    /// Returns the errors of [`Api::authenticate_without_view`], and `no_view` while this control has no view.
    pub(crate) async fn authenticate(&self, header: Option<&str>) -> Result<Caller, Problem> {
        let caller = self.authenticate_without_view(header).await?;
        match self.core().has_view_after_start().await {
            true => Ok(caller),
            false => Err(no_view(self.core())),
        }
    }

    /// Identifies the caller and applies the request rate limit, also while this control has no view. Only for answers
    /// that do not derive from the view.
    ///
    /// # Errors
    /// Returns a problem for a missing or unknown token, an issuer that does not answer, or too many requests.
    pub(crate) async fn authenticate_without_view(
        &self,
        header: Option<&str>,
    ) -> Result<Caller, Problem> {
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
                "{} sends too many requests; wait {wait_ms} ms, or read events instead of lists",
                caller.name
            );
            Problem::new(Kind::TooMany, "too_many_requests", detail)
        })?;
        Ok(caller)
    }
}

/// Problem of every answer that derives from the view, while there is none: an empty answer would be taken for an empty
/// cluster.
fn no_view(core: &Core) -> Problem {
    let uptime_ms = u64::try_from(core.uptime().as_millis()).unwrap_or(u64::MAX);
    let detail = format!(
        "this control has no view of the cluster: it started {} ago and has not received the state from the quorum, so \
         nothing is known; `lattice admin quorum status` shows whether a majority of the members answers; repeat the \
         request when it does",
        text::rounded_duration(uptime_ms)
    );
    Problem::new(Kind::Unavailable, "no_view", detail)
}
