//! `lattice.v1` over gRPC, on the REST port and through the same functions.
//!
//! Each service reads its messages, asks `http::ops`, and writes the answer; a problem becomes a
//! status with the problem in its details.

#![expect(
    clippy::result_large_err,
    reason = "a \"no\" is made once for each answer; its size costs nothing beside the socket"
)]

mod admin;
mod allocations;
mod conformance;
mod dags;
mod nodes;
mod projects;

use crate::http::{Caller, MAX_BODY_BYTES, extract::check_key, state::Api};
use axum::Router;
use lattice_api::{
    Problem,
    v1::{
        admin_service_server::AdminServiceServer, allocations_server::AllocationsServer,
        conformance_server::ConformanceServer, dags_server::DagsServer, nodes_server::NodesServer,
        projects_server::ProjectsServer,
    },
};
use tonic::{Request, Response, Status};

/// Adds the services to the router of the port.
pub(crate) fn add(router: Router, api: &Api) -> Router {
    router
        .route_service(
            "/lattice.v1.Allocations/{*method}",
            AllocationsServer::new(allocations::Service(api.clone()))
                .max_decoding_message_size(MAX_BODY_BYTES),
        )
        .route_service(
            "/lattice.v1.Nodes/{*method}",
            NodesServer::new(nodes::Service(api.clone())).max_decoding_message_size(MAX_BODY_BYTES),
        )
        .route_service(
            "/lattice.v1.Conformance/{*method}",
            ConformanceServer::new(conformance::Service(api.clone()))
                .max_decoding_message_size(MAX_BODY_BYTES),
        )
        .route_service(
            "/lattice.v1.Dags/{*method}",
            DagsServer::new(dags::Service(api.clone())).max_decoding_message_size(MAX_BODY_BYTES),
        )
        .route_service(
            "/lattice.v1.Projects/{*method}",
            ProjectsServer::new(projects::Service(api.clone()))
                .max_decoding_message_size(MAX_BODY_BYTES),
        )
        .route_service(
            "/lattice.v1.AdminService/{*method}",
            AdminServiceServer::new(admin::Service(api.clone()))
                .max_decoding_message_size(MAX_BODY_BYTES),
        )
}

/// Who asks, and the message; no accounting system.
async fn open<T>(api: &Api, request: Request<T>) -> Result<(Caller, T), Status> {
    let (caller, message) = open_also_to_accounting(api, request).await?;
    let caller = caller.check_person().map_err(|p| p.to_grpc())?;
    Ok((caller, message))
}

/// Who asks, an accounting system too, and the message.
async fn open_also_to_accounting<T>(api: &Api, request: Request<T>) -> Result<(Caller, T), Status> {
    let header = request.metadata().get("authorization");
    let text = header.and_then(|value| value.to_str().ok());
    let caller = api.authenticate(text).await.map_err(|p| p.to_grpc())?;
    Ok((caller, request.into_inner()))
}

/// The answer, or the problem as a status.
fn close<T, U: From<T>>(answer: Result<T, Problem>) -> Result<Response<U>, Status> {
    match answer {
        Ok(value) => Ok(Response::new(value.into())),
        Err(problem) => Err(problem.to_grpc()),
    }
}

/// An idempotency key as it came.
fn key(text: Option<String>) -> Result<Option<String>, Status> {
    let checked = text.map(|t| check_key(&t)).transpose();
    checked.map_err(|p| p.to_grpc())
}

/// The empty text means "left out" in these messages.
fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// 0 and the empty text mean "left out" in these messages.
fn paging(limit: u32, cursor: &str) -> (Option<u32>, Option<&str>) {
    ((limit > 0).then_some(limit), given(cursor))
}
