//! Reservation routes: nodes reserved for users or projects for a time.

use super::Paging;
use crate::Caller;
use crate::{
    answer::Answer,
    extract::{Input, Key, Params, PathParameter},
    ops::reservations,
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    Page,
    project::ChangeResult,
    reservation::{ReservationRequest, ReservationView},
    schema::Name,
};

/// List reservations by name, including future ones, a page at a time.
#[utoipa::path(get, path = "/reservations", tag = "reservations", params(Paging), responses(
    (status = 200, body = Page<ReservationView>)))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(p): Params<Paging>,
) -> Answer<Page<ReservationView>> {
    let (limit, cursor) = (p.limit, p.cursor.as_deref());
    Ok(Json(reservations::list(
        api.core(),
        &caller,
        limit,
        cursor,
    )?))
}

/// Show a reservation.
#[utoipa::path(get, path = "/reservations/{name}", tag = "reservations",
    params(("name" = inline(Name), Path)), responses((status = 200, body = ReservationView)))]
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(name): PathParameter,
) -> Answer<ReservationView> {
    Ok(Json(reservations::get(api.core(), &caller, &name)?))
}

/// Create or replace a reservation.
///
/// Running jobs continue; a job that would run into the reserved time is not placed there. Groups stand for the nodes
/// that are in them now. For operators of the whole cluster; recorded in the audit.
#[utoipa::path(put, path = "/reservations/{name}", tag = "reservations",
    request_body = ReservationRequest, params(("name" = inline(Name), Path), Key),
    responses((status = 200, body = ReservationView)))]
pub(super) async fn set(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(name): PathParameter,
    Key(key): Key,
    Input(request): Input<ReservationRequest>,
) -> Answer<ReservationView> {
    Ok(Json(
        reservations::set(api.core(), &caller, &name, request, key).await?,
    ))
}

/// Delete a reservation.
///
/// For operators of the whole cluster; recorded in the audit.
#[utoipa::path(delete, path = "/reservations/{name}", tag = "reservations",
    params(("name" = inline(Name), Path), Key),
    responses((status = 200, body = ChangeResult)))]
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(name): PathParameter,
    Key(key): Key,
) -> Answer<ChangeResult> {
    Ok(Json(
        reservations::delete(api.core(), &caller, &name, key).await?,
    ))
}
