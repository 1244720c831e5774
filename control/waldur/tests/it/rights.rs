//! Rights that the token's user lacks: one line each, one probe per quarter of an hour, and no line once granted.

use crate::{
    common::{HOUR, path, vcluster},
    waldur::SyncFixture,
};
use lattice_fake_waldur::{CreatedOffering, OfferingSpec, Role, Version};
use lattice_quorum_types::Command;
use lattice_waldur::{
    client::{MAX_REQUESTS_AT_ONCE, ObjectParameters, Right},
    cluster::AccountedCluster as _,
    missing_rights::MissingRightSummary,
    status::SyncStatus,
};
use serde_json::json;
use std::fs;

const SET_USAGE: &str = "RESOURCE.SET_USAGE";
const APPROVE: &str = "ORDER.APPROVE";
const REJECT: &str = "ORDER.REJECT";
const SET_BACKEND_ID: &str = "RESOURCE.SET_BACKEND_ID";
const TERMINATE: &str = "RESOURCE.TERMINATE";
/// Permissions of a provider.
const ALL: [&str; 5] = [SET_USAGE, APPROVE, REJECT, SET_BACKEND_ID, TERMINATE];
/// Time after which the next probe is due.
const PROBE_MS: u64 = 16 * 60_000;

/// A cluster with an offering of its own provider. Staff has ordered its resources; the token's user `site` has no role
/// yet.
struct Site {
    fixture: SyncFixture,
    offering: CreatedOffering,
    token: String,
}

impl Site {
    async fn new(projects: usize) -> Self {
        let mut fixture = SyncFixture::new(Version::V7).await;
        let spec = OfferingSpec::slurm("batch")
            .usage("gpu_hours", "0.25")
            .usage("node_hours", "1")
            .limit("max_nodes");
        let offering = fixture.waldur.add_offering(&spec).unwrap();
        fixture.settings.offerings = [(vcluster("batch"), offering.uuid.clone())].into();
        fixture.succeeded(true);
        fixture.world.project("chem", 1_000);
        let mut site = Self {
            token: fixture.waldur.add_user("site", Role::Provider),
            fixture,
            offering,
        };
        for number in 0..projects {
            site.fixture.world.project(&format!("chem/p{number:02}"), 1);
        }
        site.use_all(projects);
        assert_eq!(lines(&site.fixture.round().await), (0, 0));
        site
    }

    /// Uses an hour of each project.
    fn use_all(&self, projects: usize) {
        for number in 0..projects {
            let project = format!("chem/p{number:02}");
            self.fixture.world.ran(&project, "batch", 1, 60_000);
        }
        self.fixture.wait(HOUR);
    }

    fn grant(&self, permissions: &[&str]) {
        let provider = &self.offering.provider;
        assert!(self.fixture.waldur.grant(provider, "site", permissions));
    }

    /// Replaces the token by that of `site`, in a new process.
    fn begin_as_site(&mut self) {
        fs::write(self.fixture.folder.path().join("token"), &self.token).unwrap();
        self.fixture.succeeded(false);
        self.fixture.waldur.clear_requests();
    }

    /// Number of requests to paths with this part since the last call.
    fn requests(&self, part: &str) -> usize {
        let requests = self.fixture.waldur.requests();
        self.fixture.waldur.clear_requests();
        let is_of = |path: &str| path.contains(part);
        requests.iter().filter(|one| is_of(&one.target)).count()
    }

    /// The only resource.
    fn resource(&self) -> String {
        let made = self.fixture.waldur.snapshot();
        made.resources[0]["uuid"].as_str().unwrap().to_owned()
    }

    /// An order of the customer for this number of nodes.
    fn order_nodes(&self, nodes: u64) {
        let target = format!(
            "/api/marketplace-resources/{}/update_limits/",
            self.resource()
        );
        let body = json!({"limits": {"max_nodes": nodes}});
        let (status, made) = self.fixture.waldur.request_as_admin("POST", &target, &body);
        assert_eq!(status, 200, "{made}");
    }

