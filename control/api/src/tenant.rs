//! Tenants in the form that accounting systems know them by, and what holds for the whole cluster.

use crate::{
    problem::FieldError,
    project::{LimitsBody, ProjectUpdate, ProjectView, UsageView, is_false, is_unchanged, patch},
};
use lattice_quorum_types::{
    ProjectPath, Revision,
    limit::{LimitPolicy, Patch, SystemLimitPatch},
    view::{Headroom, HeadroomLevel, SystemView},
};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use utoipa::ToSchema;

/// A tenant as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    /// Its name, which is the path of its root project.
    pub id: String,
    /// Nodes that it and everything in it may hold at the same time.
    pub max_nodes: Option<u64>,
    /// Allocations of it that may hold nodes at the same time; `null`: unlimited.
    pub max_concurrent_allocations: Option<u64>,
    /// What it and everything in it uses.
    pub usage: UsageView,
    /// Who administers it and may set the limits of its projects.
    pub admins: Vec<String>,
    /// Text for people.
    pub description: String,
    /// When it was created.
    pub created_at: String,
    /// Last change.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// By force the limits of its projects add up to more than its own. Requests have to fit here all
    /// the same.
    #[serde(default)]
    pub overcommitted: bool,
}

impl From<ProjectView> for TenantView {
    fn from(root: ProjectView) -> Self {
        Self {
            id: root.path,
            max_nodes: root.limits.max_nodes,
            max_concurrent_allocations: root.limits.max_concurrent_allocations,
            usage: root.total,
            admins: root.admins,
            description: root.description,
            created_at: root.created_at,
            revision: root.revision,
            overcommitted: root.overcommitted,
        }
    }
}

/// A field that is known and comes later: whether it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Later(bool);

impl Later {
    /// Whether it was given.
    pub fn is_given(self) -> bool {
        self.0
    }
}

impl<'de> Deserialize<'de> for Later {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Self(true))
    }
}

/// A new tenant. A limit that is left out is closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantRequest {
    /// Its name.
    #[schema(example = "physics")]
    pub id: String,
    /// Nodes held at the same time; 0 when left out.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_nodes: Patch,
    /// Allocations holding nodes at the same time; unlimited when left out.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_concurrent_allocations: Patch,
    /// Who administers it and may set the limits of its projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admins: Vec<String>,
    /// Text for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// A change to a tenant's limits. A field left out stays, `null` lifts the ceiling where that is
/// allowed. Budgets and shares are not here yet and are refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantUpdate {
    /// Nodes held at the same time; a number.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_nodes: Patch,
    /// Allocations holding nodes at the same time.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_concurrent_allocations: Patch,
    /// Also below the sum of the limits of its projects: it is marked as overcommitted until they fit.
    /// For administrators of the whole cluster.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    gpu_hours_budget: Later,
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    node_hours_budget: Later,
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    fair_share_target: Later,
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    burst_allowance: Later,
}

impl TenantUpdate {
    /// Of the hard limits.
    pub fn hard(max_nodes: Patch, max_concurrent_allocations: Patch) -> Self {
        Self {
            max_nodes,
            max_concurrent_allocations,
            ..Self::default()
        }
    }

    /// The same, also below the sum of the limits of its projects, where `force` is so.
    #[must_use]
    pub fn by_force(self, force: bool) -> Self {
        Self { force, ..self }
    }

    /// As a change to its root project.
    ///
    /// # Errors
    /// The first field that is not here yet.
    pub fn of_root(self) -> Result<ProjectUpdate, FieldError> {
        let later = [
            ("gpu_hours_budget", self.gpu_hours_budget),
            ("node_hours_budget", self.node_hours_budget),
            ("fair_share_target", self.fair_share_target),
            ("burst_allowance", self.burst_allowance),
        ];
        match later.into_iter().find(|(_, given)| given.0) {
            None => Ok(ProjectUpdate {
                max_nodes: self.max_nodes,
                max_concurrent_allocations: self.max_concurrent_allocations,
            }),
            Some((field, _)) => Err(not_yet(field)),
        }
    }
}

