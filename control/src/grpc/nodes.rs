//! Nodes.

use super::{close, open, paging};
use crate::http::{ops::nodes, state::Api};
use lattice_api::v1;
use tonic::{Request, Response, Status};

pub(super) struct Service(pub(super) Api);

#[tonic::async_trait]
impl v1::nodes_server::Nodes for Service {
    async fn list(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        let (_, message) = open(&self.0, request)?;
        let (limit, cursor) = paging(message.limit, &message.cursor);
        close(nodes::list(self.0.core(), limit, cursor))
    }

    async fn get(
        &self,
        request: Request<v1::GetNodeRequest>,
    ) -> Result<Response<v1::Node>, Status> {
        let (_, message) = open(&self.0, request)?;
        close(nodes::get(self.0.core(), &message.name))
    }

    async fn diff(
        &self,
        request: Request<v1::DiffRequest>,
    ) -> Result<Response<v1::DiffResponse>, Status> {
        let (_, message) = open(&self.0, request)?;
        close(nodes::diff(self.0.core(), &message.node, &message.with).await)
    }
}
