//! The project tree as it is committed.

use crate::{
    ProjectPath, Revision, UnixMillis,
    limit::{Limits, Usage},
};
use serde::{Deserialize, Serialize};

/// One project, or a tenant (a root). Usage is kept incrementally, so a check is O(depth).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Where it is.
    pub path: ProjectPath,
    /// Its ceilings.
    pub limits: Limits,
    /// Held by the project itself ("Used").
    pub own: Usage,
    /// Held by all projects below it, own not included ("Hierarchical Usage").
    pub subtree: Usage,
    /// Principals who administer it and may set the limits of its children.
    pub admins: Vec<String>,
    /// Text for people.
    pub description: String,
    /// When it was created.
    pub created_at: UnixMillis,
    /// Last change.
    pub revision: Revision,
    /// By an administrator's force the limits of its children add up to more than its own: they are no
    /// promise, and a request has to fit here all the same. It ends when they fit again.
    pub overcommitted: bool,
}

impl Project {
    /// Own usage plus everything below: what a limit is compared with.
    pub fn total(&self) -> Usage {
        self.own.with(self.subtree)
    }
}
