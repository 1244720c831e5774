//! Life cycle of allocations, step by step.

use crate::common::{self, Cluster, envelope, limits, path, principal};
use lattice_quorum_state::{FORMAT_VERSION, RestoreError, State};
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, Refusal,
    allocation::{RankExit, StopCause},
    command::{Privilege, RankReport, SCHEMA},
    spec::Requeue,
};

fn cluster() -> Cluster {
    let mut c = Cluster::default();
    c.create("atlas", Some(limits(10))).unwrap();
    c.create("atlas/physics", Some(limits(8))).unwrap();
    c.add_nodes(10);
    c
}

#[test]
fn an_allocation_runs_and_completes_and_gives_everything_back() {
    let mut c = cluster();
    let id = c.submit(common::spec("atlas/physics", 2)).unwrap();
    assert_eq!(
        c.state.allocation(id).unwrap().state,
        AllocationState::Pending
    );
    assert_eq!(c.state.project(&path("atlas")).unwrap().total().nodes, 0);
    c.assign(id).unwrap();
    assert_eq!(c.state.project(&path("atlas")).unwrap().subtree.nodes, 2);
    assert_eq!(
        c.state.project(&path("atlas/physics")).unwrap().own.nodes,
        2
    );
    c.clock += 5;
    c.start_all(id);
    let running = c.state.allocation(id).unwrap();
    assert_eq!(running.state, AllocationState::Running);
    assert_eq!(running.started_at, Some(c.now()));
    c.end_all(id, RankExit::Exited { code: 0 });
    let ended = c.state.allocation(id).unwrap();
    assert_eq!(
        (ended.state, ended.stop.clone()),
        (AllocationState::Completed, None)
    );
    assert_eq!(c.state.project(&path("atlas")).unwrap().total().nodes, 0);
    assert!(c.state.nodes().all(|n| n.holder.is_none()));
}

#[test]
fn a_failed_rank_stops_the_others_and_nodes_go_back_only_at_the_end() {
    let mut c = cluster();
    let id = c.submit(common::spec("atlas/physics", 2)).unwrap();
    c.assign(id).unwrap();
    c.start_all(id);
    let nodes = c.nodes_of(id);
    let failed = RankExit::Exited { code: 3 };
    c.report(
        id,
        &nodes[1],
        RankReport::Ended {
            at: c.now(),
            exit: failed.clone(),
            fault: None,
        },
    )
    .unwrap();
    let stopping = c.state.allocation(id).unwrap();
    assert_eq!(stopping.state, AllocationState::Stopping);
    assert_eq!(
        stopping.stop,
        Some(StopCause::RankFailed {
            rank: 1,
            exit: failed
        })
    );
    assert_eq!(c.state.nodes().filter(|n| n.holder.is_some()).count(), 2);
    c.report(
        id,
        &nodes[0],
        RankReport::Ended {
            at: c.now(),
            exit: RankExit::Stopped,
            fault: None,
        },
    )
    .unwrap();
    assert_eq!(
        c.state.allocation(id).unwrap().state,
        AllocationState::Failed
    );
    assert_eq!(c.state.nodes().filter(|n| n.holder.is_some()).count(), 0);
}

#[test]
fn a_refused_submit_names_every_level_from_the_project_up() {
    let mut c = cluster();
    let Err(Refusal::LimitExceeded { levels, .. }) = c.submit(common::spec("atlas/physics", 11))
    else {
        panic!("11 nodes do not fit")
    };
    let named: Vec<_> = levels.iter().map(|l| l.path.as_str()).collect();
    assert_eq!(named, ["atlas/physics", "atlas"]);
}

