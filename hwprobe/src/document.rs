//! The small per-node document that travels by digest: who the node is and what it offers.

use crate::{Digest, Facts, Identity};
use serde::{Deserialize, Serialize};

/// Version of the document's fields written by this build.
pub const NODE_DOCUMENT_VERSION: u32 = 1;
/// What a document's digest is derived under; a digest of a class never equals one of a document.
const CONTEXT: &str = "lattice node document";

/// What a node tells of itself beside its class marks. Gossip carries only the document's digest;
/// who does not know that digest fetches the bytes once and checks them with
/// [`NodeDocument::verify`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDocument {
    /// [`NODE_DOCUMENT_VERSION`] of the writer.
    pub version: u32,
    /// The node's name in the cluster.
    pub node: String,
    /// Its topology group, where the agent was told one.
    pub topology_group: Option<String>,
    /// Names, serials, addresses.
    pub identity: Identity,
    /// What placement may ask.
    pub facts: Facts,
}

/// Why bytes are not the document of a digest.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// They hash to another digest.
    #[error("the document hashes to {found}, not to {expected}")]
    Mismatch {
        /// As asked for.
        expected: Digest,
        /// Of the bytes.
        found: Digest,
    },
    /// They are no document.
    #[error("the node document cannot be read")]
    Unreadable(#[from] serde_json::Error),
}

impl NodeDocument {
    /// The bytes that travel, and their digest.
    ///
    /// # Errors
    /// Never for the fields there are today: none of them can refuse to be written as JSON.
    pub fn encode(&self) -> Result<(Digest, Vec<u8>), DocumentError> {
        let bytes = serde_json::to_vec(self)?;
        Ok((Digest::derive(CONTEXT, &bytes), bytes))
    }

    /// Checks that `bytes` have this `digest`, and reads them. Fields of newer versions that this
    /// build does not know are left out.
    ///
    /// # Errors
    /// Bytes of another digest, or that are no document.
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
            facts: Facts::default(),
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
