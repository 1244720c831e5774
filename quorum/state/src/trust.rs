//! Trusted CAs, and issue times and revocation of each name's certificates. A certificate is identified by role, name
//! and the second of its issue; see `../0002-issue-times-instead-of-serial-numbers.md`. Keys are never stored here.

use lattice_quorum_types::{
    Revision, UnixMillis,
    command::IssuedCertificate,
    rpc::Role,
    view::{Authority, CertificateView, Revocation, Revoked, TrustView},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Longest validity of a certificate, milliseconds: 825 days, the limit of `lattice admin ca issue` too, plus the rest
/// of the last second. A revocation is kept at least this long, except when an enrolment replaces an agent with
/// recorded certificates.
pub(crate) const MAX_CERTIFICATE_MS: u64 = 825 * 24 * 3600 * 1000 + 999;

/// Maximum number of names with revoked certificates at one time.
pub const MAX_REVOCATIONS: usize = 60_000;
/// Maximum size of all revocations, bytes: the signed trust bundle must fit into one message, 2 MiB, with the CAs.
pub const MAX_REVOCATION_BYTES: usize = 1_800_000;
/// Size of a revocation entry without its name, bytes: role, length and two times.
const ENTRY_BYTES: usize = 16;

/// Certificates and revocation of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Newest certificate issued by the quorum; `None` if the quorum issued none.
    pub(crate) newest: Option<IssuedCertificate>,
    /// Time at which every certificate ever issued for the name has expired.
    pub(crate) ends_at: UnixMillis,
    /// Revocation of the name's certificates, if any.
    pub(crate) revocation: Option<Revocation>,
    /// State time of the last revocation by command: tokens created before that time cannot enrol this name. A takeover
    /// of the name with a token does not set this time.
    pub(crate) voided_at: Option<UnixMillis>,
}

impl Identity {
    /// Returns whether the newest certificate is valid at `now`.
    pub(crate) fn is_live(&self, now: UnixMillis) -> bool {
        self.newest
            .is_some_and(|newest| newest.expires_at > now && !self.is_revoked(newest.issued_at))
    }
    /// Returns whether a certificate issued at this time is revoked.
    pub(crate) fn is_revoked(&self, issued_at: UnixMillis) -> bool {
        self.revocation
            .as_ref()
            .is_some_and(|revocation| issued_at < revocation.issued_before)
    }
    /// Earliest time at which the next certificate may be issued.
    pub(crate) fn next_issue(&self) -> UnixMillis {
        let later = self.newest.map_or(UnixMillis(0), |c| c.issued_at.after(1));
        let revoked = self.revocation.as_ref().map(|r| r.issued_before);
        revoked.map_or(later, |before| before.max(later))
    }
    /// Returns the identity with one more certificate.
    pub(crate) fn with_certificate(&self, certificate: IssuedCertificate) -> Self {
        Identity {
            newest: Some(certificate),
            ends_at: self.ends_at.max(certificate.expires_at),
            ..self.clone()
        }
    }
}

/// CAs and certificates.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Trust {
    /// Revision of the last change of the signed trust bundle: of CAs or revocations.
    number: Revision,
    authorities: Vec<Authority>,
    /// Pins of CAs that were trusted before.
    retired: BTreeSet<String>,
    identities: BTreeMap<(Role, String), Identity>,
}

impl Trust {
    /// Record of the certificates and the revocation of a name.
    pub(crate) fn identity(&self, role: Role, name: &str) -> Option<&Identity> {
        self.identities.get(&(role, name.to_owned()))
    }
    /// Trusted CAs, in the order in which they were added.
    pub(crate) fn authorities(&self) -> &[Authority] {
        &self.authorities
    }
    /// Returns whether the CA was trusted before and is not any more.
    pub(crate) fn was_retired(&self, pin: &str) -> bool {
        self.retired.contains(pin)
    }
    /// Stores the record of a name.
    pub(crate) fn set_identity(&mut self, role: Role, name: String, identity: Identity) {
        self.identities.insert((role, name), identity);
    }
    /// Replaces the trusted CAs; remembers the pins of removed ones.
    pub(crate) fn set_authorities(&mut self, authorities: Vec<Authority>) {
        for before in std::mem::replace(&mut self.authorities, authorities) {
            self.retired.insert(before.pin);
        }
        for present in &self.authorities {
            self.retired.remove(&present.pin);
        }
    }
    /// Sets the number of the signed trust bundle. Expired revocations are removed only here, so that one number always
    /// stands for the same content.
    pub(crate) fn renumber(&mut self, number: Revision, now: UnixMillis) {
        self.number = number;
        self.identities.retain(|_, identity| {
            identity
                .revocation
                .take_if(|revocation| revocation.forget_at <= now);
            identity.revocation.is_some() || identity.ends_at > now
        });
    }
    /// CAs and revocations, as members sign them.
    pub(crate) fn view(&self) -> TrustView {
        let revoked = self.identities.iter().filter_map(|((role, name), i)| {
            i.revocation.as_ref().map(|revocation| Revoked {
                role: *role,
                name: name.clone(),
                issued_before: revocation.issued_before,
                forget_at: revocation.forget_at,
            })
        });
        TrustView {
            number: self.number,
            authorities: self.authorities.clone(),
            revoked: revoked.collect(),
        }
    }
    /// All names with recorded certificates or a revocation.
    pub(crate) fn certificates(&self) -> Vec<CertificateView> {
        let views = self.identities.iter().map(|((role, name), i)| {
            let issued_at = i.newest.map(|newest| newest.issued_at);
            CertificateView {
                role: *role,
                name: name.clone(),
                issued_at,
                expires_at: i.newest.map(|newest| newest.expires_at),
                revoked: i.revocation.clone(),
            }
        });
        views.collect()
    }
    /// Number of names with revocations in force at `now`, and their size in the signed trust bundle, bytes.
    pub(crate) fn revocations(&self, now: UnixMillis) -> (usize, usize) {
        let is_void = |identity: &Identity| {
            let revocation = identity.revocation.as_ref();
            revocation.is_some_and(|revocation| revocation.forget_at > now)
        };
        let void = self.identities.iter().filter(|(_, i)| is_void(i));
        void.fold((0, 0), |(names, bytes), ((_, name), _)| {
            (names + 1, bytes + name.len() + ENTRY_BYTES)
        })
    }
    /// Revision of the last change of the signed trust bundle.
    pub(crate) fn number(&self) -> Revision {
        self.number
    }
}
