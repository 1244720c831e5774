//! Renewal by asking members over the mesh.

use super::{RenewError, RenewRefused, RenewalSource};
use crate::{GetTrust, Issued, MeshError, Peer, Renew, Rpc, SignedBundle};
use futures::{FutureExt, future::BoxFuture};
use rustls_pki_types::CertificateSigningRequestDer;
use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Longest one member is waited for: issuing waits for the quorum.
const RENEW_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest one member is waited for when it only has to look.
const TRUST_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks members in turn, each time beginning with another one, until one answers.
pub struct AskMembers {
    members: Box<dyn Fn() -> Vec<Peer> + Send + Sync>,
    next: AtomicUsize,
}

impl fmt::Debug for AskMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskMembers")
    }
}

impl AskMembers {
    /// Asks whom `members` names at that time: quorum members. Its handles do not keep a mesh
    /// alive; `members` must not either.
    pub fn new(members: impl Fn() -> Vec<Peer> + Send + Sync + 'static) -> Self {
        Self {
            members: Box::new(members),
            next: AtomicUsize::new(0),
        }
    }

    /// The first answer that `is_answer` takes, or what everyone said instead.
    async fn ask<R: Rpc, T>(
        &self,
        request: &R,
        deadline: Duration,
        take: impl Fn(R::Reply) -> Result<T, RenewRefused>,
    ) -> Result<T, RenewError> {
        let mut members = (self.members)();
        let first = self.next.fetch_add(1, Ordering::Relaxed) % members.len().max(1);
        members.rotate_left(first);
        let mut failures = Vec::new();
        for member in members {
            match member.call(request, deadline).await.map(&take) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(RenewRefused::Unavailable { reason })) => {
                    failures.push(format!("{}: {reason}", member.addr()));
                }
                Ok(Err(refused)) => return Err(refused.into()),
                Err(error) => failures.push(format!("{}: {error}", member.addr())),
            }
        }
        let reason = if failures.is_empty() {
            "there is no quorum member to ask".to_owned()
        } else {
            failures.join("; ")
        };
        Err(RenewError::NotReached { reason })
    }

    /// A later bundle from a member that is there, but whose certificate is of an authority that is
    /// not trusted here: the cluster's may have changed.
    async fn ask_as_outdated(&self, have: u64) -> Option<SignedBundle> {
        for member in (self.members)() {
            let Err(error) = member.connected().await else {
                continue;
            };
            if !is_distrust(&error) {
                continue;
            }
            match member.trust_of_whoever_answers(have).await {
                Ok(Some(bundle)) => return Some(bundle),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "no trust bundle from {}", member.addr()),
            }
        }
        None
    }
}

fn is_distrust(error: &MeshError) -> bool {
    match error {
        MeshError::NotTrusted { .. } => true,
        MeshError::BackingOff { last, .. } => is_distrust(last),
        _ => false,
    }
}

impl RenewalSource for AskMembers {
    fn renew(
        &self,
        csr: CertificateSigningRequestDer<'static>,
    ) -> BoxFuture<'_, Result<Issued, RenewError>> {
        async move {
            let renew = Renew { csr: csr.to_vec() };
            self.ask(&renew, RENEW_TIMEOUT, |reply| reply).await
        }
        .boxed()
    }

    fn trust(&self, have: u64) -> BoxFuture<'_, Result<Option<SignedBundle>, RenewError>> {
        async move {
            let asked = self.ask(&GetTrust { have }, TRUST_TIMEOUT, Ok).await;
            match asked {
                Err(RenewError::NotReached { reason }) => {
                    let outdated = self.ask_as_outdated(have).await;
                    outdated.map(Some).ok_or(RenewError::NotReached { reason })
                }
                other => other,
            }
        }
        .boxed()
    }
}
