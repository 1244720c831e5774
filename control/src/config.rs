//! Configuration file of control, and the checked settings derived from it.

use crate::tls::HttpsFiles;
use lattice_config::Problems;
use lattice_engine::{SchedulingConfig, Timings, decisions::KEEP_BYTES};
use lattice_gossip::{CellName, Seed};
use lattice_http::OidcConfig;
use lattice_mesh::{MeshConfig, Role};
use lattice_quorum_types::{VclusterName, spec::OutputFiles, wire::MAX_REQUEST_BYTES};
use lattice_waldur::config::AccountingConfig;
use serde::Deserialize;
use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};

/// Maximum reply size. The hot state of a large cluster is one reply of a quorum member. Agents have a much lower limit
/// ([`MeshConfig::max_agent_reply_bytes`]).
const MAX_REPLY_BYTES: usize = 256 << 20;

/// Configuration file of control.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    /// Cluster name, as in every certificate.
    pub cluster: String,
    /// UDP address of the mesh.
    pub listen: String,
    /// Address at which agents reach this control, when it differs from `listen`.
    pub advertise: Option<String>,
    /// Folder with `identity.pem`, `identity.key` and `roots.pem`; the certificate is
    /// `spiffe://<cluster>/control/<name>`.
    pub credentials: PathBuf,
    /// Enrolment settings, used while `credentials` holds no certificate or an expired one.
    pub join: Option<JoinConfig>,
    /// Folder for data that this control keeps, such as the nodes' history. Without a folder, the history is kept in
    /// memory and read again from the agents after a restart.
    pub data_dir: Option<PathBuf>,
    /// Retention of the schedulers' inputs and decisions.
    #[serde(default)]
    pub decisions: DecisionsConfig,
    /// Mesh addresses of the quorum members.
    pub quorum: Vec<String>,
    /// Gossip cells to join.
    pub cells: Vec<CellConfig>,
    /// HTTPS interfaces for users and programs.
    pub https: HttpsConfig,
    /// File with the tokens of principals.
    pub tokens: PathBuf,
    /// File that lists the nodes' BMCs; without this file, no BMC is read.
    pub bmcs: Option<PathBuf>,
    /// Whether an enrolled agent that publishes a complete reading is registered as a node automatically.
    #[serde(default)]
    pub auto_register: bool,
    /// vCluster of automatically registered nodes.
    #[serde(default = "default_vcluster")]
    pub vcluster: String,
    /// Handling of allocations on lost nodes.
    #[serde(default)]
    pub node_loss: NodeLossConfig,
    /// Default of `--output` and `--error`, such as `lattice-%j.out`, relative to the working directory of the job.
    /// Without it, the nodes keep the output. The same on every control.
    pub default_output: Option<String>,
    /// Sources of scheduling inputs, checkpoint directory, and limits of DAGs and of the budget period.
    #[serde(default)]
    pub scheduling: SchedulingConfig,
    /// Accounting system that receives usage; without this section, none does.
    #[serde(default)]
    pub accounting: AccountingConfig,
    /// Log filter, such as `info` or `info,lattice_mesh=debug`.
    #[serde(default = "default_log")]
    pub log: String,
}

/// Enrolment settings.
#[derive(Debug, Clone, Deserialize)]
pub struct JoinConfig {
    /// Name of this control.
    pub name: String,
    /// File with a join token for the role `control`.
    pub token: PathBuf,
    /// Whether to take over a name that is already enrolled.
    #[serde(default)]
    pub replace: bool,
}

/// Retention of the schedulers' inputs and decisions in `data_dir`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct DecisionsConfig {
    /// Maximum total size in MiB; the oldest records are deleted beyond it. 0 keeps nothing.
    pub keep_mib: u64,
}

impl Default for DecisionsConfig {
    fn default() -> Self {
        Self {
            keep_mib: KEEP_BYTES >> 20,
        }
    }
}

/// One gossip cell.
#[derive(Debug, Clone, Deserialize)]
pub struct CellConfig {
    /// Cell name.
    pub name: String,
    /// Mesh addresses of some agents of the cell. May be empty if agents list this control as their seed.
    #[serde(default)]
    pub seeds: Vec<String>,
}

/// HTTPS interfaces for users and programs: one TLS port.
#[derive(Debug, Clone, Deserialize)]
pub struct HttpsConfig {
    /// TCP address.
    pub listen: String,
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Private key of the certificate, PEM; other users must not be able to read it.
    pub key: PathBuf,
    /// OIDC issuer of tokens that are accepted in addition to those of the file.
    pub oidc: Option<OidcConfig>,
}

