//! One rule per test.

use super::{super::*, build::*};
use crate::{
    movement::preempt::{
        CheckpointAbility,
        tests::build::{HOUR, MINUTE, NOW, job},
    },
    view::{Health, Liveness, Owner},
};
use lattice_quorum_types::{AllocationState, ProjectPath};

#[test]
fn lends_idle_share_to_needy_vcluster() {
    let mut cluster = Cluster::new(&[("a", 200), ("b", 100)]);
    let used: Vec<String> = (0..150).map(|n| format!("a{n:03}")).collect();
    cluster.run(90, &used.iter().map(String::as_str).collect::<Vec<_>>(), 60);
    cluster.want("b", 1, 120);
    let moves = cluster.decide();
    assert_eq!(moves.loans.len(), 20);
    assert!((moves.returns.is_empty(), moves.reclaims.is_empty()) == (true, true));
    for loan in &moves.loans {
        assert_eq!(
            (loan.owner.as_str(), loan.borrower.as_str(), loan.job.0),
            ("a", "b", 1)
        );
        assert!(loan.node.as_str() >= "a150", "{loan:?} is in use");
    }
    cluster.apply(&moves);
    assert!(cluster.decide().is_empty(), "and that is that");
    // All 50 idle nodes may be lent, and no more.
    for (needs, lent) in [(150, 50), (151, 0)] {
        let mut cluster = cluster.clone();
        cluster.apply(&LendingMoves::default());
        for place in cluster.places.values_mut() {
            place.current = place.home.clone();
        }
        cluster.member("b").wanting.clear();
        cluster.want("b", 1, needs);
        assert_eq!(cluster.decide().loans.len(), lent);
    }
}

#[test]
fn nothing_is_lent_that_is_used_planned_claimed_sick_or_out_of_service() {
    let mut cluster = Cluster::new(&[("a", 8), ("b", 0)]);
    let nodes = &mut cluster.view.nodes;
    nodes.get_mut(&id("a000")).unwrap().facts.health = Health::Degraded;
    nodes.get_mut(&id("a001")).unwrap().facts.liveness = Liveness::Suspect;
    nodes.get_mut(&id("a002")).unwrap().in_service = false;
    nodes.get_mut(&id("a003")).unwrap().owner = Some(Owner {
        user: "alice".to_owned(),
        project: ProjectPath::new("t").unwrap(),
    });
    cluster.places.get_mut(&id("a004")).unwrap().planned_for = Some(AllocationId(7));
    cluster.places.remove(&id("a005"));
    cluster.run(90, &["a006"], 60);
    cluster.want("b", 1, 1);
    assert_eq!(loans(&cluster.decide()), [("a007", "b")]);
    cluster.want("b", 2, 1);
    let moves = cluster.decide();
    assert_eq!(loans(&moves), [("a007", "b")]);
    assert_eq!(
        moves.refused[&AllocationId(2)],
        BorrowRefusal::TooFew {
            missing: 1,
            offered: 0
        }
    );
}

#[test]
fn what_administrators_keep_for_others_is_not_lent() {
    let mut cluster = Cluster::new(&[("a", 2), ("b", 0)]);
    let window = lattice_quorum_types::reservation::ReservationSpec {
        nodes: [id("a000")].into(),
        from: NOW.after(HOUR - 1),
        until: None,
        users: BTreeSet::new(),
        projects: BTreeSet::new(),
        reason: "maintenance".to_owned(),
    };
    let upgrade = lattice_quorum_types::id::ReservationName::new("upgrade").unwrap();
    cluster.view.reserved.insert(upgrade, window);
    cluster.want("b", 1, 2);
    assert!(cluster.decide().is_empty());
    cluster.member("b").wanting.clear();
    cluster.want("b", 2, 1);
    assert_eq!(loans(&cluster.decide()), [("a001", "b")]);
}

#[test]
fn all_that_is_missing_is_lent_or_nothing() {
    let mut cluster = Cluster::new(&[("a", 3), ("b", 2), ("c", 1)]);
    cluster.want("b", 1, 7);
    cluster.want("b", 2, 6);
    let moves = cluster.decide();
    assert_eq!(moves.loans.len(), 4);
    assert!(moves.loans.iter().all(|loan| loan.job.0 == 2));
    assert_eq!(
        moves.refused[&AllocationId(1)],
        BorrowRefusal::TooFew {
            missing: 5,
            offered: 4
        }
    );
}

