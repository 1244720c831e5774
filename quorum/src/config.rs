//! The daemon's configuration as a file has it, and the checked settings it becomes.

use crate::{checkpoint::CheckpointSettings, issuer::EnrolmentSettings, scrub::ScrubSettings};
use lattice_config::{Check, Problems};
use lattice_mesh::{MeshConfig, RateLimit};
use lattice_quorum_types::{NodeId, VoterId, hostlist, wire::MAX_REQUEST_BYTES};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

/// The hot state of a large cluster is one reply.
const MAX_REPLY_BYTES: usize = 256 << 20;
/// A day.
const DAY: Duration = Duration::from_secs(86_400);
/// Longest a certificate may hold: longer ones are not looked after by anybody.
const MAX_LIFETIME: Duration = DAY.saturating_mul(825);
/// Shortest: a third of it is all the time there is for the renewal.
const MIN_LIFETIME: Duration = Duration::from_secs(30);
/// Entries between two checkpoints of the audit: what is behind the last one is not proven yet.
const CHECKPOINT_ENTRIES: std::ops::RangeInclusive<u64> = 1..=1000;
/// The same in time.
const CHECKPOINT_AFTER: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=DAY;

/// The configuration file.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    /// The cluster's name, as in every certificate.
    pub cluster: String,
    /// This member's number, from 1; its certificate is `spiffe://<cluster>/quorum/<id>`.
    pub id: VoterId,
    /// UDP address to listen on.
    pub listen: String,
    /// Where log and snapshots are kept.
    pub data_dir: PathBuf,
    /// Folder with `identity.pem`, `identity.key` and `roots.pem`.
    pub credentials: PathBuf,
    /// All members, this one included. They found the quorum at the first start; later only the
    /// addresses count.
    pub members: Vec<MemberConfig>,
    /// This member joins a quorum that exists (`lattice admin quorum add`) and founds nothing.
    #[serde(default)]
    pub join: bool,
    /// Enrolment of other processes.
    #[serde(default)]
    pub enrolment: EnrolmentConfig,
    /// How often the audit is signed without being asked.
    #[serde(default)]
    pub audit: AuditConfig,
    /// Log entries between two snapshots.
    #[serde(default = "default_snapshot_every")]
    pub snapshot_every: u64,
    /// What is logged, e.g. `info` or `info,lattice_mesh=debug`.
    #[serde(default = "default_log")]
    pub log: String,
}

/// One member.
#[derive(Debug, Clone, Deserialize)]
pub struct MemberConfig {
    /// Its number.
    pub id: VoterId,
    /// Its mesh address, `ip:port`.
    pub addr: String,
}

/// Enrolment of other processes.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct EnrolmentConfig {
    /// Folder with `ca.pem` and `ca.key`, and, for a rotation, folders in it with those of further
    /// authorities. Without it this member issues nothing.
    pub authority: Option<PathBuf>,
    /// How long certificates hold, e.g. `30d`, `12h`, `10m`, `90s`. Everybody renews at 2/3 of it.
    pub lifetime: Option<String>,
    /// Gossip cell of agents that no cell names.
    pub default_cell: String,
    /// Gossip cells and their nodes.
    pub cells: Vec<CellConfig>,
    /// Enrolments one address may make at once.
    pub burst: u32,
    /// Enrolments one address may make in the long run.
    pub per_second: f64,
}

/// How often the audit is signed without being asked. The leader's settings hold.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct AuditConfig {
    /// After so many entries that are not covered.
    pub checkpoint_entries: u64,
    /// Where the first entry that is not covered is so old, e.g. `10m`.
    pub checkpoint_after: String,
}

impl Default for AuditConfig {
    fn default() -> Self {
        let default = CheckpointSettings::default();
        Self {
            checkpoint_entries: default.entries,
            checkpoint_after: format!("{}s", default.after.as_secs()),
        }
    }
}

impl AuditConfig {
    fn settings(&self) -> Option<CheckpointSettings> {
        let after = duration(&self.checkpoint_after)?;
        let is_within = CHECKPOINT_ENTRIES.contains(&self.checkpoint_entries)
            && CHECKPOINT_AFTER.contains(&after);
        is_within.then_some(CheckpointSettings {
            entries: self.checkpoint_entries,
            after,
        })
    }

    fn check(&self, problems: &mut Problems) {
        if !CHECKPOINT_ENTRIES.contains(&self.checkpoint_entries) {
            problems.add("checkpoint_entries", "must be between 1 and 1000");
        }
        let after = duration(&self.checkpoint_after);
        if !after.is_some_and(|after| CHECKPOINT_AFTER.contains(&after)) {
            let text = "must be like 10m, 90s or 1h, between 1s and 1d";
            problems.add("checkpoint_after", text);
        }
    }
}

