//! Launches against a real agent endpoint that is booted anew: what is certain to have started
//! nothing counts for nothing, and what may have started something counts.

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

/// A dispatcher that has held its lease since before anything is assigned.
pub(super) struct Bed {
    pub(super) world: World,
    lease: Arc<Lease>,
    dispatch: Dispatch,
    pub(super) fence: Fence,
}

impl Bed {
    pub(super) async fn new() -> Self {
        let world = World::new();
        let lease = Lease::new(world.fence.lease.clone(), "c1".to_owned());
        lease.reconcile(&world.core).await;
        let fence = lease.fence().unwrap();
        world.fold();
        let mut bed = Self {
            dispatch: Dispatch::new(world.core.clone(), lease.clone()),
            world,
            lease,
            fence,
        };
        bed.round().await;
        bed
    }

    /// What was held before is forgotten, as with another dispatcher under the same lease.
    pub(super) async fn another(&mut self) {
        self.dispatch = Dispatch::new(self.world.core.clone(), self.lease.clone());
        self.round().await;
    }

    pub(super) async fn round(&mut self) {
        self.dispatch.round(&self.fence).await;
        self.world.fold();
    }

    fn boots(&self, boot: &str) {
        self.world.says.lock().unwrap().boot = boot.to_owned();
    }

    pub(super) fn loses_replies(&self, is_so: bool) {
        self.world.says.lock().unwrap().loses_replies = is_so;
    }

    fn begun(&self) -> usize {
        self.world.says.lock().unwrap().began.len()
    }

    /// The boot that the next assignment would name.
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
    for (asked, told) in [(Some(4), vec![4]), (None, vec![]), (Some(0), vec![])] {
        let mut bed = Bed::new().await;
        let constraints = Constraints {
            gpus_per_node: asked,
            ..Constraints::default()
        };
        let allocation = bed.world.waits_for(Requeue::Never, constraints);
        bed.world.assign(allocation, "b1");
        bed.round().await;
        assert_eq!(bed.begun(), 1, "{asked:?}");
        assert_eq!(bed.world.says.lock().unwrap().gpus, told);
    }
}

#[tokio::test]
async fn what_was_assigned_under_a_boot_that_was_over_waits_again_and_counts_for_nothing() {
    let mut bed = Bed::new().await;
    let allocation = bed.world.waits(Requeue::Never);
    let before = Instant::now();
    bed.boots("b2");
    bed.world.assign(allocation, "b1");
    bed.round().await;
    let waits = bed.world.allocation(allocation);
    assert_eq!(waits.state, AllocationState::Pending, "{waits:?}");
    let exit = exit(&waits);
    assert_eq!(
        exit,
        "lost: never started: boot b1 was over before a launch was taken, b2 is"
    );
    // The next assignment names the boot that is, without a ping in between. An answer to an older
    // ping that is taken down now does not undo that.
    assert_eq!(bed.shown_boot().as_deref(), Some("b2"));
    bed.world.heard_of_boot("b1", before);
    assert_eq!(bed.shown_boot().as_deref(), Some("b2"));
    assert!(reboots::is_known_over(&waits, &id(NODE), "b1"));
    assert!(!reboots::is_known_over(&waits, &id(NODE), "b2"));
    bed.world.assign(allocation, "b2");
    bed.round().await;
    assert_eq!(bed.begun(), 1);
    let starting = bed.world.allocation(allocation);
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
        let mut bed = Bed::new().await;
        let allocation = bed.world.waits(requeue);
        bed.world.assign(allocation, "b1");
        bed.loses_replies(true);
        bed.round().await;
        assert_eq!(bed.begun(), 1);
        let state = bed.world.allocation(allocation).state;
        assert_eq!(state, AllocationState::Starting);
        // The machine comes up anew and has lost its disk: it knows nothing of it.
        bed.loses_replies(false);
        bed.boots("b2");
        bed.round().await;
        let ended = bed.world.allocation(allocation);
        assert_eq!(ended.state, wanted, "{ended:?}");
        assert_eq!(exit(&ended), "lost: node rebooted: boot b1 is over, b2 is");
        assert_eq!(bed.shown_boot().as_deref(), Some("b2"));
        assert!(!reboots::is_known_over(&ended, &id(NODE), "b1"));
    }
}

