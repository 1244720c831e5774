#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{event::EventBody, step::NoObserver};
use proptest::prelude::*;
use tempfile::TempDir;

const BOUNDS: Bounds = Bounds {
    memory: 10,
    disk: 30,
};

fn event(number: u64) -> Event {
    Event {
        id: format!("{number}-0"),
        number,
        timestamp: "2026-11-10T00:00:00Z".to_owned(),
        tenant: "physics".to_owned(),
        project: Some("physics/higgs".to_owned()),
        user: Some("alice".to_owned()),
        allocation_id: Some(number),
        sensitive: false,
        body: EventBody::Checkpointed {
            checkpoint: 1,
            storage_bytes: None,
            duration_s: 1.5,
        },
    }
}

fn events(numbers: impl IntoIterator<Item = u64>) -> Vec<Event> {
    numbers.into_iter().map(event).collect()
}

fn open(folder: &TempDir, acknowledged: u64) -> (Journal, JournalRecovery) {
    Journal::open(folder.path(), BOUNDS, acknowledged).unwrap()
}

fn numbers(journal: &mut Journal) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(first) = journal.first(1).first().map(|event| event.number) {
        numbers.push(first);
        journal.acknowledge(first, &NoObserver).unwrap();
    }
    numbers
}

#[test]
fn unacknowledged_events_survive_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, recovered) = open(&folder, 0);
    assert_eq!(recovered, JournalRecovery::default());
    assert_eq!(journal.append(&events(1..=25), &NoObserver).unwrap(), 0);
    assert_eq!(
        (journal.in_memory(), journal.on_disk(), journal.last()),
        (10, 15, 25)
    );
    drop(journal);
    let (mut journal, recovered) = open(&folder, 7);
    assert_eq!((recovered.events, recovered.torn_bytes), (18, 0));
    assert_eq!(
        (journal.in_memory(), journal.on_disk(), journal.last()),
        (10, 8, 25)
    );
    journal.append(&events([30, 31]), &NoObserver).unwrap();
    assert_eq!(
        numbers(&mut journal),
        (8..=25).chain([30, 31]).collect::<Vec<_>>()
    );
    assert!(journal.is_empty());
    // Nothing is left on disk, and later events are kept.
    assert_eq!(file::names(folder.path()).unwrap().len(), 0);
    journal.append(&events([40]), &NoObserver).unwrap();
    assert_eq!(open(&folder, 31).0.last(), 40);
}

#[test]
fn what_has_no_room_is_dropped_newest_first_and_counted_where_it_stood() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(&folder, 0);
    assert_eq!(journal.append(&events(1..=38), &NoObserver).unwrap(), 0);
    assert_eq!(journal.append(&events(39..=45), &NoObserver).unwrap(), 5);
    assert_eq!((journal.len(), journal.last()), (40, 40));
    assert_eq!(
        (journal.dropped_through(40), journal.dropped_through(43)),
        (0, 3)
    );
    journal.acknowledge(20, &NoObserver).unwrap();
    assert_eq!(journal.append(&events(46..=48), &NoObserver).unwrap(), 0);
    assert_eq!(journal.dropped_through(100), 5);
    assert_eq!(
        numbers(&mut journal),
        (21..=40).chain(46..=48).collect::<Vec<_>>()
    );
    assert_eq!(journal.dropped_through(100), 0);
}

/// After a failed chunk the caller appends all events again, the written ones included.
#[test]
fn events_appended_again_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(&folder, 0);
    journal.append(&events(1..=25), &NoObserver).unwrap();
    assert_eq!(journal.append(&events(1..=45), &NoObserver).unwrap(), 5);
    assert_eq!(
        (journal.len(), journal.last(), journal.dropped()),
        (40, 40, 5)
    );
    drop(journal);
    let (mut journal, recovered) = open(&folder, 0);
    assert_eq!((recovered.events, recovered.torn_bytes), (40, 0));
    assert_eq!(numbers(&mut journal), (1..=40).collect::<Vec<_>>());
}

#[test]
fn cleared_journal_accepts_lower_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(&folder, 0);
    journal.append(&events(11..=60), &NoObserver).unwrap();
    assert_eq!(journal.dropped(), 10);
    journal.clear().unwrap();
    assert_eq!(
        (journal.len(), journal.last(), journal.dropped()),
        (0, 0, 0)
    );
    assert_eq!(file::names(folder.path()).unwrap().len(), 0);
    journal.append(&events(5..=7), &NoObserver).unwrap();
    drop(journal);
    assert_eq!(numbers(&mut open(&folder, 4).0), [5, 6, 7]);
}

/// Replaces the file by a folder, which cannot be removed as a file, until [`allow_removal`].
fn prevent_removal(path: &Path) {
    fs::rename(path, path.with_extension("aside")).unwrap();
    fs::create_dir(path).unwrap();
}

fn allow_removal(path: &Path) {
    fs::remove_dir(path).unwrap();
    fs::rename(path.with_extension("aside"), path).unwrap();
}

