//! History of a given number of allocations, applied command by command and written as a backup.

use lattice_quorum_state::{FORMAT_VERSION, SealedSegment, State};
use lattice_quorum_types::{
    AllocationId, Command, Envelope, NodeId, Outcome, ProjectPath, UnixMillis, VclusterName,
    allocation::RankExit,
    backup::{BackupHeader, BackupPart, part, part_of},
    command::{ExpectedNode, Fence, Principal, Privilege, RankReport, SCHEMA},
    id::LeaseName,
    limit::Limits,
    membership::Incarnation,
    node::Lifecycle,
    spec::{AllocationSpec, Constraints, OutputFiles, Requeue, Workload},
};
use std::{
    fs::File,
    io::{BufReader, BufWriter, Write as _},
    path::{Path, PathBuf},
};

/// Number of nodes of an allocation.
const NODES: usize = 4;
/// Number of allocations that run at the same time. Between the submission and the end of each, others are submitted.
const MAX_RUNNING: usize = 64;
/// Number of users.
const USERS: u64 = 300;
/// Number of projects.
const PROJECTS: u64 = 60;
/// Time between two submissions, milliseconds: a million submissions per year.
const SUBMIT_INTERVAL_MS: u64 = 31_536;
const START: UnixMillis = UnixMillis(1_760_000_000_000);

const CONTROL: &str = "service:control/c1";

pub struct GeneratedHistory {
    pub backup: PathBuf,
    pub commands: u64,
}

fn lease() -> LeaseName {
    LeaseName::new("schedule.main").unwrap()
}

fn project(n: u64) -> ProjectPath {
    ProjectPath::new(format!("atlas/physics/group-{:02}", n % PROJECTS)).unwrap()
}

