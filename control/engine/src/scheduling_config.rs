//! Section `scheduling`: sources of scheduling input that neither the quorum nor the nodes provide, the default
//! checkpoint directory, the DAG size limit and the budget window.

mod prometheus;

pub use prometheus::PrometheusConfig;

use crate::usage::{KEPT_DAYS, PERIOD_DAYS};
use lattice_config::Problems;
use lattice_quorum_types::{dag::MAX_MEMBERS, spec::Demand};
use reqwest::Url;
use serde::Deserialize;
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

/// Section `scheduling`; every key may be left out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SchedulingConfig {
    /// Energy prices over time; without them the price counts as unknown.
    pub energy_price: Option<EnergyPriceConfig>,
    /// Service that reports the fraction of a job's input data on the hot tier.
    pub data_readiness: Option<DataReadinessConfig>,
    /// Storage systems with rationed bandwidth, by the name that jobs use.
    pub storage: BTreeMap<String, StorageConfig>,
    /// The site's Prometheus; without it no service can scale by a query.
    pub prometheus: Option<PrometheusConfig>,
    /// Checkpoint directory for jobs that set none, shared by all nodes. `{tenant}`, `{project}` and `{allocation}` are
    /// replaced by the values of the allocation.
    pub checkpoint_directory: Option<String>,
    /// Maximum number of members of a DAG; 1000 when left out, which is also the upper limit.
    pub max_dag_size: Option<usize>,
    /// Length of the rolling budget window in days; 90 when left out, 366 at most.
    pub budget_period_days: Option<u64>,
}

/// Energy prices: lines `timestamp,price` in a file or at a URL, one of the two.
#[derive(Debug, Clone, Deserialize)]
pub struct EnergyPriceConfig {
    /// File with the prices.
    pub file: Option<PathBuf>,
    /// URL of the prices.
    pub url: Option<String>,
    /// File with the bearer token for the URL.
    pub token_file: Option<PathBuf>,
    /// Interval between two reads, in seconds.
    #[serde(default = "five_minutes")]
    pub refresh_s: u64,
    /// Timeout of a read, in seconds.
    #[serde(default = "ten_seconds")]
    pub deadline_s: u64,
}

/// Service that reports the fraction of a job's input data on the hot tier. The reply is `{"fraction": 0.8}`. A reply
/// with `null`, or the status 404, means that the service has no data for this allocation: the fraction then counts as
/// unknown (0.5), as without a source, and the source stays healthy.
#[derive(Debug, Clone, Deserialize)]
pub struct DataReadinessConfig {
    /// URL for one allocation: `{id}`, `{project}` and `{user}` are replaced by the values of the allocation.
    pub url: String,
    /// File with the bearer token for the URL.
    pub token_file: Option<PathBuf>,
    /// Seconds after which the fraction of a pending allocation is requested again.
    #[serde(default = "one_minute")]
    pub refresh_s: u64,
    /// Seconds for which a reply is used while no newer one arrives.
    #[serde(default = "ten_minutes")]
    pub max_age_s: u64,
    /// Timeout of a request, in seconds.
    #[serde(default = "five_seconds")]
    pub deadline_s: u64,
    /// Maximum number of concurrent requests.
    #[serde(default = "eight")]
    pub at_a_time: usize,
}

/// Storage system with rationed bandwidth.
#[derive(Debug, Clone, Deserialize)]
pub struct StorageConfig {
    /// Total bandwidth, GB/s (10^9 bytes).
    pub bandwidth_gb_s: f64,
    /// Source of the bandwidth in use. Without it only the bandwidth granted to running allocations counts.
    pub utilisation: Option<UtilisationConfig>,
}

/// Source of the bandwidth in use of a storage system.
#[derive(Debug, Clone, Deserialize)]
pub struct UtilisationConfig {
    /// URL that returns JSON.
    pub url: String,
    /// Position of the number in the reply, as a JSON pointer (RFC 6901).
    #[serde(default = "used")]
    pub key: String,
    /// Unit of the number.
    #[serde(default)]
    pub unit: BandwidthUnit,
    /// Traffic included in the number.
    #[serde(default)]
    pub counts: Counts,
    /// File with the bearer token for the URL.
    pub token_file: Option<PathBuf>,
    /// Interval between two requests, in seconds.
    #[serde(default = "thirty_seconds")]
    pub refresh_s: u64,
    /// Seconds for which a reply is used while no newer one arrives.
    #[serde(default = "two_minutes")]
    pub max_age_s: u64,
    /// Timeout of a request, in seconds.
    #[serde(default = "five_seconds")]
    pub deadline_s: u64,
}

