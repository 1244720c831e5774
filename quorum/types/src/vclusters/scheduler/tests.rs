#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

const PPM: fn(u64) -> Option<PartsPerMillion> = |parts| Some(PartsPerMillion(parts));

/// Settings with a distinct value in every field.
fn full() -> SchedulerSettings {
    SchedulerSettings {
        kind: Some(WorkloadKind::MlTraining),
        weights: WeightSettings {
            priority: PPM(100_000),
            wait_time: PPM(110_000),
            fair_share: PPM(120_000),
            topology: PPM(250_000),
            data_ready: PPM(150_000),
            backlog: PPM(50_000),
            energy: PPM(1),
            checkpoint: PPM(0),
            conformance: PPM(1_000_000_000_000),
        },
        reference_wait_ms: Some(7_200_000),
        reservations: Some(PlannedReservations::All),
        checkpoint_bytes_s: Some(200_000_000_000),
        preemption: PreemptionSettings {
            enabled: Some(false),
            max_victims: Some(2),
            patience_ms: Some(0),
            near_completion_ms: Some(1),
            thrash_interval_ms: Some(2),
            thrash_count: Some(4),
            only_borrowed: Some(true),
        },
        sharing: SharingSettings {
            allow_lending: Some(true),
            lending_limit: Some(24),
            allow_borrowing: Some(false),
            borrowing_limit: Some(7),
            return_grace_ms: Some(1500),
        },
        checkpoint: CheckpointSettings {
            timeout_ms: Some(2500),
            min_interval_ms: Some(500),
            max_interval_ms: Some(1000),
            sensitive_timeout_ms: Some(3500),
            sensitive_min_interval_ms: Some(600),
            sensitive_max_interval_ms: Some(1100),
            max_deferral_ms: Some(10),
            max_deferrals: Some(1),
        },
        scaling: ScalingSettings {
            threshold: PPM(800_000),
            evaluate_ms: Some(1001),
            up_window_ms: Some(1002),
            down_window_ms: Some(1003),
            cooldown_ms: Some(1004),
            missing_alert: Some(5),
            retries: Some(6),
            backoff_cooldowns: Some(8),
            oscillation_alert: Some(9),
            calm_ms: Some(1005),
        },
    }
}

#[test]
fn full_settings_survive_postcard() {
    let settings = full();
    settings.check().unwrap();
    let bytes = postcard::to_stdvec(&settings).unwrap();
    assert_eq!(
        postcard::from_bytes::<SchedulerSettings>(&bytes).unwrap(),
        settings
    );
    let patch = SchedulerPatch {
        kind: SettingPatch::Clear,
        reservations: SettingPatch::Set(PlannedReservations::First(64)),
        ..SchedulerPatch::default()
    };
    let bytes = postcard::to_stdvec(&patch).unwrap();
    assert_eq!(
        postcard::from_bytes::<SchedulerPatch>(&bytes).unwrap(),
        patch
    );
}

/// The audit keeps these names and forms; readers of it compare them.
#[test]
fn audit_lists_every_setting() {
    let listed: Vec<String> = full()
        .listed()
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        listed,
        [
            "checkpoint.max_deferral_ms=10",
            "checkpoint.max_deferrals=1",
            "checkpoint.max_interval_ms=1000",
            "checkpoint.min_interval_ms=500",
            "checkpoint.sensitive_max_interval_ms=1100",
            "checkpoint.sensitive_min_interval_ms=600",
            "checkpoint.sensitive_timeout_ms=3500",
            "checkpoint.timeout_ms=2500",
            "checkpoint_bytes_s=200000000000",
            "preemption.enabled=false",
            "preemption.max_victims=2",
            "preemption.near_completion_ms=1",
            "preemption.only_borrowed=true",
            "preemption.patience_ms=0",
            "preemption.thrash_count=4",
            "preemption.thrash_interval_ms=2",
            "profile=ml-training",
            "reference_wait_ms=7200000",
            "reservations=all",
            "scale.backoff_cooldowns=8",
            "scale.calm_ms=1005",
            "scale.cooldown_ms=1004",
            "scale.down_window_ms=1003",
            "scale.evaluate_ms=1001",
            "scale.missing_alert=5",
            "scale.oscillation_alert=9",
            "scale.retries=6",
            "scale.threshold=0.8",
            "scale.up_window_ms=1002",
            "sharing.allow_borrowing=false",
            "sharing.allow_lending=true",
            "sharing.borrowing_limit=7",
            "sharing.lending_limit=24",
            "sharing.return_grace_ms=1500",
            "weights.backlog=0.05",
            "weights.checkpoint=0.0",
            "weights.conformance=1000000.0",
            "weights.data_ready=0.15",
            "weights.energy=1e-6",
            "weights.fair_share=0.12",
            "weights.priority=0.1",
            "weights.topology=0.25",
            "weights.wait_time=0.11",
        ]
    );
    assert_eq!(full().names().count(), listed.len());
    assert!(SchedulerSettings::default().listed().is_empty());
}

