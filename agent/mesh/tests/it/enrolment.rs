//! Enrolment of processes with join tokens, and every kind of its refusal.

use crate::common::*;
use futures::future::BoxFuture;
use lattice_mesh::{
    Authority, Clock, Credentials, EnrolError, EnrolRefused, EnrolRequest, Enroller,
    ExpectedIdentity, Identity, Issued, JoinToken, Mesh, MeshConfig, MeshError, RateLimit, Role,
    Validity, enrol, enrol_at_any, enrol_with,
};
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::CertificateDer;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Stored form of a token.
#[derive(Debug, Clone)]
struct StoredToken {
    role: Role,
    /// `None`: any name.
    name: Option<&'static str>,
    uses_left: u32,
    expires_at: UnixMillis,
}

/// Applies the rules of a real enroller, in memory.
struct TestEnroller {
    authority: Authority,
    clock: Arc<SetClock>,
    tokens: Mutex<BTreeMap<String, StoredToken>>,
    taken: Mutex<Vec<String>>,
}

impl TestEnroller {
    fn judge(&self, request: &EnrolRequest) -> Result<Identity, EnrolRefused> {
        let mut tokens = self.tokens.lock().unwrap();
        let token = tokens.get_mut(&request.token_hash);
        let token = token
            .filter(|t| {
                t.uses_left > 0
                    && self.clock.now() <= t.expires_at
                    && t.name.is_none_or(|name| name == request.name)
            })
            .ok_or(EnrolRefused::TokenRefused)?;
        let mut taken = self.taken.lock().unwrap();
        if taken.contains(&request.name) && !request.replace {
            let name = request.name.clone();
            let needs = "ask for it with join.replace".to_owned();
            return Err(EnrolRefused::NameTaken { name, needs });
        }
        token.uses_left -= 1;
        taken.push(request.name.clone());
        // The role comes from the stored token, regardless of the request.
        Ok(Identity::new("demo", token.role, request.name.as_str()).unwrap())
    }
}

impl Enroller for TestEnroller {
    fn enrol(
        &self,
        request: EnrolRequest,
        _: SocketAddr,
    ) -> BoxFuture<'_, Result<Issued, EnrolRefused>> {
        Box::pin(async move {
            let identity = self.judge(&request)?;
            let chain = self.authority.issue(&identity, &request.csr, today());
            let invalid = |e: lattice_mesh::CaError| EnrolRefused::Invalid {
                reason: e.to_string(),
            };
            let chain = chain.map_err(invalid)?;
            Ok(Issued {
                chain: chain.iter().map(|c| c.to_vec()).collect(),
                roots: vec![self.authority.certificate().to_vec()],
                cell: Some("c0".to_owned()),
            })
        })
    }
}

struct EnrolmentServer {
    desk: Arc<TestEnroller>,
    server: Mesh,
}

impl EnrolmentServer {
    fn open() -> Self {
        Self::open_with(MeshConfig::default())
    }

    fn open_with(config: MeshConfig) -> Self {
        let authority = authority("demo");
        let own = credentials(&authority, "demo", Role::Quorum, "q1");
        let desk = Arc::new(TestEnroller {
            authority,
            clock: arc_clock(1_000),
            tokens: Mutex::default(),
            taken: Mutex::default(),
        });
        let server = bind_with(own, config);
        server.serve(router().enrolment(desk.clone())).unwrap();
        Self { desk, server }
    }

    fn token(&self, role: Role, name: Option<&'static str>, uses: u32) -> JoinToken {
        let token = JoinToken::generate(role, self.desk.authority.pin());
        let stored = StoredToken {
            role,
            name,
            uses_left: uses,
            expires_at: UnixMillis(2_000),
        };
        self.desk
            .tokens
            .lock()
            .unwrap()
            .insert(token.hash(), stored);
        token
    }

    fn addr(&self) -> SocketAddr {
        self.server.local_addr()
    }
}

