//! Checkpoint timing: terms, reasons, and empty inputs.
#![expect(clippy::unwrap_used, reason = "tests")]

mod young;

use super::*;
use crate::{Fraction, NodeFacts};

pub(super) const SECOND: u64 = 1000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
const GIB: u64 = 1 << 30;
/// Far enough from 0 for all earlier times.
pub(super) const NOW: UnixMillis = UnixMillis(1000 * DAY);

pub(super) fn ago(ms: u64) -> Option<UnixMillis> {
    Some(UnixMillis(NOW.0 - ms))
}

pub(super) fn holding(nodes: u32, gpus_each: u32) -> HeldResources {
    let node = NodeFacts {
        gpu_count: Some(gpus_each),
        ..NodeFacts::default()
    };
    HeldResources::of(vec![&node; nodes as usize], Policy::default().node_bytes)
}

/// Two nodes with four GPUs each, running for an hour, in a vCluster in which no job waits.
pub(super) fn input(waiting: &WaitingUrgency) -> Input<'_> {
    Input {
        now: NOW,
        state: AllocationState::Running,
        timing: Timing::WhenItPays,
        sensitive: false,
        class: 5,
        holding: holding(2, 4),
        checkpoint_ms: None,
        started_at: ago(HOUR),
        ends_at: None,
        last_at: None,
        failures: None,
        storage: Storage::Unknown,
        waiting,
        preemptible: true,
        backlog: Fraction::default(),
    }
}

/// Policy without prices and without the wait term: a checkpoint costs its GPU time.
pub(super) fn plain() -> Policy {
    Policy {
        wait_part: Fraction::default(),
        gpu_hour_price: 0,
        ..Policy::default()
    }
}

