//! Large DAGs and arrays. A DAG with many members and an array with many elements that do nothing, on real daemons. The
//! test measures the time from the submit until the last one is done, the cost for the quorum, and the memory. Prints a
//! table for each; `LATTICE_OUTPUT=json` prints one object per line.
//!
//! `LATTICE_MEMBERS` and `LATTICE_ELEMENTS` are their numbers (0 skips one), `LATTICE_AGENTS` is the number of nodes,
//! and `LATTICE_SCRIPT_KIB` is the size of each script.

mod cost;
mod watched_events;

use cost::Costs;
use lattice_api::{
    AllocationRequest,
    dag::{AfterBody, DagRequest, MemberRequest},
};
use lattice_client::{AllocationView, SubmitOptions};
use lattice_quorum_types::AllocationId;
use lattice_tests::{
    programs,
    site::{PROJECT, Plan, Site},
};
use serde_json::json;
use std::time::{Duration, Instant};
use watched_events::{SubmitWatch, WatchReport};

/// Members that may run at the same time: each depends on two earlier ones.
const WIDTH: usize = 20;
/// Single jobs, one after the other, before the many.
const ALONE: usize = 10;
/// Time until the last of `count` jobs must be done, the minimum performance on a busy machine with two cores.
fn patience(count: usize) -> Duration {
    Duration::from_secs(60) + Duration::from_millis(500) * u32::try_from(count).unwrap()
}

