//! Tenants with limits, budgets and shares, and cluster-wide limits.

use super::project::{LimitsBody, ProjectView, UsageView, is_false, is_unchanged, patch};
use crate::{
    notation::amount::{Fraction, Hours, patch as amount},
    problem::FieldError,
};
use lattice_quorum_types::{
    ProjectPath, Revision,
    budget::{SoftLimits, SoftPatch},
    limit::{LimitPatch, OnLimit, Patch, SystemLimitPatch},
    limit_policy::{LimitPolicy, SystemView},
    view::{Headroom, HeadroomLevel},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Tenant as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    /// Name of the tenant, which is the path of its root project.
    pub id: String,
    /// Nodes that the tenant and everything in it may hold at the same time.
    pub max_nodes: Option<u64>,
    /// Allocations of the tenant that may hold nodes at the same time; `null`: unlimited.
    pub max_concurrent_allocations: Option<u64>,
    /// GPU hours that the tenant may use in the budget period; `null`: no budget. Beyond the budget nothing is
    /// rejected, but the tenant's allocations rank behind those of others.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub gpu_hours_budget: Option<Hours>,
    /// Node hours that the tenant may use in the budget period; `null`: no budget. Of two budgets the one that is used
    /// more counts.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub node_hours_budget: Option<Hours>,
    /// Share of the cluster that the tenant should have, 0 to 1; `null`: not set.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub fair_share_target: Option<Fraction>,
    /// Multiple of the fair share that the tenant may hold while others need nothing, 1 or more; `null`: not set.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub burst_allowance: Option<Fraction>,
    /// Handling of submits that fit the limits, but not with the present usage, and state no handling themselves:
    /// `reject` or `wait`.
    #[serde(default = "reject")]
    #[schema(pattern = "^(reject|wait)$")]
    pub on_limit: String,
    /// Usage of the tenant and everything in it.
    pub usage: UsageView,
    /// Administrators, which may also set the limits of the tenant's projects.
    pub admins: Vec<String>,
    /// Free-text description.
    pub description: String,
    /// Time of creation.
    pub created_at: String,
    /// Revision of the last change.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Whether the projects' limits add up to more than the tenant's own, after a forced change. Requests must still
    /// fit the tenant's own limits.
    #[serde(default)]
    pub overcommitted: bool,
}

fn reject() -> String {
    OnLimit::Reject.to_string()
}

/// Reads the handling of submits above limits; `None` when left out.
fn read_on_limit(text: Option<&str>) -> Result<Option<OnLimit>, FieldError> {
    let read = text.map(str::parse::<OnLimit>).transpose();
    read.map_err(|reason| FieldError {
        field: OnLimit::NAME.to_owned(),
        reason,
    })
}

impl TenantView {
    /// Creates the view from the root project, the soft limits and the handling of submits above limits.
    pub fn new(root: ProjectView, soft: SoftLimits, on_limit: OnLimit) -> Self {
        Self {
            id: root.path,
            max_nodes: root.limits.max_nodes,
            max_concurrent_allocations: root.limits.max_concurrent_allocations,
            gpu_hours_budget: soft.gpu_ms_budget.map(Hours),
            node_hours_budget: soft.node_ms_budget.map(Hours),
            fair_share_target: soft.fair_share_ppm.map(Fraction),
            burst_allowance: soft.burst_ppm.map(Fraction),
            on_limit: on_limit.to_string(),
            usage: root.total,
            admins: root.admins,
            description: root.description,
            created_at: root.created_at,
            revision: root.revision,
            overcommitted: root.overcommitted,
        }
    }
}

