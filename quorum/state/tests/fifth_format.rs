//! A log with commands of the third schema and a snapshot of the fourth format open, say the same, and
//! each command gives what it gave then. `fixtures/quorum/v5/ORIGIN.md` says what is in them.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "reads its data from files")]

mod common;

use common::{Cluster, node};
use lattice_quorum_state::{FORMAT_VERSION, State};
use lattice_quorum_types::{
    AllocationId, AllocationState, Envelope, Outcome, Refusal, Revision,
    allocation::RankExit,
    audit::verify_chain,
    view::{Answer, Query},
};

fn fifth(file: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/quorum/v5/");
    std::fs::read(format!("{folder}{file}")).unwrap()
}

fn log() -> Vec<Envelope> {
    postcard::from_bytes(&fifth("log.postcard")).unwrap()
}

fn restored() -> State {
    State::restore(&fifth("state.snapshot")).unwrap()
}

#[test]
fn every_command_gives_what_it_gave_then() {
    type Given = Result<(Revision, Outcome), Refusal>;
    let results: Vec<Given> = postcard::from_bytes(&fifth("results.postcard")).unwrap();
    let log = log();
    assert_eq!((log.len(), results.len()), (199, 199));
    assert_eq!(log.iter().filter(|e| e.schema == 3).count(), 135);
    assert_eq!(results.iter().filter(|r| r.is_err()).count(), 12);
    let mut state = State::new();
    for (index, (envelope, expected)) in (1..).zip(log.iter().zip(&results)) {
        let given = state.apply(index, envelope);
        let given = given.map(|applied| (applied.revision, applied.outcome));
        assert_eq!(given, *expected, "command {index}: {envelope:?}");
    }
}

/// Wherever the member was upgraded: with a snapshot of then, or with one of today in between.
#[test]
fn the_log_gives_what_the_snapshot_holds_from_wherever_it_is_read() {
    let (restored, log) = (restored(), log());
    for upgraded_at in [0, 40, 64, 100, 150, 198] {
        let mut state = State::new();
        for (index, envelope) in (1..).zip(&log) {
            let _ = state.apply(index, envelope);
            if index == upgraded_at {
                state = State::restore(&state.snapshot()).unwrap();
            }
        }
        assert_eq!(state.digest(), restored.digest(), "{upgraded_at}");
    }
    let bytes = restored.snapshot();
    assert_eq!(u16::from(bytes[8]), FORMAT_VERSION);
    let again = State::restore(&bytes).unwrap();
    assert_eq!(again.digest(), restored.digest());
}

#[test]
fn everything_that_was_in_it_is_there_and_goes_on() {
    let state = restored();
    assert_eq!(state.revision(), Revision(183));
    let counted = |wanted| match state.query(&Query::Counts) {
        Answer::Counts(counts) => counts.into_iter().find(|(s, _)| *s == wanted).unwrap().1,
        other => panic!("{other:?}"),
    };
    use AllocationState::{Cancelled, Completed, Failed, Held, Pending, Running};
    let counts = [Pending, Held, Running, Completed, Failed, Cancelled].map(counted);
    assert_eq!(counts, [5, 1, 5, 3, 5, 2]);
    let ended: Vec<_> = [4, 11, 12, 15, 21]
        .map(|id| {
            let query = Query::Allocation {
                id: AllocationId(id),
            };
            match state.query(&query) {
                Answer::Allocation(Some(record)) => record.state,
                other => panic!("{other:?}"),
            }
        })
        .into();
    assert_eq!(ended, [Completed, Completed, Failed, Cancelled, Failed]);
    assert_eq!(state.brake().unwrap().reason, "7 of 72 nodes at once");
    let (after, limit) = (0, 1000);
    let Answer::Audit(audit) = state.query(&Query::Audit { after, limit }) else {
        panic!("audit")
    };
    assert_eq!(audit.len(), 31);
    verify_chain(&audit).unwrap();
    // Sensitive work with its nodes' claims, committed then, ends today.
    let id = AllocationId(9);
    let runs = state.allocation(id).unwrap();
    assert_eq!(runs.state, Running);
    assert_eq!(runs.ranks[0].node, node("n020"));
    let mut c = Cluster {
        state,
        index: 199,
        ..Cluster::default()
    };
    c.end_all(id, RankExit::Exited { code: 0 });
    assert_eq!(c.state.allocation(id).unwrap().state, Completed);
}
