//! Enrolment: a token is used up through the log before a certificate leaves. The issuing key
//! stays in this process.

use crate::{member::Member, proposals::Proposals, reads::Reads};
use futures::{FutureExt, future::BoxFuture};
use lattice_mesh::{
    Authority, EnrolRefused, EnrolRequest, Enroller, Expect, Identity, Issued, Mesh, Role, Rpc,
    Validity,
};
use lattice_quorum_types::{
    Command, Envelope, NodeId, Outcome, Refusal, Revision, UnixMillis,
    command::{IssuedCertificate, Power, Principal, SCHEMA},
    view::{Answer, Query},
    wire::{Propose, Read, Unavailable},
};
use std::{
    collections::BTreeMap,
    future::Future,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};

/// Longest an enrolment looks for a leader and waits for it.
const PATIENCE: Duration = Duration::from_secs(8);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(100);
/// How often a certificate is stamped anew when another of the same name came before it.
const STAMPS: u32 = 5;
/// Longest one call to the leader takes.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// What certificates are issued for, and into which gossip cell agents go.
#[derive(Debug, Clone)]
pub struct EnrolmentSettings {
    /// How long certificates hold.
    pub lifetime: Duration,
    /// The cell of each node that is named; others go to `default_cell`.
    pub cells: BTreeMap<NodeId, String>,
    /// The cell of nodes that are not named.
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

/// Judges strangers.
pub(crate) struct Registrar {
    pub(crate) cluster: String,
    pub(crate) authority: Arc<Authority>,
    /// What the enrolled are to trust (DER).
    pub(crate) roots: Vec<Vec<u8>>,
    pub(crate) settings: EnrolmentSettings,
    pub(crate) member: Arc<Member>,
    pub(crate) proposals: Proposals,
    pub(crate) reads: Reads,
    /// Empty once the member stops: the endpoint holds its handlers, which must not hold it.
    pub(crate) mesh: Arc<Mutex<Option<Mesh>>>,
}

impl Enroller for Registrar {
    fn enrol(
        &self,
        request: EnrolRequest,
        remote: SocketAddr,
    ) -> BoxFuture<'_, Result<Issued, EnrolRefused>> {
        async move {
            let mut tries = STAMPS;
            loop {
                self.catch_up().await?;
                let certificate = self.stamp(request.role, &request.name);
                let envelope = self.consume_token(&request, remote, certificate);
                // A request that cannot be signed uses up no token.
                self.issue(&request, certificate)?;
                match self.propose(envelope).await? {
                    // Of the first of several repeats, so that all get the same.
                    Ok(Outcome::Certified { certificate }) => {
                        return self.issue(&request, certificate);
                    }
                    Ok(_) => return self.issue(&request, certificate),
                    Err(refusal) if is_too_early(&refusal) && tries > 0 => tries -= 1,
                    Err(refusal) => return Err(refused(&refusal)),
                }
            }
        }
        .boxed()
    }
}

/// Whether a certificate of that name was issued within the same second, or later, meanwhile.
fn is_too_early(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Invalid { field, .. } if field == "certificate.issued_at")
}

/// A stranger is told what it can change, and nothing of the tokens there are.
fn refused(refusal: &Refusal) -> EnrolRefused {
    tracing::info!(%refusal, "enrolment refused");
    match refusal {
        Refusal::Invalid { field, reason } => EnrolRefused::Invalid {
            reason: format!("{field}: {reason}"),
        },
        Refusal::NameTaken { name, .. } => EnrolRefused::NameTaken { name: name.clone() },
        _ => EnrolRefused::TokenRefused,
    }
}

fn unavailable(error: impl std::fmt::Display) -> EnrolRefused {
    EnrolRefused::Unavailable {
        reason: error.to_string(),
    }
}

impl Registrar {
    /// When the next certificate of this name is issued, and when it ends: by this member's clock,
    /// but later than the one before, in whole seconds.
    fn stamp(&self, role: Role, name: &str) -> IssuedCertificate {
        let earliest = self.member.replica.next_issue(role, name);
        let issued_at = self.member.clock.now().max(earliest).0.div_ceil(1000) * 1000;
        let issued_at = UnixMillis(issued_at);
        let lifetime_ms = u64::try_from(self.settings.lifetime.as_millis()).unwrap_or(u64::MAX);
        IssuedCertificate {
            issued_at,
            expires_at: issued_at.after(lifetime_ms),
        }
    }