/// Request for a new tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantRequest {
    /// Tenant name.
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
    /// Allocations that hold nodes at the same time; unlimited when left out.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_concurrent_allocations: Patch,
    /// GPU hours that the tenant may use in the budget period; no budget when left out.
    #[serde(default, with = "amount::hours", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0)]
    pub gpu_hours_budget: Patch,
    /// Node hours that the tenant may use in the budget period; no budget when left out.
    #[serde(default, with = "amount::hours", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0)]
    pub node_hours_budget: Patch,
    /// Share of the cluster that the tenant should have, 0 to 1; not set when left out.
    #[serde(default, with = "amount::parts", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0, maximum = 1)]
    pub fair_share_target: Patch,
    /// Multiple of the fair share that the tenant may hold while others need nothing, 1 to 10000; not set when left
    /// out.
    #[serde(default, with = "amount::parts", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 1, maximum = 10000)]
    pub burst_allowance: Patch,
    /// Handling of submits that fit the limits, but not with the present usage, and state no handling themselves:
    /// `reject` (when left out) or `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(reject|wait)$")]
    pub on_limit: Option<String>,
    /// Administrators, which may also set the limits of the tenant's projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<crate::notation::schema::Person>, inline)]
    pub admins: Vec<String>,
    /// Free-text description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// Change to a tenant's hard and soft limits and to the handling of its submits, applied completely or not at all. A
/// field left out keeps its value; `null` removes the limit where that is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantUpdate {
    /// Nodes held at the same time; a number.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_nodes: Patch,
    /// Allocations that hold nodes at the same time.
    #[serde(default, with = "patch", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<u64>, required = false)]
    pub max_concurrent_allocations: Patch,
    /// GPU hours that the tenant may use in the budget period; `null` removes the budget.
    #[serde(default, with = "amount::hours", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0)]
    pub gpu_hours_budget: Patch,
    /// Node hours that the tenant may use in the budget period; `null` removes the budget.
    #[serde(default, with = "amount::hours", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0)]
    pub node_hours_budget: Patch,
    /// Share of the cluster that the tenant should have, 0 to 1; `null` removes it.
    #[serde(default, with = "amount::parts", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 0, maximum = 1)]
    pub fair_share_target: Patch,
    /// Multiple of the fair share that the tenant may hold while others need nothing, 1 to 10000; `null` removes it.
    #[serde(default, with = "amount::parts", skip_serializing_if = "is_unchanged")]
    #[schema(value_type = Option<f64>, required = false, minimum = 1, maximum = 10000)]
    pub burst_allowance: Patch,
    /// Handling of submits that fit the limits, but not with the present usage, and state no handling themselves:
    /// `reject` or `wait`. For administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(reject|wait)$")]
    pub on_limit: Option<String>,
    /// Apply limits even if they are below the sum of the projects' limits. The tenant is marked as overcommitted until
    /// the limits fit. For administrators of the whole cluster.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
}

impl TenantUpdate {
    /// Returns the hard limits.
    pub fn limits(&self) -> LimitPatch {
        LimitPatch {
            max_nodes: self.max_nodes,
            max_concurrent_allocations: self.max_concurrent_allocations,
        }
    }

    /// Returns the soft limits.
    pub fn soft(&self) -> SoftPatch {
        SoftPatch {
            gpu_ms_budget: self.gpu_hours_budget,
            node_ms_budget: self.node_hours_budget,
            fair_share_ppm: self.fair_share_target,
            burst_ppm: self.burst_allowance,
        }
    }

    /// Reads the handling of submits above limits; `None`: unchanged.
    ///
    /// # Errors
    /// An unknown handling.
    pub fn on_limit(&self) -> Result<Option<OnLimit>, FieldError> {
        read_on_limit(self.on_limit.as_deref())
    }
}

impl TenantRequest {
    /// Reads the handling of submits above limits; `None`: the default.
    ///
    /// # Errors
    /// An unknown handling.
    pub fn on_limit(&self) -> Result<Option<OnLimit>, FieldError> {
        read_on_limit(self.on_limit.as_deref())
    }

    /// Returns the soft limits of the request as a change; `None` if there are none.
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

/// Cluster-wide limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemLimitsView {
    /// Nodes that can be claimed for sensitive use; `null`: unlimited.
    pub sensitive_pool_size: Option<u64>,
    /// Limit policy of projects: `strict` or `flat`.
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

/// Change to the cluster-wide limits. A field left out keeps its value; `null` removes the limit.
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

/// Change of the limit policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitPolicyUpdate {
    /// `strict`: the limits of children add up to at most their parent's, and every level counts. `flat`: only the
    /// limits of the project itself and of its tenant count.
    #[schema(pattern = "^(strict|flat)$")]
    pub limit_policy: String,
}