/// Decision for [`input`] with a change, under the default policy.
fn decided(change: impl FnOnce(&mut Input<'_>)) -> Decision {
    let waiting = WaitingUrgency::default();
    let mut input = input(&waiting);
    change(&mut input);
    decide(&input, &Policy::default())
}

fn why(decision: Decision) -> CheckpointObstacle {
    match decision {
        Decision::Wait(why) => why,
        Decision::Write { .. } => panic!("{decision:?}"),
    }
}

fn trigger(decision: Decision) -> Trigger {
    match decision {
        Decision::Write { trigger, .. } => trigger,
        Decision::Wait(why) => panic!("{why}"),
    }
}

fn numbers(decision: Decision) -> (Value, Cost) {
    match decision {
        Decision::Write { value, cost, .. }
        | Decision::Wait(CheckpointObstacle::CostsMore { value, cost }) => (value, cost),
        Decision::Wait(why) => panic!("{why}"),
    }
}

#[track_caller]
pub(super) fn assert_near(found: f64, expected: f64) {
    let off = (found - expected).abs();
    assert!(off <= 1e-9 * expected.abs(), "{found}, not {expected}");
}

#[test]
fn every_term_is_in_gpu_seconds() {
    let mut waiting = WaitingUrgency::new(HOUR);
    // Jobs of no higher class do not count; the three others sum up to 1.75 fully urgent ones.
    let above = [(6, HOUR / 2), (9, 9 * HOUR), (200, HOUR / 4)];
    for (class, waited_ms) in [(5, HOUR), (0, HOUR)].into_iter().chain(above) {
        waiting.add(class, waited_ms);
    }
    let input = Input {
        backlog: Fraction::new(0.5).unwrap(),
        ..input(&waiting)
    };
    let (value, cost) = numbers(decide(&input, &Policy::default()));
    let at_stake = 3600.0 * 8.0;
    // Half an hour ahead, two nodes, 0.001 a day each.
    assert_near(value.recompute_saved, 0.001 * 2.0 / 48.0 * at_stake);
    assert_near(value.preemptability, 1.75 * 0.01 * at_stake);
    assert_near(value.backlog_relief, 0.5 * 0.02 * at_stake);
    // 160 GiB at 10 GiB/s are 16 s of 8 GPUs, once.
    assert_near(cost.compute_waste, 128.0);
    assert_near(cost.wait, 128.0 * 0.05);
    // 6 h of a month at 0.02 per GB, converted to GPUs at 2.00 per hour.
    let gigabytes = 160.0 * 1.073_741_824;
    assert_near(cost.storage, gigabytes * 0.02 / 120.0 / (2.0 / 3600.0));
    assert_near(cost.total(), cost.wait + cost.compute_waste + cost.storage);
}

#[test]
fn a_node_without_gpus_counts_as_one_gpu() {
    let gpus = |count| NodeFacts {
        gpu_count: count,
        ..NodeFacts::default()
    };
    let memory = NodeFacts {
        gpu_count: Some(4),
        gpu_memory_bytes: Some(320 * GIB),
        ..NodeFacts::default()
    };
    let none = NodeFacts {
        gpu_memory_bytes: Some(0),
        ..gpus(Some(0))
    };
    let nodes = [&none, &gpus(None), &gpus(Some(8)), &memory];
    let expected = HeldResources {
        nodes: 4,
        gpus: 14,
        bytes: (3 * 80 + 320) * GIB,
    };
    assert_eq!(HeldResources::of(nodes, 80 * GIB), expected);
    // With fewer GPUs than nodes, the nodes count.
    let counted = |gpus| numbers(decided(|input| input.holding.gpus = gpus));
    assert_eq!(counted(0), counted(2));
    let none = HeldResources::of([], 80 * GIB);
    assert_eq!(none, HeldResources::default());
    assert_eq!(
        why(decided(|input| input.holding = none)),
        CheckpointObstacle::NoNodes
    );
}

#[test]
fn its_own_word_goes_before_its_size() {
    let written = |checkpoint_ms, storage| {
        let decision = decided(|input| {
            input.checkpoint_ms = checkpoint_ms;
            input.storage = storage;
        });
        numbers(decision).1
    };
    let by_size = written(None, Storage::Unknown);
    assert_near(by_size.compute_waste, 16.0 * 8.0);
    assert_eq!(written(None, Storage::Writes(10 * GIB)), by_size);
    let twice_as_fast = written(None, Storage::Writes(20 * GIB));
    assert_near(twice_as_fast.compute_waste, 8.0 * 8.0);
    assert_near(twice_as_fast.storage, by_size.storage);
    // A quarter of the time writes a quarter of the memory; more time than needed writes no more than all of it.
    let quarter = written(Some(4 * SECOND), Storage::Unknown);
    assert_near(quarter.compute_waste, 4.0 * 8.0);
    assert_near(quarter.storage, by_size.storage / 4.0);
    let slow = written(Some(MINUTE), Storage::Unknown);
    assert_near(slow.compute_waste, 60.0 * 8.0);
    assert_near(slow.storage, by_size.storage);
    // One byte more takes a millisecond more, since fractions are rounded up.
    let ms = |bytes| {
        let waiting = WaitingUrgency::default();
        let mut input = input(&waiting);
        input.holding.bytes = bytes;
        input.storage = Storage::Writes(1000);
        Policy::default().write_ms(&input)
    };
    assert_eq!([0, 1, 1000, 1001].map(ms), [0, 1, 1000, 1001].map(Some));
    let waiting = WaitingUrgency::default();
    let mut fast = input(&waiting);
    fast.storage = Storage::Writes(1500);
    let in_ms = |bytes| {
        fast.holding.bytes = bytes;
        Policy::default().write_ms(&fast)
    };
    assert_eq!([1, 2, 3, 4].map(in_ms), [1, 2, 2, 3].map(Some));
    assert_eq!(ms(u64::MAX), Some(u64::MAX));
}

#[test]
fn unable_job_is_not_asked() {
    use AllocationState as S;
    let of = |timing| why(decided(|input| input.timing = timing));
    assert_eq!(of(Timing::Never), CheckpointObstacle::CannotWrite);
    assert_eq!(of(Timing::OnRequest), CheckpointObstacle::OnRequestOnly);
    for state in S::ALL.into_iter().filter(|state| *state != S::Running) {
        let why = why(decided(|input| input.state = state));
        assert_eq!(why, CheckpointObstacle::NotRunning { state });
    }
    let never_started = decided(|input| input.started_at = None);
    assert_eq!(why(never_started), CheckpointObstacle::NotStarted);
}

#[test]
fn none_is_written_too_soon() {
    let least_ms = 5 * MINUTE;
    let since = |started: u64, last: Option<u64>| {
        decided(|input| {
            input.started_at = ago(started);
            input.last_at = last.and_then(ago);
            // A checkpoint that pays at once.
            input.checkpoint_ms = Some(1);
            input.backlog = Fraction::ONE;
        })
    };
    let ran_ms = least_ms - 1;
    let young = CheckpointObstacle::NotLongEnough { ran_ms, least_ms };
    assert_eq!(why(since(ran_ms, None)), young);
    assert_eq!(trigger(since(least_ms, None)), Trigger::Pays);
    let since_ms = least_ms - 1;
    let fresh = CheckpointObstacle::TooSoon { since_ms, least_ms };
    assert_eq!(why(since(DAY, Some(since_ms))), fresh);
    assert_eq!(trigger(since(DAY, Some(least_ms))), Trigger::Pays);
    // Just written; and written by the previous run, which does not count.
    let (since_ms, ran_ms) = (0, MINUTE);
    let just = CheckpointObstacle::TooSoon { since_ms, least_ms };
    assert_eq!(why(since(DAY, Some(0))), just);
    let resumed = CheckpointObstacle::NotLongEnough { ran_ms, least_ms };
    assert_eq!(why(since(MINUTE, Some(DAY))), resumed);
    // Sensitive allocations: 10 min.
    let sensitive = decided(|input| {
        input.sensitive = true;
        input.started_at = ago(10 * MINUTE - 1);
    });
    let expected = CheckpointObstacle::NotLongEnough {
        ran_ms: 10 * MINUTE - 1,
        least_ms: 10 * MINUTE,
    };
    assert_eq!(why(sensitive), expected);
}

#[test]
fn a_clock_that_is_behind_waits() {
    let later = UnixMillis(NOW.0 + HOUR);
    let least_ms = 5 * MINUTE;
    let (ran_ms, since_ms) = (0, 0);
    let started = decided(|input| input.started_at = Some(later));
    assert_eq!(
        why(started),
        CheckpointObstacle::NotLongEnough { ran_ms, least_ms }
    );
    let written = decided(|input| input.last_at = Some(later));
    assert_eq!(
        why(written),
        CheckpointObstacle::TooSoon { since_ms, least_ms }
    );
    let ended = decided(|input| input.ends_at = ago(1));
    assert!(matches!(why(ended), CheckpointObstacle::EndsFirst { .. }));
}

#[test]
fn the_longest_interval_forces_one_whatever_it_costs() {
    let dear = |since, sensitive| {
        decided(|input| {
            input.started_at = ago(since);
            input.sensitive = sensitive;
            input.checkpoint_ms = Some(10 * MINUTE);
        })
    };
    assert!(matches!(
        why(dear(6 * HOUR - 1, false)),
        CheckpointObstacle::CostsMore { .. }
    ));
    assert_eq!(trigger(dear(6 * HOUR, false)), Trigger::LongestInterval);
    assert!(matches!(
        why(dear(HOUR - 1, true)),
        CheckpointObstacle::CostsMore { .. }
    ));
    assert_eq!(trigger(dear(HOUR, true)), Trigger::LongestInterval);
    let (value, cost) = numbers(dear(6 * HOUR, false));
    assert!(value.total() < cost.total());
}

#[test]
fn equal_is_not_worth_it() {
    // Half an hour ahead, half a failure in 3 h: a twelfth of an hour of one GPU.
    let waiting = WaitingUrgency::default();
    let mut input = input(&waiting);
    let policy = Policy {
        failure_probability: Fraction::new(0.5).unwrap(),
        failure_period_ms: 3 * HOUR,
        ..plain()
    };
    input.holding = holding(1, 1);
    input.checkpoint_ms = Some(300 * SECOND);
    assert!(matches!(
        why(decide(&input, &policy)),
        CheckpointObstacle::CostsMore { value, cost } if value.total() == 300.0 && cost.total() == 300.0
    ));
    input.checkpoint_ms = Some(300 * SECOND - 1);
    assert_eq!(trigger(decide(&input, &policy)), Trigger::Pays);
}

#[test]
fn no_storage_costs_without_end() {
    let long_ago = |storage| {
        decided(|input| {
            input.started_at = ago(DAY);
            input.backlog = Fraction::ONE;
            input.checkpoint_ms = Some(1);
            input.storage = storage;
        })
    };
    for storage in [Storage::Paused, Storage::Writes(0)] {
        assert_eq!(
            why(long_ago(storage)),
            CheckpointObstacle::StorageUnavailable
        );
    }
    assert_eq!(
        trigger(long_ago(Storage::Writes(1))),
        Trigger::LongestInterval
    );
    let waiting = WaitingUrgency::default();
    let policy = Policy {
        bytes_s: 0,
        ..Policy::default()
    };
    assert_eq!(
        why(decide(&input(&waiting), &policy)),
        CheckpointObstacle::StorageUnavailable
    );
}

#[test]
fn walltime_wins() {
    let takes_ms = 16 * SECOND;
    let ends_in = |ms| {
        decided(|input| {
            input.started_at = ago(DAY);
            input.ends_at = Some(NOW.after(ms));
        })
    };
    let ends_at = NOW.after(takes_ms);
    assert_eq!(
        why(ends_in(takes_ms)),
        CheckpointObstacle::EndsFirst { ends_at, takes_ms }
    );
    assert_eq!(trigger(ends_in(takes_ms + 1)), Trigger::LongestInterval);
    // Failures after the end of the job do not matter.
    let (value, _) = numbers(ends_in(HOUR));
    let at_stake = 24.0 * 3600.0 * 8.0;
    assert_near(value.recompute_saved, 0.001 * 2.0 / 24.0 * at_stake);
}

#[test]
fn what_would_be_given_up_is_not_begun() {
    let takes = |checkpoint_ms| {
        decided(|input| {
            input.started_at = ago(DAY);
            input.checkpoint_ms = Some(checkpoint_ms);
        })
    };
    let allowed_ms = 15 * MINUTE;
    assert_eq!(trigger(takes(allowed_ms)), Trigger::LongestInterval);
    let takes_ms = allowed_ms + 1;
    let expected = CheckpointObstacle::TakesTooLong {
        takes_ms,
        allowed_ms,
    };
    assert_eq!(why(takes(takes_ms)), expected);
    // Also by size at a known bandwidth: 113 nodes at 80 GiB and 10 GiB/s. At an assumed bandwidth the checkpoint is
    // tried.
    let of_size = |storage| {
        decided(|input| {
            input.started_at = ago(DAY);
            input.holding = holding(113, 4);
            input.storage = storage;
        })
    };
    let known = why(of_size(Storage::Writes(10 * GIB)));
    let takes_ms = 904 * SECOND;
    let expected = CheckpointObstacle::TakesTooLong {
        takes_ms,
        allowed_ms,
    };
    assert_eq!(known, expected);
    assert_eq!(trigger(of_size(Storage::Unknown)), Trigger::LongestInterval);
}

#[test]
fn failed_checkpoint_doubles_pause() {
    let after = |times, failed_ms_ago: u64, last: Option<u64>| {
        decided(|input| {
            input.started_at = ago(DAY);
            input.last_at = last.and_then(ago);
            input.failures = Some(Failures {
                times,
                last_at: ago(failed_ms_ago).unwrap(),
            });
        })
    };
    let pauses = [
        (1, 5),
        (2, 10),
        (3, 20),
        (7, 320),
        (8, 360),
        (u32::MAX, 360),
    ];
    for (times, minutes) in pauses {
        let pause_ms = minutes * MINUTE;
        let again_at = NOW.after(1);
        let failed = after(times, pause_ms - 1, None);
        assert_eq!(why(failed), CheckpointObstacle::Failed { times, again_at });
        assert_eq!(
            trigger(after(times, pause_ms, None)),
            Trigger::LongestInterval
        );
    }
    // No failure, or failures before the last success.
    assert_eq!(trigger(after(0, 0, None)), Trigger::LongestInterval);
    let overtaken = after(8, 20 * MINUTE, Some(10 * MINUTE));
    assert!(matches!(
        why(overtaken),
        CheckpointObstacle::CostsMore { .. }
    ));
    let since = after(8, 10 * MINUTE, Some(20 * MINUTE));
    assert!(matches!(why(since), CheckpointObstacle::Failed { .. }));
}

#[test]
fn only_what_may_give_way_is_worth_more_when_others_wait() {
    let mut waiting = WaitingUrgency::new(HOUR);
    waiting.add(9, HOUR);
    let worth = |change: fn(&mut Input<'_>)| {
        let mut input = Input {
            backlog: Fraction::ONE,
            ..input(&waiting)
        };
        change(&mut input);
        let (value, _) = numbers(decide(&input, &Policy::default()));
        (value.preemptability > 0.0, value.backlog_relief > 0.0)
    };
    assert_eq!(worth(|_| ()), (true, true));
    assert_eq!(worth(|input| input.preemptible = false), (false, false));
    let sensitive = |input: &mut Input<'_>| {
        input.sensitive = true;
        input.started_at = ago(HOUR - 1);
    };
    assert_eq!(worth(sensitive), (false, false));
    // Only strictly higher classes count.
    assert_eq!(worth(|input| input.class = 9), (false, true));
    assert_eq!(worth(|input| input.class = 200), (false, true));
}

