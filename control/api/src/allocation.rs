//! Allocations: the request, and the record as shown.

use crate::{duration, outlook::OutlookView, problem::FieldError, text};
use lattice_quorum_types::{
    Allocation, AllocationId, ProjectPath, Revision, VclusterName,
    allocation::{RankExit, RankPhase, StopCause},
    hostlist,
    spec::{AllocationSpec, OutputFiles, Requeue, Workload},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

mod constraints;
mod demand;
pub use constraints::ConstraintsBody;
pub use demand::{InvalidBandwidth, read_bandwidth, write_bandwidth};

/// Shown in place of every environment value, whoever asks.
pub const REDACTED: &str = "<redacted>";

/// The vCluster of a request that names none.
pub use lattice_quorum_types::vcluster::DEFAULT_VCLUSTER;

/// Priority class of a request that names none: the middle of 0-10.
pub const DEFAULT_CLASS: u8 = AllocationSpec::CLASS;

/// A request for nodes. Who asks is known from the token; there is no field for it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AllocationRequest {
    /// The project whose limits apply.
    #[schema(example = "atlas/operations/web")]
    pub project: String,
    /// Number of nodes, at least 1.
    pub nodes: u32,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The vCluster whose scheduler places it; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcluster: Option<String>,
    /// Program and arguments. Give this or `script`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// A script, run by its own `#!` line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Environment added to a minimal one. Never shown again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// File of the user's own for standard output, opened as the user on each node and appended
    /// to: `%j` is the allocation, `%r` the rank, `%n` the node. Left out: kept by the node and
    /// read as logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "out-%j.%r.txt")]
    pub output: Option<String>,
    /// The same for standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Longest run time: `90s`, `1h30m`, `HH:MM:SS`. Left out: unbounded, never backfilled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1h30m")]
    pub walltime: Option<String>,
    /// Priority class, 0-10; 5 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u8>,
    /// All nodes must share one conformance group.
    #[serde(default)]
    pub sensitive: bool,
    /// What the nodes must be like.
    #[serde(default)]
    pub constraints: ConstraintsBody,
    /// What happens when a node is lost: `never` (default), `once` or `always`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<String>,
    /// Submit on hold.
    #[serde(default)]
    pub hold: bool,
    /// The part of its input data that is on the hot tier, 0 to 1. Left out: not known, and weighed as a
    /// half.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::number::finite"
    )]
    #[schema(example = 0.8)]
    pub data_ready: Option<f64>,
    /// How long it takes to write a checkpoint, as a walltime is written; 7 days at most. Left out: as long
    /// as its GPUs' memory makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "5m")]
    pub checkpoint_time: Option<String>,
    /// Bandwidth that the whole of it needs of storage systems while it runs, GB/s (thousand million bytes a
    /// second) by the system's name; 16 systems at most. Whole MB/s are kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({"scratch": 40.0, "home": 0.5}))]
    pub storage_gb_s: BTreeMap<String, f64>,
}

/// Leaves out what must not reach a log: script, arguments, environment.
impl std::fmt::Debug for AllocationRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllocationRequest")
            .field("project", &self.project)
            .field("nodes", &self.nodes)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn at<E: std::fmt::Display>(field: &'static str) -> impl Fn(E) -> FieldError {
    move |error| FieldError {
        field: field.to_owned(),
        reason: error.to_string(),
    }
}

fn word<T>(
    text: Option<&str>,
    field: &'static str,
    words: &[(&str, T)],
) -> Result<Option<T>, FieldError>
where
    T: Copy,
{
    let Some(text) = text.filter(|t| !t.is_empty()) else {
        return Ok(None);
    };
    let found = words
        .iter()
        .find(|(word, _)| *word == text)
        .map(|(_, value)| *value);
    found.map(Some).ok_or_else(|| {
        let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        FieldError {
            field: field.to_owned(),
            reason: format!("{text:?} is not one of {}", all.join(", ")),
        }
    })
}

/// A file's name as given. What it stands for is known on the node alone; what can never be a
/// name is refused here.
fn path(text: Option<String>, field: &'static str) -> Result<Option<String>, FieldError> {
    let Some(text) = text else { return Ok(None) };
    let fail = |reason: String| Err(at(field)(reason));
    if text.trim().is_empty() {
        return fail("give a file, or leave it out to have it kept as logs".to_owned());
    }
    if text.chars().any(char::is_control) {
        return fail("a file's name has no control characters".to_owned());
    }
    if text.ends_with('/') {
        return fail(format!("{text:?} is a folder; name a file in it"));
    }
    match OutputFiles::check(&text) {
        Ok(()) => Ok(Some(text)),
        Err(error) => fail(format!("{text:?}: {error}")),
    }
}

const REQUEUES: [(&str, Requeue); 3] = [
    ("never", Requeue::Never),
    ("once", Requeue::Once),
    ("always", Requeue::Always),
];

fn name_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words
        .iter()
        .find(|(_, v)| v == value)
        .map_or("", |(word, _)| word)
}

impl AllocationRequest {
    /// Reads every text, and refuses what no cluster could ever give. What else a value may be (an unknown
    /// project, a limit) is for the quorum to judge.
    ///
    /// # Errors
    /// The first field that cannot be read, or be.
    pub fn into_spec(self) -> Result<AllocationSpec, FieldError> {
        if self.nodes == 0 {
            return Err(at("nodes")("ask for at least 1 node"));
        }
        let demand = self.demand()?;
        let vcluster = self.vcluster.filter(|v| !v.is_empty());
        Ok(AllocationSpec {
            name: self.name,
            project: ProjectPath::new(&self.project).map_err(at("project"))?,
            vcluster: VclusterName::new(vcluster.as_deref().unwrap_or(DEFAULT_VCLUSTER))
                .map_err(at("vcluster"))?,
            nodes: self.nodes,
            workload: Workload {
                argv: self.argv,
                script: self.script,
                env: self.env,
                working_dir: self.working_dir,
                output: OutputFiles {
                    stdout: path(self.output, "output")?,
                    stderr: path(self.error, "error")?,
                },
            },
            walltime_ms: self
                .walltime
                .filter(|text| !text.is_empty())
                .map(|text| duration::parse(&text).map_err(at("walltime")))
                .transpose()?,
            class: self.class.unwrap_or(DEFAULT_CLASS),
            sensitive: self.sensitive,
            constraints: self.constraints.try_into()?,
            requeue: word(self.requeue.as_deref(), "requeue", &REQUEUES)?.unwrap_or_default(),
            hold: self.hold,
            demand,
        })
    }
}

/// The answer to a submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// Its number; absent for a dry run, which makes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub id: Option<AllocationId>,
    /// The revision it was made, or judged, at.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// What would become of it, of a dry run; absent where this control cannot plan at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlook: Option<OutlookView>,
}

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

/// Why an allocation is being, or was, stopped, as told to somebody with this sight.
pub fn stop_text(stop: &StopCause, sight: Sight) -> String {
    match stop {
        StopCause::RankFailed { rank, exit } => format!("rank {rank}: {}", exit_text(exit, sight)),
        _ => stop.to_string(),
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
            ranks: a
                .ranks
                .iter()
                .enumerate()
                .map(|(n, r)| rank_view(n, r, sight))
                .collect(),
            stop: a.stop.as_ref().map(|stop| stop_text(stop, sight)),
            reason: None,
            workload: (sight == Sight::Full).then(|| (&a.spec.workload).into()),
            revision: a.revision,
        }
    }
}

#[cfg(test)]
mod tests;
