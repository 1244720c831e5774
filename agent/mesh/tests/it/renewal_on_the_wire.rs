//! Renewals between real endpoints: open streams continue, new calls use the new certificate, and restarts are noticed.
//! The tests set the certificates' clock.

use crate::common::{renewal::*, trust::*, *};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use lattice_mesh::{
    Authority, Clock, Credentials, ExpectedIdentity, Issued, Mesh, MeshConfig, Peer,
    QuorumRenewalSource, Renew, RenewError, RenewRefused, Renewal, RenewalSource, Role,
    SignedBundle, Validity, keep_renewed,
};
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::CertificateSigningRequestDer;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

/// Two connected endpoints.
struct Wire {
    clock: Arc<SetClock>,
    server: Mesh,
    agent: Mesh,
    peer: Peer,
}

fn wire() -> Wire {
    wire_with(MeshConfig::default().connect_timeout)
}

fn wire_with(connect_timeout: Duration) -> Wire {
    let clock = arc_clock(START.0);
    let authority = long_lived();
    let member = |role, name: &str| {
        let own =
            Credentials::issued_by(&authority, &id(role, name), Validity::from_now(START, LIFE));
        let config = MeshConfig {
            clock: clock.clone(),
            connect_timeout,
            ..MeshConfig::default()
        };
        bind_with(own.unwrap(), config)
    };
    let (server, agent) = (member(Role::Quorum, "q1"), member(Role::Agent, "a1"));
    let (issuing, at) = (authority.clone(), clock.clone());
    let roots = vec![authority.certificate().to_vec()];
    let renew = move |caller: lattice_mesh::Caller, renew: Renew| {
        let validity = Validity::from_now(at.now(), LIFE);
        let issued = issue(
            &issuing,
            &caller.identity,
            &renew.csr.into(),
            validity,
            &roots,
        );
        async move { Ok(Ok(issued)) }
    };
    server
        .serve(router().with_trust_handlers(&server).rpc(renew))
        .unwrap();
    agent.serve(router()).unwrap();
    server.apply_bundle(&signed(1, &authority, &[])).unwrap();
    let peer = agent.peer(server.local_addr(), ExpectedIdentity::role(Role::Quorum));
    Wire {
        clock,
        server,
        agent,
        peer,
    }
}

