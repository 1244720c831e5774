//! What is wrong with running allocations and with nodes, over REST and gRPC.

use super::{
    fixture::{ApiFixture, job},
    grpc::{by, channel},
};
use lattice_api::v1;
use lattice_client::{AllocationFilter, SubmitOptions};
use lattice_engine::observed_state;
use lattice_mesh::{Clock as _, SystemClock};
use lattice_placement::Liveness;
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis, command::RankReport};
use lattice_view::PingOutcome;
use std::collections::BTreeMap;
use v1::{allocations_client::AllocationsClient, nodes_client::NodesClient};

fn pinged(fixture: &ApiFixture, nodes: &[&str], liveness: Liveness, reason: Option<&str>) {
    let found = nodes.iter().map(|name| {
        let found = PingOutcome {
            liveness,
            reason: reason.map(str::to_owned),
            boot: None,
            reply_addr: None,
        };
        (NodeId::new(*name).unwrap(), found)
    });
    let found: BTreeMap<_, _> = found.collect();
    observed_state::liveness(&fixture.core, &found);
}

/// Job with a walltime of 10 min that began this long ago on gpu001 and gpu002, which answer pings.
async fn running_since(fixture: &ApiFixture, ago_ms: u64) -> AllocationId {
    pinged(fixture, &["gpu001", "gpu002"], Liveness::Alive, None);
    let client = fixture.client("alice");
    let job = job("atlas/web", 2);
    let made = client.submit(&job, SubmitOptions::default());
    let id = made.await.unwrap().id.unwrap();
    fixture.assign(id, &["gpu001", "gpu002"]).await;
    let at = UnixMillis(SystemClock.now().0 - ago_ms);
    for node in ["gpu001", "gpu002"] {
        fixture.reports(id, node, RankReport::Started { at }).await;
    }
    id
}

#[tokio::test]
async fn unreachable_nodes_of_a_running_job_are_named() {
    let fixture = ApiFixture::furnished().await;
    let id = running_since(&fixture, 1_000).await;
    let alice = fixture.client("alice");
    let fine = alice.allocation(id).await.unwrap();
    assert_eq!(
        (&*fine.state, fine.reason, fine.kill_at),
        ("running", None, None)
    );
    assert!(fine.node_problems.is_empty());
    assert!(fine.ends_at.is_some());
    assert_eq!(fine.time_left.as_deref(), Some("10 min"));

    let why = "answers neither control nor gpu003";
    pinged(&fixture, &["gpu002"], Liveness::Unreachable, Some(why));
    let expected = Some("node gpu002 unreachable");
    let listed = alice
        .allocations(&AllocationFilter::default())
        .await
        .unwrap();
    let shown = alice.allocation(id).await.unwrap();
    for shown in [&listed[0], &shown] {
        assert_eq!(shown.reason.as_deref(), expected);
        let [problem] = &shown.node_problems[..] else {
            panic!("{shown:?}")
        };
        assert_eq!(
            (&*problem.status, &*problem.nodes),
            ("unreachable", "gpu002")
        );
        assert_eq!(problem.reason.as_deref(), Some(why));
    }
    let explained = alice.explanation(id).await.unwrap();
    assert!(
        explained.summary.starts_with("runs on gpu[001-002] since ")
            && explained.summary.ends_with("; node gpu002 unreachable"),
        "{}",
        explained.summary
    );
    assert_eq!(explained.node_problems, shown.node_problems);
    assert_eq!(explained.ends_at, shown.ends_at);
    let mut grpc = AllocationsClient::new(channel(&fixture).await);
    let asked = by(&fixture, "alice", v1::GetAllocationRequest { id: id.0 });
    let message = grpc.get(asked).await.unwrap().into_inner();
    assert_eq!(message.node_problems[0].nodes, "gpu002");
    assert_eq!(
        (
            message.reason.as_deref(),
            message.ends_at,
            message.time_left
        ),
        (expected, shown.ends_at, shown.time_left)
    );

    // The node answers again.
    pinged(&fixture, &["gpu002"], Liveness::Alive, None);
    assert_eq!(alice.allocation(id).await.unwrap().reason, None);
}

