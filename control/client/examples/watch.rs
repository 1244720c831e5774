//! Prints the nodes of a cluster, then every change of an allocation as it happens.
//!
//! `cargo run -p lattice-client --example watch -- [CONTEXT-FILE]`; without a context file the example uses the cluster
//! that the `lattice` command finds.

use lattice_client::{
    Client,
    api::event::{Change, StreamEvent},
};
use std::path::PathBuf;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = std::env::args_os().nth(1).map(PathBuf::from);
    let client = Client::discover(context.as_deref())?;
    for node in client.nodes().await? {
        println!("{} {} {}", node.name, node.lifecycle, node.liveness);
    }
    let mut events = client.events(None).await?;
    loop {
        match events.next_event().await? {
            StreamEvent::Changes(changes) => {
                for change in changes.changes {
                    if let Change::Allocation { change, record } = change {
                        println!("{} {change}: {}", record.id, record.state);
                    }
                }
            }
            StreamEvent::Observed(_) => {}
            StreamEvent::Compacted(_) => println!("events were missed; read the lists again"),
        }
    }
}