fn refused(error: &EnrolError) -> &EnrolRefused {
    println!("{error}");
    match error {
        EnrolError::Refused(refused) => refused,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_token_makes_a_member_with_the_name_and_role_it_allows() {
    let office = EnrolmentServer::open();
    let token = office.token(Role::Agent, Some("a1"), 1);
    let enrolled = enrol(office.addr(), &token, "a1").await.unwrap();
    assert_eq!(
        enrolled.credentials.identity().uri(),
        "spiffe://demo/agent/a1"
    );
    assert_eq!(enrolled.cell.as_deref(), Some("c0"));
    let agent = bind_with(enrolled.credentials, patient());
    let peer = agent.peer(office.addr(), ExpectedIdentity::exactly(Role::Quorum, "q1"));
    assert_eq!(peer.call(&echo("hi"), SHORT).await.unwrap(), "hi from a1");
}

#[tokio::test]
async fn a_used_up_an_expired_an_unknown_and_a_foreign_token_are_refused_alike() {
    let office = EnrolmentServer::open();
    let once = office.token(Role::Agent, None, 1);
    enrol(office.addr(), &once, "a1").await.unwrap();
    let used = enrol(office.addr(), &once, "a2").await.unwrap_err();
    assert_eq!(*refused(&used), EnrolRefused::TokenRefused);

    let expiring = office.token(Role::Agent, None, 5);
    enrol(office.addr(), &expiring, "a3").await.unwrap();
    office
        .desk
        .clock
        .0
        .store(2_001, std::sync::atomic::Ordering::SeqCst);
    let late = enrol(office.addr(), &expiring, "a4").await.unwrap_err();
    assert_eq!(*refused(&late), EnrolRefused::TokenRefused);
    office
        .desk
        .clock
        .0
        .store(1_000, std::sync::atomic::Ordering::SeqCst);

    let guessed = JoinToken::generate(Role::Agent, office.desk.authority.pin());
    let unknown = enrol(office.addr(), &guessed, "a5").await.unwrap_err();
    assert_eq!(*refused(&unknown), EnrolRefused::TokenRefused);

    let named = office.token(Role::Agent, Some("a6"), 1);
    let other_name = enrol(office.addr(), &named, "a7").await.unwrap_err();
    assert_eq!(*refused(&other_name), EnrolRefused::TokenRefused);
}

#[tokio::test]
async fn a_taken_name_needs_replace() {
    let office = EnrolmentServer::open();
    let token = office.token(Role::Agent, None, 3);
    enrol(office.addr(), &token, "a1").await.unwrap();
    let again = enrol(office.addr(), &token, "a1").await.unwrap_err();
    assert!(matches!(refused(&again), EnrolRefused::NameTaken { name, .. } if name == "a1"));
    let config = MeshConfig::default();
    let replaced = enrol_with(office.addr(), &token, "a1", true, &config).await;
    assert_eq!(replaced.unwrap().credentials.identity().id(), "a1");
}

/// A server outside the token's cluster receives nothing, not even the secret.
#[tokio::test]
async fn a_server_without_the_tokens_pin_gets_nothing() {
    let office = EnrolmentServer::open();
    let elsewhere = authority("demo");
    let token = JoinToken::generate(Role::Agent, elsewhere.pin());
    let error = enrol(office.addr(), &token, "a1").await.unwrap_err();
    println!("{error}");
    assert!(
        matches!(&error, EnrolError::PinMismatch { pins, .. } if pins[..] == [elsewhere.pin()]),
        "{error}"
    );
    assert!(office.desk.taken.lock().unwrap().is_empty());
}

/// An agent's certificate is from the right authority, but an agent must not enrol others.
#[tokio::test]
async fn only_a_quorum_member_may_collect_tokens() {
    let office = EnrolmentServer::open();
    let own = credentials(&office.desk.authority, "demo", Role::Agent, "thief");
    let thief = bind_with(own, patient());
    thief
        .serve(router().enrolment(office.desk.clone()))
        .unwrap();
    let token = office.token(Role::Agent, None, 1);
    let error = enrol(thief.local_addr(), &token, "a1").await.unwrap_err();
    println!("{error}");
    assert!(
        error.to_string().contains("is not a quorum member"),
        "{error}"
    );
    enrol(office.addr(), &token, "a1")
        .await
        .expect("the token is still good");
}

/// The process chooses the names in its CSR, but not those in its certificate.
#[test]
fn a_certificate_is_named_by_what_was_allowed_never_by_the_request() {
    let authority = authority("demo");
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
    let uri = "spiffe://demo/quorum/q1".try_into().unwrap();
    params.subject_alt_names.push(rcgen::SanType::URI(uri));
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let csr = params.serialize_request(&key).unwrap();
    let allowed = Identity::new("demo", Role::Agent, "a1").unwrap();
    let chain = authority.issue(&allowed, csr.der(), today()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let read = read_back(folder.path(), &chain, &key, &authority);
    assert_eq!(*read.identity(), allowed);
    let (_, x509) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
    assert!(!x509.is_ca());
    let text = String::from_utf8_lossy(&chain[0]).into_owned();
    assert!(
        !text.contains("evil.example") && !text.contains("quorum"),
        "{text}"
    );
}

/// Builds credentials from an externally created key, by way of files.
fn read_back(
    folder: &std::path::Path,
    chain: &[CertificateDer<'static>],
    key: &rcgen::KeyPair,
    authority: &Authority,
) -> Credentials {
    use std::os::unix::fs::OpenOptionsExt as _;
    credentials(authority, "demo", Role::Agent, "any")
        .save(folder)
        .unwrap();
    let pem = |der: &[u8]| {
        let pem = x509_pem(der);
        format!("-----BEGIN CERTIFICATE-----\n{pem}\n-----END CERTIFICATE-----\n")
    };
    std::fs::write(folder.join("identity.pem"), pem(&chain[0])).unwrap();
    let path = folder.join("identity.key");
    std::fs::remove_file(&path).unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    std::io::Write::write_all(&mut file.unwrap(), key.serialize_pem().as_bytes()).unwrap();
    Credentials::load(folder).unwrap()
}

fn x509_pem(der: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in der.chunks(3) {
        let mut word = [0u8; 3];
        word[..three.len()].copy_from_slice(three);
        let word = u32::from_be_bytes([0, word[0], word[1], word[2]]);
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i) & 63) as usize] as char;
            text.push(if i <= three.len() { digit } else { '=' });
        }
    }
    text
}

