//! Extreme numbers: the planner returns a plan for any input, warm as cold. Overflowing sums stop the test, as in a
//! debug build.

use super::{arbitrary::*, build::*};
use crate::*;
use lattice_quorum_types::{AllocationId, UnixMillis};
use proptest::{collection::vec, prelude::*, sample::select};
use std::collections::BTreeSet;

fn wild() -> impl Strategy<Value = u64> {
    const EDGES: [u64; 8] = [
        0,
        1,
        2,
        u32::MAX as u64,
        u32::MAX as u64 + 1,
        i64::MAX as u64,
        u64::MAX - 1,
        u64::MAX,
    ];
    prop_oneof![3 => select(&EDGES[..]), 1 => any::<u64>()]
}

/// Numbers for every field in turn.
struct ExtremeNumbers {
    numbers: Vec<u64>,
    at: usize,
}

impl ExtremeNumbers {
    /// Changes one value in two.
    fn put(&mut self, place: &mut u64) {
        let number = self.next();
        if number.is_multiple_of(2) {
            *place = self.next();
        }
    }

    fn put_some(&mut self, place: &mut Option<u64>) {
        let number = self.next();
        if !number.is_multiple_of(3) {
            *place = (number % 3 == 1).then(|| self.next());
        }
    }

    fn put_signed(&mut self, place: &mut i64) {
        let mut number = place.cast_unsigned();
        self.put(&mut number);
        *place = number.cast_signed();
    }

    fn put_small(&mut self, place: &mut u32) {
        let mut number = u64::from(*place);
        self.put(&mut number);
        *place = u32::try_from(number).unwrap_or(u32::MAX);
    }

    fn next(&mut self) -> u64 {
        self.at += 1;
        self.numbers[self.at % self.numbers.len()]
    }

    fn job(&mut self, job: &mut PendingView) {
        self.put_small(&mut job.nodes);
        self.put_some(&mut job.walltime_ms);
        self.put_some(&mut job.checkpoint_ms);
        self.put_some(&mut job.constraints.memory_bytes);
        self.put(&mut job.submitted_at.0);
        self.put(&mut job.eligible_at.0);
        job.storage_mb_s
            .values_mut()
            .for_each(|mb_s| self.put(mb_s));
        job.class = job.class.wrapping_add(self.next() as u8);
        if let Some(gpus) = &mut job.constraints.gpus_per_node {
            self.put_small(gpus);
        }
        // A node listed twice, which only a direct caller of this crate can pass.
        let twice = job.constraints.nodelist.first().cloned();
        job.constraints.nodelist.extend(twice);
    }

    fn node(&mut self, node: &mut NodeView) {
        self.put(&mut node.version);
        self.put_some(&mut node.facts.memory_bytes);
        self.put_some(&mut node.facts.gpu_memory_bytes);
        if let Some(charge) = &mut node.facts.charge {
            self.put(&mut charge.mw);
        }
        if let Some(count) = &mut node.facts.gpu_count {
            self.put_small(count);
        }
    }

    fn running(&mut self, running: &mut RunningView) {
        let mut end = running.ends_at.map(|end| end.0);
        self.put_some(&mut end);
        running.ends_at = end.map(UnixMillis);
        self.put_some(&mut running.walltime_ms);
        running
            .storage_mb_s
            .values_mut()
            .for_each(|mb_s| self.put(mb_s));
    }

    fn level(&mut self, level: &mut LevelView) {
        self.put_some(&mut level.limits.max_nodes);
        self.put_some(&mut level.limits.max_concurrent_allocations);
        for usage in [&mut level.own, &mut level.subtree] {
            self.put(&mut usage.nodes);
            self.put(&mut usage.allocations);
        }
    }

    fn view(&mut self, view: &mut ClusterView) {
        view.nodes.values_mut().for_each(|node| self.node(node));
        view.pending.values_mut().for_each(|job| self.job(job));
        view.running
            .values_mut()
            .for_each(|held| self.running(held));
        view.levels.values_mut().for_each(|level| self.level(level));
        view.power
            .values_mut()
            .for_each(|domain| self.put_signed(&mut domain.headroom_mw));
        view.storage
            .values_mut()
            .for_each(|system| self.put_signed(&mut system.left_mb_s));
        for tenant in view.tenants.values_mut() {
            for budget in [&mut tenant.gpu_hours, &mut tenant.node_hours]
                .into_iter()
                .flatten()
            {
                self.put(&mut budget.granted_ms);
                self.put(&mut budget.used_ms);
            }
        }
        // A domain that contains itself, and two that contain each other.
        if self.next().is_multiple_of(2) {
            for (name, parent) in [("hall", "row-a"), ("shed", "shed")] {
                if let Some(domain) = view.power.get_mut(name) {
                    domain.parent = Some(parent.to_owned());
                }
            }
        }
    }

    fn delta(&mut self, delta: &mut Delta) {
        delta
            .nodes
            .values_mut()
            .flatten()
            .for_each(|node| self.node(node));
        delta
            .pending
            .values_mut()
            .flatten()
            .for_each(|job| self.job(job));
        delta
            .running
            .values_mut()
            .flatten()
            .for_each(|held| self.running(held));
        delta
            .levels
            .values_mut()
            .flatten()
            .for_each(|level| self.level(level));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(1_000)))]

    #[test]
    fn whatever_comes_in_is_planned(
        mut view in rationed_view(),
        mut policy in any_policy(),
        deltas in vec(rationed_delta(), 0..4),
        times in vec(wild(), 1..4),
        numbers in vec(wild(), 16..64),
    ) {
        let mut wild = ExtremeNumbers { numbers, at: 0 };
        wild.view(&mut view);
        wild.put(&mut policy.reference_wait_ms);
        wild.put_some(&mut policy.checkpoint_bytes_s);
        let mut warm = Planner::with_policy(view, policy);
        let mut times = times.into_iter().cycle();
        let mut now = || UnixMillis(times.next().unwrap_or(0));
        warm.plan(now());
        for mut delta in deltas {
            wild.delta(&mut delta);
            warm.update(delta);
            let mut cold = Planner::with_policy(warm.view().clone(), policy);
            let at = now();
            let (warm, cold) = (warm.plan(at), cold.plan(at));
            prop_assert_eq!(serde_json::to_string(&warm).unwrap(), serde_json::to_string(&cold).unwrap());
        }
        let plan = warm.plan(now());
        prop_assert_eq!(plan.placements.len() + plan.waiting.len(), warm.view().pending.len());
        let mut given = BTreeSet::new();
        for placement in &plan.placements {
            prop_assert!(placement.score.total.is_finite());
            let asked = warm.view().pending[&placement.id].nodes;
            prop_assert_eq!(placement.nodes.len(), asked as usize);
            for n in &placement.nodes {
                prop_assert!(given.insert(&n.node), "{} twice", n.node);
            }
        }
        for (_, why) in plan.waiting.iter() {
            prop_assert!(why.score.is_some_and(|score| score.total.is_finite()));
            prop_assert!(!why.to_string().is_empty());
        }
    }
}

/// A queue without nodes.
#[test]
fn empty_cluster_explains_every_wait() {
    let mut view = machine(0, 0);
    submit(&mut view, 1, job(1, Some(60)));
    submit(&mut view, 2, job(0, Some(60)));
    let plan = plan(&view);
    assert_eq!(plan.placements, []);
    assert_eq!(why(&plan, 1).blocker, Blocker::NotEnoughNodes { short: 1 });
    assert_eq!(why(&plan, 2).blocker, Blocker::NoNodesAsked);
    assert!(plan.waiting.get(AllocationId(3)).is_none());
}
