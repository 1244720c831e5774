//! Messages contain every field that REST shows: a view with every field set to a distinct value survives the
//! conversion to its message and back.

#![expect(clippy::unwrap_used, reason = "tests")]

use crate::{
    cluster::quorum::{QuorumMemberView, QuorumStep, QuorumView},
    jobs::{
        allocation::{
            CheckpointBody, CheckpointInProgressView, CheckpointsView, DagPlaceView,
            DependencyView, ElementCountsView, ElementView, MetricBody, SavedCheckpointView,
            ScaleBody, WaitsForView,
        },
        dag::{
            DagDryRunMember, DagEdgeView, DagMemberView, DagView, GraphEdgeView, GraphNodeView,
            GraphView,
        },
        explanation::{ExplanationView, FactorView, ScoreView, StepView},
    },
    nodes::{
        baseline::{
            BaselineComparisonView, BaselineResult, BaselineView, BrakeState, BrakeView,
            ClassRuleView, CohortSelectorBody, VersionView,
        },
        claim::ClaimView,
        conformance::{
            DiffView, DifferenceView, DriftReportView, DriftView, GroupView, GroupsView,
            NoMajorityView, NotReadView, UnknownView, ValueWithNodes,
        },
        health::{NodeHealthView, ReasonView},
        history::{ChangesView, FleetChangeView, HistoryEntryView, KeyChangeView, NodeEventView},
        node::{
            BmcReadResult, ClassView, DrainView, HealthView, HolderView, NodeView, PowerView,
            ReprobeResult, ResourcesView,
        },
        node_status::NodeProblemView,
    },
    notation::amount::{Amount, Fraction, Hours},
    page::Page,
    tenancy::{
        accounting::{
            AccountingStatus, MissingRightView, ReconcileView, RejectedRequestView, TotalDifference,
        },
        movement::{
            CheckpointSettingsView, MovementView, PreemptionView, ScalingView, SharingView,
        },
        project::{LimitsBody, ProjectView, UsageView},
        reservation::{ReservationConflictView, ReservationView},
        scheduler::{AllReservations, ReservationsView, SchedulerView, WeightsView},
        tenant::TenantView,
        usage::{PausedProjectView, TenantUsage, UserTenantUsage, UserUsage},
        vcluster::VclusterView,
    },
    v1,
};
use lattice_quorum_types::{AllocationId, Revision};
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
};

/// Value with no empty part and with distinct values in all parts.
trait Full {
    fn full(next: &mut u16) -> Self;
}

/// Conversion of a message back to the view that it was made from.
trait Back<View> {
    fn back(self) -> View;
}

macro_rules! plain {
    ($($type:ty, $next:ident => $full:expr;)*) => { $(
        impl Full for $type {
            fn full($next: &mut u16) -> Self {
                *$next += 1;
                $full
            }
        }
        impl Back<$type> for $type {
            fn back(self) -> $type {
                self
            }
        }
    )* };
}

plain! {
    String, next => format!("text {next}");
    u32, next => u32::from(*next);
    u64, next => u64::from(*next);
    i64, next => i64::from(*next);
    bool, next => *next > 0;
    f64, next => f64::from(*next) + 0.5;
}

impl Full for u16 {
    fn full(next: &mut Self) -> Self {
        *next += 1;
        *next
    }
}

impl Back<u16> for u32 {
    fn back(self) -> u16 {
        u16::try_from(self).unwrap_or_default()
    }
}

impl Full for Revision {
    fn full(next: &mut u16) -> Self {
        Self(u64::full(next))
    }
}

impl Back<Revision> for u64 {
    fn back(self) -> Revision {
        Revision(self)
    }
}

impl Full for AllocationId {
    fn full(next: &mut u16) -> Self {
        Self(u64::full(next))
    }
}

impl Back<AllocationId> for u64 {
    fn back(self) -> AllocationId {
        AllocationId(self)
    }
}

macro_rules! amounts {
    ($($amount:ty)*) => { $(
        impl Full for $amount {
            fn full(next: &mut u16) -> Self {
                Self::from_small_units(u64::full(next) * 1_000)
            }
        }
        impl Back<$amount> for f64 {
            fn back(self) -> $amount {
                <$amount>::from_number(self).unwrap_or_default()
            }
        }
    )* };
}

