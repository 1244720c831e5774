//! Brake on automatic draining: limits how many nodes are drained per time window without an operator.
//!
//! One rule, one budget and one hold apply to all automatic drains, whether for conformance or for health.

use super::cause::Cause;
use lattice_quorum_types::{
    NodeId, Revision, UnixMillis,
    node::{DrainReason, Lifecycle, Node},
};
use lattice_view::View;
use std::collections::{BTreeMap, BTreeSet};

/// Length of the time window, milliseconds.
pub(crate) const WINDOW_MS: u64 = 300_000;
/// Maximum share of cluster nodes drained per window, percent.
const PERCENT: usize = 5;

/// State of the brake under this lease, including what the view does not show yet.
#[derive(Debug, Default)]
pub(crate) struct Brake {
    /// Nodes drained under this lease.
    drained: BTreeMap<NodeId, DrainedNode>,
    /// Whether the brake was held at the last update from the view, or was engaged by this control since.
    was_held: bool,
    /// Revision at which this control engaged the brake. An earlier view does not show the brake.
    engaged_at: Option<Revision>,
    released_at: Option<UnixMillis>,
}

/// A node drained under this lease.
#[derive(Debug, Clone, Copy)]
struct DrainedNode {
    at: UnixMillis,
    revision: Revision,
    cause: Cause,
    /// Whether the drain counts against the budget: neither an operator nor an automatic cause had drained the node
    /// before.
    counts: bool,
}

impl Brake {
    /// Updates the state of the brake from the view, and forgets drains before the time window. Drains before an
    /// operator released the brake are accepted by that operator and no longer count. A release without a recorded time
    /// counts from the moment at which this control first sees it.
    pub(super) fn update(&mut self, view: &View, now: UnixMillis) {
        self.drained.retain(|_, d| now.since(d.at) < WINDOW_MS);
        if self.is_ahead_of(view) {
            return;
        }
        let is_held = view.brake.is_some();
        if view.brake_released_at.is_some() {
            self.released_at = self.released_at.max(view.brake_released_at);
        } else if self.was_held && !is_held {
            self.released_at = Some(now);
        }
        self.was_held = is_held;
    }

    /// Whether this control engaged the brake and the view does not show it yet.
    fn is_ahead_of(&self, view: &View) -> bool {
        self.engaged_at.is_some_and(|pulled| pulled > view.revision)
    }

    /// Whether the brake is held.
    pub(super) fn is_held(&self, view: &View) -> bool {
        view.brake.is_some() || self.is_ahead_of(view)
    }

    /// Number of nodes that may still be drained now.
    pub(super) fn left(&self, view: &View, now: UnixMillis) -> usize {
        let own = self.drained.iter().filter(|(_, drained)| drained.counts);
        let own = own.map(|(id, drained)| (id.clone(), drained.at)).collect();
        remaining_drains(view, &own, self.released_at, now)
    }

    /// Records that a node was drained at this revision.
    pub(super) fn drained(
        &mut self,
        node: NodeId,
        cause: Cause,
        (revision, at): (Revision, UnixMillis),
        counts: bool,
    ) {
        let drained = DrainedNode {
            at,
            revision,
            cause,
            counts,
        };
        self.drained.insert(node, drained);
    }

    /// Whether the node was just drained and the view does not show it yet.
    pub(super) fn is_being_drained(&self, view: &View, node: &NodeId) -> bool {
        let drained = self.drained.get(node);
        drained.is_some_and(|drained| drained.revision > view.revision)
    }

    /// Nodes that confirmed this cause in the current window and are drained for it.
    pub(super) fn drained_for(
        &self,
        view: &View,
        cause: Cause,
        now: UnixMillis,
    ) -> BTreeSet<NodeId> {
        let is_recent = |drain: &DrainReason| {
            drain.owner == cause.owner() && now.since(drain.since) < WINDOW_MS
        };
        let written = view.nodes.values().filter(|node| {
            let mut drains = node.record.iter().flat_map(|record| &record.drain);
            drains.any(is_recent)
        });
        let unseen = self
            .drained
            .iter()
            .filter(|(_, drained)| drained.cause == cause && drained.revision > view.revision);
        let unseen = unseen.map(|(id, _)| id.clone());
        written.map(|node| node.id.clone()).chain(unseen).collect()
    }

    /// Records that the brake was engaged at this revision.
    pub(super) fn record_engaged(&mut self, revision: Revision) {
        self.was_held = true;
        self.engaged_at = Some(revision);
    }
}

/// Maximum number of drains for a cluster of `nodes` nodes: 5 %, at least one.
pub(super) fn max_drains(nodes: usize) -> usize {
    (nodes * PERCENT / 100).max(1)
}

/// Number of nodes in the cluster, without retired ones.
pub(super) fn nodes(view: &View) -> usize {
    let records = view.nodes.values().filter_map(|node| node.record.as_ref());
    records
        .filter(|record| record.lifecycle != Lifecycle::Retired)
        .count()
}

/// Number of nodes that may still be drained now. Drains in the window count by the node records, so that a control
/// that takes over counts the same. Drains in `own` count as well, because the recorded reason may be cleared again.
/// Drains before an operator released the brake do not count, nor does a node that an operator had drained before.
fn remaining_drains(
    view: &View,
    own: &BTreeMap<NodeId, UnixMillis>,
    released_at: Option<UnixMillis>,
    now: UnixMillis,
) -> usize {
    let counts =
        |at: UnixMillis| now.since(at) < WINDOW_MS && released_at.is_none_or(|from| at > from);
    let written = view.nodes.values().filter(|node| {
        let drains = || node.record.iter().flat_map(|record| &record.drain);
        let automatic = drains().filter(|drain| is_automatic(drain));
        automatic.map(|drain| drain.since).min().is_some_and(|at| {
            let is_earlier = |drain: &DrainReason| is_operators(drain) && drain.since < at;
            counts(at) && !drains().any(is_earlier)
        })
    });
    let mut recent: BTreeSet<&NodeId> = written.map(|node| &node.id).collect();
    recent.extend(own.iter().filter(|(_, at)| counts(**at)).map(|(id, _)| id));
    max_drains(nodes(view)).saturating_sub(recent.len())
}

