//! The sensitive pool as a plan uses it up: nodes in sensitive use, of all tenants together.

use crate::explain::Blocker;
use lattice_quorum_types::{AllocationId, UnixMillis, limit::SensitivePool};

/// Room kept from a time on for the job with a reservation.
#[derive(Debug)]
struct Kept {
    by: AllocationId,
    starts_at: UnixMillis,
    nodes: u32,
}

/// What is used, counting what this plan has placed.
#[derive(Debug)]
pub(crate) struct Pool {
    now: SensitivePool,
    kept: Vec<Kept>,
}

impl Pool {
    pub(crate) fn new(now: SensitivePool) -> Self {
        let kept = Vec::new();
        Self { now, kept }
    }

    /// Whether so many nodes more may be in sensitive use.
    pub(crate) fn check(&self, nodes: u32) -> Result<(), Blocker> {
        let requested = u64::from(nodes);
        match self.now.size {
            Some(limit) if !self.now.has_room_for(requested) => Err(Blocker::SensitivePool {
                current: self.now.used,
                requested,
                limit,
            }),
            _ => Ok(()),
        }
    }

    /// Whether `nodes` more, held until `end`, leave what is kept for jobs with reservations; else the
    /// first of those.
    pub(crate) fn leaves_what_is_kept(&self, nodes: u32, end: Option<u64>) -> Result<(), Blocker> {
        let mut then = self.now;
        for kept in &self.kept {
            if end.is_some_and(|end| end <= kept.starts_at.0) {
                continue;
            }
            then.used = then.used.saturating_add(u64::from(kept.nodes));
            if !then.has_room_for(u64::from(nodes)) {
                return Err(Blocker::HeadroomReserved {
                    by: kept.by,
                    starts_at: kept.starts_at,
                });
            }
        }
        Ok(())
    }

    /// Counts a placement.
    pub(crate) fn take(&mut self, nodes: u32) {
        self.now.used = self.now.used.saturating_add(u64::from(nodes));
    }

    /// Keeps room for a job with a reservation.
    pub(crate) fn keep_for(&mut self, nodes: u32, by: AllocationId, starts_at: UnixMillis) {
        self.kept.push(Kept {
            by,
            starts_at,
            nodes,
        });
    }
}
