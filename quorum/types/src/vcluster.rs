//! vClusters: views of nodes, each with a policy of its own.

use crate::{ProjectPath, Revision, VclusterName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Longest description, and longest profile, bytes.
pub const MAX_TEXT_BYTES: usize = 16 << 10;
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
    /// Weights of its scheduler and what else it is told, as text that only the scheduler reads.
    pub profile: String,
}

impl VclusterDefinition {
    /// Whether a project may use it.
    pub fn is_for(&self, project: &ProjectPath) -> bool {
        let tenants = self.tenants.as_ref();
        tenants.is_none_or(|tenants| tenants.contains(&project.tenant()))
    }
}

/// A change to what a vCluster is. What is not named stays; where nobody has said anything yet, that is
/// the empty definition, open to all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VclusterPatch {
    /// Text for people.
    pub description: Option<String>,
    /// The tenants that may use it.
    pub tenants: TenantsPatch,
    /// See [`VclusterDefinition::profile`].
    pub profile: Option<String>,
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
            profile,
        } = self;
        if let Some(description) = description {
            next.description.clone_from(description);
        }
        if let Some(profile) = profile {
            next.profile.clone_from(profile);
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
    /// that no number comes twice under one name.
    pub version: u32,
    /// Last change.
    pub revision: Revision,
}
