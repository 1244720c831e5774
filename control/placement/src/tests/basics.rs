//! One rule per test.

use super::build::*;
use crate::*;
use lattice_quorum_types::{ProjectPath, spec::Constraints};

#[test]
fn a_job_takes_the_tightest_group_that_holds_it() {
    let mut view = machine(3, 4);
    run(&mut view, 90, &["n1-00"], Some(10));
    submit(&mut view, 1, job(3, Some(5)));
    let plan = plan(&view);
    assert_eq!(
        placed(&plan),
        [(1, ["n1-01", "n1-02", "n1-03"].map(String::from).to_vec())]
    );
    let layout = &plan.placements[0].layout;
    assert_eq!(
        (layout.groups.as_slice(), layout.span()),
        (["g1".to_owned()].as_slice(), 1)
    );
    assert!(plan.placements[0].nodes.iter().all(|n| n.version == 7));
}

#[test]
fn among_equals_the_class_goes_first_then_the_older_then_the_lower_number() {
    let mut view = machine(1, 4);
    submit(&mut view, 1, job(1, None));
    submit(
        &mut view,
        2,
        PendingView {
            eligible_at: lattice_quorum_types::UnixMillis(1),
            ..job(1, None)
        },
    );
    submit(
        &mut view,
        3,
        PendingView {
            class: 9,
            ..job(1, None)
        },
    );
    submit(&mut view, 4, job(1, None));
    let order: Vec<u64> = placed(&plan(&view)).into_iter().map(|p| p.0).collect();
    assert_eq!(order, [3, 2, 1, 4]);
}

#[test]
fn backfill_uses_nodes_that_the_reservation_does_not_need() {
    let mut view = machine(1, 4);
    run(&mut view, 90, &["n0-00", "n0-01"], Some(10));
    submit(&mut view, 1, job(3, Some(60)));
    submit(&mut view, 2, job(1, Some(600)));
    submit(&mut view, 3, job(1, Some(600)));
    submit(&mut view, 4, job(1, Some(10)));
    let plan = plan(&view);
    let reservation = &plan.reservations[0];
    assert_eq!(
        (reservation.id.0, reservation.starts_at),
        (1, NOW.after(10 * MINUTE))
    );
    // One of four nodes is not reserved, for one long job. The short job ends in time.
    assert_eq!(
        placed(&plan).iter().map(|p| p.0).collect::<Vec<_>>(),
        [2, 4]
    );
    assert!(plan.placements.iter().all(|p| p.backfilled));
    assert!(matches!(
        why(&plan, 3).blocker,
        Blocker::Reserved {
            unbounded: false,
            ..
        }
    ));
}

#[test]
fn limits_are_used_up_within_the_plan() {
    let mut view = machine(1, 4);
    level(&mut view, "t", Some(10), 7);
    submit(&mut view, 1, job(2, None));
    submit(&mut view, 2, job(2, None));
    let plan = plan(&view);
    assert_eq!(placed(&plan).len(), 1);
    assert_eq!(
        why(&plan, 2).blocker.to_string(),
        "waiting for quota headroom; tenant \"t\" max_nodes (current: 9, requested: 2, limit: 10)"
    );
}

/// Work that waits for headroom holds neither nodes nor headroom back, whatever its place in the queue.
#[test]
fn waiting_for_headroom_blocks_no_other_project() {
    let mut view = machine(1, 4);
    level(&mut view, "t", Some(4), 2);
    level(&mut view, "u", Some(4), 0);
    let waiting = PendingView {
        class: 9,
        ..job(3, None)
    };
    submit(&mut view, 1, waiting);
    let project = ProjectPath::new("u").unwrap();
    let other = PendingView {
        project,
        ..job(4, None)
    };
    submit(&mut view, 2, other);
    let first_plan = plan(&view);
    let ids = |plan: &Plan| -> Vec<u64> { placed(plan).iter().map(|(id, _)| *id).collect() };
    assert_eq!(ids(&first_plan), [2]);
    assert_eq!(
        why(&first_plan, 1).blocker.to_string(),
        "waiting for quota headroom; tenant \"t\" max_nodes (current: 2, requested: 3, limit: 4)"
    );
    // The limit was lowered below the request.
    level(&mut view, "t", Some(2), 0);
    assert_eq!(
        why(&plan(&view), 1).blocker.to_string(),
        "waiting for quota headroom; tenant \"t\" max_nodes (current: 0, requested: 3, limit: 2), less \
         than the request: it starts only after the limit is raised"
    );
    // The other tenant's work ended, and there is headroom.
    level(&mut view, "t", Some(4), 1);
    assert_eq!(ids(&plan(&view)), [1]);
}

