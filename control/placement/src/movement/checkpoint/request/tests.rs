//! Every course of a checkpoint request, as tables: time, event, expected action.

use super::*;
use CheckpointReport::{Answering, Failed, Nothing, StorageOut, Written};
use lattice_agent_rpc::CheckpointOrder;
use proptest::{collection::vec, prelude::*};

const MINUTE: u64 = 60_000;
const ASKED: UnixMillis = UnixMillis(1_000_000_000);

const DEADLINES: Deadlines = Deadlines {
    timeout_ms: 10 * MINUTE,
    extension_percent: 50,
    max_deferral_ms: 5 * MINUTE,
    max_deferrals: 3,
};

fn defer(minutes: u64) -> CheckpointReport {
    let for_ms = minutes * MINUTE;
    CheckpointReport::Defer { for_ms }
}

fn request(purpose: Purpose) -> Request {
    Request::new(ASKED, purpose, DEADLINES, None)
}

/// Expected step, abbreviated.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Waits,
    Extends,
    Defers,
    Asks,
    Writes,
    Gives(GaveUp, AfterFailure),
}

fn is(step: Step) -> (Is, Option<Request>) {
    match step {
        Step::Wait(request) => (Is::Waits, Some(request)),
        Step::Extended(request) => (Is::Extends, Some(request)),
        Step::Deferred(request) => (Is::Defers, Some(request)),
        Step::AskAgain(request) => (Is::Asks, Some(request)),
        Step::Written => (Is::Writes, None),
        Step::GiveUp { why, then } => (Is::Gives(why, then), None),
    }
}

/// Seconds after the request, event, expected action, and time of the next check.
type Row = (u64, CheckpointReport, Is, Option<u64>);

#[track_caller]
fn check(request: Request, rows: &[Row]) {
    let mut request = Some(request);
    for (n, (at_s, report, expected, wake_s)) in rows.iter().enumerate() {
        let Some(present) = request else {
            panic!("row {n}: it had ended");
        };
        let step = progress(&present, ASKED.after(at_s * 1000), *report);
        let (found, next) = is(step);
        assert_eq!(found, *expected, "row {n}");
        let wake = next.map(|next| next.wake_at().since(ASKED) / 1000);
        assert_eq!(wake, *wake_s, "row {n}: wakes");
        request = next;
    }
}

const UNRESPONSIVE: Is = Is::Gives(GaveUp::Unresponsive, AfterFailure::RunOn);

#[test]
fn timely_write_completes() {
    let rows = [
        (0, Nothing, Is::Waits, Some(600)),
        (30, Answering, Is::Waits, Some(600)),
        (599, Nothing, Is::Waits, Some(600)),
        (599, Written, Is::Writes, None),
    ];
    check(request(Purpose::RunOn), &rows);
    check(request(Purpose::GiveWay), &rows);
    // Late, but before the request was given up.
    check(
        request(Purpose::RunOn),
        &[(9999, Written, Is::Writes, None)],
    );
}

#[test]
fn no_answer_gets_timeout() {
    let rows = [
        (599, Nothing, Is::Waits, Some(600)),
        (600, Nothing, UNRESPONSIVE, None),
    ];
    check(request(Purpose::RunOn), &rows);
    let stop = Is::Gives(GaveUp::Unresponsive, AfterFailure::StopWithout);
    check(request(Purpose::GiveWay), &[(600, Nothing, stop, None)]);
    // The job answered once, more than a quarter of the timeout ago.
    let rows = [
        (449, Answering, Is::Waits, Some(600)),
        (600, Nothing, UNRESPONSIVE, None),
    ];
    check(request(Purpose::RunOn), &rows);
}

#[test]
fn answering_job_gets_one_extension() {
    let too_slow = Is::Gives(GaveUp::TooSlow, AfterFailure::StopWithout);
    let rows = [
        (450, Answering, Is::Waits, Some(600)),
        (600, Nothing, Is::Extends, Some(900)),
        (601, Nothing, Is::Waits, Some(900)),
        (899, Answering, Is::Waits, Some(900)),
        (900, Answering, too_slow, None),
    ];
    check(request(Purpose::GiveWay), &rows);
    // The job's answer arrives exactly at the deadline.
    let rows = [
        (600, Answering, Is::Extends, Some(900)),
        (899, Written, Is::Writes, None),
    ];
    check(request(Purpose::GiveWay), &rows);
    // The job stops answering.
    let rows = [
        (600, Answering, Is::Extends, Some(900)),
        (900, Nothing, UNRESPONSIVE, None),
    ];
    check(request(Purpose::RunOn), &rows);
    // A check that comes late does not start the extension from that time.
    let rows = [(900, Answering, too_slow, None)];
    check(request(Purpose::GiveWay), &rows);
}

