//! Quorum operations over the mesh: members, membership changes and backups.

use crate::{
    backup,
    membership::{self, overview},
    service::Service,
};
use lattice_mesh::{HandlerFailed, Router};
use lattice_quorum_types::membership::{ChangeQuorum, GetBackup, GetMember, GetQuorum};

/// Adds the calls for quorum operations.
pub(crate) fn serve(router: Router, service: &Service) -> Router {
    let (account, view, change, copy) = (
        service.clone(),
        service.clone(),
        service.clone(),
        service.clone(),
    );
    router
        .rpc(move |_, _: GetMember| {
            let service = account.clone();
            async move { Ok(overview::own_report(&service.member)) }
        })
        .rpc(move |_, _: GetQuorum| {
            let service = view.clone();
            async move {
                let closing = || HandlerFailed::new("this member is stopping");
                let mesh = service.mesh.upgrade().ok_or_else(closing)?;
                Ok(overview::quorum_view(&service.member, &mesh).await)
            }
        })
        .rpc(move |_, request: ChangeQuorum| {
            let service = change.clone();
            async move { Ok(membership::change(&service, &request).await) }
        })
        .stream(move |_, request: GetBackup, items| {
            let service = copy.clone();
            async move { backup::send(&service, &request, items).await }
        })
}
