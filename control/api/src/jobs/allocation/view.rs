//! Allocations as shown.

use super::{
    CheckpointBody, CheckpointsView, ConstraintsBody, DagPlaceView, DependencyView,
    ElementCountsView, ElementView, OutputView, REDACTED, REQUEUES, ScaleBody, WaitsForView,
    WorkloadAccess, demand, name_of,
};
use crate::{
    nodes::node_status::NodeProblemView,
    notation::{duration, text},
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NameLookup, Revision,
    allocation::{RankExit, RankPhase, StopCause},
    hostlist,
    spec::Workload,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Rank as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RankView {
    /// Rank number, from 0.
    pub rank: u32,
    /// Node of the rank.
    pub node: String,
    /// `assigned`, `running` or `ended`; while the allocation shrinks by this rank: `leaving`, then `left`.
    pub phase: String,
    /// Start of the phase, by the node's clock; for `leaving`, the time at which the rank began to run, if known.
    /// Absent for `assigned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Result of the rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
}

/// Workload, as far as the caller may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkloadView {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Names of the environment variables; every value reads `<redacted>`.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// File for standard output, as requested; absent: kept as logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// File for standard error, as requested; absent: kept as logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&Workload> for WorkloadView {
    fn from(w: &Workload) -> Self {
        Self {
            argv: w.argv.clone(),
            script: w.script.clone(),
            env: w
                .env
                .keys()
                .map(|name| (name.clone(), REDACTED.to_owned()))
                .collect(),
            working_dir: w.working_dir.clone(),
            output: w.output.stdout.clone(),
            error: w.output.stderr.clone(),
        }
    }
}

/// Allocation as shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AllocationView {
    /// Allocation number.
    #[schema(value_type = u64)]
    pub id: AllocationId,
    /// User that submitted the allocation.
    pub user: String,
    /// Free-text name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Project for limits and usage.
    pub project: String,
    /// vCluster that schedules the allocation.
    pub vcluster: String,
    /// `blocked`, `pending`, `held`, `starting`, `running`, `checkpointing`, `stopping`, `suspended`, `completed`,
    /// `failed` or `cancelled`.
    pub state: String,
    /// Time at which the allocation entered its state.
    pub state_since: String,
    /// Time of the submit.
    pub submitted_at: String,
    /// Time at which the allocation first began to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Time at which the allocation ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Number of nodes requested.
    pub nodes: u32,
    /// Nodes of the current or last attempt, as a hostlist; empty before the first attempt.
    pub nodelist: String,
    /// Attempt number: counts assignments.
    pub attempt: u32,
    /// Longest run time; absent when unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walltime: Option<String>,
    /// Priority class.
    pub class: u8,
    /// Whether the allocation is sensitive: attested nodes of one conformance group, no preemption, audit of each
    /// request, and a wipe afterwards.
    pub sensitive: bool,
    /// Requirements on the nodes.
    pub constraints: ConstraintsBody,
    /// Policy after the loss of a node: `never`, `once` or `always`.
    pub requeue: String,
    /// Fraction of the input data that is on the hot tier, 0 to 1; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_ready: Option<f64>,
    /// Time to write a job checkpoint; absent if the request gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_time: Option<String>,
    /// Storage bandwidth that the allocation needs while it runs, GB/s by storage system.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub storage_gb_s: BTreeMap<String, f64>,
    /// Allocations that must end first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyView>,
    /// Mutex: of the same user's allocations with this mutex, one is eligible at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutex: Option<String>,
    /// Earliest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_at: Option<String>,
    /// Time by which the allocation must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<String>,
    /// Indices of a job array, and how many of its elements run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// Checkpoint mode, trigger and directory of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointBody>,
    /// Scaling of the number of nodes by a metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleBody>,
    /// Reservation that provides the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Array elements by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element_counts: Option<ElementCountsView>,
    /// Array of which this allocation is an element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementView>,
    /// DAG of which this allocation is a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dag: Option<DagPlaceView>,
    /// Dependencies and mutex holder that the allocation waits for, while it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsForView>,
    /// Number of preemptions.
    #[serde(default)]
    pub preempted: u32,
    /// Job checkpoints; absent if none was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointsView>,
    /// Ranks of the current or last attempt.
    pub ranks: Vec<RankView>,
    /// Why the allocation is being, or was, stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Why the allocation waits, as of the last scheduling cycle; or, while it holds nodes, what is wrong: nodes that
    /// do not answer or are faulty, a time limit that was reached, and the due SIGKILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// End of the walltime, by the nodes' clocks, while the processes run; absent when unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// Time from this answer until `ends_at`, rounded, such as `2 h`; `0 s` after the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left: Option<String>,
    /// Time at which SIGKILL is due: the walltime has ended, or the allocation is being stopped, and processes still
    /// run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_at: Option<String>,
    /// Nodes of the allocation that are out of order, out of service or unknown, while it holds them; worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_problems: Vec<NodeProblemView>,
    /// Workload; absent when the caller may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadView>,
    /// Places of the output; only in the answer for a single allocation, for a caller that may see the workload, while
    /// the records that name the files can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputView>,
    /// Revision of the last change.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// Describes how a rank ended. The reason for a failed start may quote the program, the directory or variables, which
