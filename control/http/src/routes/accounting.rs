//! Accounting routes: status, reconciliation and webhook.

use crate::Caller;
use crate::{
    answer::{Answer, ProblemResponse},
    extract::{Input, PathParameter},
    ops::accounting,
    state::Api,
};
use axum::{Json, extract::State, http::StatusCode};
use lattice_api::accounting::{AccountingStatus, ReconcileRequest, ReconcileView};

/// Show the accounting status.
///
/// The status lists the acknowledged, the pending and the rejected data. For operators of the whole cluster.
#[utoipa::path(get, path = "/accounting/status", tag = "accounting", responses(
    (status = 200, body = AccountingStatus)))]
pub(super) async fn status(State(api): State<Api>, caller: Caller) -> Answer<AccountingStatus> {
    Ok(Json(accounting::status(&api, &caller).await?))
}

/// Compare monthly totals with recorded usage.
///
/// Differences are corrected, also downwards, unless it is a dry run. For administrators of the whole cluster.
#[utoipa::path(post, path = "/accounting/reconcile", tag = "accounting",
    request_body = ReconcileRequest, responses(
    (status = 200, body = ReconcileView)))]
pub(super) async fn reconcile(
    State(api): State<Api>,
    caller: Caller,
    Input(request): Input<ReconcileRequest>,
) -> Answer<ReconcileView> {
    Ok(Json(accounting::reconcile(&api, &caller, request).await?))
}

/// Receive Waldur's webhook.
///
/// Set the URL of this path as the `destination_url` of a Waldur `hooks-web`. The secret in the path replaces a token.
/// The body is ignored; changes are read from Waldur.
#[utoipa::path(post, path = "/accounting/hook/{secret}", tag = "accounting", security(()),
    params(("secret" = String, Path)), responses(
    (status = 204)))]
pub(super) async fn hook(
    State(api): State<Api>,
    PathParameter(secret): PathParameter,
) -> Result<StatusCode, ProblemResponse> {
    accounting::webhook(&api, &secret).await?;
    Ok(StatusCode::NO_CONTENT)
}
