//! Leader kill comparison: the leaders of Lattice and etcd receive SIGKILL in turn. The result is the time from the
//! kill to the first write that is accepted again, as clients see it. At the end, every acknowledged write is looked
//! up.

use crate::{
    Common,
    etcd::{ELECTION_MS, Etcd, HEARTBEAT_MS},
    lattice::Lattice,
    machine::StallDetector,
    side::{Client, MEMBERS, Side, wait_for_leader},
};
use clap::Args;
use serde::Serialize;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

/// Wait after the first accepted write and after the end of the load, within which all acknowledgements under way
/// arrive.
const ACK_DRAIN_TIME: Duration = Duration::from_millis(500);
/// Timeout of a write and of each wait after a kill, longer than either side takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Measure the time from the kill of a leader to the first write that is accepted again.
#[derive(Debug, Args)]
pub struct Options {
    /// Number of leader kills on each side.
    #[arg(long, default_value_t = 20)]
    kills: usize,
    /// Number of concurrent writers.
    #[arg(long, default_value_t = 64)]
    writers: usize,
    /// Pause between the writes of a writer, milliseconds. It limits the number of writes to look up at the end.
    #[arg(long, default_value_t = 20)]
    pause_ms: u64,
    /// Duration of the load before each kill, milliseconds.
    #[arg(long, default_value_t = 2000)]
    load_ms: u64,
    #[command(flatten)]
    common: Common,
}

/// An acknowledged write.
struct Ack {
    name: String,
    requested_at: Instant,
    answered: Instant,
}

/// A side under load.
struct LoadedSide<S: Side> {
    side: S,
    acks: Arc<Mutex<Vec<Ack>>>,
    load_switch: watch::Sender<bool>,
    writers: Vec<JoinHandle<()>>,
    outages_ms: Vec<u64>,
    caught_up_ms: Vec<u64>,
}

async fn write<C: Client>(
    client: C,
    writer: usize,
    pause: Duration,
    acks: Arc<Mutex<Vec<Ack>>>,
    mut runs: watch::Receiver<bool>,
) {
    for n in 0_u64.. {
        if runs.wait_for(|runs| *runs).await.is_err() {
            return;
        }
        let (name, asked) = (format!("w{writer}-{n}"), Instant::now());
        while let Err(error) = client.write(writer, name.clone()).await {
            // A repetition under the same name is harmless.
            assert!(asked.elapsed() < TIMEOUT, "{name}: {error}");
        }
        let answered = Instant::now();
        acks.lock().unwrap().push(Ack {
            name,
            requested_at: asked,
            answered,
        });
        sleep(pause).await;
    }
}

impl<S: Side> LoadedSide<S> {
    fn new(side: S, options: &Options) -> Self {
        let (runs, running) = watch::channel(false);
        let acks = Arc::new(Mutex::new(Vec::new()));
        let client = side.client(8);
        let pause = Duration::from_millis(options.pause_ms);
        let writers = (0..options.writers).map(|writer| {
            let (client, acks) = (client.clone(), acks.clone());
            tokio::spawn(write(client, writer, pause, acks, running.clone()))
        });
        Self {
            writers: writers.collect(),
            side,
            acks,
            load_switch: runs,
            outages_ms: Vec::new(),
            caught_up_ms: Vec::new(),
        }
    }

    /// Applies load, kills the leader and waits until writes are accepted again. Then restarts the killed member and
    /// waits until it has caught up with the others.
    async fn round(&mut self, load: Duration) {
        self.load_switch.send_replace(true);
        sleep(load).await;
        let (leader, _) = wait_for_leader(&self.side).await;
        self.side.kill(leader);
        let killed = Instant::now();
        self.wait_until_accepted(killed).await;
        sleep(ACK_DRAIN_TIME).await;
        self.outages_ms.push(self.outage(killed));
        self.side.start(leader);
        let started = Instant::now();
        self.wait_until_caught_up(leader).await;
        self.caught_up_ms.push(millis(started.elapsed()));
        self.load_switch.send_replace(false);
        sleep(ACK_DRAIN_TIME).await;
    }

