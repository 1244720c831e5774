//! Calls of rounds with many resources, and work that no report waits for.

use crate::{
    common::{BEGIN, HOUR, path},
    waldur::SyncFixture,
};
use lattice_fake_waldur::{Fault, Moment, OfferingSpec, Rule, Version};
use lattice_quorum_types::Command;
use lattice_waldur::{
    client::MAX_REQUESTS_AT_ONCE, cluster::AccountedCluster as _, status::SyncStatus,
};
use serde_json::{Map, Value, json};
use std::time::Duration;

const SET_USAGE: &str = "/api/marketplace-component-usages/set_usage/";
const ORDERS: &str = "/api/marketplace-orders/";
const TERMINATE: &str = "/api/marketplace-provider-resources/*/terminate/";
/// Interval of rounds in which work that reports do not wait for begins for 50 ms.
const INTERVAL: Duration = Duration::from_millis(200);
/// Largest number of requests at the same time.
const AT_ONCE: usize = MAX_REQUESTS_AT_ONCE;

/// A fixture with projects `chem/p0`, … that have resources and usage.
async fn fixture(projects: usize) -> SyncFixture {
    let mut fixture = SyncFixture::new(Version::V7).await;
    fixture.world.project("chem", 10_000);
    for number in 0..projects {
        fixture.world.project(&project(number), 1);
    }
    use_hours(&fixture, projects);
    while fixture.world.head().acknowledged < fixture.world.head().last {
        succeeds(&mut fixture).await;
    }
    fixture.waldur.clear_requests();
    fixture
}

/// Makes the interval between rounds short.
fn shorten(fixture: &mut SyncFixture) {
    fixture.settings.interval = INTERVAL;
    fixture.succeeded(true);
}

fn project(number: usize) -> String {
    format!("chem/p{number}")
}

fn use_hours(fixture: &SyncFixture, projects: usize) {
    for number in 0..projects {
        fixture.world.ran(&project(number), "batch", 1, HOUR);
    }
}

async fn succeeds(fixture: &mut SyncFixture) -> SyncStatus {
    let status = fixture.round().await;
    assert_eq!((&status.failure, status.parked.len()), (&None, 0));
    status
}

/// Numbers of all requests and of reports since the last call.
fn calls(fixture: &SyncFixture) -> (usize, usize) {
    let requests = fixture.waldur.requests();
    fixture.waldur.clear_requests();
    let is_report = |target: &str| target == SET_USAGE;
    let reports = requests.iter().filter(|one| is_report(&one.target));
    (requests.len(), reports.count())
}

/// Place of the first request with this method to a target with this beginning.
fn first(fixture: &SyncFixture, method: &str, target: &str) -> usize {
    let requests = fixture.waldur.requests();
    let is_it = |place: &usize| {
        requests[*place].method == method && requests[*place].target.contains(target)
    };
    (0..requests.len()).find(is_it).unwrap()
}

fn resources(fixture: &SyncFixture, state: &str) -> Vec<String> {
    let made = fixture.waldur.snapshot().resources.into_iter();
    let made = made.filter(|one| one["state"] == state);
    made.map(|one| one["uuid"].as_str().unwrap().to_owned())
        .collect()
}

/// A round with nothing to report costs few calls, whatever the number of resources, also where each has a limit of
/// hours.
#[tokio::test]
async fn a_round_at_rest_costs_few_calls() {
    let mut fixture = fixture(120).await;
    for resource in resources(&fixture, "OK") {
        let limits = Map::from_iter([("gpu_hours".to_owned(), json!(100))]);
        assert!(fixture.waldur.set_limits(&resource, limits));
    }
    succeeds(&mut fixture).await;
    // A page of resources, the plan switches, a page of usage, and the orders.
    assert_eq!(calls(&fixture), (4, 0));
    // No field of another object, which costs Waldur a query for each resource or row.
    succeeds(&mut fixture).await;
    let requests = fixture.waldur.requests();
    let fields = |path: &str| {
        let targets = requests.iter().map(|one| one.target.as_str());
        let mut of_path = targets.filter(|target| target.starts_with(path));
        let target = of_path.next().unwrap().to_owned();
        assert_eq!(of_path.next(), None);
        let fields = target
            .split('&')
            .filter_map(|part| part.strip_prefix("field="));
        fields.map(str::to_owned).collect::<Vec<_>>()
    };
    let of_resources = [
        "uuid",
        "backend_id",
        "state",
        "created",
        "limits",
        "paused",
        "downscaled",
    ];
    assert_eq!(fields("/api/marketplace-provider-resources/"), of_resources);
    let of_rows = ["uuid", "billing_period", "usage"];
    assert_eq!(fields("/api/marketplace-component-usages/"), of_rows);
    let orders = requests.iter().filter(|one| one.target.starts_with(ORDERS));
    assert!(
        orders.clone().all(|one| one.target.contains("field=uuid")),
        "{orders:?}"
    );
}

