//! Steps for DAGs and the jobs of their members.

use crate::{
    step,
    steps::{Step, StepMatch},
    users,
    world::{Job, World},
};
use lattice_api::dag::{DagRequest, DagView};
use lattice_client::{AllocationView, JobRef};
use lattice_tests::{
    procs,
    script::{Behaviour, Script, with_interpreter},
    site::Plan,
    wait::{eventually, until},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Grace of a job after an end request, seconds; scenarios contain this number.
const GRACE_S: u64 = 2;

/// DAG of the scenario.
#[derive(Default)]
pub struct Graph {
    /// Request body.
    request: Value,
    scripts: BTreeMap<String, Script>,
    id: Option<u64>,
}

impl Graph {
    pub fn id(&self) -> u64 {
        self.id.expect("a graph is submitted first")
    }
}

/// Script for these words: `succeeds`; `fails`; `waits`, until the job or its index may end; `waits, index 2 fails`;
/// `ends when asked`; `holds out when asked`, until it is killed. `None` for other words.
pub fn work(words: &str, script: &Script) -> Option<String> {
    let at = script.path().display();
    let head = format!(
        "echo \"$LATTICE_ALLOCATION_ID.$LATTICE_ATTEMPT.$LATTICE_NODE_RANK\" >> {at}/effects\n\
         echo $$ > {at}/main.$LATTICE_NODE_RANK\necho $$ > {at}/process.$LATTICE_ATTEMPT\n\
         echo \"$LATTICE_ARRAY_INDEX\" >> {at}/indices\n"
    );
    let index = "${LATTICE_ARRAY_INDEX:-none}";
    let wait = format!("until [ -e {at}/exit ] || [ -e {at}/exit.{index} ]; do sleep 0.05; done\n");
    let ready = format!("touch {at}/ready\n");
    let asked = format!("touch {at}/asked {at}/asked.$LATTICE_NODE_RANK");
    let body = match words {
        "succeeds" => String::new(),
        "fails" => "exit 3\n".to_owned(),
        "waits" => wait,
        "waits, index 2 fails" => wait + "test $LATTICE_ARRAY_INDEX -ne 2\n",
        "ends when asked" => format!("trap '{asked}; exit 0' TERM\n{ready}{wait}"),
        "holds out when asked" => format!("trap '{asked}' TERM\n{ready}{wait}"),
        "holds out until it may stop" => return Some(script.text(Behaviour::Stubborn)),
        _ => return None,
    };
    Some(head + &body)
}

/// Dependencies of a member: `a, failure of b` as names by condition.
fn after(cell: &str) -> Value {
    let mut by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for edge in cell
        .split(',')
        .map(str::trim)
        .filter(|edge| !edge.is_empty())
    {
        let (condition, name) = edge.split_once(" of ").unwrap_or(("success", edge));
        by.entry(condition).or_default().push(name);
    }
    json!(by)
}

/// Builds the DAG of the rows.
fn read(world: &mut World, name: &str, said: &StepMatch) {
    let mut graph = Graph::default();
    let mut members = Vec::new();
    for row in said.rows() {
        let script = world.script();
        let base = world.site().request(None, "");
        let mut member = json!({
            "project": base.project, "nodes": 1, "env": base.env, "walltime": "30m",
        });
        for (column, cell) in row.iter().filter(|(_, cell)| !cell.is_empty()) {
            match column.as_str() {
                "member" => member["name"] = json!(cell),
                "does" => {
                    let commands = work(cell, &script).expect(cell);
                    member["script"] = json!(with_interpreter(&commands));
                }
                "on" => member["constraints"] = json!({"nodelist": cell}),
                "after" => member["after"] = after(cell),
                "array" | "requeue" => member[column] = json!(cell),
                other => panic!("no member has a column {other:?}"),
            }
        }
        let called = member["name"].as_str().unwrap().to_owned();
        graph.scripts.insert(called, script);
        members.push(member);
    }
    graph.request = json!({"name": name, "members": members});
    world.graph = graph;
}

/// Current view of the DAG.
pub async fn shown(world: &World) -> DagView {
    let id = world.graph.id();
    eventually("the control answers", || async {
        world.api().dag(id).await.ok()
    })
    .await
}

/// Registers the DAG and its members for later steps.
async fn has(world: &mut World, id: u64) {
    world.graph.id = Some(id);
    for member in shown(world).await.members {
        let script = world.graph.scripts[&member.name].clone();
        let job = Job {
            id: member.allocation,
            script,
        };
        world.knows(&member.name, job);
    }
}

/// Waits until the DAG is in this state with this number of unfinished members.
async fn reaches(world: &World, state: &str, unfinished: u32) -> DagView {
    let id = world.graph.id();
    eventually(
        &format!("the graph is {state}, {unfinished} left"),
        || async {
            let view = world.api().dag(id).await.ok()?;
            let over = view.state != "running";
            assert!(!over || view.state == state, "the graph is {}", view.state);
            (view.state == state && view.unfinished == unfinished).then_some(view)
        },
    )
    .await
}

/// Element of an array by its index.
async fn element(world: &World, name: &str, index: u32) -> AllocationView {
    let id = JobRef {
        id: world.job(name).id.0,
        index: Some(index),
    };
    eventually("the control answers", || async {
        world.api().allocation(id).await.ok()
    })
    .await
}

fn indices(text: &str) -> impl Iterator<Item = u32> {
    text.split_whitespace().map(|index| index.parse().unwrap())
}

pub fn steps() -> Vec<Step> {
    [asks(), members(), elements()].concat()
}

fn asks() -> Vec<Step> {
    vec![
        step!(
            "a cluster of the nodes {text} for the users {text}",
            |world, said| {
                let users = said.text(1).split_whitespace().map(str::to_owned);
                let plan = Plan {
                    grace_s: Some(GRACE_S),
                    users: users.collect(),
                    ..Plan::with_agents(said.text(0).split_whitespace())
                };
                world.has_cluster(plan).await;
            }
        ),
        step!("the graph {text}", |world, said| {
            read(world, said.text(0), &said);
        }),
        step!("{word} submits it", |world, said| {
            let request: DagRequest = serde_json::from_value(world.graph.request.clone()).unwrap();
            let client = users::client(world, said.text(0));
            let made = client.submit_dag(&request, None).await.unwrap();
            has(world, made.id).await;
        }),
        step!("{word} submits it from the command line", |world, said| {
            let file = world.scratch().join("graph.json");
            std::fs::write(&file, world.graph.request.to_string()).unwrap();
            let args = ["dag", "submit", file.to_str().unwrap()];
            let id = users::said(world, said.text(0), &args);
            has(world, id.trim().parse().unwrap()).await;
        }),
        step!(
            "{word} cancels the graph from the command line",
            |world, said| {
                let id = world.graph.id().to_string();
                users::said(world, said.text(0), &["dag", "cancel", &id]);
            }
        ),
        step!(
            "{word} may not cancel the graph: {number}",
            |world, said| {
                let client = users::client(world, said.text(0));
                let error = client.cancel_dag(world.graph.id()).await.unwrap_err();
                let problem = error.problem().unwrap();
                assert_eq!(u64::from(problem.status), said.number(1), "{problem:?}");
            }
        ),
        step!("{word} cancels {text}", |world, said| {
            let client = users::client(world, said.text(0));
            client.cancel(world.job(said.text(1)).id).await.unwrap();
        }),
    ]
}

fn members() -> Vec<Step> {
    vec![
        step!("the graph is {word}", |world, said| {
            reaches(world, said.text(0), 0).await;
        }),
        step!(
            "the graph is running, {number} of its members not ended",
            |world, said| {
                let left = u32::try_from(said.number(0)).unwrap();
                reaches(world, "running", left).await;
            }
        ),
        step!("the graph says that {word} cancelled it", |world, said| {
            let by = shown(world).await.cancelled_by;
            assert_eq!(by.as_deref(), Some(said.text(0)));
        }),
        step!(
            "the graph names {text} as the member that failed",
            |world, said| {
                assert_eq!(shown(world).await.failed.as_deref(), Some(said.text(0)));
            }
        ),
        step!("its members are", |world, said| {
            let members = shown(world).await.members;
            let stand = |m: lattice_api::dag::DagMemberView| (m.name, m.state.unwrap());
            let found: Vec<_> = members.into_iter().map(stand).collect();
            assert_eq!(found, said.pairs());
        }),
        step!("{text} began after {text} ended", |world, said| {
            let (later, first) = (said.text(0), said.text(1));
            // It may still be starting.
            let has_begun = |view: &AllocationView| view.started_at.as_ref().map(drop);
            world.shows(later, "has begun", has_begun).await;
            let began = world.view(later).await.started_at.unwrap();
            let ended = world.view(first).await.ended_at.unwrap();
            assert!(
                began >= ended,
                "{later} began {began}, {first} ended {ended}"
            );
        }),
        step!(
            "{text} waited in vain for {word} of {text}, which was {word}",
            |world, said| {
                let on = world.job(said.text(2)).id;
                let (condition, ended) = (said.text(1), said.text(3));
                let wanted =
                    format!("allocation {on} was {ended}; this one waited for {condition}");
                let view = world.view(said.text(0)).await;
                assert_eq!(view.stop.as_deref(), Some(wanted.as_str()));
                assert_eq!((view.state.as_str(), view.attempt), ("cancelled", 0));
            }
        ),
        step!("{text} is blocked until {text} ends", |world, said| {
            let on = world.job(said.text(1)).id;
            world
                .shows(said.text(0), &format!("waits for {on}"), |view| {
                    let waits = view.waits_for.as_ref()?;
                    let is_it = waits.allocations == [on] || waits.mutex == Some(on);
                    (view.state == "blocked" && is_it).then_some(())
                })
                .await;
        }),
        step!("{text} can be asked to end", |world, said| {
            let script = &world.job(said.text(0)).script;
            until("it heeds SIGTERM", || script.has("ready")).await;
        }),
        step!("{text} never began", |world, said| {
            let view = world.view(said.text(0)).await;
            assert_eq!((view.attempt, view.started_at), (0, None));
            assert!(world.job(said.text(0)).script.effects().is_empty());
        }),
        step!(
            "{text} was asked to end, and ended by itself",
            |world, said| {
                assert!(world.job(said.text(0)).script.has("asked"));
                let took = stopping_took_ms(world, said.text(0)).await;
                assert!(took < 2000, "it had its grace of 2 s, and took {took} ms");
            }
        ),
        step!(
            "{text} was asked to end, and killed after {number} s",
            |world, said| {
                assert!(world.job(said.text(0)).script.has("asked"));
                let (took, grace) = (stopping_took_ms(world, said.text(0)).await, said.number(1));
                let about = grace * 1000 - 200..=grace * 1000 + 15_000;
                assert!(about.contains(&took), "{took} ms");
            }
        ),
        step!("no process of {text} is left", |world, said| {
            let id = world.job(said.text(0)).id;
            eventually("none is left", || async {
                (!world.site().job_lives(id)).then_some(())
            })
            .await;
        }),
    ]
}

/// Time from the end request to the end, milliseconds, according to the record.
async fn stopping_took_ms(world: &World, name: &str) -> u64 {
    let ended = world.view(name).await.ended_at.unwrap();
    let records = world.records_of(name);
    let mut asked = records.iter().filter(|view| view.state == "stopping");
    let asked = &asked.next().expect("it was told to stop").state_since;
    millis_between(asked, &ended)
}

/// Time between two API timestamps, milliseconds.
pub fn millis_between(from: &str, to: &str) -> u64 {
    let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_millisecond();
    u64::try_from(at(to) - at(from)).unwrap()
}

fn elements() -> Vec<Step> {
    vec![
        step!("the elements {text} of {text} are {word}", |world, said| {
            for index in indices(said.text(0)) {
                let (name, state) = (said.text(1), said.text(2));
                let what = format!("element {index} of {name} is {state}");
                let world = &*world;
                eventually(&what, || async move {
                    (element(world, name, index).await.state == state).then_some(())
                })
                .await;
            }
        }),
        step!(
            "the elements {text} of {text} have not begun",
            |world, said| {
                for index in indices(said.text(0)) {
                    let found = element(world, said.text(1), index).await;
                    let waits = ["blocked", "pending", "cancelled"];
                    assert!(
                        waits.contains(&found.state.as_str()),
                        "{index}: {}",
                        found.state
                    );
                    assert_eq!(found.started_at, None);
                }
            }
        ),
        step!("element {number} of {text} may end", |world, said| {
            let file = format!("exit.{}", said.number(0));
            std::fs::write(world.job(said.text(1)).script.path().join(file), "").unwrap();
        }),
        step!(
            "{text} loses its node {text}, which is booted anew",
            |world, said| {
                let (name, node) = (said.text(0), said.text(1));
                let (id, script) = (world.job(name).id, world.job(name).script.clone());
                until("its script runs", || script.has_main()).await;
                let supervisor = world.site().supervisor(node, id, 1).expect("a supervisor");
                // Simulates the loss of the machine: the agent and all its processes end at once.
                world.site_mut().agent(node).kill();
                procs::signal(supervisor, Signal::KILL);
                until("the first process went with it", || script.main_is_gone()).await;
                let world_now = &*world;
                eventually("nobody hears the node", || async move {
                    let node = world_now.api().node(node).await.ok()?;
                    (node.liveness == "suspect").then_some(())
                })
                .await;
                let agent = world.site_mut().agent(node);
                agent.boot(&format!(
                    "11111111-2222-4333-8444-{:012x}",
                    rand::random::<u32>()
                ));
                agent.start();
            }
        ),
        step!("everything may end", |world, _said| {
            for job in world.jobs().values() {
                job.script.may_exit();
            }
        }),
    ]
}