amounts! { Hours Fraction }

impl<T: Full> Full for Option<T> {
    fn full(next: &mut u16) -> Self {
        Some(T::full(next))
    }
}

impl<T, M: Back<T>> Back<Option<T>> for Option<M> {
    fn back(self) -> Option<T> {
        self.map(M::back)
    }
}

impl<T: Full> Full for Vec<T> {
    fn full(next: &mut u16) -> Self {
        vec![T::full(next), T::full(next)]
    }
}

impl<T, M: Back<T>> Back<Vec<T>> for Vec<M> {
    fn back(self) -> Vec<T> {
        self.into_iter().map(M::back).collect()
    }
}

impl<T: Full> Full for BTreeMap<String, T> {
    fn full(next: &mut u16) -> Self {
        let pair = |_| (String::full(next), T::full(next));
        (0..2).map(pair).collect()
    }
}

impl<T, M: Back<T>> Back<BTreeMap<String, T>> for HashMap<String, M> {
    fn back(self) -> BTreeMap<String, T> {
        self.into_iter().map(|(key, m)| (key, m.back())).collect()
    }
}

/// A nested message may be missing on the wire; here it never is.
impl Back<KeyChangeView> for Option<v1::KeyChange> {
    fn back(self) -> KeyChangeView {
        self.unwrap_or_default().back()
    }
}

impl Back<BaselineComparisonView> for Option<v1::BaselineComparison> {
    fn back(self) -> BaselineComparisonView {
        self.unwrap_or_default().back()
    }
}

impl Back<SchedulerView> for Option<v1::Scheduler> {
    fn back(self) -> SchedulerView {
        self.unwrap_or_default().back()
    }
}

impl Back<PreemptionView> for Option<v1::PreemptionSettings> {
    fn back(self) -> PreemptionView {
        self.unwrap_or_default().back()
    }
}

impl Back<SharingView> for Option<v1::SharingSettings> {
    fn back(self) -> SharingView {
        self.unwrap_or_default().back()
    }
}

impl Back<CheckpointSettingsView> for Option<v1::CheckpointSettings> {
    fn back(self) -> CheckpointSettingsView {
        self.unwrap_or_default().back()
    }
}

impl Back<ScalingView> for Option<v1::ScalingSettings> {
    fn back(self) -> ScalingView {
        self.unwrap_or_default().back()
    }
}

impl Back<MovementView> for Option<v1::Movement> {
    fn back(self) -> MovementView {
        self.unwrap_or_default().back()
    }
}

impl Back<WeightsView> for Option<v1::Weights> {
    fn back(self) -> WeightsView {
        self.unwrap_or_default().back()
    }
}

impl Full for ReservationsView {
    fn full(next: &mut u16) -> Self {
        Self::First(u32::full(next))
    }
}

impl Back<ReservationsView> for Option<v1::Reservations> {
    fn back(self) -> ReservationsView {
        let none = ReservationsView::First(0);
        self.unwrap_or_default().try_into().unwrap_or(none)
    }
}

impl Back<UsageView> for Option<v1::Usage> {
    fn back(self) -> UsageView {
        self.unwrap_or_default().back()
    }
}

/// Names every field of a view; a missing field does not compile.
macro_rules! alike {
    ($($view:ident = $message:ident { $($field:ident),* $(,)? })*) => { $(
        impl Full for $view {
            fn full(next: &mut u16) -> Self {
                $view { $($field: Full::full(next)),* }
            }
        }
        impl Back<$view> for v1::$message {
            fn back(self) -> $view {
                $view { $($field: self.$field.back()),* }
            }
        }
    )* };
}

type HistoryPage = Page<HistoryEntryView>;

