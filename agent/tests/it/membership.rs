//! Agent membership: certificate renewal, enrolment after expiry, and statements of the agent about itself and others.

use crate::cluster::{CELL, Cluster, LOOPBACK, OffsetClock, bind, captured, empty_host};
use crate::support::{PATIENCE, key, node, shell};
use bytes::Bytes;
use futures::future::BoxFuture;
use lattice_agent::{App, Dependencies, JoinSettings, Settings, StartError};
use lattice_agent_rpc::{GetAttestation, ListAttempts, Ping, PingPeer};
use lattice_hwprobe::probe_all;
use lattice_mesh::{
    Authority, Clock as _, Credentials, EnrolRefused, EnrolRequest, Enroller, ExpectedIdentity,
    Identity, Issued, JoinToken, Mesh, MeshConfig, Renew, RenewRefused, Role, Router,
    StatementSignature, SystemClock, Validity,
};
use lattice_quorum_types::UnixMillis;
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::attestation::Attestation;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Lifetime of certificates that must expire or be renewed in a test: longer than any step takes on a busy machine.
const LIFE: Duration = Duration::from_secs(90);
/// Age of a certificate that is due for renewal within nine seconds: renewal is due at 2/3 of its lifetime, plus or
/// minus 5 %. The certificate stays valid for another half minute.
const OLD: Duration = Duration::from_secs(55);

/// Quorum member that accepts any token.
struct Member {
    clock: Arc<OffsetClock>,
    authority: Arc<Authority>,
    lifetime: Duration,
    enrolled: AtomicUsize,
    renewed: AtomicUsize,
    /// Whether issued certificates have the age [`OLD`].
    issues_old: AtomicBool,
    /// Whether the member renews certificates.
    renews: AtomicBool,
}

impl Member {
    fn serving(cluster: &Cluster, lifetime: Duration) -> (Arc<Self>, Mesh) {
        let member = Arc::new(Self {
            clock: cluster.clock.clone(),
            authority: cluster.authority.clone(),
            lifetime,
            enrolled: AtomicUsize::new(0),
            renewed: AtomicUsize::new(0),
            issues_old: AtomicBool::new(false),
            renews: AtomicBool::new(true),
        });
        let (enroller, renewer) = (member.clone(), member.clone());
        let router = Router::new()
            .rpc::<Renew, _, _>(move |caller, Renew { csr }| {
                let answer = renewer.renew(caller.identity.id(), &csr);
                async move { Ok(answer) }
            })
            .enrolment(Arc::new(Enrolling(enroller)));
        let mesh = bind(&cluster.authority, Role::Quorum, "1");
        mesh.serve(router).unwrap();
        (member, mesh)
    }

    fn issue(&self, name: &str, csr: &[u8]) -> Issued {
        let identity = Identity::new("test", Role::Agent, name).unwrap();
        let mut from = self.clock.now();
        if self.issues_old.load(Ordering::SeqCst) {
            from = UnixMillis(from.0 - u64::try_from(OLD.as_millis()).unwrap());
        }
        let validity = Validity::from_now(from, self.lifetime);
        let chain = self.authority.issue(&identity, &csr.into(), validity);
        Issued {
            chain: chain.unwrap().iter().map(|c| c.to_vec()).collect(),
            roots: vec![self.authority.certificate().to_vec()],
            cell: Some(CELL.to_owned()),
        }
    }

    fn renew(&self, name: &str, csr: &[u8]) -> Result<Issued, RenewRefused> {
        if !self.renews.load(Ordering::SeqCst) {
            let reason = "the quorum has no majority at present".to_owned();
            return Err(RenewRefused::Unavailable { reason });
        }
        self.renewed.fetch_add(1, Ordering::SeqCst);
        Ok(self.issue(name, csr))
    }
}

struct Enrolling(Arc<Member>);

impl Enroller for Enrolling {
    fn enrol(
        &self,
        request: EnrolRequest,
        _remote: SocketAddr,
    ) -> BoxFuture<'_, Result<Issued, EnrolRefused>> {
        self.0.enrolled.fetch_add(1, Ordering::SeqCst);
        let issued = self.0.issue(&request.name, &request.csr);
        Box::pin(async move { Ok(issued) })
    }
}

