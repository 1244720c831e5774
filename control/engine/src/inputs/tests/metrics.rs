//! Metrics from a server that replies as the Prometheus API documents, and from a real Prometheus.

use super::site::{DEADLINE, OFTEN, PATIENCE, ServiceBehaviour, Site, web_within};
use crate::{
    metrics_source::{MOST_BYTES, Metrics, UnknownMetricReason},
    web_client::FetchError,
};
use lattice_quorum_types::AllocationId;
use reqwest::Url;
use std::{
    fs,
    io::ErrorKind,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio::time::{sleep, timeout};

const ID: AllocationId = AllocationId(42);

fn of(base: Url) -> Metrics {
    Metrics::new(web_within(DEADLINE, None, MOST_BYTES), base)
}

async fn said(text: &str) -> Result<f64, UnknownMetricReason> {
    let site = Site::that(ServiceBehaviour::Says(text.to_owned())).await;
    of(site.url("/")).query("up", ID).await
}

fn vector(samples: &str) -> String {
    format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":[{samples}]}},
            "warnings":["a series was left out"]}}"#
    )
}

fn sample(job: &str, value: &str) -> String {
    format!(
        r#"{{"metric":{{"__name__":"load","job":"{job}"}},"value":[1435781451.781,"{value}"]}}"#
    )
}

