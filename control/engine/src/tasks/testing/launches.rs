//! Tests of launches on a node that reboots, with a real agent endpoint. An attempt that certainly never started does
//! not count; an attempt that may have started does.

use super::{
    id,
    world::{NODE, World},
};
use crate::tasks::{dispatch::Dispatch, faults, lease::Lease, reboots};
use lattice_quorum_types::{
    Allocation, AllocationState,
    allocation::RankPhase,
    command::Fence,
    node::Lifecycle,
    spec::{Constraints, Requeue},
};
use std::sync::Arc;
use tokio::time::Instant;

/// A dispatcher that has held its lease since before any assignment.
pub struct DispatcherFixture {
    pub world: World,
    lease: Arc<Lease>,
    dispatch: Dispatch,
    pub fence: Fence,
}

impl DispatcherFixture {
    pub async fn new() -> Self {
        let world = World::new();
        let lease = Lease::new(world.fence.lease.clone(), "c1".to_owned());
        lease.reconcile(&world.core).await;
        let fence = lease.fence().unwrap();
        world.fold();
        let mut fixture = Self {
            dispatch: Dispatch::new(world.core.clone(), lease.clone(), world.checkpoints.clone()),
            world,
            lease,
            fence,
        };
        fixture.round().await;
        fixture
    }

    /// Discards the dispatcher state, as with another dispatcher under the same lease.
    pub async fn replace_dispatcher(&mut self) {
        self.dispatch = Dispatch::new(
            self.world.core.clone(),
            self.lease.clone(),
            self.world.checkpoints.clone(),
        );
        self.round().await;
    }

    pub async fn round(&mut self) {
        self.dispatch.round(&self.fence).await;
        self.world.fold();
    }

    fn set_boot(&self, boot: &str) {
        self.world.agent_answers.lock().unwrap().boot = boot.to_owned();
    }

    pub fn set_loses_replies(&self, is_so: bool) {
        self.world.agent_answers.lock().unwrap().loses_replies = is_so;
    }

    fn started_attempts(&self) -> usize {
        self.world.agent_answers.lock().unwrap().started.len()
    }

    /// Boot id that the next assignment would name.
    fn shown_boot(&self) -> Option<String> {
        self.world.core.view().node(&id(NODE))?.boot.clone()
    }
}

