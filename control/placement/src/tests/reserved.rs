//! Reservation windows of operators.

use super::build::*;
use crate::*;
use lattice_quorum_types::{
    AllocationId, ProjectPath, id::ReservationName, reservation::ReservationSpec,
};

fn name(text: &str) -> ReservationName {
    ReservationName::new(text).unwrap()
}

/// Reserves nodes for project `t/course` and user bob, from and for a number of minutes.
fn reserve(view: &mut ClusterView, text: &str, nodes: &[&str], from: u64, lasts: Option<u64>) {
    let from = NOW.after(from * MINUTE);
    let spec = ReservationSpec {
        nodes: nodes.iter().map(|node| id(node)).collect(),
        from,
        until: lasts.map(|minutes| from.after(minutes * MINUTE)),
        users: ["bob".to_owned()].into(),
        projects: [ProjectPath::new("t/course").unwrap()].into(),
        reason: "a course".to_owned(),
    };
    view.reserved.insert(name(text), spec);
}

fn named(job: PendingView, user: &str, reservation: &str) -> PendingView {
    PendingView {
        user: user.to_owned(),
        reservation: Some(name(reservation)),
        ..job
    }
}

/// Four free nodes; two of them are reserved in an hour, for two hours.
fn two_of_four_kept() -> ClusterView {
    let mut view = machine(1, 4);
    level(&mut view, "t/course", None, 0);
    reserve(&mut view, "course", &["n0-00", "n0-01"], 60, Some(120));
    view
}

fn start(plan: &Plan, number: u64) -> Option<u64> {
    let at = why(plan, number).estimated_start?;
    Some(at.since(NOW) / MINUTE)
}

#[test]
fn work_that_ends_before_is_fitted_in_and_work_that_does_not_keeps_clear() {
    let mut view = two_of_four_kept();
    submit(&mut view, 1, job(4, Some(60)));
    assert_eq!(placed(&plan(&view))[0].1.len(), 4);
    for walltime in [Some(61), None] {
        let mut view = two_of_four_kept();
        submit(&mut view, 1, job(2, walltime));
        let kept = ["n0-02", "n0-03"].map(str::to_owned);
        assert_eq!(placed(&plan(&view)), [(1, kept.to_vec())]);
    }
}

#[test]
fn colliding_job_starts_after_window() {
    let mut view = two_of_four_kept();
    submit(&mut view, 1, job(3, Some(61)));
    let plan = plan(&view);
    assert_eq!((placed(&plan), start(&plan, 1)), (vec![], Some(180)));
    assert_eq!(
        why(&plan, 1).to_string(),
        "needs 3 of 4 nodes: 4 free, 2 not reserved; kept for reservation course from 1970-01-01 01:16:40 UTC \
         until 1970-01-01 03:16:40 UTC; estimated start 1970-01-01 03:16 UTC"
    );
}

#[test]
fn suggests_walltime_only_where_useful() {
    let mut view = two_of_four_kept();
    submit(&mut view, 1, job(3, None));
    let blocker = |view: &ClusterView| why(&plan(view), 1).blocker.to_string();
    let blocker_text = blocker(&view);
    assert!(
        blocker_text.ends_with("(without a walltime it cannot be backfilled)"),
        "{blocker_text}"
    );
    reserve(&mut view, "course", &["n0-00", "n0-01"], 0, None);
    assert_eq!(
        blocker(&view),
        "kept for reservation course from 1970-01-01 00:16:40 UTC"
    );
    assert_eq!(start(&plan(&view), 1), None);
}

/// By the rule of the quorum its user could have the nodes; reserved nodes are kept for jobs that name the reservation.
#[test]
fn work_that_names_nothing_keeps_clear_also_where_its_user_is_meant() {
    let mut view = two_of_four_kept();
    let bobs = |nodes| PendingView {
        user: "bob".to_owned(),
        ..job(nodes, Some(90))
    };
    submit(&mut view, 1, bobs(3));
    assert!(matches!(
        why(&plan(&view), 1).blocker,
        Blocker::KeptFor { .. }
    ));
}

#[test]
fn work_that_names_it_has_its_nodes_and_no_others_while_it_holds() {
    let mut view = two_of_four_kept();
    let course = PendingView {
        project: ProjectPath::new("t/course/a").unwrap(),
        ..named(job(2, None), "carol", "course")
    };
    level(&mut view, "t/course/a", None, 0);
    submit(&mut view, 1, course);
    let before = plan(&view);
    assert_eq!(
        why(&before, 1).to_string(),
        "needs 2 of 4 nodes: 2 in its reservation, 2 free; its reservation course starts at 1970-01-01 \
         01:16:40 UTC"
    );
    // The job needs no further reservation of its own.
    assert_eq!(before.reservations, []);
    let estimate = Planner::new(view.clone()).plan_estimating(NOW, Some(AllocationId(1)));
    assert_eq!(start(&estimate, 1), Some(60));
    let mut planner = Planner::new(view);
    let then = |minutes: u64| NOW.after(minutes * MINUTE);
    let kept = ["n0-00", "n0-01"].map(str::to_owned);
    assert_eq!(placed(&planner.plan(then(60))), [(1, kept.to_vec())]);
    assert_eq!(placed(&planner.plan(then(179))).len(), 1);
    let over = why(&planner.plan(then(180)), 1).to_string();
    assert!(
        over.ends_with("; its reservation course ended at 1970-01-01 03:16:40 UTC"),
        "{over}"
    );
}

