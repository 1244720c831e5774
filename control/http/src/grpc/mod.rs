//! `lattice.v1` over gRPC, on the REST port and through the same functions.
//!
//! Each service parses its messages, calls `crate::ops` and builds the response. A problem becomes a gRPC status with
//! the problem in its details.

#![expect(
    clippy::result_large_err,
    reason = "one error per response; its size is negligible next to the socket I/O"
)]

mod admin;
mod allocations;
mod conformance;
mod dags;
mod nodes;
mod projects;
mod standard;

use crate::{Caller, MAX_BODY_BYTES};
use crate::{extract::check_key, state::Api};
use axum::{Router, response::IntoResponse};
use lattice_api::{
    Problem,
    v1::{
        admin_service_server::AdminServiceServer, allocations_server::AllocationsServer,
        conformance_server::ConformanceServer, dags_server::DagsServer, nodes_server::NodesServer,
        projects_server::ProjectsServer,
    },
};
use std::convert::Infallible;
use tonic::{Request, Response, Status, codegen::Service, server::NamedService};

/// Adds the services to the router of the port.
///
/// # Errors
/// The compiled-in description of the services cannot be read.
pub(crate) fn add(router: Router, api: &Api) -> Result<Router, tonic_reflection::server::Error> {
    /// Adds every service to the router, with the size limit of REST, and lists the service names.
    macro_rules! services {
        ($($server:ident($service:path)),* $(,)?) => {{
            let router = router$(.merge(service_router(
                $server::new($service(api.clone())).max_decoding_message_size(MAX_BODY_BYTES),
            )))*;
            (router, vec![$(<$server<$service> as NamedService>::NAME),*])
        }};
    }
    let (router, names) = services!(
        AllocationsServer(allocations::Service),
        NodesServer(nodes::Service),
        ConformanceServer(conformance::Service),
        DagsServer(dags::Service),
        ProjectsServer(projects::Service),
        AdminServiceServer(admin::Service),
    );
    standard::add(router, api, names)
}

/// Router with one service.
fn service_router<S>(service: S) -> Router
where
    S: NamedService
        + Service<axum::extract::Request, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Response: IntoResponse,
    S::Future: Send + 'static,
{
    Router::new().route_service(&format!("/{}/{{*method}}", S::NAME), service)
}

/// Authenticates the caller and returns it with the message; rejects accounting systems.
async fn authenticate<T>(api: &Api, request: Request<T>) -> Result<(Caller, T), Status> {
    let (caller, message) = authenticate_or_accounting(api, request).await?;
    let caller = caller.check_not_accounting().map_err(|p| p.to_grpc())?;
    Ok((caller, message))
}

/// Authenticates the caller, which may be an accounting system, and returns it with the message.
async fn authenticate_or_accounting<T>(
    api: &Api,
    request: Request<T>,
) -> Result<(Caller, T), Status> {
    let header = request.metadata().get("authorization");
    let text = header.and_then(|value| value.to_str().ok());
    let caller = api.authenticate(text).await.map_err(|p| p.to_grpc())?;
    Ok((caller, request.into_inner()))
}

/// Like [`authenticate`], for a call that answers also while this control has no view, because the answer does not
/// derive from it.
async fn authenticate_without_view<T>(
    api: &Api,
    request: Request<T>,
) -> Result<(Caller, T), Status> {
    let header = request.metadata().get("authorization");
    let text = header.and_then(|value| value.to_str().ok());
    let caller = api.authenticate_without_view(text).await;
    let caller = caller.and_then(Caller::check_not_accounting);
    Ok((caller.map_err(|p| p.to_grpc())?, request.into_inner()))
}

/// Converts a result to a response, or a problem to a status.
fn respond<T, U: From<T>>(answer: Result<T, Problem>) -> Result<Response<U>, Status> {
    match answer {
        Ok(value) => Ok(Response::new(value.into())),
        Err(problem) => Err(problem.to_grpc()),
    }
}

/// Checks an idempotency key.
fn key(text: Option<String>) -> Result<Option<String>, Status> {
    let checked = text.map(|t| check_key(&t)).transpose();
    checked.map_err(|p| p.to_grpc())
}

/// Empty text means "left out" in these messages.
fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// 0 and empty text mean "left out" in these messages.
fn paging(limit: u32, cursor: &str) -> (Option<u32>, Option<&str>) {
    ((limit > 0).then_some(limit), non_empty(cursor))
}
