//! Certificate authorities (CAs) of the cluster.

use super::x509;
use crate::notation::text;
use lattice_quorum_types::view;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// CA as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorityView {
    /// blake3 of the CA certificate, 64 hex digits.
    pub pin: String,
    /// `issuing`, or `trusted`: certificates that it signed stay valid, and new ones come from another CA.
    pub phase: String,
    /// Time at which the CA was added.
    pub since: String,
    /// Subject name in the CA certificate.
    pub subject: String,
    /// Expiry time of the CA certificate; absent if the certificate cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Number of members with a newest certificate that this CA issued and that is still valid, derived from issue
    /// times; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<u64>,
    /// CA certificate, PEM.
    pub certificate: String,
}

impl AuthorityView {
    /// Creates the view; `certificates`: see [`AuthorityView::certificates`]. The subject is empty if the certificate
    /// cannot be read.
    pub fn new(authority: &view::Authority, certificates: Option<u64>) -> Self {
        let described = x509::parse_certificate(&authority.certificate).ok();
        Self {
            pin: authority.pin.clone(),
            phase: match authority.issuing {
                true => "issuing",
                false => "trusted",
            }
            .to_owned(),
            since: text::time(authority.since),
            expires_at: described.as_ref().map(|d| text::time(d.not_after)),
            subject: described.map(|d| d.subject).unwrap_or_default(),
            certificates,
            certificate: x509::to_pem(&authority.certificate),
        }
    }
}

/// Request to trust one more CA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthorityRequest {
    /// CA certificate, PEM; never the private key.
    pub certificate: String,
}
