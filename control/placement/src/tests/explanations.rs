//! Explanation texts.

use super::build::*;
use crate::*;
use lattice_quorum_types::{AllocationId, ProjectPath, UnixMillis, spec::Constraints};

fn text(view: &ClusterView, number: u64) -> String {
    why(&plan(view), number).to_string()
}

#[test]
fn each_constraint_counts_remaining_nodes() {
    let mut view = machine(2, 4);
    view.nodes.get_mut(&id("n0-00")).unwrap().facts.gpu_model = None;
    view.nodes.get_mut(&id("n0-01")).unwrap().in_service = false;
    let promised = view.nodes.get_mut(&id("n0-02")).unwrap();
    (promised.in_service, promised.promised) = (false, true);
    run(&mut view, 90, &["n1-00", "n1-01"], Some(7));
    let constraints = Constraints {
        gpu_models: vec!["H100".into()],
        ..Constraints::default()
    };
    submit(
        &mut view,
        1,
        PendingView {
            constraints,
            ..job(5, Some(10))
        },
    );
    assert_eq!(
        text(&view, 1),
        "needs 5 of 8 nodes: 7 match the GPU type, 6 in service, 5 not promised to \
         others, 3 free; waiting for 2 more to be free; estimated start 1970-01-01 00:23 UTC"
    );
}

#[test]
fn impossible_job_holds_nothing_back() {
    let mut view = machine(1, 4);
    submit(&mut view, 1, job(5, Some(10)));
    submit(&mut view, 2, job(4, None));
    let plan = plan(&view);
    assert_eq!(
        why(&plan, 1).to_string(),
        "needs 5 of 4 nodes: 4 free; cannot start: 1 too few, even if all were free"
    );
    assert!(plan.reservations.is_empty());
    assert_eq!(placed(&plan).len(), 1);
}

#[test]
fn sensitive_work_never_mixes_conformance_groups() {
    let mut view = machine(1, 4);
    for name in ["n0-00", "n0-01"] {
        view.nodes.get_mut(&id(name)).unwrap().facts.conformance = ConformanceKey::Unknown;
    }
    submit(
        &mut view,
        1,
        PendingView {
            sensitive: true,
            ..job(3, Some(1))
        },
    );
    assert_eq!(
        text(&view, 1),
        "needs 3 of 4 nodes: 4 free, 2 conforming; cannot start: the largest conformance group \
         is 1 too small, even if all were free"
    );
}

#[test]
fn sensitive_job_avoids_degraded_node() {
    let mut view = machine(1, 4);
    for name in ["n0-00", "n0-01"] {
        view.nodes.get_mut(&id(name)).unwrap().facts.health = Health::Degraded;
    }
    let sensitive = |nodes| PendingView {
        sensitive: true,
        ..job(nodes, Some(1))
    };
    submit(&mut view, 1, sensitive(3));
    // Equal constraints, but not sensitive.
    submit(&mut view, 2, job(4, Some(1)));
    let plan = plan(&view);
    assert_eq!(
        why(&plan, 1).to_string(),
        "needs 3 of 4 nodes: 2 healthy, 2 free, 2 conforming; cannot start: 1 too few, even if \
         all were free"
    );
    assert_eq!(placed(&plan)[0].1.len(), 4);
    view.pending.clear();
    submit(&mut view, 3, sensitive(2));
    let healthy = ["n0-02", "n0-03"].map(String::from).to_vec();
    assert_eq!(placed(&super::build::plan(&view)), [(3, healthy)]);
}

#[test]
fn held_back_job_names_reservation_and_time() {
    let mut view = machine(1, 4);
    run(&mut view, 90, &["n0-00"], Some(5));
    submit(&mut view, 1, job(4, Some(10)));
    submit(&mut view, 2, job(2, None));
    submit(&mut view, 3, job(2, Some(10)));
    let delayed = "held back so that 1 can start at 1970-01-01 00:21 UTC";
    assert_eq!(
        text(&view, 2),
        format!(
            "needs 2 of 4 nodes: 3 free, 0 not reserved; {delayed} (without a walltime it cannot \
             be backfilled)"
        )
    );
    assert_eq!(
        text(&view, 3),
        format!("needs 2 of 4 nodes: 3 free, 0 not reserved; {delayed}")
    );
}

