//! Movement settings through the API: changed, shown, and refused.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_api::movement::{SETTINGS, SettingValue};
use lattice_api::scheduler::{
    AllReservations, ReservationsView, SchedulerChange, WEIGHTS, WeightsChange,
};
use lattice_placement::{
    PlannedReservations, Policy, Weights,
    movement::{checkpoint, lend, preempt, scale::Damping},
};
use lattice_quorum_types::scheduler::WorkloadKind;
use lattice_view::settings::scheduler::policy;

fn change(settings: &[(&str, &str)]) -> MovementChange {
    let mut change = MovementChange::default();
    for (name, text) in settings {
        change.put(name, Some(text)).unwrap();
    }
    change
}

/// These settings with a change.
fn set(
    settings: &SchedulerSettings,
    change: &MovementChange,
) -> Result<SchedulerSettings, FieldError> {
    let mut next = SchedulerPatch::default();
    patch(change, &mut next)?;
    Ok(next.applied_to(settings))
}

/// Default settings with these set.
fn with(settings: &[(&str, &str)]) -> SchedulerSettings {
    set(&SchedulerSettings::default(), &change(settings)).unwrap()
}

/// Every setting is stored alone, shown as set, and cleared.
#[test]
fn each_setting_is_stored_shown_and_cleared() {
    let usual = movement_view(&SchedulerSettings::default());
    assert_eq!((usual.set.len(), usual.unread.len()), (0, 0));
    let names = usual.named().into_iter().map(|(name, _)| name);
    assert!(names.eq(SETTINGS.iter().map(|(name, _)| *name)));
    for (at, (name, default)) in usual.named().into_iter().enumerate() {
        let other = match default {
            SettingValue::Flag(yes) => (!yes).to_string(),
            SettingValue::Count(count) => (count - 1).to_string(),
            SettingValue::Limit(_) => "7".to_owned(),
            // Longer than each minimum, and shorter than each maximum, of the other settings.
            SettingValue::Seconds(seconds) => (seconds + 0.125).to_string(),
            SettingValue::Number(part) => (part / 2.0).to_string(),
        };
        let settings = with(&[(name, &other)]);
        let stored: Vec<_> = settings.names().collect();
        assert_eq!(stored, [format!("movement.{name}")]);
        let now = movement_view(&settings);
        assert_eq!(
            (now.set.as_slice(), now.unread.len()),
            (&[name.to_owned()][..], 0)
        );
        for (place, ((_, was), (of, is))) in usual.named().into_iter().zip(now.named()).enumerate()
        {
            assert_eq!(was != is, place == at, "{name}, {of}");
        }
        assert_eq!(now.named()[at].1.to_string(), other, "{name}");
        let mut back = MovementChange::default();
        back.put(name, None).unwrap();
        let back = set(&settings, &back).unwrap();
        assert_eq!(back, SchedulerSettings::default(), "{name}");
    }
}

/// A different value for each setting, through the API to the solver's input.
#[test]
fn every_setting_reaches_the_solver() {
    let weights = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
    let given = WEIGHTS.into_iter().zip(weights);
    let given = given.map(|(name, weight)| (name.to_owned(), weight.into()));
    let given: serde_json::Map<String, serde_json::Value> = given.collect();
    let scheduler = SchedulerChange {
        profile: Some("service".to_owned()),
        weights: Some(serde_json::from_value::<WeightsChange>(given.into()).unwrap()),
        reference_wait_s: Some(7200.5),
        reservations: Some(ReservationsView::All(AllReservations::All)),
        checkpoint_gb_s: Some(Some(0.25)),
    };
    let values = [
        ("preemption.enabled", "false"),
        ("preemption.max_victims", "2"),
        ("preemption.patience_s", "0.001"),
        ("preemption.near_completion_threshold_s", "0.002"),
        ("preemption.thrash_interval_s", "0.003"),
        ("preemption.thrash_count", "4"),
        ("preemption.only_borrowed", "false"),
        ("sharing.allow_lending", "false"),
        ("sharing.lending_limit", "5"),
        ("sharing.allow_borrowing", "false"),
        ("sharing.borrowing_limit", "6"),
        ("sharing.return_grace_s", "0.007"),
        ("checkpoint.timeout_s", "0.008"),
        ("checkpoint.min_interval_s", "0.009"),
        ("checkpoint.max_interval_s", "0.010"),
        ("checkpoint.sensitive_timeout_s", "0.011"),
        ("checkpoint.sensitive_min_interval_s", "0.012"),
        ("checkpoint.sensitive_max_interval_s", "0.013"),
        ("checkpoint.max_deferral_s", "0.014"),
        ("checkpoint.max_deferral_count", "15"),
        ("scaling.threshold", "0.16"),
        ("scaling.evaluation_s", "0.017"),
        ("scaling.up_window_s", "0.018"),
        ("scaling.down_window_s", "0.019"),
        ("scaling.cooldown_s", "0.020"),
        ("scaling.missing_alert", "21"),
        ("scaling.retries", "22"),
        ("scaling.backoff_cooldowns", "23"),
        ("scaling.oscillation_alert", "24"),
        ("scaling.calm_s", "0.025"),
    ];
    assert!(
        values
            .iter()
            .map(|(name, _)| *name)
            .eq(SETTINGS.iter().map(|(name, _)| *name))
    );
    let mut all = crate::scheduler::patch(&scheduler).unwrap();
    patch(&change(&values), &mut all).unwrap();
    let settings = all.applied_to(&SchedulerSettings::default());
    check(&settings, 5).unwrap();

    let scheduler = Policy {
        weights: Weights::new(weights.into()).unwrap(),
        reference_wait_ms: 7_200_500,
        reservations: PlannedReservations::All,
        checkpoint_bytes_s: Some(250_000_000),
    };
    assert_eq!(policy(&settings), scheduler);
    assert_eq!(settings.kind, Some(WorkloadKind::Service));
    let movement = movement_of(&settings);
    let room = preempt::Policy {
        enabled: false,
        max_victims: 2,
        near_completion_ms: 2,
        thrash_interval_ms: 3,
        thrash_count: 4,
        only_borrowed: false,
    };
    assert_eq!(movement.preemption.policy, room);
    assert_eq!(
        (
            movement.preemption.patience_ms,
            movement.preemption.timeout_ms
        ),
        (1, 8)
    );
    let lend = lend::Policy {
        allow_lending: false,
        lending_limit: Some(5),
        allow_borrowing: false,
        borrowing_limit: Some(6),
        return_grace_ms: 7,
    };
    assert_eq!(movement.lend, lend);
    let checkpoint = checkpoint::Policy {
        ordinary: checkpoint::Bounds {
            timeout_ms: 8,
            min_interval_ms: 9,
            max_interval_ms: 10,
        },
        sensitive: checkpoint::Bounds {
            timeout_ms: 11,
            min_interval_ms: 12,
            max_interval_ms: 13,
        },
        max_deferral_ms: 14,
        max_deferrals: 15,
        ..checkpoint::Policy::default()
    };
    assert_eq!(movement.checkpoint, checkpoint);
    let damping = Damping {
        threshold: 0.16,
        evaluation_ms: 17,
        up_window_ms: 18,
        down_window_ms: 19,
        cooldown_ms: 20,
        missing_alert: 21,
        retries: 22,
        backoff_cooldowns: 23,
        oscillation_alert: 24,
        calm_ms: 25,
    };
    assert_eq!(damping_of(&settings), damping);
}

