//! Any number of reservations, with resources rationed over time: no reservation is delayed, by nodes, power, bandwidth
//! or limits.

use super::{arbitrary::*, build::*, oracle, properties::names};
use crate::*;
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis, limit::Resource, spec::Constraints};
use proptest::{collection::vec, prelude::*};
use std::collections::{BTreeMap, BTreeSet};

/// Use of nodes in an interval that a plan grants.
pub(super) struct Use<'a> {
    pub(super) id: AllocationId,
    pub(super) job: &'a PendingView,
    pub(super) nodes: Vec<NodeId>,
    pub(super) from: u64,
    pub(super) until: u64,
}

fn uses<'a>(view: &'a ClusterView, plan: &Plan) -> Vec<Use<'a>> {
    let given = |id: AllocationId, nodes: Vec<NodeId>, from: UnixMillis| {
        let job = &view.pending[&id];
        let until = job.walltime_ms.map_or(u64::MAX, |w| from.after(w).0);
        Use {
            id,
            job,
            nodes,
            from: from.0,
            until,
        }
    };
    let placed = plan.placements.iter().map(|p| given(p.id, names(p), NOW));
    let reserved = plan
        .reservations
        .iter()
        .map(|r| given(r.id, r.nodes.clone(), r.starts_at));
    placed.chain(reserved).collect()
}

