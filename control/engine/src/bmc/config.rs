//! BMC file: list of BMCs and polling settings.

use lattice_config::{Check, PREFIX, Problems, Source};
use lattice_conformance::health::{SiteTable, Table};
use lattice_host::{error_text::with_causes, private_file};
use lattice_quorum_types::{NodeId, hostlist};
use lattice_redfish::{
    Selector,
    http::{Bmc, Endpoint, EndpointError, Environment, Pin, ReadOnly, Settings, Trust},
};
use secrecy::SecretString;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Placeholder for the node name in a URL.
const NODE: &str = "{node}";

/// Content of the BMC file.
#[derive(Debug, Deserialize)]
struct File {
    /// Seconds between two readings of a node's power draw and power limit.
    #[serde(default = "default_power_interval")]
    power_interval_s: u64,
    /// Seconds between two complete readings.
    #[serde(default = "default_interval")]
    interval_s: u64,
    /// Seconds after which changed firmware or settings are read a second time.
    #[serde(default = "default_confirm")]
    confirm_after_s: u64,
    /// Maximum number of BMCs read at the same time.
    #[serde(default = "default_at_a_time")]
    at_a_time: usize,
    /// File with the site's changes to the shipped table of checks, for readings of BMCs.
    table: Option<PathBuf>,
    /// List of BMCs.
    bmcs: Vec<Entry>,
}

fn default_power_interval() -> u64 {
    30
}
fn default_interval() -> u64 {
    6 * 3600
}
fn default_confirm() -> u64 {
    30
}
fn default_at_a_time() -> usize {
    256
}

/// One BMC, or many BMCs with equal settings.
#[derive(Debug, Deserialize)]
struct Entry {
    /// `https://HOST`; with `{node}`, one BMC for each node.
    url: String,
    /// Account name; the account needs read access only.
    user: String,
    /// File with the password of the account; other users must not be able to read it.
    password_file: PathBuf,
    /// SHA-256 of the BMC's certificate.
    certificate: Option<String>,
    /// File with the CAs that sign certificates of BMCs, PEM.
    ca_file: Option<PathBuf>,
    /// Accept any certificate.
    #[serde(default)]
    insecure: bool,
    /// Nodes as a hostlist, or as a map from node to system id.
    nodes: Nodes,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "must be a hostlist, or keys and values from node to Redfish system id"
)]
enum Nodes {
    List(String),
    Systems(BTreeMap<String, String>),
}

/// BMCs to read, and the polling settings.
#[derive(Debug, Clone)]
pub struct BmcPlan {
    /// Interval between two readings of power draw and limit.
    pub power_interval: Duration,
    /// Interval between two complete readings; jitter is added.
    pub interval: Duration,
    /// Delay after which a changed value is read again with a new session. Some BMCs return invalid data for a while.
    pub confirm_after: Duration,
    /// Maximum number of BMCs read at the same time.
    pub at_a_time: usize,
    /// Table of checks applied to BMC readings.
    pub table: Table,
    /// BMCs to read.
    pub targets: Vec<BmcTarget>,
}

/// One BMC and its nodes.
#[derive(Debug, Clone)]
pub struct BmcTarget {
    /// Address and account of the BMC.
    pub endpoint: ReadOnly,
    /// File with the password, read again after a change.
    pub password_file: PathBuf,
    /// Nodes of this BMC, each with its Redfish system.
    pub nodes: Vec<(NodeId, Selector)>,
}

/// Errors of the BMC file.
#[derive(Debug, thiserror::Error)]
pub enum BmcFileError {
    /// The file cannot be read.
    #[error("bmcs: {path} cannot be read", path = .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        source: std::io::Error,
    },
    /// The file is malformed, or settings or entries in it, or files that it names, are invalid; all mistakes are
    /// listed.
    #[error("bmcs: {path}: {}", .wrong.join("; "), path = .path.display())]
    InvalidEntries {
        /// Path of the file.
        path: PathBuf,
        /// Invalid settings and entries, each with its reason.
        wrong: Vec<String>,
    },
}