impl LimitPolicyUpdate {
    /// Reads the policy.
    ///
    /// # Errors
    /// An unknown policy name.
    pub fn policy(&self) -> Result<LimitPolicy, FieldError> {
        self.limit_policy.parse().map_err(|reason| FieldError {
            field: "limit_policy".to_owned(),
            reason,
        })
    }
}

/// Headroom of a project: resources that the project could still get now, by its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadroomView {
    /// Project path.
    pub path: String,
    /// Maximum number of nodes of one more allocation; 0 if none fits, `null` if no level limits nodes.
    pub nodes: Option<u64>,
    /// Number of further allocations that could hold nodes; `null` if no level limits them.
    pub allocations: Option<u64>,
    /// Levels that count, the project first.
    pub levels: Vec<HeadroomLevelView>,
    /// Revision that the headroom is based on.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// Level of a [`HeadroomView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadroomLevelView {
    /// Project or tenant.
    pub path: String,
    /// Limits of the level.
    pub limits: LimitsBody,
    /// Usage that counts against these limits for a request from the project.
    pub counted: UsageView,
    /// Nodes left under `limits.max_nodes`; `null` if the level does not limit nodes.
    #[serde(default)]
    pub nodes_left: Option<u64>,
    /// Allocations left under `limits.max_concurrent_allocations`; `null` if the level does not limit them.
    #[serde(default)]
    pub allocations_left: Option<u64>,
}

impl From<HeadroomLevel> for HeadroomLevelView {
    fn from(level: HeadroomLevel) -> Self {
        let limits = LimitsBody::from(level.limits);
        let left = |limit: Option<u64>, used: u64| Some(limit?.saturating_sub(used));
        Self {
            path: level.path.to_string(),
            nodes_left: left(limits.max_nodes, level.counted.nodes),
            allocations_left: left(limits.max_concurrent_allocations, level.counted.allocations),
            limits,
            counted: level.counted.into(),
        }
    }
}

impl HeadroomView {
    /// Creates the view for the project at `path`.
    pub fn new(path: &ProjectPath, room: Headroom) -> Self {
        Self {
            path: path.to_string(),
            nodes: room.nodes,
            allocations: room.allocations,
            levels: room.levels.into_iter().map(Into::into).collect(),
            revision: room.revision,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_quorum_types::limit::{Limits, Usage};

    /// The numbers are those of the specification.
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

    /// A level above its limit, after an administrator has lowered the limit, has nothing left.
    #[test]
    fn level_shows_amounts_left() {
        let left = |max_nodes, used| {
            let level = HeadroomLevel {
                path: "atlas".parse().unwrap(),
                limits: Limits {
                    max_nodes,
                    max_concurrent_allocations: Some(5),
                },
                counted: Usage {
                    nodes: used,
                    allocations: 2,
                },
            };
            let shown = HeadroomLevelView::from(level);
            (shown.nodes_left, shown.allocations_left)
        };
        assert_eq!(left(Some(10), 4), (Some(6), Some(3)));
        assert_eq!(left(Some(10), 12), (Some(0), Some(3)));
        assert_eq!(left(None, 4), (None, Some(3)));
    }

    #[test]
    fn on_limit_is_read_or_refused_by_name() {
        let update = |text: &str| serde_json::from_str::<TenantUpdate>(text).unwrap();
        let on_limit = |text: &str| update(text).on_limit();
        assert_eq!(on_limit("{}"), Ok(None));
        assert_eq!(on_limit(r#"{"on_limit": "wait"}"#), Ok(Some(OnLimit::Wait)));
        let refused = on_limit(r#"{"on_limit": "queue"}"#).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "on_limit: \"queue\" is not valid; use reject or wait"
        );
        // A tenant as an earlier version shows it.
        let shown = serde_json::json!({
            "id": "a", "max_nodes": 1, "max_concurrent_allocations": null, "admins": [], "description": "",
            "usage": {"nodes": 0, "allocations": 0}, "created_at": "", "revision": 1,
        });
        let read: TenantView = serde_json::from_value(shown).unwrap();
        assert_eq!(read.on_limit, "reject");
    }

    #[test]
    fn unknown_policy_lists_valid_ones() {
        let update = LimitPolicyUpdate {
            limit_policy: "loose".to_owned(),
        };
        let refused = update.policy().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "limit_policy: \"loose\" is not a valid limit policy; use strict or flat"
        );
    }
}
