//! The audit.

use crate::http::{
    Caller,
    answer::Answer,
    extract::Params,
    ops::audit::{self, Wanted},
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    Page, Problem,
    audit::{AuditHeadView, AuditView},
};
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
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<u32>,
    /// Only what this principal did.
    by: Option<String>,
    /// Only what this person did or what is about them: their claims, their work.
    user: Option<String>,
    /// Only what is about these nodes, as a hostlist.
    node: Option<String>,
    /// Only what is about this allocation.
    allocation: Option<u64>,
    /// Only what is about this project or one below it.
    project: Option<String>,
    /// Only these actions, such as `force_released,certificates_revoked`.
    action: Option<String>,
    /// Only from this moment on: a time, a date, or how long ago (`2d`).
    since: Option<String>,
    /// Only before this moment.
    until: Option<String>,
    /// The last one first; `after` is then the number behind which, going back, the page begins.
    #[serde(default)]
    newest_first: bool,
}

/// What was written down for ever, oldest first. Operators of the whole cluster read all of it,
/// those of some tenants what is about these alone, users what they did or what is about them.
///
/// Each entry's hash covers the one before it: a change, a gap or another order shows.
#[utoipa::path(get, path = "/audit", tag = "audit", params(Which), responses(
    (status = 200, body = Page<AuditView>),
    (status = 404, body = Problem, description = "There is no such project, for who asks.")))]
pub(super) async fn query(
    State(api): State<Api>,
    caller: Caller,
    Params(w): Params<Which>,
) -> Answer<Page<AuditView>> {
    let wanted = Wanted {
        by: w.by.as_deref(),
        user: w.user.as_deref(),
        node: w.node.as_deref(),
        allocation: w.allocation,
        project: w.project.as_deref(),
        action: w.action.as_deref(),
        since: w.since.as_deref(),
        until: w.until.as_deref(),
        newest_first: w.newest_first,
    };
    Ok(Json(
        audit::list(api.core(), &caller, &wanted, w.after, w.limit).await?,
    ))
}

/// Has the leader sign the audit as far as it reaches, where something in it is not signed yet; says
/// where it ends then. What is exported afterwards is proven up to there. For operators of the whole
/// cluster.
#[utoipa::path(post, path = "/audit/checkpoint", tag = "audit", responses(
    (status = 200, body = AuditHeadView)))]
pub(super) async fn sign(State(api): State<Api>, caller: Caller) -> Answer<AuditHeadView> {
    Ok(Json(audit::sign(api.core(), &caller).await?))
}
