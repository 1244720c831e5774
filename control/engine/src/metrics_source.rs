//! Client of the site's Prometheus HTTP API (prometheus.io, "HTTP API", instant queries).
//!
//! A query must return one number. Any other result (no series, several series, no number) is reported as missing with
//! its reason: services never scale on an unknown value.

use crate::web_client::{FetchError, WebClient};
use lattice_quorum_types::{AllocationId, text::truncated};
use reqwest::Url;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

/// Largest reply that is read, in bytes. One number is expected; the limit allows replies of a thousand series, so that
/// their count can be reported.
pub(crate) const MOST_BYTES: usize = 1 << 20;
/// Placeholder in a query for the allocation's number.
const ALLOCATION: &str = "$allocation";
/// Statuses with a reply body of Prometheus: success, bad parameters, a query that cannot be executed, and a query that
/// timed out or was aborted.
const ACCEPTED_STATUSES: [u16; 4] = [200, 400, 422, 503];
/// Longest part of a reply in an error text, in bytes.
const MAX_SHOWN_BYTES: usize = 200;

/// Reason why a metric is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnknownMetricReason {
    /// No Prometheus is configured.
    #[error("no Prometheus is configured; give `scheduling.prometheus.url`")]
    NoSource,
    /// The query got no usable HTTP reply; see [`FetchError`].
    #[error("Prometheus: {0}")]
    Fetch(#[from] FetchError),
    /// The reply is not in the Prometheus format.
    #[error("response is not in Prometheus format: {reason}")]
    Other {
        /// Why the reply is invalid.
        reason: String,
    },
    /// Prometheus returned an error.
    #[error("Prometheus refuses the query ({kind}): {reason}")]
    Refused {
        /// Error type from the reply.
        kind: String,
        /// Error text from the reply.
        reason: String,
    },
    /// The result is a range, a string or a histogram.
    #[error("query returns a {found}; use a query that returns one number")]
    NoNumber {
        /// Type of the result.
        found: String,
    },
    /// No series has a value now.
    #[error("query returns no series")]
    NoSeries,
    /// The result has more than one series.
    #[error("query returns {count} series; aggregate to one, for example with avg()")]
    SeveralSeries {
        /// Number of series.
        count: usize,
    },
    /// The value is NaN or infinite.
    #[error("query returns {found}, which is not a finite number")]
    NotFinite {
        /// Value as written in the reply.
        found: String,
    },
    /// Nodes did not report the value, or do not have it.
    #[error("{}", nodes(.missing))]
    Nodes {
        /// Nodes without a value, each with the reason.
        missing: Vec<(String, String)>,
    },
    /// The allocation runs on no node.
    #[error("service has no running node")]
    NoNodes,
}

/// The first nodes with their reasons, and the number of the others.
fn nodes(unsaid: &[(String, String)]) -> String {
    const TOLD: usize = 3;
    let each = |(node, why): &(String, String)| format!("node {node}: {why}");
    let named: Vec<String> = unsaid.iter().take(TOLD).map(each).collect();
    match unsaid.len().saturating_sub(TOLD) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

/// Client of the site's Prometheus.
#[derive(Debug, Clone)]
pub struct Metrics {
    web: WebClient,
    base: Url,
}

impl Metrics {
    /// Creates the client without sending a request.
    pub(crate) fn new(web: WebClient, base: Url) -> Self {
        Self { web, base }
    }

    /// URL of the Prometheus.
    pub(crate) const fn base(&self) -> &Url {
        &self.base
    }

    /// A client without a token.
    #[cfg(test)]
    pub(crate) fn at(base: &str) -> Self {
        #![expect(clippy::unwrap_used, reason = "tests")]
        let client = crate::web_client::client(crate::web_client::Trust::NoTls).unwrap();
        let deadline = std::time::Duration::from_secs(60);
        let web = WebClient::new(client, None, deadline, MOST_BYTES).unwrap();
        Self::new(web, Url::parse(base).unwrap())
    }

    /// Value of the query now.
    pub(crate) async fn query(
        &self,
        query: &str,
        id: AllocationId,
    ) -> Result<f64, UnknownMetricReason> {
        let (status, body) = self
            .web
            .get_with(&self.url(query, id), &ACCEPTED_STATUSES)
            .await?;
        match value(&body) {
            // The reply comes from a proxy in front of Prometheus.
            Err(UnknownMetricReason::Other { .. }) if status != 200 => {
                Err(UnknownMetricReason::Fetch(FetchError::Status { status }))
            }
            other => other,
        }
    }

    fn url(&self, query: &str, id: AllocationId) -> Url {
        let mut url = self.base.clone();
        let path = format!("{}/api/v1/query", url.path().trim_end_matches('/'));
        url.set_path(&path);
        let query = query.replace(ALLOCATION, &id.to_string());
        url.query_pairs_mut().append_pair("query", &query);
        url
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status: String,
    data: Option<Data>,
    error_type: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Value,
}

#[derive(Deserialize)]
struct Series {
    /// Absent for a native histogram.
    value: Option<Point>,
}

/// Time in seconds, which is not used, and a number as a string, because JSON has no NaN.
#[derive(Deserialize)]
struct Point(IgnoredAny, String);

/// Extracts the single number from a reply.
fn value(body: &[u8]) -> Result<f64, UnknownMetricReason> {
    let other = |reason: String| UnknownMetricReason::Other {
        reason: short(&reason),
    };
    let answer: Answer = serde_json::from_slice(body).map_err(|error| other(error.to_string()))?;
    let data = match (answer.status.as_str(), answer.data) {
        ("success", Some(data)) => data,
        ("error", _) => {
            return Err(UnknownMetricReason::Refused {
                kind: short(&answer.error_type.unwrap_or_default()),
                reason: short(&answer.error.unwrap_or_default()),
            });
        }
        (status, _) => return Err(other(format!("status {status:?} without data"))),
    };
    let point = match data.result_type.as_str() {
        "scalar" => {
            serde_json::from_value(data.result).map_err(|error| other(error.to_string()))?
        }
        "vector" => {
            let series: Vec<Series> =
                serde_json::from_value(data.result).map_err(|error| other(error.to_string()))?;
            let count = series.len();
            let mut series = series.into_iter();
            match (series.next(), series.next()) {
                (None, _) => return Err(UnknownMetricReason::NoSeries),
                (Some(one), None) => one.value.ok_or_else(|| UnknownMetricReason::NoNumber {
                    found: "histogram".to_owned(),
                })?,
                (Some(_), Some(_)) => return Err(UnknownMetricReason::SeveralSeries { count }),
            }
        }
        found => {
            return Err(UnknownMetricReason::NoNumber {
                found: short(found),
            });
        }
    };
    let Point(IgnoredAny, text) = point;
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err(UnknownMetricReason::NotFinite { found: text }),
        Err(_) => Err(other(format!("{text:?} is not a number"))),
    }
}

/// Part of a reply for an error text, without control characters and of bounded length.
fn short(text: &str) -> String {
    let printed: String = text.chars().filter(|c| !c.is_control()).collect();
    truncated(&printed, MAX_SHOWN_BYTES).to_owned()
}
