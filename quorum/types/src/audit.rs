//! Audit: permanent, hash-chained record of actions. A later change of an entry breaks the chain.

mod action;
mod filter;
mod hex;
mod search;
mod signed_head;
mod subjects;

pub use action::{AuditAction, ChangedLimit, LevelLimits, NamedLimit};
pub use filter::{AuditFilter, SegmentBounds};
pub use hex::Hex;
pub use search::{
    AuditOrder, AuditPage, AuditPageBuilder, AuditSearch, MAX_PAGE_BYTES, MAX_PAGE_ENTRIES,
    fits_on_page,
};
pub use signed_head::{
    AuditHead, InvalidSignedHead, MAX_SIGNED_HEAD_SKEW_MS, SignedHead, SignedHeadContent,
};
pub use subjects::Subjects;

use crate::{Revision, UnixMillis, principal::Principal};
use serde::{Deserialize, Serialize};

/// One audit entry. `apply` writes it, and it never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Audit sequence number, starting at 1.
    pub number: u64,
    /// Revision that created the entry.
    pub revision: Revision,
    /// State time of the entry.
    pub at: UnixMillis,
    /// Principal that performed the action.
    pub by: Principal,
    /// The recorded action.
    pub action: AuditAction,
    /// blake3 over the previous entry's hash and this entry's other fields (postcard), under the key derivation context
    /// `lattice audit 1`.
    pub hash: [u8; 32],
}

/// Key derivation context of the chain.
const CONTEXT: &str = "lattice audit 1";

/// Fault in a chain of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuditFault {
    /// Entries are missing, repeated or out of order.
    #[error("audit entry {number} found, expected entry {expected}")]
    Gap {
        /// Number that was found.
        number: u64,
        /// Number that was expected.
        expected: u64,
    },
    /// The entry, or the one before it, was changed.
    #[error("audit entry {number} was changed, or the one before it")]
    Changed {
        /// Number of the first entry with a wrong hash.
        number: u64,
    },
}

impl AuditEntry {
    /// Creates the entry that follows `before`, the last entry so far.
    pub fn following(
        before: Option<&AuditEntry>,
        revision: Revision,
        at: UnixMillis,
        by: Principal,
        action: AuditAction,
    ) -> Self {
        let mut entry = AuditEntry {
            number: before.map_or(0, |entry| entry.number) + 1,
            revision,
            at,
            by,
            action,
            hash: [0; 32],
        };
        entry.hash = entry.chained(before.map_or([0; 32], |entry| entry.hash));
        entry
    }

    /// Hash of this entry after an entry with the hash `before`; zeros before the first.
    fn chained(&self, before: [u8; 32]) -> [u8; 32] {
        chain_hash(before, &self.hashed_bytes())
    }

    /// Bytes that are hashed after the previous entry's hash: postcard of number, revision, time, principal and action.
    pub fn hashed_bytes(&self) -> Vec<u8> {
        let fields = (self.number, self.revision, self.at, &self.by, &self.action);
        #[expect(
            clippy::expect_used,
            reason = "plain data serialised into memory cannot fail"
        )]
        postcard::to_stdvec(&fields).expect("an entry serialises")
    }

    /// Checks that this entry follows the entry with this number and hash; 0 and zeros before the first.
    ///
    /// # Errors
    /// The fault in the chain.
    pub fn check_follows(&self, (number, hash): (u64, [u8; 32])) -> Result<(), AuditFault> {
        let expected = number.saturating_add(1);
        if self.number != expected {
            let number = self.number;
            return Err(AuditFault::Gap { number, expected });
        }
        match self.hash == self.chained(hash) {
            true => Ok(()),
            false => Err(AuditFault::Changed { number: expected }),
        }
    }
}

/// Hash of an entry: blake3 in key derivation mode over the previous hash and the entry's bytes.
pub fn chain_hash(before: [u8; 32], bytes: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&before).update(bytes);
    *hasher.finalize().as_bytes()
}

/// Checks that every entry follows the previous one. A list that starts with entry 1 is checked completely. In any
/// other list the first entry is not checked, since its predecessor is missing: pass the last entry of the previous
/// page along with each page.
///
/// # Errors
/// The first entry at which the chain does not hold.
pub fn verify_chain(entries: &[AuditEntry]) -> Result<(), AuditFault> {
    let changed = |entry: &AuditEntry| AuditFault::Changed {
        number: entry.number,
    };
    if let Some(first) = entries.first()
        && first.number <= 1
    {
        if first.number == 0 {
            let (number, expected) = (0, 1);
            return Err(AuditFault::Gap { number, expected });
        }
        if first.hash != first.chained([0; 32]) {
            return Err(changed(first));
        }
    }
    for pair in entries.windows(2) {
        let [before, entry] = pair else { continue };
        let expected = before.number.saturating_add(1);
        if entry.number != expected {
            let number = entry.number;
            return Err(AuditFault::Gap { number, expected });
        }
        if entry.hash != entry.chained(before.hash) {
            return Err(changed(entry));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
