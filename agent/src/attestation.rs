//! Attestation: the node's signed statement about itself, for callers that must not rely on gossip.

use crate::node::{InventoryUnavailable, NodeView};
use bytes::Bytes;
use lattice_conformance::{ClassMark, CohortKey, Inventory};
use lattice_mesh::{Clock, CredentialsError, WeakMesh};
use lattice_quorum_types::{
    NodeId,
    attestation::{Attestation, ClassAttestation, SchemaDigest},
    baseline::Cohort,
};
use std::sync::Arc;

/// Reason that no attestation was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttestationError {
    /// The node could not be read.
    #[error(transparent)]
    Unread(#[from] InventoryUnavailable),
    /// The inventory is not in the form that this build writes, or the attestation could not be encoded.
    #[error("the attestation could not be encoded: {reason}")]
    Form {
        /// Reason, in words.
        reason: String,
    },
    /// The attestation could not be signed.
    #[error(transparent)]
    Unsigned(#[from] CredentialsError),
    /// The agent is stopping.
    #[error("this agent is stopping")]
    Stopping,
}

/// Builds and signs attestations.
#[derive(Clone)]
pub(crate) struct AttestationSigner {
    pub(crate) node: NodeId,
    pub(crate) boot_id: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) view: NodeView,
    pub(crate) mesh: WeakMesh,
}

impl AttestationSigner {
    /// Reads the node and signs the result. Classes that are incomplete or disabled have no digest, so the attestation
    /// omits them. The digests of earlier schemas are included.
    pub(crate) async fn make(&self, nonce: [u8; 16]) -> Result<Bytes, AttestationError> {
        let form = |reason: String| AttestationError::Form { reason };
        let json = self.view.fresh(None).await?;
        let inventory: Inventory =
            serde_json::from_slice(&json).map_err(|e| form(e.to_string()))?;
        let mut earlier = inventory.earlier(&self.view.schemas());
        let classes = inventory.records.iter().filter_map(|(class, record)| {
            let ClassMark::Complete { schema, digest } = record.state().mark() else {
                return None;
            };
            let earlier = earlier.remove(class).map(|earlier| SchemaDigest {
                schema: earlier.schema,
                digest: earlier.digest.0,
            });
            let claimed = ClassAttestation {
                earlier,
                ..ClassAttestation::of_schema(schema, digest.0)
            };
            Some((class.name().to_owned(), claimed))
        });
        let attestation = Attestation {
            node: self.node.clone(),
            boot_id: self.boot_id.clone(),
            cohort: CohortKey::of(&inventory.identity).map(cohort),
            classes: classes.collect(),
            read_at: self.clock.now(),
            nonce,
        };
        let claim = postcard::to_stdvec(&attestation).map_err(|e| form(e.to_string()))?;
        let mesh = self.mesh.upgrade().ok_or(AttestationError::Stopping)?;
        let signed = mesh.sign(Attestation::CONTEXT, &claim)?;
        let both = (Bytes::from(claim), signed);
        let both = postcard::to_stdvec(&both).map_err(|e| form(e.to_string()))?;
        Ok(both.into())
    }
}

fn cohort(key: CohortKey) -> Cohort {
    Cohort {
        vendor: key.vendor,
        product: key.product,
        gpu_model: key.gpu_model,
        gpu_count: key.gpu_count,
    }
}
