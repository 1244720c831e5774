//! Trust bundles: accepted and rejected changes of trust, and their immediate effects.
//! `cargo test -p lattice-mesh --test it trust:: -- --nocapture` prints the texts.

use crate::common::{trust::*, *};
use lattice_mesh::{
    Authority, BundleRefused, BundleSignature, CallError, CertificateStanding, Clock, Credentials,
    CredentialsError, ExpectedIdentity, GetTrust, MAX_BUNDLE_BYTES, MAX_REVOKED, Mesh, MeshError,
    Pin, PushTrust, Role, Router, SignBundleError, SignedBundle, StatementRefused, SystemClock,
    TrustBundle,
};
use rcgen::SigningKey;
use std::{net::SocketAddr, sync::Arc, time::Duration};

fn show(what: &str, refusal: &dyn std::fmt::Display) {
    println!("{what}:\n    {refusal}");
}

fn serving_trust(own: Credentials) -> Mesh {
    serving_trust_at(any_port(), own)
}

fn serving_trust_at(addr: SocketAddr, own: Credentials) -> Mesh {
    let mesh = Mesh::bind(addr, own, patient()).unwrap();
    mesh.serve(router().with_trust_handlers(&mesh)).unwrap();
    mesh
}

#[tokio::test]
async fn a_bundle_is_taken_once_and_never_an_older_one() {
    let authority = authority("demo");
    let mesh = bind(&authority, Role::Agent, "a1");
    assert_eq!(mesh.trust_state().number, 0);
    let (third, fourth) = (signed(3, &authority, &[]), signed(4, &authority, &[]));
    let applied = mesh.apply_bundle(&third).unwrap();
    assert_eq!((applied.number, applied.changed), (3, true));
    assert_eq!(applied.standing, CertificateStanding::Good);
    let again = mesh.apply_bundle(&third).unwrap();
    assert_eq!((again.number, again.changed), (3, false));
    // The same bundle with other signatures is no change: only the body is compared.
    let resigned = signed(3, &authority, &[]);
    assert!(!mesh.apply_bundle(&resigned).unwrap().changed);
    mesh.apply_bundle(&fourth).unwrap();
    let refused = mesh.apply_bundle(&third).unwrap_err();
    show("rollback", &refused);
    let (number, in_force) = (3, 4);
    assert_eq!(refused, BundleRefused::Older { number, in_force });
    let other = signed(4, &authority, &[(&id(Role::Agent, "a9"), ahead(0))]);
    let refused = mesh.apply_bundle(&other).unwrap_err();
    show("two bundles of one number", &refused);
    assert_eq!(refused, BundleRefused::Conflict { number: 4 });
    assert_eq!(mesh.bundle(), Some(fourth));
}

