//! Steps for services that scale with a metric, which a real Prometheus scrapes from a page of the scenario.

use crate::{
    cluster::checkpoint_directory,
    graphs::{millis_between, work},
    jobs, step,
    steps::{Step, StepMatch},
    users,
    world::{Job, World},
};
use lattice_api::allocation::{MetricBody, ScaleBody};
use lattice_client::{AllocationView, SubmitOptions};
use lattice_tests::{
    prometheus::Prometheus, script::with_interpreter, site::Plan, wait::eventually,
};
use std::{collections::BTreeMap, time::Duration};

/// Series that services follow.
const SERIES: &str = "load";
/// Grace, seconds; longer than a scenario needs to observe that a process holds out.
const GRACE_S: u64 = 60;

/// State of a scenario's service.
#[derive(Default)]
pub struct Service {
    /// Control's metrics before the service.
    before: BTreeMap<String, f64>,
}

/// Nodes with running or assigned ranks, in rank order.
pub fn staying(view: &AllocationView) -> Vec<String> {
    let stays = |phase: &str| ["assigned", "running"].contains(&phase);
    let ranks = view.ranks.iter().filter(|rank| stays(&rank.phase));
    ranks.map(|rank| rank.node.clone()).collect()
}

/// Times of changes in the number of nodes after the start, from the record: later ranks that started, and ranks that
/// left.
fn changes(view: &AllocationView) -> Vec<String> {
    let began = view
        .ranks
        .iter()
        .skip(1)
        .filter(|rank| rank.phase == "running");
    let left = view.ranks.iter().filter(|rank| rank.phase == "left");
    let mut at: Vec<String> = began
        .chain(left)
        .filter_map(|rank| rank.since.clone())
        .collect();
    at.sort();
    at
}

/// Control's metrics by series.
async fn page(world: &World) -> BTreeMap<String, f64> {
    let get = (reqwest::Method::GET, "/metrics");
    let (status, text) = users::ask(world, "ada", get, "*/*", String::new()).await;
    assert_eq!(status, 200, "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let number = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series.to_owned(), value.parse().ok()?))
    };
    lines.filter_map(number).collect()
}

/// Increase of a vCluster's series since the service was submitted.
async fn grown(world: &World, series: &str) -> u64 {
    let now = page(world).await.get(series).copied().unwrap_or(0.0);
    let before = world.service.before.get(series).copied().unwrap_or(0.0);
    (now - before) as u64
}

fn failures(vcluster: &str) -> String {
    format!("lattice_autoscaling_metric_query_failures_total{{vcluster=\"{vcluster}\"}}")
}

/// Waits until this many more evaluations had no value.
async fn fails(world: &World, more: u64) {
    let before = grown(world, &failures("default")).await;
    eventually("queries fail", || async {
        (grown(world, &failures("default")).await >= before + more).then_some(())
    })
    .await;
}

pub fn prometheus(world: &World) -> &Prometheus {
    world
        .prometheus
        .as_ref()
        .expect("a Prometheus is given first")
}

/// Waits until this many more queries were answered. Only one service is evaluated.
async fn evaluated(world: &World, more: u64) {
    let begun = prometheus(world).asked().await.unwrap();
    eventually(&format!("it is evaluated {more} times"), || async {
        (prometheus(world).asked().await? >= begun + more).then_some(())
    })
    .await;
}

/// Submits a service, and waits until it runs with its minimum of nodes.
async fn serves(world: &mut World, name: &str, (min, max): (u32, u32), said: &StepMatch) {
    submits(world, name, (min, max), said).await;
    let first = world.shows(name, "runs", |view| {
        (view.state == "running").then(|| staying(view).len())
    });
    assert_eq!(first.await, min as usize, "it begins with its least nodes");
}

async fn submits(world: &mut World, name: &str, (min, max): (u32, u32), said: &StepMatch) {
    world.service.before = page(world).await;
    let script = world.script();
    let waits = work("ends when asked", &script).unwrap();
    let mut request = world.site().request(None, &waits);
    request.nodes = min;
    let mut target = 10.0;
    for (what, value) in said.pairs() {
        match what.as_str() {
            "target" => target = value.parse().unwrap(),
            "does" if value.starts_with("counts ") => {
                request.script = Some(with_interpreter(&jobs::does(&value, &script)));
            }
            "does" => {
                let commands = work(&value, &script).expect(&value);
                request.script = Some(with_interpreter(&commands));
            }
            "project" => request.project = value,
            "class" => request.class = Some(value.parse().unwrap()),
            "checkpoint" => request.checkpoint = Some(jobs::when_asked(&value)),
            "takes" => request.checkpoint_time = Some(value),
            "vcluster" => request.vcluster = Some(value),
            other => panic!("no service has {other:?}"),
        }
    }
    request.scale = Some(ScaleBody {
        min_nodes: min,
        max_nodes: max,
        metric: MetricBody::Prometheus(SERIES.to_owned()),
        target,
        up_window: None,
        down_window: None,
        cooldown: None,
        down_threshold: None,
    });
    let submitted = world.api().submit(&request, SubmitOptions::default()).await;
    let id = submitted.unwrap().id.unwrap();
    world.knows(name, Job { id, script });
}

