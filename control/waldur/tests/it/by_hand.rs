//! Changes by hand in Waldur, as a person in finance or a customer makes them: plans switched back, rows deleted, ids
//! replaced, and orders that contradict the cluster. Found with a real Waldur; the fixture has the same rules.

use crate::{
    common::{BEGIN, HOUR, vcluster},
    waldur::{SyncFixture, id},
};
use lattice_fake_waldur::{Fault, OfferingSpec, Role, Rule, Version};
use lattice_waldur::{
    client::Right,
    cluster::AccountedCluster as _,
    status::{Outcome, SyncStatus},
    sync::ReconcileMode,
};
use serde_json::{Value, json};

const MONTH: &str = "2026-11";

/// A cluster with an offering that has two plans.
async fn with_two_plans() -> SyncFixture {
    let mut fixture = SyncFixture::new(Version::V7).await;
    let spec = OfferingSpec::slurm("batch")
        .usage("gpu_hours", "0.25")
        .usage("node_hours", "1")
        .limit("max_nodes")
        .plan("default", &[])
        .plan("other", &[("gpu_hours", "0.5"), ("node_hours", "2")]);
    let offering = fixture.waldur.add_offering(&spec).unwrap().uuid;
    fixture.settings.offerings = [(vcluster("batch"), offering)].into();
    fixture.succeeded(true);
    fixture
}

fn get(fixture: &SyncFixture, target: &str) -> Value {
    let (status, found) = fixture.waldur.request_as_admin("GET", target, &json!({}));
    assert_eq!(status, 200, "{target}: {found}");
    found
}

fn post(fixture: &SyncFixture, target: &str, body: &Value) -> Value {
    let (status, made) = fixture.waldur.request_as_admin("POST", target, body);
    assert!((200..300).contains(&status), "{target}: {made}");
    made
}

/// The resource that was made last.
fn resource(fixture: &SyncFixture) -> Value {
    fixture.waldur.snapshot().resources.pop().unwrap()
}

fn uuid(object: &Value) -> String {
    object["uuid"].as_str().unwrap().to_owned()
}

/// Orders the plan that a resource does not have, as its customer. Returns the order's UUID.
fn order_other_plan(fixture: &SyncFixture) -> String {
    let resource = resource(fixture);
    let offering = resource["offering_uuid"].as_str().unwrap();
    let target = format!("/api/marketplace-public-offerings/{offering}/");
    let plans = get(fixture, &target)["plans"].take();
    let is_other = |plan: &&Value| plan["uuid"] != resource["plan_uuid"];
    let other = plans.as_array().unwrap().iter().find(is_other).unwrap();
    let target = format!(
        "/api/marketplace-resources/{}/switch_plan/",
        uuid(&resource)
    );
    let made = post(fixture, &target, &json!({"plan": other["url"]}));
    made["order_uuid"].as_str().unwrap().to_owned()
}

/// Orders a new resource as a customer, with a name and a limit of nodes. Returns the order.
fn order_resource(fixture: &SyncFixture, project: &str, name: &str, limits: &Value) -> Value {
    let made = fixture.waldur.snapshot();
    let id = format!("lattice:project:{project}");
    let project = made.projects.iter().find(|one| one["backend_id"] == *id);
    let target = format!(
        "/api/marketplace-public-offerings/{}/",
        uuid(&made.offerings[0])
    );
    let offering = get(fixture, &target);
    let body = json!({
        "offering": offering["url"], "project": project.unwrap()["url"],
        "plan": offering["plans"][0]["url"], "attributes": {"name": name}, "limits": limits,
        "accepting_terms_of_service": true,
    });
    post(fixture, "/api/marketplace-orders/", &body)
}

fn order(fixture: &SyncFixture, uuid: &str) -> Value {
    get(fixture, &format!("/api/marketplace-orders/{uuid}/"))
}

/// Quantity on all invoices in hundredths, of one component.
fn billed(fixture: &SyncFixture, component: &str) -> i64 {
    let items = fixture.waldur.snapshot().invoice_items;
    let of_component = items
        .iter()
        .filter(|item| item["offering_component_type"] == component);
    let quantity = |item: &Value| item["quantity"].as_str().unwrap().parse::<f64>().unwrap();
    of_component
        .map(|item| (quantity(item) * 100.0).round() as i64)
        .sum()
}

