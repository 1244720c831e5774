//! Observed half of the view: gossip of the nodes, results of pings, BMC readings and comparisons. It is never
//! replicated and has no authority.
//!
//! Each `set_` method stores one kind of report and returns the nodes that changed. [`View::settle`] derives from the
//! stored reports what placement and readers use.

use super::View;
use crate::{
    drift::{ClusterDrift, ComparisonResult},
    node::{BmcFaults, GossipedNode, MergedMark, NodeEntry},
};
use lattice_conformance::{Class, Digest, NodeDocument};
use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

/// Result of pinging a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingOutcome {
    /// Liveness after the ping.
    pub liveness: Liveness,
    /// Reason why the node is not alive.
    pub reason: Option<String>,
    /// Boot id in the node's last reply, and the time of that reply since the start of this control.
    pub boot: Option<(String, Duration)>,
    /// Address of the node's last reply.
    pub reply_addr: Option<SocketAddr>,
}

impl View {
    /// Takes over the present members of one gossip cell. A node that left the cell keeps its registration, if it has
    /// one. `None`: neither a node nor the number of members changed.
    pub fn set_cell(
        &mut self,
        cell: &str,
        members: BTreeMap<NodeId, GossipedNode>,
    ) -> Option<BTreeSet<NodeId>> {
        let count = members.len() as u64;
        let gone = self.nodes.values().filter(|node| {
            let seen = node.gossip.as_ref();
            seen.is_some_and(|seen| seen.cell == cell) && !members.contains_key(&node.id)
        });
        let gone: BTreeSet<NodeId> = gone.map(|node| node.id.clone()).collect();
        for id in &gone {
            self.edit(id, NodeEntry::leave);
            self.conformance_version += 1;
        }
        let mut changed = gone;
        for (id, seen) in members {
            let known = self.node(&id).and_then(|node| node.gossip.as_ref());
            if known == Some(&seen) {
                continue;
            }
            let has_same_marks = known.is_some_and(|known| known.has_same_marks(&seen));
            self.conformance_version += u64::from(!has_same_marks);
            self.edit(&id, |node| {
                (node.gossip, node.last_known) = (Some(seen), None)
            });
            changed.insert(id);
        }
        if self.cells.get(cell) != Some(&count) {
            Arc::make_mut(&mut self.cells).insert(cell.to_owned(), count);
        } else if changed.is_empty() {
            return None;
        }
        self.unsettled.extend(changed.iter().cloned());
        Arc::make_mut(&mut self.nodes)
            .retain(|_, node| node.record.is_some() || node.gossip.is_some());
        Some(changed)
    }

    /// Stores fetched node documents.
    pub fn set_documents(
        &mut self,
        documents: BTreeMap<NodeId, (Digest, Arc<NodeDocument>)>,
    ) -> BTreeSet<NodeId> {
        let is_new =
            |node: &NodeEntry, (digest, _): &(Digest, _)| node.document_digest != Some(*digest);
        let changed = self.store(documents, is_new, |node, (digest, document)| {
            (node.document, node.document_digest) = (Some(document), Some(digest));
        });
        self.conformance_version += changed.len() as u64;
        changed
    }

    /// Stores the last known state of nodes that do not gossip, recalled from the node history.
    pub fn set_last_known(&mut self, found: Vec<NodeEntry>) -> BTreeSet<NodeId> {
        let found = found.into_iter().map(|then| (then.id.clone(), then));
        let is_new = |node: &NodeEntry, _: &_| node.gossip.is_none() && node.last_known.is_none();
        let changed = self.store(found, is_new, |node, then| {
            node.last_known = Some(Arc::new(then));
        });
        self.conformance_version += changed.len() as u64;
        changed
    }

    /// Stores the class marks that include BMC readings.
    pub fn set_merged_marks(
        &mut self,
        found: BTreeMap<NodeId, BTreeMap<Class, MergedMark>>,
    ) -> BTreeSet<NodeId> {
        let is_new = |node: &NodeEntry, merged: &_| node.merged_marks != *merged;
        let changed = self.store(found, is_new, |node, merged| node.merged_marks = merged);
        self.conformance_version += changed.len() as u64;
        self.unsettled.extend(changed.iter().cloned());
        changed
    }

