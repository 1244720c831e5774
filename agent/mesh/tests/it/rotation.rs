//! Certificate rotation and revoked peers; no session survives either.

use crate::common::*;
use lattice_mesh::{
    Authority, Credentials, CredentialsError, ExpectedIdentity, Identity, Mesh, MeshError, Role,
};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

const NAME: &str = "lattice.invalid";

/// A client that would resume must present its certificate and verify ours every time.
#[tokio::test]
async fn our_server_never_resumes_a_session() {
    let authority = authority("demo");
    let server = serving(&authority);
    let own = credentials(&authority, "demo", Role::Agent, "a1");
    let seen = Arc::new(raw::CountingServers::default());
    let client = raw::counting_client(Some(&own), b"lattice/1", seen.clone());
    for n in 1..=3 {
        let connecting = client.connect(server.local_addr(), NAME).unwrap();
        let connecting = match connecting.into_0rtt() {
            Ok(_) => panic!("early data was offered: a ticket was given out"),
            Err(connecting) => connecting,
        };
        let connection = connecting.await.unwrap();
        raw::hello(&connection).await.unwrap();
        assert_eq!(seen.0.load(Ordering::SeqCst), n, "full handshakes");
        connection.close(0u32.into(), b"");
    }
}

/// A server that issues tickets receives our certificate every time.
#[tokio::test]
async fn our_dialler_never_resumes_a_session() {
    let authority = authority("demo");
    let counting = Arc::new(CountingClients {
        judge: WebPkiClientVerifier::builder_with_provider(
            raw::roots_of(&authority),
            raw::provider(),
        )
        .build()
        .unwrap(),
        seen: AtomicUsize::new(0),
    });
    let own = credentials(&authority, "demo", Role::Quorum, "q1");
    let server = raw::ticketing_server(&own, counting.clone());
    let addr = server.local_addr().unwrap();
    // Control: the tickets are valid, and a client that uses them does resume.
    let agent = credentials(&authority, "demo", Role::Agent, "a1");
    let resuming = raw::client(&authority, Some(&agent), b"lattice/1");
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            tokio::spawn(greet(incoming));
        }
    });
    for _ in 0..2 {
        let connection = resuming.connect(addr, NAME).unwrap().await.unwrap();
        raw::hello(&connection).await.unwrap();
        connection.close(0u32.into(), b"");
    }
    assert_eq!(
        counting.seen.load(Ordering::SeqCst),
        1,
        "the second was resumed"
    );

    let ours = bind(&authority, Role::Agent, "a2");
    for n in 2..=4 {
        let peer = ours
            .connect(addr, ExpectedIdentity::role(Role::Quorum))
            .await
            .unwrap();
        assert_eq!(counting.seen.load(Ordering::SeqCst), n, "full handshakes");
        ours.disconnect(&peer.connected().await.unwrap());
        until("the connection closes", || async {
            ours.connections().is_empty()
        })
        .await;
    }
}

/// Answers greetings, as every member does.
async fn greet(incoming: quinn::Incoming) {
    let Ok(connection) = incoming.await else {
        return;
    };
    while let Ok((mut send, _recv)) = connection.accept_bi().await {
        send.write_all(&[0; 5]).await.unwrap();
        let _ = send.finish();
    }
}

#[derive(Debug)]
struct CountingClients {
    judge: Arc<dyn ClientCertVerifier>,
    seen: AtomicUsize,
}

impl ClientCertVerifier for CountingClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.judge.root_hint_subjects()
    }
    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.seen.fetch_add(1, Ordering::SeqCst);
        self.judge.verify_client_cert(leaf, rest, now)
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge.verify_tls12_signature(message, cert, dss)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge.verify_tls13_signature(message, cert, dss)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.judge.supported_verify_schemes()
    }
}

