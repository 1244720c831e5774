//! An allocation as shown.

use super::{
    CheckpointBody, CheckpointsView, ConstraintsBody, DagPlaceView, DependencyView, ElementView,
    REDACTED, REQUEUES, ScaleBody, TallyView, WaitsForView, demand, name_of,
};
use crate::{duration, text};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Revision,
    allocation::{RankExit, RankPhase, StopCause},
    hostlist,
    spec::Workload,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// One rank as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RankView {
    /// Its number, from 0.
    pub rank: u32,
    /// Its node.
    pub node: String,
    /// `assigned`, `running` or `ended`.
    pub phase: String,
    /// Since when, by the node's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
}

/// What runs, as far as the asker may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkloadView {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Names of the variables; every value reads `<redacted>`.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// File for standard output, as asked for; absent: kept as logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// File for standard error.
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

/// Whether the asker may see what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Its own work, or the asker is an operator.
    Full,
    /// Somebody else's: everything but the workload, and what would tell of it.
    Outline,
}

/// An allocation as shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AllocationView {
    /// Its number.
    #[schema(value_type = u64)]
    pub id: AllocationId,
    /// Who submitted it.
    pub user: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The project whose limits apply.
    pub project: String,
    /// The vCluster whose scheduler places it.
    pub vcluster: String,
    /// `blocked`, `pending`, `held`, `starting`, `running`, `checkpointing`, `stopping`,
    /// `suspended`, `completed`, `failed` or `cancelled`.
    pub state: String,
    /// When it entered that state.
    pub state_since: String,
    /// When it was submitted.
    pub submitted_at: String,
    /// When it first began to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Number of nodes asked for.
    pub nodes: u32,
    /// The nodes of the current, or last, attempt, as a hostlist; empty before the first.
    pub nodelist: String,
    /// Counts assignments.
    pub attempt: u32,
    /// Longest run time; absent when unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walltime: Option<String>,
    /// Priority class.
    pub class: u8,
    /// All nodes must share one conformance group.
    pub sensitive: bool,
    /// What the nodes must be like.
    pub constraints: ConstraintsBody,
    /// What happens when a node is lost.
    pub requeue: String,
    /// The part of its input data that is on the hot tier, 0 to 1; absent when not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_ready: Option<f64>,
    /// How long it takes to write a checkpoint; absent when nothing was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_time: Option<String>,
    /// Bandwidth it needs of storage systems while it runs, GB/s by the system's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub storage_gb_s: BTreeMap<String, f64>,
    /// Those it comes after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyView>,
    /// Of the same user's work with this mutex one is eligible at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutex: Option<String>,
    /// It is not placed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_at: Option<String>,
    /// It must have ended by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<String>,
    /// The indices of an array, and how many of them run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// How it writes checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointBody>,
    /// The metric that its number of nodes follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleBody>,
    /// It uses nodes that are reserved under this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// What became of the elements of an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<TallyView>,
    /// The array it is an element of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementView>,
    /// The graph it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dag: Option<DagPlaceView>,
    /// For whom it waits, while it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsForView>,
    /// How often others took its nodes.
    #[serde(default)]
    pub preempted: u32,
    /// Its checkpoints; absent where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointsView>,
    /// The ranks of the current, or last, attempt.
    pub ranks: Vec<RankView>,
    /// Why it is being, or was, stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Why it waits, as of the last scheduling cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What runs; absent when the asker may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadView>,
    /// Last change.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// How a rank ended. Why it could not start may name its program, folder or variables, which are
/// part of what runs.
fn exit_text(exit: &RankExit, sight: Sight) -> String {
    match (exit, sight) {
        (RankExit::SpawnFailed { .. }, Sight::Outline) => "could not start".to_owned(),
        _ => exit.to_string(),
    }
}

/// A cause as told to somebody with this sight.
fn stop_text(stop: &StopCause, sight: Sight) -> String {
    match stop {
        StopCause::RankFailed { rank, exit } => format!("rank {rank}: {}", exit_text(exit, sight)),
        _ => stop.to_string(),
    }
}

/// Why an allocation is being, or was, stopped. Of an array, of how many of its elements that is so.
pub fn stop_of(a: &Allocation, sight: Sight) -> Option<String> {
    let said = a.stop.as_ref().map(|stop| stop_text(stop, sight));
    let Some(tally) = a.course.tally.as_deref().map(TallyView::from) else {
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

fn rank_view(rank: usize, r: &lattice_quorum_types::allocation::Rank, sight: Sight) -> RankView {
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
    /// The record as shown to somebody with this sight.
    pub fn new(a: &Allocation, sight: Sight) -> Self {
        let (data_ready, checkpoint_time, storage_gb_s) = demand::said(&a.spec.demand);
        let (terms, course) = (&a.spec.terms, &a.course);
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
            dependencies: terms.after.iter().map(Into::into).collect(),
            mutex: terms.mutex.clone(),
            begin_at: terms.begin_at.map(text::time),
            deadline_at: terms.deadline_at.map(text::time),
            array: terms.array.as_ref().map(ToString::to_string),
            checkpoint: terms.checkpoint.as_ref().map(Into::into),
            scale: terms.scale.as_ref().map(Into::into),
            reservation: terms.reservation.as_ref().map(ToString::to_string),
            tally: course.tally.as_deref().map(Into::into),
            element: course.element.as_ref().map(Into::into),
            dag: course.dag.as_ref().map(Into::into),
            waits_for: None,
            preempted: course.preempted,
            checkpoints: CheckpointsView::of(course, sight),
            ranks: a
                .ranks
                .iter()
                .enumerate()
                .map(|(n, r)| rank_view(n, r, sight))
                .collect(),
            stop: stop_of(a, sight),
            reason: None,
            workload: (sight == Sight::Full).then(|| (&a.spec.workload).into()),
            revision: a.revision,
        }
    }
}