/// Why a budget or a share is refused. Nothing was changed.
pub fn not_yet(field: &str) -> FieldError {
    FieldError {
        field: field.to_owned(),
        reason: "budgets and shares are not here yet; leave it out: max_nodes and \
                 max_concurrent_allocations can be set. Nothing was changed"
            .to_owned(),
    }
}

/// What is limited for the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemLimitsView {
    /// Nodes that can be claimed for sensitive use; `null`: unlimited.
    pub sensitive_pool_size: Option<u64>,
    /// What limits of projects mean: `strict` or `flat`.
    pub limit_policy: String,
}

impl From<SystemView> for SystemLimitsView {
    fn from(view: SystemView) -> Self {
        Self {
            sensitive_pool_size: view.limits.sensitive_pool_size,
            limit_policy: view.limit_policy.to_string(),
        }
    }
}

/// A change to what is limited for the whole cluster. A field left out stays, `null` lifts the ceiling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemLimitsUpdate {
    /// Nodes that can be claimed for sensitive use.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub sensitive_pool_size: Patch,
}

impl From<SystemLimitsUpdate> for SystemLimitPatch {
    fn from(update: SystemLimitsUpdate) -> Self {
        Self {
            sensitive_pool_size: update.sensitive_pool_size,
        }
    }
}

/// What limits of projects are to mean from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitPolicyUpdate {
    /// `strict`: children add up to at most their parent's, and every level counts. `flat`: a
    /// project's own limit counts, and its tenant's.
    pub limit_policy: String,
}

impl LimitPolicyUpdate {
    /// The policy.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn policy(&self) -> Result<LimitPolicy, FieldError> {
        self.limit_policy.parse().map_err(|reason| FieldError {
            field: "limit_policy".to_owned(),
            reason,
        })
    }
}

/// How much more a project could be given now, as far as limits go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadroomView {
    /// Which project.
    pub path: String,
    /// Most nodes that one more allocation could have; 0 when none fits, `null` when no level limits
    /// them.
    pub nodes: Option<u64>,
    /// Allocations that could hold nodes besides; `null` when no level limits them.
    pub allocations: Option<u64>,
    /// The levels that have a say, the project first.
    pub levels: Vec<HeadroomLevelView>,
    /// When that was.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// One level of a [`HeadroomView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadroomLevelView {
    /// The project, or tenant.
    pub path: String,
    /// Its ceilings.
    pub limits: LimitsBody,
    /// What counts against them for a request from the project that was asked for.
    pub counted: UsageView,
}

impl HeadroomView {
    /// Of the project at `path`.
    pub fn new(path: &ProjectPath, room: Headroom) -> Self {
        let level = |level: HeadroomLevel| HeadroomLevelView {
            path: level.path.to_string(),
            limits: level.limits.into(),
            counted: level.counted.into(),
        };
        Self {
            path: path.to_string(),
            nodes: room.nodes,
            allocations: room.allocations,
            levels: room.levels.into_iter().map(level).collect(),
            revision: room.revision,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_not_here_yet_is_refused_by_its_name() {
        let read = |text: &str| serde_json::from_str::<TenantUpdate>(text).unwrap();
        let root = read(r#"{"max_nodes": 250, "max_concurrent_allocations": null}"#);
        let root = root.of_root().unwrap();
        assert_eq!(root.max_nodes, Patch::Set(250));
        assert_eq!(root.max_concurrent_allocations, Patch::Unlimited);
        for field in [
            "gpu_hours_budget",
            "node_hours_budget",
            "fair_share_target",
            "burst_allowance",
        ] {
            for value in ["150000", "0.5", "null"] {
                let text = format!(r#"{{"max_nodes": 1, "{field}": {value}}}"#);
                let refused = read(&text).of_root().unwrap_err();
                assert_eq!(refused.field, field);
                assert!(refused.reason.contains("not here yet"), "{refused}");
            }
        }
        for text in [
            r#"{"max_node": 1}"#,
            r#"{"max_nodes": -1}"#,
            r#"{"max_nodes": 1.5}"#,
        ] {
            assert!(
                serde_json::from_str::<TenantUpdate>(text).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn a_policy_that_is_none_is_told_which_there_are() {
        let update = LimitPolicyUpdate {
            limit_policy: "loose".to_owned(),
        };
        let refused = update.policy().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "limit_policy: \"loose\" is no limit policy; use strict or flat"
        );
    }
}
