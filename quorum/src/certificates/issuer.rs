//! Certificate issuer for enrolments and renewals. The quorum commits each request first; the member that received it
//! signs afterwards. The issuing key stays in this process.

use crate::{
    certificates::authority::Authorities, member::Member, proposals::Proposals, reads::Reads,
};
use futures::future::BoxFuture;
use lattice_mesh::{
    Authority, ExpectedIdentity, Identity, Issued, Mesh, Role, Rpc, SignBundleError, SignedBundle,
    TrustBundle, TrustedAuthority, Validity, WeakMesh,
};
use lattice_quorum_types::{
    Command, Envelope, NodeId, Outcome, Refusal, Revision, UnixMillis,
    command::{IssuedCertificate, Principal, Privilege, SCHEMA},
    view::{Answer, Query, TrustView},
    wire::{Propose, Read, Unavailable},
};
use rustls_pki_types::CertificateSigningRequestDer;
use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// Principal of members' proposals: the same for all members, so that a repeated request at another member is
/// recognised.
pub(crate) const MEMBERS_PRINCIPAL: &str = "service:quorum";
/// Deadline of one certificate. Shorter than the timeout of the requesting process: an answer that arrives too late may
/// have used up a token.
const DEADLINE: Duration = Duration::from_secs(12);
/// Longest wait for one step of issuing: for a leader and its answer, for an authority, or to catch up.
const STEP_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval between two tries.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of one call to the leader.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of retries with new times when another certificate of the same name was issued first.
const MAX_TIME_RETRIES: u32 = 5;
/// Maximum lead of a certificate's issue time over the clock, milliseconds. Each certificate of a name is a second
/// later than the previous one, so the value bounds the renewal rate of a name.
const MAX_AHEAD_MS: u64 = 10_000;

/// Settings of issued certificates, and the gossip cells of agents.
#[derive(Debug, Clone)]
pub struct EnrolmentSettings {
    /// Lifetime of certificates.
    pub lifetime: Duration,
    /// Gossip cell of each listed node; others join `default_cell`.
    pub cells: BTreeMap<NodeId, String>,
    /// Gossip cell of nodes that are not listed.
    pub default_cell: String,
}

impl Default for EnrolmentSettings {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(30 * 86_400),
            cells: BTreeMap::new(),
            default_cell: "cell-0".to_owned(),
        }
    }
}

/// Reason why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    /// The quorum refused the command.
    #[error("{0}")]
    Refused(Refusal),
    /// The request cannot be signed by any member, or the quorum's answer has no certificate.
    #[error("{0}")]
    Invalid(String),
    /// This member cannot issue, or not at present.
    #[error("{0}")]
    Unavailable(String),
}

fn unavailable(error: impl std::fmt::Display) -> IssueError {
    IssueError::Unavailable(error.to_string())
}

/// Issues certificates on behalf of the quorum.
pub(crate) struct Issuer {
    pub(crate) cluster: String,
    pub(crate) authorities: Authorities,
    pub(crate) settings: EnrolmentSettings,
    pub(crate) member: Arc<Member>,
    pub(crate) proposals: Proposals,
    pub(crate) reads: Reads,
    /// Weak, because the endpoint holds the handlers that hold this issuer.
    pub(crate) mesh: WeakMesh,
}

/// Creates the idempotency key and the command to commit, from the times of the certificate.
type IssueRequest<'a> = &'a (dyn Fn(IssuedCertificate) -> (String, Command) + Send + Sync);

impl Issuer {
    /// Issues a certificate for `identity`, after the quorum has committed the command that `asked` creates from the
    /// certificate's times. Repeated requests with one key receive the times of the first certificate.
    pub(crate) async fn issue(
        &self,
        identity: &Identity,
        csr: &CertificateSigningRequestDer<'_>,
        asked: IssueRequest<'_>,
    ) -> Result<Issued, IssueError> {
        let issuing = timeout(DEADLINE, self.issue_in_time(identity, csr, asked));
        issuing
            .await
            .unwrap_or_else(|_| Err(unavailable("the quorum did not commit in time; try again")))
    }

    async fn issue_in_time(
        &self,
        identity: &Identity,
        csr: &CertificateSigningRequestDer<'_>,
        asked: IssueRequest<'_>,
    ) -> Result<Issued, IssueError> {
        let mut tries = MAX_TIME_RETRIES;
        loop {
            self.catch_up().await?;
            let certificate = self.next_validity(identity)?;
            // Signed before the commit as well: a request that cannot be signed must not use up a token.
            self.sign(identity, csr, certificate).await?;
            let (key, command) = asked(certificate);
            match self.propose(Some(key), command).await? {
                Ok(Outcome::Certified { certificate }) => {
                    return self.sign(identity, csr, certificate).await;
                }
                Ok(outcome) => {
                    tracing::error!(?outcome, "no certificate in the quorum's answer");
                    let text = "the quorum's answer has no certificate; try again, and see the log \
                                of this member";
                    return Err(IssueError::Invalid(text.to_owned()));
                }
                Err(refusal) if is_too_early(&refusal) && tries > 0 => tries -= 1,
                Err(refusal) => return Err(IssueError::Refused(refusal)),
            }
        }
    }

