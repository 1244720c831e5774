//! A log with commands of the sixth schema, a snapshot of the seventh format and segments of version 3 open, say the
//! same, and are made anew as they were. `fixtures/quorum/v8/ORIGIN.md` says what is in them.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "reads its data from files")]

mod common;

use bytes::Bytes;
use common::{Cluster, START, work::*};
use lattice_quorum_state::{
    Bounds, FORMAT_VERSION, Policy, Sealed, SegmentFault, SegmentId, Segments, State,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, Envelope, Outcome, Refusal, Revision,
    UnixMillis,
    allocation::{RankExit, RankPhase},
    audit::verify_chain,
    fact::{Fact, FactKind},
    view::{Answer, Query},
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/quorum/v8/");

fn eighth(file: &str) -> Vec<u8> {
    std::fs::read(format!("{FOLDER}{file}")).unwrap()
}

fn log() -> Vec<Envelope> {
    postcard::from_bytes(&eighth("log.postcard")).unwrap()
}

fn restored() -> State {
    State::restore(&eighth("state.snapshot")).unwrap()
}

/// What was there then, to go on with.
fn going_on() -> Cluster {
    let state = restored();
    let clock = state.now().since(START);
    Cluster {
        state,
        clock,
        index: 1095,
        ..Cluster::default()
    }
}

/// The empty cluster, with groups of rows as large as then.
fn empty() -> State {
    let (rows, bytes) = (4, 1 << 20);
    State::with_bounds(Policy::default(), Bounds { rows, bytes })
}

/// The segments of then, and those sealed since.
struct Files<'a>(&'a [Sealed]);

impl Segments for Files<'_> {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        match self.0.iter().find(|sealed| sealed.id == *id) {
            Some(sealed) => Ok(sealed.bytes.clone()),
            None => Ok(eighth(&format!("segments/{id}.seg")).into()),
        }
    }
}

