//! What is stored, what is shown of it, and what is refused before it is.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_api::movement::SETTINGS;
use lattice_placement::movement::{checkpoint, lend, preempt, scale::Damping};
use lattice_quorum_types::vcluster::with_settings;
use lattice_view::movement::{KEYS, unread};
use std::collections::BTreeSet;

fn read(profile: &str) -> Movement {
    MovementReader::new(profile).movement()
}

fn damping(profile: &str) -> Damping {
    MovementReader::new(profile).scale()
}

fn change(settings: &[(&str, &str)]) -> MovementChange {
    let mut change = MovementChange::default();
    for (name, text) in settings {
        change.put(name, Some(text)).unwrap();
    }
    change
}

/// The text once these are set on top of it.
fn set(profile: &str, settings: &[(&str, &str)]) -> String {
    with_settings(profile, &asked(&change(settings)).unwrap()).unwrap()
}

#[test]
fn what_is_not_said_is_as_by_default() {
    let usual = read("");
    assert_eq!(usual.room.policy, preempt::Policy::default());
    assert_eq!(usual.room.timeout_ms, 600_000);
    assert_eq!(usual.lend, lend::Policy::default());
    assert_eq!(usual.checkpoint, checkpoint::Policy::default());
    assert_eq!(damping(""), Damping::default());
    assert_eq!(read("preemption.max_victims=many\nsharing=1\n"), usual);
}

#[test]
fn what_is_said_is_taken() {
    let said = read(
        "checkpoint.timeout_ms=2000\npreemption.enabled=false\npreemption.patience_ms=0\n\
         sharing.lending_limit=50\nsharing.return_grace_ms=1000\n",
    );
    assert!(!said.room.policy.enabled);
    assert_eq!((said.room.patience_ms, said.room.timeout_ms), (0, 2000));
    assert_eq!(said.lend.lending_limit, Some(50));
    assert_eq!(said.lend.return_grace_ms, 1000);
    let quick = damping("scale.evaluate_ms=500\nscale.up_window_ms=1000\nscale.threshold=0.8\n");
    assert_eq!((quick.evaluation_ms, quick.up_window_ms), (500, 1000));
    assert_eq!(quick.threshold.to_string(), "0.8");
    assert_eq!(quick.cooldown_ms, Damping::default().cooldown_ms);
}

#[test]
fn people_and_the_quorum_have_the_same_settings() {
    let names = SETTINGS.iter().map(|(name, _)| *name);
    assert!(names.eq(KEYS.iter().map(|(name, _)| *name)));
    let keys: BTreeSet<_> = KEYS.iter().map(|(_, key)| *key).collect();
    assert_eq!(keys.len(), KEYS.len());
    // Each is stored under its key, read from there, shown as it was said, and taken back.
    let usual = shown("");
    assert_eq!((usual.set.len(), usual.unread.len()), (0, 0));
    for (at, (name, default)) in usual.named().into_iter().enumerate() {
        let other = match default {
            Value::Flag(yes) => (!yes).to_string(),
            Value::Count(count) => (count - 1).to_string(),
            Value::Limit(_) => "7".to_owned(),
            // Longer than each least, and shorter than each most, of the others.
            Value::Seconds(seconds) => (seconds + 0.125).to_string(),
            Value::Part(part) => (part / 2.0).to_string(),
        };
        let text = set("", &[(name, &other)]);
        assert!(text.starts_with(&format!("{}=", key_of(name))), "{text}");
        let now = shown(&text);
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
        let back = with_settings(&text, &asked(&back).unwrap()).unwrap();
        assert_eq!(back, "", "{name}");
    }
}

