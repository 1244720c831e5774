//! Complete agents on a real mesh: published state, answers, and permitted callers.

use crate::cluster::{CELL, Cluster, bind, captured, empty_host, enrolling_quorum};
use crate::support;
use crate::support::{PATIENCE, key, shell, terminate, tree_of};
use futures::StreamExt;
use lattice_agent::{App, JoinSettings, StartError};
use lattice_agent_rpc::{
    AttemptKey, GetInventory, GetPreimage, ListAttempts, LogStream, Ping, ReadLog,
};
use lattice_conformance::{Class, Digest, Inventory, NodeDocument, Reading, verify};
use lattice_gossip::Verdict;
use lattice_hwprobe::probe_all;
use lattice_mesh::{CallError, ExpectedIdentity, Role};
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use rustix::fs::FlockOperation;
use std::os::fd::OwnedFd;
use std::time::Duration;

#[tokio::test]
async fn gossiped_marks_have_fetchable_preimages() {
    let cluster = Cluster::start().await;
    let app = cluster.agent("gpu001", captured("gpu001")).await;
    let member = cluster
        .member("gpu001", |m| m.published.identity.is_some())
        .await;
    let said = &member.published;
    let expected = probe_all(&captured("gpu001")).marks();
    for (class, mark) in &expected {
        assert_eq!(said.fingerprints[class.name()], mark.to_string());
    }
    assert_eq!(said.fingerprints.len(), Class::ALWAYS_PUBLISHED.len());
    assert_eq!(said.group.as_deref(), Some("g0"));
    assert_eq!(said.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert!(said.grace_ms.is_some());
    assert_eq!(said.health.as_ref().unwrap().verdict, Verdict::Healthy);
    let peer = cluster.peer(&app);
    let mut fetched = 0;
    for digest in expected.values().filter_map(|mark| mark.digest()) {
        let wanted = GetPreimage { digest: digest.0 };
        let bytes = peer.call(&wanted, PATIENCE).await.unwrap().unwrap();
        verify(&digest, &bytes).unwrap();
        fetched += 1;
    }
    assert!(fetched >= 6, "{fetched} classes are complete");
    let unknown = GetPreimage { digest: [7; 32] };
    assert_eq!(peer.call(&unknown, PATIENCE).await.unwrap(), None);

    let digest: Digest = said.identity.as_ref().unwrap().parse().unwrap();
    let wanted = GetPreimage { digest: digest.0 };
    let bytes = peer.call(&wanted, PATIENCE).await.unwrap().unwrap();
    let document = NodeDocument::verify(&digest, &bytes).unwrap();
    assert_eq!(document.node, "gpu001");
    assert_eq!(document.topology_group.as_deref(), Some("g0"));
    let model = document.resources.gpu_model.present().unwrap();
    assert!(model.contains("H100"), "{model}");
    assert!(matches!(
        document.resources.gpu_count,
        Reading::Present(1..)
    ));
    app.stop().await;
}

#[tokio::test]
async fn two_agents_in_one_process_say_where_their_hosts_differ() {
    let cluster = Cluster::start().await;
    let like = cluster.agent("gpu004", captured("gpu004")).await;
    let unlike = cluster.agent("gpu005", captured("gpu005")).await;
    let known = |m: &lattice_gossip::Member| m.published.identity.is_some();
    let a = cluster.member("gpu004", known).await;
    let b = cluster.member("gpu005", known).await;
    let (a, b) = (&a.published.fingerprints, &b.published.fingerprints);
    assert_ne!(a["nic"], b["nic"]);
    assert_eq!(a["kernel"], b["kernel"]);
    assert_eq!(a["gpu"], b["gpu"]);
    like.stop().await;
    unlike.stop().await;
}

#[tokio::test]
async fn a_changed_host_is_published_after_two_equal_reads() {
    let cluster = Cluster::start().await;
    let root = tree_of("gpu101", cluster.folder.path().join("tree"));
    let write = |arguments: &str| {
        std::fs::write(root.join("proc/cmdline"), format!("{arguments}\n")).unwrap();
    };
    let mut host = captured("gpu101");
    host.root = lattice_hwprobe::Root::new(&root);
    let mut settings = cluster.settings("gpu101", host);
    settings.probe.interval = Duration::from_secs(3600);
    settings.probe.confirm_after = Duration::from_millis(50);
    settings.probe.fresh_for = Duration::ZERO;
    let mut app = App::bind(settings, cluster.edges("gpu101")).await.unwrap();
    app.start().await.unwrap();
    let first = cluster
        .member("gpu101", |m| m.published.identity.is_some())
        .await;
    let old = first.published.fingerprints["kernel"].clone();
    write("ro mitigations=off");
    let peer = cluster.peer(&app);
    let bytes = peer
        .call(
            &GetInventory {
                fresh: true,
                by: None,
            },
            PATIENCE,
        )
        .await
        .unwrap()
        .unwrap();
    let read: Inventory = serde_json::from_slice(&bytes).unwrap();
    let new = read.marks()[&Class::Kernel].to_string();
    assert_ne!(new, old);
    cluster
        .member("gpu101", |m| m.published.fingerprints["kernel"] == new)
        .await;
    app.stop().await;
}

#[tokio::test]
async fn ping_and_inventory_are_answered() {
    let cluster = Cluster::start().await;
    let app = cluster.agent("gpu101", captured("gpu101")).await;
    let peer = cluster.peer(&app);
    let pong = peer.call(&Ping, PATIENCE).await.unwrap();
    assert_eq!(pong.node.as_str(), "gpu101");
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(pong.boot_id, boot_id.trim());
    for fresh in [false, true] {
        let bytes = peer
            .call(&GetInventory { fresh, by: None }, PATIENCE)
            .await
            .unwrap()
            .unwrap();
        let read: Inventory = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read.marks(), probe_all(&captured("gpu101")).marks());
    }
    app.stop().await;
}