impl BmcPlan {
    /// Reads and validates the BMC file and the files that it names.
    ///
    /// # Errors
    /// Returns an error for an unreadable or malformed BMC file, or for all invalid settings, entries and named files.
    pub fn load(path: &Path) -> Result<Self, BmcFileError> {
        let text = fs::read_to_string(path).map_err(|source| BmcFileError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let invalid = |wrong: Vec<String>| BmcFileError::InvalidEntries {
            path: path.to_owned(),
            wrong,
        };
        let none = std::iter::empty();
        let file = lattice_config::check_all::<File>(Source::Text(&text), none, PREFIX);
        let file = file.map_err(|errors| {
            let problems = errors.problems().iter();
            invalid(problems.map(ToString::to_string).collect())
        })?;
        let mut wrong = Vec::new();
        let targets = file.targets(&mut |index, why| wrong.push(format!("bmcs.{index}: {why}")));
        let table = table(file.table.as_deref());
        let table = table.map_err(|mistakes| wrong.extend(mistakes));
        // The check has read the same files before; they may have changed since.
        let (Ok(table), []) = (table, &wrong[..]) else {
            return Err(invalid(wrong));
        };
        Ok(Self {
            power_interval: Duration::from_secs(file.power_interval_s),
            interval: Duration::from_secs(file.interval_s),
            confirm_after: Duration::from_secs(file.confirm_after_s),
            at_a_time: file.at_a_time,
            table,
            targets,
        })
    }
}

impl File {
    /// Targets of all valid entries. `fail` receives the position and the mistake of each other entry.
    fn targets(&self, fail: &mut dyn FnMut(usize, String)) -> Vec<BmcTarget> {
        let mut targets = Vec::new();
        for (index, entry) in self.bmcs.iter().enumerate() {
            match entry.targets() {
                Ok(found) => targets.extend(found),
                Err(why) => fail(index, why),
            }
        }
        targets
    }
}

impl Check for File {
    fn check(&self, problems: &mut Problems) {
        for (name, value) in [
            ("power_interval_s", self.power_interval_s),
            ("interval_s", self.interval_s),
            ("confirm_after_s", self.confirm_after_s),
        ] {
            if !(1..=7 * 86_400).contains(&value) {
                problems.add(name, format!("give 1 to 604800 seconds, not {value}"));
            }
        }
        if !(1..=4_096).contains(&self.at_a_time) {
            problems.add(
                "at_a_time",
                format!("give 1 to 4096, not {}", self.at_a_time),
            );
        }
    }

    fn check_files(&self, problems: &mut Problems) {
        let targets = self.targets(&mut |index, why| problems.add(format!("bmcs.{index}"), why));
        let mut seen = BTreeSet::new();
        for (node, _) in targets.iter().flat_map(|target| &target.nodes) {
            if !seen.insert(node) {
                problems.add("", format!("node {node} is listed twice"));
            }
        }
        for mistake in table(self.table.as_deref()).err().unwrap_or_default() {
            problems.add("", mistake);
        }
    }
}

/// Reads the shipped table of checks, with the changes from the site's file, or returns all mistakes.
fn table(site: Option<&Path>) -> Result<Table, Vec<String>> {
    let shipped = Table::shipped().map_err(|error| vec![format!("table: {error}")])?;
    let Some(path) = site else {
        return Ok(shipped);
    };
    let check = |site: &SiteTable, problems: &mut Problems| {
        let (_, mistakes) = shipped.clone().with_changes(site.clone());
        for mistake in mistakes {
            problems.add(mistake.key, mistake.reason);
        }
    };
    let site = lattice_config::load_named(Source::File(path), check).map_err(|errors| {
        let mistakes = errors.problems().iter();
        let named = mistakes.map(|mistake| format!("table: {}: {mistake}", path.display()));
        named.collect::<Vec<_>>()
    })?;
    Ok(shipped.with_changes(site).0)
}

impl Entry {
    fn targets(&self) -> Result<Vec<BmcTarget>, String> {
        let (password, trust) = (password(&self.password_file)?, self.trust()?);
        let nodes = self.nodes()?;
        let targets = self.targets_for(password, trust, nodes)?;
        // All targets of an entry share one trust setting, so a check of the first target is enough.
        if let Some(target) = targets.first() {
            let made = client(&target.endpoint);
            made.map_err(|error| format!("{}: {}", self.trust_key(), with_causes(&error)))?;
        }
        Ok(targets)
    }

