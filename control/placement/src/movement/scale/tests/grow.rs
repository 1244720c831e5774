//! Node choice of a growing service.

use super::super::{GrowthRequest, Source, choose};
use crate::{
    movement::preempt::tests::build::{MINUTE, NOW, Site, id, job as asked_by, level},
    *,
};
use lattice_quorum_types::{AllocationId, NodeId, ProjectPath, spec::Spread};
use std::collections::BTreeSet;

const SERVICE: u64 = 9;

/// Two groups of four nodes, `g0n00` to `g1n03`; the service runs on `g1n00`.
fn cluster() -> ClusterView {
    let mut view = Site::new(2, 4).view;
    run(&mut view, SERVICE, &["g1n00"]);
    view
}

/// Gives the nodes to an allocation.
fn run(view: &mut ClusterView, number: u64, nodes: &[&str]) {
    let running = RunningView::default();
    view.running.insert(AllocationId(number), running);
    for name in nodes {
        node_of(view, name).holder = Some(AllocationId(number));
    }
}

/// Request of a service without an end.
fn job() -> PendingView {
    PendingView {
        walltime_ms: None,
        ..asked_by(1, 5)
    }
}

fn names(names: &[&str]) -> BTreeSet<NodeId> {
    names.iter().map(|name| id(name)).collect()
}

/// Growth request of the service.
struct Asks {
    nodes: u32,
    from: Source,
    spread: Spread,
    had: BTreeSet<NodeId>,
    borrowed: BTreeSet<NodeId>,
    taken: BTreeSet<NodeId>,
}

fn asks(nodes: u32, from: Source) -> Asks {
    Asks {
        nodes,
        from,
        spread: Spread::Tight,
        had: names(&["g1n00"]),
        borrowed: BTreeSet::new(),
        taken: BTreeSet::new(),
    }
}

impl Asks {
    fn gets(&self, view: &ClusterView) -> Result<Vec<String>, Blocker> {
        let mut job = job();
        job.constraints.spread = self.spread;
        self.gets_as(view, job)
    }

    fn gets_as(&self, view: &ClusterView, job: PendingView) -> Result<Vec<String>, Blocker> {
        let chosen = choose(
            view.clone(),
            &GrowthRequest {
                id: AllocationId(SERVICE),
                job,
                nodes: self.nodes,
                from: self.from,
                runs_on: &names(&["g1n00"]),
                rank_nodes: &self.had,
                borrowed: &self.borrowed,
                reserved: &self.taken,
                solver: &Policy::default(),
                now: NOW,
            },
        );
        chosen.map(|nodes| nodes.into_iter().map(|n| n.node.to_string()).collect())
    }
}

fn node_of<'a>(view: &'a mut ClusterView, name: &str) -> &'a mut NodeView {
    view.nodes.get_mut(&id(name)).unwrap()
}

#[test]
fn it_grows_where_it_runs_and_elsewhere_only_when_that_is_full() {
    let mut view = cluster();
    let one = asks(1, Source::Any);
    assert_eq!(one.gets(&view).unwrap(), ["g1n01"]);
    run(&mut view, 3, &["g1n01", "g1n02", "g1n03"]);
    assert_eq!(one.gets(&view).unwrap(), ["g0n00"]);
}

#[test]
fn spread_service_grows_into_other_group() {
    let spread = Asks {
        spread: Spread::Spread,
        ..asks(1, Source::Any)
    };
    assert_eq!(spread.gets(&cluster()).unwrap(), ["g0n00"]);
}

