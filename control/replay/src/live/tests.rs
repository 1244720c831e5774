//! The product with recorded and generated workloads.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    check::{ScheduleFacts, check},
    generate::{GeneratorSettings, generate},
    policy,
    run::{self, Machine, ReplayOptions, ReplayScheduler},
    schedule::{EventOrder, NodeSets, Schedule},
    textbook::{self, TextbookScheduler},
    trace,
    workload::{Overrun, fit},
};
use std::path::Path;

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/");

fn recorded(name: &str, size: u32, first: usize) -> Workload {
    let path = Path::new(TRACES).join(name);
    let mut workload = trace::open(&path, trace::Options::default()).unwrap();
    fit(&mut workload, size.into(), Overrun::End);
    workload.jobs.truncate(first);
    workload
}

fn options(weights: &str, judge: ProposalCheck) -> Options {
    Options {
        policy: Some(policy::named(weights).unwrap()),
        judge,
        ..Options::default()
    }
}

fn served(
    cluster: &Cluster,
    workload: &Workload,
    options: Options,
) -> (Schedule, SkippedLines, ActionCounts) {
    let mut schedule = Schedule::of(workload.jobs.len(), true);
    schedule.nodes = Some(NodeSets::of(workload.jobs.len(), cluster.nodes.keys()));
    let mut skipped = SkippedLines::default();
    let deeds = run(cluster, workload, &options, &mut schedule, &mut skipped).unwrap();
    (schedule, skipped, deeds)
}

fn starts(schedule: &Schedule) -> Vec<u64> {
    schedule
        .served
        .iter()
        .map(|served| served.start_ms)
        .collect()
}

/// With all weights 0 the product is EASY: every job has the same start.
#[test]
fn without_weights_it_is_easy() {
    for (name, size, first) in [
        ("KTH-SP2-1996-2.swf.gz", 100, 2_500),
        ("lublin_256.swf.gz", 256, 700),
        ("NASA-iPSC-1993-3.1-cln.swf.gz", 128, 1_500),
    ] {
        let workload = recorded(name, size, first);
        let mut easy = Schedule::of(first, false);
        textbook::run(
            TextbookScheduler::Easy,
            size,
            EventOrder::Together,
            &workload.jobs,
            &mut easy,
        );
        let cluster = Cluster::identical(size.into()).unwrap();
        let (found, skipped, deeds) =
            served(&cluster, &workload, options("none", ProposalCheck::Quorum));
        assert_eq!(starts(&found), starts(&easy), "{name}");
        let backfilled = |of: &Schedule| {
            of.served
                .iter()
                .filter(|served| served.is_backfilled)
                .count()
        };
        assert_eq!(backfilled(&found), backfilled(&easy), "{name}");
        assert_eq!((skipped.total(), deeds.refused), (0, 0), "{name}");
        assert!(
            deeds.commands > 3 * first as u64,
            "every end is told by each node: {deeds:?}"
        );
    }
}

/// The same for generated workloads with a high load, without published results.
#[test]
fn without_weights_it_is_easy_on_random_work_too() {
    for seed in 0..12 {
        let workload = made(seed, 48, 250);
        let mut easy = Schedule::of(workload.jobs.len(), false);
        textbook::run(
            TextbookScheduler::Easy,
            48,
            EventOrder::Together,
            &workload.jobs,
            &mut easy,
        );
        let cluster = Cluster::identical(48).unwrap();
        let (found, ..) = served(
            &cluster,
            &workload,
            options("none", ProposalCheck::AcceptAll),
        );
        assert_eq!(starts(&found), starts(&easy), "seed {seed}");
    }
}

fn made(seed: u64, nodes: u32, jobs: u32) -> Workload {
    generate(GeneratorSettings {
        seed,
        jobs,
        nodes,
        load: 0.9 + 0.05 * (seed % 5) as f64,
        largest: nodes,
        tenants: 4,
    })
}

