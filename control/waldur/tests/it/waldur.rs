//! Tests of the synchronisation with a simulated Waldur that replies as a real one did.

use crate::common::{BEGIN, HOUR, World, path};
use jiff::{Timestamp, tz::TimeZone};
use lattice_fake_waldur::{Fault, Moment, Rule, Version, Waldur};
use lattice_quorum_types::{Command, UnixMillis, command::Privilege};
use lattice_waldur::{
    client::{WaldurClient, http_client},
    cluster::AccountedCluster as _,
    config::AccountingSettings,
    journal::Bounds,
    secret::{SecretRef, Secrets},
    status::{Outcome, SyncStatus},
    step::NoObserver,
    sync::{AccountingSync, ReconcileMode},
};
use std::{
    collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration,
};
use tempfile::TempDir;

pub struct SyncFixture {
    pub world: Arc<World>,
    pub waldur: Waldur,
    pub folder: TempDir,
    pub settings: AccountingSettings,
    pub sync: AccountingSync,
}

/// Another cluster at the same Waldur.
pub struct Neighbour {
    pub world: Arc<World>,
    sync: AccountingSync,
    _folder: TempDir,
}

impl Neighbour {
    pub async fn round(&mut self) -> SyncStatus {
        self.sync.round().await;
        self.sync.status().lock().clone()
    }
}

fn stamp(at: UnixMillis) -> Timestamp {
    Timestamp::from_millisecond(at.0 as i64).unwrap()
}

impl SyncFixture {
    pub async fn new(version: Version) -> Self {
        Self::with(version, |_| {}).await
    }

    pub async fn with(version: Version, change: impl FnOnce(&mut AccountingSettings)) -> Self {
        let world = Arc::new(World::new());
        world.project("physics", 100);
        world.project("physics/higgs", 50);
        world.project("bio", 100);
        let waldur = Waldur::builder().version(version).now(stamp(BEGIN));
        let waldur = waldur.start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, waldur.token()).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let mut settings = AccountingSettings {
            api: format!("{}/api/", waldur.url()).parse().unwrap(),
            token: SecretRef::File(token),
            interval: Duration::from_secs(60),
            bounds: Bounds {
                memory: 10_000,
                disk: 100_000,
            },
            folder: folder.path().join("wal"),
            zone: TimeZone::UTC,
            ca_file: None,
            vault: None,
            offerings: BTreeMap::new(),
            plans: BTreeMap::new(),
            reconcile_every: None,
            order_check_every: None,
            lower_totals: false,
            provider_customer: None,
            category: "HPC".to_owned(),
            take_limits: true,
            hook_secret: None,
            order_per_allocation: false,
            seed_paths: false,
        };
        change(&mut settings);
        let sync = sync(&world, &settings);
        Self {
            world,
            waldur,
            folder,
            settings,
            sync,
        }
    }

    /// Another control takes over; with `has_journal` on the same machine.
    pub fn succeeded(&mut self, has_journal: bool) {
        if !has_journal {
            let _ = fs::remove_dir_all(&self.settings.folder);
        }
        self.sync = sync(&self.world, &self.settings);
    }

    pub fn wait(&self, ms: u64) {
        self.world.wait(ms);
        self.waldur.set_now(stamp(self.world.now()));
    }

    pub async fn round(&mut self) -> SyncStatus {
        self.waldur.set_now(stamp(self.world.now()));
        self.sync.round().await;
        self.status()
    }

    /// Another cluster with the same projects, which reports to the offering `offering`.
    pub fn neighbour(&self, cluster: &'static str, offering: &str) -> Neighbour {
        let world = Arc::new(World::of(cluster));
        world.project("physics", 100);
        let folder = tempfile::tempdir().unwrap();
        let settings = AccountingSettings {
            folder: folder.path().join("wal"),
            offerings: [(crate::common::vcluster("batch"), offering.to_owned())].into(),
            ..self.settings.clone()
        };
        Neighbour {
            sync: sync(&world, &settings),
            world,
            _folder: folder,
        }
    }

    fn status(&self) -> SyncStatus {
        self.sync.status().lock().clone()
    }

    /// Amounts of one month in hundredths, by resource and component.
    pub fn totals(&self, month: &str) -> BTreeMap<(String, String), i128> {
        let totals = self.waldur.totals().into_iter();
        let of_month = totals.filter(|((_, _, of), _)| of == month);
        of_month
            .map(|((id, kind, _), amount)| ((id, kind), amount))
            .collect()
    }

    pub fn assert_equal(&self, month: &str, from: UnixMillis, until: UnixMillis) {
        assert_eq!(self.totals(month), self.world.truth(from, until));
    }
}