fn number(name: &str, otherwise: usize) -> usize {
    let given = std::env::var(name).ok();
    given.map_or(otherwise, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graph_and_an_array_of_many_are_done() {
    let (members, elements) = (
        number("LATTICE_MEMBERS", 60),
        number("LATTICE_ELEMENTS", 120),
    );
    let nodes: Vec<String> = (1..=number("LATTICE_AGENTS", 4))
        .map(|n| format!("n{n:02}"))
        .collect();
    let site = Site::found(programs!(), &Plan::with_agents(nodes.clone())).await;
    let work = ManyJob::new(number("LATTICE_SCRIPT_KIB", 0));
    alone(&site, &work).await;
    if members > 0 {
        graph(&site, &work, members).await;
        site.are_ready(&nodes).await;
    }
    if elements > 0 {
        array(&site, &work, elements).await;
        site.are_ready(&nodes).await;
    }
    site.leaves_nothing().await;
}

/// Job that each member runs.
struct ManyJob {
    script: String,
}

impl ManyJob {
    /// A script of about this size that does nothing.
    fn new(kib: usize) -> Self {
        let line = format!("# {}\n", "-".repeat(61));
        let script = format!(
            "#!/bin/sh\n{}exit 0\n",
            line.repeat(kib * 1024 / line.len())
        );
        Self { script }
    }

    fn request(&self) -> AllocationRequest {
        AllocationRequest {
            project: PROJECT.to_owned(),
            nodes: 1,
            script: Some(self.script.clone()),
            walltime: Some("10m".to_owned()),
            ..AllocationRequest::default()
        }
    }
}

/// Single jobs on an idle cluster: time from the submit until the quorum has the start and the end.
async fn alone(site: &Site, work: &ManyJob) {
    let observer = site.observer();
    let mut rows = Vec::new();
    for _ in 0..ALONE {
        let submits = SubmitWatch::from_now(&observer, 1).await;
        let request = work.request();
        let begun = Instant::now();
        let submitted = site.api().submit(&request, SubmitOptions::default());
        let id = submitted.await.unwrap().id.unwrap();
        let acknowledged = begun.elapsed();
        let seen = submits.all(patience(1)).await;
        assert_eq!(seen.done, [id].into());
        rows.push([
            acknowledged,
            seen.first_start - begun,
            seen.last_end - begun,
        ]);
    }
    let middle = |column: usize| {
        let mut all: Vec<Duration> = rows.iter().map(|row| row[column]).collect();
        all.sort();
        ms(all[all.len() / 2])
    };
    let [acknowledged, started, ended] = [0, 1, 2].map(middle);
    match is_json() {
        true => println!(
            "{}",
            json!({"what": "alone", "submits": ALONE, "median_ms": {
                "acknowledged": acknowledged, "started": started, "ended": ended}})
        ),
        false => println!(
            "one on an idle cluster, median of {ALONE}, ms from its submit: acknowledged {acknowledged}, start \
             known {started}, end known {ended}"
        ),
    }
}

async fn graph(site: &Site, work: &ManyJob, members: usize) {
    let member = |place: usize| {
        let mut request = work.request();
        request.name = Some(format!("member-{place:04}"));
        let before = |at: usize| format!("member-{at:04}");
        let after = match place.checked_sub(WIDTH) {
            None => Vec::new(),
            Some(above) => {
                let row = above - above % WIDTH;
                vec![before(above), before(row + (above + 1) % WIDTH)]
            }
        };
        MemberRequest {
            after: AfterBody::Names(after),
            request,
        }
    };
    let request = DagRequest {
        name: "many".to_owned(),
        members: (0..members).map(member).collect(),
    };
    let observer = site.observer();
    let submits = SubmitWatch::from_now(&observer, members).await;
    let costs = Costs::from_now(site).await;
    let begun = Instant::now();
    let dag = site.api().submit_dag(&request, None).await.unwrap().id;
    let acknowledged = begun.elapsed();
    let seen = submits.all(patience(members)).await;
    let costs = costs.until_now(site).await;
    let shown = site.api().dag(dag).await.unwrap();
    assert_eq!(
        (shown.state.as_str(), shown.unfinished),
        ("completed", 0),
        "{:?}",
        shown.failed
    );
    let numbers = shown.members.iter().map(|member| member.allocation);
    assert_eq!(seen.done, numbers.collect());
    print(
        "members of a graph",
        members,
        acknowledged,
        begun,
        &seen,
        &costs,
    );
}

async fn array(site: &Site, work: &ManyJob, elements: usize) {
    let mut request = work.request();
    request.array = Some(format!("0-{}", elements - 1));
    let observer = site.observer();
    let submits = SubmitWatch::from_now(&observer, elements).await;
    let costs = Costs::from_now(site).await;
    let begun = Instant::now();
    let submitted = site.api().submit(&request, SubmitOptions::default());
    let id = submitted.await.unwrap().id.unwrap();
    let acknowledged = begun.elapsed();
    let seen = submits.all(patience(elements)).await;
    let costs = costs.until_now(site).await;
    let shown: AllocationView = site.reaches(id, &["completed", "failed"]).await;
    let tally = shown.element_counts.unwrap();
    assert_eq!(shown.state, "completed");
    assert_eq!(tally.completed as usize, elements);
    let numbers = (1..=elements as u64).map(|place| AllocationId(id.0 + place));
    assert_eq!(seen.done, numbers.collect());
    print(
        "elements of an array",
        elements,
        acknowledged,
        begun,
        &seen,
        &costs,
    );
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

fn is_json() -> bool {
    std::env::var("LATTICE_OUTPUT").is_ok_and(|format| format == "json")
}

fn print(
    what: &str,
    count: usize,
    acknowledged: Duration,
    begun: Instant,
    seen: &WatchReport,
    costs: &Costs,
) {
    let each = |all: u64| (all as f64 / count as f64 * 100.0).round() / 100.0;
    let last = seen.last_end - begun;
    let mut rows = vec![
        ("submit acknowledged, ms", ms(acknowledged)),
        ("first start known, ms", ms(seen.first_start - begun)),
        ("last end known, ms", ms(last)),
        (
            "done a second",
            (count as f64 / last.as_secs_f64() * 10.0).round() / 10.0,
        ),
        ("log entries each", each(costs.entries)),
        ("revisions each", each(costs.revisions)),
        ("events each", each(seen.events)),
        ("bytes of events each", each(seen.bytes)),
    ];
    for (daemon, cost) in &costs.of {
        let name = |what: &'static str| -> &'static str { format!("{daemon}: {what}").leak() };
        rows.push((name("bytes written to disk each"), each(cost.written)));
        rows.push((name("processor ms each"), each(cost.cpu_ms)));
        rows.push((name("peak memory, MiB"), cost.peak_mib));
        rows.push((name("memory before, MiB"), cost.before_mib));
    }
    if is_json() {
        let values: serde_json::Map<_, _> = rows
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        return println!(
            "{}",
            json!({"what": what, "count": count, "values": values})
        );
    }
    println!("{count} {what}");
    for (name, value) in rows {
        println!("  {name:<44} {value:>12}");
    }
}