/// Without refusals the judge makes no difference, and a replay is repeatable. The invariants of every schedule hold.
#[test]
fn books_match_quorum() {
    for (seed, weights) in (0..).zip([
        "hpc-batch",
        "balanced",
        "ml-training",
        "none",
        "interactive",
    ]) {
        let workload = made(seed, 48, 200);
        let cluster = Cluster::dragonfly(6, 8).unwrap();
        let quorum = served(&cluster, &workload, options(weights, ProposalCheck::Quorum));
        let books = served(
            &cluster,
            &workload,
            options(weights, ProposalCheck::AcceptAll),
        );
        assert_eq!(quorum.0, books.0, "{weights}");
        let again = served(&cluster, &workload, options(weights, ProposalCheck::Quorum));
        assert_eq!(quorum.0.digest(), again.0.digest(), "{weights}");
        let known = ScheduleFacts {
            nodes: quorum.0.nodes.as_ref(),
            promises: quorum.0.promises.as_deref(),
            keeps_order: weights == "none",
        };
        let faults = check(&workload, &quorum.0.served, 48, known);
        assert_eq!(faults.descriptions, Vec::<String>::new(), "{weights}");
    }
}

fn clusters_file(text: &str) -> Cluster {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Cluster::open(file.path()).unwrap()
}

const SITE: &str = "
groups:
  - {name: a, nodes: 'a[01-08]', model: big, vcluster: batch, power_domain: row}
  - {name: b, nodes: 'b[01-08]', model: small, vcluster: batch, power_domain: row}
  - {name: c, nodes: 'c[01-04]', model: small, vcluster: debug}
models:
  big: {gpus: 8, gpu_model: NVIDIA H100, work_w: 4000}
  small: {gpus: 0, work_w: 500}
power_domains:
  hall: {budget_kw: 30}
  row: {parent: hall, budget_kw: 26}
vclusters:
  batch: {}
  debug: {weights: {wait_time: 1}, reservations: all, queues: [queue0]}
projects:
  phys: {max_nodes: 6, share: 0.5}
accounts: {group1: phys, group2: phys}
classes: {queue0: 8}
targets_s: {8: 60}
";

/// Makes jobs from (submit, run, size, group, queue); times are seconds.
fn lines(of: &[(u64, u64, u32, u32, u32)]) -> Workload {
    let line = |(number, (submit, run, size, group, queue)): (u64, &(u64, u64, u32, u32, u32))| {
        format!(
            "{number} {submit} 0 {run} {size} -1 -1 {size} {run} -1 1 1 {group} -1 {queue} -1 -1 -1\n"
        )
    };
    let text: String = (1..).zip(of).map(line).collect();
    let lines = crate::lines::Lines::read(std::io::Cursor::new(text)).unwrap();
    trace::read(lines, Path::new("trace"), trace::Options::default()).unwrap()
}

#[test]
fn limits_queues_and_power_of_a_site_hold() {
    let cluster = clusters_file(SITE);
    let workload = lines(&[
        // Project phys: 4 of 6 nodes; the next job exceeds the limit and is submitted again; the third one is too large
        // for the limit.
        (0, 100, 4, 1, 1),
        (1, 100, 4, 2, 1),
        (2, 100, 7, 1, 1),
        // Other projects: there are enough nodes, but not enough power.
        (3, 100, 12, 3, 1),
        // vCluster debug.
        (4, 100, 2, 4, 0),
        // More nodes than debug has.
        (5, 100, 5, 4, 0),
    ]);
    let (found, skipped, _) = served(
        &cluster,
        &workload,
        options("balanced", ProposalCheck::Quorum),
    );
    let descriptions = skipped.descriptions();
    let expect_description = |words: &[&str]| {
        let has_all = |description: &&String| words.iter().all(|word| description.contains(word));
        assert!(
            descriptions.iter().any(|description| has_all(&description)),
            "{words:?}: {descriptions:?}"
        );
    };
    expect_description(&["line 3 is refused", "limit: 6"]);
    expect_description(&["line 6", "vCluster debug has 4 nodes"]);
    let nodes = found.nodes.as_ref().unwrap();
    let at = |job: usize| found.served[job].start_ms / 1000;
    assert_eq!(at(1), 100);
    let gives_up = Options {
        refused: OverLimitPolicy::GiveUp,
        ..options("balanced", ProposalCheck::Quorum)
    };
    let (_, skipped, _) = served(&cluster, &workload, gives_up);
    assert_eq!(
        (skipped.counts()[&SkipReason::Refused], skipped.refused()),
        (2, 3)
    );
    // Nodes with low power first: 4 of b draw 2 kW.
    assert_eq!((at(0), nodes.hostlist(0).as_str()), (0, "b[01-04]"));
    // 4 of b and 8 of a would draw 34 kW in addition to the 2 kW in use, with a budget of 26 kW. All of b and 4 of a
    // draw 20 kW, and the job that was refused first has 4 of b until 200.
    assert_eq!(
        (at(3), nodes.hostlist(3).as_str()),
        (200, "a[01-04],b[01-08]")
    );
    assert_eq!((at(4), nodes.hostlist(4).as_str()), (4, "c[01-02]"));
    // The job with a target of a minute met it.
    let outcome = run::run(
        &workload,
        &Machine::Cluster(Box::new(cluster)),
        &ReplayScheduler::Lattice(None),
        &ReplayOptions::default(),
    )
    .unwrap();
    assert_eq!(outcome.metrics.qos_met_fraction, Some(0.5));
    assert_eq!(
        (outcome.metrics.refused, outcome.metrics.never_started),
        (2, 0)
    );
}

