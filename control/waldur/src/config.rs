//! Section `accounting` of control's configuration file. Without this section, or with `enabled: false`, accounting is
//! disabled.

use crate::{
    journal::Bounds,
    secret::{SecretRef, Vault},
};
use jiff::tz::TimeZone;
use lattice_config::Problems;
use lattice_quorum_types::VclusterName;
use reqwest::Url;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// Longest interval between two pushes, in seconds: one hour is the longest acceptable delay.
const MOST_INTERVAL_S: u64 = 3_600;
/// Longest time between two reconciliations on schedule, in hours: a week.
const MOST_RECONCILE_HOURS: u64 = 168;
/// Default time between two checks for new orders, in seconds. A check is one call for each offering.
const ORDER_CHECK_S: u64 = 5;
/// Largest configurable number of events in memory or on disk.
const MOST_EVENTS: usize = 100_000_000;

/// Section `accounting` of the configuration file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AccountingConfig {
    /// Whether usage is reported to an accounting system.
    pub enabled: bool,
    /// Name of the accounting system: `waldur`.
    pub provider: Option<String>,
    /// Connection to Waldur, and settings of the reports.
    pub waldur: Option<WaldurConfig>,
}

/// Settings of Waldur.
#[derive(Debug, Clone, Deserialize)]
pub struct WaldurConfig {
    /// URL of the Waldur API, with or without `/api/` at the end.
    pub api_url: String,
    /// Reference to the API token: `vault://MOUNT/PATH`, `file:///PATH` or `env://NAME`.
    pub token_secret_ref: String,
    /// Interval between two pushes, in seconds.
    #[serde(default = "one_minute")]
    pub push_interval_seconds: u64,
    /// Maximum number of events in memory.
    #[serde(default = "ten_thousand")]
    pub buffer_size: usize,
    /// Folder of the events on disk.
    #[serde(default = "default_folder")]
    pub disk_buffer_path: PathBuf,
    /// Maximum number of events on disk beyond those in memory. An alert is raised when the limit is reached.
    #[serde(default = "hundred_thousand")]
    pub disk_buffer_max_events: usize,
    /// Time zone in which Waldur's months begin, such as `Europe/Tallinn` or in POSIX format. Waldur 7 books by UTC,
    /// whatever its own setting `TIME_ZONE` is.
    #[serde(default = "utc")]
    pub timezone: String,
    /// File with CAs to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Vault server, for `vault://` references.
    pub vault: Option<VaultConfig>,
    /// UUIDs of existing offerings, by vCluster. Offerings of other vClusters are created.
    #[serde(default)]
    pub offerings: BTreeMap<String, String>,
    /// Name or UUID of the plan with which resources are ordered, by vCluster. Without an entry, the first plan that is
    /// not archived.
    #[serde(default)]
    pub plans: BTreeMap<String, String>,
    /// Hours between two reconciliations on schedule; 0 for none. Each compares the present and the last month.
    #[serde(default = "one_day")]
    pub reconcile_hours: u64,
    /// Seconds between two checks for new orders of customers; 0 for none. An order is answered at once then, and in the
    /// next push otherwise.
    #[serde(default = "order_check_s")]
    pub order_check_seconds: u64,
    /// Whether a reconciliation on schedule also lowers totals.
    #[serde(default)]
    pub lower_totals: bool,
    /// UUID of the customer that provides created offerings; without a UUID, a customer with the cluster's name is
    /// created.
    pub provider_customer: Option<String>,
    /// Category of created offerings.
    #[serde(default = "hpc")]
    pub category: String,
    /// Whether limits and remaining budgets in Waldur are applied to the tenants.
    #[serde(default = "yes")]
    pub take_limits: bool,
    /// Reference to the secret of Waldur's webhook; without a secret, no webhook is accepted.
    pub hook_secret_ref: Option<String>,
    /// Whether to order one resource per allocation, with its own usage, instead of one per project and vCluster.
    #[serde(default)]
    pub order_per_allocation: bool,
    /// Whether to send each event by itself, to API paths of Lattice's accounting specification. Waldur itself does not
    /// have these paths, so this is for deployments that add them.
    #[serde(default)]
    pub seed_paths: bool,
}

