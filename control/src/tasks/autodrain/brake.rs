//! The brake on automatic draining: how many nodes may be drained in a while before a person is
//! asked. One rule, one budget and one hold for everything that drains by itself because of what a
//! node is or how it is.

use super::cause::Cause;
use crate::view::View;
use lattice_quorum_types::{
    NodeId, Revision, UnixMillis,
    node::{DrainReason, Lifecycle, Node},
};
use std::collections::{BTreeMap, BTreeSet};

/// The while.
pub(crate) const WINDOW_MS: u64 = 300_000;
/// Of the nodes in the cluster, in the while.
const PERCENT: usize = 5;

/// What was drained, as far as the nodes' records do not tell it.
#[derive(Debug, Default)]
pub(crate) struct Brake {
    /// Drained under this lease.
    drained: BTreeMap<NodeId, Drained>,
    /// It was held when it was looked at last.
    was_held: bool,
    /// When it was pulled here: a view of before does not show it.
    pulled: Option<Revision>,
    released_at: Option<UnixMillis>,
}

/// One node that was.
#[derive(Debug, Clone, Copy)]
struct Drained {
    at: UnixMillis,
    revision: Revision,
    cause: Cause,
    /// Nobody kept it out of service before.
    counts: bool,
}

impl Brake {
    /// What was drained before a person released the brake is that person's decision. A release that
    /// is seen by the brake alone counts from when it is seen.
    pub(super) fn look_at(&mut self, view: &View, now: UnixMillis) {
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

    /// Whether it was pulled here, and the view does not show it yet.
    fn is_ahead_of(&self, view: &View) -> bool {
        self.pulled.is_some_and(|pulled| pulled > view.revision)
    }

    /// Whether it is held.
    pub(super) fn is_held(&self, view: &View) -> bool {
        view.brake.is_some() || self.is_ahead_of(view)
    }

    /// How many more may be drained now.
    pub(super) fn left(&self, view: &View, now: UnixMillis) -> usize {
        let own = self.drained.iter().filter(|(_, drained)| drained.counts);
        let own = own.map(|(id, drained)| (id.clone(), drained.at)).collect();
        left(view, &own, self.released_at, now)
    }

    /// Takes down that a node was drained, which made this revision.
    pub(super) fn drained(
        &mut self,
        node: NodeId,
        cause: Cause,
        (revision, at): (Revision, UnixMillis),
        counts: bool,
    ) {
        let drained = Drained {
            at,
            revision,
            cause,
            counts,
        };
        self.drained.insert(node, drained);
    }

    /// Whether it was drained just now, and the view does not show it yet.
    pub(super) fn is_being_drained(&self, view: &View, node: &NodeId) -> bool {
        let drained = self.drained.get(node);
        drained.is_some_and(|drained| drained.revision > view.revision)
    }

    /// Nodes that said themselves that there is this cause, in the last while, and are drained for it.
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

    /// Takes down that it was pulled, which made this revision.
    pub(super) fn pulled(&mut self, revision: Revision) {
        self.was_held = true;
        self.pulled = Some(revision);
    }
}

/// How many of so many nodes: 5 %, and one at least.
pub(super) fn most(nodes: usize) -> usize {
    (nodes * PERCENT / 100).max(1)
}

/// Nodes in the cluster.
pub(super) fn nodes(view: &View) -> usize {
    let records = view.nodes.values().filter_map(|node| node.record.as_ref());
    records
        .filter(|record| record.lifecycle != Lifecycle::Retired)
        .count()
}

/// How many more may be drained now. What was drained in the last while counts, by the records of
/// the nodes, so that a control that takes over counts alike, and by `own`, where the reason may be
/// cleared again. What was drained before a person released the brake does not; nor a node that a
/// person had drained already.
fn left(
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
            let is_earlier = |drain: &DrainReason| is_persons(drain) && drain.since < at;
            counts(at) && !drains().any(is_earlier)
        })
    });
    let mut recent: BTreeSet<&NodeId> = written.map(|node| &node.id).collect();
    recent.extend(own.iter().filter(|(_, at)| counts(**at)).map(|(id, _)| id));
    most(nodes(view)).saturating_sub(recent.len())
}

/// Whether draining it counts. A person decided that it is out of service, or it was counted when the
/// other cause drained it. What another service keeps out does count: whatever makes that err may make
/// the checks err too, all over the cluster.
pub(super) fn counts(record: &Node) -> bool {
    let drains = &record.drain;
    !drains
        .iter()
        .any(|drain| is_persons(drain) || is_automatic(drain))
}

fn is_automatic(drain: &DrainReason) -> bool {
    Cause::ALL.iter().any(|cause| cause.owner() == drain.owner)
}

/// No person has such a name.
fn is_persons(drain: &DrainReason) -> bool {
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

    /// So many nodes, the first of them drained by this owner so long ago.
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
        View {
            base: BaseView {
                nodes: Arc::new((0..nodes).map(entry).collect()),
                ..BaseView::default()
            },
            ..View::default()
        }
    }

    #[test]
    fn five_percent_in_five_minutes_and_one_at_least() {
        assert_eq!(
            [0, 1, 19, 20, 39, 40, 10_000].map(most),
            [1, 1, 1, 1, 1, 2, 500]
        );
        let left = |view: &View| left(view, &BTreeMap::new(), None, NOW);
        let owner = Cause::Conformance.owner();
        assert_eq!(left(&view(100, 0, owner, 0)), 5);
        assert_eq!(left(&view(100, 3, owner, 1_000)), 2);
        assert_eq!(left(&view(100, 3, "service:health", 1_000)), 2);
        assert_eq!(left(&view(100, 3, "olga", 1_000)), 5, "a person's own");
        assert_eq!(left(&view(100, 7, owner, 1_000)), 0);
        assert_eq!(left(&view(100, 7, owner, WINDOW_MS)), 5);
    }

    #[test]
    fn a_node_that_a_person_keeps_out_does_not_count_and_one_that_another_service_does_counts() {
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
        assert_eq!(left(&view, &BTreeMap::new(), None, NOW), 3);
        // And so for what is about to be drained.
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
        brake.pulled(pulled);
        brake.look_at(&before, NOW);
        assert!(brake.is_held(&before));
        assert_eq!(brake.left(&before, NOW), 0);
        let mut after = before.clone();
        after.revision = pulled;
        brake.look_at(&after, NOW);
        assert!(!brake.is_held(&after), "a person let go meanwhile");
        assert_eq!(brake.left(&after, NOW), 5);
    }

    #[test]
    fn what_was_cleared_meanwhile_still_counts_and_a_release_begins_anew() {
        let own = BTreeMap::from([(testing::id("n050"), UnixMillis(NOW.0 - 1_000))]);
        let view = view(100, 2, Cause::Conformance.owner(), 2_000);
        assert_eq!(left(&view, &own, None, NOW), 2);
        assert_eq!(left(&view, &own, Some(UnixMillis(NOW.0 - 1_500)), NOW), 4);
        assert_eq!(left(&view, &own, Some(NOW), NOW), 5);
    }
}
