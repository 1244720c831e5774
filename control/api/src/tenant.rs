//! Tenants in the form that accounting systems know them by, and what holds for the whole cluster.

use crate::{
    amount::{Hours, Parts, patch as amount},
    problem::FieldError,
    project::{LimitsBody, ProjectView, UsageView, is_false, is_unchanged, patch},
};
use lattice_quorum_types::{
    ProjectPath, Revision,
    budget::{SoftLimits, SoftPatch},
    limit::{LimitPatch, LimitPolicy, Patch, SystemLimitPatch},
    view::{Headroom, HeadroomLevel, SystemView},
};
use serde::{Deserialize, Serialize};
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
    /// Hours of GPUs that its work may use in the budget period; `null`: no budget. Beyond it nothing is refused: its
    /// work waits behind the others'.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub gpu_hours_budget: Option<Hours>,
    /// Hours of nodes, likewise. Of two budgets the one that is nearer its end counts.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub node_hours_budget: Option<Hours>,
    /// The part of the cluster that it is to have, 0 to 1; `null`: none is said.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub fair_share_target: Option<Parts>,
    /// How many times that part it may hold while others need nothing, 1 or more; `null`: none is said.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub burst_allowance: Option<Parts>,
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

impl TenantView {
    /// Of its root project, and what it is meant to use.
    pub fn new(root: ProjectView, soft: SoftLimits) -> Self {
        Self {
            id: root.path,
            max_nodes: root.limits.max_nodes,
            max_concurrent_allocations: root.limits.max_concurrent_allocations,
            gpu_hours_budget: soft.gpu_ms_budget.map(Hours),
            node_hours_budget: soft.node_ms_budget.map(Hours),
            fair_share_target: soft.fair_share_ppm.map(Parts),
            burst_allowance: soft.burst_ppm.map(Parts),
            usage: root.total,
            admins: root.admins,
            description: root.description,
            created_at: root.created_at,
            revision: root.revision,
            overcommitted: root.overcommitted,
        }
    }
}

/// A new tenant. A limit that is left out is closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantRequest {
    /// Its name.
    #[schema(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$",
        min_length = 1,
        max_length = 253,
        example = "physics"
    )]
    pub id: String,
    /// Nodes held at the same time; 0 when left out.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_nodes: Patch,
    /// Allocations holding nodes at the same time; unlimited when left out.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_concurrent_allocations: Patch,
    /// Hours of GPUs that its work may use in the budget period; none when left out.
    #[serde(default, with = "amount::hours", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0)]
    pub gpu_hours_budget: Patch,
    /// Hours of nodes that its work may use in the budget period; none when left out.
    #[serde(default, with = "amount::hours", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0)]
    pub node_hours_budget: Patch,
    /// The part of the cluster that it is to have, 0 to 1; none when left out.
    #[serde(default, with = "amount::parts", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0, maximum = 1)]
    pub fair_share_target: Patch,
    /// How many times that part it may hold while others need nothing, 1 to 10000; none when left out.
    #[serde(default, with = "amount::parts", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 1, maximum = 10000)]
    pub burst_allowance: Patch,
    /// Who administers it and may set the limits of its projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<crate::schema::Person>, inline)]
    pub admins: Vec<String>,
    /// Text for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// A change to what a tenant may use and is meant to use: all of it or nothing. A field left out stays, `null` lifts
/// the ceiling where that is allowed.
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
    /// Hours of GPUs that its work may use in the budget period; `null`: none any more.
    #[serde(default, with = "amount::hours", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0)]
    pub gpu_hours_budget: Patch,
    /// Hours of nodes that its work may use in the budget period; `null`: none any more.
    #[serde(default, with = "amount::hours", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0)]
    pub node_hours_budget: Patch,
    /// The part of the cluster that it is to have, 0 to 1; `null`: none any more.
    #[serde(default, with = "amount::parts", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0, maximum = 1)]
    pub fair_share_target: Patch,
    /// How many times that part it may hold while others need nothing, 1 to 10000; `null`: none any more.
    #[serde(default, with = "amount::parts", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 1, maximum = 10000)]
    pub burst_allowance: Patch,
    /// Also below the sum of the limits of its projects: it is marked as overcommitted until they fit.
    /// For administrators of the whole cluster.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
}

impl TenantUpdate {
    /// Its hard limits.
    pub fn limits(&self) -> LimitPatch {
        LimitPatch {
            max_nodes: self.max_nodes,
            max_concurrent_allocations: self.max_concurrent_allocations,
        }
    }

    /// Its soft ones.
    pub fn soft(&self) -> SoftPatch {
        SoftPatch {
            gpu_ms_budget: self.gpu_hours_budget,
            node_ms_budget: self.node_hours_budget,
            fair_share_ppm: self.fair_share_target,
            burst_ppm: self.burst_allowance,
        }
    }
}

impl TenantRequest {
    /// What it says of soft limits, as a change; `None`: nothing.
    pub fn soft(&self) -> Option<SoftPatch> {
        let soft = SoftPatch {
            gpu_ms_budget: self.gpu_hours_budget,
            node_ms_budget: self.node_hours_budget,
            fair_share_ppm: self.fair_share_target,
            burst_ppm: self.burst_allowance,
        };
        (soft != SoftPatch::default()).then_some(soft)
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
    #[schema(pattern = "^(strict|flat)$")]
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

    /// The document's own numbers.
    #[test]
    fn what_is_named_changes_and_what_is_not_stays() {
        let read = |text: &str| serde_json::from_str::<TenantUpdate>(text);
        let update = read(
            r#"{"max_nodes": 250, "max_concurrent_allocations": 50, "gpu_hours_budget": 150000,
                "node_hours_budget": 500000}"#,
        );
        let update = update.unwrap();
        assert_eq!(update.limits().max_nodes, Patch::Set(250));
        let soft = update.soft();
        assert_eq!(soft.gpu_ms_budget, Patch::Set(150_000 * 3_600_000));
        assert_eq!(soft.node_ms_budget, Patch::Set(500_000 * 3_600_000));
        assert_eq!(soft.fair_share_ppm, Patch::Unchanged);
        let share = read(r#"{"fair_share_target": 0.15, "burst_allowance": null}"#).unwrap();
        assert_eq!(share.limits(), LimitPatch::default());
        assert_eq!(share.soft().fair_share_ppm, Patch::Set(150_000));
        assert_eq!(share.soft().burst_ppm, Patch::Unlimited);
        let written = serde_json::to_string(&update).unwrap();
        assert_eq!(read(&written).unwrap(), update);
        assert!(!written.contains("fair_share_target"), "{written}");
        for text in [
            r#"{"max_node": 1}"#,
            r#"{"max_nodes": -1}"#,
            r#"{"max_nodes": 1.5}"#,
            r#"{"gpu_hours_budget": -1}"#,
            r#"{"gpu_hours_budget": "many"}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
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