/// Settings of a Vault server.
#[derive(Debug, Clone, Deserialize)]
pub struct VaultConfig {
    /// Address of Vault, such as `https://vault.example.com:8200`.
    pub address: String,
    /// Reference to the Vault token: a file or an environment variable.
    pub token_ref: String,
    /// Vault namespace.
    pub namespace: Option<String>,
}

const fn one_minute() -> u64 {
    60
}
const fn ten_thousand() -> usize {
    10_000
}
const fn hundred_thousand() -> usize {
    100_000
}
const fn yes() -> bool {
    true
}
fn default_folder() -> PathBuf {
    PathBuf::from("/var/lib/lattice/accounting-wal")
}
fn utc() -> String {
    "UTC".to_owned()
}
fn one_day() -> u64 {
    24
}
fn order_check_s() -> u64 {
    ORDER_CHECK_S
}
fn hpc() -> String {
    "HPC".to_owned()
}

/// Checked settings of accounting.
#[derive(Debug, Clone)]
pub struct AccountingSettings {
    /// URL of the Waldur API, with `/api/` at the end.
    pub api: Url,
    /// Reference to the API token.
    pub token: SecretRef,
    /// Interval between two pushes.
    pub interval: Duration,
    /// Limits of the journal.
    pub bounds: Bounds,
    /// Folder of the journal.
    pub folder: PathBuf,
    /// Time zone of Waldur.
    pub zone: TimeZone,
    /// File with CAs to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Vault server, if configured.
    pub vault: Option<Vault>,
    /// UUIDs of existing offerings, by vCluster.
    pub offerings: BTreeMap<VclusterName, String>,
    /// See [`WaldurConfig::plans`].
    pub plans: BTreeMap<VclusterName, String>,
    /// Time between two reconciliations on schedule; `None` for none.
    pub reconcile_every: Option<Duration>,
    /// Time between two checks for new orders; `None` for none.
    pub order_check_every: Option<Duration>,
    /// See [`WaldurConfig::lower_totals`].
    pub lower_totals: bool,
    /// UUID of the customer that provides created offerings.
    pub provider_customer: Option<String>,
    /// Title of the category of created offerings.
    pub category: String,
    /// Whether limits and remaining budgets in Waldur are applied to the tenants.
    pub take_limits: bool,
    /// Reference to the webhook secret.
    pub hook_secret: Option<SecretRef>,
    /// See [`WaldurConfig::order_per_allocation`].
    pub order_per_allocation: bool,
    /// See [`WaldurConfig::seed_paths`].
    pub seed_paths: bool,
}

impl AccountingConfig {
    /// Adds the mistakes of the section to `problems`.
    pub fn check(&self, problems: &mut Problems) {
        if let Some(provider) = &self.provider
            && provider != "waldur"
        {
            problems.add(
                "provider",
                format!("{provider:?} is not a valid provider; it must be \"waldur\""),
            );
        }
        match &self.waldur {
            Some(waldur) => problems.check_part("waldur", |problems| {
                waldur.settings(problems);
            }),
            None if self.enabled => {
                problems.add("waldur", "set waldur.api_url and waldur.token_secret_ref");
            }
            None => {}
        }
    }

    /// Adds every mistake in the files that the section names, if accounting is enabled: the CA file, and files with
    /// secrets.
    pub fn check_files(&self, problems: &mut Problems) {
        let Some(waldur) = self.waldur.as_ref().filter(|_| self.enabled) else {
            return;
        };
        problems.check_part("waldur", |problems| waldur.check_files(problems));
    }

    /// Names of the environment variables that hold the section's secrets: `NAME` of each `env://NAME`.
    pub fn used_variables(&self) -> Vec<String> {
        let waldur = self.waldur.as_ref();
        waldur.map(WaldurConfig::used_variables).unwrap_or_default()
    }