#[tokio::test]
async fn one_source_has_a_limited_number_of_tries() {
    let office = EnrolmentServer::open_with(MeshConfig {
        enrol_rate: RateLimit {
            burst: 3,
            per_second: 0.01,
        },
        ..MeshConfig::default()
    });
    let wrong = JoinToken::generate(Role::Agent, office.desk.authority.pin());
    for _ in 0..3 {
        let error = enrol(office.addr(), &wrong, "a1").await.unwrap_err();
        assert_eq!(*refused(&error), EnrolRefused::TokenRefused);
    }
    let right = office.token(Role::Agent, None, 1);
    let error = enrol(office.addr(), &right, "a1").await.unwrap_err();
    let EnrolRefused::RateLimited { retry_in_ms } = refused(&error) else {
        panic!("{error}");
    };
    assert!((90_000..=100_000).contains(retry_in_ms), "{retry_in_ms}");
    // Members are not subject to the enrolment rate.
    let own = credentials(&office.desk.authority, "demo", Role::Agent, "a9");
    let member = bind_with(own, patient());
    let peer = member.peer(office.addr(), ExpectedIdentity::role(Role::Quorum));
    peer.call(&echo("x"), SHORT).await.unwrap();
}

/// Three processes of one address enrol at once, and the address has one try per fifth of a second.
#[tokio::test]
async fn rate_limited_processes_wait_and_enrol() {
    let office = EnrolmentServer::open_with(MeshConfig {
        enrol_rate: RateLimit {
            burst: 1,
            per_second: 5.0,
        },
        ..MeshConfig::default()
    });
    let token = office.token(Role::Agent, None, 3);
    let config = MeshConfig::default();
    let began = std::time::Instant::now();
    let cancel = CancellationToken::new();
    let enrol = |name| enrol_at_any([office.addr()], &token, name, false, &config, &cancel);
    let (a1, a2, a3) = tokio::join!(enrol("a1"), enrol("a2"), enrol("a3"));
    for (enrolled, name) in [(a1, "a1"), (a2, "a2"), (a3, "a3")] {
        let enrolled = enrolled.unwrap().unwrap();
        assert_eq!(enrolled.credentials.identity().id(), name);
    }
    let took = began.elapsed();
    assert!(took >= std::time::Duration::from_millis(350), "{took:?}");
}

#[tokio::test]
async fn where_enrolment_is_not_offered_a_stranger_learns_no_more_than_that() {
    let authority = authority("demo");
    let server = serving(&authority);
    let token = JoinToken::generate(Role::Agent, authority.pin());
    let error = enrol(server.local_addr(), &token, "a1").await.unwrap_err();
    println!("{error}");
    assert!(
        matches!(&error, EnrolError::Mesh(MeshError::NotTrusted { reason, .. })
            if reason.contains("does not offer the requested protocol")),
        "{error}"
    );
}