/// One gossip cell.
#[derive(Debug, Clone, Deserialize)]
pub struct CellConfig {
    /// Its name.
    pub name: String,
    /// Its nodes, as a hostlist.
    pub nodes: String,
}

impl Default for EnrolmentConfig {
    fn default() -> Self {
        let rate = MeshConfig::default().enrol_rate;
        Self {
            authority: None,
            lifetime: None,
            default_cell: "cell-0".to_owned(),
            cells: Vec::new(),
            burst: rate.burst,
            per_second: rate.per_second,
        }
    }
}

fn default_snapshot_every() -> u64 {
    5000
}
fn default_log() -> String {
    "info".to_owned()
}

impl Check for Config {
    fn check(&self, problems: &mut Problems) {
        if let Err(e) =
            lattice_mesh::Identity::new(self.cluster.as_str(), lattice_mesh::Role::Quorum, "1")
        {
            problems.add("cluster", e.reason);
        }
        if self.id == 0 {
            problems.add("id", "must be at least 1");
        }
        problems.check_address("listen", &self.listen);
        if let Err(error) = lattice_config::log::filter("", &self.log) {
            problems.add("log", error);
        }
        if self.snapshot_every < 100 {
            problems.add("snapshot_every", "must be at least 100 log entries");
        }
        self.check_members(problems);
        problems.within("enrolment", |problems| self.enrolment.check(problems));
        problems.within("audit", |problems| self.audit.check(problems));
    }
}

impl Config {
    fn check_members(&self, problems: &mut Problems) {
        let mut ids = BTreeSet::new();
        let mut addrs = BTreeMap::new();
        for (i, member) in self.members.iter().enumerate() {
            if !ids.insert(member.id) {
                let text = format!("member {} is listed twice", member.id);
                problems.add(format!("members.{i}.id"), text);
            }
            problems.check_address(format!("members.{i}.addr"), &member.addr);
            let Ok(addr) = member.addr.parse::<SocketAddr>() else {
                continue;
            };
            if let Some(other) = addrs.insert(addr, member.id) {
                let text = format!("{addr} is the address of member {other} already");
                problems.add(format!("members.{i}.addr"), text);
            }
        }
        if !ids.contains(&self.id) {
            let text = format!("must list this member, {}, as well", self.id);
            problems.add("members", text);
        }
        if self.join && ids.len() < 2 {
            let text = "`join: true` needs a member that exists as well, to be found by";
            problems.add("members", text);
        }
        if ids.len() % 2 == 0 && !ids.is_empty() && !self.join {
            let text = format!(
                "{} members survive no more failures than {}; list 1, 3 or 5",
                ids.len(),
                ids.len() - 1
            );
            problems.add("members", text);
        }
    }

    /// The settings of a configuration that was checked.
    pub fn settings(&self) -> Option<Settings> {
        let members: Option<BTreeMap<_, _>> = self
            .members
            .iter()
            .map(|m| Some((m.id, m.addr.parse().ok()?)))
            .collect();
        let mut settings = Settings::new(
            &self.cluster,
            self.id,
            self.listen.parse().ok()?,
            self.data_dir.clone(),
        );
        settings.members = members?;
        settings.join = self.join;
        settings.credentials = Some(self.credentials.clone());
        settings.snapshot_every = self.snapshot_every;
        settings.mesh.enrol_rate = RateLimit {
            burst: self.enrolment.burst,
            per_second: self.enrolment.per_second,
        };
        settings.enrolment = EnrolmentSettings {
            lifetime: self.enrolment.lifetime()?,
            default_cell: self.enrolment.default_cell.clone(),
            cells: self.enrolment.cells()?,
        };
        settings.checkpoints = self.audit.settings()?;
        settings.scrub = Some(ScrubSettings::default());
        Some(settings)
    }
}

/// A whole number with its unit: `30s`, `10m`, `12h`, `30d`.
fn duration(text: &str) -> Option<Duration> {
    let unit = match text.chars().last()? {
        's' => Duration::from_secs(1),
        'm' => Duration::from_secs(60),
        'h' => Duration::from_secs(3600),
        'd' => DAY,
        _ => return None,
    };
    let digits = text.get(..text.len() - 1)?;
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    unit.checked_mul(digits.parse().ok().filter(|_| is_number)?)
}

