//! Terms of an allocation: dependencies, arrays, begin and deadline, checkpoints, scaling.

use super::{AllocationRequest, FieldError, duration, field_error};
use crate::{
    jobs::dependency::{AllocationDependency, Dependencies, DependencyError, JobRef},
    notation::begin,
};
use lattice_quorum_types::{
    AllocationId, UnixMillis,
    array::ArraySpec,
    checkpoint::CheckpointMode,
    id::ReservationName,
    scale::{Metric, ScalingPace, ScalingSpec},
    terms::{CheckpointTerms, CheckpointTrigger, Condition, Dependency, Terms},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// Millionths in one.
const MICRO: f64 = 1e6;
/// Highest target of a metric: its millionths fit into 64 bits.
const MAX_TARGET: f64 = 1e12;

impl From<AllocationId> for JobRef {
    fn from(id: AllocationId) -> Self {
        Self {
            id: id.0,
            index: None,
        }
    }
}

/// Server-side data that is needed to read a request.
#[derive(Debug, Clone, Default)]
pub struct RequestContext {
    /// Current time, for begin times and deadlines such as `now+1hour`.
    pub now: UnixMillis,
    /// Allocation numbers of the array elements among the references that [`AllocationRequest::dependency_refs`]
    /// returns.
    pub elements: BTreeMap<JobRef, AllocationId>,
    /// The site's default for the output files of requests that name none; `None`: the nodes keep the output.
    pub default_output: Option<String>,
}

/// Reference to another allocation: its number, or an array element as `12_7`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "it must be an allocation's number, as 12, or an element of an array, as \"12_7\""
)]
pub enum JobBody {
    /// Allocation number.
    Number(u64),
    /// Allocation number as text, or an array element, `12_7`.
    Text(String),
}

impl JobBody {
    fn read(&self) -> Result<JobRef, DependencyError> {
        match self {
            Self::Number(id) => id.to_string().parse(),
            Self::Text(text) => text.parse(),
        }
    }
}

/// Dependency on another allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DependencyBody {
    /// Required end of the other allocation: `success`, `failure`, `any`, or `corresponding` (the element of the same
    /// index succeeded).
    pub condition: String,
    /// Allocation that must end first.
    pub on: JobBody,
}

/// Checkpoint mode, trigger and directory of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointBody {
    /// Way in which Lattice requests a checkpoint: `signal` (SIGUSR1), `shared_memory` or `callback` (gRPC).
    pub mode: String,
    /// Trigger of checkpoints: `automatic` (when a checkpoint is worth its cost, and on request; the default) or
    /// `manual` (on request, and for preemption).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Target directory, an absolute path. Left out: the directory of the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// Metric that determines the number of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MetricBody {
    /// Mean GPU utilisation of the allocation's nodes, 0 to 1.
    Gpu,
    /// Mean CPU utilisation of the allocation's nodes, 0 to 1.
    Cpu,
    /// Prometheus query that gives one value; `$allocation` stands for the allocation's number.
    Prometheus(String),
}

/// Scaling of the number of nodes by a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleBody {
    /// Minimum number of nodes, at least 1. The allocation starts with this number.
    pub min_nodes: u32,
    /// Maximum number of nodes.
    pub max_nodes: u32,
    /// Metric: `gpu`, `cpu`, or `{"prometheus": "QUERY"}`.
    pub metric: MetricBody,
    /// Target value, above 0. A higher metric value adds a node.
    #[serde(serialize_with = "crate::notation::number::finite_one")]
    pub target: f64,
    /// Time for which the metric must be above the target before a node is added, in the format of a walltime. Left
    /// out: the setting of the vCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2m")]
    pub up_window: Option<String>,
    /// Time for which the metric must be below the lower threshold before a node is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_window: Option<String>,
    /// Minimum time between two changes; `0s` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown: Option<String>,
    /// Lower threshold, as a fraction of the target between 0 and 1.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::notation::number::finite"
    )]
    pub down_threshold: Option<f64>,
}

fn condition(word: &str) -> Option<Condition> {
    Condition::ALL
        .into_iter()
        .find(|condition| condition.as_str() == word)
}

/// Reads the name of a condition.
///
/// # Errors
/// An unknown name; the text lists the valid ones.
pub fn read_condition(word: &str) -> Result<Condition, String> {
    let all = || Condition::ALL.map(Condition::as_str).join(", ");
    condition(word).ok_or_else(|| format!("{word:?} is not one of {}", all()))
}

