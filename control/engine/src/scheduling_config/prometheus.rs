//! Configuration of the site's Prometheus.

use super::{MOST_DEADLINE_S, check_url, five_seconds};
use lattice_config::Problems;
use serde::Deserialize;
use std::path::PathBuf;

/// The site's Prometheus, which is queried for the metrics that services scale by. Any user with permission to submit
/// jobs can have any query sent to it, and sees from the result whether the service scaled up.
#[derive(Debug, Clone, Deserialize)]
pub struct PrometheusConfig {
    /// Base URL, without `/api/v1`.
    pub url: String,
    /// File with the bearer token for the URL.
    pub token_file: Option<PathBuf>,
    /// Timeout of a query, in seconds.
    #[serde(default = "five_seconds")]
    pub deadline_s: u64,
}

impl PrometheusConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
        check_url("url", &self.url, self.token_file.is_some(), problems);
        if self.url.contains(['?', '#']) {
            problems.add("url", "must not contain a query or fragment");
        }
        if self.url.trim_end_matches('/').ends_with("/api/v1") {
            problems.add("url", "must be without /api/v1: that is added to it");
        }
        if !(1..=MOST_DEADLINE_S).contains(&self.deadline_s) {
            let given = self.deadline_s;
            let text = format!("give 1 to {MOST_DEADLINE_S} seconds, not {given}");
            problems.add("deadline_s", text);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn faults(text: &str) -> String {
        let config: PrometheusConfig = serde_json::from_str(text).unwrap();
        let mut problems = Problems::default();
        config.check(&mut problems);
        match problems.is_empty() {
            true => String::new(),
            false => format!("{problems:?}"),
        }
    }

    #[test]
    fn every_mistake_is_named() {
        assert_eq!(
            faults(r#"{"url": "http://prometheus.example:9090/base/"}"#),
            ""
        );
        let wrong = faults(
            r#"{"url": "http://prometheus.example/api/v1/?x=1", "token_file": "/t", "deadline_s": 0}"#,
        );
        for part in [
            "unencrypted",
            "must not contain a query or fragment",
            "1 to 300 seconds",
        ] {
            assert!(wrong.contains(part), "{part}: {wrong}");
        }
        let deep = faults(r#"{"url": "https://prometheus.example/api/v1"}"#);
        assert!(deep.contains("without /api/v1"), "{deep}");
    }
}
