//! Start of reservations: as early as possible, by trying every time at which anything changes.

use super::{
    arbitrary::*,
    build::*,
    oracle,
    properties::names,
    rationed::{Use, pays},
};
use crate::*;
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Placements and reservations at the time of a job's turn.
struct Then<'a> {
    view: &'a ClusterView,
    placed: Vec<Use<'a>>,
    reserved: Vec<Use<'a>>,
}

impl<'a> Then<'a> {
    fn uses(&self) -> impl Iterator<Item = &Use<'a>> {
        self.placed.iter().chain(&self.reserved)
    }

    /// Every time at which something may become free.
    fn times(&self) -> Vec<u64> {
        let nodes = oracle::all_nodes(self.view);
        let given_back = nodes.filter_map(|(name, _)| oracle::back_at(self.view, name));
        let windows = self.view.reserved.values();
        let windows = windows.flat_map(|w| [Some(w.from), w.until].into_iter().flatten());
        let windows = windows.map(|at| at.0);
        let running = self.view.running.values();
        let over = running.filter_map(|r| Some(oracle::expected_end(r.ends_at?).0));
        let uses = self.uses().flat_map(|u| [u.from, u.until]);
        let mut times: Vec<u64> = given_back
            .chain(over)
            .chain(uses)
            .chain(windows)
            .chain([NOW.0])
            .collect();
        times.sort_unstable();
        times.retain(|at| (NOW.0..u64::MAX).contains(at));
        times
    }

    fn is_open(&self, name: &NodeId, job: &PendingView, from: u64, until: u64) -> bool {
        let node = oracle::node(self.view, name);
        let is_back = oracle::back_at(self.view, name).is_some_and(|at| at <= from);
        let is_used = |u: &Use<'_>| u.nodes.contains(name) && u.from < until && from < u.until;
        // The job does not contest nodes kept from it now.
        let contests = |job: &PendingView| {
            oracle::fits(name, node, job)
                && oracle::is_of_its_own(self.view, name, job)
                && !oracle::is_kept(self.view, name, job, (NOW.0, NOW.0 + 1))
        };
        let waits = |u: &Use<'_>| from < u.from && contests(u.job);
        let is_contested = job.walltime_ms.is_none() && self.reserved.iter().any(waits);
        let is_kept = oracle::is_kept(self.view, name, job, (from, until));
        let may_have = oracle::is_of_its_own(self.view, name, job) && !is_kept;
        is_back && may_have && !is_contested && !self.uses().any(is_used)
    }

    /// Least remaining amount in an interval: the present amount, plus what returns, less what uses take.
    fn least(
        &self,
        now: i64,
        back: &dyn Fn(u64) -> u64,
        of: &dyn Fn(&Use<'_>) -> u64,
        (from, until): (u64, u64),
    ) -> i128 {
        let begins = self.uses().map(|u| u.from);
        let times = begins.filter(|at| from < *at && *at < until).chain([from]);
        let left = |at: u64| {
            let active = self.uses().filter(|u| u.from <= at && at < u.until);
            i128::from(now) + i128::from(back(at)) - i128::from(active.map(of).sum::<u64>())
        };
        times.map(left).min().unwrap_or_default()
    }

    fn power(&self, name: &str, window: (u64, u64)) -> i128 {
        let draws = |node: &NodeView| self.draws(node, name);
        let back = |at: u64| {
            let nodes = oracle::all_nodes(self.view).filter(|(_, node)| node.holder.is_some());
            let is_back =
                |name: &NodeId| oracle::back_at(self.view, name).is_some_and(|end| end <= at);
            let back = nodes.filter(|(name, _)| is_back(name));
            back.map(|(_, node)| draws(node)).sum()
        };
        let of = |u: &Use<'_>| {
            let nodes = u.nodes.iter();
            nodes.map(|n| draws(oracle::node(self.view, n))).sum()
        };
        self.least(self.view.power[name].headroom_mw, &back, &of, window)
    }

    fn draws(&self, node: &NodeView, domain: &str) -> u64 {
        let charge = node.facts.charge.as_ref();
        let paid = charge.filter(|charge| pays(self.view, &charge.domain, domain));
        paid.map_or(0, |charge| charge.mw)
    }

    fn has_bandwidth(&self, job: &PendingView, window: (u64, u64)) -> bool {
        job.storage_mb_s.iter().all(|(name, mb_s)| {
            let Some(system) = self.view.storage.get(name) else {
                return true;
            };
            let of = |asked: &BTreeMap<String, u64>| asked.get(name).copied().unwrap_or(0);
            let back = |at: u64| {
                let running = self.view.running.values();
                let over = running.filter(|r| {
                    r.ends_at
                        .is_some_and(|end| oracle::expected_end(end).0 <= at)
                });
                over.map(|r| of(&r.storage_mb_s)).sum()
            };
            let asked = |u: &Use<'_>| of(&u.job.storage_mb_s);
            self.least(system.left_mb_s, &back, &asked, window) >= i128::from(*mb_s)
        })
    }

    fn could_start(&self, job: &PendingView, from: u64) -> bool {
        let until = job.walltime_ms.map_or(u64::MAX, |w| from + w);
        if !oracle::may_start(self.view, job, from) {
            return false;
        }
        let window = (from, until);
        let mut kinds: BTreeMap<ConformanceKey, Vec<&NodeView>> = BTreeMap::new();
        for (name, node) in oracle::all_nodes(self.view) {
            if oracle::fits(name, node, job) && self.is_open(name, job, from, until) {
                let key = match job.sensitive {
                    true => node.facts.conformance,
                    false => key(0),
                };
                kinds.entry(key).or_default().push(node);
            }
        }
        kinds.remove(&ConformanceKey::Unknown);
        let domains = self.view.power.keys();
        let left: Vec<(&str, i128)> = domains
            .map(|name| (name.as_str(), self.power(name, window)))
            .collect();
        let paid = |mut nodes: Vec<&NodeView>| {
            let mut left = left.clone();
            nodes.sort_by_key(|node| node.facts.charge.as_ref().map_or(0, |charge| charge.mw));
            nodes.retain(|node| {
                let pays = |name: &str| i128::from(self.draws(node, name));
                let is_paid = left
                    .iter()
                    .all(|(name, left)| pays(name) == 0 || pays(name) <= *left);
                if is_paid {
                    left.iter_mut().for_each(|(name, left)| *left -= pays(name));
                }
                is_paid
            });
            nodes.len()
        };
        let most = kinds.into_values().map(paid).max().unwrap_or(0);
        most >= job.nodes as usize && self.has_bandwidth(job, window)
    }
}

