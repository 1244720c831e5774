//! Callers that the mesh refuses, and the text of each refusal.
//! `cargo test -p lattice-mesh --test it refusals:: -- --nocapture` prints the texts.

use crate::common::*;
use lattice_mesh::{
    Authority, CallError, Clock, Credentials, ExpectedIdentity, Identity, MeshConfig, MeshError,
    Role, Router, SystemClock, Validity,
};
use lattice_quorum_types::UnixMillis;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

fn show(what: &str, refusal: &dyn std::fmt::Display) {
    println!("{what}:\n    {refusal}");
}

/// Checks that one side rejects the other's certificate, and that no connection remains.
async fn not_trusted(
    what: &str,
    server: &lattice_mesh::Mesh,
    own: Credentials,
    config: MeshConfig,
) -> String {
    let stranger = bind_with(own, config);
    let refused = stranger
        .connect(server.local_addr(), ExpectedIdentity::role(Role::Quorum))
        .await
        .unwrap_err();
    show(what, &refused);
    assert!(matches!(refused, MeshError::NotTrusted { .. }), "{refused}");
    until("the server forgets it", || async {
        server.connections().is_empty()
    })
    .await;
    refused.to_string()
}

#[tokio::test]
async fn without_a_certificate_nothing_is_served() {
    for enrols in [false, true] {
        let authority = authority("demo");
        let server = bind(&authority, Role::Quorum, "q1");
        let router = if enrols {
            router().enrolment(Arc::new(RefusingEnroller))
        } else {
            router()
        };
        server.serve(router).unwrap();
        let naked = raw::client(&authority, None, b"lattice/1");
        let connecting = naked
            .connect(server.local_addr(), "lattice.invalid")
            .unwrap();
        // With TLS 1.3 a client receives the refusal on its first use of the connection.
        let refused = match connecting.await {
            Err(refused) => refused,
            Ok(connection) => raw::hello(&connection).await.unwrap_err(),
        };
        show("no certificate", &refused);
        let text = refused.to_string();
        assert!(
            text.contains("certificate is required") || text.contains("error 116"),
            "{text}"
        );
        assert_eq!(server.connections(), []);
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_by_both_sides() {
    let (ours, theirs) = (authority("demo"), authority("demo"));
    let server = serving(&ours);
    // The dialling side rejects the server.
    let own = credentials(&theirs, "demo", Role::Agent, "a1");
    let text = not_trusted("another CA, seen by the dialler", &server, own, patient());
    assert!(text.await.contains("unknown authority"));
    // The server rejects a client that trusts it: same names, same roots, wrong issuer.
    let own = issued_by_but_trusting(&theirs, &ours, Role::Agent, "a1");
    let text = not_trusted("another CA, seen by the server", &server, own, patient());
    assert!(text.await.contains("unknown authority"));
}

fn issued_by_but_trusting(
    issuer: &Authority,
    trusted: &Authority,
    role: Role,
    id: &str,
) -> Credentials {
    let identity = Identity::new("demo", role, id).unwrap();
    let new = Credentials::generate_key_and_csr().unwrap();
    let chain = issuer.issue(&identity, &new.csr, today()).unwrap();
    Credentials::new(chain, new.key, vec![trusted.certificate().clone()]).unwrap()
}

#[tokio::test]
async fn a_member_of_another_cluster_is_refused_even_with_the_same_authority() {
    let authority = authority("demo");
    let server = serving(&authority);
    let own = credentials(&authority, "other", Role::Agent, "a1");
    let text = not_trusted("another cluster", &server, own, patient()).await;
    assert!(text.contains("not of cluster"), "{text}");
    // The server rejects it too: a client that verifies no server is still refused.
    let own = credentials(&authority, "other", Role::Agent, "a1");
    let raw = raw::client(&authority, Some(&own), b"lattice/1");
    let connecting = raw.connect(server.local_addr(), "lattice.invalid").unwrap();
    let refused = match connecting.await {
        Err(refused) => refused,
        Ok(connection) => raw::hello(&connection).await.unwrap_err(),
    };
    assert!(refused.to_string().contains("error 46"), "{refused}");
    assert_eq!(server.connections(), []);
}

#[tokio::test]
async fn an_expired_certificate_is_refused_and_an_open_connection_ends_with_it() {
    let authority = authority("demo");
    let now = SystemClock.now();
    let past = Validity {
        not_before: UnixMillis(now.0 - 7_200_000),
        not_after: UnixMillis(now.0 - 3_600_000),
    };
    let agent = Identity::new("demo", Role::Agent, "a1").unwrap();
    let server = serving(&authority);
    let expired = Credentials::issued_by(&authority, &agent, past).unwrap();
    let text = not_trusted("expired", &server, expired, patient()).await;
    assert!(text.contains("expired"), "{text}");

    // The certificate expires during the connection, by the server's clock.
    let clock = arc_clock(now.0);
    let config = MeshConfig {
        clock: clock.clone(),
        ..patient()
    };
    let server = bind_with(credentials(&authority, "demo", Role::Quorum, "q2"), config);
    server.serve(router()).unwrap();
    let soon = Validity {
        not_before: UnixMillis(now.0 - 1000),
        not_after: UnixMillis(now.0 + 2000),
    };
    let own = Credentials::issued_by(&authority, &agent, soon).unwrap();
    let frozen = MeshConfig {
        clock: arc_clock(now.0),
        ..patient()
    };
    let mesh = bind_with(own, frozen);
    let peer = mesh.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    peer.call(&echo("x"), SHORT).await.unwrap();
    clock.0.store(now.0 + 3000, Ordering::SeqCst);
    // The dialling side receives the close a packet later; until then it would use the old connection.
    until(
        "the server closes it, and the dialler hears of it",
        || async { server.connections().is_empty() && mesh.connections().is_empty() },
    )
    .await;
    let refused = peer.connected().await.unwrap_err();
    show("expired meanwhile", &refused);
    assert!(matches!(refused, MeshError::NotTrusted { .. }), "{refused}");
    assert_eq!(server.connections(), [], "it is not let in again");
}

#[tokio::test]
async fn disconnects_from_unexpected_server() {
    let authority = authority("demo");
    let server = serving(&authority);
    let agent = bind(&authority, Role::Agent, "a1");
    for expect in [
        ExpectedIdentity::role(Role::Control),
        ExpectedIdentity::exactly(Role::Quorum, "q2"),
    ] {
        let refused = agent
            .connect(server.local_addr(), expect.clone())
            .await
            .unwrap_err();
        show("not who was expected", &refused);
        assert!(
            matches!(&refused, MeshError::UnexpectedPeer { expected, found, .. }
                if *expected == expect && found.id() == "q1"),
            "{refused}"
        );
        // The failed dial is remembered, so a call fails too, without sending anything.
        let unsent = agent
            .peer(server.local_addr(), expect)
            .call(&echo("x"), SHORT)
            .await;
        assert!(!unsent.unwrap_err().may_have_run());
    }
}

/// A request of the wrong role is refused by its method name: the handler's decoder never receives the body.
#[tokio::test]
async fn a_wrong_role_is_refused_before_its_body_is_read() {
    let authority = authority("demo");
    let server = bind(&authority, Role::Quorum, "q1");
    let called = Arc::new(AtomicBool::new(false));
    let seen = called.clone();
    let router = Router::new().rpc(move |_, echo: Echo| {
        seen.store(true, Ordering::SeqCst);
        async move { Ok(echo.text) }
    });
    server.serve(router).unwrap();
    let quorum = bind(&authority, Role::Quorum, "q2");
    let peer = quorum.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    let refused = peer.call(&echo("x"), SHORT).await.unwrap_err();
    show("wrong role", &refused);
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
    assert_eq!(refused.to_string(), "role quorum may not call test.echo");

    // A body that never arrives: a server that waited for it would not answer.
    let own = credentials(&authority, "demo", Role::Quorum, "q3");
    let raw = raw::client(&authority, Some(&own), b"lattice/1");
    let connection = raw
        .connect(server.local_addr(), "lattice.invalid")
        .unwrap()
        .await
        .unwrap();
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let mut request = vec![1, 0, 9];
    request.extend_from_slice(b"test.echo");
    request.extend_from_slice(&u32::MAX.to_be_bytes());
    send.write_all(&request).await.unwrap();
    let mut status = [0; 1];
    tokio::time::timeout(SHORT, recv.read_exact(&mut status))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status, [2], "a fault");
    assert!(!called.load(Ordering::SeqCst));
}

/// The server gives up a peer that stops in the middle of a request after its deadline, and serves others meanwhile.
#[tokio::test]
async fn a_stalled_peer_meets_the_deadline() {
    let authority = authority("demo");
    let config = MeshConfig {
        request_timeout: Duration::from_secs(3),
        ..patient()
    };
    let server = bind_with(credentials(&authority, "demo", Role::Quorum, "q1"), config);
    server.serve(router()).unwrap();
    let own = credentials(&authority, "demo", Role::Agent, "a1");
    let raw = raw::client(&authority, Some(&own), b"lattice/1");
    let connection = raw
        .connect(server.local_addr(), "lattice.invalid")
        .unwrap()
        .await
        .unwrap();
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(&[1, 0, 9, b't', b'e']).await.unwrap();
    let other = bind(&authority, Role::Agent, "a2");
    let peer = other.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    peer.call(&echo("x"), SHORT).await.unwrap();
    let answer = tokio::time::timeout(SHORT, recv.read_to_end(1024))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer.first(), Some(&2), "a fault: {answer:?}");
}

#[tokio::test]
async fn requests_of_another_protocol_version_and_oversize_names_are_refused() {
    let authority = authority("demo");
    let server = serving(&authority);
    let own = credentials(&authority, "demo", Role::Agent, "a1");
    let raw = raw::client(&authority, Some(&own), b"lattice/1");
    let connection = raw
        .connect(server.local_addr(), "lattice.invalid")
        .unwrap()
        .await
        .unwrap();
    for (request, expected) in [
        (
            &[2u8, 0, 1][..],
            "unsupported protocol version 2; this process supports version 1",
        ),
        (&[1, 0xff, 0xff], "the method name is too long"),
        (&[1, 0, 1, 0xff], "the method name is not text"),
    ] {
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(request).await.unwrap();
        let answer = tokio::time::timeout(SHORT, recv.read_to_end(1024))
            .await
            .unwrap()
            .unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains(expected), "{text}");
    }
}