    /// A round of which the status has this right as its only line.
    async fn round_lacking(&mut self, right: Right) -> MissingRightSummary {
        let status = self.fixture.round().await;
        assert_eq!(status.failure, None, "{right:?}");
        assert_eq!(status.parked.len(), 0, "{right:?}: {:?}", status.parked);
        let missing = status.missing_rights.summaries();
        let rights: Vec<Right> = missing.iter().map(|one| one.right).collect();
        assert_eq!(rights, [right], "{missing:?}");
        missing.into_iter().next().unwrap()
    }
}

/// Numbers of lines: of missing rights and of others.
fn lines(status: &SyncStatus) -> (usize, usize) {
    assert_eq!(status.failure, None);
    (status.missing_rights.summaries().len(), status.parked.len())
}

#[tokio::test]
async fn a_missing_right_is_one_line_until_granted() {
    let mut site = Site::new(40).await;
    site.grant(&[APPROVE]);
    site.begin_as_site();
    site.use_all(40);
    let before = site.fixture.totals("2026-11");
    let missing = site.round_lacking(Right::SetUsage).await;
    assert_eq!(
        (missing.waiting, missing.places),
        (40, vec!["vCluster batch".to_owned()])
    );
    assert!(missing.reason.contains("403"), "{}", missing.reason);
    let since = missing.since;
    // The reports that were on their way together.
    let sent = site.requests("set_usage");
    assert!((1..=MAX_REQUESTS_AT_ONCE).contains(&sent), "{sent}");
    for _ in 0..3 {
        site.fixture.wait(60_000);
        site.round_lacking(Right::SetUsage).await;
    }
    assert_eq!(site.requests("set_usage"), 0);
    for _ in 0..3 {
        site.fixture.wait(PROBE_MS);
        let missing = site.round_lacking(Right::SetUsage).await;
        assert_eq!((missing.waiting, missing.since), (40, since));
        assert_eq!(site.requests("set_usage"), 1);
    }
    assert_eq!(site.fixture.totals("2026-11"), before);

    site.grant(&[SET_USAGE]);
    site.fixture.wait(PROBE_MS);
    assert_eq!(lines(&site.fixture.round().await), (0, 0));
    assert_eq!(lines(&site.fixture.round().await), (0, 0));
    let now = site.fixture.world.now();
    site.fixture
        .assert_equal("2026-11", crate::common::BEGIN, now);
}

/// A resource of a deleted project does not end while its last usage waits for a right.
#[tokio::test]
async fn a_resource_that_waits_for_a_report_does_not_end() {
    let mut site = Site::new(1).await;
    site.grant(&[APPROVE, TERMINATE]);
    assert!(
        site.fixture
            .waldur
            .add_manager(&site.offering.provider, "site")
    );
    site.begin_as_site();
    site.use_all(1);
    let deleted = path("chem/p00");
    site.fixture
        .world
        .admin(Command::DeleteProject { path: deleted });
    site.round_lacking(Right::SetUsage).await;
    assert_eq!(site.requests("terminate"), 0);
}

/// Each right that is missing has its own name, also where the request is an order of a customer.
#[tokio::test]
async fn each_right_has_its_name() {
    for (missing, right) in [
        (APPROVE, Right::ApproveOrders),
        (REJECT, Right::RejectOrders),
        (TERMINATE, Right::EndResources),
    ] {
        let mut site = Site::new(1).await;
        let others: Vec<&str> = ALL.into_iter().filter(|one| *one != missing).collect();
        site.grant(&others);
        // The role by name that the state of an allocation needs.
        assert!(
            site.fixture
                .waldur
                .add_manager(&site.offering.provider, "site")
        );
        site.begin_as_site();
        match right {
            Right::ApproveOrders => site.order_nodes(70),
            // The limits of the projects below are 1 in all.
            Right::RejectOrders => site.order_nodes(0),
            _ => {
                let deleted = path("chem/p00");
                site.fixture
                    .world
                    .admin(Command::DeleteProject { path: deleted });
            }
        }
        let line = site.round_lacking(right).await;
        assert_eq!(line.waiting, 1);
        assert_eq!(line.places, ["vCluster batch"]);
    }
}

