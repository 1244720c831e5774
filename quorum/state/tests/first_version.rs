//! A snapshot of the first version opens, and goes on as if nothing had happened.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "reads its snapshot from a file")]

mod common;

use common::{Cluster, START, node, path};
use lattice_quorum_state::{FORMAT_VERSION, RestoreError, State};
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, Outcome, Refusal, Revision, VclusterName,
    command::{ExpectedNode, Power},
    node::Lifecycle,
    view::{Answer, Query},
};

fn first() -> Vec<u8> {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/quorum/v1/state.snapshot"
    );
    std::fs::read(file).unwrap()
}

#[test]
fn everything_that_was_in_it_is_there() {
    let state = State::restore(&first()).unwrap();
    assert_eq!(state.revision(), Revision(40));
    let of = |id| state.allocation(AllocationId(id)).unwrap();
    let states: Vec<_> = (1..=4).map(|id| of(id).state).collect();
    use AllocationState::{Completed, Pending, Running};
    assert_eq!(states, [Pending, Running, Pending, Completed]);
    assert_eq!((of(1).spec.nodes, of(3).attempt), (8, 1));
    assert_eq!(of(2).user, "alice");
    assert!(of(2).ranks.iter().all(|rank| rank.boot.is_none()));
    for id in of(2).nodes() {
        let holder = state.node(id).unwrap().holder.unwrap();
        assert_eq!(holder.allocation, AllocationId(2));
    }
    assert_eq!(state.lease("schedule"), Some((1, Some("c1"))));
    let drained = state.node(&node("n009")).unwrap();
    assert_eq!(drained.lifecycle, Lifecycle::Drained);
    assert_eq!(drained.drain[0].owner, "bob");
    let used = state.project(&path("atlas/physics")).unwrap().own.nodes;
    assert_eq!(used, of(2).nodes().len() as u64);
    let Answer::Tokens(tokens) = state.query(&Query::Tokens) else {
        panic!("tokens")
    };
    let grant = &tokens[0].grant;
    assert_eq!((grant.hash.as_str(), grant.uses), ("abababababab", 2));
    assert_eq!(grant.names, Some(vec![node("n001"), node("n002")]));
    assert!(!grant.replace && grant.cidrs.is_empty());
    assert_eq!(tokens[0].by, "unknown");
    let Answer::Audit(audit) = state.query(&Query::Audit {
        after: 0,
        limit: 10,
    }) else {
        panic!("audit")
    };
    assert!(audit.is_empty());
}

#[test]
fn it_is_written_anew_in_the_present_format_and_reads_the_same() {
    let state = State::restore(&first()).unwrap();
    let again = State::restore(&state.snapshot()).unwrap();
    assert_eq!(state.digest(), again.digest());
    let mut newer = state.snapshot();
    newer[8] = FORMAT_VERSION as u8 + 1;
    let error = State::restore(&newer).unwrap_err();
    let (found, supported) = (FORMAT_VERSION + 1, FORMAT_VERSION);
    assert_eq!(error, RestoreError::NewerVersion { found, supported });
}

#[test]
fn a_key_that_was_used_before_answers_its_command_and_refuses_another() {
    let state = State::restore(&first()).unwrap();
    let second = state.allocation(AllocationId(2)).unwrap().clone();
    let mut c = Cluster {
        state,
        clock: 0,
        ..Cluster::default()
    };
    // As asked then: the record has it.
    let submit = |spec: &lattice_quorum_types::spec::AllocationSpec| {
        let spec = Box::new(spec.clone());
        let command = Command::Submit { spec };
        let alice = common::principal("alice", Power::User);
        let mut envelope = common::envelope(START, alice, command);
        envelope.key = Some("once".to_owned());
        envelope
    };
    let repeated = c.apply(submit(&second.spec)).unwrap();
    let id = AllocationId(2);
    assert_eq!(repeated.outcome, Outcome::Submitted { id });
    assert!(repeated.events.is_empty());
    let mut other = second.spec.clone();
    other.workload.output.stdout = Some("out.txt".to_owned());
    let refused = c.apply(submit(&other)).unwrap_err();
    assert!(matches!(refused, Refusal::KeyReused { .. }));
    let refused = c.apply(submit(&other)).unwrap_err();
    assert!(matches!(refused, Refusal::KeyReused { .. }));
}

#[test]
fn work_goes_on() {
    let mut c = Cluster {
        state: State::restore(&first()).unwrap(),
        ..Cluster::default()
    };
    c.end_all(
        AllocationId(2),
        lattice_quorum_types::allocation::RankExit::Exited { code: 0 },
    );
    let state = c.state.allocation(AllocationId(2)).unwrap().state;
    assert_eq!(state, AllocationState::Completed);
    let id = AllocationId(3);
    let wanted = c.state.allocation(id).unwrap().spec.nodes as usize;
    let nodes: Vec<ExpectedNode> = c.free(wanted);
    let attempt = c.admin(Command::Assign { id, nodes }).unwrap().outcome;
    assert_eq!(attempt, Outcome::Assigned { attempt: 2 });
    let vcluster = VclusterName::new("main").unwrap();
    let node = node("n010");
    c.admin(Command::RegisterNode { node, vcluster }).unwrap();
}
