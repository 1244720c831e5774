//! Audit verification: the hash chain of the entries, and the signed audit heads in it.
//!
//! The check needs the entries in order and the pins of trusted CAs, but no cluster. The certificates of a signed head
//! are verified as of the time that was signed with it.

use lattice_api::text::time;
use lattice_mesh::{Pin, Role, Signer, StatementSignature};
use lattice_quorum_types::{
    UnixMillis,
    audit::{AuditAction, AuditEntry, AuditFault, Hex, MAX_SIGNED_HEAD_SKEW_MS, SignedHeadContent},
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum time from the issue time of a certificate to the audit entry of its enrolment, milliseconds. A member stamps
/// the certificate by its own clock, and the leader records the enrolment seconds later by its clock. A takeover
/// therefore voids certificates that are older by more than this. A certificate of the former holder that is newer, and
/// that signed no head before, is indistinguishable from the new certificate.
const MAX_ENROLMENT_MS: u64 = MAX_SIGNED_HEAD_SKEW_MS;

/// Position in a chain: entry number and hash. `(0, zeros)` is before the first entry.
pub type ChainPosition = (u64, [u8; 32]);

/// Failed check of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditCheckError {
    /// The hash chain is broken.
    Chain(AuditFault),
    /// Another check of an entry failed.
    Entry {
        /// First faulty entry.
        number: u64,
        /// Description of the fault.
        reason: String,
    },
    /// No signed head covers a verified entry, or the end of an export is missing or does not match its content.
    Unsigned(String),
}

impl AuditCheckError {
    fn at(number: u64, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Entry { number, reason }
    }
}

impl std::fmt::Display for AuditCheckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Chain(fault) => f.write_str(&in_words(*fault)),
            Self::Entry { number, reason } => write!(f, "entry {number} {reason}"),
            Self::Unsigned(reason) => f.write_str(reason),
        }
    }
}

fn in_words(fault: AuditFault) -> String {
    match fault {
        AuditFault::Gap { number, expected } if number > expected => {
            let last = number - 1;
            match last == expected {
                true => format!("entry {expected} is missing: entry {number} follows in its place"),
                false => format!("entries {expected} to {last} are missing"),
            }
        }
        AuditFault::Gap { number, expected } => {
            format!("entry {number} stands where entry {expected} belongs: it was moved or doubled")
        }
        AuditFault::Changed { number } if number > 1 => format!(
            "entry {number} does not follow entry {}: one of the two was changed",
            number - 1
        ),
        AuditFault::Changed { number } => format!("entry {number} was changed"),
    }
}

/// Signed head with a valid signature under the CA that came with it.
#[derive(Debug)]
struct VerifiedHead {
    entry: u64,
    of: u64,
    at: UnixMillis,
    signer: String,
    authority: String,
}

/// Verifies entries in order.
#[derive(Debug)]
pub struct Checker {
    cluster: Option<String>,
    start: ChainPosition,
    last: ChainPosition,
    last_at: UnixMillis,
    /// Hash and time of each entry after `start`.
    seen: Vec<([u8; 32], UnixMillis)>,
    signed_heads: Vec<VerifiedHead>,
    /// CAs that became trusted according to the audit, and the entry of that change.
    added: BTreeMap<String, u64>,
    retired: BTreeMap<String, u64>,
    /// For each quorum member, the certificates that were revoked or replaced.
    void: BTreeMap<String, VoidCertificates>,
    /// For each quorum member, the newest issue time among the certificates of its signed heads.
    newest_issue: BTreeMap<String, UnixMillis>,
}

/// Certificates of one member that were revoked or replaced.
#[derive(Debug, Clone, Copy)]
struct VoidCertificates {
    /// Last issue time of a void certificate.
    issued_until: UnixMillis,
    /// Time of the revocation or replacement.
    at: UnixMillis,
}

/// Result of the verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Cluster name, as given to [`Checker::new`] or in the first signed head; `None` without both.
    pub cluster: Option<String>,
    /// Number of verified entries.
    pub entries: u64,
    /// Number of the first entry; without entries, the number that the chain starts after.
    pub first: u64,
    /// Number of the last entry.
    pub last: u64,
    /// Time of the first entry; `None` without entries.
    pub from: Option<String>,
    /// Time of the last entry; `None` without entries.
    pub to: Option<String>,
    /// Hash of the last entry.
    pub hash: String,
    /// Number of signed heads with a valid signature.
    pub checkpoints: u64,
    /// Number of signed heads by member.
    pub signers: BTreeMap<String, u64>,
    /// Pins of the CAs that issued the signers' certificates.
    pub authorities: BTreeSet<String>,
    /// Last entry that a signature covers; 0: none.
    pub covered: u64,
    /// Time of the signature that covers `covered`.
    pub signed_at: Option<String>,
    /// Number of entries after `covered`, which no signature covers yet.
    pub not_covered: u64,
}

