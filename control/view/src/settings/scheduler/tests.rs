use super::*;
use lattice_quorum_types::scheduler::PlannedReservations;

#[test]
fn unset_settings_have_defaults() {
    assert_eq!(policy(&SchedulerSettings::default()), Policy::default());
}

#[test]
fn set_values_are_planned_with() {
    let settings = SchedulerSettings {
        weights: WeightSettings {
            energy: Some(PartsPerMillion(500_000)),
            priority: Some(PartsPerMillion(1)),
            ..WeightSettings::default()
        },
        reference_wait_ms: Some(7_200_000),
        reservations: Some(PlannedReservations::All),
        checkpoint_bytes_s: Some(0),
        ..SchedulerSettings::default()
    };
    let found = policy(&settings);
    let expected = RawWeights {
        energy: 0.5,
        priority: 0.000_001,
        ..*Weights::default().get()
    };
    assert_eq!(*found.weights.get(), expected);
    assert_eq!(found.reference_wait_ms, 7_200_000);
    assert_eq!(found.reservations, PlannedReservations::All);
    assert_eq!(found.checkpoint_bytes_s, Some(0));
}

/// The kind decides; without one, exactly the weights of sensitive work do.
#[test]
fn recognises_sensitive_work_and_services() {
    let of_kind = |kind| SchedulerSettings {
        kind: Some(kind),
        ..SchedulerSettings::default()
    };
    for kind in WorkloadKind::ALL {
        let settings = of_kind(kind);
        let is_sensitive = kind == WorkloadKind::Sensitive;
        assert_eq!(is_for_sensitive(&settings), is_sensitive, "{kind}");
        assert_eq!(
            is_for_services(&settings),
            kind == WorkloadKind::Service,
            "{kind}"
        );
    }
    let parts = |weight: f64| PartsPerMillion::rounded(weight);
    let w = Profile::Sensitive.weights();
    let w = w.get();
    let mut weights = SchedulerSettings {
        weights: WeightSettings {
            priority: parts(w.priority),
            wait_time: parts(w.wait_time),
            fair_share: parts(w.fair_share),
            topology: parts(w.topology),
            data_ready: parts(w.data_ready),
            backlog: parts(w.backlog),
            energy: parts(w.energy),
            checkpoint: parts(w.checkpoint),
            conformance: parts(w.conformance),
        },
        ..SchedulerSettings::default()
    };
    assert!(is_for_sensitive(&weights));
    weights.weights.energy = parts(0.5);
    assert!(!is_for_sensitive(&weights));
    assert!(!is_for_sensitive(&SchedulerSettings::default()));
}
