//! Configuration file of the agent.
//!
//! Every key can also be set by the environment (`LATTICE_EXECUTOR__ALLOW_SAME_USER=true`).

mod executor;
mod files;
mod health;
mod online;

pub use executor::{ExecutorConfig, HookConfig, HooksConfig};
pub use health::HealthConfig;
pub use online::check_online;

use crate::data_dir::DataDir;
use crate::settings::{CONFIRM_AFTER, GossipSettings, JoinSettings, PROBE_INTERVAL, Settings};
use lattice_config::{Check, ConfigErrors, Problems};
use lattice_conformance::{Class, health::TableError};
use lattice_gossip::CellName;
use lattice_host::private_file::{self, ExposedFile, PrivateFileError};
use lattice_hwprobe::{Host, NvmlSource};
use lattice_mesh::{InvalidToken, JoinToken, Role};
use lattice_quorum_types::NodeId;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Configuration file as written. Unknown keys are rejected.
#[derive(Debug, Deserialize)]
pub struct Config {
    /// Name of the node; the host's short name when absent.
    #[serde(default)]
    pub node: Option<String>,
    /// UDP address to listen on.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// UDP address that peers use for this agent; required when `listen` is a wildcard address.
    #[serde(default)]
    pub advertise: Option<SocketAddr>,
    /// Data directory of the agent.
    #[serde(default = "default_data_dir")]
    pub data_dir: PathBuf,
    /// Mesh addresses (`host:port`) of the controls.
    #[serde(default)]
    pub control: Vec<String>,
    /// Enrolment.
    #[serde(default)]
    pub join: Option<Join>,
    /// Position of the node in the network.
    #[serde(default)]
    pub topology: Topology,
    /// Gossip settings.
    #[serde(default)]
    pub gossip: GossipConfig,
    /// Probe settings.
    #[serde(default)]
    pub probe: ProbeConfig,
    /// Health check settings.
    #[serde(default)]
    pub health: HealthConfig,
    /// Execution of jobs.
    #[serde(default)]
    pub executor: ExecutorConfig,
    /// Log filter, e.g. `info` or `lattice_agent=debug`.
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

/// Section `join`: enrolment.
#[derive(Debug, Deserialize)]
pub struct Join {
    /// File that contains the join token.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// The join token itself. Intended for the environment: a configuration file should not contain the token.
    #[serde(default)]
    pub token: Option<SecretString>,
    /// Mesh addresses (`host:port`) of quorum members.
    #[serde(default)]
    pub quorum: Vec<String>,
    /// Whether to take over this node's name from a previous installation.
    #[serde(default)]
    pub replace: bool,
}

/// Section `topology`: position of the node in the network.
#[derive(Debug, Default, Deserialize)]
pub struct Topology {
    /// Network group (dragonfly group, rack) of the node.
    #[serde(default)]
    pub group: Option<String>,
}

/// Section `gossip`.
#[derive(Debug, Default, Deserialize)]
pub struct GossipConfig {
    /// Name of the gossip cell; the cell assigned at enrolment when absent.
    #[serde(default)]
    pub cell: Option<String>,
    /// Addresses (`host:port`) of agents to contact in addition to the controls.
    #[serde(default)]
    pub seeds: Vec<String>,
    /// Milliseconds between two gossip rounds, 50 to 60000.
    #[serde(default)]
    pub interval_ms: Option<u64>,
}

/// Section `probe`.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub struct ProbeConfig {
    /// Mean seconds between two reads: each node spreads its own interval by a tenth.
    pub interval_s: u64,
    /// Seconds until a detected difference is read a second time.
    pub confirm_after_s: u64,
    /// Root of the tree that contains `/proc` and `/sys`.
    pub root: PathBuf,
    /// Whether a device event of the kernel triggers a read. Default: true where `root` is `/`.
    pub device_events: Option<bool>,
    /// Access to the GPU driver.
    pub nvml: NvmlConfig,
    /// Conformance classes that are not read.
    pub disabled: Vec<String>,
    /// Optional conformance classes to read: these are not read by default (optics).
    pub also: Vec<String>,
    /// Additional kernel arguments of which only the presence is compared, not the value; `*` at the end matches any
    /// rest.
    pub masked_arguments: Vec<String>,
    /// Additional sysctls to compare, as paths below `/proc/sys`.
    pub sysctls: Vec<String>,
    /// Additional kernel modules to compare; `*` at the end matches any rest.
    pub modules: Vec<String>,
    /// Additional packages to compare; `*` matches any text.
    pub packages: Vec<String>,
    /// Configuration files to compare by their hash; the content never leaves the node.
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

/// Section `probe.nvml`: access to the GPU driver.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NvmlConfig {
    /// Source of the GPU driver's answers.
    pub source: NvmlMode,
    /// NVML library to load in place of the system's `libnvidia-ml.so.1`.
    pub library: Option<PathBuf>,
    /// Captured report; required for `recorded`.
    pub file: Option<PathBuf>,
}

