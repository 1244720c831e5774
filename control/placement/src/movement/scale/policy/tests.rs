//! Scaling settings: defaults, and rejected values.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

fn policy() -> ScalePolicy {
    ScalePolicy {
        min_nodes: 2,
        max_nodes: 6,
        target: 0.8,
        damping: Damping::default(),
    }
}

#[test]
fn the_defaults_are_those_of_the_document() {
    let d = policy().damping;
    let minutes = [
        d.evaluation_ms,
        d.up_window_ms,
        d.down_window_ms,
        d.cooldown_ms,
    ];
    assert_eq!(minutes.map(|ms| ms / MINUTE), [1, 2, 5, 3]);
    assert_eq!(d.threshold, 0.5);
    let counts = [
        d.missing_alert,
        d.retries,
        d.backoff_cooldowns,
        d.oscillation_alert,
    ];
    assert_eq!(counts, [3, 3, 2, 5]);
    policy().check().unwrap();
    let json = r#"{"min_nodes": 2, "max_nodes": 6, "target": 0.8}"#;
    assert_eq!(serde_json::from_str::<ScalePolicy>(json).unwrap(), policy());
    let unknown = r#"{"min_nodes": 2, "max_nodes": 6, "target": 0.8, "window": 1}"#;
    assert!(serde_json::from_str::<ScalePolicy>(unknown).is_err());
}

type Case = (fn(&mut ScalePolicy), &'static str);

#[test]
fn a_setting_that_is_of_no_use_is_named() {
    let cases: [Case; 9] = [
        (|p| p.min_nodes = 0, "min_nodes is 0; it must be at least 1"),
        (
            |p| p.max_nodes = 1,
            "max_nodes is 1; it must be at least min_nodes (2)",
        ),
        (
            |p| p.target = f64::NAN,
            "target is NaN; it must be a number above 0",
        ),
        (|p| p.target = f64::INFINITY, "target is inf"),
        (|p| p.target = f64::NEG_INFINITY, "target is -inf"),
        (|p| p.target = -0.5, "target is -0.5"),
        (|p| p.target = 0.0, "target is 0"),
        (
            |p| p.damping.up_window_ms = 1441 * MINUTE,
            "up_window_ms is 86460000; it must be at most 1440 times evaluation_ms (86400000)",
        ),
        (
            |p| p.damping.down_window_ms = u64::MAX,
            "down_window_ms is 18446744073709551615",
        ),
    ];
    for (change, text) in cases {
        let mut policy = policy();
        change(&mut policy);
        let refused = policy.check().unwrap_err().to_string();
        assert!(refused.starts_with(text), "{refused}");
    }
}

#[test]
fn a_window_of_a_week_is_evaluated_less_often() {
    let week = 7 * 24 * 60 * MINUTE;
    let long = Damping {
        down_window_ms: week,
        ..Damping::default()
    };
    assert!(long.check().is_err());
    let fitted = long.with_fitting_interval();
    assert_eq!(fitted.evaluation_ms, 7 * MINUTE);
    assert_eq!(fitted.check(), Ok(()));
    assert_eq!(
        Damping::default().with_fitting_interval(),
        Damping::default()
    );
}
