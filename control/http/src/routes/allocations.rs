//! Allocation routes.

use crate::Caller;
use crate::{
    answer::{Answer, ProblemResponse},
    extract::{Input, Key, Params, PathParameter},
    ops::{
        allocations::{self, AllocationAction, Filter},
        job_refs,
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
use lattice_agent_rpc::LogStream;
use lattice_api::{
    AllocationRequest, AllocationView, Page, Problem, SubmitResult,
    allocation::{CheckpointRequest, ExtendRequest},
    explanation::ExplanationView,
    schema::Element,
};
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AllocationsQuery {
    /// Only allocations in these states, separated by commas.
    state: Option<String>,
    /// Only allocations of this project and its descendants.
    project: Option<String>,
    /// Only allocations of this user.
    user: Option<String>,
    /// Items per page, 1 to 5000; default 200. A page may hold fewer items and still have a next page.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List allocations by number, including ended ones, a page at a time.
#[utoipa::path(get, path = "/allocations", tag = "allocations", params(AllocationsQuery), responses(
    (status = 200, body = Page<AllocationView>),
    (status = 404, body = Problem, description = "No such project, or not visible to the caller.")))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(w): Params<AllocationsQuery>,
) -> Answer<Page<AllocationView>> {
    let filter = Filter::new(w.state.as_deref(), w.project.as_deref(), w.user)?;
    let cursor = w.cursor.as_deref();
    let page = allocations::list(&api, &caller, &filter, w.limit, cursor).await?;
    Ok(Json(page))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SubmitQuery {
    /// Check only, change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Submit an allocation.
///
/// A limit that would be exceeded returns 409 and names every violated level. A request that no set of the vCluster's
/// nodes could ever satisfy returns 422 and names the field.
#[utoipa::path(post, path = "/allocations", tag = "allocations", request_body = AllocationRequest,
    params(SubmitQuery, Key),
    responses((status = 201, body = SubmitResult), (status = 200, body = SubmitResult,
        description = "Dry run: the allocation would be accepted, with its expected start."), (status = 422, body = Problem,
            description = "No set of the vCluster's nodes could ever satisfy the request.")))]
pub(super) async fn submit(
    State(api): State<Api>,
    caller: Caller,
    Params(how): Params<SubmitQuery>,
    Key(key): Key,
    Input(request): Input<AllocationRequest>,
) -> Result<(StatusCode, Json<SubmitResult>), ProblemResponse> {
    let made = submit::submit(&api, &caller, request, key, how.dry_run).await?;
    let status = match made.id {
        Some(_) => StatusCode::CREATED,
        None => StatusCode::OK,
    };
    Ok((status, Json(made)))
}

/// Show an allocation, including an ended one.
#[utoipa::path(get, path = "/allocations/{id}", tag = "allocations", params(("id" = inline(Element), Path)),
    responses((status = 200, body = AllocationView)))]
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
) -> Answer<AllocationView> {
    let id = job_refs::number(api.core(), &caller, &id).await?;
    Ok(Json(allocations::get(&api, &caller, id).await?))
}

async fn act(
    api: &Api,
    caller: &Caller,
    id: &str,
    what: AllocationAction,
    key: Option<String>,
) -> Answer<AllocationView> {
    let id = job_refs::number(api.core(), caller, id).await?;
    Ok(Json(allocations::act(api, caller, id, what, key).await?))
}

/// Cancel an allocation.
///
/// An allocation without nodes ends at once; otherwise its processes are stopped first.
#[utoipa::path(delete, path = "/allocations/{id}", tag = "allocations",
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, AllocationAction::Cancel, key).await
}

/// Hold a pending or blocked allocation, so that it does not start.
#[utoipa::path(post, path = "/allocations/{id}/hold", tag = "allocations",
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn hold(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, AllocationAction::Hold, key).await
}

/// Release a held allocation.
#[utoipa::path(post, path = "/allocations/{id}/release", tag = "allocations",
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn release(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, AllocationAction::Release, key).await
}