/// Unit of a bandwidth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BandwidthUnit {
    /// 10^9 bytes per second.
    #[default]
    GbS,
    /// 10^6 bytes per second.
    MbS,
    /// Bytes per second.
    BytesS,
}

impl BandwidthUnit {
    /// Size of one unit in MB/s.
    pub(crate) const fn mb_s(self) -> f64 {
        match self {
            Self::GbS => 1e3,
            Self::MbS => 1.0,
            Self::BytesS => 1e-6,
        }
    }
}

/// Traffic included in a storage system's bandwidth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counts {
    /// All traffic, including jobs of this cluster.
    #[default]
    All,
    /// Traffic other than that of jobs of this cluster.
    Others,
}

const fn five_seconds() -> u64 {
    5
}
const fn ten_seconds() -> u64 {
    10
}
const fn thirty_seconds() -> u64 {
    30
}
const fn one_minute() -> u64 {
    60
}
const fn two_minutes() -> u64 {
    120
}
const fn five_minutes() -> u64 {
    300
}
const fn ten_minutes() -> u64 {
    600
}
const fn eight() -> usize {
    8
}
fn used() -> String {
    "/used".to_owned()
}

/// Longest interval in this section, in seconds.
const MOST_S: u64 = 86_400;
/// Longest timeout in this section, in seconds.
const MOST_DEADLINE_S: u64 = 300;
/// Upper limit of concurrent requests, above what a service accepts from one client.
const MOST_AT_A_TIME: usize = 256;
/// Upper limit of a storage bandwidth in GB/s, above that of any storage system.
const MOST_GB_S: f64 = 1e6;

impl SchedulingConfig {
    /// Adds each invalid value of the section to `problems`.
    pub fn check(&self, problems: &mut Problems) {
        if let Some(energy) = &self.energy_price {
            problems.check_part("energy_price", |problems| energy.check(problems));
        }
        if let Some(readiness) = &self.data_readiness {
            problems.check_part("data_readiness", |problems| readiness.check(problems));
        }
        if let Some(prometheus) = &self.prometheus {
            problems.check_part("prometheus", |problems| prometheus.check(problems));
        }
        problems.check_part("storage", |problems| {
            for (name, storage) in &self.storage {
                problems.check_part(name, |problems| storage.check(name, problems));
            }
        });
        if let Some(given) = self.max_dag_size
            && !(1..=MAX_MEMBERS).contains(&given)
        {
            let text = format!("give 1 to {MAX_MEMBERS} members, not {given}");
            problems.add("max_dag_size", text);
        }
        if let Some(given) = self.budget_period_days
            && !(1..=KEPT_DAYS).contains(&given)
        {
            let text = format!("give 1 to {KEPT_DAYS} days, not {given}");
            problems.add("budget_period_days", text);
        }
    }

    /// Maximum number of members of a DAG.
    pub fn max_dag_size(&self) -> usize {
        self.max_dag_size.unwrap_or(MAX_MEMBERS)
    }

    /// Length of the budget window, in days.
    pub fn budget_period_days(&self) -> u64 {
        self.budget_period_days.unwrap_or(PERIOD_DAYS)
    }

    /// Every URL in this section.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &str> {
        let energy = self.energy_price.iter().filter_map(|e| e.url.as_deref());
        let readiness = self.data_readiness.iter().map(|r| r.url.as_str());
        let prometheus = self.prometheus.iter().map(|p| p.url.as_str());
        let storage = self.storage.values().filter_map(|s| s.utilisation.as_ref());
        energy
            .chain(readiness)
            .chain(prometheus)
            .chain(storage.map(|used| used.url.as_str()))
    }
}

impl EnergyPriceConfig {
    fn check(&self, problems: &mut Problems) {
        match (&self.file, &self.url) {
            (Some(_), None) => {
                if self.token_file.is_some() {
                    problems.add("token_file", "is for `url` only; a file needs no token");
                }
            }
            (None, Some(url)) => check_url("url", url, self.token_file.is_some(), problems),
            _ => problems.add("", "give one of `file` and `url`"),
        }
        check_spans(self.refresh_s, None, self.deadline_s, problems);
    }
}