#[test]
fn its_own_nodes_come_first_and_borrowed_ones_only_where_they_will_do() {
    let near = ["g1n01", "g1n02", "g1n03"];
    let mut asked = Asks {
        borrowed: names(&near),
        ..asks(1, Source::Any)
    };
    let mut view = cluster();
    assert_eq!(asked.gets(&view).unwrap(), ["g0n00"]);
    run(&mut view, 3, &["g0n00", "g0n01", "g0n02", "g0n03"]);
    assert_eq!(asked.gets(&view).unwrap(), ["g1n01"]);
    asked.from = Source::Home;
    assert_eq!(
        asked.gets(&view),
        Err(Blocker::NotEnoughNodes { short: 1 }),
        "none of its own is free"
    );
}

#[test]
fn what_others_hold_were_promised_or_want_back_is_left_to_them() {
    let mut view = cluster();
    let asked = Asks {
        // Placed or reserved by the last plan.
        taken: names(&["g1n01"]),
        // The service had a rank on that node before.
        had: names(&["g1n00", "g1n02"]),
        ..asks(1, Source::Any)
    };
    // Promised, recalled or drained: the view shows all of these the same way.
    node_of(&mut view, "g1n03").in_service = false;
    assert_eq!(asked.gets(&view).unwrap(), ["g0n00"]);
}

#[test]
fn constraints_and_health_count_as_for_any_work() {
    let mut view = cluster();
    node_of(&mut view, "g1n01").facts.health = Health::Unknown;
    node_of(&mut view, "g1n02").facts.liveness = Liveness::Suspect;
    node_of(&mut view, "g1n03").facts.health = Health::Degraded;
    let one = asks(1, Source::Any);
    assert_eq!(
        one.gets(&view).unwrap(),
        ["g0n00"],
        "rather far than degraded"
    );
    let mut picky = job();
    picky.constraints.exclude = names(&["g0n00", "g0n01"]).into_iter().collect();
    assert_eq!(one.gets_as(&view, picky).unwrap(), ["g0n02"]);
    let mut impossible = job();
    impossible.constraints.gpus_per_node = Some(8);
    assert_eq!(
        one.gets_as(&view, impossible),
        Err(Blocker::NotEnoughNodes { short: 1 })
    );
    for name in ["g0n00", "g0n01", "g0n02", "g0n03"] {
        node_of(&mut view, name).in_service = false;
    }
    assert_eq!(one.gets(&view).unwrap(), ["g1n03"], "no other will do");
}

#[test]
fn growth_is_capped_by_available_nodes() {
    let mut view = cluster();
    run(&mut view, 3, &["g0n00", "g0n01", "g0n02", "g0n03"]);
    assert_eq!(
        asks(5, Source::Home).gets(&view).unwrap(),
        ["g1n01", "g1n02", "g1n03"]
    );
    run(&mut view, 4, &["g1n01", "g1n02", "g1n03"]);
    let nothing = asks(5, Source::Home).gets(&view);
    assert_eq!(nothing, Err(Blocker::NotEnoughNodes { short: 5 }));
}

#[test]
fn it_needs_room_for_nodes_and_none_for_another_allocation() {
    let mut view = cluster();
    level(&mut view, "t", Some(2), 1);
    let path = ProjectPath::new("t").unwrap();
    let limits = &mut view.levels.get_mut(&path).unwrap().limits;
    limits.max_concurrent_allocations = Some(1);
    assert_eq!(asks(1, Source::Any).gets(&view).unwrap(), ["g1n01"]);
    level(&mut view, "t", Some(1), 1);
    assert!(matches!(
        asks(1, Source::Any).gets(&view),
        Err(Blocker::QuotaHeadroom { .. })
    ));
}

#[test]
fn its_walltime_and_its_bandwidth_are_no_reason_to_wait() {
    let mut view = cluster();
    view.storage
        .insert("scratch".to_owned(), StorageView { left_mb_s: 0 });
    let mut ends = PendingView {
        walltime_ms: Some(MINUTE),
        ..job()
    };
    ends.storage_mb_s = [("scratch".to_owned(), 100)].into();
    assert_eq!(
        asks(1, Source::Any).gets_as(&view, ends).unwrap(),
        ["g1n01"]
    );
}
