//! Calls, streams and messages, and every kind of their refusal.

use crate::common::*;
use bytes::Bytes;
use futures::StreamExt;
use lattice_mesh::{
    CallError, ExpectedIdentity, MAX_MESSAGE_BYTES, Mesh, MeshConfig, MeshError, MessageDropped,
    Role, Router,
};
use std::time::Duration;
use tokio::sync::mpsc;

async fn agent_and_server() -> (Mesh, Mesh, lattice_mesh::Peer) {
    let authority = authority("demo");
    let (server, agent) = (serving(&authority), bind(&authority, Role::Agent, "a1"));
    let peer = agent.peer(
        server.local_addr(),
        ExpectedIdentity::exactly(Role::Quorum, "q1"),
    );
    (server, agent, peer)
}

#[tokio::test]
async fn handler_receives_caller_identity() {
    let (_server, _agent, peer) = agent_and_server().await;
    assert_eq!(peer.call(&echo("hi"), SHORT).await.unwrap(), "hi from a1");
    let large = "x".repeat(1 << 20);
    let reply = peer.call(&echo(&large), SHORT).await.unwrap();
    assert_eq!(reply.len(), large.len() + " from a1".len());
}

#[tokio::test]
async fn one_connection_carries_many_calls_at_once() {
    let (server, _agent, peer) = agent_and_server().await;
    let calls = (0..200).map(|n| {
        let peer = peer.clone();
        async move { peer.call(&echo(&n.to_string()), SHORT).await.unwrap() }
    });
    let replies = futures::future::join_all(calls).await;
    assert_eq!(replies[199], "199 from a1");
    assert_eq!(server.connections().len(), 1);
}

#[tokio::test]
async fn a_stream_brings_all_items_and_ends() {
    let (_server, _agent, peer) = agent_and_server().await;
    let items = peer.open(&Count { until: Some(1000) }).await.unwrap();
    let numbers: Vec<u64> = items.map(Result::unwrap).collect().await;
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
}

/// Sends a notification when it is dropped.
struct Ends(mpsc::UnboundedSender<()>);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn dropping_a_stream_ends_its_handler_whatever_it_waits_for() {
    let authority = authority("demo");
    let (server, agent) = (
        bind(&authority, Role::Quorum, "q1"),
        bind(&authority, Role::Agent, "a1"),
    );
    let (ended, mut end) = mpsc::unbounded_channel();
    let router = Router::new().stream(move |_, _: Count, items| {
        let ends = Ends(ended.clone());
        async move {
            let _ends = ends;
            items.send(&1).await?;
            // The handler does not check its reader.
            std::future::pending().await
        }
    });
    server.serve(router).unwrap();
    let peer = agent.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    let mut items = peer.open(&Count { until: None }).await.unwrap();
    assert_eq!(items.next().await.unwrap().unwrap(), 1);
    assert!(end.try_recv().is_err(), "it runs");
    drop(items);
    let ended = tokio::time::timeout(SHORT, end.recv()).await;
    assert_eq!(ended.unwrap(), Some(()));
    assert_eq!(server.connections().len(), 1, "the connection stays");
}

