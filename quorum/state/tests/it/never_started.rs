//! Attempts in which no rank ever started: they are requeued uncounted if this is certain.

use crate::common::{Cluster, envelope, limits, path, principal, spec};
use AllocationState::{Cancelled, Failed, Pending, Running, Starting, Stopping};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, AllocationState, Applied, Command, NodeId, Outcome, Refusal,
    allocation::{RankExit, RankPhase, StopCause},
    command::{Fence, Privilege, RankReport},
    event::{AllocationChange, EventKind},
    id::LeaseName,
    spec::{AllocationSpec, Requeue},
};

const EVIDENCE: &str = "boot 1 was over before anything was sent";

struct DispatcherFixture {
    c: Cluster,
    fence: Fence,
}

impl DispatcherFixture {
    fn new() -> Self {
        let mut c = Cluster::default();
        c.create("atlas", Some(limits(8))).unwrap();
        c.add_nodes(3);
        let lease = LeaseName::new("dispatch").unwrap();
        let (holder, ttl_ms) = ("c1".to_owned(), 600_000);
        let acquired = c.propose(
            "service:control/c1",
            Privilege::Service,
            Command::AcquireLease {
                lease: lease.clone(),
                holder,
                ttl_ms,
            },
        );
        let Outcome::Leased { epoch, .. } = acquired.unwrap().outcome else {
            panic!("no lease")
        };
        let fence = Fence { lease, epoch };
        Self { c, fence }
    }

    fn submit(&mut self, nodes: u32, requeue: Requeue) -> AllocationId {
        let spec = AllocationSpec {
            requeue,
            ..spec("atlas", nodes)
        };
        let id = self.c.submit(spec).unwrap();
        self.c.assign(id).unwrap();
        id
    }

    /// Report of the dispatcher about a rank.
    fn never_started(&mut self, id: AllocationId, rank: usize) -> Result<Applied, Refusal> {
        let fence = Some(self.fence.clone());
        self.says(id, rank, fence)
    }

    fn says(
        &mut self,
        id: AllocationId,
        rank: usize,
        fence: Option<Fence>,
    ) -> Result<Applied, Refusal> {
        let held = self.c.state.allocation(id).unwrap();
        let command = Command::Report {
            id,
            attempt: held.attempt,
            node: held.ranks[rank].node.clone(),
            report: RankReport::Ended {
                at: self.c.now(),
                exit: RankExit::NeverStarted {
                    evidence: EVIDENCE.to_owned(),
                },
                fault: None,
            },
        };
        let service = principal("service:control/c1", Privilege::Service);
        let mut envelope = envelope(self.c.now(), service, command);
        envelope.fence = fence;
        self.c.apply(envelope)
    }

    fn report(&mut self, id: AllocationId, rank: usize, exit: RankExit) {
        let node = self.c.nodes_of(id).swap_remove(rank);
        let (at, fault) = (self.c.now(), None);
        self.c
            .report(id, &node, RankReport::Ended { at, exit, fault })
            .unwrap();
    }

    fn starts(&mut self, id: AllocationId, rank: usize) {
        let (node, at) = (self.c.nodes_of(id).swap_remove(rank), self.c.now());
        self.c
            .report(id, &node, RankReport::Started { at })
            .unwrap();
    }

    /// The node has rebooted since the rank ran.
    fn is_lost(&mut self, id: AllocationId) {
        let evidence = "node rebooted".to_owned();
        self.report(id, 0, RankExit::Lost { evidence });
    }

    fn state(&self, id: AllocationId) -> AllocationState {
        self.c.state.allocation(id).unwrap().state
    }
}

#[test]
fn what_never_ran_waits_again_whatever_its_policy() {
    for requeue in [Requeue::Never, Requeue::Once, Requeue::Always] {
        let mut fixture = DispatcherFixture::new();
        let id = fixture.submit(1, requeue);
        let applied = fixture.never_started(id, 0).unwrap();
        assert!(applied.events.iter().any(|event| matches!(
            &event.kind,
            EventKind::Allocation {
                change: AllocationChange::Requeued,
                ..
            }
        )));
        let waits = fixture.c.state.allocation(id).unwrap().clone();
        assert_eq!((waits.state, waits.attempt), (Pending, 1), "{requeue:?}");
        let RankPhase::Ended { exit, .. } = &waits.ranks[0].phase else {
            panic!("{waits:?}")
        };
        assert_eq!(exit.to_string(), format!("lost: never started: {EVIDENCE}"));
        assert!(fixture.c.state.nodes().all(|node| node.holder.is_none()));
        let used = fixture
            .c
            .state
            .project(&path("atlas"))
            .unwrap()
            .total()
            .nodes;
        assert_eq!(used, 0);
    }
}

#[test]
fn it_is_not_counted_against_once_before_or_after_it_was_spent() {
    let mut fixture = DispatcherFixture::new();
    let id = fixture.submit(1, Requeue::Once);
    fixture.never_started(id, 0).unwrap();
    // The second attempt is the first that counts.
    fixture.c.assign(id).unwrap();
    fixture.starts(id, 0);
    fixture.is_lost(id);
    assert_eq!(fixture.state(id), Pending);
    fixture.c.assign(id).unwrap();
    fixture.never_started(id, 0).unwrap();
    assert_eq!(fixture.state(id), Pending);
    fixture.c.assign(id).unwrap();
    fixture.starts(id, 0);
    fixture.is_lost(id);
    let ended = fixture.c.state.allocation(id).unwrap();
    assert_eq!((ended.state, ended.attempt), (Failed, 4));
}

