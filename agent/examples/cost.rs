//! Cost of one agent: a separate process that probes this machine, in a cell with other members.
//!
//! `cargo run --profile dist -p lattice-agent --example cost -- [members] [seconds]`
//!
//! The other members run in this process; a control among them starts one rank per minute. Memory and processor time
//! come from the kernel (`/proc/<pid>`). The bytes are those of gossip itself, as the agent counts them.

use anyhow::Context as _;
use lattice_agent_rpc::{AttemptKey, Launch, Ping, Report, ReportAnswer};
use lattice_gossip::{Boot, Cell, CellConfig, Gossip, Health, Load, PublishedState, Seed, Verdict};
use lattice_mesh::{
    Authority, Clock as _, Credentials, ExpectedIdentity, Identity, Mesh, MeshConfig, Role, Router,
    SystemClock, Validity,
};
use lattice_quorum_types::spec::Workload;
use lattice_quorum_types::{AllocationId, NodeId, Revision};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CLUSTER: &str = "cost";
const CELL: &str = "c0";
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const DEADLINE: Duration = Duration::from_secs(5);

fn credentials(authority: &Authority, role: Role, id: &str) -> anyhow::Result<Credentials> {
    let day = Duration::from_secs(24 * 3600);
    Ok(Credentials::issued_now(authority, CLUSTER, role, id, day)?)
}

/// Published state of a node with nine classes.
fn published(n: usize) -> PublishedState {
    let mark = |class: &str| (class.to_owned(), format!("1:{}", "5f".repeat(32)));
    let classes = [
        "gpu", "nic", "bios", "bmc", "kernel", "cpu", "memory", "storage", "software",
    ];
    PublishedState {
        fingerprints: classes.map(mark).into(),
        identity: Some(format!("{n:064x}")),
        health: Some(Health {
            verdict: Verdict::Healthy,
            reasons: Vec::new(),
        }),
        load: Some(Load {
            running: 1,
            load1_hundredths: 100,
        }),
        power: None,
        boot: Some(Boot {
            boot_id: "5a0c1d1e-3d5f-4a27-9b1c-2f0f4c7d8e9a".to_owned(),
            incarnation: 1,
        }),
        version: Some("0.1.0".to_owned()),
        group: Some("g0".to_owned()),
        history: None,
        grace_ms: Some(30_000),
        https: None,
        keep_output_s: Some(604_800),
    }
}

struct GossipMember {
    mesh: Mesh,
    cell: Cell,
}

/// Starts a gossip member with the published state of a node; the first member is a control.
async fn start_member(
    authority: &Authority,
    n: usize,
    seed: Option<SocketAddr>,
) -> anyhow::Result<GossipMember> {
    let role = if n == 0 { Role::Control } else { Role::Agent };
    let credentials = credentials(authority, role, &format!("m{n}"))?;
    let mesh = Mesh::bind(LOOPBACK, credentials, MeshConfig::default())?;
    let gossip = Gossip::new();
    let router =
        Router::new().rpc::<Report, _, _>(|_, _| async { Ok(Ok(ReportAnswer::Committed)) });
    mesh.serve(gossip.route(router))?;
    let mut config = CellConfig::new(CELL.parse()?, SystemClock.now().0);
    let role = Role::Control;
    config.seeds = seed.map(|addr| Seed { addr, role }).into_iter().collect();
    let cell = gossip.join(&mesh, config, &published(n)).await?;
    Ok(GossipMember { mesh, cell })
}

/// Path of the agent's binary, in the parent of this example's folder.
fn program() -> anyhow::Result<std::path::PathBuf> {
    let example = std::env::current_exe()?;
    let built = example
        .parent()
        .and_then(Path::parent)
        .context("no build folder")?;
    Ok(built.join("lattice-agent"))
}

fn start_agent(authority: &Authority, folder: &Path, control: SocketAddr) -> anyhow::Result<Child> {
    let data = folder.join("data");
    credentials(authority, Role::Agent, "measured")?.save(&data.join("identity"))?;
    let config = folder.join("agent.yaml");
    let root = rustix::process::geteuid().is_root();
    let run_as = if root {
        "run_as: {uid: 65534, gid: 65534}, working_dir: /, "
    } else {
        ""
    };
    std::fs::write(
        &config,
        format!(
            "node: measured\nlisten: 127.0.0.1:0\ndata_dir: {}\ncontrol: ['{control}']\n\
             gossip: {{cell: {CELL}}}\nexecutor: {{{run_as}allow_same_user: true}}\n",
            data.display()
        ),
    )?;
    let program = program()?;
    Command::new(&program)
        .arg("--config")
        .arg(&config)
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("{}; build it first", program.display()))
}

