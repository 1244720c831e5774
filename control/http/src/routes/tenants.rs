//! Tenant routes, and cluster-wide limits.

use super::Paging;
use crate::Caller;
use crate::{
    answer::{Answer, ProblemResponse},
    extract::{CallerOrAccounting, Input, Key, Params, PathParameter},
    ops::tenants,
    state::Api,
};
use axum::{Json, extract::State, http::StatusCode};
use lattice_api::{
    Page,
    project::ChangeResult,
    schema::Name,
    tenant::{
        LimitPolicyUpdate, SystemLimitsUpdate, SystemLimitsView, TenantRequest, TenantUpdate,
        TenantView,
    },
};

/// List all tenants by name, a page at a time.
#[utoipa::path(get, path = "/tenants", tag = "tenants", params(Paging), responses(
    (status = 200, body = Page<TenantView>)))]
pub(super) async fn list(
    State(api): State<Api>,
    CallerOrAccounting(caller): CallerOrAccounting,
    Params(p): Params<Paging>,
) -> Answer<Page<TenantView>> {
    Ok(Json(tenants::list(
        api.core(),
        &caller,
        p.limit,
        p.cursor.as_deref(),
    )?))
}

/// Create a tenant.
///
/// For administrators of the whole cluster.
#[utoipa::path(post, path = "/tenants", tag = "tenants", request_body = TenantRequest,
    params(Key),
    responses((status = 201, body = TenantView)))]
pub(super) async fn create(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
    Input(request): Input<TenantRequest>,
) -> Result<(StatusCode, Json<TenantView>), ProblemResponse> {
    let made = tenants::create(api.core(), &caller, request, key).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Show a tenant.
#[utoipa::path(get, path = "/tenants/{id}", tag = "tenants", params(("id" = inline(Name), Path)),
    responses((status = 200, body = TenantView)))]
pub(super) async fn get(
    State(api): State<Api>,
    CallerOrAccounting(caller): CallerOrAccounting,
    PathParameter(id): PathParameter,
) -> Answer<TenantView> {
    Ok(Json(tenants::get(api.core(), &caller, &id)?))
}

/// Change the limits of a tenant.
///
/// A field left out stays; `null` removes the limit where that is allowed. A limit may be set below the present usage;
/// running allocations are not affected. Below the sum of the project limits it is rejected with 409, unless `force` is
/// given, which marks the tenant as overcommitted. For administrators of the whole cluster, and for accounting systems
/// without `force`.
#[utoipa::path(put, path = "/tenants/{id}", tag = "tenants", request_body = TenantUpdate,
    params(("id" = inline(Name), Path), Key),
    responses((status = 200, body = TenantView)))]
pub(super) async fn update(
    State(api): State<Api>,
    CallerOrAccounting(caller): CallerOrAccounting,
    PathParameter(id): PathParameter,
    Key(key): Key,
    Input(update): Input<TenantUpdate>,
) -> Answer<TenantView> {
    Ok(Json(
        tenants::update(api.core(), &caller, &id, update, key).await?,
    ))
}

/// Delete a tenant without projects, unfinished allocations or claimed nodes.
///
/// For administrators of the whole cluster.
#[utoipa::path(delete, path = "/tenants/{id}", tag = "tenants", params(("id" = inline(Name), Path), Key),
    responses((status = 200, body = ChangeResult)))]
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
) -> Answer<ChangeResult> {
    Ok(Json(tenants::delete(api.core(), &caller, &id, key).await?))
}

/// Show the cluster-wide limits and the limit policy.
#[utoipa::path(get, path = "/system/limits", tag = "system", responses(
    (status = 200, body = SystemLimitsView)))]
pub(super) async fn limits(State(api): State<Api>, caller: Caller) -> Answer<SystemLimitsView> {
    Ok(Json(tenants::system(api.core(), &caller).await?))
}

/// Change the cluster-wide limits.
///
/// A field left out stays; `null` removes the limit. A limit may be set below the present usage; running allocations
/// are not affected. For administrators of the whole cluster.
#[utoipa::path(put, path = "/system/limits", tag = "system", request_body = SystemLimitsUpdate,
    params(Key),
    responses((status = 200, body = SystemLimitsView)))]
pub(super) async fn set_limits(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
    Input(update): Input<SystemLimitsUpdate>,
) -> Answer<SystemLimitsView> {
    Ok(Json(
        tenants::set_system(api.core(), &caller, update, key).await?,
    ))
}

/// Set the limit policy.
///
/// Rejected with 409 while the project tree violates it. For administrators of the whole cluster.
#[utoipa::path(put, path = "/system/limit-policy", tag = "system", request_body = LimitPolicyUpdate,
    params(Key),
    responses((status = 200, body = SystemLimitsView)))]
pub(super) async fn set_policy(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
    Input(update): Input<LimitPolicyUpdate>,
) -> Answer<SystemLimitsView> {
    Ok(Json(
        tenants::set_policy(api.core(), &caller, update, key).await?,
    ))
}
