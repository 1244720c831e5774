//! One rule per test.

use super::{super::*, build::*};
use crate::{
    explain::Blocker,
    view::{ConformanceKey, DomainView, Health, StorageView},
};

/// One node, held by 90, and a job of class 6 for it.
fn one(work: HolderFacts) -> Site {
    let mut site = Site::new(1, 1);
    site.run(90, &["g0n00"], 20 * HOUR, work).ask(job(1, 6));
    site
}

#[test]
fn lower_work_makes_room_and_the_job_gets_its_nodes() {
    let mut site = Site::new(1, 4);
    site.run(90, &["g0n01", "g0n02"], 20 * HOUR, work(3))
        .ask(job(3, 6));
    let chosen = site.choose().unwrap();
    assert_eq!(
        chosen
            .victims
            .iter()
            .map(|v| (v.id.0, v.class, v.nodes))
            .collect::<Vec<_>>(),
        [(90, 3, 2)]
    );
    assert_eq!(chosen.nodes, ["g0n00", "g0n01", "g0n02"].map(id));
    assert_eq!(chosen.layout.span(), 1);
    assert_eq!(chosen.cost, chosen.victims[0].cost.total());
    assert!(chosen.cost < chosen.value);
}

#[test]
fn only_work_strictly_below_makes_room() {
    for (victim, pending, kept) in [
        (5, 6, None),
        (6, 6, Some(Protection::Class)),
        (7, 6, Some(Protection::Class)),
        (9, 10, None),
        (10, 10, Some(Protection::HighestClass)),
        (0, 1, None),
        (0, 0, Some(Protection::Class)),
        // Out of range; interfaces reject such a class.
        (10, 255, Some(Protection::HighestClass)),
    ] {
        let mut site = one(work(victim));
        site.ask(job(1, pending));
        match kept {
            None => assert_eq!(site.victims(), [90], "{victim} for {pending}"),
            Some(kept) => assert_eq!(site.kept(), kept, "{victim} for {pending}"),
        }
    }
}

#[test]
fn sensitive_unsaved_stopping_and_nearly_done_work_is_left_alone() {
    assert_eq!(
        one(HolderFacts {
            sensitive: true,
            ..work(0)
        })
        .kept(),
        Protection::Sensitive
    );
    for state in [AllocationState::Checkpointing, AllocationState::Stopping] {
        assert_eq!(
            one(HolderFacts { state, ..work(0) }).kept(),
            Protection::State
        );
    }
    let unsaved = |class| {
        let mut site = one(HolderFacts {
            saves: CheckpointAbility::Never,
            checkpointed_at: Some(NOW),
            ..work(class)
        });
        site.ask(PendingView {
            walltime_ms: None,
            ..job(1, 9)
        });
        site
    };
    assert_eq!(unsaved(7).kept(), Protection::Unsaved);
    assert_eq!(unsaved(6).victims(), [90]);
    for (left, is_left_alone) in [(5 * MINUTE, true), (5 * MINUTE + 1, false), (0, true)] {
        let mut site = one(work(0));
        site.ask(PendingView {
            walltime_ms: None,
            ..job(1, 6)
        });
        let running = site.view.running.get_mut(&AllocationId(90)).unwrap();
        running.ends_at = Some(NOW.after(left));
        match is_left_alone {
            true => assert_eq!(site.kept(), Protection::NearCompletion, "{left}"),
            false => assert_eq!(site.victims(), [90], "{left}"),
        }
    }
    let mut unknown = one(work(0));
    unknown.work.clear();
    assert_eq!(unknown.kept(), Protection::Unknown);
}

#[test]
fn thrash_guard_protects_and_raises_class() {
    let moved = |ago: u64| {
        one(HolderFacts {
            moved_at: Some(UnixMillis(NOW.0 - ago)),
            ..work(5)
        })
    };
    assert_eq!(moved(15 * MINUTE - 1).kept(), Protection::JustMoved);
    assert_eq!(moved(15 * MINUTE).victims(), [90]);
    // A clock that is ahead.
    assert_eq!(
        one(HolderFacts {
            moved_at: Some(NOW.after(1)),
            ..work(5)
        })
        .kept(),
        Protection::JustMoved
    );
    let often = |preempted| {
        one(HolderFacts {
            preempted,
            ..work(5)
        })
    };
    assert_eq!(often(2).victims(), [90]);
    assert_eq!(often(3).kept(), Protection::Class);
    let mut site = often(u32::MAX);
    site.ask(job(1, 7));
    assert_eq!(
        site.choose().unwrap().victims[0].class,
        6,
        "one class, however often"
    );
    let mut off = often(3);
    off.policy.thrash_count = 0;
    assert_eq!(off.victims(), [90]);
    // Raised to class 10, it is protected from every job.
    let mut highest = one(HolderFacts {
        preempted: 3,
        ..work(9)
    });
    highest.ask(job(1, 10));
    assert_eq!(highest.kept(), Protection::Class);
}

