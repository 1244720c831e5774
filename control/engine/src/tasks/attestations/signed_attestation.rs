//! Attestation of one node: requested directly, verified, and compared with the planned state.

use super::proof::schema_digest;
use crate::core::Core;
use bytes::Bytes;
use lattice_agent_rpc::GetAttestation;
use lattice_conformance::{Class, EarlierDigest};
use lattice_mesh::{Role, StatementSignature};
use lattice_quorum_types::{NodeId, UnixMillis, attestation::Attestation};
use lattice_view::{NodeEntry, baselines};
use std::time::Duration;

/// Maximum difference between the reading time of an attestation and the clock of this control, in either direction,
/// milliseconds.
pub(super) const MAX_AGE_MS: u64 = 60_000;
/// Call timeout; an agent may have to read its hardware first.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Attestation of a node and its signature.
#[derive(Debug, Clone)]
pub(super) struct SignedAttestation {
    pub(super) attestation: Attestation,
    pub(super) signature: Bytes,
}

/// Requests an attestation from a node and verifies it.
pub(super) async fn read(core: &Core, node: &NodeId) -> Result<SignedAttestation, String> {
    let nonce: [u8; 16] = rand::random();
    let view = core.view();
    let request = GetAttestation { nonce };
    let asked = core.agents.call(&view, node, &request, CALL_TIMEOUT);
    let answer = asked.await.map_err(|error| error.to_string())?;
    let answer = answer.map_err(|reason| format!("it cannot attest: {reason}"))?;
    let malformed = |error: postcard::Error| format!("its attestation cannot be read: {error}");
    let (claim, signed): (Bytes, StatementSignature) =
        postcard::from_bytes(&answer).map_err(malformed)?;
    let now = core.now();
    let mesh = core.agents.mesh();
    let signer = mesh.verify_signed(Attestation::CONTEXT, &claim, &signed, now);
    let signer = signer.map_err(|refused| refused.to_string())?;
    if signer.role() != Role::Agent || signer.id() != node.as_str() {
        return Err(format!("its attestation was signed by {signer}"));
    }
    let attestation: Attestation = postcard::from_bytes(&claim).map_err(malformed)?;
    check(&attestation, node, nonce, now)?;
    let signature = postcard::to_stdvec(&signed).map_err(malformed)?.into();
    Ok(SignedAttestation {
        attestation,
        signature,
    })
}

/// Checks that the attestation is well formed, answers this request and is recent.
pub(super) fn check(
    attestation: &Attestation,
    node: &NodeId,
    nonce: [u8; 16],
    now: UnixMillis,
) -> Result<(), String> {
    let form = attestation.check();
    form.map_err(|fault| format!("its attestation is not valid: {fault}"))?;
    if attestation.node != *node || attestation.nonce != nonce {
        return Err("its attestation answers another request".to_owned());
    }
    let off = attestation.skew_ms(now);
    if off > MAX_AGE_MS {
        return Err(format!(
            "attestation time differs by {} s from this control's clock; limit {} s",
            off / 1000,
            MAX_AGE_MS / 1000
        ));
    }
    Ok(())
}

/// Returns how an attestation differs from the view; `None` if both agree.
pub(super) fn differs(attestation: &Attestation, entry: &NodeEntry) -> Option<String> {
    if entry.boot.as_ref() != Some(&attestation.boot_id) {
        return Some(
            "has rebooted: attested boot id differs from the last reported boot id".to_owned(),
        );
    }
    // Without the document of the node, its cohort is not available here.
    if entry.document.is_some()
        && entry.cohort().as_ref().map(baselines::cohort) != attestation.cohort
    {
        return Some("attested vendor, product or GPUs differ from the node document".to_owned());
    }
    let differs = |class: &Class| {
        let gossiped = entry.published(*class).and_then(|mark| mark.digest());
        let claimed = attestation.classes.get(class.name());
        let beside = entry
            .gossip
            .as_ref()
            .and_then(|seen| seen.earlier.get(class));
        let is_claimed = |earlier: &EarlierDigest| {
            let claimed = claimed.and_then(|said| said.earlier);
            claimed == Some(schema_digest(earlier.schema, earlier.digest))
        };
        // An earlier-schema digest used for planning must be attested as well.
        gossiped.map(|digest| digest.0) != claimed.map(|said| said.now.digest)
            || beside.is_some_and(|earlier| !is_claimed(earlier))
    };
    let classes: Vec<String> = Class::ALL
        .iter()
        .filter(|class| differs(class))
        .map(ToString::to_string)
        .collect();
    (!classes.is_empty()).then(|| {
        let classes = classes.join(", ");
        format!("it attests other digests than it publishes: {classes}")
    })
}
