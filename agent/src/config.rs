//! The agent's configuration file.
//!
//! Every key can also be set by the environment (`LATTICE_EXECUTOR__ALLOW_SAME_USER=true`).

mod executor;
mod health;

pub use executor::{ExecutorConfig, HookConfig, HooksConfig};
pub use health::HealthConfig;

use crate::data_dir::DataDir;
use crate::executor::{OpenError, UserMapError};
use crate::settings::{CONFIRM_AFTER, GossipSettings, JoinSettings, PROBE_INTERVAL, Settings};
use lattice_config::{Check, Problems};
use lattice_gossip::CellName;
use lattice_hwprobe::health::TableError;
use lattice_hwprobe::{Class, Host, NvmlSource};
use lattice_mesh::{InvalidToken, JoinToken, Role};
use lattice_quorum_types::NodeId;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// The file, as it is written. Keys that are not here are refused.
#[derive(Debug, Deserialize)]
pub struct Config {
    /// The node's name; the host's short name when absent.
    #[serde(default)]
    pub node: Option<String>,
    /// UDP address to listen on.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// Where others reach this agent, when it listens on every address.
    #[serde(default)]
    pub advertise: Option<SocketAddr>,
    /// The agent's folder.
    #[serde(default = "default_data_dir")]
    pub data_dir: PathBuf,
    /// Mesh addresses (`host:port`) of the controls.
    #[serde(default)]
    pub control: Vec<String>,
    /// How to become a member.
    #[serde(default)]
    pub join: Option<Join>,
    /// Where in the network the node is.
    #[serde(default)]
    pub topology: Topology,
    /// Gossip.
    #[serde(default)]
    pub gossip: GossipConfig,
    /// Probing.
    #[serde(default)]
    pub probe: ProbeConfig,
    /// Health checks.
    #[serde(default)]
    pub health: HealthConfig,
    /// Running work.
    #[serde(default)]
    pub executor: ExecutorConfig,
    /// Which log lines are written, e.g. `info` or `lattice_agent=debug`.
    #[serde(default = "default_log")]
    pub log: String,
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 7600))
}
fn default_data_dir() -> PathBuf {
    "/var/lib/lattice/agent".into()
}
fn default_log() -> String {
    "info".to_owned()
}

/// `join`.
#[derive(Debug, Deserialize)]
pub struct Join {
    /// A file with the join token.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// The join token itself; for the environment, since a configuration file is no place for it.
    #[serde(default)]
    pub token: Option<SecretString>,
    /// Mesh addresses (`host:port`) of quorum members.
    #[serde(default)]
    pub quorum: Vec<String>,
    /// Take over this node's name from a former installation.
    #[serde(default)]
    pub replace: bool,
}

/// `topology`.
#[derive(Debug, Default, Deserialize)]
pub struct Topology {
    /// The group (dragonfly group, rack) the node is in.
    #[serde(default)]
    pub group: Option<String>,
}

/// `gossip`.
#[derive(Debug, Default, Deserialize)]
pub struct GossipConfig {
    /// The cell; the one enrolment told when absent.
    #[serde(default)]
    pub cell: Option<String>,
    /// Agents (`host:port`) to ask besides the controls.
    #[serde(default)]
    pub seeds: Vec<String>,
    /// Milliseconds between two rounds, 50 to 60000.
    #[serde(default)]
    pub interval_ms: Option<u64>,
}

/// `probe`.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub struct ProbeConfig {
    /// Seconds between two reads, about: each node spreads its own by a tenth.
    pub interval_s: u64,
    /// Seconds after which a difference is read again.
    pub confirm_after_s: u64,
    /// Where `/proc` and `/sys` are found.
    pub root: PathBuf,
    /// Whether the node is read as well when the kernel tells of a device; where `root` is `/`
    /// unless it is said.
    pub device_events: Option<bool>,
    /// How the GPU driver is asked.
    pub nvml: NvmlConfig,
    /// Classes that are not read.
    pub disabled: Vec<String>,
    /// Classes that are read though they are not unless they are named here: optics.
    pub also: Vec<String>,
    /// More kernel arguments of which only the presence counts; `*` at the end matches any rest.
    pub masked_arguments: Vec<String>,
    /// More sysctls that count, as paths below `/proc/sys`.
    pub sysctls: Vec<String>,
    /// More kernel modules that count; `*` at the end matches.
    pub modules: Vec<String>,
    /// More packages that count; `*` matches.
    pub packages: Vec<String>,
    /// Configuration files whose hash counts; the content never leaves the node.
    pub hashed_files: Vec<String>,
}