#[test]
fn no_more_is_lost_than_was_done() {
    let mut waiting = WaitingUrgency::new(HOUR);
    (0..1000).for_each(|_| waiting.add(9, HOUR));
    let policy = Policy {
        failure_probability: Fraction::ONE,
        failure_period_ms: 1,
        ..Policy::default()
    };
    let (value, _) = numbers(decide(&input(&waiting), &policy));
    assert_near(value.recompute_saved, 3600.0 * 8.0);
    assert_near(value.preemptability, 3600.0 * 8.0);
}

#[test]
fn all_is_urgent_where_nothing_need_wait() {
    let value = |waiting: &WaitingUrgency| numbers(decide(&input(waiting), &Policy::default())).0;
    let (mut at_once, mut after_an_hour) = (WaitingUrgency::new(0), WaitingUrgency::new(HOUR));
    at_once.add(9, 0);
    after_an_hour.add(9, 0);
    assert_near(value(&at_once).preemptability, 0.01 * 3600.0 * 8.0);
    assert_eq!(value(&after_an_hour).preemptability, 0.0);
    after_an_hour.add(9, u64::MAX);
    assert_eq!(value(&after_an_hour), value(&at_once));
}

#[test]
fn a_reason_reads_as_a_sentence() {
    let text = |decision| why(decision).to_string();
    assert_eq!(
        text(decided(|input| input.started_at = ago(30 * SECOND))),
        "it has run for 30 s of the required 300 s"
    );
    assert_eq!(
        text(decided(|_| ())),
        "a checkpoint is worth 1.2 GPU-seconds and costs 185.9"
    );
}
