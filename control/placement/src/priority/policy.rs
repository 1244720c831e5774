//! Solver policy of a vCluster: the weights of the nine factors, and which blocked jobs get a reservation.

pub use lattice_quorum_types::scheduler::PlannedReservations;
use lattice_quorum_types::{scheduler::WorkloadKind, vcluster::WEIGHTS};
use serde::{Deserialize, Serialize};

/// Settings of a planner.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Weights of the score.
    pub weights: Weights,
    /// Wait after which the wait time factor is ln 2, milliseconds; at least 1.
    pub reference_wait_ms: u64,
    /// Blocked jobs that get a reservation.
    pub reservations: PlannedReservations,
    /// Bandwidth of checkpoint storage for all nodes together, bytes per second; determines the duration of a
    /// checkpoint that the request does not give. `None`: unknown; 0: no storage.
    pub checkpoint_bytes_s: Option<u64>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            weights: Weights::default(),
            reference_wait_ms: 3_600_000,
            reservations: PlannedReservations::default(),
            checkpoint_bytes_s: None,
        }
    }
}

impl Policy {
    /// Whether another reservation may be made after `made` ones.
    pub(crate) fn reserves(&self, made: usize) -> bool {
        match self.reservations {
            PlannedReservations::First(most) => made < most as usize,
            PlannedReservations::All => true,
        }
    }
}

/// Weights of the nine factors. Weights are relative: they need not add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawWeights", into = "RawWeights")]
pub struct Weights(RawWeights);

/// Weights by name, not yet checked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawWeights {
    /// w1: priority class.
    pub priority: f64,
    /// w2: time in the queue.
    pub wait_time: f64,
    /// w3: distance of the tenant below its share.
    pub fair_share: f64,
    /// w4: few topology groups.
    pub topology: f64,
    /// w5: input data on the hot tier.
    pub data_ready: f64,
    /// w6: backlog.
    pub backlog: f64,
    /// w7: energy price.
    pub energy: f64,
    /// w8: short duration of a checkpoint.
    pub checkpoint: f64,
    /// w9: one conformance group.
    pub conformance: f64,
}

/// Error of a weight that is negative, infinite or NaN.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("weight {name} is {value}; it must be a number of at least 0")]
pub struct InvalidWeight {
    /// Name of the weight.
    pub name: &'static str,
    /// Rejected value.
    pub value: f64,
}

/// Weight profiles, one per kind of workload. The balanced kind has none: its weights are the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Batch jobs with many nodes.
    HpcBatch,
    /// Training: more weight on topology, data and checkpoints.
    MlTraining,
    /// Services: nodes of one conformance group.
    Service,
    /// Sensitive allocations: priority class before all other factors.
    Sensitive,
    /// Interactive use: short waits.
    Interactive,
}

impl Profile {
    /// All profiles, in the order of their declaration.
    pub const ALL: [Self; 5] = [
        Self::HpcBatch,
        Self::MlTraining,
        Self::Service,
        Self::Sensitive,
        Self::Interactive,
    ];

    /// Name in configuration and command lines.
    pub fn name(self) -> &'static str {
        WorkloadKind::from(self).name()
    }

    /// Weights of the profile, w1 to w9.
    pub fn weights(self) -> Weights {
        Weights::row(match self {
            Self::HpcBatch => [0.15, 0.20, 0.20, 0.15, 0.10, 0.05, 0.00, 0.05, 0.10],
            Self::MlTraining => [0.10, 0.10, 0.10, 0.25, 0.15, 0.05, 0.05, 0.10, 0.10],
            Self::Service => [0.15, 0.05, 0.10, 0.05, 0.10, 0.05, 0.10, 0.10, 0.30],
            Self::Sensitive => [0.90, 0.00, 0.00, 0.00, 0.00, 0.00, 0.00, 0.00, 0.10],
            Self::Interactive => [0.10, 0.30, 0.10, 0.00, 0.05, 0.15, 0.00, 0.00, 0.30],
        })
    }
}

impl From<Profile> for WorkloadKind {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::HpcBatch => Self::HpcBatch,
            Profile::MlTraining => Self::MlTraining,
            Profile::Service => Self::Service,
            Profile::Sensitive => Self::Sensitive,
            Profile::Interactive => Self::Interactive,
        }
    }
}

impl From<WorkloadKind> for Weights {
    fn from(kind: WorkloadKind) -> Self {
        let mut profiles = Profile::ALL.into_iter();
        let profile = profiles.find(|profile| WorkloadKind::from(*profile) == kind);
        // The kind `balanced` has no profile.
        profile.map_or_else(Weights::default, Profile::weights)
    }
}

impl Default for Weights {
    /// Weights of the balanced kind of workload, which is not one of the profiles.
    fn default() -> Self {
        Self::row([0.20, 0.20, 0.20, 0.15, 0.10, 0.05, 0.00, 0.00, 0.10])
    }
}

impl Weights {
    /// Names of the weights, w1 to w9.
    pub const NAMES: [&'static str; 9] = WEIGHTS;

    /// Checks the weights.
    ///
    /// # Errors
    /// The first weight that is negative or not finite.
    pub fn new(raw: RawWeights) -> Result<Self, InvalidWeight> {
        let weights = Self(raw);
        let invalid = |value: &f64| !value.is_finite() || *value < 0.0;
        let mut named = Self::NAMES.into_iter().zip(weights.to_array());
        match named.find(|(_, value)| invalid(value)) {
            Some((name, value)) => Err(InvalidWeight { name, value }),
            None => Ok(weights),
        }
    }

    fn row(row: [f64; 9]) -> Self {
        Self(row.into())
    }

    /// Weights by name.
    pub fn get(&self) -> &RawWeights {
        &self.0
    }

    /// w1 to w9.
    pub fn to_array(&self) -> [f64; 9] {
        let w = &self.0;
        [
            w.priority,
            w.wait_time,
            w.fair_share,
            w.topology,
            w.data_ready,
            w.backlog,
            w.energy,
            w.checkpoint,
            w.conformance,
        ]
    }
}

impl From<[f64; 9]> for RawWeights {
    /// Converts one row of a table, w1 to w9.
    fn from(row: [f64; 9]) -> Self {
        let [
            priority,
            wait_time,
            fair_share,
            topology,
            data_ready,
            backlog,
            energy,
            checkpoint,
            conformance,
        ] = row;
        Self {
            priority,
            wait_time,
            fair_share,
            topology,
            data_ready,
            backlog,
            energy,
            checkpoint,
            conformance,
        }
    }
}

impl TryFrom<RawWeights> for Weights {
    type Error = InvalidWeight;
    fn try_from(raw: RawWeights) -> Result<Self, InvalidWeight> {
        Self::new(raw)
    }
}

impl From<Weights> for RawWeights {
    fn from(weights: Weights) -> RawWeights {
        weights.0
    }
}
