//! CA of a cluster for tests, with members that sign as real members do.
#![expect(clippy::unwrap_used, reason = "tests")]

use lattice_mesh::{Authority, Credentials, Identity, Pin, Role, StatementSignature, Validity};
use lattice_quorum_types::{
    Revision, UnixMillis,
    audit::{AuditAction, AuditEntry, Hex, SignedHeadContent},
    command::{Principal, Privilege},
};
use std::{sync::Arc, time::Duration};

/// Time of the first entry.
pub const START: UnixMillis = UnixMillis(1_790_000_000_000);
const HOUR: Duration = Duration::from_secs(3_600);

/// CA that issues certificates to members of a cluster.
pub struct TestCluster {
    pub cluster: String,
    pub authority: Arc<Authority>,
}

fn root() -> Principal {
    Principal {
        name: "root".to_owned(),
        privilege: Privilege::Admin,
    }
}

/// Creates a chain of entries, one second apart.
pub fn chain(length: u64) -> Vec<AuditEntry> {
    append_entries(&[], length)
}

/// Creates `more` entries that follow the entries in `before`.
pub fn append_entries(before: &[AuditEntry], more: u64) -> Vec<AuditEntry> {
    let mut all = before.to_vec();
    for _ in 0..more {
        let n = all.len() as u64;
        let id = format!("{n:012}");
        let action = AuditAction::TokenRevoked { id };
        let (revision, at) = (Revision(n + 1), START.after(1_000 * n));
        all.push(AuditEntry::following(
            all.last(),
            revision,
            at,
            root(),
            action,
        ));
    }
    all.split_off(before.len())
}

impl TestCluster {
    pub fn new(cluster: &str) -> Self {
        let before = UnixMillis(START.0 - 86_400_000);
        let validity = Validity::from_now(before, 24 * 365 * HOUR);
        Self {
            cluster: cluster.to_owned(),
            authority: Arc::new(Authority::create(cluster, validity).unwrap()),
        }
    }

    pub fn pin(&self) -> String {
        Pin::of(self.authority.certificate()).to_string()
    }

    /// Returns a cluster with this name and the CA of another cluster.
    pub fn with_key_of(mut self, other: &Self) -> Self {
        self.authority = other.authority.clone();
        self
    }

    fn signed(
        &self,
        of: &SignedHeadContent,
        role: Role,
        name: &str,
        issued_at: UnixMillis,
    ) -> StatementSignature {
        let own = Identity::new(self.cluster.as_str(), role, name).unwrap();
        let validity = Validity::from_now(issued_at, HOUR);
        let credentials = Credentials::issued_by(&self.authority, &own, validity).unwrap();
        credentials
            .sign(SignedHeadContent::CONTEXT, &of.signed_bytes())
            .unwrap()
    }

    fn append(
        &self,
        all: &mut Vec<AuditEntry>,
        of: SignedHeadContent,
        signer: String,
        signed: StatementSignature,
    ) {
        let authority = self.authority.certificate().to_vec().into();
        let certificates = signed.chain.into_iter().chain([authority]);
        let action = AuditAction::SignedHead {
            of,
            signer,
            signature: Hex(signed.signature),
            certificates: certificates.map(Hex).collect(),
        };
        let n = all.len() as u64;
        let by = Principal {
            name: "service:quorum".to_owned(),
            privilege: Privilege::Service,
        };
        let (revision, at) = (Revision(n + 1), START.after(1_000 * n));
        all.push(AuditEntry::following(all.last(), revision, at, by, action));
    }

    fn of(&self, all: &[AuditEntry], late: u64) -> SignedHeadContent {
        let last = all.last().unwrap();
        SignedHeadContent {
            cluster: self.cluster.clone(),
            number: last.number,
            hash: last.hash.into(),
            at: last.at.after(500 + late),
        }
    }

    /// Signs the head as a member, with a certificate issued a minute before the first entry.
    pub fn sign(&self, all: &mut Vec<AuditEntry>, member: u64) {
        self.sign_as(all, Role::Quorum, &member.to_string(), 0);
    }

    /// Appends an entry and a signed head over it; a head that another CA signed may cover the entries before.
    pub fn sign_again(&self, all: &mut Vec<AuditEntry>, member: u64) {
        all.extend(append_entries(all, 1));
        self.sign(all, member);
    }

    /// Signs the head in any role, `late` milliseconds late.
    pub fn sign_as(&self, all: &mut Vec<AuditEntry>, role: Role, name: &str, late: u64) {
        let of = self.of(all, late);
        let signed = self.signed(&of, role, name, UnixMillis(START.0 - 60_000));
        self.append(all, of, format!("{role}/{name}"), signed);
    }

    /// Signs the head as a member with a certificate of this issue time.
    pub fn sign_issued_at(&self, all: &mut Vec<AuditEntry>, member: u64, issued_at: UnixMillis) {
        let of = self.of(all, 0);
        let signed = self.signed(&of, Role::Quorum, &member.to_string(), issued_at);
        self.append(all, of, format!("quorum/{member}"), signed);
    }

    /// Signs the head as a member with an expired certificate.
    pub fn sign_expired(&self, all: &mut Vec<AuditEntry>) {
        let of = self.of(all, 0);
        let signed = self.signed(&of, Role::Quorum, "1", UnixMillis(START.0 - 2 * 3_600_000));
        self.append(all, of, "quorum/1".to_owned(), signed);
    }
}
