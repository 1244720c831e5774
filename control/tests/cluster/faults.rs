//! Behaviour of the cluster while parts of it are down or refuse requests.

use crate::fixture::{ClusterFixture, PATIENCE, node, shows, submit};
use crate::scenarios::NODES;
use lattice_agent::executor::Ids;
use lattice_placement::{Health, Liveness};
use lattice_quorum_types::{
    AllocationState, Command, Envelope, Outcome, Refusal, Revision,
    allocation::{RankExit, StopCause},
    command::{ExpectedNode, Fence, Principal, Privilege, SCHEMA},
    event::EventKind,
    id::LeaseName,
    node::Lifecycle,
    spec::AllocationSpec,
    view::WatchItem,
};
use std::time::Instant;
use tokio::time::timeout;

/// A file that ranks wait for.
pub struct GateFile(tempfile::TempDir);

impl GateFile {
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(folder.path(), mode).unwrap();
        Self(folder)
    }
    /// Path of another file in the same directory.
    pub fn file(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }
    pub fn then(&self, what: &str) -> String {
        let file = self.0.path().join("open");
        format!(
            "while [ ! -e {} ]; do sleep 0.05; done; {what}",
            file.display()
        )
    }
    pub fn open(&self) {
        std::fs::write(self.0.path().join("open"), "").unwrap();
    }
}

pub async fn agent_restart(cluster: &mut ClusterFixture) {
    let gate = GateFile::new();
    let id = cluster
        .submit(NODES.len() as u32, &gate.then("exit 0"))
        .await;
    cluster.reaches(id, &[AllocationState::Running]).await;
    cluster.stop_agent("gpu002").await;
    cluster.start_agent("gpu002", |_| {}).await;
    gate.open();
    let ends = [AllocationState::Completed, AllocationState::Failed];
    let ended = cluster.reaches(id, &ends).await;
    assert_eq!(ended.state, AllocationState::Completed, "{ended:?}");
    assert_eq!(ended.attempt, 1);
}

pub async fn control_restart(cluster: &mut ClusterFixture) {
    let gate = GateFile::new();
    let id = cluster
        .submit(3, &gate.then("exit $LATTICE_NODE_RANK"))
        .await;
    cluster.reaches(id, &[AllocationState::Running]).await;
    let control = cluster.control.take().unwrap();
    let addr = control.mesh_addr();
    control.stop().await;
    gate.open();
    cluster.control = Some(cluster.new_control("c1", addr).await);
    let ended = cluster.reaches(id, &[AllocationState::Failed]).await;
    assert_eq!(ended.attempt, 1);
    assert!(
        matches!(ended.stop, Some(StopCause::RankFailed { .. })),
        "{ended:?}"
    );
}

pub async fn leader_gone(cluster: &mut ClusterFixture) {
    let gate = GateFile::new();
    let running = cluster.submit(2, &gate.then("exit 0")).await;
    cluster.reaches(running, &[AllocationState::Running]).await;
    let began = Instant::now();
    cluster.stop_leader().await;
    gate.open();
    let next = cluster.submit(3, "true").await;
    cluster
        .reaches(running, &[AllocationState::Completed])
        .await;
    cluster.reaches(next, &[AllocationState::Completed]).await;
    println!(
        "both allocations ended {:?} after the leader began to stop",
        began.elapsed()
    );
}

pub async fn silent_node(cluster: &mut ClusterFixture) {
    let core = cluster.core();
    let alive = |view: &lattice_view::View| {
        let alive = view
            .nodes
            .values()
            .filter(|n| n.liveness == Liveness::Alive);
        (alive.count() == NODES.len()).then_some(())
    };
    shows(&core, "all nodes alive", alive).await;
    let began = Instant::now();
    cluster.stop_agent("gpu003").await;
    let stopped = began.elapsed();
    shows(&core, "a suspect node", |view| {
        let liveness = view.node(&node("gpu003"))?.liveness;
        (liveness == Liveness::Suspect).then_some(())
    })
    .await;
    println!(
        "suspect {:?} after its agent began to stop (stopped after {stopped:?})",
        began.elapsed()
    );
    let waits = cluster.submit(NODES.len() as u32, "true").await;
    shows(&core, "that four are alive as the explanation", |view| {
        let why = view.plan.explanation(view.allocation(waits)?)?.to_string();
        why.contains("4 alive").then_some(())
    })
    .await;
    let fits = cluster.submit(NODES.len() as u32 - 1, "true").await;
    cluster.admin(Command::Cancel { id: waits }).await;
    let ended = cluster.reaches(fits, &[AllocationState::Completed]).await;
    assert!(ended.nodes().all(|id| *id != node("gpu003")));
    cluster.start_agent("gpu003", |_| {}).await;
    shows(&core, "all nodes alive again", alive).await;
}

