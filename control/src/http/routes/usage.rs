//! What tenants and users have used.

use crate::http::{
    answer::Answer,
    extract::{AlsoAccounting, Params, Place},
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
    /// Days of the window that ends now, 1 to 366; the budget period when left out, which is 90 days unless the site
    /// says otherwise.
    #[param(minimum = 1, maximum = 366)]
    days: Option<u64>,
}

/// What a tenant has used, and how it stands to what it is meant to use. At most 30 s old.
#[utoipa::path(get, path = "/tenants/{id}/usage", tag = "usage", operation_id = "tenant",
    params(("id" = inline(Name), Path), OfTenant),
    responses((status = 200, body = TenantUsage)))]
pub(super) async fn tenant(
    State(api): State<Api>,
    AlsoAccounting(caller): AlsoAccounting,
    Place(id): Place,
    Params(q): Params<OfTenant>,
) -> Answer<TenantUsage> {
    Ok(Json(usage::of_tenant(api.core(), &caller, &id, q.days)?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfUser {
    /// Who; the caller when left out. Others for operators.
    user: Option<String>,
    /// Days of the window that ends now, 1 to 366; the budget period when left out.
    #[param(minimum = 1, maximum = 366)]
    days: Option<u64>,
}

/// What a user has used. At most 30 s old.
#[utoipa::path(get, path = "/usage", tag = "usage", operation_id = "user", params(OfUser),
    responses((status = 200, body = UserUsage)))]
pub(super) async fn user(
    State(api): State<Api>,
    AlsoAccounting(caller): AlsoAccounting,
    Params(q): Params<OfUser>,
) -> Answer<UserUsage> {
    let user = q.user.as_deref();
    Ok(Json(usage::of_user(api.core(), &caller, user, q.days)?))
}
