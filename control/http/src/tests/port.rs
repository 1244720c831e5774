//! Port: the OpenAPI document, the web page, health and metrics, TLS and both versions of HTTP.

use super::fixture::{ApiFixture, PATIENCE, TOKENS, client_tls};
use crate::{Auth, run_until_stopped};
use crate::{
    server::{PeerTimeouts, serve_with},
    state::{Api, Bounds},
};
use lattice_conformance::{LimitState, Milliwatts, Power, Reading, health::Severity};
use lattice_engine::observed_state;
use lattice_quorum_types::{NodeId, UnixMillis};
use lattice_view::drift::{ClusterDrift, ComparisonResult};
use std::{
    collections::BTreeSet,
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn the_document_names_every_route() {
    let fixture = ApiFixture::empty().await;
    let text = fixture
        .raw()
        .get(fixture.url("/openapi.json"))
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
        "GET /api/v1/dags",
        "GET /api/v1/dags/{id}",
        "GET /api/v1/dags/{id}/graph",
        "GET /api/v1/decisions",
        "GET /api/v1/reservations",
        "GET /api/v1/reservations/{name}",
        "POST /api/v1/allocations/{id}/checkpoint",
        "POST /api/v1/allocations/{id}/extend",
        "POST /api/v1/allocations/{id}/requeue",
        "POST /api/v1/allocations/{id}/resume",
        "POST /api/v1/allocations/{id}/suspend",
        "POST /api/v1/dags",
        "PUT /api/v1/reservations/{name}",
        "DELETE /api/v1/allocations/{id}",
        "DELETE /api/v1/authorities/{pin}",
        "DELETE /api/v1/conformance/baselines/{name}",
        "DELETE /api/v1/dags/{id}",
        "DELETE /api/v1/projects/{path}",
        "DELETE /api/v1/reservations/{name}",
        "DELETE /api/v1/tenants/{id}",
        "DELETE /api/v1/quorum/members/{id}",
        "DELETE /api/v1/tokens/{id}",
        "DELETE /api/v1/vclusters/{name}",
        "GET /api/v1/accounting/status",
        "GET /api/v1/allocations",
        "GET /api/v1/allocations/{id}",
        "GET /api/v1/allocations/{id}/explanation",
        "GET /api/v1/allocations/{id}/logs",
        "GET /api/v1/audit",
        "GET /api/v1/authorities",
        "GET /api/v1/certificates",
        "GET /api/v1/conformance/baselines",
        "GET /api/v1/conformance/baselines/{name}",
        "GET /api/v1/conformance/baselines/{name}/diff",
        "GET /api/v1/conformance/brake",
        "GET /api/v1/conformance/changes",
        "GET /api/v1/conformance/drift",
        "GET /api/v1/conformance/groups",
        "GET /api/v1/events",
        "GET /api/v1/nodes",
        "GET /api/v1/nodes/{id}",
        "GET /api/v1/nodes/{id}/diff",
        "GET /api/v1/nodes/{id}/health",
        "GET /api/v1/nodes/{id}/history",
        "GET /api/v1/nodes/{id}/inventory",
        "GET /api/v1/projects",
        "GET /api/v1/projects/{path}",
        "GET /api/v1/projects/{path}/headroom",
        "GET /api/v1/quorum",
        "GET /api/v1/status",
        "GET /api/v1/system/limits",
        "GET /api/v1/tenants",
        "GET /api/v1/tenants/{id}",
        "GET /api/v1/tenants/{id}/usage",
        "GET /api/v1/tokens",
        "GET /api/v1/usage",
        "GET /api/v1/vclusters",
        "GET /api/v1/vclusters/{name}",
        "GET /healthz",
        "GET /metrics",
        "GET /readyz",
        "POST /api/v1/accounting/hook/{secret}",
        "POST /api/v1/accounting/reconcile",
        "POST /api/v1/allocations",
        "POST /api/v1/allocations/{id}/hold",
        "POST /api/v1/allocations/{id}/release",
        "POST /api/v1/audit/checkpoint",
        "POST /api/v1/authorities",
        "POST /api/v1/authorities/{pin}/promote",
        "POST /api/v1/certificates/{role}/{name}/revoke",
        "POST /api/v1/conformance/brake/release",
        "POST /api/v1/nodes/{id}/claim",
        "POST /api/v1/nodes/{id}/drain",
        "POST /api/v1/nodes/{id}/health/clear",
        "POST /api/v1/nodes/{id}/release",
        "POST /api/v1/nodes/{id}/reprobe",
        "POST /api/v1/nodes/{id}/undrain",
        "POST /api/v1/projects",
        "POST /api/v1/quorum/backup",
        "POST /api/v1/quorum/members",
        "POST /api/v1/quorum/step-down",
        "POST /api/v1/tenants",
        "POST /api/v1/tokens",
        "POST /api/v1/vclusters/{name}/nodes",
        "PUT /api/v1/conformance/baselines/{name}",
        "PUT /api/v1/limits",
        "PUT /api/v1/projects/{path}",
        "PUT /api/v1/system/limit-policy",
        "PUT /api/v1/system/limits",
        "PUT /api/v1/tenants/{id}",
        "PUT /api/v1/vclusters/{name}",
    ];
    assert_eq!(found, wanted.map(str::to_owned).into());
    assert!(names.contains("projects_set_limits"), "{names:?}");
    // Every reference in the document resolves.
    let written = document.to_string();
    for part in written.split("\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(!document["components"]["schemas"][name].is_null(), "{name}");
    }
}