#[test]
fn only_nodes_that_fit_the_job_are_lent() {
    let mut cluster = Cluster::new(&[("a", 3), ("b", 2)]);
    for (node, gpus) in [("a000", 2), ("a001", 8), ("b000", 2)] {
        cluster
            .view
            .nodes
            .get_mut(&id(node))
            .unwrap()
            .facts
            .gpu_count = Some(gpus);
    }
    let mut asks = job(2, 5);
    asks.constraints.gpus_per_node = Some(4);
    cluster.want_job("b", 1, asks);
    let moves = cluster.decide();
    // One fitting node is there; of two others the job gets the one with less hardware.
    assert_eq!(loans(&moves), [("a002", "b")]);
}

#[test]
fn the_owner_with_the_smallest_backlog_lends_first() {
    let mut cluster = Cluster::new(&[("a", 2), ("b", 0), ("c", 2), ("d", 2)]);
    cluster.member("a").backlog_gpu_ms = 9;
    cluster.member("c").backlog_gpu_ms = 1;
    cluster.member("d").backlog_gpu_ms = 1;
    cluster.want("b", 1, 3);
    let moves = cluster.decide();
    assert_eq!(loans(&moves), [("c000", "b"), ("c001", "b"), ("d000", "b")]);
}

#[test]
fn limits_hold_for_what_is_lent_already_too() {
    let mut cluster = Cluster::new(&[("a", 6), ("b", 0), ("c", 2)]);
    cluster.lend(&["a000"], "b").run(90, &["a000"], 60);
    cluster.member("a").policy.lending_limit = Some(3);
    cluster.want("b", 1, 4);
    assert_eq!(
        loans(&cluster.decide()),
        [("a001", "b"), ("a002", "b"), ("c000", "b"), ("c001", "b")]
    );
    cluster.member("b").policy.borrowing_limit = Some(4);
    let moves = cluster.decide();
    assert!(moves.is_empty());
    let limit = BorrowRefusal::Limit {
        missing: 4,
        borrowed: 1,
        limit: 4,
    };
    assert_eq!(moves.refused[&AllocationId(1)], limit);
    cluster.member("b").policy.borrowing_limit = Some(5);
    assert_eq!(cluster.decide().loans.len(), 4);
    cluster.member("a").policy.allow_lending = false;
    let too_few = BorrowRefusal::TooFew {
        missing: 4,
        offered: 2,
    };
    assert_eq!(cluster.decide().refused[&AllocationId(1)], too_few);
    cluster.member("b").policy.allow_borrowing = false;
    assert_eq!(
        cluster.decide().refused[&AllocationId(1)],
        BorrowRefusal::NotAllowed
    );
}

#[test]
fn unpreemptible_work_borrows_nothing() {
    let mut cluster = Cluster::new(&[("a", 9), ("b", 0)]);
    cluster.want_job(
        "b",
        1,
        PendingView {
            sensitive: true,
            ..job(1, 5)
        },
    );
    cluster.want_job("b", 2, job(1, 10));
    cluster.want_job("b", 3, job(1, 7)).saves = false;
    cluster.want_job(
        "b",
        4,
        PendingView {
            walltime_ms: Some(5 * MINUTE),
            ..job(1, 5)
        },
    );
    cluster.want_job("b", 5, job(1, 5)).home_only = true;
    cluster.want_job("b", 6, job(1, 6)).saves = false;
    cluster.want_job(
        "b",
        7,
        PendingView {
            walltime_ms: None,
            ..job(1, 9)
        },
    );
    let moves = cluster.decide();
    let helped: Vec<u64> = moves.loans.iter().map(|loan| loan.job.0).collect();
    assert_eq!(
        helped.iter().collect::<BTreeSet<_>>(),
        BTreeSet::from([&6, &7])
    );
    let why = |n| moves.refused[&AllocationId(n)];
    assert_eq!(why(1), BorrowRefusal::Unstoppable(Protection::Sensitive));
    assert_eq!(why(2), BorrowRefusal::Unstoppable(Protection::HighestClass));
    assert_eq!(why(3), BorrowRefusal::Unstoppable(Protection::Unsaved));
    assert_eq!(
        why(4),
        BorrowRefusal::Short {
            walltime_ms: 300_000,
            least_ms: 300_000
        }
    );
    assert_eq!(why(5), BorrowRefusal::HomeOnly);
    // Such jobs do not get nodes that are borrowed already either.
    cluster.lend(&["a000"], "b");
    let moves = cluster.decide();
    assert!(moves.loans.iter().all(|loan| loan.job.0 > 5));
}

