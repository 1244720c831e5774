//! The audit.

use crate::http::{
    Caller,
    answer::Answer,
    extract::Params,
    ops::audit::{self, Wanted},
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{Page, Problem, audit::AuditView};
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only entries after this number; `next_cursor` of the page before.
    #[serde(default)]
    after: u64,
    /// Entries on a page, 1 to 5000; 200 when left out. A page may hold fewer and still have a
    /// next.
    limit: Option<u32>,
    /// Only what this principal did.
    by: Option<String>,
    /// Only what is about these nodes, as a hostlist.
    node: Option<String>,
    /// Only what is about this allocation.
    allocation: Option<u64>,
    /// Only this action, such as `force_released` or `certificates_revoked`.
    action: Option<String>,
    /// Only from this moment on: a time, a date, or how long ago (`2d`).
    since: Option<String>,
}

/// What was written down for ever, oldest first. For operators of the whole cluster.
///
/// Each entry's hash covers the one before it: a change, a gap or another order shows.
#[utoipa::path(get, path = "/audit", tag = "audit", params(Which), responses(
    (status = 200, body = Page<AuditView>), (status = "default", body = Problem)))]
pub(super) async fn query(
    State(api): State<Api>,
    caller: Caller,
    Params(w): Params<Which>,
) -> Answer<Page<AuditView>> {
    let wanted = Wanted {
        by: w.by.as_deref(),
        node: w.node.as_deref(),
        allocation: w.allocation,
        action: w.action.as_deref(),
        since: w.since.as_deref(),
    };
    Ok(Json(
        audit::list(api.core(), &caller, &wanted, w.after, w.limit).await?,
    ))
}
