//! DAG service.

use super::{authenticate, key, non_empty, paging, respond};
use crate::{ops::dags, state::Api};
use lattice_api::{
    Problem,
    dag::{DagRequest, GraphView},
    v1,
};
use lattice_quorum_types::id::DagId;
use tonic::{Request, Response, Status};

pub(super) struct Service(pub(super) Api);

#[tonic::async_trait]
impl v1::dags_server::Dags for Service {
    async fn submit(
        &self,
        request: Request<v1::SubmitDagRequest>,
    ) -> Result<Response<v1::SubmitDagResponse>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        let dry_run = message.dry_run;
        let body = DagRequest::try_from(message);
        let body = body.map_err(|e| Problem::from(e).to_grpc())?;
        let most = self.0.max_dag_size();
        if dry_run {
            return respond(dags::dry_run(&self.0, &caller, body, most).await);
        }
        respond(dags::submit(&self.0, &caller, body, key, most).await)
    }

    async fn get(&self, request: Request<v1::GetDagRequest>) -> Result<Response<v1::Dag>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        respond(dags::get(self.0.core(), &caller, DagId(message.id)).await)
    }

    async fn list(
        &self,
        request: Request<v1::ListDagsRequest>,
    ) -> Result<Response<v1::ListDagsResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let (limit, cursor) = paging(message.limit, &message.cursor);
        let tenant = non_empty(&message.tenant);
        respond(dags::list(self.0.core(), &caller, tenant, limit, cursor).await)
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelDagRequest>,
    ) -> Result<Response<v1::Dag>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        respond(dags::cancel(self.0.core(), &caller, DagId(message.id), key).await)
    }

    async fn graph(
        &self,
        request: Request<v1::GetDagRequest>,
    ) -> Result<Response<v1::DagGraph>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let dag = dags::get(self.0.core(), &caller, DagId(message.id)).await;
        respond(dag.map(GraphView::from))
    }
}
