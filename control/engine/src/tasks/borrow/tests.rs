//! Reclaim by owners.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{
    observed_state,
    tasks::testing::{self, id, world::World},
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    AllocationId, Outcome, ProjectPath,
    allocation::RankExit,
    checkpoint::{CheckpointMode, CheckpointOutcome},
    command::{ExpectedNode, RankReport},
    node::Lifecycle,
    progress::RankCheckpoint,
    scale::{Metric, ScalingPace, ScalingSpec},
    scheduler::{CheckpointPatch, SchedulerPatch, SettingPatch, SharingPatch},
    spec::{AllocationSpec, Constraints, Requeue, Workload},
    terms::{CheckpointTerms, CheckpointTrigger, Terms},
    vcluster::VclusterPatch,
    view::{Answer, Query},
};
use lattice_view::PingOutcome;

/// Settings of the owner: a short grace period, and a minute for a checkpoint.
fn owner_settings() -> SchedulerPatch {
    SchedulerPatch {
        sharing: SharingPatch {
            return_grace_ms: SettingPatch::Set(200),
            ..SharingPatch::default()
        },
        ..checkpoint_timeout(60_000)
    }
}

fn checkpoint_timeout(ms: u64) -> SchedulerPatch {
    SchedulerPatch {
        checkpoint: CheckpointPatch {
            timeout_ms: SettingPatch::Set(ms),
            ..CheckpointPatch::default()
        },
        ..SchedulerPatch::default()
    }
}

const GRACE: Duration = Duration::from_millis(200);

/// Updates the view from the state, including the vClusters.
async fn fold(world: &World) {
    world.fold();
    let Answer::Vclusters(all) = world.core.read(Query::Vclusters).await.unwrap() else {
        panic!("another answer")
    };
    let named = all.into_iter().map(|one| (one.name.clone(), one));
    let named = Arc::new(named.collect());
    world.core.restart(|view| view.vclusters = named);
}

fn name(text: &str) -> VclusterName {
    VclusterName::new(text).unwrap()
}

/// Makes this node one of `home` that is lent to `default`.
fn is_lent(world: &World, node: &str) {
    for (vcluster, settings) in [
        ("home", owner_settings()),
        ("default", SchedulerPatch::default()),
    ] {
        let change = VclusterPatch {
            description: Some("x".to_owned()),
            ..VclusterPatch::default()
        };
        world.admin(Command::SetScheduler {
            vcluster: name(vcluster),
            change: Box::new(change),
            settings: Box::new(settings),
            expected_version: None,
        });
    }
    world.admin(Command::AssignVcluster {
        nodes: vec![id(node)],
        vcluster: name("home"),
        from: Some(name("default")),
    });
    world.service(Command::LendNode {
        node: id(node),
        to: name("default"),
        version: version(world, node),
    });
}

/// A job with checkpoints runs on such a node for an hour.
fn lent(world: &World) -> AllocationId {
    is_lent(world, "a");
    let terms = CheckpointTerms {
        mode: CheckpointMode::Signal,
        trigger: CheckpointTrigger::Automatic,
        directory: Some("/ckpt".to_owned()),
    };
    let terms = Terms {
        checkpoint: Some(terms),
        ..Terms::default()
    };
    runs_for_an_hour(world, terms)
}

/// Runs a job on `a` for an hour.
fn runs_for_an_hour(world: &World, terms: Terms) -> AllocationId {
    let id = world.start_with_terms("b1", terms).allocation;
    let walltime_ms = 3_600_000;
    world.admin(Command::SetWalltime { id, walltime_ms });
    id
}

/// A job for one node that waits in this vCluster.
async fn waits_in(world: &World, vcluster: &str) {
    waits_as(world, vcluster, 5).await;
}

async fn waits_as(world: &World, vcluster: &str, class: u8) -> AllocationId {
    let spec = AllocationSpec {
        name: None,
        project: ProjectPath::new("atlas").unwrap(),
        vcluster: name(vcluster),
        nodes: 1,
        workload: Workload {
            script: Some("true".to_owned()),
            ..Workload::default()
        },
        walltime_ms: Some(3_600_000),
        class,
        sensitive: false,
        constraints: Constraints::default(),
        requeue: Requeue::Never,
        hold: false,
        demand: Default::default(),
        terms: Terms::default(),
    };
    let spec = Box::new(spec);
    let Outcome::Submitted { id } = world.admin(Command::Submit { spec }) else {
        panic!("not submitted")
    };
    fold(world).await;
    id
}