#[test]
fn sensitive_work_has_its_own_timeout() {
    let deadlines = crate::movement::checkpoint::Policy::default().deadlines(true);
    let request = Request::new(ASKED, Purpose::RunOn, deadlines, None);
    let rows = [
        (899, Nothing, Is::Waits, Some(900)),
        (900, Answering, Is::Extends, Some(1350)),
    ];
    check(request, &rows);
    assert_eq!(deadlines.longest_ms(), (1350 + 300) * 1000);
}

#[test]
fn it_may_be_put_off_three_times_and_five_minutes_in_all() {
    let often = Is::Gives(GaveUp::DeferredTooOften, AfterFailure::RunOn);
    let rows = [
        (10, defer(1), Is::Defers, Some(70)),
        (69, Nothing, Is::Waits, Some(70)),
        // The deferred minute does not count.
        (70, Nothing, Is::Asks, Some(660)),
        (80, defer(1), Is::Defers, Some(140)),
        // A deferral may also come before the next request.
        (100, defer(1), Is::Defers, Some(160)),
        (160, Nothing, Is::Asks, Some(740)),
        (170, defer(1), often, None),
    ];
    check(request(Purpose::RunOn), &rows);
    // A deferral longer than allowed is cut to the allowance, and no further one is granted.
    let stop = Is::Gives(GaveUp::DeferredTooOften, AfterFailure::StopWithout);
    let rows = [
        (10, defer(60), Is::Defers, Some(310)),
        (310, Nothing, Is::Asks, Some(900)),
        (311, defer(1), stop, None),
    ];
    check(request(Purpose::GiveWay), &rows);
    let rows = [
        (10, defer(4), Is::Defers, Some(250)),
        (250, Nothing, Is::Asks, Some(840)),
        (
            260,
            CheckpointReport::Defer { for_ms: u64::MAX },
            Is::Defers,
            Some(320),
        ),
    ];
    check(request(Purpose::RunOn), &rows);
    // At the end of the writing time, then with the extension.
    let rows = [
        (599, defer(5), Is::Defers, Some(899)),
        (899, Nothing, Is::Asks, Some(900)),
        (900, Answering, Is::Extends, Some(1200)),
        (
            1200,
            Answering,
            Is::Gives(GaveUp::TooSlow, AfterFailure::RunOn),
            None,
        ),
    ];
    check(request(Purpose::RunOn), &rows);
}

#[test]
fn what_it_was_put_off_for_and_did_not_use_is_given_back() {
    let rows = [
        (10, defer(5), Is::Defers, Some(310)),
        (70, Answering, Is::Waits, Some(660)),
        (80, defer(5), Is::Defers, Some(320)),
        (320, Nothing, Is::Asks, Some(900)),
        (
            330,
            defer(1),
            Is::Gives(GaveUp::DeferredTooOften, AfterFailure::RunOn),
            None,
        ),
    ];
    check(request(Purpose::RunOn), &rows);
}

/// The code that runs checkpoints uses the same rule for slow but alive.
#[test]
fn result_is_independent_of_order() {
    let order = CheckpointOrder::new(1, "/scratch", DEADLINES.timeout_ms);
    for ms in [0, 1, 149_999, 150_000, 150_001, 600_000] {
        let now = ASKED.after(ms);
        let expected = order.is_answering(ASKED, now);
        assert_eq!(DEADLINES.is_answering(ASKED, now), expected, "{ms}");
    }
    assert_eq!(order.extension_ms, DEADLINES.extension_ms());
    let limits = (order.most_deferrals, order.most_deferral_ms);
    assert_eq!(limits, (DEADLINES.max_deferrals, DEADLINES.max_deferral_ms));
}

#[test]
fn a_deferral_of_nothing_is_an_answer() {
    let rows = [
        (10, defer(0), Is::Waits, Some(600)),
        (600, defer(0), Is::Extends, Some(900)),
    ];
    check(request(Purpose::RunOn), &rows);
}

#[test]
fn early_write_gets_second_request() {
    let rows = [
        (10, defer(2), Is::Defers, Some(130)),
        (60, Answering, Is::Waits, Some(650)),
        (130, Nothing, Is::Waits, Some(650)),
        (200, Written, Is::Writes, None),
    ];
    check(request(Purpose::RunOn), &rows);
}

#[test]
fn an_extension_is_not_had_twice() {
    let rows = [
        (600, Answering, Is::Extends, Some(900)),
        (700, defer(1), Is::Defers, Some(760)),
        (760, Nothing, Is::Asks, Some(960)),
        (
            960,
            Answering,
            Is::Gives(GaveUp::TooSlow, AfterFailure::RunOn),
            None,
        ),
    ];
    check(request(Purpose::RunOn), &rows);
}

