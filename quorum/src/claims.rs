//! Nodes' claims before they enter the log: that each was signed by the node it speaks of. That
//! rests on certificates, the trust bundle and the clock of now, so it is no matter for `apply`;
//! in the log a claim is taken for what it says, as the principal is. See `../0005-claims.md`.

use lattice_mesh::{Mesh, Role, Signed};
use lattice_quorum_types::{
    Command, Envelope, Refusal, UnixMillis,
    claim::{Claim, ClaimedNode, Proof},
    refusal::{ProofFault, Unproven},
};

/// Whether there is anything to verify.
pub(crate) fn has_claims(envelope: &Envelope) -> bool {
    matches!(
        envelope.command,
        Command::AssignSensitive { .. } | Command::ClaimNodes { .. }
    )
}

/// Verifies the signatures of a command's claims and takes them out: what was verified need not be
/// kept by every member for all time.
///
/// # Errors
/// Which nodes did not sign what is said in their name.
pub(crate) fn verify(
    mesh: &Mesh,
    envelope: &mut Envelope,
    clock: UnixMillis,
) -> Result<(), Refusal> {
    match &mut envelope.command {
        Command::AssignSensitive { id, nodes } => {
            Refusal::where_unproven(*id, faults(mesh, nodes, clock))
        }
        Command::ClaimNodes { nodes, .. } => {
            Refusal::where_not_conforming(faults(mesh, nodes, clock))
        }
        _ => Ok(()),
    }
}

fn faults(mesh: &Mesh, nodes: &mut [ClaimedNode], clock: UnixMillis) -> Vec<Unproven> {
    let mut faults = Vec::new();
    for ClaimedNode { expected, proof } in nodes {
        if let Err(reason) = signed_by_itself(mesh, proof, clock) {
            faults.push(Unproven {
                node: expected.node.clone(),
                fault: ProofFault::Signature { reason },
            });
        }
        proof.signature.clear();
    }
    faults
}

/// Whether the claim is signed by the node of which it speaks. Which node it ought to speak of is
/// judged with the command.
fn signed_by_itself(mesh: &Mesh, proof: &Proof, clock: UnixMillis) -> Result<(), String> {
    proof.check().map_err(|error| error.to_string())?;
    let signed: Signed = postcard::from_bytes(&proof.signature)
        .map_err(|error| format!("the signature cannot be read: {error}"))?;
    let bytes = postcard::to_stdvec(&proof.claim).map_err(|error| error.to_string())?;
    let signer = mesh.verify_signed(Claim::CONTEXT, &bytes, &signed, clock);
    let signer = signer.map_err(|refused| refused.to_string())?;
    match signer.role() == Role::Agent && signer.id() == proof.claim.node.as_str() {
        true => Ok(()),
        false => Err(format!("it was signed by {signer}")),
    }
}

#[cfg(test)]
mod tests;
