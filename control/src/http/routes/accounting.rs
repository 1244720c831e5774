//! How accounting stands, putting it right, and where an accounting system calls.

use crate::http::{
    Caller,
    answer::{Answer, Fail},
    extract::{Input, Place},
    ops::accounting,
    state::Api,
};
use axum::{Json, extract::State, http::StatusCode};
use lattice_api::accounting::{AccountingStatus, ReconcileRequest, ReconcileView};

/// How accounting stands: what the accounting system has, what waits, and what it refuses. For operators.
#[utoipa::path(get, path = "/accounting/status", tag = "accounting", responses(
    (status = 200, body = AccountingStatus)))]
pub(super) async fn status(State(api): State<Api>, caller: Caller) -> Answer<AccountingStatus> {
    Ok(Json(accounting::status(api.core(), &caller).await?))
}

/// Compares the totals of months with what was used, and sets them unless it is a dry run; lower ones too. For
/// administrators of the whole cluster.
#[utoipa::path(post, path = "/accounting/reconcile", tag = "accounting",
    request_body = ReconcileRequest, responses(
    (status = 200, body = ReconcileView)))]
pub(super) async fn reconcile(
    State(api): State<Api>,
    caller: Caller,
    Input(request): Input<ReconcileRequest>,
) -> Answer<ReconcileView> {
    Ok(Json(
        accounting::reconcile(api.core(), &caller, request).await?,
    ))
}

/// Where Waldur's web hook calls: `destination_url` of a `hooks-web`. The secret in the path stands for a token. The
/// body is not read: what happened is asked of Waldur itself.
#[utoipa::path(post, path = "/accounting/hook/{secret}", tag = "accounting", security(()),
    params(("secret" = String, Path)), responses(
    (status = 204)))]
pub(super) async fn hook(State(api): State<Api>, Place(secret): Place) -> Result<StatusCode, Fail> {
    accounting::hook(api.core(), &secret).await?;
    Ok(StatusCode::NO_CONTENT)
}