/// After any defective bundle, the trust in force stays in force, and no peer is cut off.
#[tokio::test]
async fn forged_and_broken_bundles_change_nothing() {
    let (ours, theirs) = (authority("demo"), authority("demo"));
    let mesh = bind(&ours, Role::Agent, "a1");
    mesh.apply_bundle(&signed(1, &ours, &[])).unwrap();
    let before = mesh.bundle();
    let refused = |what: &str, bundle: &SignedBundle| {
        let refused = mesh.apply_bundle(bundle).unwrap_err();
        show(what, &refused);
        assert_eq!(mesh.bundle(), before, "{what}");
        refused
    };
    let good = signed(2, &ours, &[]);
    let foreign = signed(2, &theirs, &[]);
    assert_eq!(
        refused("another authority", &foreign),
        BundleRefused::NotSigned
    );
    // A bundle that names our authority in addition to its own signer is still rejected.
    let mut both = bundle(2, &ours, &[]);
    both.authorities = authorities(&[(&ours, true), (&theirs, true)]);
    let both = both.sign([&theirs]).unwrap();
    assert_eq!(
        refused("another authority for ours", &both),
        BundleRefused::NotSigned
    );

    // A member's own key under the authority's pin: the right message, the wrong key.
    let member = credentials(&ours, "demo", Role::Quorum, "q1");
    let folder = tempfile::tempdir().unwrap();
    member.save(folder.path()).unwrap();
    let key = key_in(&folder.path().join("identity.key"));
    let forge = |pin: Pin| SignedBundle {
        body: good.body.clone(),
        signatures: vec![BundleSignature {
            pin,
            signature: key.sign(&bundle_message(&good.body)).unwrap().into(),
        }],
    };
    assert_eq!(
        refused("a member's key", &forge(ours.pin())),
        BundleRefused::NotSigned
    );
    let own_pin = Pin::of(&member.chain()[0]);
    assert_eq!(
        refused("a member's key and pin", &forge(own_pin)),
        BundleRefused::NotSigned
    );
    // Also rejected: a statement signed by a member, which is another kind of message.
    let statement = member
        .sign("lattice mesh 1 trust bundle", &good.body)
        .unwrap();
    let mut forged = forge(ours.pin());
    forged.signatures[0].signature = statement.signature;
    assert_eq!(refused("a statement", &forged), BundleRefused::NotSigned);
    // The message matches the documentation: signed with the right key, it is accepted.
    let ca = tempfile::tempdir().unwrap();
    ours.save(ca.path()).unwrap();
    let key = key_in(&ca.path().join("ca.key"));
    let mut by_hand = forge(ours.pin());
    by_hand.signatures[0].signature = key.sign(&bundle_message(&good.body)).unwrap().into();
    by_hand
        .verify(&[ours.certificate().clone()], "demo")
        .unwrap();

    // Every single-bit change, and every truncation.
    for at in 0..good.body.len() * 8 {
        let mut body = good.body.to_vec();
        body[at / 8] ^= 1 << (at % 8);
        let changed = SignedBundle {
            body: body.into(),
            ..good.clone()
        };
        let refused = mesh.apply_bundle(&changed).unwrap_err();
        assert_eq!(refused, BundleRefused::NotSigned, "bit {at}");
        let _ = changed.decode_unverified();
        let mut shorter = good.clone();
        shorter.body.truncate(at / 8);
        assert!(shorter.decode_unverified().is_err(), "{} bytes", at / 8);
        assert!(mesh.apply_bundle(&shorter).is_err());
    }
    assert_eq!(mesh.bundle(), before);
    let mut truncated = good.clone();
    truncated.body.truncate(20);
    assert_eq!(refused("truncated", &truncated), BundleRefused::NotSigned);
    let none = SignedBundle {
        signatures: Vec::new(),
        ..good.clone()
    };
    assert_eq!(
        refused("without signature", &none),
        BundleRefused::NotSigned
    );
    let mut many = good.clone();
    many.signatures = vec![many.signatures[0].clone(); 100];
    assert!(matches!(
        refused("100 signatures", &many),
        BundleRefused::TooLarge { found: 100, .. }
    ));
    let large = SignedBundle {
        body: vec![1; MAX_BUNDLE_BYTES + 1].into(),
        ..good
    };
    assert!(matches!(
        refused("too large", &large),
        BundleRefused::TooLarge { .. }
    ));
}

/// Bundles with invalid content are rejected even if an authority has signed them.
#[tokio::test]
async fn well_signed_bundles_that_say_what_none_may_are_refused() {
    let authority = authority("demo");
    let mesh = bind(&authority, Role::Agent, "a1");
    let by_hand = |bundle: &TrustBundle, tail: &[u8]| {
        let mut body = vec![1];
        body.extend(postcard::to_stdvec(bundle).unwrap());
        body.extend_from_slice(tail);
        let ca = tempfile::tempdir().unwrap();
        authority.save(ca.path()).unwrap();
        let signature = key_in(&ca.path().join("ca.key")).sign(&bundle_message(&body));
        SignedBundle {
            body: body.into(),
            signatures: vec![BundleSignature {
                pin: authority.pin(),
                signature: signature.unwrap().into(),
            }],
        }
    };
    let good = bundle(1, &authority, &[]);
    let refused = |what: &str, signed: &SignedBundle| {
        let refused = mesh.apply_bundle(signed).unwrap_err();
        show(what, &refused);
        refused
    };
    let other = TrustBundle {
        cluster: "other".to_owned(),
        ..good.clone()
    };
    let found = refused("another cluster", &by_hand(&other, &[]));
    assert!(
        matches!(found, BundleRefused::ForeignCluster { .. }),
        "{found}"
    );
    assert!(other.sign([&authority]).is_ok(), "it is good elsewhere");
    let none = TrustBundle {
        authorities: Vec::new(),
        ..good.clone()
    };
    // A bundle without authorities could never be verified from disk.
    assert!(matches!(
        refused("no authority", &by_hand(&none, &[])),
        BundleRefused::Invalid { .. }
    ));
    let mut idle = good.clone();
    idle.authorities[0].issuing = false;
    assert!(matches!(
        refused("none issues", &by_hand(&idle, &[])),
        BundleRefused::Invalid { .. }
    ));
    let mut leaf = good.clone();
    let member = credentials(&authority, "demo", Role::Agent, "a1");
    leaf.authorities[0].certificate = member.chain()[0].to_vec().into();
    assert!(matches!(
        refused("not a CA", &by_hand(&leaf, &[])),
        BundleRefused::Invalid { .. }
    ));
    let found = refused("trailing bytes", &by_hand(&good, &[0]));
    assert!(matches!(found, BundleRefused::Invalid { .. }), "{found}");
    let mut crowd = good.clone();
    crowd.authorities = vec![crowd.authorities[0].clone(); 17];
    assert!(matches!(
        refused("17 authorities", &by_hand(&crowd, &[])),
        BundleRefused::TooLarge {
            found: 17,
            limit: 16,
            ..
        }
    ));
    let mut newer = by_hand(&good, &[]).body.to_vec();
    newer[0] = 2;
    let newer = SignedBundle {
        body: newer.into(),
        ..by_hand(&good, &[])
    };
    assert_eq!(
        refused("another version, not signed so", &newer),
        BundleRefused::NotSigned
    );
    assert_eq!(mesh.bundle(), None);
    mesh.apply_bundle(&by_hand(&good, &[])).unwrap();
}