    /// Settings that result from a checked section; `None` if accounting is disabled.
    pub fn settings(&self) -> Option<AccountingSettings> {
        let waldur = self.waldur.as_ref().filter(|_| self.enabled)?;
        waldur.settings(&mut Problems::default())
    }
}

impl WaldurConfig {
    /// References to secrets, by key.
    fn references(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let vault = self.vault.as_ref().map(|vault| vault.token_ref.as_str());
        [
            ("token_secret_ref", Some(self.token_secret_ref.as_str())),
            ("hook_secret_ref", self.hook_secret_ref.as_deref()),
            ("vault.token_ref", vault),
        ]
        .into_iter()
        .filter_map(|(key, text)| Some((key, text?)))
    }

    fn used_variables(&self) -> Vec<String> {
        self.references()
            .filter_map(|(_, text)| match text.parse::<SecretRef>() {
                Ok(SecretRef::Env(name)) => Some(name),
                _ => None,
            })
            .collect()
    }

    fn check_files(&self, problems: &mut Problems) {
        if let Some(path) = &self.ca_file
            && let Err(why) = check_authorities(path)
        {
            problems.add("ca_file", format!("{}: {why}", path.display()));
        }
        for (key, text) in self.references() {
            // A text that is not a reference has a mistake of its own.
            if let Ok(reference) = text.parse::<SecretRef>()
                && let Err(why) = reference.check_file()
            {
                problems.add(key, why);
            }
        }
        problems.check_folder("disk_buffer_path", &self.disk_buffer_path);
    }

    fn settings(&self, problems: &mut Problems) -> Option<AccountingSettings> {
        let api = api_url(&self.api_url)
            .map_err(|why| problems.add("api_url", why))
            .ok();
        let secrets = self.secrets(problems);
        self.check_numbers(problems);
        let zone = zone(&self.timezone)
            .map_err(|why| problems.add("timezone", why))
            .ok();
        let offerings = by_vcluster("offerings", &self.offerings, problems, |uuid| {
            hex_uuid(uuid).ok_or("give the offering's UUID")
        });
        let plans = by_vcluster("plans", &self.plans, problems, |plan| {
            match plan.trim().is_empty() {
                true => Err("give the plan's name or UUID"),
                false => Ok(hex_uuid(plan).unwrap_or_else(|| plan.to_owned())),
            }
        });
        let provider_customer = self.provider_customer.as_deref().map(hex_uuid);
        if provider_customer == Some(None) {
            problems.add("provider_customer", "give the customer's UUID");
        }
        let (token, hook_secret, vault) = secrets?;
        Some(AccountingSettings {
            api: api?,
            token,
            interval: Duration::from_secs(self.push_interval_seconds),
            bounds: Bounds {
                memory: self.buffer_size,
                disk: self.disk_buffer_max_events,
            },
            folder: self.disk_buffer_path.clone(),
            zone: zone?,
            ca_file: self.ca_file.clone(),
            vault,
            offerings,
            plans,
            reconcile_every: (self.reconcile_hours > 0)
                .then(|| Duration::from_secs(self.reconcile_hours.saturating_mul(3_600))),
            order_check_every: (self.order_check_seconds > 0)
                .then(|| Duration::from_secs(self.order_check_seconds)),
            lower_totals: self.lower_totals,
            provider_customer: provider_customer.flatten(),
            category: self.category.clone(),
            take_limits: self.take_limits,
            hook_secret,
            order_per_allocation: self.order_per_allocation,
            seed_paths: self.seed_paths,
        })
    }