fn is_denied<T: std::fmt::Debug>(answer: Result<T, CallError>) -> bool {
    matches!(answer, Err(CallError::Denied { .. }))
}

#[tokio::test]
async fn only_control_may_start_end_or_look_into_work() {
    let cluster = Cluster::start().await;
    let app = cluster.agent("n1", empty_host(&cluster)).await;
    let expect = ExpectedIdentity::role(Role::Agent);
    for (role, id) in [(Role::Agent, "n2"), (Role::Quorum, "1")] {
        let mesh = bind(&cluster.authority, role, id);
        let peer = mesh.peer(app.addr(), expect.clone());
        assert!(is_denied(peer.call(&shell(key(1), "true"), PATIENCE).await));
        assert!(is_denied(peer.call(&terminate(key(1)), PATIENCE).await));
        assert!(is_denied(peer.call(&ListAttempts, PATIENCE).await));
        assert!(is_denied(
            peer.call(
                &GetInventory {
                    fresh: true,
                    by: None,
                },
                PATIENCE
            )
            .await
        ));
        assert!(is_denied(peer.open(&log(key(1), false)).await));
        assert_eq!(
            is_denied(peer.call(&Ping, PATIENCE).await),
            role == Role::Quorum
        );
        mesh.shutdown(Duration::from_secs(1)).await;
    }
    assert!(
        cluster
            .peer(&app)
            .call(&ListAttempts, PATIENCE)
            .await
            .unwrap()
            .is_empty()
    );
    app.stop().await;
}

fn log(key: AttemptKey, follow: bool) -> ReadLog {
    ReadLog {
        key,
        stream: LogStream::Stdout,
        offset: 0,
        follow,
    }
}

#[tokio::test]
async fn a_rank_is_started_followed_and_ended_over_the_mesh() {
    let cluster = Cluster::start().await;
    let app = cluster.agent("n1", empty_host(&cluster)).await;
    let peer = cluster.peer(&app);
    let go = cluster.folder.path().join("go");
    let script = format!(
        "echo first; until [ -e {} ]; do sleep 0.02; done; echo second",
        go.display()
    );
    peer.call(&shell(key(1), &script), PATIENCE)
        .await
        .unwrap()
        .unwrap();
    cluster.ledger.started(key(1)).await;
    let listed = peer.call(&ListAttempts, PATIENCE).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert!(matches!(listed[0].report, Some(RankReport::Started { .. })));
    let mut items = peer.open(&log(key(1), true)).await.unwrap();
    let mut text = Vec::new();
    while let Some(item) = tokio::time::timeout(PATIENCE, items.next()).await.unwrap() {
        text.extend_from_slice(&item.unwrap().unwrap());
        if text == b"first\n" {
            std::fs::write(&go, "").unwrap();
        }
    }
    assert_eq!(String::from_utf8(text).unwrap(), "first\nsecond\n");
    assert_eq!(
        cluster.ledger.end(key(1)).await,
        RankExit::Exited { code: 0 }
    );

    let mut rest = log(key(1), false);
    rest.offset = 6;
    let mut items = peer.open(&rest).await.unwrap();
    assert_eq!(items.next().await.unwrap().unwrap().unwrap(), "second\n");
    assert!(items.next().await.is_none());
    let mut unknown = peer.open(&log(key(99), false)).await.unwrap();
    assert!(unknown.next().await.unwrap().unwrap().is_err());

    peer.call(&shell(key(2), "sleep 1000"), PATIENCE)
        .await
        .unwrap()
        .unwrap();
    cluster.ledger.started(key(2)).await;
    peer.call(&terminate(key(2)), PATIENCE)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(cluster.ledger.end(key(2)).await, RankExit::Stopped);
    app.stop().await;
}