alike! {
    CheckpointBody = CheckpointTerms { mode, trigger, directory }
    CheckpointsView = Checkpoints { requested, failed, last_error, last, in_progress }
    DagEdgeView = DagEdge { member, condition }
    DagDryRunMember = DagDryRunMember { name, project, vcluster, nodes, elements, walltime, after }
    DagMemberView = DagMember { name, allocation, state, stop, after }
    DagPlaceView = DagPlace { dag, member }
    DagView = Dag {
        id, name, user, project, state, submitted_at, ended_at, size, unfinished, cancelled_by,
        failed, members, revision,
    }
    GraphEdgeView = DagGraphEdge { from, to, condition }
    GraphNodeView = DagGraphNode { name, allocation, state }
    GraphView = DagGraph { id, name, nodes, edges }
    ReservationConflictView = ReservationConflict { allocation, element, nodes, until }
    ReservationView = Reservation {
        name, nodes, node_count, from, until, active, users, projects, usable, reason, by, revision,
        conflicts,
    }
    DependencyView = WaitedFor { condition, on, element }
    ElementView = ArrayElement { array, index }
    SavedCheckpointView = SavedCheckpoint {
        number, directory, requested_at, written_at, duration, attempt, bytes, progress,
    }
    ElementCountsView = ElementCounts { elements, pending, blocked, running, completed, failed, cancelled }
    WaitsForView = WaitsFor { allocations, mutex }
    CheckpointInProgressView = CheckpointInProgress {
        number, directory, requested_at, times_out_at, extended, ranks_written, release_reason,
    }
    BaselineResult = SetBaselineResponse { name, version, classes, revision, dry_run, comparison }
    BaselineComparisonView = BaselineComparison {
        compared, compared_count, conform, conform_count, differ, differ_count, unknown, unknown_count,
        drain, deprioritise, warnings,
    }
    BaselineView = Baseline {
        name, version, description, nodes, cohort, classes, by, at, bytes, compared, compared_count,
        differ, unknown, versions,
    }
    BmcReadResult = BmcReadResult { error, differs }
    BrakeState = BrakeResponse { held }
    BrakeView = Brake { reason, since, by }
    ChangesView = ChangesResponse { since, changes, new, left_out, reaches_back_to }
    ClaimView = NodeClaim { user, project, purpose, since, state, reason }
    ClassRuleView = BaselineClass { kind, policy, sensitive, digest, schema, keys, unreadable }
    ClassView = ClassState { state, digest, last_digest, complete_until }
    CohortSelectorBody = Cohort { vendor, product, gpu_model, gpu_count }
    DrainView = DrainReason { owner, reason, since }
    DiffView = DiffResponse { left, right, differences }
    DifferenceView = Difference { class, key, left, right, verdict }
    DriftReportView = DriftResponse { drifted, no_majority, unknown, without_reference, brake, pending }
    DriftView = Drifted {
        node, class, key, expected, found, by, baseline, policy, sensitive, since, since_or_before,
        cohort, cohort_nodes, majority_nodes, as_of,
    }
    ExplanationView = Explanation {
        allocation, element, state, summary, blocker, steps, estimated_start, reserved, score, as_of,
        ends_at, kill_at, node_problems,
    }
    FactorView = Factor { name, value, weight }
    FleetChangeView = FleetChange {
        class, change, verdict, nodes, count, causes, first, last,
    }
    GroupView = Group { class, digest, nodes, count, first_seen }
    GroupsView = GroupsResponse { groups, unknown, not_read }
    ValueWithNodes = ValueWithNodes { value, nodes }
    HistoryEntryView = HistoryLine {
        number, at, kind, what, source, boot_id, cause, occasion, class, from, to, changes, more,
        event,
    }
    HistoryPage = NodeHistoryResponse { items, next_cursor }
    KeyChangeView = KeyChange { key, from, to }
    PreemptionView = PreemptionSettings {
        enabled, max_victims, patience_s, near_completion_threshold_s, thrash_interval_s,
        thrash_count, only_borrowed,
    }
    SharingView = SharingSettings {
        allow_lending, lending_limit, allow_borrowing, borrowing_limit, return_grace_s,
    }
    CheckpointSettingsView = CheckpointSettings {
        timeout_s, min_interval_s, max_interval_s, sensitive_timeout_s,
        sensitive_min_interval_s, sensitive_max_interval_s, max_deferral_s, max_deferral_count,
    }
    ScalingView = ScalingSettings {
        threshold, evaluation_s, up_window_s, down_window_s, cooldown_s, missing_alert,
        retries, backoff_cooldowns, oscillation_alert, calm_s,
    }
    MovementView = Movement { preemption, sharing, checkpoint, scaling, set, unread }
    NoMajorityView = NoMajority { cohort, class, key, values }
    NotReadView = NotRead { nodes, why }
    NodeEventView = NodeEvent {
        state, entity, address, code, xid, detail, source, severity, action, observe_only, by,
        count, first_at, left_out, late, bmc_time, read_at,
    }
    NodeProblemView = NodeProblem { status, nodes, reason }
    NodeHealthView = NodeHealth {
        node, table, reasons, cleared, agent_error, bmc_read_at, as_of,
    }
    PowerView = Power {
        draw_watts, draw_state, reason, limit_watts, limit_state, limit_min_watts, limit_max_watts,
        exception_action, source, read_at,
    }
    QuorumMemberView = QuorumMember {
        id, address, role, fault, term, last_log_index, applied_index, snapshot_index, revision, lag,
        last_contact_ms, build, data_format,
    }
    QuorumStep = QuorumStep { state, unchanged, leader, at, of, fault }
    QuorumView = Quorum {
        cluster, incarnation, restored_from, answered_by, leader, term, majority, reachable, warnings,
        members,
    }
    ReasonView = HealthReason {
        source, code, entity, evidence, severity, action, observe_only, first_seen, last_seen, count,
    }
    SchedulerView = Scheduler {
        profile, weights, weights_sum, reference_wait_s, reservations, checkpoint_gb_s,
    }
    ScoreView = Score { factors, sum, budget, share, accounting, total, ahead }
    StepView = ExplanationStep { constraint, removed, left }
    UsageView = Usage { nodes, allocations }
    TenantView = Tenant {
        id, max_nodes, max_concurrent_allocations, gpu_hours_budget, node_hours_budget, fair_share_target,
        burst_allowance, on_limit, usage, admins, description, created_at, revision, overcommitted,
    }
    TenantUsage = TenantUsage {
        tenant, days, since, until, node_hours_used, gpu_hours_used, idle_claimed_node_hours, budget_period_days,
        gpu_hours_budget, node_hours_budget, budget_used, budget_factor, share_factor, accounting_factor,
        priority_factor, source, fair_share_target, burst_allowance, share, exceeds_share, downscaled, paused, revision,
    }
    PausedProjectView = PausedProject { project, vcluster }
    UserUsage = UserUsage {
        user, days, since, until, node_hours_used, gpu_hours_used, idle_claimed_node_hours, tenants, revision,
    }
    AccountingStatus = AccountingStatus {
        enabled, is_active, provider, version, complete_at, failure, retry_at, last, acknowledged, behind, in_memory,
        buffer_size, on_disk, disk_buffer_max_events, full, dropped, sent, reported, rejected, round_began_at,
        clock_skew_ms, missing_rights,
    }
    MissingRightView = MissingRight { right, places, effect, next_step, waiting, since, reason }
    RejectedRequestView = RejectedRequest { subject, since, reason }
    ReconcileView = ReconcileAccountingResponse { differences }
    TotalDifference = AccountingDifference { project, vcluster, month, component, external_total, recorded_total, outcome, reason }
    UserTenantUsage = UserTenantUsage { tenant, node_hours_used, gpu_hours_used, idle_claimed_node_hours }
    ReprobeResult = ReprobeResponse { node, fingerprint, classes, differs, bmc }
    UnknownView = UnknownClass { node, class, why, baseline }
    VersionView = BaselineVersion { version, by, at }
    WeightsView = Weights {
        priority, wait_time, fair_share, topology, data_ready, backlog, energy, checkpoint,
        conformance,
    }
}