    /// Waits until a write that was requested after the kill is acknowledged.
    async fn wait_until_accepted(&self, killed: Instant) {
        let is_new = |ack: &Ack| ack.requested_at > killed;
        while !self
            .acks
            .lock()
            .unwrap()
            .iter()
            .rev()
            .take(1000)
            .any(is_new)
        {
            assert!(
                killed.elapsed() < TIMEOUT,
                "{}: no write was accepted within {} s",
                S::NAME,
                TIMEOUT.as_secs()
            );
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the time from the kill to the end of the longest later gap between acknowledgements. Some
    /// acknowledgements may have been under way at the kill, so the first one does not count as the end.
    fn outage(&self, killed: Instant) -> u64 {
        let acks = self.acks.lock().unwrap();
        let mut after: Vec<_> = acks.iter().map(|ack| ack.answered).collect();
        after.retain(|answered| *answered > killed);
        after.sort_unstable();
        let before = std::iter::once(&killed).chain(&after);
        let gaps = before.zip(&after).map(|(one, next)| (*next - *one, *next));
        let end = gaps.max_by_key(|(gap, _)| *gap).expect("an ack").1;
        millis(end - killed)
    }

    async fn wait_until_caught_up(&self, member: usize) {
        let begun = Instant::now();
        let mut target = None;
        loop {
            let statuses = self.side.statuses().await;
            let applied = |m: usize| statuses[m].map(|s| s.applied);
            let others = (0..MEMBERS).filter(|other| *other != member);
            let newest = others.filter_map(applied).max();
            let target = *target.get_or_insert(newest.unwrap_or(u64::MAX));
            let follows = statuses[member].is_some_and(|s| s.has_leader && s.applied >= target);
            if follows {
                return;
            }
            assert!(begun.elapsed() < TIMEOUT, "{}: {member} is behind", S::NAME);
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends the writers, looks up every acknowledged write, and returns the outcome.
    async fn finish(self) -> Outcome {
        self.load_switch.send_replace(true);
        drop(self.load_switch);
        for writer in self.writers {
            writer.abort();
            let _ = writer.await;
        }
        let acks = std::mem::take(&mut *self.acks.lock().unwrap());
        let names = self.side.names().await;
        let found: BTreeSet<_> = names.iter().map(String::as_str).collect();
        assert_eq!(found.len(), names.len(), "{}: written twice", S::NAME);
        let lost = acks.iter().filter(|ack| !found.contains(ack.name.as_str()));
        Outcome {
            side: S::NAME,
            acknowledged: acks.len(),
            lost: lost.count(),
            outage_ms: Spread::of(self.outages_ms),
            caught_up_ms: Spread::of(self.caught_up_ms),
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap()
}

/// Distribution of measured values; `all` is sorted.
#[derive(Debug, Serialize)]
struct Spread {
    median: u64,
    p90: u64,
    max: u64,
    all: Vec<u64>,
}

impl Spread {
    fn of(mut all: Vec<u64>) -> Self {
        all.sort_unstable();
        let at = |part: f64| {
            let index = ((all.len() as f64 * part) as usize).min(all.len() - 1);
            all[index]
        };
        Self {
            median: at(0.5),
            p90: at(0.9),
            max: at(1.0),
            all,
        }
    }
}

#[derive(Debug, Serialize)]
struct Outcome {
    side: &'static str,
    acknowledged: usize,
    lost: usize,
    outage_ms: Spread,
    caught_up_ms: Spread,
}

pub async fn run(options: &Options) {
    assert!(options.kills > 0, "--kills must be at least 1");
    let folder = options.common.folder();
    let bytes = options.common.bytes;
    let mut ours = Lattice::prepare(folder.path(), bytes);
    ours.start_and_prepare().await;
    wait_for_leader(&ours).await;
    let mut theirs = Etcd::prepare(folder.path(), bytes);
    (0..MEMBERS).for_each(|member| theirs.start(member));
    wait_for_leader(&theirs).await;
    let machine = StallDetector::watch();
    let load = Duration::from_millis(options.load_ms);
    let (mut ours, mut theirs) = (
        LoadedSide::new(ours, options),
        LoadedSide::new(theirs, options),
    );
    for kill in 1..=options.kills {
        ours.round(load).await;
        let stood = machine.take_longest_ms();
        theirs.round(load).await;
        eprintln!(
            "kill {kill}: lattice {} ms, etcd {} ms; longest stalls of the machine: {stood} ms and \
             {} ms",
            ours.outages_ms.last().unwrap(),
            theirs.outages_ms.last().unwrap(),
            machine.take_longest_ms(),
        );
    }
    print(options, &[ours.finish().await, theirs.finish().await]);
}

fn print(options: &Options, outcomes: &[Outcome]) {
    if options.common.json {
        let report = serde_json::json!({
            "kills": options.kills,
            "writers": options.writers,
            "heartbeat_ms": HEARTBEAT_MS,
            "silence_ms": ELECTION_MS,
            "outcomes": outcomes,
        });
        println!("{report}");
    } else {
        println!(
            "{:>8} | {:>9} {:>7} {:>7} | {:>14} {:>7} | {:>12} {:>5}",
            "", "median ms", "p90 ms", "max ms", "caught up p50", "max ms", "acknowledged", "lost"
        );
        for outcome in outcomes {
            let (out, up) = (&outcome.outage_ms, &outcome.caught_up_ms);
            println!(
                "{:>8} | {:>9} {:>7} {:>7} | {:>14} {:>7} | {:>12} {:>5}",
                outcome.side,
                out.median,
                out.p90,
                out.max,
                up.median,
                up.max,
                outcome.acknowledged,
                outcome.lost
            );
        }
        println!(
            "each leader was killed (SIGKILL) {} times, in turn, under {} writers; heartbeat every \
             {HEARTBEAT_MS} ms, election timeout {ELECTION_MS} ms",
            options.kills, options.writers
        );
    }
    let lost: usize = outcomes.iter().map(|outcome| outcome.lost).sum();
    assert_eq!(lost, 0, "acknowledged writes are lost");
}
