//! How a vCluster's scheduler decides.

use crate::{
    number::{finite, finite_or_null},
    problem::FieldError,
    vcluster::given,
};
use lattice_quorum_types::scheduler::{
    MAX_CHECKPOINT_BYTES_S, MAX_TIME_MS, MAX_WEIGHT as MAX_WEIGHT_PARTS, WorkloadKind,
};
pub use lattice_quorum_types::vcluster::WEIGHTS;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kinds of work that have weights of their own; the last is none of them, and what a vCluster begins with.
pub const PROFILES: [&str; 6] = [
    WorkloadKind::HpcBatch.name(),
    WorkloadKind::MlTraining.name(),
    WorkloadKind::Service.name(),
    WorkloadKind::Sensitive.name(),
    WorkloadKind::Interactive.name(),
    WorkloadKind::Balanced.name(),
];
/// Longest reference wait, a year.
const MAX_REFERENCE_WAIT_S: f64 = MAX_TIME_MS as f64 / 1e3;
/// Largest weight.
const MAX_WEIGHT: f64 = MAX_WEIGHT_PARTS.0 as f64 / 1e6;
/// Resolution of weights: the smallest above 0.
const MIN_WEIGHT: f64 = 1e-6;
/// Largest bandwidth of checkpoints, GB/s.
const MAX_CHECKPOINT_GB_S: f64 = MAX_CHECKPOINT_BYTES_S as f64 / 1e9;

/// Weights of the nine factors. They are relative: they need not add up to 1. Their resolution is 0.000001.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightsView {
    /// Priority class.
    pub priority: f64,
    /// Time in the queue.
    pub wait_time: f64,
    /// How far the tenant is from its share.
    pub fair_share: f64,
    /// Few topology groups.
    pub topology: f64,
    /// Input data on the hot tier.
    pub data_ready: f64,
    /// Backlog.
    pub backlog: f64,
    /// Energy price.
    pub energy: f64,
    /// Cheap to checkpoint.
    pub checkpoint: f64,
    /// One conformance group.
    pub conformance: f64,
}

impl WeightsView {
    /// By name, w1 to w9.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let Self {
            priority,
            wait_time,
            fair_share,
            topology,
            data_ready,
            backlog,
            energy,
            checkpoint,
            conformance,
        } = *self;
        let all = [
            priority,
            wait_time,
            fair_share,
            topology,
            data_ready,
            backlog,
            energy,
            checkpoint,
            conformance,
        ];
        WEIGHTS.into_iter().zip(all)
    }
}

/// Which blocked jobs get nodes held back for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "it must be a whole number from 0 to 4294967295, or \"all\""
)]
pub enum ReservationsView {
    /// The first so many of the queue; 0: none, 1: EASY.
    First(u32),
    /// All of them.
    All(AllReservations),
}

/// The word for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllReservations {
    /// Every blocked job (conservative backfill).
    All,
}

/// How a vCluster's scheduler decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulerView {
    /// The kind of work whose weights it was given last; `null`: of none. Single ones may be others since. The
    /// nodes of one for `sensitive` work are not lent.
    pub profile: Option<String>,
    /// Weights of the score.
    pub weights: WeightsView,
    /// What the weights add up to.
    pub weights_sum: f64,
    /// Seconds of waiting after which the wait time factor is ln 2.
    pub reference_wait_s: f64,
    /// Which blocked jobs get nodes held back for them.
    pub reservations: ReservationsView,
    /// What all nodes together write to checkpoint storage, GB/s; `null`: not known.
    pub checkpoint_gb_s: Option<f64>,
}

/// Weights to be changed; one left out stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WeightsChange {
    /// See [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub priority: Option<f64>,
    /// See [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub wait_time: Option<f64>,
    /// See [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub fair_share: Option<f64>,
    /// See [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub topology: Option<f64>,
    /// See [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub data_ready: Option<f64>,
    /// See [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub backlog: Option<f64>,
    /// See [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub energy: Option<f64>,
    /// See [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub checkpoint: Option<f64>,
    /// See [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub conformance: Option<f64>,
}