impl AllocationRequest {
    /// Merges both forms of dependencies into one.
    fn dependencies(&self) -> Result<Dependencies, FieldError> {
        let (list, text) = (&self.dependencies, self.dependency.as_deref());
        match (list.is_empty(), text) {
            (true, None) => Ok(Dependencies::default()),
            (true, Some(text)) => text.parse().map_err(field_error("dependency")),
            (false, None) => {
                let after = list.iter().map(|one| {
                    Ok(AllocationDependency {
                        condition: read_condition(&one.condition)?,
                        on: one.on.read().map_err(|error| error.to_string())?,
                    })
                });
                let after: Result<_, String> = after.collect();
                let listed = Dependencies {
                    after: after.map_err(field_error("dependencies"))?,
                    singleton: false,
                };
                // Parsing the text applies the same rules to the list.
                let text = listed.to_string();
                text.parse().map_err(field_error("dependencies"))
            }
            (false, Some(_)) => Err(field_error("dependency")(
                "dependency and dependencies are both given; give one of them",
            )),
        }
    }

    /// Returns the allocations that the dependencies name. The server resolves array elements among them to numbers
    /// before it reads the whole request.
    ///
    /// # Errors
    /// The field that cannot be read.
    pub fn dependency_refs(&self) -> Result<BTreeSet<JobRef>, FieldError> {
        let after = self.dependencies()?.after.into_iter();
        Ok(after.map(|after| after.on).collect())
    }

    fn resolved_dependencies(
        &self,
        known: &RequestContext,
    ) -> Result<(Vec<Dependency>, bool), FieldError> {
        let field = match self.dependencies.is_empty() {
            true => "dependency",
            false => "dependencies",
        };
        let asked = self.dependencies()?;
        let number = |on: JobRef| match on.index {
            None => Ok(AllocationId(on.id)),
            Some(_) => known.elements.get(&on).copied().ok_or_else(|| {
                let reason = format!(
                    "{on} is not an element of an array; give the number of the \
                    array"
                );
                field_error(field)(reason)
            }),
        };
        let one = |after: &AllocationDependency| {
            Ok(Dependency {
                on: number(after.on)?,
                condition: after.condition,
            })
        };
        let after: Result<Vec<_>, FieldError> = asked.after.iter().map(one).collect();
        Ok((after?, asked.singleton))
    }

    /// Returns the name of the mutex: the value of `mutex` or, for a singleton, the allocation's name.
    fn mutex_name(&self, is_singleton: bool) -> Result<Option<String>, FieldError> {
        let given = self.mutex.as_deref();
        match (self.singleton || is_singleton, given) {
            (false, given) => Ok(given.map(str::to_owned)),
            (true, Some(_)) => Err(field_error("mutex")(
                "mutex and singleton are both given, but a singleton uses the allocation's name as its \
                 mutex; give one of them",
            )),
            (true, None) => match self.name.as_deref() {
                Some(name) => Ok(Some(name.to_owned())),
                None => Err(field_error("name")(
                    "a singleton requires a name; give the allocation a name",
                )),
            },
        }
    }

    pub(super) fn terms(&self, known: &RequestContext) -> Result<Terms, FieldError> {
        let (after, is_singleton) = self.resolved_dependencies(known)?;
        let begin_at = self
            .begin
            .as_deref()
            .map(|text| begin::parse_begin_time(text, known.now).map_err(field_error("begin")))
            .transpose()?;
        let read_deadline = |text| begin::parse_deadline(text, known.now, begin_at);
        let deadline_at = self
            .deadline
            .as_deref()
            .map(|text| read_deadline(text).map_err(field_error("deadline")))
            .transpose()?;
        Ok(Terms {
            after,
            mutex: self.mutex_name(is_singleton)?,
            // A begin time in the past has no effect.
            begin_at: begin_at.filter(|at| *at > known.now),
            deadline_at,
            array: self
                .array
                .as_deref()
                .map(|text| text.parse::<ArraySpec>().map_err(field_error("array")))
                .transpose()?,
            checkpoint: self.checkpoint.as_ref().map(checkpoint).transpose()?,
            scale: self.scale.as_ref().map(scale).transpose()?,
            reservation: self
                .reservation
                .as_deref()
                .map(|text| ReservationName::new(text).map_err(field_error("reservation")))
                .transpose()?,
        })
    }
}

