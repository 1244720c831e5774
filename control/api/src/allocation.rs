//! Allocations: the request, and the record as shown.

use crate::{duration, outlook::OutlookView, problem::FieldError};
use lattice_quorum_types::{
    AllocationId, ProjectPath, Revision, VclusterName,
    spec::{AllocationSpec, OutputFiles, Requeue, Workload},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

mod act;
mod constraints;
mod course;
mod demand;
mod said;
mod terms;
mod view;
pub use act::{CheckpointRequest, ExtendRequest, Walltime};
pub use constraints::ConstraintsBody;
pub use course::{
    CheckpointsView, DagPlaceView, DependencyView, ElementView, KeptView, TallyView, WaitsForView,
    WritingView,
};
pub use demand::{InvalidBandwidth, read_bandwidth, write_bandwidth};
pub use terms::{
    CheckpointBody, DependencyBody, JobBody, Known, MetricBody, ScaleBody, read_condition,
};
pub use view::{AllocationView, RankView, Sight, WorkloadView, stop_of};

/// Shown in place of every environment value, whoever asks.
pub const REDACTED: &str = "<redacted>";

/// The vCluster of a request that names none.
pub use lattice_quorum_types::vcluster::DEFAULT_VCLUSTER;

/// Priority class of a request that names none: the middle of 0-10.
pub const DEFAULT_CLASS: u8 = AllocationSpec::CLASS;

/// A request for nodes. Who asks is known from the token; there is no field for it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a request for nodes")]
pub struct AllocationRequest {
    /// The project whose limits apply.
    #[schema(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
        min_length = 1,
        max_length = 4096,
        example = "atlas/physics"
    )]
    pub project: String,
    /// Number of nodes, at least 1.
    #[schema(minimum = 1)]
    pub nodes: u32,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The vCluster whose scheduler places it; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcluster: Option<String>,
    /// Program and arguments; beside `script` that one's arguments. Give at least one of the two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// A script, run by its own `#!` line with `argv` as its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Environment added to a minimal one. Never shown again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory, from the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// File of the user's own for standard output, opened as the user on each node and appended
    /// to: `%j` is the allocation, `%A` its array, `%a` its index there, `%r` the rank, `%n` the
    /// node. Left out: kept by the node and read as logs.
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
    #[schema(minimum = 0, maximum = 10)]
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
    /// Many pieces of work that differ in their index alone: `0-99%10`, `1,3,5-7`, `0-15:4`; behind `%` how
    /// many run at a time. Each has an allocation of its own as soon as it is placed, and
    /// `LATTICE_ARRAY_INDEX`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0-99%10")]
    pub array: Option<String>,
    /// Those it comes after: it waits for each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyBody>,
    /// The same as batch schedulers write it: `afterok:12:13,afternotok:14_7,singleton`. Give one of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "afterok:12:13")]
    pub dependency: Option<String>,
    /// Of the same user's work with the same name, one is eligible at a time, in the order of the submits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub singleton: bool,
    /// The same under another name than the work's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutex: Option<String>,
    /// It is not placed before: `2026-12-01T08:00:00Z`, `16:00` (UTC), `tomorrow`, `now+1hour`. With an
    /// idempotency key write a time: of a repeat, `now` is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "now+1hour")]
    pub begin: Option<String>,
    /// It must have ended by then; written as `begin` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// It can write checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointBody>,
    /// Its number of nodes follows a metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleBody>,
    /// It uses nodes that are reserved under this name, and no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
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
    let Some(text) = text else { return Ok(None) };
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

/// A working directory: where a relative one would begin depends on the node.
fn folder(text: Option<String>) -> Result<Option<String>, FieldError> {
    match text {
        Some(text) if !text.starts_with('/') => {
            let reason = format!("{text:?} does not begin at the root; write it like /scratch/run");
            Err(at("working_dir")(reason))
        }
        text => Ok(text),
    }
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
    // Whether it has an index is judged with the rest.
    match OutputFiles::check(&text, true) {
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
    pub fn into_spec_with(self, known: &Known) -> Result<AllocationSpec, FieldError> {
        self.check_said()?;
        if self.nodes == 0 {
            return Err(at("nodes")("ask for at least 1 node"));
        }
        let (demand, terms) = (self.demand()?, self.terms(known)?);
        Ok(AllocationSpec {
            name: self.name,
            project: ProjectPath::new(&self.project).map_err(at("project"))?,
            vcluster: VclusterName::new(self.vcluster.as_deref().unwrap_or(DEFAULT_VCLUSTER))
                .map_err(at("vcluster"))?,
            nodes: self.nodes,
            workload: Workload {
                argv: self.argv,
                script: self.script,
                env: self.env,
                working_dir: folder(self.working_dir)?,
                output: OutputFiles {
                    stdout: path(self.output, "output")?,
                    stderr: path(self.error, "error")?,
                },
            },
            walltime_ms: self
                .walltime
                .map(|text| duration::parse(&text).map_err(at("walltime")))
                .transpose()?,
            class: self.class.unwrap_or(DEFAULT_CLASS),
            sensitive: self.sensitive,
            constraints: self.constraints.try_into()?,
            requeue: word(self.requeue.as_deref(), "requeue", &REQUEUES)?.unwrap_or_default(),
            hold: self.hold,
            demand,
            terms,
        })
    }

    /// The same without what only a server reads, which has the time and the arrays: begin, deadline, and
    /// what it comes after.
    ///
    /// # Errors
    /// The first field that cannot be read, or be.
    pub fn into_spec(self) -> Result<AllocationSpec, FieldError> {
        self.named()?;
        let without = Self {
            dependencies: Vec::new(),
            dependency: None,
            begin: None,
            deadline: None,
            ..self
        };
        without.into_spec_with(&Known::default())
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

#[cfg(test)]
mod tests;