#[tokio::test]
async fn the_page_comes_whole_and_loads_nothing_from_elsewhere() {
    let fixture = ApiFixture::empty().await;
    for (path, media, text) in crate::routes::page::FILES {
        let response = fixture.raw().get(fixture.url(path)).send().await.unwrap();
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
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    eye.healthz().await.unwrap();
    eye.readyz().await.unwrap();
    let metrics = async |caller: &str| {
        let get = fixture
            .raw()
            .get(fixture.url("/metrics"))
            .bearer_auth(fixture.token(caller));
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
async fn no_verdict_before_first_comparison() {
    let fixture = ApiFixture::furnished().await;
    let series = async || {
        let get = fixture.raw().get(fixture.url("/metrics"));
        let answer = get.bearer_auth(fixture.token("eye")).send().await.unwrap();
        let text = answer.text().await.unwrap();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("lattice_nodes_"));
        let lines = lines.filter(|line| line.contains("drifted") || line.contains("compared"));
        let status = fixture.client("eye").status().await.unwrap();
        let status = (status.nodes_drifted, status.nodes_not_compared);
        (lines.map(str::to_owned).collect::<Vec<_>>(), status)
    };
    let (lines, status) = series().await;
    assert_eq!(lines, ["lattice_nodes_not_compared 24"]);
    assert_eq!(status, (None, 24));
    let nodes = ["gpu001", "gpu002", "gpu003"].map(|name| NodeId::new(name).unwrap());
    let report = ClusterDrift {
        compared: nodes.clone().into(),
        pending: [nodes[2].clone()].into(),
        ..ClusterDrift::default()
    };
    let judged = ComparisonResult {
        report,
        ..ComparisonResult::default()
    };
    observed_state::comparison(&fixture.core, judged);
    let (lines, status) = series().await;
    let is = ["lattice_nodes_drifted 0", "lattice_nodes_not_compared 22"];
    assert_eq!(
        (&lines[..], status),
        (&is.map(str::to_owned)[..], (Some(0), 22))
    );
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let fixture = ApiFixture::empty().await;
    for (alpn, version) in [
        (&["http/1.1"][..], reqwest::Version::HTTP_11),
        (&["h2", "http/1.1"], reqwest::Version::HTTP_2),
        (&[], reqwest::Version::HTTP_11),
    ] {
        let http = fixture.raw_with(alpn);
        let response = http.get(fixture.url("/healthz")).send().await.unwrap();
        assert_eq!(response.version(), version, "{alpn:?}");
    }
}

fn api(fixture: &ApiFixture, connections: usize, stop: &CancellationToken) -> Api {
    let auth = Arc::new(Auth::parse(TOKENS).unwrap());
    let bounds = Bounds {
        requests_per_second: 100,
        connections,
        max_dag_size: 1_000,
        default_output: None,
        stop: stop.clone(),
    };
    Api::new(
        fixture.core.clone(),
        fixture.stores.clone(),
        auth,
        fixture.authority,
        bounds,
    )
}

/// Earlier than the libraries close a connection themselves: after ten seconds without a TLS hello, after thirty with
/// half a request head.
const LET_GO: Duration = Duration::from_secs(8);

/// Opens a TLS connection, sends `words`, and reads until the server closes it. An error means that the server sent
/// nothing for `patience` and did not close it.
fn dawdle(
    addr: SocketAddr,
    ca_pem: &str,
    words: &[u8],
    patience: Duration,
) -> std::io::Result<Vec<u8>> {
    let mut tcp = TcpStream::connect(addr)?;
    tcp.set_read_timeout(Some(patience))?;
    let name = "127.0.0.1".try_into().unwrap();
    let config = Arc::new(client_tls(ca_pem, &["http/1.1"]));
    let mut tls = rustls::ClientConnection::new(config, name).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
    let mut answer = Vec::new();
    let said = stream.write_all(words);
    match said.and_then(|()| stream.read_to_end(&mut answer)) {
        // A connection closed without close-notify, or by reset because some input was not read, counts as closed.
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ) =>
        {
            Ok(answer)
        }
        other => other.map(|_| answer),
    }
}

/// Runs [`serve_with`] on a separate port.
fn serve_here(api: Api, tls: &Arc<rustls::ServerConfig>, patience: PeerTimeouts) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = serve_with(api, listener, tls.clone(), patience).unwrap();
    (addr, tokio::spawn(serving))
}