impl Default for ProbeConfig {
    fn default() -> Self {
        Self {
            interval_s: PROBE_INTERVAL.as_secs(),
            confirm_after_s: CONFIRM_AFTER.as_secs(),
            root: "/".into(),
            device_events: None,
            nvml: NvmlConfig::default(),
            disabled: Vec::new(),
            also: Vec::new(),
            masked_arguments: Vec::new(),
            sysctls: Vec::new(),
            modules: Vec::new(),
            packages: Vec::new(),
            hashed_files: Vec::new(),
        }
    }
}

/// `probe.nvml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NvmlConfig {
    /// Where the answers come from.
    pub source: NvmlMode,
    /// Another library than the system's `libnvidia-ml.so.1`.
    pub library: Option<PathBuf>,
    /// The captured report, for `recorded`.
    pub file: Option<PathBuf>,
}

/// `probe.nvml.source`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NvmlMode {
    /// Ask the driver, in a process of its own.
    #[default]
    Driver,
    /// Take a captured report.
    Recorded,
    /// Do not ask.
    Disabled,
}

impl Check for Config {
    fn check(&self, problems: &mut Problems) {
        if let Some(node) = &self.node
            && let Err(error) = NodeId::new(node)
        {
            problems.add("node", error);
        }
        if self.listen.ip().is_unspecified() && self.advertise.is_none() {
            let text = "is needed where `listen` is every address: others must be told one";
            problems.add("advertise", text);
        }
        check_addresses(problems, "control", &self.control);
        if let Some(join) = &self.join {
            problems.within("join", |problems| join.check(problems));
        }
        problems.within("gossip", |problems| self.gossip.check(problems));
        problems.within("probe", |problems| self.probe.check(problems));
        problems.within("health", |problems| self.health.check(problems));
        problems.within("executor", |problems| self.executor.check(problems));
        if let Err(error) = lattice_config::log::filter("", &self.log) {
            problems.add("log", error);
        }
    }
}

fn check_addresses(problems: &mut Problems, key: &str, addresses: &[String]) {
    for (n, address) in addresses.iter().enumerate() {
        if !is_host_and_port(address) {
            let text = "must be a host with a port, like control1:7102 or [fd00::1]:7102";
            problems.add(format!("{key}.{n}"), text);
        }
    }
}

/// As far as can be told without asking a resolver.
fn is_host_and_port(text: &str) -> bool {
    let is_name = |host: &str| !host.is_empty() && !host.contains([':', '/', ' ', '[', ']']);
    let parts = text.rsplit_once(':');
    text.parse::<SocketAddr>().is_ok()
        || parts.is_some_and(|(host, port)| is_name(host) && port.parse::<u16>().is_ok())
}

impl Check for Join {
    fn check(&self, problems: &mut Problems) {
        match (&self.token_file, &self.token) {
            (None, None) => problems.add("token_file", "is missing: where is the join token?"),
            (Some(_), Some(_)) => problems.add("token", "and token_file are both given"),
            (Some(_), None) | (None, Some(_)) => {}
        }
        if self.quorum.is_empty() {
            problems.add("quorum", "must name at least one quorum member (host:port)");
        }
        check_addresses(problems, "quorum", &self.quorum);
    }
}

impl Check for GossipConfig {
    fn check(&self, problems: &mut Problems) {
        if let Some(cell) = &self.cell
            && let Err(error) = cell.parse::<CellName>()
        {
            problems.add("cell", error);
        }
        check_addresses(problems, "seeds", &self.seeds);
        if self
            .interval_ms
            .is_some_and(|ms| !(50..=60_000).contains(&ms))
        {
            problems.add("interval_ms", "must be 50 to 60000");
        }
    }
}