/// Handling of allocations on lost nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct NodeLossConfig {
    /// Seconds for which a node is unreachable before its allocation is stopped. The other ranks are ended. Once the
    /// processes on the lost node are confirmed gone, the allocation is requeued or fails, as its own setting requires.
    /// 0: never.
    pub stop_after_s: u64,
}

impl Default for NodeLossConfig {
    fn default() -> Self {
        Self { stop_after_s: 600 }
    }
}

impl NodeLossConfig {
    fn stop_after(&self) -> Option<Duration> {
        (self.stop_after_s > 0).then(|| Duration::from_secs(self.stop_after_s))
    }
}

fn default_vcluster() -> String {
    "default".to_owned()
}
fn default_log() -> String {
    "info".to_owned()
}

impl Config {
    /// Adds each invalid value to `problems`.
    pub(crate) fn check_values(&self, problems: &mut Problems) {
        if let Err(e) = lattice_mesh::Identity::new(&self.cluster, Role::Control, "c") {
            problems.add("cluster", e.reason);
        }
        problems.check_address("listen", &self.listen);
        if let Err(error) = lattice_config::log::filter("", &self.log) {
            problems.add("log", error);
        }
        problems.check_address("https.listen", &self.https.listen);
        if let Some(oidc) = &self.https.oidc {
            problems.check_part("https.oidc", |problems| oidc.check(problems));
        }
        if let Some(advertise) = &self.advertise {
            problems.check_address("advertise", advertise);
        }
        let listens_anywhere =
            |addr: SocketAddr| addr.ip().is_unspecified() && self.advertise.is_none();
        if self.listen.parse().is_ok_and(listens_anywhere) {
            let text =
                "must be set, because `listen` is a wildcard address that agents cannot reach";
            problems.add("advertise", text);
        }
        if self.quorum.is_empty() {
            problems.add(
                "quorum",
                "must list the mesh address of at least one member",
            );
        }
        for (i, addr) in self.quorum.iter().enumerate() {
            problems.check_address(format!("quorum.{i}"), addr);
        }
        if let Err(e) = VclusterName::new(&self.vcluster) {
            problems.add("vcluster", e);
        }
        if let Some(join) = &self.join
            && let Err(e) = lattice_mesh::Identity::new("c", Role::Control, &join.name)
        {
            problems.add("join.name", e.reason);
        }
        if let Some(pattern) = &self.default_output
            && let Err(error) = OutputFiles::check_default(pattern)
        {
            problems.add("default_output", error);
        }
        problems.check_part("scheduling", |problems| self.scheduling.check(problems));
        problems.check_part("accounting", |problems| self.accounting.check(problems));
        let mut names = BTreeSet::new();
        for (i, cell) in self.cells.iter().enumerate() {
            problems.check_part(format!("cells.{i}"), |problems| {
                if let Err(e) = cell.name.parse::<CellName>() {
                    problems.add("name", e);
                }
                if !names.insert(&cell.name) {
                    problems.add("name", format!("cell {} is listed twice", cell.name));
                }
                for (i, seed) in cell.seeds.iter().enumerate() {
                    problems.check_address(format!("seeds.{i}"), seed);
                }
            });
        }
    }

    /// Settings of a checked configuration; `None` if a value is invalid.
    pub fn settings(&self) -> Option<Settings> {
        let mut settings = Settings::new(
            &self.cluster,
            self.listen.parse().ok()?,
            self.https.listen.parse().ok()?,
        );
        settings.advertise = match &self.advertise {
            Some(advertise) => Some(advertise.parse().ok()?),
            None => None,
        };
        settings.https_files = Some(self.https.files());
        settings.oidc.clone_from(&self.https.oidc);
        settings.credentials = Some(self.credentials.clone());
        settings.data_dir.clone_from(&self.data_dir);
        settings.decisions_keep_bytes = self.decisions.keep_mib.saturating_mul(1 << 20);
        settings.bmcs.clone_from(&self.bmcs);
        let members = self.quorum.iter().map(|addr| addr.parse().ok());
        settings.quorum = members.collect::<Option<_>>()?;
        let cells = self.cells.iter().map(CellConfig::settings);
        settings.cells = cells.collect::<Option<_>>()?;
        settings.auto_register = self.auto_register;
        settings.vcluster = VclusterName::new(&self.vcluster).ok()?;
        settings.stop_lost_after = self.node_loss.stop_after();
        settings.default_output.clone_from(&self.default_output);
        settings.scheduling = self.scheduling.clone();
        settings.accounting = self.accounting.settings();
        Some(settings)
    }
}

