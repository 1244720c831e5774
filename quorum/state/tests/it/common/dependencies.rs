//! Helpers for tests of dependencies, moves and arrays.

use super::*;
use lattice_quorum_types::{
    Allocation, AllocationState, Refusal,
    array::ArraySpec,
    checkpoint::{CheckpointFailure, CheckpointMode, CheckpointOutcome},
    progress::{RankCheckpoint, Tally},
    terms::{CheckpointTerms, CheckpointTrigger, Condition, Dependency, Terms},
};

pub const DONE: RankExit = RankExit::Exited { code: 0 };
pub const BROKEN: RankExit = RankExit::Exited { code: 1 };

pub fn lost() -> RankExit {
    RankExit::Lost {
        evidence: "booted anew".to_owned(),
    }
}

/// One node in project `t`, with these dependencies.
pub fn after(others: &[(AllocationId, Condition)]) -> AllocationSpec {
    let dependency = |(on, condition): &(AllocationId, Condition)| Dependency {
        on: *on,
        condition: *condition,
    };
    AllocationSpec {
        terms: Terms {
            after: others.iter().map(dependency).collect(),
            ..Terms::default()
        },
        ..spec("t", 1)
    }
}

/// One node in project `t`, with a mutex.
pub fn mutex(name: &str) -> AllocationSpec {
    let mut spec = spec("t", 1);
    spec.terms.mutex = Some(name.to_owned());
    spec
}

/// An array with one node per element.
pub fn array(indices: &str) -> AllocationSpec {
    let mut spec = spec("t", 1);
    spec.terms.array = Some(indices.parse::<ArraySpec>().unwrap());
    spec
}

/// With a checkpoint mode by signal.
pub fn writes(spec: AllocationSpec) -> AllocationSpec {
    let terms = Terms {
        checkpoint: Some(CheckpointTerms {
            mode: CheckpointMode::Signal,
            trigger: CheckpointTrigger::Automatic,
            directory: None,
        }),
        ..spec.terms
    };
    AllocationSpec { terms, ..spec }
}

pub fn written(at: UnixMillis) -> CheckpointOutcome {
    CheckpointOutcome::Written {
        at,
        bytes: Some(100),
        took_ms: 10,
    }
}

pub fn not_written(at: UnixMillis) -> CheckpointOutcome {
    CheckpointOutcome::Failed {
        at,
        cause: CheckpointFailure::Declined,
        reason: "no room".to_owned(),
    }
}

/// Field and reason of an `Invalid` refusal.
pub fn fault<T: std::fmt::Debug>(result: Result<T, Refusal>) -> (String, String) {
    match result {
        Err(Refusal::Invalid { field, reason }) => (field, reason),
        other => panic!("{other:?}"),
    }
}

/// Stable code of a refusal.
pub fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> &'static str {
    result.unwrap_err().code()
}

impl Cluster {
    /// Project `t` with a limit of `nodes` nodes, and the nodes.
    pub fn with_nodes(nodes: usize) -> Self {
        let mut c = Cluster::default();
        c.create("t", Some(limits(nodes as u64))).unwrap();
        c.add_nodes(nodes);
        c
    }

    pub fn of(&self, id: AllocationId) -> &Allocation {
        self.state.allocation(id).unwrap()
    }

    pub fn state_of(&self, id: AllocationId) -> AllocationState {
        self.of(id).state
    }

    pub fn tally(&self, id: AllocationId) -> &Tally {
        self.of(id).progress.tally.as_ref().unwrap()
    }

    /// Proposes a command as the service that holds the scheduler's lease.
    pub fn service(&mut self, command: Command) -> Result<Applied, Refusal> {
        self.under("schedule.main", command)
    }

    /// Proposes a command as the service that holds this lease.
    pub fn under(&mut self, lease: &str, command: Command) -> Result<Applied, Refusal> {
        let lease = LeaseName::new(lease).unwrap();
        self.admin(Command::AcquireLease {
            lease: lease.clone(),
            holder: "c1".to_owned(),
            ttl_ms: 60_000,
        })
        .unwrap();
        let service = principal("service:c1", Privilege::Service);
        let mut envelope = envelope(self.now(), service, command);
        let epoch = self.state.lease(lease.as_str()).unwrap().0;
        envelope.fence = Some(Fence { lease, epoch });
        self.apply(envelope)
    }

    /// Proposes a command as a user.
    pub fn user(&mut self, name: &str, command: Command) -> Result<Applied, Refusal> {
        self.propose(name, Privilege::User, command)
    }

    /// Assigns one free node to an allocation or element.
    pub fn place(&mut self, id: AllocationId) -> Result<Applied, Refusal> {
        let nodes = self.free(1);
        self.service(Command::Assign { id, nodes })
    }

    /// Present versions of these nodes.
    pub fn expected(&self, nodes: &[NodeId]) -> Vec<ExpectedNode> {
        let expected = |id: &NodeId| ExpectedNode {
            node: id.clone(),
            version: self.state.node(id).unwrap().version,
            boot: None,
        };
        nodes.iter().map(expected).collect()
    }

    /// Runs an allocation on the first free nodes.
    pub fn run(&mut self, id: AllocationId) {
        let nodes = self.free(self.of(id).spec.nodes as usize);
        self.service(Command::Assign { id, nodes }).unwrap();
        self.start_all(id);
    }

    /// Submits an allocation and runs it.
    pub fn running(&mut self, spec: AllocationSpec) -> AllocationId {
        let id = self.submit(spec).unwrap();
        self.run(id);
        id
    }

    /// Runs an allocation and ends it with this exit.
    pub fn run_to(&mut self, id: AllocationId, exit: RankExit) {
        self.run(id);
        self.end_all(id, exit);
    }

    /// Reports the outcome of one rank's part of a checkpoint.
    pub fn checkpointed(
        &mut self,
        id: AllocationId,
        rank: usize,
        number: u32,
        outcome: CheckpointOutcome,
    ) -> Result<Applied, Refusal> {
        let node = self.nodes_of(id)[rank].clone();
        let of = RankCheckpoint { number, outcome };
        self.report(id, &node, RankReport::Checkpoint { of })
    }

    pub fn end_rank(&mut self, id: AllocationId, rank: usize, exit: RankExit) {
        let node = self.nodes_of(id)[rank].clone();
        let (at, fault) = (self.now(), None);
        self.report(id, &node, RankReport::Ended { at, exit, fault })
            .unwrap();
    }

    /// Restores the state from its snapshot.
    pub fn reopen(&mut self) {
        let bytes = self.state.snapshot();
        self.state = State::restore(&bytes).unwrap();
        assert_eq!(bytes, self.state.snapshot());
    }
}
