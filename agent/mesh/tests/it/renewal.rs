//! Renewal of certificates before expiry, under all kinds of failures, in virtual time. The certificates' clock and the
//! timers advance together, so a month takes no real time.

use crate::common::{renewal::*, trust::*, *};
use futures::{FutureExt, future::BoxFuture};
use lattice_mesh::{
    Authority, CertificateStanding, Clock, Credentials, Issued, Mesh, MeshConfig, RenewError,
    Renewal, RenewalSource, RenewalState, Role, SignedBundle, Validity, keep_renewed,
};
use lattice_quorum_types::{UnixMillis, command::IssuedCertificate};
use rustls_pki_types::CertificateSigningRequestDer;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::{Instant, sleep};

const HOUR: Duration = Duration::from_secs(3600);

/// Wall clock that follows the virtual timers.
#[derive(Clone, Copy)]
struct Virtual(Instant);
impl Clock for Virtual {
    fn now(&self) -> UnixMillis {
        START.after(u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }
}

/// Simulated cluster, with a record of its requests.
struct Cluster {
    clock: Virtual,
    authority: Mutex<Arc<Authority>>,
    roots: Mutex<Vec<Vec<u8>>>,
    /// Issues certificates for another name.
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
        let answer = answer.map(|b| b.filter(|b| b.decode_unverified().unwrap().number > have));
        async move { answer }.boxed()
    }
}

struct RenewalFixture {
    cluster: Arc<Cluster>,
    mesh: Mesh,
    renewal: Renewal,
    folder: tempfile::TempDir,
    authority: Arc<Authority>,
}

/// An agent with a certificate of 30 days, issued now.
fn fixture() -> RenewalFixture {
    fixture_of(LIFE)
}

/// An agent with a first certificate of this lifetime, issued now.
fn fixture_of(life: Duration) -> RenewalFixture {
    let clock = Virtual(Instant::now());
    let authority = long_lived();
    let own = Credentials::issued_by(
        &authority,
        &id(Role::Agent, "a1"),
        Validity::from_now(START, life),
    );
    let folder = tempfile::tempdir().unwrap();
    let own = own.unwrap();
    own.save(folder.path()).unwrap();
    let config = MeshConfig {
        clock: Arc::new(clock),
        ..MeshConfig::default()
    };
    let mesh = Mesh::bind(own_port(), own, config).unwrap();
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
    RenewalFixture {
        cluster,
        mesh,
        renewal,
        folder,
        authority,
    }
}

impl RenewalFixture {
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
async fn renews_at_two_thirds_with_new_key() {
    let fixture = fixture();
    let key = || std::fs::read(fixture.folder.path().join("identity.key")).unwrap();
    let mut keys = vec![key()];
    let mut changes = fixture.renewal.watch();
    while fixture.state().renewals < 5 {
        let before = (
            fixture.mesh.issued_at(),
            fixture.mesh.expires_at(),
            fixture.state().renewals,
        );
        changes.changed().await.unwrap();
        if fixture.state().renewals == before.2 {
            continue;
        }
        let part = fixture.now().since(before.0) as f64 / LIFE.as_millis() as f64;
        println!(
            "renewal {} at {:.3} of the life",
            fixture.state().renewals,
            part
        );
        assert!((0.615..0.72).contains(&part), "{part}");
        assert_eq!(fixture.health(), None);
        assert_eq!(fixture.state().last_error, None);
        assert!(fixture.mesh.expires_at() > before.1);
        keys.push(key());
        assert_eq!(
            fixture.saved().chain(),
            shown(&fixture.mesh).as_slice(),
            "on disk is what is shown"
        );
    }
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), 6, "a key is used once");
    assert_eq!(fixture.tries().len(), 5, "asked no oftener than needed");
}

fn shown(mesh: &Mesh) -> Vec<rustls_pki_types::CertificateDer<'static>> {
    let signed = mesh.sign("test", b"").unwrap();
    signed.chain.iter().map(|c| c.to_vec().into()).collect()
}

#[tokio::test(start_paused = true)]
async fn retries_and_reports_failures() {
    let fixture = fixture();
    fixture.fail(nobody());
    sleep(LIFE.mul_f64(0.75)).await;
    let state = fixture.state();
    assert!(
        state
            .last_error
            .as_deref()
            .unwrap()
            .contains("nobody answers"),
        "{state:?}"
    );
    assert_eq!((state.renewals, fixture.health()), (0, None));
    let tries = fixture.tries();
    let waits: Vec<u64> = tries.windows(2).map(|w| w[1].since(w[0]) / 1000).collect();
    println!("waits between tries, seconds: {:?} …", &waits[..10]);
    assert!((20..=31).contains(&waits[0]) && (660..=901).contains(waits.last().unwrap()));
    assert!(waits.iter().all(|wait| *wait <= 901), "{waits:?}");
    sleep(LIFE.mul_f64(0.1)).await;
    assert_eq!(fixture.health(), Some("certificate.expiring"), "past 5/6");
    fixture.fail(None);
    sleep(HOUR).await;
    assert_eq!((fixture.state().renewals, fixture.health()), (1, None));
    assert_eq!(fixture.state().last_error, None);
}