fn sync(world: &Arc<World>, settings: &AccountingSettings) -> AccountingSync {
    let http = http_client(&[]).unwrap();
    let secrets = Secrets {
        http: http.clone(),
        vault: None,
    };
    let waldur = WaldurClient::new(
        world.cluster(),
        http,
        settings.api.clone(),
        secrets,
        settings.token.clone(),
    );
    AccountingSync::new(
        world.clone(),
        waldur,
        settings.clone(),
        Arc::new(NoObserver),
    )
}

pub fn id(text: &str, kind: &str) -> (String, String) {
    (format!("lattice:alps:{text}"), kind.to_owned())
}

#[tokio::test]
async fn project_usage_reaches_waldur_once() {
    for version in [Version::V7, Version::V8] {
        let mut fixture = SyncFixture::new(version).await;
        fixture.world.ran("physics/higgs", "batch", 2, 3 * HOUR);
        fixture.world.ran("physics", "batch", 1, HOUR / 2);
        let status = fixture.round().await;
        assert_eq!((status.failure, status.parked.len()), (None, 0));
        let totals = fixture.totals("2026-11");
        assert_eq!(totals[&id("physics/higgs@batch", "node_hours")], 600);
        assert_eq!(totals[&id("physics/higgs@batch", "gpu_hours")], 2_400);
        assert_eq!(totals[&id("physics@batch", "node_hours")], 50);
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
        let head = fixture.world.head();
        assert_eq!(head.acknowledged, head.last);

        // Usage of running allocations grows; final usage is not reported again.
        let running = fixture.world.start("bio", "batch", 3);
        fixture.wait(HOUR);
        let before = fixture.waldur.set_usage_calls().received;
        fixture.round().await;
        assert_eq!(
            fixture.totals("2026-11")[&id("bio@batch", "gpu_hours")],
            1_200
        );
        assert_eq!(fixture.waldur.set_usage_calls().received, before + 1);
        fixture.wait(HOUR);
        fixture.world.end(running);
        // Another control without the journal continues.
        fixture.succeeded(false);
        fixture.round().await;
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
        let made = fixture.waldur.snapshot();
        // Customers: the cluster itself, physics and bio; three projects; three resources.
        let count = (
            made.customers.len(),
            made.projects.len(),
            made.offerings.len(),
        );
        assert_eq!(count, (3, 3, 1));
        assert_eq!((made.resources.len(), made.orders.len()), (3, 3));
    }
}

#[tokio::test]
async fn each_vcluster_is_an_offering_and_each_project_in_it_a_resource() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.world.ran("physics", "notebooks", 1, HOUR);
    fixture.round().await;
    let made = fixture.waldur.snapshot();
    assert_eq!((made.offerings.len(), made.resources.len()), (2, 2));
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// Each request succeeds once while its reply is lost. Nothing exists twice.
#[tokio::test]
async fn an_answer_that_is_lost_makes_nothing_twice() {
    for path in [
        "/api/customers/",
        "/api/projects/",
        "/api/marketplace-service-providers/",
        "/api/marketplace-categories/",
        "/api/marketplace-provider-offerings/",
        "/api/marketplace-provider-offerings/*/activate/",
        "/api/marketplace-orders/",
        "/api/marketplace-orders/*/approve_by_provider/",
        "/api/marketplace-orders/*/set_state_done/",
        "/api/marketplace-provider-resources/*/set_backend_id/",
        "/api/marketplace-component-usages/set_usage/",
    ] {
        let mut fixture = SyncFixture::new(Version::V7).await;
        fixture.world.ran("physics/higgs", "batch", 1, HOUR);
        fixture.waldur.add_fault(
            Rule::new(path, Fault::lost_answer())
                .method("POST")
                .times(1),
        );
        let status = fixture.round().await;
        assert!(status.failure.is_some(), "{path}");
        assert_eq!(fixture.world.head().acknowledged, 0, "{path}");
        fixture.wait(10 * 60_000);
        if path.contains("set_backend_id") {
            fixture.succeeded(true);
        }
        let status = fixture.round().await;
        assert_eq!(status.failure, None, "{path}");
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
        let made = fixture.waldur.snapshot();
        let count = (
            made.customers.len(),
            made.projects.len(),
            made.offerings.len(),
        );
        assert_eq!(count, (2, 1, 1), "{path}");
        assert_eq!((made.resources.len(), made.orders.len()), (1, 1), "{path}");
    }
}

