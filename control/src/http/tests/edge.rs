//! What the port does with everything else: no token, bad bodies, unknown paths, the page.

use super::bed::{Bed, job};
use crate::http::server::{Patience, serve_with};
use lattice_client::{Client, ClientError, Endpoint, Problem, SubmitOptions};
use reqwest::{Method, Response};
use std::{
    collections::BTreeSet,
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

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
async fn without_a_known_token_nothing_is_told() {
    let bed = Bed::furnished().await;
    let bare = bed
        .raw()
        .get(bed.url("/api/v1/nodes"))
        .send()
        .await
        .unwrap();
    assert_eq!(
        bare.headers()["www-authenticate"],
        "Bearer realm=\"lattice\""
    );
    assert_eq!(problem(bare).await.code, "unauthenticated");
    for token in ["", "root", "root-root-root-root-rooT"] {
        let sent = bed
            .raw()
            .get(bed.url("/api/v1/status"))
            .bearer_auth(token)
            .send();
        assert_eq!(problem(sent.await.unwrap()).await.status, 401, "{token}");
    }
    for path in ["/metrics", "/api/v1/events", "/api/v1/allocations/1/logs"] {
        let sent = bed.raw().get(bed.url(path)).send().await.unwrap();
        assert_eq!(problem(sent).await.status, 401, "{path}");
    }
    let (eye, one) = (bed.client("eye"), job("atlas/web", 1));
    let error = eye
        .submit(&one, SubmitOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::NotAllowed(_)), "{error:?}");
    assert!(error.to_string().contains("viewer"), "{error}");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_by_name() {
    let bed = Bed::furnished().await;
    let send = async |kind: &str, body: String| {
        let post = bed.raw().post(bed.url("/api/v1/allocations"));
        let post = post
            .bearer_auth(bed.token("alice"))
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
        r#"{{"project":"atlas/web","nodes":1,"script":"{}"}}"#,
        "x".repeat(70 << 10)
    );
    assert!(send(json, script).await.detail.contains("more than"));
}

#[tokio::test]
async fn paths_methods_and_queries_that_do_not_exist_are_problems_too() {
    let bed = Bed::furnished().await;
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
        let request = bed.raw().request(method.clone(), bed.url(path));
        let sent = request.bearer_auth(bed.token("root")).send().await.unwrap();
        let problem = problem(sent).await;
        assert_eq!(problem.status, status, "{method} {path}: {problem:?}");
    }
    let long = bed
        .raw()
        .post(bed.url("/api/v1/allocations"))
        .bearer_auth(bed.token("alice"));
    let long = long
        .header("idempotency-key", "k".repeat(300))
        .json(&job("atlas/web", 1));
    let problem = problem(long.send().await.unwrap()).await;
    assert_eq!(problem.field.as_deref(), Some("Idempotency-Key"));
}

