//! Members' certificates: who is in, until when, and whose hold no more.

use crate::text;
use lattice_quorum_types::{UnixMillis, view};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a name's newest certificate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CertificateState {
    /// It holds.
    Valid,
    /// It was revoked: its holder must enrol again.
    Revoked,
    /// Its time is over.
    Expired,
    /// It did not come by enrolment; only its holder knows its dates.
    Unknown,
}

impl CertificateState {
    /// Lower-case word as printed.
    pub fn as_str(self) -> &'static str {
        match self {
            CertificateState::Valid => "valid",
            CertificateState::Revoked => "revoked",
            CertificateState::Expired => "expired",
            CertificateState::Unknown => "unknown",
        }
    }

    fn of(view: &view::CertificateView, now: UnixMillis) -> Self {
        let revoked = view.revoked.as_ref().is_some_and(|r| match view.issued_at {
            Some(issued_at) => issued_at < r.issued_before,
            None => now < r.forget_at,
        });
        match (revoked, view.expires_at) {
            (true, _) => CertificateState::Revoked,
            (false, None) => CertificateState::Unknown,
            (false, Some(end)) if end < now => CertificateState::Expired,
            (false, Some(_)) => CertificateState::Valid,
        }
    }
}

/// A revocation as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevocationView {
    /// Certificates issued before this moment hold no more.
    pub issued_before: String,
    /// Why.
    pub reason: String,
    /// Who said so.
    pub by: String,
}

/// What is known of one member's certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateView {
    /// `agent`, `control` or `quorum`.
    pub role: String,
    /// Its name.
    pub name: String,
    /// How the newest one stands.
    pub state: CertificateState,
    /// When the newest one was issued; absent when it did not come by enrolment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<String>,
    /// When that one ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The last revocation, which a newer certificate may have outlived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<RevocationView>,
}

impl CertificateView {
    /// As shown at `now`.
    pub fn new(certificate: &view::CertificateView, now: UnixMillis) -> Self {
        Self {
            role: certificate.role.to_string(),
            name: certificate.name.clone(),
            state: CertificateState::of(certificate, now),
            issued_at: certificate.issued_at.map(text::time),
            expires_at: certificate.expires_at.map(text::time),
            revoked: certificate.revoked.as_ref().map(|r| RevocationView {
                issued_before: text::time(r.issued_before),
                reason: r.reason.clone(),
                by: r.by.clone(),
            }),
        }
    }
}

/// Why a member's certificates are to hold no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// For the audit, and for whoever wonders.
    #[schema(min_length = 1, pattern = "[^ ]")]
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_quorum_types::rpc::Role;

    fn view(issued: Option<u64>, revoked_before: Option<u64>) -> view::CertificateView {
        view::CertificateView {
            role: Role::Agent,
            name: "gpu001".to_owned(),
            issued_at: issued.map(UnixMillis),
            expires_at: issued.map(|at| UnixMillis(at + 1_000)),
            revoked: revoked_before.map(|before| view::Revocation {
                issued_before: UnixMillis(before),
                forget_at: UnixMillis(before + 1_000),
                reason: "stolen".to_owned(),
                by: "root".to_owned(),
            }),
        }
    }

    #[test]
    fn the_newest_certificate_is_judged_not_those_before_it() {
        use CertificateState as S;
        for (issued, revoked, now, wanted) in [
            (Some(100), None, 500, S::Valid),
            (Some(100), None, 1_101, S::Expired),
            (Some(100), Some(200), 500, S::Revoked),
            // Enrolled anew after it was revoked.
            (Some(300), Some(200), 500, S::Valid),
            (None, None, 500, S::Unknown),
            (None, Some(200), 500, S::Revoked),
        ] {
            let shown = CertificateView::new(&view(issued, revoked), UnixMillis(now));
            assert_eq!(shown.state, wanted, "{issued:?} {revoked:?} {now}");
        }
    }
}