#[test]
fn every_level_without_headroom_is_named_from_the_project_up() {
    let mut view = machine(1, 4);
    level(&mut view, "t", Some(10), 9);
    level(&mut view, "t/a", Some(5), 4);
    let project = ProjectPath::new("t/a").unwrap();
    submit(
        &mut view,
        1,
        PendingView {
            project,
            ..job(2, None)
        },
    );
    assert_eq!(
        text(&view, 1),
        "needs 2 of 4 nodes: 4 free; waiting for quota headroom; project \"t/a\" max_nodes \
         (current: 4, requested: 2, limit: 5); tenant \"t\" max_nodes (current: 9, requested: 2, \
         limit: 10)"
    );
}

#[test]
fn headroom_is_kept_for_the_job_with_the_reservation() {
    let mut view = machine(2, 4);
    level(&mut view, "t", Some(9), 3);
    run(&mut view, 90, &["n0-00", "n0-01", "n0-02"], Some(5));
    let first = PendingView {
        class: 9,
        ..job(6, Some(60))
    };
    submit(&mut view, 1, first);
    submit(&mut view, 2, job(2, Some(60)));
    submit(&mut view, 3, job(2, Some(5)));
    let plan = plan(&view);
    assert_eq!(plan.reservations[0].id.0, 1);
    assert!(matches!(
        why(&plan, 2).blocker,
        Blocker::HeadroomReserved { .. }
    ));
    assert_eq!(placed(&plan).iter().map(|p| p.0).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_project_that_is_not_in_the_tree_places_nothing() {
    let mut view = machine(1, 4);
    let project = ProjectPath::new("t/gone").unwrap();
    submit(
        &mut view,
        1,
        PendingView {
            project,
            ..job(1, None)
        },
    );
    assert_eq!(
        text(&view, 1),
        "needs 1 of 4 nodes: 4 free; project t/gone does not exist"
    );
}

#[test]
fn a_start_behind_work_without_an_end_is_not_guessed() {
    let mut view = machine(1, 4);
    run(&mut view, 90, &["n0-00"], None);
    submit(&mut view, 1, job(4, Some(10)));
    let plan = plan(&view);
    assert!(plan.reservations.is_empty());
    assert_eq!(why(&plan, 1).estimated_start, None);
}

#[test]
fn overdue_work_is_expected_to_go_on_for_as_long_again() {
    let mut view = machine(1, 4);
    run(&mut view, 90, &["n0-00"], None);
    view.running
        .values_mut()
        .for_each(|r| r.ends_at = Some(UnixMillis(1)));
    submit(&mut view, 1, job(4, Some(10)));
    // Overdue for 999.999 s: 16 minutes fit before, 17 do not.
    submit(&mut view, 2, job(1, Some(17)));
    submit(&mut view, 3, job(1, Some(16)));
    let plan = plan(&view);
    assert_eq!(plan.reservations[0].starts_at, NOW.after(NOW.0 - 1));
    assert_eq!(placed(&plan).len(), 1);
    assert_eq!(placed(&plan)[0].0, 3);
}

#[test]
fn dry_run_reports_start_and_changes_nothing() {
    let mut view = machine(1, 4);
    run(&mut view, 90, &["n0-00", "n0-01", "n0-02"], Some(30));
    submit(
        &mut view,
        1,
        PendingView {
            class: 9,
            ..job(4, Some(60))
        },
    );
    submit(&mut view, 2, job(2, Some(60)));
    let asked = AllocationId(2);
    let mut planner = Planner::new(view);
    let plain = planner.plan(NOW);
    assert_eq!(plain.waiting.get(asked).unwrap().estimated_start, None);
    let estimate = planner.plan_estimating(NOW, Some(asked));
    // After the first job, which has all four nodes from 30 to 90.
    let start = estimate.waiting.get(asked).unwrap().estimated_start;
    assert_eq!(start, Some(NOW.after(90 * MINUTE)));
    assert_eq!(estimate.reservations, plain.reservations);
    assert_eq!(estimate.placements, plain.placements);
}
