//! Access to administrator actions: every route by every kind of caller, as one table.

use super::fixture::ApiFixture;
use lattice_mesh::{Authority, Clock as _, SystemClock, Validity};
use lattice_quorum_types::Command;
use reqwest::Method;
use serde_json::{Value, json};
use std::{fmt::Write as _, time::Duration};

/// `eye` is a viewer, `alice` a user; `diver` an operator and `warden` an administrator of one tenant; `op` and `root`
/// of everything.
const CALLERS: [&str; 6] = ["eye", "alice", "diver", "op", "warden", "root"];

/// Route, body, and for each of [`WHO`] whether access is granted. A request with access may still be rejected, but not
/// with 401 or 403.
fn routes(pem: &str) -> Vec<(Method, &'static str, Value, &'static str)> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let drain = json!({"reason": "why", "force_release": false});
    let force = json!({"reason": "why", "force_release": true});
    vec![
        (get.clone(), "tokens", Value::Null, ".....x"),
        (
            post.clone(),
            "tokens",
            json!({"role": "agent", "ttl": "1h"}),
            ".....x",
        ),
        (delete.clone(), "tokens/0123456789ab", Value::Null, ".....x"),
        (get.clone(), "certificates", Value::Null, "...x.x"),
        (
            post.clone(),
            "certificates/agent/gpu001/revoke",
            json!({"reason": "why"}),
            ".....x",
        ),
        (get.clone(), "authorities", Value::Null, "...x.x"),
        (
            post.clone(),
            "authorities",
            json!({"certificate": pem}),
            ".....x",
        ),
        (
            post.clone(),
            "authorities/0123456789ab/promote",
            Value::Null,
            ".....x",
        ),
        (
            delete.clone(),
            "authorities/0123456789ab",
            Value::Null,
            ".....x",
        ),
        (get.clone(), "audit", Value::Null, ".xxxxx"),
        (post.clone(), "audit/checkpoint", Value::Null, "...x.x"),
        (get.clone(), "decisions", Value::Null, "...x.x"),
        (get.clone(), "conformance/baselines", Value::Null, "xxxxxx"),
        (
            get.clone(),
            "conformance/baselines/h100",
            Value::Null,
            "xxxxxx",
        ),
        (get.clone(), "conformance/brake", Value::Null, "xxxxxx"),
        (get.clone(), "conformance/changes", Value::Null, "xxxxxx"),
        (get.clone(), "nodes/gpu001/history", Value::Null, "xxxxxx"),
        (get.clone(), "nodes/gpu001/health", Value::Null, "xxxxxx"),
        (
            post.clone(),
            "nodes/gpu001/health/clear",
            json!({"code": "gpu.xid.79"}),
            "..xxxx",
        ),
        (post.clone(), "nodes/gpu001/reprobe", Value::Null, "..xxxx"),
        (
            Method::PUT,
            "conformance/baselines/h100",
            json!({"nodes": "gpu001"}),
            "...x.x",
        ),
        (delete, "conformance/baselines/h100", Value::Null, "...x.x"),
        (
            post.clone(),
            "conformance/brake/release",
            json!({"reason": "why"}),
            "...x.x",
        ),
        // An administrator of another tenant does not see this tenant.
        (
            Method::PUT,
            "tenants/atlas",
            json!({"max_nodes": 300}),
            "..x.xx",
        ),
        (post.clone(), "tenants", json!({"id": "river"}), "..x.xx"),
        (get.clone(), "system/limits", Value::Null, "xx.x.x"),
        (
            Method::PUT,
            "system/limits",
            json!({"sensitive_pool_size": 4}),
            ".....x",
        ),
        (
            Method::PUT,
            "system/limit-policy",
            json!({"limit_policy": "flat"}),
            ".....x",
        ),
        (get.clone(), "vclusters", Value::Null, "xxxxxx"),
        (get.clone(), "vclusters/default", Value::Null, "xxxxxx"),
        (
            Method::PUT,
            "vclusters/night",
            json!({"tenants": ["atlas"]}),
            ".....x",
        ),
        (Method::DELETE, "vclusters/night", Value::Null, ".....x"),
        (
            post.clone(),
            "vclusters/night/nodes",
            json!({"nodes": "gpu[001-002]"}),
            ".....x",
        ),
        (get.clone(), "reservations", Value::Null, "xxxxxx"),
        (
            Method::PUT,
            "reservations/course",
            json!({"nodes": "gpu001", "reason": "why"}),
            "...x.x",
        ),
        (Method::DELETE, "reservations/course", Value::Null, "...x.x"),
        (get.clone(), "dags", Value::Null, "xxxxxx"),
        (
            post.clone(),
            "dags",
            json!({"members": [{"name": "a", "project": "atlas/web", "nodes": 1, "argv": ["true"]}]}),
            ".xxxxx",
        ),
        // An administrator of another tenant does not see this allocation.
        (post.clone(), "allocations/1/requeue", Value::Null, ".xxxxx"),
        (post.clone(), "allocations/1/suspend", Value::Null, ".xxxxx"),
        (post.clone(), "allocations/1/resume", Value::Null, ".xxxxx"),
        (
            post.clone(),
            "allocations/1/extend",
            json!({"walltime": "1h"}),
            "..xxxx",
        ),
        (
            post.clone(),
            "allocations/1/checkpoint",
            json!({}),
            ".xxxxx",
        ),
        (post.clone(), "nodes/gpu002/drain", drain, "..xxxx"),
        // Held by an allocation of a tenant that `diver` and `warden` do not administer.
        (post.clone(), "nodes/gpu003/drain", force, "...x.x"),
        (post.clone(), "nodes/gpu002/undrain", Value::Null, "..xxxx"),
        (
            post.clone(),
            "nodes/gpu002/claim",
            json!({"project": "atlas/web"}),
            ".xxxxx",
        ),
        // An unclaimed node: the error is shown to every caller that may release.
        (post.clone(), "nodes/gpu002/release", json!({}), ".xxxxx"),
        (
            post.clone(),
            "nodes/gpu002/release",
            json!({"reason": "why", "wipe": "waive"}),
            ".....x",
        ),
        (
            post,
            "nodes/gpu002/undrain?skip_gate=true",
            Value::Null,
            ".....x",
        ),
    ]
}

