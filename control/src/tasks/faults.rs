//! Nodes whose agent cannot run any work: kept out by a drain reason of the dispatcher's own, and let
//! back in once the agent says no more that anything is wrong.

use crate::{
    core::Core,
    error::ProposeError,
    tasks::{activation::Activation, lease::Lease},
    view::{NodeEntry, View},
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Applied, Command, NodeId, UnixMillis,
    command::{Fence, Power, Principal},
};
use std::{sync::Arc, time::Duration};

/// The owner of the drain reason: the same for every control, so that the next one can clear it.
pub(crate) const OWNER: &str = "service:dispatch";
/// A node is kept out at least this long, by state time: what is wrong may show in gossip late, and
/// one that is wrong and does not say so must not be tried in a circle.
const KEPT_OUT_MS: u64 = 60_000;
/// Looks at least this often.
const PERIOD: Duration = Duration::from_secs(5);
/// Nobody waits for it.
const SPACING: Duration = Duration::from_secs(1);

/// Drains a node for a fault its agent named.
pub(crate) async fn keep_out(
    core: &Core,
    fence: Fence,
    node: &NodeId,
    reason: &str,
) -> Result<Applied, ProposeError> {
    tracing::warn!(%node, reason, "node cannot run work; drained");
    drain(core, fence, node, Some(format!("takes no work: {reason}"))).await
}

async fn drain(
    core: &Core,
    fence: Fence,
    node: &NodeId,
    reason: Option<String>,
) -> Result<Applied, ProposeError> {
    let principal = Principal {
        name: OWNER.to_owned(),
        power: Power::Service,
    };
    let node = node.clone();
    let command = Command::Drain { node, reason };
    let envelope = core.envelope(principal, None, Some(fence), command);
    Ok(core.propose_one(envelope).await??)
}

/// Lets nodes back in, for ever.
pub(crate) async fn readmit(core: Arc<Core>, lease: Arc<Lease>) {
    let mut activation = Activation::new(&core, PERIOD, SPACING).with_lease(&lease);
    loop {
        activation.next().await;
        let Some(fence) = lease.fence() else { continue };
        for node in recovered(&core.view(), core.now()) {
            match drain(&core, fence.clone(), &node, None).await {
                Ok(_) => tracing::info!(%node, "node takes work again"),
                Err(error) => tracing::warn!(%node, %error, "node not let back in yet"),
            }
        }
    }
}

/// Nodes drained here for long enough that are alive and name no fault.
fn recovered(view: &View, now: UnixMillis) -> Vec<NodeId> {
    let is_recovered = |entry: &&Arc<NodeEntry>| {
        let drains = entry.record.iter().flat_map(|record| &record.drain);
        let since = drains.filter(|drain| drain.owner == OWNER).map(|d| d.since);
        let kept_out = since.max().map(|since| now.since(since));
        kept_out.is_some_and(|kept_out| kept_out >= KEPT_OUT_MS)
            && entry.liveness == Liveness::Alive
            && entry.seen.is_some()
            && !entry.takes_no_work()
    };
    let recovered = view.nodes.values().filter(is_recovered);
    recovered.map(|entry| entry.id.clone()).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::view::Seen;
    use lattice_placement::Health;
    use lattice_quorum_types::{
        Revision, VclusterName,
        node::{DrainReason, Lifecycle, Node},
    };
    use std::collections::BTreeMap;

    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn entry(owner: &str, drained_ms: u64, reasons: &[&str]) -> NodeEntry {
        let id = NodeId::new("n1").unwrap();
        let vcluster = VclusterName::new("default").unwrap();
        let record = Node {
            id: id.clone(),
            lifecycle: Lifecycle::Drained,
            drain: vec![DrainReason {
                owner: owner.to_owned(),
                reason: "takes no work".to_owned(),
                since: UnixMillis(NOW.0 - drained_ms),
            }],
            holder: None,
            version: 1,
            home: vcluster.clone(),
            current: vcluster,
            registered_at: UnixMillis(0),
            revision: Revision(1),
        };
        let seen = Seen {
            cell: "c0".to_owned(),
            addr: "127.0.0.1:1".parse().unwrap(),
            marks: BTreeMap::new(),
            document: None,
            health: Health::Healthy,
            health_reasons: reasons.iter().map(|&r| r.to_owned()).collect(),
            boot_id: None,
            generation: 1,
            agent_version: None,
            group: None,
            heard: true,
        };
        NodeEntry {
            record: Some(record),
            seen: Some(seen),
            liveness: Liveness::Alive,
            ..NodeEntry::new(id)
        }
    }

    fn is_let_in(entry: NodeEntry) -> bool {
        let nodes = BTreeMap::from([(entry.id.clone(), Arc::new(entry))]);
        let view = View {
            nodes: Arc::new(nodes),
            ..View::default()
        };
        !recovered(&view, NOW).is_empty()
    }

    #[test]
    fn a_node_comes_back_when_it_names_no_fault_for_long_enough() {
        assert!(is_let_in(entry(OWNER, KEPT_OUT_MS, &[])));
        assert!(is_let_in(entry(OWNER, KEPT_OUT_MS, &["nic.incomplete"])));
        assert!(!is_let_in(entry(OWNER, KEPT_OUT_MS - 1, &[])));
        assert!(!is_let_in(entry(OWNER, KEPT_OUT_MS, &["executor.journal"])));
        assert!(!is_let_in(entry("root", KEPT_OUT_MS, &[])));
        let silent = NodeEntry {
            liveness: Liveness::Suspect,
            ..entry(OWNER, KEPT_OUT_MS, &[])
        };
        assert!(!is_let_in(silent));
    }

    #[test]
    fn placement_sees_a_node_that_takes_no_work_as_faulty() {
        let health = |reasons: &[&str]| entry(OWNER, 0, reasons).facts().health;
        assert_eq!(health(&["nic.incomplete"]), Health::Healthy);
        assert_eq!(health(&["executor.off"]), Health::Faulty);
        assert_eq!(health(&["executor.journal"]), Health::Faulty);
    }
}
