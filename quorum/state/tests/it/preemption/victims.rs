//! Victims: how each leaves its nodes, with and without a checkpoint, and its state afterwards.

use super::preempted;
use crate::common::{self, Cluster, dependencies::*, node, preemption::*};
use lattice_quorum_types::{
    AllocationId,
    AllocationState::*,
    Command,
    allocation::{RankExit, StopCause},
    command::Privilege,
    progress::MoveReason,
    spec::{AllocationSpec, Requeue},
};

#[test]
fn a_victim_without_a_checkpoint_ends_as_if_its_node_was_lost() {
    for (requeue, expected) in [
        (Requeue::Never, Failed),
        (Requeue::Once, Pending),
        (Requeue::Always, Pending),
    ] {
        let spec = AllocationSpec {
            requeue,
            ..of_class(4, 2)
        };
        let (mut c, low, high) = preempted(spec, false);
        let eligible_at = c.of(low).eligible_at;
        c.clock += 4_000;
        c.end_all(low, RankExit::Stopped);
        let record = c.of(low);
        assert_eq!((record.state, record.eligible_at), (expected, eligible_at));
        let cause = StopCause::Moved {
            reason: MoveReason::Preempted { by: high },
            checkpoint: None,
            has_run: true,
        };
        assert_eq!(record.stop, Some(cause));
        assert_eq!(record.progress.preempted, 1);
        assert_eq!(record.progress.moved_at, Some(c.now()));
    }
}

#[test]
fn a_victim_with_a_checkpoint_is_suspended_and_keeps_its_place() {
    let (mut c, low, high) = preempted(writes(of_class(4, 2)), true);
    assert_eq!(c.state_of(low), Checkpointing);
    for rank in [3, 1, 0, 2] {
        assert_eq!(c.state_of(low), Checkpointing);
        c.checkpointed(low, rank, 1, written(c.now())).unwrap();
    }
    assert_eq!(c.state_of(low), Stopping);
    c.end_all(low, RankExit::Stopped);
    assert_eq!(
        (c.state_of(low), c.of(low).progress.preempted),
        (Suspended, 1)
    );
    let stop = c.of(low).stop.clone().unwrap().to_string();
    assert_eq!(
        stop,
        format!("preempted by allocation {high}, after checkpoint 1")
    );
    assign(&mut c, high, &[2, 3, 4]).unwrap();
    // As for a submission, limits must allow the allocation, which then waits at its former place.
    c.clock += 9_000;
    let own = c.running(of_class(1, 0));
    c.service(Command::Resume { id: low }).unwrap();
    assert_eq!(
        (c.state_of(low), c.of(low).eligible_at),
        (Pending, common::START)
    );
    assert!(c.of(own).eligible_at > c.of(low).eligible_at);
}

#[test]
fn a_victim_that_did_not_run_yet_has_lost_nothing_in_whatever_attempt() {
    for attempts in 1..4 {
        let mut c = cluster();
        let low = c.submit(of_class(2, 1)).unwrap();
        for _ in 1..attempts {
            c.run(low);
            c.user("alice", Command::Requeue { id: low }).unwrap();
            c.end_all(low, RankExit::Stopped);
        }
        assign(&mut c, low, &[0, 1]).unwrap();
        let high = c.submit(of_class(1, 2)).unwrap();
        // A checkpoint was requested, but there is nothing to write.
        let victims = vec![victim(&c, low, true)];
        preempt(&mut c, high, &[1], victims).unwrap();
        assert_eq!(c.state_of(low), Stopping);
        c.end_all(low, RankExit::Stopped);
        assert_eq!(c.state_of(low), Pending, "attempt {attempts}");
        assert_eq!(c.of(low).progress.preempted, 1);
    }
}

/// The promise to high ends in every possible way while low writes its checkpoint.
#[test]
fn unneeded_preemption_lets_job_continue() {
    type Step = fn(&mut Cluster, AllocationId);
    let ways: [Step; 3] = [
        |c, high| drop(c.user("alice", Command::Cancel { id: high }).unwrap()),
        |c, high| drop(c.service(Command::WithdrawPromise { id: high }).unwrap()),
        |c, high| {
            c.add_nodes(3);
            assign(c, high, &[6, 7, 8]).unwrap();
        },
    ];
    for step in ways {
        for is_whole in [true, false] {
            let (mut c, low, high) = preempted(writes(of_class(4, 2)), true);
            c.checkpointed(low, 0, 1, written(c.now())).unwrap();
            step(&mut c, high);
            c.reopen();
            assert_eq!(c.state_of(low), Checkpointing, "it is written to its end");
            match is_whole {
                true => {
                    for rank in 1..4 {
                        c.checkpointed(low, rank, 1, written(c.now())).unwrap();
                    }
                }
                false => c
                    .checkpointed(low, 2, 1, not_written(c.now()))
                    .map(drop)
                    .unwrap(),
            }
            let record = c.of(low);
            let (progress, stop) = (&record.progress, &record.stop);
            assert_eq!((record.state, stop), (Running, &None));
            assert_eq!((&progress.writing, progress.preempted), (&None, 0));
            assert_eq!(progress.kept.is_some(), is_whole);
        }
    }
}

