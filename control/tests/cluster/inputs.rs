//! Scheduling inputs of a site reach the queue of a running control, and a source that hangs stops nothing.

use crate::{
    fixture::{ClusterFixture, PATIENCE, TOKEN, node, shows, submit},
    scenario_groups::Group,
};
use axum::extract::{Path, Query};
use lattice_cluster::LOOPBACK;
use lattice_quorum_types::{AllocationId, Command, Outcome, VclusterName};
use lattice_view::View;
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{net::TcpListener, time::timeout};

pub fn group() -> Group {
    Group::new("inputs", || Box::pin(ClusterFixture::found())).scenario(
        "what_the_site_tells_moves_the_factors_and_what_hangs_stops_nothing",
        |cluster| Box::pin(factors_follow_sources(cluster)),
    )
}

/// Services of a site: prices, readiness by project and user, and a storage system service that hangs.
async fn site() -> String {
    let service = |Path(what): Path<String>, Query(asked): Query<BTreeMap<String, String>>| async move {
        let named = |key: &str| asked.get(key).map(String::as_str);
        match what.as_str() {
            "prices" => {
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap()
                    .as_secs();
                let (before, soon, end) = (now - 60, now + 3_600, now + 7_200);
                format!("timestamp,price\n{before},-5\n{soon},55\n{end},-25\n")
            }
            "ready" => match (named("project"), named("user")) {
                (Some("atlas/web"), Some("root")) => r#"{"fraction": 0.8}"#.to_owned(),
                _ => "{}".to_owned(),
            },
            _ => std::future::pending().await,
        }
    };
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = axum::Router::new().route("/{what}", axum::routing::get(service));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

async fn factors_follow_sources(cluster: &mut ClusterFixture) {
    cluster.control.take().unwrap().stop().await;
    let site = site().await;
    cluster.scheduling = serde_yaml_ng::from_str(&format!(
        "
energy_price: {{url: '{site}/prices'}}
data_readiness: {{url: '{site}/ready?id={{id}}&project={{project}}&user={{user}}'}}
storage: {{scratch: {{bandwidth_gb_s: 100, utilisation: {{url: '{site}/used', deadline_s: 1}}}}}}
"
    ))
    .unwrap();
    cluster.control = Some(cluster.new_control("c1", LOOPBACK).await);
    let core = cluster.control.as_ref().unwrap().core().unwrap();
    cluster.create_project("atlas", 120).await;
    cluster.create_project("atlas/web", 50).await;
    // Registered but never seen, so that submitted allocations wait.
    cluster
        .admin(Command::RegisterNode {
            node: node("gpu001"),
            vcluster: VclusterName::new("default").unwrap(),
        })
        .await;
    let id = submitted(cluster, |_| {}).await;
    // A declared readiness takes precedence over that of the site.
    let says_itself = submitted(cluster, |demand| demand.data_ready_ppm = Some(250_000)).await;
    let factor = async |id, name: &str| {
        let why = cluster.client(TOKEN).explanation(id).await.unwrap();
        let score = why.score?;
        let factor = score.factors.into_iter().find(|factor| factor.name == name);
        factor.map(|factor| factor.value)
    };
    let becomes = async |id, name: &str, value: f64| {
        let is_so = async {
            loop {
                match factor(id, name).await {
                    Some(found) if (found - value).abs() < 1e-6 => return,
                    _ => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        let came = timeout(PATIENCE, is_so).await;
        let found = factor(id, name).await;
        assert!(came.is_ok(), "{name} of {id} is {found:?}, not {value}");
    };
    // The price -5 lies between -25 and 55.
    becomes(id, "energy", 0.75).await;
    becomes(id, "data_ready", 0.8).await;
    becomes(says_itself, "data_ready", 0.25).await;
    becomes(id, "checkpoint", 0.5).await;
    let metrics = async || {
        let url = format!(
            "https://{}/metrics",
            cluster.control.as_ref().unwrap().https_addr()
        );
        let got = cluster
            .raw()
            .get(url)
            .bearer_auth(TOKEN)
            .send()
            .await
            .unwrap();
        got.text().await.unwrap()
    };
    let sources_served = async {
        loop {
            let text = metrics().await;
            let all = [
                "lattice_scheduling_source_up{source=\"energy_price\"} 1\n",
                "lattice_scheduling_source_up{source=\"data_readiness\"} 1\n",
                "lattice_scheduling_source_up{source=\"storage.scratch\"} 0\n",
                "lattice_energy_price -5\n",
                "lattice_energy_price_normalized 0.25\n",
                "lattice_data_readiness_known 1\n",
                "lattice_storage_available_bytes_per_second{system=\"scratch\"} 50000000000\n",
            ];
            if all.iter().all(|line| text.contains(line)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let came = timeout(PATIENCE, sources_served).await;
    assert!(came.is_ok(), "{}", metrics().await);
    // Later submissions are planned although the source of the storage system hangs.
    let late = submitted(cluster, |_| {}).await;
    let planned = |view: &View| view.plan.explanation(view.allocation(late)?);
    shows(&core, "it plans on", planned).await;
}

/// Submits an allocation that waits.
async fn submitted(
    cluster: &ClusterFixture,
    says: impl FnOnce(&mut lattice_quorum_types::spec::Demand),
) -> AllocationId {
    let Command::Submit { mut spec } = submit(1, "true") else {
        panic!("another command")
    };
    says(&mut spec.demand);
    match cluster.admin(Command::Submit { spec }).await {
        Outcome::Submitted { id } => id,
        other => panic!("{other:?}"),
    }
}
