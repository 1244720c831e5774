//! Project tree: committed records of tenants and projects.

use crate::{
    ProjectPath, Revision, UnixMillis,
    limit::{Limits, Usage},
};
use serde::{Deserialize, Serialize};

/// A project, or a tenant (a root of the tree). Usage is stored incrementally, so a limit check is O(depth).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Path of the project.
    pub path: ProjectPath,
    /// Limits of the project.
    pub limits: Limits,
    /// Usage of the project itself ("Used").
    pub own: Usage,
    /// Usage of all projects below it, without its own ("Hierarchical Usage").
    pub subtree: Usage,
    /// Principals that administer the project and may set the limits of its children.
    pub admins: Vec<String>,
    /// Free-text description.
    pub description: String,
    /// Time of creation.
    pub created_at: UnixMillis,
    /// Revision of the last change.
    pub revision: Revision,
    /// Whether an administrator forced limits of children that add up to more than the project's own limit. The
    /// children's limits are then not guaranteed: a request must still fit the project's own limit. The mark is cleared
    /// when the limits fit again.
    pub overcommitted: bool,
}

impl Project {
    /// Own usage plus the usage below: the value that is compared with a limit.
    pub fn total(&self) -> Usage {
        self.own.with(self.subtree)
    }
}