#[test]
fn ranks_follow_the_numbers_of_nodes_and_groups() {
    let mut view = machine(0, 0);
    for n in 8..12 {
        let node = node("rack1", key(1));
        view.nodes.insert(id(&format!("n{n}")), node);
    }
    submit(&mut view, 1, job(4, None));
    assert_eq!(placed(&plan(&view))[0].1, ["n8", "n9", "n10", "n11"]);
    let mut view = machine(0, 0);
    for (rack, n) in [(9, 1), (9, 2), (10, 1), (10, 2)] {
        let node = node(&format!("rack{rack}"), key(1));
        view.nodes.insert(id(&format!("r{rack}n{n}")), node);
    }
    submit(&mut view, 1, job(4, None));
    let ranks = ["r9n1", "r9n2", "r10n1", "r10n2"];
    assert_eq!(placed(&plan(&view))[0].1, ranks);
}

#[test]
fn a_deprioritised_node_is_used_only_where_no_other_will_do() {
    let mut view = machine(1, 4);
    let first = view.nodes.values_mut().next();
    first.unwrap().facts.deprioritised = true;
    submit(&mut view, 1, job(3, None));
    let all: Vec<String> = (1..4).map(|n| format!("n0-{n:02}")).collect();
    assert_eq!(placed(&plan(&view)), [(1, all)]);
    let mut view = view.clone();
    view.pending.clear();
    submit(&mut view, 2, job(4, None));
    let plan = plan(&view);
    assert_eq!(placed(&plan)[0].1.len(), 4, "rather than wait");
}

#[test]
fn a_degraded_node_gets_work_only_where_no_other_will_do() {
    let mut view = machine(1, 4);
    view.nodes.get_mut(&id("n0-00")).unwrap().facts.health = Health::Degraded;
    submit(&mut view, 1, job(3, None));
    submit(&mut view, 2, job(1, None));
    let healthy: Vec<String> = (1..4).map(|n| format!("n0-{n:02}")).collect();
    assert_eq!(
        placed(&plan(&view)),
        [(1, healthy), (2, vec!["n0-00".to_owned()])],
        "the last job rather has it than waits"
    );
}

#[test]
fn what_is_not_known_is_not_usable_and_worse_than_degraded() {
    let order = [
        Health::Healthy,
        Health::Degraded,
        Health::Unknown,
        Health::Faulty,
    ];
    assert!(order.is_sorted());
    assert_eq!(order.map(Health::is_usable), [true, true, false, false]);
    for health in [Health::Unknown, Health::Faulty] {
        let mut view = machine(1, 2);
        view.nodes.get_mut(&id("n0-00")).unwrap().facts.health = health;
        submit(&mut view, 1, job(2, None));
        let plan = plan(&view);
        assert!(plan.placements.is_empty());
        assert_eq!(
            why(&plan, 1).to_string(),
            "needs 2 of 2 nodes: 1 usable, 1 free; cannot start: 1 too few, even if all were free"
        );
    }
}

/// A machine of CPU nodes, then GPU nodes, in groups that contain both.
fn mixed_hardware() -> ClusterView {
    let mut view = machine(2, 6);
    for (n, node) in view.nodes.values_mut().enumerate() {
        if n % 6 >= 3 {
            (node.facts.gpu_model, node.facts.gpu_count) = (None, Some(0));
        }
    }
    view
}

#[test]
fn work_that_names_no_gpus_leaves_them_alone() {
    let mut view = mixed_hardware();
    submit(&mut view, 1, job(2, Some(60)));
    let with_gpus = Constraints {
        gpus_per_node: Some(4),
        ..Constraints::default()
    };
    let needs_gpus = PendingView {
        constraints: with_gpus,
        ..job(6, Some(60))
    };
    submit(&mut view, 2, needs_gpus);
    let plan = plan(&view);
    let placed = placed(&plan);
    assert_eq!(placed[0].1, ["n0-03", "n0-04"]);
    assert_eq!(placed.len(), 2, "{:?}", plan.waiting);
    // Not at the price of another group.
    let mut view = mixed_hardware();
    submit(&mut view, 1, job(5, Some(60)));
    assert_eq!(super::build::plan(&view).placements[0].layout.span(), 1);
}

