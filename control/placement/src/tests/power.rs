//! Power: explanations, and reservations for jobs that wait for it.

use super::{arbitrary::*, build::*, oracle, rationed::pays};
use crate::*;
use lattice_quorum_types::AllocationId;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Nodes of each group draw 1 mW each from the domain with the name of the group.
fn ration(view: &mut ClusterView, headroom_mw: &[(&str, i64)]) {
    for node in view.nodes.values_mut() {
        let domain = node.facts.group.clone().unwrap();
        node.facts.charge = Some(Charge { domain, mw: 1 });
    }
    for (name, headroom_mw) in headroom_mw {
        let domain = DomainView {
            parent: None,
            headroom_mw: *headroom_mw,
        };
        view.power.insert((*name).to_owned(), domain);
    }
}

fn sensitive(nodes: u32, minutes: u64) -> PendingView {
    PendingView {
        sensitive: true,
        ..job(nodes, Some(minutes))
    }
}

#[test]
fn power_that_could_never_run_so_many_is_not_waited_for() {
    let mut view = machine(1, 10);
    run(
        &mut view,
        90,
        &["n0-00", "n0-01", "n0-02", "n0-03"],
        Some(10),
    );
    run(&mut view, 91, &["n0-04"], None);
    ration(&mut view, &[("g0", 4)]);
    submit(&mut view, 1, job(10, Some(60)));
    submit(&mut view, 2, job(10, Some(60)));
    submit(&mut view, 3, job(4, Some(60)));
    let plan = plan(&view);
    let text = "needs 10 of 10 nodes: 5 free; cannot start: power is 1 nodes short, \
                even if no other job of the vCluster ran";
    assert_eq!(why(&plan, 1).to_string(), text);
    assert_eq!(why(&plan, 2).to_string(), text);
    assert_eq!(plan.reservations, []);
    assert_eq!(placed(&plan).len(), 1);
}

/// The power may return, but at an unknown time: nothing is held back for the job.
#[test]
fn power_of_work_without_an_end_is_not_counted_on() {
    let mut view = machine(2, 4);
    let second = ["n1-00", "n1-01", "n1-02", "n1-03"];
    run(&mut view, 90, &second, None);
    ration(&mut view, &[("g0", 3)]);
    for node in view.nodes.values_mut() {
        node.facts.charge.as_mut().unwrap().domain = "g0".to_owned();
    }
    for number in 1..4 {
        let mut four = PendingView {
            class: 9,
            ..job(4, Some(60))
        };
        four.constraints.exclude = second.map(id).to_vec();
        submit(&mut view, number, four);
    }
    submit(&mut view, 4, job(3, Some(600)));
    let plan = plan(&view);
    for number in 1..4 {
        assert_eq!(
            why(&plan, number).to_string(),
            "needs 4 of 8 nodes: 4 not excluded, 4 free; waiting for power for 1 more of its nodes"
        );
    }
    assert_eq!(plan.reservations, []);
    assert_eq!(placed(&plan).iter().map(|p| p.0).collect::<Vec<_>>(), [4]);
}

#[test]
fn power_for_sensitive_work_is_counted_of_nodes_that_are_alike() {
    let mut view = machine(4, 8);
    for (name, node) in &mut view.nodes {
        let group = name.as_str().as_bytes()[1];
        node.facts.conformance = key(group);
    }
    let busy: Vec<String> = (0..4)
        .flat_map(|g| (0..4).map(move |n| format!("n{g}-{n:02}")))
        .collect();
    let busy: Vec<&str> = busy.iter().map(String::as_str).collect();
    run(&mut view, 90, &busy, Some(10));
    ration(&mut view, &[("g0", 1), ("g1", 1), ("g2", 1), ("g3", 1)]);
    // Over all groups together four nodes could be powered.
    submit(&mut view, 1, sensitive(4, 60));
    let plan = plan(&view);
    assert_eq!(why(&plan, 1).blocker, Blocker::PowerShort { short: 3 });
    assert_eq!(plan.reservations[0].starts_at, NOW.after(10 * MINUTE));
}

#[test]
fn power_wait_reports_reserved_power() {
    let mut view = machine(1, 8);
    run(&mut view, 90, &["n0-00", "n0-01"], Some(10));
    ration(&mut view, &[("g0", 2)]);
    view.power.get_mut("g0").unwrap().headroom_mw = 6;
    let first = PendingView {
        class: 9,
        ..job(5, Some(60))
    };
    let with_names = |names: std::ops::Range<usize>, job: PendingView| PendingView {
        constraints: lattice_quorum_types::spec::Constraints {
            nodelist: names.map(|n| id(&format!("n0-{n:02}"))).collect(),
            ..job.constraints.clone()
        },
        ..job
    };
    submit(&mut view, 1, with_names(0..5, first));
    submit(&mut view, 2, job(3, Some(600)));
    let plan = plan(&view);
    assert_eq!(plan.reservations[0].id, AllocationId(1));
    // Of the future 8 mW, 5 belong to the first job.
    assert_eq!(placed(&plan).iter().map(|p| p.0).collect::<Vec<_>>(), [2]);
    view.power.get_mut("g0").unwrap().headroom_mw = 5;
    let plan = super::build::plan(&view);
    assert_eq!(
        why(&plan, 2).to_string(),
        "needs 3 of 8 nodes: 6 free, 3 not reserved; waiting for power for 1 more of its nodes"
    );
}

