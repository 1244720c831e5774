//! Comparison with published results, and small cases by hand.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    metrics::{MetricInputs, Metrics, measure},
    schedule::Schedule,
    trace::{self, UNKNOWN, Workload},
    workload::{Overrun, fit},
};
use serde::Deserialize;
use std::path::Path;

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/");

fn measured(name: &str, procs: u32, policy: TextbookScheduler, order: EventOrder) -> Metrics {
    let mut workload =
        trace::open(&Path::new(TRACES).join(name), trace::Options::default()).unwrap();
    fit(&mut workload, procs.into(), Overrun::End);
    let mut schedule = Schedule::of(workload.jobs.len(), false);
    run(policy, procs, order, &workload.jobs, &mut schedule);
    let terms = MetricInputs {
        size: procs.into(),
        ..MetricInputs::default()
    };
    measure(&workload, &schedule.served, &terms)
}

fn is_within(found: f64, wanted: f64, part: f64) -> bool {
    (found - wanted).abs() <= wanted * part
}

#[derive(Deserialize)]
struct File {
    published: Published,
}

#[derive(Deserialize)]
struct Published {
    jobs: u64,
    avgft_s: f64,
    maxft_s: f64,
    avgbsld: f64,
    maxbsld: f64,
}

/// Results of Gaussier, Glesser, Reis, Trystram (SC'15) for this file.
#[test]
fn easy_is_as_published() {
    let file = Path::new(TRACES).join("KTH-SP2-1996-2.published-easy.json");
    let file: File = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let published = file.published;
    for order in [EventOrder::OneByOne, EventOrder::Together] {
        let found = measured("KTH-SP2-1996-2.swf.gz", 100, TextbookScheduler::Easy, order);
        assert_eq!((found.jobs, found.never_started), (published.jobs, 0));
        assert_eq!(found.max_flow_s, published.maxft_s);
        assert_eq!(found.max_bounded_slowdown, published.maxbsld);
        assert!(
            is_within(found.mean_flow_s, published.avgft_s, 0.001),
            "{}",
            found.mean_flow_s
        );
        assert!(
            is_within(found.mean_bounded_slowdown, published.avgbsld, 0.005),
            "{}",
            found.mean_bounded_slowdown
        );
    }
}

/// EASY-SJBF in the same paper.
#[test]
fn shortest_first_is_as_published() {
    let found = measured(
        "KTH-SP2-1996-2.swf.gz",
        100,
        TextbookScheduler::Sjbf,
        EventOrder::OneByOne,
    );
    assert!(
        is_within(found.mean_flow_s, 14_764.00, 0.001),
        "{}",
        found.mean_flow_s
    );
    assert!(
        is_within(found.mean_bounded_slowdown, 69.4054, 0.005),
        "{}",
        found.mean_bounded_slowdown
    );
}

/// Results of an independent simulator (`fixtures/traces/README.md` lists the logs).
#[test]
fn easy_is_as_another_simulator_has_it() {
    for (name, procs, jobs, wait_s, slowdown, utilization) in [
        (
            "NASA-iPSC-1993-3.1-cln.swf.gz",
            128,
            18_066,
            4.07,
            1.0119,
            0.4661,
        ),
        (
            "UniLu-Gaia-2014-2.swf.gz",
            2_004,
            51_859,
            180.72,
            1.6116,
            0.4524,
        ),
    ] {
        let found = measured(name, procs, TextbookScheduler::Easy, EventOrder::OneByOne);
        assert_eq!(found.jobs, jobs, "{name}");
        for (found, wanted) in [
            (found.mean_wait_s, wait_s),
            (found.mean_bounded_slowdown, slowdown),
            (found.utilization, utilization),
        ] {
            assert!(
                is_within(found, wanted, 0.01),
                "{name}: {found} for {wanted}"
            );
        }
    }
}

/// Makes jobs from (submit, run, estimate, size); times are seconds.
fn jobs(of: &[(u64, u64, u64, u32)]) -> Vec<Job> {
    let job = |(number, (submit, run, estimate, size)): (u64, &(u64, u64, u64, u32))| Job {
        number,
        line: number,
        submit_ms: submit * 1000,
        run_ms: run * 1000,
        estimate_ms: estimate * 1000,
        waited_ms: UNKNOWN,
        size: *size,
        user: 0,
        tenant: 0,
        request: 0,
    };
    (1..).zip(of).map(job).collect()
}