#[test]
fn higher_class_borrows_first() {
    let mut cluster = Cluster::new(&[("a", 1), ("b", 0), ("c", 0), ("d", 0)]);
    let waits = |class, minutes: u64| PendingView {
        eligible_at: UnixMillis(NOW.0 - minutes * MINUTE),
        ..job(1, class)
    };
    cluster.want_job("b", 1, waits(4, 90));
    cluster.want_job("c", 2, waits(5, 0));
    cluster.want_job("d", 3, waits(5, 1));
    assert_eq!(loans(&cluster.decide()), [("a000", "d")]);
}

#[test]
fn quick_borrower_goes_first_within_bound() {
    let mut cluster = Cluster::new(&[("a", 1), ("b", 0), ("c", 0)]);
    let writes = |minutes: u64, waited: u64| PendingView {
        checkpoint_ms: Some(minutes * MINUTE),
        eligible_at: UnixMillis(NOW.0 - waited * HOUR),
        ..job(1, 5)
    };
    cluster.want_job("b", 1, writes(5, 0));
    cluster.want_job("c", 2, writes(1, 0));
    assert_eq!(loans(&cluster.decide()), [("a000", "c")]);
    // f8 is a third of the other job's, which a wait of e² - 1 hours outweighs.
    for (waited, first) in [(6, "c"), (7, "b")] {
        cluster
            .view
            .pending
            .insert(AllocationId(1), writes(5, waited));
        assert_eq!(loans(&cluster.decide()), [("a000", first)]);
    }
}

#[test]
fn what_is_borrowed_idle_and_of_no_use_goes_home() {
    let mut cluster = Cluster::new(&[("a", 4), ("b", 0)]);
    cluster
        .lend(&["a000", "a001", "a002", "a003"], "b")
        .run(90, &["a001"], 60);
    cluster.want("b", 1, 1);
    cluster.places.get_mut(&id("a002")).unwrap().planned_for = Some(AllocationId(7));
    let moves = cluster.decide();
    assert_eq!(returns(&moves), ["a003"]);
    assert_eq!(moves.returns[0].job, None);
    // The borrower may not have planned yet with a node lent a moment ago.
    cluster.places.get_mut(&id("a003")).unwrap().moved_at = UnixMillis(NOW.0 - 29_999);
    assert!(cluster.decide().is_empty());
    cluster.now = NOW.after(1);
    assert_eq!(returns(&cluster.decide()), ["a003"]);
}

#[test]
fn the_owner_gets_idle_loans_back_before_anybody_is_stopped() {
    let mut cluster = Cluster::new(&[("a", 4), ("b", 0)]);
    cluster
        .lend(&["a000", "a001", "a002"], "b")
        .run(90, &["a000"], 60);
    cluster.places.get_mut(&id("a001")).unwrap().planned_for = Some(AllocationId(7));
    cluster.want("a", 1, 2);
    let moves = cluster.decide();
    assert_eq!(
        returns(&moves),
        ["a002"],
        "one that its borrower has not planned with"
    );
    assert_eq!(moves.returns[0].job, Some(AllocationId(1)));
    cluster.want("a", 2, 1);
    assert_eq!(
        returns(&cluster.decide()),
        ["a001", "a002"],
        "the owner's right goes before a plan"
    );
    assert!(cluster.decide().reclaims.is_empty());
}

