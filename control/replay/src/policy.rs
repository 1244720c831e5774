//! Scheduler policy in files and on command lines: a profile by name, single weights, reservations.

use crate::description;
use lattice_placement::{InvalidWeight, PlannedReservations, Policy, RawWeights, Weights};
use lattice_quorum_types::scheduler::WorkloadKind;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// Profile with all weights 0: jobs are served in order of arrival.
const NO_PROFILE: &str = "none";
const ALL: &str = "all";

/// Policy in a file. An absent field has its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyText {
    /// Weights of a kind of work: `hpc-batch`, `ml-training`, `service`, `sensitive`, `interactive`, `balanced` (the
    /// default), or `none` (all 0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Single weights that replace those of the profile.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f64>,
    /// Number of blocked jobs that get a reservation, or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationsText>,
    /// Wait after which the wait time factor is ln 2, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference_wait_s: Option<f64>,
    /// Bandwidth of all nodes together to checkpoint storage, GB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_gb_s: Option<f64>,
}

/// Number of reservations, or `all`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReservationsText {
    /// The first blocked jobs, up to this number.
    First(u32),
    /// A word; only `all` is valid.
    Word(String),
}

impl std::fmt::Display for ReservationsText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::First(count) => write!(f, "{count}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Reason why a policy is not valid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// Unknown profile.
    #[error("unknown profile {name:?}; it must be one of {}", profiles())]
    Profile {
        /// Name as given.
        name: String,
    },
    /// Unknown weight.
    #[error("unknown weight {name:?}; it must be one of {}", Weights::NAMES.join(", "))]
    Weight {
        /// Name as given.
        name: String,
    },
    /// Weight out of range.
    #[error(transparent)]
    Value(#[from] InvalidWeight),
    /// Neither a number nor `all`.
    #[error("reservations is {text:?}; it must be a number or {ALL:?}")]
    Reservations {
        /// Text as given.
        text: String,
    },
    /// Number that is infinite, NaN, or not above 0.
    #[error("{name} is {value}; it must be a number above 0")]
    Number {
        /// Name of the field.
        name: &'static str,
        /// Value as given.
        value: f64,
    },
    /// Policy file unreadable or malformed.
    #[error("{file}: {reason}")]
    File {
        /// Path of the file.
        file: String,
        /// Reason of the failure.
        reason: String,
    },
}

/// Names of all profiles, separated by commas.
pub fn profiles() -> String {
    let named = WorkloadKind::ALL.into_iter().map(WorkloadKind::name);
    named.chain([NO_PROFILE]).collect::<Vec<_>>().join(", ")
}

/// Returns the weights of a profile.
///
/// # Errors
/// When there is no profile of that name.
pub fn profile(name: &str) -> Result<Weights, PolicyError> {
    if name == NO_PROFILE {
        return Ok(Weights::new(RawWeights::from([0.0; Weights::NAMES.len()]))?);
    }
    let kind = WorkloadKind::named(name);
    kind.map(Weights::from).ok_or_else(|| PolicyError::Profile {
        name: name.to_owned(),
    })
}

impl PolicyText {
    /// Whether every field has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Converts the text of a policy.
///
/// # Errors
/// When a name is unknown or a value is out of range.
pub fn read_policy(text: &PolicyText) -> Result<Policy, PolicyError> {
    let mut policy = Policy::default();
    if let Some(name) = &text.profile {
        policy.weights = profile(name)?;
    }
    let mut row = policy.weights.to_array();
    for (name, weight) in &text.weights {
        let place = Weights::NAMES.iter().position(|known| known == name);
        let place = place.ok_or_else(|| PolicyError::Weight { name: name.clone() })?;
        row[place] = *weight;
    }
    policy.weights = Weights::new(row.into())?;
    policy.reservations = match &text.reservations {
        None => policy.reservations,
        Some(ReservationsText::First(count)) => PlannedReservations::First(*count),
        Some(ReservationsText::Word(word)) if word == ALL => PlannedReservations::All,
        Some(ReservationsText::Word(text)) => {
            return Err(PolicyError::Reservations { text: text.clone() });
        }
    };
    let positive = |name, value: f64| match value.is_finite() && value > 0.0 {
        true => Ok(value),
        false => Err(PolicyError::Number { name, value }),
    };
    if let Some(seconds) = text.reference_wait_s {
        let ms = positive("reference_wait_s", seconds)? * 1000.0;
        policy.reference_wait_ms = (ms.round() as u64).max(1);
    }
    if let Some(gb_s) = text.checkpoint_gb_s {
        policy.checkpoint_bytes_s = Some((positive("checkpoint_gb_s", gb_s)? * 1e9) as u64);
    }
    Ok(policy)
}

/// Returns the policy with the weights of a profile, or the policy of a file (YAML or JSON) in the form of
/// [`PolicyText`].
///
/// # Errors
/// When there is neither such a profile nor such a file, or the file is not valid.
pub fn named(name_or_file: &str) -> Result<Policy, PolicyError> {
    match profile(name_or_file) {
        Ok(weights) => Ok(Policy {
            weights,
            ..Policy::default()
        }),
        Err(unknown) => {
            let path = Path::new(name_or_file);
            if !path.exists() {
                return Err(unknown);
            }
            let file = |reason: String| PolicyError::File {
                file: name_or_file.to_owned(),
                reason,
            };
            let text = std::fs::read_to_string(path).map_err(|error| file(error.to_string()))?;
            let text = description::read(&text).map_err(|mistakes| file(mistakes.join("; ")))?;
            read_policy(&text)
        }
    }
}