/// Both ends close an open connection when they receive the peer's revocation, and refuse the peer afterwards. A
/// certificate issued since is accepted.
#[tokio::test]
async fn revocation_closes_open_connections_and_refuses_new_ones() {
    let authority = authority("demo");
    let server = serving_trust(credentials(&authority, "demo", Role::Quorum, "q1"));
    let (bad, good) = (
        bind(&authority, Role::Agent, "a1"),
        bind(&authority, Role::Agent, "a2"),
    );
    // An endpoint of the same name, with a certificate issued before the moment of revocation. Created now, because the
    // clock may reach the next second before it is dialled.
    let revoked = serving_trust(credentials(&authority, "demo", Role::Agent, "a1"));
    let peers =
        [&bad, &good].map(|m| m.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum)));
    for peer in &peers {
        peer.call(&echo("x"), SHORT).await.unwrap();
    }
    let from = ahead(1);
    let bundle = signed(1, &authority, &[(&bad.identity(), from)]);
    let before = std::time::Instant::now();
    let applied = server.apply_bundle(&bundle).unwrap();
    assert_eq!(applied.closed_connections, 1);
    until("the revoked one is cut off", || async {
        bad.connections().is_empty()
    })
    .await;
    let took = before.elapsed();
    println!(
        "revoked to closed at the other end: {} ms",
        took.as_millis()
    );
    // Not caused by a keep-alive, which follows after 10 s.
    assert!(took < Duration::from_secs(8), "{took:?}");
    peers[1].call(&echo("x"), SHORT).await.unwrap();
    assert_eq!(server.connections(), [good.identity()]);
    let refused = peers[0].connected().await.unwrap_err();
    show("revoked, seen by the server", &refused);
    assert!(matches!(refused, MeshError::NotTrusted { .. }), "{refused}");
    assert!(refused.to_string().contains("it was revoked"), "{refused}");

    // The other direction: the dialling side has the revocation, the server does not.
    good.apply_bundle(&bundle).unwrap();
    let refused = good
        .connect(revoked.local_addr(), ExpectedIdentity::role(Role::Agent))
        .await;
    let refused = refused.unwrap_err();
    show("revoked, seen by the dialler", &refused);
    assert!(refused.to_string().contains("it was revoked"), "{refused}");
    // The revoked process receives the revocation itself, and can report it.
    let applied = revoked.apply_bundle(&bundle).unwrap();
    assert_eq!(applied.standing, CertificateStanding::Revoked);
    assert_eq!(revoked.trust_state().standing, CertificateStanding::Revoked);

    // Same name, issued at exactly the moment from which certificates are valid.
    bad.rotate(issued_at(&authority, &bad.identity(), from))
        .unwrap();
    until("it may come back", || async {
        peers[0].call(&echo("x"), SHORT).await.is_ok()
    })
    .await;
}