async fn reports(world: &World, runs: AllocationId, node: &str, report: RankReport) {
    world.service(Command::Report {
        id: runs,
        attempt: 1,
        node: id(node),
        report,
    });
    fold(world).await;
}

fn stopped(world: &World) -> RankReport {
    RankReport::Ended {
        at: world.core.now(),
        exit: RankExit::Stopped,
        fault: None,
    }
}

fn version(world: &World, node: &str) -> u64 {
    world.fold();
    let view = world.core.view();
    let entry = view.node(&id(node)).unwrap();
    entry.record.as_ref().unwrap().version
}

#[tokio::test]
async fn owner_waits_only_for_running_checkpoint() {
    let world = World::new();
    let runs = lent(&world);
    waits_in(&world, "home").await;
    let mut borrow = Borrow::new(world.core.clone(), world.checkpoints.clone());
    assert_eq!(borrow.reconcile(&world.fence).await.reclaim_changes, 1);
    fold(&world).await;
    // An operator requests a checkpoint, which may take an hour, just before the grace period ends.
    world.admin(Command::WriteCheckpoint {
        id: runs,
        directory: "/ckpt".to_owned(),
        timeout_ms: 3_600_000,
    });
    fold(&world).await;
    assert_eq!(world.allocation(runs).state, AllocationState::Checkpointing);
    tokio::time::sleep(GRACE).await;
    let over_at = world.core.now();
    assert_eq!(borrow.reconcile(&world.fence).await.stopped, 1);
    fold(&world).await;
    let writing = world.allocation(runs).progress.writing.unwrap();
    let home = name("home");
    let reason = MoveReason::Reclaimed { home };
    assert_eq!(writing.then, AfterCheckpoint::MakeRoom { reason });
    let left_ms = writing.until.since(over_at);
    assert!((50_000..70_000).contains(&left_ms), "{left_ms}");
    assert_eq!(
        borrow.reconcile(&world.fence).await.stopped,
        0,
        "it was told"
    );

    let outcome = CheckpointOutcome::Written {
        at: UnixMillis(1),
        bytes: Some(1),
        took_ms: 1,
    };
    let of = RankCheckpoint { number: 1, outcome };
    reports(&world, runs, "a", RankReport::Checkpoint { of }).await;
    assert_eq!(world.allocation(runs).state, AllocationState::Stopping);
    reports(&world, runs, "a", stopped(&world)).await;
    let left = world.allocation(runs);
    assert_eq!(left.state, AllocationState::Suspended);
    assert_eq!((left.progress.checkpoints, left.progress.preempted), (1, 1));
    assert_eq!(borrow.reconcile(&world.fence).await.returned, 1);
    assert_eq!(world.node().current, name("home"));
}

#[tokio::test]
async fn an_owner_waits_for_a_checkpoint_no_longer_than_its_borrower_gives_one() {
    let world = World::new();
    let runs = lent(&world);
    waits_in(&world, "home").await;
    world.admin(Command::SetScheduler {
        vcluster: name("default"),
        change: Box::default(),
        settings: Box::new(checkpoint_timeout(20_000)),
        expected_version: None,
    });
    fold(&world).await;
    let mut borrow = Borrow::new(world.core.clone(), world.checkpoints.clone());
    assert_eq!(borrow.reconcile(&world.fence).await.reclaim_changes, 1);
    fold(&world).await;
    tokio::time::sleep(GRACE).await;
    assert_eq!(borrow.reconcile(&world.fence).await.stopped, 1);
    let writing = world.allocation(runs).progress.writing.unwrap();
    assert_eq!(writing.until.since(writing.asked_at), 20_000);
}

/// A job with several promised nodes leaves those idle that become free first; its vCluster still needs them.
#[tokio::test]
async fn a_borrowed_node_that_is_promised_stays() {
    for is_promised in [true, false] {
        let world = World::new();
        let runs = lent(&world);
        let waits = waits_as(&world, "default", 9).await;
        world.service(Command::Preempt {
            id: waits,
            nodes: vec![id("a")],
            victims: vec![Victim {
                id: runs,
                attempt: 1,
                checkpoint: None,
            }],
        });
        reports(&world, runs, "a", stopped(&world)).await;
        if !is_promised {
            world.admin(Command::Cancel { id: waits });
            fold(&world).await;
        }
        let mut borrow = Borrow::new(world.core.clone(), world.checkpoints.clone());
        let long_ago = (name("default"), UnixMillis(0));
        borrow.moved.insert(id("a"), long_ago);
        let moved = borrow.reconcile(&world.fence).await;
        assert_eq!(moved.returned, usize::from(!is_promised));
    }
}