/// Every time at which a use begins; between these times uses only end.
fn moments(uses: &[Use<'_>]) -> BTreeSet<u64> {
    uses.iter().map(|u| u.from).collect()
}

fn active<'u>(uses: &'u [Use<'u>], at: u64) -> impl Iterator<Item = &'u Use<'u>> {
    uses.iter().filter(move |u| u.from <= at && at < u.until)
}

/// Expected time at which a held node is released.
pub(super) fn returns(view: &ClusterView, node: &NodeView) -> Option<u64> {
    let holder = node.holder?;
    let end = view.running.get(&holder).and_then(|r| r.ends_at)?;
    Some(oracle::expected_end(end).0)
}

/// Whether the domain is `payer` or is contained in it.
pub(super) fn pays(view: &ClusterView, domain: &str, payer: &str) -> bool {
    let mut at = Some(domain);
    for _ in 0..=view.power.len() {
        match at {
            Some(name) if !view.power.contains_key(name) => return false,
            Some(name) if name == payer => return true,
            Some(name) => at = view.power[name].parent.as_deref(),
            None => return false,
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(600)))]

    #[test]
    fn a_node_is_never_given_twice_at_a_time(view in rationed_view(), policy in any_policy()) {
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        let uses = uses(&view, &plan);
        for (n, one) in uses.iter().enumerate() {
            prop_assert_eq!(one.nodes.len(), one.job.nodes as usize);
            for name in &one.nodes {
                let node = &view.nodes[name];
                prop_assert!(oracle::fits(name, node, one.job));
                let free = node.holder.is_none() || returns(&view, node).is_some_and(|at| at <= one.from);
                prop_assert!(free, "{name} for {}", one.id);
            }
            for other in &uses[n + 1..] {
                let apart = one.until <= other.from || other.until <= one.from;
                let shared = one.nodes.iter().any(|name| other.nodes.contains(name));
                prop_assert!(apart || !shared, "{} and {}", one.id, other.id);
            }
        }
    }

    #[test]
    fn power_never_passes_what_a_domain_has(
        view in prop_oneof![rationed_view(), short_of_power()],
        policy in any_policy(),
    ) {
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        let uses = uses(&view, &plan);
        for (name, domain) in &view.power {
            let charge = |node: &NodeView| match &node.facts.charge {
                Some(charge) if pays(&view, &charge.domain, name) => charge.mw,
                _ => 0,
            };
            for at in moments(&uses) {
                let back = view.nodes.values().filter(|node| {
                    returns(&view, node).is_some_and(|end| end <= at)
                });
                let back: u64 = back.map(charge).sum();
                let left = i128::from(domain.headroom_mw) + i128::from(back);
                let drawn = active(&uses, at).flat_map(|u| &u.nodes);
                let drawn: u64 = drawn.map(|n| charge(&view.nodes[n])).sum();
                prop_assert!(drawn == 0 || i128::from(drawn) <= left, "{name} at {at}: {drawn} of {left}");
            }
        }
    }

    #[test]
    fn bandwidth_never_passes_what_a_system_has(view in rationed_view(), policy in any_policy()) {
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        let uses = uses(&view, &plan);
        for (name, storage) in &view.storage {
            let of = |asked: &std::collections::BTreeMap<String, u64>| asked.get(name).copied().unwrap_or(0);
            for at in moments(&uses) {
                let back = view.running.values().filter(|running| {
                    running.ends_at.is_some_and(|end| oracle::expected_end(end).0 <= at)
                });
                let back: u64 = back.map(|r| of(&r.storage_mb_s)).sum();
                let left = i128::from(storage.left_mb_s) + i128::from(back);
                let asked: u64 = active(&uses, at).map(|u| of(&u.job.storage_mb_s)).sum();
                prop_assert!(asked == 0 || i128::from(asked) <= left, "{name} at {at}: {asked} of {left}");
            }
        }
    }

    #[test]
    fn limits_hold_when_reserved_work_starts(view in rationed_view(), policy in any_policy()) {
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        let uses = uses(&view, &plan);
        for (path, level) in &view.levels {
            for at in moments(&uses) {
                let inside = active(&uses, at).filter(|u| u.job.project.is_within(path));
                let (nodes, count) = inside.fold((0, 0), |(nodes, count), u| (nodes + u.nodes.len() as u64, count + 1));
                for (resource, more) in [(Resource::Nodes, nodes), (Resource::Allocations, count)] {
                    let limit = level.limits.get(resource).unwrap_or(u64::MAX);
                    prop_assert!(more == 0 || level.own.with(level.subtree).get(resource) + more <= limit);
                }
            }
        }
    }

    #[test]
    fn there_are_as_many_reservations_as_asked_for(view in rationed_view(), policy in any_policy()) {
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        if let PlannedReservations::First(most) = policy.reservations {
            prop_assert!(plan.reservations.len() <= most as usize);
        }
        for reservation in &plan.reservations {
            let starts = why(&plan, reservation.id.0).estimated_start;
            prop_assert_eq!(starts, Some(reservation.starts_at));
        }
        let estimated = plan.waiting.iter().filter(|(_, why)| why.estimated_start.is_some());
        prop_assert_eq!(estimated.count(), plan.reservations.len());
    }

    #[test]
    fn a_warm_planner_plans_as_a_cold_one_whatever_is_rationed(
        view in rationed_view(),
        policy in any_policy(),
        deltas in vec(rationed_delta(), 1..6),
    ) {
        let mut warm = Planner::with_policy(view, policy);
        for (n, mut delta) in deltas.into_iter().enumerate() {
            let now = NOW.after(n as u64 * MINUTE);
            warm.plan(now);
            of_the_same_hardware(warm.view(), &mut delta);
            for job in delta.pending.values_mut().flatten() {
                job.sensitive = job.nodes < 6;
            }
            warm.update(delta);
            let mut cold = Planner::with_policy(warm.view().clone(), policy);
            let (warm, cold) = (warm.plan(now), cold.plan(now));
            prop_assert_eq!(serde_json::to_string(&warm).unwrap(), serde_json::to_string(&cold).unwrap());
        }
    }

    /// Every count equals the result of examining the queue and every node.
    #[test]
    fn free_and_not_reserved_nodes_are_counted_right(view in rationed_view(), policy in any_policy()) {
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        let mut free: BTreeSet<&NodeId> =
            view.nodes.iter().filter(|(_, node)| node.holder.is_none()).map(|(name, _)| name).collect();
        let waiting: BTreeMap<u32, (AllocationId, Explanation)> =
            plan.waiting.iter().map(|(id, why)| (why.ahead, (id, why))).collect();
        let mut placements = plan.placements.iter();
        let mut reserved: Vec<(&PlannedReservation, &PendingView)> = Vec::new();
        for turn in 0..u32::try_from(view.pending.len()).unwrap() {
            let Some((id, why)) = waiting.get(&turn) else {
                let placed = placements.next().unwrap();
                placed.nodes.iter().for_each(|n| { free.remove(&n.node); });
                continue;
            };
            let job = &view.pending[id];
            let end = job.walltime_ms.map(|walltime| NOW.after(walltime));
            let open = |name: &&&NodeId| fits_for(name, &view.nodes[**name], job);
            let is_held = |name: &NodeId| reserved.iter().any(|(held, by)| match end {
                Some(end) => held.starts_at < end && held.nodes.contains(name),
                None => fits_for(name, &view.nodes[name], by),
            });
            let here = free.iter().filter(open).count();
            let left = free.iter().filter(open).filter(|name| !is_held(name)).count();
            for step in &why.steps {
                let expected = match step.constraint {
                    Constraint::Free => here,
                    Constraint::NotReserved => left,
                    _ => continue,
                };
                prop_assert_eq!(step.left as usize, expected, "{:?} of {}", step.constraint, id);
            }
            if let Some(made) = plan.reservations.iter().find(|made| made.id == *id) {
                reserved.push((made, job));
            }
        }
    }
}

