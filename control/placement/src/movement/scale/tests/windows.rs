//! Metric windows.

use super::*;

#[test]
fn above_the_target_for_the_whole_window_adds_one() {
    let mut service = Service::of(2);
    assert_eq!(service.waits(HIGH), steady(0, 0));
    service.pass(MINUTE);
    assert_eq!(service.waits(HIGH), steady(1, 0));
    service.pass(MINUTE);
    assert_eq!(service.decides(HIGH), UP);
}

#[test]
fn below_the_threshold_for_the_whole_window_takes_one_back() {
    let mut service = Service::of(4);
    for minute in 0..5 {
        assert_eq!(service.waits(LOW), steady(0, minute));
        service.pass(MINUTE);
    }
    assert_eq!(service.decides(LOW), down(3));
}

#[test]
fn what_is_equal_or_between_does_nothing() {
    for metric in [0.8, 0.4, 0.6] {
        let mut service = Service::of(3);
        for _ in 0..30 {
            assert_eq!(service.waits(Some(metric)), steady(0, 0), "{metric}");
            service.pass(MINUTE);
        }
    }
}

#[test]
fn sample_in_other_state_restarts_window() {
    for between in [FINE, LOW, Some(0.8)] {
        let mut service = Service::of(2);
        service.waits(HIGH);
        service.pass(MINUTE);
        service.waits(between);
        service.pass(MINUTE);
        assert_eq!(service.minutes_until(HIGH), (2, UP));
    }
}

#[test]
fn gap_restarts_window() {
    // One late evaluation is not a gap.
    let after = |ms| {
        let mut service = Service::of(2);
        service.waits(HIGH);
        service.pass(MINUTE);
        service.waits(HIGH);
        service.pass(ms);
        service.decides(HIGH)
    };
    assert_eq!(after(2 * MINUTE), UP);
    assert_eq!(after(2 * MINUTE + 1), Decision::Wait(steady(0, 0)));
}

#[test]
fn what_is_not_known_changes_nothing() {
    let missing = [
        None,
        Some(f64::NAN),
        Some(f64::INFINITY),
        Some(f64::NEG_INFINITY),
    ];
    for metric in missing {
        let mut service = Service::of(4);
        service.waits(HIGH);
        service.pass(MINUTE);
        let in_a_row = 1;
        assert_eq!(
            service.waits(metric),
            NoScalingReason::MetricMissing { in_a_row }
        );
        service.pass(MINUTE);
        assert_eq!(service.minutes_until(HIGH), (2, UP));
    }
}

#[test]
fn reports_missing_metric_once() {
    let mut service = Service::of(2);
    for episode in 0..2 {
        for in_a_row in 1..=6 {
            let outcome = service.asked(None);
            let missing = NoScalingReason::MetricMissing { in_a_row };
            assert_eq!(outcome.decision, Decision::Wait(missing));
            let change = match in_a_row {
                3 => vec![Alert::MetricMissing { in_a_row }],
                _ => Vec::new(),
            };
            assert_eq!(outcome.alerts, change, "episode {episode}");
            service.pass(MINUTE);
        }
        service.waits(FINE);
        service.pass(MINUTE);
    }
}

#[test]
fn it_is_evaluated_once_a_minute_however_often_it_is_asked() {
    let mut service = Service::of(2);
    service.waits(HIGH);
    let at = service.now.after(54 * SECOND);
    for _ in 0..53 {
        service.pass(SECOND);
        assert!(!service.state.is_due(service.now, &service.policy.damping));
        // Not read.
        assert_eq!(service.waits(None), NoScalingReason::NotDue { at });
    }
    // A timer that fires slightly early counts.
    service.pass(SECOND);
    assert!(service.state.is_due(service.now, &service.policy.damping));
    assert!(matches!(
        service.waits(HIGH),
        NoScalingReason::Steady { .. }
    ));
    assert_eq!(service.state.samples().len(), 2);
}

