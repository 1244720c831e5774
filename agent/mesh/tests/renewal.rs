//! Certificates that are renewed in time, whatever happens on the way. Most of it in virtual time:
//! the certificates' clock and the timers move together, and a month takes no time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{trust::*, *};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use lattice_mesh::{
    AskMembers, Authority, Clock, Credentials, Expect, Identity, Issued, Mesh, MeshConfig, Peer,
    Renew, RenewError, RenewRefused, Renewal, RenewalSettings, RenewalSource, RenewalState, Role,
    SignedBundle, Standing, Validity, keep_renewed,
};
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::CertificateSigningRequestDer;
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::{Instant, sleep};

const LIFE: Duration = Duration::from_secs(30 * 86_400);
const START: UnixMillis = UnixMillis(1_900_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

/// The wall clock of the timers' world.
#[derive(Clone, Copy)]
struct Virtual(Instant);
impl Clock for Virtual {
    fn now(&self) -> UnixMillis {
        START.after(u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

/// What a cluster would do, and what it was asked.
struct Cluster {
    clock: Virtual,
    authority: Mutex<Arc<Authority>>,
    roots: Mutex<Vec<Vec<u8>>>,
    /// Names somebody else.
    misnames: Mutex<bool>,
    fails: Mutex<Option<RenewError>>,
    bundle: Mutex<Option<SignedBundle>>,
    renewals_at: Mutex<Vec<UnixMillis>>,
    trust_asked: Mutex<Vec<u64>>,
}

#[derive(Clone)]
struct Source(Arc<Cluster>);

impl RenewalSource for Source {
    fn renew(
        &self,
        csr: CertificateSigningRequestDer<'static>,
    ) -> BoxFuture<'_, Result<Issued, RenewError>> {
        let now = self.0.clock.now();
        self.0.renewals_at.lock().unwrap().push(now);
        let issued = || {
            if let Some(error) = self.0.fails.lock().unwrap().clone() {
                return Err(error);
            }
            let name = if *self.0.misnames.lock().unwrap() {
                "a2"
            } else {
                "a1"
            };
            let authority = self.0.authority.lock().unwrap().clone();
            Ok(issue(
                &authority,
                &id(Role::Agent, name),
                &csr,
                Validity::from_now(now, LIFE),
                &self.0.roots.lock().unwrap(),
            ))
        };
        let issued = issued();
        async move { issued }.boxed()
    }

    fn trust(&self, have: u64) -> BoxFuture<'_, Result<Option<SignedBundle>, RenewError>> {
        self.0.trust_asked.lock().unwrap().push(have);
        let answer = match &*self.0.fails.lock().unwrap() {
            Some(error) => Err(error.clone()),
            None => Ok(self.0.bundle.lock().unwrap().clone()),
        };
        let answer = answer.map(|b| b.filter(|b| b.peek().unwrap().number > have));
        async move { answer }.boxed()
    }
}

fn issue(
    authority: &Authority,
    identity: &Identity,
    csr: &CertificateSigningRequestDer<'_>,
    validity: Validity,
    roots: &[Vec<u8>],
) -> Issued {
    let chain = authority.issue(identity, csr, validity).unwrap();
    Issued {
        chain: chain.iter().map(|c| c.to_vec()).collect(),
        roots: roots.to_vec(),
        cell: None,
    }
}

struct Bed {
    cluster: Arc<Cluster>,
    mesh: Mesh,
    renewal: Renewal,
    folder: tempfile::TempDir,
    authority: Arc<Authority>,
}

fn long_lived() -> Arc<Authority> {
    let validity = Validity::from_now(START, Duration::from_secs(3650 * 86_400));
    Arc::new(Authority::create("demo", validity).unwrap())
}

fn settings(folder: Option<&Path>) -> RenewalSettings {
    RenewalSettings::new(folder.map(Path::to_owned), 7)
}

/// An agent with a certificate of 30 days, as of now.
fn bed() -> Bed {
    let clock = Virtual(Instant::now());
    let authority = long_lived();
    let own = Credentials::issued_by(
        &authority,
        &id(Role::Agent, "a1"),
        Validity::from_now(START, LIFE),
    );
    let folder = tempfile::tempdir().unwrap();
    let own = own.unwrap();
    own.save(folder.path()).unwrap();
    let config = MeshConfig {
        clock: Arc::new(clock),
        ..MeshConfig::default()
    };
    let mesh = bind_with(own, config);
    let cluster = Arc::new(Cluster {
        clock,
        authority: Mutex::new(authority.clone()),
        roots: Mutex::new(vec![authority.certificate().to_vec()]),
        misnames: Mutex::new(false),
        fails: Mutex::new(None),
        bundle: Mutex::new(None),
        renewals_at: Mutex::default(),
        trust_asked: Mutex::default(),
    });
    let renewal = keep_renewed(
        &mesh,
        Source(cluster.clone()),
        settings(Some(folder.path())),
    );
    Bed {
        cluster,
        mesh,
        renewal,
        folder,
        authority,
    }
}

impl Bed {
    fn now(&self) -> UnixMillis {
        self.cluster.clock.now()
    }
    fn state(&self) -> RenewalState {
        self.renewal.state()
    }
    fn tries(&self) -> Vec<UnixMillis> {
        self.cluster.renewals_at.lock().unwrap().clone()
    }
    fn fail(&self, error: Option<RenewError>) {
        *self.cluster.fails.lock().unwrap() = error;
    }
    fn publish(&self, bundle: SignedBundle) {
        *self.cluster.bundle.lock().unwrap() = Some(bundle);
    }
    fn health(&self) -> Option<&'static str> {
        self.state().health_reason(self.now())
    }
    fn saved(&self) -> Credentials {
        Credentials::load(self.folder.path()).unwrap()
    }
}

fn nobody() -> Option<RenewError> {
    let reason = "nobody answers".to_owned();
    Some(RenewError::NotReached { reason })
}

#[tokio::test(start_paused = true)]
async fn certificates_are_renewed_at_two_thirds_for_ever_with_a_new_key_each_time() {
    let bed = bed();
    let key = || std::fs::read(bed.folder.path().join("identity.key")).unwrap();
    let mut keys = vec![key()];
    let mut changes = bed.renewal.watch();
    while bed.state().renewals < 5 {
        let before = (
            bed.mesh.issued_at(),
            bed.mesh.expires_at(),
            bed.state().renewals,
        );
        changes.changed().await.unwrap();
        if bed.state().renewals == before.2 {
            continue;
        }
        let part = bed.now().since(before.0) as f64 / LIFE.as_millis() as f64;
        println!(
            "renewal {} at {:.3} of the life",
            bed.state().renewals,
            part
        );
        assert!((0.615..0.72).contains(&part), "{part}");
        assert_eq!(bed.health(), None);
        assert_eq!(bed.state().last_error, None);
        assert!(bed.mesh.expires_at() > before.1);
        keys.push(key());
        assert_eq!(
            bed.saved().chain(),
            shown(&bed.mesh).as_slice(),
            "on disk is what is shown"
        );
    }
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), 6, "a key is used once");
    assert_eq!(bed.tries().len(), 5, "asked no oftener than needed");
}

