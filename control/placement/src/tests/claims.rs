//! Claimed nodes.

use super::build::*;
use crate::*;
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath,
    limit::{Limits, SensitivePool, Usage},
    spec::Constraints,
};

fn owned_by(view: &mut ClusterView, node: &str, user: &str) {
    let owner = Owner {
        user: user.to_owned(),
        project: ProjectPath::new("t").unwrap(),
    };
    view.nodes.get_mut(&id(node)).unwrap().owner = Some(owner);
}

fn work(user: &str, nodes: u32, sensitive: bool) -> PendingView {
    PendingView {
        user: user.to_owned(),
        sensitive,
        ..job(nodes, None)
    }
}

fn planned(mut view: ClusterView, jobs: &[PendingView]) -> Plan {
    for (n, job) in (1..).zip(jobs) {
        view.pending.insert(AllocationId(n), job.clone());
    }
    Planner::new(view).plan(NOW)
}

fn nodes_of(plan: &Plan, of: u64) -> Option<Vec<NodeId>> {
    let mut placed = plan.placements.iter();
    let placed = placed.find(|placement| placement.id == AllocationId(of))?;
    Some(placed.nodes.iter().map(|node| node.node.clone()).collect())
}

#[test]
fn claimed_nodes_are_not_offered_to_others() {
    let mut view = machine(1, 3);
    owned_by(&mut view, "n0-00", "alice");
    owned_by(&mut view, "n0-01", "alice");
    for refused in [work("bob", 2, true), work("alice", 2, false)] {
        let plan = planned(view.clone(), &[refused]);
        assert_eq!(plan.placements, []);
        let why = plan.waiting.get(AllocationId(1)).unwrap().to_string();
        assert!(why.contains("1 not claimed by other users"), "{why}");
    }
    let other_project = PendingView {
        project: ProjectPath::new("u").unwrap(),
        ..work("alice", 2, true)
    };
    level(&mut view, "u", None, 0);
    let plan = planned(view.clone(), &[other_project]);
    assert_eq!(plan.placements, []);
    let plan = planned(view, &[work("bob", 1, true)]);
    assert_eq!(nodes_of(&plan, 1), Some(vec![id("n0-02")]));
}

#[test]
fn claimant_gets_own_nodes_first() {
    let mut view = machine(1, 4);
    owned_by(&mut view, "n0-02", "alice");
    owned_by(&mut view, "n0-03", "alice");
    let plan = planned(view.clone(), &[work("alice", 2, true)]);
    assert_eq!(nodes_of(&plan, 1), Some(vec![id("n0-02"), id("n0-03")]));
    let plan = planned(view, &[work("alice", 4, true)]);
    assert_eq!(nodes_of(&plan, 1).map(|nodes| nodes.len()), Some(4));
}

/// Claimed nodes count already, so a project at its limit can still use them.
#[test]
fn ones_own_nodes_need_no_headroom() {
    let mut view = machine(1, 5);
    owned_by(&mut view, "n0-02", "alice");
    owned_by(&mut view, "n0-03", "alice");
    level(&mut view, "t", Some(3), 2);
    let placed = |jobs: &[PendingView]| planned(view.clone(), jobs).placements.len();
    assert_eq!(placed(&[work("alice", 3, true)]), 1);
    assert_eq!(placed(&[work("alice", 4, true)]), 0);
    assert_eq!(placed(&[work("bob", 2, true)]), 0);
    // The second job uses no node claimed for the first, and there is headroom for one more node.
    assert_eq!(placed(&[work("alice", 2, true), work("bob", 1, true)]), 2);
    assert_eq!(placed(&[work("alice", 2, true), work("alice", 2, true)]), 1);
}

/// More sensitive jobs than the cluster allows wait, and take nothing from later jobs.
#[test]
fn a_full_sensitive_pool_holds_back_only_sensitive_work() {
    let mut view = machine(1, 6);
    view.sensitive_pool = SensitivePool {
        used: 5,
        size: Some(8),
    };
    let ordinary = PendingView {
        class: 0,
        ..work("bob", 6, false)
    };
    let jobs = [work("alice", 4, true), ordinary];
    let plan = planned(view.clone(), &jobs);
    assert_eq!(nodes_of(&plan, 2).map(|nodes| nodes.len()), Some(6));
    let why = plan.waiting.get(AllocationId(1)).unwrap().to_string();
    let expected = "waiting for quota headroom; the cluster sensitive_pool_size (current: 5, \
                    requested: 4, limit: 8)";
    assert!(why.ends_with(expected), "{why}");

    // Claimed nodes are already in the pool, and earlier placements count.
    owned_by(&mut view, "n0-03", "alice");
    let jobs = [work("alice", 4, true), work("bob", 1, true)];
    let plan = planned(view.clone(), &jobs);
    assert!(nodes_of(&plan, 1).unwrap().contains(&id("n0-03")));
    assert_eq!(nodes_of(&plan, 2), None);

    // A warm planner uses headroom that becomes free.
    let mut planner = Planner::new(view.clone());
    planner.update(Delta {
        pending: [(AllocationId(1), Some(work("bob", 4, true)))].into(),
        sensitive_pool: view.sensitive_pool,
        ..Delta::default()
    });
    assert_eq!(planner.plan(NOW).placements, []);
    planner.update(Delta {
        sensitive_pool: SensitivePool {
            used: 4,
            size: Some(8),
        },
        ..Delta::default()
    });
    assert_eq!(planner.plan(NOW).placements.len(), 1);
}

