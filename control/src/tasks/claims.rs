//! Claims before sensitive work: plans rest on gossiped digests, which one bad node could forge for
//! others. Before sensitive work is assigned, each chosen node says itself, signed and on the spot,
//! what it is; a node that says other than what the plan was made on gets no sensitive work, and
//! its entry says why. What it said goes along with the assignment, and is held against the
//! baselines once more where that is committed.
//!
//! Here is what the scheduler knows of who said what; `said.rs` asks one node, `proof.rs` is what an
//! assignment rests on, `users.rs` the claims of users.

mod proof;
mod said;
mod users;

pub(crate) use users::{prove, unasked};

use crate::{core::Core, observe, view::View};
use lattice_quorum_types::{
    NodeId,
    claim::{ClaimedNode, Proof},
    command::ExpectedNode,
    refusal::{ProofFault, Unproven},
};
use proof::proof;
use said::{Said, differs, read};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};

/// How long a claim may be used once it was received, and how long a node that could not claim is
/// left alone.
const HOLDS: Duration = Duration::from_secs(30);
/// Agents asked at a time.
const MAX_CALLS: usize = 256;

#[derive(Debug)]
enum Known {
    Claimed(Box<Said>),
    /// It could not be had, or is not what was planned on.
    Refused,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Claims {
    core: Arc<Core>,
    known: BTreeMap<NodeId, (Instant, Known)>,
    /// When they were asked anew, since what they had said was of no use any more.
    asked_anew: BTreeMap<NodeId, Instant>,
    under_way: BTreeSet<NodeId>,
    asked: JoinSet<(NodeId, Result<Said, String>)>,
}

impl Claims {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            known: BTreeMap::new(),
            asked_anew: BTreeMap::new(),
            under_way: BTreeSet::new(),
            asked: JoinSet::new(),
        }
    }

    /// Resolves when a node that was asked has answered, or cannot.
    pub(crate) async fn answered(&mut self) {
        let Some(answer) = self.asked.join_next().await else {
            return std::future::pending().await;
        };
        match answer {
            Ok((node, Ok(said))) => {
                self.under_way.remove(&node);
                let known = Known::Claimed(Box::new(said));
                self.known.insert(node, (Instant::now(), known));
            }
            Ok((node, Err(reason))) => {
                self.under_way.remove(&node);
                self.refuse(node, reason);
            }
            Err(error) => {
                tracing::error!(%error, "asking for a claim broke down; all are asked again");
                self.asked.abort_all();
                self.under_way.clear();
            }
        }
    }

    /// Forgets what is too old. A node that was refused may be chosen again then, and asked anew.
    pub(crate) fn forget_old(&mut self) {
        let now = Instant::now();
        let is_old = |at: Instant| now.saturating_duration_since(at) >= HOLDS;
        self.asked_anew.retain(|_, at| !is_old(*at));
        let old = self.known.extract_if(.., |_, (at, _)| is_old(*at));
        let cleared: BTreeMap<NodeId, Option<String>> = old
            .filter(|(_, (_, known))| matches!(known, Known::Refused))
            .map(|(node, _)| (node, None))
            .collect();
        if !cleared.is_empty() {
            observe::claims(&self.core, &cleared);
        }
    }

    /// The nodes with what speaks for them, once every one claims to be what the view says. Those
    /// that have not said it yet are asked; the next cycle sees what came of it.
    pub(crate) fn confirm(
        &mut self,
        view: &View,
        nodes: &[ExpectedNode],
    ) -> Option<Vec<ClaimedNode>> {
        // Every one is looked at: those that are missing are asked at once, not one by one.
        let looked: Vec<Option<ClaimedNode>> = nodes
            .iter()
            .map(|expected| {
                let proof = self.confirm_one(view, &expected.node)?;
                let expected = expected.clone();
                Some(ClaimedNode { expected, proof })
            })
            .collect();
        looked.into_iter().collect()
    }

    /// Which of these are being asked.
    pub(crate) fn asks(&self, nodes: &[ExpectedNode]) -> Vec<NodeId> {
        let nodes = nodes.iter().map(|expected| &expected.node);
        let asked = nodes.filter(|node| self.under_way.contains(*node));
        asked.cloned().collect()
    }

    /// The first of these that gets no sensitive work for now. One that is asked yet, or was not held against its
    /// baseline yet, is none.
    pub(crate) fn refuses(&self, view: &View, nodes: &[ExpectedNode]) -> Option<NodeId> {
        let is_refused = |node: &NodeId| {
            let known = self.known.get(node);
            let entry = view.node(node);
            matches!(known, Some((_, Known::Refused)))
                || entry.is_some_and(|of| view.is_judged(of) && of.no_sensitive().is_some())
        };
        let mut nodes = nodes.iter().map(|expected| &expected.node);
        nodes.find(|node| is_refused(node)).cloned()
    }

    fn confirm_one(&mut self, view: &View, node: &NodeId) -> Option<Proof> {
        let entry = view.node(node)?;
        // What it gossips now may not have been held against its baseline yet.
        if !view.is_judged(entry) || entry.no_sensitive().is_some() {
            return None;
        }
        let said = match self.known.get(node) {
            Some((_, Known::Claimed(said))) => said.as_ref().clone(),
            Some((_, Known::Refused)) => return None,
            None => {
                self.ask(node);
                return None;
            }
        };
        match differs(&said.claim, entry) {
            None => Some(proof(view, entry, said)),
            Some(reason) => {
                self.refuse(node.clone(), reason);
                None
            }
        }
    }

    /// An assignment was refused for what its nodes said. Where asking anew may help they are, once
    /// in a while: an answer wakes who asks, and what is stale at once again (state time may be far
    /// ahead) would be asked for as fast as it comes. Where not, they get no sensitive work for now,
    /// and their entries say why.
    pub(crate) fn refused(&mut self, faults: &[Unproven]) {
        // One fault for each class: a node may have many, of either kind.
        let mut of_nodes: BTreeMap<&NodeId, &ProofFault> = BTreeMap::new();
        for Unproven { node, fault } in faults {
            let worst = of_nodes.entry(node).or_insert(fault);
            if worst.is_stale() && !fault.is_stale() {
                *worst = fault;
            }
        }
        for (node, fault) in of_nodes {
            if fault.is_stale() && !self.asked_anew.contains_key(node) {
                self.asked_anew.insert(node.clone(), Instant::now());
                self.known.remove(node);
                continue;
            }
            self.refuse(node.clone(), fault.to_string());
        }
    }

    fn refuse(&mut self, node: NodeId, reason: String) {
        tracing::warn!(%node, reason, "node gets no sensitive work for now");
        let refused = BTreeMap::from([(node.clone(), Some(reason))]);
        observe::claims(&self.core, &refused);
        self.known.insert(node, (Instant::now(), Known::Refused));
    }

    fn ask(&mut self, node: &NodeId) {
        if self.asked.len() >= MAX_CALLS || !self.under_way.insert(node.clone()) {
            return;
        }
        let (core, node) = (self.core.clone(), node.clone());
        self.asked.spawn(async move {
            let claim = read(&core, &node).await;
            (node, claim)
        });
    }
}

#[cfg(test)]
impl Claims {
    /// As if this had just been received and found to be signed by the node.
    pub(crate) fn has(
        &mut self,
        claim: lattice_quorum_types::claim::Claim,
        signature: bytes::Bytes,
    ) {
        let node = claim.node.clone();
        let said = Box::new(Said { claim, signature });
        self.known
            .insert(node, (Instant::now(), Known::Claimed(said)));
    }
}

#[cfg(test)]
mod tests;