#[test]
fn a_policy_may_forbid_it_or_limit_it_to_borrowed_nodes() {
    let mut site = one(work(0));
    site.policy.enabled = false;
    assert_eq!(site.choose(), Err(NoVictims::Disabled));
    site.policy = Policy {
        only_borrowed: true,
        ..Policy::default()
    };
    assert_eq!(site.kept(), Protection::NotBorrowed);
    site.borrowed.insert(id("g0n00"));
    assert_eq!(site.victims(), [90]);
}

#[test]
fn three_victims_at_most_and_why_not_is_data() {
    let mut site = Site::new(1, 4);
    for n in 0..4 {
        site.run(90 + n, &[&format!("g0n{n:02}")], 20 * HOUR, work(0));
    }
    site.ask(job(3, 6));
    assert_eq!(site.victims(), [90, 91, 92]);
    site.policy.max_victims = 2;
    assert_eq!(
        site.choose(),
        Err(NoVictims::TooMany { needed: 3, most: 2 })
    );
    site.policy.max_victims = 0;
    assert_eq!(
        site.choose(),
        Err(NoVictims::TooMany { needed: 3, most: 0 })
    );
    site.policy.max_victims = 9;
    site.ask(job(4, 6));
    let no = site.choose().unwrap_err();
    assert_eq!(no, NoVictims::TooMany { needed: 4, most: 3 });
    assert_eq!(
        no.to_string(),
        "at least 4 allocations would have to be preempted, the limit is 3"
    );
}

#[test]
fn what_is_lost_must_be_less_than_what_the_job_gains() {
    // Nine of ten hours of progress on one node, for a job of a minute.
    let mut site = one(HolderFacts {
        saves: CheckpointAbility::Never,
        since: UnixMillis(NOW.0 - 9 * HOUR),
        ..work(5)
    });
    site.ask(PendingView {
        walltime_ms: Some(MINUTE),
        ..job(1, 6)
    });
    let lost = 9.0 * 3_600.0 * 4.0 + 0.01 * 20.0 * 3_600.0 * 4.0;
    assert_eq!(
        site.choose(),
        Err(NoVictims::CostOverValue {
            cost: lost,
            value: 240.0
        })
    );
    // An equal cost is not less: 2 min of 4 GPUs.
    site.run(90, &["g0n00"], 20 * HOUR, work(5));
    site.view
        .running
        .get_mut(&AllocationId(90))
        .unwrap()
        .walltime_ms = None;
    site.ask(PendingView {
        walltime_ms: Some(2 * MINUTE),
        ..job(1, 6)
    });
    assert_eq!(
        site.choose(),
        Err(NoVictims::CostOverValue {
            cost: 480.0,
            value: 480.0
        })
    );
    site.ask(PendingView {
        walltime_ms: Some(2 * MINUTE + 1),
        ..job(1, 6)
    });
    assert_eq!(site.victims(), [90]);
}

#[test]
fn too_few_nodes_names_maximum() {
    let mut site = Site::new(1, 4);
    site.run(90, &["g0n01"], 20 * HOUR, work(3))
        .run(91, &["g0n02", "g0n03"], 20 * HOUR, work(8));
    site.ask(job(3, 6));
    let no = site.choose().unwrap_err();
    assert!(
        matches!(
            no,
            NoVictims::Shortfall {
                needed: 3,
                free: 1,
                freeable: 2,
                ..
            }
        ),
        "{no:?}"
    );
    assert_eq!(
        no.to_string(),
        "preemption could free at most 2 of 3 nodes (1 are free): waiting for 1 more to be free"
    );
}

#[test]
fn no_preemption_under_limit_or_for_fitting_job() {
    let mut site = one(work(0));
    level(&mut site.view, "t", Some(1), 1);
    assert!(matches!(
        site.choose(),
        Err(NoVictims::Blocked {
            blocker: Blocker::QuotaHeadroom { .. }
        })
    ));
    level(&mut site.view, "t", None, 0);
    site.ask(job(2, 6));
    assert!(matches!(
        site.choose(),
        Err(NoVictims::Blocked {
            blocker: Blocker::NotEnoughNodes { short: 1 }
        })
    ));
    site.ask(job(0, 6));
    assert!(matches!(
        site.choose(),
        Err(NoVictims::Blocked {
            blocker: Blocker::NoNodesAsked
        })
    ));
    site.view.nodes.insert(id("g0n09"), node("g0", Some(4)));
    site.ask(job(1, 6));
    assert_eq!(site.choose(), Err(NoVictims::FitsNow));
    site.view.pending.clear();
    assert_eq!(site.choose(), Err(NoVictims::NotPending));
    let mut nothing = Site::default();
    nothing.ask(job(1, 6));
    assert!(matches!(nothing.choose(), Err(NoVictims::Blocked { .. })));
}

