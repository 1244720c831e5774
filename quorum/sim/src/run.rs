//! Run of one seed: members, clients and faults for some time. Then the faults stop, and the cluster must heal.

use crate::{
    agreed_history::RunCounters,
    clients::{self, Client, registers},
    member::{self, Handle},
    network::NetworkCounters,
    schedule,
    simulated_run::{SimulatedRun, note_panics, panics},
};
use lattice_rng::Rng;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// Largest simulated time for the cluster to heal after the faults have stopped.
const HEAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seed of all random choices.
    pub seed: u64,
    /// Whether the trace is printed.
    pub verbose: bool,
    /// Shortest and longest time with faults, simulated milliseconds.
    pub faults_ms: (u64, u64),
    /// Whether the only faults are outages.
    pub outages: bool,
    /// Planted bug of the disk: syncs have no effect.
    pub disk_ignores_syncs: bool,
    /// Another planted bug.
    #[cfg(debug_assertions)]
    pub planted: Option<lattice_quorum_types::planted::Bug>,
}

impl Plan {
    /// Plan that the tests use for a seed.
    pub fn of(seed: u64) -> Self {
        Self {
            seed,
            verbose: false,
            faults_ms: (3_000, 10_000),
            outages: false,
            disk_ignores_syncs: false,
            #[cfg(debug_assertions)]
            planted: None,
        }
    }
}

/// Report of a run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Seed of the run.
    pub seed: u64,
    /// Violations of invariants.
    pub violations: Vec<String>,
    /// Numbers of operations and faults, by kind.
    pub counts: BTreeMap<String, u64>,
    /// Number of leaderships: pairs of term and leader.
    pub elections: u64,
    /// Counters of the replicated state machines.
    pub counters: RunCounters,
    /// Counters of the network.
    pub network: NetworkCounters,
    /// Syncs of the database files of all members.
    pub syncs: u64,
    /// Snapshots, segments and markers written.
    pub replaced: u64,
    /// Simulated time that the cluster took to heal.
    pub healed_in: Duration,
    /// Simulated duration of the run.
    pub simulated: Duration,
    /// Digest of the trace. Two identical runs have equal digests.
    pub trace: String,
    /// The last lines of the trace.
    pub last_lines: Vec<String>,
}

/// Runs one seed on this thread.
pub fn run(plan: &Plan) -> Report {
    #[cfg(debug_assertions)]
    lattice_quorum_types::planted::plant(plan.planted);
    let report = simulate(
        || SimulatedRun::new(plan.seed, plan.verbose),
        async |world| play(world, plan).await,
    );
    #[cfg(debug_assertions)]
    lattice_quorum_types::planted::plant(None);
    report
}

/// Calls `play` with a new simulated run on a paused clock. Panics are violations, and the run is freed afterwards.
#[expect(clippy::expect_used, reason = "nothing runs without a runtime")]
pub(crate) fn simulate(
    make: impl FnOnce() -> Arc<SimulatedRun>,
    play: impl AsyncFnOnce(&Arc<SimulatedRun>) -> Report,
) -> Report {
    note_panics();
    let _ = panics();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let built = builder.enable_time().start_paused(true).build();
    let runtime = built.expect("a runtime");
    let mut report = runtime.block_on(async {
        let world = make();
        let report = play(&world).await;
        // Endpoints on the network hold the simulated run, which holds the network.
        world.network.close();
        report
    });
    drop(runtime);
    let panicked = panics().into_iter().map(|p| format!("a panic: {p}"));
    report.violations.extend(panicked);
    report
}

async fn play(world: &Arc<SimulatedRun>, plan: &Plan) -> Report {
    let mut rng = Rng::new(plan.seed, "plan");
    if plan.disk_ignores_syncs {
        world.disks.iter().for_each(|disk| disk.ignore_syncs());
    }
    let members: Vec<Handle> = (0..world.members.len())
        .map(|nth| member::run(world.clone(), nth))
        .collect();
    let leaders = tokio::spawn(record_leaders(world.clone(), members.clone()));
    if let Err(reason) = run_clients_and_faults(world, &members, &mut rng, plan).await {
        world.violation(reason);
    }
    let mut report = Report {
        seed: plan.seed,
        ..Report::default()
    };
    if !world.is_broken() {
        report.healed_in = check_heals(world, &members).await;
    }
    leaders.abort();
    let wear = world.disks.iter().map(|disk| disk.counters());
    let (syncs, replaced) = wear.fold((0, 0), |sum, w| (sum.0 + w.syncs, sum.1 + w.replaced));
    Report {
        violations: world.violations(),
        counts: world.counts(),
        elections: world.elections(),
        counters: world.agreed_history.counters(),
        network: world.network.counters(),
        syncs,
        replaced,
        simulated: world.elapsed(),
        trace: world.trace_digest(),
        last_lines: world.last_lines(),
        ..report
    }
}

