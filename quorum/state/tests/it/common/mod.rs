//! A cluster of one state machine, driven as a leader would.

pub mod dependencies;
pub mod preemption;

use lattice_quorum_state::State;
use lattice_quorum_types::{
    AllocationId, Applied, Command, Envelope, NodeId, Outcome, ProjectPath, Refusal, UnixMillis,
    VclusterName,
    allocation::RankExit,
    attestation::{Attestation, Proof},
    command::{AttestedNode, ExpectedNode, Fence, Principal, Privilege, RankReport, SCHEMA},
    id::LeaseName,
    limit::Limits,
    node::Lifecycle,
    spec::{AllocationSpec, Workload},
};

/// Number of random cases of a property: `usual`, times `LATTICE_CASES_FACTOR` (1 without it).
#[expect(
    clippy::disallowed_methods,
    reason = "the number of cases comes from outside"
)]
pub fn cases(usual: u32) -> u32 {
    let factor = std::env::var("LATTICE_CASES_FACTOR").map_or(1, |text| {
        text.parse().expect("LATTICE_CASES_FACTOR is a number")
    });
    usual.saturating_mul(factor)
}

pub const START: UnixMillis = UnixMillis(1_700_000_000_000);

pub fn path(text: &str) -> ProjectPath {
    ProjectPath::new(text).unwrap()
}

pub fn node(text: &str) -> NodeId {
    NodeId::new(text).unwrap()
}

pub fn limits(nodes: u64) -> Limits {
    Limits {
        max_nodes: Some(nodes),
        max_concurrent_allocations: None,
    }
}

pub fn principal(name: &str, power: Privilege) -> Principal {
    Principal {
        name: name.to_owned(),
        privilege: power,
    }
}

pub fn envelope(at: UnixMillis, principal: Principal, command: Command) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal,
        key: None,
        at,
        fence: None,
        command,
    }
}

pub fn spec(project: &str, nodes: u32) -> AllocationSpec {
    AllocationSpec::new(
        path(project),
        VclusterName::new("main").unwrap(),
        nodes,
        Workload {
            argv: vec!["true".to_owned()],
            ..Workload::default()
        },
    )
}

/// A state machine, with the log position and clock of its leader.
#[derive(Clone, Default)]
pub struct Cluster {
    pub state: State,
    pub index: u64,
    pub clock: u64,
    /// Everything proposed, refused commands too: a log that can be replayed.
    pub log: Vec<Envelope>,
}

impl Cluster {
    pub fn now(&self) -> UnixMillis {
        START.after(self.clock)
    }

    pub fn apply(&mut self, envelope: Envelope) -> Result<Applied, Refusal> {
        self.index += 1;
        let checked = self.state.check(&envelope);
        let applied = self.state.apply(self.index, &envelope);
        assert_eq!(
            checked,
            applied.as_ref().map(|_| ()).map_err(Clone::clone),
            "one rule"
        );
        self.log.push(envelope);
        applied
    }

    pub fn propose(
        &mut self,
        name: &str,
        power: Privilege,
        command: Command,
    ) -> Result<Applied, Refusal> {
        self.apply(envelope(self.now(), principal(name, power), command))
    }

    pub fn admin(&mut self, command: Command) -> Result<Applied, Refusal> {
        self.propose("root", Privilege::Admin, command)
    }

    pub fn create(&mut self, project: &str, limits: Option<Limits>) -> Result<Applied, Refusal> {
        let admins = vec![format!("admin-{}", path(project).name())];
        let description = String::new();
        self.admin(Command::CreateProject {
            path: path(project),
            limits,
            admins,
            description,
        })
    }

    /// Registers `n000`, `n001`, ... and makes them ready.
    pub fn add_nodes(&mut self, count: usize) {
        let from = self.state.nodes().count();
        for i in from..from + count {
            let (node, vcluster) = (
                node(&format!("n{i:03}")),
                VclusterName::new("main").unwrap(),
            );
            self.admin(Command::RegisterNode {
                node: node.clone(),
                vcluster,
            })
            .unwrap();
            self.admin(Command::SetLifecycle {
                node,
                lifecycle: Lifecycle::Ready,
            })
            .unwrap();
        }
    }