#[test]
fn what_is_held_for_others_is_neither_free_nor_freed() {
    let mut site = Site::new(1, 3);
    site.run(90, &["g0n00"], 20 * HOUR, work(0))
        .run(91, &["g0n01"], 20 * HOUR, work(4));
    site.reserved = [id("g0n02"), id("g0n00")].into();
    site.ask(job(1, 6));
    let chosen = site.choose().unwrap();
    assert_eq!(
        (site.victims(), chosen.nodes),
        (vec![91], vec![id("g0n01")])
    );
}

#[test]
fn only_nodes_count_that_the_job_could_use() {
    let mut site = Site::new(1, 3);
    site.view
        .nodes
        .get_mut(&id("g0n00"))
        .unwrap()
        .facts
        .gpu_count = Some(1);
    site.view.nodes.get_mut(&id("g0n01")).unwrap().facts.health = Health::Faulty;
    for n in 0..3 {
        site.run(90 + n, &[&format!("g0n{n:02}")], 20 * HOUR, work(n as u8));
    }
    let mut asks = job(1, 6);
    asks.constraints.gpus_per_node = Some(4);
    site.ask(asks);
    assert_eq!(site.victims(), [92]);
}

#[test]
fn the_excess_over_a_share_goes_first_whatever_it_costs() {
    let mut site = Site::new(1, 3);
    let dear = HolderFacts {
        burst: true,
        saves: CheckpointAbility::In {
            write_ms: 9 * MINUTE,
        },
        ..work(5)
    };
    site.run(90, &["g0n00"], 20 * HOUR, work(0))
        .run(91, &["g0n01"], 20 * HOUR, dear.clone());
    site.run(92, &["g0n02"], 20 * HOUR, dear);
    site.ask(job(1, 6));
    assert_eq!(site.victims(), [91]);
    site.ask(PendingView {
        walltime_ms: Some(HOUR),
        ..job(2, 8)
    });
    assert_eq!(
        site.victims(),
        [91, 92],
        "rather than one of them and one that is not"
    );
    // The loss must still be less than the value.
    for id in [91, 92] {
        site.work.get_mut(&AllocationId(id)).unwrap().saves = CheckpointAbility::In {
            write_ms: 900 * HOUR,
        };
    }
    site.ask(job(1, 6));
    assert_eq!(site.victims(), [90]);
}

#[test]
fn one_large_victim_goes_before_several_that_are_a_little_cheaper() {
    let mut site = Site::new(1, 4);
    let writes = |minutes: u64| HolderFacts {
        saves: CheckpointAbility::In {
            write_ms: minutes * MINUTE,
        },
        checkpointed_at: Some(NOW),
        ..work(2)
    };
    site.run(90, &["g0n00", "g0n01"], 20 * HOUR, writes(10));
    for (number, node) in [(91, "g0n02"), (92, "g0n03")] {
        site.run(number, &[node], 20 * HOUR, writes(9));
    }
    for running in site.view.running.values_mut() {
        running.walltime_ms = None;
    }
    site.ask(job(2, 6));
    assert_eq!(site.victims(), [90], "two cost 10 % less, and are two");
    for id in [91, 92] {
        site.work.insert(AllocationId(id), writes(7));
    }
    assert_eq!(site.victims(), [91, 92], "30 % less");
}

#[test]
fn of_equal_victims_those_go_that_leave_the_job_in_fewer_groups() {
    let mut site = Site::new(3, 2);
    site.run(90, &["g0n00"], 20 * HOUR, work(3))
        .run(91, &["g1n00"], 20 * HOUR, work(3));
    site.run(92, &["g0n01", "g2n00", "g2n01"], 20 * HOUR, work(8));
    site.ask(job(2, 6));
    let chosen = site.choose().unwrap();
    assert_eq!((chosen.layout.span(), site.victims()), (1, vec![91]));
}