#[test]
fn work_that_needs_little_memory_leaves_the_large_nodes_alone() {
    let mut view = machine(1, 4);
    for (n, node) in view.nodes.values_mut().enumerate() {
        // Machines of one kind differ by the memory that firmware reserves.
        let gib = if n < 2 { 2_000 } else { 503 + n as u64 };
        node.facts.memory_bytes = Some(gib << 30);
    }
    submit(&mut view, 1, job(2, Some(60)));
    assert_eq!(placed(&plan(&view))[0].1, ["n0-02", "n0-03"]);
}

/// A job that can run elsewhere leaves listed nodes to the job that names them, though it is served first.
#[test]
fn what_another_job_needs_more_is_left_to_it() {
    let mut view = machine(1, 6);
    submit(&mut view, 1, job(2, Some(60)));
    let named = PendingView {
        constraints: Constraints {
            nodelist: ["n0-00", "n0-01", "n0-02"].map(id).to_vec(),
            ..Constraints::default()
        },
        class: 1,
        ..job(3, Some(60))
    };
    submit(&mut view, 2, named);
    assert_eq!(placed(&plan(&view))[0].1, ["n0-03", "n0-04"]);
    // If it cannot run elsewhere, queue order decides.
    submit(&mut view, 1, job(4, Some(60)));
    let plan = plan(&view);
    assert_eq!(placed(&plan)[0].1.len(), 4);
    assert_eq!(plan.placements.len(), 1);
}

/// A machine with these numbers of small and large nodes per group.
fn small_and_large(groups: &[(usize, usize)]) -> ClusterView {
    let mut view = machine(0, 0);
    for (g, (small, large)) in groups.iter().enumerate() {
        for n in 0..small + large {
            let mut node = node(&format!("g{g}"), key(1));
            let gib = if n < *small { 512 } else { 2_048 };
            node.facts.memory_bytes = Some(gib << 30);
            view.nodes.insert(id(&format!("n{g}-{n:02}")), node);
        }
    }
    view
}

/// Groups of the first placement, and the number of groups of the second.
fn laid_out(view: &ClusterView) -> (Vec<String>, u32) {
    let plan = plan(view);
    let groups = plan.placements[0].layout.groups.clone();
    (groups, plan.placements[1].layout.span())
}

/// With its four small nodes the large group would be a tight fit, and would be broken without benefit.
#[test]
fn what_is_left_to_others_does_not_break_a_large_gap() {
    let mut view = small_and_large(&[(4, 6), (5, 0)]);
    submit(&mut view, 1, job(4, Some(60)));
    submit(&mut view, 2, job(10, Some(60)));
    assert_eq!(laid_out(&view), (vec!["g1".to_owned()], 1));

    // Nor for nodes that another job names.
    let mut view = machine(2, 10);
    view.nodes.retain(|name, _| *name < id("n1-05"));
    submit(&mut view, 1, job(4, Some(60)));
    submit(&mut view, 2, job(10, Some(60)));
    let named = PendingView {
        constraints: Constraints {
            nodelist: (4..10).map(|n| id(&format!("n0-{n:02}"))).collect(),
            ..Constraints::default()
        },
        class: 1,
        ..job(1, Some(60))
    };
    submit(&mut view, 3, named);
    assert_eq!(laid_out(&view), (vec!["g1".to_owned()], 1));
}

/// The tightest group has too few small nodes. Of the groups with enough, the one with fewer nodes is broken, not the
/// one with fewer small nodes.
#[test]
fn a_modest_set_is_as_tight_as_the_groups_are() {
    let mut view = small_and_large(&[(4, 6), (3, 2), (5, 3)]);
    submit(&mut view, 1, job(4, Some(60)));
    submit(&mut view, 2, job(10, Some(60)));
    assert_eq!(laid_out(&view), (vec!["g2".to_owned()], 1));
}

/// Largest groups first is the minimum; the last one is the smallest that holds the rest.
#[test]
fn of_several_groups_the_last_is_the_tightest() {
    let mut view = small_and_large(&[(3, 0), (8, 0), (4, 0), (6, 0), (5, 0)]);
    // 8 of g1, and 4 more: all of g2 and none of g3 or g4.
    submit(&mut view, 1, job(12, Some(60)));
    let groups = |view: &ClusterView| plan(view).placements[0].layout.groups.clone();
    assert_eq!(groups(&view), ["g1", "g2"]);
    submit(&mut view, 1, job(13, Some(60)));
    assert_eq!(groups(&view), ["g1", "g4"]);
    submit(&mut view, 1, job(16, Some(60)));
    assert_eq!(groups(&view), ["g0", "g1", "g3"], "2 more than both have");
}
