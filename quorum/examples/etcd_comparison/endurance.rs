//! Endurance test of the Lattice members: under full load for a long time, no election may happen. Also reports the
//! longest time without a write.
//!
//! Each write replaces the drain reason of one of a thousand nodes with another one of the configured size. Writes that
//! create records, tens of thousands per second, would exceed the memory within half an hour.

use crate::{
    Common,
    lattice::{Lattice, LatticeClient, envelope},
    machine::{StallDetector, resident_mib},
    side::{Side, wait_for_leader},
};
use clap::Args;
use lattice_quorum_types::{Command, NodeId, VclusterName, command::Privilege};
use std::{
    process::exit,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const NODES: usize = 1000;

/// Put full load on the Lattice members for a long time.
#[derive(Debug, Args)]
pub struct Options {
    /// Duration of the load, minutes.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Number of concurrent writers.
    #[arg(long, default_value_t = 64)]
    writers: usize,
    #[command(flatten)]
    common: Common,
}

/// Number and times of acknowledged writes.
struct AcknowledgedWrites {
    count: u64,
    last: Instant,
    longest_gap: Duration,
}

async fn write(
    client: LatticeClient,
    writer: usize,
    options: (usize, Duration),
    written: Arc<Mutex<AcknowledgedWrites>>,
    begun: Instant,
) {
    let (bytes, span) = options;
    for n in 0_usize.. {
        if begun.elapsed() >= span {
            return;
        }
        let node = NodeId::new(format!("n{:03}", (writer * 97 + n) % NODES)).unwrap();
        let reason = format!("{writer}-{n}-{:x<bytes$}", "");
        let mut drain = envelope(
            None,
            Command::Drain {
                node,
                reason: Some(reason[..bytes].to_owned()),
                expected: None,
            },
        );
        drain.principal.name = format!("service:load-{}", writer % 4);
        drain.principal.privilege = Privilege::Service;
        // The outcome of a write without a key is unknown if the leader fails. The writer then continues with the next
        // write.
        if let Err(error) = client.settle(drain).await {
            eprintln!("writer {writer}: {error}");
            continue;
        }
        let mut written = written.lock().unwrap();
        let now = Instant::now();
        written.count += 1;
        written.longest_gap = written.longest_gap.max(now - written.last);
        written.last = now;
    }
}

pub async fn run(options: &Options) {
    let folder = options.common.folder();
    let bytes = options.common.bytes;
    let mut members = Lattice::prepare(folder.path(), bytes);
    members.start_and_prepare().await;
    let client = members.client(1);
    let vcluster = VclusterName::new("default").unwrap();
    let nodes = (0..NODES).map(|n| Command::RegisterNode {
        node: NodeId::new(format!("n{n:03}")).unwrap(),
        vcluster: vcluster.clone(),
    });
    client.propose_all("node", nodes.collect()).await;
    let (leader, term) = wait_for_leader(&members).await;
    let (span, begun) = (
        Duration::from_secs_f64(options.minutes * 60.0),
        Instant::now(),
    );
    let written = Arc::new(Mutex::new(AcknowledgedWrites {
        count: 0,
        last: begun,
        longest_gap: Duration::ZERO,
    }));
    let machine = StallDetector::watch();
    let writers: Vec<_> = (0..options.writers)
        .map(|writer| {
            let written = written.clone();
            tokio::spawn(write(client.clone(), writer, (bytes, span), written, begun))
        })
        .collect();
    let (mut terms, mut stood) = (term, 0);
    while begun.elapsed() < span {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stood = stood.max(machine.take_longest_ms());
        let statuses = members.statuses().await;
        let newest = statuses.iter().flatten().map(|s| s.term).max();
        if let Some(newest) = newest.filter(|newest| *newest > terms) {
            let at = begun.elapsed().as_secs_f64();
            eprintln!("after {at:.0} s: an election, term {newest}");
            terms = newest;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let (leads, last) = wait_for_leader(&members).await;
    let written = written.lock().unwrap();
    let pids = members.pids();
    let resident = pids.iter().map(|pid| resident_mib(*pid)).max();
    let report = serde_json::json!({
        "minutes": options.minutes,
        "writers": options.writers,
        "writes": written.count,
        "per_second": written.count as f64 / span.as_secs_f64(),
        "elections": last - term,
        "leader_changed": leads != leader,
        "longest_gap_ms": u64::try_from(written.longest_gap.as_millis()).unwrap(),
        "machine_stood_still_ms": stood,
        "resident_mib": resident,
    });
    if options.common.json {
        println!("{report}");
    } else {
        println!(
            "{} writes in {} min from {} writers ({:.0} a second); {} elections; longest gap between \
             acknowledgements: {} ms; longest stall of this machine: {stood} ms; largest resident \
             memory of a member: {} MiB",
            written.count,
            options.minutes,
            options.writers,
            written.count as f64 / span.as_secs_f64(),
            last - term,
            written.longest_gap.as_millis(),
            resident.unwrap_or_default(),
        );
    }
    drop(members);
    if last != term {
        exit(1);
    }
}
