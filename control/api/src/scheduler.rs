//! How a vCluster's scheduler decides.

use crate::{
    number::{finite, finite_or_null},
    problem::FieldError,
    vcluster::given,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Weights of the nine factors. They are relative: they need not add up to 1.
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulerView {
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
        let all = [
            ("priority", self.priority),
            ("wait_time", self.wait_time),
            ("fair_share", self.fair_share),
            ("topology", self.topology),
            ("data_ready", self.data_ready),
            ("backlog", self.backlog),
            ("energy", self.energy),
            ("checkpoint", self.checkpoint),
            ("conformance", self.conformance),
        ];
        all.into_iter()
            .filter_map(|(name, weight)| Some((name, weight?)))
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

/// A field of a scheduler that is not as it must be.
pub fn wrong(field: &str, reason: impl Into<String>) -> FieldError {
    FieldError {
        field: format!("scheduler.{field}"),
        reason: reason.into(),
    }
}
