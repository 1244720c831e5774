//! Open streams (events, logs, decisions, backups, gRPC health and reflection), with limits in total, per principal
//! and, for logs, per node.

use lattice_api::problem::{Kind, Problem};
use lattice_quorum_types::NodeId;
use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, hash::Hash, sync::Arc};

/// Maximum number of streams in total.
const MAX_STREAMS: usize = 2_048;
/// Maximum number of streams per principal.
const MAX_PER_CALLER: usize = 64;
/// Maximum number of logs read from one node. Each log is a stream on the one connection to the agent, which allows 64
/// streams; pings and stop orders need some of them.
const MAX_PER_NODE: usize = 16;

/// Counter of open streams; see the module.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<OpenCounts>);

#[derive(Debug, Default)]
struct OpenCounts {
    all: usize,
    of_caller: HashMap<Arc<str>, usize>,
    of_node: HashMap<NodeId, usize>,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, OpenCounts> {
        self.0.lock()
    }

    /// Number of open streams.
    pub(crate) fn count(&self) -> usize {
        self.lock().all
    }

    /// Takes a place for one more stream, to `node` if it is a log; the place is released on drop.
    pub(crate) fn open(
        self: &Arc<Self>,
        caller: &Arc<str>,
        node: Option<&NodeId>,
    ) -> Result<StreamPlace, Problem> {
        let refused = |kind, detail| Err(Problem::new(kind, "too_many_streams", detail));
        let mut open = self.lock();
        if open
            .of_caller
            .get(caller)
            .is_some_and(|n| *n >= MAX_PER_CALLER)
        {
            let detail = format!(
                "{caller} has {MAX_PER_CALLER} event streams and logs open already; close one of \
                 them first"
            );
            return refused(Kind::TooMany, detail);
        }
        if open.all >= MAX_STREAMS {
            let detail = format!("{MAX_STREAMS} streams are open already; try again later");
            return refused(Kind::Unavailable, detail);
        }
        if let Some(node) = node {
            if open.of_node.get(node).is_some_and(|n| *n >= MAX_PER_NODE) {
                let detail = format!(
                    "{MAX_PER_NODE} logs are being read from {node} already; try again later"
                );
                return refused(Kind::Unavailable, detail);
            }
            *open.of_node.entry(node.clone()).or_default() += 1;
        }
        *open.of_caller.entry(caller.clone()).or_default() += 1;
        open.all += 1;
        Ok(StreamPlace {
            streams: self.clone(),
            caller: caller.clone(),
            node: node.cloned(),
        })
    }
}

/// Place of an open stream; see [`Streams::open`].
#[derive(Debug)]
pub(crate) struct StreamPlace {
    streams: Arc<Streams>,
    caller: Arc<str>,
    node: Option<NodeId>,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        open.all -= 1;
        decrement(&mut open.of_caller, &self.caller);
        if let Some(node) = &self.node {
            decrement(&mut open.of_node, node);
        }
    }
}

fn decrement<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_principal_has_a_share_and_a_node_takes_so_many() {
        let streams = Arc::new(Streams::default());
        let node = NodeId::new("gpu001").unwrap();
        let names: Vec<Arc<str>> = (0..40).map(|n| Arc::from(format!("user{n}"))).collect();
        let refused = |name, node| {
            let problem = streams.open(name, node).unwrap_err();
            (problem.status, problem.detail)
        };
        let logs: Vec<_> = names[..MAX_PER_NODE]
            .iter()
            .map(|name| streams.open(name, Some(&node)).unwrap())
            .collect();
        let (status, detail) = refused(&names[20], Some(&node));
        assert_eq!(status, 503);
        assert!(detail.contains("gpu001"), "{detail}");
        // Another node, and event streams, are not affected.
        let other = NodeId::new("gpu002").unwrap();
        drop(streams.open(&names[20], Some(&other)).unwrap());
        let mut held: Vec<_> = (0..MAX_PER_CALLER)
            .map(|_| streams.open(&names[20], None).unwrap())
            .collect();
        let (status, detail) = refused(&names[20], None);
        assert_eq!(status, 429);
        assert!(detail.contains("user20"), "{detail}");
        held.pop();
        held.push(streams.open(&names[20], None).unwrap());
        assert_eq!(streams.count(), MAX_PER_NODE + MAX_PER_CALLER);
        // The total limit applies to all principals together.
        while streams.count() < MAX_STREAMS {
            let name = names.iter().find_map(|name| streams.open(name, None).ok());
            held.push(name.unwrap());
        }
        assert_eq!(refused(&Arc::from("late"), None).0, 503);
        drop((logs, held));
        let open = streams.lock();
        assert_eq!(
            (open.all, open.of_caller.len(), open.of_node.len()),
            (0, 0, 0)
        );
    }
}
