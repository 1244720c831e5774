//! Properties of every plan with reservation windows of operators and loans, on random small clusters.

use super::{arbitrary::*, build::*, oracle};
use crate::*;
use lattice_quorum_types::{NodeId, limit::SensitivePool};
use proptest::{collection::vec, prelude::*};

fn limitless(view: &mut ClusterView) {
    for level in view.levels.values_mut() {
        (
            level.limits.max_nodes,
            level.limits.max_concurrent_allocations,
        ) = (None, None);
    }
    view.sensitive_pool = SensitivePool::default();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(1_000)))]

    #[test]
    fn nothing_runs_into_a_time_that_is_kept_for_others_nor_on_what_is_lent(
        view in kept(rationed_view()),
        policy in any_policy(),
    ) {
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        let placed = plan.placements.iter().map(|placed| {
            let nodes = placed.nodes.iter().map(|n| n.node.clone());
            (placed.id, nodes.collect::<Vec<NodeId>>(), NOW.0)
        });
        let held = plan.reservations.iter();
        let held = held.map(|made| (made.id, made.nodes.clone(), made.starts_at.0));
        for (id, nodes, from) in placed.chain(held) {
            let job = &view.pending[&id];
            let until = job.walltime_ms.map_or(u64::MAX, |walltime| from + walltime);
            prop_assert!(oracle::may_start(&view, job, from), "{} at {}", id, from);
            for name in &nodes {
                prop_assert!(oracle::is_of_its_own(&view, name, job), "{} on {}", id, name);
                prop_assert!(!oracle::is_kept(&view, name, job, (from, until)), "{} on {}", id, name);
                prop_assert!(from > NOW.0 || view.nodes.contains_key(name), "{} on {}", id, name);
                prop_assert!(oracle::back_at(&view, name).is_some_and(|at| at <= from));
            }
        }
    }

    /// For an empty machine and one waiting job.
    #[test]
    fn nothing_is_kept_out_that_the_rule_allows(view in kept(any_view())) {
        let mut view = view;
        limitless(&mut view);
        view.nodes.values_mut().for_each(|node| node.holder = None);
        let jobs = std::mem::take(&mut view.pending);
        for (id, job) in jobs {
            let has_levels = job.project.ancestors().all(|path| view.levels.contains_key(&path));
            if job.nodes == 0 || !has_levels {
                continue;
            }
            let until = job.walltime_ms.map_or(u64::MAX, |walltime| NOW.after(walltime).0);
            let may = |(name, node): &(&NodeId, &NodeView)| {
                oracle::fits(name, node, &job)
                    && oracle::is_of_its_own(&view, name, &job)
                    && !oracle::is_kept(&view, name, &job, (NOW.0, until))
            };
            let open: Vec<NodeId> =
                view.nodes.iter().filter(may).map(|(name, _)| name.clone()).collect();
            let known = |n: &&NodeId| view.nodes[*n].facts.conformance != ConformanceKey::Unknown;
            let most = match job.sensitive {
                false => open.len(),
                true => match open.iter().filter(known).cloned().collect::<Vec<_>>() {
                    known if known.is_empty() => 0,
                    known => oracle::largest_alike(&view, &known),
                },
            };
            let could = oracle::may_start(&view, &job, NOW.0) && most >= job.nodes as usize;
            let alone = ClusterView {
                pending: [(id, job)].into(),
                ..view.clone()
            };
            let plan = plan(&alone);
            prop_assert_eq!(plan.placements.len() == 1, could, "{:?}", plan.waiting.get(id));
        }
    }

    #[test]
    fn a_warm_planner_plans_as_a_cold_one_whatever_is_kept(
        view in kept(rationed_view()),
        policy in any_policy(),
        deltas in vec(kept_delta(), 1..6),
    ) {
        let mut warm = Planner::with_policy(view, policy);
        for (n, mut delta) in deltas.into_iter().enumerate() {
            let now = NOW.after(n as u64 * MINUTE);
            warm.plan(now);
            of_the_same_hardware(warm.view(), &mut delta);
            warm.update(delta);
            let mut cold = Planner::with_policy(warm.view().clone(), policy);
            let (warm, cold) = (warm.plan(now), cold.plan(now));
            prop_assert_eq!(serde_json::to_string(&warm).unwrap(), serde_json::to_string(&cold).unwrap());
        }
    }

    /// For the first job in the queue, every count is checked; for every waiting job, that the named reservation
    /// exists.
    #[test]
    fn what_is_kept_is_counted_and_named(view in kept(any_view()), policy in any_policy()) {
        let mut view = view;
        limitless(&mut view);
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        for (id, why) in plan.waiting.iter() {
            let job = &view.pending[&id];
            prop_assert_eq!(why.total as usize, oracle::all_nodes(&view).count());
            let fit = |(name, node): &(&NodeId, &NodeView)| {
                oracle::fits(name, node, job) && oracle::is_of_its_own(&view, name, job)
            };
            let fit = oracle::all_nodes(&view).filter(fit).count();
            let before_free = why.steps.iter().rfind(|s| s.constraint < Constraint::Free).unwrap();
            prop_assert_eq!(before_free.left as usize, fit);
            let until = job.walltime_ms.map_or(u64::MAX, |walltime| NOW.after(walltime).0);
            match &why.blocker {
                Blocker::KeptFor { name, from, until: over, unbounded } => {
                    let spec = &view.reserved[name];
                    prop_assert_eq!((spec.from, spec.until), (*from, *over));
                    let kept = |n: &NodeId| oracle::keeps((name, spec), n, job, (NOW.0, until));
                    let keeps_one = view.nodes.iter().any(|(n, node)| {
                        oracle::fits(n, node, job) && node.holder.is_none() && kept(n)
                    });
                    prop_assert!(keeps_one);
                    prop_assert_eq!(*unbounded, job.walltime_ms.is_none() && *from > NOW);
                }
                Blocker::ReservationLater { name, at } => {
                    prop_assert_eq!(view.reserved[name].from, *at);
                    prop_assert!(*at > NOW);
                }
                Blocker::ReservationOver { name, at } => {
                    prop_assert_eq!(view.reserved[name].until, Some(*at));
                    prop_assert!(*at <= NOW);
                }
                Blocker::ReservationGone { name } => {
                    prop_assert!(!view.reserved.contains_key(name));
                }
                Blocker::ReservationNotFor { name, .. } => {
                    prop_assert!(!view.reserved[name].permits(&job.user, &job.project));
                }
                _ => prop_assert!(oracle::may_start(&view, job, NOW.0) || job.nodes == 0),
            }
        }
    }
}