#[tokio::test]
async fn retries_outages_and_parks_refusals() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.world.ran("bio", "batch", 1, HOUR);
    fixture.round().await;
    // One resource is rejected: the total of the other is reported, and the usage records are acknowledged.
    let made = fixture.waldur.snapshot();
    let bio = made
        .resources
        .iter()
        .find(|r| r["backend_id"] == "lattice:alps:bio@batch")
        .unwrap();
    let uuid = bio["uuid"].as_str().unwrap().to_owned();
    let refused = Fault::status(400);
    fixture
        .waldur
        .add_fault(Rule::new("/api/marketplace-component-usages/set_usage/", refused).times(1));
    fixture.world.ran("bio", "batch", 1, HOUR);
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!(status.failure, None);
    assert_eq!(status.parked.len(), 1, "{status:?}");
    assert!(
        status.parked.keys().next().unwrap().contains("bio@batch"),
        "{status:?}"
    );
    assert_eq!(
        fixture.totals("2026-11")[&id("physics@batch", "node_hours")],
        200
    );
    let head = fixture.world.head();
    assert_eq!(head.acknowledged, head.last);
    // The rejected request is retried a quarter of an hour later.
    fixture.round().await;
    assert_eq!(
        fixture.totals("2026-11")[&id("bio@batch", "node_hours")],
        100
    );
    fixture.wait(16 * 60_000);
    let status = fixture.round().await;
    assert_eq!(status.parked.len(), 0, "{status:?}");
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());

    // Status 429 gives the time of the retry.
    fixture.world.ran("bio", "batch", 1, HOUR);
    fixture.waldur.add_fault(
        Rule::new(
            "/api/*",
            Fault::Status {
                code: 429,
                retry_after_s: Some(120),
                when: Moment::Before,
            },
        )
        .times(1),
    );
    let status = fixture.round().await;
    let wait = status.retry_at.unwrap().since(fixture.world.now());
    assert!(wait >= 120_000, "{wait}");
    fixture.wait(60_000);
    let asked = fixture.waldur.requests().len();
    fixture.round().await;
    assert_eq!(fixture.waldur.requests().len(), asked, "it waits");
    fixture.wait(61_000);
    assert_eq!(fixture.round().await.failure, None);
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());

    // A resource that was terminated in Waldur is no longer used, and a new one is ordered at once for later usage.
    fixture.waldur.set_auto_approve(true);
    let end = format!("/api/marketplace-resources/{uuid}/terminate/");
    let (status, _) = fixture
        .waldur
        .request_as_admin("POST", &end, &serde_json::json!({}));
    assert_eq!(status, 200);
    fixture.world.ran("bio", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    let resources = fixture.waldur.snapshot().resources;
    let of_bio = resources
        .iter()
        .filter(|r| r["backend_id"] == "lattice:alps:bio@batch");
    assert_eq!(of_bio.count(), 2);
    // The amounts of the first resource are not billed again.
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    fixture.world.ran("bio", "batch", 1, HOUR);
    fixture.succeeded(false);
    fixture.round().await;
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

#[tokio::test]
async fn rereads_rotated_token() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let old = fs::read_to_string(fixture.folder.path().join("token")).unwrap();
    let new = fixture.waldur.issue_token("admin", None);
    fixture.waldur.revoke_token(&old);
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert!(status.failure.unwrap().contains("rejects the token"));
    fs::write(fixture.folder.path().join("token"), &new).unwrap();
    fixture.wait(60_000);
    assert_eq!(fixture.round().await.failure, None);
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    // A rotation during operation has no effect on the reports.
    let newer = fixture.waldur.issue_token("admin", None);
    fs::write(fixture.folder.path().join("token"), &newer).unwrap();
    fixture.waldur.revoke_token(&new);
    fixture.world.ran("physics", "batch", 1, HOUR);
    assert_eq!(fixture.round().await.failure, None);
}

