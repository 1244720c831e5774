//! Lattice side: three members as processes, and the client that services use.

use crate::{
    below,
    machine::{free_ports, spawn},
    side::{Client, MEMBERS, Processes, Side, Status},
};
use lattice_mesh::{
    Authority, Clock as _, Credentials, Mesh, MeshConfig, Role, SystemClock, Validity,
};
use lattice_quorum::{App, Edges, Settings};
use lattice_quorum_client::{ClientConfig, ClientError, QuorumClient};
use lattice_quorum_types::{
    AllocationId, Command, Envelope, NodeId, ProjectPath, VclusterName,
    command::{Principal, Privilege, SCHEMA},
    limit::Limits,
    size,
    spec::{AllocationSpec, Workload},
    view::{Answer, Query},
};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

const CLUSTER: &str = "beside";
/// Certificate id of the client that prepares the state and reads; clients that write have [`WRITER_ID`].
const STATUS_CLIENT_ID: &str = "c1";
const WRITER_ID: &str = "c2";

fn credentials(authority: &Authority, role: Role, id: &str) -> Credentials {
    let day = Duration::from_secs(86_400);
    Credentials::issued_now(authority, CLUSTER, role, id, day).unwrap()
}

/// Runs one member until it is killed or fails.
pub async fn member(id: u64, root: &Path, addrs: &[SocketAddr]) {
    let filter = std::env::var("LATTICE_LOG").unwrap_or_else(|_| "warn".to_owned());
    let below = "openraft=error,openraft::replication=off,quinn=warn";
    lattice_config::log::start(lattice_config::log::filter(below, &filter).unwrap());
    let listen = addrs[id as usize - 1];
    let settings = Settings::new(CLUSTER, id, listen, root.join(format!("data-{id}")));
    let edges = Edges {
        credentials: Credentials::load(&root.join(format!("credentials-{id}"))).unwrap(),
        authority: None,
        clock: Arc::new(SystemClock),
    };
    let mut app = App::bind(settings, edges).await.unwrap();
    app.start((1..).zip(addrs.iter().copied()).collect())
        .await
        .unwrap();
    eprintln!("member {id} ends: {}", app.failed().await);
    std::process::exit(1);
}

/// The three Lattice members.
pub struct Lattice {
    root: PathBuf,
    addrs: Vec<SocketAddr>,
    processes: Processes,
    status_client: LatticeClient,
}

impl Lattice {
    /// Prepares members that keep their data below `root`. Starts none.
    pub fn prepare(root: &Path, bytes: usize) -> Self {
        let root = below(root, "lattice");
        let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(86_400));
        let authority = Authority::create(CLUSTER, validity).unwrap();
        let save = |role, id: &str| {
            let folder = root.join(format!("credentials-{id}"));
            credentials(&authority, role, id).save(&folder).unwrap();
        };
        (1..=MEMBERS).for_each(|id| save(Role::Quorum, &id.to_string()));
        save(Role::Control, STATUS_CLIENT_ID);
        save(Role::Control, WRITER_ID);
        let addrs = free_ports(MEMBERS);
        Self {
            status_client: LatticeClient::new(&root, STATUS_CLIENT_ID, addrs.clone(), bytes),
            root,
            addrs,
            processes: Processes::default(),
        }
    }

    /// Returns the addresses of the members.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Returns the folder of the credentials and data.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Starts all members and creates the project and the node that records require.
    pub async fn start_and_prepare(&mut self) {
        (0..MEMBERS).for_each(|member| self.start(member));
        self.status_client.prepare().await;
    }

    /// Returns the number of kept allocations.
    pub async fn records(&self) -> u64 {
        match self.status_client.quorum.read(Query::Counts).await {
            Ok(Answer::Counts(counts)) => counts.iter().map(|(_, count)| count).sum(),
            other => panic!("{other:?}"),
        }
    }
}

impl Side for Lattice {
    const NAME: &'static str = "lattice";
    type Client = LatticeClient;

    fn start(&mut self, member: usize) {
        let addrs: Vec<_> = self.addrs.iter().map(ToString::to_string).collect();
        let id = (member + 1).to_string();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args(["member", "--id", &id, "--addrs", &addrs.join(","), "--root"])
            .arg(&self.root);
        let log = self.root.join(format!("member-{id}.log"));
        self.processes.put(member, spawn(&mut command, &log));
    }

    fn kill(&mut self, member: usize) {
        self.processes.kill(member);
    }

    fn pids(&self) -> Vec<u32> {
        self.processes.ids()
    }

    fn data(&self, member: usize) -> PathBuf {
        self.root.join(format!("data-{}", member + 1))
    }

    fn client(&self, _connections: usize) -> LatticeClient {
        LatticeClient::new(
            &self.root,
            WRITER_ID,
            self.addrs.clone(),
            self.status_client.bytes,
        )
    }

