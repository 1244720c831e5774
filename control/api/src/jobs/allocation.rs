//! Allocations: the request and the record as shown.

use super::outlook::OutlookView;
use crate::{notation::duration, problem::FieldError};
use lattice_quorum_types::{
    AllocationId, ProjectPath, Revision, VclusterName,
    limit::OnLimit,
    spec::{AllocationSpec, OutputFiles, Requeue, Workload, check_script},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

mod actions;
mod constraints;
mod demand;
mod field_checks;
mod output;
mod progress;
mod terms;
mod view;
mod workload_access;
pub use actions::{CheckpointRequest, ExtendRequest, WalltimeChange};
pub use constraints::ConstraintsBody;
pub use demand::{InvalidBandwidth, read_bandwidth, write_bandwidth};
pub use output::{OutputPlaceView, OutputView};
pub use progress::{
    CheckpointInProgressView, CheckpointsView, DagPlaceView, DependencyView, ElementCountsView,
    ElementView, SavedCheckpointView, WaitsForView, name_text,
};
pub use terms::{
    CheckpointBody, DependencyBody, JobBody, MetricBody, RequestContext, ScaleBody, read_condition,
};
pub use view::{AllocationView, RankView, WorkloadView, stop_reason};
pub use workload_access::WorkloadAccess;

/// Shown in place of every environment value, to every caller.
pub const REDACTED: &str = "<redacted>";

/// vCluster of a request that names none.
pub use lattice_quorum_types::vcluster::DEFAULT_VCLUSTER;

/// Priority class of a request that names none: the middle of 0-10.
pub const DEFAULT_CLASS: u8 = AllocationSpec::DEFAULT_CLASS;

/// Request for nodes. The user comes from the token; the request has no field for it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a request for nodes")]
pub struct AllocationRequest {
    /// Project for limits and usage.
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
    /// Free-text name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// vCluster that schedules the allocation; `default` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcluster: Option<String>,
    /// Program and arguments; with `script`, the arguments of the script. Give at least one of the two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Script, run by the interpreter of its `#!` line with `argv` as its arguments. Its first line is `#!` and the path
    /// of the interpreter; its lines have no carriage returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Environment variables, added to a minimal environment. The values are never shown again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory, an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// File for standard output, which each node opens as the user and appends to. `%j` is the allocation, `%A` the
    /// array, `%a` the index in the array, `%r` the rank, `%n` the node. Left out: the default file of the site, if it
    /// has one. Otherwise, and for `-`, each node keeps the first and the last part of the output for some days,
    /// readable as logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "out-%j.%r.txt")]
    pub output: Option<String>,
    /// File for standard error; written like `output`. Left out, on a site with a default file: the file of standard
    /// output.
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
    /// Sensitive data: attested nodes of one conformance group, no preemption, audit of each request, and a wipe
    /// afterwards.
    #[serde(default)]
    pub sensitive: bool,
    /// Requirements on the nodes.
    #[serde(default)]
    pub constraints: ConstraintsBody,
    /// Policy after the loss of a node: `never` (default), `once` or `always`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<String>,
    /// Submit the allocation on hold.
    #[serde(default)]
    pub hold: bool,
    /// Fraction of the input data that is on the hot tier, 0 to 1. Left out: unknown, scored as 0.5.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::notation::number::finite"
    )]
    #[schema(example = 0.8)]
    pub data_ready: Option<f64>,
    /// Time to write a job checkpoint, in the format of `walltime`; 7 days at most. Left out: estimated from the memory
    /// of the GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "5m")]
    pub checkpoint_time: Option<String>,
    /// Storage bandwidth that the whole allocation needs while it runs, GB/s (10^9 bytes per second) by storage system;
    /// 16 systems at most. Values are rounded to whole MB/s.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({"scratch": 40.0, "home": 0.5}))]
    pub storage_gb_s: BTreeMap<String, f64>,
    /// Job array, as indices: `0-99%10`, `1,3,5-7`, `0-15:4`. The number after `%` limits how many elements run at a
    /// time. Each element gets its own allocation when it is placed, and its index in `LATTICE_ARRAY_INDEX`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0-99%10")]
    pub array: Option<String>,
    /// Allocations that must end first. The allocation waits for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyBody>,
    /// Dependencies in the syntax of batch schedulers: `afterok:12:13,afternotok:14_7,singleton`. Give this or
    /// `dependencies`, not both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "afterok:12:13")]
    pub dependency: Option<String>,
    /// Make only one of the user's allocations with this name eligible at a time, in the order of submission.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub singleton: bool,
    /// Mutex name: like `singleton`, but by this name instead of the allocation's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutex: Option<String>,
    /// Earliest start: `2026-12-01T08:00:00Z`, `16:00` (UTC), `tomorrow`, `now+1hour`. With an idempotency key give an
    /// absolute time: in a repeated request `now` is a later time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "now+1hour")]
    pub begin: Option<String>,
    /// Time by which the allocation must have ended, in the format of `begin`; a time of day is the first one after
    /// `begin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Checkpoint mode, trigger and directory of the job. Left out: the allocation writes no checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointBody>,
    /// Scaling of the number of nodes by a metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleBody>,
    /// Reservation. The allocation uses the nodes of this reservation only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Handling of a request that fits the limits, but not with the present usage: `reject`, or `wait` to accept the
    /// allocation, which then waits for quota headroom. Left out: the setting of the tenant. A request above a limit
    /// itself is always refused. An allocation with dependencies, and a member of a DAG, always waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(reject|wait)$", example = "wait")]
    pub on_limit: Option<String>,
}