impl WeightsChange {
    /// Those that are changed, by name.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let Self {
            priority,
            wait_time,
            fair_share,
            topology,
            data_ready,
            backlog,
            energy,
            checkpoint,
            conformance,
        } = *self;
        let all = [
            priority,
            wait_time,
            fair_share,
            topology,
            data_ready,
            backlog,
            energy,
            checkpoint,
            conformance,
        ];
        let named = WEIGHTS.into_iter().zip(all);
        named.filter_map(|(name, weight)| Some((name, weight?)))
    }
}

/// What is to be changed of a scheduler; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerChange {
    /// All weights of one kind of work: `hpc-batch`, `ml-training`, `service`, `sensitive`, `interactive`
    /// or `balanced`. Those in `weights` are changed after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Single weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightsChange>,
    /// Seconds of waiting after which the wait time factor is ln 2; more than 0.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub reference_wait_s: Option<f64>,
    /// Which blocked jobs get nodes held back for them: a number or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationsView>,
    /// What all nodes together write to checkpoint storage, GB/s; `null`: it is not known any more.
    #[serde(
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none",
        serialize_with = "finite_or_null"
    )]
    #[schema(value_type = Option<f64>, required = false)]
    pub checkpoint_gb_s: Option<Option<f64>>,
}

impl SchedulerChange {
    /// The server's rule, which a client can ask before it asks anybody.
    ///
    /// # Errors
    /// The first field that is not as it must be.
    pub fn check(&self) -> Result<(), FieldError> {
        if let Some(name) = &self.profile
            && !PROFILES.contains(&name.as_str())
        {
            let reason = format!("{name:?} is none of {}", PROFILES.join(", "));
            return Err(wrong("profile", reason));
        }
        // Not a number is in no range.
        for (name, weight) in self.weights.iter().flat_map(WeightsChange::given) {
            if !(0.0..=MAX_WEIGHT).contains(&weight) {
                let reason = format!("it is {weight:?}; it must be from 0 to {MAX_WEIGHT}");
                return Err(wrong(&format!("weights.{name}"), reason));
            }
            if weight > 0.0 && weight < MIN_WEIGHT {
                let reason = format!("it is {weight:?}; it must be 0 or at least 0.000001");
                return Err(wrong(&format!("weights.{name}"), reason));
            }
        }
        if let Some(seconds) = self.reference_wait_s
            && !(0.001..=MAX_REFERENCE_WAIT_S).contains(&seconds)
        {
            let reason = format!("it is {seconds} s; it must be from a millisecond to a year");
            return Err(wrong("reference_wait_s", reason));
        }
        if let Some(Some(gb_s)) = self.checkpoint_gb_s
            && !(0.0..=MAX_CHECKPOINT_GB_S).contains(&gb_s)
        {
            let reason = format!("it is {gb_s:?} GB/s; it must be from 0 to {MAX_CHECKPOINT_GB_S}");
            return Err(wrong("checkpoint_gb_s", reason));
        }
        Ok(())
    }
}

/// A field of a scheduler that is not as it must be.
pub fn wrong(field: &str, reason: impl Into<String>) -> FieldError {
    FieldError {
        field: format!("scheduler.{field}"),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::{Map, Value, json};

    /// A value of its own for each name.
    fn one_each() -> Value {
        let named = (1..).zip(WEIGHTS);
        let named = named.map(|(i, name)| (name.to_owned(), json!(f64::from(i))));
        Value::Object(named.collect::<Map<_, _>>())
    }

    #[test]
    fn each_weight_goes_by_the_name_of_its_field() {
        let expected: Vec<_> = WEIGHTS.into_iter().zip((1..).map(f64::from)).collect();
        let change: WeightsChange = serde_json::from_value(one_each()).unwrap();
        assert_eq!(change.given().collect::<Vec<_>>(), expected);
        let view: WeightsView = serde_json::from_value(one_each()).unwrap();
        assert_eq!(view.named().collect::<Vec<_>>(), expected);
        let only: WeightsChange = serde_json::from_value(json!({"energy": 0.5})).unwrap();
        assert_eq!(only.given().collect::<Vec<_>>(), [("energy", 0.5)]);
    }
}
