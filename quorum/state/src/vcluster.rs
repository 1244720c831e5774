//! What vClusters are, as far as somebody has said. One of which nobody has said anything is for
//! everybody, as all were before.

use lattice_quorum_types::{ProjectPath, Refusal, VclusterName, vcluster::Vcluster};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// By name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Vclusters(BTreeMap<VclusterName, Vcluster>);

impl Vclusters {
    pub(crate) fn get(&self, name: &VclusterName) -> Option<&Vcluster> {
        self.0.get(name)
    }
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = &Vcluster> {
        self.0.values()
    }
    pub(crate) fn set(&mut self, record: Vcluster) {
        self.0.insert(record.name.clone(), record);
    }
    pub(crate) fn delete(&mut self, name: &VclusterName) {
        self.0.remove(name);
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
