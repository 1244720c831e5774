#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::tasks::{
    testing::world::{NODE, World},
    usage_ledger,
};
use jiff::tz::TimeZone;
use lattice_fake_waldur::{OfferingSpec, Version, Waldur as FakeWaldur};
use lattice_quorum_types::{
    VclusterName,
    allocation::RankExit,
    audit::{AuditAction, AuditEntry},
    command::RankReport,
};
use lattice_waldur::{client::http_client, journal::Bounds};
use lattice_waldur::{
    config::AccountingSettings, secret::SecretRef, status::SyncStatus, sync::ReconcileMode,
};
use serde_json::json;
use std::{fs, os::unix::fs::PermissionsExt as _};
use tempfile::TempDir;

fn settings(waldur: &FakeWaldur, folder: &TempDir) -> AccountingSettings {
    let secret = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        SecretRef::File(path)
    };
    let offered = OfferingSpec::slurm("default")
        .usage("gpu_hours", "0.25")
        .usage("node_hours", "1")
        .limit("max_nodes");
    let offering = waldur.add_offering(&offered).unwrap().uuid;
    AccountingSettings {
        api: format!("{}/api/", waldur.url()).parse().unwrap(),
        token: secret("token", waldur.token()),
        interval: Duration::from_secs(3_600),
        bounds: Bounds {
            memory: 100,
            disk: 100,
        },
        folder: folder.path().join("wal"),
        zone: TimeZone::UTC,
        ca_file: None,
        vault: None,
        offerings: [(VclusterName::new("default").unwrap(), offering)].into(),
        plans: BTreeMap::new(),
        reconcile_every: None,
        order_check_every: Some(Duration::from_millis(50)),
        lower_totals: false,
        provider_customer: None,
        category: "HPC".to_owned(),
        take_limits: true,
        hook_secret: Some(secret("hook", "a-long-secret-of-the-hook")),
        order_per_allocation: false,
        seed_paths: false,
    }
}

struct AccountingFixture {
    world: World,
    waldur: FakeWaldur,
    connection: Arc<AccountingConnection>,
    reconciler: AccountingReconciler,
    _folder: TempDir,
}

impl AccountingFixture {
    async fn new() -> Self {
        let world = World::new();
        let waldur = FakeWaldur::builder()
            .version(Version::V8)
            .start()
            .await
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let connection = Arc::new(AccountingConnection::new(
            settings(&waldur, &folder),
            http_client(&[]).unwrap(),
        ));
        // The time to wait for the GPU counts of nodes is over.
        let long_ago = Instant::now().checked_sub(SETTLES_AFTER).unwrap();
        let reconciler = AccountingReconciler::since(
            long_ago,
            world.core.clone(),
            world.usage.clone(),
            connection.clone(),
        );
        tokio::spawn(usage_ledger::follow(
            world.core.clone(),
            world.usage.clone(),
        ));
        Self {
            world,
            waldur,
            connection,
            reconciler,
            _folder: folder,
        }
    }

