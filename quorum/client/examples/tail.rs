//! Prints the status of all members and the size of the state, then every event as it is committed:
//!
//! ```text
//! cargo run -p lattice-quorum-client --example tail -- CREDENTIALS ADDR [ADDR...]
//! ```
//!
//! `CREDENTIALS` is a folder with the certificate of a control service.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "an example for a terminal"
)]

use lattice_mesh::{Credentials, Mesh, MeshConfig};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::view::{Answer, Query, WatchItem};
use std::{net::SocketAddr, path::Path};

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("a folder with credentials");
    let addrs: Vec<SocketAddr> = args
        .map(|text| text.parse().expect("an address like 127.0.0.1:7101"))
        .collect();
    let credentials = Credentials::load(Path::new(&folder)).expect("credentials");
    let any = "0.0.0.0:0".parse().expect("an address");
    let mesh = Mesh::bind(any, credentials, MeshConfig::default()).expect("an endpoint");
    let client = QuorumClient::new(mesh, addrs);
    for (addr, status) in client.status().await {
        match status {
            Ok(s) => println!(
                "{addr}: member {} term {} leader {:?} revision {}",
                s.id, s.term, s.leader, s.revision
            ),
            Err(error) => println!("{addr}: {error}"),
        }
    }
    loop {
        let Answer::Hot(hot) = client.read(Query::Hot).await.expect("the hot state") else {
            return;
        };
        println!(
            "revision {}: {} nodes, {} projects, {} allocations not ended",
            hot.revision,
            hot.nodes.len(),
            hot.projects.len(),
            hot.allocations.len()
        );
        let mut watch = client.watch(hot.revision);
        while let Some(item) = watch.next().await {
            match item {
                WatchItem::Events(events) => {
                    for event in events {
                        println!("{}.{} {:?}", event.revision, event.ordinal, event.kind);
                    }
                }
                WatchItem::Idle(_) => {}
                WatchItem::Compacted { oldest } => {
                    println!(
                        "events before revision {oldest} are compacted; reading the state again"
                    );
                }
            }
        }
    }
}