/// The reply to a launch was lost, and the node rebooted: the rank may have run, and no report states that it
/// never started.
#[test]
fn what_may_have_run_is_lost_and_counts() {
    let mut fixture = DispatcherFixture::new();
    for (requeue, wanted) in [(Requeue::Never, Failed), (Requeue::Once, Pending)] {
        let id = fixture.submit(1, requeue);
        fixture.is_lost(id);
        assert_eq!(fixture.state(id), wanted);
    }
}

#[test]
fn one_rank_that_ran_makes_the_attempt_count() {
    let mut fixture = DispatcherFixture::new();
    let id = fixture.submit(2, Requeue::Never);
    fixture.starts(id, 0);
    fixture.never_started(id, 1).unwrap();
    assert_eq!(fixture.state(id), Stopping);
    fixture.report(id, 0, RankExit::Stopped);
    assert_eq!(fixture.state(id), Failed);
    // Nor is it certain for a rank that its agent reported ended before any start was seen.
    let id = fixture.submit(2, Requeue::Never);
    fixture.never_started(id, 1).unwrap();
    fixture.report(id, 0, RankExit::Stopped);
    assert_eq!(fixture.state(id), Failed);
    let id = fixture.submit(2, Requeue::Never);
    for rank in [0, 1] {
        fixture.never_started(id, rank).unwrap();
    }
    assert_eq!(fixture.state(id), Pending);
}

#[test]
fn an_agents_word_that_it_runs_outweighs_it() {
    let mut fixture = DispatcherFixture::new();
    let id = fixture.submit(1, Requeue::Never);
    fixture.starts(id, 0);
    assert_eq!(fixture.state(id), Running);
    fixture.never_started(id, 0).unwrap();
    let ended = fixture.c.state.allocation(id).unwrap();
    assert_eq!(ended.state, Failed);
    let node = ended.ranks[0].node.clone();
    assert_eq!(ended.stop, Some(StopCause::NodeLost { node }));
}

#[test]
fn what_goes_back_for_nothing_does_so_five_times() {
    let mut fixture = DispatcherFixture::new();
    let id = fixture.submit(1, Requeue::Never);
    for _ in 0..5 {
        fixture.never_started(id, 0).unwrap();
        assert_eq!(fixture.state(id), Pending);
        fixture.c.assign(id).unwrap();
    }
    fixture.never_started(id, 0).unwrap();
    assert_eq!(fixture.state(id), Failed);
}

#[test]
fn only_leased_dispatcher_reports() {
    let mut fixture = DispatcherFixture::new();
    let id = fixture.submit(1, Requeue::Never);
    let refused = fixture.says(id, 0, None).unwrap_err();
    assert!(matches!(refused, Refusal::Forbidden { .. }), "{refused}");
    let stale = Fence {
        epoch: fixture.fence.epoch + 1,
        ..fixture.fence.clone()
    };
    let refused = fixture.says(id, 0, Some(stale)).unwrap_err();
    assert!(matches!(refused, Refusal::StaleEpoch { .. }), "{refused}");
    assert_eq!(fixture.state(id), Starting);
}

#[test]
fn a_cancel_meanwhile_holds() {
    let mut fixture = DispatcherFixture::new();
    let id = fixture.submit(2, Requeue::Never);
    fixture.never_started(id, 0).unwrap();
    assert_eq!(fixture.state(id), Stopping);
    fixture.c.admin(Command::Cancel { id }).unwrap();
    fixture.never_started(id, 1).unwrap();
    assert_eq!(fixture.state(id), Cancelled);
}

#[test]
fn what_is_known_of_it_outlives_a_restart_and_ends_with_the_allocation() {
    let mut fixture = DispatcherFixture::new();
    let empty = fixture.c.state.snapshot().len();
    let id = fixture.submit(2, Requeue::Once);
    fixture.never_started(id, 0).unwrap();
    fixture.c.state = State::restore(&fixture.c.state.snapshot()).unwrap();
    fixture.never_started(id, 1).unwrap();
    assert_eq!(fixture.state(id), Pending);
    fixture.c.state = State::restore(&fixture.c.state.snapshot()).unwrap();
    fixture.c.assign(id).unwrap();
    fixture.c.start_all(id);
    let node: NodeId = fixture.c.nodes_of(id).remove(1);
    let (at, fault) = (fixture.c.now(), None);
    let evidence = "node rebooted".to_owned();
    let exit = RankExit::Lost { evidence };
    fixture
        .c
        .report(id, &node, RankReport::Ended { at, exit, fault })
        .unwrap();
    fixture.report(id, 0, RankExit::Stopped);
    assert_eq!(fixture.state(id), Pending, "the first that counts");
    fixture.c.admin(Command::Cancel { id }).unwrap();
    assert_eq!(fixture.state(id), Cancelled);
    assert!(fixture.c.state.snapshot().len() > empty);
}