impl EnrolmentConfig {
    /// How long certificates hold; `None` when what is configured is not a lifetime.
    fn lifetime(&self) -> Option<Duration> {
        let lifetime = match &self.lifetime {
            None => EnrolmentSettings::default().lifetime,
            Some(text) => duration(text)?,
        };
        (MIN_LIFETIME..=MAX_LIFETIME)
            .contains(&lifetime)
            .then_some(lifetime)
    }

    fn check(&self, problems: &mut Problems) {
        if self.lifetime().is_none() {
            let text = "must be like 30d, 12h, 10m or 90s, between 30s and 825d";
            problems.add("lifetime", text);
        }
        if self.burst == 0 {
            problems.add("burst", "must be at least 1");
        }
        if !(self.per_second.is_finite() && self.per_second > 0.0) {
            problems.add("per_second", "must be above 0");
        }
        let mut seen: BTreeMap<NodeId, &str> = BTreeMap::new();
        for (i, cell) in self.cells.iter().enumerate() {
            let key = format!("cells.{i}.nodes");
            match hostlist::expand(&cell.nodes) {
                Err(e) => problems.add(key, e),
                Ok(nodes) => {
                    for node in nodes {
                        if let Some(other) = seen.insert(node.clone(), &cell.name) {
                            problems.add(&key, format!("{node} is in cell {other} already"));
                        }
                    }
                }
            }
        }
    }

    fn cells(&self) -> Option<BTreeMap<NodeId, String>> {
        let mut cells = BTreeMap::new();
        for cell in &self.cells {
            let nodes = hostlist::expand(&cell.nodes).ok()?;
            cells.extend(nodes.into_iter().map(|node| (node, cell.name.clone())));
        }
        Some(cells)
    }
}

/// Checked settings of one member.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster's name.
    pub cluster: String,
    /// This member's number.
    pub id: VoterId,
    /// UDP address to listen on; port 0 takes any.
    pub listen: SocketAddr,
    /// Where log and snapshots are kept.
    pub data_dir: PathBuf,
    /// All members; see [`crate::App::start`].
    pub members: BTreeMap<VoterId, SocketAddr>,
    /// It joins a quorum that exists, and founds nothing.
    pub join: bool,
    /// Log entries between two snapshots.
    pub snapshot_every: u64,
    /// Folder of this member's identity: renewed certificates and trust bundles are saved there.
    /// `None` keeps them in memory alone.
    pub credentials: Option<PathBuf>,
    /// What the enrolled get.
    pub enrolment: EnrolmentSettings,
    /// How often the audit is signed without being asked.
    pub checkpoints: CheckpointSettings,
    /// How often segments are read of themselves; `None`: only when they are asked for.
    pub scrub: Option<ScrubSettings>,
    /// Limits and deadlines of the mesh endpoint. Its clock is replaced by that of the edges.
    pub mesh: MeshConfig,
}

impl Settings {
    /// Settings with defaults for the rest.
    pub fn new(cluster: &str, id: VoterId, listen: SocketAddr, data_dir: PathBuf) -> Self {
        let mesh = MeshConfig {
            max_request_bytes: MAX_REQUEST_BYTES,
            max_reply_bytes: MAX_REPLY_BYTES,
            ..MeshConfig::default()
        };
        Self {
            cluster: cluster.to_owned(),
            id,
            listen,
            data_dir,
            members: BTreeMap::new(),
            join: false,
            snapshot_every: default_snapshot_every(),
            credentials: None,
            enrolment: EnrolmentSettings::default(),
            checkpoints: CheckpointSettings::default(),
            scrub: None,
            mesh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(text: &str) -> Option<u64> {
        let config = EnrolmentConfig {
            lifetime: Some(text.to_owned()),
            ..EnrolmentConfig::default()
        };
        config.lifetime().map(|lifetime| lifetime.as_secs())
    }

    #[test]
    fn lifetimes_are_numbers_with_a_unit_within_bounds() {
        assert_eq!(lifetime("30s"), Some(30));
        assert_eq!(lifetime("10m"), Some(600));
        assert_eq!(lifetime("12h"), Some(43_200));
        assert_eq!(lifetime("825d"), Some(825 * 86_400));
        for bad in [
            "",
            "s",
            "30",
            "29s",
            "826d",
            "1y",
            "1.5h",
            "-1d",
            "+1d",
            " 1d",
            "1\u{b5}",
            "0d",
            "99999999999999999999d",
            "4294967295d",
        ] {
            assert_eq!(lifetime(bad), None, "{bad:?}");
        }
    }
}
