//! Fault drains of the dispatcher: nodes are drained because they cannot run any job, run orphaned attempts or reboot
//! too often, and readmitted once they pass the checks.

use crate::{
    core::Core,
    error::ProposeError,
    keyed_tasks::{KeyedTasks, PanickedTask},
    sanitize,
    tasks::{
        node_evidence::{Freshness, NodeAccess},
        readmission::{self, ReportedFailure},
        reconciler::{Reconciler, ReconcilerPace},
    },
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Applied, Command, Envelope, NodeId, Revision, UnixMillis,
    command::{Fence, Principal, Privilege},
    node::Lifecycle,
};
use lattice_view::{NodeEntry, View};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Owner of the drain reason. The owner is the same for every control, so that any control can clear the reason.
pub(crate) const OWNER: &str = "service:dispatch";
/// Owner of drain reasons set by failed site hooks, as the quorum writes it.
pub const HOOKS_OWNER: &str = "service:hooks";
/// Longest time between two passes.
const PERIOD: Duration = Duration::from_secs(5);
/// Shortest time between two passes; no caller waits for this reconciler.
const SPACING: Duration = Duration::from_secs(1);
/// Maximum number of nodes queried concurrently.
const MAX_CALLS: usize = 64;

/// Drains a node for a fault, under the drain reason of the dispatcher. Nothing is written if the view already shows
/// that reason.
pub(crate) async fn drain_for_fault(
    core: &Core,
    fence: Fence,
    node: &NodeId,
    reason: &str,
) -> Result<(), ProposeError> {
    let reason = sanitize::shortened(format!("takes no work: {reason}"));
    let view = core.view();
    if view.node(node).and_then(|entry| own_reason(entry)) == Some(&reason) {
        return Ok(());
    }
    tracing::warn!(%node, reason, "node cannot run allocations; drained");
    let envelope = drain_envelope(core, fence, node, Some(reason));
    propose_envelope(core, envelope).await.map(|_| ())
}

/// Command that sets or clears the dispatcher's own drain reason.
pub(crate) fn drain_envelope(
    core: &Core,
    fence: Fence,
    node: &NodeId,
    reason: Option<String>,
) -> Envelope {
    envelope(core, OWNER, fence, node, reason, None)
}

/// Service principal under the name that owns its drain reasons.
pub(crate) fn principal(owner: &str) -> Principal {
    Principal {
        name: owner.to_owned(),
        privilege: Privilege::Service,
    }
}

/// Command that sets or clears a service's drain reason of a node. With `expected`, it applies only while the node
/// record has this revision.
pub(crate) fn envelope(
    core: &Core,
    owner: &str,
    fence: Fence,
    node: &NodeId,
    reason: Option<String>,
    expected: Option<Revision>,
) -> Envelope {
    let command = Command::Drain {
        node: node.clone(),
        reason: reason.map(sanitize::shortened),
        expected,
    };
    core.envelope(principal(owner), None, Some(fence), command)
}

/// Proposes one command and returns its result.
pub(crate) async fn propose_envelope(
    core: &Core,
    envelope: Envelope,
) -> Result<Applied, ProposeError> {
    Ok(core.propose_one(envelope).await??)
}

/// Clears the drain reason set by a failed site hook, after an operator's check and the gate. No reconciler does this,
/// because the failed hook may be the one that wipes the node.
pub async fn clear_hooks(
    core: &Core,
    node: &NodeId,
    expected: Option<Revision>,
) -> Result<Applied, ProposeError> {
    let command = Command::Drain {
        node: node.clone(),
        reason: None,
        expected,
    };
    core.propose(principal(HOOKS_OWNER), None, command).await
}

/// Drain reason that the dispatcher has set on a node.
pub(crate) fn own_reason(entry: &NodeEntry) -> Option<&str> {
    reason_of(entry, OWNER)
}

/// Drain reason that an owner has set on a node.
pub(crate) fn reason_of<'e>(entry: &'e NodeEntry, owner: &str) -> Option<&'e str> {
    let mut drains = entry.record.iter().flat_map(|record| &record.drain);
    let own = drains.find(|drain| drain.owner == owner)?;
    Some(&own.reason)
}

