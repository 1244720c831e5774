//! Join tokens that survive a change of the authority: by their pins, and by the server's proof that it holds the key
//! of a pinned authority.

use crate::common::*;
use futures::future::BoxFuture;
use lattice_mesh::{
    Authority, CaKeyProof, Clock, Credentials, EnrolError, EnrolRefused, EnrolRequest, Enroller,
    Enrolment, EnrolmentSession, ExpectedIdentity, Identity, Issued, JoinToken, Mesh, MeshConfig,
    Pin, Role, SystemClock, Validity, enrol, enrol_with,
};
use lattice_quorum_types::UnixMillis;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Answer of a server to a request for a proof.
type Prove = Box<dyn Fn(&[Pin], &EnrolmentSession) -> Option<CaKeyProof> + Send + Sync>;

/// Enrols every process under the issuing authority, and answers proof requests with `prove`.
struct TestEnroller {
    issuing: Arc<Authority>,
    trusted: Vec<Arc<Authority>>,
    prove: Prove,
    /// Hashes of the secrets that the server received.
    token_hashes: Mutex<Vec<String>>,
}

impl Enroller for TestEnroller {
    fn enrol(
        &self,
        request: EnrolRequest,
        _: SocketAddr,
    ) -> BoxFuture<'_, Result<Issued, EnrolRefused>> {
        self.token_hashes
            .lock()
            .unwrap()
            .push(request.token_hash.clone());
        let identity = Identity::new("demo", request.role, request.name.as_str()).unwrap();
        let chain = self.issuing.issue(&identity, &request.csr, today());
        let issued = Issued {
            chain: chain.unwrap().iter().map(|c| c.to_vec()).collect(),
            roots: self
                .trusted
                .iter()
                .map(|a| a.certificate().to_vec())
                .collect(),
            cell: None,
        };
        Box::pin(async { Ok(issued) })
    }

    fn prove(&self, pins: &[Pin], session: &EnrolmentSession) -> Option<CaKeyProof> {
        (self.prove)(pins, session)
    }
}

/// Proofs of a member that holds these keys.
fn holding(held: Vec<Arc<Authority>>) -> Prove {
    Box::new(move |pins, session| {
        let held = held.iter().find(|held| pins.contains(&held.pin()))?;
        Some(held.prove(session).unwrap())
    })
}

/// Endpoint of a quorum member with a certificate of `shows`, which trusts `trusted` and enrols.
struct EnrolmentServer {
    desk: Arc<TestEnroller>,
    server: Mesh,
}

impl EnrolmentServer {
    fn open(shows: &Arc<Authority>, trusted: &[&Arc<Authority>], prove: Prove) -> Self {
        Self::open_as(Role::Quorum, shows, trusted, prove)
    }

    fn open_as(
        role: Role,
        shows: &Arc<Authority>,
        trusted: &[&Arc<Authority>],
        prove: Prove,
    ) -> Self {
        let identity = Identity::new("demo", role, "1").unwrap();
        let new = Credentials::generate_key_and_csr().unwrap();
        let chain = shows.issue(&identity, &new.csr, today()).unwrap();
        let roots = trusted.iter().map(|a| a.certificate().clone()).collect();
        let own = Credentials::new(chain, new.key, roots).unwrap();
        let server = bind_with(own, patient());
        let desk = Arc::new(TestEnroller {
            issuing: shows.clone(),
            trusted: trusted.iter().map(|a| Arc::clone(a)).collect(),
            prove,
            token_hashes: Mutex::default(),
        });
        server.serve(router().enrolment(desk.clone())).unwrap();
        Self { desk, server }
    }

    async fn enrol(&self, token: &JoinToken) -> Result<Enrolment, EnrolError> {
        enrol(self.server.local_addr(), token, "a1").await
    }

    /// Checks that the enrolment fails and the server receives neither the secret nor the name.
    async fn learns_nothing_of(&self, token: &JoinToken) -> EnrolError {
        let error = self.enrol(token).await.unwrap_err();
        println!("{error}");
        assert!(matches!(error, EnrolError::PinMismatch { .. }), "{error:?}");
        assert!(self.desk.token_hashes.lock().unwrap().is_empty());
        error
    }
}

fn two() -> (Arc<Authority>, Arc<Authority>) {
    (Arc::new(authority("demo")), Arc::new(authority("demo")))
}

fn token_of(authority: &Authority) -> JoinToken {
    JoinToken::generate(Role::Agent, authority.pin())
}

#[tokio::test]
async fn a_token_of_the_authority_before_is_good_where_its_key_is_held() {
    let (old, new) = two();
    let token = token_of(&old);
    for shows in [&old, &new] {
        let held = holding(vec![new.clone(), old.clone()]);
        let office = EnrolmentServer::open(shows, &[&new, &old], held);
        let enrolled = office.enrol(&token).await.unwrap();
        let agent = bind_with(enrolled.credentials, patient());
        let peer = agent.peer(
            office.server.local_addr(),
            ExpectedIdentity::role(Role::Quorum),
        );
        assert_eq!(peer.call(&echo("hi"), SHORT).await.unwrap(), "hi from a1");
    }
}

/// During an overlap, members present certificates of either authority. A token with both pins is valid at all of them,
/// even at members without a key.
#[tokio::test]
async fn a_token_of_two_authorities_is_good_at_members_of_either() {
    let (old, new) = two();
    let token = token_of(&new).with_pins([old.pin()]);
    for shows in [&old, &new] {
        let office = EnrolmentServer::open(shows, &[&old, &new], holding(vec![]));
        office.enrol(&token).await.unwrap();
    }
    // Before the new authority is added, and after the old one is retired.
    for only in [&old, &new] {
        let office = EnrolmentServer::open(only, &[only], holding(vec![]));
        office.enrol(&token).await.unwrap();
    }
}

