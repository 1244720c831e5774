//! The rules again, in a slow and simple form, for comparison with the solver. This module uses none of the solver's
//! index, sets or choices.

use super::build::{MINUTE, NOW};
use crate::*;
use lattice_quorum_types::{NodeId, UnixMillis, id::ReservationName, reservation::ReservationSpec};
use std::collections::{BTreeMap, BTreeSet};

/// Whether the node fits the job, busy or not.
pub(super) fn fits(name: &NodeId, node: &NodeView, job: &PendingView) -> bool {
    let (facts, wanted) = (&node.facts, &job.constraints);
    let is_well_enough = match facts.health {
        Health::Healthy => true,
        Health::Degraded => !job.sensitive,
        Health::Unknown | Health::Faulty => false,
    };
    let model = facts
        .gpu_model
        .as_deref()
        .unwrap_or_default()
        .to_lowercase();
    let at_least = |least: Option<u64>, has: Option<u64>| {
        least.is_none_or(|least| has.is_some_and(|has| has >= least))
    };
    node.in_service
        && facts.liveness == Liveness::Alive
        && is_well_enough
        && (wanted.gpu_models.is_empty()
            || wanted
                .gpu_models
                .iter()
                .any(|m| model.contains(&m.to_lowercase())))
        && at_least(
            wanted.gpus_per_node.map(u64::from),
            facts.gpu_count.map(u64::from),
        )
        && at_least(wanted.memory_bytes, facts.memory_bytes)
        && wanted.features.iter().all(|f| facts.features.contains(f))
        && (wanted.nodelist.is_empty() || wanted.nodelist.contains(name))
        && !wanted.exclude.contains(name)
        && !(job.home_only && node.borrowed)
}

/// Expected end of an allocation that must end at `end`.
pub(super) fn expected_end(end: UnixMillis) -> UnixMillis {
    if end > NOW {
        return end;
    }
    NOW.after(NOW.since(end).max(MINUTE))
}

/// A node without a known group is a group of its own.
fn group(name: &NodeId, node: &NodeView) -> (Option<String>, Option<NodeId>) {
    match &node.facts.group {
        Some(group) => (Some(group.clone()), None),
        None => (None, Some(name.clone())),
    }
}

/// Number of groups that the named nodes touch.
pub(super) fn span(view: &ClusterView, names: &[NodeId]) -> usize {
    names
        .iter()
        .map(|n| group(n, &view.nodes[n]))
        .collect::<BTreeSet<_>>()
        .len()
}

/// Largest conformance group among the named nodes.
pub(super) fn largest_alike(view: &ClusterView, names: &[NodeId]) -> usize {
    let mut sizes: BTreeMap<ConformanceKey, usize> = BTreeMap::new();
    for name in names {
        *sizes.entry(view.nodes[name].facts.conformance).or_default() += 1;
    }
    sizes.remove(&ConformanceKey::Unknown);
    sizes.into_values().max().unwrap_or(1)
}

/// Fewest groups that hold `needed` of the named nodes, by trying every set of groups.
pub(super) fn fewest_groups(view: &ClusterView, names: &[NodeId], needed: usize) -> Option<usize> {
    let mut sizes: BTreeMap<_, usize> = BTreeMap::new();
    for name in names {
        *sizes.entry(group(name, &view.nodes[name])).or_default() += 1;
    }
    let sizes: Vec<usize> = sizes.into_values().collect();
    let holds = |set: &u32| {
        let taken = sizes
            .iter()
            .enumerate()
            .filter(|(g, _)| set & (1 << g) != 0);
        taken.map(|(_, size)| size).sum::<usize>() >= needed
    };
    (0..1_u32 << sizes.len())
        .filter(holds)
        .map(|set| set.count_ones() as usize)
        .min()
}