    fn consume_token(
        &self,
        request: &EnrolRequest,
        remote: SocketAddr,
        certificate: IssuedCertificate,
    ) -> Envelope {
        let mut digest = blake3::Hasher::new();
        for part in [
            request.token_hash.as_bytes(),
            request.name.as_bytes(),
            &request.csr,
        ] {
            digest.update(&(part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Envelope {
            schema: SCHEMA,
            // One principal for all members, so that a repeat at another one is known as such.
            principal: Principal {
                name: "service:quorum".to_owned(),
                power: Power::Service,
            },
            key: Some(format!("enrol/{}", digest.finalize().to_hex())),
            at: self.member.clock.now(),
            fence: None,
            command: Command::ConsumeToken {
                hash: request.token_hash.clone(),
                name: request.name.clone(),
                role: request.role,
                from: Some(remote.ip()),
                replace: request.replace,
                certificate,
            },
        }
    }

    fn issue(
        &self,
        request: &EnrolRequest,
        certificate: IssuedCertificate,
    ) -> Result<Issued, EnrolRefused> {
        let invalid = |reason: String| EnrolRefused::Invalid { reason };
        let identity = Identity::new(self.cluster.as_str(), request.role, request.name.as_str())
            .map_err(|e| invalid(e.to_string()))?;
        let lifetime = certificate.expires_at.since(certificate.issued_at);
        let validity = Validity::from_now(certificate.issued_at, Duration::from_millis(lifetime));
        let chain = self
            .authority
            .issue(&identity, &request.csr, validity)
            .map_err(|e| invalid(e.to_string()))?;
        let cell = (request.role == Role::Agent).then(|| self.cell(&request.name));
        Ok(Issued {
            chain: chain.iter().map(|c| c.to_vec()).collect(),
            roots: self.roots.clone(),
            cell,
        })
    }

    fn cell(&self, name: &str) -> String {
        let named = NodeId::new(name)
            .ok()
            .and_then(|node| self.settings.cells.get(&node));
        named.unwrap_or(&self.settings.default_cell).clone()
    }

    /// Waits until this member has applied what was committed when the stranger came.
    async fn catch_up(&self) -> Result<(), EnrolRefused> {
        let asked = self.at_leader(
            || async { self.reads.barrier().await.map(|()| None) },
            Read {
                query: Query::Revision,
            },
            Some,
        );
        let Some(Answer::Revision(revision)) = asked.await? else {
            return Ok(());
        };
        self.reach(revision).await
    }

    async fn reach(&self, revision: Revision) -> Result<(), EnrolRefused> {
        let reached = async {
            while self.member.replica.revision() < revision {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, reached)
            .await
            .map_err(|_| unavailable("this member is behind the others"))
    }

    async fn propose(&self, envelope: Envelope) -> Result<Result<Outcome, Refusal>, EnrolRefused> {
        let envelopes = vec![envelope];
        let local = || self.proposals.submit(&self.member, envelopes.clone());
        let request = Propose {
            envelopes: envelopes.clone(),
        };
        let mut replies = self.at_leader(local, request, |replies| replies).await?;
        match replies.pop() {
            Some(reply) => Ok(reply.map(|applied| applied.outcome)),
            None => Err(unavailable("the leader answered nothing")),
        }
    }

    /// Does it here when this member leads, else at the leader; tries again until it is done.
    /// What is done must bear being done twice.
    async fn at_leader<R, T, U, F>(
        &self,
        local: impl Fn() -> F,
        request: R,
        remote: impl Fn(T) -> U,
    ) -> Result<U, EnrolRefused>
    where
        R: Rpc<Reply = Result<T, Unavailable>>,
        F: Future<Output = Result<U, Unavailable>>,
    {
        let until = Instant::now() + PATIENCE;
        loop {
            let error = if self.member.leads().is_some() {
                match local().await {
                    Ok(done) => return Ok(done),
                    Err(error) => error.to_string(),
                }
            } else if let Some((id, addr)) = self.member.leader_addr() {
                let expect = Expect::exactly(Role::Quorum, id.to_string());
                let mesh = self
                    .mesh
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone();
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
            sleep(RETRY).await;
        }
    }
}
