//! Precedence of two readings of one value.

use lattice_conformance::Reading;

/// Keeps the more informative of two readings, and the first one if both are equal.
pub(super) fn keep_better<T>(kept: &mut Reading<T>, other: Reading<T>) {
    const fn rank<T>(reading: &Reading<T>) -> u8 {
        match reading {
            Reading::Present(_) => 0,
            // Not fetched yet: the result is open.
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
