//! Checks of the sources for `--check-config --online`, against services over real sockets.

use super::site::{ServiceBehaviour, Site};
use crate::{inputs::check_sources, scheduling_config::SchedulingConfig};
use lattice_config::online::OnlineCheck;
use lattice_quorum_types::UnixMillis;
use serde_json::json;
use std::cell::RefCell;

/// 2026-11-23T12:00:00Z.
const NOON: UnixMillis = UnixMillis(1_795_435_200_000);
/// Prices from 10 s before noon until 13:00.
const PRICES: &str = "timestamp,price\n1795435190,80\n1795435260,-20\n1795438800,\n";

/// Configuration with one source of each kind, which `site` serves.
fn config(site: &Site) -> SchedulingConfig {
    let url = |path: &str| format!("{}{path}", site.url);
    let used = json!({"url": url("/used?key=hidden")});
    serde_json::from_value(json!({
        "energy_price": {"url": url("/prices?key=hidden")},
        "data_readiness": {"url": url("/ready/{id}/{project}")},
        "storage": {"scratch": {"bandwidth_gb_s": 2.0, "utilisation": used}},
        "prometheus": {"url": site.url},
    }))
    .unwrap()
}

/// Lines of the checks, sorted: the checks end in any order.
async fn lines_of(config: &SchedulingConfig, now: UnixMillis) -> Vec<String> {
    let ended = RefCell::new(Vec::new());
    let on_check = |check: OnlineCheck| ended.borrow_mut().push(check.to_string());
    check_sources(config, now, &on_check).await;
    let mut ended = ended.into_inner();
    ended.sort();
    ended
}

async fn lines(site: &Site, now: UnixMillis) -> Vec<String> {
    lines_of(&config(site), now).await
}

fn answers() -> ServiceBehaviour {
    let vector = r#"{"status":"success","data":{"resultType":"vector",
        "result":[{"metric":{},"value":[1435781451.781,"1"]}]}}"#;
    let answers = [
        ("/prices?key=hidden", PRICES),
        ("/ready/0/none", r#"{"fraction": null}"#),
        ("/used?key=hidden", r#"{"used": 1.5}"#),
        ("/api/v1/query?query=vector%281%29", vector),
    ];
    ServiceBehaviour::SaysOf(answers.map(|(path, text)| (path.to_owned(), text)).into())
}

#[tokio::test]
async fn online_check_has_a_line_for_each_source() {
    let site = Site::that(answers()).await;
    let url = &site.url;
    assert_eq!(
        lines(&site, NOON).await,
        [
            format!(
                "ok       scheduling.data_readiness.url {url}/ready/{{id}}/{{project}}: no data for allocation 0, \
                 which does not exist"
            ),
            format!("ok       scheduling.energy_price.url {url}/prices: current price 80"),
            format!("ok       scheduling.prometheus.url {url}/: answers queries"),
            format!(
                "ok       scheduling.storage.scratch.utilisation.url {url}/used: 1500 MB/s in use"
            ),
        ]
    );
    let ended = lines(&site, UnixMillis(NOON.0 + 7_200_000)).await;
    assert!(
        ended[0].contains(": the price series ended at 2026-11-23T13:00:00"),
        "{ended:?}"
    );
    assert!(ended[0].starts_with("failed "), "{ended:?}");
}

#[tokio::test]
async fn online_check_fails_with_cause_and_next_step() {
    let site = Site::that(ServiceBehaviour::Fails(401)).await;
    let refused = lines(&site, NOON).await;
    assert_eq!(refused.len(), 4);
    for line in &refused {
        assert!(line.starts_with("failed   scheduling."), "{line}");
        assert!(line.contains(": HTTP status 401"), "{line}");
        assert!(
            line.contains("; next: correct `url`, or the token"),
            "{line}"
        );
        assert!(!line.contains("hidden"), "{line}");
    }
    site.now(ServiceBehaviour::Says("<html>login</html>".to_owned()));
    for line in lines(&site, NOON).await {
        assert!(line.starts_with("failed   scheduling."), "{line}");
        assert!(line.contains("; next: correct `url`"), "{line}");
    }
}

/// A service of data readiness may reject the request for an allocation that does not exist.
#[tokio::test]
async fn rejected_readiness_request_is_an_answer() {
    let site = Site::that(ServiceBehaviour::Fails(400)).await;
    let lines = lines(&site, NOON).await;
    let passed: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("ok "))
        .collect();
    assert_eq!(passed.len(), 1, "{lines:?}");
    assert!(passed[0].contains(".data_readiness.url "), "{lines:?}");
    assert!(
        passed[0].contains(": HTTP status 400 for allocation 0"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn file_of_prices_has_no_online_check() {
    let config = json!({"energy_price": {"file": "/nowhere/prices.csv"}});
    let config: SchedulingConfig = serde_json::from_value(config).unwrap();
    assert_eq!(lines_of(&config, NOON).await, Vec::<String>::new());
}
