//! Node document: identity and resources of a node, distributed by digest.

use crate::{Digest, Identity, NodeResources};
use serde::{Deserialize, Serialize};

/// Version of the document's fields written by this build.
pub const NODE_DOCUMENT_VERSION: u32 = 1;
/// Derivation context of the digest; the digest of a class never equals that of a document.
const CONTEXT: &str = "lattice node document";

/// Identity and resources that a node publishes in addition to its class marks. Gossip carries only the document's
/// digest. A receiver of an unknown digest fetches the bytes once and checks them with [`NodeDocument::verify`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDocument {
    /// [`NODE_DOCUMENT_VERSION`] of the writer.
    pub version: u32,
    /// Name of the node in the cluster.
    pub node: String,
    /// Topology group of the node, if the agent's configuration names one.
    pub topology_group: Option<String>,
    /// Names, serials and addresses of the node.
    pub identity: Identity,
    /// Resources of the node, as placement uses them.
    pub resources: NodeResources,
}

/// Error of encoding, verifying or decoding a node document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The bytes hash to another digest.
    #[error("the document hashes to {found}, not to {expected}")]
    Mismatch {
        /// Requested digest.
        expected: Digest,
        /// Digest of the bytes.
        found: Digest,
    },
    /// The bytes are not a node document.
    #[error("the node document cannot be read")]
    Unreadable(#[from] serde_json::Error),
}

impl NodeDocument {
    /// The encoded document, and its digest.
    ///
    /// # Errors
    /// Does not occur with the current fields: all of them can be encoded as JSON.
    pub fn encode(&self) -> Result<(Digest, Vec<u8>), DocumentError> {
        let bytes = serde_json::to_vec(self)?;
        Ok((Digest::derive(CONTEXT, &bytes), bytes))
    }

    /// Checks that `bytes` have this `digest`, and decodes them. Fields of newer versions are ignored.
    ///
    /// # Errors
    /// The bytes have another digest, or are not a document.
    pub fn verify(digest: &Digest, bytes: &[u8]) -> Result<Self, DocumentError> {
        let found = Digest::derive(CONTEXT, bytes);
        if found != *digest {
            return Err(DocumentError::Mismatch {
                expected: *digest,
                found,
            });
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_document_is_read_back_by_its_digest_and_by_no_other() {
        let document = NodeDocument {
            version: NODE_DOCUMENT_VERSION,
            node: "gpu001".to_owned(),
            topology_group: Some("g0".to_owned()),
            identity: Identity::default(),
            resources: NodeResources::default(),
        };
        let (digest, bytes) = document.encode().unwrap();
        assert_eq!(NodeDocument::verify(&digest, &bytes).unwrap(), document);
        let mut forged = bytes.clone();
        let at = forged.iter().position(|byte| *byte == b'1').unwrap();
        forged[at] = b'2';
        assert!(matches!(
            NodeDocument::verify(&digest, &forged),
            Err(DocumentError::Mismatch { .. })
        ));
    }
}
