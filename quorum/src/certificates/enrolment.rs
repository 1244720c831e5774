//! Enrolment: the log records that a token is used before its certificate is returned.

use crate::certificates::issuer::{IssueError, Issuer, key_of};
use futures::{FutureExt, future::BoxFuture};
use lattice_mesh::{
    CaKeyProof, EnrolRefused, EnrolRequest, Enroller, EnrolmentSession, Identity, Issued, Pin,
};
use lattice_quorum_types::{Command, Refusal};
use std::net::SocketAddr;

impl Enroller for Issuer {
    fn enrol(
        &self,
        request: EnrolRequest,
        remote: SocketAddr,
    ) -> BoxFuture<'_, Result<Issued, EnrolRefused>> {
        async move {
            let identity =
                Identity::new(self.cluster.as_str(), request.role, request.name.as_str());
            let identity = identity.map_err(|e| EnrolRefused::Invalid {
                reason: e.to_string(),
            })?;
            let parts: [&[u8]; 3] = [
                request.token_hash.as_bytes(),
                request.name.as_bytes(),
                &request.csr,
            ];
            let key = key_of("enrol", &parts);
            let asked = |certificate| {
                let command = Command::ConsumeToken {
                    hash: request.token_hash.clone(),
                    name: request.name.clone(),
                    role: request.role,
                    from: Some(remote.ip()),
                    replace: request.replace,
                    certificate,
                };
                (key.clone(), command)
            };
            let issued = self.issue(&identity, &request.csr, &asked).await;
            issued.map_err(|error| refused(&error))
        }
        .boxed()
    }

    fn prove(&self, pins: &[Pin], session: &EnrolmentSession) -> Option<CaKeyProof> {
        let trust = self.member.replica.trust();
        let mut trusted = pins.iter().map(Pin::to_string);
        let held = trusted.find_map(|pin| {
            let trusted = trust.authorities.iter().any(|a| a.pin == pin);
            trusted.then(|| self.authorities.with_pin(&pin))?
        })?;
        let proof = held.prove(session);
        proof
            .inspect_err(|error| tracing::error!(%error, "an authority's key cannot sign"))
            .ok()
    }
}

/// Converts an error for an unenrolled process, which receives only faults that it can correct, and no information on
/// existing tokens.
fn refused(error: &IssueError) -> EnrolRefused {
    tracing::info!(%error, "enrolment refused");
    match error {
        IssueError::Refused(Refusal::Invalid { field, reason }) => EnrolRefused::Invalid {
            reason: format!("{field}: {reason}"),
        },
        IssueError::Refused(Refusal::NameTaken { name, needs }) => EnrolRefused::NameTaken {
            name: name.clone(),
            needs: needs.clone(),
        },
        // Returned only to a process that holds the token's secret and meets every other requirement of the token.
        IssueError::Refused(Refusal::TokenNetwork { from, networks }) => {
            EnrolRefused::WrongNetwork {
                from: *from,
                networks: networks.clone(),
            }
        }
        IssueError::Refused(_) => EnrolRefused::TokenRefused,
        IssueError::Invalid(reason) => EnrolRefused::Invalid {
            reason: reason.clone(),
        },
        IssueError::Unavailable(reason) => EnrolRefused::Unavailable {
            reason: reason.clone(),
        },
    }
}
