//! Data of one node by its BMC: records of its classes, findings and health reasons.

use crate::view::BmcFaults;
use lattice_conformance::{Class, ClassRecord, Finding, health};
use lattice_placement::Health;
use lattice_quorum_types::UnixMillis;
use std::collections::{BTreeMap, BTreeSet};

/// Health code: the BMC returns no data for its node.
pub const SILENT: &str = "bmc.silent";

/// Health code: the BMC belongs to another machine. An agent that has access to a BMC reports the same code.
pub(super) const WRONG_SYSTEM: &str = "bmc.wrong_system";
/// Health code: the data does not show whether the BMC belongs to the node.
pub(super) const UNVERIFIED: &str = "bmc.unverified";

/// BMC parts of a node's class records; a change counts once it is read twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// Records of classes `bmc` and `bios`.
    pub records: BTreeMap<Class, ClassRecord>,
    /// Contradictions and pending settings.
    pub findings: Vec<Finding>,
    /// Reasons found by the table of checks, and whether the BMC is silent; worst first.
    pub reasons: Vec<health::Reason>,
    /// Time of the reading.
    pub read_at: UnixMillis,
    /// Whether the BMC was read at all since this control started.
    pub was_asked: bool,
    /// Whether any check of the table may drain the node by BMC data.
    pub may_drain: bool,
    /// Codes of draining checks that the last answered reading could not evaluate.
    pub untold: BTreeSet<String>,
}

impl Parts {
    /// Reasons that drain by the last reading. A reason that only an earlier reading saw is left out, even if the last
    /// reading did not clear it.
    pub(crate) fn drains_now(&self) -> impl Iterator<Item = &health::Reason> {
        let at = self.read_at.0;
        self.drains()
            .filter(move |reason| reason.last_seen_ms == at)
    }

    /// Evidence that the BMC belongs to another machine, if it does.
    pub(crate) fn of_another(&self) -> Option<&str> {
        let mut reasons = self.reasons.iter();
        let other = reasons.find(|reason| reason.code == WRONG_SYSTEM)?;
        Some(&other.evidence)
    }

    /// Reasons that are not observe-only, and their effect on placement. Reasons reported earlier remain while the BMC
    /// is silent.
    pub(crate) fn named(&self) -> BmcFaults {
        let mut named = BmcFaults::default();
        for reason in self.reasons.iter().filter(|reason| !reason.observe_only) {
            named
                .reasons
                .insert((reason.code.clone(), reason.entity.clone()));
            let follows = match reason.severity {
                _ if reason.code == SILENT => Health::Healthy,
                health::Severity::Inform => Health::Healthy,
                health::Severity::Degraded => Health::Degraded,
                health::Severity::Faulty => Health::Faulty,
            };
            named.health = named.health.max(follows);
        }
        named
    }

    /// Reasons that drain, by the last reading that saw them; no later reading has cleared them.
    pub(crate) fn drains(&self) -> impl Iterator<Item = &health::Reason> {
        self.reasons.iter().filter(|reason| reason.drains())
    }
}

#[cfg(any(test, feature = "testing"))]
impl Parts {
    /// Data of a BMC that reports these reasons and nothing else.
    pub fn naming<const N: usize>(reasons: [health::Reason; N]) -> Self {
        Self {
            records: BTreeMap::new(),
            findings: Vec::new(),
            reasons: reasons.into(),
            read_at: UnixMillis(1),
            was_asked: true,
            may_drain: true,
            untold: BTreeSet::new(),
        }
    }

    /// A reason that drains, seen by the last reading.
    #[cfg(test)]
    pub(crate) fn critical() -> health::Reason {
        health::Reason {
            code: "bmc.system_critical".to_owned(),
            entity: "bmc".to_owned(),
            evidence: "bmc.health is Critical".to_owned(),
            severity: health::Severity::Faulty,
            action: health::Action::Inspect,
            observe_only: false,
            first_seen_ms: 1,
            last_seen_ms: 1,
            count: 1,
        }
    }
}