#[tokio::test]
async fn the_document_names_every_route() {
    let bed = Bed::empty().await;
    let text = bed
        .raw()
        .get(bed.url("/openapi.json"))
        .send()
        .await
        .unwrap();
    let document: serde_json::Value = text.json().await.unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let (mut found, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            found.insert(format!("{} {path}", method.to_uppercase()));
            let name = item[method]["operationId"].as_str().unwrap().to_owned();
            assert!(names.insert(name.clone()), "{name} is there twice");
            for (status, response) in item[method]["responses"].as_object().unwrap() {
                assert!(
                    response["description"].is_string(),
                    "{method} {path} {status}"
                );
                let problem = &response["content"]["application/problem+json"];
                assert_eq!(
                    problem.is_object(),
                    !status.starts_with('2'),
                    "{method} {path}"
                );
            }
        }
    }
    let wanted = [
        "DELETE /api/v1/allocations/{id}",
        "DELETE /api/v1/projects/{path}",
        "GET /api/v1/allocations",
        "GET /api/v1/allocations/{id}",
        "GET /api/v1/allocations/{id}/explanation",
        "GET /api/v1/allocations/{id}/logs",
        "GET /api/v1/conformance/drift",
        "GET /api/v1/conformance/groups",
        "GET /api/v1/events",
        "GET /api/v1/nodes",
        "GET /api/v1/nodes/{id}",
        "GET /api/v1/nodes/{id}/diff",
        "GET /api/v1/nodes/{id}/inventory",
        "GET /api/v1/projects",
        "GET /api/v1/projects/{path}",
        "GET /api/v1/status",
        "GET /healthz",
        "GET /metrics",
        "GET /readyz",
        "POST /api/v1/allocations",
        "POST /api/v1/allocations/{id}/hold",
        "POST /api/v1/allocations/{id}/release",
        "POST /api/v1/nodes/{id}/drain",
        "POST /api/v1/nodes/{id}/undrain",
        "POST /api/v1/projects",
        "PUT /api/v1/limits",
        "PUT /api/v1/projects/{path}",
    ];
    assert_eq!(found, wanted.map(str::to_owned).into());
    assert!(names.contains("projects_set_limits"), "{names:?}");
    // Every reference in it leads somewhere.
    let written = document.to_string();
    for part in written.split("\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(!document["components"]["schemas"][name].is_null(), "{name}");
    }
}

#[tokio::test]
async fn the_page_comes_whole_and_loads_nothing_from_elsewhere() {
    let bed = Bed::empty().await;
    for (path, media, text) in crate::http::routes::page::FILES {
        let response = bed.raw().get(bed.url(path)).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let headers = response.headers().clone();
        assert_eq!(headers["content-type"], media);
        assert_eq!(headers["x-content-type-options"], "nosniff");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
        assert_eq!(response.text().await.unwrap(), text);
        let outside = text.matches("http://").count() + text.matches("https://").count();
        let names = text.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(outside, names, "{path} names another host");
    }
}

#[tokio::test]
async fn health_readiness_and_metrics_tell_what_is() {
    let bed = Bed::furnished().await;
    let eye = bed.client("eye");
    eye.healthz().await.unwrap();
    eye.readyz().await.unwrap();
    let metrics = async |who: &str| {
        let get = bed
            .raw()
            .get(bed.url("/metrics"))
            .bearer_auth(bed.token(who));
        get.send().await.unwrap().text().await.unwrap()
    };
    let text = metrics("eye").await;
    assert!(
        text.contains("lattice_nodes{liveness=\"unknown\"} 24\n"),
        "{text}"
    );
    assert!(
        text.contains("lattice_allocations{state=\"pending\"} 0\n"),
        "{text}"
    );
    assert!(!text.contains("atlas"), "projects are for operators");
    let text = metrics("op").await;
    assert!(
        text.contains("lattice_project_nodes_limit{project=\"atlas/web\"} 50\n"),
        "{text}"
    );
    let route = "method=\"GET\",route=\"/metrics\",status=\"200\"";
    assert!(
        text.contains(&format!("_seconds_count{{{route}}} 1\n")),
        "{text}"
    );
}

