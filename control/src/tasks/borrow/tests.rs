//! Whom an owner waits for.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::tasks::testing::{id, world::World};
use lattice_quorum_types::{
    AllocationId, ProjectPath,
    allocation::RankExit,
    checkpoint::{CheckpointMode, CheckpointOutcome},
    command::RankReport,
    course::RankCheckpoint,
    spec::{AllocationSpec, Constraints, Requeue, Workload},
    terms::{CheckpointTerms, CheckpointTrigger, Terms},
    vcluster::VclusterPatch,
    view::{Answer, Query},
};

/// Of the owner: it gives a little grace, and its checkpoints may take a minute.
const PROFILE: &str = "sharing.return_grace_ms=200\ncheckpoint.timeout_ms=60000\n";
const GRACE: Duration = Duration::from_millis(200);

/// The view follows the state, also in which vClusters there are.
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

/// A node of `home` that is lent to `default`, where work that writes checkpoints runs on it for an hour.
fn lent(world: &World) -> AllocationId {
    for (vcluster, profile) in [("home", PROFILE), ("default", "")] {
        let change = VclusterPatch {
            description: Some("x".to_owned()),
            profile: Some(profile.to_owned()),
            ..VclusterPatch::default()
        };
        world.admin(Command::SetVcluster {
            vcluster: name(vcluster),
            change: Box::new(change),
            expected_version: None,
        });
    }
    world.admin(Command::AssignVcluster {
        nodes: vec![id("a")],
        vcluster: name("home"),
        from: Some(name("default")),
    });
    world.service(Command::LendNode {
        node: id("a"),
        to: name("default"),
        version: world.node().version,
    });
    let terms = CheckpointTerms {
        mode: CheckpointMode::Signal,
        trigger: CheckpointTrigger::Automatic,
        directory: Some("/ckpt".to_owned()),
    };
    let terms = Terms {
        checkpoint: Some(terms),
        ..Terms::default()
    };
    let runs = world.runs_on("b1", terms).allocation;
    world.admin(Command::SetWalltime {
        id: runs,
        walltime_ms: 3_600_000,
    });
    runs
}

/// Work for one node that waits there.
async fn waits_in(world: &World, vcluster: &str) {
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
        class: 5,
        sensitive: false,
        constraints: Constraints::default(),
        requeue: Requeue::Never,
        hold: false,
        demand: Default::default(),
        terms: Terms::default(),
    };
    let spec = Box::new(spec);
    world.admin(Command::Submit { spec });
    fold(world).await;
}

async fn reports(world: &World, runs: AllocationId, report: RankReport) {
    world.service(Command::Report {
        id: runs,
        attempt: 1,
        node: id("a"),
        report,
    });
    fold(world).await;
}

#[tokio::test]
async fn an_owner_waits_for_the_checkpoint_that_is_being_written_and_for_no_other() {
    let world = World::new();
    let runs = lent(&world);
    waits_in(&world, "home").await;
    let mut borrow = Borrow::new(world.core.clone());
    assert_eq!(borrow.reconcile(&world.fence).await.recalled, 1);
    fold(&world).await;
    // Somebody has it write one, which may take an hour, just before the grace is over.
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
    let writing = world.allocation(runs).course.writing.unwrap();
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
    reports(&world, runs, RankReport::Checkpoint { of }).await;
    assert_eq!(world.allocation(runs).state, AllocationState::Stopping);
    let ended = RankReport::Ended {
        at: world.core.now(),
        exit: RankExit::Stopped,
        fault: None,
    };
    reports(&world, runs, ended).await;
    let left = world.allocation(runs);
    assert_eq!(left.state, AllocationState::Suspended);
    assert_eq!((left.course.checkpoints, left.course.preempted), (1, 1));
    assert_eq!(borrow.reconcile(&world.fence).await.returned, 1);
    assert_eq!(world.node().current, name("home"));
}

#[tokio::test]
async fn an_owner_waits_for_a_checkpoint_no_longer_than_its_borrower_gives_one() {
    let world = World::new();
    let runs = lent(&world);
    waits_in(&world, "home").await;
    world.admin(Command::SetVcluster {
        vcluster: name("default"),
        change: Box::new(VclusterPatch {
            profile: Some("checkpoint.timeout_ms=20000\n".to_owned()),
            ..VclusterPatch::default()
        }),
        expected_version: None,
    });
    fold(&world).await;
    let mut borrow = Borrow::new(world.core.clone());
    assert_eq!(borrow.reconcile(&world.fence).await.recalled, 1);
    fold(&world).await;
    tokio::time::sleep(GRACE).await;
    assert_eq!(borrow.reconcile(&world.fence).await.stopped, 1);
    let writing = world.allocation(runs).course.writing.unwrap();
    assert_eq!(writing.until.since(writing.asked_at), 20_000);
}

/// Whether it has settings or not; the node is of one of them, and idle, and the other has work for it.
#[tokio::test]
async fn what_nobody_has_defined_neither_lends_nor_borrows() {
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
        let mut borrow = Borrow::new(world.core.clone());
        let nothing = BorrowReport::default();
        assert_eq!(borrow.reconcile(&world.fence).await, nothing);
        let settings = [("weight.energy".to_owned(), "0.2".to_owned())];
        world.admin(Command::SetScheduler {
            vcluster: name("default"),
            change: Box::default(),
            settings: settings.into(),
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
