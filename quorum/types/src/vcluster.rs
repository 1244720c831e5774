//! vClusters: views of nodes, each with a policy of its own.

use crate::{ProjectPath, Revision, VclusterName, scheduler::SchedulerSettings};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Longest description, bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 16 << 10;
/// Tenants that one vCluster names. A page has the default of 200 vClusters, and with ordinary names
/// stays below the 4 MiB of a gRPC message.
pub const MAX_TENANTS: usize = 500;
/// Where work goes that names none. It is there although nobody has defined it.
pub const DEFAULT_VCLUSTER: &str = "default";

/// What a vCluster is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VclusterDefinition {
    /// Text for people.
    pub description: String,
    /// The tenants that may use it; `None`: all.
    pub tenants: Option<BTreeSet<ProjectPath>>,
    /// Settings of its scheduler.
    pub scheduler: SchedulerSettings,
}

/// Names of the nine weights of a scheduler's score, w1 to w9: in the API, in the audit (after `weights.`), and with `-`
/// for `_` as flags of the CLI.
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
    /// Whether a project may use it.
    pub fn is_for(&self, project: &ProjectPath) -> bool {
        let tenants = self.tenants.as_ref();
        tenants.is_none_or(|tenants| tenants.contains(&project.tenant()))
    }
}

/// Change of a vCluster's definition. Absent fields stay; the first change starts from the empty definition, which is
/// open to all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VclusterPatch {
    /// Text for people.
    pub description: Option<String>,
    /// The tenants that may use it.
    pub tenants: TenantsPatch,
}

/// A change to the tenants that may use a vCluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantsPatch {
    /// Leave them as they are.
    #[default]
    Unchanged,
    /// All, also those that come later.
    All,
    /// These and no others; none closes it.
    Only(BTreeSet<ProjectPath>),
}

impl VclusterPatch {
    /// What the vCluster is with this change.
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

/// A vCluster as it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcluster {
    /// Its name.
    pub name: VclusterName,
    /// What it is.
    pub definition: VclusterDefinition,
    /// Counts its definitions, from 1; from above those that were deleted, where there were any, so
    /// that no number comes twice under one name. 0: its scheduler has settings, and nobody has defined it.
    pub version: u32,
    /// Last change.
    pub revision: Revision,
}

impl Vcluster {
    /// Whether somebody has said what it is. Settings of its scheduler alone do not.
    pub fn is_defined(&self) -> bool {
        self.version > 0
    }
}
