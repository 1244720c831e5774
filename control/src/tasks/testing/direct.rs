//! Reconcilers with a real agent endpoint: what they do rests on its direct answers.

use super::{
    id,
    world::{NODE, World},
};
use crate::tasks::{
    attempts::Attempts,
    claims::Claims,
    faults,
    gate::{self, GateError},
    lease::Lease,
    node_loss::NodeLoss,
    orphans,
    reboots::Reboots,
    register::Register,
};
use lattice_hwprobe::{Class, ClassMark, Digest};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    AllocationState, Command, VclusterName,
    allocation::{RankExit, RankPhase, StopCause},
    command::ExpectedNode,
    node::Lifecycle,
    wire::{AttemptStatus, GateFailed},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

fn lease(world: &World) -> Arc<Lease> {
    Lease::new(world.fence.lease.clone(), "c1".to_owned())
}

#[tokio::test]
async fn a_rank_of_a_boot_that_is_over_is_lost_with_what_was_seen() {
    let world = World::new();
    let key = world.runs_under("b1");
    world.says.lock().unwrap().boot = "b2".to_owned();
    world.confirm_boot("b2");
    let report = Reboots::new(world.core.clone(), lease(&world))
        .reconcile(&world.fence)
        .await;
    assert_eq!((report.found, report.reported), (1, 1));
    let ended = world.allocation(key.allocation);
    let evidence = "node rebooted: boot b1 is over, b2 is".to_owned();
    assert!(
        matches!(&ended.ranks[0].phase, RankPhase::Ended { exit, .. }
            if *exit == RankExit::Lost { evidence }),
        "{ended:?}"
    );
    assert_eq!(ended.state, AllocationState::Failed);
    assert_eq!(world.node().holder, None);
}

/// Another control pinged the node after this one did, and assigned work under its new boot.
#[tokio::test]
async fn a_view_older_than_the_assignment_loses_nothing() {
    let world = World::new();
    let key = world.runs_under("b2");
    world.says.lock().unwrap().boot = "b2".to_owned();
    let report = Reboots::new(world.core.clone(), lease(&world))
        .reconcile(&world.fence)
        .await;
    assert_eq!((report.found, report.reported), (1, 0));
    let runs = world.allocation(key.allocation);
    assert_eq!(runs.state, AllocationState::Running);
}

#[tokio::test]
async fn what_runs_for_its_holder_is_no_orphan_and_passes_the_gate() {
    let world = World::new();
    let key = world.runs_under("b1");
    let report = None;
    world.says.lock().unwrap().attempts = vec![AttemptStatus { key, report }];
    let node = id(NODE);
    assert_eq!(orphans::of(&world.core, &node).await.unwrap(), []);
    assert!(gate::check(&world.core, &node).await.is_ok());
    world.says.lock().unwrap().gate = Err(GateFailed {
        reason: "exit code 3: a link is down".to_owned(),
    });
    let failed = gate::check(&world.core, &node).await.unwrap_err();
    assert!(failed.to_string().contains("a link is down"), "{failed}");
}

#[tokio::test]
async fn an_orphan_is_ended_and_its_node_kept_out_until_it_is_gone() {
    let world = World::new();
    let key = world.runs_under("b1");
    let report = None;
    world.says.lock().unwrap().attempts = vec![AttemptStatus { key, report }];
    let mut attempts = Attempts::new(world.core.clone(), lease(&world));
    let quiet = attempts.reconcile(&world.fence).await;
    assert_eq!((quiet.asked, quiet.orphans, quiet.stopped), (1, 0, 0));
    world.admin(Command::ForceRelease {
        node: id(NODE),
        reason: "the rack is on fire".to_owned(),
        expected: None,
    });
    world.fold();
    let found = attempts.reconcile(&world.fence).await;
    assert_eq!((found.asked, found.orphans), (1, 1));
    assert_eq!(world.says.lock().unwrap().terminated, [key]);
    let owners = |world: &World| -> Vec<String> {
        let drains = world.node().drain.into_iter();
        drains.map(|drain| drain.owner).collect()
    };
    assert_eq!(owners(&world), ["root", faults::OWNER]);
    let refused = gate::check(&world.core, &id(NODE)).await.unwrap_err();
    assert!(
        matches!(&refused, GateError::StillRuns { attempts, .. } if *attempts == [key]),
        "{refused}"
    );
    world.says.lock().unwrap().attempts.clear();
    assert!(gate::check(&world.core, &id(NODE)).await.is_ok());
}

