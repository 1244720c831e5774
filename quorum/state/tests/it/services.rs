//! Services that scale by a metric: their number of nodes after preemption and loss of nodes.

use crate::common::{self, Cluster, dependencies::*, node, spec};
use lattice_quorum_types::{
    AllocationId,
    AllocationState::{self, *},
    Command,
    allocation::RankExit,
    command::{RequestedCheckpoint, Victim},
    scale::{Metric, ScalingPace, ScalingSpec},
    spec::{AllocationSpec, Requeue},
};

const LEAST: u32 = 2;
const MOST: u32 = 4;

/// A service that starts with its minimum of nodes, in a low class.
fn service(requeue: Requeue) -> AllocationSpec {
    let mut spec = AllocationSpec {
        class: 2,
        requeue,
        ..spec("t", LEAST)
    };
    spec.terms.scale = Some(ScalingSpec {
        min_nodes: LEAST,
        max_nodes: MOST,
        metric: Metric::Gpu,
        target_micro: 1,
        pace: ScalingPace::default(),
    });
    spec
}

/// A service that has grown to its maximum, on n000 to n003.
fn grown(spec: AllocationSpec) -> (Cluster, AllocationId) {
    let mut c = Cluster::default();
    c.create("t", Some(common::limits(12))).unwrap();
    c.add_nodes(6);
    let id = c.running(spec);
    let nodes = c.expected(&["n002", "n003"].map(node));
    c.service(Command::Grow { id, nodes }).unwrap();
    c.start_all(id);
    assert_eq!((c.state_of(id), c.of(id).spec.nodes), (Running, MOST));
    (c, id)
}

/// Nodes that its project holds, and nodes that it requests.
fn counted(c: &Cluster, id: AllocationId) -> (u64, u32) {
    let own = c.state.project(&common::path("t")).unwrap().own;
    (own.nodes, c.of(id).spec.nodes)
}

/// An allocation of a higher class takes two of its nodes.
fn preempt(c: &mut Cluster, id: AllocationId, writes: bool) {
    let class = 8;
    let high = AllocationSpec {
        class,
        ..spec("t", 2)
    };
    let high = c.submit(high).unwrap();
    let checkpoint = writes.then(|| RequestedCheckpoint {
        directory: "/scratch".to_owned(),
        timeout_ms: 5_000,
    });
    let attempt = c.of(id).attempt;
    let victim = Victim {
        id,
        attempt,
        checkpoint,
    };
    let (nodes, victims) = (["n002", "n003"].map(node).to_vec(), vec![victim]);
    let preempt = Command::Preempt {
        id: high,
        nodes,
        victims,
    };
    c.service(preempt).unwrap();
    if writes {
        for rank in 0..MOST as usize {
            let outcome = written(c.now());
            c.checkpointed(id, rank, 1, outcome).unwrap();
        }
    }
}

/// The service gets its minimum of nodes, and these are counted.
fn runs_again(c: &mut Cluster, id: AllocationId) {
    c.run(id);
    assert_eq!(c.state_of(id), Running);
    assert_eq!(c.of(id).ranks.len(), LEAST as usize);
    assert_eq!(counted(c, id), (LEAST.into(), LEAST));
    c.end_all(id, DONE);
    assert_eq!(counted(c, id).0, 0);
}

#[test]
fn a_service_that_made_room_comes_back_with_its_least_nodes() {
    let (mut c, id) = grown(writes(service(Requeue::Never)));
    preempt(&mut c, id, true);
    assert_eq!(
        counted(&c, id),
        (MOST.into(), MOST),
        "its processes may run"
    );
    c.end_all(id, RankExit::Stopped);
    assert_eq!((c.state_of(id), counted(&c, id)), (Suspended, (0, LEAST)));
    c.reopen();
    c.service(Command::Resume { id }).unwrap();
    runs_again(&mut c, id);

    let (mut c, id) = grown(service(Requeue::Always));
    preempt(&mut c, id, false);
    c.end_all(id, RankExit::Stopped);
    assert_eq!((c.state_of(id), counted(&c, id)), (Pending, (0, LEAST)));
    c.reopen();
    runs_again(&mut c, id);
}

#[test]
fn requeued_job_requests_minimum_and_keeps_usage() {
    type Ends = fn(&mut Cluster, AllocationId);
    let suspended: Ends = |c, id| drop(c.user("alice", Command::Suspend { id }).unwrap());
    let queued: Ends = |c, id| drop(c.user("alice", Command::Requeue { id }).unwrap());
    let cancelled: Ends = |c, id| drop(c.user("alice", Command::Cancel { id }).unwrap());
    let node_lost: Ends = |c, id| c.end_rank(id, 3, lost());
    let cases: [(Ends, Requeue, AllocationState, u32); 5] = [
        (suspended, Requeue::Never, Suspended, LEAST),
        (queued, Requeue::Never, Pending, LEAST),
        (node_lost, Requeue::Always, Pending, LEAST),
        (node_lost, Requeue::Never, Failed, MOST),
        (cancelled, Requeue::Always, Cancelled, MOST),
    ];
    for (ends, requeue, state, nodes) in cases {
        let (mut c, id) = grown(service(requeue));
        ends(&mut c, id);
        c.end_all(id, RankExit::Stopped);
        assert_eq!((c.state_of(id), counted(&c, id)), (state, (0, nodes)));
    }
}

#[test]
fn one_that_fell_below_its_least_asks_for_all_of_it_again() {
    let (mut c, id) = grown(service(Requeue::Never));
    let nodes = ["n000", "n001", "n002"].map(node).to_vec();
    c.user("alice", Command::Shrink { id, nodes }).unwrap();
    for rank in 0..3 {
        c.end_rank(id, rank, RankExit::Stopped);
    }
    assert_eq!(counted(&c, id), (1, 1));
    c.user("alice", Command::Requeue { id }).unwrap();
    c.end_all(id, RankExit::Stopped);
    assert_eq!((c.state_of(id), counted(&c, id)), (Pending, (0, LEAST)));
    runs_again(&mut c, id);
}
