//! Last complete digest of a class that is incomplete now.

use super::{
    History, HistoryEntry, HistoryFilter, MAX_QUERIED_ENTRIES, Source, store::HistoryStore,
    tables::HistoryError,
};
use lattice_conformance::{Class, ClassMark, Digest};
use std::collections::BTreeMap;

/// Last digest of a class that is unknown now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastComplete {
    pub digest: Digest,
    /// Time at which the class ceased to be complete, in Unix milliseconds.
    pub until: u64,
}

impl History {
    /// Last complete digests of a node's classes that are incomplete now, from the history of agent and BMC.
    pub async fn last_complete(
        &self,
        node: String,
    ) -> Result<BTreeMap<Class, LastComplete>, HistoryError> {
        self.run_blocking(move |store| {
            let entries = store.of_node(&node, &HistoryFilter::default(), MAX_QUERIED_ENTRIES)?;
            let mut found = BTreeMap::new();
            for class in Class::ALL {
                if let Some(last) = of_class(store, &entries, class)? {
                    found.insert(class, last);
                }
            }
            Ok(found)
        })
        .await
    }
}

/// State of a class by one source.
enum ClassSource {
    /// No record, or the class is disabled at this source.
    NotReported,
    /// The class was never complete.
    NeverComplete,
    /// Last digest, and the time until which it was valid; `None` while it is valid.
    Last(Digest, Option<u64>),
}

fn state_by(entries: &[HistoryEntry], class: Class, source: Source) -> ClassSource {
    let mut of_it = entries
        .iter()
        .filter(|entry| entry.source == source && entry.entry.class == class)
        .peekable();
    let is_off = |entry: &&HistoryEntry| entry.entry.to == ClassMark::Disabled;
    if of_it.peek().is_none_or(is_off) {
        return ClassSource::NotReported;
    }
    let mut until = None;
    for change in of_it {
        match change.entry.to.digest() {
            Some(digest) => return ClassSource::Last(digest, until),
            None => until = Some(change.when),
        }
    }
    ClassSource::NeverComplete
}

fn of_class(
    store: &HistoryStore,
    entries: &[HistoryEntry],
    class: Class,
) -> Result<Option<LastComplete>, HistoryError> {
    let parts = [Source::Agent, Source::Bmc].map(|source| state_by(entries, class, source));
    Ok(match parts {
        [ClassSource::Last(digest, until), ClassSource::NotReported]
        | [ClassSource::NotReported, ClassSource::Last(digest, until)] => {
            until.map(|until| LastComplete { digest, until })
        }
        [
            ClassSource::Last(agents, until),
            ClassSource::Last(bmcs, bmcs_until),
        ] => {
            let until = until.into_iter().chain(bmcs_until).min();
            let (Some(until), Some(record), Some(part)) =
                (until, store.record(&agents)?, store.record(&bmcs)?)
            else {
                return Ok(None);
            };
            if record.schema != part.schema {
                return Ok(None);
            }
            let digest = record.merge(part).state().digest();
            digest.map(|digest| LastComplete { digest, until })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::history::{BmcEntry, Cursor};
    use lattice_conformance::{
        ClassRecord, Reading,
        history::{Cause, Entry},
    };

    const NODE: &str = "gpu001";

    fn record(key: &str) -> ClassRecord {
        let mut record = ClassRecord::new(Class::Bios);
        record.require(key, Reading::Present("1"));
        record
    }

    fn entry(seq: u64, to: ClassMark) -> Entry {
        Entry {
            seq,
            at: seq * 1_000,
            boot_id: "b1".to_owned(),
            cause: Cause::Periodic,
            class: Class::Bios,
            revision: seq,
            from: Some(ClassMark::Incomplete),
            to,
            changes: Vec::new(),
            more: 0,
        }
    }

    #[tokio::test]
    async fn unknown_class_shows_last_value_and_time() {
        let history = History::open(None).unwrap();
        let (agents, bmcs) = (record("bios.version"), record("bios.attribute.NumLock"));
        let mark = |record: &ClassRecord| record.state().mark();
        let append_entries = |seq, marks: &[ClassMark]| {
            let entries = (seq..).zip(marks).map(|(seq, mark)| entry(seq, *mark));
            let records = entries.map(Into::into).collect();
            let cursor = Cursor {
                journal: 1,
                read: seq + 9,
            };
            history.append(NODE.to_owned(), cursor, records, 1 << 40)
        };
        let last = async || history.last_complete(NODE.to_owned()).await.unwrap();
        append_entries(1, &[ClassMark::Incomplete]).await.unwrap();
        assert!(last().await.is_empty(), "it never was complete");
        append_entries(20, &[mark(&agents)]).await.unwrap();
        assert!(last().await.is_empty(), "it still is");
        let unread = ClassMark::Incomplete;
        append_entries(40, &[unread, unread]).await.unwrap();
        let alone = LastComplete {
            digest: mark(&agents).digest().unwrap(),
            until: 40_000,
        };
        assert_eq!(last().await, [(Class::Bios, alone)].into());

        // Merged with the BMC's part the class had another digest, which only the records provide.
        let of_bmc = async |seq, to| {
            let entries = vec![BmcEntry::from(entry(seq, to))];
            let append = history.append_bmc(NODE.to_owned(), entries, 1 << 40);
            append.await.unwrap();
        };
        of_bmc(30, mark(&bmcs)).await;
        of_bmc(35, unread).await;
        assert!(last().await.is_empty(), "no record is kept");
        for record in [&agents, &bmcs] {
            let digest = mark(record).digest().unwrap();
            let keep = history.keep_record(digest, record.encode());
            keep.await.unwrap();
        }
        let whole = LastComplete {
            digest: mark(&agents.merge(bmcs)).digest().unwrap(),
            until: 35_000,
        };
        assert_eq!(last().await, [(Class::Bios, whole)].into());
    }
}
