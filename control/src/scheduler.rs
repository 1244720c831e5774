//! How a vCluster's scheduler decides: its settings as the quorum keeps them, as people see them, and as
//! the planner takes them.

use lattice_api::{
    problem::FieldError,
    scheduler::{
        AllReservations, ReservationsView, SchedulerChange, SchedulerView, WeightsView, wrong,
    },
};
use lattice_placement::{Profile, Reservations, Weights};
use lattice_quorum_types::vcluster::settings;
use lattice_view::scheduler::{
    ALL, CHECKPOINT, PROFILE, REFERENCE_WAIT, RESERVATIONS, policy, weight_setting,
};
use std::collections::BTreeMap;

/// The name of the weights that are none of the five profiles.
const BALANCED: &str = "balanced";
const GB: f64 = 1e9;

/// What is stored, as people see it.
pub(crate) fn shown(profile: &str) -> SchedulerView {
    let policy = policy(profile);
    let w = policy.weights.get();
    SchedulerView {
        profile: settings(profile)
            .get(PROFILE)
            .map(|kind| (*kind).to_owned()),
        weights: WeightsView {
            priority: w.priority,
            wait_time: w.wait_time,
            fair_share: w.fair_share,
            topology: w.topology,
            data_ready: w.data_ready,
            backlog: w.backlog,
            energy: w.energy,
            checkpoint: w.checkpoint,
            conformance: w.conformance,
        },
        // As people add them up: nine times 0.1 is 0.9.
        weights_sum: (policy.weights.to_array().iter().sum::<f64>() * 1e9).round() / 1e9,
        reference_wait_s: policy.reference_wait_ms as f64 / 1000.0,
        reservations: match policy.reservations {
            Reservations::First(count) => ReservationsView::First(count),
            Reservations::All => ReservationsView::All(AllReservations::All),
        },
        checkpoint_gb_s: policy.checkpoint_bytes_s.map(|bytes| bytes as f64 / GB),
    }
}

/// The settings that a change asks for.
///
/// # Errors
/// The first field that is not as it must be.
pub(crate) fn asked(change: &SchedulerChange) -> Result<BTreeMap<String, String>, FieldError> {
    change.check()?;
    let mut asked = BTreeMap::new();
    if let Some(kind) = &change.profile {
        let weights = profile(kind)?.to_array();
        for (name, weight) in Weights::NAMES.into_iter().zip(weights) {
            asked.insert(weight_setting(name), written(weight));
        }
        asked.insert(PROFILE.to_owned(), kind.clone());
    }
    for (name, weight) in change.weights.iter().flat_map(|weights| weights.given()) {
        asked.insert(weight_setting(name), written(weight));
    }
    if let Some(seconds) = change.reference_wait_s {
        let millis = (seconds * 1000.0).round() as u64;
        asked.insert(REFERENCE_WAIT.to_owned(), millis.to_string());
    }
    match change.reservations {
        None => {}
        Some(ReservationsView::All(AllReservations::All)) => {
            asked.insert(RESERVATIONS.to_owned(), ALL.to_owned());
        }
        Some(ReservationsView::First(count)) => {
            asked.insert(RESERVATIONS.to_owned(), count.to_string());
        }
    }
    match change.checkpoint_gb_s {
        None => {}
        // Without a value it is taken back.
        Some(None) => {
            asked.insert(CHECKPOINT.to_owned(), String::new());
        }
        Some(Some(gb_s)) => {
            let bytes = (gb_s * GB).round() as u64;
            asked.insert(CHECKPOINT.to_owned(), bytes.to_string());
        }
    }
    Ok(asked)
}

/// With an exponent where it needs one: without, a small one has more digits than a setting may have.
fn written(weight: f64) -> String {
    format!("{weight:?}")
}

