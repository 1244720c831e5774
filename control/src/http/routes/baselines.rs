//! Baselines, and the brake on automatic draining.

use super::Expected;
use crate::http::{
    Caller,
    answer::Answer,
    extract::{Input, Key, Params, Place},
    ops::{baselines, brake},
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    Page,
    baseline::{BaselineRequest, BaselineSet, BaselineView, BrakeState, ReleaseRequest},
    conformance::DiffView,
    project::Changed,
    schema::Name,
};
use serde::Deserialize;
use utoipa::IntoParams;

/// The baselines in force, by name. Exact rules are shown by their digest.
#[utoipa::path(get, path = "/conformance/baselines", tag = "baselines", responses(
    (status = 200, body = Page<BaselineView>)))]
pub(super) async fn list(State(api): State<Api>, _: Caller) -> Answer<Page<BaselineView>> {
    Ok(Json(Page::whole(baselines::list(api.core()))))
}

/// One baseline whole: every key, the versions that are kept, and how the nodes it speaks for stand.
#[utoipa::path(get, path = "/conformance/baselines/{name}", tag = "baselines", params(
    ("name" = String, Path, description = "Its name, or `name@3` for a version that was.")),
    responses((status = 200, body = BaselineView)))]
pub(super) async fn get(
    State(api): State<Api>,
    _: Caller,
    Place(name): Place,
) -> Answer<BaselineView> {
    Ok(Json(baselines::get(api.core(), &name).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DryRun {
    /// Set nothing; say what it would be, and for whom.
    #[serde(default)]
    dry_run: bool,
}

/// Makes a new version of a baseline, the first one too. For operators of the whole cluster; kept
/// in the audit.
///
/// `from_node` is asked now, directly; `from_group` is what its members share. At most 256 KiB each, 64 MiB together with
/// the 16 last versions of each, 256 baselines. Two baselines that name the same node, or choose the
/// same cohort, for one class are refused. The answer says for how many nodes it speaks and how they
/// stand at this moment, and warns of names and keys that no node has: they may come.
#[utoipa::path(put, path = "/conformance/baselines/{name}", tag = "baselines",
    request_body = BaselineRequest, params(("name" = inline(Name), Path), DryRun, Key),
    responses((status = 200, body = BaselineSet)))]
pub(super) async fn set(
    State(api): State<Api>,
    caller: Caller,
    Place(name): Place,
    Params(how): Params<DryRun>,
    Key(key): Key,
    Input(request): Input<BaselineRequest>,
) -> Answer<BaselineSet> {
    Ok(Json(
        baselines::set(api.core(), &caller, &name, request, key, how.dry_run).await?,
    ))
}

/// Deletes a baseline: nobody is judged by it any more. For operators of the whole cluster; kept in
/// the audit.
#[utoipa::path(delete, path = "/conformance/baselines/{name}", tag = "baselines", params(
    ("name" = inline(Name), Path), Expected, Key),
    responses((status = 200, body = Changed)))]
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Place(name): Place,
    Params(expected): Params<Expected>,
    Key(key): Key,
) -> Answer<Changed> {
    let version = expected.expected_version;
    Ok(Json(
        baselines::delete(api.core(), &caller, &name, version, key).await?,
    ))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct With {
    /// A node, or another baseline (`h100`, or `h100@3` for a version that was).
    with: String,
}

/// A baseline beside a node, or beside another baseline, key by key. The baseline is on the left.
#[utoipa::path(get, path = "/conformance/baselines/{name}/diff", tag = "baselines", params(
    ("name" = String, Path, description = "Its name, or `name@3` for a version that was."),
    With), responses((status = 200, body = DiffView)))]
pub(super) async fn diff(
    State(api): State<Api>,
    _: Caller,
    Place(name): Place,
    Params(p): Params<With>,
) -> Answer<DiffView> {
    Ok(Json(baselines::diff(api.core(), &name, &p.with).await?))
}

/// Whether automatic draining stands still, and why.
#[utoipa::path(get, path = "/conformance/brake", tag = "baselines", responses(
    (status = 200, body = BrakeState)))]
pub(super) async fn brake(State(api): State<Api>, _: Caller) -> Answer<BrakeState> {
    Ok(Json(brake::state(api.core())))
}

/// Lets automatic draining go on after a person has looked. For operators of the whole cluster;
/// kept in the audit.
#[utoipa::path(post, path = "/conformance/brake/release", tag = "baselines",
    request_body = ReleaseRequest, params(Key),
    responses((status = 200, body = Changed)))]
pub(super) async fn release(
    State(api): State<Api>,
    caller: Caller,
    Key(key): Key,
    Input(request): Input<ReleaseRequest>,
) -> Answer<Changed> {
    Ok(Json(
        brake::release(api.core(), &caller, request, key).await?,
    ))
}