/// Returns the leaf certificate that a server presents now.
async fn shown_by(server: &Mesh, own: &Credentials) -> CertificateDer<'static> {
    let client = raw::counting_client(Some(own), b"lattice/1", Arc::default());
    let connection = client
        .connect(server.local_addr(), NAME)
        .unwrap()
        .await
        .unwrap();
    let chain = connection.peer_identity().unwrap();
    let chain = chain.downcast::<Vec<CertificateDer<'static>>>().unwrap();
    chain[0].clone()
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_restart_and_cuts_no_call() {
    let authority = authority("demo");
    let first = credentials(&authority, "demo", Role::Quorum, "q1");
    let renewed = credentials(&authority, "demo", Role::Quorum, "q1");
    let server = bind_with(first.clone(), patient());
    server.serve(router()).unwrap();
    let agent_first = credentials(&authority, "demo", Role::Agent, "a1");
    let agent = bind_with(agent_first.clone(), patient());
    let peer = agent.peer(
        server.local_addr(),
        ExpectedIdentity::exactly(Role::Quorum, "q1"),
    );
    peer.call(&echo("x"), SHORT).await.unwrap();
    assert_eq!(shown_by(&server, &agent_first).await, first.chain()[0]);

    let running = {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call(&echo(&"x".repeat(1 << 20)), SHORT).await })
    };
    server.rotate(renewed.clone()).unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(shown_by(&server, &agent_first).await, renewed.chain()[0]);
    assert_eq!(server.expires_at(), renewed.expires_at());
    peer.call(&echo("x"), SHORT).await.unwrap();
    // The client's own renewal: its next call makes a new connection and presents the new certificate.
    agent
        .rotate(credentials(&authority, "demo", Role::Agent, "a1"))
        .unwrap();
    peer.call(&echo("x"), SHORT).await.unwrap();
}

/// A member with many connections leaves them one after the other, without a failed call at its peers.
#[tokio::test]
async fn all_connections_are_left_for_new_ones_and_no_call_fails() {
    const PEERS: usize = 80;
    let authority = authority("demo");
    let server = serving(&authority);
    let agents: Vec<Mesh> = (0..PEERS)
        .map(|n| bind(&authority, Role::Agent, &format!("a{n}")))
        .collect();
    let peers: Vec<_> = agents
        .iter()
        .map(|agent| agent.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum)))
        .collect();
    for peer in &peers {
        peer.call(&echo("x"), SHORT).await.unwrap();
    }
    server
        .rotate(credentials(&authority, "demo", Role::Quorum, "q1"))
        .unwrap();
    let most = AtomicUsize::new(0);
    // Each connection is left a few seconds after its last call, and there are many calls.
    let limit = SHORT * 4;
    until_within(limit, "only new connections are left", || async {
        let mut open = 0;
        for peer in &peers {
            peer.call(&echo("x"), SHORT).await.unwrap();
            open = server.connections().len();
            most.fetch_max(open, Ordering::SeqCst);
        }
        most.load(Ordering::SeqCst) > PEERS && open == PEERS
    })
    .await;
    let most = most.into_inner();
    println!("{PEERS} connections, {most} at most meanwhile");
}

#[tokio::test]
async fn rotation_keeps_process_identity() {
    let authority = authority("demo");
    let server = serving(&authority);
    let other = credentials(&authority, "demo", Role::Quorum, "q2");
    let refused = server.rotate(other).unwrap_err();
    assert!(
        matches!(refused, MeshError::IdentityChanged { .. }),
        "{refused}"
    );
    assert_eq!(server.identity().id(), "q1");
}

fn trusting(issuer: &Authority, roots: &[&Authority], role: Role, id: &str) -> Credentials {
    let identity = Identity::new("demo", role, id).unwrap();
    let new = Credentials::generate_key_and_csr().unwrap();
    let chain = issuer.issue(&identity, &new.csr, today()).unwrap();
    let roots = roots
        .iter()
        .map(|root| root.certificate().clone())
        .collect();
    Credentials::new(chain, new.key, roots).unwrap()
}

