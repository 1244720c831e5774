//! Allocation service.

use super::{authenticate, key, paging, respond};
use crate::{
    ops::{
        allocations::{self, AllocationAction, Filter},
        submit,
    },
    state::Api,
};
use lattice_api::{
    AllocationRequest, Problem,
    allocation::{CheckpointRequest, ExtendRequest},
    v1,
};
use lattice_quorum_types::AllocationId;
use tonic::{Request, Response, Status};

pub(super) struct Service(pub(super) Api);

#[tonic::async_trait]
impl v1::allocations_server::Allocations for Service {
    async fn submit(
        &self,
        request: Request<v1::SubmitRequest>,
    ) -> Result<Response<v1::SubmitResponse>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        let dry_run = message.dry_run;
        let body = AllocationRequest::try_from(message);
        let body = body.map_err(|e| Problem::from(e).to_grpc())?;
        respond(submit::submit(&self.0, &caller, body, key, dry_run).await)
    }

    async fn get(
        &self,
        request: Request<v1::GetAllocationRequest>,
    ) -> Result<Response<v1::Allocation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        respond(allocations::get(&self.0, &caller, AllocationId(message.id)).await)
    }

    async fn list(
        &self,
        request: Request<v1::ListAllocationsRequest>,
    ) -> Result<Response<v1::ListAllocationsResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let states = message.states.iter().map(String::as_str);
        let filter = Filter::new(states, Some(&message.project), None);
        let filter = filter.map_err(|p| p.to_grpc())?;
        let (limit, cursor) = paging(message.limit, &message.cursor);
        respond(allocations::list(&self.0, &caller, &filter, limit, cursor).await)
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::Allocation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let id = AllocationId(message.id);
        respond(allocations::act(&self.0, &caller, id, AllocationAction::Cancel, key).await)
    }

    async fn hold(
        &self,
        request: Request<v1::HoldRequest>,
    ) -> Result<Response<v1::Allocation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let id = AllocationId(message.id);
        respond(allocations::act(&self.0, &caller, id, AllocationAction::Hold, key).await)
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::Allocation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let id = AllocationId(message.id);
        respond(allocations::act(&self.0, &caller, id, AllocationAction::Release, key).await)
    }

    async fn requeue(
        &self,
        request: Request<v1::RequeueRequest>,
    ) -> Result<Response<v1::Allocation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let id = AllocationId(message.id);
        respond(allocations::act(&self.0, &caller, id, AllocationAction::Requeue, key).await)
    }

    async fn suspend(
        &self,
        request: Request<v1::SuspendRequest>,
    ) -> Result<Response<v1::Allocation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let id = AllocationId(message.id);
        let how = match message.checkpoint {
            true => AllocationAction::SuspendAfterCheckpoint,
            false => AllocationAction::Suspend,
        };
        respond(allocations::act(&self.0, &caller, id, how, key).await)
    }

    async fn resume(
        &self,
        request: Request<v1::ResumeRequest>,
    ) -> Result<Response<v1::Allocation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let id = AllocationId(message.id);
        respond(allocations::act(&self.0, &caller, id, AllocationAction::Resume, key).await)
    }

    async fn extend(
        &self,
        request: Request<v1::ExtendRequest>,
    ) -> Result<Response<v1::Allocation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let (id, walltime) = (AllocationId(message.id), message.walltime);
        let act = AllocationAction::Extend(ExtendRequest { walltime });
        respond(allocations::act(&self.0, &caller, id, act, key).await)
    }

    async fn checkpoint(
        &self,
        request: Request<v1::CheckpointRequest>,
    ) -> Result<Response<v1::Allocation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let id = AllocationId(message.id);
        let act = AllocationAction::Checkpoint(CheckpointRequest {
            timeout: message.timeout,
            directory: message.directory,
        });
        respond(allocations::act(&self.0, &caller, id, act, key).await)
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::Explanation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let id = AllocationId(message.id);
        respond(allocations::explanation(&self.0, &caller, id).await)
    }
}
