//! Checkpoint settings: defaults, and rejected values.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn the_defaults_are_those_of_the_documents() {
    let policy = Policy::default();
    policy.check().unwrap();
    let [ordinary, sensitive] = [policy.ordinary, policy.sensitive]
        .map(|b| [b.min_interval_ms, b.max_interval_ms, b.timeout_ms].map(|ms| ms / MINUTE));
    assert_eq!(ordinary, [5, 360, 10]);
    assert_eq!(sensitive, [10, 60, 15]);
    assert_eq!((policy.node_bytes, policy.bytes_s), (80 * GIB, 10 * GIB));
    assert_eq!(policy.failure_probability.get(), 0.001);
    let deadlines = policy.deadlines(false);
    assert_eq!(deadlines.max_deferral_ms, 5 * MINUTE);
    assert_eq!(
        (deadlines.max_deferrals, deadlines.extension_percent),
        (3, 50)
    );
    let json = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
    assert_eq!(serde_json::from_str::<Policy>("{}").unwrap(), policy);
    let unknown = serde_json::from_str::<Policy>(r#"{"timeout":1}"#);
    assert!(unknown.unwrap_err().to_string().contains("timeout"));
}

type Case = (fn(&mut Policy), &'static str);

#[test]
fn a_setting_that_is_of_no_use_is_named() {
    let cases: [Case; 5] = [
        (
            |p| p.ordinary.max_interval_ms = 1,
            "ordinary.min_interval_ms is 300000; it must be at most ordinary.max_interval_ms (1)",
        ),
        (
            |p| p.sensitive.min_interval_ms = HOUR + 1,
            "sensitive.min_interval_ms is 3600001; it must be at most sensitive.max_interval_ms (3600000)",
        ),
        (
            |p| p.node_bytes = 0,
            "node_bytes is 0; it must be at least 1",
        ),
        (|p| p.failure_period_ms = 0, "failure_period_ms is 0"),
        (|p| p.urgent_after_ms = 0, "urgent_after_ms is 0"),
    ];
    for (change, text) in cases {
        let mut policy = Policy::default();
        change(&mut policy);
        let refused = policy.check().unwrap_err().to_string();
        assert!(refused.starts_with(text), "{refused}");
    }
}
