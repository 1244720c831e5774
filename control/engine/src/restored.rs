//! Allocation numbers that a restored cluster has no record of: allocations with these numbers were submitted after the
//! backup.

use crate::store::Store;
use lattice_quorum_types::{
    AllocationId, Revision, UnixMillis,
    audit::{AuditAction, AuditEntry, AuditFilter, AuditOrder, AuditSearch},
    backup::RESTORER,
    restoration::is_restored_between,
    view::{Answer, Query},
    wire::Unavailable,
};
use std::collections::BTreeSet;
use tokio::sync::Mutex;

/// Word of the audit entry with the skipped numbers.
const NUMBERS_SKIPPED: &str = "numbers_skipped";
/// Entries per read. A cluster has one entry for each restore.
const ENTRIES_PER_PAGE: u32 = 1_000;

/// Allocation numbers that one restore skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkippedNumbers {
    /// Highest number in the backup.
    pub after: AllocationId,
    /// Last skipped number.
    pub until: AllocationId,
    /// State time of the backup.
    pub backup_at: UnixMillis,
    /// Revision of the backup.
    pub revision: Revision,
}

impl SkippedNumbers {
    fn of(entry: &AuditEntry) -> Option<Self> {
        match entry.action {
            AuditAction::NumbersSkipped {
                after,
                until,
                revision,
            } => Some(Self {
                after,
                until,
                // The entry is the first change after the backup, and has the time of the backup.
                backup_at: entry.at,
                revision,
            }),
            _ => None,
        }
    }

    fn contains(&self, id: AllocationId) -> bool {
        self.after < id && id <= self.until
    }
}

/// Numbers skipped by all restores of the cluster, read from the audit when they are first needed.
#[derive(Debug, Default)]
pub(crate) struct RestoreHistory(Mutex<Option<KnownRestores>>);

#[derive(Debug)]
struct KnownRestores {
    /// Revision of the view when the audit was read.
    read_at: Revision,
    skipped: Vec<SkippedNumbers>,
}

impl RestoreHistory {
    /// Finds the restore that skipped this allocation number; `None`: no restore did. `revision` is that of the present
    /// view.
    ///
    /// # Errors
    /// Returns an error when the audit cannot be read.
    pub(crate) async fn skipping(
        &self,
        store: &dyn Store,
        revision: Revision,
        id: AllocationId,
    ) -> Result<Option<SkippedNumbers>, Unavailable> {
        if !is_restored_between(Revision(0), revision) {
            return Ok(None);
        }
        let mut known = self.0.lock().await;
        let is_current = known
            .as_ref()
            .is_some_and(|known| !is_restored_between(known.read_at, revision));
        if !is_current {
            let skipped = read_skipped(store).await?;
            *known = Some(KnownRestores {
                read_at: revision,
                skipped,
            });
        }
        let mut skipped = known.iter().flat_map(|known| &known.skipped);
        Ok(skipped.find(|skipped| skipped.contains(id)).copied())
    }
}

async fn read_skipped(store: &dyn Store) -> Result<Vec<SkippedNumbers>, Unavailable> {
    let mut search = AuditSearch {
        filter: AuditFilter {
            // The quorum can skip segments without entries of a principal, but not those without an action.
            by: Some(RESTORER.to_owned()),
            actions: BTreeSet::from([NUMBERS_SKIPPED.to_owned()]),
            ..AuditFilter::default()
        },
        order: AuditOrder::NewestFirst,
        cursor: None,
        limit: ENTRIES_PER_PAGE,
    };
    let mut skipped = Vec::new();
    loop {
        let query = Query::AuditSearch {
            search: Box::new(search.clone()),
        };
        let Answer::AuditSearch(page) = store.read(query).await? else {
            return Err(Unavailable::Rejected {
                reason: "the answer is for another query".to_owned(),
            });
        };
        skipped.extend(page.entries.iter().filter_map(SkippedNumbers::of));
        match page.next {
            Some(next) => search.cursor = Some(next),
            None => return Ok(skipped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream::{self, BoxStream, StreamExt};
    use lattice_quorum_types::{
        Applied, Envelope, Refusal,
        audit::{AuditHead, AuditPage},
        command::{Principal, Privilege},
        restoration::REVISION_GAP,
        view::WatchItem,
    };
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Store that gives one answer to all reads, and counts them.
    struct OneAnswer {
        answer: Answer,
        reads: AtomicU32,
    }

    impl OneAnswer {
        fn new(answer: Answer) -> Self {
            let reads = AtomicU32::new(0);
            Self { answer, reads }
        }
    }

    #[async_trait::async_trait]
    impl Store for OneAnswer {
        async fn propose(
            &self,
            _: Vec<Envelope>,
        ) -> Result<Vec<Result<Applied, Refusal>>, Unavailable> {
            Err(Unavailable::NoMajority)
        }
        async fn read(&self, _: Query) -> Result<Answer, Unavailable> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            Ok(self.answer.clone())
        }
        fn watch(&self, _: Revision) -> BoxStream<'static, WatchItem> {
            stream::pending().boxed()
        }
    }

    #[tokio::test]
    async fn answer_to_another_query_does_not_mean_that_nothing_was_restored() {
        let history = RestoreHistory::default();
        let store = OneAnswer::new(Answer::Revision(Revision(1)));
        // The second call shows that the first answer is not kept.
        for _ in 0..2 {
            let found = history
                .skipping(&store, Revision(REVISION_GAP), AllocationId(2))
                .await;
            assert!(
                matches!(&found, Err(Unavailable::Rejected { reason })
                    if reason == "the answer is for another query"),
                "{found:?}"
            );
        }
    }

    #[tokio::test]
    async fn audit_is_read_again_after_restore_of_older_backup() {
        let history = RestoreHistory::default();
        let store = OneAnswer::new(Answer::AuditSearch(Box::new(AuditPage {
            entries: Vec::new(),
            next: None,
            head: AuditHead::default(),
        })));
        // The second backup was made 80 changes after the first restore, and 20 before the last read.
        for (revision, reads) in [
            (90, 0),
            (REVISION_GAP + 5, 1),
            (REVISION_GAP + 100, 1),
            (2 * REVISION_GAP + 80, 2),
            (2 * REVISION_GAP + 90, 2),
        ] {
            let found = history.skipping(&store, Revision(revision), AllocationId(2));
            assert_eq!(found.await, Ok(None), "{revision}");
            assert_eq!(store.reads.load(Ordering::Relaxed), reads, "{revision}");
        }
    }

    #[test]
    fn skipped_numbers_have_both_bounds() {
        let by = Principal {
            name: RESTORER.to_owned(),
            privilege: Privilege::Admin,
        };
        let action = AuditAction::NumbersSkipped {
            after: AllocationId(22),
            until: AllocationId(1_000_000_000),
            revision: Revision(17),
        };
        let entry = AuditEntry::following(None, Revision(1), UnixMillis(5), by, action);
        let skipped = SkippedNumbers::of(&entry).unwrap_or_else(|| panic!("{entry:?}"));
        assert_eq!((skipped.backup_at, skipped.revision.0), (UnixMillis(5), 17));
        let found =
            [22, 23, 1_000_000_000, 1_000_000_001].map(|id| skipped.contains(AllocationId(id)));
        assert_eq!(found, [false, true, true, false]);
    }
}