/// The state of an allocation needs a role by name; the customer's order waits for it.
#[tokio::test]
async fn new_limits_wait_for_the_role_of_a_manager() {
    let mut site = Site::new(1).await;
    site.grant(&ALL);
    site.begin_as_site();
    site.order_nodes(70);
    site.round_lacking(Right::SetAllocationState).await;
    assert!(
        site.fixture
            .waldur
            .add_manager(&site.offering.provider, "site")
    );
    site.fixture.wait(PROBE_MS);
    assert_eq!(lines(&site.fixture.round().await), (0, 0));
    assert_eq!(site.fixture.world.max_nodes("chem"), Some(70));
}

/// The end of a resource needs the approval of its customer unless the user owns the provider.
#[tokio::test]
async fn an_end_that_waits_for_the_customer_names_the_owner() {
    let mut site = Site::new(1).await;
    site.grant(&[SET_USAGE, TERMINATE]);
    site.begin_as_site();
    let deleted = path("chem/p00");
    site.fixture
        .world
        .admin(Command::DeleteProject { path: deleted });
    let line = site.round_lacking(Right::EndResources).await;
    assert!(
        line.reason.contains("approve_by_consumer"),
        "{}",
        line.reason
    );
}

/// New resources wait together, by tenant, for the rights at its customer.
#[tokio::test]
async fn new_resources_wait_for_the_rights_at_the_customer() {
    let mut site = Site::new(1).await;
    assert!(
        site.fixture
            .waldur
            .add_owner(&site.offering.provider, "site")
    );
    site.begin_as_site();
    for project in ["bio", "physics", "physics/higgs"] {
        site.fixture.world.ran(project, "batch", 1, HOUR);
    }
    let line = site.round_lacking(Right::CreateCustomers).await;
    assert_eq!(line.places, ["tenant bio", "tenant physics"]);
    assert_eq!(line.waiting, 3);
    assert_eq!(
        site.requests("/api/customers/"),
        4,
        "a look and a try for each tenant"
    );
    // Staff creates a customer of one tenant, and gives the user a role that creates projects and approves no orders.
    let body = json!({"name": "bio", "backend_id": "lattice:tenant:bio"});
    let (_, made) = site
        .fixture
        .waldur
        .request_as_admin("POST", "/api/customers/", &body);
    let customer = made["uuid"].as_str().unwrap();
    assert!(
        site.fixture
            .waldur
            .grant(customer, "site", &["PROJECT.CREATE"])
    );
    site.fixture.wait(PROBE_MS);
    let status = site.fixture.round().await;
    let missing = status.missing_rights.summaries();
    let rights: Vec<_> = missing.iter().map(|one| (one.right, one.waiting)).collect();
    assert_eq!(
        rights,
        [(Right::OrderForCustomers, 1), (Right::CreateCustomers, 2)]
    );
    assert!(site.fixture.waldur.grant(customer, "site", &[APPROVE]));
    site.fixture.wait(PROBE_MS);
    let line = site.round_lacking(Right::CreateCustomers).await;
    assert_eq!(
        (line.waiting, line.places),
        (2, vec!["tenant physics".to_owned()])
    );
}

/// A user without any role sees nothing of the provider: one line, and no second resource.
#[tokio::test]
async fn a_user_without_a_role_orders_nothing() {
    let mut site = Site::new(5).await;
    site.begin_as_site();
    site.use_all(5);
    let line = site.round_lacking(Right::SeeProvider).await;
    assert_eq!(line.waiting, 6, "the offering and five totals");
    let orders = site.fixture.waldur.snapshot().orders.len();
    assert!(
        site.fixture
            .waldur
            .add_owner(&site.offering.provider, "site")
    );
    site.fixture.wait(PROBE_MS);
    site.fixture.round().await;
    assert_eq!(lines(&site.fixture.round().await), (0, 0));
    let now = site.fixture.world.now();
    site.fixture
        .assert_equal("2026-11", crate::common::BEGIN, now);
    assert_eq!(site.fixture.waldur.snapshot().orders.len(), orders);
}

