//! Write throughput comparison: writes per second and latency of Lattice and etcd, measured in turn.

use crate::{
    Common,
    etcd::Etcd,
    lattice::{Lattice, LatticeClient},
    machine::{cpu_ms, disk_mib, resident_mib},
    side::{MEMBERS, Side, wait_for_leader},
    writer::{MeasurementRequest, WriteTarget, Writer, WriterResult},
};
use clap::Args;
use serde::Serialize;
use std::time::Duration;

/// Numbers of connections that are tried for etcd.
const CONNECTIONS: [usize; 5] = [1, 2, 4, 8, 16];
/// Pause between two measurements, so that pending disk writes of one do not slow the next.
const PAUSE_BETWEEN: Duration = Duration::from_millis(500);

/// Measure writes per second and the latency of a write.
#[derive(Debug, Args)]
pub struct Options {
    /// Duration of each measurement without its warm-up, seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Duration of the uncounted warm-up before each measurement, seconds.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Number of repetitions of each measurement; the median is reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Numbers of concurrent writers.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    writers: Vec<usize>,
    /// Measure the Lattice members alone.
    #[arg(long)]
    alone: bool,
    #[command(flatten)]
    common: Common,
}

/// Results of one side for one number of writers.
#[derive(Debug, Clone, Serialize)]
struct Cell {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    rounds: Vec<WriterResult>,
}

impl Cell {
    /// Takes the median of each value.
    fn of(rounds: Vec<WriterResult>) -> Self {
        let middle = |pick: fn(&WriterResult) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(pick).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        Self {
            per_second: middle(|measurement| measurement.per_second),
            p50_ms: middle(|measurement| measurement.p50_ms),
            p99_ms: middle(|measurement| measurement.p99_ms),
            rounds,
        }
    }
}

/// Results of both sides for one number of writers.
#[derive(Debug, Serialize)]
struct Row {
    writers: usize,
    lattice: Cell,
    etcd: Option<Cell>,
    /// Writes per second of Lattice divided by those of etcd.
    ratio: Option<f64>,
}

/// Resource use of one side's members at the end.
#[derive(Debug, Serialize)]
struct ResourceUse {
    records: u64,
    resident_mib: u64,
    disk_mib: u64,
    /// Processor time of all members per record, microseconds.
    cpu_us: f64,
    elections: u64,
}

async fn size<S: Side>(side: &S, records: u64, term: u64) -> ResourceUse {
    let pids = side.pids();
    let resident: u64 = pids.iter().map(|pid| resident_mib(*pid)).sum();
    let cpu: u64 = pids.iter().map(|pid| cpu_ms(*pid)).sum();
    let disk: u64 = (0..MEMBERS).map(|m| disk_mib(&side.data(m))).sum();
    ResourceUse {
        records,
        resident_mib: resident / MEMBERS as u64,
        disk_mib: disk / MEMBERS as u64,
        cpu_us: cpu as f64 * 1000.0 / records.max(1) as f64,
        elections: wait_for_leader(side).await.1 - term,
    }
}

/// The etcd side with its writer process.
struct EtcdSide {
    members: Etcd,
    writer: Writer,
    /// Number of connections that gave the most writes per second.
    connections: usize,
    term: u64,
}

impl EtcdSide {
    async fn start(options: &Options, root: &std::path::Path) -> Self {
        let mut members = Etcd::prepare(root, options.common.bytes);
        (0..MEMBERS).for_each(|member| members.start(member));
        let term = wait_for_leader(&members).await.1;
        let (addrs, bytes) = (members.addrs(), options.common.bytes);
        let mut writer = Writer::start(WriteTarget::Etcd, root, addrs, bytes);
        let mut best = (0.0, 1);
        for connections in CONNECTIONS {
            let ask = MeasurementRequest {
                writers: 64,
                connections,
                warm_up: Duration::from_millis(500),
                span: Duration::from_secs(1),
            };
            let measurement = writer.measure(&ask);
            eprintln!(
                "etcd over {connections} connections, 64 writers: {:.0} writes/s, p99 {:.1} ms",
                measurement.per_second, measurement.p99_ms
            );
            if measurement.per_second > best.0 {
                best = (measurement.per_second, connections);
            }
        }
        Self {
            members,
            writer,
            connections: best.1,
            term,
        }
    }
}