    async fn statuses(&self) -> [Option<Status>; MEMBERS] {
        let found = self.status_client.quorum.status().await;
        let mut found = found.into_iter().map(|(_, status)| {
            let status = status.ok()?;
            Some(Status {
                is_leader: status.leader == Some(status.id),
                has_leader: status.leader.is_some(),
                term: status.term,
                applied: status.applied_index,
            })
        });
        std::array::from_fn(|_| found.next().flatten())
    }

    async fn names(&self) -> Vec<String> {
        let (mut names, mut after) = (Vec::new(), AllocationId(0));
        loop {
            let query = Query::Allocations {
                after,
                limit: 2000,
                states: Vec::new(),
                within: None,
            };
            let Answer::Allocations(page) = self.status_client.quorum.read(query).await.unwrap()
            else {
                panic!("no allocations");
            };
            let Some(last) = page.last() else {
                return names;
            };
            after = last.id;
            names.extend(page.into_iter().filter_map(|a| a.spec.name.clone()));
        }
    }
}

/// The client that services use.
#[derive(Clone)]
pub struct LatticeClient {
    quorum: QuorumClient,
    bytes: usize,
}

impl LatticeClient {
    pub fn new(root: &Path, name: &str, addrs: Vec<SocketAddr>, bytes: usize) -> Self {
        let credentials = Credentials::load(&root.join(format!("credentials-{name}"))).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let mesh = Mesh::bind(any, credentials, MeshConfig::default()).unwrap();
        let config = ClientConfig {
            deadline: Duration::from_secs(60),
            ..ClientConfig::default()
        };
        let quorum = QuorumClient::with_config(mesh, addrs, config);
        Self { quorum, bytes }
    }

    /// Creates the client of the writer process.
    pub fn of_writer(root: &Path, addrs: Vec<SocketAddr>, bytes: usize) -> Self {
        Self::new(root, WRITER_ID, addrs, bytes)
    }

    async fn prepare(&self) {
        let limits = Limits {
            max_nodes: Some(10),
            max_concurrent_allocations: None,
        };
        let commands = vec![
            Command::CreateProject {
                path: ProjectPath::new("atlas").unwrap(),
                limits: Some(limits),
                admins: Vec::new(),
                description: String::new(),
            },
            Command::RegisterNode {
                node: NodeId::new("n1").unwrap(),
                vcluster: VclusterName::new("default").unwrap(),
            },
        ];
        self.propose_all("found", commands).await;
    }

    /// Proposes commands that must be accepted, under keys that begin with `name`. Retries for up to a minute, since
    /// the quorum may not have formed yet.
    pub async fn propose_all(&self, name: &str, commands: Vec<Command>) {
        let keyed = commands.into_iter().enumerate();
        let keyed = keyed.map(|(n, command)| envelope(Some(format!("{name}-{n}")), command));
        let (keyed, give_up) = (
            keyed.collect::<Vec<_>>(),
            Instant::now() + Duration::from_secs(60),
        );
        loop {
            match self.quorum.propose_all(keyed.clone()).await {
                Ok(replies) => return replies.into_iter().for_each(|reply| drop(reply.unwrap())),
                Err(error) => assert!(Instant::now() < give_up, "{error}"),
            }
        }
    }

    /// Proposes one command and waits for its outcome.
    pub async fn settle(&self, envelope: Envelope) -> Result<(), String> {
        match self.quorum.propose(envelope).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(refusal)) => Err(refusal.to_string()),
            Err(error @ ClientError::OutcomeUnknown { .. }) => Err(format!("unknown: {error}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the encoded size of the envelope that creates one record, bytes.
    pub fn command_bytes(bytes: usize) -> usize {
        size::encoded_bytes(&record("w63-100000".to_owned(), bytes))
    }
}

impl Client for LatticeClient {
    async fn write(&self, _writer: usize, name: String) -> Result<(), String> {
        self.settle(record(name, self.bytes)).await
    }
}

/// Creates an envelope as control does for its users.
pub fn envelope(key: Option<String>, command: Command) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "alice".to_owned(),
            privilege: Privilege::Admin,
        },
        key,
        at: SystemClock.now(),
        fence: None,
        command,
    }
}

/// Creates the envelope that submits an allocation with a command line of this number of bytes.
fn record(name: String, bytes: usize) -> Envelope {
    let spec = AllocationSpec {
        name: Some(name.clone()),
        walltime_ms: Some(60_000),
        class: 0,
        ..AllocationSpec::new(
            ProjectPath::new("atlas").unwrap(),
            VclusterName::new("default").unwrap(),
            1,
            Workload {
                argv: vec!["x".repeat(bytes)],
                ..Workload::default()
            },
        )
    };
    let spec = Box::new(spec);
    envelope(Some(name), Command::Submit { spec })
}
