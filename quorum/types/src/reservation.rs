//! Nodes that are kept for some for a time: maintenance, a course, a deadline.

use crate::{NodeId, ProjectPath, Revision, UnixMillis, id::ReservationName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Reservations of one site.
pub const MAX_RESERVATIONS: usize = 1024;

/// What is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationSpec {
    /// Which nodes; at least one.
    pub nodes: BTreeSet<NodeId>,
    /// From this moment on nobody else has them.
    pub from: UnixMillis,
    /// Until this one, exclusive; `None`: until it is deleted.
    pub until: Option<UnixMillis>,
    /// Users who may use them meanwhile.
    pub users: BTreeSet<String>,
    /// Projects whose work, and that of those below, may use them meanwhile.
    pub projects: BTreeSet<ProjectPath>,
    /// Why, for people.
    pub reason: String,
}

impl ReservationSpec {
    /// Whether this user's work for this project may use it.
    pub fn is_for(&self, user: &str, project: &ProjectPath) -> bool {
        let within = |allowed: &ProjectPath| project.is_within(allowed);
        self.users.contains(user) || self.projects.iter().any(within)
    }

    /// Whether it holds at some moment from `from` on, for so long; `None` is for ever.
    pub fn meets(&self, from: UnixMillis, for_ms: Option<u64>) -> bool {
        let ends_before = for_ms.is_some_and(|ms| from.after(ms) <= self.from);
        let is_over = self.until.is_some_and(|until| until <= from);
        !ends_before && !is_over
    }
}

/// A reservation as it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Its name.
    pub name: ReservationName,
    /// What it is.
    pub spec: ReservationSpec,
    /// Who made it, or changed it last.
    pub by: String,
    /// Last change.
    pub revision: Revision,
}
