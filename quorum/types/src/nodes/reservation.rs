//! Reservations: nodes reserved for some users or projects for a period, for example for maintenance, a course or a
//! deadline.

use crate::{NodeId, ProjectPath, Revision, UnixMillis, id::ReservationName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Largest number of reservations of one site.
pub const MAX_RESERVATIONS: usize = 1024;

/// Content of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationSpec {
    /// Reserved nodes; at least one.
    pub nodes: BTreeSet<NodeId>,
    /// Start of the period, in which only the permitted users and projects may use the nodes.
    pub from: UnixMillis,
    /// End of the period, exclusive; `None`: until the reservation is deleted.
    pub until: Option<UnixMillis>,
    /// Users that may use the nodes during the period.
    pub users: BTreeSet<String>,
    /// Projects that may use the nodes during the period, together with the projects below them.
    pub projects: BTreeSet<ProjectPath>,
    /// Reason, for display.
    pub reason: String,
}

impl ReservationSpec {
    /// Checks whether an allocation of this user in this project may use the reservation.
    pub fn permits(&self, user: &str, project: &ProjectPath) -> bool {
        let within = |allowed: &ProjectPath| project.is_within(allowed);
        self.users.contains(user) || self.projects.iter().any(within)
    }

    /// Checks whether the reservation overlaps the period of `for_ms` milliseconds that starts at `from`; `None` is
    /// unbounded.
    pub fn overlaps(&self, from: UnixMillis, for_ms: Option<u64>) -> bool {
        let ends_before = for_ms.is_some_and(|ms| from.after(ms) <= self.from);
        let is_over = self.until.is_some_and(|until| until <= from);
        !ends_before && !is_over
    }
}

/// A committed reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Name of the reservation.
    pub name: ReservationName,
    /// Content of the reservation.
    pub spec: ReservationSpec,
    /// Principal that created the reservation or changed it last.
    pub by: String,
    /// Revision of the last change.
    pub revision: Revision,
}