impl Check for ProbeConfig {
    fn check(&self, problems: &mut Problems) {
        for (key, seconds) in [
            ("interval_s", self.interval_s),
            ("confirm_after_s", self.confirm_after_s),
        ] {
            if !(1..=86_400).contains(&seconds) {
                problems.add(key, "must be 1 to 86400");
            }
        }
        if self.nvml.source == NvmlMode::Recorded && self.nvml.file.is_none() {
            problems.add("nvml.file", "is needed where nvml.source is recorded");
        }
        for (n, file) in self.hashed_files.iter().enumerate() {
            if !file.starts_with('/') {
                problems.add(format!("hashed_files.{n}"), "must be an absolute path");
            }
        }
        for (n, sysctl) in self.sysctls.iter().enumerate() {
            if sysctl.starts_with('/') || sysctl.split('/').any(|part| part == "..") {
                let text = "must be a path below /proc/sys, such as vm/swappiness";
                problems.add(format!("sysctls.{n}"), text);
            }
        }
        for (n, class) in self.disabled.iter().enumerate() {
            if let Err(error) = class.parse::<Class>() {
                problems.add(format!("disabled.{n}"), error);
            }
        }
        for (n, class) in self.also.iter().enumerate() {
            match class.parse::<Class>() {
                Ok(class) if class.is_optional() => {}
                Ok(class) => {
                    let text = format!("{class} is always read, unless it is disabled");
                    problems.add(format!("also.{n}"), text);
                }
                Err(error) => problems.add(format!("also.{n}"), error),
            }
        }
    }
}