fn shown(mesh: &Mesh) -> Vec<rustls_pki_types::CertificateDer<'static>> {
    let signed = mesh.sign("test", b"").unwrap();
    signed.chain.iter().map(|c| c.to_vec().into()).collect()
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_and_told() {
    let bed = bed();
    bed.fail(nobody());
    sleep(LIFE.mul_f64(0.75)).await;
    let state = bed.state();
    assert!(
        state
            .last_error
            .as_deref()
            .unwrap()
            .contains("nobody answers"),
        "{state:?}"
    );
    assert_eq!((state.renewals, bed.health()), (0, None));
    let tries = bed.tries();
    let waits: Vec<u64> = tries.windows(2).map(|w| w[1].since(w[0]) / 1000).collect();
    println!("waits between tries, seconds: {:?} …", &waits[..10]);
    assert!((20..=31).contains(&waits[0]) && (660..=901).contains(waits.last().unwrap()));
    assert!(waits.iter().all(|wait| *wait <= 901), "{waits:?}");
    sleep(LIFE.mul_f64(0.1)).await;
    assert_eq!(bed.health(), Some("certificate.expiring"), "past 5/6");
    bed.fail(None);
    sleep(HOUR).await;
    assert_eq!((bed.state().renewals, bed.health()), (1, None));
    assert_eq!(bed.state().last_error, None);
}

