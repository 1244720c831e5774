//! Answers of Waldur with missing fields, other types and odd numbers: a round ends without a panic, and the next one
//! with valid answers succeeds.

use crate::common::{BEGIN, HOUR, World, vcluster};
use axum::{
    Json, Router,
    extract::State,
    http::{Method, StatusCode, Uri},
};
use jiff::tz::TimeZone;
use lattice_waldur::{
    client::{WaldurClient, http_client},
    cluster::AccountedCluster as _,
    config::AccountingSettings,
    journal::Bounds,
    secret::{SecretRef, Secrets},
    status::SyncStatus,
    step::NoObserver,
    sync::AccountingSync,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, Mutex},
    time::Duration,
};

const OFFERING: &str = "0a000000000000000000000000000001";
const RESOURCE: &str = "0a000000000000000000000000000002";
const ORDER: &str = "0a000000000000000000000000000003";
const PROVIDER: &str = "0a000000000000000000000000000004";
const ROW: &str = "0a000000000000000000000000000005";

/// A valid answer to a GET request with this path.
fn valid(path: &str) -> Value {
    let row = json!({
        "uuid": ROW, "resource_uuid": RESOURCE, "billing_period": "2026-11-01", "type": "gpu_hours", "usage": "1.50",
        "date": "2026-11-01",
    });
    match path.trim_matches('/').trim_start_matches("api/") {
        "version" => json!({"version": "7.0.7"}),
        "users/me" => json!({"is_staff": false, "permissions": [
            {"role_name": "CUSTOMER.OWNER", "role_uuid": ORDER, "scope_uuid": PROVIDER},
        ]}),
        "roles" => json!([{"uuid": ORDER, "permissions": ["ORDER.REJECT"]}]),
        "marketplace-component-usages" => json!([row]),
        "marketplace-provider-resources" => json!([{
            "uuid": RESOURCE, "backend_id": "lattice:alps:physics@batch", "state": "OK",
            "created": "2026-11-01T00:00:00Z", "limits": {"max_nodes": 60, "gpu_hours": 10}, "paused": false,
            "downscaled": false, "plan_uuid": ORDER, "offering_type": "Marketplace.Slurm", "name": "a",
        }]),
        path if path.starts_with("marketplace-component-usages/") => row,
        "marketplace-orders" => json!([{
            "uuid": ORDER, "modified": "2026-11-02T00:00:00Z", "old_plan_uuid": null, "new_plan_uuid": ORDER, "marketplace_resource_uuid": RESOURCE, "offering_uuid": OFFERING,
            "project_uuid": PROVIDER, "provider_uuid": PROVIDER, "state": "pending-provider",
            "type": "Update", "offering_type": "Marketplace.Slurm", "limits": {"max_nodes": 20},
        }]),
        path if path.starts_with("marketplace-provider-offerings/") => {
            json!({"uuid": OFFERING, "url": "http://w/o/", "state": "Active", "customer_uuid": PROVIDER})
        }
        path if path.starts_with("marketplace-public-offerings/") => json!({"plans": [
            {"uuid": ORDER, "name": "default", "url": "http://w/p/", "archived": false},
        ]}),
        path if path.ends_with("/plan_periods") => {
            json!([{"end": "2026-11-05", "components": [row]}])
        }
        _ => json!({}),
    }
}

/// One place in the answer to a path, with the value there; `None` removes the field.
#[derive(Debug, Clone)]
struct Change {
    path: &'static str,
    pointer: String,
    value: Option<Value>,
}

/// Places in an answer: the answer itself, and each value in it.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                pointers(value, &format!("{at}/{name}"), all);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                pointers(value, &format!("{at}/{index}"), all);
            }
        }
        _ => {}
    }
}

fn changed(mut answer: Value, change: &Change) -> Value {
    match (&change.value, change.pointer.rsplit_once('/')) {
        (Some(value), _) => {
            if let Some(place) = answer.pointer_mut(&change.pointer) {
                *place = value.clone();
            }
        }
        (None, Some((parent, name))) => {
            let parent = answer.pointer_mut(parent).and_then(Value::as_object_mut);
            parent.and_then(|fields| fields.remove(name));
        }
        (None, None) => {}
    }
    answer
}