#[test]
fn patch_sets_clears_and_keeps() {
    let patch = SchedulerPatch {
        kind: SettingPatch::Set(WorkloadKind::Service),
        weights: WeightPatch {
            energy: SettingPatch::Set(PartsPerMillion(400_000)),
            priority: SettingPatch::Clear,
            ..WeightPatch::default()
        },
        reference_wait_ms: SettingPatch::Clear,
        reservations: SettingPatch::Set(PlannedReservations::First(2)),
        checkpoint_bytes_s: SettingPatch::Clear,
        preemption: PreemptionPatch {
            enabled: SettingPatch::Set(true),
            max_victims: SettingPatch::Clear,
            ..PreemptionPatch::default()
        },
        sharing: SharingPatch {
            return_grace_ms: SettingPatch::Set(9),
            lending_limit: SettingPatch::Clear,
            ..SharingPatch::default()
        },
        checkpoint: CheckpointPatch {
            sensitive_timeout_ms: SettingPatch::Set(9),
            timeout_ms: SettingPatch::Clear,
            ..CheckpointPatch::default()
        },
        scaling: ScalingPatch {
            retries: SettingPatch::Set(0),
            threshold: SettingPatch::Clear,
            ..ScalingPatch::default()
        },
    };
    let mut expected = full();
    expected.kind = Some(WorkloadKind::Service);
    expected.weights.energy = PPM(400_000);
    expected.weights.priority = None;
    expected.reference_wait_ms = None;
    expected.reservations = Some(PlannedReservations::First(2));
    expected.checkpoint_bytes_s = None;
    expected.preemption.enabled = Some(true);
    expected.preemption.max_victims = None;
    expected.sharing.return_grace_ms = Some(9);
    expected.sharing.lending_limit = None;
    expected.checkpoint.sensitive_timeout_ms = Some(9);
    expected.checkpoint.timeout_ms = None;
    expected.scaling.retries = Some(0);
    expected.scaling.threshold = None;
    assert_eq!(patch.applied_to(&full()), expected);
    let nothing = SchedulerPatch::default();
    assert_eq!(nothing.applied_to(&full()), full());
}

