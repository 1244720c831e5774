//! Data about one node, read from its BMC: class records, findings and health reasons.

use lattice_conformance::{Class, ClassRecord, Finding, health};
use lattice_placement::Health;
use lattice_quorum_types::UnixMillis;
use lattice_view::node::BmcFaults;
use std::collections::{BTreeMap, BTreeSet};

/// Health code: the BMC returns no data for its node.
pub const SILENT: &str = "bmc.silent";

/// Health code: the BMC belongs to another machine. An agent that has access to a BMC reports the same code.
pub(super) const WRONG_SYSTEM: &str = "bmc.wrong_system";
/// Health code: the data does not show whether the BMC belongs to the node.
pub(super) const UNVERIFIED: &str = "bmc.unverified";

/// Data about a node, read from its BMC. A change of a record counts once it is read twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// Records of classes `bmc` and `bios`.
    pub records: BTreeMap<Class, ClassRecord>,
    /// Findings of the last answered reading: contradictions, pending settings and others.
    pub findings: Vec<Finding>,
    /// Reasons found by the table of checks, and reasons for a silent BMC or one not known to belong to the node;
    /// worst first.
    pub reasons: Vec<health::Reason>,
    /// Time of the last reading, answered or not.
    pub read_at: UnixMillis,
    /// Whether a read of the BMC was tried since this control started, successfully or not.
    pub was_asked: bool,
    /// Whether the table has a check on BMC data that may drain the node.
    pub may_drain: bool,
    /// Codes of draining checks that the last answered reading leaves undecided.
    pub undecided: BTreeSet<String>,
}

impl Parts {
    /// Reasons to drain the node that the last reading reported. A reason that only an earlier reading reported is left
    /// out, even if the last reading did not clear it.
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
    /// is silent; silence itself has no effect on placement.
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

    /// All reasons to drain the node that no reading has cleared, including those that only an earlier one reported.
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
            undecided: BTreeSet::new(),
        }
    }

    /// A reason that drains, reported by the last reading.
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