/// Reconciler that readmits nodes with a drain reason of the dispatcher.
#[derive(Debug)]
pub struct Readmit {
    nodes: NodeAccess,
    /// When each node is queried next.
    next: BTreeMap<NodeId, Instant>,
    /// Reason last written for each node that does not pass.
    reported: BTreeMap<NodeId, ReportedFailure>,
    /// Nodes with a query under way. A slow node delays no other.
    asking: BTreeSet<NodeId>,
    queries: KeyedTasks<NodeId, QueriedFault>,
}

/// A queried node and the reason now written for it.
type QueriedFault = (NodeId, Option<ReportedFailure>);

impl Reconciler for Readmit {
    const NAME: &'static str = "readmit";

    fn pace(&self) -> ReconcilerPace {
        let kept_out = self.nodes.core.timings.min_exclusion;
        ReconcilerPace {
            period: PERIOD.min(kept_out),
            spacing: SPACING.min(kept_out),
        }
    }

    async fn pass(&mut self, fence: Fence) {
        while let Some(ended) = self.queries.try_join_next() {
            self.take(ended);
        }
        let view = self.nodes.core.view();
        for node in self.due(&view, Instant::now()) {
            let said = self.reported.get(&node).copied();
            let (nodes, view, fence) = (self.nodes.clone(), view.clone(), fence.clone());
            self.asking.insert(node.clone());
            self.queries.spawn(node.clone(), async move {
                let said = check_admission(&nodes, &view, fence, &node, said).await;
                (node, said)
            });
        }
    }

    fn forget(&mut self) {
        self.queries = KeyedTasks::new();
        self.asking.clear();
        self.next.clear();
    }
}

impl Readmit {
    /// New [`Readmit`]; it does nothing until it is run.
    pub fn new(nodes: NodeAccess) -> Self {
        Self {
            nodes,
            next: BTreeMap::new(),
            reported: BTreeMap::new(),
            asking: BTreeSet::new(),
            queries: KeyedTasks::new(),
        }
    }

    fn take(&mut self, ended: Result<QueriedFault, PanickedTask<NodeId>>) {
        match ended {
            Ok((node, said)) => {
                self.asking.remove(&node);
                self.reported.extend(said.map(|said| (node, said)));
            }
            // The next query of the node is scheduled already.
            Err(PanickedTask { key: node, error }) => {
                tracing::error!(%node, %error, "node query task panicked");
                self.asking.remove(&node);
            }
        }
    }

    /// Returns the nodes to query now and schedules their next query.
    fn due(&mut self, view: &View, now: Instant) -> Vec<NodeId> {
        let timings = &self.nodes.core.timings;
        let found = recovered(view, self.nodes.core.now(), timings.min_exclusion);
        self.next.retain(|node, _| found.contains(node));
        self.reported.retain(|node, _| found.contains(node));
        let is_due = |node: &NodeId| {
            self.next.get(node).is_none_or(|at| *at <= now) && !self.asking.contains(node)
        };
        let free = MAX_CALLS.saturating_sub(self.asking.len());
        let due = found.into_iter().filter(is_due).take(free);
        let due: Vec<NodeId> = due.collect();
        let again = now + timings.gate_every;
        self.next.extend(due.iter().map(|n| (n.clone(), again)));
        due
    }
}

/// Queries the node itself, because gossip is not sufficient. Clears the dispatcher's drain reason if the node passes,
/// and otherwise writes why it does not. Returns the failure last written; `None` for a node that passed.
pub(crate) async fn check_admission(
    nodes: &NodeAccess,
    view: &View,
    fence: Fence,
    node: &NodeId,
    said: Option<ReportedFailure>,
) -> Option<ReportedFailure> {
    let core = &*nodes.core;
    let entry = view.node(node)?;
    let mut drains = entry.record.iter().flat_map(|record| &record.drain);
    let passed = match drains.any(|drain| drain.owner != OWNER) {
        // The owners of the other drain reasons check everything else before they clear their reasons.
        true => readmission::check_site(core, node).await,
        false => readmission::check(nodes, node, &Freshness::NOW).await,
    };
    let (command, says) = match &passed {
        Ok(()) => {
            // The node record must not have changed while the gate ran; otherwise the change is examined first.
            let expected = entry.record.as_ref().map(|record| record.revision);
            (envelope(core, OWNER, fence, node, None, expected), None)
        }
        Err(error) => {
            let reason = sanitize::shortened(error.to_string());
            let is_known = own_reason(entry) == Some(&reason);
            if is_known || said.is_some_and(|said| said.covers(error)) {
                return said.or_else(|| Some(ReportedFailure::now(error)));
            }
            let drain = drain_envelope(core, fence, node, Some(reason));
            (drain, Some(ReportedFailure::now(error)))
        }
    };
    match (propose_envelope(core, command).await, &passed) {
        (Ok(_), Ok(())) => tracing::info!(%node, "node undrained"),
        (Ok(_), Err(reason)) => tracing::warn!(%node, %reason, "node stays drained"),
        (Err(error), _) => {
            tracing::warn!(%node, %error, "node not undrained yet");
            return said;
        }
    }
    says
}