#[tokio::test]
async fn refuses_token_of_retired_authority() {
    let (old, new) = two();
    let office = EnrolmentServer::open(&new, &[&new], holding(vec![new.clone()]));
    let error = office.learns_nothing_of(&token_of(&old)).await;
    let said = error.to_string();
    assert!(!error.is_final(), "another member may hold the key");
    let before = format!("retired and replaced by authority {}", new.pin());
    assert!(said.contains(&before), "{said}");
    assert!(said.contains("lattice admin token create"), "{said}");
    // The old authority's certificate without its key does not help.
    let shown = EnrolmentServer::open(&new, &[&old, &new], holding(vec![new.clone()]));
    let error = shown.learns_nothing_of(&token_of(&old)).await;
    assert!(error.to_string().contains(&before), "{error}");
}

type Lie = fn(&Authority, &Authority, &EnrolmentSession, &CaKeyProof) -> CaKeyProof;

/// Forged answers of a server that has received a proof for a session of its own.
const LIES: [(&str, Lie); 5] = [
    ("the proof of another session", |_, _, _, seen| seen.clone()),
    ("its own authority's proof", |_, its, session, _| {
        its.prove(session).unwrap()
    }),
    (
        "the pinned certificate, another key",
        |old, its, session, _| CaKeyProof {
            certificate: old.certificate().to_vec(),
            ..its.prove(session).unwrap()
        },
    ),
    (
        "its certificate, the right signature",
        |old, its, session, _| CaKeyProof {
            certificate: its.certificate().to_vec(),
            ..old.prove(session).unwrap()
        },
    ),
    ("no signature", |old, _, _, _| CaKeyProof {
        certificate: old.certificate().to_vec(),
        signature: Vec::new(),
    }),
];

/// A server without the key receives nothing, even if it has received a member's proof for itself.
#[tokio::test]
async fn relayed_proof_is_worthless() {
    let (old, new) = two();
    let seen: Arc<Mutex<Vec<CaKeyProof>>> = Arc::default();
    let recording = {
        let (seen, old) = (seen.clone(), old.clone());
        Box::new(move |_: &[Pin], session: &EnrolmentSession| {
            let proof = old.prove(session).unwrap();
            seen.lock().unwrap().push(proof.clone());
            Some(proof)
        })
    };
    let real = EnrolmentServer::open(&new, &[&new, &old], recording);
    let token = token_of(&old);
    real.enrol(&token).await.unwrap();
    let seen = seen.lock().unwrap()[0].clone();
    for (words, lie) in LIES {
        let its = Arc::new(authority("demo"));
        let tells = {
            let (old, its, seen) = (old.clone(), its.clone(), seen.clone());
            Box::new(move |_: &[Pin], session: &EnrolmentSession| {
                Some(lie(&old, &its, session, &seen))
            })
        };
        println!("{words}:");
        let rogue = EnrolmentServer::open(&its, &[&old, &its], tells);
        rogue.learns_nothing_of(&token).await;
    }
}

#[tokio::test]
async fn only_a_quorum_member_may_prove_anything() {
    let (old, new) = two();
    let held = holding(vec![old.clone()]);
    let agent = EnrolmentServer::open_as(Role::Agent, &new, &[&new, &old], held);
    let error = agent.enrol(&token_of(&old)).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("is not a quorum member"), "{said}");
    assert!(agent.desk.token_hashes.lock().unwrap().is_empty());
}

/// A key outlives the certificate of its authority; its proofs do not.
#[tokio::test]
async fn an_authority_that_has_ended_proves_nothing() {
    let start = SystemClock.now();
    let brief = Validity::from_now(start, Duration::from_secs(60));
    let old = Arc::new(Authority::create("demo", brief).unwrap());
    let new = Arc::new(authority("demo"));
    let office = EnrolmentServer::open(&new, &[&new, &old], holding(vec![old.clone()]));
    let token = token_of(&old);
    let at = |ms| MeshConfig {
        clock: Arc::new(SetClock(UnixMillis(start.0 + ms).0.into())),
        ..MeshConfig::default()
    };
    let addr = office.server.local_addr();
    let late = enrol_with(addr, &token, "a1", false, &at(62_000)).await;
    assert!(matches!(late, Err(EnrolError::PinMismatch { .. })));
    enrol_with(addr, &token, "a1", false, &at(1_000))
        .await
        .unwrap();
}

/// One request and one proof for each enrolment attempt.
#[tokio::test]
async fn a_proof_is_asked_for_once_on_a_connection() {
    let (old, new) = two();
    let office = EnrolmentServer::open(&new, &[&new, &old], holding(vec![old.clone()]));
    let stranger = raw::client(&new, None, b"lattice-enrol/1");
    let to = office.server.local_addr();
    let connecting = stranger.connect(to, "lattice.invalid").unwrap();
    let connection = connecting.await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..2 {
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        let mut request = vec![1, 0, 10];
        request.extend_from_slice(b"mesh.prove");
        // One pin, as `README.md` specifies.
        request.extend_from_slice(&[0, 0, 0, 33, 1]);
        request.extend_from_slice(blake3::hash(old.certificate()).as_bytes());
        send.write_all(&request).await.unwrap();
        answers.push(recv.read_to_end(4096).await.unwrap()[0]);
    }
    assert_eq!(answers, [0, 2], "an answer, then a fault");
}
