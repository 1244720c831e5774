//! Properties of every plan, on random small clusters.

use super::{arbitrary::*, build::*, oracle};
use crate::*;
use lattice_quorum_types::{NodeId, UnixMillis, limit::Resource, spec::Spread};
use proptest::{collection::vec, prelude::*};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn names(placement: &Placement) -> Vec<NodeId> {
    placement.nodes.iter().map(|n| n.node.clone()).collect()
}

/// Free time of each node that a plan may count on, placements included; nodes busy without an end are absent.
fn free_from(view: &ClusterView, plan: &Plan) -> BTreeMap<NodeId, UnixMillis> {
    let mut free: BTreeMap<NodeId, UnixMillis> = BTreeMap::new();
    for (name, node) in &view.nodes {
        match node.holder {
            None => {
                free.insert(name.clone(), NOW);
            }
            Some(holder) => {
                if let Some(end) = view.running.get(&holder).and_then(|r| r.ends_at) {
                    free.insert(name.clone(), oracle::expected_end(end));
                }
            }
        }
    }
    for placement in &plan.placements {
        for name in names(placement) {
            match view.pending[&placement.id].walltime_ms {
                Some(walltime) => free.insert(name, NOW.after(walltime)),
                None => free.remove(&name),
            };
        }
    }
    free
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(400)))]

    #[test]
    fn a_plan_gives_free_fitting_nodes_once(view in any_view()) {
        let plan = plan(&view);
        let mut taken = BTreeSet::new();
        for placement in &plan.placements {
            let job = &view.pending[&placement.id];
            prop_assert_eq!(placement.nodes.len(), job.nodes as usize);
            for expected in &placement.nodes {
                let node = &view.nodes[&expected.node];
                prop_assert!(taken.insert(expected.node.clone()), "{} twice", expected.node);
                prop_assert_eq!(expected.version, node.version);
                prop_assert!(node.holder.is_none() && node.owner.is_none());
                prop_assert!(oracle::fits(&expected.node, node, job));
            }
            let names = names(placement);
            let alike = oracle::largest_alike(&view, &names);
            prop_assert_eq!(placement.layout.conformance, alike as f64 / names.len() as f64);
            prop_assert_eq!(placement.layout.span() as usize, oracle::span(&view, &names));
            let known = |n: &NodeId| view.nodes[n].facts.conformance != ConformanceKey::Unknown;
            prop_assert!(!job.sensitive || (alike == names.len() && names.iter().all(known)));
        }
    }

    #[test]
    fn starts_only_query_equals_plan(
        view in prop_oneof![any_view(), rationed_view(), short_of_power(), kept(rationed_view())],
        policy in any_policy(),
    ) {
        let plans = [Planner::plan, Planner::plan_starts].map(|make| {
            make(&mut Planner::with_policy(view.clone(), policy), NOW)
        });
        prop_assert_eq!(&plans[0].placements, &plans[1].placements);
        prop_assert_eq!(&plans[0].reservations, &plans[1].reservations);
        prop_assert!(plans[1].waiting.is_empty());
    }

    #[test]
    fn every_job_is_placed_or_explained(view in any_view()) {
        let plan = plan(&view);
        let placed: BTreeSet<_> = plan.placements.iter().map(|p| p.id).collect();
        let explained: BTreeSet<_> = plan.waiting.ids().collect();
        prop_assert!(placed.is_disjoint(&explained));
        prop_assert_eq!(placed.len(), plan.placements.len());
        prop_assert!(placed.union(&explained).eq(view.pending.keys()));
    }

    #[test]
    fn the_counts_of_an_explanation_add_up(view in any_view(), policy in any_policy()) {
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        for (id, explanation) in plan.waiting.iter() {
            let job = &view.pending[&id];
            prop_assert_eq!(explanation.needed, job.nodes);
            let mut left = explanation.total;
            prop_assert_eq!(left as usize, view.nodes.len());
            for step in &explanation.steps {
                prop_assert_eq!(left - step.removed, step.left);
                left = step.left;
            }
            let fitting = view.nodes.iter().filter(|(n, v)| oracle::fits(n, v, job));
            let fitting = u32::try_from(fitting.count()).unwrap();
            let before_free =
                explanation.steps.iter().rfind(|s| s.constraint < Constraint::Free).unwrap();
            prop_assert_eq!(before_free.left, fitting);
            match explanation.blocker {
                Blocker::NotEnoughNodes { short } => prop_assert_eq!(fitting + short, job.nodes),
                Blocker::NodesBusy { short } => {
                    prop_assert!(short > 0);
                    prop_assert_eq!(left + short, job.nodes);
                }
                Blocker::NotConforming { short } => {
                    prop_assert!(short > 0 && job.sensitive && left < job.nodes);
                }
                Blocker::Reserved { .. } => prop_assert!(left < job.nodes),
                Blocker::NoNodesAsked => prop_assert_eq!(job.nodes, 0),
                Blocker::UnknownProject { .. } => {
                    prop_assert!(job.project.ancestors().any(|p| !view.levels.contains_key(&p)));
                }
                Blocker::QuotaHeadroom { ref levels } => prop_assert!(!levels.is_empty()),
                Blocker::HeadroomReserved { .. } => {}
                Blocker::SensitivePool { current, requested, limit } => {
                    prop_assert!(job.sensitive && current + requested > limit && requested > 0);
                    prop_assert_eq!(view.sensitive_pool.size, Some(limit));
                }
                Blocker::KeptFor { .. } => prop_assert!(left < job.nodes),
                Blocker::BeginsLater { at } => prop_assert!(at > NOW && job.eligible_at == at),
                // Nothing is rationed here, and only the proposer has the attestations.
                Blocker::PowerShort { .. }
                | Blocker::NotEnoughPower { .. }
                | Blocker::StorageShort { .. }
                | Blocker::NotAssigned { .. }
                | Blocker::ReservationLater { .. }
                | Blocker::ReservationOver { .. }
                | Blocker::ReservationGone { .. }
                | Blocker::ReservationNotFor { .. }
                | Blocker::TooMuchToProve { .. } => prop_assert!(false),
            }
        }
    }

    /// Claimed nodes add nothing to the pool.
    #[test]
    fn the_sensitive_pool_is_never_passed(view in any_view()) {
        let plan = plan(&view);
        let mut pool = view.sensitive_pool;
        for placement in &plan.placements {
            let job = &view.pending[&placement.id];
            let more = placement.nodes.iter().filter(|n| view.nodes[&n.node].owner.is_none());
            let more = more.count() as u64;
            if job.sensitive {
                prop_assert!(pool.has_room_for(more));
                pool.used += more;
            }
        }
    }

    #[test]
    fn no_limit_is_passed_at_any_level(view in any_view()) {
        let plan = plan(&view);
        for (path, level) in &view.levels {
            let inside = plan.placements.iter().filter(|p| view.pending[&p.id].project.is_within(path));
            let (mut nodes, mut count) = (0, 0);
            for placement in inside {
                nodes += placement.nodes.len() as u64;
                count += 1;
            }
            for (resource, more) in [(Resource::Nodes, nodes), (Resource::Allocations, count)] {
                let limit = level.limits.get(resource).unwrap_or(u64::MAX);
                prop_assert!(more == 0 || level.own.with(level.subtree).get(resource) + more <= limit);
            }
        }
    }

    /// Judged by the exact nodes, and by the limits.
    #[test]
    fn nothing_delays_a_reservation(view in any_view()) {
        let plan = plan(&view);
        prop_assert!(plan.reservations.len() <= 1);
        let free = free_from(&view, &plan);
        for reservation in &plan.reservations {
            let job = &view.pending[&reservation.id];
            prop_assert_eq!(reservation.nodes.len(), job.nodes as usize);
            prop_assert!(reservation.starts_at >= NOW);
            for name in &reservation.nodes {
                prop_assert!(oracle::fits(name, &view.nodes[name], job));
                prop_assert!(free.get(name).is_some_and(|at| *at <= reservation.starts_at));
            }
            let alike = oracle::largest_alike(&view, &reservation.nodes);
            prop_assert!(!job.sensitive || alike == reservation.nodes.len());
            let explanation = why(&plan, reservation.id.0);
            prop_assert_eq!(explanation.estimated_start, Some(reservation.starts_at));
            for path in job.project.ancestors() {
                let level = &view.levels[&path];
                let running_then = plan.placements.iter().filter(|p| {
                    let other = &view.pending[&p.id];
                    let past = |w| NOW.after(w) > reservation.starts_at;
                    other.project.is_within(&path) && other.walltime_ms.is_none_or(past)
                });
                let nodes: u64 = running_then.map(|p| p.nodes.len() as u64).sum();
                let limit = level.limits.max_nodes.unwrap_or(u64::MAX);
                prop_assert!(level.own.with(level.subtree).nodes + nodes + u64::from(job.nodes) <= limit);
            }
        }
    }

    /// One moment earlier there would be too few nodes, even without backfill.
    #[test]
    fn a_reservation_starts_as_early_as_the_releases_allow(view in any_view()) {
        let mut plan = plan(&view);
        let Some(reservation) = plan.reservations.first().cloned() else { return Ok(()) };
        plan.placements.retain(|p| !p.backfilled);
        let free = free_from(&view, &plan);
        let job = &view.pending[&reservation.id];
        let earlier: Vec<NodeId> = free
            .iter()
            .filter(|(_, at)| **at < reservation.starts_at)
            .map(|(name, _)| name.clone())
            .filter(|name| oracle::fits(name, &view.nodes[name], job))
            .collect();
        let usable = if job.sensitive {
            let known = |n: &&NodeId| view.nodes[*n].facts.conformance != ConformanceKey::Unknown;
            let known: Vec<NodeId> = earlier.iter().filter(known).cloned().collect();
            if known.is_empty() { 0 } else { oracle::largest_alike(&view, &known) }
        } else {
            earlier.len()
        };
        prop_assert!(usable < job.nodes as usize);
    }

    #[test]
    fn work_without_an_end_is_never_backfilled(view in any_view()) {
        let plan = plan(&view);
        let Some(reservation) = plan.reservations.first() else { return Ok(()) };
        let job = &view.pending[&reservation.id];
        for placement in plan.placements.iter().filter(|p| p.backfilled) {
            if view.pending[&placement.id].walltime_ms.is_none() {
                let other_hardware = |n: &NodeId| !oracle::fits(n, &view.nodes[n], job);
                prop_assert!(names(placement).iter().all(other_hardware));
            }
        }
    }

    /// Before anything is held back, every free node was available.
    #[test]
    fn a_placement_touches_the_fewest_groups(mut view in any_view()) {
        // Deprioritised nodes are worth another group.
        without_last_resorts(&mut view);
        let plan = plan(&view);
        let mut taken: BTreeSet<NodeId> = BTreeSet::new();
        for placement in plan.placements.iter().filter(|p| !p.backfilled) {
            let job = &view.pending[&placement.id];
            let candidates: Vec<NodeId> = view
                .nodes
                .iter()
                .filter(|(n, v)| v.holder.is_none() && !taken.contains(*n))
                .filter(|(n, v)| oracle::fits(n, v, job))
                .map(|(n, _)| n.clone())
                .collect();
            let chosen = names(placement);
            taken.extend(chosen.iter().cloned());
            if job.constraints.spread != Spread::Tight {
                continue;
            }
            let needed = chosen.len();
            // Inside one conformance group fewer groups do not suffice.
            let of = |key| {
                let same = |n: &&NodeId| view.nodes[*n].facts.conformance == key;
                candidates.iter().filter(same).cloned().collect::<Vec<_>>()
            };
            let key = view.nodes[&chosen[0]].facts.conformance;
            let alike = key != ConformanceKey::Unknown
                && oracle::largest_alike(&view, &chosen) == needed;
            let least = oracle::fewest_groups(&view, &candidates, needed).unwrap();
            let span = oracle::span(&view, &chosen);
            if alike {
                let inside = oracle::fewest_groups(&view, &of(key), needed).unwrap();
                // Either the fewest inside its conformance group, or the fewest of all.
                prop_assert!(span == inside || span == least, "{span} {inside} {least}");
            } else {
                prop_assert_eq!(span, least);
            }
            if !job.sensitive {
                let layout = &placement.layout;
                let value = 0.15 * layout.topology + 0.10 * layout.conformance;
                prop_assert!(value >= oracle::best_value(&view, &candidates, needed) - 1e-9);
            }
        }
    }

    /// Before anything is held back: degraded nodes, and those that a baseline deprioritises.
    #[test]
    fn last_choice_nodes_serve_only_large_jobs(view in any_view()) {
        let comes_last = |n: &NodeId| {
            let facts = &view.nodes[n].facts;
            facts.deprioritised || facts.health == Health::Degraded
        };
        let plan = plan(&view);
        let mut taken: BTreeSet<NodeId> = BTreeSet::new();
        for placement in plan.placements.iter().filter(|p| !p.backfilled) {
            let job = &view.pending[&placement.id];
            let chosen = names(placement);
            if chosen.iter().any(comes_last) {
                let others: Vec<NodeId> = view
                    .nodes
                    .iter()
                    .filter(|(n, v)| v.holder.is_none() && !taken.contains(*n) && !comes_last(n))
                    .filter(|(n, v)| oracle::fits(n, v, job))
                    .filter(|(_, v)| !job.sensitive || v.facts.conformance != ConformanceKey::Unknown)
                    .map(|(n, _)| n.clone())
                    .collect();
                let enough = match job.sensitive {
                    true if others.is_empty() => 0,
                    true => oracle::largest_alike(&view, &others),
                    false => others.len(),
                };
                prop_assert!(enough < chosen.len(), "{others:?}");
            }
            taken.extend(chosen);
        }
    }

    /// A job blocked by busy nodes still is when everything is placed.
    #[test]
    fn no_free_nodes_are_left_that_a_busy_job_could_have(view in any_view()) {
        let plan = plan(&view);
        let taken: BTreeSet<NodeId> = plan.placements.iter().flat_map(names).collect();
        for (id, explanation) in plan.waiting.iter() {
            let job = &view.pending[&id];
            if job.sensitive || !matches!(explanation.blocker, Blocker::NodesBusy { .. }) {
                continue;
            }
            let free = view.nodes.iter().filter(|(n, v)| {
                v.holder.is_none() && !taken.contains(*n) && oracle::fits(n, v, job)
            });
            prop_assert!(free.count() < job.nodes as usize);
        }
    }

    #[test]
    fn a_warm_planner_plans_as_a_cold_one(view in any_view(), deltas in vec(any_delta(), 1..6)) {
        let mut warm = Planner::new(view);
        for (n, delta) in deltas.into_iter().enumerate() {
            let now = NOW.after(n as u64 * MINUTE);
            warm.plan(now);
            warm.update(delta);
            let mut cold = Planner::new(warm.view().clone());
            let (warm, cold) = (warm.plan(now), cold.plan(now));
            prop_assert_eq!(serde_json::to_vec(&warm).unwrap(), serde_json::to_vec(&cold).unwrap());
        }
    }

    #[test]
    fn placements_are_in_the_order_of_their_scores(view in any_view()) {
        let plan = plan(&view);
        let scores: Vec<f64> = plan.placements.iter().map(|p| p.score.total).collect();
        prop_assert!(scores.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn reports_scores_as_used(view in any_view()) {
        let mut planner = Planner::new(view);
        let scores: BTreeMap<_, _> = planner.scores(NOW).into_iter().collect();
        let plan = planner.plan(NOW);
        let placed = plan.placements.iter().map(|placed| (placed.id, placed.score));
        let waiting = plan.waiting.iter().filter_map(|(id, why)| Some((id, why.score?)));
        let used: BTreeMap<_, _> = placed.chain(waiting).collect();
        prop_assert_eq!(scores, used);
    }
}
