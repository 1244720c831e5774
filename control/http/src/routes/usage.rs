//! Usage routes of tenants and users.

use crate::{
    answer::Answer,
    extract::{CallerOrAccounting, Params, PathParameter},
    ops::usage,
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    schema::Name,
    usage::{TenantUsage, UserUsage},
};
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfTenant {
    /// Days of the window that ends now, 1 to 366; default is the budget period, which is 90 days unless configured
    /// otherwise.
    #[param(minimum = 1, maximum = 366)]
    days: Option<u64>,
}

/// Show the usage of a tenant, with its budgets, share of the cluster and paused projects.
///
/// At most 30 s old.
#[utoipa::path(get, path = "/tenants/{id}/usage", tag = "usage", operation_id = "tenant",
    params(("id" = inline(Name), Path), OfTenant),
    responses((status = 200, body = TenantUsage)))]
pub(super) async fn tenant(
    State(api): State<Api>,
    CallerOrAccounting(caller): CallerOrAccounting,
    PathParameter(id): PathParameter,
    Params(q): Params<OfTenant>,
) -> Answer<TenantUsage> {
    Ok(Json(usage::of_tenant(&api, &caller, &id, q.days)?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfUser {
    /// User name; default is the caller. Usage of other users is for operators, accounting systems and, in their
    /// tenants, tenant administrators.
    user: Option<String>,
    /// Days of the window that ends now, 1 to 366; default is the budget period.
    #[param(minimum = 1, maximum = 366)]
    days: Option<u64>,
}

/// Show the usage of a user.
///
/// At most 30 s old.
#[utoipa::path(get, path = "/usage", tag = "usage", operation_id = "user", params(OfUser),
    responses((status = 200, body = UserUsage)))]
pub(super) async fn user(
    State(api): State<Api>,
    CallerOrAccounting(caller): CallerOrAccounting,
    Params(q): Params<OfUser>,
) -> Answer<UserUsage> {
    let user = q.user.as_deref();
    Ok(Json(usage::of_user(&api, &caller, user, q.days)?))
}
