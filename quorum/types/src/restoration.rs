//! Recognition of a quorum that was restored from a backup, by the revisions of two reads.

use crate::Revision;

/// Distance between the revisions of a backup and those of the restored cluster. A watcher of the backed-up cluster may
/// hold a revision between the two, from a history that the restored cluster does not have. Such a watcher is rejected
/// and starts again from a full read.
pub const REVISION_GAP: u64 = 1_000_000_000;
/// Smallest distance between the revisions of two reads that shows a restore between them: half of [`REVISION_GAP`].
/// The restored cluster continues one gap above the backup, and the backup may be older than the first read, so the
/// distance is the gap without the lost changes. No cluster makes half a billion changes between two reads, and a
/// backup that lacks as many is too old for a restore.
const MIN_RESTORE_DISTANCE: u64 = REVISION_GAP / 2;

/// Whether the quorum was restored from a backup between two reads at these revisions. [`Revision`] 0 stands for the
/// foundation of the cluster. A second read at a lower revision shows no restore, because two answers may arrive in the
/// reverse order.
pub fn is_restored_between(first: Revision, second: Revision) -> bool {
    second.0.saturating_sub(first.0) >= MIN_RESTORE_DISTANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restore_shows_in_distance_of_revisions() {
        let is_restored = |first, second| is_restored_between(Revision(first), Revision(second));
        assert!(!is_restored(40, 40) && !is_restored(40, 1_000_000));
        // The answer to the second read arrived first.
        assert!(!is_restored(40, 39));
        // From a backup of that moment, and from an older one.
        assert!(is_restored(40, 40 + REVISION_GAP));
        assert!(is_restored(90_000_040, 40 + REVISION_GAP));
        // Since the foundation of the cluster.
        assert!(is_restored(0, REVISION_GAP) && !is_restored(0, 90_000_000));
    }
}
