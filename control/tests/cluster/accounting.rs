//! Accounting: a site without accounting has no trace of it. With accounting, Waldur receives usage from whichever
//! control acts, and a limit bought in Waldur lets waiting jobs start.

use crate::{
    fixture::{ClusterFixture, PATIENCE, TOKEN, submit},
    scenario_groups::Group,
};
use lattice_cluster::LOOPBACK;
use lattice_fake_waldur::{SeedItem, Version, Waldur};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, Outcome, ProjectPath,
};
use lattice_waldur::config::AccountingConfig;
use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, time::timeout};

/// GPUs per node.
const GPUS: u64 = 8;
const RESOURCE: &str = "lattice:test:atlas@default";

/// Allocation that ran on the cluster in use without accounting.
static UNWANTED: Mutex<Option<Allocation>> = Mutex::new(None);

pub fn group() -> Group {
    Group::new("accounting", || Box::pin(founded()))
        .scenario(
            "nothing_of_accounting_is_there_unless_it_is_wanted",
            |cluster| {
                Box::pin(async {
                    let ran = unwanted(cluster).await;
                    *UNWANTED.lock().unwrap() = Some(ran);
                })
            },
        )
        .scenario(
            "accounting_has_what_ran_whichever_control_acts_and_a_purchase_lets_work_begin",
            |cluster| {
                Box::pin(async {
                    let ran = UNWANTED.lock().unwrap().take();
                    let ran = match ran {
                        Some(ran) => ran,
                        None => unwanted(cluster).await,
                    };
                    wanted(cluster, &ran).await;
                })
            },
        )
}

async fn founded() -> ClusterFixture {
    let mut cluster = ClusterFixture::found().await;
    cluster.serves("gpu001").await;
    cluster.create_project("atlas", 2).await;
    cluster
}

/// Submits a one-node allocation directly to the tenant.
async fn submitted(cluster: &ClusterFixture, script: &str) -> AllocationId {
    let Command::Submit { mut spec } = submit(1, script) else {
        panic!("another command")
    };
    spec.project = ProjectPath::new("atlas").unwrap();
    match cluster.admin(Command::Submit { spec }).await {
        Outcome::Submitted { id } => id,
        other => panic!("{other:?}"),
    }
}

/// Accounting section of the example configuration, with a local Waldur.
fn section(enabled: bool, url: &str, token: &Path, folder: &Path) -> AccountingConfig {
    serde_yaml_ng::from_str(&format!(
        "
enabled: {enabled}
provider: waldur
waldur:
  api_url: {url}/api/
  token_secret_ref: file://{}
  push_interval_seconds: 1
  buffer_size: 100
  disk_buffer_path: {}
  disk_buffer_max_events: 1000
  seed_paths: true
",
        token.display(),
        folder.display()
    ))
    .unwrap()
}

async fn metrics(cluster: &ClusterFixture) -> String {
    let at = cluster.control.as_ref().unwrap().https_addr();
    let url = format!("https://{at}/metrics");
    let got = cluster
        .raw()
        .get(url)
        .bearer_auth(TOKEN)
        .send()
        .await
        .unwrap();
    got.text().await.unwrap()
}

/// Replaces the control by another one with this accounting configuration.
async fn again(cluster: &mut ClusterFixture, accounting: &AccountingConfig) {
    let control = cluster.control.take().unwrap();
    // Agents look for the control at this address.
    let at = control.mesh_addr();
    control.stop().await;
    cluster.accounting = accounting.settings();
    cluster.control = Some(cluster.new_control("c1", at).await);
}

async fn ends(cluster: &ClusterFixture, id: AllocationId) -> Allocation {
    let found = cluster.reaches(id, &[AllocationState::Completed]).await;
    assert_eq!(found.attempt, 1);
    found
}

async fn unwanted(cluster: &mut ClusterFixture) -> Allocation {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let listens = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let folder = cluster.part("unwanted").join("wal");
    // The token file does not exist, and is not read.
    let config = section(false, &url, Path::new("/nonexistent/token"), &folder);
    assert!(config.settings().is_none());
    again(cluster, &config).await;
    let id = submitted(cluster, "sleep 3").await;
    let ran = ends(cluster, id).await;
    let status = cluster.client(TOKEN).accounting_status().await.unwrap();
    assert!(!status.enabled);
    assert_eq!(status.provider, None);
    assert!(!metrics(cluster).await.contains("lattice_accounting"));
    assert!(!folder.exists());
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    // Usage is recorded without accounting as well.
    let used = cluster
        .client(TOKEN)
        .tenant_usage("atlas", 90)
        .await
        .unwrap();
    assert!(used.node_hours_used.0 >= 3_000, "{used:?}");
    listens.abort();

    // The same section, enabled: control does call Waldur.
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let token = cluster.part("unwanted").join("token");
    secret(&token, "0123456789abcdef");
    again(cluster, &section(true, &url, &token, &folder)).await;
    let called = timeout(PATIENCE, listener.accept()).await;
    called.unwrap().unwrap();
    assert!(folder.exists());
    assert!(metrics(cluster).await.contains("lattice_accounting"));
    ran
}