#[tokio::test]
async fn a_slow_reader_holds_up_its_stream_and_nothing_else() {
    let (_server, _agent, peer) = agent_and_server().await;
    // An endless stream that the test does not read.
    let mut unread = peer.open(&Count { until: None }).await.unwrap();
    for n in 0..20 {
        let echo = echo(&n.to_string());
        assert_eq!(
            peer.call(&echo, SHORT).await.unwrap(),
            format!("{n} from a1")
        );
    }
    assert_eq!(unread.next().await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn handles_with_different_expectations_share_a_connection() {
    let (server, agent, peer) = agent_and_server().await;
    peer.call(&echo("x"), SHORT).await.unwrap();
    let any = agent.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    any.call(&echo("x"), SHORT).await.unwrap();
    assert_eq!(server.connections().len(), 1);
    let wrong = agent.peer(server.local_addr(), ExpectedIdentity::role(Role::Control));
    let refused = wrong.connected().await.unwrap_err();
    assert!(
        matches!(refused, MeshError::UnexpectedPeer { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn traffic_counts_open_and_closed_connections() {
    let (server, agent, peer) = agent_and_server().await;
    assert_eq!(agent.traffic(), lattice_mesh::Traffic::default());
    peer.call(&echo(&"x".repeat(100_000)), SHORT).await.unwrap();
    let open = agent.traffic();
    assert!(
        open.sent_bytes > 100_000 && open.received_bytes > 100_000,
        "{open:?}"
    );
    agent.disconnect(&server.identity());
    until("it is closed", || async { agent.connections().is_empty() }).await;
    let closed = agent.traffic();
    assert!(closed.sent_bytes >= open.sent_bytes, "{open:?} {closed:?}");
}

#[tokio::test]
async fn messages_arrive_with_their_sender_and_only_from_allowed_roles() {
    let authority = authority("demo");
    let (one, two) = (
        bind(&authority, Role::Agent, "a1"),
        bind(&authority, Role::Agent, "a2"),
    );
    let quorum = bind(&authority, Role::Quorum, "q1");
    let (sender, mut received) = mpsc::channel(8);
    let router = Router::new().messages(7, &[Role::Agent], move |caller, bytes| {
        let _ = sender.try_send((caller, bytes));
    });
    two.serve(router).unwrap();
    let at = two.local_addr();
    // Dropped silently: the message after these must be the first to arrive.
    let denied = quorum
        .connect(at, ExpectedIdentity::role(Role::Agent))
        .await
        .unwrap();
    denied
        .send_message(7, Bytes::from_static(b"denied"))
        .unwrap();
    let peer = one.peer(at, ExpectedIdentity::exactly(Role::Agent, "a2"));
    peer.send_message(9, Bytes::from_static(b"unknown kind"))
        .unwrap();
    let whole = Bytes::from(vec![5; MAX_MESSAGE_BYTES]);
    let arrived = async {
        loop {
            peer.send_message(7, whole.clone()).unwrap();
            // A message that takes too long is dropped.
            let arrived = tokio::time::timeout(Duration::from_secs(3), received.recv()).await;
            if let Ok(arrived) = arrived {
                return arrived.unwrap();
            }
        }
    };
    let (caller, bytes) = tokio::time::timeout(SHORT, arrived).await.unwrap();
    assert_eq!(
        (caller.identity.id(), caller.addr, bytes),
        ("a1", one.local_addr(), whole)
    );
    let too_long = Bytes::from(vec![5; MAX_MESSAGE_BYTES + 1]);
    assert_eq!(
        peer.send_message(7, too_long),
        Err(MessageDropped::TooLarge)
    );
}

#[tokio::test]
async fn drops_messages_without_recipient() {
    let authority = authority("demo");
    let agent = bind(&authority, Role::Agent, "a1");
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = agent.peer(
        silent.local_addr().unwrap(),
        ExpectedIdentity::role(Role::Agent),
    );
    let outcomes: Vec<_> = (0..20)
        .map(|_| peer.send_message(7, Bytes::from_static(b"x")))
        .collect();
    assert_eq!(outcomes[..8], [Ok(()); 8]);
    assert_eq!(outcomes[19], Err(MessageDropped::QueueFull));
}

#[tokio::test]
async fn one_connection_serves_both_directions() {
    let authority = authority("demo");
    let (server, agent) = (serving(&authority), bind(&authority, Role::Control, "c1"));
    agent.serve(router_for_quorum()).unwrap();
    let there = agent.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    assert_eq!(there.call(&echo("x"), SHORT).await.unwrap(), "x from c1");
    let back = server.peer(agent.local_addr(), ExpectedIdentity::role(Role::Control));
    back.connected().await.unwrap();
    assert_eq!(
        (server.connections().len(), agent.connections().len()),
        (1, 1)
    );
    let refused = back.call(&echo("x"), SHORT).await.unwrap_err();
    assert!(
        matches!(
            refused,
            CallError::Denied {
                role: Role::Quorum,
                ..
            }
        ),
        "{refused}"
    );
}

fn router_for_quorum() -> Router {
    router()
}

#[tokio::test]
async fn a_role_that_may_not_call_is_refused() {
    let authority = authority("demo");
    let (server, other) = (serving(&authority), bind(&authority, Role::Quorum, "q2"));
    let peer = other.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    let refused = peer.call(&echo("x"), SHORT).await.unwrap_err();
    assert_eq!(refused.to_string(), "role quorum may not call test.echo");
    assert!(!refused.may_have_run());
    let refused = peer.open(&Count { until: None }).await.unwrap_err();
    assert!(matches!(refused, CallError::Denied { .. }), "{refused}");
}

#[tokio::test]
async fn an_unknown_method_is_refused() {
    let (_server, _agent, peer) = agent_and_server().await;
    let refused = peer.call(&Unserved, SHORT).await.unwrap_err();
    assert!(matches!(&refused, CallError::UnknownMethod { method } if method == "test.unserved"));
    // The connection remains usable.
    peer.call(&echo("x"), SHORT).await.unwrap();
}

#[tokio::test]
async fn a_body_of_another_version_is_malformed() {
    let (_server, _agent, peer) = agent_and_server().await;
    let refused = peer
        .call(&EchoOfAnotherVersion { number: 300 }, SHORT)
        .await
        .unwrap_err();
    assert!(matches!(refused, CallError::Malformed { .. }), "{refused}");
}

#[tokio::test]
async fn a_request_above_the_servers_limit_is_refused() {
    let authority = authority("demo");
    let small = MeshConfig {
        max_request_bytes: 1000,
        ..MeshConfig::default()
    };
    let server = bind_with(credentials(&authority, "demo", Role::Quorum, "q1"), small);
    server.serve(router()).unwrap();
    let agent = bind(&authority, Role::Agent, "a1");
    let peer = agent.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    let refused = peer
        .call(&echo(&"x".repeat(3 << 20)), SHORT)
        .await
        .unwrap_err();
    assert!(
        matches!(
            refused,
            CallError::TooLarge {
                limit_bytes: 1000,
                ..
            }
        ),
        "{refused}"
    );
    let refused = peer
        .call(&echo(&"x".repeat(5 << 20)), SHORT)
        .await
        .unwrap_err();
    assert!(
        matches!(
            refused,
            CallError::TooLarge {
                limit_bytes: 0x40_0000,
                ..
            }
        ),
        "{refused}"
    );
    peer.call(&echo("x"), SHORT).await.unwrap();
}

#[tokio::test]
async fn a_slow_handler_meets_the_callers_deadline() {
    let (_server, _agent, peer) = agent_and_server().await;
    let late = peer
        .call(&Hang, Duration::from_millis(100))
        .await
        .unwrap_err();
    assert!(
        matches!(late, CallError::Deadline { .. }) && late.may_have_run(),
        "{late}"
    );
}

#[tokio::test]
async fn a_slow_handler_meets_the_servers_deadline() {
    let authority = authority("demo");
    let limit = Duration::from_millis(100);
    let config = MeshConfig {
        request_timeout: limit,
        ..MeshConfig::default()
    };
    let server = bind_with(credentials(&authority, "demo", Role::Quorum, "q1"), config);
    server.serve(router()).unwrap();
    let agent = bind(&authority, Role::Agent, "a1");
    let peer = agent.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    let late = peer.call(&Hang, SHORT).await.unwrap_err();
    assert!(
        matches!(late, CallError::Deadline { after } if after == limit),
        "{late}"
    );
}

#[tokio::test]
async fn handler_failure_differs_from_timeout() {
    let (_server, _agent, peer) = agent_and_server().await;
    for panic in [false, true] {
        let failed = peer.call(&Break { panic }, SHORT).await.unwrap_err();
        let expected = if panic { "it panicked" } else { "asked to" };
        assert!(
            matches!(&failed, CallError::HandlerFailed { reason } if reason == expected),
            "{failed}"
        );
    }
    peer.call(&echo("x"), SHORT).await.unwrap();
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let authority = authority("demo");
    let first = bind(&authority, Role::Agent, "a1");
    let own = credentials(&authority, "demo", Role::Agent, "a2");
    let error = Mesh::bind(first.local_addr(), own, MeshConfig::default()).unwrap_err();
    assert!(matches!(error, MeshError::AddressInUse { addr } if addr == first.local_addr()));
}

#[tokio::test]
async fn serving_twice_is_refused() {
    let server = serving(&authority("demo"));
    assert!(matches!(
        server.serve(router()),
        Err(MeshError::AlreadyServing)
    ));
}

#[tokio::test]
async fn failed_dials_back_off_and_say_why() {
    let authority = authority("demo");
    let config = MeshConfig {
        connect_timeout: Duration::from_millis(100),
        min_backoff: Duration::from_secs(60),
        max_backoff: Duration::from_secs(60),
        ..MeshConfig::default()
    };
    let agent = bind_with(credentials(&authority, "demo", Role::Agent, "a1"), config);
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = agent.peer(
        silent.local_addr().unwrap(),
        ExpectedIdentity::role(Role::Quorum),
    );
    let first = peer.connected().await.unwrap_err();
    assert!(matches!(first, MeshError::Unreachable { .. }), "{first}");
    let second = peer.call(&echo("x"), SHORT).await.unwrap_err();
    assert!(second.to_string().contains("the last dial to"), "{second}");
    assert!(!second.may_have_run());
}

#[tokio::test]
async fn a_restarted_peer_is_reached_without_waiting_for_the_idle_timeout() {
    let authority = authority("demo");
    let own = credentials(&authority, "demo", Role::Quorum, "q1");
    let agent = bind(&authority, Role::Agent, "a1");
    // A runtime of its own: dropping it ends the tasks of the process without a close.
    let killed = tokio::runtime::Runtime::new().unwrap();
    let (first, addr) = killed.serve_inside(own.clone());
    let peer = agent.peer(addr, ExpectedIdentity::role(Role::Quorum));
    peer.call(&echo("x"), SHORT).await.unwrap();
    killed.shutdown_background();
    // No task is left to send a close: this only closes the socket.
    drop(first);
    let second = rebind(addr, own).await;
    second.serve(router()).unwrap();
    let started = tokio::time::Instant::now();
    until("the restarted peer answers", || async {
        peer.call(&echo("x"), Duration::from_secs(1)).await.is_ok()
    })
    .await;
    // The idle timeout is 30 s.
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
}

trait ServeInside {
    fn serve_inside(&self, own: lattice_mesh::Credentials) -> (Mesh, std::net::SocketAddr);
}

impl ServeInside for tokio::runtime::Runtime {
    fn serve_inside(&self, own: lattice_mesh::Credentials) -> (Mesh, std::net::SocketAddr) {
        let _inside = self.enter();
        let mesh = Mesh::bind(own_port(), own, MeshConfig::default()).unwrap();
        mesh.serve(router()).unwrap();
        let addr = mesh.local_addr();
        (mesh, addr)
    }
}

async fn rebind(addr: std::net::SocketAddr, own: lattice_mesh::Credentials) -> Mesh {
    loop {
        match Mesh::bind(addr, own.clone(), MeshConfig::default()) {
            Ok(mesh) => return mesh,
            Err(MeshError::AddressInUse { .. }) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn shutdown_lets_running_calls_finish_and_ends_streams() {
    let authority = authority("demo");
    let (server, agent) = (
        bind(&authority, Role::Quorum, "q1"),
        bind(&authority, Role::Agent, "a1"),
    );
    let (entered, mut inside) = mpsc::channel::<()>(1);
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let router = Router::new()
        .rpc({
            let go = go.clone();
            move |_, request: Echo| {
                let (entered, go) = (entered.clone(), go.clone());
                async move {
                    let _ = entered.send(()).await;
                    go.notified().await;
                    Ok(request.text)
                }
            }
        })
        .stream(|_, _: Count, items| async move {
            items.send(&1).await?;
            std::future::pending().await
        });
    server.serve(router).unwrap();
    let peer = agent.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    let mut items = peer.open(&Count { until: None }).await.unwrap();
    assert_eq!(items.next().await.unwrap().unwrap(), 1);
    let call = tokio::spawn({
        let peer = peer.clone();
        async move { peer.call(&echo("last"), SHORT).await }
    });
    inside.recv().await.unwrap();
    let down = tokio::spawn({
        let server = server.clone();
        async move { server.shutdown(SHORT).await }
    });
    let ended = items.next().await.unwrap().unwrap_err();
    assert!(ended.to_string().contains("shutting down"), "{ended}");
    go.notify_one();
    assert_eq!(call.await.unwrap().unwrap(), "last");
    tokio::time::timeout(SHORT, down).await.unwrap().unwrap();
    let gone = peer.call(&echo("x"), Duration::from_secs(1)).await;
    assert!(gone.is_err());
}

#[tokio::test]
async fn a_shutdown_waits_for_no_dial_and_gives_the_port_back() {
    let mut took = Vec::new();
    // A shutdown that waited would be slow every time; a busy machine is slow only at times.
    for _ in 0..5 {
        took.push(shut_down_while_it_dials().await);
        if took.iter().any(|took| *took < Duration::from_secs(1)) {
            return;
        }
    }
    panic!("{took:?}");
}

async fn shut_down_while_it_dials() -> Duration {
    let authority = authority("demo");
    let own = credentials(&authority, "demo", Role::Agent, "a1");
    let mesh = Mesh::bind(own_port(), own, patient()).unwrap();
    // The socket receives datagrams and never answers.
    let silent = std::net::UdpSocket::bind(any_port()).unwrap();
    let peer = mesh.peer(
        silent.local_addr().unwrap(),
        ExpectedIdentity::role(Role::Quorum),
    );
    let dialling = tokio::spawn(async move { peer.connected().await });
    silent.set_nonblocking(true).unwrap();
    let silent = tokio::net::UdpSocket::from_std(silent).unwrap();
    silent.recv_from(&mut [0; 2048]).await.unwrap();
    let (addr, began) = (mesh.local_addr(), std::time::Instant::now());
    mesh.shutdown(Duration::from_millis(300)).await;
    assert!(matches!(dialling.await.unwrap(), Err(MeshError::Closed)));
    until("the port", || async {
        std::net::UdpSocket::bind(addr).is_ok()
    })
    .await;
    began.elapsed()
}

#[tokio::test]
async fn an_agent_is_believed_less_at_a_time_than_others() {
    let authority = authority("demo");
    let config = MeshConfig {
        max_agent_reply_bytes: 1000,
        ..MeshConfig::default()
    };
    let control = bind_with(credentials(&authority, "demo", Role::Control, "c1"), config);
    let text = "x".repeat(2000);
    for (role, id) in [(Role::Agent, "a1"), (Role::Quorum, "1")] {
        let server = bind(&authority, role, id);
        server.serve(router()).unwrap();
        let peer = control.peer(server.local_addr(), ExpectedIdentity::exactly(role, id));
        let called = peer.call(&echo(&text), SHORT).await;
        let is_too_large =
            |called: &Result<_, CallError>| matches!(called, Err(CallError::TooLarge { .. }));
        assert_eq!(is_too_large(&called), role == Role::Agent);
        let short = peer.call(&echo("hello"), SHORT).await;
        assert!(short.is_ok(), "{short:?}");
        let less = peer.clone().with_max_reply(4);
        let called = less.call(&echo("hello"), SHORT).await;
        assert!(is_too_large(&called));
    }
}