#[test]
fn every_45_seconds_it_grows_as_well() {
    // Evaluations every 90 s are not a gap.
    let mut service = Service::of(2);
    let mut asked = 0;
    while service.decides(HIGH) != UP {
        service.pass(45 * SECOND);
        asked += 1;
        assert!(asked < 10);
    }
    assert_eq!(service.now.since(START), 180 * SECOND);
}

#[test]
fn after_a_change_it_stays_for_the_cooldown() {
    let mut service = Service::of(2);
    let (_, decision) = service.minutes_until(HIGH);
    service.commit(&decision);
    let until = service.now.after(3 * MINUTE);
    for _ in 0..2 {
        service.pass(MINUTE);
        assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
    }
    // A missing metric takes precedence as the reason.
    let mut blind = Service::of(2);
    blind.minutes_until(HIGH);
    blind.commit(&UP);
    blind.pass(MINUTE);
    assert!(matches!(
        blind.waits(None),
        NoScalingReason::MetricMissing { .. }
    ));
    // The window has continued.
    service.pass(MINUTE);
    assert_eq!(service.decides(HIGH), UP);
    // Shrinking takes its own window as well.
    service.commit(&UP);
    service.pass(MINUTE);
    assert_eq!(service.minutes_until(LOW), (5, down(3)));
    service.commit(&down(3));
    service.pass(MINUTE);
    assert_eq!(service.minutes_until(LOW), (2, down(2)));
}

#[test]
fn it_stops_at_its_most_and_at_its_least() {
    let mut service = Service::of(2);
    for nodes in 3..=6 {
        let (_, decision) = service.minutes_until(HIGH);
        service.commit(&decision);
        assert_eq!(service.nodes.len(), nodes);
    }
    service.pass(10 * MINUTE);
    for minute in 0..10 {
        let why = service.waits(HIGH);
        assert_eq!(why == NoScalingReason::AtMax, minute >= 2, "{why:?}");
        service.pass(MINUTE);
    }
    for nodes in (2..=5).rev() {
        let (_, decision) = service.minutes_until(LOW);
        service.commit(&decision);
        assert_eq!(service.nodes.len(), nodes);
    }
    service.pass(10 * MINUTE);
    for minute in 0..10 {
        let why = service.waits(LOW);
        assert_eq!(why == NoScalingReason::AtMin, minute >= 5, "{why:?}");
        service.pass(MINUTE);
    }
}

#[test]
fn another_target_is_judged_on_what_was_seen() {
    let mut service = Service::of(2);
    for _ in 0..5 {
        service.waits(FINE);
        service.pass(MINUTE);
    }
    service.policy.target = 0.5;
    assert_eq!(service.decides(FINE), UP);
}

#[test]
fn only_what_the_longest_window_needs_is_kept() {
    let mut service = Service::of(3);
    for _ in 0..500 {
        service.waits(FINE);
        service.pass(MINUTE);
    }
    let samples = service.state.samples();
    assert_eq!(samples.len(), 6);
    assert_eq!(service.now.since(samples[0].at), 6 * MINUTE);
    // Also for unchecked settings: the service then never grows.
    service.policy.damping.evaluation_ms = 1;
    service.policy.damping.up_window_ms = u64::MAX;
    for _ in 0..3000 {
        service.waits(HIGH);
        service.pass(1);
    }
    assert_eq!(service.state.samples().len(), 2880);
}

#[test]
fn clock_step_back_restarts() {
    let mut service = Service::of(2);
    let (_, decision) = service.minutes_until(HIGH);
    service.commit(&decision);
    service.now = UnixMillis(START.0 - 1000 * MINUTE);
    assert!(service.state.is_due(service.now, &service.policy.damping));
    // The cooldown is at most a full one from now on.
    let until = service.now.after(3 * MINUTE);
    assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
    assert_eq!(service.state.samples().len(), 1);
    service.pass(MINUTE);
    assert_eq!(service.minutes_until(HIGH), (2, UP));
}

#[test]
fn a_target_that_is_no_number_changes_nothing() {
    let mut service = Service::of(3);
    service.policy.target = f64::NAN;
    for metric in [HIGH, LOW].repeat(10) {
        assert_eq!(service.waits(metric), steady(0, 0));
        service.pass(MINUTE);
    }
}