/// Address of a server, and its task.
type Served = (SocketAddr, JoinHandle<std::io::Result<()>>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_dawdles_is_let_go_and_a_quick_one_is_served() {
    let fixture = ApiFixture::empty().await;
    let short = Duration::from_millis(300);
    let long = PeerTimeouts {
        handshake: PATIENCE,
        head: PATIENCE,
        keep_alive: PATIENCE,
    };
    let stop = CancellationToken::new();
    // One server has a long timeout for handshakes, the other for heads, so that the reason of a close is unambiguous.
    let of_heads = PeerTimeouts {
        head: short,
        ..long
    };
    let of_handshakes = PeerTimeouts {
        handshake: short,
        ..long
    };
    let (heads, serves_heads) = serve_here(api(&fixture, 100, &stop), &fixture.tls, of_heads);
    let (handshakes, serves_handshakes) =
        serve_here(api(&fixture, 100, &stop), &fixture.tls, of_handshakes);
    let ask = async |words: &'static [u8]| {
        let ca_pem = fixture.ca_pem.clone();
        let asked = tokio::task::spawn_blocking(move || dawdle(heads, &ca_pem, words, LET_GO));
        let answer = asked.await.unwrap().expect("it is let go");
        String::from_utf8(answer).unwrap()
    };
    // After half a head without the rest, the connection ends without an answer.
    let half = ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\n").await;
    assert!(!half.contains("200 OK"), "{half}");
    // On a busy machine, a client is not quick every time.
    let served = async {
        while !ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 200 OK")
        {}
    };
    let served = tokio::time::timeout(PATIENCE, served).await;
    served.expect("a quick one is served");
    // This client does not even send a TLS hello.
    let mute = tokio::task::spawn_blocking(move || {
        let mut tcp = TcpStream::connect(handshakes).unwrap();
        tcp.set_read_timeout(Some(LET_GO)).unwrap();
        tcp.read(&mut [0; 16])
    });
    assert_eq!(mute.await.unwrap().unwrap(), 0, "it was closed");
    stop.cancel();
    serves_heads.await.unwrap().unwrap();
    serves_handshakes.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_too_many_is_closed_and_the_others_go_on() {
    let fixture = ApiFixture::empty().await;
    let stop = CancellationToken::new();
    let api = api(&fixture, 2, &stop);
    let connections = api.connections().clone();
    // Open connections send nothing and keep their places.
    let patience = PeerTimeouts {
        handshake: PATIENCE * 2,
        ..PeerTimeouts::default()
    };
    let (addr, serving) = serve_here(api, &fixture.tls, patience);
    let open = async |wanted: usize| {
        let reached = async {
            while connections.open() != wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await
    };
    let held: Vec<_> = (0..2).map(|_| TcpStream::connect(addr).unwrap()).collect();
    open(2).await.expect("both have a place");
    let get = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let ask = async || {
        let ca_pem = fixture.ca_pem.clone();
        tokio::task::spawn_blocking(move || dawdle(addr, &ca_pem, get, PATIENCE))
            .await
            .unwrap()
            .expect("it is closed")
    };
    assert_eq!(ask().await, b"", "it is refused");
    assert_eq!(connections.open(), 2, "those that are open stay");
    drop(held);
    open(0).await.expect("their places are free again");
    let answer = String::from_utf8(ask().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    stop.cancel();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_ends_by_itself_is_noticed() {
    let run = async |serving: futures::future::BoxFuture<'static, std::io::Result<()>>,
                     stopped: bool| {
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        if stopped {
            stop.cancel();
        }
        run_until_stopped(serving, stop, ended.clone()).await;
        ended.is_cancelled()
    };
    let failed = || async { Err(std::io::Error::other("no more descriptors")) };
    assert!(run(Box::pin(failed()), false).await);
    assert!(run(Box::pin(async { Ok(()) }), false).await);
    assert!(run(Box::pin(async { panic!("a mistake of ours") }), false).await);
    assert!(!run(Box::pin(async { Ok(()) }), true).await);
}

#[tokio::test]
async fn the_metrics_have_the_power_that_is_known_and_no_zero_for_the_rest() {
    let fixture = ApiFixture::furnished().await;
    let asked = || async {
        let get = fixture.raw().get(fixture.url("/metrics"));
        let answer = get.bearer_auth(fixture.token("eye")).send().await.unwrap();
        answer.text().await.unwrap()
    };
    let none = asked().await;
    assert!(!none.contains("\nlattice_power_draw_watts "), "{none}");
    let node = |name: &str| NodeId::new(name).unwrap();
    let power = Power {
        draw: Reading::Present(Milliwatts(1_845_400)),
        limit: Reading::Present(Milliwatts(8_000_000)),
        limit_state: LimitState::Set,
        ..Power::default()
    };
    let silent = Power {
        draw: Reading::Timeout { after_ms: 10_000 },
        ..Power::default()
    };
    let (bmc, now) = (&fixture.stores.readings, UnixMillis(1_000));
    bmc.put_power(node("gpu001"), power.clone(), now);
    bmc.put_power(node("gpu002"), power.clone(), now);
    bmc.put_power(node("gpu003"), silent, now);
    bmc.put_power(node("gpu999"), power, now);
    super::bmc::tells(&fixture, "gpu001", vec![]);
    let reason = super::bmc::reason("bmc.silent", "bmc", Severity::Degraded);
    super::bmc::tells(&fixture, "gpu003", vec![reason]);
    let text = asked().await;
    let series: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("power") || line.contains("bmc_up"))
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(
        series,
        [
            "lattice_node_power_draw_watts{node=\"gpu001\",source=\"bmc\"} 1845.4",
            "lattice_node_power_draw_watts{node=\"gpu002\",source=\"bmc\"} 1845.4",
            "lattice_node_power_limit_watts{node=\"gpu001\",source=\"bmc\"} 8000",
            "lattice_node_power_limit_watts{node=\"gpu002\",source=\"bmc\"} 8000",
            "lattice_power_draw_watts 3690.8",
            "lattice_node_bmc_up{node=\"gpu001\"} 1",
            "lattice_node_bmc_up{node=\"gpu003\"} 0",
        ]
    );
}
