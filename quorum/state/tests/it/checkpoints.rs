//! Job checkpoints: requested by number, complete when every rank has written its part, resumed from when complete.

use crate::common::{self, Cluster, dependencies::*};
use lattice_quorum_types::{
    AllocationId,
    AllocationState::*,
    Applied, Command, Outcome, Refusal,
    allocation::{RankExit, StopCause},
    checkpoint::CheckpointMode,
    command::{Privilege, RankReport, RequestedCheckpoint, Victim},
    progress::{AfterCheckpoint, MoveReason},
    spec::{AllocationSpec, Requeue},
};

/// A running allocation of two ranks that write checkpoints.
fn running(c: &mut Cluster) -> AllocationId {
    let mut spec = writes(common::spec("t", 2));
    spec.walltime_ms = Some(100_000);
    c.running(spec)
}

fn cluster() -> Cluster {
    Cluster::with_nodes(6)
}

fn ask(c: &mut Cluster, id: AllocationId) -> Result<Applied, Refusal> {
    c.service(Command::WriteCheckpoint {
        id,
        directory: "/scratch/t".to_owned(),
        timeout_ms: 10_000,
    })
}

fn asked(c: &mut Cluster, id: AllocationId) -> u32 {
    match ask(c, id).unwrap().outcome {
        Outcome::Checkpoint { number } => number,
        other => panic!("{other:?}"),
    }
}

/// Moves the allocation, for a reason of its own.
fn make_room(c: &mut Cluster, id: AllocationId, writes: bool) -> Result<Applied, Refusal> {
    let checkpoint = writes.then(|| RequestedCheckpoint {
        directory: "/scratch/t".to_owned(),
        timeout_ms: 10_000,
    });
    let victim = Victim {
        id,
        attempt: c.of(id).attempt,
        checkpoint,
    };
    let by = "carol".to_owned();
    let reason = MoveReason::Asked { by };
    c.service(Command::MakeRoom { victim, reason })
}

#[test]
fn a_checkpoint_is_whole_when_every_rank_has_written_in_whatever_order() {
    let mut c = cluster();
    let id = running(&mut c);
    c.clock += 30_000;
    let number = asked(&mut c, id);
    assert_eq!((number, c.state_of(id)), (1, Checkpointing));
    let writing = c.of(id).progress.writing.clone().unwrap();
    assert_eq!(writing.until, c.now().after(10_000));
    assert_eq!(
        (writing.then, writing.extended),
        (AfterCheckpoint::GoOn, false)
    );
    assert_eq!(code(ask(&mut c, id)), "wrong_state", "one at a time");
    c.clock += 500;
    c.checkpointed(id, 1, 1, written(c.now())).unwrap();
    let before = c.state.revision();
    c.checkpointed(id, 1, 1, written(c.now())).unwrap();
    assert_eq!(c.state.revision(), before, "a repeat says nothing new");
    c.checkpointed(id, 0, 7, written(c.now())).unwrap();
    assert_eq!(c.state.revision(), before, "nor does what nobody asked for");
    assert_eq!(
        (c.state_of(id), c.of(id).progress.kept.clone()),
        (Checkpointing, None)
    );
    c.reopen();
    c.clock += 500;
    c.checkpointed(id, 0, 1, written(c.now())).unwrap();
    let progress = c.of(id).progress.clone();
    let kept = progress.kept.unwrap();
    assert_eq!((c.state_of(id), progress.writing), (Running, None));
    assert_eq!((kept.number, kept.attempt, kept.bytes), (1, 1, Some(200)));
    assert_eq!((kept.progress_ms, kept.took_ms), (30_000, 1_000));
    assert_eq!(kept.directory, "/scratch/t");
    assert_eq!((progress.checkpoints, progress.failed_checkpoints), (1, 0));
}