pub async fn run(options: &Options) {
    let folder = options.common.folder();
    let bytes = options.common.bytes;
    let mut members = Lattice::prepare(folder.path(), bytes);
    members.start_and_prepare().await;
    let term = wait_for_leader(&members).await.1;
    let mut writer = Writer::start(WriteTarget::Lattice, members.root(), members.addrs(), bytes);
    let mut other = match options.alone {
        true => None,
        false => Some(EtcdSide::start(options, folder.path()).await),
    };
    let mut rows = Vec::new();
    for writers in &options.writers {
        rows.push(row(options, *writers, &mut writer, other.as_mut()).await);
    }
    let ours = size(&members, members.records().await, term).await;
    let theirs = match &other {
        Some(other) => {
            let records = other.members.names().await.len() as u64;
            Some(size(&other.members, records, other.term).await)
        }
        None => None,
    };
    print(
        options,
        &rows,
        &ours,
        theirs.as_ref(),
        other.map_or(0, |o| o.connections),
    );
}

async fn row(
    options: &Options,
    writers: usize,
    writer: &mut Writer,
    mut other: Option<&mut EtcdSide>,
) -> Row {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let mut ask = MeasurementRequest {
            writers,
            connections: 1,
            warm_up: Duration::from_secs_f64(options.warm_up),
            span: Duration::from_secs_f64(options.seconds),
        };
        ours.push(writer.measure(&ask));
        tokio::time::sleep(PAUSE_BETWEEN).await;
        if let Some(other) = other.as_deref_mut() {
            ask.connections = other.connections.min(writers);
            theirs.push(other.writer.measure(&ask));
            tokio::time::sleep(PAUSE_BETWEEN).await;
        }
    }
    let lattice = Cell::of(ours);
    let etcd = (!theirs.is_empty()).then(|| Cell::of(theirs));
    let ratio = etcd
        .as_ref()
        .map(|etcd| lattice.per_second / etcd.per_second);
    eprintln!(
        "{writers} writers: lattice {:.0} writes/s{}",
        lattice.per_second,
        etcd.as_ref().map_or(String::new(), |etcd| format!(
            ", etcd {:.0}",
            etcd.per_second
        )),
    );
    Row {
        writers,
        lattice,
        etcd,
        ratio,
    }
}

fn print(
    options: &Options,
    rows: &[Row],
    ours: &ResourceUse,
    theirs: Option<&ResourceUse>,
    connections: usize,
) {
    let command_bytes = LatticeClient::command_bytes(options.common.bytes);
    if options.common.json {
        let report = serde_json::json!({
            "members": MEMBERS,
            "seconds": options.seconds,
            "rounds": options.rounds,
            "record_bytes": options.common.bytes,
            "command_bytes": command_bytes,
            "etcd_connections": connections,
            "release": !cfg!(debug_assertions),
            "rows": rows,
            "lattice": ours,
            "etcd": theirs,
        });
        return println!("{report}");
    }
    println!(
        "{:>8} | {:>10} {:>8} {:>8} | {:>10} {:>8} {:>8} | {:>6}",
        "writers", "lattice/s", "p50 ms", "p99 ms", "etcd/s", "p50 ms", "p99 ms", "ratio"
    );
    for row in rows {
        let Row {
            writers, lattice, ..
        } = row;
        let three = |cell: &Cell| {
            format!(
                "{:>10.0} {:>8.2} {:>8.2}",
                cell.per_second, cell.p50_ms, cell.p99_ms
            )
        };
        let theirs = row.etcd.as_ref().map_or(format!("{:>28}", "-"), three);
        let ratio = row
            .ratio
            .map_or("-".to_owned(), |ratio| format!("{ratio:.1}"));
        println!("{writers:>8} | {} | {theirs} | {ratio:>6}", three(lattice));
    }
    println!(
        "median of {} rounds of {} s each, in turn; a record has {} bytes, a command with name, key \
         and principal {} bytes",
        options.rounds, options.seconds, options.common.bytes, command_bytes
    );
    let said = |name: &str, size: &ResourceUse| {
        println!(
            "{name}: {} records kept, {} MiB resident and {} MiB on disk a member, {:.0} us of \
             processor time a record on all members, {} elections",
            size.records, size.resident_mib, size.disk_mib, size.cpu_us, size.elections
        );
    };
    said("lattice", ours);
    if let Some(theirs) = theirs {
        said("etcd", theirs);
        println!("etcd over {connections} connections, the number with the highest throughput");
    }
}
