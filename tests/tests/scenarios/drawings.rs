//! Steps for the drawing and listing of DAGs, with REST and on the command line.

use crate::{step, steps::Step, users, world::World};
use lattice_api::dag::DagView;
use serde_json::json;
use std::collections::BTreeMap;

pub fn steps() -> Vec<Step> {
    vec![
        step!(
            "its edges are, over REST and on the command line",
            |world, said| {
                let id = world.graph.id();
                let listed = world
                    .site()
                    .lattice_json(&["dag", "graph", &id.to_string()]);
                let asked = serde_json::to_value(world.api().dag_graph(id).await.unwrap()).unwrap();
                assert_eq!(listed, asked);
                let edge =
                    |row: Vec<(String, String)>| -> BTreeMap<_, _> { row.into_iter().collect() };
                let wanted: Vec<_> = said.rows().into_iter().map(edge).collect();
                assert_eq!(asked["edges"], json!(wanted));
            }
        ),
        step!(
            "its picture for Graphviz is, over REST and on the command line",
            |world, said| {
                let id = world.graph.id();
                let drawn = world
                    .site()
                    .lattice(&["dag", "graph", &id.to_string(), "--dot"]);
                let path = format!("dags/{id}/graph?format=dot");
                let get = (reqwest::Method::GET, path.as_str());
                let (status, asked) = users::ask(world, "ada", get, "*/*", String::new()).await;
                assert_eq!(status, 200, "{asked}");
                assert_eq!(drawn.trim_end(), asked.trim_end());
                let mut lines = drawn.lines().map(str::trim);
                for row in said.rows() {
                    let mut wanted = row[0].1.clone();
                    for (name, job) in world.jobs() {
                        wanted = wanted.replace(&format!("<{name}>"), &job.id.to_string());
                    }
                    assert!(
                        lines.any(|line| line == wanted),
                        "{wanted} is not in\n{drawn}"
                    );
                }
            }
        ),
        step!(
            "{word} finds the graph listed for the tenant {text}",
            |world, said| {
                let listed = listed(world, said.text(0), said.text(1)).await;
                assert!(listed.contains(&world.graph.id()), "{listed:?}");
            }
        ),
        step!(
            "{word} does not find it listed for the tenant {text}",
            |world, said| {
                let listed = listed(world, said.text(0), said.text(1)).await;
                assert!(!listed.contains(&world.graph.id()), "{listed:?}");
            }
        ),
        step!("a tenant {text}", |world, said| {
            if world.api().project(said.text(0)).await.is_err() {
                let args = ["project", "create", said.text(0), "--max-nodes", "10"];
                world.site().lattice(&args);
            }
        }),
    ]
}

/// DAGs of a tenant; REST and the command line must agree.
async fn listed(world: &World, user: &str, tenant: &str) -> Vec<u64> {
    let asked = users::client(world, user).dags(Some(tenant)).await.unwrap();
    let asked: Vec<u64> = asked.iter().map(|dag| dag.id).collect();
    let args = ["dag", "list", "--all", "--tenant", tenant, "-o", "json"];
    let printed: Vec<DagView> = serde_json::from_str(&users::said(world, user, &args)).unwrap();
    let printed: Vec<u64> = printed.iter().map(|dag| dag.id).collect();
    assert_eq!(printed, asked);
    asked
}