/// Name, minimum and maximum of nodes from the first placeholders.
fn between(said: &StepMatch) -> (&str, (u32, u32)) {
    let nodes = |hole| u32::try_from(said.number(hole)).unwrap();
    (said.text(0), (nodes(1), nodes(2)))
}

pub async fn runs_on(world: &World, name: &str, nodes: u64) {
    world
        .shows(name, &format!("runs on {nodes} nodes"), |view| {
            let on_its_way = |phase: &str| ["assigned", "leaving"].contains(&phase);
            let all_run = !view.ranks.iter().any(|rank| on_its_way(&rank.phase));
            (staying(view).len() as u64 == nodes && all_run).then_some(())
        })
        .await;
}

/// End of the step that starts a Prometheus.
pub const WITH_PROMETHEUS: &str = "with a Prometheus";

pub fn steps() -> Vec<Step> {
    [given(), nodes(), outcomes()].concat()
}

fn given() -> Vec<Step> {
    vec![
        step!(
            "a cluster of the nodes {text} with a Prometheus",
            |world, said| {
                if world.prometheus.is_none() {
                    let started = Prometheus::start().await;
                    // The runner skips the file where Prometheus is not installed.
                    world.prometheus = Some(started.expect("prometheus is installed"));
                }
                let (url, directory) = (prometheus(world).url(), checkpoint_directory(world));
                let plan = Plan {
                    control_lines: format!(
                        "scheduling: {{prometheus: {{url: \"{url}\"}}, checkpoint_directory: \"{directory}\"}}\n"
                    ),
                    grace_s: Some(GRACE_S),
                    users: vec!["alice".to_owned()],
                    ..Plan::with_agents(said.text(0).split_whitespace())
                };
                world.has_cluster(plan).await;
            }
        ),
        step!("the load is {word}", |world, said| {
            prometheus(world).says(SERIES, said.text(0));
        }),
        step!("nobody says the load", |world, _said| {
            prometheus(world).is_silent(SERIES);
        }),
        step!(
            "the project {text} may have {number} nodes",
            |world, said| {
                let (path, nodes) = (said.text(0), said.number(1).to_string());
                match world.api().project(path).await {
                    Err(_) => {
                        world
                            .site()
                            .lattice(&["project", "create", path, "--max-nodes", &nodes])
                    }
                    Ok(_) => world
                        .site()
                        .lattice(&["project", "set", path, "--max-nodes", &nodes]),
                };
            }
        ),
        step!(
            "the service {text} of {number} to {number} nodes runs",
            |world, said| {
                let (name, nodes) = between(&said);
                serves(world, name, nodes, &said).await;
            }
        ),
        step!(
            "the service {text} of {number} to {number} nodes is submitted",
            |world, said| {
                let (name, nodes) = between(&said);
                submits(world, name, nodes, &said).await;
            }
        ),
        step!("it is evaluated {number} times more", |world, said| {
            evaluated(world, said.number(0)).await;
        }),
        step!("control has read the load {word}", |world, said| {
            let wanted: f64 = said.text(0).parse().unwrap();
            let world = &*world;
            eventually(&format!("the load {wanted} was read"), || async move {
                let page = page(world).await;
                let mut shown = page.iter();
                let shows = |(series, value): (&String, &f64)| {
                    series.starts_with("lattice_autoscaling_metric{") && *value == wanted
                };
                shown.any(shows).then_some(())
            })
            .await;
        }),
    ]
}

