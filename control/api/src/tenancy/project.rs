//! Tenants, projects and their limits.

use crate::{notation::text, problem::FieldError};
use lattice_quorum_types::{
    Command, ProjectPath, Revision,
    command::LimitChange,
    limit::{LimitPatch, Limits, Patch, Usage},
    project::Project,
};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// Limits of a project; `null` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsBody {
    /// Nodes held at the same time by the project and everything below it.
    pub max_nodes: Option<u64>,
    /// Allocations that hold nodes at the same time.
    #[serde(default)]
    pub max_concurrent_allocations: Option<u64>,
}

impl From<Limits> for LimitsBody {
    fn from(l: Limits) -> Self {
        Self {
            max_nodes: l.max_nodes,
            max_concurrent_allocations: l.max_concurrent_allocations,
        }
    }
}
impl From<LimitsBody> for Limits {
    fn from(l: LimitsBody) -> Self {
        Self {
            max_nodes: l.max_nodes,
            max_concurrent_allocations: l.max_concurrent_allocations,
        }
    }
}

/// Usage that counts against limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// Nodes held.
    pub nodes: u64,
    /// Allocations that hold nodes.
    pub allocations: u64,
}

impl From<Usage> for UsageView {
    fn from(u: Usage) -> Self {
        Self {
            nodes: u.nodes,
            allocations: u.allocations,
        }
    }
}

/// Tenant or project as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectView {
    /// Path: `tenant/a/b`.
    pub path: String,
    /// Limits of the project.
    pub limits: LimitsBody,
    /// Usage of the project itself.
    pub own: UsageView,
    /// Usage of everything below the project.
    pub subtree: UsageView,
    /// Usage of the project and everything below it, which is compared with the limits.
    pub total: UsageView,
    /// Administrators.
    pub admins: Vec<String>,
    /// Free-text description.
    pub description: String,
    /// Time of creation.
    pub created_at: String,
    /// Revision of the last change.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Whether the children's limits add up to more than the project's own, after a forced change. Requests must still
    /// fit the project's own limits.
    #[serde(default)]
    pub overcommitted: bool,
}

impl From<&Project> for ProjectView {
    fn from(p: &Project) -> Self {
        Self {
            path: p.path.to_string(),
            limits: p.limits.into(),
            own: p.own.into(),
            subtree: p.subtree.into(),
            total: p.total().into(),
            admins: p.admins.clone(),
            description: p.description.clone(),
            created_at: text::time(p.created_at),
            revision: p.revision,
            overcommitted: p.overcommitted,
        }
    }
}

/// Request for a new project or tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectRequest {
    /// Path: the name of a tenant, or `tenant/a/b`; the parent must exist.
    #[schema(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
        min_length = 1,
        max_length = 4096,
        example = "atlas/physics"
    )]
    pub path: String,
    /// Limits; `null` is unlimited. A limit left out is 0 if a level above limits the same resource, else unlimited.
    /// A tenant without `max_nodes` may hold no nodes.
    #[serde(default)]
    pub limits: ProjectUpdate,
    /// Administrators, which may also set the limits of child projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<crate::notation::schema::Person>, inline)]
    pub admins: Vec<String>,
    /// Free-text description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// Change to the limits of one project. A field left out keeps its value; `null` removes the limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitChangeBody {
    /// Project or tenant.
    #[schema(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
        min_length = 1,
        max_length = 4096,
        example = "atlas/physics"
    )]
    pub path: String,
    /// Nodes held at the same time.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_nodes: Patch,
    /// Allocations that hold nodes at the same time.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_concurrent_allocations: Patch,
}

pub(crate) fn is_unchanged(patch: &Patch) -> bool {
    *patch == Patch::Unchanged
}

/// Serde helpers for limit changes. The value is a number or `null`, since `default` handles a missing field.
pub(crate) mod patch {
    use super::{Deserialize, Deserializer, Patch};
    use serde::Serializer;

    pub(crate) fn serialize<S: Serializer>(patch: &Patch, to: S) -> Result<S::Ok, S::Error> {
        match patch {
            Patch::Set(n) => to.serialize_u64(*n),
            Patch::Unlimited | Patch::Unchanged => to.serialize_none(),
        }
    }
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Patch, D::Error> {
        Option::<u64>::deserialize(from).map(|n| n.map_or(Patch::Unlimited, Patch::Set))
    }
}

/// Change to the project named in the request's path. A field left out keeps its value; `null` removes the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectUpdate {
    /// Nodes held at the same time.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_nodes: Patch,
    /// Allocations that hold nodes at the same time.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_concurrent_allocations: Patch,
}