#[test]
fn the_whole_must_fit_together() {
    let interval = SchedulerSettings {
        checkpoint: lattice_quorum_types::scheduler::CheckpointSettings {
            max_interval_ms: Some(400_000),
            ..Default::default()
        },
        ..SchedulerSettings::default()
    };
    let sensitive = SchedulerSettings {
        kind: Some(WorkloadKind::Sensitive),
        ..SchedulerSettings::default()
    };
    let usual = SchedulerSettings::default();
    for (before, settings, field, words) in [
        (
            usual,
            &[("sharing.lending_limit", "5")][..],
            "sharing.lending_limit",
            "lending_limit 5 exceeds the 4 nodes of the vCluster; set at most 4",
        ),
        (
            usual,
            &[("preemption.max_victims", "4")],
            "preemption.max_victims",
            "it is 4; it must be from 1 to 3",
        ),
        (
            usual,
            &[("preemption.max_victims", "0")],
            "preemption.max_victims",
            "it is 0; it must be from 1 to 3",
        ),
        (
            interval,
            &[("checkpoint.min_interval_s", "500")],
            "checkpoint.min_interval_s",
            "it is 500000 ms; it must be at most the longest interval, 400000 ms",
        ),
        (
            usual,
            &[("checkpoint.sensitive_max_interval_s", "1")],
            "checkpoint.sensitive_min_interval_s",
            "at most sensitive_max_interval_s (1000)",
        ),
        (
            usual,
            &[("checkpoint.timeout_s", "0")],
            "checkpoint.timeout_s",
            "it is 0 ms; it must be from 1 to 86400000 ms",
        ),
        (
            usual,
            &[("checkpoint.timeout_s", "86400.001")],
            "checkpoint.timeout_s",
            "it is 86400001 ms; it must be from 1 to 86400000 ms",
        ),
        (
            usual,
            &[("checkpoint.max_deferral_s", "86400")],
            "checkpoint.max_deferral_s",
            "half of the timeout",
        ),
        (
            usual,
            &[("scaling.threshold", "1")],
            "scaling.threshold",
            "it is 1.0; it must be from 1e-6 to 0.999999",
        ),
        (
            usual,
            &[("scaling.down_window_s", "864000")],
            "scaling.down_window_s",
            "at most 1440 times evaluation_s",
        ),
        (
            sensitive,
            &[("sharing.allow_lending", "true")],
            "sharing.allow_lending",
            "cannot be true for a vCluster for sensitive work",
        ),
    ] {
        let next = set(&before, &change(settings)).unwrap();
        let error = check(&next, 4).unwrap_err();
        assert_eq!(error.field, format!("movement.{field}"), "{error}");
        assert!(error.reason.contains(words), "{error}");
    }
    let negative = set(&usual, &change(&[("scaling.threshold", "-0.1")])).unwrap_err();
    assert_eq!(
        negative.to_string(),
        "movement.scaling.threshold: it is -0.1; it must be above 0 and below 1"
    );
    let together = with(&[
        ("checkpoint.min_interval_s", "0.5"),
        ("checkpoint.max_interval_s", "1"),
        ("checkpoint.timeout_s", "57600"),
        ("sharing.lending_limit", "4"),
    ]);
    check(&together, 4).unwrap();
    assert_eq!(
        movement_of(&together).checkpoint.ordinary.min_interval_ms,
        500
    );
}

#[test]
fn lending_is_refused_for_sensitive_work() {
    let lends = with(&[
        ("sharing.allow_lending", "true"),
        ("sharing.lending_limit", "2"),
    ]);
    check_may_lend(&lends).unwrap();
    let sensitive = SchedulerSettings {
        kind: Some(WorkloadKind::Sensitive),
        ..lends
    };
    assert!(check_may_lend(&sensitive).is_err());
    let view = movement_view(&sensitive);
    assert_eq!(view.set, ["sharing.lending_limit"]);
    assert!(!view.sharing.allow_lending);
    assert_eq!(view.unread.len(), 1);
}