/// An older control, or another, may have written it: it decides nothing, and is told.
#[test]
fn what_is_stored_and_of_no_use_is_told_and_the_defaults_hold() {
    let bad = "checkpoint.max_interval_ms=1\ncheckpoint.min_interval_ms=9\n\
               preemption.max_victims=many\npreemption.patience_ms=-5\nscale.cooldown_ms=1000\n\
               scale.threshold=NaN\nsharing.lending_limit=1e9\nsharing.return_grace_ms=500\n";
    let (said, usual) = (read(bad), read(""));
    assert_eq!(said.room, usual.room);
    assert_eq!(said.checkpoint, usual.checkpoint);
    assert_eq!(said.lend.lending_limit, None);
    assert_eq!(said.lend.return_grace_ms, 500);
    assert_eq!(damping(bad), Damping::default());
    let told = shown(bad);
    assert_eq!(told.set, ["sharing.return_grace_s"]);
    assert_eq!(
        told.unread,
        [
            "preemption.max_victims=many",
            "preemption.patience_ms=-5",
            "sharing.lending_limit=1e9",
            "movement.checkpoint.min_interval_s: in milliseconds it is 9; it must be at most \
             max_interval_s (1)",
            "movement.scaling.threshold: it is NaN; it must be a number above 0 and below 1",
        ]
    );
    assert_eq!(unread(bad), told.unread);
    // It keeps nobody from setting something else.
    let next = set(
        "preemption.max_victims=many\n",
        &[("preemption.patience_s", "1")],
    );
    check(&next, 0).unwrap();
}

#[test]
fn the_whole_must_fit_together() {
    for (before, settings, field, words) in [
        (
            "",
            &[("sharing.lending_limit", "5")][..],
            "sharing.lending_limit",
            "lending_limit is 5, and the vCluster has 4 nodes; say at most 4",
        ),
        (
            "",
            &[("preemption.max_victims", "4")],
            "preemption.max_victims",
            "it is 4; it must be from 1 to 3",
        ),
        (
            "",
            &[("preemption.max_victims", "0")],
            "preemption.max_victims",
            "preemption.enabled=false",
        ),
        (
            "checkpoint.max_interval_ms=400000\n",
            &[("checkpoint.min_interval_s", "500")],
            "checkpoint.min_interval_s",
            "it is 500000; it must be at most max_interval_s (400000)",
        ),
        (
            "",
            &[("checkpoint.sensitive_max_interval_s", "1")],
            "checkpoint.sensitive_min_interval_s",
            "at most sensitive_max_interval_s (1000)",
        ),
        (
            "",
            &[("checkpoint.timeout_s", "0")],
            "checkpoint.timeout_s",
            "at least 1",
        ),
        // The quorum takes none that is longer.
        (
            "",
            &[("checkpoint.timeout_s", "86400.001")],
            "checkpoint.timeout_s",
            "at most a day (86400000)",
        ),
        (
            "",
            &[("checkpoint.max_deferral_s", "86400")],
            "checkpoint.max_deferral_s",
            "half of the timeout",
        ),
        (
            "",
            &[("scaling.threshold", "1")],
            "scaling.threshold",
            "a number above 0 and below 1",
        ),
        (
            "",
            &[("scaling.down_window_s", "864000")],
            "scaling.down_window_s",
            "at most 1440 times evaluation_s",
        ),
        (
            "profile=sensitive\n",
            &[("sharing.allow_lending", "true")],
            "sharing.allow_lending",
            "such nodes are not lent",
        ),
    ] {
        let error = check(&set(before, settings), 4).unwrap_err();
        assert_eq!(error.field, format!("movement.{field}"), "{error}");
        assert!(error.reason.contains(words), "{error}");
    }
    let together = set(
        "",
        &[
            ("checkpoint.min_interval_s", "0.5"),
            ("checkpoint.max_interval_s", "1"),
            ("checkpoint.timeout_s", "57600"),
            ("sharing.lending_limit", "4"),
        ],
    );
    check(&together, 4).unwrap();
    assert_eq!(read(&together).checkpoint.ordinary.min_interval_ms, 500);
}

#[test]
fn nodes_of_a_vcluster_for_sensitive_work_are_not_lent() {
    let sensitive = "profile=sensitive\nweights.energy=0.5\n";
    assert!(!read(sensitive).lend.allow_lending);
    assert!(read("profile=service\n").lend.allow_lending);
    let asked = format!("{sensitive}sharing.allow_lending=true\nsharing.lending_limit=2\n");
    let said = read(&asked);
    assert_eq!(
        (said.lend.allow_lending, said.lend.lending_limit),
        (false, Some(2))
    );
    assert_eq!(shown(&asked).set, ["sharing.lending_limit"]);
    assert!(check_kind(&asked).is_err());
    check_kind(sensitive).unwrap();
    check_kind("sharing.allow_lending=true\nsharing.lending_limit=2\n").unwrap();
}
