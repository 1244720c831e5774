//! Requests: the node requirements of jobs, shared by jobs with equal requirements.

use crate::machine::windows::{ReservationChoice, ReservationRequester, Windows};
use lattice_quorum_types::{NodeId, spec::Constraints};

/// Node requirements, shared by jobs for which all fields are equal. The requested spread is not part of the
/// requirements and may differ.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) constraints: Constraints,
    pub(crate) sensitive: bool,
    /// Whether borrowed nodes are excluded.
    pub(crate) home_only: bool,
    /// Reservation that the jobs name, with the user and project of the jobs.
    pub(crate) reservation: Option<ReservationRequester>,
}

impl Request {
    pub(crate) fn key(&self) -> Key<'_> {
        key(
            &self.constraints,
            (self.sensitive, self.home_only),
            self.reservation.as_ref(),
        )
    }

    pub(crate) fn reservation_choice(&self, windows: &Windows) -> Option<ReservationChoice> {
        Some(windows.named(self.reservation.as_ref()?))
    }
}

/// All fields of a request except the spread, as a comparison key.
pub(crate) type Key<'a> = (
    (bool, bool),
    &'a [String],
    Option<u32>,
    Option<u64>,
    &'a [String],
    &'a [NodeId],
    &'a [NodeId],
    Option<&'a ReservationRequester>,
);

pub(crate) fn key<'a>(
    wanted: &'a Constraints,
    (sensitive, home_only): (bool, bool),
    naming: Option<&'a ReservationRequester>,
) -> Key<'a> {
    (
        (sensitive, home_only),
        &wanted.gpu_models,
        wanted.gpus_per_node,
        wanted.memory_bytes,
        &wanted.features,
        &wanted.nodelist,
        &wanted.exclude,
        naming,
    )
}
