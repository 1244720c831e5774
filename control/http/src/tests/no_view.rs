//! A control that has received no state from the quorum: every answer that derives from the view is refused.

use super::{
    fixture::{ApiFixture, PATIENCE},
    parity::routes::{calls, routes},
};
use lattice_api::{
    problem::{MEDIA_TYPE, Problem},
    status::VIEW_AGE_HEADER,
};
use lattice_client::ClientError;
use reqwest::{Method, Response};
use std::{collections::BTreeSet, time::Duration};

/// Routes that answer without a view, each with its reason.
const ROUTES_WITHOUT_VIEW: &[(&str, &str)] = &[
    ("GET /healthz", "reports only that the process answers"),
    (
        "GET /readyz",
        "reports the missing view itself, as `not_ready`",
    ),
    (
        "GET /metrics",
        "leaves out the series that derive from the view",
    ),
    (
        "GET /api/v1/quorum",
        "the members answer, which shows why there is no view",
    ),
    (
        "POST /api/v1/quorum/members",
        "the members answer; repairs a quorum without a majority",
    ),
    (
        "DELETE /api/v1/quorum/members/{id}",
        "the members answer; repairs a quorum without a majority",
    ),
    ("POST /api/v1/quorum/step-down", "the members answer"),
    ("POST /api/v1/quorum/backup", "the members answer"),
    (
        "POST /api/v1/accounting/hook/{secret}",
        "only starts a read of Waldur; its caller has no token",
    ),
];

/// Calls that answer without a view, for the reasons of their routes.
const CALLS_WITHOUT_VIEW: [&str; 5] = [
    "AdminService.GetQuorum",
    "AdminService.AddQuorumMember",
    "AdminService.RemoveQuorumMember",
    "AdminService.StepDown",
    "AdminService.Backup",
];

/// Families of metrics that are about the control itself, so that their values are known without a view.
const METRICS_WITHOUT_VIEW: [&str; 8] = [
    "lattice_view_available",
    "lattice_control_",
    "lattice_streams_open",
    "lattice_connections_open",
    "lattice_http_request_duration_seconds",
    // Histograms and counters of what this control did since its start.
    "lattice_scheduling_cycle_duration_seconds",
    "lattice_preemption",
    "lattice_autoscaling_",
];

/// Sends a request of an administrator without a body; variable parts of the path are `1`.
async fn send(http: &reqwest::Client, fixture: &ApiFixture, route: &str) -> Response {
    let (method, path) = route.split_once(' ').unwrap();
    let filled: Vec<&str> = path
        .split('/')
        .map(|segment| match segment.starts_with('{') {
            true => "1",
            false => segment,
        })
        .collect();
    let method: Method = method.parse().unwrap();
    let request = http.request(method, fixture.url(&filled.join("/")));
    let request = request.bearer_auth(fixture.token("root"));
    request.send().await.unwrap()
}

async fn metrics(fixture: &ApiFixture) -> String {
    let answer = send(&fixture.raw(), fixture, "GET /metrics").await;
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap()
}

/// Every route of the OpenAPI document, so that a new one is checked too.
#[tokio::test]
async fn every_route_is_refused_without_a_view() {
    let fixture = ApiFixture::without_view();
    let http = fixture.raw();
    let listed: BTreeSet<&str> = ROUTES_WITHOUT_VIEW
        .iter()
        .map(|(route, _)| *route)
        .collect();
    let routes = routes();
    let gone: Vec<&&str> = listed
        .iter()
        .filter(|route| !routes.contains(**route))
        .collect();
    assert!(gone.is_empty(), "unknown routes: {gone:?}");
    assert!(routes.len() > listed.len() + 60, "{}", routes.len());
    for route in &routes {
        let answer = send(&http, &fixture, route).await;
        let (status, headers) = (answer.status(), answer.headers().clone());
        assert!(
            !headers.contains_key(VIEW_AGE_HEADER),
            "{route}: the age of no view"
        );
        if listed.contains(route.as_str()) {
            let text = answer.text().await.unwrap();
            assert!(!text.contains("no_view"), "{route}: {text}");
            continue;
        }
        assert_eq!(status, 503, "{route}");
        assert_eq!(headers["content-type"], MEDIA_TYPE, "{route}");
        assert_eq!(headers["retry-after"], "1", "{route}");
        let problem: Problem = answer.json().await.unwrap();
        assert_eq!(
            (&*problem.code, problem.status),
            ("no_view", 503),
            "{route}"
        );
        assert!(
            problem.detail.contains("has no view of the cluster"),
            "{route}: {problem}"
        );
        assert!(
            problem.detail.contains("lattice admin quorum status"),
            "{route}: {problem}"
        );
    }
    // The files of the page and the document derive from nothing.
    for path in ["/openapi.json", "/", "/page.js"] {
        let answer = http.get(fixture.url(path)).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
    }
    // A caller without a token gets no information about the control.
    let bare = http.get(fixture.url("/api/v1/nodes")).send().await.unwrap();
    assert_eq!(bare.status(), 401);
}