    /// Returns issue and expiry time of the next certificate of this name, in full seconds. The issue time is the
    /// latest of this member's clock, the state time, and the earliest time after the name's previous certificate.
    fn next_validity(&self, identity: &Identity) -> Result<IssuedCertificate, IssueError> {
        let replica = &self.member.replica;
        let earliest = replica.next_issue(identity.role(), identity.id());
        let now = self.member.clock.now();
        let at = |millis: UnixMillis| UnixMillis(millis.0.div_ceil(1000).saturating_mul(1000));
        let issued_at = at(earliest.max(now).max(replica.now()));
        if at(earliest) > now.after(MAX_AHEAD_MS) {
            return Err(unavailable(format!(
                "certificates of {identity} are issued too often, or the clocks of the quorum \
                 members differ"
            )));
        }
        let validity = Validity::from_now(issued_at, self.settings.lifetime);
        Ok(IssuedCertificate {
            issued_at,
            expires_at: validity.expires_at(),
        })
    }

    async fn sign(
        &self,
        identity: &Identity,
        csr: &CertificateSigningRequestDer<'_>,
        certificate: IssuedCertificate,
    ) -> Result<Issued, IssueError> {
        let (trust, authority) = self.issuing_authority().await?;
        let lifetime = certificate.expires_at.since(certificate.issued_at);
        let validity = Validity::from_now(certificate.issued_at, Duration::from_millis(lifetime));
        let chain = authority.issue(identity, csr, validity);
        let chain = chain.map_err(|e| IssueError::Invalid(e.to_string()))?;
        let roots = trust.authorities.iter().map(|a| a.certificate.to_vec());
        let cell = (identity.role() == Role::Agent).then(|| self.cell(identity.id()));
        Ok(Issued {
            chain: chain.iter().map(|c| c.to_vec()).collect(),
            roots: roots.collect(),
            cell,
        })
    }

    /// Returns the trust view and the key of the issuing authority. A new cluster has no authority until a member has
    /// proposed its own.
    async fn issuing_authority(&self) -> Result<(TrustView, Arc<Authority>), IssueError> {
        let until = Instant::now() + STEP_TIMEOUT;
        let trust = loop {
            let trust = self.member.replica.trust();
            if !trust.authorities.is_empty() {
                break trust;
            }
            if Instant::now() >= until {
                return Err(unavailable(
                    "the cluster has no certificate authority; add one with `lattice admin ca add`",
                ));
            }
            sleep(RETRY_INTERVAL).await;
        };
        let issuing = trust.authorities.iter().find(|a| a.issuing);
        let held = issuing.and_then(|issuing| self.authorities.with_pin(&issuing.pin));
        match held {
            Some(authority) => Ok((trust, authority)),
            None => Err(unavailable(
                "this member has no key of the issuing authority; use another member, or copy the \
                 authority's folder into `enrolment.authority` of this member",
            )),
        }
    }

    fn cell(&self, name: &str) -> String {
        let named = NodeId::new(name)
            .ok()
            .and_then(|node| self.settings.cells.get(&node));
        named.unwrap_or(&self.settings.default_cell).clone()
    }

    /// Signs the trust view as a bundle, with every key that this member holds. Peers that trust one of these
    /// authorities accept the bundle. Returns `None` if no held key belongs to a trusted authority.
    pub(crate) fn sign_bundle(
        &self,
        trust: &TrustView,
    ) -> Result<Option<SignedBundle>, SignBundleError> {
        let held = self.authorities.all();
        let is_trusted = |held: &Arc<Authority>| {
            let pin = held.pin().to_string();
            trust.authorities.iter().any(|a| a.pin == pin)
        };
        if !held.iter().any(is_trusted) {
            return Ok(None);
        }
        let bundle = bundle(&self.cluster, trust);
        bundle.sign(held.iter().map(Arc::as_ref)).map(Some)
    }

    /// Waits until this member has applied every command that was committed when the request arrived.
    async fn catch_up(&self) -> Result<(), IssueError> {
        let asked = self.retry_at_leader(
            || async { self.reads.barrier().await.map(|()| None) },
            Read {
                query: Query::Revision,
            },
            Some,
        );
        match asked.await? {
            Some(Answer::Revision(revision)) => self.wait_for_revision(revision).await,
            _ => Ok(()),
        }
    }

    async fn wait_for_revision(&self, revision: Revision) -> Result<(), IssueError> {
        let reached = async {
            while self.member.replica.revision() < revision {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(STEP_TIMEOUT, reached).await.map_err(|_| {
            unavailable("this member did not catch up with the log in time; try again")
        })
    }

    /// Proposes a command on behalf of the members, locally or at the leader.
    pub(crate) async fn propose(
        &self,
        key: Option<String>,
        command: Command,
    ) -> Result<Result<Outcome, Refusal>, IssueError> {
        let envelopes = vec![Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: MEMBERS_PRINCIPAL.to_owned(),
                privilege: Privilege::Service,
            },
            key,
            at: self.member.clock.now(),
            fence: None,
            command,
        }];
        let local = || self.proposals.submit(&self.member, envelopes.clone());
        let request = Propose {
            envelopes: envelopes.clone(),
        };
        let mut replies = self
            .retry_at_leader(local, request, |replies| replies)
            .await?;
        match replies.pop() {
            Some(reply) => Ok(reply.map(|applied| applied.outcome)),
            None => Err(unavailable("the leader sent an empty answer")),
        }
    }