#[test]
fn one_rank_that_fails_is_enough_and_no_number_comes_twice() {
    let mut c = cluster();
    let id = running(&mut c);
    asked(&mut c, id);
    c.checkpointed(id, 1, 1, written(c.now())).unwrap();
    c.checkpointed(id, 0, 1, not_written(c.now())).unwrap();
    let progress = &c.of(id).progress;
    assert_eq!((c.state_of(id), progress.failed_checkpoints), (Running, 1));
    let because = progress.failed_because.as_deref().unwrap();
    assert!(because.starts_with("rank 0: "), "{because}");
    assert_eq!((&progress.kept, &progress.writing), (&None, &None));
    assert_eq!(asked(&mut c, id), 2);
    // A late report about a checkpoint that is over.
    c.checkpointed(id, 1, 1, written(c.now())).unwrap();
    c.checkpointed(id, 0, 2, written(c.now())).unwrap();
    assert_eq!(c.state_of(id), Checkpointing);
    c.checkpointed(id, 1, 2, written(c.now())).unwrap();
    assert_eq!(c.of(id).progress.kept.as_ref().unwrap().number, 2);
    // Nor in another attempt.
    c.user("alice", Command::Requeue { id }).unwrap();
    c.end_all(id, DONE);
    c.run(id);
    assert_eq!((asked(&mut c, id), c.of(id).attempt), (3, 2));
    let kept = c.of(id).progress.kept.clone();
    c.checkpointed(id, 0, 3, not_written(c.now())).unwrap();
    assert_eq!(c.of(id).progress.kept, kept, "the one before is still good");
}

#[test]
fn bytes_need_every_rank() {
    let mut c = cluster();
    let id = running(&mut c);
    asked(&mut c, id);
    c.checkpointed(id, 0, 1, written(c.now())).unwrap();
    let unknown = lattice_quorum_types::checkpoint::CheckpointOutcome::Written {
        at: c.now(),
        bytes: None,
        took_ms: 1,
    };
    c.checkpointed(id, 1, 1, unknown).unwrap();
    assert_eq!(c.of(id).progress.kept.as_ref().unwrap().bytes, None);
}

#[test]
fn user_checkpoints_own_work_only() {
    let mut c = cluster();
    let id = running(&mut c);
    let command = || Command::WriteCheckpoint {
        id,
        directory: "/scratch".to_owned(),
        timeout_ms: 5,
    };
    assert_eq!(code(c.user("bob", command())), "forbidden");
    let unfenced = c.propose("service:c1", Privilege::Service, command());
    assert_eq!(code(unfenced), "forbidden");
    assert_eq!(c.of(id).progress.checkpoints, 0);
    c.user("alice", command()).unwrap();
    assert_eq!(c.state_of(id), Checkpointing);
}

#[test]
fn nothing_is_asked_of_what_cannot_write_or_does_not_run() {
    let mut c = cluster();
    let id = c.running(common::spec("t", 1));
    assert_eq!(fault(ask(&mut c, id)).0, "checkpoint");
    let id = c.submit(writes(common::spec("t", 1))).unwrap();
    assert_eq!(code(ask(&mut c, id)), "wrong_state");
    c.assign(id).unwrap();
    assert_eq!(code(ask(&mut c, id)), "wrong_state");
    c.start_all(id);
    let mut with = |directory: &str, timeout_ms| {
        let directory = directory.to_owned();
        let command = Command::WriteCheckpoint {
            id,
            directory,
            timeout_ms,
        };
        fault(c.service(command)).0
    };
    for directory in ["", "x", "/a/../b", "/a\n", "s3://t/x", &"/x".repeat(600)] {
        assert_eq!(with(directory, 1), "directory", "{directory:?}");
    }
    assert_eq!(with("/x", 0), "timeout_ms");
    assert_eq!(with("/x", 24 * 3_600_000 + 1), "timeout_ms");
    let command = Command::WriteCheckpoint {
        id,
        directory: "/x".to_owned(),
        timeout_ms: 1,
    };
    assert_eq!(code(c.user("bob", command.clone())), "forbidden");
    let unfenced = c.propose("service:c1", Privilege::Service, command.clone());
    assert_eq!(code(unfenced), "forbidden");
    c.propose("olga", Privilege::Operator, command).unwrap();
}