/// Every call of the proto files, with an empty message.
#[tokio::test]
async fn every_call_is_unavailable_without_a_view() {
    let fixture = ApiFixture::without_view();
    let http = fixture.raw();
    let calls = calls();
    assert!(
        calls.len() > CALLS_WITHOUT_VIEW.len() + 60,
        "{}",
        calls.len()
    );
    assert!(CALLS_WITHOUT_VIEW.iter().all(|call| calls.contains(*call)));
    for call in &calls {
        let path = format!("/lattice.v1.{}", call.replace('.', "/"));
        let request = http.post(fixture.url(&path));
        let request = request.bearer_auth(fixture.token("root"));
        let request = request.header("content-type", "application/grpc");
        // The frame of an empty message: not compressed, length 0.
        let answer = request.body(vec![0_u8; 5]).send().await.unwrap();
        let status = tonic::Status::from_header_map(answer.headers());
        let status = status.unwrap_or_else(|| panic!("{call}: {answer:?}"));
        let code = Problem::from_grpc(&status).map(|problem| problem.code);
        if CALLS_WITHOUT_VIEW.contains(&call.as_str()) {
            assert_ne!(code.as_deref(), Some("no_view"), "{call}");
            continue;
        }
        assert_eq!(
            status.code(),
            tonic::Code::Unavailable,
            "{call}: {status:?}"
        );
        assert_eq!(code.as_deref(), Some("no_view"), "{call}: {status:?}");
    }
}

#[tokio::test]
async fn no_series_derives_from_a_missing_view() {
    let fixture = ApiFixture::without_view();
    let text = metrics(&fixture).await;
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let is_known = |line: &&str| {
        METRICS_WITHOUT_VIEW
            .iter()
            .any(|name| line.starts_with(name))
    };
    let derived: Vec<&str> = samples.filter(|line| !is_known(line)).collect();
    assert!(derived.is_empty(), "{derived:#?}");
    assert!(text.contains("lattice_view_available 0\n"), "{text}");

    fixture.store.set_down(false);
    tokio::time::timeout(PATIENCE, fixture.core.first_view())
        .await
        .unwrap();
    let text = metrics(&fixture).await;
    for line in [
        "lattice_view_available 1\n",
        "lattice_nodes_held 0\n",
        "lattice_allocations{state=\"running\"} 0\n",
        "lattice_view_age_seconds ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// Events continue from a revision, which a control without a view does not have.
#[tokio::test]
async fn the_stream_of_events_begins_with_the_view() {
    let fixture = ApiFixture::without_view();
    let http = fixture.raw();
    for path in ["/api/v1/events", "/api/v1/events?since=7"] {
        let answer = send(&http, &fixture, &format!("GET {path}")).await;
        assert_eq!(answer.status(), 503, "{path}");
        let problem: Problem = answer.json().await.unwrap();
        assert_eq!(problem.code, "no_view", "{path}");
    }
    fixture.store.set_down(false);
    tokio::time::timeout(PATIENCE, fixture.core.first_view())
        .await
        .unwrap();
    let answer = send(&http, &fixture, "GET /api/v1/events").await;
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().contains_key("lattice-revision"));
}

/// A request right after the start waits for the view, so that a restart is no failure for clients.
#[tokio::test]
async fn the_first_request_waits_for_the_first_view() {
    let fixture = ApiFixture::without_view();
    let eye = fixture.client("eye");
    let (listed, ()) = tokio::join!(eye.nodes(), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        fixture.store.set_down(false);
    });
    match listed {
        // Now an empty list is what the quorum reported.
        Ok(nodes) => assert!(nodes.is_empty()),
        // On a busy machine the two seconds may be over.
        Err(ClientError::Unavailable(problem)) => assert_eq!(problem.code, "no_view"),
        Err(other) => panic!("{other:?}"),
    }
    tokio::time::timeout(PATIENCE, fixture.core.first_view())
        .await
        .unwrap();
    assert!(eye.nodes().await.unwrap().is_empty());
}

/// Every answer that can derive from the view has its age.
#[tokio::test]
async fn every_read_has_the_age_of_the_view() {
    let fixture = ApiFixture::furnished().await;
    let http = fixture.raw();
    for route in routes().iter().filter(|route| route.starts_with("GET ")) {
        let answer = send(&http, &fixture, route).await;
        let age = &answer.headers()[VIEW_AGE_HEADER];
        let age: u64 = age.to_str().unwrap().parse().unwrap();
        assert!(age < 60_000, "{route}: {age}");
    }
    // The page reads the same header.
    let page = http.get(fixture.url("/api.js")).send().await.unwrap();
    assert!(page.text().await.unwrap().contains(VIEW_AGE_HEADER));
}