#[test]
fn the_cheapest_borrowers_are_stopped_for_no_more_nodes_than_needed() {
    let mut cluster = Cluster::new(&[("a", 6), ("b", 0), ("c", 0)]);
    cluster
        .lend(&["a000", "a001", "a002"], "b")
        .lend(&["a003", "a004", "a005"], "c");
    cluster
        .run(90, &["a000", "a001"], 600)
        .run(91, &["a002"], 30)
        .run(92, &["a003"], 60)
        .run(93, &["a004", "a005"], 60);
    cluster.want("a", 1, 2);
    let moves = cluster.decide();
    // 91 and 92 are the cheapest two jobs.
    assert_eq!(reclaims(&moves), [(91, vec!["a002"]), (92, vec!["a003"])]);
    let first = &moves.reclaims[0];
    assert_eq!(
        (first.owner.as_str(), first.borrower.as_str(), first.how),
        ("a", "b", ReleaseManner::Stop)
    );
    assert_eq!(first.back_by, NOW.after(660_000));
    // 30 s x 4 GPUs, and a hundredth of ten hours.
    assert_eq!(first.cost, 120.0 + 1_440.0);
    cluster.apply(&moves);
    assert!(
        cluster.decide().is_empty(),
        "what was asked back is counted on"
    );
    cluster.want("a", 2, 1);
    assert_eq!(
        reclaims(&cluster.decide()),
        [(93, vec!["a004"])],
        "one of its two nodes"
    );
}

#[test]
fn what_is_promised_to_others_is_asked_back_last() {
    let mut cluster = Cluster::new(&[("a", 3), ("b", 0)]);
    cluster
        .lend(&["a000", "a001", "a002"], "b")
        .run(90, &["a000", "a001"], 600)
        .run(91, &["a002"], 30);
    // A job already stopping for another job costs nothing more.
    cluster.work.get_mut(&AllocationId(91)).unwrap().state = AllocationState::Stopping;
    let place = cluster.places.get_mut(&id("a002")).unwrap();
    (place.planned_for, place.is_promised) = (Some(AllocationId(7)), true);
    cluster.want("a", 1, 1);
    assert_eq!(reclaims(&cluster.decide()), [(90, vec!["a000"])]);
    // If all nodes are needed, the owner takes precedence over a promise.
    cluster.want("a", 2, 2);
    let moves = cluster.decide();
    assert_eq!(
        reclaims(&moves),
        [(90, vec!["a000", "a001"]), (91, vec!["a002"])]
    );
}

#[test]
fn what_is_asked_back_and_wanted_no_more_is_kept() {
    let mut cluster = Cluster::new(&[("a", 2), ("b", 0)]);
    cluster
        .lend(&["a000", "a001"], "b")
        .run(90, &["a000"], 60)
        .run(91, &["a001"], 60);
    cluster.want("a", 1, 2);
    let moves = cluster.decide();
    cluster.apply(&moves);
    // As the committed state shows the nodes.
    for node in cluster.view.nodes.values_mut() {
        node.in_service = false;
    }
    assert!(cluster.decide().is_empty());
    cluster.member("a").wanting.clear();
    cluster.want("a", 2, 1);
    assert!(cluster.decide().is_empty(), "it was asked back just now");
    cluster.now = NOW.after(30_000);
    assert_eq!(cluster.decide().withdrawn, [id("a001")]);
    // A job that writes its checkpoint may still stay; a stopping job continues to stop.
    let states = [AllocationState::Checkpointing, AllocationState::Stopping];
    let decided = states.map(|state| {
        cluster.work.get_mut(&AllocationId(91)).unwrap().state = state;
        cluster.decide().withdrawn
    });
    assert_eq!(decided, [vec![id("a001")], vec![]]);
}

