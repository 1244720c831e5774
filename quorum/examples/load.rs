//! Commands a second with 1, 16 and 64 writers and three members, each a process of its own with
//! its log on disk:
//!
//! ```text
//! cargo run --release -p lattice-quorum --example load -- [SECONDS] [WRITERS,...]
//! ```
//!
//! Prints a table on stderr and one JSON object on stdout. The members are this program again
//! (with `--member`), so that nothing else must be built. Writers submit allocations of about 300
//! bytes, each waiting for its answer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "an example for a terminal"
)]

use lattice_mesh::{
    Authority, Clock as _, Credentials, Identity, Mesh, MeshConfig, Role, SystemClock, Validity,
};
use lattice_quorum::{App, Edges, Settings};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Command, Envelope, NodeId, ProjectPath, VclusterName, VoterId,
    command::{Power, Principal, SCHEMA},
    limit::Limits,
    spec::{AllocationSpec, Constraints, Requeue, Workload},
};
use std::{
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

const CLUSTER: &str = "load";

fn credentials(authority: &Authority, role: Role, id: &str) -> Credentials {
    let identity = Identity::new(CLUSTER, role, id).unwrap();
    let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(86_400));
    Credentials::issued_by(authority, &identity, validity).unwrap()
}

/// Runs one member until it is killed.
async fn member(id: VoterId, root: &Path, addrs: &[SocketAddr]) {
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
}

struct Members(Vec<Child>);

impl Drop for Members {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn(root: &Path, authority: &Authority, addrs: &[SocketAddr]) -> Members {
    let list: Vec<_> = addrs.iter().map(ToString::to_string).collect();
    let start = |id: usize| {
        credentials(authority, Role::Quorum, &id.to_string())
            .save(&root.join(format!("credentials-{id}")))
            .unwrap();
        std::process::Command::new(std::env::current_exe().unwrap())
            .arg("--member")
            .arg(id.to_string())
            .arg(root)
            .arg(list.join(","))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    Members((1..=addrs.len()).map(start).collect())
}

fn envelope(command: Command) -> Envelope {
    Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: "alice".to_owned(),
            power: Power::Admin,
        },
        key: None,
        at: SystemClock.now(),
        fence: None,
        command,
    }
}

fn submit() -> Command {
    Command::Submit {
        spec: Box::new(AllocationSpec {
            name: Some("load".to_owned()),
            project: ProjectPath::new("atlas").unwrap(),
            vcluster: VclusterName::new("default").unwrap(),
            nodes: 1,
            workload: Workload {
                argv: vec!["/bin/sleep".to_owned(), "x".repeat(200)],
                ..Workload::default()
            },
            walltime_ms: Some(60_000),
            class: 0,
            sensitive: false,
            constraints: Constraints::default(),
            requeue: Requeue::Never,
            hold: false,
        }),
    }
}

async fn prepare(client: &QuorumClient) {
    let commands = vec![
        envelope(Command::CreateProject {
            path: ProjectPath::new("atlas").unwrap(),
            limits: Some(Limits {
                max_nodes: Some(10),
                max_concurrent_allocations: None,
            }),
            admins: Vec::new(),
            description: String::new(),
        }),
        envelope(Command::RegisterNode {
            node: NodeId::new("n1").unwrap(),
            vcluster: VclusterName::new("default").unwrap(),
        }),
    ];
    let give_up = Instant::now() + Duration::from_secs(30);
    // The members are being founded; the first answers may be that there is no leader yet.
    loop {
        match client.propose_all(commands.clone()).await {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < give_up, "{error}"),
        }
    }
}

/// The highest term any member knows: it grows with each election.
async fn term(client: &QuorumClient) -> u64 {
    let statuses = client.status().await;
    let terms = statuses.into_iter().filter_map(|(_, s)| Some(s.ok()?.term));
    terms.max().unwrap_or_default()
}

struct Row {
    writers: usize,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

async fn measure(client: &QuorumClient, writers: usize, span: Duration) -> Row {
    let started = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut waits = Vec::new();
                while started.elapsed() < span {
                    let begun = Instant::now();
                    client.propose(envelope(submit())).await.unwrap().unwrap();
                    waits.push(begun.elapsed());
                }
                waits
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.unwrap());
    }
    let took = started.elapsed().as_secs_f64();
    waits.sort();
    let at = |part: f64| {
        let index = (waits.len() as f64 * part) as usize;
        let wait = waits.get(index.min(waits.len().saturating_sub(1)));
        wait.map_or(0.0, |wait| wait.as_secs_f64() * 1000.0)
    };
    Row {
        writers,
        per_second: waits.len() as f64 / took,
        p50_ms: at(0.50),
        p99_ms: at(0.99),
    }
}

async fn run(span: Duration, counts: &[usize]) {
    let folder = tempfile::tempdir().unwrap();
    let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(86_400));
    let authority = Authority::create(CLUSTER, validity).unwrap();
    let addrs: Vec<SocketAddr> = {
        let sockets: Vec<_> = (0..3)
            .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        sockets.iter().map(|s| s.local_addr().unwrap()).collect()
    };
    let members = spawn(folder.path(), &authority, &addrs);
    let mesh = Mesh::bind(
        "127.0.0.1:0".parse().unwrap(),
        credentials(&authority, Role::Control, "c1"),
        MeshConfig::default(),
    );
    let client = QuorumClient::new(mesh.unwrap(), addrs);
    prepare(&client).await;
    eprintln!(
        "{:>8} {:>12} {:>9} {:>9}",
        "writers", "commands/s", "p50 ms", "p99 ms"
    );
    let before = term(&client).await;
    let mut rows = Vec::new();
    for writers in counts {
        let row = measure(&client, *writers, span).await;
        eprintln!(
            "{:>8} {:>12.0} {:>9.2} {:>9.2}",
            row.writers, row.per_second, row.p50_ms, row.p99_ms
        );
        rows.push(serde_json::json!({
            "writers": row.writers,
            "per_second": row.per_second,
            "p50_ms": row.p50_ms,
            "p99_ms": row.p99_ms,
        }));
    }
    let elections = term(&client).await - before;
    drop(members);
    let report = serde_json::json!({
        "members": 3,
        "seconds": span.as_secs_f64(),
        "elections": elections,
        "release": !cfg!(debug_assertions),
        "rows": rows,
    });
    println!("{report}");
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "--member") {
        let addrs: Vec<_> = args[3].split(',').map(|a| a.parse().unwrap()).collect();
        return member(args[1].parse().unwrap(), &PathBuf::from(&args[2]), &addrs).await;
    }
    let seconds: f64 = args
        .first()
        .map_or(3.0, |text| text.parse().expect("seconds"));
    let counts: Vec<usize> = args.get(1).map_or_else(
        || vec![1, 16, 64],
        |text| {
            let counts = text.split(',').map(|n| n.parse().expect("writers"));
            counts.collect()
        },
    );
    run(Duration::from_secs_f64(seconds), &counts).await;
}