#[tokio::test]
async fn a_lost_record_stops_the_allocation_and_frees_nothing() {
    let world = World::new();
    let key = world.runs_under("b1");
    let report = Attempts::new(world.core.clone(), lease(&world))
        .reconcile(&world.fence)
        .await;
    assert_eq!(report.stopped, 1);
    let stopping = world.allocation(key.allocation);
    assert_eq!(stopping.state, AllocationState::Stopping);
    let node = id(NODE);
    assert_eq!(stopping.stop, Some(StopCause::NodeLost { node }));
    assert!(world.node().holder.is_some());
}

#[tokio::test]
async fn only_a_node_unreachable_for_long_has_its_work_stopped_and_keeps_it() {
    let world = World::new();
    let key = world.runs_under("b1");
    let state = || world.allocation(key.allocation).state;
    let mut loss = NodeLoss::new(world.core.clone(), lease(&world), Duration::ZERO);
    assert_eq!(loss.reconcile(&world.fence).await, 0);
    world.calls_it(Liveness::Suspect);
    assert_eq!(loss.reconcile(&world.fence).await, 0);
    // Nobody reaches it where gossip says it is, but there is a connection with it.
    assert!(gate::check(&world.core, &id(NODE)).await.is_ok());
    world.calls_it(Liveness::Unreachable);
    assert_eq!(loss.reconcile(&world.fence).await, 0);
    world.hangs_up().await;
    assert_eq!(loss.reconcile(&world.fence).await, 1);
    assert_eq!(state(), AllocationState::Stopping);
    assert!(world.node().holder.is_some());
    let mut patient = NodeLoss::new(world.core.clone(), lease(&world), Duration::from_secs(600));
    assert_eq!(patient.reconcile(&world.fence).await, 0);
}

#[tokio::test]
async fn a_node_joins_when_its_gate_lets_it_and_says_why_when_not() {
    let world = World::new();
    let node = id(NODE);
    let lifecycle = Lifecycle::Joining;
    world.admin(Command::SetLifecycle { node, lifecycle });
    world.fold();
    world.is_read();
    let vcluster = VclusterName::new("default").unwrap();
    let mut register = Register::new(world.core.clone(), lease(&world), vcluster);
    let reason = "exit code 3: a link is down".to_owned();
    world.says.lock().unwrap().gate = Err(GateFailed { reason });
    assert_eq!(register.reconcile(), 1);
    let answered = register.answered().await;
    let report = register.admit(world.fence.clone(), answered).await;
    assert_eq!((report.failed, report.readied.len()), (1, 0));
    let joining = world.node();
    assert_eq!(joining.lifecycle, Lifecycle::Joining);
    assert!(joining.drain[0].reason.contains("a link is down"));
    world.fold();
    // Not asked again and again: a gate may be a program that takes minutes.
    assert_eq!(register.reconcile(), 0);
    world.says.lock().unwrap().gate = Ok(());
    let vcluster = VclusterName::new("default").unwrap();
    let mut register = Register::new(world.core.clone(), lease(&world), vcluster);
    assert_eq!(register.reconcile(), 1);
    let answered = register.answered().await;
    let report = register.admit(world.fence.clone(), answered).await;
    assert_eq!(report.readied, [id(NODE)]);
    assert!(world.node().is_assignable());
}

/// The node as an assignment names it, planned on these digests.
fn planned(world: &World, digest: u8) -> Vec<ExpectedNode> {
    let digest = Digest([digest; 32]);
    let mark = ClassMark::Complete { schema: 1, digest };
    world.gossips(BTreeMap::from([(Class::Gpu, mark)]));
    vec![ExpectedNode {
        node: id(NODE),
        version: world.node().version,
        boot: Some("b1".to_owned()),
    }]
}

#[tokio::test]
async fn sensitive_work_waits_for_the_nodes_own_claim() {
    let world = World::new();
    let digests = BTreeMap::from([(Class::Gpu.to_string(), [1; 32])]);
    world.says.lock().unwrap().digests = digests;
    let nodes = planned(&world, 1);
    let mut claims = Claims::new(world.core.clone());
    assert!(!claims.confirm(&world.core.view(), &nodes));
    claims.answered().await;
    assert!(claims.confirm(&world.core.view(), &nodes));
    // A forged digest, or one that is out of date: what was planned on is not what it is.
    let nodes = planned(&world, 2);
    assert!(!claims.confirm(&world.core.view(), &nodes));
    let view = world.core.view();
    let refused = view.node(&id(NODE)).unwrap().claim_refused.clone();
    assert!(refused.unwrap().contains("other digests"));
}
