//! Node attestations for sensitive jobs.
//!
//! Plans rest on gossiped digests, which one bad node could forge for others. Before a sensitive job is assigned, each
//! chosen node therefore attests its own state: signed, and in answer to a direct query. A node that gives no valid
//! attestation, or one that differs from the planned state, receives no sensitive jobs for a while, and its entry shows
//! why. The attestation is sent with the assignment and checked against the baselines again at commit.
//!
//! This module holds the attestations for the scheduler: `signed_attestation.rs` queries one node, `proof.rs` builds
//! the proof of an assignment, and `users.rs` handles node claims of users.

mod proof;
mod signed_attestation;
mod users;

pub use users::{placeholder_proofs, prove};

use crate::{
    core::Core,
    keyed_tasks::{KeyedTasks, PanickedTask},
    observed_state,
};
use lattice_quorum_types::{
    NodeId,
    attestation::Proof,
    command::{AttestedNode, ExpectedNode},
    refusal::{NodeProofFault, ProofFault},
};
use lattice_view::View;
use proof::proof;
use signed_attestation::{SignedAttestation, differs, read};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Time for which an attestation may be used after its receipt, and for which a refused node is not queried again.
const VALIDITY: Duration = Duration::from_secs(30);
/// Maximum number of agents queried concurrently.
const MAX_CALLS: usize = 256;

#[derive(Debug)]
enum AttestationResult {
    Attested(Box<SignedAttestation>),
    /// The attestation was not available, differs from the planned state, or was rejected by the quorum.
    Refused,
}

/// Attestations held by the scheduler; see the module.
#[derive(Debug)]
pub struct Attestations {
    core: Arc<Core>,
    known: BTreeMap<NodeId, (Instant, AttestationResult)>,
    /// Time at which each node was queried again because its attestation was stale.
    requeried_at: BTreeMap<NodeId, Instant>,
    under_way: BTreeSet<NodeId>,
    asked: KeyedTasks<NodeId, (NodeId, Result<SignedAttestation, String>)>,
}

