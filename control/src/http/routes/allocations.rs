//! Allocations.

use crate::http::{
    Caller,
    answer::{Answer, Fail},
    extract::{Input, Key, Params, Place},
    ops::{
        allocations::{self, Act, Filter},
        elements,
        logs::{self, LogRequest},
        submit,
    },
    state::Api,
};
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
};
use futures::StreamExt;
use lattice_api::{
    AllocationRequest, AllocationView, Page, Problem, Submitted,
    allocation::{CheckpointRequest, ExtendRequest},
    explanation::ExplanationView,
    schema::Element,
};
use lattice_quorum_types::wire::LogStream;
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only in these states, separated by commas.
    state: Option<String>,
    /// Only of this project and what is below it.
    project: Option<String>,
    /// Only of this user.
    user: Option<String>,
    /// Items on a page, 1 to 5000; 200 when left out. A page may hold fewer and still have a next.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Allocations by number, ended ones included, a page at a time.
#[utoipa::path(get, path = "/allocations", tag = "allocations", params(Which), responses(
    (status = 200, body = Page<AllocationView>),
    (status = 404, body = Problem, description = "There is no such project, for who asks.")))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(w): Params<Which>,
) -> Answer<Page<AllocationView>> {
    let filter = Filter::new(w.state.as_deref(), w.project.as_deref(), w.user)?;
    let cursor = w.cursor.as_deref();
    let page = allocations::list(api.core(), &caller, &filter, w.limit, cursor).await?;
    Ok(Json(page))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct How {
    /// Judge only, change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Asks for nodes. A limit that would be exceeded is 409 and names every violated level; what no set of the
/// vCluster's nodes could ever satisfy is 422 and names the field.
#[utoipa::path(post, path = "/allocations", tag = "allocations", request_body = AllocationRequest,
    params(How, Key),
    responses((status = 201, body = Submitted), (status = 200, body = Submitted,
        description = "Dry run: it would be accepted, and what would become of it."), (status = 422, body = Problem,
            description = "No set of the vCluster's nodes could ever satisfy it.")))]
pub(super) async fn submit(
    State(api): State<Api>,
    caller: Caller,
    Params(how): Params<How>,
    Key(key): Key,
    Input(request): Input<AllocationRequest>,
) -> Result<(StatusCode, Json<Submitted>), Fail> {
    let made = submit::submit(api.core(), &caller, request, key, how.dry_run).await?;
    let status = match made.id {
        Some(_) => StatusCode::CREATED,
        None => StatusCode::OK,
    };
    Ok((status, Json(made)))
}

/// One allocation, ended ones included.
#[utoipa::path(get, path = "/allocations/{id}", tag = "allocations", params(("id" = inline(Element), Path)),
    responses((status = 200, body = AllocationView)))]
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
) -> Answer<AllocationView> {
    let id = elements::number(api.core(), &caller, &id).await?;
    Ok(Json(allocations::get(api.core(), &caller, id).await?))
}

async fn act(
    api: &Api,
    caller: &Caller,
    id: &str,
    what: Act,
    key: Option<String>,
) -> Answer<AllocationView> {
    let id = elements::number(api.core(), caller, id).await?;
    Ok(Json(
        allocations::act(api.core(), caller, id, what, key).await?,
    ))
}

/// Ends it: at once if it holds nothing, else what runs is stopped first.
#[utoipa::path(delete, path = "/allocations/{id}", tag = "allocations",
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, Act::Cancel, key).await
}

/// Keeps a pending one from starting.
#[utoipa::path(post, path = "/allocations/{id}/hold", tag = "allocations",
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn hold(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, Act::Hold, key).await
}

/// Takes it off hold.
#[utoipa::path(post, path = "/allocations/{id}/release", tag = "allocations",
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn release(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, Act::Release, key).await
}

