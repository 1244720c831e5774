//! Project service.

use super::{authenticate, key, respond};
use crate::Caller;
use crate::{ops::projects, state::Api};
use lattice_api::{
    page::MAX_LIMIT,
    project::{LimitsRequest, ProjectRequest, ProjectUpdate},
    v1,
};
use tonic::{Request, Response, Status};

pub(super) struct Service(pub(super) Api);

#[tonic::async_trait]
impl v1::projects_server::Projects for Service {
    async fn tree(
        &self,
        request: Request<v1::TreeRequest>,
    ) -> Result<Response<v1::TreeResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let (below, from) = (Some(message.below.as_str()), cursor.as_deref());
            let page = projects::list(self.0.core(), &caller, below, Some(MAX_LIMIT), from);
            let page = page.map_err(|p| p.to_grpc())?;
            items.extend(page.items.into_iter().map(Into::into));
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(Response::new(v1::TreeResponse { items })),
            }
        }
    }

    async fn create(
        &self,
        request: Request<v1::CreateProjectRequest>,
    ) -> Result<Response<v1::Project>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        create(&self.0, &caller, message).await
    }

    async fn get(
        &self,
        request: Request<v1::GetProjectRequest>,
    ) -> Result<Response<v1::Project>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        respond(projects::get(self.0.core(), &caller, &message.path))
    }

    async fn headroom(
        &self,
        request: Request<v1::GetProjectRequest>,
    ) -> Result<Response<v1::Headroom>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        respond(projects::headroom(self.0.core(), &caller, &message.path).await)
    }

    async fn update(
        &self,
        request: Request<v1::UpdateProjectRequest>,
    ) -> Result<Response<v1::Project>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        let path = std::mem::take(&mut message.path);
        let update = ProjectUpdate::from(message);
        respond(projects::update(self.0.core(), &caller, &path, update, key).await)
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteProjectRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        respond(projects::delete(self.0.core(), &caller, &message.path, key).await)
    }

    async fn set_limits(
        &self,
        request: Request<v1::SetLimitsRequest>,
    ) -> Result<Response<v1::SetLimitsResponse>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        let changes = LimitsRequest::from(message);
        let changed = projects::set_limits(self.0.core(), &caller, changes, key).await;
        let revision = changed.map_err(|p| p.to_grpc())?.revision.0;
        Ok(Response::new(v1::SetLimitsResponse { revision }))
    }
}

/// Creates a project or a tenant.
pub(super) async fn create(
    api: &Api,
    caller: &Caller,
    mut message: v1::CreateProjectRequest,
) -> Result<Response<v1::Project>, Status> {
    let key = key(message.idempotency_key.take())?;
    let body = ProjectRequest::from(message);
    respond(projects::create(api.core(), caller, body, key).await)
}
