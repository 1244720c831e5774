//! Renewal: processes of the cluster, this member included, obtain a new certificate of their own identity before the
//! present one expires. See `../../0003-expiry-without-a-quorum.md` for renewals while the quorum is unavailable.

use crate::certificates::issuer::{IssueError, Issuer, key_of};
use futures::{FutureExt, future::BoxFuture};
use lattice_mesh::{
    Caller, ExpectedIdentity, Identity, Issued, QuorumRenewalSource, RenewError, RenewRefused,
    RenewalSource, Role, SignedBundle,
};
use lattice_quorum_types::{Command, Refusal, UnixMillis};
use rustls_pki_types::CertificateSigningRequestDer;
use std::sync::Arc;

impl Issuer {
    /// Issues a new certificate to the holder of a certificate that was issued at `shown_issued_at`.
    async fn renew(
        &self,
        identity: &Identity,
        shown_issued_at: UnixMillis,
        csr: &CertificateSigningRequestDer<'_>,
    ) -> Result<Issued, RenewRefused> {
        let uri = identity.uri();
        let shown = shown_issued_at.0.to_le_bytes();
        let key = key_of("renew", &[uri.as_bytes(), &shown, csr]);
        let asked = |certificate| {
            let command = Command::RenewCertificate {
                name: identity.id().to_owned(),
                role: identity.role(),
                shown_issued_at,
                certificate,
            };
            (key.clone(), command)
        };
        let issued = self.issue(identity, csr, &asked).await;
        match &issued {
            Ok(_) => tracing::info!(%identity, "certificate renewed"),
            Err(error) => tracing::info!(%identity, %error, "renewal refused"),
        }
        issued.map_err(refused)
    }

    /// Issues a new certificate to the caller of a renewal request.
    pub(crate) async fn renew_for(
        &self,
        caller: &Caller,
        csr: Vec<u8>,
    ) -> Result<Issued, RenewRefused> {
        self.renew(&caller.identity, caller.issued_at, &csr.into())
            .await
    }
}

fn refused(error: IssueError) -> RenewRefused {
    match error {
        IssueError::Refused(refusal @ Refusal::CertificateRevoked { .. }) => {
            RenewRefused::NotMember {
                reason: refusal.to_string(),
            }
        }
        IssueError::Refused(refusal) => RenewRefused::Invalid {
            reason: refusal.to_string(),
        },
        IssueError::Invalid(reason) => RenewRefused::Invalid { reason },
        IssueError::Unavailable(reason) => RenewRefused::Unavailable { reason },
    }
}

/// Renewal source of this member's own certificate: issued by this member, or by another member if this one cannot
/// issue, for example without the issuing key.
pub(crate) struct OwnCertificate {
    issuer: Arc<Issuer>,
    others: QuorumRenewalSource,
}

impl OwnCertificate {
    pub(crate) fn new(issuer: Arc<Issuer>) -> Self {
        let asker = issuer.clone();
        let others = QuorumRenewalSource::new(move || {
            let Some(mesh) = asker.mesh_endpoint() else {
                return Vec::new();
            };
            let voters = asker.member.voters().into_iter();
            voters
                .filter(|(id, _)| *id != asker.member.id)
                .filter_map(|(id, addr)| {
                    let expect = ExpectedIdentity::exactly(Role::Quorum, id.to_string());
                    Some(mesh.peer(addr?, expect))
                })
                .collect()
        });
        Self { issuer, others }
    }
}

impl RenewalSource for OwnCertificate {
    fn renew(
        &self,
        csr: CertificateSigningRequestDer<'static>,
    ) -> BoxFuture<'_, Result<Issued, RenewError>> {
        async move {
            let mesh = self.issuer.mesh_endpoint();
            let mesh = mesh.ok_or_else(|| RenewError::NotReached {
                reason: "this member is stopping".to_owned(),
            })?;
            let (identity, issued_at) = (mesh.identity(), mesh.issued_at());
            match self.issuer.renew(&identity, issued_at, &csr).await {
                Err(RenewRefused::Unavailable { reason }) => {
                    tracing::debug!(%reason, "requesting certificate from another member");
                    self.others.renew(csr).await
                }
                answer => Ok(answer?),
            }
        }
        .boxed()
    }

    fn trust(&self, have: u64) -> BoxFuture<'_, Result<Option<SignedBundle>, RenewError>> {
        async move {
            // A single member has no peer to request a bundle from, and no newer one exists.
            if self.issuer.member.voters().len() <= 1 {
                return Ok(None);
            }
            self.others.trust(have).await
        }
        .boxed()
    }
}
