//! Configuration file of the daemon, and the checked settings that it produces.

use crate::{
    audit_signer::AuditSigningSettings, certificates::issuer::EnrolmentSettings,
    segments::scrub::ScrubSettings,
};
use lattice_config::Problems;
use lattice_mesh::{MeshConfig, RateLimit};
use lattice_quorum_types::{NodeId, VoterId, hostlist, wire::MAX_REQUEST_BYTES};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

/// Longest reply, bytes: the complete live state of a large cluster is one reply.
const MAX_REPLY_BYTES: usize = 256 << 20;
/// One day.
const DAY: Duration = Duration::from_secs(86_400);
/// Longest certificate lifetime: certificates with a longer one tend to be left without supervision.
const MAX_LIFETIME: Duration = DAY.saturating_mul(825);
/// Shortest certificate lifetime: renewal must succeed within a third of it.
const MIN_LIFETIME: Duration = Duration::from_secs(30);
/// Range of `checkpoint_entries`: no signature covers the entries after the last signed audit head.
const CHECKPOINT_ENTRIES: std::ops::RangeInclusive<u64> = 1..=1000;
/// Range of `checkpoint_after`.
const CHECKPOINT_AFTER: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=DAY;

/// Configuration file of a quorum member.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    /// Name of the cluster, as in every certificate.
    pub cluster: String,
    /// Number of this member, from 1; its certificate is `spiffe://<cluster>/quorum/<id>`.
    pub id: VoterId,
    /// UDP address to listen on, `ip:port`.
    pub listen: String,
    /// Directory of log, snapshots and segments.
    pub data_dir: PathBuf,
    /// Folder with `identity.pem`, `identity.key` and `roots.pem`.
    pub credentials: PathBuf,
    /// All members, including this one. At the first start they found the quorum; later only their addresses apply.
    pub members: Vec<MemberConfig>,
    /// Whether this member joins an existing quorum (`lattice admin quorum add`) instead of founding one.
    #[serde(default)]
    pub join: bool,
    /// Enrolment of other processes.
    #[serde(default)]
    pub enrolment: EnrolmentConfig,
    /// Intervals of the automatic signed audit heads.
    #[serde(default)]
    pub audit: AuditConfig,
    /// Log entries between two snapshots, at least 100.
    #[serde(default = "default_snapshot_every")]
    pub snapshot_every: u64,
    /// Log filter, such as `info` or `info,lattice_mesh=debug`.
    #[serde(default = "default_log")]
    pub log: String,
}

/// Entry of the list of members.
#[derive(Debug, Clone, Deserialize)]
pub struct MemberConfig {
    /// Number of the member.
    pub id: VoterId,
    /// Mesh address of the member, `ip:port`.
    pub addr: String,
}

/// Enrolment of other processes.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct EnrolmentConfig {
    /// Folder with `ca.pem` and `ca.key`. During a rotation, its subfolders contain those of further authorities.
    /// Without a folder this member issues no certificates.
    pub authority: Option<PathBuf>,
    /// Certificate lifetime, such as `30d`, `12h`, `10m` or `90s`. Every certificate holder renews at
    /// 2/3 of it.
    pub lifetime: Option<String>,
    /// Gossip cell of agents that no cell lists.
    pub default_cell: String,
    /// Gossip cells and their nodes.
    pub cells: Vec<CellConfig>,
    /// Burst of enrolments per source address.
    pub burst: u32,
    /// Sustained enrolments per second and source address.
    pub per_second: f64,
}

/// Intervals of the automatic signed audit heads. The leader's settings apply.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct AuditConfig {
    /// Number of audit entries after the newest signed head at which the audit is signed, 1 to 1000.
    pub checkpoint_entries: u64,
    /// Age of the oldest audit entry that no signed head covers, at which the audit is signed, such as `10m`; 1s to 1d.
    pub checkpoint_after: String,
}

impl Default for AuditConfig {
    fn default() -> Self {
        let default = AuditSigningSettings::default();
        Self {
            checkpoint_entries: default.entries,
            checkpoint_after: format!("{}s", default.after.as_secs()),
        }
    }
}

impl AuditConfig {
    fn settings(&self) -> Option<AuditSigningSettings> {
        let after = duration(&self.checkpoint_after)?;
        let is_within = CHECKPOINT_ENTRIES.contains(&self.checkpoint_entries)
            && CHECKPOINT_AFTER.contains(&after);
        is_within.then_some(AuditSigningSettings {
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

/// Gossip cell.
#[derive(Debug, Clone, Deserialize)]
pub struct CellConfig {
    /// Name of the cell.
    pub name: String,
    /// Nodes of the cell, as a hostlist.
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

impl Config {
    /// Adds each invalid value to `problems`.
    pub(crate) fn check_values(&self, problems: &mut Problems) {
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
        problems.check_part("enrolment", |problems| self.enrolment.check(problems));
        problems.check_part("audit", |problems| self.audit.check(problems));
    }

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
            let text = "`join: true` needs the address of an existing member as well";
            problems.add("members", text);
        }
        if ids.len() % 2 == 0 && !ids.is_empty() && !self.join {
            let text = format!(
                "{} members tolerate no more failures than {}; list 1, 3 or 5 members",
                ids.len(),
                ids.len() - 1
            );
            problems.add("members", text);
        }
    }

    /// Converts a checked configuration into settings. Returns `None` if the configuration is not valid.
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
        settings.audit_signing = self.audit.settings()?;
        settings.scrub = Some(ScrubSettings::default());
        Some(settings)
    }
}

/// Parses an integer with its unit: `30s`, `10m`, `12h`, `30d`.
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
    /// Certificate lifetime; `None` if the configured value is not valid.
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
    /// Name of the cluster.
    pub cluster: String,
    /// Number of this member.
    pub id: VoterId,
    /// UDP address to listen on; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Directory of log, snapshots and segments.
    pub data_dir: PathBuf,
    /// All members; see [`crate::App::start`].
    pub members: BTreeMap<VoterId, SocketAddr>,
    /// Whether this member joins an existing quorum instead of founding one.
    pub join: bool,
    /// Log entries between two snapshots.
    pub snapshot_every: u64,
    /// Folder of this member's identity, where renewed certificates and trust bundles are saved. `None` keeps them in
    /// memory only.
    pub credentials: Option<PathBuf>,
    /// Settings of issued certificates.
    pub enrolment: EnrolmentSettings,
    /// Intervals of the automatic signed audit heads.
    pub audit_signing: AuditSigningSettings,
    /// Pace of the segment scrubber; with `None`, the scrubber only fetches missing segments.
    pub scrub: Option<ScrubSettings>,
    /// Limits and deadlines of the mesh endpoint. [`crate::Edges::clock`] replaces its clock.
    pub mesh: MeshConfig,
}

impl Settings {
    /// Creates settings with defaults for the remaining fields.
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
            audit_signing: AuditSigningSettings::default(),
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