#[test]
fn site_may_forbid_deferral() {
    let never = [(0, 5 * MINUTE), (3, 0)].map(|(max_deferrals, max_deferral_ms)| Deadlines {
        max_deferrals,
        max_deferral_ms,
        ..DEADLINES
    });
    for deadlines in never {
        let request = Request::new(ASKED, Purpose::GiveWay, deadlines, None);
        let stop = Is::Gives(GaveUp::DeferredTooOften, AfterFailure::StopWithout);
        check(request, &[(1, defer(1), stop, None)]);
        assert_eq!(deadlines.longest_ms(), 15 * MINUTE);
    }
}

#[test]
fn failure_and_an_outage_end_it_at_once() {
    let cases = [
        (Purpose::RunOn, Failed, GaveUp::Failed, AfterFailure::RunOn),
        (
            Purpose::GiveWay,
            Failed,
            GaveUp::Failed,
            AfterFailure::StopWithout,
        ),
        (
            Purpose::RunOn,
            StorageOut,
            GaveUp::StorageOut,
            AfterFailure::RunOn,
        ),
        (
            Purpose::GiveWay,
            StorageOut,
            GaveUp::StorageOut,
            AfterFailure::StopWithout,
        ),
    ];
    for (purpose, report, why, then) in cases {
        check(request(purpose), &[(1, report, Is::Gives(why, then), None)]);
    }
}

#[test]
fn walltime_wins_over_a_checkpoint_in_progress() {
    let over = Is::Gives(GaveUp::WalltimeExceeded, AfterFailure::EndAtWalltime);
    let ends = ASKED.after(100_000);
    for purpose in [Purpose::RunOn, Purpose::GiveWay] {
        let request = Request::new(ASKED, purpose, DEADLINES, Some(ends));
        let rows = [
            (99, Answering, Is::Waits, Some(100)),
            (100, Answering, over, None),
        ];
        check(request, &rows);
        for report in [Nothing, Failed, StorageOut, defer(1), defer(0)] {
            check(request, &[(100, report, over, None)]);
        }
        // A complete checkpoint counts.
        check(request, &[(100, Written, Is::Writes, None)]);
        // Also while the checkpoint is deferred.
        let rows = [
            (10, defer(5), Is::Defers, Some(100)),
            (100, Nothing, over, None),
        ];
        check(request, &rows);
    }
}

#[test]
fn a_clock_that_is_behind_waits() {
    let request = request(Purpose::RunOn);
    let before = UnixMillis(ASKED.0 - 3_600_000);
    assert_eq!(progress(&request, before, Nothing), Step::Wait(request));
    let answered = progress(&request, before, Answering);
    assert!(matches!(answered, Step::Wait(_)));
}

#[test]
fn no_time_at_all_ends_it_at_once() {
    let deadlines = Deadlines {
        timeout_ms: 0,
        extension_percent: u32::MAX,
        max_deferral_ms: 0,
        max_deferrals: 0,
    };
    let request = Request::new(ASKED, Purpose::RunOn, deadlines, None);
    check(request, &[(0, Nothing, UNRESPONSIVE, None)]);
    let late = Deadlines {
        timeout_ms: u64::MAX,
        max_deferral_ms: u64::MAX,
        max_deferrals: u32::MAX,
        ..deadlines
    };
    assert_eq!(late.longest_ms(), u64::MAX);
    let request = Request::new(ASKED, Purpose::RunOn, late, None);
    let far = UnixMillis(u64::MAX - 1);
    assert_eq!(progress(&request, far, Nothing), Step::Wait(request));
}

fn any_report() -> impl Strategy<Value = CheckpointReport> {
    prop_oneof![
        4 => Just(Nothing),
        4 => Just(Answering),
        4 => (0..10 * MINUTE).prop_map(|for_ms| CheckpointReport::Defer { for_ms }),
        1 => Just(Failed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::tests::cases(2000)))]

    /// Whatever the job answers, and whenever: a request that is checked at its wake times ends in time. The owner of a
    /// lent node plans on this.
    #[test]
    fn every_request_ends(report in vec((any_report(), 0..12 * MINUTE), 0..40)) {
        let mut request = request(Purpose::GiveWay);
        let mut report = report.into_iter();
        let mut now = ASKED;
        for steps in 0.. {
            prop_assert!(steps < 200);
            let wake = request.wake_at();
            let (word, after) = report.next().unwrap_or((Nothing, u64::MAX));
            // The request is checked at its wake time, or earlier when an event arrives.
            let (at, word) = match now.after(after) {
                at if at < wake => (at, word),
                _ => (wake, Nothing),
            };
            now = at;
            prop_assert!(now.since(ASKED) <= DEADLINES.longest_ms());
            let Some(next) = is(progress(&request, now, word)).1 else { break };
            prop_assert!(next.deferrals <= 3);
            prop_assert!(next.wake_at() >= now);
            request = next;
        }
    }
}