impl Full for ScaleBody {
    fn full(next: &mut u16) -> Self {
        Self {
            min_nodes: Full::full(next),
            max_nodes: Full::full(next),
            metric: MetricBody::Prometheus(Full::full(next)),
            target: Full::full(next),
            up_window: Full::full(next),
            down_window: Full::full(next),
            cooldown: Full::full(next),
            down_threshold: Full::full(next),
        }
    }
}

impl Back<ScaleBody> for v1::Scale {
    fn back(self) -> ScaleBody {
        self.try_into().unwrap()
    }
}

/// The parts of a node are separate fields of the message.
impl Full for NodeView {
    fn full(next: &mut u16) -> Self {
        Self {
            name: Full::full(next),
            status: Full::full(next),
            lifecycle: Full::full(next),
            drain: Full::full(next),
            holder: Some(HolderView {
                allocation: AllocationId(u64::full(next)),
                attempt: Full::full(next),
                element: Full::full(next),
            }),
            vcluster: Full::full(next),
            liveness: Full::full(next),
            liveness_reason: Full::full(next),
            last_seen: Full::full(next),
            health: HealthView {
                verdict: Full::full(next),
                reasons: Full::full(next),
            },
            cell: Full::full(next),
            group: Full::full(next),
            resources: ResourcesView {
                vendor: Full::full(next),
                product: Full::full(next),
                gpu_model: Full::full(next),
                gpu_count: Full::full(next),
                gpu_memory_bytes: Full::full(next),
                memory_bytes: Full::full(next),
                sockets: Full::full(next),
                cores: Full::full(next),
                threads: Full::full(next),
                numa_nodes: Full::full(next),
                rdma_count: Full::full(next),
                features: Full::full(next),
            },
            fingerprint: Full::full(next),
            classes: Full::full(next),
            drifted_keys: Full::full(next),
            boot_id: Full::full(next),
            agent_version: Full::full(next),
            attestation_fault: Full::full(next),
            claim: Full::full(next),
            lent_by: Full::full(next),
            power: Full::full(next),
            certificate: None,
            revision: Full::full(next),
        }
    }
}

