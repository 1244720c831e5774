//! For administrators.

use super::{close, key, open, paging, projects};
use crate::http::{
    ops::{
        audit::{self, Wanted},
        authorities, certificates, drains, status, tokens,
    },
    state::Api,
};
use lattice_api::{Problem, authority::AuthorityRequest, node::DrainRequest, v1};
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

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreatedToken>, Status> {
        let (caller, message) = open(&self.0, request)?;
        let founder = self.0.authority();
        close(tokens::create(self.0.core(), &caller, founder, message.into()).await)
    }

    async fn list_tokens(
        &self,
        request: Request<v1::ListTokensRequest>,
    ) -> Result<Response<v1::ListTokensResponse>, Status> {
        let (caller, _) = open(&self.0, request)?;
        close(tokens::list(self.0.core(), &caller).await)
    }

    async fn revoke_token(
        &self,
        request: Request<v1::RevokeTokenRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = open(&self.0, request)?;
        let key = key(message.idempotency_key)?;
        close(tokens::revoke(self.0.core(), &caller, &message.id, key).await)
    }

    async fn list_certificates(
        &self,
        request: Request<v1::ListCertificatesRequest>,
    ) -> Result<Response<v1::ListCertificatesResponse>, Status> {
        let (caller, message) = open(&self.0, request)?;
        let (limit, cursor) = paging(message.limit, &message.cursor);
        close(certificates::list(self.0.core(), &caller, limit, cursor).await)
    }

    async fn revoke_certificates(
        &self,
        request: Request<v1::RevokeCertificatesRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = open(&self.0, request)?;
        let key = key(message.idempotency_key)?;
        let (role, name) = (&message.role, &message.name);
        let core = self.0.core();
        close(certificates::revoke(core, &caller, role, name, message.reason, key).await)
    }

    async fn list_authorities(
        &self,
        request: Request<v1::ListAuthoritiesRequest>,
    ) -> Result<Response<v1::ListAuthoritiesResponse>, Status> {
        let (caller, _) = open(&self.0, request)?;
        close(authorities::list(self.0.core(), &caller).await)
    }

    async fn add_authority(
        &self,
        request: Request<v1::AddAuthorityRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = open(&self.0, request)?;
        let key = key(message.idempotency_key)?;
        let certificate = message.certificate;
        let body = AuthorityRequest { certificate };
        close(authorities::add(self.0.core(), &caller, body, key).await)
    }

    async fn promote_authority(
        &self,
        request: Request<v1::AuthorityPin>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = open(&self.0, request)?;
        let key = key(message.idempotency_key)?;
        close(authorities::promote(self.0.core(), &caller, &message.pin, key).await)
    }

    async fn retire_authority(
        &self,
        request: Request<v1::RetireAuthorityRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = open(&self.0, request)?;
        let key = key(message.idempotency_key)?;
        let (pin, force) = (&message.pin, message.force);
        close(authorities::retire(self.0.core(), &caller, pin, force, key).await)
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeResponse>, Status> {
        let (caller, message) = open(&self.0, request)?;
        let key = key(message.idempotency_key)?;
        let body = DrainRequest {
            reason: message.reason,
            force_release: message.force_release,
        };
        close(drains::drain(self.0.core(), &caller, &message.name, body, key).await)
    }

    async fn undrain_node(
        &self,
        request: Request<v1::UndrainNodeRequest>,
    ) -> Result<Response<v1::UndrainNodeResponse>, Status> {
        let (caller, message) = open(&self.0, request)?;
        let key = key(message.idempotency_key)?;
        let (name, skip) = (&message.name, message.skip_gate);
        close(drains::undrain(self.0.core(), &caller, name, skip, key).await)
    }

    async fn query_audit(
        &self,
        request: Request<v1::QueryAuditRequest>,
    ) -> Result<Response<v1::QueryAuditResponse>, Status> {
        let (caller, message) = open(&self.0, request)?;
        let wanted = Wanted {
            by: Some(&message.by),
            node: Some(&message.node),
            allocation: message.allocation,
            action: Some(&message.action),
            since: Some(&message.since),
        };
        let (limit, _) = paging(message.limit, "");
        close(audit::list(self.0.core(), &caller, &wanted, message.after, limit).await)
    }
}