pub async fn refusing_agent(cluster: &mut ClusterFixture) {
    cluster.stop_agent("gpu004").await;
    cluster
        .start_agent("gpu004", |settings| {
            settings.executor.run_as = Some(Ids { uid: 0, gid: 0 })
        })
        .await;
    let core = cluster.core();
    shows(&core, "all nodes alive", |view| {
        let alive = view
            .nodes
            .values()
            .filter(|n| n.liveness == Liveness::Alive);
        (alive.count() == NODES.len()).then_some(())
    })
    .await;
    let id = cluster.submit(NODES.len() as u32, "exec sleep 600").await;
    let ended = cluster.reaches(id, &[AllocationState::Failed]).await;
    let Some(StopCause::RankFailed {
        exit: RankExit::SpawnFailed { reason },
        ..
    }) = &ended.stop
    else {
        panic!("{ended:?}");
    };
    assert!(reason.contains("gpu004"), "{reason}");
    println!("the cause as shown: {}", ended.stop.as_ref().unwrap());
    cluster.stop_agent("gpu004").await;
    cluster.start_agent("gpu004", |_| {}).await;
}

pub async fn broken_journal(cluster: &mut ClusterFixture) {
    let core = cluster.core();
    shows(&core, "all nodes alive and healthy", |view| {
        let nodes = view.nodes.values();
        let fit = nodes.filter(|n| n.liveness == Liveness::Alive && n.health() == Health::Healthy);
        (fit.count() == NODES.len()).then_some(())
    })
    .await;
    let attempts = cluster.agent_folder("gpu004").join("executor/attempts");
    let aside = attempts.with_file_name("aside");
    std::fs::rename(&attempts, &aside).unwrap();
    let id = cluster.submit(NODES.len() as u32, "true").await;
    // The ranks on the other nodes are ended; the allocation waits for a fifth node.
    shows(&core, "a drained node and work that waits again", |view| {
        let drained = view.node(&node("gpu004"))?.record.clone()?;
        let is_out = drained.drain.iter().any(|d| d.owner == "service:dispatch");
        let waits = view.allocation(id)?;
        (is_out && waits.attempt == 1 && waits.state == AllocationState::Pending).then_some(())
    })
    .await;
    let waits = cluster.allocation(id).await;
    let Some(StopCause::NodeFault { node: at, reason }) = &waits.stop else {
        panic!("{waits:?}");
    };
    assert_eq!(*at, node("gpu004"));
    println!("put back: {reason}");
    // Gossip arrives later than the answer to a launch.
    let names_a_fault = |view: &lattice_view::View| {
        let seen = view.node(&node("gpu004"))?.gossip.clone()?;
        let mut reasons = seen.health_reasons.iter();
        Some(reasons.any(|r| r.starts_with("executor.")))
    };
    shows(&core, "a node that names its fault", |view| {
        names_a_fault(view).filter(|names| *names)
    })
    .await;
    std::fs::rename(&aside, &attempts).unwrap();
    shows(&core, "a node that names no fault", |view| {
        names_a_fault(view).filter(|names| !names)
    })
    .await;
    // The dispatcher would readmit the node by itself, later.
    cluster
        .admin(Command::SetLifecycle {
            node: node("gpu004"),
            lifecycle: Lifecycle::Ready,
        })
        .await;
    let ended = cluster.reaches(id, &[AllocationState::Completed]).await;
    assert_eq!((ended.attempt, ended.stop), (2, None));
}

