//! Distinction between noise and significant differences.
use super::*;

fn of(waits: &[f64], spans: Option<f64>) -> Vec<Metrics> {
    let of = |wait: &f64| Metrics {
        mean_wait_s: *wait,
        utilization: wait / 1000.0,
        group_span_mean: spans,
        ..Metrics::default()
    };
    waits.iter().map(of).collect()
}

fn row(rows: &[Row], name: &str) -> Row {
    rows.iter()
        .find(|row| row.measure == name)
        .cloned()
        .into_iter()
        .next_back()
        .unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn a_difference_of_each_seed_is_none_of_noise() {
    // Seeds differ by far more than policies, but the difference is the same for each seed.
    let rows = compare(&[
        of(&[100.0, 200.0, 300.0], None),
        of(&[90.0, 191.0, 289.0], None),
    ]);
    let wait = row(&rows, "mean_wait_s");
    assert_eq!(
        (wait.values[0].mean, wait.values[0].deviation),
        (200.0, 100.0)
    );
    let difference = wait.differences[0];
    assert_eq!(difference.mean, -10.0);
    assert_eq!(difference.relative, Some(-0.05));
    // t for 2 degrees of freedom is 4.303, the deviation is 1.
    let within = 4.303 / 3_f64.sqrt();
    assert!((difference.within.unwrap_or(0.0) - within).abs() < 1e-9);
    assert_eq!(difference.verdict, ComparisonResult::Better);
    // A lower utilization is worse.
    assert_eq!(
        row(&rows, "utilization").differences[0].verdict,
        ComparisonResult::Worse
    );
    assert_eq!(
        row(&rows, "p95_wait_s").differences[0].verdict,
        ComparisonResult::Same
    );
}

#[test]
fn sign_change_or_single_seed_is_noise() {
    let rows = compare(&[
        of(&[100.0, 200.0, 300.0], None),
        of(&[90.0, 215.0, 289.0], None),
    ]);
    assert_eq!(
        row(&rows, "mean_wait_s").differences[0].verdict,
        ComparisonResult::Noise
    );
    let rows = compare(&[of(&[100.0], None), of(&[90.0], None)]);
    let difference = row(&rows, "mean_wait_s").differences[0];
    assert_eq!(
        (difference.within, difference.verdict),
        (None, ComparisonResult::OneSeed)
    );
}

#[test]
fn what_is_not_known_of_all_is_left_out() {
    let has = |sides: &[Vec<Metrics>]| {
        compare(sides)
            .iter()
            .any(|row| row.measure == "group_span_mean")
    };
    assert!(has(&[of(&[1.0], Some(2.0)), of(&[1.0], Some(3.0))]));
    assert!(!has(&[of(&[1.0], Some(2.0)), of(&[1.0], None)]));
    assert_eq!(compare(&[]).len(), 0);
}

#[test]
fn equal_service_is_neither_better_nor_worse() {
    let served = |jobs: u64, wait: f64| {
        vec![Metrics {
            jobs,
            mean_wait_s: wait,
            backfilled: jobs / 2,
            ..Metrics::default()
        }]
    };
    let rows = compare(&[served(10, 50.0), served(7, 1.0)]);
    assert_eq!(
        row(&rows, "mean_wait_s").differences[0].verdict,
        ComparisonResult::OtherJobs
    );
    assert_eq!(
        row(&rows, "jobs").differences[0].verdict,
        ComparisonResult::OneSeed
    );
    assert_eq!(
        row(&rows, "p50_wait_s").differences[0].verdict,
        ComparisonResult::Same
    );
    let twice = |jobs| [served(jobs, 1.0), served(jobs, 1.0)].concat();
    let rows = compare(&[twice(10), twice(7)]);
    assert_eq!(
        row(&rows, "jobs").differences[0].verdict,
        ComparisonResult::Worse
    );
    // The number of backfilled jobs describes a policy and is not an objective.
    let more = |backfilled| Metrics {
        backfilled,
        ..Metrics::default()
    };
    let rows = compare(&[vec![more(1), more(2)], vec![more(5), more(6)]]);
    assert_eq!(
        row(&rows, "backfilled").differences[0].verdict,
        ComparisonResult::Other
    );
}