#[tokio::test]
async fn started_under_the_old_boot_and_answered_it_counts() {
    let mut bed = Bed::new().await;
    let allocation = bed.world.waits(Requeue::Never);
    bed.world.assign(allocation, "b1");
    bed.round().await;
    assert_eq!(bed.begun(), 1);
    bed.boots("b2");
    bed.round().await;
    let ended = bed.world.allocation(allocation);
    assert_eq!(ended.state, AllocationState::Failed);
}

/// Another dispatcher may have launched it: this one cannot know that it did not.
#[tokio::test]
async fn what_was_assigned_before_this_dispatcher_looked_counts() {
    let mut bed = Bed::new().await;
    let allocation = bed.world.waits(Requeue::Never);
    bed.boots("b2");
    bed.world.assign(allocation, "b1");
    bed.another().await;
    let ended = bed.world.allocation(allocation);
    assert_eq!(ended.state, AllocationState::Failed);
    assert_eq!(exit(&ended), "lost: node rebooted: boot b1 is over, b2 is");
}

#[tokio::test]
async fn a_lease_that_was_granted_after_the_assignment_makes_nothing_certain() {
    let mut bed = Bed::new().await;
    let allocation = bed.world.waits(Requeue::Never);
    bed.boots("b2");
    bed.world.assign(allocation, "b1");
    bed.lease.give_back(&bed.world.core).await;
    bed.lease.reconcile(&bed.world.core).await;
    bed.fence = bed.lease.fence().unwrap();
    bed.round().await;
    let ended = bed.world.allocation(allocation);
    assert_eq!(ended.state, AllocationState::Failed);
}

/// A ping that is not answered starts nothing; what another dispatcher did meanwhile is not known.
#[tokio::test]
async fn what_was_never_sent_is_certain_until_the_lease_changes_hands() {
    for (changes_hands, wanted) in [
        (false, AllocationState::Pending),
        (true, AllocationState::Failed),
    ] {
        let mut bed = Bed::new().await;
        let allocation = bed.world.waits(Requeue::Never);
        bed.world.says.lock().unwrap().silent = true;
        bed.world.assign(allocation, "b1");
        bed.round().await;
        let state = bed.world.allocation(allocation).state;
        assert_eq!((state, bed.begun()), (AllocationState::Starting, 0));
        if changes_hands {
            bed.lease.give_back(&bed.world.core).await;
            bed.lease.reconcile(&bed.world.core).await;
            bed.fence = bed.lease.fence().unwrap();
        }
        bed.world.says.lock().unwrap().silent = false;
        bed.boots("b2");
        bed.round().await;
        let state = bed.world.allocation(allocation).state;
        assert_eq!(state, wanted, "changes hands: {changes_hands}");
    }
}

#[tokio::test]
async fn a_node_that_is_another_boot_each_time_is_kept_out() {
    let mut bed = Bed::new().await;
    let allocation = bed.world.waits(Requeue::Never);
    bed.world.says.lock().unwrap().flaps = true;
    let mut attempts = 0;
    while bed.world.node().is_assignable() {
        let boot = bed.shown_boot().unwrap();
        bed.world.assign(allocation, &boot);
        bed.round().await;
        attempts += 1;
        assert!(attempts < 10);
    }
    assert_eq!((attempts, bed.begun()), (4, 0));
    let node = bed.world.node();
    assert_eq!(node.lifecycle, Lifecycle::Drained);
    assert_eq!(node.drain[0].owner, faults::OWNER);
    let reason = &node.drain[0].reason;
    assert!(reason.contains("it named 4 boots within 300s"), "{reason}");
    // The work is not lost for it.
    let waits = bed.world.allocation(allocation);
    assert_eq!(waits.state, AllocationState::Pending);
}
