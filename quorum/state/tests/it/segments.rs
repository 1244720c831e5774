//! Sealed segments: judging without them, and damaged ones.

use crate::common::{self, Cluster, limits, node};
use bytes::Bytes;
use lattice_quorum_state::{
    Policy, SealedSegment, SegmentFault, SegmentId, SegmentLimits, Segments, State,
};
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, Refusal,
    allocation::RankExit,
    command::{Privilege, RankReport},
    view::{Answer, Query},
};

/// Segments of four rows.
fn founded() -> Cluster {
    let (rows, bytes) = (4, 1 << 20);
    let mut c = Cluster {
        state: State::with_bounds(Policy::default(), SegmentLimits { rows, bytes }),
        ..Cluster::default()
    };
    c.create("t", Some(limits(64))).unwrap();
    c.add_nodes(2);
    c
}

fn run(c: &mut Cluster, code: i32) -> AllocationId {
    let id = c.submit(common::spec("t", 2)).unwrap();
    c.assign(id).unwrap();
    c.start_all(id);
    c.end_all(id, RankExit::Exited { code });
    id
}

fn report(c: &mut Cluster, id: AllocationId, attempt: u32, of: &str) -> Result<(), Refusal> {
    let report = RankReport::Started { at: c.now() };
    let node = node(of);
    let command = Command::Report {
        id,
        attempt,
        node,
        report,
    };
    let applied = c.propose("service:control/c1", Privilege::Service, command)?;
    assert!(applied.events.is_empty());
    Ok(())
}

#[test]
fn late_words_of_what_is_sealed_are_judged_without_its_record() {
    let mut c = founded();
    let (good, bad) = (run(&mut c, 0), run(&mut c, 7));
    let gone = c.submit(common::spec("t", 1)).unwrap();
    let cancel = |id| Command::Cancel { id };
    c.propose("alice", Privilege::User, cancel(gone)).unwrap();
    let latest: Vec<_> = (0..9).map(|_| run(&mut c, 0)).collect();
    assert!(c.state.allocation(good).is_none(), "its record is sealed");
    let last = *latest.last().unwrap();
    assert!(c.state.allocation(last).is_some());
    use AllocationState::{Cancelled, Completed, Failed};
    for (id, state) in [(good, Completed), (bad, Failed), (gone, Cancelled)] {
        let refused = c.propose("bob", Privilege::User, cancel(id)).unwrap_err();
        let action = "cancel".to_owned();
        assert_eq!(refused, Refusal::WrongState { id, state, action });
    }
    // A late repeat is accepted; another attempt never existed.
    assert_eq!(report(&mut c, good, 1, "n000"), Ok(()));
    for given in [0, 2] {
        let (id, current) = (good, 1);
        let stale = Refusal::StaleAttempt { id, given, current };
        assert_eq!(report(&mut c, good, given, "n000"), Err(stale));
    }
    // A report of an uninvolved node is rejected only while the record is in memory.
    assert_eq!(report(&mut c, good, 1, "n077"), Ok(()));
    let refused = report(&mut c, last, 1, "n077").unwrap_err();
    assert!(matches!(refused, Refusal::Invalid { .. }), "{refused}");
    let never = AllocationId(999);
    let unknown = Refusal::UnknownAllocation { id: never };
    assert_eq!(report(&mut c, never, 1, "n000"), Err(unknown));
}

struct Changed<'a>(&'a [SealedSegment], &'a dyn Fn(&[u8]) -> Option<Vec<u8>>);

impl Segments for Changed<'_> {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        let sealed = self.0.iter().find(|sealed| sealed.id == *id).unwrap();
        let bytes = (self.1)(&sealed.bytes);
        bytes.map(Bytes::from).ok_or_else(|| id.fault("gone"))
    }
}

#[test]
fn a_segment_that_is_not_what_it_was_gives_no_answer() {
    let mut c = founded();
    let first = run(&mut c, 0);
    for _ in 0..9 {
        run(&mut c, 0);
    }
    let sealed = c.state.take_sealed();
    let ask = |change: &dyn Fn(&[u8]) -> Option<Vec<u8>>| {
        let lookup = c.state.look_up(&Query::Allocation { id: first });
        assert!(!lookup.is_in_memory());
        lookup.finish(&Changed(&sealed, change))
    };
    let answer = ask(&|bytes| Some(bytes.to_vec())).unwrap();
    assert!(matches!(answer, Answer::Allocation(Some(record)) if record.id == first));
    let other = sealed
        .iter()
        .find(|s| s.id.number == 1)
        .unwrap()
        .bytes
        .clone();
    let faults = [
        ask(&|_| None),
        ask(&|bytes| Some(bytes[..bytes.len() - 1].to_vec())),
        ask(&|_| Some(Vec::new())),
        ask(&|_| Some(other.to_vec())),
        ask(&|bytes| {
            let mut flipped = bytes.to_vec();
            flipped[30] ^= 4;
            Some(flipped)
        }),
    ];
    for fault in faults {
        let text = fault.unwrap_err().to_string();
        assert!(text.starts_with("segment ended-00000000-"), "{text}");
        assert!(text.contains("damaged") || text.contains("gone"), "{text}");
    }
}

/// A read that needs no segment reads none.
#[test]
fn pages_of_what_lives_and_of_the_last_entries_are_answered_from_memory() {
    let mut c = founded();
    for _ in 0..20 {
        run(&mut c, 0);
    }
    let waits = c.submit(common::spec("t", 1)).unwrap();
    let pages = |after, states| Query::Allocations {
        after: AllocationId(after),
        limit: 10,
        states,
        within: None,
    };
    let in_memory = |query: &Query| c.state.look_up(query).is_in_memory();
    assert!(in_memory(&Query::Allocation { id: waits }));
    assert!(in_memory(&pages(0, vec![AllocationState::Pending])));
    assert!(in_memory(&pages(16, vec![])));
    assert!(!in_memory(&pages(0, vec![])));
    assert!(!in_memory(&pages(0, vec![AllocationState::Completed])));
    let entries = c.state.audit_number();
    for (after, expected) in [(entries - 1, true), (0, entries < 8)] {
        let limit = 10;
        assert_eq!(in_memory(&Query::Audit { after, limit }), expected);
    }
}
