//! Selection among the systems of a BMC, and the identity by which a system is selected.

use crate::documents::ResourcePath;
use lattice_conformance::Reading;
use serde::{Deserialize, Serialize};

/// Selection among a BMC's systems. One BMC serves up to four nodes, and one node may appear as two systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Selector {
    /// All systems: the caller, reading a chassis controller, assigns the systems to nodes itself.
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

/// Reason why no system of a BMC was selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "lowercase")]
pub enum NoSystemReason {
    /// The service root, the list of systems, or a system that may be the selected one could not be read.
    #[error("the BMC's systems could not be read: {why}")]
    Unread {
        /// State of the unread resource.
        reading: Reading<()>,
        /// The reason as text.
        why: String,
    },
    /// The BMC serves no system: a chassis controller, a power shelf.
    #[error("the BMC has no system")]
    None,
    /// No system has the configured id.
    #[error("the BMC has no system \"{id}\"; available: {}", list(.choices))]
    Unknown {
        /// The configured id.
        id: String,
        /// Ids of the systems.
        choices: Vec<String>,
    },
    /// More than one system matches.
    #[error(
        "the BMC has several systems ({}); set the system id of this node in the configuration",
        list(.choices)
    )]
    Ambiguous {
        /// Ids of the systems.
        choices: Vec<String>,
    },
}

impl NoSystemReason {
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

    /// The reading of every value of a node without a selected system.
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

fn list(choices: &[String]) -> String {
    let quoted: Vec<String> = choices.iter().map(|id| format!("\"{id}\"")).collect();
    quoted.join(", ")
}
