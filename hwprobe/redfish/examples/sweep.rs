//! Time to read the power of many BMCs with bounded concurrency. The BMCs are simulated in the same process, so their
//! cost is included in every number.
//!
//! `cargo run --profile dist -p lattice-redfish --example sweep -- --bmcs 500`
//!
//! Prints one JSON line on stdout. `find_s` is the first pass: TLS, login, search for power sources. `poll_s` is each
//! later pass over kept connections and sessions, and `close_s` the end of the sessions.

use clap::Parser;
use lattice_fake_bmc::{FakeBmc, Fault, Fleet, FleetAddresses, Identity, Rule, Tree};
use lattice_redfish::http::{Bmc, Endpoint, EndpointError, Environment, ReadOnly, Settings, Trust};
use lattice_redfish::{Breadth, Route, Scope, Selector};
use secrecy::SecretString;
use serde_json::json;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Read the power of simulated BMCs.
#[derive(Parser)]
struct Args {
    /// Number of BMCs.
    #[arg(long, default_value_t = 500)]
    bmcs: usize,
    /// Number of BMCs queried at once.
    #[arg(long, default_value_t = 256)]
    concurrency: usize,
    /// Number of sweeps after the first pass.
    #[arg(long, default_value_t = 3)]
    sweeps: usize,
    /// Delay of each answer, as with real BMCs, in milliseconds.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// Use plain HTTP instead of HTTPS.
    #[arg(long)]
    plain: bool,
    /// Recorded tree that every BMC serves; by default that of an HPE DL325 with iLO 5.
    #[arg(long)]
    tree: Option<PathBuf>,
}

/// A BMC's client, with the route to its power once it is found.
struct BmcSource {
    client: Bmc,
    route: Route,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let fleet = fleet(&args).await?;
    let gate = Arc::new(Semaphore::new(args.concurrency));
    let clients: Result<Vec<_>, _> = fleet.bmcs.iter().map(client).collect();
    let began_at = Instant::now();
    let known = for_each_bmc(&gate, clients?, find).await?;
    let find = began_at.elapsed();
    let known: Vec<_> = known.into_iter().map(Arc::new).collect();
    let mut polls = Vec::new();
    let mut unread = 0;
    for _ in 0..args.sweeps {
        let began_at = Instant::now();
        let read = for_each_bmc(&gate, known.clone(), poll).await?;
        polls.push(began_at.elapsed());
        unread += read.iter().filter(|read| !**read).count();
    }
    let began_at = Instant::now();
    for_each_bmc(&gate, known, async |known: Arc<BmcSource>| {
        known.client.close().await
    })
    .await?;
    let close = began_at.elapsed();
    report(&args, &fleet, unread, [find, close], &polls);
    Ok(())
}

async fn fleet(args: &Args) -> Result<Fleet, Box<dyn Error>> {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures/redfish");
    let recorded = captures.join("hpe-dl325-ilo5.tar.gz");
    let tree = Tree::load(args.tree.as_deref().unwrap_or(&recorded))?;
    let mut builder = FakeBmc::builder(tree);
    if !args.plain {
        builder = builder.identity(Arc::new(Identity::generate()?));
    }
    if args.delay_ms > 0 {
        let slow = Fault::Slow { ms: args.delay_ms };
        builder = builder.fault(Rule::new("/redfish/v1*", slow));
    }
    Ok(Fleet::start(&builder, args.bmcs, FleetAddresses::Ports).await?)
}

fn client(bmc: &FakeBmc) -> Result<Bmc, EndpointError> {
    let password = SecretString::from("lattice-bmc");
    let trust = bmc.pin().map_or(Trust::Insecure, Trust::Pinned);
    let endpoint = Endpoint::new(&bmc.url(), "admin", password, trust)?;
    let reads = ReadOnly(endpoint);
    let client = Bmc::new(reads, None, Settings::default(), Environment::system())?;
    Ok(client)
}

async fn find(client: Bmc) -> BmcSource {
    let scope = Scope {
        systems: Selector::Only,
        breadth: Breadth::Power,
    };
    let look = client.read(&scope).await;
    let node = look.interpretation.report.node();
    let route = node.map(|node| node.route.clone()).unwrap_or_default();
    BmcSource { client, route }
}

/// Reads the power of a BMC; returns whether the draw was read.
async fn poll(known: Arc<BmcSource>) -> bool {
    let read = known.client.read_power(&known.route).await;
    read.power.draw.present().is_some()
}

/// Runs `what` for each item, with as many at once as `gate` admits.
async fn for_each_bmc<T, U, F>(
    gate: &Arc<Semaphore>,
    all: Vec<T>,
    what: impl Fn(T) -> F,
) -> Result<Vec<U>, Box<dyn Error>>
where
    T: Send + 'static,
    U: Send + 'static,
    F: Future<Output = U> + Send + 'static,
{
    let mut running = JoinSet::new();
    for one in all {
        let pass = Arc::clone(gate).acquire_owned().await?;
        let doing = what(one);
        running.spawn(async move {
            let _pass = pass;
            doing.await
        });
    }
    Ok(running.join_all().await)
}

fn report(args: &Args, fleet: &Fleet, unread: usize, ends: [Duration; 2], polls: &[Duration]) {
    let counters: Vec<_> = fleet.bmcs.iter().map(FakeBmc::counters).collect();
    let requests: u64 = counters.iter().map(|counters| counters.requests).sum();
    let in_flight = counters.iter().map(|counters| counters.in_flight_max).max();
    let sessions = counters.iter().map(|counters| counters.sessions_max).max();
    let open: u64 = counters.iter().map(|counters| counters.sessions).sum();
    let line = json!({
        "bmcs": args.bmcs,
        "concurrency": args.concurrency,
        "tls": !args.plain,
        "delay_ms": args.delay_ms,
        "find_s": ends[0].as_secs_f64(),
        "poll_s": polls.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(),
        "close_s": ends[1].as_secs_f64(),
        "unread": unread,
        "requests": requests,
        "in_flight_max_per_bmc": in_flight,
        "sessions_max_per_bmc": sessions,
        "sessions_left": open,
    });
    println!("{line}");
}