fn names() -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(format!("{FOLDER}segments"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn record(state: &State, sealed: &[Sealed], id: u64) -> Box<Allocation> {
    let id = AllocationId(id);
    let lookup = state.look_up(&Query::Allocation { id });
    match lookup.finish(&Files(sealed)).unwrap() {
        Answer::Allocation(Some(record)) => record,
        other => panic!("{other:?}"),
    }
}

fn facts(state: &State, sealed: &[Sealed]) -> Vec<Fact> {
    let query = Query::Facts {
        after: 0,
        limit: 1_000,
        since: UnixMillis(0),
    };
    match state.look_up(&query).finish(&Files(sealed)).unwrap() {
        Answer::Facts(facts, _) => facts,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_command_gives_what_it_gave_then() {
    type Given = Result<(Revision, Outcome), Refusal>;
    let results: Vec<Given> = postcard::from_bytes(&eighth("results.postcard")).unwrap();
    let log = log();
    assert_eq!((log.len(), results.len()), (1095, 1095));
    assert!(log.iter().all(|envelope| envelope.schema == 6));
    assert_eq!(results.iter().filter(|r| r.is_err()).count(), 523);
    let mut state = empty();
    for (index, (envelope, expected)) in (1..).zip(log.iter().zip(&results)) {
        let given = state.apply(index, envelope);
        let given = given.map(|applied| (applied.revision, applied.outcome));
        assert_eq!(given, *expected, "command {index}: {envelope:?}");
    }
}

/// Wherever the member was upgraded, and with the very segments of then.
#[test]
fn the_log_gives_what_the_snapshot_and_the_segments_hold_from_wherever_it_is_read() {
    let (restored, log, names) = (restored(), log(), names());
    assert_eq!(names.len(), 39);
    for upgraded_at in [0, 200, 512, 900, 1007, 1030, 1050, 1070, 1094] {
        let mut state = empty();
        let mut sealed = Vec::new();
        for (index, envelope) in (1..).zip(&log) {
            let _ = state.apply(index, envelope);
            sealed.extend(state.take_sealed());
            if index == upgraded_at {
                state = State::restore(&state.snapshot()).unwrap();
            }
        }
        assert_eq!(state.digest(), restored.digest(), "{upgraded_at}");
        let mut made: Vec<_> = sealed.iter().map(|s| format!("{}.seg", s.id)).collect();
        made.sort();
        assert_eq!(made, names);
        for Sealed { id, bytes } in sealed {
            assert_eq!(bytes, eighth(&format!("segments/{id}.seg")));
        }
    }
    let bytes = restored.snapshot();
    assert_eq!(u16::from(bytes[8]), FORMAT_VERSION);
    let again = State::restore(&bytes).unwrap();
    assert_eq!(again.digest(), restored.digest());
}

#[test]
fn everything_that_was_in_it_is_there() {
    use AllocationState::{
        Blocked, Checkpointing, Completed, Failed, Held, Pending, Running, Starting, Stopping,
        Suspended,
    };
    let state = restored();
    assert_eq!(state.revision(), Revision(346));
    for (id, expected) in [
        (97, Held),
        (124, Blocked),
        (143, Pending),
        (208, Running),
        (209, Checkpointing),
        (210, Suspended),
        (211, Stopping),
        (212, Running),
        (213, Starting),
        (214, Pending),
        (219, Completed),
        (220, Failed),
    ] {
        assert_eq!(record(&state, &[], id).state, expected, "{id}");
    }
    let shrunk = record(&state, &[], 212);
    assert!(matches!(shrunk.ranks[1].phase, RankPhase::Left { .. }));
    let kept = record(&state, &[], 210).course.kept.clone().unwrap();
    assert_eq!((kept.number, kept.attempt), (1, 1));
    assert_eq!(
        record(&state, &[], 214)
            .course
            .tally
            .as_ref()
            .unwrap()
            .pending
            .len(),
        4
    );
    let (after, limit) = (0, 1000);
    let lookup = state.look_up(&Query::Audit { after, limit });
    let Answer::Audit(audit) = lookup.finish(&Files(&[])).unwrap() else {
        panic!("audit")
    };
    verify_chain(&audit).unwrap();
    // Nobody counted then.
    assert_eq!(facts(&state, &[]), []);
}

/// What ran then is not counted, for nobody knows since when; what begins now is.
#[test]
fn what_was_under_way_goes_on_and_what_begins_now_is_counted() {
    let mut c = going_on();
    let (running, writing, suspended) = (AllocationId(208), AllocationId(209), AllocationId(210));
    c.clock += 10_000;
    let at = c.now();
    c.checkpointed(writing, 1, 1, written(at)).unwrap();
    assert_eq!(c.state_of(writing), AllocationState::Running);
    for id in [running, writing] {
        c.end_all(id, RankExit::Exited { code: 0 });
        assert_eq!(c.state_of(id), AllocationState::Completed);
    }
    c.user("alice", Command::Resume { id: suspended }).unwrap();
    let nodes: Vec<_> = c
        .free(40)
        .into_iter()
        .filter(|n| n.node.as_str().starts_with('w'))
        .take(1)
        .collect();
    c.under(
        "schedule.deep",
        Command::Assign {
            id: suspended,
            nodes,
        },
    )
    .unwrap();
    c.clock += 1_000;
    c.start_all(suspended);
    c.clock += 5_000;
    c.end_all(suspended, RankExit::Exited { code: 0 });
    let sealed = c.state.take_sealed();
    let used = facts(&c.state, &sealed)
        .into_iter()
        .filter_map(|fact| match fact.kind {
            FactKind::Completed { work, node_ms, .. } => Some((work.allocation.0, node_ms)),
            _ => None,
        });
    assert_eq!(used.collect::<Vec<_>>(), [(208, 0), (209, 0), (210, 5_000)]);
    let again = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(again.digest(), c.state.digest());
}
