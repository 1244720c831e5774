//! Administration service.

use super::{
    authenticate, authenticate_or_accounting, authenticate_without_view, key, non_empty, paging,
    projects, respond,
};
use crate::{
    ops::{
        accounting,
        audit::{self, AuditQuery},
        authorities, certificates, drains, quorum, reservations, status, tenants, tokens, usage,
        vclusters,
    },
    state::Api,
};
use futures::{StreamExt, stream::BoxStream};
use lattice_api::{
    Problem,
    authority::AuthorityRequest,
    node::DrainRequest,
    quorum::{AddMemberRequest, StepDownRequest},
    tenant::{LimitPolicyUpdate, TenantUpdate},
    v1,
    vcluster::VclusterRequest,
};
use tonic::{Request, Response, Status};

pub(super) struct Service(pub(super) Api);

#[tonic::async_trait]
impl v1::admin_service_server::AdminService for Service {
    async fn create_tenant(
        &self,
        request: Request<v1::CreateProjectRequest>,
    ) -> Result<Response<v1::Project>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        if message.path.contains('/') {
            let reason = "a tenant is the root of a tree: give one name without '/'";
            return Err(Problem::field("path", reason).to_grpc());
        }
        projects::create(&self.0, &caller, message).await
    }

    async fn list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> Result<Response<v1::ListTenantsResponse>, Status> {
        let (caller, message) = authenticate_or_accounting(&self.0, request).await?;
        let (limit, cursor) = paging(message.limit, &message.cursor);
        respond(tenants::list(self.0.core(), &caller, limit, cursor))
    }

    async fn get_tenant(
        &self,
        request: Request<v1::GetTenantRequest>,
    ) -> Result<Response<v1::Tenant>, Status> {
        let (caller, message) = authenticate_or_accounting(&self.0, request).await?;
        respond(tenants::get(self.0.core(), &caller, &message.id))
    }

    async fn update_tenant(
        &self,
        request: Request<v1::UpdateTenantRequest>,
    ) -> Result<Response<v1::Tenant>, Status> {
        let (caller, mut message) = authenticate_or_accounting(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        let id = std::mem::take(&mut message.id);
        let update = TenantUpdate::try_from(message);
        let update = update.map_err(|error| Problem::from(error).to_grpc())?;
        respond(tenants::update(self.0.core(), &caller, &id, update, key).await)
    }

    async fn get_tenant_usage(
        &self,
        request: Request<v1::GetTenantUsageRequest>,
    ) -> Result<Response<v1::TenantUsage>, Status> {
        let (caller, message) = authenticate_or_accounting(&self.0, request).await?;
        let days = (message.days > 0).then_some(message.days);
        respond(usage::of_tenant(&self.0, &caller, &message.id, days))
    }

    async fn get_user_usage(
        &self,
        request: Request<v1::GetUserUsageRequest>,
    ) -> Result<Response<v1::UserUsage>, Status> {
        let (caller, message) = authenticate_or_accounting(&self.0, request).await?;
        let days = (message.days > 0).then_some(message.days);
        let user = non_empty(&message.user);
        respond(usage::of_user(&self.0, &caller, user, days))
    }

    async fn get_accounting_status(
        &self,
        request: Request<v1::GetAccountingStatusRequest>,
    ) -> Result<Response<v1::AccountingStatus>, Status> {
        let (caller, _) = authenticate(&self.0, request).await?;
        respond(accounting::status(&self.0, &caller).await)
    }

    async fn reconcile_accounting(
        &self,
        request: Request<v1::ReconcileAccountingRequest>,
    ) -> Result<Response<v1::ReconcileAccountingResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        respond(accounting::reconcile(&self.0, &caller, message.into()).await)
    }

    async fn delete_tenant(
        &self,
        request: Request<v1::DeleteTenantRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        respond(tenants::delete(self.0.core(), &caller, &message.id, key).await)
    }

    async fn get_system_limits(
        &self,
        request: Request<v1::GetSystemLimitsRequest>,
    ) -> Result<Response<v1::SystemLimits>, Status> {
        let (caller, _) = authenticate(&self.0, request).await?;
        respond(tenants::system(self.0.core(), &caller).await)
    }

    async fn set_system_limits(
        &self,
        request: Request<v1::SetSystemLimitsRequest>,
    ) -> Result<Response<v1::SystemLimits>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        respond(tenants::set_system(self.0.core(), &caller, message.into(), key).await)
    }

    async fn set_limit_policy(
        &self,
        request: Request<v1::SetLimitPolicyRequest>,
    ) -> Result<Response<v1::SystemLimits>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let limit_policy = message.limit_policy;
        let update = LimitPolicyUpdate { limit_policy };
        respond(tenants::set_policy(self.0.core(), &caller, update, key).await)
    }

    async fn list_vclusters(
        &self,
        request: Request<v1::ListVclustersRequest>,
    ) -> Result<Response<v1::ListVclustersResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let (limit, cursor) = paging(message.limit, &message.cursor);
        respond(vclusters::list(self.0.core(), &caller, limit, cursor).await)
    }

    async fn get_vcluster(
        &self,
        request: Request<v1::GetVclusterRequest>,
    ) -> Result<Response<v1::Vcluster>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        respond(vclusters::get(self.0.core(), &caller, &message.name).await)
    }

    async fn set_vcluster(
        &self,
        request: Request<v1::SetVclusterRequest>,
    ) -> Result<Response<v1::Vcluster>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        let name = std::mem::take(&mut message.name);
        let body = VclusterRequest::try_from(message);
        let body = body.map_err(|e| Problem::from(e).to_grpc())?;
        respond(vclusters::set(self.0.core(), &caller, &name, body, key).await)
    }

    async fn delete_vcluster(
        &self,
        request: Request<v1::DeleteVclusterRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let (name, version) = (&message.name, message.expected_version);
        respond(vclusters::delete(self.0.core(), &caller, name, version, key).await)
    }

    async fn assign_vcluster(
        &self,
        request: Request<v1::AssignVclusterRequest>,
    ) -> Result<Response<v1::AssignVclusterResponse>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        let name = std::mem::take(&mut message.name);
        respond(vclusters::assign(self.0.core(), &caller, &name, message.into(), key).await)
    }

    async fn list_reservations(
        &self,
        request: Request<v1::ListReservationsRequest>,
    ) -> Result<Response<v1::ListReservationsResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let (limit, cursor) = paging(message.limit, &message.cursor);
        respond(reservations::list(self.0.core(), &caller, limit, cursor))
    }

    async fn get_reservation(
        &self,
        request: Request<v1::GetReservationRequest>,
    ) -> Result<Response<v1::Reservation>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        respond(reservations::get(self.0.core(), &caller, &message.name))
    }

    async fn set_reservation(
        &self,
        request: Request<v1::SetReservationRequest>,
    ) -> Result<Response<v1::Reservation>, Status> {
        let (caller, mut message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key.take())?;
        let name = std::mem::take(&mut message.name);
        respond(reservations::set(self.0.core(), &caller, &name, message.into(), key).await)
    }

    async fn delete_reservation(
        &self,
        request: Request<v1::DeleteReservationRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        respond(reservations::delete(self.0.core(), &caller, &message.name, key).await)
    }

    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::Status>, Status> {
        let (caller, _) = authenticate(&self.0, request).await?;
        respond(status::status(self.0.core(), &caller).await)
    }

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreatedToken>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let founder = self.0.authority();
        respond(tokens::create(self.0.core(), &caller, founder, message.into()).await)
    }

    async fn list_tokens(
        &self,
        request: Request<v1::ListTokensRequest>,
    ) -> Result<Response<v1::ListTokensResponse>, Status> {
        let (caller, _) = authenticate(&self.0, request).await?;
        respond(tokens::list(self.0.core(), &caller).await)
    }

    async fn revoke_token(
        &self,
        request: Request<v1::RevokeTokenRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        respond(tokens::revoke(self.0.core(), &caller, &message.id, key).await)
    }

    async fn list_certificates(
        &self,
        request: Request<v1::ListCertificatesRequest>,
    ) -> Result<Response<v1::ListCertificatesResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let (limit, cursor) = paging(message.limit, &message.cursor);
        respond(certificates::list(self.0.core(), &caller, limit, cursor).await)
    }

    async fn revoke_certificates(
        &self,
        request: Request<v1::RevokeCertificatesRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let (role, name) = (&message.role, &message.name);
        let core = self.0.core();
        respond(certificates::revoke(core, &caller, role, name, message.reason, key).await)
    }

    async fn list_authorities(
        &self,
        request: Request<v1::ListAuthoritiesRequest>,
    ) -> Result<Response<v1::ListAuthoritiesResponse>, Status> {
        let (caller, _) = authenticate(&self.0, request).await?;
        respond(authorities::list(self.0.core(), &caller).await)
    }

    async fn add_authority(
        &self,
        request: Request<v1::AddAuthorityRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let certificate = message.certificate;
        let body = AuthorityRequest { certificate };
        respond(authorities::add(self.0.core(), &caller, body, key).await)
    }

    async fn promote_authority(
        &self,
        request: Request<v1::AuthorityPin>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        respond(authorities::promote(self.0.core(), &caller, &message.pin, key).await)
    }

    async fn retire_authority(
        &self,
        request: Request<v1::RetireAuthorityRequest>,
    ) -> Result<Response<v1::ChangedResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let (pin, force) = (&message.pin, message.force);
        respond(authorities::retire(self.0.core(), &caller, pin, force, key).await)
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let body = DrainRequest {
            reason: message.reason,
            force_release: message.force_release,
        };
        respond(drains::drain(self.0.core(), &caller, &message.name, body, key).await)
    }

    async fn undrain_node(
        &self,
        request: Request<v1::UndrainNodeRequest>,
    ) -> Result<Response<v1::UndrainNodeResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let (name, skip) = (&message.name, message.skip_gate);
        respond(drains::undrain(&self.0, &caller, name, skip, key).await)
    }

    async fn sign_audit(
        &self,
        request: Request<v1::SignAuditRequest>,
    ) -> Result<Response<v1::AuditHead>, Status> {
        let (caller, _) = authenticate(&self.0, request).await?;
        respond(audit::sign(self.0.core(), &caller).await)
    }

    async fn query_audit(
        &self,
        request: Request<v1::QueryAuditRequest>,
    ) -> Result<Response<v1::QueryAuditResponse>, Status> {
        let (caller, message) = authenticate(&self.0, request).await?;
        let wanted = AuditQuery {
            by: Some(&message.by),
            user: Some(&message.user),
            node: Some(&message.node),
            allocation: message.allocation,
            project: Some(&message.project),
            action: Some(&message.action),
            since: Some(&message.since),
            until: Some(&message.until),
            newest_first: message.newest_first,
        };
        let (limit, _) = paging(message.limit, "");
        respond(audit::list(self.0.core(), &caller, &wanted, message.after, limit).await)
    }

    async fn get_quorum(
        &self,
        request: Request<v1::GetQuorumRequest>,
    ) -> Result<Response<v1::Quorum>, Status> {
        let (caller, _) = authenticate_without_view(&self.0, request).await?;
        respond(quorum::view(self.0.core(), &caller).await)
    }

    async fn add_quorum_member(
        &self,
        request: Request<v1::AddQuorumMemberRequest>,
    ) -> Result<Response<v1::QuorumStep>, Status> {
        let (caller, message) = authenticate_without_view(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let body = AddMemberRequest {
            id: message.id,
            address: message.address,
        };
        respond(quorum::add(self.0.core(), &caller, body, key).await)
    }

    async fn remove_quorum_member(
        &self,
        request: Request<v1::RemoveQuorumMemberRequest>,
    ) -> Result<Response<v1::QuorumStep>, Status> {
        let (caller, message) = authenticate_without_view(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let (id, force, reason) = (message.id, message.force, &message.reason);
        respond(quorum::remove(self.0.core(), &caller, id, force, reason, key).await)
    }

    async fn step_down(
        &self,
        request: Request<v1::StepDownRequest>,
    ) -> Result<Response<v1::QuorumStep>, Status> {
        let (caller, message) = authenticate_without_view(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let body = StepDownRequest { to: message.to };
        respond(quorum::step_down(self.0.core(), &caller, body, key).await)
    }

    type BackupStream = BoxStream<'static, Result<v1::BackupPiece, Status>>;

    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let (caller, message) = authenticate_without_view(&self.0, request).await?;
        let key = key(message.idempotency_key)?;
        let pieces = quorum::backup(&self.0, &caller, key).await;
        let pieces = pieces.map_err(|problem| problem.to_grpc())?;
        let pieces = pieces.map(|piece| match piece {
            Ok(bytes) => Ok(v1::BackupPiece {
                bytes: bytes.to_vec(),
            }),
            Err(error) => Err(Status::unavailable(format!(
                "the backup was interrupted: {error}; make another one"
            ))),
        });
        let stop = self.0.stop().clone().cancelled_owned();
        Ok(Response::new(pieces.take_until(stop).boxed()))
    }
}