/// The process ignores SIGTERM: the walltime ended 12 s ago, and the agent waits 30 s.
#[tokio::test]
async fn reached_time_limit_is_shown_while_running() {
    let fixture = ApiFixture::furnished().await;
    let id = running_since(&fixture, 612_000).await;
    let alice = fixture.client("alice");
    let shown = alice.allocation(id).await.unwrap();
    assert_eq!(shown.state, "running");
    assert_eq!(shown.time_left.as_deref(), Some("0 s"));
    let reason = shown.reason.unwrap();
    // The test itself may take a second or more.
    assert!(
        reason.starts_with("time limit reached, SIGKILL in 1") && reason.ends_with(" s"),
        "{reason}"
    );
    let time = |text: &str| lattice_api::text::read_time(text).unwrap();
    let (ends_at, kill_at) = (shown.ends_at.unwrap(), shown.kill_at.unwrap());
    assert_eq!(time(&kill_at).since(time(&ends_at)), 30_000);
    let why = alice.explanation(id).await.unwrap();
    assert!(
        why.summary.contains("; time limit reached, SIGKILL in "),
        "{}",
        why.summary
    );
    assert_eq!(why.kill_at, Some(kill_at));
}

#[tokio::test]
async fn stopping_job_shows_due_sigkill() {
    let fixture = ApiFixture::furnished().await;
    let id = running_since(&fixture, 1_000).await;
    let alice = fixture.client("alice");
    alice.cancel(id).await.unwrap();
    let shown = alice.allocation(id).await.unwrap();
    assert_eq!(
        (&*shown.state, shown.stop.as_deref()),
        ("stopping", Some("cancelled by alice"))
    );
    let reason = shown.reason.unwrap();
    assert!(
        reason.starts_with("stopping for ") && reason.contains(" s; SIGKILL in "),
        "{reason}"
    );
    assert_eq!((shown.ends_at, shown.time_left), (None, None));
    let why = alice.explanation(id).await.unwrap().summary;
    assert!(
        why.contains("is being stopped since")
            && why.contains("; SIGKILL in ")
            && !why.contains("stopping for"),
        "{why}"
    );
}

/// The combined status of a node: a ready node that does not answer is unreachable.
#[tokio::test]
async fn worst_part_is_the_status_of_a_node() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let status = async |name: &str| eye.node(name).await.unwrap().status.unwrap();
    assert_eq!(status("gpu001").await, "unknown", "not pinged yet");
    running_since(&fixture, 1_000).await;
    pinged(&fixture, &["gpu003"], Liveness::Alive, None);
    assert_eq!(status("gpu001").await, "allocated");
    assert_eq!(status("gpu003").await, "ready");
    let fault = super::bmc::reason(
        "bmc.part_critical",
        "psu.0",
        lattice_conformance::health::Severity::Faulty,
    );
    super::bmc::tells(&fixture, "gpu003", vec![fault]);
    assert_eq!(status("gpu003").await, "faulty");
    pinged(&fixture, &["gpu001", "gpu003"], Liveness::Unreachable, None);
    for name in ["gpu001", "gpu003"] {
        let node = eye.node(name).await.unwrap();
        assert_eq!(
            (&*node.lifecycle, node.status.as_deref()),
            ("ready", Some("unreachable"))
        );
    }
    let mut grpc = NodesClient::new(channel(&fixture).await);
    let asked = by(
        &fixture,
        "eye",
        v1::GetNodeRequest {
            name: "gpu001".to_owned(),
        },
    );
    let message = grpc.get(asked).await.unwrap().into_inner();
    assert_eq!(message.status.as_deref(), Some("unreachable"));
    let listed = eye.nodes().await.unwrap();
    assert!(listed.iter().all(|node| node.status.is_some()));
}
