//! Both ends of the mesh in one process: a call, a stream, a message, and two refusals.
//!
//! `cargo run -p lattice-mesh --example echo`
#![allow(clippy::print_stdout, reason = "an example shows")]

use futures::StreamExt as _;
use lattice_mesh::{
    Authority, Clock, Credentials, ExpectedIdentity, Mesh, MeshConfig, Role, Router, Rpc,
    StreamRpc, SystemClock, Validity,
};
use serde::{Deserialize, Serialize};
use std::{error::Error, net::SocketAddr, time::Duration};

const DAY: Duration = Duration::from_secs(86_400);
const DEADLINE: Duration = Duration::from_secs(1);
/// Message kind, agreed between sender and receiver.
const NOTE: u16 = 700;

/// Returns the identity of the caller and the text that it sent. Agents may call it.
#[derive(Debug, Serialize, Deserialize)]
struct Echo {
    text: String,
}
impl Rpc for Echo {
    const METHOD: &'static str = "example.echo";
    const CALLERS: &'static [Role] = &[Role::Agent];
    type Reply = String;
}

/// Counts up to a number.
#[derive(Debug, Serialize, Deserialize)]
struct Count {
    to: u32,
}
impl StreamRpc for Count {
    const METHOD: &'static str = "example.count";
    const CALLERS: &'static [Role] = &[Role::Agent];
    type Item = u32;
}

fn member(authority: &Authority, role: Role, id: &str) -> Result<Mesh, Box<dyn Error>> {
    let own = Credentials::issued_now(authority, "example", role, id, DAY)?;
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    Ok(Mesh::bind(any_port, own, MeshConfig::default())?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let validity = Validity::from_now(SystemClock.now(), DAY);
    let authority = Authority::create("example", validity)?;
    let server = member(&authority, Role::Quorum, "q1")?;
    let (noted, mut notes) = tokio::sync::mpsc::channel(8);
    let router =
        Router::new()
            .rpc(|caller, echo: Echo| async move {
                Ok(format!("{} says {:?}", caller.identity, echo.text))
            })
            .stream(|_, count: Count, items| async move {
                for n in 1..=count.to {
                    items.send(&n).await?;
                }
                Ok(())
            })
            .messages(NOTE, &[Role::Agent], move |caller, bytes| {
                let _ = noted.try_send((caller, bytes));
            });
    server.serve(router)?;
    println!("{server:?} serves");

    let agent = member(&authority, Role::Agent, "gpu-001")?;
    let expect = ExpectedIdentity::exactly(Role::Quorum, "q1");
    let peer = agent.peer(server.local_addr(), expect);
    let echo = Echo {
        text: "hello".to_owned(),
    };
    println!("call: {}", peer.call(&echo, DEADLINE).await?);
    let items = peer.open(&Count { to: 5 }).await?;
    let numbers: Vec<_> = items.filter_map(|n| async { n.ok() }).collect().await;
    println!("stream: {numbers:?}");
    peer.send_message(NOTE, "a note".into())?;
    if let Some((caller, bytes)) = notes.recv().await {
        println!("message: {:?} from {}", bytes, caller.identity);
    }

    let control = member(&authority, Role::Control, "c1")?;
    let peer = control.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    if let Err(refused) = peer.call(&echo, DEADLINE).await {
        println!("refused: {refused}");
    }
    let foreign = Authority::create("example", validity)?;
    let stranger = member(&foreign, Role::Agent, "gpu-001")?;
    let reached = stranger.connect(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    if let Err(refused) = reached.await {
        println!("refused: {refused}");
    }
    server.shutdown(DEADLINE).await;
    Ok(())
}