/// The best `w4·f4 + w9·f9` among the fewest groups of any nodes (with their conformance), and the fewest groups inside
/// each conformance group.
pub(super) fn best_value(view: &ClusterView, names: &[NodeId], needed: usize) -> f64 {
    let groups = span(view, names) as f64;
    let value = |span: usize, alike: f64| 0.15 * (1.0 - span as f64 / groups) + 0.10 * alike;
    let any = fewest_groups(view, names, needed).map(|s| value(s, 1.0 / needed as f64));
    let keys: BTreeSet<ConformanceKey> = names
        .iter()
        .map(|n| view.nodes[n].facts.conformance)
        .collect();
    let inside = keys
        .into_iter()
        .filter(|k| *k != ConformanceKey::Unknown)
        .filter_map(|k| {
            let alike = |n: &&NodeId| view.nodes[*n].facts.conformance == k;
            let members: Vec<NodeId> = names.iter().filter(alike).cloned().collect();
            fewest_groups(view, &members, needed).map(|s| value(s, 1.0))
        });
    any.into_iter()
        .chain(inside)
        .fold(f64::NEG_INFINITY, f64::max)
}

/// Every node that plans may count on, including lent ones.
pub(super) fn all_nodes(view: &ClusterView) -> impl Iterator<Item = (&NodeId, &NodeView)> {
    let lent = view.on_loan.iter();
    let away = lent.filter(|(name, _)| !view.nodes.contains_key(*name));
    let away = away.map(|(name, loan)| (name, &loan.node));
    view.nodes.iter().chain(away)
}

pub(super) fn node<'a>(view: &'a ClusterView, name: &NodeId) -> &'a NodeView {
    let here = view.nodes.get(name);
    here.unwrap_or_else(|| &view.on_loan[name].node)
}

/// Time from which a node is available, if foreseeable: `NOW` if it is free.
pub(super) fn back_at(view: &ClusterView, name: &NodeId) -> Option<u64> {
    let holder = node(view, name).holder;
    let end = holder.and_then(|holder| view.running.get(&holder)?.ends_at);
    let over = end.map(|end| expected_end(end).0);
    if view.nodes.contains_key(name) {
        return match holder {
            None => Some(NOW.0),
            Some(_) => over,
        };
    }
    let loan = &view.on_loan[name];
    let asked = loan.reclaimed_at.unwrap_or(NOW);
    let released = expected_end(asked.after(loan.release_after_ms)).0;
    Some(over.map_or(released, |over| over.min(released)))
}

/// Whether a reservation keeps the node from this job in a given interval.
pub(super) fn keeps(
    (name, spec): (&ReservationName, &ReservationSpec),
    node: &NodeId,
    job: &PendingView,
    (from, until): (u64, u64),
) -> bool {
    let is_meant = match &job.reservation {
        None => false,
        Some(own) => own == name || spec.permits(&job.user, &job.project),
    };
    let is_before = until <= spec.from.0;
    let is_over = spec.until.is_some_and(|over| over.0 <= from);
    spec.nodes.contains(node) && !is_meant && !is_before && !is_over
}

pub(super) fn is_kept(
    view: &ClusterView,
    node: &NodeId,
    job: &PendingView,
    time: (u64, u64),
) -> bool {
    let mut reserved = view.reserved.iter();
    reserved.any(|reservation| keeps(reservation, node, job, time))
}

/// Whether the node belongs to the reservation that the job names and that admits the job; true if it names none.
pub(super) fn is_of_its_own(view: &ClusterView, node: &NodeId, job: &PendingView) -> bool {
    let Some(name) = &job.reservation else {
        return true;
    };
    let own = view.reserved.get(name);
    own.is_some_and(|own| own.nodes.contains(node) && own.permits(&job.user, &job.project))
}

/// Whether the job may start then, according to the reservation that it names.
pub(super) fn may_start(view: &ClusterView, job: &PendingView, at: u64) -> bool {
    let Some(name) = &job.reservation else {
        return true;
    };
    let holds = |own: &ReservationSpec| {
        let is_over = own.until.is_some_and(|until| until.0 <= at);
        own.permits(&job.user, &job.project) && own.from.0 <= at && !is_over
    };
    view.reserved.get(name).is_some_and(holds)
}
