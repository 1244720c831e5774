//! Sensitive pool of a plan in progress: nodes in sensitive use, of all tenants together.

use crate::explain::Blocker;
use lattice_quorum_types::{AllocationId, UnixMillis, limit::SensitivePool};

/// Headroom kept for a job with a reservation, from the job's planned start on.
#[derive(Debug)]
struct ReservedPool {
    by: AllocationId,
    starts_at: UnixMillis,
    nodes: u32,
}

/// Usage of the pool, including placements of this plan.
#[derive(Debug)]
pub(crate) struct SensitivePoolUsage {
    now: SensitivePool,
    kept: Vec<ReservedPool>,
}

impl SensitivePoolUsage {
    pub(crate) fn new(now: SensitivePool) -> Self {
        let kept = Vec::new();
        Self { now, kept }
    }

    /// Checks that `nodes` more nodes may be in sensitive use.
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

    /// Checks that `nodes` more, held until `end`, leave the headroom kept for jobs with reservations; otherwise
    /// returns the first of those jobs.
    pub(crate) fn check_reserved_headroom(
        &self,
        nodes: u32,
        end: Option<u64>,
    ) -> Result<(), Blocker> {
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
    pub(crate) fn count_placement(&mut self, nodes: u32) {
        self.now.used = self.now.used.saturating_add(u64::from(nodes));
    }

    /// Keeps headroom for a job with a reservation.
    pub(crate) fn keep_for(&mut self, nodes: u32, by: AllocationId, starts_at: UnixMillis) {
        self.kept.push(ReservedPool {
            by,
            starts_at,
            nodes,
        });
    }
}