/// Requeue an allocation that holds nodes.
///
/// The processes of the allocation are ended, and the allocation waits for nodes again. It then restarts from its last
/// checkpoint, if it has one.
#[utoipa::path(post, path = "/allocations/{id}/requeue", tag = "allocations",
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn requeue(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, AllocationAction::Requeue, key).await
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct First {
    /// Write a checkpoint first, or wait for the one being written. If the checkpoint fails, the allocation is
    /// suspended without it. Rejected for an allocation that has no checkpoint mode or is not running.
    #[serde(default)]
    checkpoint: bool,
}

/// Suspend an allocation that holds nodes.
///
/// The processes of the allocation are ended and its nodes released. The allocation waits until it is resumed, and
/// restarts from its last checkpoint, if it has one. For its user and for operators.
#[utoipa::path(post, path = "/allocations/{id}/suspend", tag = "allocations",
    params(("id" = inline(Element), Path), First, Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn suspend(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Params(first): Params<First>,
    Key(key): Key,
) -> Answer<AllocationView> {
    let how = match first.checkpoint {
        true => AllocationAction::SuspendAfterCheckpoint,
        false => AllocationAction::Suspend,
    };
    act(&api, &caller, &id, how, key).await
}

/// Resume a suspended allocation: it waits for nodes again, if limits allow it now.
#[utoipa::path(post, path = "/allocations/{id}/resume", tag = "allocations",
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn resume(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, AllocationAction::Resume, key).await
}

/// Change the walltime of an allocation that has not ended.
///
/// Only operators may extend the walltime.
#[utoipa::path(post, path = "/allocations/{id}/extend", tag = "allocations", request_body = ExtendRequest,
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn extend(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
    Input(request): Input<ExtendRequest>,
) -> Answer<AllocationView> {
    act(&api, &caller, &id, AllocationAction::Extend(request), key).await
}

/// Write a checkpoint of a running allocation, which then continues.
///
/// For the user of the allocation and for operators.
#[utoipa::path(post, path = "/allocations/{id}/checkpoint", tag = "allocations", request_body = CheckpointRequest,
    params(("id" = inline(Element), Path), Key), responses(
    (status = 200, body = AllocationView)))]
pub(super) async fn checkpoint(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
    Input(request): Input<CheckpointRequest>,
) -> Answer<AllocationView> {
    act(
        &api,
        &caller,
        &id,
        AllocationAction::Checkpoint(request),
        key,
    )
    .await
}

/// Explain the state of an allocation.
#[utoipa::path(get, path = "/allocations/{id}/explanation", tag = "allocations",
    params(("id" = inline(Element), Path)), responses(
    (status = 200, body = ExplanationView)))]
pub(super) async fn explanation(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
) -> Answer<ExplanationView> {
    let id = job_refs::number(api.core(), &caller, &id).await?;
    Ok(Json(allocations::explanation(&api, &caller, id).await?))
}

/// Output stream.
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
    /// Rank, starting at 0; default 0.
    #[serde(default)]
    rank: u32,
    /// `stdout` (default) or `stderr`.
    #[serde(default)]
    #[param(inline)]
    stream: Output,
    /// First byte to return: its position in the output as the rank wrote it.
    #[serde(default)]
    offset: u64,
    /// Wait for more output until the rank ends.
    #[serde(default)]
    follow: bool,
}

/// Read the captured output of a rank.
///
/// Of an output that exceeds the limit of the node, the first and the last part are kept; a line between them gives the
/// number of bytes that are left out. For the submitting user, administrators of the project or tenant, and operators.
#[utoipa::path(get, path = "/allocations/{id}/logs", tag = "allocations",
    params(("id" = inline(Element), Path), LogQuery), responses(
    (status = 200, body = String, content_type = "application/octet-stream"),
    (status = 409, body = Problem, description = "The output is in a file of the user, or does not exist yet.")))]
pub(super) async fn logs(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Params(q): Params<LogQuery>,
) -> Result<impl IntoResponse + use<>, ProblemResponse> {
    let id = job_refs::number(api.core(), &caller, &id).await?;
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
    let body = chunks.take_until(stop).take_until(caller.expired());
    Ok((
        [(CONTENT_TYPE, "application/octet-stream")],
        Body::from_stream(body),
    ))
}
