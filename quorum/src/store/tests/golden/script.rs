//! The commands behind the golden data directory: a small cluster in which each kind of record exists.
#![expect(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use lattice_quorum_state::{Policy, SegmentLimits, State};
use lattice_quorum_types::{
    AllocationId, Command, Envelope, NodeId, Outcome, ProjectPath, UnixMillis, VclusterName,
    allocation::RankExit,
    array::ArraySpec,
    attestation::{Attestation, ClassAttestation, Proof},
    baseline::{self, BaselineDefinition, ClassRule, Constraint, Rule, Scalar, SensitivePolicy},
    budget::{Credit, RemainingCredit, SoftPatch},
    checkpoint::{CheckpointMode, CheckpointOutcome},
    command::{
        AttestedNode, ExpectedNode, Fence, IssuedCertificate, Principal, Privilege, RankReport,
        SCHEMA, TokenGrant, Victim,
    },
    dag::{DagSpec, Edge, MemberSpec},
    id::{BaselineName, LeaseName},
    limit::{LimitPatch, Limits},
    node::Lifecycle,
    progress::{MoveReason, RankCheckpoint},
    reservation::ReservationSpec,
    rpc::Role,
    scheduler::{
        CheckpointPatch, PartsPerMillion, PlannedReservations, PreemptionPatch, ScalingPatch,
        SchedulerPatch, SettingPatch, SharingPatch, WeightPatch, WorkloadKind,
    },
    spec::{AllocationSpec, Workload},
    terms::{CheckpointTerms, CheckpointTrigger, Condition, Dependency},
    vcluster::VclusterPatch,
    view::{Answer, Query},
};

const START: UnixMillis = UnixMillis(1_800_000_000_000);
const BOOT: &str = "b1";

/// Groups of four rows, so that a few records make segments.
pub(super) const BOUNDS: SegmentLimits = SegmentLimits {
    rows: 4,
    bytes: 1 << 20,
};

/// Settings from every group, of every type.
fn night_settings() -> SchedulerPatch {
    SchedulerPatch {
        kind: SettingPatch::Set(WorkloadKind::MlTraining),
        weights: WeightPatch {
            topology: SettingPatch::Set(PartsPerMillion(250_000)),
            energy: SettingPatch::Clear,
            ..WeightPatch::default()
        },
        reference_wait_ms: SettingPatch::Set(7_200_000),
        reservations: SettingPatch::Set(PlannedReservations::First(50)),
        checkpoint_bytes_s: SettingPatch::Set(200_000_000_000),
        preemption: PreemptionPatch {
            enabled: SettingPatch::Set(true),
            max_victims: SettingPatch::Set(2),
            ..PreemptionPatch::default()
        },
        sharing: SharingPatch {
            allow_lending: SettingPatch::Set(false),
            borrowing_limit: SettingPatch::Set(4),
            ..SharingPatch::default()
        },
        checkpoint: CheckpointPatch {
            timeout_ms: SettingPatch::Set(300_000),
            max_deferrals: SettingPatch::Set(1),
            ..CheckpointPatch::default()
        },
        scaling: ScalingPatch {
            threshold: SettingPatch::Set(PartsPerMillion(800_000)),
            cooldown_ms: SettingPatch::Set(60_000),
            ..ScalingPatch::default()
        },
    }
}

struct Script {
    state: State,
    log: Vec<Envelope>,
}

/// Every command of the golden directory, in order. All are accepted.
pub(super) fn commands() -> Vec<Envelope> {
    let mut script = Script {
        state: State::with_bounds(Policy::default(), BOUNDS),
        log: Vec::new(),
    };
    script.found();
    script.trust();
    script.define();
    script.end_work();
    script.leave_work();
    script.account();
    script.log
}

fn path(text: &str) -> ProjectPath {
    ProjectPath::new(text).unwrap()
}

fn vcluster(name: &str) -> VclusterName {
    VclusterName::new(name).unwrap()
}

fn node(n: usize) -> NodeId {
    NodeId::new(format!("n{n:02}")).unwrap()
}

fn limits(nodes: u64) -> Limits {
    Limits {
        max_nodes: Some(nodes),
        max_concurrent_allocations: None,
    }
}

