//! The daemon's configuration as a file has it, and the checked settings it becomes.

mod oidc;
pub(crate) mod scheduling;

use crate::{decisions::KEEP_BYTES, timings::Timings};
use lattice_accounting::config::AccountingConfig;
use lattice_config::{Check, Problems};
use lattice_gossip::{CellName, Seed};
use lattice_mesh::{MeshConfig, Role};
use lattice_quorum_types::{VclusterName, wire::MAX_REQUEST_BYTES};
pub use oidc::OidcConfig;
pub use scheduling::SchedulingConfig;
use serde::Deserialize;
use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};

/// The hot state of a large cluster is one reply of a quorum member. Agents are held to much less
/// ([`MeshConfig::max_agent_reply_bytes`]).
const MAX_REPLY_BYTES: usize = 256 << 20;

/// The configuration file.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    /// The cluster's name, as in every certificate.
    pub cluster: String,
    /// UDP address of the mesh.
    pub listen: String,
    /// Where agents reach this control, when it is not `listen`.
    pub advertise: Option<String>,
    /// Folder with `identity.pem`, `identity.key` and `roots.pem`; the certificate is
    /// `spiffe://<cluster>/control/<name>`.
    pub credentials: PathBuf,
    /// How to become a member, while `credentials` holds no certificate.
    pub join: Option<JoinConfig>,
    /// Folder for what this control keeps of the nodes' history. Without one it is kept in memory,
    /// and read anew from the agents after a restart.
    pub data_dir: Option<PathBuf>,
    /// What is kept of what schedulers were told and decided.
    #[serde(default)]
    pub decisions: DecisionsConfig,
    /// Mesh addresses of the quorum members.
    pub quorum: Vec<String>,
    /// Gossip cells to join.
    pub cells: Vec<CellConfig>,
    /// The interfaces for people and programs.
    pub https: HttpsConfig,
    /// File with tokens of principals.
    pub tokens: PathBuf,
    /// File that names the nodes' BMCs; without one none is read.
    pub bmcs: Option<PathBuf>,
    /// Whether an agent that was enrolled and gossips a whole reading becomes a node by itself.
    #[serde(default)]
    pub auto_register: bool,
    /// The vCluster of nodes that register by themselves.
    #[serde(default = "default_vcluster")]
    pub vcluster: String,
    /// What becomes of work on nodes that are gone.
    #[serde(default)]
    pub node_loss: NodeLossConfig,
    /// Where placement learns what neither the quorum nor the nodes tell.
    #[serde(default)]
    pub scheduling: SchedulingConfig,
    /// Which accounting system is told what was used; none when left out.
    #[serde(default)]
    pub accounting: AccountingConfig,
    /// What is logged, e.g. `info` or `info,lattice_mesh=debug`.
    #[serde(default = "default_log")]
    pub log: String,
}

/// How to enrol.
#[derive(Debug, Clone, Deserialize)]
pub struct JoinConfig {
    /// This control's name.
    pub name: String,
    /// File with a join token for the role `control`.
    pub token: PathBuf,
    /// Take over a name that is enrolled already.
    #[serde(default)]
    pub replace: bool,
}

/// What is kept of what schedulers were told and decided, in `data_dir`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct DecisionsConfig {
    /// The oldest goes when all together takes more MiB than this. 0: nothing is kept.
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
    /// Its name.
    pub name: String,
    /// Mesh addresses of some of its agents. None is needed where agents name this control.
    #[serde(default)]
    pub seeds: Vec<String>,
}

/// The interfaces for people and programs: one TLS port.
#[derive(Debug, Clone, Deserialize)]
pub struct HttpsConfig {
    /// TCP address.
    pub listen: String,
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Who signs tokens that are taken beside those of the file.
    pub oidc: Option<OidcConfig>,
}