type Shared = Arc<Mutex<Option<Change>>>;

async fn answer(
    State(change): State<Shared>,
    method: Method,
    uri: Uri,
) -> (StatusCode, Json<Value>) {
    if method == Method::POST {
        return (StatusCode::CREATED, Json(json!({})));
    }
    // Without a count in the header, the second page has to be empty.
    let is_later_page = uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|part| part.starts_with("page=") && part != "page=1")
    });
    if is_later_page {
        return (
            StatusCode::NOT_FOUND,
            Json(json!({"detail": "Invalid page."})),
        );
    }
    let path = uri.path().trim_matches('/').trim_start_matches("api/");
    let answer = valid(path);
    let change = change.lock().unwrap().clone();
    let change = change.filter(|change| path.starts_with(change.path));
    (
        StatusCode::OK,
        Json(change.map_or(answer.clone(), |change| changed(answer, &change))),
    )
}

fn values() -> Vec<Option<Value>> {
    let given = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(-0.5),
        json!(1e308),
        json!(u64::MAX),
        json!(""),
        json!("\u{1F980}"),
        json!("12.50"),
        json!("-9223372036854775808"),
        json!("--5"),
        json!("NaN"),
        json!([]),
        json!([null]),
        json!({}),
        json!({"max_nodes": []}),
    ];
    given.into_iter().map(Some).chain([None]).collect()
}

#[tokio::test]
async fn no_answer_of_waldur_breaks_a_round() {
    let change = Shared::default();
    let router = Router::new().fallback(answer).with_state(change.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}/api/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let settings = AccountingSettings {
        api: api.parse().unwrap(),
        token: SecretRef::File(token),
        interval: Duration::from_secs(60),
        bounds: Bounds {
            memory: 100,
            disk: 100,
        },
        folder: folder.path().join("wal"),
        zone: TimeZone::UTC,
        ca_file: None,
        vault: None,
        offerings: [(vcluster("batch"), OFFERING.to_owned())].into(),
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
    let world = Arc::new(World::new());
    world.project("physics", 100);
    world.project("physics/higgs", 50);
    world.ran("physics", "batch", 1, HOUR);
    let http = http_client(&[]).unwrap();
    let mut rounds = 0;
    for path in [
        "version",
        "users/me",
        "roles",
        "marketplace-component-usages",
        "marketplace-provider-resources",
        "marketplace-orders",
        "marketplace-provider-offerings",
        "marketplace-public-offerings",
    ] {
        let example = match path {
            "marketplace-provider-offerings" | "marketplace-public-offerings" => {
                valid(&format!("{path}/{OFFERING}"))
            }
            path => valid(path),
        };
        let mut places = Vec::new();
        pointers(&example, "", &mut places);
        for pointer in places {
            for value in values() {
                let hostile = Change {
                    path,
                    pointer: pointer.clone(),
                    value,
                };
                let status = round(&world, &http, &settings, &change, Some(hostile.clone())).await;
                let text = format!("{status:?}");
                assert!(!text.contains("0123456789abcdef"), "{hostile:?}");
                rounds += 1;
            }
        }
    }
    let status = round(&world, &http, &settings, &change, None).await;
    assert_eq!(status.failure, None);
    assert!(rounds > 500, "{rounds}");
    assert!(world.now() >= BEGIN);
    serving.abort();
}

/// A round of a new process with this change of Waldur's answers.
async fn round(
    world: &Arc<World>,
    http: &reqwest::Client,
    settings: &AccountingSettings,
    change: &Shared,
    hostile: Option<Change>,
) -> SyncStatus {
    *change.lock().unwrap() = hostile;
    let secrets = Secrets {
        http: http.clone(),
        vault: None,
    };
    let (api, token) = (settings.api.clone(), settings.token.clone());
    let client = WaldurClient::new(world.cluster(), http.clone(), api, secrets, token);
    let observer = Arc::new(NoObserver);
    let mut sync = AccountingSync::new(world.clone(), client, settings.clone(), observer);
    sync.round().await;
    sync.status().lock().clone()
}