/// The end of November in Waldur's time zone, with an allocation that runs across it.
#[tokio::test]
async fn a_month_ends_where_waldur_is_and_work_that_runs_is_split_there() {
    let zone = TimeZone::posix("EET-2EEST,M3.5.0/3,M10.5.0/4").unwrap();
    for version in [Version::V7, Version::V8] {
        let mut fixture = SyncFixture::with(version, |settings| settings.zone = zone.clone()).await;
        let waldur = Waldur::builder()
            .version(version)
            .now(stamp(BEGIN))
            .time_zone(zone.clone());
        fixture.waldur = waldur.start().await.unwrap();
        fixture.settings.api = format!("{}/api/", fixture.waldur.url()).parse().unwrap();
        fs::write(fixture.folder.path().join("token"), fixture.waldur.token()).unwrap();
        fixture.succeeded(true);
        // 2026-11-30T20:00Z: two hours before the end of the month there.
        fixture.wait((20 * 24 + 20) * HOUR);
        let running = fixture.world.start("physics", "batch", 1);
        fixture.wait(HOUR);
        fixture.round().await;
        assert_eq!(
            fixture.totals("2026-11")[&id("physics@batch", "node_hours")],
            100
        );
        fixture.wait(3 * HOUR);
        fixture.world.end(running);
        let status = fixture.round().await;
        assert_eq!(
            fixture.totals("2026-12")[&id("physics@batch", "node_hours")],
            200
        );
        match version {
            // Usage of the last hour cannot be booked any more: this is reported, and nothing waits for it.
            Version::V7 => {
                assert_eq!(
                    fixture.totals("2026-11")[&id("physics@batch", "node_hours")],
                    100
                );
                let (what, parked) = status.parked.iter().next().unwrap();
                assert!(
                    what.contains("2026-11") && parked.reason.contains("not bookable"),
                    "{status:?}"
                );
            }
            Version::V8 => {
                assert_eq!(
                    fixture.totals("2026-11")[&id("physics@batch", "node_hours")],
                    200
                );
                assert_eq!(status.parked.len(), 0, "{status:?}");
            }
        }
        let head = fixture.world.head();
        assert_eq!((status.failure, head.acknowledged), (None, head.last));
    }
}

#[tokio::test]
async fn a_total_is_never_lowered_but_by_a_person() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    fixture.world.ran("physics", "batch", 1, 2 * HOUR);
    fixture.round().await;
    let resource = fixture.waldur.snapshot().resources[0]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    // A higher amount was booked manually.
    let body = serde_json::json!({"resource": resource, "usages": [
        {"type": "gpu_hours", "amount": "99.00"}, {"type": "node_hours", "amount": "2.00"}]});
    let (status, _) = fixture.waldur.request_as_admin(
        "POST",
        "/api/marketplace-component-usages/set_usage/",
        &body,
    );
    assert_eq!(status, 201);
    fixture.succeeded(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    let (_, parked) = status.parked.iter().next().unwrap();
    assert!(parked.reason.contains("reconcile"), "{parked:?}");
    assert_eq!(
        fixture.totals("2026-11")[&id("physics@batch", "gpu_hours")],
        9_900
    );

    let now = fixture.world.now();
    let found = fixture
        .sync
        .reconcile(BEGIN, now, ReconcileMode::Compare)
        .await
        .unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|d| d.outcome == Outcome::Found));
    assert_eq!(
        fixture.totals("2026-11")[&id("physics@batch", "gpu_hours")],
        9_900
    );
    let mode = ReconcileMode::Correct;
    let found = fixture.sync.reconcile(BEGIN, now, mode).await.unwrap();
    assert!(
        found.iter().all(|d| d.outcome == Outcome::Corrected),
        "{found:?}"
    );
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    assert_eq!(fixture.sync.reconcile(BEGIN, now, mode).await.unwrap(), []);
    assert_eq!(fixture.round().await.parked.len(), 0);
}

