//! What a site may tune: the order of the queue and the weights of the score.

use serde::{Deserialize, Serialize};

/// How a planner decides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Order of the queue.
    pub rank: Rank,
    /// Weights of the score.
    pub weights: Weights,
    /// Wait after which the age factor is ln 2, milliseconds.
    pub reference_wait_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rank: Rank::default(),
            weights: Weights::default(),
            reference_wait_ms: 3_600_000,
        }
    }
}

/// Order of the queue. Ties go to the older, then to the lower id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// Higher class first, then the one eligible longer. A class never waits for a lower one.
    #[default]
    ClassThenAge,
    /// By the weighted sum of the factors known so far: class and age.
    Score,
}

/// Weights of the nine factors. They are relative: they need not add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawWeights", into = "RawWeights")]
pub struct Weights(RawWeights);

/// The weights by name, not yet checked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RawWeights {
    /// 1: priority class.
    pub class: f64,
    /// 2: age in the queue.
    pub age: f64,
    /// 3: distance from the fair share.
    pub fair_share: f64,
    /// 4: few topology groups.
    pub topology: f64,
    /// 5: data on the hot tier.
    pub data: f64,
    /// 6: backlog.
    pub backlog: f64,
    /// 7: energy price.
    pub energy: f64,
    /// 8: cheap to checkpoint.
    pub checkpoint: f64,
    /// 9: one conformance group.
    pub conformance: f64,
}

/// A weight that is negative or not a number.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("weight {name} is {value}; it must be a number of at least 0")]
pub struct InvalidWeight {
    /// Which.
    pub name: &'static str,
    /// As given.
    pub value: f64,
}

impl Default for Weights {
    /// The baseline profile.
    fn default() -> Self {
        Self(RawWeights {
            class: 0.20,
            age: 0.20,
            fair_share: 0.20,
            topology: 0.15,
            data: 0.10,
            backlog: 0.05,
            energy: 0.0,
            checkpoint: 0.0,
            conformance: 0.10,
        })
    }
}

impl Weights {
    /// Checks the weights.
    ///
    /// # Errors
    /// The first weight that is negative or not finite.
    pub fn new(raw: RawWeights) -> Result<Self, InvalidWeight> {
        let named = [
            ("class", raw.class),
            ("age", raw.age),
            ("fair_share", raw.fair_share),
            ("topology", raw.topology),
            ("data", raw.data),
            ("backlog", raw.backlog),
            ("energy", raw.energy),
            ("checkpoint", raw.checkpoint),
            ("conformance", raw.conformance),
        ];
        match named
            .into_iter()
            .find(|(_, value)| !value.is_finite() || *value < 0.0)
        {
            Some((name, value)) => Err(InvalidWeight { name, value }),
            None => Ok(Self(raw)),
        }
    }

    /// The weights by name.
    pub fn get(&self) -> &RawWeights {
        &self.0
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
