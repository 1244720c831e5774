//! Preimages of gossiped digests: records and documents, fetched once per distinct digest, verified and cached. Any
//! node that publishes the digest of a record may serve the record, so ten thousand equal nodes cost one fetch per
//! class. A document is fetched only from its own node.
//!
//! Gossip is a hint: a node may publish a digest without holding its preimage, or return other bytes. [`fetch_queue`]
//! ensures that such nodes, however many, cannot prevent a fetch. [`cache`] bounds the memory that such nodes can fill.

mod cache;
mod fetch_queue;
#[cfg(test)]
mod tests;

use crate::{agents::Agents, sanitize::shortened};
use bytes::Bytes;
use cache::PreimageCache;
use lattice_conformance::{ClassRecord, Digest, NodeDocument, verify};
use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use lattice_view::{NodeEntry, View};
use std::{fmt, sync::Arc, time::Duration};

/// Deadline for one node before the next node is tried.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of a record or document in bytes; a longer reply is not read. Records and documents of large nodes have
/// tens of kilobytes.
pub(crate) const MOST_PREIMAGE_BYTES: usize = 512 << 10;

/// Cache of preimages by digest. Clones share one cache.
#[derive(Debug, Clone, Default)]
pub struct Preimages {
    records: Arc<PreimageCache<ClassRecord>>,
    documents: Arc<PreimageCache<NodeDocument>>,
}

/// Error of a fetch: why the preimage of a digest is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreimageUnavailable {
    digest: Digest,
    /// Nodes tried by this call, each with the reason for its failure.
    asked: Vec<(NodeId, String)>,
    /// Number of nodes that can be tried: the first node, and the others that publish the digest.
    holders: usize,
}

impl fmt::Display for PreimageUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (digest, asked, holders) = (self.digest.short(), self.asked.len(), self.holders);
        write!(f, "preimage of {digest} not available; ")?;
        match holders {
            1 => f.write_str("one node publishes it")?,
            _ => write!(f, "{holders} nodes publish it, {asked} were queried")?,
        }
        let mut before = ": ";
        for (node, why) in &self.asked {
            write!(f, "{before}{node}: {why}")?;
            before = "; ";
        }
        Ok(())
    }
}

impl Preimages {
    /// The cached record of a class digest, if any.
    pub fn record(&self, digest: &Digest) -> Option<Arc<ClassRecord>> {
        self.records.get(digest)
    }

    /// Caches a record that is not fetched from a node: a merged record, a record in an earlier schema, or one from the
    /// history. The record counts towards the cache limits of `node`.
    pub fn put_record(&self, node: &NodeId, digest: Digest, record: Arc<ClassRecord>) {
        let slot = self.records.slot(digest);
        let bytes = record.encode().len();
        // Fails if the same record is already stored or is being fetched.
        let _ = slot.value.set(record);
        self.records.record_source(digest, &slot, node, bytes);
    }

    /// The record of a digest that `node` publishes. A record that is not cached is fetched from the node, or from
    /// another node that publishes the digest.
    ///
    /// # Errors
    /// Returns an error when no node tried by this call returned the record. The next call tries `node` again, and then
    /// the nodes not tried for the longest time; nodes that returned wrong bytes come last.
    pub(crate) async fn fetch_record(
        &self,
        agents: &Agents,
        view: &View,
        digest: Digest,
        node: &NodeEntry,
    ) -> Result<Arc<ClassRecord>, PreimageUnavailable> {
        let others = || others(view, digest, node);
        let read = |bytes: &Bytes| verify(&digest, bytes).map_err(|e| e.to_string());
        let wanted = PreimageRequest {
            digest,
            first: &node.id,
            others,
            read,
        };
        fetch(&self.records, agents, view, wanted).await
    }

    /// A node's document, fetched from the node when it is not cached.
    ///
    /// # Errors
    /// Returns an error when the node did not return the document.
    pub(crate) async fn fetch_document(
        &self,
        agents: &Agents,
        view: &View,
        digest: Digest,
        node: &NodeId,
    ) -> Result<Arc<NodeDocument>, PreimageUnavailable> {
        let read = |bytes: &Bytes| NodeDocument::verify(&digest, bytes).map_err(|e| e.to_string());
        let wanted = PreimageRequest {
            digest,
            first: node,
            others: Vec::new,
            read,
        };
        fetch(&self.documents, agents, view, wanted).await
    }
}

/// Alive nodes other than `first` that publish this digest for any class, in the current or an earlier schema. A node
/// that publishes a digest need not hold its preimage, so `first` must not be the only node tried.
fn others<'a>(view: &'a View, digest: Digest, first: &NodeEntry) -> Vec<&'a NodeId> {
    let says = |node: &NodeEntry| {
        node.gossip.as_ref().is_some_and(|seen| {
            let mut marks = seen.marks.values();
            let mut earlier = seen.earlier.values();
            marks.any(|mark| mark.digest() == Some(digest)) || earlier.any(|e| e.digest == digest)
        })
    };
    let alive = view
        .nodes
        .values()
        .filter(|node| node.liveness == Liveness::Alive);
    let others = alive.filter(|node| node.id != first.id && says(node));
    others.map(|node| &node.id).collect()
}

/// A fetch of one preimage.
struct PreimageRequest<'a, O, R> {
    digest: Digest,
    /// Node for which the preimage is fetched; tried first.
    first: &'a NodeId,
    /// Returns the other nodes that publish the digest.
    others: O,
    /// Verifies the bytes against the digest and parses them.
    read: R,
}

async fn fetch<'a, T>(
    kept: &PreimageCache<T>,
    agents: &Agents,
    view: &View,
    wanted: PreimageRequest<'a, impl Fn() -> Vec<&'a NodeId>, impl Fn(&Bytes) -> Result<T, String>>,
) -> Result<Arc<T>, PreimageUnavailable> {
    let digest = wanted.digest;
    let slot = kept.slot(digest);
    let fetched = slot.value.get_or_try_init(|| async {
        let others = (wanted.others)();
        let holders = 1 + others.len();
        let nodes = slot.asked().next(wanted.first, others);
        let mut asked = Vec::new();
        for node in nodes {
            let (why, was_wrong) = match agents.preimage(view, node, digest, ASK_TIMEOUT).await {
                Ok(Some(bytes)) => match (wanted.read)(&bytes) {
                    Ok(value) => {
                        kept.record_source(digest, &slot, node, bytes.len());
                        slot.asked().forget();
                        return Ok(Arc::new(value));
                    }
                    Err(why) => {
                        tracing::warn!(%node, %digest, why, "preimage rejected");
                        (why, true)
                    }
                },
                Ok(None) => ("the node does not have it".to_owned(), false),
                Err(error) => (shortened(error.cause()), error.is_too_long()),
            };
            tracing::debug!(%node, %digest, why, "preimage not available");
            slot.asked().record_failure(node, was_wrong);
            asked.push((node.clone(), why));
        }
        Err(PreimageUnavailable {
            digest,
            asked,
            holders,
        })
    });
    fetched.await.cloned()
}