/// The grace period is shorter than a rank may take to end: ending the other ranks would free the node no sooner.
#[tokio::test]
async fn shrinking_service_keeps_other_nodes() {
    let world = World::new();
    let lent = id("b");
    world.admin(Command::RegisterNode {
        node: lent.clone(),
        vcluster: name("default"),
    });
    world.admin(Command::SetLifecycle {
        node: lent.clone(),
        lifecycle: Lifecycle::Ready,
    });
    is_lent(&world, "b");
    let core = &world.core;
    let seen = ["a", "b"].map(|node| (id(node), testing::seen(1)));
    observed_state::cell(core, "c0", seen.into());
    let found = PingOutcome {
        liveness: Liveness::Alive,
        reason: None,
        boot: Some(("b1".to_owned(), std::time::Duration::ZERO)),
        reply_addr: None,
    };
    observed_state::liveness(core, &[(lent.clone(), found)].into());
    let scale = ScalingSpec {
        min_nodes: 1,
        max_nodes: 2,
        metric: Metric::Cpu,
        target_micro: 500_000,
        pace: ScalingPace::default(),
    };
    let terms = Terms {
        scale: Some(scale),
        ..Terms::default()
    };
    let serves = runs_for_an_hour(&world, terms);
    world.service(Command::Grow {
        id: serves,
        nodes: vec![ExpectedNode {
            node: lent.clone(),
            version: version(&world, "b"),
            boot: None,
        }],
    });
    let at = world.core.now();
    reports(&world, serves, "b", RankReport::Started { at }).await;
    waits_in(&world, "home").await;
    let mut borrow = Borrow::new(world.core.clone(), world.checkpoints.clone());
    assert_eq!(borrow.reconcile(&world.fence).await.reclaim_changes, 1);
    world.service(Command::Shrink {
        id: serves,
        nodes: vec![lent],
    });
    fold(&world).await;
    tokio::time::sleep(GRACE).await;
    let nothing = BorrowReport::default();
    assert_eq!(borrow.reconcile(&world.fence).await, nothing);
    reports(&world, serves, "b", stopped(&world)).await;
    assert_eq!(borrow.reconcile(&world.fence).await.returned, 1);
    let held = world.allocation(serves);
    assert_eq!(held.state, AllocationState::Running);
    assert_eq!(held.kept_nodes().collect::<Vec<_>>(), [&id("a")]);
}

/// An undefined vCluster takes no part, with or without settings. The idle node belongs to one of the two vClusters,
/// and the other one has a job for it.
#[tokio::test]
async fn undefined_vcluster_neither_lends_nor_borrows() {
    for (owner, borrower) in [("default", "home"), ("home", "default")] {
        let world = World::new();
        let define = |vcluster: &str| {
            let change = VclusterPatch {
                description: Some("x".to_owned()),
                ..VclusterPatch::default()
            };
            world.admin(Command::SetVcluster {
                vcluster: name(vcluster),
                change: Box::new(change),
                expected_version: None,
            });
        };
        define("home");
        define("other");
        if owner == "home" {
            world.admin(Command::AssignVcluster {
                nodes: vec![id("a")],
                vcluster: name("home"),
                from: None,
            });
        }
        waits_in(&world, borrower).await;
        let mut borrow = Borrow::new(world.core.clone(), world.checkpoints.clone());
        let nothing = BorrowReport::default();
        assert_eq!(borrow.reconcile(&world.fence).await, nothing);
        world.admin(Command::SetScheduler {
            vcluster: name("default"),
            change: Box::default(),
            settings: Box::new(checkpoint_timeout(60_000)),
            expected_version: None,
        });
        fold(&world).await;
        assert!(world.core.view().vclusters.contains_key(&name("default")));
        assert_eq!(borrow.reconcile(&world.fence).await, nothing);
        define("default");
        fold(&world).await;
        let moved = borrow.reconcile(&world.fence).await;
        assert_eq!((moved.lent, moved.refused), (1, 0), "{owner} lends");
        assert_eq!(world.node().current, name(borrower));
    }
}
