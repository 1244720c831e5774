//! For administrators.

use super::{close, open, projects};
use crate::http::{ops::status, state::Api};
use lattice_api::{Problem, v1};
use tonic::{Request, Response, Status};

pub(super) struct Service(pub(super) Api);

#[tonic::async_trait]
impl v1::admin_service_server::AdminService for Service {
    async fn create_tenant(
        &self,
        request: Request<v1::CreateProjectRequest>,
    ) -> Result<Response<v1::Project>, Status> {
        if request.get_ref().path.contains('/') {
            let reason = "a tenant is the root of a tree: give one name without '/'";
            return Err(Problem::field("path", reason).to_grpc());
        }
        projects::create(&self.0, request).await
    }

    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::Status>, Status> {
        let (caller, _) = open(&self.0, request)?;
        close(status::status(self.0.core(), &caller).await)
    }
}
