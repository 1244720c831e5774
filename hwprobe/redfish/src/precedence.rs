//! Precedence of two readings of one value.

use lattice_conformance::Reading;

/// Replaces `kept` with `other` if `other` is more informative. Of two readings of equal rank, `kept` stays.
pub(crate) fn keep_better<T>(kept: &mut Reading<T>, other: Reading<T>) {
    const fn rank<T>(reading: &Reading<T>) -> u8 {
        match reading {
            Reading::Present(_) => 0,
            // Not fetched yet: a later pass may still find a value.
            Reading::Disabled { .. } => 1,
            Reading::Denied { .. } | Reading::Failed { .. } | Reading::Timeout { .. } => 2,
            Reading::Unsupported => 3,
            Reading::Absent => 4,
        }
    }
    if rank(&other) < rank(kept) {
        *kept = other;
    }
}