/// Prints project, nodes and name only: script, arguments and environment must not reach a log.
impl std::fmt::Debug for AllocationRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllocationRequest")
            .field("project", &self.project)
            .field("nodes", &self.nodes)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn field_error<E: std::fmt::Display>(field: &'static str) -> impl Fn(E) -> FieldError {
    move |error| FieldError {
        field: field.to_owned(),
        reason: error.to_string(),
    }
}

fn keyword<T>(
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

/// Rejects a relative working directory, since the base of a relative path depends on the node.
fn check_working_dir(text: Option<String>) -> Result<Option<String>, FieldError> {
    match text {
        Some(text) if !text.starts_with('/') => {
            let reason = format!("{text:?} is not an absolute path; give one such as /scratch/run");
            Err(field_error("working_dir")(reason))
        }
        text => Ok(text),
    }
}

/// Rejects names of output files that no node could open. Only a node can expand the patterns in a name.
fn check_output_file(
    text: Option<String>,
    field: &'static str,
) -> Result<Option<String>, FieldError> {
    let Some(text) = text else { return Ok(None) };
    let fail = |reason: String| Err(field_error(field)(reason));
    if text.trim().is_empty() {
        return fail(
            "the file name is empty; give a name, or leave the field out to keep the output as logs"
                .to_owned(),
        );
    }
    if text.chars().any(char::is_control) {
        return fail(format!("file name {text:?} contains control characters"));
    }
    if text.ends_with('/') {
        return fail(format!("{text:?} is a folder; name a file in it"));
    }
    // Patterns with an array index pass here; they are checked together with the array.
    match OutputFiles::check(&text, true) {
        Ok(()) => Ok(Some(text)),
        Err(error) => fail(format!("{text:?}: {error}")),
    }
}

/// Name that has the nodes keep a stream although the site has a default file.
const KEPT_BY_NODES: &str = "-";

/// Output files of a request. With a default, standard error goes where standard output goes unless it has a file of
/// its own, as in Slurm.
fn output_files(
    stdout: Option<String>,
    stderr: Option<String>,
    default: Option<String>,
) -> Result<OutputFiles, FieldError> {
    let mut stdout = check_output_file(stdout, "output")?;
    let mut stderr = check_output_file(stderr, "error")?;
    if default.is_some() {
        stdout = stdout.or(default);
        stderr = stderr.or_else(|| stdout.clone());
    }
    let file = |name: Option<String>| name.filter(|name| name != KEPT_BY_NODES);
    Ok(OutputFiles {
        stdout: file(stdout),
        stderr: file(stderr),
    })
}

const REQUEUES: [(&str, Requeue); 3] = [
    ("never", Requeue::Never),
    ("once", Requeue::Once),
    ("always", Requeue::Always),
];

const ON_LIMITS: [(&str, OnLimit); 2] = [("reject", OnLimit::Reject), ("wait", OnLimit::Wait)];

fn name_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words
        .iter()
        .find(|(_, v)| v == value)
        .map_or("", |(word, _)| word)
}

