#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_api::scheduler::PROFILES;
use lattice_placement::{Policy, Profile, RawWeights};

fn set(settings: &SchedulerSettings, change: SchedulerChange) -> SchedulerSettings {
    patch(&change).unwrap().applied_to(settings)
}

fn energy(weight: f64) -> SchedulerChange {
    SchedulerChange {
        weights: Some(WeightsChange {
            energy: Some(weight),
            ..WeightsChange::default()
        }),
        ..SchedulerChange::default()
    }
}

/// The solver's table survives the resolution of stored weights.
#[test]
fn each_profile_sets_its_weights_exactly() {
    for (name, kind) in PROFILES.into_iter().zip(WorkloadKind::ALL) {
        assert_eq!(name, kind.name());
        let change = SchedulerChange {
            profile: Some(name.to_owned()),
            ..SchedulerChange::default()
        };
        let settings = set(&SchedulerSettings::default(), change);
        assert_eq!(policy(&settings).weights, Weights::from(kind), "{name}");
        assert_eq!(scheduler_view(&settings).profile.as_deref(), Some(name));
        assert_eq!(settings.names().count(), 10);
    }
    for profile in Profile::ALL {
        let kind = WorkloadKind::named(profile.name()).unwrap();
        assert_eq!(Weights::from(kind), profile.weights());
    }
}

#[test]
fn what_is_set_is_what_is_planned_by() {
    let ml = SchedulerChange {
        profile: Some("ml-training".to_owned()),
        reservations: Some(ReservationsView::First(64)),
        ..SchedulerChange::default()
    };
    let settings = set(&SchedulerSettings::default(), ml);
    assert_eq!(policy(&settings).weights, Profile::MlTraining.weights());
    let change = SchedulerChange {
        reference_wait_s: Some(7200.0),
        checkpoint_gb_s: Some(Some(200.0)),
        ..energy(0.5)
    };
    let settings = set(&settings, change);
    let found = policy(&settings);
    let wanted = RawWeights {
        energy: 0.5,
        ..*Profile::MlTraining.weights().get()
    };
    assert_eq!(*found.weights.get(), wanted);
    assert_eq!(found.reservations, PlannedReservations::First(64));
    assert_eq!(found.reference_wait_ms, 7_200_000);
    assert_eq!(found.checkpoint_bytes_s, Some(200_000_000_000));
    let taken_back = SchedulerChange {
        checkpoint_gb_s: Some(None),
        ..SchedulerChange::default()
    };
    let without = policy(&set(&settings, taken_back));
    let wanted = Policy {
        checkpoint_bytes_s: None,
        ..found
    };
    assert_eq!(without, wanted);
}

#[test]
fn a_field_that_is_not_as_it_must_be_is_named() {
    let wait = |seconds| SchedulerChange {
        reference_wait_s: Some(seconds),
        ..SchedulerChange::default()
    };
    let checkpoint = |gb_s| SchedulerChange {
        checkpoint_gb_s: Some(Some(gb_s)),
        ..SchedulerChange::default()
    };
    let named = SchedulerChange {
        profile: Some("HPC".to_owned()),
        ..SchedulerChange::default()
    };
    for (change, field, words) in [
        (energy(-0.1), "scheduler.weights.energy", "from 0"),
        (energy(f64::NAN), "scheduler.weights.energy", "from 0"),
        (energy(1e300), "scheduler.weights.energy", "to 1000000"),
        (
            energy(f64::MIN_POSITIVE),
            "scheduler.weights.energy",
            "0 or at least 0.000001",
        ),
        (
            energy(9.9e-7),
            "scheduler.weights.energy",
            "it is 9.9e-7; it must be 0 or at least 0.000001",
        ),
        (
            wait(0.0),
            "scheduler.reference_wait_s",
            "it is 0 s; it must be from 0.001 s",
        ),
        (
            wait(f64::INFINITY),
            "scheduler.reference_wait_s",
            "to 31622400 s (366 days)",
        ),
        (
            checkpoint(1e10),
            "scheduler.checkpoint_gb_s",
            "from 0 to 1000000000",
        ),
        (named, "scheduler.profile", "ml-training"),
    ] {
        let error = patch(&change).unwrap_err();
        assert_eq!(error.field, field);
        assert!(error.reason.contains(words), "{error}");
    }
}

/// The quorum accepts every value that the API accepts.
#[test]
fn bounds_of_the_api_are_stored() {
    for (given, stored) in [
        (0.0, 0.0),
        (1e-6, 1e-6),
        (0.123_456_7, 0.123_457),
        (1e6, 1e6),
    ] {
        let change = SchedulerChange {
            reference_wait_s: Some(0.001),
            checkpoint_gb_s: Some(Some(1e9)),
            ..energy(given)
        };
        let settings = set(&SchedulerSettings::default(), change);
        settings.check().unwrap();
        assert_eq!(policy(&settings).weights.get().energy, stored);
    }
    let longest = SchedulerChange {
        reference_wait_s: Some(366.0 * 86_400.0),
        ..SchedulerChange::default()
    };
    let settings = set(&SchedulerSettings::default(), longest);
    settings.check().unwrap();
}