impl Wire {
    fn renewed(&self, members: Vec<Peer>) -> Renewal {
        keep_renewed(
            &self.agent,
            QuorumRenewalSource::new(move || members.clone()),
            settings(None),
        )
    }
    fn at(&self, part: f64) {
        let at = START.after(LIFE.mul_f64(part).as_millis() as u64);
        self.clock
            .0
            .store(at.0, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Renewal over the wire, with an unreachable member contacted first. A stream and a call that run meanwhile are not
/// cut, and new calls present the new certificate. The old connection is closed when nothing runs on it.
#[tokio::test]
async fn a_renewal_cuts_no_stream_and_no_call() {
    let wire = wire();
    let nobody = wire.agent.peer(
        "127.0.0.1:9".parse().unwrap(),
        ExpectedIdentity::role(Role::Quorum),
    );
    let renewal = wire.renewed(vec![nobody, wire.peer.clone()]);
    let mut changes = renewal.watch();
    changes
        .wait_for(|state| state.trust_number == 1)
        .await
        .unwrap();
    let mut stream = wire.peer.open(&Count { until: None }).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), 0);
    let running = {
        let peer = wire.peer.clone();
        tokio::spawn(async move { peer.call(&echo(&"x".repeat(2 << 20)), SHORT).await })
    };
    let before = wire.agent.issued_at();
    wire.at(0.75);
    renewal.refresh_now();
    changes.wait_for(|state| state.renewals == 1).await.unwrap();
    assert!(wire.agent.issued_at() > before);
    running.await.unwrap().unwrap();
    wire.peer.call(&echo("x"), SHORT).await.unwrap();
    assert_eq!(
        wire.server.connections().len(),
        2,
        "a new one, and the old one for the stream"
    );
    // Longer than an idle connection stays open.
    let until_then = Instant::now() + Duration::from_secs(7);
    let mut next = 1;
    while Instant::now() < until_then {
        assert_eq!(stream.next().await.unwrap().unwrap(), next);
        next += 1;
        sleep(Duration::from_millis(2)).await;
    }
    println!("{next} items across the renewal");
    assert_eq!(wire.server.connections().len(), 2);
    drop(stream);
    until("the old connection is left", || async {
        wire.server.connections().len() == 1
    })
    .await;
    wire.peer.call(&echo("x"), SHORT).await.unwrap();
}

/// The end that has not renewed starts nothing more on the old connection either.
#[tokio::test]
async fn the_other_end_moves_to_the_new_connection_too() {
    let wire = wire_with(SHORT);
    wire.peer.call(&echo("x"), SHORT).await.unwrap();
    let back = wire
        .server
        .peer(wire.agent.local_addr(), ExpectedIdentity::role(Role::Agent));
    assert_eq!(back.connected().await.unwrap(), wire.agent.identity());
    assert_eq!(
        wire.agent.connections().len(),
        1,
        "it uses the connection that is there"
    );
    let renewal = wire.renewed(vec![wire.peer.clone()]);
    wire.at(0.75);
    renewal.refresh_now();
    renewal
        .watch()
        .wait_for(|state| state.renewals == 1)
        .await
        .unwrap();
    // Both ends may dial at once, and both new connections are valid: the count must fall by one.
    let (mut failed, mut most, mut old_is_left) = (0, 0, false);
    for _ in 0..4000 {
        failed += u32::from(back.connected().await.is_err());
        failed += u32::from(wire.peer.call(&echo("x"), SHORT).await.is_err());
        let open = wire.server.connections().len();
        most = most.max(open);
        old_is_left = most >= 2 && open < most;
        if old_is_left {
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert!(old_is_left, "{:?}", wire.server.connections());
    assert_eq!(failed, 0, "calls that failed meanwhile");
}

#[tokio::test]
async fn believes_refusal_but_not_missing_answer() {
    let authority = authority("demo");
    let answering = |reply: fn() -> RenewRefused| {
        let member = bind(&authority, Role::Quorum, "q1");
        let answer = move |_, _: Renew| async move { Ok(Err(reply())) };
        member
            .serve(lattice_mesh::Router::new().rpc(answer))
            .unwrap();
        member
    };
    let busy = answering(|| RenewRefused::Unavailable {
        reason: "no leader".to_owned(),
    });
    let firm = answering(|| RenewRefused::NotMember {
        reason: "a1 is retired".to_owned(),
    });
    let agent = bind(&authority, Role::Agent, "a1");
    let peer = |m: &Mesh| agent.peer(m.local_addr(), ExpectedIdentity::role(Role::Quorum));
    let (busy_peer, firm_peer) = (peer(&busy), peer(&firm));
    let source = QuorumRenewalSource::new(move || vec![busy_peer.clone(), firm_peer.clone()]);
    let csr = || Credentials::generate_key_and_csr().unwrap().csr;
    let refused = source.renew(csr()).await.unwrap_err();
    assert_eq!(refused.to_string(), "a1 is retired");
    let peer = peer(&busy);
    let source = QuorumRenewalSource::new(move || vec![peer.clone()]);
    let unreached = source.renew(csr()).await.unwrap_err();
    println!("{unreached}");
    assert!(
        matches!(unreached, RenewError::NotReached { .. }),
        "{unreached}"
    );
    let nobody = QuorumRenewalSource::new(Vec::new);
    assert!(
        nobody
            .trust(0)
            .await
            .unwrap_err()
            .to_string()
            .contains("no quorum member")
    );
}

/// A process renews, is killed and restarts. A peer that only listens, on a connection from before the renewal, notices
/// with its next keep-alive and not only after the idle timeout.
#[tokio::test]
async fn a_restart_after_a_renewal_is_noticed_before_the_idle_timeout() {
    let authority = long_lived();
    let clock = arc_clock(START.0);
    let folder = tempfile::tempdir().unwrap();
    let member = |role, name: &str| {
        let validity = Validity::from_now(START, LIFE);
        Credentials::issued_by(&authority, &id(role, name), validity).unwrap()
    };
    let config = || MeshConfig {
        clock: clock.clone(),
        ..MeshConfig::default()
    };
    member(Role::Quorum, "q1").save(folder.path()).unwrap();
    let agent = bind_with(member(Role::Agent, "a1"), config());
    // A runtime of its own: dropping it ends the tasks of the process without a close.
    let killed = tokio::runtime::Runtime::new().unwrap();
    let (server, renewal) = {
        let _inside = killed.enter();
        let own = Credentials::load(folder.path()).unwrap();
        let server = Mesh::bind(own_port(), own, config()).unwrap();
        server.serve(router()).unwrap();
        let source = SelfSigningSource(authority.clone(), clock.clone());
        let renewal = keep_renewed(&server, source, settings(Some(folder.path())));
        (server, renewal)
    };
    let addr = server.local_addr();
    let peer = agent.peer(addr, ExpectedIdentity::role(Role::Quorum));
    let mut stream = peer.open(&Count { until: Some(1) }).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), 0);
    let mut hanging = {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call(&Hang, Duration::from_secs(60)).await })
    };
    until("it is connected", || async {
        !server.connections().is_empty()
    })
    .await;
    let at = START.after(LIFE.mul_f64(0.75).as_millis() as u64);
    clock.0.store(at.0, std::sync::atomic::Ordering::SeqCst);
    renewal.refresh_now();
    renewal
        .watch()
        .wait_for(|state| state.renewals == 1)
        .await
        .unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(100), &mut hanging)
            .await
            .is_err()
    );
    killed.shutdown_background();
    drop(server);
    let own = Credentials::load(folder.path()).unwrap();
    assert_eq!(own.issued_at(), UnixMillis(at.0 / 1000 * 1000));
    let restarted = loop {
        match Mesh::bind(addr, own.clone(), config()) {
            Ok(mesh) => break mesh,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    restarted.serve(router()).unwrap();
    let began = Instant::now();
    let lost = tokio::time::timeout(SHORT, hanging).await;
    let lost = lost.expect("noticed").unwrap().unwrap_err();
    println!("after {} ms: {lost}", began.elapsed().as_millis());
    // The answer to the dialling side's keep-alive reveals the restart; the idle timeout is 30 s.
    assert!(
        began.elapsed() < Duration::from_secs(25),
        "{:?}",
        began.elapsed()
    );
    assert!(lost.to_string().contains("reset by peer"), "{lost}");
}

/// Renewal source of a quorum member.
struct SelfSigningSource(Arc<Authority>, Arc<SetClock>);
impl RenewalSource for SelfSigningSource {
    fn renew(
        &self,
        csr: CertificateSigningRequestDer<'static>,
    ) -> BoxFuture<'_, Result<Issued, RenewError>> {
        let validity = Validity::from_now(self.1.now(), LIFE);
        let roots = [self.0.certificate().to_vec()];
        let issued = issue(&self.0, &id(Role::Quorum, "q1"), &csr, validity, &roots);
        async move { Ok(issued) }.boxed()
    }
    fn trust(&self, _: u64) -> BoxFuture<'_, Result<Option<SignedBundle>, RenewError>> {
        async { Ok(None) }.boxed()
    }
}