fn exit(allocation: &Allocation) -> String {
    match &allocation.ranks[0].phase {
        RankPhase::Ended { exit, .. } => exit.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_agent_hears_how_many_gpus_work_uses() {
    for (asked, gpu_counts) in [(Some(4), vec![4]), (None, vec![]), (Some(0), vec![])] {
        let mut fixture = DispatcherFixture::new().await;
        let constraints = Constraints {
            gpus_per_node: asked,
            ..Constraints::default()
        };
        let allocation = fixture
            .world
            .submit_with_constraints(Requeue::Never, constraints);
        fixture.world.assign(allocation, "b1");
        fixture.round().await;
        assert_eq!(fixture.started_attempts(), 1, "{asked:?}");
        assert_eq!(fixture.world.agent_answers.lock().unwrap().gpus, gpu_counts);
    }
}

#[tokio::test]
async fn assignment_under_old_boot_is_requeued() {
    let mut fixture = DispatcherFixture::new().await;
    let allocation = fixture.world.submit(Requeue::Never);
    let before = Instant::now();
    fixture.set_boot("b2");
    fixture.world.assign(allocation, "b1");
    fixture.round().await;
    let waits = fixture.world.allocation(allocation);
    assert_eq!(waits.state, AllocationState::Pending, "{waits:?}");
    let exit = exit(&waits);
    assert_eq!(
        exit,
        "lost: never started: node rebooted before the launch was accepted (boot id b2, expected b1)"
    );
    // The next assignment names the current boot, without a ping in between. An answer to an older ping handled now
    // does not undo that.
    assert_eq!(fixture.shown_boot().as_deref(), Some("b2"));
    fixture.world.record_ping_at("b1", before);
    assert_eq!(fixture.shown_boot().as_deref(), Some("b2"));
    assert!(reboots::is_boot_known_over(&waits, &id(NODE), "b1"));
    assert!(!reboots::is_boot_known_over(&waits, &id(NODE), "b2"));
    fixture.world.assign(allocation, "b2");
    fixture.round().await;
    assert_eq!(fixture.started_attempts(), 1);
    let starting = fixture.world.allocation(allocation);
    assert_eq!(
        (starting.state, starting.attempt),
        (AllocationState::Starting, 2)
    );
}

#[tokio::test]
async fn started_under_the_old_boot_with_the_reply_lost_it_counts() {
    for (requeue, wanted) in [
        (Requeue::Never, AllocationState::Failed),
        (Requeue::Once, AllocationState::Pending),
    ] {
        let mut fixture = DispatcherFixture::new().await;
        let allocation = fixture.world.submit(requeue);
        fixture.world.assign(allocation, "b1");
        fixture.set_loses_replies(true);
        fixture.round().await;
        assert_eq!(fixture.started_attempts(), 1);
        let state = fixture.world.allocation(allocation).state;
        assert_eq!(state, AllocationState::Starting);
        // The machine reboots and has lost its disk: its agent has no record of the attempt.
        fixture.set_loses_replies(false);
        fixture.set_boot("b2");
        fixture.round().await;
        let ended = fixture.world.allocation(allocation);
        assert_eq!(ended.state, wanted, "{ended:?}");
        assert_eq!(
            exit(&ended),
            "lost: node has rebooted since the assignment (boot id b2, expected b1)"
        );
        assert_eq!(fixture.shown_boot().as_deref(), Some("b2"));
        assert!(!reboots::is_boot_known_over(&ended, &id(NODE), "b1"));
    }
}

#[tokio::test]
async fn started_under_the_old_boot_and_answered_it_counts() {
    let mut fixture = DispatcherFixture::new().await;
    let allocation = fixture.world.submit(Requeue::Never);
    fixture.world.assign(allocation, "b1");
    fixture.round().await;
    assert_eq!(fixture.started_attempts(), 1);
    fixture.set_boot("b2");
    fixture.round().await;
    let ended = fixture.world.allocation(allocation);
    assert_eq!(ended.state, AllocationState::Failed);
}

/// Another dispatcher may have launched the attempt before this dispatcher started.
#[tokio::test]
async fn what_was_assigned_before_this_dispatcher_looked_counts() {
    let mut fixture = DispatcherFixture::new().await;
    let allocation = fixture.world.submit(Requeue::Never);
    fixture.set_boot("b2");
    fixture.world.assign(allocation, "b1");
    fixture.replace_dispatcher().await;
    let ended = fixture.world.allocation(allocation);
    assert_eq!(ended.state, AllocationState::Failed);
    assert_eq!(
        exit(&ended),
        "lost: node has rebooted since the assignment (boot id b2, expected b1)"
    );
}

#[tokio::test]
async fn a_lease_that_was_granted_after_the_assignment_makes_nothing_certain() {
    let mut fixture = DispatcherFixture::new().await;
    let allocation = fixture.world.submit(Requeue::Never);
    fixture.set_boot("b2");
    fixture.world.assign(allocation, "b1");
    fixture.lease.release(&fixture.world.core).await;
    fixture.lease.reconcile(&fixture.world.core).await;
    fixture.fence = fixture.lease.fence().unwrap();
    fixture.round().await;
    let ended = fixture.world.allocation(allocation);
    assert_eq!(ended.state, AllocationState::Failed);
}

/// An unanswered ping starts nothing. While another dispatcher holds the lease, its launches are unknown.
#[tokio::test]
async fn what_was_never_sent_is_certain_until_the_lease_changes_hands() {
    for (changes_hands, wanted) in [
        (false, AllocationState::Pending),
        (true, AllocationState::Failed),
    ] {
        let mut fixture = DispatcherFixture::new().await;
        let allocation = fixture.world.submit(Requeue::Never);
        fixture.world.agent_answers.lock().unwrap().silent = true;
        fixture.world.assign(allocation, "b1");
        fixture.round().await;
        let state = fixture.world.allocation(allocation).state;
        assert_eq!(
            (state, fixture.started_attempts()),
            (AllocationState::Starting, 0)
        );
        if changes_hands {
            fixture.lease.release(&fixture.world.core).await;
            fixture.lease.reconcile(&fixture.world.core).await;
            fixture.fence = fixture.lease.fence().unwrap();
        }
        fixture.world.agent_answers.lock().unwrap().silent = false;
        fixture.set_boot("b2");
        fixture.round().await;
        let state = fixture.world.allocation(allocation).state;
        assert_eq!(state, wanted, "changes hands: {changes_hands}");
    }
}

#[tokio::test]
async fn a_node_that_is_another_boot_each_time_is_kept_out() {
    let mut fixture = DispatcherFixture::new().await;
    let allocation = fixture.world.submit(Requeue::Never);
    fixture
        .world
        .agent_answers
        .lock()
        .unwrap()
        .reboots_at_each_ping = true;
    let mut attempts = 0;
    while fixture.world.node().is_assignable() {
        let boot = fixture.shown_boot().unwrap();
        fixture.world.assign(allocation, &boot);
        fixture.round().await;
        attempts += 1;
        assert!(attempts < 10);
    }
    assert_eq!((attempts, fixture.started_attempts()), (4, 0));
    let node = fixture.world.node();
    assert_eq!(node.lifecycle, Lifecycle::Drained);
    assert_eq!(node.drain[0].owner, faults::OWNER);
    let reason = &node.drain[0].reason;
    assert!(
        reason.contains("node reported 4 boot ids within 300s"),
        "{reason}"
    );
    // The allocation is not lost.
    let waits = fixture.world.allocation(allocation);
    assert_eq!(waits.state, AllocationState::Pending);
}