impl Checker {
    /// Starts the verification of a chain after `start`. If the cluster is unknown, the first signed head determines
    /// it.
    pub fn new(cluster: Option<String>, start: ChainPosition) -> Self {
        Self {
            cluster,
            start,
            last: start,
            last_at: UnixMillis(0),
            seen: Vec::new(),
            signed_heads: Vec::new(),
            added: BTreeMap::new(),
            retired: BTreeMap::new(),
            void: BTreeMap::new(),
            newest_issue: BTreeMap::new(),
        }
    }

    /// Returns the position of the last verified entry or, before the first one, the start of the chain.
    pub fn last(&self) -> ChainPosition {
        self.last
    }

    /// Returns the hash of a verified entry, or of the position before the first one; `None` for other numbers.
    pub fn hash(&self, number: u64) -> Option<[u8; 32]> {
        if number == self.start.0 {
            return Some(self.start.1);
        }
        self.entry_at(number).map(|(hash, _)| hash)
    }

    fn entry_at(&self, number: u64) -> Option<([u8; 32], UnixMillis)> {
        let behind = number.checked_sub(self.start.0)?.checked_sub(1)?;
        self.seen.get(usize::try_from(behind).ok()?).copied()
    }

    /// Whether a signed head covers this entry.
    pub fn is_covered(&self, number: u64) -> bool {
        self.signed_heads.iter().any(|sealed| sealed.of >= number)
    }

    /// Verifies the next entry.
    ///
    /// # Errors
    /// The first check that fails for the entry.
    pub fn verify_entry(&mut self, entry: &AuditEntry) -> Result<(), AuditCheckError> {
        entry
            .check_follows(self.last)
            .map_err(AuditCheckError::Chain)?;
        let number = entry.number;
        if entry.at < self.last_at {
            return Err(AuditCheckError::at(
                number,
                "is older than the entry before it",
            ));
        }
        match &entry.action {
            AuditAction::AuthorityAdded { pin } => {
                self.added.entry(pin.clone()).or_insert(number);
                self.retired.remove(pin);
            }
            AuditAction::AuthorityRetired { pin } => {
                self.retired.insert(pin.clone(), number);
            }
            AuditAction::CertificatesRevoked { role, name, .. } if *role == Role::Quorum => {
                self.void_certificates(name, entry.at, entry.at);
            }
            AuditAction::Enrolled {
                role,
                name,
                replaced: true,
                ..
            } if *role == Role::Quorum => {
                let issued_until = entry.at.0.saturating_sub(MAX_ENROLMENT_MS + 1);
                self.void_certificates(name, entry.at, UnixMillis(issued_until));
            }
            AuditAction::SignedHead {
                of,
                signer,
                signature,
                certificates,
            } => {
                let sealed = self.verify_signed_head(entry, of, signer, (signature, certificates));
                let (sealed, by) = sealed.map_err(|reason| {
                    AuditCheckError::at(
                        number,
                        format!("is not a valid signed head of this audit: {reason}"),
                    )
                })?;
                self.cluster.get_or_insert_with(|| of.cluster.clone());
                self.signed_heads.push(sealed);
                let name = by.identity.id().to_owned();
                let newest = self.newest_issue.entry(name).or_insert(by.issued_at);
                *newest = by.issued_at.max(*newest);
            }
            _ => {}
        }
        self.seen.push((entry.hash, entry.at));
        self.last = (number, entry.hash);
        self.last_at = entry.at;
        Ok(())
    }

    /// Records at `at` that the certificates of a member are void if they were issued until `issued_until`, or if they
    /// are no newer than one that signed an earlier head: a new certificate is always newer.
    fn void_certificates(&mut self, name: &str, at: UnixMillis, issued_until: UnixMillis) {
        let signed = self.newest_issue.get(name).copied();
        let before = self.void.get(name).map(|void| void.issued_until);
        let known = signed.into_iter().chain(before);
        let issued_until = known.fold(issued_until, UnixMillis::max);
        let void = VoidCertificates { issued_until, at };
        self.void.insert(name.to_owned(), void);
    }