/// What becomes of work on nodes that are gone.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct NodeLossConfig {
    /// Seconds for which a node is unreachable before the allocation that holds it is stopped: its
    /// other ranks are ended, and it waits again or fails, as it says itself, once the processes on
    /// the lost node are known to be gone. 0: never.
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

impl Check for Config {
    fn check(&self, problems: &mut Problems) {
        if let Err(e) = lattice_mesh::Identity::new(&self.cluster, Role::Control, "c") {
            problems.add("cluster", e.reason);
        }
        problems.check_address("listen", &self.listen);
        if let Err(error) = lattice_config::log::filter("", &self.log) {
            problems.add("log", error);
        }
        problems.check_address("https.listen", &self.https.listen);
        if let Some(oidc) = &self.https.oidc {
            problems.within("https.oidc", |problems| oidc.check(problems));
        }
        if let Some(advertise) = &self.advertise {
            problems.check_address("advertise", advertise);
        }
        let listens_anywhere =
            |addr: SocketAddr| addr.ip().is_unspecified() && self.advertise.is_none();
        if self.listen.parse().is_ok_and(listens_anywhere) {
            let text = "must be given where `listen` names no address that agents can reach";
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
        problems.within("scheduling", |problems| self.scheduling.check(problems));
        problems.within("accounting", |problems| self.accounting.check(problems));
        let mut names = BTreeSet::new();
        for (i, cell) in self.cells.iter().enumerate() {
            problems.within(format!("cells.{i}"), |problems| {
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
}

impl Config {
    /// The settings of a configuration that was checked.
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
        settings.scheduling = self.scheduling.clone();
        settings.accounting = self.accounting.settings();
        Some(settings)
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
    /// The cluster's name.
    pub cluster: String,
    /// UDP address of the mesh; port 0 takes any.
    pub listen: SocketAddr,
    /// Where agents reach this control; `None` is where it listens.
    pub advertise: Option<SocketAddr>,
    /// TCP address of the interfaces; port 0 takes any.
    pub https: SocketAddr,
    /// Who signs tokens, beside those of the file; `None`: nobody.
    pub oidc: Option<OidcConfig>,
    /// Folder of the identity, where renewed certificates and trust are kept; `None` keeps them in
    /// memory alone.
    pub credentials: Option<PathBuf>,
    /// Folder of the nodes' history; `None` keeps it in memory.
    pub data_dir: Option<PathBuf>,
    /// How much is kept of what schedulers were told and decided; 0: nothing.
    pub decisions_keep_bytes: u64,
    /// File that names the nodes' BMCs; `None`: none is read.
    pub bmcs: Option<PathBuf>,
    /// Mesh addresses of the quorum members.
    pub quorum: Vec<SocketAddr>,
    /// Gossip cells to join.
    pub cells: Vec<CellSettings>,
    /// Whether agents register by themselves.
    pub auto_register: bool,
    /// The vCluster of nodes that do.
    pub vcluster: VclusterName,
    /// Between two rounds of gossip; `None` is the usual pace.
    pub gossip_interval: Option<Duration>,
    /// How long a node is unreachable before what it runs is stopped; `None`: for ever.
    pub stop_lost_after: Option<Duration>,
    /// Where placement learns what neither the quorum nor the nodes tell.
    pub scheduling: SchedulingConfig,
    /// Which accounting system is told what was used; `None`: nothing of accounting runs.
    pub accounting: Option<lattice_accounting::config::Settings>,
    /// How often control looks, and how long it waits before it believes.
    pub timings: Timings,
    /// Limits and deadlines of the mesh endpoint. Its clock is replaced by that of the edges.
    pub mesh: MeshConfig,
}

/// One gossip cell to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellSettings {
    /// Its name.
    pub name: CellName,
    /// Members known beforehand.
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
            scheduling: SchedulingConfig::default(),
            accounting: None,
            timings: Timings::default(),
            mesh,
        }
    }
}

#[cfg(test)]
mod tests;
