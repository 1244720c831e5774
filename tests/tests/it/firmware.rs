//! Firmware change detection. A firmware version changes on one of five equal nodes. The test measures the time until
//! each part of the cluster reports the change, from the probe to the history. Prints a table; `LATTICE_OUTPUT=json`
//! prints one object.

use lattice_client::{
    Client, HistoryQuery,
    api::{AllocationRequest, history::HistoryEntryView},
};
use lattice_tests::{
    site::{PROJECT, Plan, Site},
    stopwatch::Stopwatch,
    wait::eventually,
};
use std::{fs, path::PathBuf};

const NODES: [&str; 5] = ["gpu001", "gpu002", "gpu003", "gpu004", "gpu006"];
/// Node with the firmware change.
const NODE: &str = "gpu003";
const OLD: &str = "28.41.1000";
const NEW: &str = "28.43.2026";

async fn digest(api: &Client) -> Option<String> {
    let node = api.node(NODE).await.ok()?;
    node.classes.get("nic")?.digest.clone()
}

/// Numbers of nodes of the class's groups, largest first.
async fn sizes(api: &Client) -> Vec<u32> {
    let groups = api.conformance_groups(Some("nic")).await;
    let groups = groups.map(|found| found.groups).unwrap_or_default();
    groups.iter().map(|group| group.count).collect()
}

