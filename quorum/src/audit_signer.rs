//! Signed audit heads: the leader signs the end of the audit chain and commits the signature to the log. It does so at
//! intervals, and at once before an export or a backup. See `../0008-signed-heads.md`.
//!
//! A signed head is an audit entry like any other. A new leader finds it in the state, and this module keeps no memory
//! of its own. A change of leader therefore neither repeats nor loses a signed head.

use crate::{
    certificates::issuer::MEMBERS_PRINCIPAL, member::Member, proposals::Proposals, reads::Reads,
    service::Service,
};
use lattice_mesh::{Mesh, Role, WeakMesh};
use lattice_quorum_state::MAX_FORWARD_MS;
use lattice_quorum_types::{
    Command, Envelope, UnixMillis,
    audit::{AuditHead, Hex, SignedHead, SignedHeadContent},
    command::{Principal, Privilege, SCHEMA},
    view::Authority,
    wire::Unavailable,
};
use rustls_pki_types::CertificateDer;
use std::{sync::Arc, time::Duration};

/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Wait after a refused signature, which is logged as a warning. No such wait follows while the quorum is unavailable.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Intervals of the automatic signed audit heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditSigningSettings {
    /// Number of audit entries after the newest signed head at which the audit is signed.
    pub entries: u64,
    /// Age of the oldest audit entry that no signed head covers, at which the audit is signed.
    pub after: Duration,
}

impl Default for AuditSigningSettings {
    fn default() -> Self {
        Self {
            entries: 256,
            after: Duration::from_secs(600),
        }
    }
}

/// Reason why the audit was not signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    /// This member cannot sign at present: it does not lead, no majority answers, too many commands wait, or the
    /// outcome is unknown.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// This member could not make a valid signature, or the state machine refused it; reason in words.
    #[error("audit head not signed: {0}")]
    Refused(String),
}

/// Signs the audit with this member's key.
pub(crate) struct Signer {
    pub(crate) cluster: String,
    pub(crate) member: Arc<Member>,
    pub(crate) proposals: Proposals,
    /// Weak, because the endpoint holds the handlers that hold this signer.
    pub(crate) mesh: WeakMesh,
}

impl Signer {
    /// Creates the signer of a serving member.
    pub(crate) fn of(service: &Service) -> Self {
        Self {
            cluster: service.member.incarnation.cluster().to_owned(),
            member: service.member.clone(),
            proposals: service.proposals.clone(),
            mesh: service.mesh.clone(),
        }
    }

    /// Signs the audit up to the last entry of this member, unless it is signed already. Returns the audit head
    /// afterwards. The result is linearizable only if the caller has passed a read barrier before.
    pub(crate) async fn sign(&self) -> Result<AuditHead, SignError> {
        let head = self.member.replica.audit_head();
        if head.unsigned_since.is_none() {
            return Ok(head);
        }
        let mesh = self.mesh.upgrade().ok_or(Unavailable::NoMajority)?;
        let at = self.state_time();
        let signed_head = self.create_signed_head(&mesh, &head, at)?;
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: MEMBERS_PRINCIPAL.to_owned(),
                privilege: Privilege::Service,
            },
            key: None,
            at,
            fence: None,
            command: Command::SignAudit {
                signed_head: Box::new(signed_head),
            },
        };
        let replies = self.proposals.submit(&self.member, vec![envelope]).await?;
        match replies.into_iter().next() {
            Some(Ok(_)) => Ok(self.member.replica.audit_head()),
            Some(Err(refusal)) => Err(SignError::Refused(refusal.to_string())),
            None => Err(Unavailable::OutcomeUnknown.into()),
        }
    }

    /// As [`Signer::sign`] for an external request: after a read barrier.
    pub(crate) async fn sign_after_barrier(
        &self,
        reads: &Reads,
    ) -> Result<Result<AuditHead, String>, Unavailable> {
        reads.barrier().await?;
        match self.sign().await {
            Ok(head) => Ok(Ok(head)),
            Err(SignError::Unavailable(unavailable)) => Err(unavailable),
            Err(refused) => Ok(Err(refused.to_string())),
        }
    }

    /// Returns the state time that the command will have.
    fn state_time(&self) -> UnixMillis {
        let (clock, state) = (self.member.clock.now(), self.member.replica.now());
        match state {
            UnixMillis(0) => clock,
            state => clock.max(state).min(state.after(MAX_FORWARD_MS)),
        }
    }

    /// Creates the signed head and verifies it as other members will: an invalid one never enters the log.
    fn create_signed_head(
        &self,
        mesh: &Mesh,
        head: &AuditHead,
        at: UnixMillis,
    ) -> Result<SignedHead, SignError> {
        let refused = |error: &dyn std::fmt::Display| SignError::Refused(error.to_string());
        let of = SignedHeadContent {
            cluster: self.cluster.clone(),
            number: head.number,
            hash: head.hash.into(),
            at,
        };
        let bytes = of.signed_bytes();
        let signed = mesh
            .sign(SignedHeadContent::CONTEXT, &bytes)
            .map_err(|e| refused(&e))?;
        let signer = mesh.verify_signed(SignedHeadContent::CONTEXT, &bytes, &signed, at);
        let signer = signer.map_err(|e| refused(&e))?;
        if signer.role() != Role::Quorum || signer.cluster() != self.cluster {
            return Err(refused(&format!("{signer} is not a member of this quorum")));
        }
        // The authority's certificate is included, so that a later verifier needs only the pin of the authority.
        let trust = self.member.replica.trust();
        let by = |authority: &Authority| {
            let certificate = CertificateDer::from(&authority.certificate[..]);
            let judged = signed.verify_by(&certificate, SignedHeadContent::CONTEXT, &bytes, at);
            Some((judged.ok()?, authority.certificate.clone()))
        };
        let found = trust.authorities.iter().find_map(by);
        let (by, authority) = found.ok_or_else(|| {
            refused(
                &"the certificate of this member is not from an authority of the cluster; add the \
                  authority with `lattice admin ca add`",
            )
        })?;
        let certificates = signed.chain.into_iter().chain([authority]);
        Ok(SignedHead {
            of,
            signer: format!("{}/{}", signer.role(), signer.id()),
            issued_at: by.issued_at,
            signature: Hex(signed.signature),
            certificates: certificates.map(Hex).collect(),
        })
    }

    fn is_due(&self, settings: AuditSigningSettings) -> bool {
        let head = self.member.replica.audit_head();
        let Some(since) = head.unsigned_since else {
            return false;
        };
        let waited = Duration::from_millis(self.member.clock.now().since(since));
        let entries = head.number - head.signed_head.min(head.number);
        entries >= settings.entries || waited >= settings.after
    }
}

/// Signs the audit whenever this member leads and a signed head is due.
pub(crate) async fn run(signer: Arc<Signer>, settings: AuditSigningSettings) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if !signer.member.is_confirmed_leader() || !signer.is_due(settings) {
            continue;
        }
        match signer.sign().await {
            Ok(head) => tracing::debug!(entry = head.signed_head, "audit head signed"),
            Err(SignError::Unavailable(error)) => {
                tracing::debug!(%error, "audit signing postponed");
            }
            Err(error) => {
                tracing::warn!(%error, "audit signing failed");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}
