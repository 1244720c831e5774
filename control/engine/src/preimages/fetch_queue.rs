//! Order of nodes to try for a digest. Any node can publish a digest without its preimage, so failed nodes are
//! remembered and the other nodes get their turn.

use lattice_quorum_types::NodeId;
use std::collections::BTreeMap;

/// Maximum number of nodes tried by one call for one digest. The next call tries the first node again, and other nodes.
pub(super) const MAX_NODES_TRIED: usize = 4;

/// Nodes that were tried for a digest without success; only nodes that published the digest are tried.
#[derive(Debug, Default)]
pub(super) struct FailedSources {
    turn: u64,
    failures: BTreeMap<NodeId, FetchFailures>,
}

/// Failed requests to one node for a digest.
#[derive(Debug, Default)]
struct FetchFailures {
    /// Turn of the last request; 0 for none.
    turn: u64,
    /// Whether the node once returned bytes that do not match the digest, which no correct agent does.
    was_wrong: bool,
}

impl FailedSources {
    /// Nodes to try now, at most [`MAX_NODES_TRIED`]: `first`, then the others, those with the oldest request first.
    /// Nodes that returned wrong bytes come last, also `first`.
    pub(super) fn next<'a>(&self, first: &'a NodeId, others: Vec<&'a NodeId>) -> Vec<&'a NodeId> {
        let mut nodes = others;
        nodes.insert(0, first);
        nodes.sort_by_key(|node| {
            let known = self.failures.get(*node);
            let was_wrong = known.is_some_and(|known| known.was_wrong);
            (was_wrong, *node != first, known.map_or(0, |k| k.turn))
        });
        nodes.truncate(MAX_NODES_TRIED);
        nodes
    }

    /// Records that a node did not hold the preimage, did not answer, or returned wrong bytes.
    pub(super) fn record_failure(&mut self, node: &NodeId, was_wrong: bool) {
        self.turn += 1;
        let known = self.failures.entry(node.clone()).or_default();
        known.turn = self.turn;
        known.was_wrong |= was_wrong;
    }

    /// Clears the state once the preimage is fetched.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Number of callers, each trying a few nodes, until `holder` is tried.
    fn callers(
        names: &[&str],
        first: &str,
        holder: &str,
        is_wrong: impl Fn(&str) -> bool,
    ) -> usize {
        let nodes: Vec<NodeId> = names.iter().map(|n| NodeId::new(*n).unwrap()).collect();
        let first = NodeId::new(first).unwrap();
        let mut asked = FailedSources::default();
        for caller in 1..100 {
            let others = nodes.iter().filter(|node| **node != first).collect();
            let now: Vec<NodeId> = asked.next(&first, others).into_iter().cloned().collect();
            assert!(now.len() <= MAX_NODES_TRIED);
            for node in &now {
                if node.as_str() == holder {
                    return caller;
                }
                asked.record_failure(node, is_wrong(node.as_str()));
            }
        }
        panic!("{holder} is never asked")
    }

    #[test]
    fn holders_take_turns_regardless_of_names() {
        let names = ["a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "z"];
        for first in ["a0", "a3", "a8"] {
            assert_eq!(callers(&names, first, "z", |_| true), 3);
            assert_eq!(callers(&names, first, "z", |_| false), 3);
        }
        assert_eq!(callers(&names, "z", "z", |_| true), 1);
        let (never, always) = (|_: &str| false, |_: &str| true);
        assert_eq!(callers(&["a0", "a1", "a2", "a3", "z"], "a0", "z", never), 2);
        assert_eq!(
            callers(&["a0", "a1", "a2", "a3", "z"], "a0", "z", always),
            2
        );
    }

    #[test]
    fn misbehaving_holder_is_last_resort() {
        let [first, wrong, without] = ["a", "b", "c"].map(|n| NodeId::new(n).unwrap());
        let mut asked = FailedSources::default();
        asked.record_failure(&wrong, true);
        for node in [&without, &first, &first, &without] {
            asked.record_failure(node, false);
        }
        // The node with wrong bytes stays last when its request is the oldest, and when it later returns nothing.
        let next = |asked: &FailedSources| -> Vec<NodeId> {
            let next = asked.next(&first, vec![&wrong, &without]);
            next.into_iter().cloned().collect()
        };
        let order = [first.clone(), without.clone(), wrong.clone()];
        assert_eq!(next(&asked), order);
        asked.record_failure(&wrong, false);
        asked.record_failure(&without, false);
        assert_eq!(next(&asked), order);
        // The same holds for the node that the request is about.
        asked.record_failure(&first, true);
        assert_eq!(next(&asked), [without, first.clone(), wrong]);
    }
}