impl Attestations {
    /// New [`Attestations`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            known: BTreeMap::new(),
            requeried_at: BTreeMap::new(),
            under_way: BTreeSet::new(),
            asked: KeyedTasks::new(),
        }
    }

    /// Resolves when a queried node has answered or failed.
    pub async fn answered(&mut self) {
        let Some(answer) = self.asked.join_next().await else {
            return std::future::pending().await;
        };
        match answer {
            Ok((node, Ok(said))) => {
                self.under_way.remove(&node);
                let known = AttestationResult::Attested(Box::new(said));
                self.known.insert(node, (Instant::now(), known));
            }
            Ok((node, Err(reason))) => {
                self.under_way.remove(&node);
                self.refuse(node, reason);
            }
            // The node is queried again once the refusal is old.
            Err(PanickedTask { key: node, error }) => {
                tracing::error!(%node, %error, "attestation task panicked");
                self.under_way.remove(&node);
                let reason = "control failed to read its attestation; see the log of control";
                self.refuse(node, reason.to_owned());
            }
        }
    }

    /// Discards entries that are too old. A refused node may then be chosen and queried again.
    pub(crate) fn forget_old(&mut self) {
        let now = Instant::now();
        let is_old = |at: Instant| now.saturating_duration_since(at) >= VALIDITY;
        self.requeried_at.retain(|_, at| !is_old(*at));
        let old = self.known.extract_if(.., |_, (at, _)| is_old(*at));
        let cleared: BTreeMap<NodeId, Option<String>> = old
            .filter(|(_, (_, known))| matches!(known, AttestationResult::Refused))
            .map(|(node, _)| (node, None))
            .collect();
        if !cleared.is_empty() {
            observed_state::contradictions(&self.core, &cleared);
        }
    }

    /// Returns the nodes with their proofs, once every node attests the state in the view. Nodes without an attestation
    /// are queried; the next cycle sees the result.
    pub fn confirm(&mut self, view: &View, nodes: &[ExpectedNode]) -> Option<Vec<AttestedNode>> {
        // Every node is checked before returning, so that all missing attestations are requested at once.
        let looked: Vec<Option<AttestedNode>> = nodes
            .iter()
            .map(|expected| {
                let proof = self.confirm_one(view, &expected.node)?;
                let expected = expected.clone();
                Some(AttestedNode { expected, proof })
            })
            .collect();
        looked.into_iter().collect()
    }

    /// Returns the nodes that have a query under way.
    pub(crate) fn pending_nodes(&self, nodes: &[ExpectedNode]) -> Vec<NodeId> {
        let nodes = nodes.iter().map(|expected| &expected.node);
        let asked = nodes.filter(|node| self.under_way.contains(*node));
        asked.cloned().collect()
    }

    /// Returns the first node that currently receives no sensitive jobs. A node with a query under way, or not yet
    /// compared with its baselines, is not returned.
    pub(crate) fn refused_node(&self, view: &View, nodes: &[ExpectedNode]) -> Option<NodeId> {
        let is_refused = |node: &NodeId| {
            let known = self.known.get(node);
            let entry = view.node(node);
            matches!(known, Some((_, AttestationResult::Refused)))
                || entry.is_some_and(|of| {
                    view.is_judged(of) && of.conformance().no_sensitive.as_deref().is_some()
                })
        };
        let mut nodes = nodes.iter().map(|expected| &expected.node);
        nodes.find(|node| is_refused(node)).cloned()
    }

    fn confirm_one(&mut self, view: &View, node: &NodeId) -> Option<Proof> {
        let entry = view.node(node)?;
        // The current gossip of the node may not yet have been compared with its baselines.
        if !view.is_judged(entry) || entry.conformance().no_sensitive.as_deref().is_some() {
            return None;
        }
        let said = match self.known.get(node) {
            Some((_, AttestationResult::Attested(said))) => said.as_ref().clone(),
            Some((_, AttestationResult::Refused)) => return None,
            None => {
                self.ask(node);
                return None;
            }
        };
        match differs(&said.attestation, entry) {
            None => Some(proof(view, entry, said)),
            Some(reason) => {
                self.refuse(node.clone(), reason);
                None
            }
        }
    }

    /// Handles an assignment rejected because of the attestations of its nodes. A stale attestation is requested again,
    /// at most once per period. Without that limit, the requests could form a tight loop: each answer wakes the
    /// scheduler, and may be stale at once again (state time may be far ahead). For any other fault, and for an
    /// attestation that is stale again, the node receives no sensitive jobs for now, and its entry shows why.
    pub(crate) fn refused(&mut self, faults: &[NodeProofFault]) {
        // One fault per node: a node may have several faults of either kind.
        let mut of_nodes: BTreeMap<&NodeId, &ProofFault> = BTreeMap::new();
        for NodeProofFault { node, fault } in faults {
            let worst = of_nodes.entry(node).or_insert(fault);
            if worst.is_stale() && !fault.is_stale() {
                *worst = fault;
            }
        }
        for (node, fault) in of_nodes {
            if fault.is_stale() && !self.requeried_at.contains_key(node) {
                self.requeried_at.insert(node.clone(), Instant::now());
                self.known.remove(node);
                continue;
            }
            self.refuse(node.clone(), fault.to_string());
        }
    }

    fn refuse(&mut self, node: NodeId, reason: String) {
        tracing::warn!(%node, reason, "node excluded from sensitive allocations for now");
        let refused = BTreeMap::from([(node.clone(), Some(reason))]);
        observed_state::contradictions(&self.core, &refused);
        self.known
            .insert(node, (Instant::now(), AttestationResult::Refused));
    }

    fn ask(&mut self, node: &NodeId) {
        if self.asked.len() >= MAX_CALLS || !self.under_way.insert(node.clone()) {
            return;
        }
        let (core, node) = (self.core.clone(), node.clone());
        self.asked.spawn(node.clone(), async move {
            let claim = read(&core, &node).await;
            (node, claim)
        });
    }
}

#[cfg(test)]
impl Attestations {
    /// Stores an attestation as if it had just been received and its signature verified.
    pub(crate) fn has(
        &mut self,
        attestation: lattice_quorum_types::attestation::Attestation,
        signature: bytes::Bytes,
    ) {
        let node = attestation.node.clone();
        let said = Box::new(SignedAttestation {
            attestation,
            signature,
        });
        self.known
            .insert(node, (Instant::now(), AttestationResult::Attested(said)));
    }
}

#[cfg(test)]
mod tests;