/// Two of three jobs can never start: the power for three nodes is never available.
#[test]
fn unstarted_job_has_reason() {
    let cluster = clusters_file(
        "
groups: [{nodes: 'a[1-4]', model: m, power_domain: d}]
models: {m: {work_w: 1000}}
power_domains: {d: {budget_kw: 2}}
",
    );
    let workload = lines(&[
        (0, 10, 2, 1, 1),
        (1, 10, 3, 1, 1),
        (2, 10, 4, 2, 1),
        (3, 10, 1, 2, 1),
    ]);
    for judge in [ProposalCheck::Quorum, ProposalCheck::AcceptAll] {
        let (found, skipped, _) = served(&cluster, &workload, options("balanced", judge));
        assert_eq!(skipped.counts()[&SkipReason::NeverStarted], 2, "{judge:?}");
        assert!(
            skipped.descriptions()[0].starts_with("line 2 never starts: "),
            "{:?}",
            skipped.descriptions()
        );
        assert!(
            skipped.descriptions()[0].contains("power"),
            "{:?}",
            skipped.descriptions()
        );
        assert!(found.served[3].has_started());
    }
}

/// On a machine without hardware descriptions any node matches; on a described machine only nodes with the requested
/// GPUs.
#[test]
fn gpus_count_where_they_are_described() {
    let text = "JobID|Submit|NNodes|ElapsedRaw|AllocTRES\n1|5|1|10|gres/gpu=4,node=1\n";
    let lines = crate::lines::Lines::read(std::io::Cursor::new(text)).unwrap();
    let workload = trace::read(lines, Path::new("trace"), trace::Options::default()).unwrap();
    let served = |cluster: Cluster| {
        let (found, skipped, _) = served(
            &cluster,
            &workload,
            options("balanced", ProposalCheck::Quorum),
        );
        (found.served[0].has_started(), skipped.descriptions())
    };
    assert_eq!(served(Cluster::identical(3).unwrap()), (true, vec![]));
    let described = "groups: [{nodes: a, model: m}, {nodes: b}]\nmodels: {m: {gpus: 2}}\n";
    let (has_started, descriptions) = served(clusters_file(described));
    assert!(
        !has_started
            && descriptions[0].contains("line 2 requests more matching nodes than the machine has"),
        "{descriptions:?}"
    );
}

#[test]
fn a_year_of_nothing_is_no_hindrance() {
    let year = 366 * 86_400;
    let workload = lines(&[
        (0, 50, 1, 1, 1),
        (year, 50, 2, 1, 1),
        (year + 1, 3, 2, 1, 1),
    ]);
    let cluster = Cluster::identical(2).unwrap();
    let (found, skipped, _) = served(
        &cluster,
        &workload,
        options("balanced", ProposalCheck::Quorum),
    );
    assert_eq!(starts(&found), [0, year * 1000, (year + 50) * 1000]);
    assert_eq!(skipped.total(), 0);
}

/// Scores change between events, and the next job to start may change. More frequent plans detect this.
#[test]
fn plans_may_be_made_more_often() {
    let workload = made(3, 48, 200);
    let cluster = Cluster::dragonfly(6, 8).unwrap();
    let by_events = served(
        &cluster,
        &workload,
        options("balanced", ProposalCheck::AcceptAll),
    );
    let often = Options {
        every_ms: Some(60_000),
        ..options("balanced", ProposalCheck::AcceptAll)
    };
    let often = served(&cluster, &workload, often);
    assert!(
        often.2.plans > by_events.2.plans,
        "{:?} {:?}",
        often.2,
        by_events.2
    );
    assert!(often.0.served.iter().all(JobStart::has_started));
}
