//! Enrolment with join tokens, and caller roles of the methods.

use crate::common::{
    self, Cluster, admin, any_port, create_project, credentials, envelope, now, register, service,
};
use lattice_mesh::{
    CallError, EnrolError, EnrolRefused, ExpectedIdentity, JoinToken, Mesh, MeshConfig, Role,
    enrol, enrol_with,
};
use lattice_quorum_types::{
    Command, NodeId, Revision, UnixMillis,
    command::{IssuedCertificate, Privilege, TokenGrant},
    membership::GetMemberStatus,
    view::Query,
    wire::{Propose, Read, Watch},
};
use std::time::Duration;

/// Timeout longer than an answer takes on a busy machine.
const SHORT: Duration = Duration::from_secs(30);

fn create_token(token: &JoinToken, names: Option<Vec<NodeId>>, uses: u32) -> Command {
    Command::CreateToken {
        grant: TokenGrant {
            hash: token.hash(),
            role: token.role(),
            names,
            cidrs: Vec::new(),
            uses,
            replace: true,
            expires_at: UnixMillis(now().0 + 600_000),
        },
    }
}

fn refused(error: EnrolError) -> EnrolRefused {
    match error {
        EnrolError::Refused(refused) => refused,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_use_limit_holds_at_any_member() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let token = JoinToken::generate(Role::Agent, cluster.authority.pin());
    let create = admin(None, create_token(&token, None, 3));
    client.propose(create).await.unwrap().unwrap();
    // Each member enrols one process without waiting, whether it leads or not.
    for (i, addr) in cluster.addrs().into_iter().enumerate() {
        let name = format!("gpu-{i}");
        let enrolled = enrol(addr, &token, &name).await.unwrap();
        let identity = enrolled.credentials.identity();
        assert_eq!(identity.uri(), format!("spiffe://test/agent/{name}"));
        assert_eq!(enrolled.cell.as_deref(), Some("cell-0"));
    }
    for addr in cluster.addrs() {
        let again = enrol(addr, &token, "gpu-9").await.unwrap_err();
        assert_eq!(refused(again), EnrolRefused::TokenRefused);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_roles_come_from_the_token() {
    let cluster = Cluster::start().await;
    let client = cluster.client("c1");
    let addr = cluster.addrs()[0];
    let pin = cluster.authority.pin();
    let token = JoinToken::generate(Role::Agent, pin);
    let names = vec![common::node("n1"), common::node("n2")];
    for command in [create_token(&token, Some(names), 5), register("n2")] {
        client.propose(admin(None, command)).await.unwrap().unwrap();
    }
    let other = enrol(addr, &token, "n3").await.unwrap_err();
    assert_eq!(refused(other), EnrolRefused::TokenRefused);
    let unknown = JoinToken::generate(Role::Agent, pin);
    let unknown = enrol(addr, &unknown, "n1").await.unwrap_err();
    assert_eq!(refused(unknown), EnrolRefused::TokenRefused);
    // The same secret with a more powerful role.
    let text =
        secrecy::ExposeSecret::expose_secret(&token.expose()).replace(".agent.", ".control.");
    let forged = enrol(addr, &text.parse().unwrap(), "n1").await.unwrap_err();
    assert_eq!(refused(forged), EnrolRefused::TokenRefused);
    let taken = enrol(addr, &token, "n2").await.unwrap_err();
    let taken = refused(taken).to_string();
    assert!(taken.contains("n2 is enrolled already"), "{taken}");
    assert!(taken.contains("set join.replace = true"), "{taken}");
    // Refusals did not use up the token.
    enrol_with(addr, &token, "n2", true, &MeshConfig::default())
        .await
        .unwrap();
    enrol(addr, &token, "n1").await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_may_call_nothing_and_a_member_may_propose_enrolments_only() {
    let cluster = Cluster::start().await;
    cluster.leader().await;
    let bind = |role, id: &str| {
        let credentials = credentials(&cluster.authority, role, id);
        Mesh::bind(any_port(), credentials, MeshConfig::default()).unwrap()
    };
    let agent = bind(Role::Agent, "n1");
    let envelopes = vec![service(None, create_project("atlas", 1))];
    for (_, addr) in &cluster.members {
        let peer = agent.peer(*addr, ExpectedIdentity::role(Role::Quorum));
        let propose = Propose {
            envelopes: envelopes.clone(),
        };
        let read = Read {
            query: Query::Revision,
        };
        for denied in [
            peer.call(&propose, SHORT).await.map(|_| ()),
            peer.call(&read, SHORT).await.map(|_| ()),
            peer.call(&GetMemberStatus, SHORT).await.map(|_| ()),
        ] {
            let error = denied.expect_err("an agent was answered");
            assert!(matches!(error, CallError::Denied { .. }), "{error}");
        }
        let watch = Watch { since: Revision(0) };
        let error = peer.open(&watch).await.expect_err("an agent may watch");
        assert!(matches!(error, CallError::Denied { .. }), "{error}");
    }
    // Control must not report enrolments or issue times, nor propose in the members' name.
    let c1 = bind(Role::Control, "c1");
    let peer = c1.peer(cluster.addrs()[0], ExpectedIdentity::role(Role::Quorum));
    let certificate = IssuedCertificate {
        issued_at: UnixMillis(now().0 / 1000 * 1000),
        expires_at: UnixMillis(now().0 + 600_000),
    };
    let renew = Command::RenewCertificate {
        name: "n1".to_owned(),
        role: Role::Agent,
        shown_issued_at: now(),
        certificate,
    };
    let members = envelope("service:quorum", Privilege::Service, None, register("n1"));
    for envelope in [service(None, renew.clone()), admin(None, renew), members] {
        let envelopes = vec![envelope];
        let error = peer.call(&Propose { envelopes }, SHORT).await.unwrap_err();
        assert!(
            error.to_string().contains("proposal not permitted"),
            "{error}"
        );
    }
    // A member's certificate permits proposals for enrolments, and no others.
    let member = bind(Role::Quorum, "4");
    let peer = member.peer(cluster.addrs()[0], ExpectedIdentity::role(Role::Quorum));
    let error = peer.call(&Propose { envelopes }, SHORT).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("quorum members may propose only enrolments"),
        "{error}"
    );
    cluster.stop().await;
}
