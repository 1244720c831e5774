//! Audit routes.

use crate::Caller;
use crate::{
    answer::Answer,
    extract::Params,
    ops::audit::{self, AuditQuery},
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
pub(super) struct AuditListQuery {
    /// Only entries after this sequence number; `next_cursor` of the previous page.
    #[serde(default)]
    after: u64,
    /// Entries per page, 1 to 5000; default 200. A page may hold fewer entries and still have a next page.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<u32>,
    /// Only actions of this principal.
    by: Option<String>,
    /// Only entries about this user: the user's actions, node claims and allocations.
    user: Option<String>,
    /// Only entries about these nodes, as a hostlist.
    node: Option<String>,
    /// Only entries about this allocation.
    allocation: Option<u64>,
    /// Only entries about this project or its descendants.
    project: Option<String>,
    /// Only these actions, such as `force_released,certificates_revoked`.
    action: Option<String>,
    /// Only entries from this time on: a time, a date, or an age (`2d`).
    since: Option<String>,
    /// Only entries before this time.
    until: Option<String>,
    /// Newest entries first; `after` is then the sequence number below which the page begins.
    #[serde(default)]
    newest_first: bool,
}

/// List audit entries, oldest first by default.
///
/// Operators of the whole cluster read all entries. Operators and administrators of some tenants read entries about
/// these tenants alone. Users read entries about their own actions and objects.
///
/// Each entry's hash covers the previous entry, so a change, a gap or a reordering is detectable.
#[utoipa::path(get, path = "/audit", tag = "audit", params(AuditListQuery), responses(
    (status = 200, body = Page<AuditView>),
    (status = 404, body = Problem, description = "No such project, or not visible to the caller.")))]
pub(super) async fn query(
    State(api): State<Api>,
    caller: Caller,
    Params(w): Params<AuditListQuery>,
) -> Answer<Page<AuditView>> {
    let wanted = AuditQuery {
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

/// Sign the current audit head, unless it is signed already, and return the signed head.
///
/// An export made afterwards is verifiable up to that head. For operators of the whole cluster.
#[utoipa::path(post, path = "/audit/checkpoint", tag = "audit", responses(
    (status = 200, body = AuditHeadView)))]
pub(super) async fn sign(State(api): State<Api>, caller: Caller) -> Answer<AuditHeadView> {
    Ok(Json(audit::sign(api.core(), &caller).await?))
}
