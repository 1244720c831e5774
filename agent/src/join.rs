//! Agent credentials: enrolment and renewal.

use crate::data_dir::{DataDir, EnrolmentRecord};
use crate::error::StartError;
use crate::settings::{Dependencies, JoinSettings, Settings};
use futures::future::BoxFuture;
use lattice_mesh::{
    CertificateStanding, Credentials, CredentialsError, Enrolment, ExpectedIdentity, Issued, Mesh,
    MeshConfig, QuorumRenewalSource, RenewError, RenewRefused, RenewalSource, Role, SignedBundle,
    WeakMesh, enrol_at_any, enrol_key,
};
use lattice_quorum_types::{NodeId, UnixMillis};
use rustls_pki_types::CertificateSigningRequestDer;
use std::net::SocketAddr;

/// Credentials of the agent, with the other results of enrolment.
pub(crate) struct AgentCredentials {
    pub(crate) credentials: Credentials,
    /// Gossip cell that enrolment assigned.
    pub(crate) cell: Option<String>,
    /// Mesh addresses of quorum members, for renewal.
    pub(crate) quorum: Vec<SocketAddr>,
}

/// Returns the supplied credentials, or valid credentials of an earlier enrolment, or enrols the node.
pub(crate) async fn obtain_credentials(
    settings: &Settings,
    edges: &Dependencies,
    data: &DataDir,
) -> Result<AgentCredentials, StartError> {
    let member = match edges.credentials.clone() {
        Some(credentials) => AgentCredentials {
            credentials,
            cell: None,
            quorum: settings.quorum.clone(),
        },
        None => stored_or_enrolled(settings, edges, data).await?,
    };
    let identity = member.credentials.identity();
    if (identity.role(), identity.id()) != (Role::Agent, settings.node.as_str()) {
        return Err(StartError::OtherIdentity {
            node: settings.node.clone(),
            found: identity.to_string(),
        });
    }
    Ok(member)
}

async fn stored_or_enrolled(
    settings: &Settings,
    edges: &Dependencies,
    data: &DataDir,
) -> Result<AgentCredentials, StartError> {
    if DataDir::is_enrolled(&settings.data_dir) {
        let credentials = Credentials::load(&data.identity())?;
        let Some(why) = unusable_reason(&credentials, edges.clock.now())? else {
            let mut membership = data.membership()?.unwrap_or_default();
            if !settings.quorum.is_empty() && settings.quorum != membership.quorum {
                membership.quorum = settings.quorum.clone();
                data.write_membership(&membership)?;
            }
            return Ok(AgentCredentials {
                credentials,
                cell: membership.cell,
                quorum: membership.quorum,
            });
        };
        if settings.join.is_none() {
            let node = settings.node.clone();
            return Err(StartError::NoLongerMember { node, why });
        }
        tracing::warn!(why, "certificate no longer valid; enrolling again");
    }
    let join = settings.join.as_ref().ok_or(StartError::NotEnrolled)?;
    let Enrolment { credentials, cell } = enrol(settings, join, edges).await?;
    // The certificate is saved last: its presence marks a complete enrolment.
    let quorum = settings.quorum.clone();
    data.write_membership(&EnrolmentRecord {
        cell: cell.clone(),
        quorum: quorum.clone(),
    })?;
    credentials.save(&data.identity())?;
    Ok(AgentCredentials {
        credentials,
        cell,
        quorum,
    })
}

/// Reason that peers reject these credentials; `None`: the credentials are valid.
fn unusable_reason(
    credentials: &Credentials,
    now: UnixMillis,
) -> Result<Option<String>, CredentialsError> {
    Ok(match credentials.standing()? {
        CertificateStanding::Revoked => Some("was revoked".to_owned()),
        CertificateStanding::Untrusted => {
            Some("was issued by an authority that is no longer trusted".to_owned())
        }
        CertificateStanding::Good | CertificateStanding::Superseded => {
            let ended_ms = now.since(credentials.expires_at());
            (ended_ms > 0).then(|| format!("expired {} s ago", ended_ms / 1000))
        }
    })
}

async fn enrol(
    settings: &Settings,
    join: &JoinSettings,
    edges: &Dependencies,
) -> Result<Enrolment, StartError> {
    let (addrs, node) = (settings.quorum.iter().copied(), settings.node.as_str());
    let (mesh, cancel) = (&edges.mesh, &edges.cancel_enrolment);
    let asked = enrol_at_any(addrs, &join.token, node, join.replace, mesh, cancel).await;
    Ok(asked.ok_or(StartError::NoQuorum)??)
}

/// Source of a running agent's next certificate.
///
/// Quorum members renew a certificate that is still valid. If it has expired (no renewal while the quorum was
/// unreachable), the join token is used, if one is configured.
pub(crate) struct AgentRenewalSource {
    members: QuorumRenewalSource,
    mesh: WeakMesh,
    quorum: Vec<SocketAddr>,
    node: NodeId,
    join: Option<JoinSettings>,
    config: MeshConfig,
}

impl std::fmt::Debug for AgentRenewalSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NextCertificate({} from {:?})", self.node, self.quorum)
    }
}

impl AgentRenewalSource {
    pub(crate) fn new(
        mesh: &Mesh,
        quorum: Vec<SocketAddr>,
        settings: &Settings,
        config: &MeshConfig,
    ) -> Self {
        let of_quorum = |addr: &SocketAddr| mesh.peer(*addr, ExpectedIdentity::role(Role::Quorum));
        let members: Vec<_> = quorum.iter().map(of_quorum).collect();
        Self {
            members: QuorumRenewalSource::new(move || members.clone()),
            mesh: mesh.downgrade(),
            quorum,
            node: settings.node.clone(),
            join: settings.join.clone(),
            config: config.clone(),
        }
    }

    /// Join settings, once the certificate has expired.
    fn join_after_expiry(&self) -> Option<&JoinSettings> {
        let expires_at = self.mesh.upgrade()?.expires_at();
        let has_ended = self.config.clock.now() > expires_at;
        self.join.as_ref().filter(|_| has_ended)
    }

    async fn enrol_again(
        &self,
        join: &JoinSettings,
        csr: CertificateSigningRequestDer<'static>,
    ) -> Result<Issued, RenewError> {
        let mut failures = Vec::new();
        for addr in &self.quorum {
            let name = self.node.as_str();
            match enrol_key(*addr, &join.token, name, join.replace, &csr, &self.config).await {
                Ok(issued) => return Ok(issued),
                Err(error) if error.is_final() => {
                    let reason = error.to_string();
                    return Err(RenewRefused::NotMember { reason }.into());
                }
                Err(error) => failures.push(format!("{addr}: {error}")),
            }
        }
        let reason = failures.join("; ");
        Err(RenewError::NotReached { reason })
    }
}

impl RenewalSource for AgentRenewalSource {
    fn renew(
        &self,
        csr: CertificateSigningRequestDer<'static>,
    ) -> BoxFuture<'_, Result<Issued, RenewError>> {
        match self.join_after_expiry() {
            Some(join) => Box::pin(self.enrol_again(join, csr)),
            None => self.members.renew(csr),
        }
    }

    fn trust(&self, have: u64) -> BoxFuture<'_, Result<Option<SignedBundle>, RenewError>> {
        self.members.trust(have)
    }
}
