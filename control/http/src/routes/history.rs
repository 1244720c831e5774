//! Node history routes.

use crate::Caller;
use crate::{
    answer::Answer,
    extract::{Params, PathParameter},
    ops::history::{self, HistoryQuery},
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    Page,
    history::{ChangesView, HistoryEntryView},
    schema::Name,
};
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryListQuery {
    /// Only entries from this time on: a time, a date, `yesterday`, or an age (`2d`).
    since: Option<String>,
    /// Only changes of this class.
    class: Option<String>,
    /// Only these kinds, comma-separated: change, boot, agent, driver, device, xid, health, cleared, drain, lifecycle,
    /// liveness; audit and bmc, for operators of the whole cluster only.
    kind: Option<String>,
    /// Only entries around the time of the entry with this number, or around this time.
    around: Option<String>,
    /// Time before and after `around`; default 10m.
    within: Option<String>,
    /// Entries per page, 1 to 5000; default 200.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List changes and events of a node, newest first.
///
/// The events are boots, agent starts, drivers, devices, XIDs, health, drains, lifecycle and liveness.
///
/// This control answers from its own history, also while the node is down. Audit and BMC log
/// entries about the node are included for operators of the whole cluster only.
#[utoipa::path(get, path = "/nodes/{id}/history", tag = "nodes",
    params(("id" = inline(Name), Path), HistoryListQuery), responses(
    (status = 200, body = Page<HistoryEntryView>)))]
pub(super) async fn of_node(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Params(which): Params<HistoryListQuery>,
) -> Answer<Page<HistoryEntryView>> {
    let asked = HistoryQuery {
        since: which.since.as_deref(),
        class: which.class.as_deref(),
        kind: which.kind.as_deref(),
        around: which.around.as_deref(),
        within: which.within.as_deref(),
        limit: which.limit,
        cursor: which.cursor.as_deref(),
    };
    Ok(Json(history::of_node(&api, &caller, &id, &asked).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangesQuery {
    /// Start of the range: a time, a date, `yesterday`, or an age. Default: one day.
    since: Option<String>,
}

/// List changes of all nodes; equal changes of several nodes are combined.
#[utoipa::path(get, path = "/conformance/changes", tag = "conformance", params(ChangesQuery),
    responses((status = 200, body = ChangesView)))]
pub(super) async fn changes(
    State(api): State<Api>,
    _: Caller,
    Params(p): Params<ChangesQuery>,
) -> Answer<ChangesView> {
    Ok(Json(history::changes(&api, p.since.as_deref()).await?))
}