/// Exhausted credit, and a purchase that lets allocations start again.
#[tokio::test]
async fn what_waldur_gives_a_tenant_is_what_it_may_use() {
    let mut fixture =
        SyncFixture::with(Version::V8, |settings| settings.category = "HPC".to_owned()).await;
    fixture.world.ran("bio", "batch", 2, HOUR);
    fixture.round().await;
    let resource = fixture.waldur.snapshot().resources[0]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let limit = |nodes: u64| serde_json::Map::from_iter([("max_nodes".to_owned(), nodes.into())]);
    assert!(fixture.waldur.set_limits(&resource, limit(7)));
    fixture.round().await;
    assert_eq!(fixture.world.max_nodes("bio"), Some(7));
    // An administrator's change stays in force until the number in Waldur changes.
    fixture
        .world
        .propose(
            Privilege::Admin,
            "root",
            Command::UpdateTenant {
                tenant: path("bio"),
                limits: lattice_quorum_types::limit::LimitPatch {
                    max_nodes: lattice_quorum_types::limit::Patch::Set(9),
                    ..Default::default()
                },
                soft: Default::default(),
                force: false,
            },
        )
        .unwrap();
    fixture.round().await;
    assert_eq!(fixture.world.max_nodes("bio"), Some(9));
    fixture.waldur.set_limits(&resource, limit(40));
    fixture.round().await;
    assert_eq!(fixture.world.max_nodes("bio"), Some(40));

    fixture.waldur.set_paused(&resource, true);
    fixture.round().await;
    let credit = fixture.world.credit("bio").unwrap();
    assert_eq!(credit.paused.len(), 1);
    assert!(credit.valid_until > fixture.world.now());
    fixture.waldur.set_paused(&resource, false);
    fixture.waldur.set_downscaled(&resource, true);
    fixture.round().await;
    let credit = fixture.world.credit("bio").unwrap();
    assert_eq!((credit.paused.len(), credit.downscaled), (0, true));
}

/// A tenant's limit is not lowered below the sum of its projects' limits: nothing is applied, and the refusal is
/// reported.
#[tokio::test]
async fn reports_contradictory_limits() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let resource = fixture.waldur.snapshot().resources[0]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let limits = serde_json::Map::from_iter([("max_nodes".to_owned(), 20.into())]);
    fixture.waldur.set_limits(&resource, limits);
    let status = fixture.round().await;
    assert_eq!(fixture.world.max_nodes("physics"), Some(100));
    let parked = &status.parked["limits of physics"];
    assert!(
        parked.reason.contains("physics") && parked.reason.contains("50"),
        "{parked:?}"
    );
    assert_eq!(status.failure, None);
}

#[tokio::test]
async fn the_resource_of_a_project_that_is_gone_is_ended_after_its_last_usage() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    fixture.world.project("physics/short", 10);
    fixture.world.ran("physics/short", "batch", 1, HOUR);
    fixture.round().await;
    fixture.world.ran("physics/short", "batch", 1, HOUR);
    fixture.world.admin(Command::DeleteProject {
        path: path("physics/short"),
    });
    fixture.round().await;
    let made = fixture.waldur.snapshot();
    assert_eq!(made.resources[0]["state"], "Terminated");
    assert_eq!(
        fixture.totals("2026-11")[&id("physics/short@batch", "node_hours")],
        200
    );
    // Later rounds change nothing.
    fixture.wait(HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    assert_eq!(fixture.waldur.snapshot().resources.len(), 1);
}