fn reported(fixture: &SyncFixture) -> u64 {
    fixture.waldur.set_usage_calls().received as u64
}

/// A plan that was changed and changed back has two ended periods, whether Lattice saw the plan between or not.
#[tokio::test]
async fn a_plan_that_is_changed_back_bills_nothing_twice() {
    for is_seen in [true, false] {
        let mut fixture = with_two_plans().await;
        for _ in 0..2 {
            fixture.world.ran("physics", "batch", 1, HOUR);
            fixture.round().await;
        }
        for _ in 0..2 {
            let order = order_other_plan(&fixture);
            match is_seen {
                true => drop(fixture.round().await),
                false => {
                    let target = format!("/api/marketplace-orders/{order}/approve_by_provider/");
                    post(&fixture, &target, &json!({}));
                }
            }
        }
        fixture.world.ran("physics", "batch", 1, HOUR);
        fixture.round().await;
        // A report that replaced nothing is found in the next round.
        let status = fixture.round().await;
        assert_eq!(
            (status.failure, status.parked.len()),
            (None, 0),
            "{is_seen}"
        );
        fixture.assert_equal(MONTH, BEGIN, fixture.world.now());
        assert_eq!(billed(&fixture, "node_hours"), 300, "{is_seen}");
    }
}

/// Rows of an ended plan period, or of a former resource, that are deleted leave their invoice items. The usage is not
/// moved to the present plan, which would bill it twice; a line names it. New usage is reported, and nothing endlessly.
#[tokio::test]
async fn deleted_rows_that_no_report_replaces_become_a_line() {
    for is_ended in [false, true] {
        let mut fixture = with_two_plans().await;
        fixture.world.ran("physics", "batch", 1, HOUR);
        fixture.round().await;
        let first = uuid(&resource(&fixture));
        match is_ended {
            true => {
                let target = format!("/api/marketplace-resources/{first}/terminate/");
                post(&fixture, &target, &json!({}));
            }
            false => drop(order_other_plan(&fixture)),
        }
        fixture.round().await;
        fixture.world.ran("physics", "batch", 1, 2 * HOUR);
        fixture.round().await;
        fixture.assert_equal(MONTH, BEGIN, fixture.world.now());

        assert!(fixture.waldur.delete_usages(&first, MONTH) > 0);
        fixture.round().await;
        let before = reported(&fixture);
        let status = fixture.round().await;
        assert_eq!(reported(&fixture), before, "{is_ended}");
        let name = "fixed usage physics@batch 2026-11";
        let reason = status.parked.get(name).map(|line| line.reason.clone());
        assert!(
            reason.is_some_and(|reason| reason.contains("had 1.00 node-hours and 4.00 GPU-hours")),
            "{is_ended}: {:?}",
            status.parked
        );
        assert_eq!(billed(&fixture, "node_hours"), 300, "{is_ended}");
        fixture.world.ran("physics", "batch", 1, HOUR);
        fixture.round().await;
        assert_eq!(billed(&fixture, "node_hours"), 400, "{is_ended}");
        assert_eq!(
            fixture.totals(MONTH)[&id("physics@batch", "node_hours")],
            300,
            "{is_ended}"
        );

        let (now, mode) = (fixture.world.now(), ReconcileMode::Correct);
        let found = fixture.sync.reconcile(BEGIN, now, mode).await.unwrap();
        let are_corrected = found.iter().all(|one| one.outcome == Outcome::Corrected);
        assert!(are_corrected && found.len() == 2, "{is_ended}: {found:?}");
        assert_eq!(fixture.round().await.parked.len(), 0, "{is_ended}");
        fixture.assert_equal(MONTH, BEGIN, fixture.world.now());
    }
}

