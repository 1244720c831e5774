//! Verification of node attestations before their command enters the log: the node that an attestation describes must
//! have signed it. Verification depends on certificates, the trust bundle and the current time, so `apply` cannot do
//! it. `apply` trusts an attestation in the log, as it trusts the principal. See `../../0005-attestations.md`.

use lattice_mesh::{Mesh, Role, StatementSignature};
use lattice_quorum_types::{
    Command, Envelope, Refusal, UnixMillis,
    attestation::{Attestation, Proof},
    command::AttestedNode,
    refusal::{NodeProofFault, ProofFault},
};

/// Returns whether the command carries attestations.
pub(crate) fn has_attestations(envelope: &Envelope) -> bool {
    matches!(
        envelope.command,
        Command::AssignSensitive { .. } | Command::ClaimNodes { .. }
    )
}

/// Verifies the signatures of a command's attestations and removes the signatures: members need not store verified
/// signatures forever.
///
/// # Errors
/// The nodes with an invalid attestation signature.
pub(crate) fn verify(
    mesh: &Mesh,
    envelope: &mut Envelope,
    clock: UnixMillis,
) -> Result<(), Refusal> {
    match &mut envelope.command {
        Command::AssignSensitive { id, nodes } => {
            Refusal::refuse_unproven(*id, faults(mesh, nodes, clock))
        }
        Command::ClaimNodes { nodes, .. } => {
            Refusal::refuse_nonconforming(faults(mesh, nodes, clock))
        }
        _ => Ok(()),
    }
}

fn faults(mesh: &Mesh, nodes: &mut [AttestedNode], clock: UnixMillis) -> Vec<NodeProofFault> {
    let mut faults = Vec::new();
    for AttestedNode { expected, proof } in nodes {
        if let Err(reason) = check_node_signature(mesh, proof, clock) {
            faults.push(NodeProofFault {
                node: expected.node.clone(),
                fault: ProofFault::Signature { reason },
            });
        }
        proof.signature.clear();
    }
    faults
}

/// Checks that the node named in the attestation signed it. The state machine checks that it is the expected node.
fn check_node_signature(mesh: &Mesh, proof: &Proof, clock: UnixMillis) -> Result<(), String> {
    proof.check().map_err(|error| error.to_string())?;
    let signed: StatementSignature = postcard::from_bytes(&proof.signature)
        .map_err(|error| format!("the signature cannot be read: {error}"))?;
    let bytes = postcard::to_stdvec(&proof.attestation).map_err(|error| error.to_string())?;
    let signer = mesh.verify_signed(Attestation::CONTEXT, &bytes, &signed, clock);
    let signer = signer.map_err(|refused| refused.to_string())?;
    match signer.role() == Role::Agent && signer.id() == proof.attestation.node.as_str() {
        true => Ok(()),
        false => Err(format!(
            "the attestation is signed by {signer}, not by the node"
        )),
    }
}

#[cfg(test)]
mod tests;