/// Whatever the order of a handshake and a revocation, the revoked peer is disconnected in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_made_while_it_is_revoked_does_not_stay() {
    let authority = authority("demo");
    for round in 0..40 {
        let server = serving_trust(credentials(&authority, "demo", Role::Quorum, "q1"));
        let bad = bind(&authority, Role::Agent, "a1");
        let bundle = signed(1, &authority, &[(&bad.identity(), ahead(1))]);
        let peer = bad.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
        let dial = tokio::spawn(async move { peer.connected().await });
        tokio::time::sleep(Duration::from_micros(round * 100)).await;
        server.apply_bundle(&bundle).unwrap();
        let _ = dial.await.unwrap();
        until("it is out", || async { server.connections().is_empty() }).await;
    }
}

#[tokio::test]
async fn quorum_and_control_push_trust_and_everyone_may_ask() {
    let authority = authority("demo");
    let agent = serving_trust(credentials(&authority, "demo", Role::Agent, "a1"));
    let others =
        [Role::Agent, Role::Quorum, Role::Control].map(|role| (role, bind(&authority, role, "x")));
    for (number, (role, mesh)) in (1..).zip(&others) {
        let peer = mesh.peer(agent.local_addr(), ExpectedIdentity::role(Role::Agent));
        let bundle = signed(number, &authority, &[]);
        let pushed = peer
            .call(
                &PushTrust {
                    bundle: bundle.clone(),
                },
                SHORT,
            )
            .await;
        if *role == Role::Agent {
            let denied = pushed.unwrap_err();
            show("pushed by an agent", &denied);
            assert!(
                matches!(
                    denied,
                    CallError::Denied {
                        role: Role::Agent,
                        ..
                    }
                ),
                "{denied}"
            );
            assert_eq!(agent.bundle(), None);
            continue;
        }
        assert_eq!(pushed.unwrap(), Ok(number));
        assert_eq!(agent.bundle(), Some(bundle));
        let older = PushTrust {
            bundle: signed(1, &authority, &[]),
        };
        let refused = peer.call(&older, SHORT).await.unwrap().unwrap_err();
        assert!(
            matches!(refused, BundleRefused::Older { number: 1, .. }),
            "{refused}"
        );
    }
    for (_, mesh) in &others {
        let peer = mesh.peer(agent.local_addr(), ExpectedIdentity::role(Role::Agent));
        let newer = peer.call(&GetTrust { have: 2 }, SHORT).await.unwrap();
        assert_eq!(newer, agent.bundle());
        assert_eq!(peer.call(&GetTrust { have: 3 }, SHORT).await.unwrap(), None);
    }
}

/// Registered handlers do not keep the endpoint alive: its port is free after a drop.
#[tokio::test]
async fn serving_trust_does_not_keep_a_mesh_alive() {
    let authority = authority("demo");
    let own = credentials(&authority, "demo", Role::Agent, "a1");
    let mesh = serving_trust_at(own_port(), own);
    let addr = mesh.local_addr();
    drop(mesh);
    until("the port is free", || async {
        std::net::UdpSocket::bind(addr).is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_restart_forgets_no_revocation() {
    let authority = authority("demo");
    let folder = tempfile::tempdir().unwrap();
    let own = credentials(&authority, "demo", Role::Quorum, "q1");
    own.save(folder.path()).unwrap();
    let server = serving_trust(own);
    server.keep_trust_in(folder.path()).unwrap();
    let bad = bind(&authority, Role::Agent, "a1");
    let bundle = signed(7, &authority, &[(&bad.identity(), ahead(1))]);
    assert_eq!(server.apply_bundle(&bundle).unwrap().not_saved, None);
    drop(server);
    let file = folder.path().join("trust.bundle");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o644);

    let read = Credentials::load(folder.path()).unwrap();
    assert_eq!((read.bundle(), read.trust_number()), (Some(&bundle), 7));
    let again = serving_trust(read.clone());
    let refused = bad
        .connect(again.local_addr(), ExpectedIdentity::role(Role::Quorum))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("it was revoked"), "{refused}");
    assert!(
        again.apply_bundle(&signed(6, &authority, &[])).is_err(),
        "nor is it rolled back"
    );
    // A new certificate without a bundle does not undo it either.
    again
        .rotate(credentials(&authority, "demo", Role::Quorum, "q1"))
        .unwrap();
    assert_eq!(again.trust_state().number, 7);

    // A damaged file must not remove all revocations.
    let whole = std::fs::read(&file).unwrap();
    for at in [0, 40, whole.len() - 3] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        std::fs::write(&file, damaged).unwrap();
        let refused = Credentials::load(folder.path()).unwrap_err();
        assert!(
            matches!(refused, CredentialsError::File { .. }),
            "{refused}"
        );
        show("damaged", &refused);
    }
    // Credentials without a bundle belong to a new membership.
    let anew = credentials(&authority, "demo", Role::Quorum, "q1");
    anew.save(folder.path()).unwrap();
    assert_eq!(Credentials::load(folder.path()).unwrap().bundle(), None);
}