/// The renewal must not sleep through the last quarter hour of a certificate.
#[tokio::test(start_paused = true)]
async fn retries_until_expiry_and_reports_it() {
    let fixture = fixture();
    fixture.fail(nobody());
    let end = fixture.mesh.expires_at();
    sleep(Duration::from_millis(end.since(fixture.now())) - Duration::from_secs(20)).await;
    let tries = fixture.tries();
    let late: Vec<u64> = tries
        .iter()
        .map(|at| end.since(*at) / 1000)
        .filter(|s| *s < 900)
        .collect();
    println!("tries, seconds before the end: {late:?}");
    assert!(late.len() >= 5, "{late:?}");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(fixture.health(), Some("certificate.expired"));
    // A quorum member, which signs its own certificate, recovers without help.
    fixture.fail(None);
    sleep(HOUR).await;
    assert_eq!((fixture.state().renewals, fixture.health()), (1, None));
}

#[tokio::test(start_paused = true)]
async fn another_issuing_authority_is_followed_within_minutes() {
    let fixture = fixture();
    let new = long_lived();
    let step = |number, list: &[(&Authority, bool)]| {
        let mut bundle = bundle(number, &new, &[]);
        bundle.authorities = authorities(list);
        bundle.sign([&*fixture.authority, &*new]).unwrap()
    };
    sleep(HOUR).await;
    assert_eq!(fixture.tries().len(), 0);
    fixture.publish(step(1, &[(&fixture.authority, true), (&new, false)]));
    sleep(HOUR).await;
    assert_eq!(
        (fixture.state().trust_number, fixture.tries().len()),
        (1, 0),
        "trusted, no reason to hurry"
    );
    // Pushed instead of requested: the agent follows it all the same.
    *fixture.cluster.authority.lock().unwrap() = new.clone();
    fixture
        .mesh
        .apply_bundle(&step(2, &[(&fixture.authority, false), (&new, true)]))
        .unwrap();
    let promoted_at = fixture.now();
    let mut changes = fixture.renewal.watch();
    changes.wait_for(|state| state.renewals == 1).await.unwrap();
    let took = fixture.now().since(promoted_at);
    println!("followed after {} s", took / 1000);
    assert!(took <= 600_000, "{took} ms");
    assert_eq!(
        (fixture.state().standing, fixture.saved().trust_number()),
        (CertificateStanding::Good, 2)
    );
    fixture
        .mesh
        .apply_bundle(&step(3, &[(&new, true)]))
        .unwrap();
    sleep(HOUR).await;
    assert_eq!(
        (fixture.state().standing, fixture.state().renewals),
        (CertificateStanding::Good, 1)
    );
}

/// The quorum does not renew a certificate issued moments ago, so no agent requests that.
#[tokio::test(start_paused = true)]
async fn fresh_enrolment_follows_trust_promptly() {
    let life = Duration::from_secs(120);
    let fixture = fixture_of(life);
    let first = IssuedCertificate {
        issued_at: START,
        expires_at: Validity::from_now(START, life).expires_at(),
    };
    let new = long_lived();
    *fixture.cluster.authority.lock().unwrap() = new.clone();
    let mut promoted = bundle(1, &new, &[]);
    promoted.authorities = authorities(&[(&fixture.authority, false), (&new, true)]);
    let promoted = promoted.sign([&*fixture.authority, &*new]).unwrap();
    fixture.mesh.apply_bundle(&promoted).unwrap();
    let mut changes = fixture.renewal.watch();
    changes.wait_for(|state| state.renewals == 1).await.unwrap();
    let tries = fixture.tries();
    assert_eq!(tries.len(), 1, "{tries:?}");
    let from = first.renewable_from();
    assert!(tries[0] >= from && tries[0] < from.after(1000), "{tries:?}");
}

