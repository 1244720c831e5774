//! Suspicion periods: when a node was suspect and became alive again.

use super::{HOUR_MS, MAX_LIVENESS_CHANGES, truncate_reason};
use crate::history::NodeObservation;
use lattice_placement::Liveness;
use lattice_view::NodeEntry;
use std::collections::VecDeque;

/// Suspicion state of one node.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    /// Start of the current suspicion, Unix milliseconds, and its reason.
    since: Option<(u64, Option<String>)>,
    /// When suspicions were recorded, Unix milliseconds.
    noted: VecDeque<u64>,
    left_out: u32,
}

impl Suspicion {
    /// Returns a note when the node becomes alive again, dated to the time at which this control first saw it as
    /// suspect. A node that does not return becomes unreachable, and that change is recorded instead.
    pub(super) fn observe(&mut self, node: &NodeEntry, now: u64) -> Option<(u64, NodeObservation)> {
        match node.liveness {
            Liveness::Suspect => {
                let reason = node.liveness_reason.as_deref().map(truncate_reason);
                self.since.get_or_insert((now, reason));
                return None;
            }
            Liveness::Unreachable | Liveness::Unknown => {
                self.since = None;
                return None;
            }
            Liveness::Alive => {}
        }
        let (since, reason) = self.since.take()?;
        self.noted.retain(|at| *at <= now && now - at < HOUR_MS);
        if self.noted.len() >= MAX_LIVENESS_CHANGES {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.noted.push_back(now);
        let noted = NodeObservation::Suspect {
            for_ms: now.saturating_sub(since),
            reason,
            left_out: std::mem::take(&mut self.left_out),
        };
        Some((since.min(now), noted))
    }
}
