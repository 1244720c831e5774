//! Conformance routes.

use crate::Caller;
use crate::{answer::Answer, extract::Params, ops::conformance, state::Api};
use axum::{Json, extract::State};
use lattice_api::conformance::{DriftReportView, GroupsView};
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Scope {
    /// `gpu`, `nic`, `bios`, `bmc`, `kernel`, `cpu`, `memory`, `storage`, `software`, several of them separated by
    /// commas (`nic,gpu`), or `all` (default) for the node fingerprint.
    class: Option<String>,
}

/// List groups of nodes that share a digest, largest group first.
#[utoipa::path(get, path = "/conformance/groups", tag = "conformance", params(Scope), responses(
    (status = 200, body = GroupsView)))]
pub(super) async fn groups(
    State(api): State<Api>,
    _: Caller,
    Params(scope): Params<Scope>,
) -> Answer<GroupsView> {
    Ok(Json(
        conformance::groups(&api, scope.class.as_deref()).await?,
    ))
}

/// List drifting nodes and their differences.
///
/// A node is compared with the baseline that applies to it, or else with the majority of its cohort.
#[utoipa::path(get, path = "/conformance/drift", tag = "conformance", responses(
    (status = 200, body = DriftReportView)))]
pub(super) async fn drift(State(api): State<Api>, _: Caller) -> Answer<DriftReportView> {
    Ok(Json(conformance::drift(&api).await))
}