/// A schedule does not decide what a line leaves to an operator.
#[tokio::test]
async fn a_schedule_moves_no_usage_of_an_ended_plan() {
    let mut fixture = with_two_plans().await;
    fixture.settings.reconcile_every = Some(std::time::Duration::from_secs(3_600));
    fixture.succeeded(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    order_other_plan(&fixture);
    fixture.round().await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let resource = uuid(&resource(&fixture));
    assert!(fixture.waldur.delete_usages(&resource, MONTH) > 0);
    fixture.round().await;
    fixture.wait(2 * HOUR);
    let status = fixture.round().await;
    assert_eq!(status.parked.len(), 1, "{status:?}");
    assert_eq!(billed(&fixture, "node_hours"), 200);
}

/// A resource with a replaced id is not ordered a second time, which would bill the month twice.
#[tokio::test]
async fn a_resource_with_another_id_is_not_ordered_again() {
    let mut fixture = with_two_plans().await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let resource = uuid(&resource(&fixture));
    let target = format!("/api/marketplace-provider-resources/{resource}/set_backend_id/");
    post(&fixture, &target, &json!({"backend_id": "finance-4711"}));
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    let line = status.parked.values().next().unwrap();
    assert!(
        line.reason.contains("finance-4711") && line.reason.contains(&resource),
        "{line:?}"
    );
    assert_eq!(fixture.waldur.snapshot().resources.len(), 1);
    assert_eq!(billed(&fixture, "node_hours"), 100);
    post(
        &fixture,
        &target,
        &json!({"backend_id": "lattice:alps:physics@batch"}),
    );
    fixture.wait(16 * 60_000);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    fixture.assert_equal(MONTH, BEGIN, fixture.world.now());
    assert_eq!(billed(&fixture, "node_hours"), 200);
}

/// A project that was deleted in Waldur is looked up again at once, not a quarter of an hour later.
#[tokio::test]
async fn a_deleted_project_is_looked_up_again_at_once() {
    let mut fixture = with_two_plans().await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let first = uuid(&resource(&fixture));
    let target = format!("/api/marketplace-resources/{first}/terminate/");
    post(&fixture, &target, &json!({}));
    fixture.round().await;
    let gone = Rule::new("/api/marketplace-orders/", Fault::status(400));
    fixture.waldur.add_fault(gone.method("POST").times(1));
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    fixture.assert_equal(MONTH, BEGIN, fixture.world.now());
    // A refusal that has another cause is set aside after one repeat.
    let target = format!(
        "/api/marketplace-resources/{}/terminate/",
        uuid(&resource(&fixture))
    );
    post(&fixture, &target, &json!({}));
    fixture.round().await;
    let refused = Rule::new("/api/marketplace-orders/", Fault::status(400));
    fixture.waldur.add_fault(refused.method("POST"));
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.waldur.clear_requests();
    let status = fixture.round().await;
    assert_eq!(status.parked.len(), 1);
    let requests = fixture.waldur.requests();
    let orders = requests
        .iter()
        .filter(|request| request.method == "POST" && request.target == "/api/marketplace-orders/");
    assert_eq!(orders.count(), 2);
}

/// A vCluster with another offering since this month bills the rest of the month there, also after a restart.
#[tokio::test]
async fn another_offering_gets_the_rest_of_the_month() {
    let mut fixture = with_two_plans().await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let spec = OfferingSpec::slurm("other batch")
        .usage("gpu_hours", "0.25")
        .usage("node_hours", "1")
        .limit("max_nodes");
    let offering = fixture.waldur.add_offering(&spec).unwrap().uuid;
    fixture.settings.offerings = [(vcluster("batch"), offering)].into();
    for _ in 0..2 {
        fixture.succeeded(true);
        fixture.world.ran("physics", "batch", 1, HOUR);
        for _ in 0..2 {
            let status = fixture.round().await;
            assert_eq!((status.failure, status.parked.len()), (None, 0));
        }
        fixture.assert_equal(MONTH, BEGIN, fixture.world.now());
    }
    assert_eq!(billed(&fixture, "node_hours"), 300);
}

/// A project that begins to use nodes while its customer's order waits has one resource.
#[tokio::test]
async fn a_project_gets_no_second_resource_in_one_round() {
    let mut fixture = with_two_plans().await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let target = format!(
        "/api/marketplace-resources/{}/terminate/",
        uuid(&resource(&fixture))
    );
    post(&fixture, &target, &json!({}));
    fixture.round().await;
    let made = order_resource(&fixture, "physics", "ours", &json!({"max_nodes": 60}));
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    let made = order(&fixture, &uuid(&made));
    let text = made["error_message"].as_str().unwrap_or_default();
    assert_eq!(made["state"], "rejected", "{made}");
    assert!(text.contains("has a resource already"), "{text}");
    let resources = fixture.waldur.snapshot().resources;
    let accepting = resources.iter().filter(|one| one["state"] == "OK");
    assert_eq!(accepting.count(), 1);
    fixture.assert_equal(MONTH, BEGIN, fixture.world.now());
}

/// Resources that exist are billed without a plan for orders: where the plan of the settings was archived.
#[tokio::test]
async fn an_archived_plan_ends_no_report() {
    let mut fixture = with_two_plans().await;
    fixture.settings.plans = [(vcluster("batch"), "other".to_owned())].into();
    fixture.succeeded(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let plan = resource(&fixture)["plan_uuid"].clone();
    assert!(fixture.waldur.archive_plan(plan.as_str().unwrap()));
    fixture.succeeded(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.world.ran("bio", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!(status.failure, None);
    let totals = fixture.totals(MONTH);
    assert_eq!(totals[&id("physics@batch", "node_hours")], 200);
    assert_eq!(totals.get(&id("bio@batch", "node_hours")), None);
    let names: Vec<_> = status.parked.keys().map(String::as_str).collect();
    assert_eq!(names, ["offering of batch"]);
}

/// A customer that orders a new resource with fewer nodes than its projects have is refused, with the reason.
#[tokio::test]
async fn a_new_resource_with_a_limit_that_lattice_refuses_is_refused() {
    let mut fixture = with_two_plans().await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let first = uuid(&resource(&fixture));
    let target = format!("/api/marketplace-resources/{first}/terminate/");
    post(&fixture, &target, &json!({}));
    fixture.round().await;
    // The project physics/higgs may use 50 nodes.
    for (nodes, expected, limit) in [(20, "rejected", 100), (60, "done", 60)] {
        let made = order_resource(&fixture, "physics", "ours", &json!({"max_nodes": nodes}));
        let status = fixture.round().await;
        assert_eq!((status.failure, status.parked.len()), (None, 0), "{nodes}");
        let made = order(&fixture, &uuid(&made));
        assert_eq!(made["state"], expected, "{nodes}: {made}");
        let text = made["error_message"].as_str().unwrap_or_default();
        assert_eq!(text.contains("max_nodes"), expected == "rejected", "{text}");
        assert_eq!(fixture.world.max_nodes("physics"), Some(limit), "{nodes}");
    }
    // The resource is the project's.
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    fixture.assert_equal(MONTH, BEGIN, fixture.world.now());
    assert_eq!(fixture.waldur.snapshot().resources.len(), 3);
}

/// An order for another plan shows the limits that the resource has. They are no order for these limits.
#[tokio::test]
async fn another_plan_leaves_the_limit_of_an_administrator() {
    use lattice_quorum_types::limit::{LimitPatch, Patch};
    let mut fixture = with_two_plans().await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let target = format!(
        "/api/marketplace-resources/{}/update_limits/",
        uuid(&resource(&fixture))
    );
    post(&fixture, &target, &json!({"limits": {"max_nodes": 70}}));
    fixture.round().await;
    assert_eq!(fixture.world.max_nodes("physics"), Some(70));
    let patch = LimitPatch {
        max_nodes: Patch::Set(90),
        ..LimitPatch::default()
    };
    let physics = crate::common::path("physics");
    fixture.world.set_limits(&physics, patch).await.unwrap();
    let switched = order_other_plan(&fixture);
    fixture.round().await;
    assert_eq!(order(&fixture, &switched)["state"], "done");
    assert_eq!(fixture.world.max_nodes("physics"), Some(90));

    // Waldur fails at other limits in this month, and would block the resource: they are refused, with the reason.
    let made = post(&fixture, &target, &json!({"limits": {"max_nodes": 80}}));
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    let made = order(&fixture, made["order_uuid"].as_str().unwrap());
    let text = made["error_message"].as_str().unwrap_or_default();
    assert_eq!(made["state"], "rejected", "{made}");
    assert!(text.contains("before the next month"), "{text}");
    assert_eq!(resource(&fixture)["state"], "OK");
    assert_eq!(fixture.world.max_nodes("physics"), Some(90));
    // Another plan, and usage, go on.
    let switched = order_other_plan(&fixture);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    assert_eq!(order(&fixture, &switched)["state"], "done");
    fixture.assert_equal(MONTH, BEGIN, fixture.world.now());
}

/// A limit is not in force where Waldur does not let us accept its order.
#[tokio::test]
async fn a_limit_without_its_order_is_set_back() {
    let mut fixture = with_two_plans().await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let target = format!(
        "/api/marketplace-resources/{}/update_limits/",
        uuid(&resource(&fixture))
    );
    post(&fixture, &target, &json!({"limits": {"max_nodes": 70}}));
    let approve = "/api/marketplace-orders/*/approve_by_provider/";
    fixture
        .waldur
        .add_fault(Rule::new(approve, Fault::status(403)).times(1));
    let status = fixture.round().await;
    let missing = |status: &SyncStatus| {
        let missing = status.missing_rights.summaries();
        missing.iter().map(|one| one.right).collect::<Vec<_>>()
    };
    assert_eq!((&status.failure, status.parked.len()), (&None, 0));
    assert_eq!(missing(&status), [Right::ApproveOrders]);
    assert_eq!(fixture.world.max_nodes("physics"), Some(100));
    fixture.wait(16 * 60_000);
    let status = fixture.round().await;
    assert_eq!((&status.failure, status.parked.len()), (&None, 0));
    assert_eq!(missing(&status), []);
    assert_eq!(fixture.world.max_nodes("physics"), Some(70));
}

/// Waldur answers an approval with success, also where the order errs after it.
#[tokio::test]
async fn an_order_that_errs_after_its_approval_is_not_accepted() {
    let mut fixture = with_two_plans().await;
    // Without an allocation that is ok, new limits err.
    let set_state = "/api/marketplace-slurm-remote/*/set_state/";
    fixture
        .waldur
        .add_fault(Rule::new(set_state, Fault::status(404)));
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let target = format!(
        "/api/marketplace-resources/{}/update_limits/",
        uuid(&resource(&fixture))
    );
    let made = post(&fixture, &target, &json!({"limits": {"max_nodes": 70}}));
    let ordered = made["order_uuid"].as_str().unwrap();
    let status = fixture.round().await;
    assert_eq!(order(&fixture, ordered)["state"], "erred");
    let line = status.parked.values().next().unwrap();
    assert!(line.reason.contains("has erred"), "{line:?}");
    assert_eq!(fixture.world.max_nodes("physics"), Some(100));
}

/// The order of another cluster at the same offering, and one of this cluster for an allocation, are answered by their
/// makers alone.
#[tokio::test]
async fn orders_that_a_cluster_makes_for_itself_are_not_answered_as_those_of_customers() {
    let mut fixture = with_two_plans().await;
    fixture.world.ran("physics/higgs", "batch", 1, HOUR);
    fixture.round().await;
    for name in [
        "lattice:eiger:physics/higgs@batch",
        "lattice:alps:physics/higgs@batch#7",
    ] {
        let made = order_resource(&fixture, "physics/higgs", name, &json!({}));
        fixture.round().await;
        assert_eq!(order(&fixture, &uuid(&made))["state"], "pending-provider");
    }
    let made = fixture.waldur.snapshot().resources;
    let is_ours = |one: &&Value| one["backend_id"] == "lattice:alps:physics/higgs@batch";
    assert_eq!((made.len(), made.iter().filter(is_ours).count()), (3, 1));
}

/// A version that the token's user may not read costs no call in every round.
#[tokio::test]
async fn a_refused_version_is_read_again_after_a_while() {
    let mut fixture = with_two_plans().await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let provider = fixture.waldur.add_user("provider", Role::Provider);
    let site = fixture.waldur.snapshot().offerings[0]["customer_uuid"].clone();
    assert!(fixture.waldur.add_owner(site.as_str().unwrap(), "provider"));
    std::fs::write(fixture.folder.path().join("token"), provider).unwrap();
    fixture.succeeded(true);
    fixture.waldur.clear_requests();
    let reads = |fixture: &SyncFixture| {
        let requests = fixture.waldur.requests();
        let of_version = |target: &str| target.starts_with("/api/version/");
        requests
            .iter()
            .filter(|one| of_version(&one.target))
            .count()
    };
    for _ in 0..3 {
        fixture.wait(60_000);
        let status = fixture.round().await;
        assert_eq!((status.failure, status.version), (None, None));
    }
    assert_eq!(reads(&fixture), 1);
    fixture.wait(16 * 60_000);
    fixture.round().await;
    assert_eq!(reads(&fixture), 2);
}
