//! vClusters: definitions and scheduler settings. An undefined vCluster is open to every tenant.

use lattice_quorum_types::{ProjectPath, Refusal, VclusterName, vcluster::Vcluster};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// vClusters that have a definition, or scheduler settings only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Vclusters {
    by_name: BTreeMap<VclusterName, Vcluster>,
    /// Highest version of any deleted vCluster. A new definition starts above this version, so a command that expects
    /// an earlier version is rejected.
    deleted: u32,
}

impl Vclusters {
    pub(crate) fn get(&self, name: &VclusterName) -> Option<&Vcluster> {
        self.by_name.get(name)
    }
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = &Vcluster> {
        self.by_name.values()
    }
    pub(crate) fn set(&mut self, record: Vcluster) {
        self.by_name.insert(record.name.clone(), record);
    }
    pub(crate) fn delete(&mut self, name: &VclusterName) {
        if let Some(gone) = self.by_name.remove(name) {
            self.deleted = self.deleted.max(gone.version);
        }
    }

    /// Version of the next definition.
    pub(crate) fn next_version(&self, name: &VclusterName) -> u32 {
        let defined = self.get(name).filter(|is| is.is_defined());
        let present = defined.map_or(self.deleted, |is| is.version);
        present.saturating_add(1)
    }

    /// Rejects a project of a tenant that may not use the vCluster.
    pub(crate) fn check_use(
        &self,
        name: &VclusterName,
        project: &ProjectPath,
    ) -> Result<(), Refusal> {
        match self.get(name) {
            Some(known) if !known.definition.is_for(project) => Err(Refusal::VclusterClosed {
                vcluster: name.clone(),
                tenant: project.tenant(),
            }),
            _ => Ok(()),
        }
    }
}