/// Fit including nodes claimed by the user, without nodes claimed by others.
fn fits_for(name: &NodeId, node: &NodeView, job: &PendingView) -> bool {
    let is_theirs =
        |owner: &Owner| job.sensitive && owner.user == job.user && owner.project == job.project;
    oracle::fits(name, node, job) && node.owner.as_ref().is_none_or(is_theirs)
}

/// A count made for the later reservation is not valid for the earlier one, though each has one reservation.
#[test]
fn a_reservation_that_comes_earlier_changes_what_is_open() {
    let mut view = machine(1, 6);
    run(&mut view, 100, &["n0-03"], Some(10));
    run(&mut view, 101, &["n0-04", "n0-05"], Some(30));
    let without_one = Constraints {
        exclude: vec![id("n0-02")],
        ..Constraints::default()
    };
    let later = PendingView {
        constraints: without_one,
        ..job(5, Some(60))
    };
    let jobs = [later, job(2, Some(60)), job(4, Some(15)), job(1, Some(20))];
    for (n, (class, job)) in (1..).zip((1..=9).rev().zip(jobs)) {
        submit(&mut view, n, PendingView { class, ..job });
    }
    let policy = Policy {
        reservations: PlannedReservations::First(3),
        ..Policy::default()
    };
    let plan = Planner::with_policy(view, policy).plan(NOW);
    let starts = plan
        .reservations
        .iter()
        .map(|r| (r.id.0, r.starts_at.since(NOW) / MINUTE));
    assert_eq!(starts.collect::<Vec<_>>(), [(1, 30), (2, 90), (3, 10)]);
    let reserved = |by, minutes| Blocker::Reserved {
        by: AllocationId(by),
        starts_at: NOW.after(minutes * MINUTE),
        unbounded: false,
    };
    assert_eq!(why(&plan, 2).blocker, reserved(1, 30));
    assert_eq!(why(&plan, 4).blocker, reserved(3, 10));
}

/// A node of high power would leave too little power for the third node.
#[test]
fn what_can_be_paid_at_all_is_found() {
    let mut view = machine(4, 2);
    for (name, node) in &mut view.nodes {
        let name = name.to_string();
        let mw = if name.starts_with("n0") { 5 } else { 1 };
        let domain = "hall".to_owned();
        node.facts.charge = Some(Charge { domain, mw });
        // One node of each of the other groups.
        node.in_service = mw == 5 || name.ends_with("00");
    }
    let hall = DomainView {
        parent: None,
        headroom_mw: 6,
    };
    view.power.insert("hall".to_owned(), hall);
    submit(&mut view, 1, job(3, Some(60)));
    let cheap = ["n1-00", "n2-00", "n3-00"].map(str::to_owned);
    assert_eq!(placed(&plan(&view)), [(1, cheap.to_vec())]);
}