#[tokio::test]
async fn administrator_routes_reject_others() {
    let year = Validity::from_now(SystemClock.now(), Duration::from_secs(365 * 86_400));
    let pem = |name| {
        let made = Authority::create(name, year).unwrap();
        lattice_api::x509::to_pem(made.certificate())
    };
    let mut table = format!("{:54}", "");
    CALLERS
        .iter()
        .for_each(|caller| write!(table, "{caller:>8}").unwrap());
    let mut wrong = Vec::new();
    for (method, path, body, expected) in routes(&pem("test")) {
        write!(table, "\n{:54}", format!("{method} {path}")).unwrap();
        for (caller, open) in CALLERS.into_iter().zip(expected.chars()) {
            // One cluster per request, so that no response depends on an earlier one.
            let fixture = ApiFixture::furnished().await;
            let certificate = Authority::create("test", year)
                .unwrap()
                .certificate()
                .to_vec();
            let certificate = certificate.into();
            fixture
                .member_answer(Command::AddAuthority { certificate })
                .unwrap();
            let id = fixture.submit("alice", "atlas/web", 1).await;
            fixture.assign(id, &["gpu003"]).await;
            let before = fixture.store.revision();
            let request = fixture
                .raw()
                .request(method.clone(), fixture.url(&format!("/api/v1/{path}")))
                .bearer_auth(fixture.token(caller));
            let request = match &body {
                Value::Null => request,
                body => request.json(body),
            };
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            write!(table, "{status:>8}").unwrap();
            let said = answer.text().await.unwrap();
            let refused = matches!(status, 401 | 403);
            let unchanged = fixture.store.revision() == before;
            if refused != (open == '.') || (refused && !unchanged) {
                wrong.push(format!("{caller}: {method} {path}: {status} {said}"));
            }
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{table}\n{}", wrong.join("\n"));
}