/// Whether draining this node counts against the budget. A drain does not count if an operator or an automatic cause
/// has already drained the node. A node already drained by another service does count: the fault behind that drain may
/// also mislead the checks of the whole cluster.
pub(super) fn counts(record: &Node) -> bool {
    let drains = &record.drain;
    !drains
        .iter()
        .any(|drain| is_operators(drain) || is_automatic(drain))
}

fn is_automatic(drain: &DrainReason) -> bool {
    Cause::ALL.iter().any(|cause| cause.owner() == drain.owner)
}

/// Whether an operator owns the drain reason: operator names never start with `service:`.
fn is_operators(drain: &DrainReason) -> bool {
    !drain.owner.starts_with("service:")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::tasks::testing;
    use lattice_view::BaseView;
    use std::sync::Arc;

    const NOW: UnixMillis = UnixMillis(10_000_000);

    /// A view of `nodes` nodes, the first `drained` of them drained by `owner` `ago_ms` ago.
    fn view(nodes: usize, drained: usize, owner: &str, ago_ms: u64) -> View {
        let entry = |n: usize| {
            let mut entry = testing::entry(&format!("n{n:03}"));
            if let Some(record) = entry.record.as_mut().filter(|_| n < drained) {
                record.drain.push(DrainReason {
                    owner: owner.to_owned(),
                    reason: "differs".to_owned(),
                    since: UnixMillis(NOW.0 - ago_ms),
                });
            }
            (entry.id.clone(), Arc::new(entry))
        };
        View::from(BaseView {
            nodes: Arc::new((0..nodes).map(entry).collect()),
            ..BaseView::default()
        })
    }

    #[test]
    fn five_percent_in_five_minutes_and_one_at_least() {
        assert_eq!(
            [0, 1, 19, 20, 39, 40, 10_000].map(max_drains),
            [1, 1, 1, 1, 1, 2, 500]
        );
        let left = |view: &View| remaining_drains(view, &BTreeMap::new(), None, NOW);
        let owner = Cause::Conformance.owner();
        assert_eq!(left(&view(100, 0, owner, 0)), 5);
        assert_eq!(left(&view(100, 3, owner, 1_000)), 2);
        assert_eq!(left(&view(100, 3, "service:health", 1_000)), 2);
        assert_eq!(left(&view(100, 3, "olga", 1_000)), 5, "a person's own");
        assert_eq!(left(&view(100, 7, owner, 1_000)), 0);
        assert_eq!(left(&view(100, 7, owner, WINDOW_MS)), 5);
    }

    #[test]
    fn only_service_drains_count_for_brake() {
        let mut view = view(100, 3, "service:health", 1_000);
        let nodes = Arc::make_mut(&mut view.nodes);
        let owners = [
            (0, 2_000, "olga"),
            (1, 500, "olga"),
            (2, 2_000, "service:dispatch"),
        ];
        for (n, ago_ms, owner) in owners {
            let entry = nodes.get_mut(&testing::id(&format!("n{n:03}"))).unwrap();
            let record = Arc::make_mut(entry).record.as_mut().unwrap();
            record.drain.push(DrainReason {
                owner: owner.to_owned(),
                reason: "a fan".to_owned(),
                since: UnixMillis(NOW.0 - ago_ms),
            });
        }
        assert_eq!(remaining_drains(&view, &BTreeMap::new(), None, NOW), 3);
        // The same rule applies to a node about to be drained.
        let drains = |n: usize| {
            let entry = &view.nodes[&testing::id(&format!("n{n:03}"))];
            let mut record = entry.record.clone().unwrap();
            record.drain.retain(|drain| !is_automatic(drain));
            counts(&record)
        };
        assert_eq!([0, 2, 3].map(drains), [false, true, true]);
        let twice = &view.nodes[&testing::id("n001")];
        assert!(!counts(twice.record.as_ref().unwrap()));
    }

    #[test]
    fn a_view_of_before_the_brake_was_pulled_releases_nothing() {
        let mut brake = Brake::default();
        let before = view(100, 6, "service:health", 1_000);
        let pulled = Revision(before.revision.0 + 1);
        brake.record_engaged(pulled);
        brake.update(&before, NOW);
        assert!(brake.is_held(&before));
        assert_eq!(brake.left(&before, NOW), 0);
        let mut after = before.clone();
        after.revision = pulled;
        brake.update(&after, NOW);
        assert!(!brake.is_held(&after), "a person let go meanwhile");
        assert_eq!(brake.left(&after, NOW), 5);
    }

    #[test]
    fn cleared_drain_counts_until_release() {
        let own = BTreeMap::from([(testing::id("n050"), UnixMillis(NOW.0 - 1_000))]);
        let view = view(100, 2, Cause::Conformance.owner(), 2_000);
        assert_eq!(remaining_drains(&view, &own, None, NOW), 2);
        assert_eq!(
            remaining_drains(&view, &own, Some(UnixMillis(NOW.0 - 1_500)), NOW),
            4
        );
        assert_eq!(remaining_drains(&view, &own, Some(NOW), NOW), 5);
    }
}
