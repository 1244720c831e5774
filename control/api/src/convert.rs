//! Conversion between the REST types and the messages of `lattice.v1`.

use crate::{
    cluster::status::StatusView,
    jobs::{
        allocation::{AllocationRequest, AllocationView, ConstraintsBody, RankView, SubmitResult},
        explanation::{ExplanationView, ScoreView},
        outlook::OutlookView,
    },
    nodes::{
        conformance::{DiffView, DifferenceView},
        node::NodeView,
        node_status::NodeProblemView,
    },
    notation::amount::{Amount, Fraction, Hours},
    page::Page,
    problem::FieldError,
    tenancy::{
        accounting::{
            AccountingStatus, MissingRightView, ReconcileRequest, ReconcileView,
            RejectedRequestView, TotalDifference,
        },
        project::{
            LimitChangeBody, LimitsRequest, ProjectRequest, ProjectUpdate, ProjectView, UsageView,
        },
        tenant::{HeadroomView, SystemLimitsUpdate, SystemLimitsView, TenantUpdate, TenantView},
        usage::{PausedProjectView, TenantUsage, UserTenantUsage, UserUsage},
    },
    v1,
};
use lattice_quorum_types::limit::Patch;

/// Converts a view to a message field by field; a field that is missing on either side does not compile.
macro_rules! field_by_field {
    ($($view:ident => $message:ident { $($field:ident),* $(,)? })*) => { $(
        impl From<$view> for v1::$message {
            fn from(view: $view) -> Self {
                let $view { $($field),* } = view;
                Self { $($field),* }
            }
        }
    )* };
}

mod admin;
mod conformance;
mod dag;
mod hardware;
mod progress;
mod quorum;
#[cfg(test)]
mod tests;
mod vcluster;

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl From<v1::Constraints> for ConstraintsBody {
    fn from(c: v1::Constraints) -> Self {
        Self {
            gpu_models: c.gpu_models,
            gpus_per_node: c.gpus_per_node,
            memory_bytes: c.memory_bytes,
            features: c.features,
            nodelist: non_empty(c.nodelist),
            exclude: non_empty(c.exclude),
            spread: non_empty(c.spread),
        }
    }
}

impl TryFrom<v1::SubmitRequest> for AllocationRequest {
    type Error = FieldError;
    fn try_from(r: v1::SubmitRequest) -> Result<Self, FieldError> {
        let class = r
            .class
            .map(u8::try_from)
            .transpose()
            .map_err(|_| FieldError {
                field: "class".to_owned(),
                reason: "it must be 0 to 10".to_owned(),
            })?;
        Ok(Self {
            project: r.project,
            nodes: r.nodes,
            name: r.name,
            vcluster: non_empty(r.vcluster),
            argv: r.argv,
            script: r.script,
            env: r.env.into_iter().collect(),
            working_dir: r.working_dir,
            walltime: non_empty(r.walltime),
            class,
            sensitive: r.sensitive,
            constraints: r.constraints.unwrap_or_default().into(),
            requeue: non_empty(r.requeue),
            hold: r.hold,
            output: r.output,
            error: r.error,
            data_ready: r.data_ready,
            checkpoint_time: non_empty(r.checkpoint_time),
            storage_gb_s: r.storage_gb_s.into_iter().collect(),
            array: non_empty(r.array),
            dependencies: r.dependencies.into_iter().map(Into::into).collect(),
            dependency: non_empty(r.dependency),
            singleton: r.singleton,
            mutex: non_empty(r.mutex),
            begin: non_empty(r.begin),
            deadline: non_empty(r.deadline),
            checkpoint: r.checkpoint.map(Into::into),
            scale: r.scale.map(TryInto::try_into).transpose()?,
            reservation: non_empty(r.reservation),
            on_limit: non_empty(r.on_limit),
        })
    }
}