impl From<ProjectUpdate> for LimitPatch {
    fn from(update: ProjectUpdate) -> Self {
        Self {
            max_nodes: update.max_nodes,
            max_concurrent_allocations: update.max_concurrent_allocations,
        }
    }
}

/// Sets all limits; `None` removes a limit.
impl From<LimitsBody> for ProjectUpdate {
    fn from(limits: LimitsBody) -> Self {
        let patch = |limit: Option<u64>| limit.map_or(Patch::Unlimited, Patch::Set);
        Self {
            max_nodes: patch(limits.max_nodes),
            max_concurrent_allocations: patch(limits.max_concurrent_allocations),
        }
    }
}

impl ProjectUpdate {
    /// Returns the same change for the named project.
    pub fn for_project(self, path: impl Into<String>) -> LimitChangeBody {
        LimitChangeBody {
            path: path.into(),
            max_nodes: self.max_nodes,
            max_concurrent_allocations: self.max_concurrent_allocations,
        }
    }
}

/// Limit changes, applied all or none and checked on the resulting tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsRequest {
    /// At least one change.
    #[schema(min_items = 1)]
    pub changes: Vec<LimitChangeBody>,
    /// Apply the change even if the limits of children then add up to more than their parent's. The parent is marked as
    /// overcommitted until the limits fit. For administrators of the whole cluster.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
}

pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

impl LimitsRequest {
    /// Returns the command that makes these changes.
    ///
    /// # Errors
    /// As [`LimitsRequest::into_changes`].
    pub fn into_command(self) -> Result<Command, FieldError> {
        let force = self.force;
        let changes = self.into_changes()?;
        Ok(match force {
            true => Command::ForceLimits { changes },
            false => Command::SetLimits { changes },
        })
    }

    /// Converts the changes for a command.
    ///
    /// # Errors
    /// The first invalid path, or a request without changes.
    pub fn into_changes(self) -> Result<Vec<LimitChange>, FieldError> {
        if self.changes.is_empty() {
            let (field, reason) = ("changes".to_owned(), "give at least one change".to_owned());
            return Err(FieldError { field, reason });
        }
        let changes = self.changes.into_iter().enumerate();
        changes
            .map(|(n, change)| {
                let path = ProjectPath::new(&change.path).map_err(|error| FieldError {
                    field: format!("changes[{n}].path"),
                    reason: error.to_string(),
                })?;
                let patch = LimitPatch {
                    max_nodes: change.max_nodes,
                    max_concurrent_allocations: change.max_concurrent_allocations,
                };
                Ok(LimitChange { path, patch })
            })
            .collect()
    }
}

/// Answer to a change that creates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeResult {
    /// Revision of the change.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_missing_limit_stays_null_lifts_and_a_number_sets() {
        let body = r#"{"changes":[{"path":"a/b","max_nodes":null},
            {"path":"a","max_concurrent_allocations":7}]}"#;
        let changes = serde_json::from_str::<LimitsRequest>(body)
            .unwrap()
            .into_changes()
            .unwrap();
        assert_eq!(changes[0].patch.max_nodes, Patch::Unlimited);
        assert_eq!(
            changes[0].patch.max_concurrent_allocations,
            Patch::Unchanged
        );
        assert_eq!(changes[1].patch.max_nodes, Patch::Unchanged);
        assert_eq!(changes[1].patch.max_concurrent_allocations, Patch::Set(7));
    }

    #[test]
    fn the_three_cases_survive_being_sent() {
        let sent = LimitsRequest {
            changes: vec![LimitChangeBody {
                path: "a".to_owned(),
                max_nodes: Patch::Unlimited,
                max_concurrent_allocations: Patch::Unchanged,
            }],
            force: false,
        };
        let json = serde_json::to_string(&sent).unwrap();
        assert_eq!(json, r#"{"changes":[{"path":"a","max_nodes":null}]}"#);
        assert_eq!(serde_json::from_str::<LimitsRequest>(&json).unwrap(), sent);
    }

    #[test]
    fn unknown_fields_and_negative_numbers_are_refused() {
        for body in [
            r#"{"changes":[{"path":"a","max_node":1}]}"#,
            r#"{"changes":[{"path":"a","max_nodes":-1}]}"#,
            r#"{"changes":[],"extra":1}"#,
        ] {
            assert!(
                serde_json::from_str::<LimitsRequest>(body).is_err(),
                "{body}"
            );
        }
        let none = serde_json::from_str::<LimitsRequest>(r#"{"changes":[]}"#).unwrap();
        assert_eq!(none.into_changes().unwrap_err().field, "changes");
    }
}