/// The bandwidth wait of one job does not delay another that needs no bandwidth.
#[test]
fn job_without_bandwidth_need_does_not_wait() {
    let mut view = machine(1, 4);
    run(
        &mut view,
        90,
        &["n0-00", "n0-01", "n0-02", "n0-03"],
        Some(10),
    );
    run(&mut view, 91, &[], Some(30));
    let scratch = |mb_s: u64| BTreeMap::from([("scratch".to_owned(), mb_s)]);
    view.running
        .get_mut(&AllocationId(91))
        .unwrap()
        .storage_mb_s = scratch(5);
    let none_left = StorageView { left_mb_s: 0 };
    view.storage.insert("scratch".to_owned(), none_left);
    let first = PendingView {
        class: 9,
        storage_mb_s: scratch(5),
        ..job(2, Some(60))
    };
    submit(&mut view, 1, first);
    submit(&mut view, 2, job(2, Some(60)));
    let policy = Policy {
        reservations: PlannedReservations::All,
        ..Policy::default()
    };
    let plan = Planner::with_policy(view, policy).plan(NOW);
    let start = |number| why(&plan, number).estimated_start;
    assert_eq!(start(1), Some(NOW.after(30 * MINUTE)));
    assert_eq!(start(2), Some(NOW.after(10 * MINUTE)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(1_000)))]

    #[test]
    fn every_job_that_waits_for_others_starts_as_early_as_it_can(
        mut view in prop_oneof![rationed_view(), short_of_power(), kept(rationed_view())],
        policy in any_policy(),
    ) {
        // A job that waits for limits has no predicted start.
        for level in view.levels.values_mut() {
            (level.limits.max_nodes, level.limits.max_concurrent_allocations) = (None, None);
        }
        view.sensitive_pool.size = None;
        let policy = Policy { reservations: PlannedReservations::All, ..policy };
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        let waiting: BTreeMap<u32, (AllocationId, Explanation)> =
            plan.waiting.iter().map(|(id, why)| (why.ahead, (id, why))).collect();
        let given = |id: AllocationId, nodes: Vec<NodeId>, from: UnixMillis| {
            let job = &view.pending[&id];
            let until = job.walltime_ms.map_or(u64::MAX, |w| from.after(w).0);
            Use { id, job, nodes, from: from.0, until }
        };
        let mut placements = plan.placements.iter();
        let mut then = Then { view: &view, placed: Vec::new(), reserved: Vec::new() };
        for turn in 0..u32::try_from(view.pending.len()).unwrap() {
            let Some((id, why)) = waiting.get(&turn) else {
                let placed = placements.next().unwrap();
                then.placed.push(given(placed.id, names(placed), NOW));
                continue;
            };
            let waits_for_others = matches!(
                why.blocker,
                Blocker::NodesBusy { .. }
                    | Blocker::Reserved { .. }
                    | Blocker::KeptFor { .. }
                    | Blocker::PowerShort { .. }
                    | Blocker::StorageShort { .. }
            );
            let job = &view.pending[id];
            let earliest = then.times().into_iter().find(|at| then.could_start(job, *at));
            let earliest = earliest.filter(|_| waits_for_others).map(UnixMillis);
            prop_assert_eq!(why.estimated_start, earliest, "{}", id);
            if let Some(made) = plan.reservations.iter().find(|made| made.id == *id) {
                then.reserved.push(given(made.id, made.nodes.clone(), made.starts_at));
            }
        }
    }
}