/// The resource and the component of a few new usage rows are read row by row, those of many with one list.
#[tokio::test]
async fn new_usage_rows_are_read_once() {
    let mut fixture = fixture(10).await;
    succeeds(&mut fixture).await;
    for (new, reads) in [(2, 4), (3, 1)] {
        let projects = fixture.waldur.snapshot().resources.len();
        for number in projects..projects + new {
            fixture.world.project(&project(number), 1);
            fixture.world.ran(&project(number), "batch", 1, HOUR);
        }
        succeeds(&mut fixture).await;
        calls(&fixture);
        succeeds(&mut fixture).await;
        assert_eq!(calls(&fixture), (4 + reads, 0), "{new}");
        succeeds(&mut fixture).await;
        assert_eq!(calls(&fixture), (4, 0), "{new}");
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    }
}

/// A changed total is one call, also for a control that has just started.
#[tokio::test]
async fn a_changed_total_is_one_call() {
    let mut fixture = fixture(40).await;
    use_hours(&fixture, 40);
    succeeds(&mut fixture).await;
    assert_eq!(calls(&fixture), (44, 40));
    fixture.succeeded(false);
    use_hours(&fixture, 40);
    succeeds(&mut fixture).await;
    // Besides: the version, two for the offering, the usage of October, and resources in former offerings.
    assert_eq!(calls(&fixture), (49, 40));
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// A control that has just started reads the scopes of many ended resources with one call.
#[tokio::test]
async fn ended_resources_are_read_together() {
    let mut fixture = fixture(30).await;
    for number in 0..30 {
        let path = path(&project(number));
        fixture.world.admin(Command::DeleteProject { path });
    }
    while !resources(&fixture, "OK").is_empty() {
        succeeds(&mut fixture).await;
    }
    fixture.succeeded(false);
    calls(&fixture);
    let status = succeeds(&mut fixture).await;
    assert_eq!(status.reported, 0);
    // The version, two for the offering, a page of resources, the plan switches, the usage of October and November, the
    // ended resources, and the orders.
    assert_eq!(calls(&fixture), (9, 0));
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// Reports are sent before resources are ended, and those of later rounds do not wait until all are.
#[tokio::test]
async fn reports_do_not_wait_for_ends() {
    let count = AT_ONCE + 10;
    let mut fixture = fixture(count).await;
    shorten(&mut fixture);
    for number in 0..count {
        let path = path(&project(number));
        fixture.world.admin(Command::DeleteProject { path });
    }
    let slow = Fault::Slow {
        ms: 100,
        when: Moment::Before,
    };
    fixture.waldur.add_fault(Rule::new(TERMINATE, slow));
    fixture.world.ran("bio", "batch", 1, HOUR);
    succeeds(&mut fixture).await;
    let ended = resources(&fixture, "Terminated").len();
    assert!((1..=AT_ONCE).contains(&ended), "{ended}");
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    assert!(first(&fixture, "POST", SET_USAGE) < first(&fixture, "POST", "/terminate/"));
    fixture.world.ran("bio", "batch", 1, HOUR);
    while !fixture
        .waldur
        .snapshot()
        .resources
        .iter()
        .all(is_over_or_of_bio)
    {
        succeeds(&mut fixture).await;
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    }
    // Each end is four calls: the order, its approval, its state, and its completion.
    let requests = fixture.waldur.requests();
    let of_ends = requests.iter().filter(|one| {
        let parts = [
            "/terminate/",
            "approve_by",
            "set_state_done",
            "resource_uuid=",
        ];
        parts.iter().any(|part| one.target.contains(part))
    });
    // And as many to order the resource of bio.
    assert_eq!(of_ends.count(), 4 * count + 4);
}

fn is_over_or_of_bio(resource: &Value) -> bool {
    resource["state"] == "Terminated" || resource["backend_id"] == "lattice:alps:bio@batch"
}

/// Reports of resources that exist are sent before new ones are ordered. A round orders some, later rounds the others, and
/// none twice.
#[tokio::test]
async fn reports_do_not_wait_for_new_resources() {
    let mut fixture = fixture(1).await;
    shorten(&mut fixture);
    let count = AT_ONCE + 10;
    for number in 0..count {
        let tenant = format!("new{number}");
        fixture.world.project(&tenant, 1);
        fixture.world.ran(&tenant, "batch", 1, HOUR);
    }
    use_hours(&fixture, 1);
    let slow = Fault::Slow {
        ms: 100,
        when: Moment::Before,
    };
    fixture
        .waldur
        .add_fault(Rule::new(ORDERS, slow).method("POST"));
    succeeds(&mut fixture).await;
    let made = resources(&fixture, "OK").len();
    assert!((2..=AT_ONCE + 1).contains(&made), "{made}");
    assert!(first(&fixture, "POST", SET_USAGE) < first(&fixture, "POST", ORDERS));
    let head = fixture.world.head();
    assert!(head.acknowledged < head.last);
    while fixture.world.head().acknowledged < head.last {
        succeeds(&mut fixture).await;
    }
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    let made = fixture.waldur.snapshot();
    assert_eq!(made.resources.len(), count + 1);
    // Besides: the cluster's own customer, and chem.
    assert_eq!(made.customers.len(), count + 2);
}

/// An order is answered with five calls: its approval and its completion, the state between them, and the state of the
/// allocation twice.
#[tokio::test]
async fn an_order_is_answered_with_five_calls() {
    let mut fixture = fixture(40).await;
    for resource in resources(&fixture, "OK") {
        let target = format!("/api/marketplace-resources/{resource}/update_limits/");
        let body = json!({"limits": {"max_nodes": 2}});
        let (status, made) = fixture.waldur.request_as_admin("POST", &target, &body);
        assert_eq!(status, 200, "{made}");
    }
    fixture.waldur.clear_requests();
    succeeds(&mut fixture).await;
    // Besides the calls of a round at rest: resources and plan switches again.
    let (all, reports) = calls(&fixture);
    assert_eq!((all, reports), (4 + 40 * 5 + 2, 0));
    let orders = fixture.waldur.snapshot().orders;
    assert!(orders.iter().all(|one| one["state"] == "done"));
    assert_eq!(fixture.world.max_nodes("chem"), Some(80));
}

/// Another plan without an order is noticed at the next report, which is corrected one round later.
#[tokio::test]
async fn another_plan_without_an_order_is_noticed() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    let spec = OfferingSpec::slurm("batch")
        .usage("gpu_hours", "0.25")
        .usage("node_hours", "1")
        .limit("max_nodes")
        .plan("first", &[])
        .plan("other", &[]);
    let offering = fixture.waldur.add_offering(&spec).unwrap();
    let batch = crate::common::vcluster("batch");
    fixture.settings.offerings = [(batch, offering.uuid.clone())].into();
    fixture.succeeded(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    succeeds(&mut fixture).await;
    let resource = resources(&fixture, "OK").remove(0);
    assert!(
        fixture
            .waldur
            .set_plan(&resource, offering.plan_url("other"))
    );
    fixture.wait(HOUR);
    fixture.world.ran("physics", "batch", 1, HOUR);
    succeeds(&mut fixture).await;
    succeeds(&mut fixture).await;
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    fixture.world.ran("physics", "batch", 1, HOUR);
    succeeds(&mut fixture).await;
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// A running round is in the status, without the time of the retry that has begun.
#[tokio::test]
async fn a_running_round_is_in_the_status() {
    let mut fixture = fixture(1).await;
    use_hours(&fixture, 1);
    let busy = Rule::new("/api/*", Fault::status(503)).times(1);
    fixture.waldur.add_fault(busy);
    let failed = fixture.round().await;
    assert!(failed.failure.is_some() && failed.retry_at.is_some());
    assert_eq!(failed.round_since, None);
    fixture.wait(10 * 60_000);
    let status = fixture.sync.status();
    let during = async {
        loop {
            let status = status.lock().clone();
            if status.round_since.is_some() {
                return status;
            }
            tokio::task::yield_now().await;
        }
    };
    let began = fixture.world.now();
    let ((), during) = tokio::join!(fixture.sync.round(), during);
    assert_eq!((during.round_since, during.retry_at), (Some(began), None));
    let after = status.lock().clone();
    assert_eq!((after.round_since, after.failure), (None, None));
}