/// The maximum number of revocations, and one more.
#[tokio::test]
async fn a_bundle_of_full_length_is_taken_in_little_time() {
    let authority = authority("demo");
    let mesh = bind(&authority, Role::Agent, "a1");
    let mut long = bundle(1, &authority, &[]);
    let of = |n| lattice_mesh::Revocation {
        role: Role::Agent,
        name: format!("gpu{n:06}"),
        issued_before: ahead(0),
        forget_at: ahead(100),
    };
    long.revoked = (0..MAX_REVOKED).map(of).collect();
    let signed = long.sign([&authority]).unwrap();
    let began = std::time::Instant::now();
    mesh.apply_bundle(&signed).unwrap();
    println!(
        "{MAX_REVOKED} revocations: {} bytes, in force in {} ms",
        signed.body.len(),
        began.elapsed().as_millis()
    );
    long.revoked.push(of(MAX_REVOKED));
    assert!(matches!(
        long.sign([&authority]),
        Err(SignBundleError::Bundle(BundleRefused::TooLarge { .. }))
    ));
}

/// A bundle that cannot be saved is in force all the same, and is saved when the disk recovers.
#[tokio::test]
async fn a_full_disk_keeps_no_revoked_peer_connected() {
    let authority = authority("demo");
    let folder = tempfile::tempdir().unwrap();
    let mesh = bind(&authority, Role::Quorum, "q1");
    let gone = folder.path().join("gone");
    mesh.keep_trust_in(&gone).unwrap();
    let bundle = signed(1, &authority, &[]);
    let applied = mesh.apply_bundle(&bundle).unwrap();
    assert!(applied.changed);
    show("not saved", &applied.not_saved.unwrap());
    assert_eq!(mesh.trust_state().number, 1);
    std::fs::create_dir(&gone).unwrap();
    let again = mesh.apply_bundle(&bundle).unwrap();
    assert_eq!((again.changed, again.not_saved), (false, None));
    assert!(gone.join("trust.bundle").exists());
}

/// Add, promote, retire: by bundles alone, without a restart.
#[tokio::test]
async fn an_authority_is_replaced_with_an_overlap() {
    let (old, new) = (authority("demo"), authority("demo"));
    let folder = tempfile::tempdir().unwrap();
    let own = credentials(&old, "demo", Role::Quorum, "q1");
    own.save(folder.path()).unwrap();
    let server = serving_trust(own);
    server.keep_trust_in(folder.path()).unwrap();
    let (follows, lags) = (bind(&old, Role::Agent, "a1"), bind(&old, Role::Agent, "a2"));
    let peer = |mesh: &Mesh| mesh.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    let (follower, laggard) = (peer(&follows), peer(&lags));
    let step = |number, list: &[(&Authority, bool)], signers: &[&Authority]| {
        let mut bundle = bundle(number, &old, &[]);
        bundle.authorities = authorities(list);
        bundle.sign(signers.iter().copied()).unwrap()
    };
    let added = step(1, &[(&old, true), (&new, false)], &[&old]);
    let promoted = step(2, &[(&old, false), (&new, true)], &[&old, &new]);
    let retired = step(3, &[(&new, true)], &[&new]);
    // A member that missed the overlap rejects the new authority.
    assert_eq!(
        lags.apply_bundle(&retired).unwrap_err(),
        BundleRefused::NotSigned
    );
    for mesh in [&server, &follows] {
        assert_eq!(
            mesh.apply_bundle(&added).unwrap().standing,
            CertificateStanding::Good
        );
        assert_eq!(
            mesh.apply_bundle(&promoted).unwrap().standing,
            CertificateStanding::Superseded
        );
    }
    for peer in [&follower, &laggard] {
        peer.call(&echo("x"), SHORT).await.unwrap();
    }
    for mesh in [&server, &follows] {
        mesh.rotate(credentials(
            &new,
            "demo",
            mesh.identity().role(),
            mesh.identity().id(),
        ))
        .unwrap();
        assert_eq!(mesh.trust_state().standing, CertificateStanding::Good);
    }
    follower.call(&echo("x"), SHORT).await.unwrap();
    for mesh in [&server, &follows] {
        mesh.apply_bundle(&retired).unwrap();
    }
    follower.call(&echo("x"), SHORT).await.unwrap();
    until("the laggard is cut off", || async {
        lags.connections().is_empty() && server.connections().iter().all(|peer| peer.id() == "a1")
    })
    .await;
    let refused = laggard.call(&echo("x"), SHORT).await.unwrap_err();
    show("of a retired authority", &refused);
    // After a restart, the bundle makes the new authority trusted.
    let trusted = Credentials::load(folder.path()).unwrap();
    assert_eq!(trusted.roots(), [new.certificate().clone()]);
    // A member with a certificate of the retired authority receives the standing `Untrusted`.
    let late = bind(&old, Role::Agent, "a3");
    late.apply_bundle(&added).unwrap();
    assert_eq!(
        late.apply_bundle(&retired).unwrap().standing,
        CertificateStanding::Untrusted
    );
}

