//! Callers that use the name of another member.

use super::fixture::{CLUSTER, ClusterFixture, credentials};
use lattice_agent_rpc::{AttemptKey, Report, ReportAnswer};
use lattice_cluster::LOOPBACK;
use lattice_mesh::{
    CallError, EnrolError, EnrolRefused, ExpectedIdentity, Identity, JoinToken, Mesh, MeshConfig,
    Renew, Role, enrol_with,
};
use lattice_quorum_types::{
    AllocationState, Command, UnixMillis,
    allocation::RankExit,
    command::{RankReport, TokenGrant},
    wire::Propose,
};
use lattice_tests::wait::eventually;
use rustls_pki_types::CertificateDer;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// Mesh endpoint with the identity of a member, which need not run.
pub fn member(cluster: &ClusterFixture, role: Role, id: &str) -> Mesh {
    let own = credentials(&cluster.authority, CLUSTER, role, id);
    Mesh::bind(LOOPBACK, own, MeshConfig::default()).unwrap()
}

/// A report with n1's certificate for the rank that runs on n2.
pub async fn a_report_of_anothers_rank_changes_nothing(cluster: &ClusterFixture) {
    let go = cluster.folder().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.05; done; exit 7", go.display());
    let id = cluster.job_on("n2", &script).await;
    let state = |wanted| async move {
        let found = cluster.allocation(id).await;
        (found.state == wanted).then_some(found)
    };
    let before = eventually("the job runs", || state(AllocationState::Running)).await;
    let n1 = member(cluster, Role::Agent, "n1");
    let control = n1.peer(
        cluster.control.mesh_addr(),
        ExpectedIdentity::role(Role::Control),
    );
    let at = UnixMillis(before.started_at.unwrap().0 + 1);
    for exit in [
        RankExit::Exited { code: 0 },
        RankExit::Lost {
            evidence: "n1 says so".to_owned(),
        },
    ] {
        let report = Report {
            key: AttemptKey {
                allocation: id,
                attempt: before.attempt,
            },
            report: RankReport::Ended {
                at,
                exit,
                fault: Some("n1 says so".to_owned()),
            },
        };
        let answer = control.call(&report, SOON).await.unwrap().unwrap();
        let ReportAnswer::Superseded { reason } = answer else {
            panic!("{answer:?}");
        };
        println!("n1 reports of n2's rank: {reason}");
    }
    assert_eq!(cluster.allocation(id).await, before);
    assert_eq!(cluster.node("n2").await.holder.unwrap().allocation, id);
    assert_eq!(cluster.node("n1").await.drain, []);
    assert_eq!(cluster.node("n2").await.drain, []);
    std::fs::write(&go, "").unwrap();
    let ended = eventually("the job ends", || state(AllocationState::Failed)).await;
    let text = format!("{:?}", ended.ranks[0].phase);
    assert!(text.contains("code: 7"), "{text}");
    n1.shutdown(Duration::ZERO).await;
}

/// The request has a key and any name; the renewed certificate has the caller's own name.
pub async fn a_renewal_gives_the_callers_own_name(cluster: &ClusterFixture) {
    for (role, id) in [(Role::Agent, "n1"), (Role::Control, "desk2")] {
        let caller = member(cluster, role, id);
        let quorum = caller.peer(cluster.quorum.addr(), ExpectedIdentity::role(Role::Quorum));
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        let wanted = Identity::new(CLUSTER, Role::Agent, "n2").unwrap().uri();
        params.subject_alt_names = vec![rcgen::SanType::URI(wanted.try_into().unwrap())];
        let csr = params.serialize_request(&key).unwrap().der().to_vec();
        match quorum.call(&Renew { csr }, SOON).await.unwrap() {
            Ok(issued) => {
                let leaf = CertificateDer::from(issued.chain[0].clone());
                let text = String::from_utf8_lossy(&leaf).into_owned();
                let own = Identity::new(CLUSTER, role, id).unwrap().uri();
                assert!(text.contains(&own), "{own} is not in it");
                assert!(!text.contains("/agent/n2"), "it names n2");
            }
            Err(refused) => println!("{role} {id} asks for n2's name: {refused}"),
        }
        caller.shutdown(Duration::ZERO).await;
    }
}

async fn token(cluster: &ClusterFixture, replace: bool) -> JoinToken {
    let token = JoinToken::generate(Role::Agent, cluster.authority.pin());
    let grant = TokenGrant {
        hash: token.hash(),
        role: Role::Agent,
        names: None,
        cidrs: Vec::new(),
        uses: 1,
        replace,
        expires_at: UnixMillis(u64::MAX / 2),
    };
    cluster
        .propose(Command::CreateToken { grant })
        .await
        .unwrap();
    token
}

/// Only a token that permits replacement, with an agent that requests it, takes over a name. The earlier certificates
/// become invalid.
pub async fn a_taken_name_is_not_given_again(cluster: &ClusterFixture) {
    let addr = cluster.quorum.addr();
    let config = MeshConfig::default();
    let first = token(cluster, false).await;
    let first = enrol_with(addr, &first, "n3", false, &config)
        .await
        .unwrap();
    for (permits, asks) in [(false, false), (false, true), (true, false)] {
        let token = token(cluster, permits).await;
        let refused = enrol_with(addr, &token, "n3", asks, &config)
            .await
            .unwrap_err();
        let EnrolError::Refused(refused) = refused else {
            panic!("{refused}");
        };
        println!("n3 again, permitted {permits}, asked {asks}: {refused}");
        assert!(
            matches!(
                refused,
                EnrolRefused::NameTaken { .. } | EnrolRefused::TokenRefused
            ),
            "{refused}"
        );
    }
    let holder = Mesh::bind(LOOPBACK, first.credentials, config.clone()).unwrap();
    let quorum = holder
        .connect(addr, ExpectedIdentity::role(Role::Quorum))
        .await
        .unwrap();
    let good = token(cluster, true).await;
    enrol_with(addr, &good, "n3", true, &config).await.unwrap();
    eventually("the first certificate of n3 holds no more", || async {
        quorum.connected().await.is_err().then_some(())
    })
    .await;
    holder.shutdown(Duration::ZERO).await;
}

/// A quorum member's certificate has no administrator's permissions.
pub async fn a_member_proposes_no_more_than_an_enrolment(cluster: &ClusterFixture) {
    let member = member(cluster, Role::Quorum, "9");
    let quorum = member.peer(cluster.quorum.addr(), ExpectedIdentity::role(Role::Quorum));
    let command = Command::Drain {
        node: super::fixture::node("n1"),
        reason: Some("a member says so".to_owned()),
        expected: None,
    };
    let propose = Propose {
        envelopes: vec![cluster.envelope(command, None)],
    };
    let refused = quorum.call(&propose, SOON).await.unwrap_err();
    println!("a member proposes a drain: {refused}");
    assert!(
        matches!(refused, CallError::HandlerFailed { .. }),
        "{refused}"
    );
    assert_eq!(cluster.node("n1").await.drain, []);
    member.shutdown(Duration::ZERO).await;
}
