//! What one look at a BMC says, and what is asked of it.

use crate::documents::ResourcePath;
use crate::power::Route;
use lattice_hwprobe::{Class, ClassRecord, Finding, LimitState, Power, Probed, Reading, Vitals};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What a look at a BMC is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Of which systems.
    pub systems: Selector,
    /// How much of each.
    pub breadth: Breadth,
}

/// Which of a BMC's systems are meant. One BMC serves up to four nodes, and one node may show as
/// two systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Selector {
    /// All of them: a chassis controller's reader sorts them out itself.
    Every,
    /// The one with this `Id`, exactly.
    Id(String),
    /// The one whose UUID or serial number SMBIOS tells in band; else the only one.
    Like {
        /// Product UUID, in either byte order.
        uuid: Option<String>,
        /// Product serial number.
        serial: Option<String>,
    },
    /// The only one there is.
    #[default]
    Only,
}

/// How much is read of a system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Breadth {
    /// Who it is, and nothing else.
    Systems,
    /// Draw and limit: about ten resources the first time, one or two by a [`Route`] after it.
    Power,
    /// Firmware, BIOS settings, power, health.
    #[default]
    Everything,
}

/// What the documents at hand say, and which others it takes to say all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interpretation {
    /// As far as the documents go.
    pub report: BmcReport,
    /// What to fetch before asking again. Empty when the report is final.
    pub wanted: BTreeSet<ResourcePath>,
}

/// A BMC and the systems it serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BmcReport {
    /// Every system the BMC lists, by `Id`.
    pub systems: Vec<SystemName>,
    /// Those that were asked for; exactly one for every selector but [`Selector::Every`], none
    /// where `unselected` says why.
    pub nodes: Vec<NodeReport>,
    /// Why no system was chosen.
    pub unselected: Option<Unselected>,
}

/// Who a system is, as its BMC tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemName {
    /// Where it lies.
    pub path: Option<ResourcePath>,
    /// `Id`, else the last part of the path.
    pub id: String,
    /// `Name`.
    pub name: Reading<String>,
    /// `SerialNumber`.
    pub serial: Reading<String>,
    /// `UUID`, lower-case, in the BMC's byte order.
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

/// One system, in the planes of an inventory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Who it is.
    pub system: SystemName,
    /// The BMC's part of class `bmc`; empty unless everything was asked.
    pub bmc: ClassRecord,
    /// The BMC's part of class `bios`; empty unless everything was asked.
    pub bios: ClassRecord,
    /// Draw and limit.
    pub power: Power,
    /// How to ask for them again with few requests.
    pub route: Route,
    /// Health, limits of accelerators, log entries.
    pub vitals: Vitals,
    /// Contradictions, pending settings, links that lead nowhere.
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

/// Why no system of a BMC is the node's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "lowercase")]
pub enum Unselected {
    /// The list of systems could not be read.
    #[error("the BMC's systems could not be read: {why}")]
    Unread {
        /// What came of reading it.
        reading: Reading<()>,
        /// The same in words.
        why: String,
    },
    /// The BMC serves none: a chassis controller, a power shelf.
    #[error("the BMC serves no system")]
    None,
    /// No system has the configured id.
    #[error("the BMC serves no system \"{id}\", but {}", list(.choices))]
    Unknown {
        /// As configured.
        id: String,
        /// The ids there are.
        choices: Vec<String>,
    },
    /// More than one could be it.
    #[error("the BMC serves {}: the configuration must say which is this node", list(.choices))]
    Ambiguous {
        /// The ids there are.
        choices: Vec<String>,
    },
}

impl Unselected {
    /// What anything else of the node reads as, then.
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

/// What is known of the classes that a BMC has a part of while it says nothing: neither, by a key of
/// each that is never absent where it answers. So the half that the host tells of itself is not taken
/// for the whole.
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
    /// This report as two probes of an inventory, class `bmc` and class `bios`. Power is left to
    /// other sources where the BMC tells neither draw nor limit. What contradicts the host's own
    /// words is told by [`contradictions`](crate::contradictions) once both are there.
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
    /// The one node, where one was asked for.
    ///
    /// # Errors
    /// Why there is none.
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
