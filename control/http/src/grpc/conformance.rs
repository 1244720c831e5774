//! Conformance service: groups, drift, changes, baselines and the brake.

use super::{authenticate, key, non_empty, respond};
use crate::{
    ops::{baselines, brake, conformance, history},
    state::Api,
};
use lattice_api::{
    baseline::{BaselineRequest, ReleaseRequest},
    v1,
};
use tonic::{Request, Response, Status};

pub(super) struct Service(pub(super) Api);

#[tonic::async_trait]
impl v1::conformance_server::Conformance for Service {
    async fn groups(
        &self,
        request: Request<v1::GroupsRequest>,
    ) -> Result<Response<v1::GroupsResponse>, Status> {
        let (_, message) = authenticate(&self.0, request).await?;
        respond(conformance::groups(&self.0, non_empty(&message.class)).await)
    }

    async fn drift(
        &self,
        request: Request<v1::DriftRequest>,
    ) -> Result<Response<v1::DriftResponse>, Status> {
        authenticate(&self.0, request).await?;
        respond(Ok(conformance::drift(&self.0).await))
    }

    async fn changes(
        &self,
        request: Request<v1::ChangesRequest>,
    ) -> Result<Response<v1::ChangesResponse>, Status> {
        let (_, message) = authenticate(&self.0, request).await?;
        respond(history::changes(&self.0, non_empty(&message.since)).await)
    }

    async fn list_baselines(
        &self,
        request: Request<v1::ListBaselinesRequest>,
    ) -> Result<Response<v1::ListBaselinesResponse>, Status> {
        authenticate(&self.0, request).await?;
        respond(Ok(baselines::list(self.0.core())))
    }

    async fn get_baseline(
        &self,
        request: Request<v1::GetBaselineRequest>,
    ) -> Result<Response<v1::Baseline>, Status> {
        let (_, message) = authenticate(&self.0, request).await?;
        respond(baselines::get(self.0.core(), &message.name).await)
    }

    async fn set_baseline(
        &self,
        request: Request<v1::SetBaselineRequest>,
    ) -> Result<Response<v1::SetBaselineResponse>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        let (name, dry_run) = (std::mem::take(&mut message.name), message.dry_run);
        let body = BaselineRequest::from(message);
        respond(baselines::set(&self.0, &caller, &name, body, key, dry_run).await)
    }

    async fn delete_baseline(
        &self,
        request: Request<v1::DeleteBaselineRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let (name, version) = (&message.name, message.expected_version);
        respond(baselines::delete(self.0.core(), &caller, name, version, key).await)
    }

    async fn diff_baseline(
        &self,
        request: Request<v1::DiffBaselineRequest>,
    ) -> Result<Response<v1::DiffResponse>, Status> {
        let (_, message) = authenticate(&self.0, request).await?;
        respond(baselines::diff(&self.0, &message.name, &message.with).await)
    }

    async fn get_brake(
        &self,
        request: Request<v1::GetBrakeRequest>,
    ) -> Result<Response<v1::BrakeResponse>, Status> {
        authenticate(&self.0, request).await?;
        respond(Ok(brake::state(self.0.core())))
    }

    async fn release_brake(
        &self,
        request: Request<v1::ReleaseBrakeRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        let body = ReleaseRequest::from(message);
        respond(brake::release(self.0.core(), &caller, body, key).await)
    }
}
