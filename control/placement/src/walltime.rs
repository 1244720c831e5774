//! Assumed run times: the expected end of an allocation that overruns, and the duration of a job without a walltime.

/// Assumed duration of a job without a walltime in sums of requested time, milliseconds.
pub const UNBOUNDED_WALLTIME_MS: u64 = 24 * 3_600_000;

/// Time at which a node becomes free if no such time is known.
pub(crate) const NEVER: u64 = u64::MAX;

/// Shortest expected further run time of an allocation that is past its end, milliseconds.
const MIN_OVERRUN_MS: u64 = 60_000;

/// Expected end of an allocation that must end at `at`. The cause of an overrun is unknown (a node may be unreachable).
/// The allocation is therefore expected to continue for as long as it has already overrun. A waiting job thus does not
/// hold nodes back for an end that never comes.
pub(crate) fn expected_end(at: u64, now: u64) -> u64 {
    match now.checked_sub(at) {
        None => at,
        Some(over) => now.saturating_add(over.max(MIN_OVERRUN_MS)),
    }
}