#[test]
fn object_store_checkpoints_exclude_file_mode() {
    let mut c = cluster();
    let directory = Some("s3://t/p/1/checkpoints".to_owned());
    for (mode, is_taken) in [
        (CheckpointMode::Signal, false),
        (CheckpointMode::SharedMemory, true),
        (CheckpointMode::Callback, true),
    ] {
        let mut spec = writes(common::spec("t", 1));
        let terms = spec.terms.checkpoint.as_mut().unwrap();
        (terms.mode, terms.directory) = (mode, directory.clone());
        let given = c.submit(spec);
        match is_taken {
            true => {
                let id = given.unwrap();
                c.run(id);
                c.service(Command::WriteCheckpoint {
                    id,
                    directory: directory.clone().unwrap(),
                    timeout_ms: 1,
                })
                .unwrap();
            }
            false => assert_eq!(fault(given).0, "checkpoint.directory"),
        }
    }
}

#[test]
fn more_time_is_given_once() {
    let mut c = cluster();
    let id = running(&mut c);
    asked(&mut c, id);
    let until = c.now().after(10_000);
    let extend = |number, by_ms| Command::ExtendCheckpoint { id, number, by_ms };
    c.clock += 9_000;
    let before = c.state.revision();
    c.service(extend(2, 5_000)).unwrap();
    assert_eq!(c.of(id).progress.writing.as_ref().unwrap().until, until);
    assert!(c.state.revision().0 <= before.0 + 1, "the lease alone");
    assert_eq!(fault(c.service(extend(1, 0))).0, "by_ms");
    c.service(extend(1, 5_000)).unwrap();
    let writing = c.of(id).progress.writing.clone().unwrap();
    assert_eq!(
        (writing.until, writing.extended),
        (until.after(5_000), true)
    );
    assert_eq!(fault(c.service(extend(1, 5_000))).0, "number");
    assert_eq!(code(c.admin(extend(1, 5_000))), "forbidden");
}

#[test]
fn one_that_is_given_up_leaves_the_work_running() {
    let mut c = cluster();
    let id = running(&mut c);
    asked(&mut c, id);
    let give_up = |number| Command::GiveUpCheckpoint { id, number };
    c.service(give_up(2)).unwrap();
    assert_eq!(c.state_of(id), Checkpointing, "that is another one");
    c.service(give_up(1)).unwrap();
    let progress = &c.of(id).progress;
    assert_eq!((c.state_of(id), progress.failed_checkpoints), (Running, 1));
    let because = progress.failed_because.as_deref();
    assert_eq!(
        because,
        Some("not all ranks wrote their parts within the timeout")
    );
    c.service(give_up(1)).unwrap();
    assert_eq!(c.of(id).progress.failed_checkpoints, 1);
    // Too late.
    c.checkpointed(id, 0, 1, written(c.now())).unwrap();
    c.checkpointed(id, 1, 1, written(c.now())).unwrap();
    assert_eq!(c.of(id).progress.kept, None);
    c.end_all(id, DONE);
    assert_eq!(code(c.service(give_up(1))), "wrong_state");
}

#[test]
fn a_walltime_that_runs_out_wins_and_nothing_is_kept() {
    for by_command in [false, true] {
        for moves in [false, true] {
            let mut c = cluster();
            let id = running(&mut c);
            match moves {
                true => drop(make_room(&mut c, id, true).unwrap()),
                false => drop(asked(&mut c, id)),
            }
            c.checkpointed(id, 1, 1, written(c.now())).unwrap();
            match by_command {
                true => {
                    let cause = StopCause::Walltime;
                    c.service(Command::Stop { id, cause }).unwrap();
                }
                false => c.end_rank(id, 0, RankExit::Walltime),
            }
            assert_eq!(c.state_of(id), Stopping);
            let ended = RankReport::Checkpoint {
                of: lattice_quorum_types::progress::RankCheckpoint {
                    number: 1,
                    outcome: written(c.now()),
                },
            };
            let node = c.nodes_of(id)[0].clone();
            c.report(id, &node, ended).unwrap();
            c.end_all(id, RankExit::Stopped);
            let record = c.of(id);
            assert_eq!(
                (record.state, &record.stop),
                (Failed, &Some(StopCause::Walltime))
            );
            assert_eq!(
                (&record.progress.kept, record.progress.failed_checkpoints),
                (&None, 1)
            );
        }
    }
}

