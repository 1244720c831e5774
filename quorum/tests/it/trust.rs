//! Certificates with real members: permission to enrol, renewal, revocation, rotation of the authority, and operation
//! without a quorum.

use crate::common::{self, CLUSTER, Cluster, admin, any_port, control, now, patient, until};
use futures::future::join_all;
use lattice_mesh::{
    Authority, CallError, CertificateStanding, Credentials, EnrolError, EnrolRefused,
    ExpectedIdentity, Identity, JoinToken, Mesh, MeshConfig, QuorumRenewalSource, Renew,
    RenewRefused, Renewal, RenewalSettings, Role, Router, Rpc, WeakMesh, enrol, enrol_with,
    keep_renewed,
};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Applied, Command, Refusal, UnixMillis,
    command::TokenGrant,
    view::{Answer, Query, TrustView},
};
use serde::{Deserialize, Serialize};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Timeout longer than an answer takes on a busy machine.
const SHORT: Duration = Duration::from_secs(30);

fn grant(token: &JoinToken, uses: u32) -> TokenGrant {
    TokenGrant {
        hash: token.hash(),
        role: token.role(),
        names: None,
        cidrs: Vec::new(),
        uses,
        replace: false,
        expires_at: UnixMillis(now().0 + 600_000),
    }
}

async fn propose(client: &QuorumClient, command: Command) -> Result<Applied, Refusal> {
    client.propose(admin(None, command)).await.unwrap()
}

async fn token(client: &QuorumClient, authority: &Authority, uses: u32) -> JoinToken {
    token_of(client, &[authority], uses).await
}

async fn token_of(client: &QuorumClient, authorities: &[&Authority], uses: u32) -> JoinToken {
    let mut pins = authorities.iter().map(|authority| authority.pin());
    let token = JoinToken::generate(Role::Agent, pins.next().unwrap()).with_pins(pins);
    let grant = TokenGrant {
        replace: true,
        ..grant(&token, uses)
    };
    propose(client, Command::CreateToken { grant })
        .await
        .unwrap();
    token
}

async fn trust(client: &QuorumClient) -> TrustView {
    match client.read(Query::Trust).await.unwrap() {
        Answer::Trust(trust) => trust,
        other => panic!("{other:?}"),
    }
}

