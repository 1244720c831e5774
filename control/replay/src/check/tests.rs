//! Violations: each invariant check finds a schedule that violates its invariant.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    cluster::Cluster,
    generate::{GeneratorSettings, generate},
    live,
    schedule::Schedule,
};

const NODES: u32 = 16;

fn sound() -> (Workload, Schedule) {
    let workload = generate(GeneratorSettings {
        seed: 1,
        jobs: 100,
        nodes: NODES,
        load: 1.1,
        largest: 8,
        tenants: 2,
    });
    let cluster = Cluster::identical(NODES.into()).unwrap();
    let mut schedule = Schedule::of(100, true);
    schedule.nodes = Some(NodeSets::of(100, cluster.nodes.keys()));
    let options = live::Options {
        policy: Some(crate::policy::named("none").unwrap()),
        ..live::Options::default()
    };
    live::run(
        &cluster,
        &workload,
        &options,
        &mut schedule,
        &mut Default::default(),
    )
    .unwrap();
    (workload, schedule)
}

fn found(workload: &Workload, schedule: &Schedule, keeps_order: bool) -> Vec<String> {
    let known = ScheduleFacts {
        nodes: schedule.nodes.as_ref(),
        promises: schedule.promises.as_deref(),
        keeps_order,
    };
    check(workload, &schedule.served, NODES.into(), known).descriptions
}

#[test]
fn nothing_is_found_where_everything_holds() {
    let (workload, schedule) = sound();
    assert!(schedule.promises.as_ref().unwrap().len() > 10);
    assert_eq!(found(&workload, &schedule, true), Vec::<String>::new());
}

#[test]
fn a_start_before_its_submit_is_found() {
    let (workload, mut schedule) = sound();
    schedule.served[7].start_ms = workload.jobs[7].submit_ms - 1;
    assert!(found(&workload, &schedule, true)[0].starts_with("job 8 starts at "));
}

#[test]
fn more_in_use_than_there_is_is_found() {
    let (mut workload, schedule) = sound();
    workload.jobs[7].size = NODES + 1;
    let violations = found(&workload, &schedule, true);
    assert!(
        violations
            .iter()
            .any(|violation| violation.contains("are in use at")),
        "{violations:?}"
    );
    assert!(
        violations
            .iter()
            .any(|violation| violation.starts_with("job 8 has ")),
        "{violations:?}"
    );
}

#[test]
fn a_node_of_two_jobs_is_found() {
    let (mut workload, schedule) = sound();
    // The job runs into the time of the next holder of its nodes.
    workload.jobs[7].run_ms *= 50;
    let violations = found(&workload, &schedule, true);
    assert!(
        violations
            .iter()
            .any(|violation| violation.contains("is held by job 8 until")),
        "{violations:?}"
    );
}

#[test]
fn a_promise_that_is_not_kept_is_found() {
    let (workload, mut schedule) = sound();
    let promise = *schedule.promises.as_ref().unwrap().last().unwrap();
    schedule.served[promise.job as usize].start_ms = promise.starts_ms + 1;
    let number = workload.jobs[promise.job as usize].number;
    let wanted = format!(
        "job {number} had a promised start at {} ms but starts",
        promise.starts_ms
    );
    let violations = found(&workload, &schedule, true);
    assert!(
        violations
            .iter()
            .any(|violation| violation.starts_with(&wanted)),
        "{violations:?}"
    );
}

#[test]
fn a_promise_that_moves_back_is_found() {
    let (workload, mut schedule) = sound();
    let promises = schedule.promises.as_mut().unwrap();
    let later = PromisedStart {
        starts_ms: promises[0].starts_ms + 1000,
        ..promises[0]
    };
    promises.insert(1, later);
    let violations = found(&workload, &schedule, true);
    assert!(
        violations
            .iter()
            .any(|violation| violation.contains("the promised start moved to")),
        "{violations:?}"
    );
    // Where factors other than age count, another job may have been served in turn.
    let nobody_overtakes = found(&workload, &schedule, false);
    assert!(
        nobody_overtakes
            .iter()
            .any(|violation| violation.contains("the promised start moved to")),
        "{nobody_overtakes:?}"
    );
    let at = schedule.promises.as_ref().unwrap()[0].at_ms;
    let other = schedule
        .served
        .iter_mut()
        .find(|served| served.start_ms < at)
        .unwrap();
    (other.start_ms, other.is_backfilled) = (at, false);
    let overtaken = found(&workload, &schedule, false);
    assert!(
        !overtaken
            .iter()
            .any(|violation| violation.contains("the promised start moved to")),
        "{overtaken:?}"
    );
}
