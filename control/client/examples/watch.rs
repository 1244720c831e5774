//! Prints the nodes of a cluster, then every allocation's change of state as it happens.
//!
//! `cargo run -p lattice-client --example watch -- https://127.0.0.1:8443 ca.pem token-file`

use lattice_client::{
    Client, Endpoint,
    api::event::{Change, StreamEvent},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(ca), Some(token)) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("give the server's URL, the CA's file and the token's file".into());
    };
    let client = Client::new(Endpoint {
        url,
        ca_pem: std::fs::read_to_string(ca)?,
        token: std::fs::read_to_string(token)?.trim().into(),
    })?;
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
            StreamEvent::Compacted(_) => println!("too much was missed; read the lists again"),
        }
    }
}
