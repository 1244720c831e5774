//! Cost of victims and value of preemption, in GPU-seconds.

use super::{super::*, build::*};

fn running(walltime: Option<u64>, left: u64) -> RunningView {
    RunningView {
        ends_at: walltime.map(|_| NOW.after(left)),
        walltime_ms: walltime,
        ..RunningView::default()
    }
}

fn parts(work: &HolderFacts, running: &RunningView, gpus: u64) -> (f64, f64, f64) {
    let cost = Cost::of(work, running, gpus, NOW);
    assert!(cost.total().is_finite() && cost.total() >= 0.0);
    (cost.checkpoint, cost.recompute, cost.completion)
}

#[test]
fn checkpointing_victim_loses_write_time_only() {
    // 2 min x 40 GPUs. It has run 5 of 10 h: a hundredth of 5 h x 40 GPUs.
    let cost = parts(&work(3), &running(Some(10 * HOUR), 5 * HOUR), 40);
    assert_eq!(cost, (4_800.0, 0.0, 7_200.0));
}

#[test]
fn victim_without_checkpoint_loses_progress() {
    let never = HolderFacts {
        saves: CheckpointAbility::Never,
        // Without a checkpoint mode, an earlier checkpoint does not count.
        checkpointed_at: Some(NOW),
        ..work(3)
    };
    assert_eq!(parts(&never, &running(None, 0), 4), (0.0, 14_400.0, 0.0));
    let out = |minutes: u64| HolderFacts {
        saves: CheckpointAbility::NotNow,
        checkpointed_at: Some(UnixMillis(NOW.0 - minutes * MINUTE)),
        ..work(3)
    };
    assert_eq!(parts(&out(10), &running(None, 0), 4), (0.0, 2_400.0, 0.0));
    assert_eq!(parts(&out(0), &running(None, 0), 4), (0.0, 0.0, 0.0));
    // The checkpoint is of an earlier attempt: time off its nodes and repeated progress do not count.
    assert_eq!(parts(&out(600), &running(None, 0), 4), (0.0, 14_400.0, 0.0));
    let none_yet = HolderFacts {
        checkpointed_at: None,
        ..out(0)
    };
    assert_eq!(parts(&none_yet, &running(None, 0), 4), (0.0, 14_400.0, 0.0));
}

#[test]
fn what_was_put_into_it_counts_by_how_near_its_end_it_is() {
    let completion =
        |had: u64| parts(&work(3), &running(Some(100 * HOUR), (100 - had) * HOUR), 1).2;
    let hours = |gpu_hours: f64| gpu_hours * 3_600.0;
    assert_eq!(completion(0), 0.0);
    assert_eq!(completion(9), 0.0);
    assert!((completion(10) - hours(0.1)).abs() < 1e-6);
    assert!((completion(90) - hours(0.9)).abs() < 1e-6);
    assert_eq!(completion(91), hours(91.0));
    assert_eq!(completion(100), hours(100.0));
}

#[test]
fn earlier_attempts_count_as_the_walltime_counts_them() {
    // Of 100 h it had used 80 when it was preempted, and now it has used 8 of the remaining 20.
    let resumed = HolderFacts {
        ran_before_ms: 80 * HOUR,
        ..work(3)
    };
    let at = |left: u64| parts(&resumed, &running(Some(20 * HOUR), left * HOUR), 1).2;
    assert!((at(12) - 0.88 * 3_600.0).abs() < 1e-6, "{}", at(12));
    assert_eq!(at(9), 91.0 * 3_600.0);
    let full = HolderFacts {
        ran_before_ms: u64::MAX,
        ..work(3)
    };
    parts(&full, &running(Some(u64::MAX), 0), u32::MAX.into());
}

