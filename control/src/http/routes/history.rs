//! What nodes were, and when and why that changed.

use crate::http::{
    Caller,
    answer::Answer,
    extract::{Params, Place},
    ops::history::{self, Asked},
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
pub(super) struct Which {
    /// Only from this moment on: a time, a date, `yesterday`, or how long ago (`2d`).
    since: Option<String>,
    /// Only changes of this class.
    class: Option<String>,
    /// Only these kinds, comma-separated: change, boot, agent, driver, device, xid, health, cleared,
    /// drain, lifecycle, liveness; audit, for those who may read it.
    kind: Option<String>,
    /// Only what happened about the time of the line with this number, or about this moment.
    around: Option<String>,
    /// How long before and after that; 10m when left out.
    within: Option<String>,
    /// Lines on a page, 1 to 5000; 200 when left out.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// What changed on a node, and what else happened there, newest first: boots, drivers, XIDs, health,
/// drains, whether it answered.
///
/// This control answers from what it keeps, also while the node is down. What the audit says of the
/// node is left out for those who may not read the audit.
#[utoipa::path(get, path = "/nodes/{id}/history", tag = "nodes",
    params(("id" = inline(Name), Path), Which), responses(
    (status = 200, body = Page<HistoryEntryView>)))]
pub(super) async fn of_node(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Params(which): Params<Which>,
) -> Answer<Page<HistoryEntryView>> {
    let asked = Asked {
        since: which.since.as_deref(),
        class: which.class.as_deref(),
        kind: which.kind.as_deref(),
        around: which.around.as_deref(),
        within: which.within.as_deref(),
        limit: which.limit,
        cursor: which.cursor.as_deref(),
    };
    Ok(Json(
        history::of_node(api.core(), &caller, &id, &asked).await?,
    ))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Since {
    /// From this moment on: a time, a date, `yesterday`, or how long ago. A day when left out.
    since: Option<String>,
}

/// What changed anywhere, equal changes of several nodes together.
#[utoipa::path(get, path = "/conformance/changes", tag = "conformance", params(Since),
    responses((status = 200, body = ChangesView)))]
pub(super) async fn changes(
    State(api): State<Api>,
    _: Caller,
    Params(p): Params<Since>,
) -> Answer<ChangesView> {
    Ok(Json(
        history::changes(api.core(), p.since.as_deref()).await?,
    ))
}