/// Agent that enrols with `quorum` by a token.
fn joining(cluster: &Cluster, name: &str, quorum: &Mesh) -> (Settings, Dependencies) {
    let mut settings = cluster.settings(name, empty_host(cluster));
    settings.quorum = vec![quorum.local_addr()];
    settings.join = Some(JoinSettings {
        token: JoinToken::generate(Role::Agent, cluster.authority.pin()),
        replace: true,
    });
    let mut edges = cluster.edges(name);
    edges.credentials = None;
    (settings, edges)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

#[tokio::test]
async fn a_certificate_renews_itself_while_work_runs() {
    let cluster = Cluster::start().await;
    let (member, quorum) = Member::serving(&cluster, LIFE);
    member.issues_old.store(true, Ordering::SeqCst);
    let (settings, edges) = joining(&cluster, "n1", &quorum);
    let mut app = App::bind(settings.clone(), edges).await.unwrap();
    app.start().await.unwrap();
    let first = app.renewal().unwrap().state();
    let go = cluster.folder.path().join("go");
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; exit 7",
        go.display()
    );
    let peer = cluster.peer(&app);
    peer.call(&shell(key(1), &script), PATIENCE)
        .await
        .unwrap()
        .unwrap();

    // Continuous calls: none fails while certificates change.
    let (mut calls, renewal) = (0, app.renewal().unwrap().clone());
    let before = renewal.state().renewals;
    let renewed = tokio::time::timeout(2 * PATIENCE, async {
        loop {
            let now = renewal.state();
            let renewals = now.renewals - before;
            if renewals > 0 {
                member.issues_old.store(false, Ordering::SeqCst);
            }
            // No further renewal is due before the end of this test.
            let is_young = now.expires_at > cluster.clock.now().after(60_000);
            if renewals >= 2 && is_young {
                return;
            }
            peer.call(&Ping, PATIENCE).await.unwrap();
            calls += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(renewed.await.is_ok(), "{:?}", renewal.state());
    let now = renewal.state();
    println!(
        "{calls} calls over {} renewals; the certificate ended first at {}, now at {}",
        now.renewals - before,
        first.expires_at,
        now.expires_at
    );
    assert!(now.expires_at > first.expires_at);
    assert_eq!(member.renewed.load(Ordering::SeqCst) as u64, now.renewals);
    assert_eq!(
        member.enrolled.load(Ordering::SeqCst),
        1,
        "the token was used once"
    );
    let kept = Credentials::load(&settings.data_dir.join("identity")).unwrap();
    assert_eq!(
        kept.expires_at(),
        now.expires_at,
        "what is in force is on disk"
    );
    std::fs::write(&go, "").unwrap();
    assert_eq!(
        cluster.ledger.end(key(1)).await,
        RankExit::Exited { code: 7 }
    );
    app.stop().await;
}

#[tokio::test]
async fn a_certificate_that_ended_is_replaced_by_the_token_without_a_restart() {
    let cluster = Cluster::start().await;
    let (member, quorum) = Member::serving(&cluster, LIFE);
    member.renews.store(false, Ordering::SeqCst);
    let (settings, edges) = joining(&cluster, "n2", &quorum);
    let mut app = App::bind(settings, edges).await.unwrap();
    app.start().await.unwrap();
    let first = app.renewal().unwrap().state();
    let renewal = app.renewal().unwrap().clone();
    let peer = cluster.peer(&app);
    peer.call(&Ping, PATIENCE).await.unwrap();
    cluster.clock.forward(LIFE + Duration::from_secs(1));
    cluster.control.disconnect(&app.mesh().identity());
    let refused = peer.call(&Ping, PATIENCE).await.unwrap_err();
    assert!(refused.to_string().contains("expired"), "{refused}");
    renewal.refresh_now();
    until("there is another", || {
        renewal.state().expires_at > first.expires_at
    })
    .await;
    assert_eq!(member.enrolled.load(Ordering::SeqCst), 2);
    assert_eq!(member.renewed.load(Ordering::SeqCst), 0);
    // A caller that dialled in between waits a moment before its next attempt.
    let answered = tokio::time::timeout(PATIENCE, async {
        while peer.call(&Ping, PATIENCE).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(answered.await.is_ok(), "others let it in again");
    app.stop().await;
}

#[tokio::test]
async fn long_absent_node_reenrols() {
    let cluster = Cluster::start().await;
    let (member, quorum) = Member::serving(&cluster, Duration::from_secs(3600));
    let (mut settings, edges) = joining(&cluster, "n3", &quorum);
    drop(App::bind(settings.clone(), edges.clone()).await.unwrap());
    let identity = Identity::new("test", Role::Agent, "n3").unwrap();
    let now = SystemClock.now();
    let past = Validity {
        not_before: UnixMillis(now.0 - 7_200_000),
        not_after: UnixMillis(now.0 - 3_600_000),
    };
    let ended = Credentials::issued_by(&cluster.authority, &identity, past).unwrap();
    let folder = settings.data_dir.join("identity");
    ended.save(&folder).unwrap();
    let join = settings.join.take();
    let refused = App::bind(settings.clone(), edges.clone())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, StartError::NoLongerMember { .. }),
        "{refused:?}"
    );
    let text = refused.to_string();
    println!("{text}");
    assert!(
        text.contains("expired 3")
            && text.contains("s ago")
            && text.contains("--nodes n3 --replace"),
        "{text}"
    );
    settings.join = join;
    drop(App::bind(settings, edges).await.unwrap());
    assert_eq!(member.enrolled.load(Ordering::SeqCst), 2);
    assert!(Credentials::load(&folder).unwrap().expires_at() > now);
}

#[tokio::test]
async fn only_control_may_request_peer_ping() {
    let cluster = Cluster::start().await;
    let one = cluster.agent("n1", empty_host(&cluster)).await;
    let other = cluster.agent("n2", empty_host(&cluster)).await;
    let ask = |name: &str, addr| PingPeer {
        node: node(name),
        addr,
        timeout_ms: 5000,
    };
    let peer = cluster.peer(&one);
    let pong = peer.call(&ask("n2", other.addr()), PATIENCE).await.unwrap();
    assert_eq!(pong.unwrap().node, node("n2"));
    // Another node at that address is not the expected one.
    let wrong = peer.call(&ask("n3", other.addr()), PATIENCE).await.unwrap();
    let wrong = wrong.unwrap_err();
    assert!(wrong.contains("n3"), "{wrong}");
    let addr = other.addr();
    other.stop().await;
    let gone = peer.call(&ask("n2", addr), PATIENCE).await.unwrap();
    assert!(gone.is_err(), "{gone:?}");
    for role in [Role::Agent, Role::Quorum] {
        let stranger = bind(&cluster.authority, role, "x1");
        let stranger = stranger.peer(one.addr(), ExpectedIdentity::role(Role::Agent));
        assert!(
            stranger.call(&ask("n2", addr), PATIENCE).await.is_err(),
            "{role}"
        );
    }
    assert_eq!(peer.call(&ListAttempts, PATIENCE).await.unwrap(), []);
    one.stop().await;
}

#[tokio::test]
async fn a_claim_is_read_now_and_signed_by_the_node_it_speaks_of() {
    let cluster = Cluster::start().await;
    let app = cluster.agent("gpu001", captured("gpu001")).await;
    let nonce = [9; 16];
    let asked_at = SystemClock.now();
    let answer = cluster
        .peer(&app)
        .call(&GetAttestation { nonce }, PATIENCE)
        .await;
    let answer = answer.unwrap().unwrap();
    let (bytes, signed): (Bytes, StatementSignature) = postcard::from_bytes(&answer).unwrap();
    let now = SystemClock.now();
    let verify =
        |bytes: &[u8], context: &str| cluster.control.verify_signed(context, bytes, &signed, now);
    let signer = verify(&bytes, Attestation::CONTEXT).unwrap();
    assert_eq!((signer.role(), signer.id()), (Role::Agent, "gpu001"));
    let attestation: Attestation = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(
        (attestation.node.as_str(), attestation.nonce),
        ("gpu001", nonce)
    );
    assert!(attestation.read_at >= asked_at && attestation.read_at <= now);
    for (class, mark) in probe_all(&captured("gpu001")).marks() {
        let digest = mark.digest().map(|digest| digest.0);
        assert_eq!(
            attestation
                .classes
                .get(class.name())
                .map(|said| said.now.digest),
            digest,
            "{class:?}"
        );
    }
    // Changed content, another purpose or another cluster fails verification.
    let mut changed = bytes.to_vec();
    changed[3] ^= 1;
    assert!(verify(&changed, Attestation::CONTEXT).is_err());
    assert!(verify(&bytes, "something else").is_err());
    let year = Validity::from_now(now, Duration::from_secs(3600));
    let foreign = Authority::create("test", year).unwrap();
    let foreign = Credentials::issued_by(
        &foreign,
        &Identity::new("test", Role::Control, "c9").unwrap(),
        year,
    );
    let foreign = Mesh::bind(LOOPBACK, foreign.unwrap(), MeshConfig::default()).unwrap();
    assert!(
        foreign
            .verify_signed(Attestation::CONTEXT, &bytes, &signed, now)
            .is_err()
    );
    app.stop().await;
}

#[tokio::test]
async fn renewal_peers_survive_configuration_change() {
    let cluster = Cluster::start().await;
    let (member, quorum) = Member::serving(&cluster, LIFE);
    member.issues_old.store(true, Ordering::SeqCst);
    let (mut settings, edges) = joining(&cluster, "n4", &quorum);
    drop(App::bind(settings.clone(), edges.clone()).await.unwrap());
    (settings.join, settings.quorum) = (None, Vec::new());
    let mut app = App::bind(settings, edges).await.unwrap();
    app.start().await.unwrap();
    let renewal = app.renewal().unwrap().clone();
    until("it is renewed", || renewal.state().renewals > 0).await;
    assert!(member.renewed.load(Ordering::SeqCst) > 0);
    app.stop().await;
}
