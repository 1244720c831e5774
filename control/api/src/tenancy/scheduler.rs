//! Scheduler settings of a vCluster.

use crate::{
    notation::{
        nullable::deserialize_present,
        number::{finite, finite_or_null},
    },
    problem::FieldError,
};
use lattice_quorum_types::scheduler::{
    MAX_CHECKPOINT_BYTES_S, MAX_TIME_MS, MAX_WEIGHT as MAX_WEIGHT_PARTS, WorkloadKind,
};
pub use lattice_quorum_types::vcluster::WEIGHTS;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Workload profiles with their own weights. The last profile, `balanced`, is for mixed workloads; a new vCluster has
/// its weights.
pub const PROFILES: [&str; 6] = [
    WorkloadKind::HpcBatch.name(),
    WorkloadKind::MlTraining.name(),
    WorkloadKind::Service.name(),
    WorkloadKind::Sensitive.name(),
    WorkloadKind::Interactive.name(),
    WorkloadKind::Balanced.name(),
];
/// Longest reference wait, seconds: 366 days.
const MAX_REFERENCE_WAIT_S: f64 = MAX_TIME_MS as f64 / 1e3;
/// Largest weight.
const MAX_WEIGHT: f64 = MAX_WEIGHT_PARTS.0 as f64 / 1e6;
/// Resolution of weights: the smallest weight above 0.
const MIN_WEIGHT: f64 = 1e-6;
/// Largest bandwidth of checkpoint storage, GB/s.
const MAX_CHECKPOINT_BANDWIDTH_GB_S: f64 = MAX_CHECKPOINT_BYTES_S as f64 / 1e9;

/// Weights of the nine factors. Weights are relative: they need not add up to 1. The resolution is 0.000001.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightsView {
    /// Priority class.
    pub priority: f64,
    /// Time in the queue.
    pub wait_time: f64,
    /// Distance of the tenant from its share.
    pub fair_share: f64,
    /// Few topology groups.
    pub topology: f64,
    /// Input data on the hot tier.
    pub data_ready: f64,
    /// Backlog.
    pub backlog: f64,
    /// Energy price.
    pub energy: f64,
    /// Low cost of a checkpoint.
    pub checkpoint: f64,
    /// One conformance group.
    pub conformance: f64,
}

impl WeightsView {
    /// Returns the weights by name, w1 to w9.
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

/// Blocked jobs for which nodes are reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "it must be a whole number from 0 to 4294967295, or \"all\""
)]
pub enum ReservationsView {
    /// The first jobs of the queue, up to this number; 0: none, 1: EASY backfill.
    First(u32),
    /// All blocked jobs.
    All(AllReservations),
}

/// The word `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllReservations {
    /// Every blocked job (conservative backfill).
    All,
}

/// Scheduler settings of a vCluster, as shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulerView {
    /// Workload profile that last set the weights; `null`: none. Single weights may have changed since. A vCluster with
    /// the profile `sensitive` does not lend nodes.
    pub profile: Option<String>,
    /// Weights of the score.
    pub weights: WeightsView,
    /// Sum of the weights.
    pub weights_sum: f64,
    /// Seconds of waiting after which the wait time factor is ln 2.
    pub reference_wait_s: f64,
    /// Blocked jobs for which nodes are reserved.
    pub reservations: ReservationsView,
    /// Total bandwidth of all nodes to checkpoint storage, GB/s; `null`: unknown.
    pub checkpoint_gb_s: Option<f64>,
}

/// Change of weights; a field left out keeps its value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WeightsChange {
    /// Weight of the priority class; see [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub priority: Option<f64>,
    /// Weight of the time in the queue; see [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub wait_time: Option<f64>,
    /// Weight of the tenant's distance from its share; see [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub fair_share: Option<f64>,
    /// Weight of few topology groups; see [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub topology: Option<f64>,
    /// Weight of input data on the hot tier; see [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub data_ready: Option<f64>,
    /// Weight of the backlog; see [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub backlog: Option<f64>,
    /// Weight of the energy price; see [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub energy: Option<f64>,
    /// Weight of a low checkpoint cost; see [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub checkpoint: Option<f64>,
    /// Weight of one conformance group; see [`WeightsView`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub conformance: Option<f64>,
}

impl WeightsChange {
    /// Returns the changed weights by name.
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

/// Change of scheduler settings; a field left out keeps its value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerChange {
    /// Workload profile that sets all weights: `hpc-batch`, `ml-training`, `service`, `sensitive`, `interactive` or
    /// `balanced`. Weights in `weights` are applied after the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Single weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightsChange>,
    /// Seconds of waiting after which the wait time factor is ln 2; more than 0.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "finite")]
    pub reference_wait_s: Option<f64>,
    /// Blocked jobs for which nodes are reserved: a number or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationsView>,
    /// Total bandwidth of all nodes to checkpoint storage, GB/s; `null`: unknown.
    #[serde(
        deserialize_with = "deserialize_present",
        skip_serializing_if = "Option::is_none",
        serialize_with = "finite_or_null"
    )]
    #[schema(value_type = Option<f64>, required = false)]
    pub checkpoint_gb_s: Option<Option<f64>>,
}

impl SchedulerChange {
    /// Checks the change by the server's rules, so that a client can check before it sends the request.
    ///
    /// # Errors
    /// The first field with an invalid value.
    pub fn check(&self) -> Result<(), FieldError> {
        if let Some(name) = &self.profile
            && !PROFILES.contains(&name.as_str())
        {
            let reason = format!("{name:?} is not one of {}", PROFILES.join(", "));
            return Err(setting_error("profile", reason));
        }
        // NaN is in no range, so these comparisons reject it.
        for (name, weight) in self.weights.iter().flat_map(WeightsChange::given) {
            if !(0.0..=MAX_WEIGHT).contains(&weight) {
                let reason = format!("it is {weight:?}; it must be from 0 to {MAX_WEIGHT}");
                return Err(setting_error(&format!("weights.{name}"), reason));
            }
            if weight > 0.0 && weight < MIN_WEIGHT {
                let reason = format!("it is {weight:?}; it must be 0 or at least 0.000001");
                return Err(setting_error(&format!("weights.{name}"), reason));
            }
        }
        if let Some(seconds) = self.reference_wait_s
            && !(0.001..=MAX_REFERENCE_WAIT_S).contains(&seconds)
        {
            let reason = format!(
                "it is {seconds} s; it must be from 0.001 s to {MAX_REFERENCE_WAIT_S} s (366 days)"
            );
            return Err(setting_error("reference_wait_s", reason));
        }
        if let Some(Some(gb_s)) = self.checkpoint_gb_s
            && !(0.0..=MAX_CHECKPOINT_BANDWIDTH_GB_S).contains(&gb_s)
        {
            let reason = format!(
                "it is {gb_s:?} GB/s; it must be from 0 to {MAX_CHECKPOINT_BANDWIDTH_GB_S}"
            );
            return Err(setting_error("checkpoint_gb_s", reason));
        }
        Ok(())
    }
}

/// Creates the error for an invalid scheduler field.
pub fn setting_error(field: &str, reason: impl Into<String>) -> FieldError {
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

    /// One distinct value per name.
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
