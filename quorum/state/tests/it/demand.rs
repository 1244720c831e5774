//! Demand of a request: kept as submitted, and rejected by field if invalid.

use crate::common::{self, Cluster, limits};
use lattice_quorum_types::{
    AllocationId, Command, Outcome, Refusal, command::Privilege, event::EventKind, spec::Demand,
};

fn founded() -> Cluster {
    let mut c = Cluster::default();
    c.create("t", Some(limits(8))).unwrap();
    c.add_nodes(2);
    c
}

fn demand() -> Demand {
    Demand {
        data_ready_ppm: Some(800_000),
        checkpoint_ms: Some(300_000),
        storage_mb_s: [("scratch".to_owned(), 40_000), ("home".to_owned(), 500)].into(),
    }
}

#[test]
fn it_is_in_the_record_in_what_watchers_learn_and_in_a_snapshot() {
    let mut c = founded();
    let mut spec = common::spec("t", 1);
    spec.demand = demand();
    let spec = Box::new(spec);
    let applied = c
        .propose("alice", Privilege::User, Command::Submit { spec })
        .unwrap();
    let id = AllocationId(1);
    assert_eq!(applied.outcome, Outcome::Submitted { id });
    let is_in_events = applied.events.iter().any(|event| match &event.kind {
        EventKind::Allocation { record, .. } => record.spec.demand == demand(),
        _ => false,
    });
    assert!(is_in_events, "{:?}", applied.events);
    let again = lattice_quorum_state::State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(again.allocation(id).unwrap().spec.demand, demand());
}

#[test]
fn what_cannot_be_is_refused_by_its_field_and_changes_nothing() {
    let mut c = founded();
    let before = c.state.digest();
    let system = |name: &str, mb_s| Demand {
        storage_mb_s: [(name.to_owned(), mb_s)].into(),
        ..Demand::default()
    };
    let checkpoint = |ms| Demand {
        checkpoint_ms: Some(ms),
        ..Demand::default()
    };
    for (demand, expected) in [
        (
            Demand {
                data_ready_ppm: Some(1_000_001),
                ..Demand::default()
            },
            "demand.data_ready_ppm",
        ),
        (checkpoint(0), "demand.checkpoint_ms"),
        (checkpoint(u64::MAX), "demand.checkpoint_ms"),
        (system("", 1), "demand.storage_mb_s"),
        (system("a\nb", 1), "demand.storage_mb_s"),
        (system("scratch", 0), "demand.storage_mb_s"),
        (system("scratch", u64::MAX), "demand.storage_mb_s"),
        (
            Demand {
                storage_mb_s: (0..17).map(|n| (format!("s{n}"), 1)).collect(),
                ..Demand::default()
            },
            "demand.storage_mb_s",
        ),
    ] {
        let mut spec = common::spec("t", 1);
        spec.demand = demand;
        match c.submit(spec).unwrap_err() {
            Refusal::Invalid { field, .. } => assert_eq!(field, expected),
            other => panic!("{expected}: {other}"),
        }
    }
    assert_eq!(c.state.digest(), before);
}
