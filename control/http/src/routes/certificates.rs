//! Certificate routes.

use super::Paging;
use crate::Caller;
use crate::{
    answer::Answer,
    extract::{Input, Key, Params, PathParameter},
    ops::certificates,
    state::Api,
};
use axum::{Json, extract::State};
use lattice_api::{
    Page,
    certificate::{CertificateView, RevokeRequest},
    project::ChangeResult,
    schema::Name,
};

/// List the certificates of all members and of the controls' TLS ports, by role and name, a page at a time.
///
/// A certificate that was issued by hand is listed while its holder is connected, and after its first renewal. For
/// operators of the whole cluster.
#[utoipa::path(get, path = "/certificates", tag = "certificates", params(Paging), responses(
    (status = 200, body = Page<CertificateView>)))]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(p): Params<Paging>,
) -> Answer<Page<CertificateView>> {
    let cursor = p.cursor.as_deref();
    Ok(Json(
        certificates::list(api.core(), &caller, p.limit, cursor).await?,
    ))
}

/// Revoke all certificates of a member issued until now.
///
/// All connections of the member end, and the member must enrol again with a new join token. For administrators of the
/// whole cluster.
#[utoipa::path(post, path = "/certificates/{role}/{name}/revoke", tag = "certificates", params(
    ("role" = String, Path, pattern = "^(agent|control|quorum)$"), ("name" = inline(Name), Path), Key),
    request_body = RevokeRequest, responses(
    (status = 200, body = ChangeResult)))]
pub(super) async fn revoke(
    State(api): State<Api>,
    caller: Caller,
    PathParameter((role, name)): PathParameter<(String, String)>,
    Key(key): Key,
    Input(request): Input<RevokeRequest>,
) -> Answer<ChangeResult> {
    let reason = request.reason;
    Ok(Json(
        certificates::revoke(api.core(), &caller, &role, &name, reason, key).await?,
    ))
}
