//! Assumed run times: the expected end of an allocation that overruns, and the duration of a job without a walltime.

/// Duration that a job without a walltime counts in sums, milliseconds.
pub const UNBOUNDED_WALLTIME_MS: u64 = 24 * 3_600_000;

/// Free time of a node that is not known to become free.
pub(crate) const NEVER: u64 = u64::MAX;

/// Shortest expected continuation of an allocation past its end, milliseconds.
const OVERRUN: u64 = 60_000;

/// Expected end of an allocation that must end at `at`. The cause of an overrun is unknown (a node may be unreachable),
/// so the allocation is expected to continue for as long again. A waiting job then does not hold nodes back for an end
/// that never comes.
pub(crate) fn expected_end(at: u64, now: u64) -> u64 {
    match now.checked_sub(at) {
        None => at,
        Some(over) => now.saturating_add(over.max(OVERRUN)),
    }
}