    /// Runs a request locally when this member leads, otherwise at the leader, and retries failures for
    /// [`STEP_TIMEOUT`]. The request must be idempotent.
    fn retry_at_leader<'a, R, T, U, F>(
        &'a self,
        local: impl Fn() -> F + Send + 'a,
        request: R,
        remote: impl Fn(T) -> U + Send + 'a,
    ) -> BoxFuture<'a, Result<U, IssueError>>
    where
        R: Rpc<Reply = Result<T, Unavailable>>,
        T: Send + 'static,
        U: Send + 'a,
        F: Future<Output = Result<U, Unavailable>> + Send + 'a,
    {
        Box::pin(async move {
            let until = Instant::now() + STEP_TIMEOUT;
            loop {
                let error = if self.member.leading_term().is_some() {
                    match local().await {
                        Ok(done) => return Ok(done),
                        Err(error) => error.to_string(),
                    }
                } else if let Some((id, addr)) = self.member.leader_addr() {
                    let expect = ExpectedIdentity::exactly(Role::Quorum, id.to_string());
                    let mesh = self.mesh_endpoint();
                    let peer = mesh.map(|mesh| mesh.peer(addr, expect));
                    let peer = peer.ok_or_else(|| unavailable("this member is stopping"))?;
                    match peer.call(&request, CALL_TIMEOUT).await {
                        Ok(Ok(done)) => return Ok(remote(done)),
                        Ok(Err(error)) => error.to_string(),
                        Err(error) => error.to_string(),
                    }
                } else {
                    "the quorum has no leader at present".to_owned()
                };
                if Instant::now() >= until {
                    return Err(unavailable(error));
                }
                sleep(RETRY_INTERVAL).await;
            }
        })
    }

    /// Returns the mesh endpoint for dialling, or `None` after it has ended.
    pub(crate) fn mesh_endpoint(&self) -> Option<Mesh> {
        self.mesh.upgrade()
    }
}

/// Returns whether the quorum refused the issue time because a certificate of this name has the same or a later one.
fn is_too_early(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Invalid { field, .. } if field == "certificate.issued_at")
}

/// Builds the trust bundle: equal on all members for equal numbers.
fn bundle(cluster: &str, trust: &TrustView) -> TrustBundle {
    let authorities = trust.authorities.iter().map(|authority| TrustedAuthority {
        certificate: authority.certificate.clone(),
        issuing: authority.issuing,
    });
    let revoked = trust
        .revoked
        .iter()
        .map(|revoked| lattice_mesh::Revocation {
            role: revoked.role,
            name: revoked.name.clone(),
            issued_before: revoked.issued_before,
            forget_at: revoked.forget_at,
        });
    TrustBundle {
        cluster: cluster.to_owned(),
        number: trust.number.0,
        authorities: authorities.collect(),
        revoked: revoked.collect(),
    }
}

/// Returns the idempotency key of a request.
pub(crate) fn key_of(kind: &str, parts: &[&[u8]]) -> String {
    let mut digest = blake3::Hasher::new();
    for part in parts {
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    format!("{kind}/{}", digest.finalize().to_hex())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use crate::certificates::issuer::*;
    use lattice_mesh::{Clock, SystemClock};
    use lattice_quorum_state::{MAX_REVOCATION_BYTES, MAX_REVOCATIONS};
    use lattice_quorum_types::view::{Authority as Known, Revoked};

    /// Trust view with as many revoked names of this length as the state permits.
    fn full(authority: &Authority, length: usize) -> TrustView {
        let count = MAX_REVOCATIONS.min(MAX_REVOCATION_BYTES / (length + 16) + 1);
        let now = SystemClock.now();
        let revoked = (0..count).map(|i| Revoked {
            role: Role::Control,
            name: format!("{i:0>length$}"),
            issued_before: now,
            forget_at: now.after(1 << 36),
        });
        let known = Known {
            pin: authority.pin().to_string(),
            certificate: authority.certificate().to_vec().into(),
            issuing: true,
            since: now,
        };
        TrustView {
            number: Revision(u64::MAX),
            authorities: vec![known],
            revoked: revoked.collect(),
        }
    }

    #[test]
    fn whatever_the_state_allows_can_be_signed_and_believed() {
        let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(60));
        let authority = Authority::create("test", validity).unwrap();
        for length in [5, 10, 63, 253] {
            let trust = full(&authority, length);
            let bundle = bundle("test", &trust);
            let signed = bundle.sign([&authority]).unwrap();
            let trusted = [authority.certificate().clone()];
            let believed = signed.verify(&trusted, "test").unwrap();
            assert_eq!(believed, bundle);
            println!(
                "{} names of {length}: {} bytes",
                trust.revoked.len(),
                signed.body.len()
            );
        }
    }
}
