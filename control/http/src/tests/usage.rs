//! Usage, and intended usage of tenants, over REST and gRPC.

use super::fixture::{ApiFixture, PATIENCE};
use lattice_client::api::{amount::Hours, tenant::TenantUpdate};
use lattice_engine::tasks::usage_ledger;
use lattice_quorum_types::{allocation::RankExit, limit::Patch};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

async fn counted() -> ApiFixture {
    let fixture = ApiFixture::furnished().await;
    tokio::spawn(usage_ledger::follow(
        fixture.core.clone(),
        fixture.stores.usage.clone(),
    ));
    let read = async {
        while fixture.stores.usage.ask(|_| ()).is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();
    fixture
}

async fn ask(
    fixture: &ApiFixture,
    caller: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let mut request = fixture
        .raw()
        .request(method, fixture.url(&format!("/api/v1/{path}")))
        .bearer_auth(fixture.token(caller));
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// The request of the specification, verbatim.
#[tokio::test]
async fn partial_update_keeps_other_fields() {
    let fixture = counted().await;
    let body = json!({"id": "physics", "max_nodes": 1, "gpu_hours_budget": 100000});
    let (status, made) = ask(&fixture, "root", Method::POST, "tenants", Some(body)).await;
    assert_eq!(
        (status, &made["gpu_hours_budget"]),
        (201, &json!(100_000.0)),
        "{made}"
    );
    let body = json!({
        "max_nodes": 250,
        "max_concurrent_allocations": 50,
        "gpu_hours_budget": 150000,
        "node_hours_budget": 500000,
    });
    let (status, made) = ask(&fixture, "root", Method::PUT, "tenants/physics", Some(body)).await;
    assert_eq!(status, 200, "{made}");
    assert_eq!(made["gpu_hours_budget"], 150_000.0);
    let body = json!({"fair_share_target": 0.15, "burst_allowance": 1.5});
    let (status, made) = ask(&fixture, "root", Method::PUT, "tenants/physics", Some(body)).await;
    assert_eq!(status, 200, "{made}");
    assert_eq!(
        (
            &made["max_nodes"],
            &made["node_hours_budget"],
            &made["fair_share_target"]
        ),
        (&json!(250), &json!(500_000.0), &json!(0.15))
    );
    let body = json!({"gpu_hours_budget": null});
    let (_, made) = ask(&fixture, "root", Method::PUT, "tenants/physics", Some(body)).await;
    assert_eq!(
        (&made["gpu_hours_budget"], &made["burst_allowance"]),
        (&Value::Null, &json!(1.5))
    );

    for (body, field) in [
        (json!({"max_nodes": null}), "max_nodes"),
        (json!({"fair_share_target": 1.5}), "fair_share_target"),
        (json!({"burst_allowance": 0.5}), "burst_allowance"),
        (json!({"gpu_hours_budget": -1}), "gpu_hours_budget"),
        (json!({"gpu_hours": 1}), "gpu_hours"),
    ] {
        let (status, no) = ask(&fixture, "root", Method::PUT, "tenants/physics", Some(body)).await;
        assert!((400..500).contains(&status), "{no}");
        assert!(no.to_string().contains(field), "{no}");
    }
    let (status, _) = ask(
        &fixture,
        "op",
        Method::PUT,
        "tenants/physics",
        Some(json!({})),
    )
    .await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn usage_is_visible_to_user_and_tenant_only() {
    let fixture = counted().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu001"]).await;
    fixture.begins(id, "gpu001").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    fixture
        .ends(id, "gpu001", RankExit::Exited { code: 0 })
        .await;
    let alice = fixture.client("alice");
    let own = async {
        loop {
            let own = alice.own_usage(90).await.unwrap();
            if !own.tenants.is_empty() {
                return own;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let own = tokio::time::timeout(PATIENCE, own).await.unwrap();
    assert!(own.node_hours_used >= Hours(50), "{own:?}");
    assert_eq!((own.user.as_str(), own.days), ("alice", 90));
    assert_eq!(own.tenants[0].tenant, "atlas");
    let root = fixture.client("root");
    let of_tenant = root.tenant_usage("atlas", 90).await.unwrap();
    assert_eq!(of_tenant.node_hours_used, own.node_hours_used);
    assert_eq!(
        (of_tenant.budget_used, of_tenant.budget_factor),
        (None, 1.0)
    );
    assert_eq!(
        root.user_usage("alice", 1).await.unwrap().node_hours_used,
        own.node_hours_used
    );

    let update = TenantUpdate {
        node_hours_budget: Patch::Set(1),
        ..TenantUpdate::default()
    };
    root.update_tenant("atlas", &update).await.unwrap();
    let exhausted = async {
        loop {
            let usage = root.tenant_usage("atlas", 90).await.unwrap();
            if usage.budget_used.is_some() {
                return usage;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let exhausted = tokio::time::timeout(PATIENCE, exhausted).await.unwrap();
    assert!(exhausted.budget_used >= Some(1.0), "{exhausted:?}");
    assert_eq!(
        (exhausted.budget_factor, exhausted.source.as_str()),
        (0.05, "ledger")
    );
    assert_eq!(
        (exhausted.share_factor, exhausted.accounting_factor),
        (Some(1.0), Some(1.0))
    );
    assert_eq!(exhausted.priority_factor, Some(0.05));
    // Intended usage causes no refusal.
    fixture.submit("alice", "atlas/web", 1).await;

    let forbidden = fixture
        .client("bob")
        .user_usage("alice", 90)
        .await
        .unwrap_err();
    assert_eq!(forbidden.exit_code(), 5, "{forbidden}");
    let hidden = fixture
        .client("diver")
        .tenant_usage("atlas", 90)
        .await
        .unwrap_err();
    assert_eq!(hidden.exit_code(), 4, "{hidden}");
    let filtered = fixture
        .client("diver")
        .user_usage("alice", 90)
        .await
        .unwrap();
    assert_eq!(
        (filtered.tenants.len(), filtered.node_hours_used),
        (0, Hours(0))
    );
    for wrong in [
        "tenants/atlas/usage?days=0",
        "usage?days=367",
        "usage?day=3",
    ] {
        let (status, no) = ask(&fixture, "root", Method::GET, wrong, None).await;
        assert_eq!(status, 400, "{no}");
    }
}

/// The tenant holds its burst allowance of one node, and has used nothing of its budget: the share factor acts.
#[tokio::test]
async fn share_factor_has_its_own_field() {
    let fixture = counted().await;
    let root = fixture.client("root");
    let update = TenantUpdate {
        gpu_hours_budget: Patch::Set(1 << 50),
        fair_share_target: Patch::Set(40_000),
        burst_allowance: Patch::Set(1_000_000),
        ..TenantUpdate::default()
    };
    root.update_tenant("atlas", &update).await.unwrap();
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu001"]).await;
    let usage = root.tenant_usage("atlas", 90).await.unwrap();
    assert_eq!(
        (
            usage.budget_factor,
            usage.share_factor,
            usage.accounting_factor
        ),
        (1.0, Some(0.05), Some(1.0))
    );
    assert_eq!(
        (usage.priority_factor, usage.exceeds_share),
        (Some(0.05), true)
    );

    let waiting = fixture.submit("alice", "atlas/web", 20).await;
    let why = fixture.client("alice").explanation(waiting).await.unwrap();
    let score = why.score.unwrap();
    assert_eq!(
        (score.budget, score.share, score.accounting),
        (1.0, Some(0.05), Some(1.0))
    );
    assert!((score.total - score.sum * 0.05).abs() < 1e-12, "{score:?}");
}

/// Accounting is off by default: it has no data, and requests report that.
#[tokio::test]
async fn without_accounting_there_is_none() {
    let fixture = counted().await;
    assert!(fixture.stores.accounting.is_none());
    let (status, said) = ask(&fixture, "op", Method::GET, "accounting/status", None).await;
    assert_eq!(
        (status, &said["enabled"], &said["provider"]),
        (200, &json!(false), &Value::Null)
    );
    let window = json!({"since": "2026-03-01", "until": "2026-03-02"});
    let (status, said) = ask(
        &fixture,
        "root",
        Method::POST,
        "accounting/reconcile",
        Some(window.clone()),
    )
    .await;
    assert_eq!(
        (status, &said["code"]),
        (409, &json!("accounting_off")),
        "{said}"
    );
    let (status, _) = ask(
        &fixture,
        "op",
        Method::POST,
        "accounting/reconcile",
        Some(window),
    )
    .await;
    assert_eq!(status, 403);
    let (status, _) = ask(&fixture, "alice", Method::GET, "accounting/status", None).await;
    assert_eq!(status, 403);
    let hook = fixture
        .raw()
        .post(fixture.url("/api/v1/accounting/hook/anything"))
        .send()
        .await
        .unwrap();
    assert_eq!(hook.status(), 404);
    let metrics = fixture
        .raw()
        .get(fixture.url("/metrics"))
        .bearer_auth(fixture.token("op"))
        .send();
    let metrics = metrics.await.unwrap().text().await.unwrap();
    assert!(!metrics.contains("lattice_accounting"), "{metrics}");
}
