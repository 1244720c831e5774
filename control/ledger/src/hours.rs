//! Hours in the precision of reports: hundredths.

use lattice_quorum_types::budget::HOUR_MS;

/// Milliseconds per hundredth of an hour, the finest unit that can be reported.
pub const HUNDREDTH_MS: u64 = HOUR_MS / 100;

/// Milliseconds in hundredths of an hour, rounded. The result never decreases while `ms` grows.
pub fn hundredths(ms: u64) -> u64 {
    ms.saturating_add(HUNDREDTH_MS / 2) / HUNDREDTH_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_rounded_to_the_hundredth_and_never_fall() {
        assert_eq!(hundredths(17_999), 0);
        assert_eq!(hundredths(18_000), 1);
        assert_eq!(hundredths(HUNDREDTH_MS), 1);
        let rounded: Vec<u64> = (0..400).map(|n| hundredths(n * 991)).collect();
        assert!(rounded.is_sorted());
    }
}