fn profile(name: &str) -> Result<Weights, FieldError> {
    if name == BALANCED {
        return Ok(Weights::default());
    }
    let named = Profile::ALL
        .into_iter()
        .find(|profile| profile.name() == name);
    named
        .map(Profile::weights)
        .ok_or_else(|| wrong("profile", format!("{name:?} has no weights")))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_api::scheduler::{PROFILES, WeightsChange};
    use lattice_placement::{Policy, RawWeights};
    use lattice_quorum_types::vcluster::with_settings;
    use lattice_view::scheduler::{Read, read};

    #[test]
    fn people_and_the_planner_have_the_same_names() {
        let profiles = Profile::ALL.into_iter().map(Profile::name);
        assert!(profiles.chain([BALANCED]).eq(PROFILES));
        for name in PROFILES {
            profile(name).unwrap();
        }
    }

    fn set(profile: &str, change: SchedulerChange) -> String {
        with_settings(profile, &asked(&change).unwrap()).unwrap()
    }

    #[test]
    fn what_is_set_is_what_is_planned_by() {
        let ml = SchedulerChange {
            profile: Some("ml-training".to_owned()),
            reservations: Some(ReservationsView::First(64)),
            ..SchedulerChange::default()
        };
        let text = set("", ml);
        assert_eq!(policy(&text).weights, Profile::MlTraining.weights());
        let change = SchedulerChange {
            weights: Some(WeightsChange {
                energy: Some(0.5),
                ..WeightsChange::default()
            }),
            reference_wait_s: Some(7200.0),
            checkpoint_gb_s: Some(Some(200.0)),
            ..SchedulerChange::default()
        };
        let text = set(&text, change);
        let found = policy(&text);
        let wanted = RawWeights {
            energy: 0.5,
            ..*Profile::MlTraining.weights().get()
        };
        assert_eq!(*found.weights.get(), wanted);
        assert_eq!(found.reservations, Reservations::First(64));
        assert_eq!(found.reference_wait_ms, 7_200_000);
        assert_eq!(found.checkpoint_bytes_s, Some(200_000_000_000));
        let taken_back = SchedulerChange {
            checkpoint_gb_s: Some(None),
            ..SchedulerChange::default()
        };
        let without = policy(&set(&text, taken_back));
        let wanted = Policy {
            checkpoint_bytes_s: None,
            ..found
        };
        assert_eq!(without, wanted);
        assert_eq!(policy(""), Policy::default());
    }

    #[test]
    fn what_nobody_can_read_is_as_by_default() {
        let text =
            "reservations=many\nweights.energy=-3\nreference_wait_ms=\nlater=1\nno setting\n";
        let Read { policy, unread } = read(text);
        assert_eq!(policy, Policy::default());
        let [weights, wait, reservations] = &unread[..] else {
            panic!("{unread:?}")
        };
        assert!(weights.contains("energy"), "{weights}");
        assert_eq!(
            (&wait[..], &reservations[..]),
            ("reference_wait_ms=", "reservations=many")
        );
    }

    #[test]
    fn a_field_that_is_not_as_it_must_be_is_named() {
        let weight = |energy| SchedulerChange {
            weights: Some(WeightsChange {
                energy: Some(energy),
                ..WeightsChange::default()
            }),
            ..SchedulerChange::default()
        };
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
            (weight(-0.1), "scheduler.weights.energy", "from 0"),
            (weight(f64::NAN), "scheduler.weights.energy", "from 0"),
            (weight(1e300), "scheduler.weights.energy", "to 1000000"),
            (wait(0.0), "scheduler.reference_wait_s", "a millisecond"),
            (
                wait(f64::INFINITY),
                "scheduler.reference_wait_s",
                "to a year",
            ),
            (
                checkpoint(1e10),
                "scheduler.checkpoint_gb_s",
                "from 0 to 1000000000",
            ),
            (named, "scheduler.profile", "ml-training"),
        ] {
            let error = asked(&change).unwrap_err();
            assert_eq!(error.field, field);
            assert!(error.reason.contains(words), "{error}");
        }
        // As small as a number can be it is still a setting.
        for least in [0.0, f64::MIN_POSITIVE] {
            assert_eq!(policy(&set("", weight(least))).weights.get().energy, least);
        }
    }
}