/// Remaining power of each domain if nothing ran.
fn at_all(view: &ClusterView) -> BTreeMap<&str, i128> {
    let mut at_all = BTreeMap::new();
    for (name, domain) in &view.power {
        let held = view.nodes.values().filter(|node| node.holder.is_some());
        let back = i128::from(drawn(view, held, name));
        at_all.insert(name.as_str(), i128::from(domain.headroom_mw) + back);
    }
    at_all
}

/// Power that nodes draw from a domain.
fn drawn<'a>(view: &ClusterView, nodes: impl Iterator<Item = &'a NodeView>, domain: &str) -> u64 {
    let charges = nodes.filter_map(|node| node.facts.charge.as_ref());
    let paid = charges.filter(|charge| pays(view, &charge.domain, domain));
    paid.map(|charge| charge.mw).sum()
}

/// Largest number of these nodes that can be powered together, by trying every set.
fn most_paid(view: &ClusterView, nodes: &[&NodeView]) -> usize {
    let at_all = at_all(view);
    let is_paid = |set: &u32| {
        let chosen = || {
            (0..nodes.len())
                .filter(|n| set & (1 << n) != 0)
                .map(|n| nodes[n])
        };
        at_all.iter().all(|(name, left)| {
            let drawn = drawn(view, chosen(), name);
            drawn == 0 || i128::from(drawn) <= *left
        })
    };
    let paid = (0..1_u32 << nodes.len()).filter(is_paid);
    paid.map(u32::count_ones).max().unwrap_or(0) as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(200)))]

    #[test]
    fn what_power_could_never_run_is_found_and_nothing_else(
        view in prop_oneof![rationed_view(), short_of_power()],
        policy in any_policy(),
    ) {
        let plan = Planner::with_policy(view.clone(), policy).plan(NOW);
        for (id, why) in plan.waiting.iter() {
            let job = &view.pending[&id];
            let fitting = view.nodes.iter().filter(|(name, node)| oracle::fits(name, node, job));
            let mut kinds: BTreeMap<ConformanceKey, Vec<&NodeView>> = BTreeMap::new();
            for (_, node) in fitting {
                let key = if job.sensitive { node.facts.conformance } else { ConformanceKey::Unknown };
                kinds.entry(key).or_default().push(node);
            }
            if job.sensitive {
                kinds.remove(&ConformanceKey::Unknown);
            }
            if kinds.values().any(|nodes| nodes.len() > 10) {
                continue;
            }
            let most = kinds.values().map(|nodes| most_paid(&view, nodes)).max().unwrap_or(0);
            match why.blocker {
                Blocker::NotEnoughPower { short } => {
                    prop_assert_eq!(most + short as usize, job.nodes as usize);
                }
                Blocker::NodesBusy { .. }
                | Blocker::Reserved { .. }
                | Blocker::StorageShort { .. }
                | Blocker::PowerShort { .. } => prop_assert!(most >= job.nodes as usize),
                _ => {}
            }
        }
    }
}

/// The search over sets of groups ends, even if no two groups are alike and no smaller set suffices.
#[test]
fn many_groups_that_are_all_unlike_are_soon_chosen_from() {
    let mut view = machine(200, 12);
    view.nodes.retain(|name, _| {
        let (group, number) = name.as_str()[1..].split_once('-').unwrap();
        let (group, number): (usize, usize) = (group.parse().unwrap(), number.parse().unwrap());
        number <= group * 7 % 12
    });
    ration(&mut view, &[("g0", 0)]);
    let mut all = 0;
    for node in view.nodes.values_mut() {
        let group: u64 = node.facts.group.as_ref().unwrap()[1..].parse().unwrap();
        let mw = 1_000 + group;
        node.facts.charge = Some(Charge {
            domain: "g0".to_owned(),
            mw,
        });
        all += i64::try_from(mw).unwrap();
    }
    view.power.get_mut("g0").unwrap().headroom_mw = all - 1;
    let needed = u32::try_from(view.nodes.len() * 3 / 5).unwrap();
    submit(&mut view, 1, job(needed, Some(60)));
    let plan = plan(&view);
    let mut sizes: Vec<usize> = (0..200).map(|group| group * 7 % 12 + 1).collect();
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    let mut held = 0;
    let fewer = sizes.iter().take_while(|size| {
        held += **size;
        held < needed as usize
    });
    let fewest = fewer.count() + 1;
    assert_eq!(plan.placements[0].layout.span() as usize, fewest);
}