/// Creates a typical submission of about 600 bytes.
pub fn submit(n: u64) -> Command {
    let env = [
        ("OMP_NUM_THREADS", "16"),
        ("NCCL_SOCKET_IFNAME", "bond0"),
        ("DATASET", "/scratch/atlas/run3/derivations/period-b"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let spec = AllocationSpec {
        name: Some(format!("fit-{}", n % 5000)),
        project: project(n),
        vcluster: VclusterName::new("main").unwrap(),
        nodes: NODES as u32,
        workload: Workload {
            argv: vec![],
            script: Some(format!(
                "#!/bin/bash\nset -eu\nmodule load cuda/12.8 openmpi/5\n\
                 srun --mpi=pmix ./fit --config configs/fit-{n}.yaml --seed {n} --out results/{n}\n"
            )),
            env: env.into(),
            working_dir: Some("/home/users/atlas/fits".to_owned()),
            output: OutputFiles {
                stdout: Some("logs/%j-%r.out".to_owned()),
                stderr: None,
            },
        },
        walltime_ms: Some(4 * 3_600_000),
        class: 5,
        sensitive: false,
        constraints: Constraints {
            gpu_models: vec!["H100".to_owned()],
            gpus_per_node: Some(8),
            ..Constraints::default()
        },
        requeue: Requeue::Once,
        hold: false,
        demand: Default::default(),
        terms: Default::default(),
    };
    Command::Submit {
        spec: Box::new(spec),
    }
}

struct Writer {
    state: State,
    index: u64,
    clock: UnixMillis,
    segments: BufWriter<File>,
    parts: Vec<BackupPart>,
}

impl Writer {
    fn apply(&mut self, name: &str, power: Privilege, command: Command) -> Outcome {
        self.index += 1;
        let envelope = Envelope {
            schema: SCHEMA,
            principal: Principal {
                name: name.to_owned(),
                privilege: power,
            },
            key: None,
            at: self.clock,
            // Service commands carry the fence of the lease, as those of control do. An assignment by an operator would
            // add an audit entry.
            fence: (power == Privilege::Service && self.index > 1).then(|| Fence {
                lease: lease(),
                epoch: 1,
            }),
            command,
        };
        let outcome = self.state.apply(self.index, &envelope).unwrap().outcome;
        for SealedSegment { id, bytes } in self.state.take_sealed() {
            self.segments.write_all(&bytes).unwrap();
            let part = part_of(id.to_string(), bytes.len() as u64, id.digest);
            self.parts.push(part);
        }
        outcome
    }

    fn create_projects_and_nodes(&mut self) -> Vec<NodeId> {
        let acquire = Command::AcquireLease {
            lease: lease(),
            holder: "c1".to_owned(),
            ttl_ms: 60_000,
        };
        self.apply(CONTROL, Privilege::Service, acquire);
        let unlimited = Limits {
            max_nodes: Some(10_000),
            max_concurrent_allocations: None,
        };
        let paths = ["atlas", "atlas/physics"].map(|path| ProjectPath::new(path).unwrap());
        for path in paths.into_iter().chain((0..PROJECTS).map(project)) {
            let nodes = match path.depth() {
                3 => 10_000 / PROJECTS,
                _ => 10_000,
            };
            let limits = Some(Limits {
                max_nodes: Some(nodes),
                ..unlimited
            });
            let (admins, description) = (Vec::new(), String::new());
            let create = Command::CreateProject {
                path,
                limits,
                admins,
                description,
            };
            self.apply("root", Privilege::Admin, create);
        }
        let nodes = (1..=MAX_RUNNING * NODES).map(|n| NodeId::new(format!("gpu{n:04}")).unwrap());
        let nodes: Vec<NodeId> = nodes.collect();
        for node in &nodes {
            let vcluster = VclusterName::new("main").unwrap();
            let (node, lifecycle) = (node.clone(), Lifecycle::Ready);
            let register = Command::RegisterNode {
                node: node.clone(),
                vcluster,
            };
            self.apply("root", Privilege::Admin, register);
            self.apply(
                "root",
                Privilege::Admin,
                Command::SetLifecycle { node, lifecycle },
            );
        }
        nodes
    }

    fn begin(&mut self, n: u64, nodes: &[NodeId]) -> AllocationId {
        let user = format!("user-{:03}", n % USERS);
        let Outcome::Submitted { id } = self.apply(&user, Privilege::User, submit(n)) else {
            panic!("a submit")
        };
        let expected = nodes.iter().map(|node| ExpectedNode {
            node: node.clone(),
            version: self.state.node(node).unwrap().version,
            boot: Some("0f3f7f0e-6a0c-4a53-9d2b-6f0f4d1c2b3a".to_owned()),
        });
        let nodes = expected.collect();
        self.apply(CONTROL, Privilege::Service, Command::Assign { id, nodes });
        id
    }

    fn end(&mut self, id: AllocationId, nodes: &[NodeId]) {
        let code = i32::from(id.0.is_multiple_of(11));
        for node in nodes {
            let at = self.clock;
            let exit = RankExit::Exited { code };
            let report = Command::Report {
                id,
                attempt: 1,
                node: node.clone(),
                report: RankReport::Ended {
                    at,
                    exit,
                    fault: None,
                },
            };
            self.apply(CONTROL, Privilege::Service, report);
        }
    }
}

/// Writes the backup of a cluster in which `count` allocations have ended.
pub fn write(backup: &Path, count: u64) -> GeneratedHistory {
    let segments = backup.with_extension("segments");
    let mut writer = Writer {
        state: State::new(),
        index: 0,
        clock: START,
        segments: BufWriter::new(File::create(&segments).unwrap()),
        parts: Vec::new(),
    };
    let nodes = writer.create_projects_and_nodes();
    let places: Vec<&[NodeId]> = nodes.chunks(NODES).collect();
    let mut running: Vec<Option<AllocationId>> = vec![None; MAX_RUNNING];
    for n in 0..count + MAX_RUNNING as u64 {
        // Uses all places in turn, in a fixed permuted order.
        let place = (n as usize * 37) % MAX_RUNNING;
        if let Some(id) = running[place].take() {
            writer.end(id, places[place]);
        }
        if n < count {
            running[place] = Some(writer.begin(n, places[place]));
        }
        writer.clock = writer.clock.after(SUBMIT_INTERVAL_MS);
    }
    writer.segments.flush().unwrap();
    let Writer {
        state,
        mut parts,
        index,
        ..
    } = writer;
    let bytes = state.snapshot();
    println!(
        "the state has {:.1} MiB, plus {} segments",
        super::mib(bytes.len() as u64),
        parts.len()
    );
    parts.push(part("state", &bytes));
    let (at, revision) = state.time_and_revision();
    let header = BackupHeader {
        cluster: super::CLUSTER.to_owned(),
        incarnation: Incarnation::FIRST,
        revision,
        at,
        term: 1,
        led_by: 1,
        index,
        audit_number: state.audit_number(),
        members: Vec::new(),
        written_at: at,
        written_by: 1,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        state_format: FORMAT_VERSION,
        parts,
    };
    let mut file = BufWriter::new(File::create(backup).unwrap());
    file.write_all(&header.encode()).unwrap();
    let mut copied = BufReader::new(File::open(&segments).unwrap());
    std::io::copy(&mut copied, &mut file).unwrap();
    file.write_all(&bytes).unwrap();
    file.flush().unwrap();
    std::fs::remove_file(segments).unwrap();
    GeneratedHistory {
        backup: backup.to_owned(),
        commands: index,
    }
}