#[test]
fn unneeded_rank_end_ends_only_its_part() {
    let (mut c, low, high) = preempted(writes(of_class(4, 2)), true);
    c.user("alice", Command::Cancel { id: high }).unwrap();
    c.end_rank(low, 1, DONE);
    assert_eq!((c.state_of(low), &c.of(low).stop), (Running, &None));
    assert_eq!(c.of(low).progress.failed_checkpoints, 1);
}

#[test]
fn forced_victim_leaves_with_others() {
    let (mut c, low, high) = preempted(writes(of_class(4, 2)), true);
    c.checkpointed(low, 0, 1, written(c.now())).unwrap();
    let command = Command::ForceRelease {
        node: node("n003"),
        reason: "it burns".to_owned(),
        expected: None,
    };
    c.propose("olga", Privilege::Operator, command.clone())
        .unwrap();
    // The checkpoint is incomplete, and the cause is the node.
    assert_eq!(c.state_of(low), Stopping);
    let lost = StopCause::NodeLost { node: node("n003") };
    assert_eq!(c.of(low).stop, Some(lost));
    for rank in 0..3 {
        c.end_rank(low, rank, RankExit::Stopped);
    }
    assert_eq!(c.state_of(low), Failed);
    assert_eq!(c.of(low).progress.kept, None);
    assert_eq!(promised(&c, high), ["n002", "n004"]);
    // Once the checkpoint is complete, force takes a node without failing the allocation.
    let (mut c, low, _) = preempted(writes(of_class(4, 2)), true);
    for rank in 0..4 {
        c.checkpointed(low, rank, 1, written(c.now())).unwrap();
    }
    c.propose("olga", Privilege::Operator, command).unwrap();
    for rank in 0..3 {
        c.end_rank(low, rank, RankExit::Stopped);
    }
    assert_eq!(
        (c.state_of(low), c.of(low).progress.preempted),
        (Suspended, 1)
    );
}

#[test]
fn several_make_room_at_once_and_one_that_may_not_keeps_all() {
    let mut c = cluster();
    let small = c.running(of_class(1, 1));
    let large = c.running(writes(of_class(3, 2)));
    let fixed = c.running(of_class(1, 6));
    let high = c.submit(of_class(4, 6)).unwrap();
    let all = |c: &Cluster, ids: &[AllocationId]| {
        ids.iter()
            .map(|id| victim(c, *id, *id == large))
            .collect::<Vec<_>>()
    };
    let victims = all(&c, &[small, large, fixed]);
    assert_eq!(
        code(preempt(&mut c, high, &[0, 1, 2, 4], victims)),
        "not_movable"
    );
    assert_eq!([small, large, fixed].map(|id| c.state_of(id)), [Running; 3]);
    let victims = all(&c, &[small, large]);
    preempt(&mut c, high, &[0, 1, 2, 3], victims).unwrap();
    assert_eq!(
        [small, large].map(|id| c.state_of(id)),
        [Stopping, Checkpointing]
    );
}

#[test]
fn cancelled_while_it_makes_room_it_is_cancelled() {
    for writes_first in [false, true] {
        let (mut c, low, high) = preempted(writes(of_class(4, 2)), writes_first);
        c.user("alice", Command::Cancel { id: low }).unwrap();
        c.end_all(low, RankExit::Stopped);
        let record = c.of(low);
        // Without a checkpoint the victim was already failing. The victim must not be requeued, and the cancellation is
        // less informative than the cause of the stop.
        let expected = if writes_first { Cancelled } else { Failed };
        assert_eq!(
            (record.state, record.progress.preempted),
            (expected, u32::from(!writes_first))
        );
        assign(&mut c, high, &[2, 3, 4]).unwrap();
    }
}

#[test]
fn a_member_that_made_room_is_waited_for() {
    let mut c = cluster();
    let low = c.running(writes(of_class(4, 2)));
    let waits = c
        .submit(after(&[(
            low,
            lattice_quorum_types::terms::Condition::Success,
        )]))
        .unwrap();
    let high = c.submit(of_class(3, 6)).unwrap();
    let victims = vec![victim(&c, low, true)];
    preempt(&mut c, high, &[2, 3, 4], victims).unwrap();
    for rank in 0..4 {
        c.checkpointed(low, rank, 1, written(c.now())).unwrap();
    }
    c.end_all(low, RankExit::Stopped);
    assert_eq!([low, waits].map(|id| c.state_of(id)), [Suspended, Blocked]);
    c.user("alice", Command::Cancel { id: high }).unwrap();
    c.service(Command::Resume { id: low }).unwrap();
    c.run_to(low, DONE);
    assert_eq!(c.state_of(waits), Pending);
}
