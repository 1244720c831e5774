//! A member that was offline while the authority changed. It obtains the new bundle from members that it would refuse,
//! recovers without help, and rejects every bundle that its trusted authority did not sign.

use crate::common::{renewal::issue, trust::*, *};
use lattice_mesh::{
    Authority, Caller, CertificateStanding, Credentials, ExpectedIdentity, Identity, Mesh,
    QuorumRenewalSource, Renew, Renewal, RenewalSettings, RenewalState, Role, SignedBundle,
    TrustBundle, keep_renewed,
};
use std::{sync::Arc, time::Duration};

/// Former and present authority.
struct Change {
    old: Arc<Authority>,
    new: Arc<Authority>,
}

/// Phase of the rotation: trusted authorities, and the issuing one.
#[derive(Clone, Copy)]
enum Phase {
    Before,
    Overlap,
    Retired,
}

impl Change {
    fn new() -> Self {
        Self {
            old: Arc::new(authority("demo")),
            new: Arc::new(authority("demo")),
        }
    }
    fn bundle(&self, number: u64, phase: Phase) -> TrustBundle {
        let (old, new) = (&*self.old, &*self.new);
        TrustBundle {
            authorities: match phase {
                Phase::Before => authorities(&[(old, true)]),
                Phase::Overlap => authorities(&[(old, false), (new, true)]),
                Phase::Retired => authorities(&[(new, true)]),
            },
            ..bundle(number, old, &[])
        }
    }
    fn of_old(&self, identity: &Identity) -> Credentials {
        Credentials::issued_by(&self.old, identity, today()).unwrap()
    }
    fn of_new(&self, identity: &Identity) -> Credentials {
        let new = Credentials::issued_by(&self.new, identity, today()).unwrap();
        trusting(&new, &[&self.old, &self.new])
    }
    /// A quorum member that was online throughout, and renews others.
    fn member(&self, bundle: &SignedBundle) -> Mesh {
        let member = bind_with(self.of_new(&id(Role::Quorum, "q1")), quiet());
        let issuing = self.new.clone();
        let roots = [&self.old, &self.new].map(|root| root.certificate().to_vec());
        let renew = move |caller: Caller, renew: Renew| {
            let csr = renew.csr.into();
            let issued = issue(&issuing, &caller.identity, &csr, today(), &roots);
            async move { Ok(Ok(issued)) }
        };
        let router = router().with_trust_handlers(&member).rpc(renew);
        member.serve(router).unwrap();
        member.apply_bundle(bundle).unwrap();
        member
    }
    /// An agent that only has the old authority.
    fn agent(&self) -> Mesh {
        let agent = bind_with(self.of_old(&id(Role::Agent, "a1")), quiet());
        agent.serve(router()).unwrap();
        let known = self.bundle(1, Phase::Before);
        agent
            .apply_bundle(&known.sign([&*self.old]).unwrap())
            .unwrap();
        agent
    }
}

fn quiet() -> lattice_mesh::MeshConfig {
    lattice_mesh::MeshConfig {
        max_backoff: Duration::from_millis(200),
        ..patient()
    }
}

fn kept_renewed(agent: &Mesh, members: &[&Mesh]) -> Renewal {
    let peer =
        |member: &&Mesh| agent.peer(member.local_addr(), ExpectedIdentity::role(Role::Quorum));
    let peers: Vec<_> = members.iter().map(peer).collect();
    keep_renewed(
        agent,
        QuorumRenewalSource::new(move || peers.clone()),
        RenewalSettings {
            min_retry: Duration::from_millis(200),
            ..RenewalSettings::new(None, 7)
        },
    )
}

/// Checks that `agent` reports an error with `words`, and keeps its bundle.
async fn stays_outside(agent: &Mesh, renewal: &Renewal, words: &str) {
    let mut states = renewal.watch();
    let said = |state: &RenewalState| {
        let said = state.last_error.as_ref();
        said.is_some_and(|said| said.contains(words))
    };
    let reached = tokio::time::timeout(SHORT, states.wait_for(said));
    // The returned guard would block changes of the state, so it is dropped here.
    let is_reached = reached.await.is_ok();
    assert!(is_reached, "{:?}", renewal.state());
    // Time for another try.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(agent.trust_state().number, 1);
    assert_eq!(agent.trust_state().standing, CertificateStanding::Good);
}

