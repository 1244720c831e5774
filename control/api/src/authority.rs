//! Certificate authorities: who vouches for the members.

use crate::{text, x509};
use lattice_quorum_types::view;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An authority as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorityView {
    /// blake3 of its certificate, 64 hex digits.
    pub pin: String,
    /// `issuing`, or `trusted`: certificates it signed hold, new ones come from another.
    pub phase: String,
    /// Since when it is known.
    pub since: String,
    /// Its name in certificates.
    pub subject: String,
    /// Its own last moment; absent when its certificate cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Members whose newest certificate it issued and still holds, by when they were issued;
    /// absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<u64>,
    /// Its certificate, PEM.
    pub certificate: String,
}

impl AuthorityView {
    /// As shown, with how many certificates are known to be its.
    pub fn new(authority: &view::Authority, certificates: Option<u64>) -> Self {
        let described = x509::describe(&authority.certificate).ok();
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

/// One more authority to trust.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthorityRequest {
    /// Its certificate, PEM; never its key.
    pub certificate: String,
}
