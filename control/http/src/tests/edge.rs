//! Invalid requests: no token, bad bodies, unknown paths, no quorum.

use super::fixture::{ApiFixture, PATIENCE, TOKENS, job};
use crate::Auth;
use crate::state::{Api, Bounds};
use lattice_client::{Client, ClientError, Endpoint, Problem, SubmitOptions};
use reqwest::{Method, Response};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

async fn problem(response: Response) -> Problem {
    let status = response.status().as_u16();
    let media = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(media, "application/problem+json");
    let problem: Problem = response.json().await.unwrap();
    assert_eq!(problem.status, status);
    assert!(problem.type_uri.starts_with("urn:lattice:problem:"));
    problem
}

#[tokio::test]
async fn rejects_missing_or_unknown_token() {
    let fixture = ApiFixture::furnished().await;
    let bare = fixture
        .raw()
        .get(fixture.url("/api/v1/nodes"))
        .send()
        .await
        .unwrap();
    assert_eq!(
        bare.headers()["www-authenticate"],
        "Bearer realm=\"lattice\""
    );
    assert_eq!(problem(bare).await.code, "unauthenticated");
    for token in ["", "root", "root-root-root-root-rooT"] {
        let sent = fixture
            .raw()
            .get(fixture.url("/api/v1/status"))
            .bearer_auth(token)
            .send();
        assert_eq!(problem(sent.await.unwrap()).await.status, 401, "{token}");
    }
    for path in ["/metrics", "/api/v1/events", "/api/v1/allocations/1/logs"] {
        let sent = fixture.raw().get(fixture.url(path)).send().await.unwrap();
        assert_eq!(problem(sent).await.status, 401, "{path}");
    }
    let (eye, one) = (fixture.client("eye"), job("atlas/web", 1));
    let error = eye
        .submit(&one, SubmitOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::NotAllowed(_)), "{error:?}");
    assert!(error.to_string().contains("viewer"), "{error}");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_by_name() {
    let fixture = ApiFixture::furnished().await;
    let send = async |kind: &str, body: String| {
        let post = fixture.raw().post(fixture.url("/api/v1/allocations"));
        let post = post
            .bearer_auth(fixture.token("alice"))
            .header("content-type", kind);
        problem(post.body(body).send().await.unwrap()).await
    };
    let json = "application/json";
    for (body, code, field, text) in [
        ("{", "not_json", None, "not JSON"),
        (
            r#"{"nodes":1}"#,
            "invalid",
            Some("project"),
            "missing field",
        ),
        (
            r#"{"project":"atlas/web","nodes":1,"user":"root"}"#,
            "invalid",
            Some("user"),
            "unknown field `user`",
        ),
        (
            r#"{"project":"atlas/web","nodes":1,"constraints":{"gpus":2}}"#,
            "invalid",
            Some("constraints.gpus"),
            "unknown field `gpus`",
        ),
        (
            r#"{"project":"atlas/web","nodes":-1}"#,
            "invalid",
            Some("nodes"),
            "-1",
        ),
        (
            r#"{"project":"atlas/web","nodes":"two"}"#,
            "invalid",
            Some("nodes"),
            "two",
        ),
        (
            r#"{"project":"atlas/web","nodes":0}"#,
            "invalid",
            Some("nodes"),
            "at least 1 node",
        ),
        (
            r#"{"project":"atlas/web","nodes":1,"walltime":"0s"}"#,
            "invalid",
            Some("walltime"),
            "longer than zero",
        ),
        (
            r#"{"project":"atlas/web","nodes":2,"constraints":{"nodelist":"gpu001,gpu[001-002]"}}"#,
            "invalid",
            Some("constraints.nodelist"),
            "gpu001 is named twice",
        ),
        (
            r#"{"project":"atlas/web","nodes":1,"constraints":{"nodelist":"gpu001","exclude":"gpu[001-002]"}}"#,
            "invalid",
            Some("constraints.exclude"),
            "leave one of them in",
        ),
        (
            r#"{"project":"atlas/web","nodes":1,"data_ready":"most"}"#,
            "invalid",
            Some("data_ready"),
            "most",
        ),
        (
            r#"{"project":"atlas/web","nodes":1,"data_ready":1.5}"#,
            "invalid",
            Some("data_ready"),
            "from 0 to 1",
        ),
        (
            r#"{"project":"atlas/web","nodes":1,"storage_gb_s":{"scratch":"40GB/s"}}"#,
            "invalid",
            Some("storage_gb_s.scratch"),
            "40GB/s",
        ),
        (
            r#"{"project":"atlas/web","nodes":1,"storage_gb_s":{"scratch":0}}"#,
            "invalid",
            Some("storage_gb_s"),
            "above 0",
        ),
    ] {
        let problem = send(json, body.to_owned()).await;
        assert_eq!(
            (problem.status, problem.code.as_str()),
            (400, code),
            "{body}: {problem:?}"
        );
        assert_eq!(problem.field.as_deref(), field, "{body}: {problem:?}");
        assert!(problem.detail.contains(text), "{body}: {}", problem.detail);
    }
    assert_eq!(send("text/plain", "{}".to_owned()).await.status, 415);
    let large = format!(r#"{{"project":"{}"}}"#, "x".repeat(2 << 20));
    assert_eq!(send(json, large).await.status, 413);
    let script = format!(
        r##"{{"project":"atlas/web","nodes":1,"script":"#!/bin/sh\n{}"}}"##,
        "x".repeat(70 << 10)
    );
    assert!(send(json, script).await.detail.contains("more than"));
}

#[tokio::test]
async fn paths_methods_and_queries_that_do_not_exist_are_problems_too() {
    let fixture = ApiFixture::furnished().await;
    for (method, path, status) in [
        (Method::GET, "/api/v1/nothing", 404),
        (Method::GET, "/api/v2/nodes", 404),
        (Method::GET, "/favicon.ico", 404),
        (Method::DELETE, "/api/v1/nodes", 405),
        (Method::PATCH, "/api/v1/projects/atlas", 405),
        (Method::POST, "/openapi.json", 405),
        (Method::GET, "/api/v1/nodes?colour=red", 400),
        (Method::GET, "/api/v1/nodes?limit=many", 400),
        (Method::GET, "/api/v1/allocations?state=sleeping", 400),
        (Method::GET, "/api/v1/allocations/seven", 400),
        (Method::GET, "/api/v1/nodes/gpu001/diff", 400),
        (Method::GET, "/api/v1/events?since=yesterday", 400),
    ] {
        let request = fixture.raw().request(method.clone(), fixture.url(path));
        let sent = request
            .bearer_auth(fixture.token("root"))
            .send()
            .await
            .unwrap();
        let problem = problem(sent).await;
        assert_eq!(problem.status, status, "{method} {path}: {problem:?}");
    }
    let long = fixture
        .raw()
        .post(fixture.url("/api/v1/allocations"))
        .bearer_auth(fixture.token("alice"));
    let long = long
        .header("idempotency-key", "k".repeat(300))
        .json(&job("atlas/web", 1));
    let refused = problem(long.send().await.unwrap()).await;
    assert_eq!(refused.field.as_deref(), Some("Idempotency-Key"));
    let tab = fixture.raw().post(fixture.url("/api/v1/allocations"));
    let tab = tab.bearer_auth(fixture.token("alice"));
    let tab = tab.header("idempotency-key", "a\tb");
    let sent = tab.json(&job("atlas/web", 1)).send().await.unwrap();
    let refused = problem(sent).await;
    assert_eq!(refused.field.as_deref(), Some("Idempotency-Key"));
}

#[tokio::test]
async fn a_quorum_that_does_not_answer_is_a_matter_of_trying_again() {
    let fixture = ApiFixture::furnished().await;
    fixture.store.set_down(true);
    let alice = fixture.client("alice");
    let error = alice
        .submit(&job("atlas/web", 1), SubmitOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(&error, ClientError::Unavailable(p) if p.code == "no_majority"));
    assert_eq!(error.exit_code(), 3);
    // Data in the view is still served.
    assert_eq!(alice.nodes().await.unwrap().len(), 24);
    // The response includes the age of the data, without numbers that only the quorum has.
    let aged = async {
        loop {
            let status = alice.status().await.unwrap();
            if status.view_age_ms >= 100 {
                return status;
            }
        }
    };
    let status = tokio::time::timeout(PATIENCE, aged).await;
    let status = status.unwrap();
    assert!(!status.allocations_by_state.contains_key("completed"));
    assert!(alice.view_age().unwrap() >= Duration::from_millis(100));
    fixture.store.set_down(false);
    let status = alice.status().await.unwrap();
    assert!(status.allocations_by_state.contains_key("completed"));
    fixture.submit("alice", "atlas/web", 1).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_or_not_trusted_is_unreachable() {
    let mut fixture = ApiFixture::empty().await;
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let stranger = Client::new(Endpoint {
        url: fixture.url(""),
        ca_pem: other.cert.pem(),
        token: fixture.token("eye").into(),
    });
    let error = stranger.unwrap().status().await.unwrap_err();
    assert!(
        matches!(error, ClientError::Unreachable { .. }),
        "{error:?}"
    );
    let eye = fixture.client("eye");
    fixture.close().await;
    let error = eye.status().await.unwrap_err();
    assert_eq!(error.exit_code(), 3, "{error:?}");
    assert!(
        error.to_string().contains(&fixture.addr.to_string()),
        "{error}"
    );
}

#[tokio::test]
async fn rate_limit_asks_to_wait() {
    let fixture = ApiFixture::empty().await;
    let auth = Arc::new(Auth::parse(TOKENS).unwrap());
    let bounds = Bounds {
        requests_per_second: 2,
        connections: 1,
        max_dag_size: 1_000,
        default_output: None,
        stop: Default::default(),
    };
    let api = Api::new(
        fixture.core.clone(),
        fixture.stores.clone(),
        auth,
        fixture.authority,
        bounds,
    );
    let bearer = format!("Bearer {}", fixture.token("alice"));
    // Two at once and two per second: however long this takes, more is rejected.
    let begun = Instant::now();
    let ask = async || api.authenticate(Some(&bearer)).await;
    assert!(ask().await.is_ok() && ask().await.is_ok());
    let mut more = 0_u32;
    let refused = loop {
        match ask().await {
            Ok(_) => more += 1,
            Err(refused) => break refused,
        }
    };
    // The clock of the limiter has millisecond resolution and differs from this one.
    let gained = (begun.elapsed().as_millis() + 100) * 2 / 1_000;
    assert!(u128::from(more) <= gained, "{more} more within {gained}");
    assert_eq!(
        (refused.status, refused.code.as_str()),
        (429, "too_many_requests")
    );
    assert!(
        refused.detail.contains("alice sends too many requests"),
        "{}",
        refused.detail
    );
    let other = format!("Bearer {}", fixture.token("bob"));
    assert!(api.authenticate(Some(&other)).await.is_ok());
}