#[test]
fn early_rank_end_spoils_checkpoint_only() {
    let mut c = cluster();
    let id = running(&mut c);
    asked(&mut c, id);
    c.end_rank(id, 0, DONE);
    assert_eq!(
        (c.state_of(id), c.of(id).progress.failed_checkpoints),
        (Running, 1)
    );
    c.end_rank(id, 1, DONE);
    assert_eq!((c.state_of(id), c.of(id).stop.clone()), (Completed, None));
    // A rank that has written may end: the others continue to write.
    let id = running(&mut c);
    asked(&mut c, id);
    c.checkpointed(id, 0, 1, written(c.now())).unwrap();
    c.end_rank(id, 0, DONE);
    assert_eq!(c.state_of(id), Checkpointing);
    c.checkpointed(id, 1, 1, written(c.now())).unwrap();
    assert_eq!(c.state_of(id), Running);
    assert!(c.of(id).progress.kept.is_some());
    // A failing rank ends the allocation as usual.
    let id = running(&mut c);
    asked(&mut c, id);
    c.end_rank(id, 0, BROKEN);
    assert_eq!(c.state_of(id), Stopping);
    c.end_all(id, RankExit::Stopped);
    assert_eq!(
        (c.state_of(id), c.of(id).progress.failed_checkpoints),
        (Failed, 1)
    );
}

#[test]
fn work_of_which_a_rank_has_ended_writes_none_and_may_make_room_without() {
    let mut c = cluster();
    let id = running(&mut c);
    c.end_rank(id, 0, DONE);
    let Refusal::Invalid { field, reason } = ask(&mut c, id).unwrap_err() else {
        panic!("taken for another reason");
    };
    assert_eq!(field, "checkpoint");
    assert!(
        reason.contains("a rank of allocation 1 has ended"),
        "{reason}"
    );
    assert_eq!(code(make_room(&mut c, id, true)), "invalid");
    assert_eq!(c.state_of(id), Running);
    make_room(&mut c, id, false).unwrap();
    assert_eq!(c.state_of(id), Stopping);
}

#[test]
fn ranks_that_leave_need_not_write() {
    let mut c = cluster();
    let id = running(&mut c);
    let nodes = vec![c.nodes_of(id)[1].clone()];
    let shrink = Command::Shrink { id, nodes };
    c.user("alice", shrink.clone()).unwrap();
    asked(&mut c, id);
    c.checkpointed(id, 0, 1, written(c.now())).unwrap();
    assert_eq!(c.state_of(id), Running, "rank 1 is on its way out");
    c.end_rank(id, 1, RankExit::Stopped);
    assert_eq!((c.state_of(id), c.of(id).spec.nodes), (Running, 1));
    // While a checkpoint is written, the allocation neither grows nor shrinks.
    let id = running(&mut c);
    asked(&mut c, id);
    let nodes = vec![c.nodes_of(id)[1].clone()];
    assert_eq!(
        code(c.user("alice", Command::Shrink { id, nodes })),
        "wrong_state"
    );
    let nodes = c.free(1);
    assert_eq!(code(c.service(Command::Grow { id, nodes })), "wrong_state");
}

#[test]
fn missing_new_rank_does_not_block_others() {
    for moves in [false, true] {
        let mut c = cluster();
        let id = running(&mut c);
        let nodes = c.free(1);
        c.service(Command::Grow { id, nodes }).unwrap();
        match moves {
            true => drop(make_room(&mut c, id, true).unwrap()),
            false => drop(asked(&mut c, id)),
        }
        c.checkpointed(id, 0, 1, written(c.now())).unwrap();
        c.checkpointed(id, 1, 1, written(c.now())).unwrap();
        assert_eq!(c.state_of(id), Checkpointing);
        c.end_rank(id, 2, lost());
        let kept = c.of(id).progress.kept.as_ref().map(|kept| kept.number);
        assert_eq!((kept, c.of(id).spec.nodes), (Some(1), 2));
        let expected = if moves { Stopping } else { Running };
        assert_eq!(c.state_of(id), expected);
    }
}