#[tokio::test]
async fn a_quorum_that_does_not_answer_is_a_matter_of_trying_again() {
    let bed = Bed::furnished().await;
    bed.store.set_down(true);
    let alice = bed.client("alice");
    let error = alice
        .submit(&job("atlas/web", 1), SubmitOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(&error, ClientError::Unavailable(p) if p.code == "no_majority"));
    assert_eq!(error.exit_code(), 3);
    // What the view knows is still told.
    assert_eq!(alice.nodes().await.unwrap().len(), 24);
    bed.store.set_down(false);
    bed.submit("alice", "atlas/web", 1).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_or_not_trusted_is_unreachable() {
    let mut bed = Bed::empty().await;
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let stranger = Client::new(Endpoint {
        url: bed.url(""),
        ca_pem: other.cert.pem(),
        token: bed.token("eye").into(),
    });
    let error = stranger.unwrap().status().await.unwrap_err();
    assert!(
        matches!(error, ClientError::Unreachable { .. }),
        "{error:?}"
    );
    let eye = bed.client("eye");
    bed.close().await;
    let error = eye.status().await.unwrap_err();
    assert_eq!(error.exit_code(), 3, "{error:?}");
    assert!(error.to_string().contains(&bed.addr.to_string()), "{error}");
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let bed = Bed::empty().await;
    for (alpn, version) in [
        (&["http/1.1"][..], reqwest::Version::HTTP_11),
        (&["h2", "http/1.1"], reqwest::Version::HTTP_2),
        (&[], reqwest::Version::HTTP_11),
    ] {
        let http = bed.raw_with(alpn);
        let response = http.get(bed.url("/healthz")).send().await.unwrap();
        assert_eq!(response.version(), version, "{alpn:?}");
    }
}

#[tokio::test]
async fn whoever_asks_too_often_is_told_to_wait() {
    let bed = Bed::empty().await;
    let auth = Arc::new(crate::http::Auth::parse(super::bed::TOKENS).unwrap());
    let api = crate::http::state::Api::new(bed.core.clone(), auth, 2, Default::default());
    let bearer = format!("Bearer {}", bed.token("alice"));
    let asked: Vec<_> = (0..4).map(|_| api.authenticate(Some(&bearer))).collect();
    assert!(asked[0].is_ok() && asked[1].is_ok());
    let refused = asked[3].as_ref().unwrap_err();
    assert_eq!(
        (refused.status, refused.code.as_str()),
        (429, "too_many_requests")
    );
    assert!(
        refused.detail.contains("alice asks too often"),
        "{}",
        refused.detail
    );
    let other = format!("Bearer {}", bed.token("bob"));
    assert!(api.authenticate(Some(&other)).is_ok());
}

/// Opens a TLS connection by hand, says `words`, and reads until the server closes it.
fn dawdle(addr: SocketAddr, ca_pem: &str, words: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut tcp = TcpStream::connect(addr)?;
    tcp.set_read_timeout(Some(Duration::from_secs(10)))?;
    let name = "127.0.0.1".try_into().unwrap();
    let config = Arc::new(super::bed::client_tls(ca_pem, &["http/1.1"]));
    let mut tls = rustls::ClientConnection::new(config, name).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
    stream.write_all(words)?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // Closed without a farewell is closed.
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(answer),
        other => other.map(|_| answer),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_dawdles_is_let_go_and_a_quick_one_is_served() {
    let bed = Bed::empty().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let addr = listener.local_addr().unwrap();
    let short = Duration::from_millis(300);
    let patience = Patience {
        handshake: short,
        head: short,
        alive: short,
    };
    let auth = Arc::new(crate::http::Auth::parse(super::bed::TOKENS).unwrap());
    let stop = CancellationToken::new();
    let api = crate::http::state::Api::new(bed.core.clone(), auth, 100, stop.clone());
    let app = crate::http::server::app(api);
    let tls = bed.tls.clone();
    let serving = serve_with(app, listener, tls, stop.clone(), patience);
    let serving = tokio::spawn(serving);
    let ask = async |words: &'static [u8]| {
        let ca_pem = bed.ca_pem.clone();
        let asked = tokio::task::spawn_blocking(move || dawdle(addr, &ca_pem, words));
        String::from_utf8(asked.await.unwrap().unwrap()).unwrap()
    };
    // It says half of a head and waits: no answer, and the connection ends.
    let half = ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\n").await;
    assert!(!half.contains("200 OK"), "{half}");
    let whole = ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(whole.starts_with("HTTP/1.1 200 OK"), "{whole}");
    // It never even says hello.
    let mute = tokio::task::spawn_blocking(move || {
        let mut tcp = TcpStream::connect(addr).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        tcp.read(&mut [0; 16])
    });
    assert_eq!(mute.await.unwrap().unwrap(), 0, "it was closed");
    stop.cancel();
    serving.await.unwrap();
}
