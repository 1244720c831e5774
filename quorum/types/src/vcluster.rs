//! vClusters: views of nodes, each with a policy of its own.

use crate::{ProjectPath, Revision, VclusterName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Longest description, and longest profile, bytes.
pub const MAX_TEXT_BYTES: usize = 16 << 10;
/// Tenants that one vCluster names.
pub const MAX_TENANTS: usize = 10_000;

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

/// A vCluster as it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcluster {
    /// Its name.
    pub name: VclusterName,
    /// What it is.
    pub definition: VclusterDefinition,
    /// Counts its definitions, from 1.
    pub version: u32,
    /// Last change.
    pub revision: Revision,
}
