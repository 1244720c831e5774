//! How a scheduler decides, as files and command lines say it: a profile by name, single weights, reservations.

use lattice_placement::{InvalidWeight, Policy, RawWeights, Reservations, Weights};
use lattice_quorum_types::scheduler::WorkloadKind;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// No factor counts: first come, first served.
const NONE: &str = "none";
const ALL: &str = "all";

/// A policy as it is written. What it does not say is as by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyText {
    /// The weights of a kind of work: `hpc-batch`, `ml-training`, `service`, `sensitive`, `interactive`, `balanced`
    /// (the default), or `none` (all 0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Single weights on top of it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f64>,
    /// How many blocked jobs get a reservation: a number, or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationsText>,
    /// Wait after which the wait time factor is ln 2, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference_wait_s: Option<f64>,
    /// What all nodes together write to checkpoint storage, GB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_gb_s: Option<f64>,
}

/// A number, or `all`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReservationsText {
    /// The first so many.
    First(u32),
    /// A word.
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

/// Why a policy is none.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// No such profile.
    #[error("profile {name:?} has no weights; one of {}", profiles())]
    Profile {
        /// As given.
        name: String,
    },
    /// No such weight.
    #[error("there is no weight {name:?}; one of {}", Weights::NAMES.join(", "))]
    Weight {
        /// As given.
        name: String,
    },
    /// A weight that cannot be.
    #[error(transparent)]
    Value(#[from] InvalidWeight),
    /// Neither a number nor `all`.
    #[error("reservations is {text:?}; it must be a number or {ALL:?}")]
    Reservations {
        /// As given.
        text: String,
    },
    /// A number that cannot be.
    #[error("{name} is {value}; it must be a number above 0")]
    Number {
        /// Which.
        name: &'static str,
        /// As given.
        value: f64,
    },
    /// The file is not read.
    #[error("{file}: {reason}")]
    File {
        /// Which.
        file: String,
        /// Why.
        reason: String,
    },
}

/// Names of all profiles.
pub fn profiles() -> String {
    let named = WorkloadKind::ALL.into_iter().map(WorkloadKind::name);
    named.chain([NONE]).collect::<Vec<_>>().join(", ")
}

/// The weights of a profile by name.
///
/// # Errors
/// When there is none.
pub fn profile(name: &str) -> Result<Weights, PolicyError> {
    if name == NONE {
        return Ok(Weights::new(RawWeights::from([0.0; Weights::NAMES.len()]))?);
    }
    let kind = WorkloadKind::named(name);
    kind.map(Weights::from).ok_or_else(|| PolicyError::Profile {
        name: name.to_owned(),
    })
}

impl PolicyText {
    /// Whether everything is as by default.
    pub fn says_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The policy that is written.
///
/// # Errors
/// What cannot be.
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
        Some(ReservationsText::First(count)) => Reservations::First(*count),
        Some(ReservationsText::Word(word)) if word == ALL => Reservations::All,
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

/// The policy of a profile's name, or of a file (YAML or JSON) in the form of [`PolicyText`].
///
/// # Errors
/// When it is neither, or says what cannot be.
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
            let text = serde_yaml_ng::from_str(&text).map_err(|error| file(error.to_string()))?;
            read_policy(&text)
        }
    }
}
