//! Certificates of members and of TLS ports: validity, expiry and revocation.

use crate::notation::text;
use lattice_quorum_types::{UnixMillis, view};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of the newest certificate of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CertificateState {
    /// The certificate is valid.
    Valid,
    /// The certificate was revoked: its holder must enrol again.
    Revoked,
    /// The certificate has expired.
    Expired,
    /// The certificate was not issued by enrolment, and its holder is not connected now.
    Unknown,
}

impl CertificateState {
    /// Returns the lower-case word as printed.
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

/// Revocation as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevocationView {
    /// Certificates issued before this time are invalid.
    pub issued_before: String,
    /// Reason for the revocation.
    pub reason: String,
    /// Principal that revoked the certificates.
    pub by: String,
}

/// Certificates of one member, as far as the quorum has records or the member is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateView {
    /// `agent`, `control` or `quorum`: the certificate of a member in the mesh. `https`: that of a control's TLS port.
    pub role: String,
    /// Name of the member; of the control for `https`.
    pub name: String,
    /// State of the newest certificate.
    pub state: CertificateState,
    /// Issue time of the newest certificate; absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<String>,
    /// Expiry time of the newest certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Last revocation. A newer certificate may be valid in spite of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<RevocationView>,
}

impl CertificateView {
    /// Creates the view as of `now`.
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

impl CertificateView {
    /// Value of `role` for the certificate of a TLS port.
    pub const HTTPS: &'static str = "https";

    /// Creates the view of the certificate of a control's TLS port as of `now`.
    pub fn of_tls_port(
        control: &str,
        issued_at: UnixMillis,
        expires_at: UnixMillis,
        now: UnixMillis,
    ) -> Self {
        Self {
            role: Self::HTTPS.to_owned(),
            name: control.to_owned(),
            state: match expires_at < now {
                true => CertificateState::Expired,
                false => CertificateState::Valid,
            },
            issued_at: Some(text::time(issued_at)),
            expires_at: Some(text::time(expires_at)),
            revoked: None,
        }
    }
}

/// Request to revoke a member's certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// Reason for the revocation; kept in the audit and shown with the member.
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
    fn tls_port_certificate_expires_at_its_end() {
        for (now, wanted) in [
            (1_000, CertificateState::Valid),
            (1_001, CertificateState::Expired),
        ] {
            let (issued_at, expires_at) = (UnixMillis(0), UnixMillis(1_000));
            let shown = CertificateView::of_tls_port("c1", issued_at, expires_at, UnixMillis(now));
            assert_eq!((shown.role.as_str(), shown.state), ("https", wanted));
        }
    }

    #[test]
    fn the_newest_certificate_is_judged_not_those_before_it() {
        use CertificateState as S;
        for (issued, revoked, now, wanted) in [
            (Some(100), None, 500, S::Valid),
            (Some(100), None, 1_101, S::Expired),
            (Some(100), Some(200), 500, S::Revoked),
            // Enrolled again after the revocation.
            (Some(300), Some(200), 500, S::Valid),
            (None, None, 500, S::Unknown),
            (None, Some(200), 500, S::Revoked),
        ] {
            let shown = CertificateView::new(&view(issued, revoked), UnixMillis(now));
            assert_eq!(shown.state, wanted, "{issued:?} {revoked:?} {now}");
        }
    }
}