#[test]
fn missing_reservation_is_explained() {
    let mut view = two_of_four_kept();
    submit(&mut view, 1, named(job(1, Some(5)), "bob", "course"));
    submit(&mut view, 2, named(job(1, Some(5)), "alice", "course"));
    submit(&mut view, 3, named(job(1, Some(5)), "bob", "lecture"));
    let plan = plan(&view);
    let blocker = |number| why(&plan, number).blocker.to_string();
    assert_eq!(
        blocker(1),
        "its reservation course starts at 1970-01-01 01:16:40 UTC"
    );
    assert_eq!(
        blocker(2),
        "its reservation course no longer admits alice in project \"t\""
    );
    assert_eq!(blocker(3), "its reservation lecture no longer exists");
}

/// The job's reservation ends before nodes become free.
#[test]
fn expired_reservation_holds_nothing_back() {
    let mut view = machine(1, 2);
    reserve(&mut view, "course", &["n0-00"], 0, Some(30));
    run(&mut view, 90, &["n0-00"], Some(20));
    submit(&mut view, 1, named(job(1, Some(60)), "bob", "course"));
    assert_eq!(start(&plan(&view), 1), Some(20));
    run(&mut view, 90, &["n0-00"], Some(30));
    let late = plan(&view);
    assert_eq!((start(&late, 1), late.reservations.len()), (None, 0));
}

/// Bob may use both reservations, dave neither. A node in both is only for users that both admit.
#[test]
fn of_several_on_one_node_each_counts() {
    let mut view = machine(1, 1);
    reserve(&mut view, "a", &["n0-00"], 0, Some(60));
    reserve(&mut view, "b", &["n0-00"], 30, Some(60));
    submit(&mut view, 1, named(job(1, Some(45)), "bob", "a"));
    assert_eq!(placed(&plan(&view)).len(), 1);
    view.reserved.get_mut(&name("b")).unwrap().users.clear();
    let kept = why(&plan(&view), 1).blocker;
    assert!(matches!(kept, Blocker::KeptFor { name: by, .. } if by == name("b")));
    submit(&mut view, 1, named(job(1, Some(30)), "bob", "a"));
    assert_eq!(placed(&plan(&view)).len(), 1);
    // A job that names none waits for both.
    submit(&mut view, 1, job(1, Some(5)));
    assert_eq!(start(&plan(&view), 1), Some(90));
}

/// The big job waits for all nodes and would contest them, but cannot have those of the course now.
#[test]
fn work_without_an_end_starts_in_its_reservation_though_a_job_is_blocked() {
    let mut view = machine(1, 4);
    reserve(&mut view, "course", &["n0-00"], 0, Some(600));
    run(&mut view, 90, &["n0-01"], Some(30));
    submit(
        &mut view,
        1,
        PendingView {
            class: 9,
            ..job(3, Some(60))
        },
    );
    submit(&mut view, 2, named(job(1, None), "bob", "course"));
    submit(&mut view, 3, job(1, None));
    let plan = plan(&view);
    assert_eq!(start(&plan, 1), Some(30));
    assert_eq!(placed(&plan), [(2, vec!["n0-00".to_owned()])]);
}

#[test]
fn a_reservation_that_is_made_changed_or_deleted_is_followed() {
    let mut view = machine(1, 2);
    submit(&mut view, 1, job(2, Some(60)));
    let mut planner = Planner::new(view.clone());
    assert_eq!(placed(&planner.plan(NOW)).len(), 1);
    let mut change = |spec: Option<ReservationSpec>| {
        planner.update(Delta {
            reserved: [(name("course"), spec)].into(),
            ..Delta::default()
        });
        placed(&planner.plan(NOW)).len()
    };
    reserve(&mut view, "course", &["n0-00"], 30, None);
    let spec = view.reserved[&name("course")].clone();
    assert_eq!(change(Some(spec.clone())), 0);
    let later = ReservationSpec {
        from: NOW.after(60 * MINUTE),
        ..spec.clone()
    };
    assert_eq!(
        (change(Some(later)), change(Some(spec)), change(None)),
        (1, 0, 1)
    );
}