const TRIGGERS: [(&str, CheckpointTrigger); 2] = [
    ("automatic", CheckpointTrigger::Automatic),
    ("manual", CheckpointTrigger::Manual),
];

fn checkpoint(body: &CheckpointBody) -> Result<CheckpointTerms, FieldError> {
    let mode: CheckpointMode = body.mode.parse().map_err(field_error("checkpoint.mode"))?;
    let trigger = super::keyword(body.trigger.as_deref(), "checkpoint.trigger", &TRIGGERS)?;
    Ok(CheckpointTerms {
        mode,
        trigger: trigger.unwrap_or_default(),
        directory: body.directory.clone(),
    })
}

fn scale(body: &ScaleBody) -> Result<ScalingSpec, FieldError> {
    let target = body.target;
    if !(target > 0.0 && target <= MAX_TARGET) {
        let reason = format!(
            "{target} is not a valid target; give a number above 0, {MAX_TARGET} \
            at most"
        );
        return Err(field_error("scale.target")(reason));
    }
    let is_part = matches!(body.metric, MetricBody::Gpu | MetricBody::Cpu);
    if is_part && target > 1.0 {
        let reason = format!("{target} is never reached: utilisation is between 0 and 1");
        return Err(field_error("scale.target")(reason));
    }
    let length = |text: &Option<String>, field| {
        let given = text.as_deref().map(str::trim);
        let read = |text| match text {
            "0" | "0s" => Ok(0),
            text => duration::parse(text).map_err(field_error(field)),
        };
        given.map(read).transpose()
    };
    let part = |part: f64| match part > 0.0 && part < 1.0 {
        // Below a million, so the cast is exact.
        true => Ok((part * MICRO).round() as u32),
        false => Err(field_error("scale.down_threshold")(format!(
            "{part} is not between 0 and 1; give a fraction of the target"
        ))),
    };
    let scale = ScalingSpec {
        min_nodes: body.min_nodes,
        max_nodes: body.max_nodes,
        metric: match &body.metric {
            MetricBody::Gpu => Metric::Gpu,
            MetricBody::Cpu => Metric::Cpu,
            MetricBody::Prometheus(query) => Metric::Prometheus {
                query: query.clone(),
            },
        },
        target_micro: (target * MICRO).round() as u64,
        pace: ScalingPace {
            up_window_ms: length(&body.up_window, "scale.up_window")?,
            down_window_ms: length(&body.down_window, "scale.down_window")?,
            cooldown_ms: length(&body.cooldown, "scale.cooldown")?,
            down_threshold_ppm: body.down_threshold.map(part).transpose()?,
        },
    };
    let wrong = |error: lattice_quorum_types::scale::InvalidScale| FieldError {
        field: format!("scale.{}", error.field),
        reason: error.reason,
    };
    scale.check().map_err(wrong)?;
    Ok(scale)
}

impl From<&CheckpointTerms> for CheckpointBody {
    fn from(terms: &CheckpointTerms) -> Self {
        Self {
            mode: terms.mode.to_string(),
            trigger: Some(super::name_of(&TRIGGERS, &terms.trigger).to_owned()),
            directory: terms.directory.clone(),
        }
    }
}

impl From<&ScalingSpec> for ScaleBody {
    fn from(scale: &ScalingSpec) -> Self {
        let ScalingPace {
            up_window_ms,
            down_window_ms,
            cooldown_ms,
            down_threshold_ppm,
        } = scale.pace;
        Self {
            min_nodes: scale.min_nodes,
            max_nodes: scale.max_nodes,
            metric: match &scale.metric {
                Metric::Gpu => MetricBody::Gpu,
                Metric::Cpu => MetricBody::Cpu,
                Metric::Prometheus { query } => MetricBody::Prometheus(query.clone()),
            },
            target: scale.target_micro as f64 / MICRO,
            up_window: up_window_ms.map(duration::format),
            down_window: down_window_ms.map(duration::format),
            cooldown: cooldown_ms.map(duration::format),
            down_threshold: down_threshold_ppm.map(|ppm| f64::from(ppm) / MICRO),
        }
    }
}