#[tokio::test]
async fn on_the_enrolment_protocol_nothing_else_is_served() {
    let office = EnrolmentServer::open();
    let stranger = raw::client(&office.desk.authority, None, b"lattice-enrol/1");
    let connection = stranger.connect(office.addr(), "lattice.invalid").unwrap();
    let connection = connection.await.unwrap();
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let mut request = vec![1, 0, 9];
    request.extend_from_slice(b"test.echo");
    request.extend_from_slice(&[0, 0, 0, 3, 2, b'h', b'i']);
    send.write_all(&request).await.unwrap();
    let answer = recv.read_to_end(1024).await.unwrap();
    assert_eq!(answer[0], 2, "a fault: {answer:?}");
    assert_eq!(office.server.connections(), [], "never a member");
}

#[tokio::test]
async fn timeout_differs_from_wrong_name() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let token = JoinToken::generate(Role::Agent, authority("demo").pin());
    let config = MeshConfig {
        connect_timeout: Duration::from_millis(100),
        ..MeshConfig::default()
    };
    let addr = silent.local_addr().unwrap();
    let error = enrol_with(addr, &token, "a1", false, &config)
        .await
        .unwrap_err();
    println!("{error}");
    let unreachable = matches!(&error, EnrolError::Mesh(MeshError::Unreachable { .. }));
    assert!(unreachable, "{error}");
    let error = enrol_with(addr, &token, "a/1", false, &config)
        .await
        .unwrap_err();
    println!("{error}");
    assert!(matches!(error, EnrolError::Name(_)), "{error}");
}

/// The client verifies the enroller's answer.
#[tokio::test]
async fn a_certificate_of_another_name_than_asked_for_is_refused() {
    struct Swaps(Authority);
    impl Enroller for Swaps {
        fn enrol(
            &self,
            request: EnrolRequest,
            _: SocketAddr,
        ) -> BoxFuture<'_, Result<Issued, EnrolRefused>> {
            Box::pin(async move {
                let other = Identity::new("demo", Role::Agent, "somebody-else").unwrap();
                let validity = Validity::from_now(lattice_mesh::SystemClock.now(), DAY);
                let chain = self.0.issue(&other, &request.csr, validity).unwrap();
                Ok(Issued {
                    chain: chain.iter().map(|c| c.to_vec()).collect(),
                    roots: vec![self.0.certificate().to_vec()],
                    cell: None,
                })
            })
        }
    }
    let authority = authority("demo");
    let token = JoinToken::generate(Role::Agent, authority.pin());
    let server = bind(&authority, Role::Quorum, "q1");
    server
        .serve(router().enrolment(Arc::new(Swaps(authority))))
        .unwrap();
    let error = enrol(server.local_addr(), &token, "a1").await.unwrap_err();
    println!("{error}");
    assert!(
        matches!(error, EnrolError::WrongCertificate { .. }),
        "{error}"
    );
}

/// Many sources that each keep within their own limit still share the total limit. Beyond it the server refuses before
/// it computes a handshake, and serves members meanwhile.
#[tokio::test]
async fn strangers_from_everywhere_together_have_a_limited_number_of_tries() {
    const SOURCES: u8 = 200;
    const ALLOWED: usize = 20;
    let office = EnrolmentServer::open_with(MeshConfig {
        enrol_rate_total: RateLimit {
            burst: ALLOWED as u32,
            per_second: 0.001,
        },
        ..MeshConfig::default()
    });
    let own = credentials(&office.desk.authority, "demo", Role::Agent, "a9");
    let member = bind_with(own, patient());
    let peer = member.peer(office.addr(), ExpectedIdentity::role(Role::Quorum));
    let (mut admitted, mut refused_at_once) = (0, 0);
    let mut cost = [std::time::Duration::ZERO; 2];
    for n in 1..=SOURCES {
        let stranger = raw::stranger_at([127, 0, 1, n].into());
        let began = std::time::Instant::now();
        match stranger
            .connect(office.addr(), "lattice.invalid")
            .unwrap()
            .await
        {
            Ok(connection) => {
                admitted += 1;
                cost[0] += began.elapsed();
                connection.close(0u32.into(), b"");
            }
            Err(error) => {
                assert!(error.to_string().contains("error 49"), "{error}");
                refused_at_once += 1;
                cost[1] += began.elapsed();
            }
        }
        peer.call(&echo("x"), SHORT).await.unwrap();
    }
    println!(
        "{admitted} heard in {} us each, {refused_at_once} refused in {} us each (both ends)",
        cost[0].as_micros() / admitted.max(1) as u128,
        cost[1].as_micros() / refused_at_once.max(1) as u128,
    );
    assert_eq!(admitted, ALLOWED);
    let right = office.token(Role::Agent, None, 1);
    let error = enrol(office.addr(), &right, "a1").await.unwrap_err();
    println!("{error}");
    assert!(
        matches!(refused(&error), EnrolRefused::RateLimited { .. }),
        "{error}"
    );
}