/// For deployments with the paths of the document.
#[tokio::test]
async fn sends_events_once_in_order() {
    let mut fixture = SyncFixture::with(Version::V7, |settings| settings.seed_paths = true).await;
    fixture.waldur.set_seed_paths(true);
    fixture.world.ran("physics", "batch", 2, HOUR);
    // The invoice of a tenant begins with its first usage.
    fixture.round().await;
    fixture.waldur.add_fault(
        Rule::new("/api/invoices/*/items/", Fault::lost_answer())
            .method("POST")
            .skip(2)
            .times(1),
    );
    for _ in 0..3 {
        fixture.world.ran("physics", "batch", 1, HOUR / 4);
    }
    assert!(fixture.round().await.failure.is_some());
    fixture.wait(10 * 60_000);
    fixture.succeeded(false);
    assert_eq!(fixture.round().await.failure, None);
    let items = fixture.waldur.seed_items();
    let keys: Vec<String> = items
        .iter()
        .filter_map(|item| item.idempotency_key.clone())
        .collect();
    assert_eq!(keys.len(), 8);
    let number = |key: &String| -> (u64, u64) {
        let (revision, ordinal) = key.split_once('-').unwrap();
        (revision.parse().unwrap(), ordinal.parse().unwrap())
    };
    assert!(
        keys.iter().map(number).collect::<Vec<_>>().is_sorted(),
        "{keys:?}"
    );
    let first = &items[0].body;
    assert_eq!(
        (&first["type"], &first["gpus"]),
        (&"allocation.started".into(), &8.into())
    );
    assert_eq!(first["gpu_types"]["H100"], 8);
    let second = &items[1].body;
    assert_eq!(second["type"], "allocation.completed");
    assert_eq!(
        (second["gpu_hours"].as_f64(), second["duration_s"].as_f64()),
        (Some(8.0), Some(3_600.0))
    );
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

#[tokio::test]
async fn rejected_event_blocks_no_others() {
    let mut fixture = SyncFixture::with(Version::V7, |settings| settings.seed_paths = true).await;
    fixture.waldur.set_seed_paths(true);
    fixture.world.ran("physics", "batch", 2, HOUR);
    fixture.round().await;
    fixture.waldur.add_fault(
        Rule::new("/api/invoices/*/items/", Fault::status(400))
            .method("POST")
            .times(1),
    );
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 1));
    assert_eq!(fixture.waldur.seed_items().len(), 3);
    fixture.round().await;
    assert_eq!(fixture.waldur.seed_items().len(), 3);
    fixture.wait(16 * 60_000);
    let status = fixture.round().await;
    assert_eq!((status.parked.len(), status.sent), (0, 4));
    assert_eq!(fixture.waldur.seed_items().len(), 4);
}

#[tokio::test]
async fn each_allocation_is_an_order_where_a_site_wants_that() {
    let mut fixture =
        SyncFixture::with(Version::V8, |settings| settings.order_per_allocation = true).await;
    fixture.world.ran("physics", "batch", 2, HOUR);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    fixture.succeeded(false);
    fixture.round().await;
    let made = fixture.waldur.snapshot();
    assert_eq!(made.resources.len(), 2);
    assert!(
        made.resources.iter().all(|r| r["state"] == "Terminated"),
        "{:?}",
        made.resources
    );
    let gpu: i128 = fixture
        .totals("2026-11")
        .iter()
        .filter(|((_, kind), _)| kind == "gpu_hours")
        .map(|(_, n)| n)
        .sum();
    assert_eq!(gpu, 1_200);
}

