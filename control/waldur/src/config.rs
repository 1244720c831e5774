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
        let mut secret = |key: &str, text: &str| -> Option<SecretRef> {
            text.parse()
                .map_err(|why: String| problems.add(key, why))
                .ok()
        };
        let token = secret("token_secret_ref", &self.token_secret_ref);
        let hook_secret = match &self.hook_secret_ref {
            Some(text) => Some(secret("hook_secret_ref", text)?),
            None => None,
        };
        let vault = match &self.vault {
            Some(vault) => Some(Vault {
                address: vault.address.clone(),
                token: secret("vault.token_ref", &vault.token_ref)?,
                namespace: vault.namespace.clone(),
            }),
            None => None,
        };
        let in_vault = |from: &Option<SecretRef>| matches!(from, Some(SecretRef::Vault { .. }));
        if vault.is_none() && (in_vault(&token) || in_vault(&hook_secret)) {
            problems.add(
                "vault",
                "give the address of Vault: `{address: …, token_ref: file:///…}`",
            );
        }
        if let Some(vault) = &vault
            && let Err(why) = api_url(&vault.address)
        {
            problems.add("vault.address", why);
        }
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
        let zone = zone(&self.timezone)
            .map_err(|why| problems.add("timezone", why))
            .ok();
        let mut offerings = BTreeMap::new();
        for (vcluster, uuid) in &self.offerings {
            let key = format!("offerings.{vcluster}");
            match VclusterName::new(vcluster.clone()) {
                Ok(name) if is_uuid(uuid) => {
                    offerings.insert(name, uuid.replace('-', ""));
                }
                Ok(_) => problems.add(key, "give the offering's UUID"),
                Err(error) => problems.add(key, error),
            }
        }
        let mut plans = BTreeMap::new();
        for (vcluster, plan) in &self.plans {
            let key = format!("plans.{vcluster}");
            match VclusterName::new(vcluster.clone()) {
                Ok(_) if plan.trim().is_empty() => {
                    problems.add(key, "give the plan's name or UUID");
                }
                Ok(name) if is_uuid(plan) => {
                    plans.insert(name, plan.replace('-', ""));
                }
                Ok(name) => {
                    plans.insert(name, plan.clone());
                }
                Err(error) => problems.add(key, error),
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
        if self
            .provider_customer
            .as_ref()
            .is_some_and(|uuid| !is_uuid(uuid))
        {
            problems.add("provider_customer", "give the customer's UUID");
        }
        Some(AccountingSettings {
            api: api?,
            token: token?,
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
                .then(|| Duration::from_secs(self.reconcile_hours * 3_600)),
            order_check_every: (self.order_check_seconds > 0)
                .then(|| Duration::from_secs(self.order_check_seconds)),
            lower_totals: self.lower_totals,
            provider_customer: self
                .provider_customer
                .as_ref()
                .map(|uuid| uuid.replace('-', "")),
            category: self.category.clone(),
            take_limits: self.take_limits,
            hook_secret,
            order_per_allocation: self.order_per_allocation,
            seed_paths: self.seed_paths,
        })
    }
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

fn is_uuid(text: &str) -> bool {
    let mut digits = text.bytes().filter(|b| *b != b'-');
    digits.clone().count() == 32 && digits.all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_config::{Check, Source, load};

    #[derive(Deserialize)]
    struct File {
        accounting: AccountingConfig,
    }
    impl Check for File {
        fn check(&self, problems: &mut Problems) {
            problems.check_part("accounting", |problems| self.accounting.check(problems));
        }
        fn check_files(&self, problems: &mut Problems) {
            problems.check_part("accounting", |problems| {
                self.accounting.check_files(problems);
            });
        }
        fn used_variables(&self) -> Vec<String> {
            self.accounting.used_variables()
        }
    }

    fn read(text: &str) -> Result<AccountingConfig, String> {
        let file: Result<File, _> = load(Source::Text(text), std::iter::empty(), "LATTICE_");
        file.map(|file| file.accounting)
            .map_err(|errors| errors.to_string())
    }

    /// Configuration block from the accounting specification, unchanged, with an example server.
    const DOCUMENT: &str = r#"
accounting:
  enabled: true
  provider: "waldur"
  waldur:
    api_url: "https://waldur.example.com/api/"
    token_secret_ref: "vault://lattice/waldur-token"
    push_interval_seconds: 60
    buffer_size: 10000
    disk_buffer_path: "/var/lib/lattice/accounting-wal"
    disk_buffer_max_events: 100000
"#;

    #[test]
    fn the_documents_own_block_is_read_and_its_numbers_are_what_is_left_out() {
        let missing = read(DOCUMENT).unwrap_err();
        assert!(missing.contains("accounting.waldur.vault"), "{missing}");
        let text = format!(
            "{DOCUMENT}    vault: {{address: \"https://vault.example.com\", token_ref: \"env://VAULT_TOKEN\"}}\n"
        );
        let settings = read(&text).unwrap().settings().unwrap();
        assert_eq!(settings.api.as_str(), "https://waldur.example.com/api/");
        assert_eq!(settings.interval, Duration::from_secs(60));
        let least = "accounting: {enabled: true, waldur: {api_url: 'https://waldur.example.com', token_secret_ref: 'env://T'}}";
        let left_out = read(least).unwrap().settings().unwrap();
        assert_eq!(left_out.api, settings.api);
        assert_eq!(left_out.bounds, settings.bounds);
        assert_eq!(left_out.folder, settings.folder);
        assert_eq!(left_out.interval, settings.interval);
    }

    #[test]
    fn off_is_what_is_left_out() {
        assert!(AccountingConfig::default().settings().is_none());
        let off = DOCUMENT.replace("enabled: true", "enabled: false");
        let off = off + "    vault: {address: \"https://v\", token_ref: \"env://T\"}\n";
        assert!(read(&off).unwrap().settings().is_none());
        assert!(
            read("accounting: {enabled: true}")
                .unwrap_err()
                .contains("set waldur.api_url and waldur.token_secret_ref")
        );
    }

    /// The files are not read while accounting is disabled, nor are environment variables, which the daemon may have
    /// and the check may lack.
    #[test]
    fn files_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let text = format!(
            "accounting: {{enabled: true, waldur: {{api_url: 'https://w', \
             token_secret_ref: 'file://{at}/token', hook_secret_ref: 'env://NOT_SET', \
             ca_file: '{at}/ca.pem'}}}}"
        );
        let found = |text: &str| {
            let mut problems = Problems::default();
            read(text).unwrap().check_files(&mut problems);
            problems.is_empty()
        };
        assert!(!found(&text));
        assert!(found(&text.replace("enabled: true", "enabled: false")));
        let mistakes = |text: &str| {
            let source = Source::Text(text);
            let checked = lattice_config::check_all::<File>(source, [], "LATTICE_");
            checked.map(drop).map_err(|errors| errors.to_string())
        };
        let report = mistakes(&text).unwrap_err();
        assert!(report.contains("has 2 mistakes"), "{report}");
        for part in ["waldur.ca_file: ", "waldur.token_secret_ref: cannot read "] {
            assert!(report.contains(part), "{part}: {report}");
        }
        std::fs::write(folder.path().join("ca.pem"), "no certificate").unwrap();
        std::fs::write(folder.path().join("token"), "secret").unwrap();
        let report = mistakes(&text).unwrap_err();
        for part in ["the file contains no certificate", "chmod 600"] {
            assert!(report.contains(part), "{part}: {report}");
        }
    }

    #[test]
    fn variables_with_secrets_are_no_mistakes() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "accounting: {{enabled: true, waldur: {{api_url: 'https://w', disk_buffer_path: '{}', \
             token_secret_ref: 'env://LATTICE_WALDUR_TOKEN', \
             hook_secret_ref: 'env://LATTICE_WALDUR_HOOK', \
             vault: {{address: 'https://v', token_ref: 'env://LATTICE_VAULT_TOKEN'}}}}}}",
            folder.path().display()
        );
        let names = [
            "LATTICE_WALDUR_TOKEN",
            "LATTICE_WALDUR_HOOK",
            "LATTICE_VAULT_TOKEN",
        ];
        let env = names.map(|name| (name.to_owned(), "secret".to_owned()));
        let source = Source::Text(&text);
        let file = lattice_config::check_all::<File>(source, env.clone(), "LATTICE_").unwrap();
        assert_eq!(file.accounting.used_variables(), names);
        assert!(lattice_config::ignored_variables::<File>(source, env, "LATTICE_").is_empty());
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let text = r#"
accounting:
  enabled: true
  provider: "sun grid"
  waldur:
    api_url: "https://admin:secret@waldur.example.com"
    token_secret_ref: "5fd1deadbeef"
    push_interval_seconds: 0
    timezone: "Mars/Olympus"
    offerings: {main: "nope"}
    buffersize: 3
"#;
        let said = read(text).unwrap_err();
        for wanted in [
            "sun grid",
            "give secrets by reference",
            "is not a valid reference to a secret",
            "1 to 3600 seconds",
            "Mars/Olympus",
            "offerings.main",
            "buffersize",
        ] {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }
}