/// Ends the processes of one that holds nodes; it waits for nodes again, from its last checkpoint on if it has
/// one.
#[utoipa::path(post, path = "/allocations/{id}/requeue", tag = "allocations",
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn requeue(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, Act::Requeue, key).await
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct First {
    /// Have it write a checkpoint first, or wait for the one that it writes already. Where that comes to nothing it
    /// is suspended without. Refused where it has no checkpoint mode, and where it does not run.
    #[serde(default)]
    checkpoint: bool,
}

/// Ends the processes of one that holds nodes. It holds nothing then, and waits until it is resumed, from its
/// last checkpoint on if it has one. For its user and for operators.
#[utoipa::path(post, path = "/allocations/{id}/suspend", tag = "allocations",
    params(("id" = inline(Element), Path), First, Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn suspend(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Params(first): Params<First>,
    Key(key): Key,
) -> Answer<AllocationView> {
    let how = match first.checkpoint {
        true => Act::SuspendAfterCheckpoint,
        false => Act::Suspend,
    };
    act(&api, &caller, &id, how, key).await
}

/// A suspended one waits for nodes again, if limits allow it now.
#[utoipa::path(post, path = "/allocations/{id}/resume", tag = "allocations",
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn resume(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, Act::Resume, key).await
}

/// Gives one that has not ended another walltime. A longer one is for operators.
#[utoipa::path(post, path = "/allocations/{id}/extend", tag = "allocations", request_body = ExtendRequest,
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn extend(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
    Input(request): Input<ExtendRequest>,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, Act::Extend(request), key).await
}

/// Has a running one write a checkpoint and go on. For its user and for operators.
#[utoipa::path(post, path = "/allocations/{id}/checkpoint", tag = "allocations", request_body = CheckpointRequest,
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn checkpoint(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Key(key): Key,
    Input(request): Input<CheckpointRequest>,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, Act::Checkpoint(request), key).await
}

/// Why it is where it is.
#[utoipa::path(get, path = "/allocations/{id}/explanation", tag = "allocations",
    params(("id" = inline(Element), Path)), responses(
    (status = 200, body = ExplanationView)))]
pub(super) async fn explanation(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
) -> Answer<ExplanationView> {
    let id = elements::number(api.core(), &caller, &id).await?;
    Ok(Json(
        allocations::explanation(api.core(), &caller, id).await?,
    ))
}

/// Which output.
#[derive(Clone, Copy, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum Output {
    #[default]
    Stdout,
    Stderr,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// The rank, from 0, which is also what leaving it out means.
    #[serde(default)]
    rank: u32,
    /// `stdout` (default) or `stderr`.
    #[serde(default)]
    #[param(inline)]
    stream: Output,
    /// First byte wanted.
    #[serde(default)]
    offset: u64,
    /// Wait for more until the rank ends.
    #[serde(default)]
    follow: bool,
}

/// A rank's captured output. For whoever submitted it, administrators of its project, operators.
#[utoipa::path(get, path = "/allocations/{id}/logs", tag = "allocations",
    params(("id" = inline(Element), Path), LogQuery), responses(
    (status = 200, body = String, content_type = "application/octet-stream"),
    (status = 409, body = Problem, description = "It is in a file of its own, or there is none yet.")))]
pub(super) async fn logs(
    State(api): State<Api>,
    caller: Caller,
    Place(id): Place,
    Params(q): Params<LogQuery>,
) -> Result<impl IntoResponse + use<>, Fail> {
    let id = elements::number(api.core(), &caller, &id).await?;
    let stream = match q.stream {
        Output::Stdout => LogStream::Stdout,
        Output::Stderr => LogStream::Stderr,
    };
    let request = LogRequest {
        rank: q.rank,
        stream,
        offset: q.offset,
        follow: q.follow,
    };
    let chunks = logs::logs(&api, &caller, id, request).await?;
    let stop = api.stop().clone().cancelled_owned();
    let body = chunks.take_until(stop).take_until(caller.ended());
    Ok((
        [(CONTENT_TYPE, "application/octet-stream")],
        Body::from_stream(body),
    ))
}