#[test]
fn resumed_job_has_remaining_walltime() {
    let mut c = cluster();
    let mut spec = writes(common::spec("t", 1));
    (spec.walltime_ms, spec.requeue) = (Some(100_000), Requeue::Always);
    let id = c.running(spec);
    c.clock += 40_000;
    asked(&mut c, id);
    c.clock += 1_000;
    c.checkpointed(id, 0, 1, written(c.now())).unwrap();
    assert_eq!(c.of(id).walltime_left_ms(), Some(100_000));
    c.clock += 20_000;
    c.end_all(id, lost());
    // Progress lost with the node does not count, since it is repeated.
    assert_eq!(c.of(id).walltime_left_ms(), Some(60_000));
    c.run(id);
    assert_eq!(c.of(id).progress.resumed_ms, 40_000);
    assert_eq!(c.of(id).walltime_left_ms(), Some(60_000));
    c.clock += 10_000;
    asked(&mut c, id);
    c.checkpointed(id, 0, 2, written(c.now())).unwrap();
    assert_eq!(c.of(id).progress.kept.as_ref().unwrap().progress_ms, 50_000);
    c.end_all(id, lost());
    assert_eq!(c.of(id).walltime_left_ms(), Some(50_000));
    let set = |walltime_ms| Command::SetWalltime { id, walltime_ms };
    assert_eq!(fault(c.user("alice", set(50_000))).0, "walltime");
    c.user("alice", set(50_001)).unwrap();
    assert_eq!(c.of(id).walltime_left_ms(), Some(1));
}

#[test]
fn what_makes_room_after_a_checkpoint_is_suspended_and_goes_on_from_it() {
    let mut c = cluster();
    let id = running(&mut c);
    let eligible_at = c.of(id).eligible_at;
    c.clock += 25_000;
    make_room(&mut c, id, true).unwrap();
    assert_eq!(c.state_of(id), Checkpointing);
    c.clock += 2_000;
    c.checkpointed(id, 0, 1, written(c.now())).unwrap();
    c.checkpointed(id, 1, 1, written(c.now())).unwrap();
    assert_eq!(c.state_of(id), Stopping);
    c.reopen();
    c.end_all(id, RankExit::Stopped);
    let record = c.of(id);
    let reason = MoveReason::Asked {
        by: "carol".to_owned(),
    };
    let cause = StopCause::Moved {
        reason,
        checkpoint: Some(1),
        has_run: true,
    };
    assert_eq!((record.state, &record.stop), (Suspended, &Some(cause)));
    assert_eq!(record.progress.preempted, 0, "somebody asked for it");
    assert_eq!(
        c.state.nodes().filter(|node| node.holder.is_some()).count(),
        0
    );
    assert_eq!(c.state.project(&common::path("t")).unwrap().own.nodes, 0);
    c.clock += 60_000;
    c.service(Command::Resume { id }).unwrap();
    let record = c.of(id);
    assert_eq!((record.state, record.eligible_at), (Pending, eligible_at));
    assert_eq!(record.submitted_at, common::START);
    assert_eq!(record.progress.moved_at, Some(c.now()));
    c.run(id);
    assert_eq!(
        (c.of(id).attempt, c.of(id).progress.resumed_ms),
        (2, 25_000)
    );
    assert_eq!(c.of(id).walltime_left_ms(), Some(75_000));
    c.end_all(id, DONE);
    assert_eq!(c.state_of(id), Completed);
}

