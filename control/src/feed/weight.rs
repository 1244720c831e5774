//! What a kept change weighs, about: enough to bound memory by, cheap enough for every change.

use super::Change;
use lattice_quorum_types::{
    Allocation, Event,
    allocation::{Rank, RankExit, RankPhase},
    event::EventKind,
};
use std::{mem::size_of, sync::Arc};

/// One name in a set or a list, with what holds it.
const NAME: usize = 64;

/// Takes out what is large and the same in every record.
pub(super) fn slim(change: &mut Change) {
    if let Change::Events(events) = change
        && let Some(events) = Arc::get_mut(events)
    {
        for event in events {
            if let EventKind::Allocation { record, .. } = &mut event.kind {
                record.spec.workload = Default::default();
            }
        }
    }
}

/// Bytes, about.
pub(super) fn of(change: &Change) -> usize {
    size_of::<Change>()
        + match change {
            Change::Events(events) => events.iter().map(event).sum(),
            Change::Observed(seen) => (seen.nodes.len() + seen.waiting.len()) * NAME,
            Change::Compacted { .. } => 0,
        }
}

fn event(event: &Event) -> usize {
    size_of::<Event>()
        + match &event.kind {
            EventKind::Allocation { record, .. } => allocation(record),
            EventKind::Node { record } => {
                let reasons = record.drain.iter();
                reasons.map(|d| NAME + d.owner.len() + d.reason.len()).sum()
            }
            EventKind::Project { record } => {
                record.description.len() + record.admins.len() * NAME + NAME
            }
            EventKind::ProjectDeleted { .. }
            | EventKind::Lease { .. }
            | EventKind::Enrolled { .. }
            | EventKind::Trust { .. }
            | EventKind::Audit { .. } => NAME,
        }
}

fn allocation(record: &Allocation) -> usize {
    let constraints = &record.spec.constraints;
    let names = constraints.nodelist.len() + constraints.exclude.len();
    size_of::<Allocation>()
        + record.spec.workload.bytes()
        + names * NAME
        + record.ranks.iter().map(rank).sum::<usize>()
}

fn rank(rank: &Rank) -> usize {
    let words = match &rank.phase {
        RankPhase::Ended { exit, .. } => match exit {
            RankExit::SpawnFailed { reason } => reason.len(),
            RankExit::Lost { evidence } => evidence.len(),
            _ => 0,
        },
        RankPhase::Assigned | RankPhase::Running { .. } => 0,
    };
    size_of::<Rank>() + NAME + words
}
