//! Handling of refused launches.

use super::Target;
use crate::{
    core::Core,
    error::ProposeError,
    observed_state, sanitize,
    tasks::{faults, lease::Lease, reboots},
};
use lattice_agent_rpc::LaunchRefused;
use lattice_quorum_types::{
    Allocation, AllocationState, Command, NodeId, Refusal,
    allocation::{RankExit, StopCause},
    command::Fence,
};
use lattice_view::View;
use parking_lot::Mutex;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// Number of boots within [`BOOTS_WITHIN`] above which a node is drained: no sound machine boots so often, and each
/// boot costs one attempt of a user's job.
const MAX_BOOTS: usize = 3;
/// See [`MAX_BOOTS`].
const BOOTS_WITHIN: Duration = Duration::from_secs(300);

/// Boot ids that nodes reported when refusing a launch, with the time of the first report.
#[derive(Debug, Default)]
pub(super) struct Boots(Mutex<BTreeMap<NodeId, Vec<(String, Instant)>>>);

impl Boots {
    /// Number of distinct boots that a node has reported recently, including this one.
    fn record_boot(&self, node: &NodeId, boot: &str, now: Instant) -> usize {
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

/// A refused launch, and whether an earlier launch may have started the rank.
pub(super) struct RefusedLaunch<'a> {
    pub(super) target: &'a Target,
    pub(super) refused: &'a LaunchRefused,
    /// No launch of this rank can have started a process.
    pub(super) never_started: bool,
}

/// Handles a refused launch. If the node has rebooted, the rank has ended. If the node cannot run any job, the node is
/// drained, and the allocation is stopped with the node fault as cause. Otherwise the allocation is stopped as failed.
/// A running allocation that grew onto the node releases the node instead. If handling fails, the launch is repeated
/// and refused again.
pub(super) async fn handle_refusal(
    core: &Core,
    lease: &Lease,
    fence: Fence,
    boots: &Boots,
    what: RefusedLaunch<'_>,
) {
    let RefusedLaunch {
        target, refused, ..
    } = what;
    let id = target.key.allocation;
    if let LaunchRefused::OtherBoot { expected, current } = refused
        && sanitize::is_boot_id(current)
    {
        let over = (expected.as_str(), current.as_str());
        other_boot(core, fence, boots, &what, over).await;
        return;
    }
    let view = core.view();
    let reason = refused.text(&|id| view.name_of(id));
    let cause = if is_fault_of_node(&view, &target.node, refused) {
        let reason = sanitize::shortened(reason);
        // Drain first, or the allocation would receive the same node again.
        if let Err(error) =
            faults::drain_for_fault(core, fence.clone(), &target.node, &reason).await
        {
            tracing::warn!(node = %target.node, %error, "node not drained yet; the launch is tried again");
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
                reason: sanitize::shortened(format!("node {}: {reason}", target.node)),
            },
        }
    };
    // A running allocation grew onto this node: it releases the node and continues without it.
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
        Err(ProposeError::Refused(Refusal::StaleEpoch { given, .. })) => {
            lease.report_expired(given)
        }
        // The allocation stopped for another reason meanwhile.
        Err(ProposeError::Refused(refusal)) => {
            tracing::debug!(%id, %refusal, "allocation not stopped")
        }
        Err(error) => {
            tracing::warn!(%id, %error, "allocation not stopped yet; the launch is tried again")
        }
    }
}

/// Handles a rank assigned under an earlier boot. The next assignment must name the current boot, so that boot is
/// published in the view before the end of the rank is reported.
async fn other_boot(
    core: &Core,
    fence: Fence,
    boots: &Boots,
    what: &RefusedLaunch<'_>,
    (then, now): (&str, &str),
) {
    let Target { node, key, .. } = what.target;
    let at = Instant::now();
    observed_state::boot(core, node, now, at);
    let named = boots.record_boot(node, now, at);
    if named > MAX_BOOTS {
        let reason =
            format!("node reported {named} boot ids within {BOOTS_WITHIN:?}, most recently {now}");
        if let Err(error) = faults::drain_for_fault(core, fence.clone(), node, &reason).await {
            tracing::warn!(%node, %error, "node not drained yet; the launch is tried again");
            return;
        }
    }
    let reported = match what.never_started {
        true => reboots::report_never_started(core, &fence, node, *key, (then, now)).await,
        false => reboots::report_refused(core, &fence, node, *key, (then, now)).await,
    };
    if let Err(error) = reported {
        tracing::warn!(id = %key.allocation, %error, "end of rank not reported yet; the launch \
            is tried again");
    }
}

/// Whether the agent would refuse any other job as well.
fn is_fault_of_node(view: &View, node: &NodeId, refused: &LaunchRefused) -> bool {
    match refused {
        LaunchRefused::JournalFailed { .. } | LaunchRefused::Blocked { .. } => true,
        LaunchRefused::UserNotAllowed { .. } => view
            .node(node)
            .is_some_and(|node| node.rejects_allocations()),
        // Only reached when the reported boot id is invalid.
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
            boots.record_boot(&id(node), boot, start + Duration::from_secs(s))
        };
        assert_eq!([named("a", "b1", 0), named("a", "b1", 1)], [1, 1]);
        assert_eq!([named("a", "b2", 2), named("b", "b1", 2)], [2, 1]);
        assert_eq!([named("a", "b3", 10), named("a", "b4", 20)], [3, 4]);
        assert_eq!(named("a", "b4", 305), 2);
    }
}