    /// References to the token and the webhook secret, and the Vault server.
    fn secrets(
        &self,
        problems: &mut Problems,
    ) -> Option<(SecretRef, Option<SecretRef>, Option<Vault>)> {
        let mut secret = |key: &str, text: &str| -> Option<SecretRef> {
            text.parse()
                .map_err(|why: String| problems.add(key, why))
                .ok()
        };
        let token = secret("token_secret_ref", &self.token_secret_ref);
        let hook_secret = self.hook_secret_ref.as_deref();
        let hook_secret = hook_secret.map(|text| secret("hook_secret_ref", text));
        let vault = self.vault.as_ref().map(|vault| {
            Some(Vault {
                address: vault.address.clone(),
                token: secret("vault.token_ref", &vault.token_ref)?,
                namespace: vault.namespace.clone(),
            })
        });
        let in_vault = |from: &Option<SecretRef>| matches!(from, Some(SecretRef::Vault { .. }));
        let hook_in_vault = hook_secret.as_ref().is_some_and(in_vault);
        if vault.is_none() && (in_vault(&token) || hook_in_vault) {
            problems.add(
                "vault",
                "give the address of Vault: `{address: …, token_ref: file:///…}`",
            );
        }
        if let Some(vault) = &self.vault
            && let Err(why) = api_url(&vault.address)
        {
            problems.add("vault.address", why);
        }
        // A reference that is given and not valid is a mistake.
        let hook_secret = match hook_secret {
            Some(given) => Some(given?),
            None => None,
        };
        let vault = match vault {
            Some(given) => Some(given?),
            None => None,
        };
        Some((token?, hook_secret, vault))
    }

    fn check_numbers(&self, problems: &mut Problems) {
        if !(1..=MOST_INTERVAL_S).contains(&self.push_interval_seconds) {
            let text = format!("give 1 to {MOST_INTERVAL_S} seconds");
            problems.add("push_interval_seconds", text);
        }
        for (key, given) in [
            ("buffer_size", self.buffer_size),
            ("disk_buffer_max_events", self.disk_buffer_max_events),
        ] {
            if !(1..=MOST_EVENTS).contains(&given) {
                problems.add(key, format!("give 1 to {MOST_EVENTS} events"));
            }
        }
        if self.reconcile_hours > MOST_RECONCILE_HOURS {
            let text = format!("give 0 to {MOST_RECONCILE_HOURS} hours");
            problems.add("reconcile_hours", text);
        }
        if self.order_check_seconds > MOST_INTERVAL_S {
            let text = format!("give 1 to {MOST_INTERVAL_S} seconds, or 0 for none");
            problems.add("order_check_seconds", text);
        }
    }
}

/// Checked values of a key, by vCluster.
fn by_vcluster(
    key: &str,
    given: &BTreeMap<String, String>,
    problems: &mut Problems,
    check: impl Fn(&str) -> Result<String, &'static str>,
) -> BTreeMap<VclusterName, String> {
    let mut checked = BTreeMap::new();
    for (vcluster, value) in given {
        let key = format!("{key}.{vcluster}");
        match (VclusterName::new(vcluster.clone()), check(value)) {
            (Ok(name), Ok(value)) => {
                checked.insert(name, value);
            }
            (Ok(_), Err(why)) => problems.add(key, why),
            (Err(error), _) => problems.add(key, error),
        }
    }
    checked
}

/// Checks that the file contains certificates.
fn check_authorities(path: &Path) -> Result<(), String> {
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err("the file contains no certificate".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a URL that ends in `/api/`, or the URL of the server alone, and returns the former.
fn api_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is not a valid URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
        return Err("must begin with https:// or http://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a password; give secrets by reference".to_owned());
    }
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/api").unwrap_or(path).to_owned();
    let mut url = url;
    url.set_path(&format!("{path}/api/"));
    url.set_query(None);
    Ok(url)
}

fn zone(text: &str) -> Result<TimeZone, String> {
    if text == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let known = TimeZone::get(text).or_else(|_| TimeZone::posix(text));
    known.map_err(|_| {
        format!(
            "{text:?} is not a valid time zone; write a name like Europe/Tallinn, or as \
            POSIX does: EET-2EEST,M3.5.0/3,M10.5.0/4"
        )
    })
}

/// A UUID without dashes, as Waldur writes it; `None` for any other text.
fn hex_uuid(text: &str) -> Option<String> {
    let digits = text.replace('-', "");
    let is_uuid = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_uuid.then_some(digits)
}

#[cfg(test)]
mod tests;