type Case = (fn(&mut SchedulerSettings), &'static str);

#[test]
fn refuses_a_value_out_of_its_range_by_name() {
    let cases: [Case; 25] = [
        (
            |s| s.weights.energy = PPM(1_000_000_000_001),
            "scheduler.weights.energy: it is 1000000.000001; it must be from 0.0 to 1000000.0",
        ),
        (
            |s| s.reference_wait_ms = Some(0),
            "scheduler.reference_wait_s: it is 0 ms; it must be from 1 to 31622400000 ms",
        ),
        (
            |s| s.checkpoint_bytes_s = Some(u64::MAX),
            "scheduler.checkpoint_gb_s: it is",
        ),
        (
            |s| s.preemption.max_victims = Some(0),
            "movement.preemption.max_victims: it is 0; it must be from 1 to 3",
        ),
        (
            |s| s.preemption.max_victims = Some(4),
            "movement.preemption.max_victims: it is 4;",
        ),
        (
            |s| s.preemption.patience_ms = Some(MAX_TIME_MS + 1),
            "movement.preemption.patience_s: it is",
        ),
        (
            |s| s.sharing.return_grace_ms = Some(u64::MAX),
            "movement.sharing.return_grace_s: it is",
        ),
        (
            |s| s.checkpoint.timeout_ms = Some(0),
            "movement.checkpoint.timeout_s: it is 0 ms; it must be from 1 to 86400000 ms",
        ),
        (
            |s| s.checkpoint.sensitive_timeout_ms = Some(86_400_001),
            "movement.checkpoint.sensitive_timeout_s: it is 86400001 ms",
        ),
        (
            |s| s.checkpoint.max_interval_ms = Some(0),
            "movement.checkpoint.max_interval_s: it is 0 ms; it must be from 1",
        ),
        (
            |s| s.checkpoint.sensitive_max_interval_ms = Some(0),
            "movement.checkpoint.sensitive_max_interval_s: it is 0 ms",
        ),
        (
            |s| s.checkpoint.min_interval_ms = Some(1001),
            "movement.checkpoint.min_interval_s: it is 1001 ms; it must be at most the longest interval, 1000 ms",
        ),
        (
            |s| s.checkpoint.sensitive_max_interval_ms = Some(599),
            "movement.checkpoint.sensitive_min_interval_s: it is 600 ms",
        ),
        (
            |s| s.scaling.threshold = PPM(0),
            "movement.scaling.threshold: it is 0.0; it must be from 1e-6 to 0.999999",
        ),
        (
            |s| s.scaling.threshold = PPM(1_000_000),
            "movement.scaling.threshold: it is 1.0",
        ),
        (
            |s| s.scaling.threshold = PPM(2_000_000),
            "movement.scaling.threshold: it is 2.0",
        ),
        (
            |s| s.scaling.evaluate_ms = Some(0),
            "movement.scaling.evaluation_s: it is 0 ms",
        ),
        (
            |s| s.scaling.up_window_ms = Some(0),
            "movement.scaling.up_window_s: it is 0 ms",
        ),
        (
            |s| s.scaling.down_window_ms = Some(0),
            "movement.scaling.down_window_s: it is 0 ms",
        ),
        (
            |s| s.scaling.cooldown_ms = Some(0),
            "movement.scaling.cooldown_s: it is 0 ms",
        ),
        (
            |s| s.scaling.missing_alert = Some(0),
            "movement.scaling.missing_alert: it is 0",
        ),
        (
            |s| s.scaling.backoff_cooldowns = Some(0),
            "movement.scaling.backoff_cooldowns: it is 0",
        ),
        (
            |s| s.scaling.oscillation_alert = Some(0),
            "movement.scaling.oscillation_alert: it is 0",
        ),
        (
            |s| s.scaling.calm_ms = Some(0),
            "movement.scaling.calm_s: it is 0 ms",
        ),
        (
            |s| s.scaling.calm_ms = Some(MAX_TIME_MS + 1),
            "movement.scaling.calm_s: it is",
        ),
    ];
    for (change, text) in cases {
        let mut settings = full();
        change(&mut settings);
        let refused = settings.check().unwrap_err().to_string();
        assert!(refused.starts_with(text), "{refused}");
    }
    SchedulerSettings::default().check().unwrap();
}

#[test]
fn two_decimals_survive_exactly() {
    for hundredths in 0..=100_u32 {
        let text = format!("0.{hundredths:02}");
        let text = if hundredths == 100 { "1" } else { &text };
        let value: f64 = text.parse().unwrap();
        let parts = PartsPerMillion::rounded(value).unwrap();
        assert_eq!(parts.0, u64::from(hundredths) * 10_000);
        assert_eq!(parts.get(), value);
    }
    assert_eq!(PartsPerMillion::rounded(0.000_000_6).unwrap().0, 1);
    assert_eq!(PartsPerMillion::rounded(0.000_000_4).unwrap().0, 0);
    assert_eq!(PartsPerMillion::rounded(f64::INFINITY).unwrap().0, u64::MAX);
    for value in [f64::NAN, -0.1, f64::NEG_INFINITY] {
        assert_eq!(PartsPerMillion::rounded(value), None);
    }
}

#[test]
fn kinds_have_the_names_that_serde_writes() {
    for kind in WorkloadKind::ALL {
        assert_eq!(WorkloadKind::named(kind.name()), Some(kind));
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
    assert_eq!(WorkloadKind::named("HPC"), None);
}