/// Value of `probe.nvml.source`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NvmlMode {
    /// Query the driver, in a child process.
    #[default]
    Driver,
    /// Read a captured report.
    Recorded,
    /// Query no driver.
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
            let text =
                "is required when `listen` is a wildcard address: peers need a reachable one";
            problems.add("advertise", text);
        }
        check_addresses(problems, "control", &self.control);
        if let Some(join) = &self.join {
            problems.check_part("join", |problems| join.check(problems));
        }
        problems.check_part("gossip", |problems| self.gossip.check(problems));
        problems.check_part("probe", |problems| self.probe.check(problems));
        problems.check_part("health", |problems| self.health.check(problems));
        problems.check_part("executor", |problems| self.executor.check(problems));
        if let Err(error) = lattice_config::log::filter("", &self.log) {
            problems.add("log", error);
        }
    }

    fn check_files(&self, problems: &mut Problems) {
        self.add_file_mistakes(problems);
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

/// Checks the syntax only: no resolver is queried.
fn is_host_and_port(text: &str) -> bool {
    let is_name = |host: &str| !host.is_empty() && !host.contains([':', '/', ' ', '[', ']']);
    let parts = text.rsplit_once(':');
    text.parse::<SocketAddr>().is_ok()
        || parts.is_some_and(|(host, port)| is_name(host) && port.parse::<u16>().is_ok())
}

impl Check for Join {
    fn check(&self, problems: &mut Problems) {
        match (&self.token_file, &self.token) {
            (None, None) => problems.add(
                "token_file",
                "is missing: set it to the file with the join token",
            ),
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
            problems.add("nvml.file", "is required when nvml.source is recorded");
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

/// Error of a well-formed configuration that this host cannot use at present.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A name does not resolve to an address.
    #[error("{key}: {name} does not resolve to an address; give it as host:port")]
    NoAddress {
        /// Configuration key.
        key: &'static str,
        /// Name that does not resolve.
        name: String,
        /// Error of the resolver, if it returned one.
        source: Option<std::io::Error>,
    },
    /// The token file cannot be read.
    #[error("join.token_file: {}", path.display())]
    TokenFile {
        /// Path of the token file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Other users of this host can read the token file.
    #[error(
        "join.token_file: {0}; any user that can read the file can enrol a node with its token"
    )]
    TokenExposed(ExposedFile),
    /// The token text is not a valid join token.
    #[error("{key}")]
    Token {
        /// Configuration key, with the path if the token comes from a file.
        key: String,
        /// Error of the token parser.
        source: InvalidToken,
    },
    /// The site's health table cannot be read, or has mistakes.
    #[error("health.table")]
    HealthTable {
        /// Path of the health table.
        path: PathBuf,
        /// All mistakes.
        source: ConfigErrors,
    },
    /// The shipped health table cannot be used.
    #[error("shipped health table")]
    ShippedHealthTable(#[from] TableError),
    /// The host name is not a valid node name, or the configuration has a value that [`Check`] rejects. The second case
    /// does not occur with a configuration from [`lattice_config::load`].
    #[error("{key}: {reason}")]
    Invalid {
        /// Configuration key.
        key: &'static str,
        /// Reason of the rejection.
        reason: String,
    },
}

impl ConfigError {
    /// Whether the token file does not exist, as after its removal once the node is enrolled.
    fn is_missing_token(&self) -> bool {
        matches!(self, Self::TokenFile { source, .. } if source.kind() == ErrorKind::NotFound)
    }
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
    /// Resolves names, and reads the join token and the health table; blocks on the resolver and the disk.
    ///
    /// A missing or invalid token is accepted once the node is enrolled; an invalid one is logged. Where the token stays
    /// in place, as on diskless nodes, an agent with an expired certificate enrols again without an operator.
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
                Err(error) if is_enrolled => {
                    if !error.is_missing_token() {
                        let error = crate::with_causes(&error);
                        tracing::warn!(
                            error,
                            "join token unusable; this node is enrolled and keeps its certificate, but \
                             cannot enrol again after its expiry"
                        );
                    }
                    None
                }
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
            (None, Some(path)) => private_file::read(path).map_err(|error| match error {
                PrivateFileError::Unreadable { path, source } => {
                    ConfigError::TokenFile { path, source }
                }
                PrivateFileError::Exposed(exposed) => ConfigError::TokenExposed(exposed),
            })?,
            (None, None) => return Err(invalid("join")("no join token is configured")),
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
