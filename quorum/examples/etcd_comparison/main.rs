//! Performance comparison of the Lattice quorum with etcd: three members of each, on loopback, in one run.
//!
//! ```text
//! just etcd      # writes per second, p50 and p99 with 1, 16, 64 and 256 writers
//! just kills     # time from the SIGKILL of a leader to the first write that is accepted again
//! just steady    # full load for half an hour: elections, and the longest time without a write
//! ```
//!
//! Both sides keep their data on the same filesystem and sync it before they acknowledge. Lattice always does so. etcd
//! does so by default, and this program leaves the default. Both send heartbeats every 100 ms and regard a leader as
//! dead after five missed heartbeats. Clients send writes to the leader, and find it in the same way.
//!
//! The differences favour etcd. Its clients use plain HTTP/2 over the number of connections that gives the most writes
//! per second (eight in `kills`). Lattice clients use QUIC with mutual TLS over one connection. An etcd write stores a
//! value. A Lattice write is checked against limits and idempotency keys, and sent to watchers.
//!
//! Each write of `speed` and `kills` creates one record that is kept. For etcd, it is a key with a value of the
//! configured size. For Lattice, it is an allocation with a command line of that size, submitted under an idempotency
//! key as services do. The Lattice members run this same program, so nothing else must be built. `etcd` must be in
//! `PATH`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "an example for a terminal"
)]

/// The allocator that the members use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod endurance;
mod etcd;
mod kills;
mod lattice;
mod machine;
mod rpc;
mod side;
mod speed;
mod writer;

use clap::{Args, Parser, Subcommand};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Compares the Lattice quorum with etcd.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Options of all comparisons.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Folder in which a new folder for the data of the members is created.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Size of each record, bytes.
    #[arg(long, default_value_t = 300)]
    bytes: usize,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure writes per second and the latency of a write.
    Speed(speed::Options),
    /// Measure the time from the kill of a leader to the first write that is accepted again.
    Kills(kills::Options),
    /// Put full load on the Lattice members alone for a long time.
    Steady(endurance::Options),
    /// Run one Lattice member.
    #[command(hide = true)]
    Member {
        /// Number of the member.
        #[arg(long)]
        id: u64,
        /// Folder of the credentials and data.
        #[arg(long)]
        root: PathBuf,
        /// Addresses of all members.
        #[arg(long, value_delimiter = ',')]
        addrs: Vec<SocketAddr>,
    },
    /// Run the writer process, which reads requests for measurements from its standard input.
    #[command(hide = true)]
    Writer {
        /// Destination of the writes.
        #[arg(long)]
        to: writer::WriteTarget,
        /// Folder of the credentials.
        #[arg(long)]
        root: PathBuf,
        /// Addresses of all members.
        #[arg(long, value_delimiter = ',')]
        addrs: Vec<SocketAddr>,
        /// Size of each record, bytes.
        #[arg(long)]
        bytes: usize,
    },
}

impl Common {
    /// Creates a folder that is removed when the return value is dropped.
    fn folder(&self) -> tempfile::TempDir {
        let made = tempfile::Builder::new()
            .prefix("beside-etcd-")
            .tempdir_in(&self.dir);
        let folder = made.expect("a folder for the data");
        eprintln!("data in {}", folder.path().display());
        folder
    }
}

/// Creates a folder below `root` unless it exists.
fn below(root: &Path, name: &str) -> PathBuf {
    let folder = root.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[tokio::main]
async fn main() {
    match Cli::parse().command {
        Command::Speed(options) => speed::run(&options).await,
        Command::Kills(options) => kills::run(&options).await,
        Command::Steady(options) => endurance::run(&options).await,
        Command::Member { id, root, addrs } => lattice::member(id, &root, &addrs).await,
        Command::Writer {
            to,
            root,
            addrs,
            bytes,
        } => writer::run(to, &root, addrs, bytes).await,
    }
}
