//! Outcomes of proposals: rejected, lost, reversed, or for a service that is away.

use super::*;

#[test]
fn without_room_under_the_limits_it_stays_until_there_is() {
    let mut service = Service::of(2);
    service.headroom = 0;
    service.waits(HIGH);
    service.pass(MINUTE);
    service.waits(HIGH);
    for _ in 0..20 {
        service.pass(MINUTE);
        assert_eq!(service.waits(HIGH), NoScalingReason::LimitReached);
    }
    service.headroom = 1;
    service.pass(MINUTE);
    assert_eq!(service.decides(HIGH), UP);
    // The headroom was gone at the proposal: no error, and the proposal is repeated.
    for _ in 0..20 {
        assert_eq!(service.answer(ProposalOutcome::LimitReached), None);
        service.pass(MINUTE);
        assert_eq!(service.decides(HIGH), UP);
    }
    // Shrinking needs no headroom.
    let mut service = Service::of(3);
    service.headroom = 0;
    assert_eq!(service.minutes_until(LOW), (5, down(2)));
}

#[test]
fn refused_proposal_retries_then_cools_down() {
    let mut service = Service::of(2);
    let (_, decision) = service.minutes_until(HIGH);
    for _ in 0..2 {
        for retry in 0..4 {
            if retry > 0 {
                service.pass(MINUTE);
                assert_eq!(service.decides(HIGH), decision);
            }
            assert_eq!(service.answer(ProposalOutcome::Refused), None);
        }
        let until = service.now.after(6 * MINUTE);
        for _ in 0..5 {
            service.pass(MINUTE);
            assert_eq!(service.waits(HIGH), NoScalingReason::BackingOff { until });
        }
        service.pass(MINUTE);
        // The window has continued.
        assert_eq!(service.decides(HIGH), decision);
    }
    // A committed proposal resets the count: three refusals before it do not count.
    for _ in 0..3 {
        service.answer(ProposalOutcome::Refused);
        service.pass(MINUTE);
        assert_eq!(service.decides(HIGH), UP);
    }
    service.commit(&decision);
    service.pass(2 * MINUTE);
    service.waits(HIGH);
    for _ in 0..4 {
        service.pass(MINUTE);
        assert_eq!(service.decides(HIGH), UP);
        service.answer(ProposalOutcome::Refused);
    }
    service.pass(MINUTE);
    assert!(matches!(
        service.waits(HIGH),
        NoScalingReason::BackingOff { .. }
    ));
}

#[test]
fn an_answer_to_nothing_is_nothing() {
    let mut service = Service::of(2);
    for answer in [
        ProposalOutcome::Done,
        ProposalOutcome::Refused,
        ProposalOutcome::LimitReached,
    ]
    .repeat(5)
    {
        assert_eq!(service.answer(answer), None);
    }
    assert_eq!(service.state, ScaleState::default());
    assert_eq!(service.minutes_until(HIGH), (2, UP));
    service.answer(ProposalOutcome::Refused);
    // Second answers to the same proposal.
    for _ in 0..9 {
        service.answer(ProposalOutcome::Refused);
    }
    service.pass(MINUTE);
    assert_eq!(service.decides(HIGH), UP);
}

#[test]
fn a_proposal_without_an_answer_is_made_again() {
    let mut service = Service::of(2);
    let (_, decision) = service.minutes_until(HIGH);
    let at = service.now.after(54 * SECOND);
    service.pass(30 * SECOND);
    assert_eq!(service.waits(None), NoScalingReason::NotDue { at });
    service.pass(30 * SECOND);
    assert_eq!(service.decides(HIGH), decision);
    // An answer after the next evaluation has no effect.
    service.pass(MINUTE);
    service.waits(FINE);
    let before = service.state.clone();
    assert_eq!(service.answer(ProposalOutcome::Refused), None);
    assert_eq!(service.state, before);
}

#[test]
fn detects_unreported_event() {
    let mut service = Service::of(2);
    let (_, decision) = service.minutes_until(HIGH);
    service.happens(&decision);
    service.pass(MINUTE);
    let until = service.now.after(3 * MINUTE);
    assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
    // A later answer belongs to a proposal that is over.
    assert_eq!(service.answer(ProposalOutcome::Refused), None);
    service.pass(MINUTE);
    assert_eq!(service.minutes_until(HIGH), (2, UP));
}

#[test]
fn reports_five_changes() {
    let mut service = Service::of(3);
    let mut steps = Vec::new();
    for turns in 0..8_u32 {
        let metric = if turns % 2 == 0 { HIGH } else { LOW };
        let (_, decision) = service.minutes_until(metric);
        steps.extend(service.commit(&decision).map(|alert| (turns, alert)));
    }
    assert_eq!(steps, [(5, Alert::Oscillating { turns: 5 })]);
    // Twice in one direction ends the oscillation.
    service.pass(MINUTE);
    let (_, decision) = service.minutes_until(LOW);
    assert_eq!(service.commit(&decision), None);
    for turns in 1..=5 {
        let metric = if turns % 2 == 1 { HIGH } else { LOW };
        let (_, decision) = service.minutes_until(metric);
        let alert = service.commit(&decision);
        assert_eq!(alert.is_some(), turns == 5);
    }
}