impl DataReadinessConfig {
    fn check(&self, problems: &mut Problems) {
        let sample = |name: &str| matches!(name, "id" | "project" | "user").then(|| "x".to_owned());
        match filled(&self.url, sample) {
            Err(unknown) => problems.add(
                "url",
                format!(
                    "{{{unknown}}} is not a valid placeholder; valid are {{id}}, {{project}}, \
                     {{user}}"
                ),
            ),
            Ok(url) => check_url("url", &url, self.token_file.is_some(), problems),
        }
        if !self.url.contains("{id}") {
            problems.add("url", "must contain {id}, the number of the allocation");
        }
        let max_age_s = Some(self.max_age_s);
        check_spans(self.refresh_s, max_age_s, self.deadline_s, problems);
        if !(1..=MOST_AT_A_TIME).contains(&self.at_a_time) {
            let given = self.at_a_time;
            problems.add(
                "at_a_time",
                format!("give 1 to {MOST_AT_A_TIME}, not {given}"),
            );
        }
    }
}

impl StorageConfig {
    fn check(&self, name: &str, problems: &mut Problems) {
        // The same rules as for the names in job requests.
        let named = Demand {
            storage_mb_s: [(name.to_owned(), 1)].into(),
            ..Demand::default()
        };
        if let Err(error) = named.check() {
            problems.add("", error);
        }
        // At least 1 MB/s: a smaller value is a mistake of the unit.
        if !(1e-3..=MOST_GB_S).contains(&self.bandwidth_gb_s) {
            let given = self.bandwidth_gb_s;
            let text = format!("give 0.001 to {MOST_GB_S} GB/s (10^9 bytes), not {given}");
            problems.add("bandwidth_gb_s", text);
        }
        let Some(used) = &self.utilisation else {
            return;
        };
        problems.check_part("utilisation", |problems| {
            check_url("url", &used.url, used.token_file.is_some(), problems);
            if !used.key.is_empty() && !used.key.starts_with('/') {
                let text = "must be a JSON pointer like /used or /data/result/0/value/1";
                problems.add("key", text);
            }
            let max_age_s = Some(used.max_age_s);
            check_spans(used.refresh_s, max_age_s, used.deadline_s, problems);
        });
    }

    /// Total bandwidth, in MB/s.
    pub fn budget_mb_s(&self) -> u64 {
        // Checked to be at least 1 and below 2^53.
        (self.bandwidth_gb_s * BandwidthUnit::GbS.mb_s()).round() as u64
    }
}

fn check_spans(refresh_s: u64, max_age_s: Option<u64>, deadline_s: u64, problems: &mut Problems) {
    let spans = [
        ("refresh_s", Some(refresh_s), MOST_S),
        ("max_age_s", max_age_s, MOST_S),
        ("deadline_s", Some(deadline_s), MOST_DEADLINE_S),
    ];
    for (key, given, most) in spans {
        if let Some(given) = given
            && !(1..=most).contains(&given)
        {
            problems.add(key, format!("give 1 to {most} seconds, not {given}"));
        }
    }
    if let Some(max_age_s) = max_age_s
        && max_age_s < refresh_s
    {
        let text = "is less than `refresh_s`: every answer would expire before the next one";
        problems.add("max_age_s", text);
    }
    if let Some(max_age_s) = max_age_s
        && deadline_s > max_age_s
        && deadline_s <= MOST_DEADLINE_S
    {
        let text =
            "is more than `max_age_s`: values would expire while the next answer is outstanding";
        problems.add("deadline_s", text);
    }
}

fn check_url(key: &str, text: &str, has_token: bool, problems: &mut Problems) {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return problems.add(key, format!("is not a valid URL: {error}")),
    };
    let is_secret = !url.username().is_empty() || url.password().is_some();
    match url.scheme() {
        _ if is_secret => problems.add(key, "must not contain a password; give `token_file`"),
        "https" => {}
        "http" if has_token && !is_this_host(&url) => {
            let text = "token would be sent unencrypted; use https";
            problems.add(key, text);
        }
        "http" => {}
        other => problems.add(key, format!("must begin with http or https, not {other}")),
    }
}

fn is_this_host(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    host == "localhost" || is_loopback
}

/// Replaces each `{name}` in a template by its percent-encoded value, so that the value is one part of the URL whatever
/// it contains.
///
/// # Errors
/// Returns the name that has no value, or the text after a `{` without `}`.
pub fn filled(
    template: &str,
    stands_for: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let (name, behind) = after.split_once('}').ok_or_else(|| after.to_owned())?;
        let value = stands_for(name).ok_or_else(|| name.to_owned())?;
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    text.push(char::from(byte));
                }
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
        rest = behind;
    }
    text.push_str(rest);
    Ok(text)
}

/// Duration of this number of seconds.
pub(crate) const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}