#[test]
fn sensitive_work_gets_one_known_conformance_group() {
    let mut site = Site::new(1, 4);
    let keys = [1, 2, 2, 1].map(|n| ConformanceKey::Known([n; 32]));
    for (node, key) in site.view.nodes.values_mut().zip(keys) {
        node.facts.conformance = key;
    }
    let dear = HolderFacts {
        saves: CheckpointAbility::In {
            write_ms: 8 * MINUTE,
        },
        ..work(3)
    };
    site.run(90, &["g0n01"], 20 * HOUR, work(3))
        .run(91, &["g0n02"], 20 * HOUR, dear.clone());
    site.run(92, &["g0n03"], 20 * HOUR, dear);
    // g0n00 is free: with the cheapest victim, 90, there would be two nodes of different groups.
    site.ask(PendingView {
        sensitive: true,
        ..job(2, 9)
    });
    let chosen = site.choose().unwrap();
    assert_eq!(
        (site.victims(), chosen.nodes),
        (vec![92], vec![id("g0n00"), id("g0n03")])
    );
    assert_eq!(chosen.layout.conformance, 1.0);
    site.ask(PendingView {
        sensitive: true,
        ..job(3, 9)
    });
    assert!(matches!(
        site.choose(),
        Err(NoVictims::Blocked {
            blocker: Blocker::NotConforming { short: 1 }
        })
    ));
}

#[test]
fn victim_returns_power_and_bandwidth() {
    let mut site = Site::new(1, 3);
    let charge = |mw| {
        Some(crate::view::Charge {
            domain: "row".to_owned(),
            mw,
        })
    };
    for (node, mw) in site.view.nodes.values_mut().zip([100, 300, 300]) {
        node.facts.charge = charge(mw);
    }
    let domain = DomainView {
        parent: None,
        headroom_mw: 0,
    };
    site.view.power.insert("row".to_owned(), domain);
    site.run(90, &["g0n00"], 20 * HOUR, work(0))
        .run(91, &["g0n01"], 20 * HOUR, work(3));
    let mut asks = job(1, 6);
    asks.constraints.exclude = vec![id("g0n00")];
    site.ask(asks);
    // A node is free but has no power: the cheaper victim would not release enough.
    assert_eq!(site.victims(), [91]);
    site.view.power.clear();
    site.view
        .storage
        .insert("scratch".to_owned(), StorageView { left_mb_s: 1 });
    let storage = |mb_s| [("scratch".to_owned(), mb_s)].into();
    site.view
        .running
        .get_mut(&AllocationId(91))
        .unwrap()
        .storage_mb_s = storage(9);
    site.ask(PendingView {
        storage_mb_s: storage(10),
        ..job(1, 6)
    });
    assert_eq!(site.victims(), [91]);
    site.ask(PendingView {
        storage_mb_s: storage(11),
        ..job(1, 6)
    });
    assert!(matches!(
        site.choose(),
        Err(NoVictims::Shortfall {
            blocker: Blocker::StorageShort { .. },
            ..
        })
    ));
}

#[test]
fn what_administrators_keep_for_others_is_of_no_use() {
    let mut site = Site::new(1, 3);
    for (n, node) in ["g0n00", "g0n01", "g0n02"].into_iter().enumerate() {
        site.run(90 + n as u64, &[node], 20 * HOUR, work(n as u8));
    }
    let window = |from| lattice_quorum_types::reservation::ReservationSpec {
        nodes: [id("g0n00")].into(),
        from,
        until: None,
        users: BTreeSet::new(),
        projects: BTreeSet::new(),
        reason: "maintenance".to_owned(),
    };
    let name = lattice_quorum_types::id::ReservationName::new("upgrade").unwrap();
    site.view
        .reserved
        .insert(name.clone(), window(NOW.after(HOUR - 1)));
    site.ask(job(1, 6));
    assert_eq!(site.victims(), [91]);
    site.ask(job(3, 6));
    let no = site.choose().unwrap_err();
    assert!(
        matches!(no, NoVictims::Shortfall { freeable: 2, .. }),
        "{no:?}"
    );
    // The job begins once the holder of the node has written its checkpoint, which takes two minutes.
    let starts = 2 * MINUTE;
    let mut site_with = |from| {
        site.view.reserved.insert(name.clone(), window(from));
        site.choose().map(|chosen| chosen.victims.len())
    };
    let no = site_with(NOW.after(HOUR + starts - 1)).unwrap_err();
    assert!(matches!(no, NoVictims::NotFound { tried: 1 }), "{no:?}");
    let all = site_with(NOW.after(HOUR + starts));
    assert_eq!(all, Ok(3), "it is over by then");
}

#[test]
fn claimed_node_goes_to_no_other_user() {
    let mut site = one(work(0));
    site.view.nodes.get_mut(&id("g0n00")).unwrap().owner = Some(crate::view::Owner {
        user: "bob".to_owned(),
        project: lattice_quorum_types::ProjectPath::new("t").unwrap(),
    });
    assert!(matches!(site.choose(), Err(NoVictims::Blocked { .. })));
}