/// Why a configuration that is well formed still cannot be used on this host, now.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A name does not resolve.
    #[error("{key}: {name} has no address; write it as host:port")]
    NoAddress {
        /// Which key.
        key: &'static str,
        /// The name.
        name: String,
        /// What the resolver said, if anything.
        source: Option<std::io::Error>,
    },
    /// The token file cannot be read.
    #[error("join.token_file: {}", path.display())]
    TokenFile {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It holds no token.
    #[error("{key}")]
    Token {
        /// Where it is: a key, and the file where it is one.
        key: String,
        /// What is wrong with it.
        source: InvalidToken,
    },
    /// Work cannot be run as it is configured.
    #[error(transparent)]
    Executor(#[from] OpenError),
    /// The site's list of who is whom cannot be used.
    #[error(transparent)]
    UserMap(#[from] UserMapError),
    /// The site's health table cannot be read.
    #[error("health.table: {}", path.display())]
    HealthTable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It has mistakes.
    #[error("health.table: {}", path.display())]
    HealthChecks {
        /// Which.
        path: PathBuf,
        /// All of them.
        source: TableError,
    },
    /// A value that [`Check`] refuses; `load` never lets one through.
    #[error("{key}: {reason}")]
    Invalid {
        /// Which key.
        key: &'static str,
        /// Why.
        reason: String,
    },
}

fn invalid<E: std::fmt::Display>(key: &'static str) -> impl FnOnce(E) -> ConfigError {
    move |error| ConfigError::Invalid {
        key,
        reason: error.to_string(),
    }
}

fn resolve(key: &'static str, names: &[String]) -> Result<Vec<SocketAddr>, ConfigError> {
    let one = |name: &String| {
        let missing = |source| ConfigError::NoAddress {
            key,
            name: name.clone(),
            source,
        };
        let mut found = name.to_socket_addrs().map_err(|e| missing(Some(e)))?;
        found.next().ok_or_else(|| missing(None))
    };
    names.iter().map(one).collect()
}

impl Config {
    /// Reads the files that it names, and changes nothing. The token is not looked at once the
    /// node is enrolled.
    ///
    /// # Errors
    /// A token file that is missing or holds no token, a user map, a hook or a health table
    /// that cannot be used.
    pub fn check_files(&self) -> Result<(), ConfigError> {
        self.executor.check_files()?;
        self.health.table()?;
        match &self.join {
            Some(join) if !DataDir::is_enrolled(&self.data_dir) => join.read_token().map(drop),
            _ => Ok(()),
        }
    }

    /// Looks up names and reads the token; blocks on the resolver and the disk. The token is not
    /// missed once the node is enrolled: it may be gone by then. Where it stays, as on nodes without
    /// a disk, an agent whose certificate has ended enrols anew by itself.
    pub fn into_settings(self) -> Result<Settings, ConfigError> {
        let is_enrolled = DataDir::is_enrolled(&self.data_dir);
        let node = match self.node {
            Some(node) => node,
            None => short_host_name(),
        };
        let node = NodeId::new(node).map_err(invalid("node"))?;
        let mut host = Host::new(self.probe.root, self.probe.nvml.source());
        host.masked_arguments.extend(self.probe.masked_arguments);
        host.sysctls.extend(self.probe.sysctls);
        host.modules.extend(self.probe.modules);
        host.packages.extend(self.probe.packages);
        host.hashed_files.extend(self.probe.hashed_files);
        for class in &self.probe.disabled {
            let class = class.parse().map_err(invalid("probe.disabled"))?;
            host.disabled.insert(class);
        }
        for class in &self.probe.also {
            let class = class.parse().map_err(invalid("probe.also"))?;
            host.also.insert(class);
        }
        let mut settings = Settings::new(node, self.listen, self.data_dir, host);
        settings.control = resolve("control", &self.control)?;
        if let Some(join) = &self.join {
            settings.quorum = resolve("join.quorum", &join.quorum)?;
            settings.join = match join.read_token() {
                Ok(token) => Some(JoinSettings {
                    token,
                    replace: join.replace,
                }),
                Err(_) if is_enrolled => None,
                Err(error) => return Err(error),
            };
        }
        settings.topology_group = self.topology.group;
        let seeds = resolve("gossip.seeds", &self.gossip.seeds)?;
        settings.gossip = GossipSettings {
            cell: match self.gossip.cell {
                Some(cell) => Some(cell.parse().map_err(invalid("gossip.cell"))?),
                None => None,
            },
            seeds: seeds.into_iter().map(|addr| (addr, Role::Agent)).collect(),
            interval: self.gossip.interval_ms.map(Duration::from_millis),
            advertise: self.advertise,
        };
        settings.probe.interval = Duration::from_secs(self.probe.interval_s);
        settings.probe.confirm_after = Duration::from_secs(self.probe.confirm_after_s);
        if let Some(listen) = self.probe.device_events {
            settings.probe.device_events = listen;
        }
        self.health.apply(&mut settings.health)?;
        settings.executor = self.executor.into_settings();
        Ok(settings)
    }
}

impl Join {
    fn read_token(&self) -> Result<JoinToken, ConfigError> {
        let text = match (&self.token, &self.token_file) {
            (Some(text), _) => text.clone(),
            (None, Some(path)) => match std::fs::read_to_string(path) {
                Ok(text) => SecretString::from(text),
                Err(source) => {
                    let path = path.clone();
                    return Err(ConfigError::TokenFile { path, source });
                }
            },
            (None, None) => return Err(invalid("join")("there is no token")),
        };
        let key = || match (&self.token, &self.token_file) {
            (None, Some(path)) => format!("join.token_file: {}", path.display()),
            _ => "join.token".to_owned(),
        };
        let token = text.expose_secret().trim().parse();
        token.map_err(|source| ConfigError::Token { key: key(), source })
    }
}

impl NvmlConfig {
    fn source(self) -> NvmlSource {
        match (self.source, self.file) {
            (NvmlMode::Recorded, Some(file)) => NvmlSource::Recorded(file),
            (NvmlMode::Driver, _) => {
                NvmlSource::child(crate::executor::OWN_PROGRAM, self.library.as_deref())
            }
            (NvmlMode::Recorded | NvmlMode::Disabled, _) => NvmlSource::Disabled,
        }
    }
}

fn short_host_name() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
