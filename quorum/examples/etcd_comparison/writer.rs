//! Writer process: runs the requested number of writers for the requested time. Requests arrive on its standard input,
//! and results leave on its standard output.

use crate::{etcd::EtcdClient, lattice::LatticeClient, side::Client};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Destination of the writes of a writer process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WriteTarget {
    /// The Lattice members.
    Lattice,
    /// The etcd members.
    Etcd,
}

/// Request for one measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MeasurementRequest {
    /// Number of concurrent writers. Each waits for its answer before its next write.
    pub writers: usize,
    /// Number of connections to each member; only for etcd.
    pub connections: usize,
    /// Uncounted time before the measured span.
    pub warm_up: Duration,
    /// Measured span.
    pub span: Duration,
}

/// Result of one measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WriterResult {
    /// Writes acknowledged within the span, per second.
    pub per_second: f64,
    /// Median latency of the writes acknowledged within the span, milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of the latency of the writes acknowledged within the span, milliseconds.
    pub p99_ms: f64,
    /// Longest latency of the writes acknowledged within the span, milliseconds.
    pub max_ms: f64,
}

/// Handles requests until the standard input ends.
pub async fn run(to: WriteTarget, root: &Path, addrs: Vec<SocketAddr>, bytes: usize) {
    let mut lines = std::io::stdin().lines();
    let ours =
        (to == WriteTarget::Lattice).then(|| LatticeClient::of_writer(root, addrs.clone(), bytes));
    // A client is kept while the number of connections stays the same.
    let mut theirs: Option<(usize, EtcdClient)> = None;
    while let Some(Ok(line)) = lines.next() {
        let ask: MeasurementRequest = serde_json::from_str(&line).unwrap();
        let measurement = if let Some(client) = &ours {
            measure(client, &ask).await
        } else {
            let kept = theirs.take().filter(|(n, _)| *n == ask.connections);
            let connect = || EtcdClient::new(&addrs, ask.connections, bytes);
            let client = kept.map_or_else(connect, |(_, client)| client);
            let measurement = measure(&client, &ask).await;
            theirs = Some((ask.connections, client));
            measurement
        };
        let mut out = std::io::stdout();
        writeln!(out, "{}", serde_json::to_string(&measurement).unwrap()).unwrap();
    }
}

async fn measure<C: Client>(client: &C, ask: &MeasurementRequest) -> WriterResult {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let (begun, warm_up) = (Instant::now(), ask.warm_up);
    let end = warm_up + ask.span;
    let tasks = (0..ask.writers).map(|writer| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut waits = Vec::new();
            while begun.elapsed() < end {
                let name = format!("w{writer}-{}", NAMES.fetch_add(1, Ordering::Relaxed));
                let asked = begun.elapsed();
                client.write(writer, name).await.unwrap();
                let answered = begun.elapsed();
                if answered >= warm_up && answered < end {
                    waits.push(answered.saturating_sub(asked));
                }
            }
            waits
        })
    });
    let mut waits = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        waits.extend(task.await.unwrap());
    }
    waits.sort_unstable();
    let at = |part: f64| {
        let index = (waits.len() as f64 * part) as usize;
        let wait = waits.get(index.min(waits.len().saturating_sub(1)));
        wait.map_or(0.0, |wait| wait.as_secs_f64() * 1000.0)
    };
    WriterResult {
        per_second: waits.len() as f64 / ask.span.as_secs_f64(),
        p50_ms: at(0.50),
        p99_ms: at(0.99),
        max_ms: at(1.0),
    }
}

/// Handle of a writer process, in the process that requests measurements.
pub struct Writer {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Writer {
    /// Starts a writer process.
    pub fn start(to: WriteTarget, root: &Path, addrs: &[SocketAddr], bytes: usize) -> Self {
        let addrs: Vec<_> = addrs.iter().map(ToString::to_string).collect();
        let to = match to {
            WriteTarget::Lattice => "lattice",
            WriteTarget::Etcd => "etcd",
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["writer", "--to", to, "--addrs", &addrs.join(",")])
            .args(["--bytes", &bytes.to_string(), "--root"])
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    /// Requests one measurement and waits for its result.
    pub fn measure(&mut self, ask: &MeasurementRequest) -> WriterResult {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{}", serde_json::to_string(ask).unwrap()).unwrap();
        stdin.flush().unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the writer process has ended");
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