fn starts(policy: TextbookScheduler, procs: u32, of: &[(u64, u64, u64, u32)]) -> Vec<u64> {
    let jobs = jobs(of);
    let mut schedule = Schedule::of(jobs.len(), false);
    run(policy, procs, EventOrder::Together, &jobs, &mut schedule);
    schedule
        .served
        .iter()
        .map(|served| served.start_ms / 1000)
        .collect()
}

/// A job of size 6 runs until 50, with an estimate until 100; a job of size 8 waits; then a long job, a short job and
/// one of size 2 arrive.
const CASE: [(u64, u64, u64, u32); 5] = [
    (0, 50, 100, 6),
    (1, 10, 10, 8),
    (2, 300, 300, 2),
    (3, 40, 40, 3),
    (4, 20, 20, 2),
];

#[test]
fn overtaking_follows_policy() {
    // No job starts ahead of the job of size 8; then jobs start in turn.
    assert_eq!(
        starts(TextbookScheduler::Fcfs, 10, &CASE),
        [0, 50, 50, 60, 60]
    );
    // The long job takes the 2 processors that remain when the job of size 8 starts; the job of size 3 does not fit in
    // addition.
    assert_eq!(
        starts(TextbookScheduler::Easy, 10, &CASE),
        [0, 50, 2, 60, 4]
    );
    assert_eq!(
        starts(TextbookScheduler::Conservative, 10, &CASE),
        [0, 50, 2, 60, 4]
    );
}

#[test]
fn among_those_that_go_ahead_the_shortest_is_first() {
    let case = [
        (0, 100, 100, 8),
        (1, 10, 10, 9),
        (1, 90, 90, 2),
        (1, 20, 20, 2),
        (1, 30, 30, 2),
    ];
    // In the instant of their arrival only one of them fits.
    assert_eq!(
        starts(TextbookScheduler::Easy, 10, &case),
        [0, 100, 1, 110, 110]
    );
    assert_eq!(
        starts(TextbookScheduler::Sjbf, 10, &case),
        [0, 100, 110, 1, 21]
    );
}

#[test]
fn everybody_keeps_a_promise_of_conservative_and_the_first_one_of_easy() {
    // With conservative backfilling the third job has a reservation after the second; EASY lets the fourth job delay
    // it.
    let case = [
        (0, 100, 100, 6),
        (1, 100, 100, 10),
        (2, 100, 100, 8),
        (3, 250, 250, 4),
    ];
    assert_eq!(
        starts(TextbookScheduler::Conservative, 10, &case),
        [0, 100, 200, 300]
    );
    let case = [
        (0, 100, 100, 6),
        (1, 100, 100, 5),
        (2, 100, 100, 9),
        (3, 250, 250, 4),
    ];
    assert_eq!(starts(TextbookScheduler::Easy, 10, &case), [0, 100, 253, 3]);
    assert_eq!(
        starts(TextbookScheduler::Conservative, 10, &case),
        [0, 100, 200, 300]
    );
}

/// Every policy serves all jobs of a random workload, keeps its promises to the first waiting job, and never exceeds
/// the machine.
#[test]
fn what_must_hold_holds_of_random_work() {
    for seed in 0..40 {
        let workload = crate::generate::generate(crate::generate::GeneratorSettings {
            seed,
            jobs: 400,
            nodes: 64,
            load: 0.8 + 0.01 * seed as f64,
            largest: 64,
            tenants: 3,
        });
        for policy in [
            TextbookScheduler::Fcfs,
            TextbookScheduler::Easy,
            TextbookScheduler::Sjbf,
            TextbookScheduler::Conservative,
        ] {
            for order in [EventOrder::OneByOne, EventOrder::Together] {
                holds(&workload, policy, order);
            }
        }
    }
}

fn holds(workload: &Workload, policy: TextbookScheduler, order: EventOrder) {
    let mut schedule = Schedule::of(workload.jobs.len(), true);
    run(policy, 64, order, &workload.jobs, &mut schedule);
    assert!(
        schedule.served.iter().all(JobStart::has_started),
        "{policy:?} {order:?}"
    );
    let known = crate::check::ScheduleFacts {
        promises: schedule.promises.as_deref(),
        keeps_order: true,
        ..crate::check::ScheduleFacts::default()
    };
    let faults = crate::check::check(workload, &schedule.served, 64, known);
    assert_eq!(
        faults.descriptions,
        Vec::<String>::new(),
        "{policy:?} {order:?}"
    );
}
