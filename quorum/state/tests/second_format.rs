//! A log and a snapshot of the second format open, and say the same. `fixtures/quorum/v2/ORIGIN.md`
//! says what is in them.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "reads its data from files")]

mod common;

use common::{Cluster, node};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, AllocationState, Envelope, Revision,
    allocation::RankExit,
    view::{Answer, Query},
};

fn second(file: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/quorum/v2/");
    std::fs::read(format!("{folder}{file}")).unwrap()
}

fn log() -> Vec<Envelope> {
    postcard::from_bytes(&second("log.postcard")).unwrap()
}

#[test]
fn the_log_gives_what_the_snapshot_holds() {
    let restored = State::restore(&second("state.snapshot")).unwrap();
    let (mut replayed, log) = (State::new(), log());
    assert_eq!(log.len(), 50);
    for (index, envelope) in (1..).zip(&log) {
        assert_eq!(envelope.schema, 2);
        replayed.apply(index, envelope).unwrap();
    }
    assert_eq!(restored.digest(), replayed.digest());
    let again = State::restore(&restored.snapshot()).unwrap();
    assert_eq!(again.digest(), restored.digest());
}

#[test]
fn everything_that_was_in_it_is_there_and_goes_on() {
    let state = State::restore(&second("state.snapshot")).unwrap();
    assert_eq!(state.revision(), Revision(50));
    use AllocationState::{Completed, Failed, Pending, Running};
    let states: Vec<_> = (1..=6)
        .map(|id| state.allocation(AllocationId(id)).unwrap().state)
        .collect();
    assert_eq!(
        states,
        [Running, Pending, Failed, Completed, Pending, Pending]
    );
    let drained = state.node(&node("n009")).unwrap();
    assert_eq!(drained.drain[0].owner, "olga");
    let (after, limit) = (0, 100);
    let Answer::Audit(audit) = state.query(&Query::Audit { after, limit }) else {
        panic!("audit")
    };
    assert_eq!(audit.len(), 5);
    // What was counted before is counted on: `once` is spent.
    let mut c = Cluster {
        state,
        index: 50,
        ..Cluster::default()
    };
    let id = AllocationId(2);
    c.assign(id).unwrap();
    c.start_all(id);
    let evidence = "node rebooted".to_owned();
    c.end_all(id, RankExit::Lost { evidence });
    assert_eq!(c.state.allocation(id).unwrap().state, Failed);
}
