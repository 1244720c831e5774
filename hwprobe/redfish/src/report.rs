//! Report of one pass over a BMC, and the scope of the pass.

use crate::documents::ResourcePath;
use crate::power::Route;
use crate::selection::{NoSystemReason, Selector, SystemName};
use lattice_conformance::{
    Class, ClassRecord, Finding, LimitState, Power, ProbeResult, Reading, Vitals,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Scope of a pass over a BMC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The selected systems.
    pub systems: Selector,
    /// The amount of data read per system.
    pub breadth: Breadth,
}

/// Amount of data read per system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Breadth {
    /// Identity of the systems only.
    Systems,
    /// Power draw and limit: about ten resources the first time, one or two with a [`Route`] afterwards.
    Power,
    /// Firmware, BIOS settings, power and health.
    #[default]
    Everything,
}

/// Interpretation of the available documents, and the list of missing ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interpretation {
    /// The report, as far as the documents allow.
    pub report: BmcReport,
    /// Documents to fetch before the next call. Empty if the report is final.
    pub wanted: BTreeSet<ResourcePath>,
}

/// A BMC and the systems it serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BmcReport {
    /// Every system that the BMC lists, by `Id`.
    pub systems: Vec<SystemName>,
    /// The selected systems: exactly one for every selector except [`Selector::Every`]; none if `unselected` gives a
    /// reason.
    pub nodes: Vec<NodeReport>,
    /// Reason why no system was selected.
    pub unselected: Option<NoSystemReason>,
}

/// Report of one system, with the same kinds of values as an inventory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Identity of the system.
    pub system: SystemName,
    /// The BMC's part of class `bmc`; empty unless everything was requested.
    pub bmc: ClassRecord,
    /// The BMC's part of class `bios`; empty unless everything was requested.
    pub bios: ClassRecord,
    /// Power draw and limit.
    pub power: Power,
    /// Route for reading power again with few requests.
    pub route: Route,
    /// Health, power state, power capacity, power of accelerators, number of log entries; empty unless everything was
    /// requested.
    pub vitals: Vitals,
    /// Contradictions, pending settings, broken links.
    pub findings: Vec<Finding>,
}

/// Records for the classes with a BMC part (`bmc`, `bios`) while the BMC does not answer. Each contains a required key
/// that every answer sets, with the state `reading`, so both classes are incomplete. So the host's own part of a class
/// is not mistaken for the complete class.
#[must_use]
pub fn unread_records(reading: &Reading<String>) -> [ClassRecord; 2] {
    let one = |class: Class, key: &str| {
        let mut record = ClassRecord::new(class);
        record.require(key, reading.clone());
        record
    };
    [
        one(Class::Bmc, "bmc.firmware"),
        one(Class::Bios, "bios.redfish.version"),
    ]
}

impl NodeReport {
    /// Converts the report to two probe results of an inventory, for classes `bmc` and `bios`. Power is left to other
    /// sources if the BMC reports neither draw nor limit. [`contradictions`](crate::contradictions) reports
    /// contradictions to the host's own values once both are available.
    #[must_use]
    pub fn to_probe_results(&self) -> [ProbeResult; 2] {
        let of = |class: Class| -> Vec<Finding> {
            let mine = self.findings.iter().filter(|found| found.class == class);
            mine.cloned().collect()
        };
        let tells = self.power.draw.present().is_some()
            || matches!(
                self.power.limit_state,
                LimitState::Set | LimitState::Uncapped
            );
        [
            ProbeResult {
                record: self.bmc.clone(),
                vitals: self.vitals.clone(),
                power: tells.then(|| self.power.clone()),
                findings: of(Class::Bmc),
                ..ProbeResult::new(Class::Bmc)
            },
            ProbeResult {
                record: self.bios.clone(),
                findings: of(Class::Bios),
                ..ProbeResult::new(Class::Bios)
            },
        ]
    }
}

impl BmcReport {
    /// The single node, if one was requested.
    ///
    /// # Errors
    /// The reason why there is not exactly one.
    pub fn node(&self) -> Result<&NodeReport, NoSystemReason> {
        match (&self.unselected, self.nodes.as_slice()) {
            (Some(why), _) => Err(why.clone()),
            (None, [only]) => Ok(only),
            (None, []) => Err(NoSystemReason::None),
            (None, several) => Err(NoSystemReason::Ambiguous {
                choices: several.iter().map(|n| n.system.id.clone()).collect(),
            }),
        }
    }
}
