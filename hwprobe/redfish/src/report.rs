//! Report of one pass over a BMC, and the scope of the pass.

use crate::documents::ResourcePath;
use crate::power::Route;
use lattice_conformance::{
    Class, ClassRecord, Finding, LimitState, Power, Probed, Reading, Vitals,
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

/// Selection among a BMC's systems. One BMC serves up to four nodes, and one node may appear as two systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Selector {
    /// All systems: the reader of a chassis controller assigns them to nodes itself.
    Every,
    /// The system with exactly this `Id`.
    Id(String),
    /// The system with the UUID or serial number that SMBIOS reports in band; else the only one.
    Like {
        /// Product UUID, in either byte order.
        uuid: Option<String>,
        /// Product serial number.
        serial: Option<String>,
    },
    /// The only system.
    #[default]
    Only,
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
    /// Why no system was selected.
    pub unselected: Option<Unselected>,
}

/// Identity of a system, as reported by its BMC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemName {
    /// Path of the system.
    pub path: Option<ResourcePath>,
    /// `Id`, else the last part of the path.
    pub id: String,
    /// `Name`.
    pub name: Reading<String>,
    /// `SerialNumber`.
    pub serial: Reading<String>,
    /// `UUID` in lower case, in the BMC's byte order.
    pub uuid: Reading<String>,
    /// `HostName`.
    pub host_name: Reading<String>,
    /// `Manufacturer`.
    pub vendor: Reading<String>,
    /// `Model`.
    pub model: Reading<String>,
    /// `PowerState`: `On`, `Off`, `PoweringOn`, …
    pub power_state: Reading<String>,
}

/// Report of one system, in the planes of an inventory.
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
    /// Health, limits of accelerators, number of log entries.
    pub vitals: Vitals,
    /// Contradictions, pending settings, broken links.
    pub findings: Vec<Finding>,
}

impl Unselected {
    /// The systems could not be read.
    pub(crate) fn unread<T>(reading: &Reading<T>) -> Self {
        Self::Unread {
            reading: reading.as_ref().map(|_| ()),
            why: match reading {
                Reading::Denied { why } | Reading::Failed { why } | Reading::Disabled { why } => {
                    why.clone()
                }
                other => other.as_ref().map(|_| "").to_string(),
            },
        }
    }
}

/// Why no system of a BMC was selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "lowercase")]
pub enum Unselected {
    /// The list of systems could not be read.
    #[error("the BMC's systems could not be read: {why}")]
    Unread {
        /// The reading of the list.
        reading: Reading<()>,
        /// The reason as text.
        why: String,
    },
    /// The BMC serves no system: a chassis controller, a power shelf.
    #[error("the BMC serves no system")]
    None,
    /// No system has the configured id.
    #[error("the BMC serves no system \"{id}\", but {}", list(.choices))]
    Unknown {
        /// The configured id.
        id: String,
        /// Ids of the systems.
        choices: Vec<String>,
    },
    /// More than one system matches.
    #[error("the BMC serves {}: the configuration must name the one of this node", list(.choices))]
    Ambiguous {
        /// Ids of the systems.
        choices: Vec<String>,
    },
}

impl Unselected {
    /// The reading of every other value of the node in this case.
    #[must_use]
    pub fn reading<T>(&self) -> Reading<T> {
        match self {
            Self::Unread {
                reading: Reading::Denied { .. },
                ..
            } => Reading::denied(self.to_string()),
            Self::Unread {
                reading: Reading::Timeout { after_ms },
                ..
            } => Reading::Timeout {
                after_ms: *after_ms,
            },
            _ => Reading::failed(self.to_string()),
        }
    }
}

/// Records for the classes with a BMC part while the BMC does not answer. Each contains a required key that is never
/// absent in an answer, so both classes are incomplete. So the host's own part of a class is not mistaken for the
/// whole.
#[must_use]
pub fn unread(reading: &Reading<String>) -> [ClassRecord; 2] {
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

fn list(choices: &[String]) -> String {
    let quoted: Vec<String> = choices.iter().map(|id| format!("\"{id}\"")).collect();
    quoted.join(", ")
}

impl NodeReport {
    /// Converts the report to two probe results of an inventory, for classes `bmc` and `bios`. Power is left to other
    /// sources if the BMC reports neither draw nor limit. [`contradictions`](crate::contradictions) reports
    /// contradictions to the host's own values once both are available.
    #[must_use]
    pub fn probed(&self) -> [Probed; 2] {
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
            Probed {
                record: self.bmc.clone(),
                vitals: self.vitals.clone(),
                power: tells.then(|| self.power.clone()),
                findings: of(Class::Bmc),
                ..Probed::new(Class::Bmc)
            },
            Probed {
                record: self.bios.clone(),
                findings: of(Class::Bios),
                ..Probed::new(Class::Bios)
            },
        ]
    }
}

impl BmcReport {
    /// The single node, if one was requested.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn node(&self) -> Result<&NodeReport, Unselected> {
        match (&self.unselected, self.nodes.as_slice()) {
            (Some(why), _) => Err(why.clone()),
            (None, [only]) => Ok(only),
            (None, []) => Err(Unselected::None),
            (None, several) => Err(Unselected::Ambiguous {
                choices: several.iter().map(|n| n.system.id.clone()).collect(),
            }),
        }
    }
}