    fn targets_for(
        &self,
        password: SecretString,
        trust: Trust,
        nodes: Vec<(NodeId, Selector)>,
    ) -> Result<Vec<BmcTarget>, String> {
        let at = |url: &str| {
            Endpoint::new(url, &self.user, password.clone(), trust.clone())
                .map(ReadOnly)
                .map_err(|error| format!("url: {error}"))
        };
        if !self.url.contains(NODE) {
            if let [_, _, ..] = nodes.as_slice()
                && nodes.iter().any(|(_, system)| *system == Selector::Only)
            {
                return Err(
                    "nodes: a BMC with several nodes needs the Redfish system id of each node, such as \
                     `gpu001: Node0`; or use {node} in the url"
                        .to_owned(),
                );
            }
            let endpoint = at(&self.url)?;
            let password_file = self.password_file.clone();
            return Ok(vec![BmcTarget {
                endpoint,
                password_file,
                nodes,
            }]);
        }
        let each = nodes.into_iter().map(|(node, system)| {
            let endpoint = at(&self.url.replace(NODE, node.as_str()))?;
            Ok(BmcTarget {
                endpoint,
                password_file: self.password_file.clone(),
                nodes: vec![(node, system)],
            })
        });
        each.collect()
    }

    fn nodes(&self) -> Result<Vec<(NodeId, Selector)>, String> {
        let wrong = |error: String| format!("nodes: {error}");
        match &self.nodes {
            Nodes::List(list) => {
                let nodes = hostlist::expand(list).map_err(|error| wrong(error.to_string()))?;
                Ok(nodes
                    .into_iter()
                    .map(|node| (node, Selector::Only))
                    .collect())
            }
            Nodes::Systems(systems) => {
                let one = |(node, system): (&String, &String)| {
                    let node = NodeId::new(node).map_err(|error| wrong(error.to_string()))?;
                    Ok((node, Selector::Id(system.clone())))
                };
                systems.iter().map(one).collect()
            }
        }
    }

    /// Configuration key that an error of the trust setup names.
    const fn trust_key(&self) -> &'static str {
        match self.ca_file {
            Some(_) => "ca_file",
            None => "url",
        }
    }

    fn trust(&self) -> Result<Trust, String> {
        match (&self.certificate, &self.ca_file, self.insecure) {
            (Some(pin), None, false) => {
                let pin: Pin = pin
                    .parse()
                    .map_err(|error| format!("certificate: {error}"))?;
                Ok(Trust::Pinned(pin))
            }
            (None, Some(file), false) => Ok(Trust::CaFile(file.clone())),
            (None, None, true) => Ok(Trust::Insecure),
            (None, None, false) => Ok(Trust::System),
            _ => Err("give one of certificate, ca_file, insecure".to_owned()),
        }
    }
}

/// Creates a client that is not connected yet.
///
/// # Errors
/// Returns an error when trust cannot be set up: the CA file is read here and may have changed since the plan was
/// checked.
pub(super) fn client(endpoint: &ReadOnly) -> Result<Bmc, EndpointError> {
    let environment = Environment::system();
    Bmc::new(endpoint.clone(), None, Settings::default(), environment)
}

/// Reads the password from a private file.
pub(super) fn password(path: &Path) -> Result<SecretString, String> {
    private_file::read_secret(path)
        .map_err(|error| format!("password_file: {}", with_causes(&error)))
}