#[tokio::test]
async fn a_stopped_agent_leaves_its_work_and_the_next_one_reports_it() {
    let cluster = Cluster::start().await;
    let app = cluster.agent("n1", empty_host(&cluster)).await;
    let go = cluster.folder.path().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.02; done; exit 9", go.display());
    cluster
        .peer(&app)
        .call(&shell(key(1), &script), PATIENCE)
        .await
        .unwrap()
        .unwrap();
    cluster.ledger.started(key(1)).await;
    app.stop().await;
    std::fs::write(&go, "").unwrap();
    let again = cluster.agent("n1", empty_host(&cluster)).await;
    assert_eq!(
        cluster.ledger.end(key(1)).await,
        RankExit::Exited { code: 9 }
    );
    again.stop().await;
}

#[tokio::test]
async fn a_node_enrols_once_and_comes_back_with_what_it_got() {
    let cluster = Cluster::start().await;
    let (quorum, token) = enrolling_quorum(&cluster);
    let mut settings = cluster.settings("n7", empty_host(&cluster));
    settings.gossip.cell = None;
    // The first address has no listener, so the agent tries the next one.
    settings.quorum = vec!["127.0.0.1:9".parse().unwrap(), quorum.local_addr()];
    settings.join = Some(JoinSettings {
        token,
        replace: false,
    });
    let mut edges = cluster.edges("n7");
    edges.credentials = None;
    edges.mesh.connect_timeout = Duration::from_secs(3);
    let mut app = App::bind(settings.clone(), edges.clone()).await.unwrap();
    app.start().await.unwrap();
    assert_eq!(app.cell().unwrap().name().as_str(), CELL);
    cluster.member("n7", |_| true).await;
    app.stop().await;
    let key_file = settings.data_dir.join("identity/identity.key");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&key_file).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    // The token is used up; the certificate stays valid.
    let mut again = App::bind(settings.clone(), edges.clone()).await.unwrap();
    again.start().await.unwrap();
    assert_eq!(again.cell().unwrap().name().as_str(), CELL);
    again.stop().await;
    // Another node cannot use that token, and receives no information.
    settings.node = support::node("n8");
    settings.data_dir = cluster.folder.path().join("n8");
    let refused = App::bind(settings.clone(), edges.clone())
        .await
        .unwrap_err();
    assert!(matches!(refused, StartError::Enrol(_)), "{refused:?}");
    // Nor can it use the first node's certificate.
    settings.data_dir = cluster.folder.path().join("n7");
    let refused = App::bind(settings, edges).await.unwrap_err();
    assert!(
        matches!(refused, StartError::OtherIdentity { .. }),
        "{refused:?}"
    );
}

/// The lock and socket of a killed agent outlive it in its last forked child, until that child executes its program.
#[tokio::test]
async fn an_agent_starts_once_the_last_child_of_a_killed_one_lets_go() {
    let cluster = Cluster::start().await;
    let mut settings = cluster.settings("n1", empty_host(&cluster));
    std::fs::create_dir_all(&settings.data_dir).unwrap();
    let lock = std::fs::File::create(settings.data_dir.join("lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    settings.listen = socket.local_addr().unwrap();
    let mut child = std::process::Command::new("sleep")
        .arg("0.5")
        .stdin(lock)
        .stdout(OwnedFd::from(socket))
        .spawn()
        .unwrap();
    let mut app = App::bind(settings, cluster.edges("n1")).await.unwrap();
    assert!(child.wait().unwrap().success());
    app.start().await.unwrap();
    app.stop().await;
}

#[tokio::test]
async fn what_keeps_an_agent_from_starting_is_named() {
    let cluster = Cluster::start().await;
    let app = cluster.agent("n1", empty_host(&cluster)).await;
    let settings = || cluster.settings("n2", empty_host(&cluster));
    let failure = async |settings, credentials: bool| {
        let mut edges = cluster.edges("n2");
        if !credentials {
            edges.credentials = None;
        }
        App::bind(settings, edges).await.unwrap_err().to_string()
    };
    let mut taken = settings();
    taken.listen = app.addr();
    let mut shared = settings();
    shared.data_dir = cluster.folder.path().join("n1");
    let (taken, shared) = tokio::join!(failure(taken, true), failure(shared, true));
    assert!(taken.contains("is in use by another process"), "{taken}");
    assert!(shared.contains("is in use by another agent"), "{shared}");
    let text = failure(settings(), false).await;
    assert!(text.contains("join.token_file"), "{text}");
    let mut nowhere = settings();
    nowhere.gossip.cell = None;
    let text = failure(nowhere, true).await;
    assert!(text.contains("gossip.cell"), "{text}");
    let newer = settings();
    std::fs::write(newer.data_dir.join("format.json"), r#"{"version":4}"#).unwrap();
    let text = failure(newer, true).await;
    assert!(text.contains("format 4"), "{text}");
    app.stop().await;
}