/// A source that continues after a retry answer is eventually refused without a handshake. It does not consume the
/// tries of other sources.
#[tokio::test]
async fn a_source_that_does_not_stop_is_no_longer_heard_and_others_are() {
    let limited = RateLimit {
        burst: 3,
        per_second: 0.001,
    };
    let office = EnrolmentServer::open_with(MeshConfig {
        enrol_rate: limited,
        enrol_rate_total: RateLimit {
            burst: 20,
            ..limited
        },
        ..MeshConfig::default()
    });
    let insists = raw::stranger_at([127, 0, 1, 1].into());
    let mut admitted = 0;
    for _ in 0..50 {
        let connecting = insists.connect(office.addr(), "lattice.invalid").unwrap();
        if let Ok(connection) = connecting.await {
            admitted += 1;
            // The connections with a retry answer, the fourth to the sixth, wait for the server's close.
            if admitted > 3 {
                let closed = connection.closed().await.to_string();
                assert!(closed.contains("code 5"), "{closed}");
            } else {
                connection.close(0u32.into(), b"");
            }
        }
    }
    assert_eq!(admitted, 6, "three tries, and three times the word to wait");
    let right = office.token(Role::Agent, None, 1);
    enrol(office.addr(), &right, "a1").await.unwrap();
    // A member at the address of the insistent source is served.
    let own = credentials(&office.desk.authority, "demo", Role::Agent, "a9");
    let addr = "127.0.1.1:0".parse().unwrap();
    let member = Mesh::bind(addr, own, MeshConfig::default()).unwrap();
    let peer = member.peer(office.addr(), ExpectedIdentity::role(Role::Quorum));
    peer.call(&echo("x"), SHORT).await.unwrap();
}

/// The cluster recognises a repeated request by its key. If the answer is lost after the token is used up, the next
/// member must receive the same key. With another key the node would be locked out of its own name.
#[tokio::test]
async fn every_member_is_asked_with_the_same_key() {
    struct Remembers {
        authority: Authority,
        answers: bool,
        asked: Arc<Mutex<Vec<Vec<u8>>>>,
    }
    impl Enroller for Remembers {
        fn enrol(
            &self,
            request: EnrolRequest,
            _: SocketAddr,
        ) -> BoxFuture<'_, Result<Issued, EnrolRefused>> {
            self.asked.lock().unwrap().push(request.csr.to_vec());
            let identity = Identity::new("demo", Role::Agent, request.name).unwrap();
            let chain = self.authority.issue(&identity, &request.csr, today());
            let issued = Issued {
                chain: chain.unwrap().iter().map(|c| c.to_vec()).collect(),
                roots: vec![self.authority.certificate().to_vec()],
                cell: None,
            };
            let reason = "the answer was lost".to_owned();
            let answer = self.answers.then_some(issued);
            Box::pin(async move { answer.ok_or(EnrolRefused::Unavailable { reason }) })
        }
    }
    let first = authority("demo");
    let folder = tempfile::tempdir().unwrap();
    first.save(folder.path()).unwrap();
    let token = JoinToken::generate(Role::Agent, first.pin());
    let asked = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let member = |id: &str, answers| {
        let server = bind(&first, Role::Quorum, id);
        let enroller = Remembers {
            authority: Authority::load(folder.path()).unwrap(),
            answers,
            asked: asked.clone(),
        };
        server
            .serve(router().enrolment(Arc::new(enroller)))
            .unwrap();
        server
    };
    let members = [member("q1", false), member("q2", true)];
    let addrs = members.each_ref().map(Mesh::local_addr);
    let config = MeshConfig::default();
    let cancel = CancellationToken::new();
    let enrolled = enrol_at_any(addrs, &token, "a1", false, &config, &cancel).await;
    enrolled.unwrap().unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0], asked[1]);
}