    pub fn submit(&mut self, spec: AllocationSpec) -> Result<AllocationId, Refusal> {
        let command = Command::Submit {
            spec: Box::new(spec),
        };
        match self.propose("alice", Privilege::User, command)?.outcome {
            Outcome::Submitted { id } => Ok(id),
            other => panic!("a submit gave {other:?}"),
        }
    }

    /// The first free nodes, at their present versions.
    pub fn free(&self, count: usize) -> Vec<ExpectedNode> {
        let free = self
            .state
            .nodes()
            .filter(|node| node.is_assignable())
            .take(count);
        free.map(|n| ExpectedNode {
            node: n.id.clone(),
            version: n.version,
            boot: None,
        })
        .collect()
    }

    /// Assigns the first free nodes; adds nodes when too few are free.
    pub fn assign(&mut self, id: AllocationId) -> Result<Applied, Refusal> {
        let wanted = self
            .state
            .allocation(id)
            .map_or(0, |a| a.spec.nodes as usize);
        let missing = wanted.saturating_sub(self.free(wanted).len());
        self.add_nodes(missing);
        let nodes = self.free(wanted);
        self.admin(Command::Assign { id, nodes })
    }

    /// Submits a sensitive allocation of alice, and adds as many nodes.
    pub fn sensitive_work(&mut self, project: &str, nodes: u32) -> AllocationId {
        let mut spec = spec(project, nodes);
        spec.sensitive = true;
        self.add_nodes(nodes as usize);
        self.submit(spec).unwrap()
    }

    /// Assigns the allocation as a service, with attestations to which no baseline applies.
    pub fn assign_sensitive(&mut self, id: AllocationId) {
        let wanted = self.state.allocation(id).unwrap().spec.nodes as usize;
        let nodes = self.free(wanted).into_iter().map(|expected| {
            let attestation = Attestation {
                node: expected.node.clone(),
                boot_id: "b1".to_owned(),
                cohort: None,
                classes: Default::default(),
                read_at: self.now(),
                nonce: [0; 16],
            };
            AttestedNode {
                expected: ExpectedNode {
                    boot: Some("b1".to_owned()),
                    ..expected
                },
                proof: Proof {
                    attestation,
                    signature: Default::default(),
                    completed: Default::default(),
                    conforms: Default::default(),
                },
            }
        });
        let nodes = nodes.collect();
        self.as_scheduler(Command::AssignSensitive { id, nodes });
    }

    /// Proposes a command as the service that holds the scheduler lease.
    pub fn as_scheduler(&mut self, command: Command) -> Applied {
        let schedule = LeaseName::new("schedule.main").unwrap();
        self.admin(Command::AcquireLease {
            lease: schedule.clone(),
            holder: "c1".to_owned(),
            ttl_ms: 60_000,
        })
        .unwrap();
        let service = principal("service:c1", Privilege::Service);
        let mut envelope = envelope(self.now(), service, command);
        envelope.fence = Some(Fence {
            epoch: self.state.lease(schedule.as_str()).unwrap().0,
            lease: schedule,
        });
        self.apply(envelope).unwrap()
    }

    pub fn report(
        &mut self,
        id: AllocationId,
        node: &NodeId,
        report: RankReport,
    ) -> Result<Applied, Refusal> {
        let attempt = self.state.allocation(id).map_or(0, |a| a.attempt);
        let command = Command::Report {
            id,
            attempt,
            node: node.clone(),
            report,
        };
        self.propose("service:control/c1", Privilege::Service, command)
    }

    pub fn start_all(&mut self, id: AllocationId) {
        for node in self.nodes_of(id) {
            self.report(id, &node, RankReport::Started { at: self.now() })
                .unwrap();
        }
    }

    pub fn end_all(&mut self, id: AllocationId, exit: RankExit) {
        for node in self.nodes_of(id) {
            let report = RankReport::Ended {
                at: self.now(),
                exit: exit.clone(),
                fault: None,
            };
            self.report(id, &node, report).unwrap();
        }
    }

    pub fn nodes_of(&self, id: AllocationId) -> Vec<NodeId> {
        self.state
            .allocation(id)
            .unwrap()
            .nodes()
            .cloned()
            .collect()
    }
}
