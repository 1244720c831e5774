//! What the site's Prometheus says of a metric, by its HTTP API (prometheus.io, "HTTP API", instant queries).
//!
//! One number is wanted, now. Whatever else comes (nothing, several series, no number) is missing, and says why:
//! nobody scales on what is not known.

use super::fetch::{FetchError, Web};
use lattice_quorum_types::{AllocationId, text::truncated};
use reqwest::Url;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

/// What is read of an answer at most, bytes: one number is wanted, and this has room to say of a thousand
/// series that they are too many.
pub(crate) const MOST_BYTES: usize = 1 << 20;
/// Stands in a query for the allocation's number.
const ALLOCATION: &str = "$allocation";
/// Statuses that come with an answer of Prometheus: well; bad parameters; a query that cannot be executed; one
/// that took too long or was given up.
const TAKEN: [u16; 4] = [200, 400, 422, 503];
/// Longest part of an answer in an error text.
const MAX_SHOWN_BYTES: usize = 200;

/// Why a metric is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Missing {
    /// There is nobody to ask.
    #[error("no Prometheus is configured; give `scheduling.prometheus.url`")]
    NoSource,
    /// It did not answer.
    #[error("Prometheus: {0}")]
    Unanswered(#[from] FetchError),
    /// It answered something else.
    #[error("the answer is none of Prometheus: {reason}")]
    Other {
        /// What is wrong with it.
        reason: String,
    },
    /// It says that it failed.
    #[error("Prometheus refuses the query ({kind}): {reason}")]
    Refused {
        /// Its word for it.
        kind: String,
        /// In its words.
        reason: String,
    },
    /// A range, or a text.
    #[error("the query gives a {found}; write one that gives a number")]
    NoNumber {
        /// What it gives.
        found: String,
    },
    /// No series has a value now.
    #[error("the query gives nothing")]
    Nothing,
    /// More than one series.
    #[error("the query gives {count} series; write one that gives one, as with avg()")]
    Several {
        /// How many.
        count: usize,
    },
    /// NaN or infinite.
    #[error("the query gives {found}, no finite number")]
    NotFinite {
        /// As it was written.
        found: String,
    },
    /// Nodes did not say, or do not know.
    #[error("{}", nodes(.unsaid))]
    Nodes {
        /// Each, and why.
        unsaid: Vec<(String, String)>,
    },
    /// It runs on no node.
    #[error("it runs on no node")]
    NoNodes,
}

/// The first few, and how many there are.
fn nodes(unsaid: &[(String, String)]) -> String {
    const TOLD: usize = 3;
    let each = |(node, why): &(String, String)| format!("node {node}: {why}");
    let told: Vec<String> = unsaid.iter().take(TOLD).map(each).collect();
    match unsaid.len().saturating_sub(TOLD) {
        0 => told.join("; "),
        more => format!("{}; and {more} more", told.join("; ")),
    }
}

/// The site's Prometheus.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    web: Web,
    base: Url,
}

impl Metrics {
    /// Asks nothing yet.
    pub(crate) fn new(web: Web, base: Url) -> Self {
        Self { web, base }
    }

    /// One that anybody may ask.
    #[cfg(test)]
    pub(crate) fn at(base: &str) -> Self {
        #![expect(clippy::unwrap_used, reason = "tests")]
        let client = super::fetch::client(super::fetch::Trust::Nobody).unwrap();
        let deadline = std::time::Duration::from_secs(60);
        let web = Web::new(client, None, deadline, MOST_BYTES).unwrap();
        Self::new(web, Url::parse(base).unwrap())
    }

    /// The one value that the query gives now.
    pub(crate) async fn query(&self, query: &str, id: AllocationId) -> Result<f64, Missing> {
        let (status, body) = self.web.get_with(&self.url(query, id), &TAKEN).await?;
        match value(&body) {
            // Somebody between us and Prometheus.
            Err(Missing::Other { .. }) if status != 200 => {
                Err(Missing::Unanswered(FetchError::Status { status }))
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
    /// Absent of a native histogram.
    value: Option<Point>,
}

/// A time in seconds, which is now, and a number as a text: JSON knows no NaN.
#[derive(Deserialize)]
struct Point(IgnoredAny, String);

/// The one number in an answer.
fn value(body: &[u8]) -> Result<f64, Missing> {
    let other = |reason: String| Missing::Other {
        reason: short(&reason),
    };
    let answer: Answer = serde_json::from_slice(body).map_err(|error| other(error.to_string()))?;
    let data = match (answer.status.as_str(), answer.data) {
        ("success", Some(data)) => data,
        ("error", _) => {
            return Err(Missing::Refused {
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
                (None, _) => return Err(Missing::Nothing),
                (Some(one), None) => one.value.ok_or_else(|| Missing::NoNumber {
                    found: "histogram".to_owned(),
                })?,
                (Some(_), Some(_)) => return Err(Missing::Several { count }),
            }
        }
        found => {
            return Err(Missing::NoNumber {
                found: short(found),
            });
        }
    };
    let Point(IgnoredAny, text) = point;
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err(Missing::NotFinite { found: text }),
        Err(_) => Err(other(format!("{text:?} is no number"))),
    }
}

/// It is logged, and who answers may be anybody.
fn short(text: &str) -> String {
    let printed: String = text.chars().filter(|c| !c.is_control()).collect();
    truncated(&printed, MAX_SHOWN_BYTES).to_owned()
}