#[tokio::test(start_paused = true)]
async fn the_bundle_is_asked_for_at_once_and_every_ten_minutes() {
    let fixture = fixture();
    let first = signed(1, &fixture.authority, &[]);
    fixture.publish(first);
    let mut changes = fixture.renewal.watch();
    changes
        .wait_for(|state| state.trust_number == 1)
        .await
        .unwrap();
    assert!(fixture.now().since(START) < 1000, "{}", fixture.now());
    assert_eq!(fixture.saved().trust_number(), 1);
    fixture.publish(signed(2, &fixture.authority, &[]));
    sleep(Duration::from_secs(601)).await;
    assert_eq!(fixture.state().trust_number, 2);
    sleep(HOUR).await;
    let asked = fixture.cluster.trust_asked.lock().unwrap().clone();
    assert_eq!(asked, [0, 1, 2, 2, 2, 2, 2, 2]);
    // Forged bundles and missing answers are reported, and change nothing.
    fixture.publish(signed(3, &long_lived(), &[]));
    sleep(HOUR).await;
    let state = fixture.state();
    assert_eq!(state.trust_number, 2);
    assert!(
        state
            .last_error
            .unwrap()
            .contains("not signed by an authority")
    );
    fixture.fail(nobody());
    sleep(HOUR).await;
    assert!(
        fixture
            .state()
            .last_error
            .unwrap()
            .contains("nobody answers")
    );
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_peers_would_refuse_is_not_put_in_force() {
    let fixture = fixture();
    let before = shown(&fixture.mesh);
    *fixture.cluster.misnames.lock().unwrap() = true;
    sleep(LIFE.mul_f64(0.72)).await;
    let said = fixture.state().last_error.unwrap();
    println!("another name: {said}");
    assert!(said.contains("agent/a2"), "{said}");
    *fixture.cluster.misnames.lock().unwrap() = false;
    // With a bundle in force, the bundle is authoritative, not the roots from the issuer.
    fixture.publish(signed(1, &fixture.authority, &[]));
    *fixture.cluster.authority.lock().unwrap() = long_lived();
    sleep(HOUR).await;
    let said = fixture.state().last_error.unwrap();
    println!("another authority: {said}");
    assert!(said.contains("not usable here"), "{said}");
    assert_eq!(
        (shown(&fixture.mesh), fixture.saved().chain()),
        (before.clone(), before.as_slice())
    );
}

/// An agent was offline for a whole rotation of the authority. Its bundle does not contain the new authority, and
/// yields to an enrolment, but only after the certificate has expired.
#[tokio::test(start_paused = true)]
async fn reenrols_after_missed_rotation() {
    let fixture = fixture();
    let new = long_lived();
    fixture
        .mesh
        .apply_bundle(&signed(4, &fixture.authority, &[]))
        .unwrap();
    *fixture.cluster.authority.lock().unwrap() = new.clone();
    *fixture.cluster.roots.lock().unwrap() = vec![new.certificate().to_vec()];
    sleep(LIFE.mul_f64(0.99)).await;
    assert_eq!(
        (fixture.state().renewals, fixture.state().trust_number),
        (0, 4)
    );
    assert!(
        fixture
            .state()
            .last_error
            .unwrap()
            .contains("not usable here")
    );
    sleep(LIFE.mul_f64(0.02)).await;
    assert_eq!(
        (fixture.state().renewals, fixture.state().trust_number),
        (1, 0)
    );
    assert_eq!(fixture.saved().roots(), [new.certificate().clone()]);
    fixture.publish(signed(9, &new, &[]));
    sleep(HOUR).await;
    assert_eq!(
        (fixture.saved().trust_number(), fixture.state().last_error),
        (9, None)
    );
}

#[tokio::test(start_paused = true)]
async fn revoked_process_stops_and_reports() {
    let fixture = fixture();
    fixture.publish(signed(
        1,
        &fixture.authority,
        &[(&id(Role::Agent, "a1"), START.after(1000))],
    ));
    sleep(LIFE.mul_f64(0.8)).await;
    assert_eq!(fixture.tries().len(), 0);
    assert_eq!(fixture.health(), Some("certificate.revoked"));
    assert!(fixture.state().last_error.unwrap().contains("revoked"));
    assert_eq!(fixture.state().standing, CertificateStanding::Revoked);
}

#[tokio::test(start_paused = true)]
async fn with_a_full_disk_it_renews_all_the_same_and_saves_later() {
    let fixture = fixture();
    let away = fixture.folder.path().with_extension("away");
    std::fs::rename(fixture.folder.path(), &away).unwrap();
    // A file takes the folder's path, so that nothing can be written below it.
    std::fs::write(fixture.folder.path(), "").unwrap();
    sleep(LIFE.mul_f64(0.72)).await;
    let state = fixture.state();
    assert_eq!(state.renewals, 1, "{state:?}");
    println!("{}", state.last_error.unwrap());
    assert_eq!(
        fixture.tries().len(),
        1,
        "the new one is not asked for again"
    );
    std::fs::remove_file(fixture.folder.path()).unwrap();
    std::fs::rename(&away, fixture.folder.path()).unwrap();
    sleep(HOUR).await;
    assert_eq!(fixture.saved().chain(), shown(&fixture.mesh).as_slice());
    assert_eq!(
        (fixture.state().last_error, fixture.tries().len()),
        (None, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn renewal_keeps_no_mesh_alive() {
    let fixture = fixture();
    let mut changes = fixture.renewal.watch();
    let addr = fixture.mesh.local_addr();
    drop(fixture.mesh);
    while changes.changed().await.is_ok() {}
    until("the port is free", || async {
        std::net::UdpSocket::bind(addr).is_ok()
    })
    .await;
}