#[test]
fn clear_removes_remaining_files_after_error() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(&folder, 0);
    journal.append(&events(1..=5), &NoObserver).unwrap();
    let path = file::names(folder.path()).unwrap().remove(0);
    prevent_removal(&path);
    assert_eq!(journal.clear().unwrap_err().path, path);
    allow_removal(&path);
    journal.clear().unwrap();
    assert_eq!(file::names(folder.path()).unwrap().len(), 0);
    // A missing file counts as removed.
    journal.append(&events(1..=5), &NoObserver).unwrap();
    fs::remove_file(&path).unwrap();
    journal.clear().unwrap();
    assert!(journal.is_empty());
}

#[test]
fn later_events_are_kept_after_failed_removal() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(&folder, 0);
    journal.append(&events(1..=25), &NoObserver).unwrap();
    let path = file::names(folder.path()).unwrap().remove(0);
    prevent_removal(&path);
    let failed = journal.acknowledge(25, &NoObserver).unwrap_err();
    assert_eq!(failed.path, path);
    assert_eq!((journal.len(), journal.in_memory()), (0, 0));
    allow_removal(&path);
    journal.append(&events(26..=28), &NoObserver).unwrap();
    assert_eq!((journal.len(), journal.in_memory()), (3, 3));
    assert_eq!(numbers(&mut journal), [26, 27, 28]);
    assert_eq!(file::names(folder.path()).unwrap().len(), 0);
}

/// A power failure may cut the file anywhere: complete records stay, the incomplete one is removed, and new events are
/// appended.
#[test]
fn a_torn_tail_is_cut_off_wherever_it_is_torn() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(&folder, 0);
    journal.append(&events(1..=5), &NoObserver).unwrap();
    drop(journal);
    let path = file::names(folder.path()).unwrap().remove(0);
    let whole = fs::read(&path).unwrap();
    let mut kept = Vec::new();
    for length in 0..=whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let (mut journal, recovered) = open(&folder, 0);
        kept.push(recovered.events);
        assert_eq!(journal.last(), recovered.events as u64);
        journal.append(&events([9]), &NoObserver).unwrap();
        drop(journal);
        let (mut journal, again) = open(&folder, 0);
        assert_eq!(again.torn_bytes, 0, "it was cut off");
        let expected: Vec<u64> = (1..=recovered.events as u64).chain([9]).collect();
        assert_eq!(numbers(&mut journal), expected, "{length}");
    }
    assert!(kept.is_sorted());
    assert_eq!((kept[0], kept.last()), (0, Some(&5)));
}

#[test]
fn damaged_file_is_valid_up_to_damage() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(
        folder.path(),
        Bounds {
            memory: 10,
            disk: 100_000,
        },
        0,
    )
    .unwrap();
    // Several files.
    for first in (1..20_000).step_by(1_000) {
        journal
            .append(&events(first..first + 1_000), &NoObserver)
            .unwrap();
    }
    drop(journal);
    let names = file::names(folder.path()).unwrap();
    assert!(names.len() >= 3, "{names:?}");
    let mut bytes = fs::read(&names[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&names[1], bytes).unwrap();
    let (journal, recovered) = open(&folder, 0);
    assert_eq!(recovered.damaged.len(), names.len() - 2, "{recovered:?}");
    assert!(journal.last() > 0 && journal.last() < 20_000);
    // The later events are read from the quorum.
    assert_eq!(journal.len() as u64, journal.last());
}

#[test]
fn restarts_invalid_journal() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("00000000000000000001.wal"),
        "something else",
    )
    .unwrap();
    let (mut journal, recovered) = open(&folder, 0);
    assert_eq!((recovered.events, recovered.torn_bytes), (0, 14));
    journal.append(&events([1]), &NoObserver).unwrap();
    assert_eq!(open(&folder, 0).0.last(), 1);
}

proptest! {
    /// For any sequence of appends, acknowledgements and restarts, the journal holds the events that were kept and not
    /// acknowledged.
    #[test]
    fn a_journal_is_a_queue_on_the_disk(
        steps in prop::collection::vec((0..3_u8, 1..15_u64), 1..40),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(&folder, 0);
        let (mut model, mut next, mut acknowledged) = (VecDeque::new(), 1_u64, 0);
        for (what, n) in steps {
            match what {
                0 => {
                    let offered = events(next..next + n);
                    next += n;
                    let dropped = journal.append(&offered, &NoObserver).unwrap();
                    let room = 40 - model.len();
                    prop_assert_eq!(dropped, offered.len().saturating_sub(room));
                    model.extend(offered.iter().take(room).map(|event| event.number));
                }
                1 => {
                    acknowledged = (acknowledged + n).min(next - 1);
                    journal.acknowledge(acknowledged, &NoObserver).unwrap();
                    model.retain(|number| *number > acknowledged);
                }
                _ => {
                    drop(journal);
                    let (opened, recovered) = open(&folder, acknowledged);
                    prop_assert_eq!(recovered.torn_bytes, 0);
                    journal = opened;
                }
            }
            prop_assert_eq!(journal.len(), model.len());
            prop_assert!(journal.in_memory() <= 10);
            let first = journal.first(1).first().map(|event| event.number);
            prop_assert_eq!(first, model.front().copied());
        }
        prop_assert_eq!(numbers(&mut journal), Vec::from(model));
    }
}