impl Back<NodeView> for v1::Node {
    fn back(self) -> NodeView {
        NodeView {
            name: self.name,
            status: self.status,
            lifecycle: self.lifecycle,
            drain: self.drain.back(),
            holder: self.allocation.map(|allocation| HolderView {
                allocation: AllocationId(allocation),
                attempt: self.attempt.unwrap_or_default(),
                element: self.element.back(),
            }),
            vcluster: self.vcluster,
            liveness: self.liveness,
            liveness_reason: self.liveness_reason,
            last_seen: self.last_seen,
            health: HealthView {
                verdict: self.health,
                reasons: self.health_reasons,
            },
            cell: self.cell,
            group: self.group,
            resources: ResourcesView {
                vendor: self.vendor,
                product: self.product,
                gpu_model: self.gpu_model,
                gpu_count: self.gpu_count,
                gpu_memory_bytes: self.gpu_memory_bytes,
                memory_bytes: self.memory_bytes,
                sockets: self.sockets,
                cores: self.cores,
                threads: self.threads,
                numa_nodes: self.numa_nodes,
                rdma_count: self.rdma_count,
                features: self.features,
            },
            fingerprint: self.fingerprint,
            classes: self.classes.back(),
            drifted_keys: self.drifted_keys,
            boot_id: self.boot_id,
            agent_version: self.agent_version,
            attestation_fault: self.attestation_fault,
            claim: self.claim.back(),
            lent_by: self.lent_by,
            power: self.power.back(),
            certificate: None,
            revision: Revision(self.revision),
        }
    }
}

/// The limits of a project are fields of the message itself.
impl Full for ProjectView {
    fn full(next: &mut u16) -> Self {
        Self {
            path: Full::full(next),
            limits: LimitsBody {
                max_nodes: Full::full(next),
                max_concurrent_allocations: Full::full(next),
            },
            own: Full::full(next),
            subtree: Full::full(next),
            total: Full::full(next),
            admins: Full::full(next),
            description: Full::full(next),
            created_at: Full::full(next),
            revision: Full::full(next),
            overcommitted: Full::full(next),
        }
    }
}

impl Back<ProjectView> for v1::Project {
    fn back(self) -> ProjectView {
        ProjectView {
            path: self.path,
            limits: LimitsBody {
                max_nodes: self.max_nodes,
                max_concurrent_allocations: self.max_concurrent_allocations,
            },
            own: self.own.back(),
            subtree: self.subtree.back(),
            total: self.total.back(),
            admins: self.admins,
            description: self.description,
            created_at: self.created_at,
            revision: Revision(self.revision),
            overcommitted: self.overcommitted,
        }
    }
}