/// Submits a job that requires five equal nodes.
async fn sensitive(api: &Client) -> String {
    let request = AllocationRequest {
        project: PROJECT.to_owned(),
        nodes: 5,
        sensitive: true,
        argv: vec!["/bin/true".to_owned()],
        ..AllocationRequest::default()
    };
    let submitted = api.submit(&request, Default::default()).await.unwrap();
    let id = submitted.id.unwrap();
    let said = eventually("an explanation", || async move {
        let said = api.explanation(id).await.ok()?;
        (!said.summary.is_empty() && said.as_of.is_some()).then_some(said.summary)
    });
    said.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_firmware_is_known_everywhere_with_its_cause_and_stays_known() {
    let hosts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hosts");
    let plan = Plan {
        probe_lines: "interval_s: 3600, confirm_after_s: 1".to_owned(),
        trees: Some(hosts),
        ..Plan::with_agents(NODES)
    };
    let mut site = Site::found(lattice_tests::programs!(), &plan).await;
    let api = site.api().clone();
    eventually("five equal nodes", || async {
        (sizes(&api).await == [5]).then_some(())
    })
    .await;
    let before = digest(&api).await.unwrap();
    let card = site.path(&format!("hosts/{NODE}/sys/class/infiniband/mlx5_5/fw_ver"));
    assert_eq!(fs::read_to_string(&card).unwrap().trim(), OLD);

    let mut clock = Stopwatch::begin();
    fs::write(&card, format!("{NEW}\n")).unwrap();
    let read = api.reprobe(NODE).await.unwrap();
    assert_eq!(read.differs, ["nic"]);
    assert_ne!(read.classes["nic"].digest.as_ref(), Some(&before));
    clock.step("probe: read on request, class nic has another digest");
    eventually("another digest", || async {
        digest(&api).await.filter(|now| *now != before)
    })
    .await;
    clock.step("gossip: read a second time (1 s here), announced, seen");
    eventually("two groups", || async {
        (sizes(&api).await == [4, 1]).then_some(())
    })
    .await;
    clock.step("group: four nodes and one");
    let drift = eventually("drift", || async {
        let report = api.drift().await.ok()?;
        report.drifted.into_iter().find(|drift| drift.node == NODE)
    })
    .await;
    clock.step("drift: key, expected and found named");
    assert_eq!((&*drift.expected, &*drift.found), (OLD, NEW));
    assert!(drift.key.starts_with("nic.") && drift.key.ends_with(".firmware"));
    let summary = sensitive(&api).await;
    clock.step("placement: five alike are not to be had, and it says so");
    assert!(summary.contains("conformance group"), "{summary}");
    let entry = eventually("the entry", || async {
        let page = api.history(NODE, &HistoryQuery::default()).await.ok()?;
        let names_it =
            |entry: &HistoryEntryView| entry.changes.iter().any(|change| change.key == drift.key);
        page.items.into_iter().find(names_it)
    })
    .await;
    clock.step("history: entry with cause, key, old and new value");
    clock.print();
    let change = &entry.changes[0];
    assert_eq!((entry.changes.len(), &change.key), (1, &drift.key));
    assert_eq!((&*change.from, &*change.to), (OLD, NEW));
    assert_eq!(entry.cause, "operator");
    assert!(entry.occasion.contains("ada"), "{}", entry.occasion);

    // A different firmware is not a hardware fault; a lost link of a port is.
    let watched = |code: &'static str| {
        let api = &api;
        async move {
            let health = api.health(NODE, true).await.ok()?;
            health
                .reasons
                .into_iter()
                .find(|reason| reason.code == code)
        }
    };
    let counters = format!("hosts/{NODE}/sys/class/infiniband/mlx5_5/ports/1/counters");
    let counter = site.path(&counters).join("link_downed");
    fs::create_dir_all(site.path(&counters)).unwrap();
    fs::write(&counter, "4\n").unwrap();
    // Counts from before the first check are not a fault.
    let first = api.health(NODE, true).await.unwrap().reasons;
    assert!(first.iter().all(|reason| reason.code != "nic.link_downed"));
    fs::write(&counter, "5\n").unwrap();
    let reason = eventually("a reason", || watched("nic.link_downed")).await;
    assert!(reason.entity.starts_with("nic."), "{reason:?}");
    assert_eq!(
        (&*reason.severity, &*reason.action),
        ("degraded", "inspect")
    );

    // The node remains usable: only if no other node matches, and never for sensitive jobs.
    eventually("a degraded node", || async {
        let node = api.node(NODE).await.ok()?;
        (node.health.verdict == "degraded").then_some(())
    })
    .await;
    let request = |nodes: u32, script: &str| AllocationRequest {
        nodes,
        ..site.request(None, script)
    };
    let submit = |request: AllocationRequest| {
        let api = &api;
        async move {
            let submitted = api.submit(&request, Default::default()).await.unwrap();
            submitted.id.unwrap()
        }
    };
    let others = submit(request(4, "#!/bin/sh\nsleep 600\n")).await;
    let others_run = site.reaches(others, &["running"]).await;
    assert_eq!(others_run.nodelist, "gpu[001-002,004,006]");
    let last = submit(request(1, "#!/bin/sh\ntrue\n")).await;
    let last_ran = site.reaches(last, &["completed"]).await;
    assert_eq!(last_ran.nodelist, NODE);
    let why = sensitive(&api).await;
    assert!(why.contains("4 healthy"), "{why}");
    api.cancel(others).await.unwrap();
    site.reaches(others, &["cancelled"]).await;

    eventually("the reason in the history", || async {
        let of_health = HistoryQuery {
            kind: Some("health".to_owned()),
            ..HistoryQuery::default()
        };
        let page = api.history(NODE, &of_health).await.ok()?;
        let is_it = |item: &HistoryEntryView| item.what.contains("nic.link_downed");
        page.items.iter().any(is_it).then_some(())
    })
    .await;

    // After the loss of the node its history remains.
    site.agent(NODE).kill();
    let page = api.history(NODE, &HistoryQuery::default()).await.unwrap();
    assert!(page.items.contains(&entry));
    // Other events at that time: the agent that reported the change had just started.
    let around = HistoryQuery {
        around: Some(entry.number.to_string()),
        ..HistoryQuery::default()
    };
    let then_too = api.history(NODE, &around).await.unwrap().items;
    let kinds: Vec<&str> = then_too.iter().map(|item| item.kind.as_str()).collect();
    for kind in ["change", "agent", "lifecycle", "health"] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    // The history does not reach an hour back, and the API reports this; a moment before the change is within the
    // history.
    let too_early = api.diff_since(NODE, "1h").await.unwrap_err().to_string();
    assert!(too_early.contains("it begins at"), "{too_early}");
    let of_nic = |item: &&HistoryEntryView| item.class == "nic";
    let first = page.items.iter().rev().find(of_nic).unwrap();
    let then = api.diff_since(NODE, &first.at).await.unwrap();
    let differs: Vec<_> = then
        .differences
        .iter()
        .filter(|d| d.verdict == "differs")
        .collect();
    assert_eq!(differs.len(), 1, "{differs:?}");
    assert_eq!((&*differs[0].left, &*differs[0].right), (OLD, NEW));
    let changes = api.changes(Some("1h")).await.unwrap();
    let change = changes
        .changes
        .iter()
        .find(|c| c.change.key == drift.key)
        .unwrap();
    assert_eq!((&*change.nodes, change.count), (NODE, 1));
    let all = "gpu[001-004,006]";
    eventually(
        "what the others were at first is in their histories",
        || async {
            let changes = api.changes(Some("1h")).await.ok()?;
            (changes.new == all).then_some(())
        },
    )
    .await;
}
