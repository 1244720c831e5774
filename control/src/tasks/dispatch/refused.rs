//! What follows when an agent will not start a rank.

use super::Target;
use crate::{
    core::Core,
    error::ProposeError,
    observe,
    tasks::{faults, lease::Lease, reboots},
    view::View,
    words,
};
use lattice_quorum_types::{
    Allocation, AllocationState, Command, NodeId, Refusal,
    allocation::{RankExit, StopCause},
    command::Fence,
    wire::LaunchRefused,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// A node that names more boots than this within [`BOOTS_WITHIN`] is kept out: no machine is booted
/// so often and is well, and each of its boots costs an attempt of somebody's work.
const MAX_BOOTS: usize = 3;
/// See [`MAX_BOOTS`].
const BOOTS_WITHIN: Duration = Duration::from_secs(300);

/// The boots that nodes named when they refused a launch, and when first.
#[derive(Debug, Default)]
pub(super) struct Boots(Mutex<BTreeMap<NodeId, Vec<(String, Instant)>>>);

impl Boots {
    /// How many boots a node has named of late, with this one.
    fn named(&self, node: &NodeId, boot: &str, now: Instant) -> usize {
        let mut all = self.0.lock();
        let is_late = |at: Instant| now.saturating_duration_since(at) < BOOTS_WITHIN;
        all.retain(|_, named| {
            named.retain(|(_, at)| is_late(*at));
            !named.is_empty()
        });
        let named = all.entry(node.clone()).or_default();
        if !named.iter().any(|(known, _)| known == boot) {
            named.push((boot.to_owned(), now));
        }
        named.len()
    }
}

/// What the dispatcher knows of a refused launch.
pub(super) struct Refused<'a> {
    pub(super) target: &'a Target,
    pub(super) refused: &'a LaunchRefused,
    /// No launch of this rank can have started anything.
    pub(super) never_started: bool,
}

/// An agent will not start a rank. Where its node was booted anew the rank has ended; where the node
/// cannot run anything, it is kept out and the allocation put back; else the allocation cannot run as
/// it is. When this fails the launch is tried again, and refused again.
pub(super) async fn act(
    core: &Core,
    lease: &Lease,
    fence: Fence,
    boots: &Boots,
    what: Refused<'_>,
) {
    let Refused {
        target, refused, ..
    } = what;
    let id = target.key.allocation;
    if let LaunchRefused::OtherBoot { expected, current } = refused
        && words::is_boot_id(current)
    {
        let over = (expected.as_str(), current.as_str());
        other_boot(core, fence, boots, &what, over).await;
        return;
    }
    let cause = if is_fault_of_node(&core.view(), &target.node, refused) {
        let reason = words::shortened(refused.to_string());
        // First, or the allocation would get the same node again.
        if let Err(error) = faults::keep_out(core, fence.clone(), &target.node, &reason).await {
            tracing::warn!(node = %target.node, %error, "not kept out yet; the launch is tried again");
            return;
        }
        StopCause::NodeFault {
            node: target.node.clone(),
            reason,
        }
    } else {
        StopCause::RankFailed {
            rank: target.rank,
            exit: RankExit::SpawnFailed {
                reason: words::shortened(format!("node {}: {refused}", target.node)),
            },
        }
    };
    // What runs grew onto this node: it gives it back, and goes on as it was.
    let grew = |allocation: &Allocation| allocation.state == AllocationState::Running;
    let view = core.view();
    let command = match view.allocation(id).is_some_and(|a| grew(a)) {
        true => Command::Shrink {
            id,
            nodes: vec![target.node.clone()],
        },
        false => Command::Stop { id, cause },
    };
    match core.propose_as_service(Some(fence), command).await {
        Ok(_) => {}
        Err(ProposeError::Refused(Refusal::StaleEpoch { given, .. })) => lease.is_over(given),
        // It stopped for another reason in the meantime.
        Err(ProposeError::Refused(refusal)) => tracing::debug!(%id, %refusal, "not stopped"),
        Err(error) => tracing::warn!(%id, %error, "not stopped yet; the launch is tried again"),
    }
}

/// The boot that the rank was assigned under is over. Its next assignment must name the one that is,
/// so that is shown before the allocation can wait again.
async fn other_boot(
    core: &Core,
    fence: Fence,
    boots: &Boots,
    what: &Refused<'_>,
    (then, now): (&str, &str),
) {
    let Target { node, key, .. } = what.target;
    let at = Instant::now();
    observe::boot(core, node, now, at);
    let named = boots.named(node, now, at);
    if named > MAX_BOOTS {
        let reason = format!("it named {named} boots within {BOOTS_WITHIN:?}, {now} at last");
        if let Err(error) = faults::keep_out(core, fence.clone(), node, &reason).await {
            tracing::warn!(%node, %error, "not kept out yet; the launch is tried again");
            return;
        }
    }
    let reported = match what.never_started {
        true => reboots::report_never_started(core, &fence, node, *key, (then, now)).await,
        false => reboots::report_refused(core, &fence, node, *key, (then, now)).await,
    };
    if let Err(error) = reported {
        tracing::warn!(id = %key.allocation, %error, "a rank's end is not reported yet; the launch is tried again");
    }
}

/// Whether the agent would refuse any other work as well.
fn is_fault_of_node(view: &View, node: &NodeId, refused: &LaunchRefused) -> bool {
    match refused {
        LaunchRefused::JournalFailed { .. } => true,
        LaunchRefused::UserNotAllowed { .. } => {
            view.node(node).is_some_and(|node| node.takes_no_work())
        }
        // It is only asked where what it names as its boot is none.
        LaunchRefused::OtherBoot { .. } => true,
        LaunchRefused::StaleEpoch { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::id;

    #[test]
    fn boots_are_counted_once_each_and_for_a_while() {
        let (boots, start) = (Boots::default(), Instant::now());
        let named = |node: &str, boot: &str, s: u64| {
            boots.named(&id(node), boot, start + Duration::from_secs(s))
        };
        assert_eq!([named("a", "b1", 0), named("a", "b1", 1)], [1, 1]);
        assert_eq!([named("a", "b2", 2), named("b", "b1", 2)], [2, 1]);
        assert_eq!([named("a", "b3", 10), named("a", "b4", 20)], [3, 4]);
        assert_eq!(named("a", "b4", 305), 2);
    }
}