#[tokio::test]
async fn one_number_is_taken_and_everything_else_is_missing() {
    let scalar =
        r#"{"status":"success","data":{"resultType":"scalar","result":[1435781460.781,"1.5"]}}"#;
    assert_eq!(said(scalar).await, Ok(1.5));
    assert_eq!(said(&vector(&sample("a", "0.75"))).await, Ok(0.75));
    assert_eq!(said(&vector(&sample("a", "2e-3"))).await, Ok(0.002));
    assert_eq!(said(&vector("")).await, Err(UnknownMetricReason::NoSeries));
    let two = format!("{},{}", sample("a", "1"), sample("b", "2"));
    assert_eq!(
        said(&vector(&two)).await,
        Err(UnknownMetricReason::SeveralSeries { count: 2 })
    );
    for found in ["NaN", "+Inf", "-Inf"] {
        let found = found.to_owned();
        let answer = said(&vector(&sample("a", &found))).await;
        assert_eq!(answer, Err(UnknownMetricReason::NotFinite { found }));
    }
    let histogram = r#"{"metric":{},"histogram":[1435781451.781,{"count":"1","sum":"2"}]}"#;
    let no_number = |found: &str| {
        Err(UnknownMetricReason::NoNumber {
            found: found.to_owned(),
        })
    };
    assert_eq!(said(&vector(histogram)).await, no_number("histogram"));
    for (kind, result) in [("string", r#"[1435781451.781,"a"]"#), ("matrix", "[]")] {
        let answer =
            format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#);
        assert_eq!(said(&answer).await, no_number(kind));
    }
}

#[tokio::test]
async fn reports_invalid_prometheus_answer() {
    let refused = r#"{"status":"error","errorType":"bad_data","error":"1:3: parse error"}"#;
    let is = Err(UnknownMetricReason::Refused {
        kind: "bad_data".to_owned(),
        reason: "1:3: parse error".to_owned(),
    });
    assert_eq!(said(refused).await, is);
    for text in [
        "<html>",
        "[]",
        r#"{"status":"success"}"#,
        r#"{"status":"success","data":{"resultType":"scalar","result":7}}"#,
        &vector(&sample("a", "much")),
    ] {
        let answer = said(text).await;
        assert!(
            matches!(answer, Err(UnknownMetricReason::Other { .. })),
            "{answer:?}"
        );
    }
    let site = Site::that(ServiceBehaviour::Fails(503)).await;
    let status = |status| Err(UnknownMetricReason::Fetch(FetchError::Status { status }));
    assert_eq!(of(site.url("/")).query("up", ID).await, status(503));
    site.now(ServiceBehaviour::Fails(404));
    assert_eq!(of(site.url("/")).query("up", ID).await, status(404));
    site.now(ServiceBehaviour::Hangs);
    let after = DEADLINE;
    let late = Err(UnknownMetricReason::Fetch(FetchError::TimedOut { after }));
    assert_eq!(of(site.url("/")).query("up", ID).await, late);
}

#[tokio::test]
async fn the_query_is_one_piece_of_the_url_and_names_the_allocation() {
    let path = "/base/api/v1/query?query=avg%28load%7Ballocation%3D%2242%22%7D%29+%26+1";
    let site = Site::that(ServiceBehaviour::Hangs).await;
    let metrics = of(site.url("/base/"));
    let query = r#"avg(load{allocation="$allocation"}) & 1"#;
    assert!(metrics.query(query, ID).await.is_err());
    assert_eq!(site.times_asked_for(path), 1);
}

/// A real Prometheus that scrapes only itself.
struct RealPrometheus {
    child: Child,
    base: Url,
    _folder: tempfile::TempDir,
}

impl Drop for RealPrometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RealPrometheus {
    /// `None` if Prometheus is not installed; with `LATTICE_REQUIRE_PEERS` that is a failure.
    async fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = port.local_addr().unwrap();
        drop(port);
        let text = format!(
            "scrape_configs:\n  - job_name: itself\n    scrape_interval: 1s\n    scrape_timeout: 1s\n    \
             static_configs: [{{targets: ['{addr}'], labels: {{allocation: '42'}}}}]\n"
        );
        fs::write(&config, text).unwrap();
        let arg = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let started = Command::new("prometheus")
            .arg(arg("config.file", &config))
            .arg(arg("storage.tsdb.path", &folder.path().join("data")))
            .arg(format!("--web.listen-address={addr}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match started {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let required = std::env::var_os("LATTICE_REQUIRE_PEERS").is_some();
                assert!(!required, "prometheus is not installed");
                eprintln!("SKIPPED: prometheus is not installed (Debian: prometheus)");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        Some(Self {
            child,
            base: Url::parse(&format!("http://{addr}")).unwrap(),
            _folder: folder,
        })
    }
}

#[tokio::test]
async fn a_real_prometheus_is_understood() {
    let Some(real) = RealPrometheus::start().await else {
        return;
    };
    let web = web_within(Duration::from_secs(5), None, MOST_BYTES);
    let metrics = Metrics::new(web, real.base.clone());
    // Waits until Prometheus has started and has scraped itself once.
    let up = async {
        while metrics.query(r#"up{allocation="$allocation"}"#, ID).await != Ok(1.0) {
            sleep(OFTEN).await;
        }
    };
    timeout(PATIENCE, up).await.unwrap();
    let other = AllocationId(43);
    let none = metrics
        .query(r#"up{allocation="$allocation"}"#, other)
        .await;
    assert_eq!(none, Err(UnknownMetricReason::NoSeries));
    assert_eq!(metrics.query("scalar(up) * 1.5", ID).await, Ok(1.5));
    let nan = metrics.query("vector(0) / 0", ID).await;
    let found = "NaN".to_owned();
    assert_eq!(nan, Err(UnknownMetricReason::NotFinite { found }));
    let several = metrics.query("{job='itself'}", ID).await;
    assert!(
        matches!(several, Err(UnknownMetricReason::SeveralSeries { .. })),
        "{several:?}"
    );
    let range = metrics.query("up[1m]", ID).await;
    let found = "matrix".to_owned();
    assert_eq!(range, Err(UnknownMetricReason::NoNumber { found }));
    let wrong = metrics.query("up{", ID).await;
    assert!(
        matches!(&wrong, Err(UnknownMetricReason::Refused { kind, .. }) if kind == "bad_data"),
        "{wrong:?}"
    );
}