/// are part of the workload.
fn exit_text(exit: &RankExit, sight: WorkloadAccess) -> String {
    match (exit, sight) {
        (RankExit::SpawnFailed { .. }, WorkloadAccess::WithoutWorkload) => {
            "could not start".to_owned()
        }
        _ => exit.to_string(),
    }
}

/// Describes a stop cause, without details that `sight` does not permit.
fn stop_text(stop: &StopCause, sight: WorkloadAccess, name: NameLookup<'_>) -> String {
    match stop {
        StopCause::RankFailed { rank, exit } => format!("rank {rank}: {}", exit_text(exit, sight)),
        _ => stop.text(name),
    }
}

/// Describes why an allocation is being, or was, stopped. For an array the text includes the number of affected
/// elements. `name`: names of the allocations that the text mentions.
pub fn stop_reason(a: &Allocation, sight: WorkloadAccess, name: NameLookup<'_>) -> Option<String> {
    let said = a.stop.as_ref().map(|stop| stop_text(stop, sight, name));
    let Some(tally) = a.progress.tally.as_deref().map(ElementCountsView::from) else {
        return said;
    };
    let (all, cancelled) = (tally.elements, tally.cancelled);
    match (a.state, cancelled) {
        (AllocationState::Failed, 0) => {
            Some(format!("{} of its {all} elements failed", tally.failed))
        }
        (AllocationState::Failed, _) => Some(format!(
            "{} of its {all} elements failed, and {cancelled} were cancelled",
            tally.failed
        )),
        (_, 0) => said,
        (_, cancelled) if cancelled == all => said,
        _ => Some(format!("{cancelled} of its {all} elements: {}", said?)),
    }
}

fn rank_view(
    rank: usize,
    r: &lattice_quorum_types::allocation::Rank,
    sight: WorkloadAccess,
) -> RankView {
    let (phase, since, exit) = match &r.phase {
        RankPhase::Assigned => ("assigned", None, None),
        RankPhase::Running { at } => ("running", Some(*at), None),
        RankPhase::Ended { at, exit } => ("ended", Some(*at), Some(exit_text(exit, sight))),
        RankPhase::Leaving { running } => ("leaving", *running, None),
        RankPhase::Left { at, exit } => ("left", Some(*at), Some(exit_text(exit, sight))),
    };
    RankView {
        rank: u32::try_from(rank).unwrap_or(u32::MAX),
        node: r.node.to_string(),
        phase: phase.to_owned(),
        since: since.map(text::time),
        exit,
    }
}

impl AllocationView {
    /// Returns the record as shown to a caller with this access. `name`: names of the allocations that it mentions.
    pub fn new(a: &Allocation, sight: WorkloadAccess, name: NameLookup<'_>) -> Self {
        let (data_ready, checkpoint_time, storage_gb_s) = demand::to_request_form(&a.spec.demand);
        let (terms, progress) = (&a.spec.terms, &a.progress);
        Self {
            id: a.id,
            user: a.user.clone(),
            name: a.spec.name.clone(),
            project: a.spec.project.to_string(),
            vcluster: a.spec.vcluster.to_string(),
            state: a.state.to_string(),
            state_since: text::time(a.state_since),
            submitted_at: text::time(a.submitted_at),
            started_at: a.started_at.map(text::time),
            ended_at: a.ended_at.map(text::time),
            nodes: a.spec.nodes,
            nodelist: hostlist::fold(a.kept_nodes()),
            attempt: a.attempt,
            walltime: a.spec.walltime_ms.map(duration::format),
            class: a.spec.class,
            sensitive: a.spec.sensitive,
            constraints: (&a.spec.constraints).into(),
            requeue: name_of(&REQUEUES, &a.spec.requeue).to_owned(),
            data_ready,
            checkpoint_time,
            storage_gb_s,
            dependencies: terms
                .after
                .iter()
                .map(|dependency| DependencyView::new(dependency, name))
                .collect(),
            mutex: terms.mutex.clone(),
            begin_at: terms.begin_at.map(text::time),
            deadline_at: terms.deadline_at.map(text::time),
            array: terms.array.as_ref().map(ToString::to_string),
            checkpoint: terms.checkpoint.as_ref().map(Into::into),
            scale: terms.scale.as_ref().map(Into::into),
            reservation: terms.reservation.as_ref().map(ToString::to_string),
            element_counts: progress.tally.as_deref().map(Into::into),
            element: progress.element.as_ref().map(Into::into),
            dag: progress.dag.as_ref().map(Into::into),
            waits_for: None,
            preempted: progress.preempted,
            checkpoints: CheckpointsView::of(progress, sight, name),
            ranks: a
                .ranks
                .iter()
                .enumerate()
                .map(|(n, r)| rank_view(n, r, sight))
                .collect(),
            stop: stop_reason(a, sight, name),
            reason: None,
            ends_at: None,
            time_left: None,
            kill_at: None,
            node_problems: Vec::new(),
            workload: (sight == WorkloadAccess::Full).then(|| (&a.spec.workload).into()),
            output: None,
            revision: a.revision,
        }
    }
}