#[test]
fn reports_unannounced_changes() {
    let mut service = Service::of(3);
    let mut alerts = Vec::new();
    let mut changes = 0;
    for _ in 0..100 {
        let metric = if changes % 2 == 0 { HIGH } else { LOW };
        let outcome = service.asked(metric);
        alerts.extend(outcome.alerts);
        if !matches!(outcome.decision, Decision::Wait(_)) {
            service.happens(&outcome.decision);
            changes += 1;
        }
        service.pass(MINUTE);
        if changes == 6 {
            break;
        }
    }
    assert_eq!(changes, 6);
    alerts.extend(service.asked(FINE).alerts);
    assert_eq!(alerts, [Alert::Oscillating { turns: 5 }]);
}

#[test]
fn once_a_day_is_no_turn() {
    let mut service = Service::of(3);
    for hours in 0..20 {
        let metric = if hours % 2 == 0 { HIGH } else { LOW };
        let (_, decision) = service.minutes_until(metric);
        assert_eq!(service.commit(&decision), None);
        service.pass(60 * MINUTE);
    }
}

#[test]
fn nothing_is_proposed_for_what_does_not_run() {
    use AllocationState as S;
    for state in S::ALL.into_iter().filter(|state| *state != S::Running) {
        let mut service = Service::of(2);
        service.waits(HIGH);
        service.pass(MINUTE);
        service.waits(HIGH);
        service.pass(MINUTE);
        service.doing = state;
        // Nor is a replacement proposed.
        service.nodes.clear();
        for metric in [HIGH, LOW, None].repeat(3) {
            assert_eq!(service.waits(metric), NoScalingReason::NotRunning { state });
            service.pass(MINUTE);
        }
    }
}

#[test]
fn own_checkpoint_restarts_window() {
    let mut service = Service::of(2);
    service.waits(HIGH);
    service.pass(MINUTE);
    service.doing = AllocationState::Checkpointing;
    service.waits(HIGH);
    service.pass(MINUTE);
    service.doing = AllocationState::Running;
    assert_eq!(service.minutes_until(HIGH), (2, UP));
}

#[test]
fn preempted_service_returns_at_minimum_with_cooldown() {
    let mut service = Service::of(5);
    service.waits(HIGH);
    service.pass(MINUTE);
    service.doing = AllocationState::Stopping;
    service.waits(HIGH);
    service.pass(MINUTE);
    service.doing = AllocationState::Running;
    service.nodes.truncate(service.policy.min_nodes as usize);
    service.started_at = service.now;
    let until = service.now.after(3 * MINUTE);
    for _ in 0..3 {
        assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
        service.pass(MINUTE);
    }
    assert_eq!(service.decides(HIGH), UP);
    // Also for a service never seen before, or without a call while it was away.
    let mut service = Service::of(2);
    service.doing = AllocationState::Suspended;
    service.waits(HIGH);
    service.doing = AllocationState::Running;
    let until = service.now.after(3 * MINUTE);
    assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
    let mut service = Service::of(5);
    service.waits(HIGH);
    service.pass(10 * MINUTE);
    service.started_at = service.now;
    let until = service.now.after(3 * MINUTE);
    assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
}

#[test]
fn new_control_continues() {
    let mut service = Service::of(2);
    let mut metrics = [HIGH; 9].to_vec();
    metrics.extend([None, FINE, LOW, LOW, LOW, LOW, LOW, LOW, LOW, HIGH, HIGH]);
    for (minute, metric) in metrics.into_iter().enumerate() {
        let json = serde_json::to_string(&service.state).unwrap();
        assert_eq!(
            serde_json::from_str::<ScaleState>(&json).unwrap(),
            service.state
        );
        service.state = serde_json::from_str(&json).unwrap();
        let decision = service.decides(metric);
        let expected = match minute {
            2 | 5 | 8 => Some(UP),
            16 => Some(down(4)),
            _ => None,
        };
        match expected {
            Some(expected) => assert_eq!(decision, expected, "minute {minute}"),
            None => assert!(matches!(decision, Decision::Wait(_)), "minute {minute}"),
        }
        if !matches!(decision, Decision::Wait(_)) {
            service.commit(&decision);
        }
        service.pass(MINUTE);
    }
    // A control without a state starts again.
    assert_eq!(
        serde_json::from_str::<ScaleState>("{}").unwrap(),
        ScaleState::default()
    );
}

/// Another control has followed the service until now.
#[test]
fn new_control_waits_for_window_and_cooldown() {
    let mut service = Service::of(3);
    let changed_at = service.now;
    service.state = ScaleState::taken_over(Some(service.started_at), Some(changed_at));
    let until = changed_at.after(3 * MINUTE);
    for _ in 0..3 {
        assert_eq!(service.waits(HIGH), NoScalingReason::Cooldown { until });
        service.pass(MINUTE);
    }
    assert_eq!(service.decides(HIGH), UP);
    let mut calm = Service::of(3);
    calm.state = ScaleState::taken_over(Some(calm.started_at), None);
    assert_eq!(calm.minutes_until(HIGH), (2, UP));
}