/// With memory and disk full, the newest events are dropped and counted, and all totals stay correct.
#[tokio::test]
async fn full_buffer_drops_newest_and_keeps_totals() {
    let small = Bounds { memory: 4, disk: 6 };
    let mut fixture = SyncFixture::with(Version::V7, |settings| settings.bounds = small).await;
    fixture.waldur.down().await;
    for _ in 0..8 {
        fixture.world.ran("physics", "batch", 1, HOUR);
    }
    let status = fixture.round().await;
    assert_eq!(
        (status.in_memory, status.on_disk, status.dropped),
        (4, 6, 6)
    );
    assert!(status.is_full);
    assert_eq!(status.dropped_unacknowledged, 6);
    // The counts need no answer of Waldur.
    assert_eq!(status.collected_at, Some(fixture.world.now()));
    assert_eq!(status.pushed_at, None);
    assert_eq!(fixture.world.head().dropped, 0);
    fixture.waldur.up().await;
    fixture.wait(10 * 60_000);
    let status = fixture.round().await;
    assert_eq!(
        (status.in_memory, status.on_disk, status.dropped),
        (0, 0, 6)
    );
    let head = fixture.world.head();
    assert_eq!((head.acknowledged, head.dropped), (head.last, 6));
    assert_eq!(status.dropped_unacknowledged, 0);
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// The restored cluster uses the numbers of the lost usage records again. A rejected event of a lost record is not
/// retried either; one of a record in the backup is.
#[tokio::test]
async fn restored_cluster_sends_no_event_of_lost_records() {
    let mut fixture = SyncFixture::with(Version::V7, |settings| settings.seed_paths = true).await;
    fixture.waldur.set_seed_paths(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    assert_eq!(fixture.round().await.failure, None);
    let rejection = || {
        Rule::new("/api/invoices/*/items/", Fault::status(400))
            .method("POST")
            .times(1)
    };
    fixture.waldur.add_fault(rejection());
    fixture.world.start("physics", "batch", 1);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 1));
    let backup = fixture.world.saved();
    fixture.waldur.add_fault(rejection());
    fixture.world.start("physics/higgs", "batch", 1);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 2));
    assert_eq!(status.acknowledged, 4);
    fixture.waldur.down().await;
    for _ in 0..2 {
        fixture.world.ran("physics/higgs", "batch", 1, HOUR);
    }
    assert_eq!(fixture.round().await.in_memory, 4);
    fixture.world.restore(backup);
    // The clock of the restored state follows.
    fixture.wait(0);
    fixture.world.ran("bio", "batch", 1, HOUR);
    fixture.waldur.up().await;
    // The retry of rejected events is due.
    fixture.wait(16 * 60_000);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.in_memory), (None, 0));
    assert_eq!(status.parked, BTreeMap::new());
    let items = fixture.waldur.seed_items();
    let sent: Vec<_> = items
        .iter()
        .map(|item| (item.body["number"].as_u64(), item.body["tenant"].as_str()))
        .collect();
    assert_eq!(
        sent,
        [
            (Some(1), Some("physics")),
            (Some(2), Some("physics")),
            (Some(3), Some("physics")),
            (Some(4), Some("bio")),
            (Some(5), Some("bio")),
        ]
    );
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// The restored cluster has more usage records than were read before the restore, so only its revision shows the
/// restore, in the same process and after a restart.
#[tokio::test]
async fn restored_cluster_with_more_records_sends_no_event_of_lost_records() {
    for is_restarted in [false, true] {
        let mut fixture =
            SyncFixture::with(Version::V7, |settings| settings.seed_paths = true).await;
        fixture.waldur.set_seed_paths(true);
        fixture.world.ran("physics", "batch", 1, HOUR);
        assert_eq!(fixture.round().await.failure, None);
        let backup = fixture.world.saved();
        fixture.waldur.down().await;
        fixture.world.ran("physics/higgs", "batch", 1, HOUR);
        assert_eq!(fixture.round().await.in_memory, 2);
        fixture.world.restore(backup);
        // The clock of the restored state follows.
        fixture.wait(0);
        for _ in 0..2 {
            fixture.world.ran("bio", "batch", 1, HOUR);
        }
        if is_restarted {
            fixture.succeeded(true);
        }
        fixture.waldur.up().await;
        fixture.wait(10 * 60_000);
        let status = fixture.round().await;
        assert_eq!((status.failure, status.in_memory), (None, 0));
        let items = fixture.waldur.seed_items();
        let sent: Vec<_> = items
            .iter()
            .map(|item| (item.body["number"].as_u64(), item.body["tenant"].as_str()))
            .collect();
        assert_eq!(
            sent,
            [
                (Some(1), Some("physics")),
                (Some(2), Some("physics")),
                (Some(3), Some("bio")),
                (Some(4), Some("bio")),
                (Some(5), Some("bio")),
                (Some(6), Some("bio")),
            ],
            "restarted: {is_restarted}"
        );
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    }
}

/// An outage of two hours at a hundred events per minute, with the buffers of the document; then Waldur is back.
#[tokio::test]
async fn an_outage_of_two_hours_loses_nothing_and_keeps_the_order() {
    let mut fixture = SyncFixture::with(Version::V7, |settings| settings.seed_paths = true).await;
    fixture.waldur.set_seed_paths(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let before = fixture.waldur.seed_items().len();
    fixture.waldur.down().await;
    for minute in 0..120 {
        let mut running = Vec::new();
        for n in 0..50 {
            let project = ["physics", "physics/higgs", "bio"][n % 3];
            running.push(fixture.world.start(project, "batch", 1));
        }
        fixture.wait(60_000);
        running.into_iter().for_each(|id| fixture.world.end(id));
        let status = fixture.round().await;
        assert!(status.failure.is_some(), "minute {minute}");
        assert_eq!(status.dropped, 0);
    }
    let status = fixture.status();
    assert_eq!((status.in_memory, status.on_disk), (10_000, 2_000));
    fixture.waldur.up().await;
    fixture.wait(6 * 60_000);
    let status = fixture.round().await;
    assert_eq!(
        (status.failure, status.in_memory, status.on_disk),
        (None, 0, 0)
    );
    let items = fixture.waldur.seed_items();
    assert_eq!(items.len() - before, 12_000);
    let numbers: Vec<u64> = items
        .iter()
        .map(|item| item.body["number"].as_u64().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b));
    assert!(items.iter().all(|item| item.received == 1));
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}