/// The last quarter hour of a certificate is not slept through.
#[tokio::test(start_paused = true)]
async fn it_tries_to_the_end_and_says_when_it_is_over() {
    let bed = bed();
    bed.fail(nobody());
    let end = bed.mesh.expires_at();
    sleep(Duration::from_millis(end.since(bed.now())) - Duration::from_secs(20)).await;
    let tries = bed.tries();
    let late: Vec<u64> = tries
        .iter()
        .map(|at| end.since(*at) / 1000)
        .filter(|s| *s < 900)
        .collect();
    println!("tries, seconds before the end: {late:?}");
    assert!(late.len() >= 5, "{late:?}");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(bed.health(), Some("certificate.expired"));
    // Who signs for itself, a quorum member, is back by itself.
    bed.fail(None);
    sleep(HOUR).await;
    assert_eq!((bed.state().renewals, bed.health()), (1, None));
}

#[tokio::test(start_paused = true)]
async fn another_issuing_authority_is_followed_within_minutes() {
    let bed = bed();
    let new = long_lived();
    let step = |number, list: &[(&Authority, bool)]| {
        let mut bundle = bundle(number, &new, &[]);
        bundle.authorities = authorities(list);
        bundle.sign([&*bed.authority, &*new]).unwrap()
    };
    sleep(HOUR).await;
    assert_eq!(bed.tries().len(), 0);
    bed.publish(step(1, &[(&bed.authority, true), (&new, false)]));
    sleep(HOUR).await;
    assert_eq!(
        (bed.state().trust_number, bed.tries().len()),
        (1, 0),
        "trusted, no reason to hurry"
    );
    // Pushed, not asked for: it is followed all the same.
    *bed.cluster.authority.lock().unwrap() = new.clone();
    bed.mesh
        .apply_bundle(&step(2, &[(&bed.authority, false), (&new, true)]))
        .unwrap();
    let promoted_at = bed.now();
    let mut changes = bed.renewal.watch();
    changes.wait_for(|state| state.renewals == 1).await.unwrap();
    let took = bed.now().since(promoted_at);
    println!("followed after {} s", took / 1000);
    assert!(took <= 600_000, "{took} ms");
    assert_eq!(
        (bed.state().standing, bed.saved().trust_number()),
        (Standing::Good, 2)
    );
    bed.mesh.apply_bundle(&step(3, &[(&new, true)])).unwrap();
    sleep(HOUR).await;
    assert_eq!(
        (bed.state().standing, bed.state().renewals),
        (Standing::Good, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn the_bundle_is_asked_for_at_once_and_every_ten_minutes() {
    let bed = bed();
    let first = signed(1, &bed.authority, &[]);
    bed.publish(first);
    let mut changes = bed.renewal.watch();
    changes
        .wait_for(|state| state.trust_number == 1)
        .await
        .unwrap();
    assert!(bed.now().since(START) < 1000, "{}", bed.now());
    assert_eq!(bed.saved().trust_number(), 1);
    bed.publish(signed(2, &bed.authority, &[]));
    sleep(Duration::from_secs(601)).await;
    assert_eq!(bed.state().trust_number, 2);
    sleep(HOUR).await;
    let asked = bed.cluster.trust_asked.lock().unwrap().clone();
    assert_eq!(asked, [0, 1, 2, 2, 2, 2, 2, 2]);
    // Lies and silence are told, and change nothing.
    bed.publish(signed(3, &long_lived(), &[]));
    sleep(HOUR).await;
    let state = bed.state();
    assert_eq!(state.trust_number, 2);
    assert!(
        state
            .last_error
            .unwrap()
            .contains("not signed by an authority")
    );
    bed.fail(nobody());
    sleep(HOUR).await;
    assert!(bed.state().last_error.unwrap().contains("nobody answers"));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_peers_would_refuse_is_not_put_in_force() {
    let bed = bed();
    let before = shown(&bed.mesh);
    *bed.cluster.misnames.lock().unwrap() = true;
    sleep(LIFE.mul_f64(0.72)).await;
    let said = bed.state().last_error.unwrap();
    println!("another name: {said}");
    assert!(said.contains("agent/a2"), "{said}");
    *bed.cluster.misnames.lock().unwrap() = false;
    // With a bundle in force it is the bundle that counts, not what the issuer says of roots.
    bed.publish(signed(1, &bed.authority, &[]));
    *bed.cluster.authority.lock().unwrap() = long_lived();
    sleep(HOUR).await;
    let said = bed.state().last_error.unwrap();
    println!("another authority: {said}");
    assert!(said.contains("of no use here"), "{said}");
    assert_eq!(
        (shown(&bed.mesh), bed.saved().chain()),
        (before.clone(), before.as_slice())
    );
}

/// Away for a whole rotation of the authority: what is in force knows nothing of the new one, and
/// yields to an enrolment, but only once the certificate has ended.
#[tokio::test(start_paused = true)]
async fn who_was_away_for_a_rotation_comes_back_by_enrolling_anew() {
    let bed = bed();
    let new = long_lived();
    bed.mesh
        .apply_bundle(&signed(4, &bed.authority, &[]))
        .unwrap();
    *bed.cluster.authority.lock().unwrap() = new.clone();
    *bed.cluster.roots.lock().unwrap() = vec![new.certificate().to_vec()];
    sleep(LIFE.mul_f64(0.99)).await;
    assert_eq!((bed.state().renewals, bed.state().trust_number), (0, 4));
    assert!(bed.state().last_error.unwrap().contains("of no use here"));
    sleep(LIFE.mul_f64(0.02)).await;
    assert_eq!((bed.state().renewals, bed.state().trust_number), (1, 0));
    assert_eq!(bed.saved().roots(), [new.certificate().clone()]);
    bed.publish(signed(9, &new, &[]));
    sleep(HOUR).await;
    assert_eq!(
        (bed.saved().trust_number(), bed.state().last_error),
        (9, None)
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_revoked_asks_for_nothing_and_says_so() {
    let bed = bed();
    bed.publish(signed(
        1,
        &bed.authority,
        &[(&id(Role::Agent, "a1"), START.after(1000))],
    ));
    sleep(LIFE.mul_f64(0.8)).await;
    assert_eq!(bed.tries().len(), 0);
    assert_eq!(bed.health(), Some("certificate.revoked"));
    assert!(bed.state().last_error.unwrap().contains("revoked"));
    assert_eq!(bed.state().standing, Standing::Revoked);
}

#[tokio::test(start_paused = true)]
async fn with_a_full_disk_it_renews_all_the_same_and_saves_later() {
    let bed = bed();
    let away = bed.folder.path().with_extension("away");
    std::fs::rename(bed.folder.path(), &away).unwrap();
    // Where the folder was is a file: nothing can be written below it.
    std::fs::write(bed.folder.path(), "").unwrap();
    sleep(LIFE.mul_f64(0.72)).await;
    let state = bed.state();
    assert_eq!(state.renewals, 1, "{state:?}");
    println!("{}", state.last_error.unwrap());
    assert_eq!(bed.tries().len(), 1, "the new one is not asked for again");
    std::fs::remove_file(bed.folder.path()).unwrap();
    std::fs::rename(&away, bed.folder.path()).unwrap();
    sleep(HOUR).await;
    assert_eq!(bed.saved().chain(), shown(&bed.mesh).as_slice());
    assert_eq!((bed.state().last_error, bed.tries().len()), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn renewal_keeps_no_mesh_alive() {
    let bed = bed();
    let mut changes = bed.renewal.watch();
    let addr = bed.mesh.local_addr();
    drop(bed.mesh);
    while changes.changed().await.is_ok() {}
    until("the port is free", || async {
        std::net::UdpSocket::bind(addr).is_ok()
    })
    .await;
}

/// Two real endpoints; their certificates' clock is moved by hand.
struct Wire {
    clock: Arc<SetClock>,
    server: Mesh,
    agent: Mesh,
    peer: Peer,
}

fn wire() -> Wire {
    let clock = arc_clock(START.0);
    let authority = long_lived();
    let member = |role, name: &str| {
        let own =
            Credentials::issued_by(&authority, &id(role, name), Validity::from_now(START, LIFE));
        let config = MeshConfig {
            clock: clock.clone(),
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
        .serve(router().serving_trust(&server).rpc(renew))
        .unwrap();
    agent.serve(router()).unwrap();
    server.apply_bundle(&signed(1, &authority, &[])).unwrap();
    let peer = agent.peer(server.local_addr(), Expect::role(Role::Quorum));
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
            AskMembers::new(move || members.clone()),
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

/// Over the wire, with a member that is down asked first: a stream and a call that run meanwhile
/// are not cut, new calls show the new certificate, and the old connection is left when nothing
/// runs on it any more.
#[tokio::test]
async fn a_renewal_cuts_no_stream_and_no_call() {
    let wire = wire();
    let nobody = wire
        .agent
        .peer("127.0.0.1:9".parse().unwrap(), Expect::role(Role::Quorum));
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
    renewal.look_now();
    changes.wait_for(|state| state.renewals == 1).await.unwrap();
    assert!(wire.agent.issued_at() > before);
    running.await.unwrap().unwrap();
    wire.peer.call(&echo("x"), SHORT).await.unwrap();
    assert_eq!(
        wire.server.connections().len(),
        2,
        "a new one, and the old one for the stream"
    );
    // Longer than an idle connection is left alone.
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

/// The end that has not renewed begins nothing more on the old connection either.
#[tokio::test]
async fn the_other_end_moves_to_the_new_connection_too() {
    let wire = wire();
    wire.peer.call(&echo("x"), SHORT).await.unwrap();
    let back = wire
        .server
        .peer(wire.agent.local_addr(), Expect::role(Role::Agent));
    assert_eq!(back.connected().await.unwrap(), wire.agent.identity());
    assert_eq!(
        wire.agent.connections().len(),
        1,
        "it uses the connection that is there"
    );
    let renewal = wire.renewed(vec![wire.peer.clone()]);
    wire.at(0.75);
    renewal.look_now();
    renewal
        .watch()
        .wait_for(|state| state.renewals == 1)
        .await
        .unwrap();
    // Both ends may dial at once, and both new connections are good: one fewer than there were.
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
async fn a_member_that_says_no_is_believed_and_one_that_cannot_say_is_not() {
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
    let peer = |m: &Mesh| agent.peer(m.local_addr(), Expect::role(Role::Quorum));
    let (busy_peer, firm_peer) = (peer(&busy), peer(&firm));
    let source = AskMembers::new(move || vec![busy_peer.clone(), firm_peer.clone()]);
    let csr = || Credentials::generate_key_and_csr().unwrap().csr;
    let refused = source.renew(csr()).await.unwrap_err();
    assert_eq!(refused.to_string(), "a1 is retired");
    let peer = peer(&busy);
    let source = AskMembers::new(move || vec![peer.clone()]);
    let unreached = source.renew(csr()).await.unwrap_err();
    println!("{unreached}");
    assert!(
        matches!(unreached, RenewError::NotReached { .. }),
        "{unreached}"
    );
    let nobody = AskMembers::new(Vec::new);
    assert!(
        nobody
            .trust(0)
            .await
            .unwrap_err()
            .to_string()
            .contains("no quorum member")
    );
}

/// A process is renewed, killed and restarted: a peer that only listens, on a connection of before
/// the renewal, learns of it with its next keep-alive and not after the idle timeout.
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
    // A runtime of its own: dropping it ends the process's tasks without a goodbye.
    let killed = tokio::runtime::Runtime::new().unwrap();
    let (server, renewal) = {
        let _inside = killed.enter();
        let server = bind_with(Credentials::load(folder.path()).unwrap(), config());
        server.serve(router()).unwrap();
        let source = SignsItself(authority.clone(), clock.clone());
        let renewal = keep_renewed(&server, source, settings(Some(folder.path())));
        (server, renewal)
    };
    let addr = server.local_addr();
    let peer = agent.peer(addr, Expect::role(Role::Quorum));
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
    renewal.look_now();
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
    let lost = tokio::time::timeout(Duration::from_secs(20), hanging).await;
    let lost = lost.expect("noticed").unwrap().unwrap_err();
    println!("after {} ms: {lost}", began.elapsed().as_millis());
    // As soon as the dialler's keep-alive is answered; the idle timeout is 30 s.
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    assert!(lost.to_string().contains("reset by peer"), "{lost}");
}

/// As a quorum member does.
struct SignsItself(Arc<Authority>, Arc<SetClock>);
impl RenewalSource for SignsItself {
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
