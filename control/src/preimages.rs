//! Records and documents behind gossiped digests: fetched once per distinct digest, from whichever
//! node has it, verified, and kept. Ten thousand equal nodes cost one fetch per class.
//!
//! Gossip is a hint: a node may name a digest and not have it, or answer with something else.
//! [`turns`] sees to it that no number of those keeps a record from being had, [`kept`] that none of
//! them makes this process hold whatever it likes.

mod kept;
#[cfg(test)]
mod tests;
mod turns;

use crate::{
    agents::Agents,
    view::{NodeEntry, View},
    words::shortened,
};
use bytes::Bytes;
use kept::Kept;
use lattice_hwprobe::{ClassRecord, Digest, NodeDocument, verify};
use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use std::{fmt, sync::Arc, time::Duration};

/// Longest wait for one node before the next is asked.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of a record or a document: those of large nodes are tens of kilobytes. A longer one is
/// not read.
pub(crate) const MOST_PREIMAGE_BYTES: usize = 512 << 10;

/// Verified preimages by digest.
#[derive(Debug)]
pub(crate) struct Preimages {
    records: Kept<ClassRecord>,
    documents: Kept<NodeDocument>,
}

/// Why what a digest names is not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotHad {
    digest: Digest,
    /// Who was asked, and what came of it.
    asked: Vec<(NodeId, String)>,
    /// How many name it.
    holders: usize,
}

impl fmt::Display for NotHad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (digest, asked, holders) = (self.digest.short(), self.asked.len(), self.holders);
        write!(f, "what {digest} names is not at hand; ")?;
        match holders {
            1 => f.write_str("one node names it")?,
            _ => write!(f, "{holders} nodes name it, {asked} were asked now")?,
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
    pub(crate) fn new() -> Self {
        Self {
            records: Kept::new(),
            documents: Kept::new(),
        }
    }

    /// The record of a class digest, if at hand.
    pub(crate) fn record(&self, digest: &Digest) -> Option<Arc<ClassRecord>> {
        self.records.get(digest)
    }

    /// Keeps a record of a node that was put together here; no node has it.
    pub(crate) fn put_record(&self, node: &NodeId, digest: Digest, record: Arc<ClassRecord>) {
        let slot = self.records.slot(digest);
        let bytes = record.encode().len();
        // Whoever was first put the same.
        let _ = slot.value.set(record);
        self.records.came(digest, &slot, node, bytes);
    }

    /// The record of a digest that `node` names, fetched when it is not at hand: from the node, or
    /// from another that says it as well.
    ///
    /// # Errors
    /// None of those asked now gave it. Others are asked by the next call.
    pub(crate) async fn fetch_record(
        &self,
        agents: &Agents,
        view: &View,
        digest: Digest,
        node: &NodeEntry,
    ) -> Result<Arc<ClassRecord>, NotHad> {
        let others = || others(view, digest, node);
        let read = |bytes: &Bytes| verify(&digest, bytes).map_err(|e| e.to_string());
        let wanted = Wanted {
            digest,
            first: &node.id,
            others,
            read,
        };
        fetch(&self.records, agents, view, wanted).await
    }

    /// A node's document, fetched from it when it is not at hand.
    ///
    /// # Errors
    /// It did not give it.
    pub(crate) async fn fetch_document(
        &self,
        agents: &Agents,
        view: &View,
        digest: Digest,
        node: &NodeId,
    ) -> Result<Arc<NodeDocument>, NotHad> {
        let read = |bytes: &Bytes| NodeDocument::verify(&digest, bytes).map_err(|e| e.to_string());
        let wanted = Wanted {
            digest,
            first: node,
            others: Vec::new,
            read,
        };
        fetch(&self.documents, agents, view, wanted).await
    }
}

/// Living nodes beside `first` that say they have a record: each whose own agent says that digest of
/// any class, under its mark or beside it. Who names a digest need not have it, so it must not be the
/// only one that is asked.
fn others<'a>(view: &'a View, digest: Digest, first: &NodeEntry) -> Vec<&'a NodeId> {
    let says = |node: &NodeEntry| {
        node.seen.as_ref().is_some_and(|seen| {
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

/// What is asked for.
struct Wanted<'a, O, R> {
    digest: Digest,
    /// The node that it is asked for.
    first: &'a NodeId,
    /// Who else names it.
    others: O,
    /// What the bytes are, if they are what the digest names.
    read: R,
}

async fn fetch<'a, T>(
    kept: &Kept<T>,
    agents: &Agents,
    view: &View,
    wanted: Wanted<'a, impl Fn() -> Vec<&'a NodeId>, impl Fn(&Bytes) -> Result<T, String>>,
) -> Result<Arc<T>, NotHad> {
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
                        kept.came(digest, &slot, node, bytes.len());
                        slot.asked().forget();
                        return Ok(Arc::new(value));
                    }
                    Err(why) => {
                        tracing::warn!(%node, %digest, why, "preimage rejected");
                        (why, true)
                    }
                },
                Ok(None) => ("it does not have it".to_owned(), false),
                Err(error) => (shortened(error.cause()), error.is_too_long()),
            };
            tracing::debug!(%node, %digest, why, "preimage not had");
            slot.asked().in_vain(node, was_wrong);
            asked.push((node.clone(), why));
        }
        Err(NotHad {
            digest,
            asked,
            holders,
        })
    });
    fetched.await.cloned()
}
