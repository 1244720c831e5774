//! vClusters: sets of nodes, each with its own scheduler settings, for some tenants or for all.

use crate::{ProjectPath, Revision, VclusterName, scheduler::SchedulerSettings};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Longest description, bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 16 << 10;
/// Largest number of tenants that one vCluster names. A page of 200 vClusters, the default, with names of usual length
/// stays below the 4 MiB of a gRPC message.
pub const MAX_TENANTS: usize = 500;
/// vCluster of allocations that name none. It exists even if no administrator has defined it.
pub const DEFAULT_VCLUSTER: &str = "default";

/// Definition of a vCluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VclusterDefinition {
    /// Free-text description.
    pub description: String,
    /// Tenants that may use the vCluster; `None`: all.
    pub tenants: Option<BTreeSet<ProjectPath>>,
    /// Scheduler settings.
    pub scheduler: SchedulerSettings,
}

/// Names of the nine weights of a scheduler's score, w1 to w9. The API and the audit (after `weights.`) use these
/// names; CLI flags have `-` for `_`.
pub const WEIGHTS: [&str; 9] = [
    "priority",
    "wait_time",
    "fair_share",
    "topology",
    "data_ready",
    "backlog",
    "energy",
    "checkpoint",
    "conformance",
];

impl VclusterDefinition {
    /// Checks whether a project may use the vCluster.
    pub fn is_for(&self, project: &ProjectPath) -> bool {
        let tenants = self.tenants.as_ref();
        tenants.is_none_or(|tenants| tenants.contains(&project.tenant()))
    }
}

/// Change of a vCluster's definition. Absent fields stay unchanged. The first change starts from the empty definition,
/// which is open to all tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VclusterPatch {
    /// Free-text description.
    pub description: Option<String>,
    /// Tenants that may use the vCluster.
    pub tenants: TenantsPatch,
}

/// Change of the tenants that may use a vCluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantsPatch {
    /// Keep the present tenants.
    #[default]
    Unchanged,
    /// All tenants, including future ones.
    All,
    /// Exactly these tenants. An empty set closes the vCluster.
    Only(BTreeSet<ProjectPath>),
}

impl VclusterPatch {
    /// Returns the definition with this change applied.
    pub fn applied_to(&self, present: Option<&VclusterDefinition>) -> VclusterDefinition {
        let mut next = present.cloned().unwrap_or_default();
        let Self {
            description,
            tenants,
        } = self;
        if let Some(description) = description {
            next.description.clone_from(description);
        }
        match tenants {
            TenantsPatch::Unchanged => {}
            TenantsPatch::All => next.tenants = None,
            TenantsPatch::Only(names) => next.tenants = Some(names.clone()),
        }
        next
    }
}

/// A committed vCluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcluster {
    /// Name of the vCluster.
    pub name: VclusterName,
    /// Definition of the vCluster.
    pub definition: VclusterDefinition,
    /// Version of the definition, from 1. After a deletion, numbering continues above the deleted versions, so that no
    /// number is used twice for one name. Version 0: the scheduler has settings, but the vCluster is not defined.
    pub version: u32,
    /// Revision of the last change.
    pub revision: Revision,
}

impl Vcluster {
    /// Checks whether the vCluster is defined. Scheduler settings alone do not define it.
    pub fn is_defined(&self) -> bool {
        self.version > 0
    }
}