#[tokio::test]
async fn a_statement_is_worth_its_signer_its_context_and_its_bytes() {
    let (ours, theirs) = (authority("demo"), authority("demo"));
    let judge = bind(&ours, Role::Quorum, "q1");
    let agent = bind(&ours, Role::Agent, "a1");
    let now = SystemClock.now();
    let said = agent.sign("test claim", b"fp=1").unwrap();
    assert_eq!(
        judge.verify_signed("test claim", b"fp=1", &said, now),
        Ok(agent.identity())
    );
    for (context, bytes) in [
        ("test claim", &b"fp=2"[..]),
        ("test claimf", b"p=1"),
        ("", b"fp=1"),
    ] {
        let refused = judge.verify_signed(context, bytes, &said, now).unwrap_err();
        assert_eq!(refused, StatementRefused::WrongSignature);
    }
    // The chain of another signer.
    let mut stolen = said.clone();
    stolen.chain = judge.sign("test claim", b"fp=1").unwrap().chain;
    let refused = judge
        .verify_signed("test claim", b"fp=1", &stolen, now)
        .unwrap_err();
    assert_eq!(refused, StatementRefused::WrongSignature);
    let not_trusted = |what: &str, own: &Credentials, at| {
        let said = own.sign("test claim", b"fp=1").unwrap();
        let refused = judge
            .verify_signed("test claim", b"fp=1", &said, at)
            .unwrap_err();
        show(what, &refused);
        assert!(
            matches!(refused, StatementRefused::NotTrusted { .. }),
            "{refused}"
        );
    };
    not_trusted(
        "another authority",
        &credentials(&theirs, "demo", Role::Agent, "a1"),
        now,
    );
    not_trusted(
        "another cluster",
        &credentials(&ours, "other", Role::Agent, "a1"),
        now,
    );
    let own = credentials(&ours, "demo", Role::Agent, "a1");
    not_trusted("expired", &own, own.expires_at().after(1));
    let mut long = said.clone();
    long.chain = vec![long.chain[0].clone(); 5];
    assert!(
        judge
            .verify_signed("test claim", b"fp=1", &long, now)
            .is_err()
    );
    // After a revocation, earlier statements of the signer are rejected too.
    let revoking = bundle(1, &ours, &[(&agent.identity(), ahead(1))]);
    judge
        .apply_bundle(&revoking.sign([&ours]).unwrap())
        .unwrap();
    let refused = judge
        .verify_signed("test claim", b"fp=1", &said, now)
        .unwrap_err();
    show("revoked", &refused);
    assert!(
        matches!(refused, StatementRefused::NotTrusted { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn reports_trust_changes() {
    let authority = authority("demo");
    let mesh = Arc::new(bind(&authority, Role::Agent, "a1"));
    let mut changes = mesh.watch_trust();
    let waiting = tokio::spawn(async move {
        changes.changed().await.unwrap();
        *changes.borrow_and_update()
    });
    mesh.apply_bundle(&signed(5, &authority, &[(&mesh.identity(), ahead(1))]))
        .unwrap();
    let state = tokio::time::timeout(SHORT, waiting).await.unwrap().unwrap();
    assert_eq!(
        (state.number, state.standing),
        (5, CertificateStanding::Revoked)
    );
    assert!(mesh.serve(Router::new()).is_ok());
}