#[derive(Clone, Copy)]
struct Usage {
    resident_kib: u64,
    anonymous_kib: u64,
    cpu: Duration,
}

fn usage(pid: u32) -> anyhow::Result<Usage> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let kib = |name: &str| {
        let lines = rollup.lines().filter(|line| line.starts_with(name));
        lines
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum()
    };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat
        .rsplit_once(')')
        .context("/proc/<pid>/stat is malformed")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |n: usize| {
        fields
            .get(n)
            .and_then(|f| f.parse::<u64>().ok())
            .unwrap_or(0)
    };
    Ok(Usage {
        resident_kib: kib("Rss:"),
        anonymous_kib: kib("Anonymous:"),
        // A tick is 1/100 s on every Linux that this example supports.
        cpu: Duration::from_millis(10 * (ticks(11) + ticks(12))),
    })
}

async fn launch(control: &GossipMember, number: u64) -> anyhow::Result<()> {
    let identity = Identity::new(CLUSTER, Role::Agent, "measured")?;
    let member = control
        .cell
        .member(&identity)
        .context("the agent is not in the cell")?;
    let peer = control.mesh.peer(
        member.addr,
        ExpectedIdentity::exactly(Role::Agent, "measured"),
    );
    peer.call(&Ping, DEADLINE).await?;
    let launch = Launch {
        key: AttemptKey {
            allocation: AllocationId(number),
            attempt: 1,
        },
        epoch: 1,
        revision: Revision(number),
        user: "example".to_owned(),
        project: "example".to_owned(),
        name: None,
        element: None,
        nodes: vec![NodeId::new("measured")?],
        rank: 0,
        workload: Workload {
            argv: vec!["sleep".to_owned(), "30".to_owned()],
            ..Workload::default()
        },
        walltime_ms: None,
        boot: None,
        sensitive: false,
        gpus: 0,
        checkpoint: None,
    };
    peer.call(&launch, DEADLINE).await??;
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let members = numbers.next().transpose()?.unwrap_or(63);
    let seconds = numbers.next().transpose()?.unwrap_or(60);
    let validity = Validity::from_now(SystemClock.now(), Duration::from_secs(24 * 3600));
    let authority = Authority::create(CLUSTER, validity)?;
    let control = start_member(&authority, 0, None).await?;
    let seed = control.mesh.local_addr();
    let mut others = Vec::new();
    for n in 1..usize::try_from(members)? {
        others.push(start_member(&authority, n, Some(seed)).await?);
    }
    let folder = tempfile::tempdir()?;
    let mut agent = start_agent(&authority, folder.path(), seed)?;
    let identity = Identity::new(CLUSTER, Role::Agent, "measured")?;
    let mut changes = control.cell.changes();
    let all = usize::try_from(members)? + 1;
    let joined =
        changes.wait_for(|now| now.alive().count() >= all && now.members.contains_key(&identity));
    tokio::time::timeout(Duration::from_secs(60), joined)
        .await
        .context("the cell did not form")??;
    println!("{all} members are in the cell");
    let begin = (usage(agent.id())?, Instant::now());
    let mut number = 0;
    while begin.1.elapsed() < Duration::from_secs(seconds) {
        number += 1;
        launch(&control, number).await?;
        let left = Duration::from_secs(seconds).saturating_sub(begin.1.elapsed());
        tokio::time::sleep(left.min(Duration::from_secs(60))).await;
        let now = usage(agent.id())?;
        let share = (now.cpu - begin.0.cpu).as_secs_f64() / begin.1.elapsed().as_secs_f64();
        println!(
            "after {:.0} s: {} KiB resident ({} KiB of it its own), {:.3} % of a core",
            begin.1.elapsed().as_secs_f64(),
            now.resident_kib,
            now.anonymous_kib,
            share * 100.0
        );
    }
    let pid = i32::try_from(agent.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.context("no process")?, rustix::process::Signal::TERM)?;
    agent.wait()?;
    println!(
        "bytes are in the agent's last line, counted over {:.0} s",
        begin.1.elapsed().as_secs_f64()
    );
    Ok(())
}