    /// Stores the faults reported by BMCs.
    pub fn set_bmc_faults(&mut self, found: BTreeMap<NodeId, BmcFaults>) -> BTreeSet<NodeId> {
        let is_new = |node: &NodeEntry, faults: &_| *node.bmc_faults != *faults;
        self.store(found, is_new, |node, faults| {
            node.bmc_faults = Arc::new(faults)
        })
    }

    /// Stores the results of pings: liveness, boot id and reply address.
    pub fn set_liveness(&mut self, found: &BTreeMap<NodeId, PingOutcome>) -> BTreeSet<NodeId> {
        let found = found.iter().map(|(id, found)| (id.clone(), found));
        self.store(
            found,
            |_, _| true,
            |node, found| {
                node.liveness = found.liveness;
                node.liveness_reason.clone_from(&found.reason);
                if let Some((boot, at)) = &found.boot {
                    node.set_boot(boot, *at);
                }
                node.reply_addr = found.reply_addr;
            },
        )
    }

    /// Stores the boot id in a reply of an agent to another request than a ping.
    pub fn set_boot(&mut self, id: &NodeId, boot: &str, replied_at: Duration) -> BTreeSet<NodeId> {
        let found = [(id.clone(), boot)];
        let is_new = |node: &NodeEntry, boot: &&str| node.boot.as_deref() != Some(*boot);
        self.store(found, is_new, |node, boot| node.set_boot(boot, replied_at))
    }

    /// Stores for each node how its attestation contradicts its gossip; `None` if it does not.
    pub fn set_contradictions(
        &mut self,
        found: &BTreeMap<NodeId, Option<String>>,
    ) -> BTreeSet<NodeId> {
        let found = found.iter().map(|(id, found)| (id.clone(), found));
        let is_new = |node: &NodeEntry, found: &&Option<String>| node.attestation_fault != **found;
        let changed = self.store(found, is_new, |node, found| {
            node.attestation_fault.clone_from(found);
        });
        self.unsettled.extend(changed.iter().cloned());
        changed
    }

    /// Whether a comparison changes the effect of baselines on some node.
    pub fn changes_effects(&self, compared: &ComparisonResult) -> bool {
        let mut nodes = self.nodes.values();
        nodes.any(|entry| entry.baseline_effect.as_ref() != compared.effects.get(&entry.id))
    }

    /// Replaces the last comparison, and stores the resulting effects on the nodes. `None`: nothing changed.
    pub fn set_comparison(&mut self, compared: ComparisonResult) -> Option<BTreeSet<NodeId>> {
        let affected = self.nodes.values();
        let affected = affected
            .filter(|entry| entry.baseline_effect.as_ref() != compared.effects.get(&entry.id));
        let affected: Vec<NodeId> = affected.map(|entry| entry.id.clone()).collect();
        let is_same =
            *self.cluster_drift == compared.report && *self.cohort_drift == compared.cohorts;
        if affected.is_empty() && is_same {
            return None;
        }
        let drifted = |drift: &ClusterDrift| -> BTreeSet<NodeId> {
            drift.drifted.iter().map(|d| d.node.clone()).collect()
        };
        let mut changed = drifted(&self.cluster_drift);
        changed.extend(drifted(&compared.report));
        for id in affected {
            let effect = compared.effects.get(&id).cloned();
            self.edit(&id, |node| node.baseline_effect = effect);
            self.unsettled.insert(id.clone());
            changed.insert(id);
        }
        self.cohort_drift = Arc::new(compared.cohorts);
        self.cluster_drift = Arc::new(compared.report);
        Some(changed)
    }

    /// Stores each value that is new for its node. Returns the nodes that changed; unknown nodes are left out.
    fn store<T>(
        &mut self,
        found: impl IntoIterator<Item = (NodeId, T)>,
        is_new: impl Fn(&NodeEntry, &T) -> bool,
        set: impl Fn(&mut NodeEntry, T),
    ) -> BTreeSet<NodeId> {
        let mut changed = BTreeSet::new();
        for (id, value) in found {
            if self.node(&id).is_some_and(|node| is_new(node, &value)) {
                self.edit(&id, |node| set(node, value));
                changed.insert(id);
            }
        }
        changed
    }
}
