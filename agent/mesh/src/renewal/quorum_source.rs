//! Renewal source that requests certificates and bundles from quorum members over the mesh.

use super::{RenewError, RenewalSource};
use crate::{GetTrust, Issued, MeshError, Peer, Renew, RenewRefused, SignedBundle};
use futures::{FutureExt, future::BoxFuture};
use rustls_pki_types::CertificateSigningRequestDer;
use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Timeout of a renewal request to one member: issuing waits for the quorum.
const RENEW_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of a bundle request to one member, which only reads its state.
const TRUST_TIMEOUT: Duration = Duration::from_secs(5);

/// Renewal source that sends each request to the quorum members in turn, until one answers. Each request starts with
/// another member.
pub struct QuorumRenewalSource {
    members: Box<dyn Fn() -> Vec<Peer> + Send + Sync>,
    next: AtomicUsize,
}

impl fmt::Debug for QuorumRenewalSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskMembers")
    }
}

impl QuorumRenewalSource {
    /// Creates a source that calls `members` for the quorum members at each request. The peer handles do not keep a
    /// mesh alive; `members` must not either.
    pub fn new(members: impl Fn() -> Vec<Peer> + Send + Sync + 'static) -> Self {
        Self {
            members: Box::new(members),
            next: AtomicUsize::new(0),
        }
    }

    /// Returns all members, each time starting with another one.
    fn members_rotated(&self) -> Vec<Peer> {
        let mut members = (self.members)();
        let first = self.next.fetch_add(1, Ordering::Relaxed) % members.len().max(1);
        members.rotate_left(first);
        members
    }

    /// Returns the answer of the first member that can give one, or the failures of all members.
    async fn request_renewal(&self, renew: &Renew) -> Result<Issued, RenewError> {
        let mut failures = Vec::new();
        for member in self.members_rotated() {
            match member.call(renew, RENEW_TIMEOUT).await {
                Ok(Ok(issued)) => return Ok(issued),
                Ok(Err(RenewRefused::Unavailable { reason })) => {
                    failures.push(format!("{}: {reason}", member.addr()));
                }
                Ok(Err(refused)) => return Err(refused.into()),
                Err(error) => failures.push(format!("{}: {error}", member.addr())),
            }
        }
        Err(not_reached(&failures))
    }

    /// Returns the bundle of the first member that answers. A member with a certificate of an authority that is not
    /// trusted here may have a bundle that names that authority. The request to such a member does not verify its
    /// certificate, and is only sent if no trusted member returned a newer bundle.
    async fn request_trust(&self, have: u64) -> Result<Option<SignedBundle>, RenewError> {
        let (mut failures, mut distrusted) = (Vec::new(), Vec::new());
        let mut answered = false;
        for member in self.members_rotated() {
            if let Err(error) = member.connected().await {
                failures.push(format!("{}: {error}", member.addr()));
                if is_distrust(&error) {
                    distrusted.push(member);
                }
                continue;
            }
            match member.call(&GetTrust { have }, TRUST_TIMEOUT).await {
                Ok(Some(bundle)) => return Ok(Some(bundle)),
                Ok(None) => {
                    answered = true;
                    break;
                }
                Err(error) => failures.push(format!("{}: {error}", member.addr())),
            }
        }
        for member in distrusted {
            match member.fetch_trust_unverified(have).await {
                Ok(Some(bundle)) => return Ok(Some(bundle)),
                Ok(None) => {}
                Err(error) => failures.push(format!("{}: {error}", member.addr())),
            }
        }
        match answered {
            true => Ok(None),
            false => Err(not_reached(&failures)),
        }
    }
}

fn not_reached(failures: &[String]) -> RenewError {
    let reason = match failures {
        [] => "no quorum member is configured or known".to_owned(),
        failures => failures.join("; "),
    };
    RenewError::NotReached { reason }
}

fn is_distrust(mut error: &MeshError) -> bool {
    while let MeshError::BackingOff { last, .. } = error {
        error = last;
    }
    matches!(error, MeshError::NotTrusted { .. })
}

impl RenewalSource for QuorumRenewalSource {
    fn renew(
        &self,
        csr: CertificateSigningRequestDer<'static>,
    ) -> BoxFuture<'_, Result<Issued, RenewError>> {
        async move { self.request_renewal(&Renew { csr: csr.to_vec() }).await }.boxed()
    }

    fn trust(&self, have: u64) -> BoxFuture<'_, Result<Option<SignedBundle>, RenewError>> {
        self.request_trust(have).boxed()
    }
}