#[test]
fn what_was_to_make_room_and_could_not_write_makes_it_without() {
    for (requeue, expected) in [
        (Requeue::Never, Failed),
        (Requeue::Once, Pending),
        (Requeue::Always, Pending),
    ] {
        for way in ["declined", "given up", "ended"] {
            let mut c = cluster();
            let spec = AllocationSpec {
                requeue,
                ..writes(common::spec("t", 2))
            };
            let id = c.running(spec);
            make_room(&mut c, id, true).unwrap();
            match way {
                "declined" => drop(c.checkpointed(id, 0, 1, not_written(c.now())).unwrap()),
                "given up" => {
                    drop(
                        c.service(Command::GiveUpCheckpoint { id, number: 1 })
                            .unwrap(),
                    );
                }
                _ => c.end_rank(id, 1, DONE),
            }
            assert_eq!(c.state_of(id), Stopping, "{way}");
            c.end_all(id, RankExit::Stopped);
            assert_eq!(c.state_of(id), expected, "{way}");
            assert_eq!(c.of(id).progress.failed_checkpoints, 1);
            let stop = c.of(id).stop.clone().unwrap().to_string();
            assert_eq!(stop, "suspended by carol, without a checkpoint");
        }
    }
}

#[test]
fn work_that_is_done_while_it_was_to_make_room_is_done() {
    let mut c = cluster();
    let id = running(&mut c);
    make_room(&mut c, id, true).unwrap();
    c.checkpointed(id, 0, 1, written(c.now())).unwrap();
    c.end_rank(id, 0, DONE);
    c.end_rank(id, 1, DONE);
    assert_eq!((c.state_of(id), c.of(id).stop.clone()), (Completed, None));
}

#[test]
fn people_and_lost_nodes_end_a_checkpoint_early() {
    let mut c = cluster();
    for what in 0..4 {
        let id = running(&mut c);
        asked(&mut c, id);
        let expected = match what {
            0 => {
                c.user("alice", Command::Cancel { id }).unwrap();
                Cancelled
            }
            1 => {
                c.user("alice", Command::Suspend { id }).unwrap();
                Suspended
            }
            2 => {
                c.user("alice", Command::Requeue { id }).unwrap();
                Pending
            }
            _ => {
                let node = c.nodes_of(id)[1].clone();
                let command = Command::ForceRelease {
                    node,
                    reason: "it burns".to_owned(),
                    expected: None,
                };
                c.propose("olga", Privilege::Operator, command).unwrap();
                c.end_rank(id, 0, RankExit::Stopped);
                Failed
            }
        };
        if what < 3 {
            assert_eq!(c.state_of(id), Stopping);
            c.end_all(id, RankExit::Stopped);
        }
        let record = c.of(id);
        assert_eq!(record.state, expected);
        assert_eq!(
            (&record.progress.writing, &record.progress.kept),
            (&None, &None)
        );
        assert_eq!(record.progress.failed_checkpoints, 1);
        if !record.state.is_terminal() {
            c.user("alice", Command::Cancel { id }).unwrap();
        }
    }
}

#[test]
fn elements_write_checkpoints_of_their_own() {
    let mut c = cluster();
    let array = c.submit(writes(array("0-1"))).unwrap();
    let id = AllocationId(array.0 + 1);
    c.place(id).unwrap();
    c.start_all(id);
    assert_eq!(asked(&mut c, id), 1);
    c.checkpointed(id, 0, 1, written(c.now())).unwrap();
    assert_eq!(c.of(id).progress.kept.as_ref().unwrap().number, 1);
    make_room(&mut c, id, false).unwrap();
    c.end_all(id, RankExit::Stopped);
    assert_eq!(c.state_of(id), Failed);
    assert_eq!(c.tally(array).failed, 1);
}

