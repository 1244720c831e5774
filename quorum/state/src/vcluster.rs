//! What vClusters are, as far as somebody has said. One of which nobody has said anything is for
//! everybody, as all were before.

use lattice_quorum_types::{ProjectPath, Refusal, VclusterName, vcluster::Vcluster};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was said of each: what it is, or settings of its scheduler alone.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Vclusters {
    by_name: BTreeMap<VclusterName, Vcluster>,
    /// The highest version of any that was deleted: one that is defined anew begins above it, and who
    /// rests on a version of before is told so.
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

    /// The version of its next definition.
    pub(crate) fn next_version(&self, name: &VclusterName) -> u32 {
        let defined = self.get(name).filter(|is| is.is_defined());
        let present = defined.map_or(self.deleted, |is| is.version);
        present.saturating_add(1)
    }

    /// Refuses a project whose tenant may not use it.
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