/// A role that is withdrawn while the process runs hides the resources; their usage is not ordered again.
#[tokio::test]
async fn a_withdrawn_role_orders_no_second_resource() {
    let mut site = Site::new(2).await;
    let orders = site.fixture.waldur.snapshot().orders.len();
    // The offering stays in the cache of the process, and the token is that of a user without a role.
    fs::write(site.fixture.folder.path().join("token"), &site.token).unwrap();
    let admin = site.fixture.waldur.token().to_owned();
    assert!(site.fixture.waldur.revoke_token(&admin));
    site.use_all(2);
    let status = site.fixture.round().await;
    let failure = status.failure.unwrap();
    assert!(
        failure.contains("a role on the provider's customer"),
        "{failure}"
    );
    assert_eq!(site.fixture.waldur.snapshot().orders.len(), orders);
}

/// An order that its customer withdraws leaves no line.
#[tokio::test]
async fn a_withdrawn_order_waits_no_longer() {
    let mut site = Site::new(1).await;
    site.grant(&[SET_USAGE]);
    assert!(
        site.fixture
            .waldur
            .add_manager(&site.offering.provider, "site")
    );
    site.begin_as_site();
    site.order_nodes(70);
    site.round_lacking(Right::ApproveOrders).await;
    let made = site.fixture.waldur.snapshot();
    let open = made
        .orders
        .iter()
        .find(|one| one["state"] == "pending-provider");
    let target = format!(
        "/api/marketplace-orders/{}/reject_by_provider/",
        open.unwrap()["uuid"].as_str().unwrap()
    );
    let (status, _) = site
        .fixture
        .waldur
        .request_as_admin("POST", &target, &json!({}));
    assert_eq!(status, 200);
    assert_eq!(lines(&site.fixture.round().await), (0, 0));
}

/// What the roles in Waldur show before the start is what the rounds find.
#[tokio::test]
async fn missing_rights_are_known_before_the_start() {
    let site = Site::new(1).await;
    let client = |token: &str| {
        fs::write(site.fixture.folder.path().join("token"), token).unwrap();
        crate::waldur::client(&site.fixture.world, &site.fixture.settings)
    };
    let parameters = ObjectParameters::new("alps", &site.fixture.settings);
    let missing = async |token: &str| {
        let missing = client(token)
            .missing_rights(&parameters)
            .await
            .unwrap()
            .unwrap();
        missing.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(missing(site.fixture.waldur.token()).await, []);
    assert_eq!(missing(&site.token).await, [Right::SeeProvider]);
    site.grant(&[SET_USAGE, TERMINATE]);
    assert_eq!(
        missing(&site.token).await,
        [
            Right::ApproveOrders,
            Right::RejectOrders,
            Right::SetBackendId,
            Right::SetAllocationState,
            Right::EndResources
        ]
    );
    assert!(
        site.fixture
            .waldur
            .add_manager(&site.offering.provider, "site")
    );
    assert_eq!(
        missing(&site.token).await,
        [
            Right::ApproveOrders,
            Right::RejectOrders,
            Right::EndResources
        ]
    );
    assert!(
        site.fixture
            .waldur
            .add_owner(&site.offering.provider, "site")
    );
    assert_eq!(missing(&site.token).await, []);
    // A cluster that creates its offerings.
    let mut settings = site.fixture.settings.clone();
    settings.offerings.clear();
    let missing = async |settings: &_| {
        let parameters = ObjectParameters::new("alps", settings);
        let missing = client(&site.token).missing_rights(&parameters).await;
        missing.unwrap().unwrap().into_keys().collect::<Vec<_>>()
    };
    assert_eq!(missing(&settings).await, [Right::CreateCustomers]);
    settings.provider_customer = Some(site.offering.provider.clone());
    assert_eq!(missing(&settings).await, [Right::ActivateOfferings]);
}
