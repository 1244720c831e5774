//! Layout of jobs that do not request tight placement.

use super::{arbitrary::*, build::*, oracle, properties::names};
use crate::*;
use lattice_quorum_types::{
    NodeId,
    spec::{Constraints, Spread},
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Groups of these sizes with equal nodes.
fn groups(sizes: &[usize]) -> ClusterView {
    let mut view = machine(0, 0);
    for (g, size) in sizes.iter().enumerate() {
        for n in 0..*size {
            let node = node(&format!("g{g}"), key(1));
            view.nodes.insert(id(&format!("n{g}-{n:02}")), node);
        }
    }
    view
}

fn laid_out(nodes: u32, spread: Spread) -> PendingView {
    let constraints = Constraints {
        spread,
        ..Constraints::default()
    };
    PendingView {
        constraints,
        ..job(nodes, Some(60))
    }
}

#[test]
fn work_that_is_spread_has_a_node_of_each_group_in_turn() {
    let mut view = groups(&[1, 4, 2, 3]);
    let mut nodes = |asked| {
        submit(&mut view, 1, laid_out(asked, Spread::Spread));
        placed(&plan(&view)).remove(0).1
    };
    assert_eq!(nodes(2), ["n1-00", "n3-00"], "of the largest");
    assert_eq!(nodes(4), ["n0-00", "n1-00", "n2-00", "n3-00"]);
    let six = ["n0-00", "n1-00", "n1-01", "n2-00", "n3-00", "n3-01"];
    assert_eq!(nodes(6), six, "again from the largest on");
    // All nodes of the two small groups, and the rest from the others.
    let nine = nodes(9);
    let of = |group: &str| nine.iter().filter(|name| name.starts_with(group)).count();
    assert_eq!(["n0", "n1", "n2", "n3"].map(of), [1, 3, 2, 3]);
}

#[test]
fn work_that_may_lie_anywhere_is_of_one_kind_and_takes_the_first_nodes() {
    let mut view = groups(&[1, 2, 4]);
    submit(&mut view, 1, laid_out(3, Spread::Any));
    assert_eq!(placed(&plan(&view))[0].1, ["n0-00", "n1-00", "n1-01"]);
    for name in ["n1-00", "n2-01"] {
        view.nodes.get_mut(&id(name)).unwrap().facts.conformance = key(2);
    }
    assert_eq!(placed(&plan(&view))[0].1, ["n0-00", "n1-01", "n2-00"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(600)))]

    /// Before anything is held back: as many groups as possible, or all nodes of one kind, whichever is better by the
    /// weights.
    #[test]
    fn work_that_is_not_tight_lies_as_it_asked(mut view in any_view()) {
        for (n, job) in view.pending.values_mut().enumerate() {
            job.constraints.spread = if n % 2 == 0 { Spread::Spread } else { Spread::Any };
        }
        // Deprioritised nodes are worth an additional group.
        without_last_resorts(&mut view);
        let plan = plan(&view);
        let mut taken: BTreeSet<NodeId> = BTreeSet::new();
        for placement in plan.placements.iter().filter(|p| !p.backfilled) {
            let job = &view.pending[&placement.id];
            let open = view.nodes.iter().filter(|(n, v)| {
                v.holder.is_none() && !taken.contains(*n) && oracle::fits(n, v, job)
            });
            let mut kinds: BTreeMap<ConformanceKey, Vec<NodeId>> = BTreeMap::new();
            for (name, node) in open {
                kinds.entry(node.facts.conformance).or_default().push(name.clone());
            }
            let all: Vec<NodeId> = kinds.values().flatten().cloned().collect();
            kinds.remove(&ConformanceKey::Unknown);
            let chosen = names(placement);
            taken.extend(chosen.iter().cloned());
            let fitting = view.nodes.iter().filter(|(n, v)| oracle::fits(n, v, job));
            let fitting: Vec<NodeId> = fitting.map(|(n, _)| n.clone()).collect();
            let groups = oracle::span(&view, &fitting) as f64;
            let value = |span: usize, alike: f64| match job.constraints.spread {
                Spread::Spread => 0.15 * span as f64 / groups + 0.10 * alike,
                _ => 0.10 * alike,
            };
            let most = |of: &Vec<NodeId>| oracle::span(&view, of).min(chosen.len());
            let of_kinds = kinds.values().filter(|kind| kind.len() >= chosen.len());
            let inside = of_kinds.map(|kind| value(most(kind), 1.0));
            let mixed = (!job.sensitive).then(|| value(most(&all), 1.0 / chosen.len() as f64));
            let best = inside.chain(mixed).fold(0.0, f64::max);
            let layout = &placement.layout;
            let found = value(layout.span() as usize, layout.conformance);
            prop_assert!(found >= best - 1e-9, "{} of {} in {}", found, best, placement.id);
        }
    }
}
