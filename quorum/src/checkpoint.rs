//! Signing the audit: the leader signs how far the chain has come and brings that into the log, now
//! and then by itself, and at once before an export or a backup. See `../0008-audit-checkpoints.md`.
//!
//! Who takes over looks at the state: what is signed is an entry like any other. So nothing is
//! remembered here, and a change of leader neither repeats nor loses one.

use crate::{
    issuer::MEMBERS, member::Member, proposals::Proposals, reads::Reads, service::Service,
};
use lattice_mesh::{Mesh, Role, WeakMesh};
use lattice_quorum_state::MAX_FORWARD_MS;
use lattice_quorum_types::{
    Command, Envelope, UnixMillis,
    audit::{AuditHead, Checkpoint, CheckpointOf, Hex},
    command::{Power, Principal, SCHEMA},
    view::Authority,
    wire::Unavailable,
};
use rustls_pki_types::CertificateDer;
use std::{sync::Arc, time::Duration};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two tries where signing fails: it says so each time.
const RETRY: Duration = Duration::from_secs(30);

/// How often the audit is signed without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// After so many entries.
    pub entries: u64,
    /// When the first that is not covered is so old.
    pub after: Duration,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        Self {
            entries: 256,
            after: Duration::from_secs(600),
        }
    }
}

/// Why the audit was not signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSigned {
    /// Nobody can, at present.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// This member cannot: in words.
    #[error("the audit is not signed: {0}")]
    Refused(String),
}

/// Signs the audit with this member's key.
pub(crate) struct Signer {
    pub(crate) cluster: String,
    pub(crate) member: Arc<Member>,
    pub(crate) proposals: Proposals,
    /// It holds the handlers, which must not hold it.
    pub(crate) mesh: WeakMesh,
}

impl Signer {
    /// Of a member that serves.
    pub(crate) fn of(service: &Service) -> Self {
        Self {
            cluster: service.member.lineage.cluster().to_owned(),
            member: service.member.clone(),
            proposals: service.proposals.clone(),
            mesh: service.mesh.clone(),
        }
    }

    /// Signs the audit as far as it reaches here, unless that is done already. Returns where it ends
    /// afterwards. Linearizable only behind a barrier of the caller's.
    pub(crate) async fn sign(&self) -> Result<AuditHead, NotSigned> {
        let head = self.member.replica.audit_head();
        if head.unsigned_since.is_none() {
            return Ok(head);
        }
        let mesh = self.mesh.upgrade().ok_or(Unavailable::NoMajority)?;
        let at = self.time();
        let checkpoint = self.made(&mesh, &head, at)?;
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: MEMBERS.to_owned(),
                power: Power::Service,
            },
            key: None,
            at,
            fence: None,
            command: Command::SignAudit {
                checkpoint: Box::new(checkpoint),
            },
        };
        let replies = self.proposals.submit(&self.member, vec![envelope]).await?;
        match replies.into_iter().next() {
            Some(Ok(_)) => Ok(self.member.replica.audit_head()),
            Some(Err(refusal)) => Err(NotSigned::Refused(refusal.to_string())),
            None => Err(Unavailable::OutcomeUnknown.into()),
        }
    }

    /// The same for who asks from outside: behind everything that was answered before.
    pub(crate) async fn sign_behind(
        &self,
        reads: &Reads,
    ) -> Result<Result<AuditHead, String>, Unavailable> {
        reads.barrier().await?;
        match self.sign().await {
            Ok(head) => Ok(Ok(head)),
            Err(NotSigned::Unavailable(unavailable)) => Err(unavailable),
            Err(refused) => Ok(Err(refused.to_string())),
        }
    }

    /// State time as the command will have it.
    fn time(&self) -> UnixMillis {
        let (clock, state) = (self.member.clock.now(), self.member.replica.now());
        match state {
            UnixMillis(0) => clock,
            state => clock.max(state).min(state.after(MAX_FORWARD_MS)),
        }
    }

    /// The checkpoint, verified as others will: what does not hold never enters the log.
    fn made(&self, mesh: &Mesh, head: &AuditHead, at: UnixMillis) -> Result<Checkpoint, NotSigned> {
        let refused = |error: &dyn std::fmt::Display| NotSigned::Refused(error.to_string());
        let of = CheckpointOf {
            cluster: self.cluster.clone(),
            number: head.number,
            hash: head.hash.into(),
            at,
        };
        let bytes = of.signed_bytes();
        let signed = mesh
            .sign(CheckpointOf::CONTEXT, &bytes)
            .map_err(|e| refused(&e))?;
        let signer = mesh.verify_signed(CheckpointOf::CONTEXT, &bytes, &signed, at);
        let signer = signer.map_err(|e| refused(&e))?;
        if signer.role() != Role::Quorum || signer.cluster() != self.cluster {
            return Err(refused(&format!("{signer} is no member of this quorum")));
        }
        // The authority goes along: who verifies it later needs to know its pin alone.
        let trust = self.member.replica.trust();
        let by = |authority: &Authority| {
            let certificate = CertificateDer::from(&authority.certificate[..]);
            let judged = signed.verify_by(&certificate, CheckpointOf::CONTEXT, &bytes, at);
            Some((judged.ok()?, authority.certificate.clone()))
        };
        let found = trust.authorities.iter().find_map(by);
        let (by, authority) = found.ok_or_else(|| {
            refused(&"its certificate is of no authority that the cluster knows of yet")
        })?;
        let certificates = signed.chain.into_iter().chain([authority]);
        Ok(Checkpoint {
            of,
            signer: format!("{}/{}", signer.role(), signer.id()),
            issued_at: by.issued_at,
            signature: Hex(signed.signature),
            certificates: certificates.map(Hex).collect(),
        })
    }

    fn is_due(&self, settings: CheckpointSettings) -> bool {
        let head = self.member.replica.audit_head();
        let Some(since) = head.unsigned_since else {
            return false;
        };
        let waited = Duration::from_millis(self.member.clock.now().since(since));
        let entries = head.number - head.checkpoint.min(head.number);
        entries >= settings.entries || waited >= settings.after
    }
}

/// Signs for as long as this member runs, whenever it leads and it is due.
pub(crate) async fn run(signer: Arc<Signer>, settings: CheckpointSettings) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if !signer.member.leads_surely() || !signer.is_due(settings) {
            continue;
        }
        match signer.sign().await {
            Ok(head) => tracing::debug!(entry = head.checkpoint, "the audit is signed"),
            Err(NotSigned::Unavailable(error)) => {
                tracing::debug!(%error, "the audit is signed later");
            }
            Err(error) => {
                tracing::warn!(%error, "the audit has no new checkpoint");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