    /// Waits until the ledger has all usage records.
    async fn counted(&self, facts: u64) {
        self.world.fold();
        let has_all = || self.world.usage.ask(|ledger| ledger.last()) >= Some(facts);
        while !has_all() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn pass(&mut self) -> SyncStatus {
        let fence = self.world.fence.clone();
        self.reconciler.pass(fence).await;
        self.connection.status()
    }
}

/// From a rank's start report through quorum, ledger and reports to Waldur, and back.
#[tokio::test]
async fn usage_and_limits_are_exchanged_with_waldur() {
    let mut fixture = AccountingFixture::new().await;
    let key = fixture.world.start("b1");
    tokio::time::sleep(Duration::from_millis(60)).await;
    fixture.world.service(Command::Report {
        id: key.allocation,
        attempt: key.attempt,
        node: NodeId::new(NODE).unwrap(),
        report: RankReport::Ended {
            at: fixture.world.core.now(),
            exit: RankExit::Exited { code: 0 },
            fault: None,
        },
    });
    fixture.counted(2).await;
    let project = fixture.world.allocation(key.allocation).spec.project;
    let status = fixture.pass().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    assert_eq!((status.last, status.acknowledged), (2, 2));
    // A few milliseconds are less than a hundredth of an hour, so no resource is created.
    assert_eq!(fixture.waldur.snapshot().resources.len(), 0);

    // A whole day of usage, with a bill, takes the same path with more hours: see `waldur/tests`.
    let cluster = fixture.reconciler.cluster.clone();
    cluster
        .set_limits(
            &project.tenant(),
            LimitPatch {
                max_nodes: lattice_quorum_types::limit::Patch::Set(77),
                ..LimitPatch::default()
            },
        )
        .await
        .unwrap();
    fixture.world.fold();
    assert_eq!(
        cluster.limits(&project.tenant()).unwrap().max_nodes,
        Some(77)
    );
    let machine = cluster.node_hardware(&NodeId::new(NODE).unwrap());
    assert_eq!(machine.gpus, 1, "nobody knows");
    assert!(cluster.projects().contains(&project));
}

/// A reconciliation runs in a pass of the reconciler; a control that no longer acts drops its pending requests.
#[tokio::test]
async fn a_requested_reconciliation_waits_for_a_pass() {
    let mut fixture = AccountingFixture::new().await;
    fixture.counted(0).await;
    let now = fixture.world.core.now();
    let connection = fixture.connection.clone();
    let asking = tokio::spawn(async move {
        connection
            .reconcile(UnixMillis(0), now, ReconcileMode::Correct)
            .await
    });
    fixture.reconciler.wakes().await;
    fixture.pass().await;
    assert_eq!(asking.await.unwrap(), Ok(Vec::new()));

    let connection = fixture.connection.clone();
    let asking = tokio::spawn(async move {
        connection
            .reconcile(UnixMillis(0), now, ReconcileMode::Compare)
            .await
    });
    fixture.reconciler.wakes().await;
    fixture.reconciler.forget();
    let refused = asking.await.unwrap().unwrap_err().to_string();
    assert!(
        refused.contains("another control does the accounting"),
        "{refused}"
    );
}

/// The last round of a month does not wait for the interval of an hour.
#[tokio::test]
async fn last_round_of_a_month_wakes_the_reconciler() {
    let mut fixture = AccountingFixture::new().await;
    fixture.counted(0).await;
    // Two seconds before the last round is due.
    fixture
        .waldur
        .set_now("2026-11-30T23:59:07Z".parse().unwrap());
    assert_eq!(fixture.pass().await.failure, None);
    let woken = tokio::time::timeout(Duration::from_secs(60), fixture.reconciler.wakes());
    assert!(woken.await.is_ok());
    fixture
        .waldur
        .set_now("2026-11-30T23:59:10Z".parse().unwrap());
    assert_eq!(fixture.pass().await.failure, None);
    assert_eq!(fixture.reconciler.sync.next_round_in(), None);
}

/// A customer's order does not wait for the interval of an hour, and wakes the reconciler once.
#[tokio::test]
async fn new_order_wakes_the_reconciler() {
    let mut fixture = AccountingFixture::new().await;
    let _running = fixture.world.start("b1");
    fixture.counted(1).await;
    assert_eq!(fixture.pass().await.failure, None);
    let quiet = tokio::time::timeout(Duration::from_millis(300), fixture.reconciler.wakes());
    assert!(quiet.await.is_err(), "no order waits");
    let post = |target: &str, body: serde_json::Value| {
        let (status, made) = fixture.waldur.request_as_admin("POST", target, &body);
        assert!((200..300).contains(&status), "{target}: {made}");
        made
    };
    let customer = post("/api/customers/", json!({"name": "chemistry"}));
    let project = post(
        "/api/projects/",
        json!({"name": "solvents", "customer": customer["url"]}),
    );
    let offering = fixture.waldur.snapshot().offerings.swap_remove(0);
    let uuid = offering["uuid"].as_str().unwrap();
    let public = format!("/api/marketplace-public-offerings/{uuid}/");
    let (_, offering) = fixture.waldur.request_as_admin("GET", &public, &json!({}));
    let ordered = json!({
        "offering": offering["url"], "project": project["url"],
        "plan": offering["plans"][0]["url"], "attributes": {"name": "more"},
        "limits": {"max_nodes": 7}, "accepting_terms_of_service": true,
    });
    post("/api/marketplace-orders/", ordered);
    let woken = tokio::time::timeout(Duration::from_secs(60), fixture.reconciler.wakes());
    assert!(woken.await.is_ok());
    assert_eq!(fixture.pass().await.failure, None);
    let quiet = tokio::time::timeout(Duration::from_millis(300), fixture.reconciler.wakes());
    assert!(quiet.await.is_err(), "the order is answered");
}

#[tokio::test]
async fn only_the_hook_with_the_secret_is_known() {
    let fixture = AccountingFixture::new().await;
    assert!(
        fixture
            .connection
            .knows_hook("a-long-secret-of-the-hook")
            .await
    );
    for wrong in ["", "a-long-secret-of-the-hoo", "another"] {
        assert!(!fixture.connection.knows_hook(wrong).await, "{wrong}");
    }
}

/// A node with an unknown GPU count counts as one GPU only after a long wait.
#[tokio::test]
async fn totals_wait_for_node_resources() {
    let mut fixture = AccountingFixture::new().await;
    fixture.reconciler = AccountingReconciler::new(
        fixture.world.core.clone(),
        fixture.world.usage.clone(),
        fixture.connection.clone(),
    );
    fixture.world.start("b1");
    fixture.counted(1).await;
    assert_eq!(fixture.connection.status().collected_at, None);
    let status = fixture.pass().await;
    assert_eq!((status.last, status.acknowledged), (1, 0));
    assert!(status.collected_at.is_some(), "totals may be unknown yet");
    // The next round does not wait for the interval of an hour.
    let next_round_in = fixture.reconciler.sync.next_round_in();
    assert_eq!(next_round_in, Some(Duration::from_secs(5)));
    let cluster = fixture.reconciler.cluster.clone();
    assert_eq!(
        cluster.totals(UnixMillis(0), fixture.world.core.now()),
        None
    );
}

/// The quorum keeps a month with differences, for every control, and audits an acceptance with its principal. A control
/// that has lost its lease changes no month.
#[tokio::test]
async fn months_with_differences_are_in_the_quorum() {
    let fixture = AccountingFixture::new().await;
    let cluster = fixture.reconciler.cluster.clone();
    cluster.set_fence(fixture.world.fence.clone());
    // Another control of the same cluster.
    let another = AccountingReconciler::new(
        fixture.world.core.clone(),
        fixture.world.usage.clone(),
        fixture.connection.clone(),
    );
    let month: AccountingMonth = "2026-11".parse().unwrap();
    cluster.note_open_month(month, true).await.unwrap();
    let found = another.cluster.months().await.unwrap();
    assert!(matches!(found[&month], MonthDifferences::Open { .. }));
    let by = Principal {
        name: "ann".to_owned(),
        privilege: Privilege::Admin,
    };
    cluster.accept_month(month, &by, 2).await.unwrap();
    let found = another.cluster.months().await.unwrap();
    assert!(
        matches!(&found[&month], MonthDifferences::Accepted { by, .. } if by == "ann"),
        "{found:?}"
    );
    let (after, limit) = (0, 1_000);
    let entries = match fixture.world.core.read(Query::Audit { after, limit }).await {
        Ok(Answer::Audit(entries)) => entries,
        other => panic!("{other:?}"),
    };
    let action = AuditAction::MonthAccepted {
        month,
        differences: 2,
    };
    let is_acceptance = |entry: &AuditEntry| entry.by == by && entry.action == action;
    assert!(entries.iter().any(is_acceptance), "{entries:?}");

    fixture.world.hand_lease_to_other_control();
    let next = "2026-12".parse().unwrap();
    for refused in [
        cluster.accept_month(next, &by, 1).await,
        cluster.note_open_month(next, true).await,
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, ClusterError::Refused { .. }), "{refused}");
    }
    assert_eq!(another.cluster.months().await, Ok(found));
}

/// An unreachable quorum causes no wrong Waldur data, and nothing uncommitted is acknowledged.
#[tokio::test]
async fn a_fence_that_is_over_acknowledges_nothing() {
    let mut fixture = AccountingFixture::new().await;
    fixture.world.start("b1");
    fixture.counted(1).await;
    let stale = fixture.world.fence.clone();
    fixture.world.hand_lease_to_other_control();
    fixture.reconciler.pass(stale).await;
    let failure = fixture.connection.status().failure.unwrap();
    assert!(failure.contains("quorum"), "{failure}");
    assert_eq!(fixture.connection.status().acknowledged, 0);
}