/// Pool headroom is kept for a waiting job with a reservation, like headroom under limits.
#[test]
fn sensitive_work_is_not_backfilled_into_the_pool_that_is_kept() {
    let mut view = machine(1, 6);
    run(&mut view, 90, &["n0-00", "n0-01", "n0-02"], Some(30));
    let first = PendingView {
        class: 9,
        walltime_ms: Some(3_600_000),
        ..work("alice", 4, true)
    };
    let lasts = |minutes: u64| PendingView {
        walltime_ms: Some(minutes * 60_000),
        ..work("bob", 1, true)
    };
    view.sensitive_pool.size = Some(4);
    // The second job takes a node outside the reservation, within the present pool.
    let plan = planned(view.clone(), &[first.clone(), lasts(20)]);
    assert_eq!(nodes_of(&plan, 2).map(|nodes| nodes.len()), Some(1));
    let plan = planned(view, &[first, lasts(600)]);
    assert_eq!(plan.reservations.len(), 1);
    let why = plan.waiting.get(AllocationId(2)).unwrap();
    assert!(
        matches!(why.blocker, Blocker::HeadroomReserved { by, .. } if by == AllocationId(1)),
        "{why}"
    );
}

/// Claimed nodes count already, and are not kept for their user a second time.
#[test]
fn reservation_keeps_room_for_other_nodes_only() {
    let mut view = machine(1, 9);
    for name in ["n0-00", "n0-01", "n0-02", "n0-03"] {
        owned_by(&mut view, name, "alice");
    }
    run(
        &mut view,
        90,
        &["n0-04", "n0-05", "n0-06", "n0-07"],
        Some(30),
    );
    let first = PendingView {
        class: 9,
        walltime_ms: Some(3_600_000),
        ..work("alice", 6, true)
    };
    let lasts = PendingView {
        walltime_ms: Some(600 * 60_000),
        ..work("bob", 1, true)
    };
    let size = Some(7);
    view.sensitive_pool = SensitivePool { used: 4, size };
    level(&mut view, "t", Some(7), 4);
    let plan = planned(view, &[first, lasts]);
    assert_eq!(plan.reservations.len(), 1);
    assert_eq!(nodes_of(&plan, 2), Some(vec![id("n0-08")]));
}

/// A user that waits for a claimed node on which an own job runs needs no headroom for it.
#[test]
fn claimant_does_not_wait_for_headroom() {
    let mut view = machine(1, 3);
    for name in ["n0-00", "n0-01", "n0-02"] {
        owned_by(&mut view, name, "alice");
    }
    run(&mut view, 90, &["n0-00"], Some(30));
    let size = Some(3);
    view.sensitive_pool = SensitivePool { used: 3, size };
    level(&mut view, "t", Some(3), 3);
    let plan = planned(view, &[work("alice", 3, true)]);
    let why = plan.waiting.get(AllocationId(1)).unwrap();
    assert_eq!(why.blocker, Blocker::NodesBusy { short: 1 });
    assert_eq!(why.estimated_start, Some(NOW.after(30 * 60_000)));
}

/// A warm planner forgets a claim when the node is released.
#[test]
fn a_node_that_was_given_back_is_its_former_users_no_more() {
    let mut view = machine(1, 2);
    owned_by(&mut view, "n0-01", "alice");
    let mut planner = Planner::new(view.clone());
    planner.plan(NOW);
    let node = NodeView {
        owner: None,
        borrowed: false,
        in_service: false,
        promised: false,
        ..view.nodes[&id("n0-01")].clone()
    };
    let job = work("alice", 1, true);
    planner.update(Delta {
        nodes: [(id("n0-01"), Some(node))].into(),
        pending: [(AllocationId(1), Some(job))].into(),
        ..Delta::default()
    });
    let plan = planner.plan(NOW);
    assert_eq!(nodes_of(&plan, 1), Some(vec![id("n0-00")]));
    // The node counts against the limit, since no user has claimed it.
    let full = LevelView {
        limits: Limits {
            max_nodes: Some(1),
            max_concurrent_allocations: None,
        },
        own: Usage {
            nodes: 1,
            allocations: 0,
        },
        subtree: Usage::default(),
    };
    let back = NodeView {
        owner: None,
        borrowed: false,
        ..view.nodes[&id("n0-01")].clone()
    };
    planner.update(Delta {
        nodes: [(id("n0-01"), Some(back))].into(),
        levels: [(ProjectPath::new("t").unwrap(), Some(full))].into(),
        ..Delta::default()
    });
    let why = planner.plan(NOW).waiting.get(AllocationId(1)).unwrap();
    assert!(
        matches!(why.blocker, Blocker::QuotaHeadroom { .. }),
        "{why}"
    );
}

/// Only claimed nodes that a job takes count: the headroom of the rest stays with the reservation.
#[test]
fn ones_own_nodes_that_are_left_take_no_room_from_a_reservation() {
    let mut view = machine(1, 8);
    for (n, node) in view.nodes.values_mut().enumerate() {
        let key = if n == 2 { 2 } else { 1 };
        node.facts.conformance = super::build::key(key);
    }
    for name in ["n0-00", "n0-01", "n0-02"] {
        owned_by(&mut view, name, "alice");
    }
    run(&mut view, 90, &["n0-06", "n0-07"], Some(30));
    // 3 claimed, 2 running, and the 3 for which the first job waits.
    level(&mut view, "t", Some(8), 5);
    let waits = PendingView {
        class: 9,
        constraints: Constraints {
            nodelist: ["n0-05", "n0-06", "n0-07"].map(id).to_vec(),
            ..Constraints::default()
        },
        ..job(3, Some(600))
    };
    let plan = planned(view, &[waits, work("alice", 3, true)]);
    assert_eq!(plan.reservations.len(), 1);
    assert_eq!(plan.placements, []);
    let why = plan.waiting.get(AllocationId(2)).unwrap();
    assert!(
        matches!(why.blocker, Blocker::HeadroomReserved { .. }),
        "{why}"
    );
}