impl HttpsConfig {
    /// Files of the certificate and the key.
    pub fn files(&self) -> HttpsFiles {
        HttpsFiles {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
        }
    }
}

impl CellConfig {
    fn settings(&self) -> Option<CellSettings> {
        let seed = |addr: &String| {
            Some(Seed {
                addr: addr.parse().ok()?,
                role: Role::Agent,
            })
        };
        Some(CellSettings {
            name: self.name.parse().ok()?,
            seeds: self.seeds.iter().map(seed).collect::<Option<_>>()?,
        })
    }
}

/// Checked settings of one control.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Cluster name.
    pub cluster: String,
    /// UDP address of the mesh; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Address at which agents reach this control; `None`: `listen`.
    pub advertise: Option<SocketAddr>,
    /// TCP address of the interfaces; port 0 selects a free port.
    pub https: SocketAddr,
    /// Files of the certificate of the interfaces, which are read again while the control runs; `None`: the certificate
    /// stays as it is.
    pub https_files: Option<HttpsFiles>,
    /// OIDC issuer of tokens that are accepted in addition to those of the file; `None`: no issuer.
    pub oidc: Option<OidcConfig>,
    /// Folder of the identity, where renewed certificates and trust roots are stored; `None` keeps them in memory only.
    pub credentials: Option<PathBuf>,
    /// Folder of the nodes' history, the schedulers' decisions and the last known GPU counts; `None` keeps the history
    /// in memory, and no decisions.
    pub data_dir: Option<PathBuf>,
    /// Maximum size of recorded scheduler inputs and decisions, in bytes; 0 keeps nothing.
    pub decisions_keep_bytes: u64,
    /// File that lists the nodes' BMCs; `None`: no BMC is read.
    pub bmcs: Option<PathBuf>,
    /// Mesh addresses of the quorum members.
    pub quorum: Vec<SocketAddr>,
    /// Gossip cells to join.
    pub cells: Vec<CellSettings>,
    /// Whether agents are registered as nodes automatically.
    pub auto_register: bool,
    /// vCluster of automatically registered nodes.
    pub vcluster: VclusterName,
    /// Interval between two rounds of gossip; `None`: the default interval.
    pub gossip_interval: Option<Duration>,
    /// Time for which a node is unreachable before its allocation is stopped; `None`: never.
    pub stop_lost_after: Option<Duration>,
    /// Default for the output files of requests that name none; `None`: the nodes keep the output.
    pub default_output: Option<String>,
    /// Sources of scheduling inputs, checkpoint directory, and limits of DAGs and of the budget period.
    pub scheduling: SchedulingConfig,
    /// Accounting system that receives usage; `None` disables accounting.
    pub accounting: Option<lattice_waldur::config::AccountingSettings>,
    /// Poll intervals and settling times of control.
    pub timings: Timings,
    /// Limits and deadlines of the mesh endpoint. Its clock is replaced by the clock of [`crate::Edges`].
    pub mesh: MeshConfig,
}

/// One gossip cell to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellSettings {
    /// Cell name.
    pub name: CellName,
    /// Seed members of the cell.
    pub seeds: Vec<Seed>,
}

impl Settings {
    /// Settings without members and cells, with defaults for the rest.
    pub fn new(cluster: &str, listen: SocketAddr, https: SocketAddr) -> Self {
        let mesh = MeshConfig {
            max_request_bytes: MAX_REQUEST_BYTES,
            max_reply_bytes: MAX_REPLY_BYTES,
            ..MeshConfig::default()
        };
        #[expect(clippy::expect_used, reason = "a constant that is a name")]
        let vcluster = VclusterName::new(default_vcluster()).expect("a name");
        Self {
            cluster: cluster.to_owned(),
            listen,
            advertise: None,
            https,
            https_files: None,
            oidc: None,
            credentials: None,
            data_dir: None,
            decisions_keep_bytes: KEEP_BYTES,
            bmcs: None,
            quorum: Vec::new(),
            cells: Vec::new(),
            auto_register: false,
            vcluster,
            gossip_interval: None,
            stop_lost_after: NodeLossConfig::default().stop_after(),
            default_output: None,
            scheduling: SchedulingConfig::default(),
            accounting: None,
            timings: Timings::default(),
            mesh,
        }
    }
}

#[cfg(test)]
mod scheduling_tests;
#[cfg(test)]
mod tests;