fn refused(result: Result<lattice_mesh::Enrolment, EnrolError>) -> EnrolRefused {
    match result {
        Err(EnrolError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

/// RPC to test a connection.
#[derive(Debug, Serialize, Deserialize)]
struct Hello;
impl Rpc for Hello {
    const METHOD: &'static str = "test.hello";
    const CALLERS: &'static [Role] = &Role::ALL;
    type Reply = u64;
}

/// An agent that answers calls, and renews its certificate through the members.
struct Agent {
    mesh: Mesh,
    renewal: Renewal,
}

impl Agent {
    fn start(credentials: Credentials, members: Vec<SocketAddr>) -> Self {
        let mesh = Mesh::bind(any_port(), credentials, MeshConfig::default()).unwrap();
        let router = Router::new()
            .with_trust_handlers(&mesh)
            .rpc(|_, _: Hello| async { Ok(7) });
        mesh.serve(router).unwrap();
        let weak: WeakMesh = mesh.downgrade();
        let ask = QuorumRenewalSource::new(move || {
            let peer = |addr: &SocketAddr| {
                let mesh = weak.upgrade()?;
                Some(mesh.peer(*addr, ExpectedIdentity::role(Role::Quorum)))
            };
            members.iter().filter_map(peer).collect()
        });
        let settings = RenewalSettings {
            trust_request_interval: Duration::from_millis(300),
            min_retry: Duration::from_millis(300),
            max_retry: Duration::from_secs(1),
            ..RenewalSettings::new(None, 7)
        };
        let renewal = keep_renewed(&mesh, ask, settings);
        Self { mesh, renewal }
    }
    async fn hello(&self, to: &Agent) -> Result<u64, CallError> {
        let peer = self
            .mesh
            .peer(to.mesh.local_addr(), ExpectedIdentity::role(Role::Agent));
        peer.call(&Hello, SHORT).await
    }
    fn is_connected_to(&self, other: &Agent) -> bool {
        self.mesh.connections().contains(&other.mesh.identity())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_for_its_networks_and_taking_a_name_voids_what_was_there() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let addrs = cluster.addrs();
    let elsewhere = JoinToken::generate(Role::Agent, cluster.authority.pin());
    let here = JoinToken::generate(Role::Agent, cluster.authority.pin());
    for (token, cidrs) in [
        (&elsewhere, vec!["10.1.0.0/16"]),
        (&here, vec!["fd00::/64", "127.0.0.0/8"]),
    ] {
        let grant = TokenGrant {
            cidrs: cidrs.iter().map(|c| c.parse().unwrap()).collect(),
            ..grant(token, 9)
        };
        propose(&client, Command::CreateToken { grant })
            .await
            .unwrap();
    }
    let away = refused(enrol(addrs[0], &elsewhere, "n1").await);
    let said = away.to_string();
    assert!(
        said.contains("not for use from 127.0.0.1") && said.contains("10.1.0.0/16"),
        "{said}"
    );
    // A process without a valid token for this name receives no information on networks.
    let guess = JoinToken::generate(Role::Agent, cluster.authority.pin());
    let unknown = enrol(addrs[0], &guess, "n1").await;
    assert_eq!(refused(unknown), EnrolRefused::TokenRefused);
    let first = enrol(addrs[1], &here, "n1").await.unwrap().credentials;
    for replace in [false, true] {
        // The token does not permit a replacement, with or without the request flag.
        let config = MeshConfig::default();
        let taken = enrol_with(addrs[2], &here, "n1", replace, &config).await;
        let taken = refused(taken);
        assert!(
            matches!(&taken, EnrolRefused::NameTaken { name, needs }
                if name == "n1" && needs.contains("token create --replace")),
            "{taken}"
        );
    }
    let strong = token(&client, &cluster.authority, 1).await;
    let config = MeshConfig::default();
    let second = enrol_with(addrs[2], &strong, "n1", true, &config).await;
    let second = second.unwrap().credentials;
    assert!(second.issued_at() > first.issued_at());
    let view = trust(&client).await;
    assert_eq!(view.revoked[0].issued_before, second.issued_at());

    // Both processes request a renewal at each member; the replaced one is refused everywhere.
    let in_force = || {
        let states = cluster.apps.iter().flatten();
        let mut numbers = states.map(|app| app.mesh().trust_state().number);
        numbers.all(|number| number == view.number.0)
    };
    until("the bundle is in force", || async { in_force() }).await;
    for (credentials, holds) in [(first, false), (second, true)] {
        let mesh = Mesh::bind(any_port(), credentials, MeshConfig::default()).unwrap();
        for addr in cluster.addrs() {
            let peer = mesh.peer(addr, ExpectedIdentity::role(Role::Quorum));
            let csr = Credentials::generate_key_and_csr().unwrap().csr.to_vec();
            match peer.call(&Renew { csr }, SHORT).await {
                // The process is a member, but its certificate was issued moments ago.
                Ok(Err(RenewRefused::Invalid { reason })) => {
                    assert!(holds && reason.contains("moments ago"), "{reason}");
                }
                Ok(Err(RenewRefused::NotMember { .. })) | Err(_) => assert!(!holds),
                Ok(other) => panic!("{other:?}"),
            }
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_twenty_of_fifty_enrol_at_once_with_a_token_for_twenty() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let token = JoinToken::generate(Role::Agent, cluster.authority.pin());
    let grant = grant(&token, 20);
    propose(&client, Command::CreateToken { grant })
        .await
        .unwrap();
    let addrs = cluster.addrs();
    let token = &token;
    let tries = (0..50).map(|i| {
        let addr = addrs[i % 3];
        async move { enrol(addr, token, &format!("n{i:03}")).await }
    });
    let (good, bad): (Vec<_>, Vec<_>) = join_all(tries).await.into_iter().partition(Result::is_ok);
    println!("50 tried, {} enrolled, {} refused", good.len(), bad.len());
    assert_eq!(good.len(), 20);
    for no in bad {
        assert_eq!(refused(no), EnrolRefused::TokenRefused);
    }
    let Answer::Certificates(all) = client.read(Query::Certificates).await.unwrap() else {
        panic!("certificates")
    };
    let agents = all.iter().filter(|view| view.role == Role::Agent);
    assert_eq!(agents.count(), 20);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_connections_are_closed_at_all_members() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let token = token(&client, &cluster.authority, 2).await;
    let enrolled = enrol(cluster.addrs()[0], &token, "n1").await.unwrap();
    let mesh = Mesh::bind(any_port(), enrolled.credentials, MeshConfig::default()).unwrap();
    let identity = mesh.identity();
    for addr in cluster.addrs() {
        let connected = mesh
            .connect(addr, ExpectedIdentity::role(Role::Quorum))
            .await;
        connected.unwrap();
    }
    let connected = || {
        let apps = cluster.apps.iter().flatten();
        apps.filter(|app| app.mesh().connections().contains(&identity))
            .count()
    };
    until("three connections", || async { connected() == 3 }).await;
    let started = Instant::now();
    let revoke = Command::RevokeCertificates {
        name: "n1".to_owned(),
        role: Role::Agent,
        reason: "lost its disk".to_owned(),
    };
    propose(&client, revoke).await.unwrap();
    until("no connection", || async { connected() == 0 }).await;
    let took = started.elapsed();
    println!("revoked and disconnected at three members in {took:?}");
    // Not caused by a periodic check minutes later. On a busy machine an election may precede it.
    assert!(took < Duration::from_secs(10), "{took:?}");
    // Before the last member's close arrives, the mesh would reuse closed connections.
    until("no connection at its own end", || async {
        mesh.connections().is_empty()
    })
    .await;
    for addr in cluster.addrs() {
        let again = mesh
            .connect(addr, ExpectedIdentity::role(Role::Quorum))
            .await;
        assert!(again.is_err(), "a revoked certificate is let in");
    }
    // The earlier token does not help; a new token and certificate for the same name do.
    let config = MeshConfig::default();
    let back = enrol_with(cluster.addrs()[1], &token, "n1", true, &config).await;
    assert_eq!(refused(back), EnrolRefused::TokenRefused);
    let token = self::token(&client, &cluster.authority, 1).await;
    let anew = enrol_with(cluster.addrs()[1], &token, "n1", true, &config).await;
    let mesh = Mesh::bind(any_port(), anew.unwrap().credentials, config).unwrap();
    for addr in cluster.addrs() {
        let connected = mesh
            .connect(addr, ExpectedIdentity::role(Role::Quorum))
            .await;
        connected.unwrap();
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_renews_before_the_end_and_keeps_its_connections() {
    // A third of the lifetime remains at the renewal: longer than stalls of a busy machine.
    let cluster = Cluster::start_short(Duration::from_secs(24)).await;
    let mesh = control_for(&cluster, "c1");
    let client = QuorumClient::with_config(mesh, cluster.addrs(), patient());
    let token = token(&client, &cluster.authority, 2).await;
    let mut agents = Vec::new();
    for (i, addr) in cluster.addrs().into_iter().take(2).enumerate() {
        let enrolled = enrol(addr, &token, &format!("n{i}")).await.unwrap();
        agents.push(Agent::start(enrolled.credentials, cluster.addrs()));
    }
    let ends = agents[0].mesh.expires_at();
    // Longer than any initial certificate is valid, without an interruption.
    let mut calls = 0;
    while now() < ends.after(2000) {
        agents[0].hello(&agents[1]).await.unwrap();
        calls += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for agent in &agents {
        let state = agent.renewal.state();
        println!("{} renewals, {:?}", state.renewals, state.last_error);
        assert!(state.renewals >= 1 && state.expires_at > ends);
        assert_eq!(state.standing, CertificateStanding::Good);
    }
    for app in cluster.apps.iter().flatten() {
        let state = app.certificate().unwrap();
        assert!(state.renewals >= 1 && state.expires_at > now(), "{state:?}");
    }
    println!("{calls} calls through two renewals");
    // The quorum still commits, over connections with renewed certificates.
    let revoke = Command::RevokeToken {
        id: token.hash()[..12].to_owned(),
    };
    propose(&client, revoke).await.unwrap();
    cluster.stop().await;
}

/// A control with a certificate of one day, whatever the cluster's lifetime.
fn control_for(cluster: &Cluster, id: &str) -> Mesh {
    control(&cluster.authority, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_authority_takes_the_place_of_another() {
    let cluster = Cluster::start_short(Duration::from_secs(40)).await;
    // Control takes part: its certificate is from the old authority too.
    let credentials = cluster.credentials(Role::Control, "c1");
    let mesh = Mesh::bind(any_port(), credentials, MeshConfig::default()).unwrap();
    let c1 = {
        let settings = RenewalSettings {
            trust_request_interval: Duration::from_millis(300),
            ..RenewalSettings::new(None, 3)
        };
        let weak = mesh.downgrade();
        let addrs = cluster.addrs();
        let ask = QuorumRenewalSource::new(move || {
            let peer = |addr: &SocketAddr| {
                let mesh = weak.upgrade()?;
                Some(mesh.peer(*addr, ExpectedIdentity::role(Role::Quorum)))
            };
            addrs.iter().filter_map(peer).collect()
        });
        keep_renewed(&mesh, ask, settings)
    };
    let client = QuorumClient::with_config(mesh.clone(), cluster.addrs(), patient());
    let (old, new) = (cluster.authority.clone(), common::authority());
    let pin = |authority: &Authority| authority.pin().to_string();
    until("the first authority is known", || async {
        let known = trust(&client).await.authorities;
        known.iter().any(|a| a.issuing && a.pin == pin(&old))
    })
    .await;
    let before = token(&client, &old, 9).await;
    let enrolled = enrol(cluster.addrs()[0], &before, "n1").await.unwrap();
    let spare = enrolled.credentials.clone();
    let n1 = Agent::start(enrolled.credentials, cluster.addrs());

    // Two members hold the new key; the third only holds the old one.
    for id in [1, 2] {
        cluster
            .app(id)
            .set_issuing_keys(vec![old.clone(), new.clone()]);
    }
    let certificate = new.certificate().to_vec().into();
    propose(&client, Command::AddAuthority { certificate })
        .await
        .unwrap();
    let promote = Command::PromoteAuthority { pin: pin(&new) };
    let promoted = propose(&client, promote).await.unwrap().revision;
    let at_all = |number: u64| {
        let apps = cluster.apps.iter().flatten();
        let mut numbers = apps.map(|app| app.mesh().trust_state().number);
        numbers.all(|n| n >= number) && n1.mesh.trust_state().number >= number
    };
    until("the promotion is in force", || async { at_all(promoted.0) }).await;
    // Tokens from before and during the rotation, whichever certificate the member presents at this moment. It becomes
    // the new authority's within seconds.
    let during = token_of(&client, &[&new, &old], 5).await;
    for (token, name) in [(&before, "n4"), (&during, "n5")] {
        // The third member can no longer issue, and reports that; a joining agent turns to the next member.
        match refused(enrol(cluster.addrs()[2], token, "n2").await) {
            EnrolRefused::Unavailable { reason } => {
                assert!(
                    reason.contains("no key of the issuing authority"),
                    "{reason}"
                );
            }
            other => panic!("{other}"),
        }
        enrol(cluster.addrs()[1], token, name).await.unwrap();
    }
    let enrolled = enrol(cluster.addrs()[0], &before, "n2").await;
    let enrolled = enrolled.unwrap();
    let n2 = Agent::start(enrolled.credentials, cluster.addrs());
    // Agents of the old and the new authority call each other, in both directions.
    n1.hello(&n2).await.unwrap();
    n2.hello(&n1).await.unwrap();

    // All members renew under the new authority, the third member with the help of another.
    until("all have renewed", || async {
        let apps = cluster.apps.iter().flatten();
        let mut standings = apps.map(|app| app.mesh().trust_state().standing);
        standings.all(|standing| standing == CertificateStanding::Good)
            && n1.mesh.trust_state().standing == CertificateStanding::Good
    })
    .await;
    until("control has renewed", || async {
        c1.state().renewals > 0 && mesh.trust_state().standing == CertificateStanding::Good
    })
    .await;
    // No member presents a certificate of the old authority any more; its key is still held.
    for (addr, name) in cluster.addrs().into_iter().zip(["n6", "n7"]) {
        enrol(addr, &before, name).await.unwrap();
    }
    let retire = Command::RetireAuthority { pin: pin(&old) };
    let retired = propose(&client, retire).await.unwrap().revision;
    until("the retirement is in force", || async { at_all(retired.0) }).await;
    until("two know of it", || async {
        n2.mesh.trust_state().number >= retired.0
    })
    .await;
    n1.hello(&n2).await.unwrap();
    let left = Mesh::bind(any_port(), spare, MeshConfig::default()).unwrap();
    for addr in cluster.addrs() {
        let no = left
            .connect(addr, ExpectedIdentity::role(Role::Quorum))
            .await;
        assert!(
            no.is_err(),
            "a certificate of a retired authority is let in"
        );
    }
    let no = left
        .connect(n2.mesh.local_addr(), ExpectedIdentity::role(Role::Agent))
        .await;
    assert!(no.is_err());
    // The quorum continues. A token that only names the old authority is useless, although its key is held.
    for addr in cluster.addrs() {
        match enrol(addr, &before, "n3").await {
            Err(error @ EnrolError::PinMismatch { .. }) => println!("{error}"),
            other => panic!("{other:?}"),
        }
    }
    let after = token(&client, &new, 1).await;
    for (token, name) in [(&during, "n3"), (&after, "n8")] {
        enrol(cluster.addrs()[0], token, name).await.unwrap();
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_connections_go_on_until_their_certificates_end() {
    // No certificate is renewed before two members are stopped, even on a busy machine.
    let mut cluster = Cluster::start_short(Duration::from_secs(24)).await;
    let mesh = control_for(&cluster, "c1");
    let client = QuorumClient::with_config(mesh, cluster.addrs(), patient());
    let token = token(&client, &cluster.authority, 2).await;
    let mut agents = Vec::new();
    for (i, addr) in cluster.addrs().into_iter().take(2).enumerate() {
        let enrolled = enrol(addr, &token, &format!("n{i}")).await.unwrap();
        agents.push(Agent::start(enrolled.credentials, cluster.addrs()));
    }
    for id in [2, 3] {
        cluster.stop_member(id).await;
    }
    // The earlier expiry of the two; the other one may be slightly later.
    let ends = agents.iter().map(|agent| agent.mesh.expires_at()).min();
    let ends = ends.unwrap();
    let mut last = Ok(0);
    while now() < ends {
        last = agents[0].hello(&agents[1]).await;
        if now() < ends {
            assert!(last.is_ok(), "cut off before the end: {last:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(last);
    until("the connection is closed", || async {
        !agents[0].is_connected_to(&agents[1])
    })
    .await;
    let late = now().since(ends);
    println!("closed {late} ms after the end of the certificate");
    assert!(late < 5000, "{late}");
    assert!(agents[0].hello(&agents[1]).await.is_err());
    for agent in &agents {
        until("it says why it has no new certificate", || async {
            agent.renewal.state().last_error.is_some()
        })
        .await;
        let state = agent.renewal.state();
        assert_eq!(state.renewals, 0);
        println!("{:?}", state.last_error);
        until("its own has ended too", || async {
            agent.renewal.state().health_reason(now()) == Some("certificate.expired")
        })
        .await;
    }
    drop(agents);
    cluster.stop_member(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_shows_another_name_renews_nothing_but_its_own() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let credentials = common::credentials(&cluster.authority, Role::Agent, "n1");
    let shown = credentials.issued_at();
    let mesh = Mesh::bind(any_port(), credentials, MeshConfig::default()).unwrap();
    let peer = mesh.peer(cluster.addrs()[1], ExpectedIdentity::role(Role::Quorum));
    let new = Credentials::generate_key_and_csr().unwrap();
    let csr = new.csr.to_vec();
    let first = peer.call(&Renew { csr: csr.clone() }, SHORT).await;
    let first = first.unwrap().unwrap();
    // Repeated at another member, the answer has the same issue time.
    let other = mesh.peer(cluster.addrs()[2], ExpectedIdentity::role(Role::Quorum));
    let again = other.call(&Renew { csr }, SHORT).await.unwrap().unwrap();
    let certificates = |list: Vec<Vec<u8>>| list.into_iter().map(Into::into).collect::<Vec<_>>();
    let of = |issued: lattice_mesh::Issued| {
        Credentials::new(
            certificates(issued.chain),
            new.key.clone(),
            certificates(issued.roots),
        )
        .unwrap()
    };
    let (first, again) = (of(first), of(again));
    let n1 = Identity::new(CLUSTER, Role::Agent, "n1").unwrap();
    assert_eq!(first.identity(), &n1);
    assert_eq!(first.issued_at(), again.issued_at());
    assert_eq!(first.expires_at(), again.expires_at());
    assert!(first.issued_at() >= shown);
    let Answer::Certificates(all) = client.read(Query::Certificates).await.unwrap() else {
        panic!("certificates")
    };
    let view = all.iter().find(|view| view.name == "n1").unwrap();
    assert_eq!(view.issued_at, Some(first.issued_at()));
    assert_eq!(view.expires_at, Some(first.expires_at()));
    let malformed = peer.call(&Renew { csr: vec![1, 2] }, SHORT).await.unwrap();
    assert!(matches!(malformed, Err(RenewRefused::Invalid { .. })));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trust_survives_restarts_and_comes_with_a_snapshot() {
    // So few entries between snapshots that a member that was offline needs a snapshot.
    let mut cluster = Cluster::start_with(100).await;
    let client = cluster.client("c1");
    let token = token(&client, &cluster.authority, 1).await;
    let enrolled = enrol(cluster.addrs()[0], &token, "n1").await.unwrap();
    let away = (1..=3).find(|id| cluster.app(*id).status().unwrap().leader != Some(*id));
    let away = away.unwrap();
    cluster.stop_member(away).await;
    let revoke = Command::RevokeCertificates {
        name: "n1".to_owned(),
        role: Role::Agent,
        reason: "while one was away".to_owned(),
    };
    let number = propose(&client, revoke).await.unwrap().revision.0;
    for i in 0..1500 {
        let id = format!("{i:08}");
        let _ = propose(&client, Command::RevokeToken { id }).await;
        if i % 5 == 0 {
            let register = common::register(&format!("r{i:04}"));
            propose(&client, register).await.unwrap();
        }
    }
    std::fs::remove_dir_all(common::folder_of(cluster.folder.path(), away)).unwrap();
    cluster.restart_member(away).await;
    let in_force = |cluster: &Cluster| cluster.app(away).mesh().trust_state().number;
    until("the bundle is in force", || async {
        in_force(&cluster) == number
    })
    .await;
    let mesh = Mesh::bind(any_port(), enrolled.credentials, MeshConfig::default()).unwrap();
    let addr = cluster.addrs()[away as usize - 1];
    let refused = mesh
        .connect(addr, ExpectedIdentity::role(Role::Quorum))
        .await;
    assert!(refused.is_err(), "a revoked certificate is let in");
    // A restart of all members, from disk.
    for id in 1..=3 {
        cluster.stop_member(id).await;
    }
    for id in 1..=3 {
        cluster.restart_member(id).await;
    }
    until("the bundle is in force again", || async {
        (1..=3).all(|id| cluster.app(id).mesh().trust_state().number == number)
    })
    .await;
    // The first member may still be reading its log.
    let digest = |id| cluster.app(id).state_digest();
    until("all agree", || async {
        (2..=3).all(|id| digest(id) == digest(1))
    })
    .await;
    cluster.stop().await;
}