field_by_field! {
    DifferenceView => Difference { class, key, left, right, verdict }
    NodeProblemView => NodeProblem { status, nodes, reason }
    RankView => Rank { rank, node, phase, since, exit }
    UsageView => Usage { nodes, allocations }
}

impl From<SubmitResult> for v1::SubmitResponse {
    fn from(s: SubmitResult) -> Self {
        Self {
            id: s.id.map(|id| id.0),
            revision: s.revision.0,
            outlook: s.outlook.map(Into::into),
        }
    }
}

impl From<OutlookView> for v1::Outlook {
    fn from(outlook: OutlookView) -> Self {
        let OutlookView {
            summary,
            starts_now,
            nodes,
            groups,
            span,
            score,
            explanation,
        } = outlook;
        Self {
            summary,
            starts_now,
            nodes,
            groups,
            span,
            score: score.map(Into::into),
            explanation: explanation.map(Into::into),
        }
    }
}

impl From<AllocationView> for v1::Allocation {
    fn from(a: AllocationView) -> Self {
        // The view's walltime was formatted from milliseconds, so reading it back cannot fail.
        let walltime_s = a
            .walltime
            .and_then(|text| crate::notation::duration::parse(&text).ok())
            .map(|ms| ms.div_ceil(1_000));
        Self {
            id: a.id.0,
            user: a.user,
            name: a.name,
            project: a.project,
            vcluster: a.vcluster,
            state: a.state,
            state_since: a.state_since,
            submitted_at: a.submitted_at,
            started_at: a.started_at,
            ended_at: a.ended_at,
            nodes: a.nodes,
            nodelist: a.nodelist,
            attempt: a.attempt,
            walltime_s,
            class: a.class.into(),
            sensitive: a.sensitive,
            ranks: a.ranks.into_iter().map(Into::into).collect(),
            stop: a.stop,
            reason: a.reason,
            revision: a.revision.0,
            data_ready: a.data_ready,
            checkpoint_time: a.checkpoint_time,
            storage_gb_s: a.storage_gb_s.into_iter().collect(),
            dependencies: a.dependencies.into_iter().map(Into::into).collect(),
            mutex: a.mutex,
            begin_at: a.begin_at,
            deadline_at: a.deadline_at,
            array: a.array,
            checkpoint: a.checkpoint.map(Into::into),
            scale: a.scale.map(Into::into),
            reservation: a.reservation,
            element_counts: a.element_counts.map(Into::into),
            element: a.element.map(Into::into),
            dag: a.dag.map(Into::into),
            waits_for: a.waits_for.map(Into::into),
            preempted: a.preempted,
            checkpoints: a.checkpoints.map(Into::into),
            ends_at: a.ends_at,
            time_left: a.time_left,
            kill_at: a.kill_at,
            node_problems: a.node_problems.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Page<AllocationView>> for v1::ListAllocationsResponse {
    fn from(page: Page<AllocationView>) -> Self {
        let items = page.items.into_iter().map(Into::into).collect();
        Self {
            items,
            next_cursor: page.next_cursor,
        }
    }
}

impl From<ExplanationView> for v1::Explanation {
    fn from(e: ExplanationView) -> Self {
        let ExplanationView {
            allocation,
            element,
            state,
            summary,
            blocker,
            steps,
            estimated_start,
            reserved,
            score,
            as_of,
            ends_at,
            kill_at,
            node_problems,
        } = e;
        let steps = steps.into_iter().map(|s| v1::ExplanationStep {
            constraint: s.constraint,
            removed: s.removed,
            left: s.left,
        });
        Self {
            allocation: allocation.0,
            element: element.map(Into::into),
            state,
            summary,
            blocker,
            steps: steps.collect(),
            estimated_start,
            as_of,
            reserved,
            score: score.map(Into::into),
            ends_at,
            kill_at,
            node_problems: node_problems.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ScoreView> for v1::Score {
    fn from(score: ScoreView) -> Self {
        let ScoreView {
            factors,
            sum,
            budget,
            share,
            accounting,
            total,
            ahead,
        } = score;
        let factors = factors.into_iter().map(|factor| v1::Factor {
            name: factor.name,
            value: factor.value,
            weight: factor.weight,
        });
        Self {
            factors: factors.collect(),
            sum,
            budget,
            share,
            accounting,
            total,
            ahead,
        }
    }
}

impl From<Page<NodeView>> for v1::ListNodesResponse {
    fn from(page: Page<NodeView>) -> Self {
        let items = page.items.into_iter().map(Into::into).collect();
        Self {
            items,
            next_cursor: page.next_cursor,
        }
    }
}

impl From<DiffView> for v1::DiffResponse {
    fn from(d: DiffView) -> Self {
        Self {
            left: d.left,
            right: d.right,
            differences: d.differences.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ProjectView> for v1::Project {
    fn from(p: ProjectView) -> Self {
        Self {
            path: p.path,
            max_nodes: p.limits.max_nodes,
            max_concurrent_allocations: p.limits.max_concurrent_allocations,
            own: Some(p.own.into()),
            subtree: Some(p.subtree.into()),
            total: Some(p.total.into()),
            admins: p.admins,
            description: p.description,
            revision: p.revision.0,
            overcommitted: p.overcommitted,
            created_at: p.created_at,
        }
    }
}

impl From<v1::CreateProjectRequest> for ProjectRequest {
    fn from(r: v1::CreateProjectRequest) -> Self {
        let limit = |number: Option<u64>, unlimited| match (number, unlimited) {
            (Some(number), _) => Patch::Set(number),
            (None, true) => Patch::Unlimited,
            (None, false) => Patch::Unchanged,
        };
        let limits = ProjectUpdate {
            max_nodes: limit(r.max_nodes, r.unlimited_nodes),
            max_concurrent_allocations: limit(
                r.max_concurrent_allocations,
                r.unlimited_allocations,
            ),
        };
        Self {
            path: r.path,
            limits,
            admins: r.admins,
            description: r.description,
        }
    }
}

fn patch(value: Option<v1::LimitChangeValue>) -> Patch {
    use v1::limit_change_value::Change;
    match value.and_then(|v| v.change) {
        None => Patch::Unchanged,
        Some(Change::Set(n)) => Patch::Set(n),
        Some(Change::Unlimited(_)) => Patch::Unlimited,
    }
}

impl From<v1::UpdateProjectRequest> for ProjectUpdate {
    fn from(r: v1::UpdateProjectRequest) -> Self {
        Self {
            max_nodes: patch(r.max_nodes),
            max_concurrent_allocations: patch(r.max_concurrent_allocations),
        }
    }
}

impl TryFrom<v1::UpdateTenantRequest> for TenantUpdate {
    type Error = FieldError;
    fn try_from(r: v1::UpdateTenantRequest) -> Result<Self, FieldError> {
        Ok(Self {
            max_nodes: patch(r.max_nodes),
            max_concurrent_allocations: patch(r.max_concurrent_allocations),
            gpu_hours_budget: amount::<Hours>("gpu_hours_budget", r.gpu_hours_budget)?,
            node_hours_budget: amount::<Hours>("node_hours_budget", r.node_hours_budget)?,
            fair_share_target: amount::<Fraction>("fair_share_target", r.fair_share_target)?,
            burst_allowance: amount::<Fraction>("burst_allowance", r.burst_allowance)?,
            on_limit: non_empty(r.on_limit),
            force: r.force,
        })
    }
}

fn amount<A: Amount>(
    field: &str,
    change: Option<v1::AmountChangeValue>,
) -> Result<Patch, FieldError> {
    use v1::amount_change_value::Change;
    match change.and_then(|value| value.change) {
        None => Ok(Patch::Unchanged),
        Some(Change::Lifted(_)) => Ok(Patch::Unlimited),
        Some(Change::Set(number)) => match A::from_number(number) {
            Ok(amount) => Ok(Patch::Set(amount.in_small_units())),
            Err(reason) => Err(FieldError {
                field: field.to_owned(),
                reason,
            }),
        },
    }
}

impl From<TenantUsage> for v1::TenantUsage {
    fn from(view: TenantUsage) -> Self {
        Self {
            tenant: view.tenant,
            days: view.days,
            since: view.since,
            until: view.until,
            node_hours_used: view.node_hours_used.number(),
            gpu_hours_used: view.gpu_hours_used.number(),
            idle_claimed_node_hours: view.idle_claimed_node_hours.number(),
            budget_period_days: view.budget_period_days,
            gpu_hours_budget: view.gpu_hours_budget.map(Amount::number),
            node_hours_budget: view.node_hours_budget.map(Amount::number),
            budget_used: view.budget_used,
            budget_factor: view.budget_factor,
            share_factor: view.share_factor,
            accounting_factor: view.accounting_factor,
            priority_factor: view.priority_factor,
            source: view.source,
            fair_share_target: view.fair_share_target.map(Amount::number),
            burst_allowance: view.burst_allowance.map(Amount::number),
            share: view.share,
            exceeds_share: view.exceeds_share,
            downscaled: view.downscaled,
            paused: view.paused.into_iter().map(Into::into).collect(),
            revision: view.revision.0,
        }
    }
}

impl From<PausedProjectView> for v1::PausedProject {
    fn from(view: PausedProjectView) -> Self {
        Self {
            project: view.project,
            vcluster: view.vcluster,
        }
    }
}

impl From<UserUsage> for v1::UserUsage {
    fn from(view: UserUsage) -> Self {
        Self {
            user: view.user,
            days: view.days,
            since: view.since,
            until: view.until,
            node_hours_used: view.node_hours_used.number(),
            gpu_hours_used: view.gpu_hours_used.number(),
            idle_claimed_node_hours: view.idle_claimed_node_hours.number(),
            tenants: view.tenants.into_iter().map(Into::into).collect(),
            revision: view.revision.0,
        }
    }
}

impl From<AccountingStatus> for v1::AccountingStatus {
    fn from(view: AccountingStatus) -> Self {
        Self {
            enabled: view.enabled,
            is_active: view.is_active,
            provider: view.provider,
            version: view.version,
            complete_at: view.complete_at,
            failure: view.failure,
            retry_at: view.retry_at,
            last: view.last,
            acknowledged: view.acknowledged,
            behind: view.behind,
            in_memory: view.in_memory,
            buffer_size: view.buffer_size,
            on_disk: view.on_disk,
            disk_buffer_max_events: view.disk_buffer_max_events,
            full: view.full,
            dropped: view.dropped,
            sent: view.sent,
            reported: view.reported,
            rejected: view.rejected.into_iter().map(Into::into).collect(),
            round_began_at: view.round_began_at,
            clock_skew_ms: view.clock_skew_ms,
            missing_rights: view.missing_rights.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<MissingRightView> for v1::MissingRight {
    fn from(view: MissingRightView) -> Self {
        Self {
            right: view.right,
            places: view.places,
            effect: view.effect,
            next_step: view.next_step,
            waiting: view.waiting,
            since: view.since,
            reason: view.reason,
        }
    }
}

impl From<RejectedRequestView> for v1::RejectedRequest {
    fn from(view: RejectedRequestView) -> Self {
        Self {
            subject: view.subject,
            since: view.since,
            reason: view.reason,
        }
    }
}

impl From<v1::ReconcileAccountingRequest> for ReconcileRequest {
    fn from(r: v1::ReconcileAccountingRequest) -> Self {
        Self {
            since: r.since,
            until: r.until,
            dry_run: r.dry_run,
            accept: r.accept,
        }
    }
}

impl From<ReconcileView> for v1::ReconcileAccountingResponse {
    fn from(view: ReconcileView) -> Self {
        let differences = view.differences.into_iter().map(Into::into);
        Self {
            differences: differences.collect(),
        }
    }
}

impl From<TotalDifference> for v1::AccountingDifference {
    fn from(view: TotalDifference) -> Self {
        Self {
            project: view.project,
            vcluster: view.vcluster,
            month: view.month,
            component: view.component,
            external_total: view.external_total.number(),
            recorded_total: view.recorded_total.number(),
            outcome: view.outcome,
            reason: view.reason,
        }
    }
}

impl From<UserTenantUsage> for v1::UserTenantUsage {
    fn from(view: UserTenantUsage) -> Self {
        Self {
            tenant: view.tenant,
            node_hours_used: view.node_hours_used.number(),
            gpu_hours_used: view.gpu_hours_used.number(),
            idle_claimed_node_hours: view.idle_claimed_node_hours.number(),
        }
    }
}

impl From<Page<TenantView>> for v1::ListTenantsResponse {
    fn from(page: Page<TenantView>) -> Self {
        Self {
            items: page.items.into_iter().map(Into::into).collect(),
            next_cursor: page.next_cursor,
        }
    }
}

impl From<v1::SetSystemLimitsRequest> for SystemLimitsUpdate {
    fn from(r: v1::SetSystemLimitsRequest) -> Self {
        Self {
            sensitive_pool_size: patch(r.sensitive_pool_size),
        }
    }
}

impl From<SystemLimitsView> for v1::SystemLimits {
    fn from(view: SystemLimitsView) -> Self {
        Self {
            sensitive_pool_size: view.sensitive_pool_size,
            limit_policy: view.limit_policy,
        }
    }
}

impl From<TenantView> for v1::Tenant {
    fn from(view: TenantView) -> Self {
        Self {
            id: view.id,
            max_nodes: view.max_nodes,
            max_concurrent_allocations: view.max_concurrent_allocations,
            usage: Some(view.usage.into()),
            admins: view.admins,
            description: view.description,
            created_at: view.created_at,
            revision: view.revision.0,
            overcommitted: view.overcommitted,
            gpu_hours_budget: view.gpu_hours_budget.map(Amount::number),
            node_hours_budget: view.node_hours_budget.map(Amount::number),
            fair_share_target: view.fair_share_target.map(Amount::number),
            burst_allowance: view.burst_allowance.map(Amount::number),
            on_limit: view.on_limit,
        }
    }
}

impl From<HeadroomView> for v1::Headroom {
    fn from(view: HeadroomView) -> Self {
        let levels = view.levels.into_iter().map(|level| v1::HeadroomLevel {
            path: level.path,
            max_nodes: level.limits.max_nodes,
            max_concurrent_allocations: level.limits.max_concurrent_allocations,
            counted: Some(level.counted.into()),
            nodes_left: level.nodes_left,
            allocations_left: level.allocations_left,
        });
        Self {
            path: view.path,
            nodes: view.nodes,
            allocations: view.allocations,
            levels: levels.collect(),
            revision: view.revision.0,
        }
    }
}

impl From<v1::SetLimitsRequest> for LimitsRequest {
    fn from(r: v1::SetLimitsRequest) -> Self {
        let changes = r.changes.into_iter().map(|c| LimitChangeBody {
            path: c.path,
            max_nodes: patch(c.max_nodes),
            max_concurrent_allocations: patch(c.max_concurrent_allocations),
        });
        Self {
            changes: changes.collect(),
            force: r.force,
        }
    }
}

impl From<StatusView> for v1::Status {
    fn from(s: StatusView) -> Self {
        Self {
            cluster: s.cluster,
            version: s.version,
            revision: s.revision.0,
            nodes_by_liveness: s.nodes_by_liveness.into_iter().collect(),
            allocations_by_state: s.allocations_by_state.into_iter().collect(),
            nodes: s.nodes,
            nodes_held: s.nodes_held,
            nodes_drifted: s.nodes_drifted,
            nodes_not_compared: s.nodes_not_compared,
        }
    }
}