#[tokio::test]
async fn recovers_after_missing_whole_rotation() {
    let change = Change::new();
    let bundle = change.bundle(3, Phase::Overlap);
    let member = change.member(&bundle.sign([&*change.old, &*change.new]).unwrap());
    let agent = change.agent();
    let peer = agent.peer(member.local_addr(), ExpectedIdentity::role(Role::Quorum));
    let refused = peer.call(&echo("x"), SHORT).await.unwrap_err();
    assert!(
        refused.to_string().contains("unknown authority"),
        "{refused}"
    );
    let renewal = kept_renewed(&agent, &[&member]);
    let mut states = renewal.watch();
    let known = states.wait_for(|state| state.trust_number == 3).await;
    assert_eq!(known.unwrap().standing, CertificateStanding::Superseded);
    until("it is heard", || async {
        peer.call(&echo("x"), SHORT).await.is_ok()
    })
    .await;
    // Certificates are still verified: the new bundle admits no other authority.
    let other = authority("demo");
    let stranger = bind(&other, Role::Quorum, "q1");
    stranger.serve(router()).unwrap();
    let stranger = agent.peer(stranger.local_addr(), ExpectedIdentity::role(Role::Quorum));
    assert!(stranger.call(&echo("x"), SHORT).await.is_err());
}

/// The agent was never offline, but its callers renewed before it received the bundle. Refusing them makes the agent
/// request the bundle long before its schedule.
#[tokio::test]
async fn call_from_renewed_peer_triggers_renewal() {
    let change = Change::new();
    let before = change.bundle(1, Phase::Before);
    let member = change.member(&before.sign([&*change.old]).unwrap());
    member
        .rotate(change.of_old(&id(Role::Quorum, "q1")))
        .unwrap();
    let agent = change.agent();
    let renewal = kept_renewed(&agent, &[&member]);
    // The agent requests at once, and the next time only when there is a reason.
    until("it has asked", || async {
        let state = renewal.state();
        state.next_try_at > state.issued_at
    })
    .await;
    let asked = agent.peer(member.local_addr(), ExpectedIdentity::role(Role::Quorum));
    asked.call(&echo("x"), SHORT).await.unwrap();
    let overlap = change.bundle(3, Phase::Overlap);
    let overlap = overlap.sign([&*change.old, &*change.new]).unwrap();
    member.apply_bundle(&overlap).unwrap();
    member
        .rotate(change.of_new(&id(Role::Quorum, "q1")))
        .unwrap();
    let control = bind_with(change.of_new(&id(Role::Control, "c1")), quiet());
    let calls = control.peer(agent.local_addr(), ExpectedIdentity::role(Role::Agent));
    assert!(calls.call(&echo("x"), SHORT).await.is_err());
    until("it lets control in", || async {
        calls.call(&echo("x"), SHORT).await.is_ok()
    })
    .await;
    until("it says so", || async { renewal.state().trust_number == 3 }).await;
}

/// A member that only holds the new key.
fn without_the_old_key(change: &Change) -> Mesh {
    let bundle = change.bundle(3, Phase::Overlap).sign([&*change.new]);
    let member = bind_with(change.of_new(&id(Role::Quorum, "q3")), quiet());
    member.serve(router().with_trust_handlers(&member)).unwrap();
    member.apply_bundle(&bundle.unwrap()).unwrap();
    member
}

#[tokio::test]
async fn only_the_authority_that_is_trusted_can_name_the_next() {
    let change = Change::new();
    let member = without_the_old_key(&change);
    let agent = change.agent();
    let renewal = kept_renewed(&agent, &[&member]);
    stays_outside(&agent, &renewal, "not signed by an authority").await;
}

/// A member that cannot vouch for the new authority, or has no newer bundle, does not end the search among the others.
#[tokio::test]
async fn continues_search_after_useless_answer() {
    let change = Change::new();
    let bundle = change.bundle(3, Phase::Overlap);
    let member = change.member(&bundle.sign([&*change.old, &*change.new]).unwrap());
    let of_no_use = without_the_old_key(&change);
    let cut_off = bind_with(change.of_old(&id(Role::Quorum, "q2")), quiet());
    cut_off
        .serve(router().with_trust_handlers(&cut_off))
        .unwrap();
    let before = change.bundle(1, Phase::Before).sign([&*change.old]);
    cut_off.apply_bundle(&before.unwrap()).unwrap();
    let agent = change.agent();
    let renewal = kept_renewed(&agent, &[&of_no_use, &member, &cut_off]);
    let mut states = renewal.watch();
    let known = states.wait_for(|state| state.trust_number == 3).await;
    assert_eq!(known.unwrap().standing, CertificateStanding::Superseded);
}