async fn run_clients_and_faults(
    world: &Arc<SimulatedRun>,
    members: &[Handle],
    rng: &mut Rng,
    plan: &Plan,
) -> Result<(), String> {
    let mut founder = Client::new(world, 0)?;
    let founding = timeout(Duration::from_secs(60), founder.create_cluster_objects()).await;
    founding.map_err(|_| "the cluster was not founded".to_owned())?;
    world.trace(|| "founded".to_owned());
    let watchers = [6, 7].map(|nth| {
        let world = world.clone();
        tokio::spawn(async move {
            if let Err(reason) = clients::watch(world.clone(), nth).await {
                world.violation(reason);
            }
        })
    });
    let mut working = vec![tokio::spawn(founder.work())];
    for nth in 1..rng.range(2, 6) {
        working.push(tokio::spawn(Client::new(world, nth)?.work()));
    }
    working.extend(registers::run(world)?);
    let until =
        world.elapsed() + Duration::from_millis(rng.range(plan.faults_ms.0, plan.faults_ms.1));
    schedule::run(world.clone(), members.to_vec(), until, plan.outages).await;
    for client in working {
        match timeout(HEAL_TIMEOUT, client).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(format!("a client broke down: {error}")),
            Err(_) => {
                return Err(format!(
                    "a client got no answer within {} s after the faults ended",
                    HEAL_TIMEOUT.as_secs()
                ));
            }
        }
    }
    watchers.iter().for_each(|watcher| watcher.abort());
    let operations = world.registers.check()?;
    world.trace(|| format!("{operations} operations on registers are linearizable"));
    Ok(())
}

/// Checks that the cluster heals: a write is accepted, and all members have the same state.
pub(crate) async fn check_heals(world: &Arc<SimulatedRun>, members: &[Handle]) -> Duration {
    if let Ok(healed_in) = timeout(HEAL_TIMEOUT, heal(world, members)).await {
        return healed_in;
    }
    let mut standings = Vec::new();
    for member in members {
        let look = timeout(Duration::from_secs(1), member.report()).await;
        standings.push(look.ok().flatten().map(|s| (s.status, s.applied)));
    }
    world.violation(format!("the cluster did not heal: {standings:?}"));
    HEAL_TIMEOUT
}

/// Waits until a write is accepted and all members have applied the same entries. Then compares their states. Also
/// reads the audit.
async fn heal(world: &Arc<SimulatedRun>, members: &[Handle]) -> Duration {
    let from = world.elapsed();
    world.faults_ended.store(true, Relaxed);
    let mut last = match Client::new(world, 0) {
        Ok(client) => client,
        Err(reason) => {
            world.violation(reason);
            return Duration::ZERO;
        }
    };
    last.write().await;
    last.read_audit().await;
    loop {
        let mut standings = Vec::new();
        for member in members {
            standings.extend(member.report().await);
        }
        let first = standings.first().map(|s| s.applied);
        let all_here = standings.len() == members.len();
        if all_here && standings.iter().all(|s| Some(s.applied) == first) {
            let mut digests = Vec::new();
            for member in members {
                digests.extend(member.digest().await);
            }
            digests.dedup();
            if digests.len() > 1 && digests.iter().all(|(at, _)| Some(*at) == first) {
                world.violation("members differ at the end, at one position".to_owned());
            }
            let highest = world.agreed_history.counters().highest;
            if first < Some(highest) {
                world.violation(format!(
                    "all members end at log index {first:?}, but index {highest} was applied before"
                ));
            }
            return world.elapsed() - from;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Records the leaders, for faults that target the leader and for the counts.
async fn record_leaders(world: Arc<SimulatedRun>, members: Vec<Handle>) {
    loop {
        for member in &members {
            let look = timeout(Duration::from_millis(5), member.report()).await;
            let Ok(Some(standing)) = look else { continue };
            world.record_applied(member.id, standing.applied);
            if standing.status.leader == Some(member.id) {
                world.record_leader(standing.status.term, member.id);
            }
        }
        sleep(Duration::from_millis(40)).await;
    }
}
