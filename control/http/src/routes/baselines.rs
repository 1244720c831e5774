//! Baseline routes, and those of the brake on automatic draining.

use super::ExpectedVersion;
use crate::Caller;
use crate::{
    answer::Answer,
    extract::{Input, Key, Params, PathParameter},
    ops::{baselines, brake},
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    Page,
    baseline::{BaselineRequest, BaselineResult, BaselineView, BrakeState, ReleaseRequest},
    conformance::DiffView,
    project::ChangeResult,
    schema::Name,
};
use serde::Deserialize;
use utoipa::IntoParams;

/// List the baselines in force, by name.
///
/// Exact rules are shown by their digest.
#[utoipa::path(get, path = "/conformance/baselines", tag = "baselines", responses(
    (status = 200, body = Page<BaselineView>)))]
pub(super) async fn list(State(api): State<Api>, _: Caller) -> Answer<Page<BaselineView>> {
    Ok(Json(Page::single(baselines::list(api.core()))))
}

/// Show one complete baseline.
///
/// The response has every key, the stored versions, and the conformance of its nodes.
#[utoipa::path(get, path = "/conformance/baselines/{name}", tag = "baselines", params(
    ("name" = String, Path, description = "Name of the baseline, or `name@3` for an earlier version.")),
    responses((status = 200, body = BaselineView)))]
pub(super) async fn get(
    State(api): State<Api>,
    _: Caller,
    PathParameter(name): PathParameter,
) -> Answer<BaselineView> {
    Ok(Json(baselines::get(api.core(), &name).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DryRun {
    /// Change nothing; only return the resulting version and the nodes it applies to.
    #[serde(default)]
    dry_run: bool,
}

/// Create a new version of a baseline.
///
/// For operators of the whole cluster; recorded in the audit.
///
/// `from_node` queries the node directly for its last reading; `from_group` uses what the members of the group share.
/// Limits: 256 KiB for each baseline, 64 MiB for all with their last 16 versions, 256 baselines. Two baselines for the
/// same class that name the same node, or select the same cohort, are rejected. The response contains the number of
/// nodes the baseline applies to and their current conformance. Names and keys that no node has are accepted, because
/// such nodes and keys may appear later; the response warns of them.
#[utoipa::path(put, path = "/conformance/baselines/{name}", tag = "baselines",
    request_body = BaselineRequest, params(("name" = inline(Name), Path), DryRun, Key),
    responses((status = 200, body = BaselineResult)))]
pub(super) async fn set(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(name): PathParameter,
    Params(how): Params<DryRun>,
    Key(key): Key,
    Input(request): Input<BaselineRequest>,
) -> Answer<BaselineResult> {
    Ok(Json(
        baselines::set(&api, &caller, &name, request, key, how.dry_run).await?,
    ))
}

/// Delete a baseline.
///
/// No node is compared with the baseline afterwards. For operators of the whole cluster; recorded in the audit.
#[utoipa::path(delete, path = "/conformance/baselines/{name}", tag = "baselines", params(
    ("name" = inline(Name), Path), ExpectedVersion, Key),
    responses((status = 200, body = ChangeResult)))]
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(name): PathParameter,
    Params(expected): Params<ExpectedVersion>,
    Key(key): Key,
) -> Answer<ChangeResult> {
    let version = expected.expected_version;
    Ok(Json(
        baselines::delete(api.core(), &caller, &name, version, key).await?,
    ))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CompareQuery {
    /// A node, or another baseline (`h100`, or `h100@3` for an earlier version).
    with: String,
}

/// Compare a baseline with a node or another baseline, key by key.
///
/// The baseline is on the left.
#[utoipa::path(get, path = "/conformance/baselines/{name}/diff", tag = "baselines", params(
    ("name" = String, Path, description = "Name of the baseline, or `name@3` for an earlier version."),
    CompareQuery), responses((status = 200, body = DiffView)))]
pub(super) async fn diff(
    State(api): State<Api>,
    _: Caller,
    PathParameter(name): PathParameter,
    Params(p): Params<CompareQuery>,
) -> Answer<DiffView> {
    Ok(Json(baselines::diff(&api, &name, &p.with).await?))
}

/// Show whether automatic draining is stopped, and why.
#[utoipa::path(get, path = "/conformance/brake", tag = "baselines", responses(
    (status = 200, body = BrakeState)))]
pub(super) async fn brake(State(api): State<Api>, _: Caller) -> Answer<BrakeState> {
    Ok(Json(brake::state(api.core())))
}

/// Release the brake on automatic draining, after an operator's check.
///
/// For operators of the whole cluster; recorded in the audit.
#[utoipa::path(post, path = "/conformance/brake/release", tag = "baselines",
    request_body = ReleaseRequest, params(Key),
    responses((status = 200, body = ChangeResult)))]
pub(super) async fn release(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
    Input(request): Input<ReleaseRequest>,
) -> Answer<ChangeResult> {
    Ok(Json(
        brake::release(api.core(), &caller, request, key).await?,
    ))
}
