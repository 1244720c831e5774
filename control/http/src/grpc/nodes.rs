//! Node service.

use super::{authenticate, key, non_empty, paging, respond};
use crate::{
    ops::{
        claims, health,
        history::{self, HistoryQuery},
        node_comparison, nodes,
    },
    state::Api,
};
use lattice_api::{
    Problem,
    claim::{ClaimRequest, ReleaseRequest, Wipe},
    health::ClearRequest,
    problem::Kind,
    v1,
};
use tonic::{Request, Response, Status};

pub(super) struct Service(pub(super) Api);

#[tonic::async_trait]
impl v1::nodes_server::Nodes for Service {
    async fn list(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let (limit, cursor) = paging(message.limit, &message.cursor);
        respond(nodes::list(&self.0, &caller, limit, cursor))
    }

    async fn get(
        &self,
        request: Request<v1::GetNodeRequest>,
    ) -> Result<Response<v1::Node>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        respond(nodes::show(&self.0, &caller, &message.name).await)
    }

    async fn diff(
        &self,
        request: Request<v1::DiffRequest>,
    ) -> Result<Response<v1::DiffResponse>, Status> {
        let (_, message) = authenticate(&self.0, request).await?;
        let (with, since) = (non_empty(&message.with), non_empty(&message.since));
        respond(node_comparison::diff(&self.0, &message.node, with, since).await)
    }

    async fn inventory(
        &self,
        request: Request<v1::InventoryRequest>,
    ) -> Result<Response<v1::InventoryResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let (name, fresh) = (&message.name, message.fresh);
        let read = nodes::inventory(&self.0, &caller, name, fresh).await;
        let written = read.and_then(|inventory| {
            serde_json::to_string(&inventory)
                .map_err(|error| Problem::new(Kind::Internal, "unwritable", error.to_string()))
        });
        let json = written.map_err(|p| p.to_grpc())?;
        Ok(Response::new(v1::InventoryResponse { json }))
    }

    async fn reprobe(
        &self,
        request: Request<v1::ReprobeRequest>,
    ) -> Result<Response<v1::ReprobeResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        respond(nodes::reprobe(&self.0, &caller, &message.name).await)
    }

    async fn history(
        &self,
        request: Request<v1::NodeHistoryRequest>,
    ) -> Result<Response<v1::NodeHistoryResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let (limit, cursor) = paging(message.limit, &message.cursor);
        let asked = HistoryQuery {
            since: non_empty(&message.since),
            class: non_empty(&message.class),
            kind: non_empty(&message.kind),
            around: non_empty(&message.around),
            within: non_empty(&message.within),
            limit,
            cursor,
        };
        respond(history::of_node(&self.0, &caller, &message.name, &asked).await)
    }

    async fn health(
        &self,
        request: Request<v1::NodeHealthRequest>,
    ) -> Result<Response<v1::NodeHealth>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let (name, fresh) = (&message.name, message.fresh);
        respond(health::show(&self.0, &caller, name, fresh).await)
    }

    async fn clear_health(
        &self,
        request: Request<v1::ClearHealthRequest>,
    ) -> Result<Response<v1::NodeHealth>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let name = std::mem::take(&mut message.name);
        let body = ClearRequest::from(message);
        respond(health::clear(&self.0, &caller, &name, body).await)
    }

    async fn claim(
        &self,
        request: Request<v1::ClaimNodesRequest>,
    ) -> Result<Response<v1::ClaimNodesResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let body = ClaimRequest {
            project: message.project,
            purpose: message.purpose,
        };
        respond(claims::claim(self.0.core(), &caller, &message.nodes, body, key).await)
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseNodesRequest>,
    ) -> Result<Response<v1::ReleaseNodesResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let wipe = match message.wipe.as_str() {
            "" => Ok(Wipe::default()),
            text => text.parse(),
        };
        let body = ReleaseRequest {
            reason: message.reason,
            wipe: wipe.map_err(|why: String| Problem::field("wipe", why).to_grpc())?,
        };
        respond(claims::release(self.0.core(), &caller, &message.nodes, body, key).await)
    }
}
