//! Baselines by name, each with its last versions, and the brake on automatic draining.

use lattice_quorum_types::{
    NodeId,
    baseline::{Baseline, BaselinesView, Brake, MAX_BASELINES, MAX_VERSIONS, VersionView},
    hostlist::{self, HostlistError, Hosts},
    id::BaselineName,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// Limit of names in the table, deleted names included: their version numbers are kept.
const MAX_NAMES: usize = 4 * MAX_BASELINES;

/// Versions of one baseline.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct StoredBaseline {
    /// Highest version number ever used. A number is never used again, not even after a deletion.
    last: u32,
    /// Kept versions, oldest first; empty once the baseline is deleted.
    versions: Vec<Baseline>,
}

/// Table of baselines by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "EncodedBaselines")]
pub(crate) struct Baselines {
    names: BTreeMap<BaselineName, StoredBaseline>,
    brake: Option<Brake>,
    /// Nodes named by the baselines in force, expanded from their hostlists when a baseline is set or decoded. Not part
    /// of the encoding. The checks of sensitive allocations use this map, so that no command expands a hostlist again.
    #[serde(skip)]
    hosts: BTreeMap<BaselineName, Arc<Hosts>>,
}

/// Encoded form of [`Baselines`].
#[derive(Deserialize)]
struct EncodedBaselines {
    names: BTreeMap<BaselineName, StoredBaseline>,
    brake: Option<Brake>,
}

impl TryFrom<EncodedBaselines> for Baselines {
    type Error = HostlistError;

    fn try_from(
        EncodedBaselines { names, brake }: EncodedBaselines,
    ) -> Result<Self, HostlistError> {
        let mut hosts = BTreeMap::new();
        for (name, kept) in &names {
            let list = kept.versions.last().map(|last| &last.definition.nodes);
            // An empty text names no node, and is not a valid hostlist.
            if let Some(list) = list.filter(|list| !list.is_empty()) {
                let of = Hosts::of(&hostlist::expand(list)?);
                hosts.insert(name.clone(), Arc::new(of));
            }
        }
        Ok(Self {
            names,
            brake,
            hosts,
        })
    }
}

impl Baselines {
    /// Version in force.
    pub(crate) fn current(&self, name: &BaselineName) -> Option<&Baseline> {
        self.names.get(name)?.versions.last()
    }

    /// One kept version.
    pub(crate) fn version(&self, name: &BaselineName, version: u32) -> Option<&Baseline> {
        let mut versions = self.names.get(name)?.versions.iter();
        versions.find(|baseline| baseline.version == version)
    }

    /// All baselines in force.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Baseline> {
        self.names.values().filter_map(|kept| kept.versions.last())
    }

    /// Number of the next version of this baseline.
    pub(crate) fn next_version(&self, name: &BaselineName) -> u32 {
        self.names.get(name).map_or(0, |kept| kept.last) + 1
    }

    /// Total size of all kept versions, in bytes, once one more version of `name` with `bytes` bytes is kept.
    pub(crate) fn bytes_with(&self, name: &BaselineName, bytes: u64) -> u64 {
        let of = |(kept_name, kept): (&BaselineName, &StoredBaseline)| -> u64 {
            let goes = match kept_name == name {
                true => (kept.versions.len() + 1).saturating_sub(MAX_VERSIONS),
                false => 0,
            };
            let stay = kept.versions.iter().skip(goes);
            stay.map(|baseline| baseline.bytes).sum()
        };
        self.names.iter().map(of).sum::<u64>() + bytes
    }

    /// Checks whether the version in force of this baseline names the node.
    pub(crate) fn names(&self, name: &BaselineName, node: &NodeId) -> bool {
        let hosts = self.hosts.get(name);
        hosts.is_some_and(|hosts| hosts.contains(node))
    }

    /// Number of nodes listed by name in all baselines in force except `name`.
    pub(crate) fn named_without(&self, name: &BaselineName) -> usize {
        let others = self.hosts.iter().filter(|(other, _)| *other != name);
        others.map(|(_, hosts)| hosts.len()).sum()
    }

    /// Sets the version in force; `hosts` are the nodes that it names.
    pub(crate) fn set(&mut self, baseline: Baseline, hosts: Arc<Hosts>) {
        match hosts.is_empty() {
            true => drop(self.hosts.remove(&baseline.name)),
            false => drop(self.hosts.insert(baseline.name.clone(), hosts)),
        }
        let kept = self.names.entry(baseline.name.clone()).or_default();
        kept.last = baseline.version;
        kept.versions.push(baseline);
        let goes = kept.versions.len().saturating_sub(MAX_VERSIONS);
        kept.versions.drain(..goes);
    }

    pub(crate) fn delete(&mut self, name: &BaselineName) {
        self.hosts.remove(name);
        if let Some(kept) = self.names.get_mut(name) {
            kept.versions.clear();
        }
        // At most `MAX_NAMES` names are kept: deleted names are dropped, in name order.
        while self.names.len() > MAX_NAMES {
            let gone = self.names.iter().find(|(_, kept)| kept.versions.is_empty());
            let Some(gone) = gone.map(|(name, _)| name.clone()) else {
                return;
            };
            self.names.remove(&gone);
        }
    }

    pub(crate) fn brake(&self) -> Option<&Brake> {
        self.brake.as_ref()
    }

    pub(crate) fn set_brake(&mut self, brake: Option<Brake>) {
        self.brake = brake;
    }

    pub(crate) fn view(&self) -> BaselinesView {
        BaselinesView {
            baselines: self.all().cloned().collect(),
            brake: self.brake.clone(),
        }
    }

    pub(crate) fn versions(&self, name: &BaselineName) -> Vec<VersionView> {
        let kept = self.names.get(name);
        let versions = kept.into_iter().flat_map(|kept| &kept.versions);
        versions
            .map(|baseline| VersionView {
                version: baseline.version,
                by: baseline.by.clone(),
                at: baseline.at,
                bytes: baseline.bytes,
            })
            .collect()
    }
}
