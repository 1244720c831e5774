//! A log with commands of the fourth schema, a snapshot of the fifth format and segments of the first
//! version open, say the same, and are made anew as they were. `fixtures/quorum/v6/ORIGIN.md` says what is
//! in them.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "reads its data from files")]

mod common;

use bytes::Bytes;
use common::{Cluster, START};
use lattice_quorum_state::{
    Bounds, FORMAT_VERSION, Policy, Sealed, SegmentFault, SegmentId, Segments, State, Table,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, Envelope, Outcome, Refusal, Revision,
    allocation::RankExit,
    command::Power,
    spec::Demand,
    view::{Answer, Query},
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/quorum/v6/");

fn sixth(file: &str) -> Vec<u8> {
    std::fs::read(format!("{FOLDER}{file}")).unwrap()
}

fn log() -> Vec<Envelope> {
    postcard::from_bytes(&sixth("log.postcard")).unwrap()
}

fn restored() -> State {
    State::restore(&sixth("state.snapshot")).unwrap()
}

/// The empty cluster, with groups of rows as large as then.
fn empty() -> State {
    let (rows, bytes) = (8, 1 << 20);
    State::with_bounds(Policy::default(), Bounds { rows, bytes })
}

/// The segments of then, and those sealed since.
struct Files<'a>(&'a [Sealed]);

impl Segments for Files<'_> {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        match self.0.iter().find(|sealed| sealed.id == *id) {
            Some(sealed) => Ok(sealed.bytes.clone()),
            None => Ok(sixth(&format!("segments/{id}.seg")).into()),
        }
    }
}

fn record(state: &State, sealed: &[Sealed], id: AllocationId) -> Box<Allocation> {
    let lookup = state.look_up(&Query::Allocation { id });
    match lookup.finish(&Files(sealed)).unwrap() {
        Answer::Allocation(Some(record)) => record,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_command_gives_what_it_gave_then() {
    type Given = Result<(Revision, Outcome), Refusal>;
    let results: Vec<Given> = postcard::from_bytes(&sixth("results.postcard")).unwrap();
    let log = log();
    assert_eq!((log.len(), results.len()), (432, 432));
    assert_eq!(log.iter().filter(|e| e.schema == 4).count(), 233);
    assert_eq!(results.iter().filter(|r| r.is_err()).count(), 14);
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
    let (restored, log) = (restored(), log());
    let mut names: Vec<_> = std::fs::read_dir(format!("{FOLDER}segments"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 12);
    for upgraded_at in [0, 199, 230, 300, 380, 431] {
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
            assert_eq!(bytes, sixth(&format!("segments/{id}.seg")));
        }
    }
    let bytes = restored.snapshot();
    assert_eq!(u16::from(bytes[8]), FORMAT_VERSION);
    let again = State::restore(&bytes).unwrap();
    assert_eq!(again.digest(), restored.digest());
}

#[test]
fn everything_that_was_in_it_is_there() {
    let state = restored();
    assert_eq!(state.revision(), Revision(387));
    use AllocationState::{Cancelled, Completed, Failed, Pending, Running};
    for (id, expected) in [
        (4, Completed),
        (12, Failed),
        (15, Cancelled),
        (22, Pending),
        (26, Completed),
        (29, Failed),
        (42, Cancelled),
        (43, Running),
        (44, Running),
        (47, Completed),
    ] {
        let found = record(&state, &[], AllocationId(id));
        assert_eq!((found.id, found.state), (AllocationId(id), expected));
        assert!(found.spec.demand.is_empty());
    }
    let waits = state.allocation(AllocationId(22)).unwrap();
    assert_eq!(waits.spec.walltime_ms, Some(3_600_000));
    assert_eq!(waits.spec.constraints.features, ["nvme"]);
}

#[test]
fn a_key_of_then_answers_its_request_and_refuses_one_that_asks_for_more() {
    let state = restored();
    let clock = state.now().since(START);
    let spec = state.allocation(AllocationId(45)).unwrap().spec.clone();
    let mut c = Cluster {
        state,
        clock,
        index: 432,
        ..Cluster::default()
    };
    let mut submit = |spec| {
        let spec = Box::new(spec);
        let olga = common::principal("olga", Power::User);
        let mut envelope = common::envelope(c.now(), olga, Command::Submit { spec });
        envelope.key = Some("k-1".to_owned());
        c.apply(envelope)
    };
    let id = AllocationId(45);
    let repeated = submit(spec.clone()).unwrap();
    assert_eq!(repeated.outcome, Outcome::Submitted { id });
    let mut more = spec;
    more.demand.data_ready_ppm = Some(500_000);
    let refused = submit(more).unwrap_err();
    assert!(matches!(refused, Refusal::KeyReused { .. }), "{refused}");
}

/// What says its demand is sealed in segments of the next version, what does not in those of before, and
/// both are read.
#[test]
fn what_ends_from_now_on_is_sealed_in_the_oldest_version_that_holds_it() {
    let mut c = Cluster {
        state: restored(),
        index: 432,
        ..Cluster::default()
    };
    let demand = Demand {
        data_ready_ppm: Some(800_000),
        checkpoint_ms: Some(300_000),
        storage_mb_s: [("scratch".to_owned(), 40_000)].into(),
    };
    let (mut plain, mut asking) = (Vec::new(), Vec::new());
    for n in 0..48 {
        let mut spec = common::spec("orion/b", 1);
        // The first of them in the same group of rows as what does not.
        if n > 20 {
            spec.demand = demand.clone();
        }
        let id = c.submit(spec).unwrap();
        let cancel = Command::Cancel { id };
        c.propose("alice", Power::User, cancel).unwrap();
        match n > 20 {
            true => asking.push(id),
            false => plain.push(id),
        }
    }
    let sealed = c.state.take_sealed();
    let version = |s: &Sealed| u16::from_le_bytes([s.bytes[8], s.bytes[9]]);
    let of_ended = sealed.iter().filter(|s| s.id.table == Table::Ended);
    let versions: Vec<u16> = of_ended.map(version).collect();
    assert!(versions.is_sorted() && versions.contains(&1) && versions.contains(&2));
    let again = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(again.digest(), c.state.digest());
    for id in plain {
        assert!(record(&again, &sealed, id).spec.demand.is_empty());
    }
    for id in asking {
        assert_eq!(record(&again, &sealed, id).spec.demand, demand);
    }
    // Work of then that runs ends as any.
    let id = AllocationId(44);
    c.end_all(id, RankExit::Exited { code: 0 });
    let ended = c.state.allocation(id).unwrap();
    assert_eq!(ended.state, AllocationState::Completed);
}