pub async fn lost_record(cluster: &mut ClusterFixture) {
    let gate = GateFile::new();
    let id = cluster
        .submit(NODES.len() as u32, &gate.then("exit 0"))
        .await;
    cluster.reaches(id, &[AllocationState::Running]).await;
    cluster.stop_agent("gpu002").await;
    let attempts = cluster.agent_folder("gpu002").join("executor/attempts");
    std::fs::rename(attempts, cluster.part("gone").join("attempts")).unwrap();
    cluster.start_agent("gpu002", |_| {}).await;
    let ended = cluster.reaches(id, &[AllocationState::Failed]).await;
    let lost = node("gpu002");
    assert_eq!(ended.stop, Some(StopCause::NodeLost { node: lost }));
    assert_eq!(ended.attempt, 1);
    gate.open();
}

pub async fn takeover(cluster: &mut ClusterFixture) {
    let old = cluster.core();
    let epoch = lease_epoch(cluster).await;
    let gate = GateFile::new();
    let running = cluster.submit(2, &gate.then("exit 0")).await;
    cluster.reaches(running, &[AllocationState::Running]).await;
    let mut second = cluster.spare.take().unwrap();
    second.start(cluster.members()).await.unwrap();
    let core = second.core().unwrap();
    // The second control sees the same state and does not act while the first one does.
    shows(&core, "the replicated state and the nodes", |view| {
        let alive = view
            .nodes
            .values()
            .filter(|n| n.liveness == Liveness::Alive);
        (view.revision > Revision(0) && alive.count() == NODES.len()).then_some(())
    })
    .await;
    assert!(!core.view().acting);
    cluster.control.take().unwrap().stop().await;
    cluster.control = Some(second);
    gate.open();
    shows(&core, "leases", |view| view.acting.then_some(())).await;
    let next = cluster.submit(2, "true").await;
    cluster.reaches(next, &[AllocationState::Completed]).await;
    cluster
        .reaches(running, &[AllocationState::Completed])
        .await;
    let node = core
        .view()
        .nodes
        .values()
        .find_map(|n| n.record.clone())
        .unwrap();
    let held = cluster.admin(Command::Submit { spec: held_spec() }).await;
    let Outcome::Submitted { id } = held else {
        panic!("{held:?}")
    };
    let stale = Envelope {
        schema: SCHEMA,
        principal: Principal {
            name: format!("service:control/{}", old.name()),
            privilege: Privilege::Service,
        },
        key: None,
        at: old.now(),
        fence: Some(Fence {
            lease: LeaseName::new("schedule.default").unwrap(),
            epoch,
        }),
        command: Command::Assign {
            id,
            nodes: vec![ExpectedNode {
                node: node.id,
                version: node.version,
                boot: None,
            }],
        },
    };
    let mesh = cluster.control.as_ref().unwrap().mesh().clone();
    let client = lattice_quorum_client::QuorumClient::new(mesh, cluster.members());
    let refusal = client.propose(stale).await.unwrap().unwrap_err();
    assert!(matches!(refusal, Refusal::StaleEpoch { .. }), "{refusal}");
    cluster.admin(Command::Cancel { id }).await;
}

fn held_spec() -> Box<AllocationSpec> {
    let Command::Submit { mut spec } = submit(1, "true") else {
        unreachable!()
    };
    spec.hold = true;
    spec
}

/// Epoch of the current scheduler lease.
async fn lease_epoch(cluster: &ClusterFixture) -> u64 {
    let mesh = cluster.control.as_ref().unwrap().mesh().clone();
    let client = lattice_quorum_client::QuorumClient::new(mesh, cluster.members());
    let mut watching = client.watch(Revision(0));
    let mut epoch = 0;
    let now = cluster.core().view().revision;
    loop {
        match timeout(PATIENCE, watching.next()).await.unwrap().unwrap() {
            WatchItem::Events(events) => {
                for event in &events {
                    if let EventKind::Lease {
                        lease,
                        epoch: given,
                        ..
                    } = &event.kind
                        && lease.as_str() == "schedule.default"
                    {
                        epoch = *given;
                    }
                    if event.revision >= now {
                        return epoch;
                    }
                }
            }
            WatchItem::Idle(revision) if revision >= now => {
                return epoch;
            }
            WatchItem::Idle(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