/// The authority itself is replaced in three steps, and a peer that did not follow is cut off.
#[tokio::test]
async fn a_replaced_authority_closes_what_was_open_under_the_old_one() {
    let (old, new) = (authority("demo"), authority("demo"));
    let server = bind_with(trusting(&old, &[&old], Role::Quorum, "q1"), patient());
    server.serve(router()).unwrap();
    let join = |id: &str| {
        let mesh = bind_with(trusting(&old, &[&old], Role::Agent, id), patient());
        let peer = mesh.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
        (mesh, peer)
    };
    let ((follows, follower), (lags, laggard)) = (join("a1"), join("a2"));
    for peer in [&follower, &laggard] {
        peer.call(&echo("x"), SHORT).await.unwrap();
    }
    // All members first trust both authorities, then present certificates of the new one, then trust only the new one.
    server
        .rotate(trusting(&old, &[&old, &new], Role::Quorum, "q1"))
        .unwrap();
    follows
        .rotate(trusting(&new, &[&old, &new], Role::Agent, "a1"))
        .unwrap();
    for peer in [&follower, &laggard] {
        peer.call(&echo("x"), SHORT).await.unwrap();
    }
    server
        .rotate(trusting(&new, &[&new], Role::Quorum, "q1"))
        .unwrap();
    follower.call(&echo("x"), SHORT).await.unwrap();
    until("the laggard is cut off", || async {
        lags.connections().is_empty() && server.connections().iter().all(|peer| peer.id() == "a1")
    })
    .await;
    let refused = laggard.call(&echo("x"), SHORT).await.unwrap_err();
    assert!(!refused.may_have_run(), "{refused}");
}

#[tokio::test]
async fn disconnecting_a_peer_closes_its_open_connections_and_no_other() {
    let authority = authority("demo");
    let server = serving(&authority);
    let (bad, good) = (
        bind(&authority, Role::Agent, "bad"),
        bind(&authority, Role::Agent, "good"),
    );
    for mesh in [&bad, &good] {
        mesh.connect(server.local_addr(), ExpectedIdentity::role(Role::Quorum))
            .await
            .unwrap();
    }
    until("both are there", || async {
        server.connections().len() == 2
    })
    .await;
    assert_eq!(server.disconnect(&bad.identity()), 1);
    until("one is gone", || async {
        bad.connections().is_empty() && server.connections() == [good.identity()]
    })
    .await;
}

#[tokio::test]
async fn credentials_survive_their_folder_and_an_exposed_key_is_refused() {
    let authority = authority("demo");
    let folder = tempfile::tempdir().unwrap();
    let own = credentials(&authority, "demo", Role::Agent, "a1");
    own.save(folder.path()).unwrap();
    let read = Credentials::load(folder.path()).unwrap();
    assert_eq!(
        (read.identity(), read.chain(), read.roots()),
        (own.identity(), own.chain(), own.roots())
    );
    let key = folder.path().join("identity.key");
    assert_eq!(mode(&key), 0o600);
    chmod(&key, 0o640);
    let refused = Credentials::load(folder.path()).unwrap_err();
    println!("{refused}");
    assert!(
        matches!(&refused, CredentialsError::KeyExposed(exposed) if exposed.mode == 0o640),
        "{refused}"
    );

    let ca = tempfile::tempdir().unwrap();
    authority.save(ca.path()).unwrap();
    assert_eq!(Authority::load(ca.path()).unwrap().pin(), authority.pin());
    let key = ca.path().join("ca.key");
    assert_eq!(mode(&key), 0o600);
    chmod(&key, 0o604);
    assert!(
        Authority::load(ca.path())
            .unwrap_err()
            .to_string()
            .contains("chmod 600")
    );
    assert!(authority.save(ca.path()).is_err(), "never replaces one");
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o777
}

fn chmod(path: &Path, mode: u32) {
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, permissions).unwrap();
}
