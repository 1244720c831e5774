//! Who is trusted: authorities, and what is known of each name's certificates. A certificate is
//! identified by role, name and the second it was issued in; see
//! `../0002-issue-times-instead-of-serial-numbers.md`. Keys never come here.

use lattice_quorum_types::{
    Revision, UnixMillis,
    command::IssuedCertificate,
    rpc::Role,
    view::{Authority, CertificateView, Revocation, Revoked, TrustView},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How long any certificate may hold, milliseconds: 825 days, which is what `lattice admin ca issue`
/// allows too, and the rest of the last second. A revocation of certificates of which nothing is
/// known is kept so long.
pub(crate) const LONGEST_MS: u64 = 825 * 24 * 3600 * 1000 + 999;

/// Most names with void certificates at one time.
pub const MAX_REVOCATIONS: usize = 60_000;
/// And their bytes: what members sign must fit into one message, 2 MiB, with the authorities.
pub const MAX_REVOCATION_BYTES: usize = 1_800_000;
/// Of one of them beside its name: role, length and two times.
const ENTRY_BYTES: usize = 16;

/// What is known of one name's certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The newest that was issued; `None`: not by the quorum.
    pub(crate) newest: Option<IssuedCertificate>,
    /// When all that were ever issued have ended by themselves.
    pub(crate) ends_at: UnixMillis,
    /// Those that hold no more.
    pub(crate) revocation: Option<Revocation>,
    /// When somebody last said so, state time: tokens made before enrol this name no more. Taking a
    /// name over with a token is not meant.
    pub(crate) voided_at: Option<UnixMillis>,
}

impl Identity {
    /// Whether a certificate of it holds at `now`.
    pub(crate) fn is_live(&self, now: UnixMillis) -> bool {
        self.newest
            .is_some_and(|newest| newest.expires_at > now && !self.is_revoked(newest.issued_at))
    }
    /// Whether one issued at this moment holds no more.
    pub(crate) fn is_revoked(&self, issued_at: UnixMillis) -> bool {
        self.revocation
            .as_ref()
            .is_some_and(|revocation| issued_at < revocation.issued_before)
    }
    /// The earliest moment at which the next one may be issued.
    pub(crate) fn next_issue(&self) -> UnixMillis {
        let later = self.newest.map_or(UnixMillis(0), |c| c.issued_at.after(1));
        let revoked = self.revocation.as_ref().map(|r| r.issued_before);
        revoked.map_or(later, |before| before.max(later))
    }
    /// With one more certificate.
    pub(crate) fn with(&self, certificate: IssuedCertificate) -> Self {
        Identity {
            newest: Some(certificate),
            ends_at: self.ends_at.max(certificate.expires_at),
            ..self.clone()
        }
    }
}

/// Authorities and certificates.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Trust {
    /// Revision of the last change of what members sign: authorities and revocations.
    number: Revision,
    authorities: Vec<Authority>,
    /// Pins of those that were trusted once.
    retired: BTreeSet<String>,
    identities: BTreeMap<(Role, String), Identity>,
}

impl Trust {
    /// One name's certificates.
    pub(crate) fn identity(&self, role: Role, name: &str) -> Option<&Identity> {
        self.identities.get(&(role, name.to_owned()))
    }
    /// Those that are trusted, in the order in which they became known.
    pub(crate) fn authorities(&self) -> &[Authority] {
        &self.authorities
    }
    /// Whether this one was trusted once.
    pub(crate) fn was_retired(&self, pin: &str) -> bool {
        self.retired.contains(pin)
    }
    /// Stores what is known of a name.
    pub(crate) fn set_identity(&mut self, role: Role, name: String, identity: Identity) {
        self.identities.insert((role, name), identity);
    }
    /// Stores who is trusted; who was and is not any more is remembered.
    pub(crate) fn set_authorities(&mut self, authorities: Vec<Authority>) {
        for before in std::mem::replace(&mut self.authorities, authorities) {
            self.retired.insert(before.pin);
        }
        for present in &self.authorities {
            self.retired.remove(&present.pin);
        }
    }
    /// What members sign is another from now on. Only here is forgotten what has ended by itself:
    /// one number then always stands for the same content.
    pub(crate) fn renumber(&mut self, number: Revision, now: UnixMillis) {
        self.number = number;
        self.identities.retain(|_, identity| {
            identity
                .revocation
                .take_if(|revocation| revocation.forget_at <= now);
            identity.revocation.is_some() || identity.ends_at > now
        });
    }
    /// What members sign.
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
    /// Everybody of whom something is known.
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
    /// Names with certificates that are void and would hold at `now`, and their bytes in what
    /// members sign.
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
    /// Revision of the last change of what members sign.
    pub(crate) fn number(&self) -> Revision {
        self.number
    }
}
