//! Cell of N members in one process: measures the cost of a member.
//!
//! `cargo run --profile dist -p lattice-gossip --example cell -- [members] [interval ms] [seconds] [thousandths of all
//! keys that change per second]`
//!
//! All members share this process, so its CPU time is divided by their number. QUIC counts the bytes, without IP and
//! UDP headers.
#![allow(clippy::print_stdout, reason = "an example shows")]

use lattice_gossip::{
    Boot, Cell, CellConfig, CellStats, Gossip, Health, Load, Power, PublishedState, Seed, Snapshot,
    Verdict,
};
use lattice_mesh::{
    Authority, Clock, Credentials, Mesh, MeshConfig, Role, Router, SystemClock, Traffic, Validity,
};
use std::{
    error::Error,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

const DAY: Duration = Duration::from_secs(86_400);
const CLASSES: [&str; 6] = ["gpu", "nic", "bios", "kernel", "cpu", "memory"];
/// Number of keys of a member: the classes and seven others.
const KEYS: f64 = 13.0;

struct Member {
    mesh: Mesh,
    cell: Cell,
    published: PublishedState,
}

/// Published state of an agent with six classes.
fn published_state(n: usize) -> PublishedState {
    let mark = format!("1:{}", "ab".repeat(32));
    PublishedState {
        fingerprints: CLASSES.map(|class| (class.to_owned(), mark.clone())).into(),
        identity: Some("cd".repeat(32)),
        health: Some(Health {
            verdict: Verdict::Healthy,
            reasons: Vec::new(),
        }),
        load: Some(Load {
            running: 0,
            load1_hundredths: 0,
        }),
        power: Some(Power {
            milliwatts: 400_000,
        }),
        boot: Some(Boot {
            boot_id: format!("5a0c1d1e-3d5f-4a27-9b1c-{n:012}"),
            incarnation: 1,
        }),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        group: Some(format!("g{}", n % 4)),
        history: None,
        grace_ms: Some(30_000),
        https: None,
        keep_output_s: Some(604_800),
    }
}

async fn join(
    authority: &Authority,
    n: usize,
    interval: Duration,
    seed: Option<SocketAddr>,
) -> Result<Member, Box<dyn Error>> {
    let name = format!("gpu{n:03}");
    let own = Credentials::issued_now(authority, "example", Role::Agent, &name, DAY)?;
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let mesh = Mesh::bind(any_port, own, MeshConfig::default())?;
    let gossip = Gossip::new();
    mesh.serve(gossip.route(Router::new()))?;
    let role = Role::Agent;
    let config = CellConfig {
        interval,
        seeds: seed.into_iter().map(|addr| Seed { addr, role }).collect(),
        ..CellConfig::new("c0".parse()?, 1)
    };
    let says = published_state(n);
    let cell = gossip.join(&mesh, config, &says).await?;
    Ok(Member {
        mesh,
        cell,
        published: says,
    })
}

/// Waits until `wanted` holds for all members.
async fn wait_for_all(members: &[Member], wanted: impl Fn(&Snapshot) -> bool) {
    for member in members {
        let mut changes = member.cell.changes();
        let _ = changes.wait_for(|s: &Arc<Snapshot>| wanted(s)).await;
    }
}

/// CPU time of this process so far.
fn cpu() -> Result<Duration, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may contain blanks; the times are the 12th and 13th field after it, in 1/100 s.
    let (_, after) = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?;
    let ticks = after.split_ascii_whitespace().skip(11).take(2);
    let ticks: Result<Vec<u64>, _> = ticks.map(str::parse).collect();
    Ok(Duration::from_millis(ticks?.iter().sum::<u64>() * 10))
}

fn resident_mib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let number = line.and_then(|l| l.split_ascii_whitespace().next());
    Ok(number.ok_or("no VmRSS")?.parse::<u64>()? / 1024)
}

fn traffic(members: &[Member]) -> Traffic {
    let mut all = Traffic::default();
    for one in members.iter().map(|m| m.mesh.traffic()) {
        all.sent_bytes += one.sent_bytes;
        all.received_bytes += one.received_bytes;
        all.sent_datagrams += one.sent_datagrams;
        all.received_datagrams += one.received_datagrams;
    }
    all
}