impl Full for VclusterView {
    fn full(next: &mut u16) -> Self {
        Self {
            name: Full::full(next),
            description: Full::full(next),
            tenants: Full::full(next),
            usable: Full::full(next),
            version: Full::full(next),
            nodes: Full::full(next),
            node_count: Full::full(next),
            lent: Full::full(next),
            borrowed: Full::full(next),
            scheduler: Full::full(next),
            movement: Full::full(next),
            scheduled_by: Full::full(next),
            scheduler_epoch: Full::full(next),
            revision: Full::full(next),
        }
    }
}

impl Back<VclusterView> for v1::Vcluster {
    fn back(self) -> VclusterView {
        VclusterView {
            name: self.name,
            description: self.description,
            tenants: (!self.all_tenants).then_some(self.tenants),
            usable: self.usable,
            version: self.version,
            nodes: self.nodes,
            node_count: self.node_count,
            lent: self.lent,
            borrowed: self.borrowed,
            scheduler: self.scheduler.back(),
            movement: self.movement.back(),
            scheduled_by: self.scheduled_by,
            scheduler_epoch: self.scheduler_epoch,
            revision: Revision(self.revision),
        }
    }
}

fn comes_back<View, Message>()
where
    View: Full + Clone + PartialEq + Debug,
    Message: From<View> + Back<View>,
{
    let view = View::full(&mut 0);
    assert_eq!(Message::from(view.clone()).back(), view);
}

#[test]
fn a_message_has_every_field_of_its_view() {
    comes_back::<CheckpointBody, v1::CheckpointTerms>();
    comes_back::<CheckpointsView, v1::Checkpoints>();
    comes_back::<DagPlaceView, v1::DagPlace>();
    comes_back::<DagView, v1::Dag>();
    comes_back::<DagDryRunMember, v1::DagDryRunMember>();
    comes_back::<GraphView, v1::DagGraph>();
    comes_back::<ReservationView, v1::Reservation>();
    comes_back::<DependencyView, v1::WaitedFor>();
    comes_back::<ElementView, v1::ArrayElement>();
    comes_back::<ScaleBody, v1::Scale>();
    comes_back::<ElementCountsView, v1::ElementCounts>();
    comes_back::<WaitsForView, v1::WaitsFor>();
    comes_back::<BaselineResult, v1::SetBaselineResponse>();
    comes_back::<BaselineView, v1::Baseline>();
    comes_back::<BrakeState, v1::BrakeResponse>();
    comes_back::<ChangesView, v1::ChangesResponse>();
    comes_back::<DiffView, v1::DiffResponse>();
    comes_back::<DriftReportView, v1::DriftResponse>();
    comes_back::<GroupsView, v1::GroupsResponse>();
    comes_back::<ExplanationView, v1::Explanation>();
    comes_back::<HistoryPage, v1::NodeHistoryResponse>();
    comes_back::<NodeHealthView, v1::NodeHealth>();
    comes_back::<NodeView, v1::Node>();
    comes_back::<ProjectView, v1::Project>();
    comes_back::<QuorumStep, v1::QuorumStep>();
    comes_back::<QuorumView, v1::Quorum>();
    comes_back::<ReprobeResult, v1::ReprobeResponse>();
    comes_back::<TenantView, v1::Tenant>();
    comes_back::<TenantUsage, v1::TenantUsage>();
    comes_back::<UserUsage, v1::UserUsage>();
    comes_back::<AccountingStatus, v1::AccountingStatus>();
    comes_back::<ReconcileView, v1::ReconcileAccountingResponse>();
    comes_back::<VclusterView, v1::Vcluster>();
    // The other variant.
    let all = ReservationsView::All(AllReservations::All);
    let back = ReservationsView::try_from(v1::Reservations::from(all));
    assert_eq!(back, Ok(all));
    // Requests are converted in the other direction.
    let cohort = CohortSelectorBody::full(&mut 0);
    assert_eq!(
        CohortSelectorBody::from(v1::Cohort::from(cohort.clone())),
        cohort
    );
}