fn nodes() -> Vec<Step> {
    vec![
        step!("{text} grows to {number} nodes", |world, said| {
            runs_on(world, said.text(0), said.number(1)).await;
        }),
        step!("{text} shrinks to {number} nodes", |world, said| {
            runs_on(world, said.text(0), said.number(1)).await;
        }),
        step!(
            "{text} has run on {number} nodes all the time",
            |world, said| {
                let (name, nodes) = (said.text(0), said.number(1));
                let view = world.view(name).await;
                assert_eq!((view.state.as_str(), view.attempt), ("running", 1));
                let records = world.records_of(name);
                let runs = records
                    .iter()
                    .filter(|view| view.state == "running")
                    .chain([&view]);
                for view in runs {
                    assert_eq!(staying(view).len() as u64, nodes, "{view:?}");
                }
            }
        ),
        step!("{text} still runs on {number} nodes", |world, said| {
            let view = world.view(said.text(0)).await;
            assert_eq!(view.state, "running");
            assert_eq!(
                staying(&view).len() as u64,
                said.number(1),
                "{:?}",
                view.ranks
            );
        }),
        step!(
            "at least {number} s lie between two changes of {text}",
            |world, said| {
                let at = changes(&world.view(said.text(1)).await);
                let pairs = at.windows(2).map(|pair| millis_between(&pair[0], &pair[1]));
                let apart: Vec<u64> = pairs.collect();
                // A rank starts shortly after its assignment, and later on a busy machine.
                let least = said.number(0) * 1000 - 1000;
                assert!(
                    !apart.is_empty() && apart.iter().all(|ms| *ms >= least),
                    "{apart:?}"
                );
            }
        ),
        step!(
            "a node of {text} is asked to end its rank, and still held",
            |world, said| {
                let name = said.text(0);
                let leaving = world.shows(name, "gives a node back", |view| {
                    view.ranks
                        .iter()
                        .find(|rank| rank.phase == "leaving")
                        .cloned()
                });
                let rank = leaving.await;
                let script = &world.job(name).script;
                let asked = format!("asked.{}", rank.rank);
                eventually("its process is asked", || async {
                    script.has(&asked).then_some(())
                })
                .await;
                assert!(script.process(rank.rank).is_some(), "it lives");
                let node = world.api().node(&rank.node).await.unwrap();
                let holder = node.holder.map(|holder| holder.allocation);
                assert_eq!(holder, Some(world.job(name).id));
            }
        ),
        step!("what was asked to end may stop", |world, _said| {
            for job in world.jobs().values() {
                job.script.may_stop();
            }
        }),
        step!("it was the last node of {text} that went", |world, said| {
            let view = world.view(said.text(0)).await;
            let left: Vec<_> = view
                .ranks
                .iter()
                .filter(|rank| rank.phase == "left")
                .collect();
            let last = view.ranks.iter().map(|rank| rank.rank).max();
            assert_eq!(left.iter().map(|rank| rank.rank).max(), last);
            assert_eq!(left.len(), 1);
        }),
        step!("the node that {text} gave back is free", |world, said| {
            let view = world.view(said.text(0)).await;
            let left = view.ranks.iter().find(|rank| rank.phase == "left").unwrap();
            let node = world.api().node(&left.node).await.unwrap();
            assert!(node.holder.is_none(), "{:?}", node.holder);
        }),
        step!(
            "the load goes up and down, so that {text} changes {number} times",
            |world, said| {
                for _ in 0..said.number(1) {
                    let runs = staying(&world.view(said.text(0)).await).len();
                    let (load, nodes) = if runs == 1 { ("20", 2) } else { ("1", 1) };
                    prometheus(world).says(SERIES, load);
                    runs_on(world, said.text(0), nodes).await;
                }
            }
        ),
    ]
}

fn outcomes() -> Vec<Step> {
    vec![
        step!("{number} queries of the metric fail", |world, said| {
            fails(world, said.number(0)).await;
        }),
        step!("{text} was alerted {number} times", |world, said| {
            let alert = said.text(0);
            let series = format!(
                "lattice_autoscaling_alerts_total{{vcluster=\"default\",alert=\"{alert}\"}}"
            );
            let (world, wanted) = (&*world, said.number(1));
            let series = &series;
            eventually(&format!("{alert} was alerted"), || async move {
                (grown(world, series).await >= wanted).then_some(())
            })
            .await;
            assert_eq!(grown(world, series).await, wanted, "{alert}");
        }),
        step!("control shows no load of {text}", |world, said| {
            let id = world.job(said.text(0)).id;
            let of = format!("allocation=\"{id}\"");
            let page = page(world).await;
            let mut series = page.keys().filter(|series| series.contains(&of));
            let shown = series.any(|series| series.starts_with("lattice_autoscaling_metric{"));
            assert!(!shown, "{page:?}");
        }),
        step!(
            "{text} grows to {number} nodes no sooner than {number} s after the last failed query",
            |world, said| {
                let mut failed = (
                    grown(world, &failures("default")).await,
                    std::time::Instant::now(),
                );
                let name = said.text(0);
                let grew = loop {
                    let count = grown(world, &failures("default")).await;
                    if count > failed.0 {
                        failed = (count, std::time::Instant::now());
                    }
                    if world.view(name).await.ranks.len() as u64 >= said.number(1) {
                        break std::time::Instant::now();
                    }
                    assert!(
                        failed.1.elapsed() < Duration::from_secs(60),
                        "it did not grow"
                    );
                    tokio::time::sleep(Duration::from_millis(50)).await;
                };
                let after = grew - failed.1;
                assert!(
                    after >= Duration::from_secs(said.number(2)),
                    "after {after:?}"
                );
            }
        ),
    ]
}