fn spec(nodes: u32) -> AllocationSpec {
    let workload = Workload {
        argv: vec!["./fit".to_owned(), "--all".to_owned()],
        ..Workload::default()
    };
    AllocationSpec {
        name: Some("fit".to_owned()),
        walltime_ms: Some(3_600_000),
        ..AllocationSpec::new(path("ocean/waves"), vcluster("main"), nodes, workload)
    }
}

fn writes_checkpoints(mut spec: AllocationSpec) -> AllocationSpec {
    spec.terms.checkpoint = Some(CheckpointTerms {
        mode: CheckpointMode::Signal,
        trigger: CheckpointTrigger::Automatic,
        directory: None,
    });
    spec
}

impl Script {
    fn now(&self) -> UnixMillis {
        START.after(1_000 * self.log.len() as u64)
    }

    fn propose(&mut self, name: &str, power: Privilege, command: Command) -> Outcome {
        let fence = (power == Privilege::Service).then(|| {
            let lease = LeaseName::new("schedule.main").unwrap();
            let epoch = self.state.lease(lease.as_str()).unwrap().0;
            Fence { lease, epoch }
        });
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: name.to_owned(),
                privilege: power,
            },
            key: Some(format!("key-{}", self.log.len())),
            at: self.now(),
            fence,
            command,
        };
        let index = self.log.len() as u64 / super::BATCH as u64 + 1;
        let applied = self.state.apply(index, &envelope);
        let applied = applied.unwrap_or_else(|refusal| panic!("{refusal}: {envelope:?}"));
        self.log.push(envelope);
        applied.outcome
    }

    fn admin(&mut self, command: Command) -> Outcome {
        self.propose("root", Privilege::Admin, command)
    }

    fn user(&mut self, command: Command) -> Outcome {
        self.propose("alice", Privilege::User, command)
    }

    fn service(&mut self, command: Command) -> Outcome {
        self.propose("service:control/c1", Privilege::Service, command)
    }

    fn expected(&self, nodes: &[usize]) -> Vec<ExpectedNode> {
        let expected = |n: &usize| ExpectedNode {
            node: node(*n),
            version: self.state.node(&node(*n)).unwrap().version,
            boot: Some(BOOT.to_owned()),
        };
        nodes.iter().map(expected).collect()
    }

    fn proven(&self, nodes: &[usize]) -> Vec<AttestedNode> {
        let proven = |expected: ExpectedNode| AttestedNode {
            proof: Proof {
                attestation: Attestation {
                    node: expected.node.clone(),
                    boot_id: BOOT.to_owned(),
                    cohort: Some(Default::default()),
                    classes: [("gpu".to_owned(), ClassAttestation::of_schema(1, [7; 32]))].into(),
                    read_at: self.now(),
                    nonce: [0; 16],
                },
                signature: Bytes::new(),
                completed: Default::default(),
                conforms: Default::default(),
            },
            expected,
        };
        self.expected(nodes).into_iter().map(proven).collect()
    }

    fn submit(&mut self, spec: AllocationSpec) -> AllocationId {
        let spec = Box::new(spec);
        match self.user(Command::Submit { spec }) {
            Outcome::Submitted { id } => id,
            other => panic!("{other:?}"),
        }
    }

    fn assign(&mut self, id: AllocationId, nodes: &[usize]) {
        let nodes = self.expected(nodes);
        self.service(Command::Assign { id, nodes });
    }

    fn report(&mut self, id: AllocationId, report: impl Fn(UnixMillis) -> RankReport) {
        let record = self.state.allocation(id).unwrap().clone();
        for node in record.nodes().cloned() {
            let attempt = record.attempt;
            let report = report(self.now());
            self.service(Command::Report {
                id,
                attempt,
                node,
                report,
            });
        }
    }

    fn start(&mut self, id: AllocationId, nodes: &[usize]) {
        self.assign(id, nodes);
        self.report(id, |at| RankReport::Started { at });
    }

    fn end(&mut self, id: AllocationId, code: i32) {
        self.report(id, |at| RankReport::Ended {
            at,
            exit: RankExit::Exited { code },
            fault: None,
        });
    }

    fn found(&mut self) {
        for (at, nodes) in [("ocean", 12), ("ocean/waves", 10), ("ice", 2)] {
            self.admin(Command::CreateProject {
                path: path(at),
                limits: Some(limits(nodes)),
                admins: vec!["ada".to_owned()],
                description: "golden".to_owned(),
            });
        }
        for n in 0..14 {
            let (node, vcluster) = (node(n), vcluster("main"));
            self.admin(Command::RegisterNode {
                node: node.clone(),
                vcluster,
            });
            let lifecycle = Lifecycle::Ready;
            self.admin(Command::SetLifecycle { node, lifecycle });
        }
        self.admin(Command::AcquireLease {
            lease: LeaseName::new("schedule.main").unwrap(),
            holder: "c1".to_owned(),
            ttl_ms: 60_000,
        });
    }

    fn trust(&mut self) {
        let grant = TokenGrant {
            hash: "a1".repeat(32),
            role: Role::Agent,
            names: None,
            cidrs: Vec::new(),
            uses: 3,
            replace: false,
            expires_at: START.after(3_600_000),
        };
        let hash = grant.hash.clone();
        self.admin(Command::CreateToken { grant });
        let issued_at = UnixMillis(self.now().0.div_ceil(1_000) * 1_000);
        self.admin(Command::ConsumeToken {
            hash,
            name: "n20".to_owned(),
            role: Role::Agent,
            from: None,
            replace: false,
            certificate: IssuedCertificate {
                issued_at,
                expires_at: issued_at.after(3_600_000),
            },
        });
        self.admin(Command::RevokeCertificates {
            name: "n01".to_owned(),
            role: Role::Agent,
            reason: "stolen".to_owned(),
        });
    }

    fn define(&mut self) {
        let change = VclusterPatch {
            description: Some("for nights".to_owned()),
            ..VclusterPatch::default()
        };
        self.admin(Command::SetScheduler {
            vcluster: vcluster("night"),
            change: Box::new(change),
            settings: Box::new(night_settings()),
            expected_version: None,
        });
        let constraint = Constraint {
            key: "nic.*.firmware".to_owned(),
            any_of: vec![Scalar::Text("28.41".to_owned())],
            or_absent: false,
        };
        let rule = ClassRule {
            policy: baseline::DriftPolicy::Warn,
            sensitive: SensitivePolicy::Strict,
            rule: Rule::Partial {
                constraints: vec![constraint],
            },
        };
        let definition = BaselineDefinition {
            nodes: "n[10-11]".to_owned(),
            classes: [("nic".to_owned(), rule)].into(),
            ..BaselineDefinition::default()
        };
        self.admin(Command::SetBaseline {
            name: BaselineName::new("h100").unwrap(),
            definition: Box::new(definition),
            expected_version: None,
        });
        self.service(Command::HoldBrake {
            reason: "cooling".to_owned(),
        });
        self.admin(Command::Drain {
            node: node(13),
            reason: Some("fan".to_owned()),
            expected: None,
        });
        self.admin(Command::SetReservation {
            name: "course".parse().unwrap(),
            spec: Box::new(ReservationSpec {
                nodes: [node(12)].into(),
                from: START.after(86_400_000),
                until: Some(START.after(2 * 86_400_000)),
                users: ["bob".to_owned()].into(),
                projects: Default::default(),
                reason: "a course".to_owned(),
            }),
            expected: None,
        });
    }

    /// Ended allocations, enough for sealed segments of each table.
    fn end_work(&mut self) {
        for code in [0, 1, 0, 0, 2, 0, 0, 0, 1] {
            let id = self.submit(spec(2));
            self.start(id, &[0, 1]);
            self.end(id, code);
        }
        for n in 0..9 {
            let member = |name: &str, after: Vec<Edge>| MemberSpec {
                name: name.to_owned(),
                spec: spec(1),
                after,
            };
            let edge = Edge {
                member: "make".to_owned(),
                condition: Condition::Success,
            };
            let dag = DagSpec {
                name: format!("night-{n}"),
                members: vec![member("make", Vec::new()), member("check", vec![edge])],
            };
            let outcome = self.user(Command::SubmitDag { dag: Box::new(dag) });
            let Outcome::DagSubmitted { id } = outcome else {
                panic!("{outcome:?}")
            };
            if n < 8 {
                self.user(Command::CancelDag { id });
            }
        }
        // A claimed node, and a released node that awaits its wipe.
        let project = path("ocean/waves");
        let nodes = self.proven(&[8, 9]);
        self.user(Command::ClaimNodes {
            project,
            nodes,
            purpose: "genomes".to_owned(),
        });
        self.user(Command::ReleaseNodes {
            nodes: vec![node(9)],
            reason: None,
        });
    }

    /// Allocations in each state that survives a restart.
    fn leave_work(&mut self) {
        let running = self.submit(spec(2));
        self.start(running, &[0, 1]);

        let checkpointed = self.submit(writes_checkpoints(spec(1)));
        self.start(checkpointed, &[2]);
        let order = |id| Command::WriteCheckpoint {
            id,
            directory: "/scratch/ocean".to_owned(),
            timeout_ms: 60_000,
        };
        self.user(order(checkpointed));
        self.report(checkpointed, |at| RankReport::Checkpoint {
            of: RankCheckpoint {
                number: 1,
                outcome: CheckpointOutcome::Written {
                    at,
                    bytes: Some(4_096),
                    took_ms: 20,
                },
            },
        });
        let writing = self.submit(writes_checkpoints(spec(1)));
        self.start(writing, &[3]);
        self.user(order(writing));

        let mut array = spec(1);
        array.terms.array = Some("1-9%3".parse::<ArraySpec>().unwrap());
        let array = self.submit(array);
        let element = |place| AllocationId(array.0 + 1 + place);
        self.start(element(0), &[4]);
        self.end(element(0), 0);
        self.start(element(1), &[4]);
        self.user(Command::Cancel { id: element(8) });

        let mut after = spec(1);
        after.terms.after = vec![Dependency {
            on: running,
            condition: Condition::Success,
        }];
        self.submit(after);
        let held = self.submit(spec(1));
        self.user(Command::Hold { id: held });
        let mut mutex = spec(1);
        mutex.terms.mutex = Some("results".to_owned());
        self.submit(mutex.clone());
        self.submit(mutex);

        let victim = self.submit(AllocationSpec {
            class: 1,
            ..spec(1)
        });
        self.start(victim, &[5]);
        let urgent = self.submit(AllocationSpec {
            class: 9,
            ..spec(1)
        });
        let attempt = self.state.allocation(victim).unwrap().attempt;
        self.service(Command::Preempt {
            id: urgent,
            nodes: vec![node(5)],
            victims: vec![Victim {
                id: victim,
                attempt,
                checkpoint: None,
            }],
        });
        self.service(Command::MakeRoom {
            victim: Victim {
                id: checkpointed,
                attempt: 1,
                checkpoint: None,
            },
            reason: MoveReason::Asked {
                by: "ada".to_owned(),
            },
        });
        let version = self.state.node(&node(6)).unwrap().version;
        self.admin(Command::SetVcluster {
            vcluster: vcluster("night"),
            change: Box::default(),
            expected_version: None,
        });
        self.service(Command::LendNode {
            node: node(6),
            to: vcluster("night"),
            version,
        });
    }

    fn account(&mut self) {
        self.propose(
            "waldur",
            Privilege::Accounting,
            Command::UpdateTenant {
                tenant: path("ocean"),
                limits: LimitPatch::default(),
                soft: SoftPatch::default(),
                force: false,
            },
        );
        let credit = Credit {
            asked_at: self.now(),
            valid_until: self.now().after(86_400_000),
            gpu: Some(RemainingCredit {
                limit_ms: 100,
                left_ms: 40,
            }),
            node: None,
            downscaled: true,
            paused: Vec::new(),
        };
        let credits = [(path("ocean"), credit)].into();
        self.service(Command::NoteCredits { credits });
        let through = match self.state.query(&Query::OpenUses) {
            Answer::OpenUses(_, head) => head.last,
            other => panic!("{other:?}"),
        };
        self.service(Command::AcknowledgeUsage {
            through: through - 2,
            dropped: 1,
        });
    }
}
