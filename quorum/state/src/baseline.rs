//! Baselines by name, each with its last versions, and the brake on automatic draining.

use lattice_quorum_types::{
    NodeId,
    baseline::{Baseline, BaselinesView, Brake, MAX_BASELINES, MAX_VERSIONS, VersionView},
    hostlist::{self, HostlistError, Hosts},
    id::BaselineName,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// Names whose numbers are remembered, deleted ones too.
const MAX_NAMES: usize = 4 * MAX_BASELINES;

/// One name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    /// The highest version there was: numbers are never used again, not after a deletion either.
    last: u32,
    /// Oldest first; empty once it is deleted.
    versions: Vec<Baseline>,
}

/// See the module.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Encoded")]
pub(crate) struct Baselines {
    names: BTreeMap<BaselineName, Kept>,
    brake: Option<Brake>,
    /// Whom those in force name, made of their texts when they are set or read: no part of what is
    /// encoded. Sensitive work is judged by it, which must not expand a list for every command.
    #[serde(skip)]
    hosts: BTreeMap<BaselineName, Arc<Hosts>>,
}

/// [`Baselines`] as they are read.
#[derive(Deserialize)]
struct Encoded {
    names: BTreeMap<BaselineName, Kept>,
    brake: Option<Brake>,
}

impl TryFrom<Encoded> for Baselines {
    type Error = HostlistError;

    fn try_from(Encoded { names, brake }: Encoded) -> Result<Self, HostlistError> {
        let mut hosts = BTreeMap::new();
        for (name, kept) in &names {
            let list = kept.versions.last().map(|last| &last.definition.nodes);
            // An empty text names nobody, and is no hostlist.
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
    /// The version in force.
    pub(crate) fn current(&self, name: &BaselineName) -> Option<&Baseline> {
        self.names.get(name)?.versions.last()
    }

    /// One version that is kept.
    pub(crate) fn version(&self, name: &BaselineName, version: u32) -> Option<&Baseline> {
        let mut versions = self.names.get(name)?.versions.iter();
        versions.find(|baseline| baseline.version == version)
    }

    /// Those in force.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Baseline> {
        self.names.values().filter_map(|kept| kept.versions.last())
    }

    /// The number of the next version of this name.
    pub(crate) fn next_version(&self, name: &BaselineName) -> u32 {
        self.names.get(name).map_or(0, |kept| kept.last) + 1
    }

    /// What all kept versions would have once one more of `name` with so many bytes is kept.
    pub(crate) fn bytes_with(&self, name: &BaselineName, bytes: u64) -> u64 {
        let of = |(kept_name, kept): (&BaselineName, &Kept)| -> u64 {
            let goes = match kept_name == name {
                true => (kept.versions.len() + 1).saturating_sub(MAX_VERSIONS),
                false => 0,
            };
            let stay = kept.versions.iter().skip(goes);
            stay.map(|baseline| baseline.bytes).sum()
        };
        self.names.iter().map(of).sum::<u64>() + bytes
    }

    /// Whether the one of this name that is in force names the node.
    pub(crate) fn names(&self, name: &BaselineName, node: &NodeId) -> bool {
        let hosts = self.hosts.get(name);
        hosts.is_some_and(|hosts| hosts.contains(node))
    }

    /// Nodes that all baselines in force but `name` choose by name.
    pub(crate) fn named_without(&self, name: &BaselineName) -> usize {
        let others = self.hosts.iter().filter(|(other, _)| *other != name);
        others.map(|(_, hosts)| hosts.len()).sum()
    }

    /// `hosts` is whom it names.
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
        // Only so many deleted names are remembered, the first by name are not.
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
