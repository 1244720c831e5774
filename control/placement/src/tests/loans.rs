//! Lent nodes: no job is placed on them, and waiting jobs count on them from their latest return.

use super::build::*;
use crate::*;
use lattice_quorum_types::{AllocationId, UnixMillis};

/// Lends a node, which is back at most ten minutes after a recall.
fn lend(view: &mut ClusterView, name: &str) {
    let loan = LoanView {
        node: view.nodes.remove(&id(name)).unwrap(),
        release_after_ms: 10 * MINUTE,
        reclaimed_at: None,
    };
    view.on_loan.insert(id(name), loan);
}

fn start(plan: &Plan, number: u64) -> Option<u64> {
    let at = why(plan, number).estimated_start?;
    Some(at.since(NOW) / MINUTE)
}

/// Two of four nodes are lent.
fn two_of_four_lent(ends_in: Option<u64>) -> ClusterView {
    let mut view = machine(1, 4);
    run(&mut view, 90, &["n0-02"], ends_in);
    lend(&mut view, "n0-02");
    lend(&mut view, "n0-03");
    view
}

#[test]
fn a_job_waits_for_what_is_lent_no_longer_than_a_reclaim_takes() {
    let mut view = two_of_four_lent(Some(600));
    submit(&mut view, 1, job(4, Some(60)));
    let plan = plan(&view);
    assert_eq!(placed(&plan), []);
    assert_eq!(start(&plan, 1), Some(10));
    assert_eq!(plan.reservations[0].nodes.len(), 4);
    assert_eq!(
        why(&plan, 1).to_string(),
        "needs 4 of 4 nodes: 2 free; waiting for 2 more to be free; estimated start 1970-01-01 00:26 UTC"
    );
}

#[test]
fn nothing_is_placed_on_what_is_lent() {
    let mut view = two_of_four_lent(Some(600));
    for number in 1..=4 {
        submit(&mut view, number, job(1, Some(60)));
    }
    let plan = plan(&view);
    let nodes: Vec<String> = placed(&plan)
        .into_iter()
        .flat_map(|(_, nodes)| nodes)
        .collect();
    assert_eq!(nodes, ["n0-00", "n0-01"]);
}

#[test]
fn work_of_the_borrower_that_ends_before_gives_the_node_back_then() {
    let mut view = two_of_four_lent(Some(3));
    submit(&mut view, 1, job(3, Some(60)));
    assert_eq!(start(&plan(&view), 1), Some(3));
    let mut endless = two_of_four_lent(None);
    submit(&mut endless, 1, job(3, Some(60)));
    assert_eq!(start(&plan(&endless), 1), Some(10));
}

#[test]
fn what_is_asked_back_already_is_back_sooner_unless_it_is_late() {
    let mut view = two_of_four_lent(None);
    submit(&mut view, 1, job(4, Some(60)));
    let asked = |view: &mut ClusterView, ago: u64| {
        let at = UnixMillis(NOW.0 - ago * MINUTE);
        view.on_loan
            .values_mut()
            .for_each(|loan| loan.reclaimed_at = Some(at));
    };
    asked(&mut view, 4);
    assert_eq!(start(&plan(&view), 1), Some(6));
    // The node is expected for as long again as it is late.
    asked(&mut view, 13);
    assert_eq!(start(&plan(&view), 1), Some(3));
}

/// Time passes, and the expected return with it while there is no recall.
#[test]
fn a_node_that_comes_home_or_is_lent_is_followed() {
    let mut view = two_of_four_lent(None);
    submit(&mut view, 1, job(4, Some(60)));
    let mut planner = Planner::new(view);
    let estimated = |plan: Plan| plan.waiting.get(AllocationId(1)).unwrap().estimated_start;
    assert_eq!(estimated(planner.plan(NOW)), Some(NOW.after(10 * MINUTE)));
    let later = NOW.after(5 * MINUTE);
    assert_eq!(
        estimated(planner.plan(later)),
        Some(later.after(10 * MINUTE))
    );
    let loans = std::mem::take(&mut planner.view().clone().on_loan);
    let mut delta = Delta::default();
    for (name, loan) in loans {
        let home = NodeView {
            holder: None,
            ..loan.node
        };
        delta.nodes.insert(name.clone(), Some(home));
        delta.on_loan.insert(name, None);
    }
    planner.update(delta);
    assert_eq!(placed(&planner.plan(later))[0].1.len(), 4);
}

/// The owner's power budget does not include the power of the borrower's job.
#[test]
fn power_comes_back_with_the_node_and_an_idle_one_draws_none() {
    let mut view = machine(1, 3);
    for node in view.nodes.values_mut() {
        node.facts.charge = Some(Charge {
            domain: "hall".to_owned(),
            mw: 1,
        });
    }
    let hall = DomainView {
        parent: None,
        headroom_mw: 2,
    };
    view.power.insert("hall".to_owned(), hall);
    run(&mut view, 90, &["n0-02"], Some(600));
    lend(&mut view, "n0-02");
    submit(&mut view, 1, job(3, Some(60)));
    let plan = plan(&view);
    assert_eq!(start(&plan, 1), Some(10));
    view.on_loan
        .values_mut()
        .for_each(|loan| loan.node.holder = None);
    let short = why(&super::build::plan(&view), 1).blocker;
    assert_eq!(short, Blocker::NotEnoughPower { short: 1 });
}