#[test]
fn a_submit_that_can_never_be_right_names_its_field() {
    let mut c = cluster();
    let mut named = |name: &str| {
        let mut spec = common::spec("atlas/physics", 1);
        spec.name = Some(name.to_owned());
        match c.submit(spec) {
            Ok(_) => None,
            Err(Refusal::Invalid { field, .. }) => Some(field),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(named("Größe 7"), None);
    assert_eq!(named("\u{1b}]0;x").as_deref(), Some("name"));
    assert_eq!(named(&"n".repeat(257)).as_deref(), Some("name"));
    assert_eq!(
        c.submit(common::spec("atlas/physics", 0))
            .unwrap_err()
            .code(),
        "invalid"
    );
}

/// Stops an allocation of two nodes for a fault of its first node, and ends its ranks.
fn fault(c: &mut Cluster, id: AllocationId) -> AllocationState {
    c.assign(id).unwrap();
    let nodes = c.nodes_of(id);
    let at = c.now();
    c.report(id, &nodes[1], RankReport::Started { at }).unwrap();
    let cause = StopCause::NodeFault {
        node: nodes[0].clone(),
        reason: "its disk is full".to_owned(),
    };
    c.admin(Command::Stop { id, cause }).unwrap();
    let stopping = c.state.allocation(id).unwrap();
    assert_eq!(stopping.state, AllocationState::Stopping);
    assert!(c.state.nodes().filter(|n| n.holder.is_some()).count() == 2);
    c.end_all(id, RankExit::Stopped);
    assert!(c.state.nodes().all(|n| n.holder.is_none()));
    c.state.allocation(id).unwrap().state
}

#[test]
fn a_fault_of_a_node_puts_the_work_back_five_times() {
    let mut c = cluster();
    let id = c.submit(common::spec("atlas/physics", 2)).unwrap();
    for _ in 0..5 {
        assert_eq!(fault(&mut c, id), AllocationState::Pending);
        assert_eq!(c.state.project(&path("atlas")).unwrap().total().nodes, 0);
    }
    assert_eq!(fault(&mut c, id), AllocationState::Failed);
    let stop = c.state.allocation(id).unwrap().stop.clone();
    assert!(stop.unwrap().to_string().contains("its disk is full"));

    let spec = lattice_quorum_types::spec::AllocationSpec {
        requeue: Requeue::Always,
        ..common::spec("atlas/physics", 2)
    };
    let id = c.submit(spec).unwrap();
    for _ in 0..8 {
        assert_eq!(fault(&mut c, id), AllocationState::Pending);
    }
}

#[test]
fn what_would_be_put_back_can_be_cancelled_while_it_stops() {
    let mut c = cluster();
    let id = c.submit(common::spec("atlas/physics", 1)).unwrap();
    c.assign(id).unwrap();
    let node = c.nodes_of(id).remove(0);
    let reason = "its disk is full".to_owned();
    let cause = StopCause::NodeFault { node, reason };
    c.admin(Command::Stop { id, cause }).unwrap();
    c.admin(Command::Cancel { id }).unwrap();
    c.end_all(id, RankExit::Stopped);
    let state = c.state.allocation(id).unwrap().state;
    assert_eq!(state, AllocationState::Cancelled);
}

#[test]
fn refuses_commands_of_another_schema() {
    let mut c = cluster();
    let before = c.state.digest();
    for given in [0, SCHEMA + 1, 7, u16::MAX] {
        let id = AllocationId(1);
        let command = Command::Cancel { id };
        let mut other = envelope(c.now(), principal("root", Privilege::Admin), command);
        other.schema = given;
        let refused = c.apply(other).unwrap_err();
        let supported = SCHEMA;
        assert_eq!(refused, Refusal::UnsupportedSchema { given, supported });
        let text = refused.to_string();
        assert!(
            text.starts_with(&format!("command schema {given} is not supported")),
            "{text}"
        );
    }
    assert_eq!(c.state.digest(), before);
}

#[test]
fn refuses_snapshots_of_another_format() {
    let bytes = cluster().state.snapshot();
    State::restore(&bytes).unwrap();
    for found in [0, FORMAT_VERSION + 1, 8, u16::MAX] {
        let mut other = bytes.clone();
        other[8..10].copy_from_slice(&found.to_le_bytes());
        let refused = State::restore(&other).unwrap_err();
        let supported = FORMAT_VERSION;
        assert_eq!(refused, RestoreError::OtherFormat { found, supported });
    }
}