#[test]
fn work_is_suspended_after_a_checkpoint_by_its_user_or_an_operator() {
    let (timeout_ms, directory) = (10_000, "/scratch/t".to_owned());
    let checkpoint = RequestedCheckpoint {
        directory,
        timeout_ms,
    };
    let suspend = |id| Command::SuspendAfterCheckpoint {
        id,
        checkpoint: checkpoint.clone(),
    };
    for is_writing in [false, true] {
        let mut c = cluster();
        let id = running(&mut c);
        assert_eq!(code(c.user("bob", suspend(id))), "forbidden");
        assert_eq!(code(c.service(suspend(id))), "forbidden");
        if is_writing {
            asked(&mut c, id);
        }
        c.clock += 1_000;
        c.user("alice", suspend(id)).unwrap();
        let writing = c.of(id).progress.writing.clone().unwrap();
        let by = "alice".to_owned();
        assert_eq!(writing.then, AfterCheckpoint::Suspend { by });
        let began_at = writing.asked_at;
        assert_eq!(writing.until, began_at.after(10_000));
        assert_eq!(c.now().since(began_at), u64::from(is_writing) * 1_000);
        let revision = c.state.revision();
        c.propose("olga", Privilege::Operator, suspend(id)).unwrap();
        assert_eq!(c.state.revision(), revision, "that is under way");
        for rank in [0, 1] {
            c.checkpointed(id, rank, 1, written(c.now())).unwrap();
        }
        c.user("alice", suspend(id)).unwrap();
        let stop = c.of(id).stop.clone().unwrap().to_string();
        assert_eq!(stop, "suspended by alice, after checkpoint 1");
        c.end_all(id, RankExit::Stopped);
        assert_eq!(c.state_of(id), Suspended);
        c.user("alice", suspend(id)).unwrap();
        c.reopen();
        c.user("alice", Command::Resume { id }).unwrap();
        c.run(id);
        assert_eq!((c.state_of(id), c.of(id).attempt), (Running, 2));
        assert_eq!(
            c.of(id).progress.resumed_ms,
            c.of(id).progress.kept.as_ref().unwrap().progress_ms
        );
    }
}

#[test]
fn failed_checkpoint_still_suspends() {
    let checkpoint = RequestedCheckpoint {
        directory: "/scratch/t".to_owned(),
        timeout_ms: 10_000,
    };
    let suspend = |id| Command::SuspendAfterCheckpoint {
        id,
        checkpoint: checkpoint.clone(),
    };
    for rank_ends in [false, true] {
        let mut c = cluster();
        let id = running(&mut c);
        c.user("alice", suspend(id)).unwrap();
        match rank_ends {
            true => c.end_rank(id, 0, DONE),
            false => drop(c.checkpointed(id, 0, 1, not_written(c.now())).unwrap()),
        }
        assert_eq!(c.state_of(id), Stopping);
        c.end_all(id, RankExit::Stopped);
        let record = c.of(id);
        assert_eq!((record.state, &record.progress.kept), (Suspended, &None));
        assert_eq!(record.stop, Some(StopCause::Suspended));
    }
}

#[test]
fn suspension_needs_checkpointable_running_job() {
    let mut c = cluster();
    let checkpoint = RequestedCheckpoint {
        directory: "/scratch/t".to_owned(),
        timeout_ms: 10_000,
    };
    let suspend = |id, checkpoint: &RequestedCheckpoint| Command::SuspendAfterCheckpoint {
        id,
        checkpoint: checkpoint.clone(),
    };
    let waits = c.submit(writes(common::spec("t", 1))).unwrap();
    let given = c.user("alice", suspend(waits, &checkpoint));
    assert_eq!(code(given), "wrong_state");
    let plain = c.running(common::spec("t", 1));
    let (field, reason) = fault(c.user("alice", suspend(plain, &checkpoint)));
    assert_eq!(field, "checkpoint");
    assert!(reason.contains("without a checkpoint mode"), "{reason}");
    let id = running(&mut c);
    let no_time = RequestedCheckpoint {
        timeout_ms: 0,
        ..checkpoint.clone()
    };
    assert_eq!(
        fault(c.user("alice", suspend(id, &no_time))).0,
        "timeout_ms"
    );
    make_room(&mut c, id, true).unwrap();
    let given = c.user("alice", suspend(id, &checkpoint));
    assert_eq!(code(given), "wrong_state", "it goes already");
}