#[test]
fn work_is_read_from_its_record() {
    use lattice_quorum_types::{
        NodeId, ProjectPath, Revision, VclusterName,
        allocation::{Rank, RankPhase},
        progress::{AllocationProgress, SavedCheckpoint},
        spec::{AllocationSpec, Workload},
    };
    let at = |minutes: u64| UnixMillis(NOW.0 - minutes * MINUTE);
    let (project, vcluster) = (
        ProjectPath::new("t").unwrap(),
        VclusterName::new("v").unwrap(),
    );
    let rank = |node: &str, began: u64| Rank {
        node: NodeId::new(node).unwrap(),
        boot: None,
        phase: RankPhase::Running { at: at(began) },
    };
    let mut record = Allocation {
        id: AllocationId(9),
        user: "alice".to_owned(),
        spec: AllocationSpec::new(project, vcluster, 2, Workload::default()),
        state: AllocationState::Running,
        state_since: at(29),
        submitted_at: at(900),
        eligible_at: at(900),
        started_at: Some(at(600)),
        ended_at: None,
        attempt: 2,
        ranks: vec![rank("n0", 30), rank("n1", 28)],
        stop: None,
        revision: Revision(1),
        progress: AllocationProgress {
            preempted: 2,
            moved_at: Some(at(31)),
            resumed_ms: 7 * MINUTE,
            kept: Some(SavedCheckpoint {
                number: 1,
                asked_at: at(10),
                written_at: at(8),
                took_ms: 2 * MINUTE,
                attempt: 2,
                directory: "/scratch".to_owned(),
                bytes: None,
                progress_ms: 25 * MINUTE,
            }),
            ..AllocationProgress::default()
        },
    };
    let expected = HolderFacts {
        class: 5,
        sensitive: false,
        state: AllocationState::Running,
        since: at(28),
        ran_before_ms: 7 * MINUTE,
        checkpointed_at: Some(at(10)),
        saves: CheckpointAbility::NotNow,
        preempted: 2,
        moved_at: Some(at(31)),
        burst: true,
    };
    assert_eq!(
        HolderFacts::new(&record, CheckpointAbility::NotNow, true),
        expected
    );
    // Ten minutes are lost, without the time for writing the checkpoint.
    assert_eq!(parts(&expected, &running(None, 0), 1).1, 600.0);
    record.state = AllocationState::Starting;
    assert_eq!(
        HolderFacts::new(&record, CheckpointAbility::Never, false).since,
        at(29)
    );
}

#[test]
fn edges_are_numbers() {
    let far = UnixMillis(u64::MAX);
    for state in AllocationState::ALL {
        for saves in [
            CheckpointAbility::Never,
            CheckpointAbility::NotNow,
            CheckpointAbility::In { write_ms: u64::MAX },
        ] {
            for since in [UnixMillis(0), NOW, far] {
                for running in [
                    running(None, 0),
                    running(Some(0), 0),
                    running(Some(u64::MAX), u64::MAX),
                    RunningView {
                        ends_at: Some(UnixMillis(0)),
                        ..running(Some(1), 0)
                    },
                    RunningView {
                        ends_at: None,
                        ..running(Some(HOUR), 0)
                    },
                ] {
                    let work = HolderFacts {
                        state,
                        saves,
                        since,
                        checkpointed_at: Some(far),
                        ..work(0)
                    };
                    for gpus in [0, 1, u64::MAX] {
                        parts(&work, &running, gpus);
                    }
                }
            }
        }
    }
    assert_eq!(value(0, 0.0, 0, 0.0), 0.0);
    assert!(
        value(
            u64::MAX,
            f64::from(u32::MAX) * f64::from(u32::MAX),
            10,
            40.0
        )
        .is_finite()
    );
}

#[test]
fn an_attempt_that_has_not_started_loses_nothing() {
    let starting = HolderFacts {
        state: AllocationState::Starting,
        saves: CheckpointAbility::Never,
        ..work(3)
    };
    assert_eq!(
        parts(&starting, &running(Some(10 * HOUR), 10 * HOUR), 4),
        (0.0, 0.0, 0.0)
    );
}

#[test]
fn a_job_is_worth_the_work_that_it_gets_done_sooner_by_class_and_wait() {
    let mut site = Site::new(1, 2);
    site.run(90, &["g0n00", "g0n01"], 20 * HOUR, work(3))
        .ask(job(2, 5));
    // 1 h of 8 GPUs, two classes above.
    assert_eq!(site.choose().unwrap().value, 57_600.0);
    // By then it would have had all but the last half hour.
    site.planned_start = Some(NOW.after(HOUR / 2));
    assert_eq!(site.choose().unwrap().value, 28_800.0);
    site.planned_start = None;
    site.ask(PendingView {
        walltime_ms: None,
        ..job(2, 5)
    });
    assert_eq!(
        site.choose().unwrap().value,
        24.0 * 57_600.0,
        "a day, as the solver counts it"
    );
    site.ask(PendingView {
        eligible_at: UnixMillis(NOW.0 - HOUR),
        ..job(2, 5)
    });
    let waited = site.choose().unwrap().value;
    assert!(
        (waited - 57_600.0 * (1.0 + 2.0_f64.ln())).abs() < 1e-6,
        "{waited}"
    );
}

#[test]
fn a_node_without_gpus_counts_as_one_gpu() {
    let mut site = Site::new(1, 1);
    for gpus in [None, Some(0), Some(1)] {
        site.view
            .nodes
            .get_mut(&id("g0n00"))
            .unwrap()
            .facts
            .gpu_count = gpus;
        site.run(
            90,
            &["g0n00"],
            20 * HOUR,
            HolderFacts {
                checkpointed_at: Some(NOW),
                ..work(3)
            },
        );
        site.ask(job(1, 9));
        let chosen = site.choose().unwrap();
        assert_eq!(
            (chosen.victims[0].cost.checkpoint, chosen.value),
            (120.0, 21_600.0)
        );
    }
}