/// Publishes new loads for `length`: each second, `thousandths` of all keys of the cell change.
async fn publish_changes(
    members: &mut [Member],
    length: Duration,
    thousandths: f64,
) -> Result<(), Box<dyn Error>> {
    let changes_per_second = members.len() as f64 * KEYS * thousandths / 1000.0;
    let mut next = tokio::time::interval(Duration::from_secs_f64(1.0 / changes_per_second));
    let until = Instant::now() + length;
    let (mut n, count) = (0usize, members.len());
    while Instant::now() < until {
        next.tick().await;
        n += 1;
        if let Some(member) = members.get_mut(n * 7 % count) {
            member.published.load = Some(Load {
                running: 1,
                load1_hundredths: u32::try_from(n % 10_000)?,
            });
            member.cell.publish(&member.published)?;
        }
    }
    Ok(())
}

/// Measures `length` of normal operation, and prints the cost of a member.
async fn measure(
    members: &mut [Member],
    length: Duration,
    thousandths: f64,
) -> Result<(), Box<dyn Error>> {
    let (cpu_before, before) = (cpu()?, traffic(members));
    publish_changes(members, length, thousandths).await?;
    let (cpu_after, after) = (cpu()?, traffic(members));
    let per_member = |amount: f64| amount / members.len() as f64 / length.as_secs_f64();
    let cpu = per_member((cpu_after - cpu_before).as_secs_f64() * 1000.0);
    let kib = |after: u64, before: u64| per_member((after - before) as f64 / 1024.0);
    let sent = kib(after.sent_bytes, before.sent_bytes);
    let received = kib(after.received_bytes, before.received_bytes);
    let datagrams = per_member((after.sent_datagrams - before.sent_datagrams) as f64);
    let links: usize = members.iter().map(|m| m.mesh.connections().len()).sum();
    println!(
        "per member: CPU {cpu:.2} ms/s ({:.3} % of a core)",
        cpu / 10.0
    );
    println!(
        "            sent {sent:.2} KiB/s in {datagrams:.1} datagrams/s, received {received:.2} KiB/s"
    );
    println!(
        "            {:.1} open connections",
        links as f64 / members.len() as f64
    );
    println!("process:    {} MiB resident", resident_mib()?);
    let sum =
        |of: fn(&CellStats) -> u64| -> u64 { members.iter().map(|m| of(&m.cell.stats())).sum() };
    println!(
        "messages:   {} sent, {} received; {} unsent, {} garbage, {} late, {} over rate, {} overflowed",
        sum(|s| s.sent),
        sum(|s| s.received),
        sum(|s| s.unsent),
        sum(|s| s.garbage),
        sum(|s| s.codec_late),
        sum(|s| s.over_rate),
        sum(|s| s.overflowed)
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let count = usize::try_from(numbers.next().transpose()?.unwrap_or(64))?.max(2);
    let interval = Duration::from_millis(numbers.next().transpose()?.unwrap_or(2000));
    let length = Duration::from_secs(numbers.next().transpose()?.unwrap_or(60));
    // 2 %: far more than in a quiet cell.
    let thousandths = numbers.next().transpose()?.unwrap_or(20).max(1) as f64;
    let authority = Authority::create("example", Validity::from_now(SystemClock.now(), DAY))?;

    let started_at = Instant::now();
    let first = join(&authority, 0, interval, None).await?;
    let seed = first.mesh.local_addr();
    let mut members = vec![first];
    for n in 1..count {
        members.push(join(&authority, n, interval, Some(seed)).await?);
    }
    wait_for_all(&members, |s| s.alive().count() == count).await;
    println!(
        "{count} members, one round each {} ms, {:.1} % of keys change per second: all see all after {:.1} s",
        interval.as_millis(),
        thousandths / 10.0,
        started_at.elapsed().as_secs_f64()
    );
    // Lets the members establish their connections before the measurement.
    publish_changes(&mut members, interval * 30, thousandths).await?;
    measure(&mut members, length, thousandths).await?;

    let changed_at = Instant::now();
    let mut dead = members.remove(count / 2);
    dead.published.version = Some("changed".to_owned());
    dead.cell.publish(&dead.published)?;
    wait_for_all(&members, |s| {
        let one = s.members.get(dead.cell.identity());
        one.is_some_and(|m| m.published.version == dead.published.version)
    })
    .await;
    println!(
        "a changed key was seen by all after {:.1} s",
        changed_at.elapsed().as_secs_f64()
    );
    let died_at = Instant::now();
    dead.mesh.shutdown(Duration::ZERO).await;
    drop(dead);
    wait_for_all(&members, |s| s.alive().count() == count - 1).await;
    println!(
        "a death was seen by all after {:.1} s",
        died_at.elapsed().as_secs_f64()
    );
    Ok(())
}