/// A member that holds its slot without sending a request blocks no other member.
#[tokio::test]
async fn everybody_has_one_place() {
    let change = Change::new();
    let bundle = change.bundle(3, Phase::Overlap);
    let member = change.member(&bundle.sign([&*change.old, &*change.new]).unwrap());
    let idle = change.of_old(&id(Role::Agent, "idle"));
    let client = raw::client(&change.old, Some(&idle), b"lattice-trust/1");
    let mut open = Vec::new();
    for _ in 0..80 {
        let dialled = client.connect(member.local_addr(), "lattice.invalid");
        open.push(dialled.unwrap().await.unwrap());
    }
    // The connection with the slot has its own timeout, which may have passed by then on a busy machine.
    until("all but one are sent away", || async {
        let left = |c: &&quinn::Connection| c.close_reason().is_none();
        open.iter().filter(left).count() <= 1
    })
    .await;
    let agent = change.agent();
    let renewal = kept_renewed(&agent, &[&member]);
    let mut states = renewal.watch();
    states
        .wait_for(|state| state.trust_number == 3)
        .await
        .unwrap();
}

/// The member's own certificate has lost its trust: every peer refuses it, and the member must enrol again.
#[tokio::test]
async fn peer_of_retired_authority_gets_no_bundle() {
    let change = Change::new();
    let bundle = change.bundle(4, Phase::Retired);
    let member = change.member(&bundle.sign([&*change.old, &*change.new]).unwrap());
    let agent = change.agent();
    let renewal = kept_renewed(&agent, &[&member]);
    stays_outside(&agent, &renewal, "mutual TLS authentication").await;
}

/// The protocol returns nothing without a certificate, and only the bundle with one.
#[tokio::test]
async fn outdated_protocol_serves_only_recovery() {
    let change = Change::new();
    let bundle = change.bundle(3, Phase::Overlap);
    let member = change.member(&bundle.sign([&*change.old, &*change.new]).unwrap());
    let own = &change.of_old(&id(Role::Agent, "a1"));
    let dial = |own: Option<&Credentials>| {
        let client = raw::client(&change.old, own, b"lattice-trust/1");
        let addr = member.local_addr();
        async move {
            let dialled = client.connect(addr, "lattice.invalid").unwrap().await;
            (client, dialled)
        }
    };
    let ask = |connection: quinn::Connection, method: &'static str, body: Vec<u8>| async move {
        let (mut send, mut recv) = connection.open_bi().await.ok()?;
        let mut request = vec![1, 0, method.len() as u8];
        request.extend_from_slice(method.as_bytes());
        request.extend_from_slice(&(body.len() as u32).to_be_bytes());
        request.extend_from_slice(&body);
        send.write_all(&request).await.ok()?;
        recv.read_to_end(1 << 20).await.ok()
    };
    // Each identity has one slot, which is free again a moment after the answer.
    let answer = |method: &'static str, body: Vec<u8>| async move {
        let answered = async {
            loop {
                let (_client, connection) = dial(Some(own)).await;
                if let Some(reply) = ask(connection.unwrap(), method, body.clone()).await {
                    return reply;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let reply = tokio::time::timeout(SHORT, answered).await;
        reply.unwrap_or_else(|_| panic!("{method} is not answered"))
    };
    let reply = answer("mesh.trust", vec![1]).await;
    assert_eq!(reply[0], 0, "a bundle: {reply:?}");
    let reply = answer("mesh.trust", vec![3]).await;
    assert_eq!(reply, [0, 0, 0, 0, 1, 0], "none that is later");
    for (method, body) in [
        ("mesh.renew", vec![0]),
        ("test.echo", vec![1, b'x']),
        ("mesh.trust", vec![1; 65]),
    ] {
        let reply = answer(method, body).await;
        assert_eq!(reply[0], 2, "{method} is a fault: {reply:?}");
    }
    let (_client, connection) = dial(None).await;
    let reply = match connection {
        Ok(connection) => ask(connection, "mesh.trust", vec![1]).await,
        Err(_) => None,
    };
    assert_eq!(reply, None);
}