fn secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Hundredths of hours used by allocations, rounded as they are reported to Waldur.
fn hundredths(of: &[&Allocation], devices: u64) -> i128 {
    let span = |one: &&Allocation| one.ended_at.unwrap().0 - one.started_at.unwrap().0;
    let ms: u64 = of.iter().map(span).sum::<u64>() * devices;
    i128::from((ms + 18_000) / 36_000)
}

/// Totals of the project in Waldur, over all months.
fn totals(waldur: &Waldur) -> BTreeMap<String, i128> {
    let mut totals = BTreeMap::new();
    for ((resource, component, _), amount) in waldur.totals() {
        assert_eq!(resource, RESOURCE);
        *totals.entry(component).or_default() += amount;
    }
    totals
}

async fn becomes(waldur: &Waldur, cluster: &ClusterFixture, of: &[&Allocation]) {
    let wanted = [
        ("gpu_hours", hundredths(of, GPUS)),
        ("node_hours", hundredths(of, 1)),
    ];
    let wanted: BTreeMap<_, _> = wanted.map(|(kind, n)| (kind.to_owned(), n)).into();
    let status_reached = async {
        while totals(waldur) != wanted {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(PATIENCE, status_reached).await.is_err() {
        let status = cluster.client(TOKEN).accounting_status().await;
        panic!("{:?}, not {wanted:?}: {status:#?}", totals(waldur));
    }
}

/// Waits for a condition.
async fn waits_for(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let comes = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(
        timeout(PATIENCE, comes).await.is_ok(),
        "{what} did not come"
    );
}

/// Buys nodes in Waldur, which become the tenant's limit.
async fn bought(cluster: &ClusterFixture, waldur: &Waldur, nodes: u64) {
    let resource = waldur.snapshot().resources[0]["uuid"].clone();
    let limits = serde_json::Map::from_iter([("max_nodes".to_owned(), nodes.into())]);
    assert!(waldur.set_limits(resource.as_str().unwrap(), limits));
    waits_for("the limit", async || {
        let tenant = cluster.client(TOKEN).tenant("atlas").await.unwrap();
        tenant.max_nodes == Some(nodes)
    })
    .await;
}

/// `first` ran before accounting was enabled; it counts as well.
async fn wanted(cluster: &mut ClusterFixture, first: &Allocation) {
    let waldur = Waldur::builder().version(Version::V8).seed_paths();
    let waldur = waldur.start().await.unwrap();
    let token = cluster.part("wanted").join("token");
    secret(&token, waldur.token());
    let folder = cluster.part("wanted").join("c1");
    again(cluster, &section(true, &waldur.url(), &token, &folder)).await;

    // One allocation runs, and another waits for a node.
    let runs = submitted(cluster, "sleep 600").await;
    cluster.reaches(runs, &[AllocationState::Running]).await;
    let starved = submitted(cluster, "sleep 1").await;
    // Waldur lowers the limit of the tenant, so that the next node does not help.
    waits_for("a resource", async || {
        waldur.snapshot().resources.len() == 1
    })
    .await;
    bought(cluster, &waldur, 1).await;
    cluster.serves("gpu002").await;
    waits_for("an explanation by the limit", async || {
        let why = cluster.client(TOKEN).explanation(starved).await.unwrap();
        why.summary
            .contains("\"atlas\" max_nodes (current: 1, requested: 1, limit: 1)")
    })
    .await;
    // One more node is bought.
    bought(cluster, &waldur, 2).await;
    let second = ends(cluster, starved).await;

    // The control stops while the allocation runs; its replacement has none of the data it kept on disk.
    let folder = cluster.part("wanted").join("other");
    again(cluster, &section(true, &waldur.url(), &token, &folder)).await;
    cluster.admin(Command::Cancel { id: runs }).await;
    let third = cluster.reaches(runs, &[AllocationState::Cancelled]).await;
    becomes(&waldur, cluster, &[first, &second, &third]).await;
    // Each event arrived once.
    let read_status = async || cluster.client(TOKEN).accounting_status().await.unwrap();
    waits_for("the last event", async || {
        let status = read_status().await;
        status.acknowledged == status.last
    })
    .await;
    let status = read_status().await;
    assert!(status.is_active && status.dropped == 0, "{status:#?}");
    assert_eq!(status.rejected, []);
    let items = waldur.seed_items();
    let of = |id: AllocationId, kind: &str| {
        let is_it = |item: &&SeedItem| {
            item.body["type"] == kind && item.body["allocation_id"] == serde_json::json!(id.0)
        };
        items.iter().filter(is_it).count()
    };
    for id in [first.id, second.id, third.id] {
        assert_eq!(of(id, "allocation.started"), 1, "{items:#?}");
        assert_eq!(of(id, "allocation.completed"), 1, "{items:#?}");
    }
}
