//! Approximate weight of a kept change, to bound memory. Events are weighed by [`Event::memory_bytes`].

use super::Change;
use lattice_quorum_types::event::{Event, EventKind};
use std::{mem::size_of, sync::Arc};

/// Bytes of one name in a set or list, with its container.
const NAME_BYTES: usize = 64;

/// Removes the workloads of allocations and the classes of baselines, which may be large. Readers find them in the
/// view.
pub(super) fn drop_large_parts(change: &mut Change) {
    if let Change::Events(events) = change
        && let Some(events) = Arc::get_mut(events)
    {
        for event in events {
            match &mut event.kind {
                EventKind::Allocation { record, .. } => {
                    Arc::make_mut(record).spec.workload = Default::default();
                }
                EventKind::Baseline { record } => record.definition.classes.clear(),
                _ => {}
            }
        }
    }
}

/// Approximate size of a change in bytes.
pub(super) fn weight(change: &Change) -> usize {
    size_of::<Change>()
        + match change {
            Change::Events(events) => events.iter().map(Event::memory_bytes).sum(),
            Change::Observed(seen) => {
                (seen.nodes.len() + seen.waiting.len() + seen.exhausted.len()) * NAME_BYTES
            }
            Change::Compacted { .. } => 0,
        }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::feed::Observed;
    use lattice_quorum_types::{AllocationId, NodeId, ProjectPath};

    #[test]
    fn every_name_of_an_observation_counts() {
        let path = |text: &str| ProjectPath::new(text).unwrap();
        let seen = Observed {
            nodes: [NodeId::new("n1").unwrap()].into(),
            waiting: [AllocationId(1), AllocationId(2)].into(),
            exhausted: [path("a"), path("b"), path("c")].into(),
        };
        let none = weight(&Change::Observed(Arc::default()));
        assert_eq!(
            weight(&Change::Observed(Arc::new(seen))),
            none + 6 * NAME_BYTES
        );
    }
}
