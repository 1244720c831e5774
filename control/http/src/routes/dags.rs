//! DAG routes: sets of allocations that depend on each other.

use crate::Caller;
use crate::{
    answer::{Answer, ProblemResponse},
    extract::{Document, Key, Params, PathParameter},
    ops::dags,
    state::Api,
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use lattice_api::{
    Page, Problem,
    dag::{DOT, DagDryRunResult, DagRequest, DagSubmitResult, DagView, GraphView},
};
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DagsQuery {
    /// Only DAGs of this tenant.
    tenant: Option<String>,
    /// Items per page, 1 to 5000; default 200.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List running DAGs and the last ended ones, by number and without their members, a page at a time.
#[utoipa::path(get, path = "/dags", tag = "dags", params(DagsQuery), responses(
    (status = 200, body = Page<DagView>),
    (status = 404, body = Problem, description = "No such tenant, or not visible to the caller.")))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(w): Params<DagsQuery>,
) -> Answer<Page<DagView>> {
    let (tenant, cursor) = (w.tenant.as_deref(), w.cursor.as_deref());
    let page = dags::list(api.core(), &caller, tenant, w.limit, cursor).await?;
    Ok(Json(page))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DagSubmitQuery {
    /// Check only, change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Submit a DAG, as JSON or YAML: all its members or none.
///
/// Cyclic dependencies, unknown names and errors in a member are rejected with the field, as `members.NAME.field`. Each
/// member must fit its limits if nothing else ran; it is checked again when it becomes eligible.
#[utoipa::path(post, path = "/dags", tag = "dags", params(DagSubmitQuery, Key),
    request_body(content((DagRequest = "application/json"), (DagRequest = "application/yaml"))),
    responses((status = 201, body = DagSubmitResult), (status = 200, body = DagDryRunResult,
        description = "Dry run: the DAG would be accepted; the response lists the allocations to submit."),
        (status = 422, body = Problem,
            description = "No set of the vCluster's nodes could ever satisfy a member.")))]
pub(super) async fn submit(
    State(api): State<Api>,
    caller: Caller,
    Params(how): Params<DagSubmitQuery>,
    Key(key): Key,
    Document(request): Document<DagRequest>,
) -> Result<Response, ProblemResponse> {
    let most = api.max_dag_size();
    if how.dry_run {
        let judged = dags::dry_run(&api, &caller, request, most).await?;
        return Ok(Json(judged).into_response());
    }
    let made = dags::submit(&api, &caller, request, key, most).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// Show a DAG with its members and their states, including ended ones.
#[utoipa::path(get, path = "/dags/{id}", tag = "dags", params(("id" = u64, Path)),
    responses((status = 200, body = DagView)))]
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
) -> Answer<DagView> {
    let id = dags::number(&id)?;
    Ok(Json(dags::get(api.core(), &caller, id).await?))
}

/// Cancel every member that has not ended.
#[utoipa::path(delete, path = "/dags/{id}", tag = "dags", params(("id" = u64, Path), Key),
    responses((status = 200, body = DagView)))]
pub(super) async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Key(key): Key,
) -> Answer<DagView> {
    let id = dags::number(&id)?;
    Ok(Json(dags::cancel(api.core(), &caller, id, key).await?))
}

/// Format of the graph.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum Form {
    Json,
    Dot,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GraphQuery {
    /// `json` or `dot`; default from the Accept header.
    #[param(inline)]
    format: Option<Form>,
}

/// Show the members as nodes and edges: JSON, or the language of Graphviz.
#[utoipa::path(get, path = "/dags/{id}/graph", tag = "dags", params(("id" = u64, Path), GraphQuery),
    responses((status = 200, content((GraphView = "application/json"), (String = "text/vnd.graphviz")))))]
pub(super) async fn graph(
    State(api): State<Api>,
    caller: Caller,
    PathParameter(id): PathParameter,
    Params(drawn): Params<GraphQuery>,
    headers: HeaderMap,
) -> Result<Response, ProblemResponse> {
    let id = dags::number(&id)?;
    let graph = GraphView::from(dags::get(api.core(), &caller, id).await?);
    let accepted = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let asks_for_dot = accepted.is_some_and(|accepted| accepted.contains(DOT));
    Ok(match drawn.format {
        Some(Form::Dot) => ([(header::CONTENT_TYPE, DOT)], graph.to_dot()).into_response(),
        None if asks_for_dot => ([(header::CONTENT_TYPE, DOT)], graph.to_dot()).into_response(),
        _ => Json(graph).into_response(),
    })
}
