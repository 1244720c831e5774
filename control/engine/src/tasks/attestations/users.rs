//! Node claims of users: every node of a claim is attested concurrently, all or none.

use super::{
    MAX_CALLS,
    proof::proof,
    signed_attestation::{SignedAttestation, differs, read},
};
use crate::core::Core;
use bytes::Bytes;
use futures::{StreamExt, stream};
use lattice_quorum_types::{
    NodeId, UnixMillis,
    attestation::{Attestation, Proof},
    command::{AttestedNode, ExpectedNode},
};
use lattice_view::View;
use std::collections::BTreeMap;

/// Returns placeholder entries for the nodes of a node claim, with empty attestations. With these entries the quorum
/// can check ownership and limits before any node is queried.
pub fn placeholder_proofs(view: &View, nodes: &[NodeId]) -> Vec<AttestedNode> {
    let unasked = |node: &NodeId| AttestedNode {
        expected: expected(view, node),
        proof: Proof {
            attestation: Attestation {
                node: node.clone(),
                boot_id: "not queried yet".to_owned(),
                cohort: None,
                classes: BTreeMap::new(),
                read_at: UnixMillis(0),
                nonce: [0; 16],
            },
            signature: Bytes::new(),
            completed: BTreeMap::new(),
            conforms: BTreeMap::new(),
        },
    };
    nodes.iter().map(unasked).collect()
}

fn expected(view: &View, node: &NodeId) -> ExpectedNode {
    let entry = view.node(node);
    let record = entry.and_then(|entry| entry.record.as_ref());
    ExpectedNode {
        node: node.clone(),
        version: record.map_or(0, |record| record.version),
        boot: entry.and_then(|entry| entry.boot.clone()),
    }
}

/// Requests an attestation from each node and returns the proofs, or the reason for each node that has none.
pub async fn prove(core: &Core, nodes: &[NodeId]) -> Result<Vec<AttestedNode>, Vec<String>> {
    let asked = stream::iter(nodes.to_vec()).map(|node| async move {
        let said = read(core, &node).await;
        (node, said)
    });
    let said: Vec<_> = asked.buffered(MAX_CALLS).collect().await;
    let view = core.view();
    let (mut proven, mut faults) = (Vec::new(), Vec::new());
    for (node, said) in said {
        match said.and_then(|said| attested_node(&view, &node, said)) {
            Ok(claimed) => proven.push(claimed),
            Err(why) => faults.push(format!("node {node}: {why}")),
        }
    }
    match faults.is_empty() {
        true => Ok(proven),
        false => Err(faults),
    }
}

fn attested_node(
    view: &View,
    node: &NodeId,
    said: SignedAttestation,
) -> Result<AttestedNode, String> {
    let entry = view.node(node).ok_or("the node is unknown")?;
    if let Some(reason) = entry.conformance().no_sensitive.as_deref() {
        return Err(reason.to_owned());
    }
    if !view.is_judged(entry) {
        return Err("not yet compared with its baselines; try again".to_owned());
    }
    match differs(&said.attestation, entry) {
        Some(reason) => Err(reason),
        None => Ok(AttestedNode {
            expected: expected(view, node),
            proof: proof(view, entry, said),
        }),
    }
}
