//! What a kept change weighs, about: enough to bound memory by. Events weigh what they weigh for
//! everybody.

use super::Change;
use lattice_quorum_types::{event::EventKind, weight};
use std::{mem::size_of, sync::Arc};

/// One name in a set or a list, with what holds it.
const NAME: usize = 64;

/// Takes out what is large and the same in every record.
pub(super) fn slim(change: &mut Change) {
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

/// Bytes, about.
pub(super) fn of(change: &Change) -> usize {
    size_of::<Change>()
        + match change {
            Change::Events(events) => events.iter().map(weight::in_memory).sum(),
            Change::Observed(seen) => (seen.nodes.len() + seen.waiting.len()) * NAME,
            Change::Compacted { .. } => 0,
        }
}