/// Nodes drained by the dispatcher for long enough that are alive, free and report no fault of their executor. Joining
/// nodes are admitted by registration.
fn recovered(view: &View, now: UnixMillis, kept_out: Duration) -> Vec<NodeId> {
    let is_recovered = |entry: &&Arc<NodeEntry>| {
        let Some(record) = &entry.record else {
            return false;
        };
        let drains = record.drain.iter();
        let since = drains.filter(|drain| drain.owner == OWNER).map(|d| d.since);
        let kept = since.max().map(|since| now.since(since));
        kept.is_some_and(|kept| u128::from(kept) >= kept_out.as_millis())
            && record.holder.is_none()
            && record.lifecycle != Lifecycle::Joining
            && entry.liveness == Liveness::Alive
            && !entry.rejects_allocations()
    };
    let recovered = view.nodes.values().filter(is_recovered);
    recovered.map(|entry| entry.id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing;
    use lattice_placement::Health;
    use lattice_quorum_types::node::DrainReason;
    use lattice_view::BaseView;

    const NOW: UnixMillis = UnixMillis(1_000_000);
    const KEPT_OUT: Duration = Duration::from_secs(60);
    const KEPT_OUT_MS: u64 = 60_000;

    fn entry(owner: &str, drained_ms: u64, reasons: &[&str]) -> NodeEntry {
        let mut entry = testing::entry("n1");
        if let (Some(record), Some(seen)) = (&mut entry.record, &mut entry.gossip) {
            record.lifecycle = Lifecycle::Drained;
            record.holder = None;
            record.drain = vec![DrainReason {
                owner: owner.to_owned(),
                reason: "takes no work".to_owned(),
                since: UnixMillis(NOW.0 - drained_ms),
            }];
            seen.health_reasons = reasons.iter().map(|&r| r.to_owned()).collect();
        }
        entry
    }

    fn is_admissible(entry: NodeEntry) -> bool {
        let nodes = BTreeMap::from([(entry.id.clone(), Arc::new(entry))]);
        let view = View::from(BaseView {
            nodes: Arc::new(nodes),
            ..BaseView::default()
        });
        !recovered(&view, NOW, KEPT_OUT).is_empty()
    }

    #[test]
    fn a_node_is_asked_when_it_names_no_fault_for_long_enough() {
        assert!(is_admissible(entry(OWNER, KEPT_OUT_MS, &[])));
        assert!(is_admissible(entry(
            OWNER,
            KEPT_OUT_MS,
            &["nic.incomplete"]
        )));
        assert!(!is_admissible(entry(OWNER, KEPT_OUT_MS - 1, &[])));
        assert!(!is_admissible(entry(
            OWNER,
            KEPT_OUT_MS,
            &["executor.journal"]
        )));
        assert!(!is_admissible(entry("root", KEPT_OUT_MS, &[])));
        let mut silent = entry(OWNER, KEPT_OUT_MS, &[]);
        silent.liveness = Liveness::Suspect;
        assert!(!is_admissible(silent));
        let mut held = entry(OWNER, KEPT_OUT_MS, &[]);
        let holder = testing::entry("n1").record.and_then(|record| record.holder);
        if let Some(record) = &mut held.record {
            record.holder = holder;
        }
        assert!(!is_admissible(held));
    }

    #[test]
    fn placement_sees_a_node_that_takes_no_work_as_faulty() {
        let health = |reasons: &[&str]| entry(OWNER, 0, reasons).facts().health;
        assert_eq!(health(&["nic.incomplete"]), Health::Healthy);
        assert_eq!(health(&["executor.off"]), Health::Faulty);
        assert_eq!(health(&["executor.journal"]), Health::Faulty);
    }
}
