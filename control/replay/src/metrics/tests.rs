//! Metrics of small schedules, compared with values calculated by hand.

use super::*;
use crate::{request::Request, trace::UNKNOWN};

/// Measures jobs of (submit, run, size, tenant, start), in seconds.
fn measured(of: &[(u64, u64, u32, u32, Option<u64>)], terms: MetricInputs) -> Metrics {
    let jobs = (1..)
        .zip(of)
        .map(|(number, (submit, run, size, tenant, _))| Job {
            number,
            line: number,
            submit_ms: submit * 1000,
            run_ms: run * 1000,
            estimate_ms: UNKNOWN,
            waited_ms: UNKNOWN,
            size: *size,
            user: 0,
            tenant: *tenant,
            request: 0,
        });
    let served: Vec<JobStart> = of
        .iter()
        .map(|(.., start)| JobStart {
            start_ms: start.map_or(UNKNOWN, |s| s * 1000),
            span: 2,
            ..JobStart::default()
        })
        .collect();
    let workload = Workload {
        jobs: jobs.collect(),
        users: vec!["u".to_owned()],
        tenants: vec!["a".to_owned(), "b".to_owned()],
        requests: vec![Request::default()],
        ..Workload::default()
    };
    measure(&workload, &served, &terms)
}

fn size(size: u64) -> MetricInputs {
    MetricInputs {
        size,
        ..MetricInputs::default()
    }
}

#[test]
fn every_measure_is_as_the_conventions_say() {
    // Size 4. A job of size 2 runs 100 s at once. One of size 1 runs 5 s after a wait of 15 s, and one of size 4 runs
    // 20 s after a wait of 90 s.
    let work = [
        (0, 100, 2, 0, Some(0)),
        (5, 5, 1, 1, Some(20)),
        (10, 20, 4, 1, Some(100)),
    ];
    let found = measured(&work, size(4));
    assert_eq!((found.jobs, found.never_started), (3, 0));
    assert_eq!(found.mean_wait_s, 35.0);
    assert_eq!(
        (found.p50_wait_s, found.p95_wait_s, found.p99_wait_s),
        (15.0, 90.0, 90.0)
    );
    assert_eq!((found.max_wait_s, found.max_flow_s), (90.0, 110.0));
    assert_eq!(found.mean_flow_s, (100.0 + 20.0 + 110.0) / 3.0);
    // Slowdowns: 1; (15 + 5) / 10; 110 / 20.
    assert_eq!(found.mean_bounded_slowdown, (1.0 + 2.0 + 5.5) / 3.0);
    assert_eq!(found.max_bounded_slowdown, 5.5);
    // Work of the jobs: 200, 5 and 80.
    assert_eq!(found.weighted_wait_s, (5.0 * 15.0 + 80.0 * 90.0) / 285.0);
    assert_eq!(
        found.weighted_bounded_slowdown,
        (200.0 + 10.0 + 440.0) / 285.0
    );
    assert_eq!(found.makespan_s, 120.0);
    assert_eq!(found.utilization, 285.0 / 480.0);
    // The window is from 6 to 114; work in it: 188, 5 and 56.
    assert_eq!(found.utilization_window, 249.0 / 432.0);
    assert_eq!(found.mean_queue, 105.0 / 120.0);
    // 188 of tenant a and 61 of tenant b; each has half of the machine as share.
    let (a, b) = (188.0 / 0.5, 61.0 / 0.5);
    assert!((found.jain_fairness - (a + b) * (a + b) / (2.0 * (a * a + b * b))).abs() < 1e-12);
    assert!((found.largest_deficit - (0.5 - 61.0 / 249.0)).abs() < 1e-12);
    assert_eq!(
        (found.qos_met_fraction, found.group_span_mean),
        (None, None)
    );
    let classes: Vec<(u32, u32, u64, f64)> = found
        .starvation
        .iter()
        .map(|class| (class.from, class.to, class.jobs, class.max_wait_s))
        .collect();
    assert_eq!(classes, [(1, 1, 1, 15.0), (2, 3, 1, 0.0), (4, 7, 1, 90.0)]);
}

#[test]
fn shares_targets_and_groups_count_where_they_are_known() {
    let work = [
        (0, 100, 2, 0, Some(0)),
        (0, 100, 2, 1, Some(0)),
        (0, 10, 1, 1, None),
    ];
    let terms = MetricInputs {
        has_groups: true,
        parties: vec![
            Party {
                name: "a".to_owned(),
                share: Some(0.75),
            },
            Party {
                name: "b".to_owned(),
                share: None,
            },
        ],
        party_of: vec![0, 1],
        targets_ms: vec![Some(1000)],
        ..size(4)
    };
    let found = measured(&work, terms);
    assert_eq!((found.jobs, found.never_started), (2, 1));
    // Each used half; the shares are 0.75 and the remaining 0.25.
    assert!((found.largest_deficit - 0.25).abs() < 1e-12);
    let (a, b) = (1.0 / 0.75, 1.0 / 0.25);
    assert!((found.jain_fairness - (a + b) * (a + b) / (2.0 * (a * a + b * b))).abs() < 1e-9);
    assert_eq!(found.qos_met_fraction, Some(2.0 / 3.0));
    assert_eq!(found.group_span_mean, Some(2.0));
    // Both tenants are one party.
    let one = MetricInputs {
        parties: vec![Party {
            name: "site".to_owned(),
            share: None,
        }],
        party_of: vec![0, 0],
        ..size(4)
    };
    assert_eq!(measured(&work, one).jain_fairness, 1.0);
}

#[test]
fn nothing_is_measured_of_nothing() {
    let found = measured(&[(0, 10, 1, 0, None)], size(4));
    assert_eq!(
        (found.jobs, found.mean_wait_s, found.utilization),
        (0, 0.0, 0.0)
    );
    assert_eq!((found.jain_fairness, found.makespan_s), (1.0, 0.0));
}