impl AllocationRequest {
    /// Reads every text field and rejects values that no cluster could ever accept. Everything else (an unknown
    /// project, a limit) is for the quorum to check.
    ///
    /// # Errors
    /// The first field that cannot be read or has an impossible value.
    pub fn into_spec_with(self, known: &RequestContext) -> Result<AllocationSpec, FieldError> {
        self.check_not_empty()?;
        if self.nodes == 0 {
            return Err(field_error("nodes")(
                "0 is not a valid number of nodes; request at least 1 node",
            ));
        }
        if let Some(script) = &self.script {
            check_script(script).map_err(field_error("script"))?;
        }
        self.on_limit()?;
        let (demand, terms) = (self.demand()?, self.terms(known)?);
        let default_output = known.default_output.as_deref().map(|pattern| {
            let has_several_ranks = self.nodes > 1 || self.scale.is_some();
            OutputFiles::from_default(pattern, self.array.is_some(), has_several_ranks)
        });
        Ok(AllocationSpec {
            name: self.name,
            project: ProjectPath::new(&self.project).map_err(field_error("project"))?,
            vcluster: VclusterName::new(self.vcluster.as_deref().unwrap_or(DEFAULT_VCLUSTER))
                .map_err(field_error("vcluster"))?,
            nodes: self.nodes,
            workload: Workload {
                argv: self.argv,
                script: self.script,
                env: self.env,
                working_dir: check_working_dir(self.working_dir)?,
                output: output_files(self.output, self.error, default_output)?,
            },
            walltime_ms: self
                .walltime
                .map(|text| duration::parse(&text).map_err(field_error("walltime")))
                .transpose()?,
            class: self.class.unwrap_or(DEFAULT_CLASS),
            sensitive: self.sensitive,
            constraints: self.constraints.try_into()?,
            requeue: keyword(self.requeue.as_deref(), "requeue", &REQUEUES)?.unwrap_or_default(),
            hold: self.hold,
            demand,
            terms,
        })
    }

    /// Reads the handling of a request that does not fit with the present usage; `None`: the setting of the tenant.
    ///
    /// # Errors
    /// An unknown handling.
    pub fn on_limit(&self) -> Result<Option<OnLimit>, FieldError> {
        keyword(self.on_limit.as_deref(), OnLimit::NAME, &ON_LIMITS)
    }

    /// Like [`Self::into_spec_with`], without the fields that need the server's clock and job arrays: begin, deadline
    /// and dependencies.
    ///
    /// # Errors
    /// The first field that cannot be read or has an impossible value.
    pub fn into_spec(self) -> Result<AllocationSpec, FieldError> {
        self.dependency_refs()?;
        let without = Self {
            dependencies: Vec::new(),
            dependency: None,
            begin: None,
            deadline: None,
            ..self
        };
        without.into_spec_with(&RequestContext::default())
    }
}

/// Answer to a submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SubmitResult {
    /// Allocation number; absent for a dry run, which creates none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub id: Option<AllocationId>,
    /// Revision at which the allocation was created, or checked.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Whether the request was a dry run, which changes nothing.
    pub dry_run: bool,
    /// Scheduling outlook of a dry run; absent if this control cannot plan at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlook: Option<OutlookView>,
}

#[cfg(test)]
mod tests;