#[test]
fn work_that_ends_in_time_is_left_to_end() {
    let mut cluster = Cluster::new(&[("a", 3), ("b", 0)]);
    cluster.lend(&["a000", "a001", "a002"], "b");
    cluster
        .run(90, &["a000"], 1)
        .run(91, &["a001"], 600)
        .run(92, &["a002"], 1);
    cluster
        .view
        .running
        .get_mut(&AllocationId(91))
        .unwrap()
        .ends_at = Some(NOW.after(11 * MINUTE));
    // The job is past its end for an unknown reason.
    cluster
        .view
        .running
        .get_mut(&AllocationId(92))
        .unwrap()
        .ends_at = Some(UnixMillis(NOW.0 - 1));
    cluster.work.get_mut(&AllocationId(92)).unwrap().since = UnixMillis(NOW.0 - 20 * HOUR);
    cluster.want("a", 1, 1);
    let moves = cluster.decide();
    assert_eq!(reclaims(&moves), [(91, vec!["a001"])]);
    let only = &moves.reclaims[0];
    assert_eq!(
        (only.how, only.back_by, only.cost),
        (ReleaseManner::LetEnd, NOW.after(11 * MINUTE), 0.0)
    );
    cluster.work.get_mut(&AllocationId(90)).unwrap().state = AllocationState::Stopping;
    cluster.want("a", 2, 1);
    assert_eq!(
        reclaims(&cluster.decide()),
        [(90, vec!["a000"]), (91, vec!["a001"])]
    );
    cluster.want("a", 3, 1);
    assert_eq!(cluster.decide().reclaims[2].how, ReleaseManner::Stop);
}

#[test]
fn owner_borrows_before_reclaiming() {
    let mut cluster = Cluster::new(&[("a", 2), ("b", 0), ("c", 2)]);
    cluster.lend(&["a000"], "b").run(90, &["a000"], 60);
    cluster.want("a", 1, 2);
    let moves = cluster.decide();
    assert_eq!(
        (loans(&moves), moves.reclaims.len()),
        (vec![("c000", "a")], 0)
    );
    cluster.apply(&moves);
    assert!(cluster.decide().is_empty());
    // A sensitive job may not borrow, but may reclaim like any other.
    let mut cluster = Cluster::new(&[("a", 2), ("b", 0), ("c", 2)]);
    cluster.lend(&["a000"], "b").run(90, &["a000"], 60);
    cluster.want_job(
        "a",
        1,
        PendingView {
            sensitive: true,
            ..job(2, 9)
        },
    );
    let moves = cluster.decide();
    assert_eq!(reclaims(&moves), [(90, vec!["a000"])]);
    assert!(moves.loans.is_empty());
}

/// Borrowed nodes might be gone by the time the own nodes are free.
#[test]
fn owner_gets_all_its_nodes() {
    let mut cluster = Cluster::new(&[("a", 3), ("b", 0), ("c", 1)]);
    cluster
        .lend(&["a000", "a001"], "b")
        .run(90, &["a000"], 60)
        .run(91, &["a001"], 60)
        .lend(&["c000"], "a")
        .want("a", 1, 3);
    assert_eq!(
        reclaims(&cluster.decide()),
        [(90, vec!["a000"]), (91, vec!["a001"])]
    );
    // Same while one of the nodes is on its way back.
    cluster.places.get_mut(&id("a000")).unwrap().reclaimed_at = Some(NOW);
    assert_eq!(reclaims(&cluster.decide()), [(91, vec!["a001"])]);
    // With a second idle node the job can start.
    cluster.add("c001", "c", "c");
    let moves = cluster.decide();
    assert_eq!(
        (loans(&moves), moves.reclaims.len()),
        (vec![("c001", "a")], 0)
    );
    // Until the job has started, no recall is withdrawn.
    cluster.apply(&moves);
    cluster.now = cluster.now.after(60_000);
    assert!(cluster.decide().withdrawn.is_empty());
}

#[test]
fn reclaim_ignores_class_but_not_protection() {
    let mut cluster = Cluster::new(&[("a", 1), ("b", 0)]);
    cluster.lend(&["a000"], "b").run(90, &["a000"], 60);
    cluster.want_job("a", 1, job(1, 0));
    for (work, is_stopped) in [
        (
            HolderFacts {
                class: 9,
                ..cluster.work[&AllocationId(90)].clone()
            },
            true,
        ),
        (
            HolderFacts {
                class: 10,
                ..cluster.work[&AllocationId(90)].clone()
            },
            false,
        ),
        (
            HolderFacts {
                sensitive: true,
                ..cluster.work[&AllocationId(90)].clone()
            },
            false,
        ),
        (
            HolderFacts {
                class: 7,
                saves: CheckpointAbility::Never,
                ..cluster.work[&AllocationId(90)].clone()
            },
            false,
        ),
        (
            HolderFacts {
                moved_at: Some(NOW),
                ..cluster.work[&AllocationId(90)].clone()
            },
            true,
        ),
    ] {
        cluster.work.insert(AllocationId(90), work.clone());
        assert_eq!(
            !cluster.decide().reclaims.is_empty(),
            is_stopped,
            "{work:?}"
        );
    }
}

