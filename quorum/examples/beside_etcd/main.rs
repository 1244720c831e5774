//! Three members of ours beside three of etcd, on loopback, in one run:
//!
//! ```text
//! just etcd      # writes a second, p50 and p99 with 1, 16, 64 and 256 writers
//! just kills     # from the SIGKILL of a leader to the first write that is accepted again
//! just steady    # full load for half an hour: elections, and the longest time without a write
//! ```
//!
//! Both keep their data on the same filesystem and sync it before they acknowledge: ours always,
//! etcd unless it is told not to, which it is not. Both beat every 100 ms and take five beats missed
//! for a leader's death. Clients talk to the leader, and look for it in the same way. What differs
//! is in etcd's favour: its clients speak plain HTTP/2 over as many connections as it likes best, ours
//! QUIC with mutual TLS over one; its writes are values, ours are judged (limits, keys) and told to
//! watchers.
//!
//! One write is a record of its own that is kept: for etcd a key with a value of so many bytes, for us
//! an allocation whose command line is as long, submitted under an idempotency key as services do. Our
//! members are this program again, so that nothing else must be built. `etcd` must be in the path.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "an example for a terminal"
)]

/// As the members have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod etcd;
mod kills;
mod lattice;
mod machine;
mod rpc;
mod side;
mod speed;
mod steady;
mod writer;

use clap::{Args, Parser, Subcommand};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Our quorum beside etcd.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What every comparison may be told.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Where the members keep their data; a folder of its own is made in it.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Bytes of each record.
    #[arg(long, default_value_t = 300)]
    bytes: usize,
    /// Prints one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Writes a second and how long each takes.
    Speed(speed::Options),
    /// From the kill of a leader to the first write that is accepted again.
    Kills(kills::Options),
    /// Full load for long, on our members alone.
    Steady(steady::Options),
    /// One member of ours.
    #[command(hide = true)]
    Member {
        /// Its number.
        #[arg(long)]
        id: u64,
        /// Where credentials and data are.
        #[arg(long)]
        root: PathBuf,
        /// Of all members.
        #[arg(long, value_delimiter = ',')]
        addrs: Vec<SocketAddr>,
    },
    /// The process that writes; it is told what on its standard input.
    #[command(hide = true)]
    Writer {
        /// To whom.
        #[arg(long)]
        to: writer::To,
        /// Where credentials are.
        #[arg(long)]
        root: PathBuf,
        /// Of all members.
        #[arg(long, value_delimiter = ',')]
        addrs: Vec<SocketAddr>,
        /// Of each record.
        #[arg(long)]
        bytes: usize,
    },
}

impl Common {
    /// A new folder, which is removed when it is dropped.
    fn folder(&self) -> tempfile::TempDir {
        let made = tempfile::Builder::new()
            .prefix("beside-etcd-")
            .tempdir_in(&self.dir);
        let folder = made.expect("a folder for the data");
        eprintln!("data in {}", folder.path().display());
        folder
    }
}

/// A folder below `root`.
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
        Command::Steady(options) => steady::run(&options).await,
        Command::Member { id, root, addrs } => lattice::member(id, &root, &addrs).await,
        Command::Writer {
            to,
            root,
            addrs,
            bytes,
        } => writer::run(to, &root, addrs, bytes).await,
    }
}