    fn verify_signed_head(
        &self,
        entry: &AuditEntry,
        of: &SignedHeadContent,
        signer: &str,
        (signature, certificates): (&Hex, &[Hex]),
    ) -> Result<(VerifiedHead, Signer), String> {
        if let Some(cluster) = self.cluster.as_ref().filter(|own| **own != of.cluster) {
            return Err(format!(
                "it belongs to cluster {}, expected {cluster}",
                of.cluster
            ));
        }
        if of.number >= entry.number {
            return Err(format!(
                "it covers entry {}, which is not before it",
                of.number
            ));
        }
        let off = of.at.since(entry.at).max(entry.at.since(of.at));
        if off > MAX_SIGNED_HEAD_SKEW_MS {
            let (signed, written) = (time(of.at), time(entry.at));
            return Err(format!(
                "it was signed at {signed}, but recorded at {written}"
            ));
        }
        if let Some((_, written)) = self.entry_at(of.number).filter(|(_, at)| *at > of.at) {
            let (signed, written) = (time(of.at), time(written));
            return Err(format!(
                "it was signed {signed}, before what it covers, of {written}"
            ));
        }
        match self.hash(of.number) {
            Some(hash) if of.hash == hash.into() => {}
            Some(_) => {
                return Err(format!(
                    "the hash of entry {} was different then",
                    of.number
                ));
            }
            // The signed head covers an entry before the start of a partial export, so it covers nothing here.
            None => {}
        }
        let Some((authority, chain)) = certificates.split_last() else {
            return Err("it has no certificates".to_owned());
        };
        let authority = (&authority.0[..]).into();
        let signed = StatementSignature {
            chain: chain
                .iter()
                .map(|certificate| certificate.0.clone())
                .collect(),
            signature: signature.0.clone(),
        };
        let bytes = of.signed_bytes();
        let by = signed.verify_by(&authority, SignedHeadContent::CONTEXT, &bytes, of.at);
        let by = by.map_err(|refused| refused.to_string())?;
        let identity = &by.identity;
        let named = format!("{}/{}", identity.role(), identity.id());
        if identity.role() != Role::Quorum || identity.cluster() != of.cluster || named != signer {
            return Err(format!(
                "it was signed by {identity}, not by {signer} of {}",
                of.cluster
            ));
        }
        let void = self.void.get(identity.id());
        if let Some(void) = void.filter(|void| by.issued_at <= void.issued_until) {
            let at = time(void.at);
            return Err(format!(
                "the certificate of {signer} was revoked or replaced at {at}"
            ));
        }
        let head = VerifiedHead {
            entry: entry.number,
            of: of.number,
            at: of.at,
            signer: named,
            authority: Pin::of(&authority).to_string(),
        };
        Ok((head, by))
    }

    /// Verifies the signed heads with these CAs and with those that became trusted according to the signed part of the
    /// audit.
    ///
    /// # Errors
    /// A signed head of an untrusted CA or of one that was retired before, or no signed head that covers a verified
    /// entry.
    pub fn finish(self, pins: &BTreeSet<String>) -> Result<Report, AuditCheckError> {
        let trusted = self.trusted(pins);
        for sealed in &self.signed_heads {
            let is_over = self.retired.get(&sealed.authority);
            if is_over.is_some_and(|over| *over < sealed.entry) {
                let reason =
                    "is not a valid signed head of this audit: its authority was retired before";
                return Err(AuditCheckError::at(sealed.entry, reason));
            }
            if !trusted.contains(&sealed.authority) {
                let pin = &sealed.authority;
                let reason = format!(
                    "is a signed head under authority {pin}, which is not trusted; if it was one of \
                     this cluster's, give its certificate with --ca too"
                );
                return Err(AuditCheckError::at(sealed.entry, reason));
            }
        }
        let Some(newest) = self.signed_heads.iter().max_by_key(|sealed| sealed.of) else {
            let reason = "no entry is signed: the audit contains no signed head";
            return Err(AuditCheckError::Unsigned(reason.to_owned()));
        };
        if newest.of <= self.start.0 {
            let (of, first) = (newest.of, self.start.0 + 1);
            let reason = format!(
                "no entry is signed: the last signed head covers entry {of}, and the first one here \
                 is {first}"
            );
            return Err(AuditCheckError::Unsigned(reason));
        }
        let (covered, signed_at) = (newest.of, time(newest.at));
        let mut signers: BTreeMap<String, u64> = BTreeMap::new();
        for sealed in &self.signed_heads {
            *signers.entry(sealed.signer.clone()).or_default() += 1;
        }
        let authorities = self
            .signed_heads
            .iter()
            .map(|sealed| sealed.authority.clone());
        Ok(Report {
            covered,
            signed_at: Some(signed_at),
            checkpoints: self.signed_heads.len() as u64,
            signers,
            authorities: authorities.collect(),
            not_covered: self.last.0 - covered,
            ..self.chain_report()
        })
    }

    /// Reports on the hash chain alone, regardless of signatures.
    pub fn chain_report(&self) -> Report {
        let moment = |seen: Option<&([u8; 32], UnixMillis)>| seen.map(|(_, at)| time(*at));
        let entries = self.seen.len() as u64;
        Report {
            cluster: self.cluster.clone(),
            entries,
            first: self.start.0 + u64::from(entries > 0),
            last: self.last.0,
            from: moment(self.seen.first()),
            to: moment(self.seen.last()),
            hash: Hex::from(self.last.1).to_string(),
            checkpoints: 0,
            signers: BTreeMap::new(),
            authorities: BTreeSet::new(),
            covered: 0,
            signed_at: None,
            not_covered: entries,
        }
    }

    /// Returns the given pins and those of CAs that the audit added in entries signed under a trusted CA.
    fn trusted(&self, pins: &BTreeSet<String>) -> BTreeSet<String> {
        let mut trusted = pins.clone();
        loop {
            let by_trusted = self
                .signed_heads
                .iter()
                .filter(|s| trusted.contains(&s.authority));
            let covered = by_trusted.map(|sealed| sealed.of).max().unwrap_or(0);
            let named = self.added.iter().filter(|(_, number)| **number <= covered);
            let before = trusted.len();
            trusted.extend(named.map(|(pin, _)| pin.clone()));
            if trusted.len() == before {
                return trusted;
            }
        }
    }
}

#[cfg(test)]
mod tests;