#[test]
fn what_an_owner_could_use_itself_is_not_lent() {
    let mut cluster = Cluster::new(&[("a", 2), ("b", 0)]);
    cluster.want_job("b", 1, job(1, 9));
    cluster.want_job("a", 2, job(2, 0));
    assert!(cluster.decide().is_empty(), "whatever the class");
    // A job that needs nodes of others does not keep the idle nodes of its vCluster from being lent.
    cluster.want_job("a", 3, job(3, 0));
    cluster.member("a").wanting.remove(0);
    assert_eq!(cluster.decide().loans.len(), 1);
}

#[test]
fn a_loan_is_counted_on_from_the_end_of_grace_and_checkpoint() {
    assert_eq!(
        loan_release_at(UnixMillis(1_000), 60_000, 600_000),
        UnixMillis(661_000)
    );
    assert_eq!(loan_release_at(NOW, 0, 0), NOW);
    assert_eq!(
        loan_release_at(UnixMillis(u64::MAX), 1, u64::MAX),
        UnixMillis(u64::MAX)
    );
}

#[test]
fn lending_is_capped_by_size() {
    let limited = |limit| Policy {
        lending_limit: Some(limit),
        ..Policy::default()
    };
    assert_eq!(limited(5).check(5), Ok(()));
    assert_eq!(Policy::default().check(0), Ok(()));
    assert_eq!(
        limited(6).check(5).unwrap_err().to_string(),
        "lending_limit 6 exceeds the 5 nodes of the vCluster; set at most 5, or remove the limit"
    );
}

#[test]
fn edges_are_no_trouble() {
    assert_eq!(Cluster::default().decide(), LendingMoves::default());
    let mut cluster = Cluster::new(&[("a", 0), ("b", 0)]);
    cluster.want("a", 1, 0);
    cluster.want("a", 2, u32::MAX);
    cluster.member("b").wanting.push(WaitingJob {
        id: AllocationId(77),
        saves: true,
        home_only: false,
    });
    let moves = cluster.decide();
    assert!(moves.is_empty());
    assert_eq!(moves.refused.len(), 1);
    // A node of an unlisted vCluster stays where it is.
    let mut cluster = Cluster::new(&[("a", 0)]);
    cluster.add("x000", "x", "x").want("a", 1, 1);
    assert!(cluster.decide().is_empty());
}

#[test]
fn ten_thousand_nodes_of_twenty_vclusters_are_no_trouble() {
    let names: Vec<String> = (b'a'..b'u').map(|c| char::from(c).to_string()).collect();
    let sizes: Vec<(&str, usize)> = names.iter().map(|n| (n.as_str(), 500)).collect();
    let mut cluster = Cluster::new(&sizes);
    for (v, vcluster) in names.iter().enumerate() {
        for n in 0..100 {
            // A fifth is lent to the next vCluster and in use there; another two fifths are in use at home.
            let lent = n % 2 == 0;
            let nodes: Vec<String> = (0..3)
                .map(|k| format!("{vcluster}{:03}", 5 * n + k))
                .collect();
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            if lent {
                cluster.lend(&nodes, &names[(v + 1) % names.len()]);
            }
            cluster.run(1_000 + (v * 100 + n) as u64, &nodes, 30 + n as u64);
        }
        for k in 0..50 {
            let wants = 1 + (k * 7 + v as u64) % 60;
            cluster.want(vcluster, 1 + (v as u64 * 50 + k), wants as u32);
        }
    }
    let moves = cluster.decide();
    assert!(!moves.reclaims.is_empty() || !moves.loans.is_empty());
    assert_eq!(moves, cluster.decide());
    cluster.apply(&moves);
    let next = cluster.decide();
    assert!(next.loans.is_empty() && next.returns.is_empty());
}
