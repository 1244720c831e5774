//! Weight sweep: generation of the weights to try, and the Pareto front of the results.

use crate::{
    compare::{GoodDirection, Measure},
    description,
    policy::{PolicyError, PolicyText, ReservationsText, read_policy},
};
use lattice_placement::{Policy, Weights};
use lattice_rng::Rng;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// Largest number of combinations in a sweep. More would take too long.
pub const MAX_VECTORS: usize = 100_000;

/// Search space, as written in YAML:
///
/// ```yaml
/// base: {profile: hpc-batch}             # settings that are not varied
/// over:
///   wait_time: [0.1, 0.2, 0.4]
///   topology: {from: 0, to: 0.5, steps: 6}
/// reservations: [1, 8, all]              # optional
/// reference_wait_s: [600, 3600]          # optional
/// sample: 200                            # number of combinations, drawn by --seed; default: all
/// ```
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepSpace {
    /// Settings that are not varied.
    pub base: PolicyText,
    /// Values to try, by name of the weight.
    pub over: BTreeMap<String, Values>,
    /// Numbers of reservations to try; empty: that of `base`.
    pub reservations: Vec<ReservationsText>,
    /// Reference waits to try, seconds: the wait time factor is ln 2 after this wait. Empty: that of `base`.
    pub reference_wait_s: Vec<f64>,
    /// Number of combinations to draw; `None`: all.
    pub sample: Option<usize>,
}

/// A list of numbers, or an even range.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "each weight needs a list of numbers, or {from: 0, to: 1, steps: 5}"
)]
pub enum Values {
    /// A list of values.
    List(Vec<f64>),
    /// Evenly spaced values, including both ends.
    Range(Range),
}

/// Evenly spaced numbers.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// First number.
    pub from: f64,
    /// Last number.
    pub to: f64,
    /// Number of values, at least 2.
    pub steps: usize,
}

/// Error of a search space.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpaceError {
    /// Mistakes in the text, all of them.
    #[error("{0}")]
    Form(String),
    /// No weight to vary.
    #[error("over: give at least one weight with its values; weights: {}", Weights::NAMES.join(", "))]
    Empty,
    /// Weight without values, or range with too few steps.
    #[error("over.{name}: {reason}")]
    Values {
        /// Name of the weight.
        name: String,
        /// Reason.
        reason: &'static str,
    },
    /// A combination is not a valid policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A sample of 0 combinations.
    #[error("sample: it must be at least 1")]
    NoSample,
    /// Too many combinations.
    #[error("there are more than {MAX_VECTORS} combinations; give fewer values, or set `sample`")]
    TooMany,
}

/// One combination of varied settings.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightVector {
    /// Text of the combination, with all nine weights.
    pub text: PolicyText,
    /// Policy for the solver.
    pub policy: Policy,
}

impl SweepSpace {
    /// Parses a search space.
    ///
    /// # Errors
    /// When the text has mistakes, with all of them.
    pub fn read(text: &str) -> Result<Self, SpaceError> {
        description::read(text).map_err(|mistakes| SpaceError::Form(mistakes.join("; ")))
    }

    /// Names of the varied weights.
    pub fn varied(&self) -> impl Iterator<Item = &str> {
        self.over.keys().map(String::as_str)
    }

    /// Returns all combinations to try, without duplicates. `seed` determines the sample, if the space requests one.
    ///
    /// # Errors
    /// When there is no combination, there are too many, or a combination is not valid.
    pub fn vectors(&self, seed: u64) -> Result<Vec<WeightVector>, SpaceError> {
        let axes = self.axes()?;
        if self.sample == Some(0) {
            return Err(SpaceError::NoSample);
        }
        let total = axes
            .iter()
            .try_fold(1_usize, |total, axis| total.checked_mul(axis.len()));
        let sample = self.sample.unwrap_or(usize::MAX);
        let total = total.filter(|total| *total <= MAX_VECTORS || sample <= MAX_VECTORS);
        let total = total.ok_or(SpaceError::TooMany)?;
        let places: BTreeSet<usize> = match sample < total {
            false => (0..total).collect(),
            true => {
                let mut rng = Rng::new(seed, "sweep");
                let mut drawn = BTreeSet::new();
                while drawn.len() < sample {
                    drawn.insert(rng.range(0, total as u64) as usize);
                }
                drawn
            }
        };
        let mut vectors: Vec<WeightVector> = Vec::with_capacity(places.len());
        for place in places {
            let vector = self.vector(&axes, place)?;
            if !vectors.iter().any(|known| known.policy == vector.policy) {
                vectors.push(vector);
            }
        }
        Ok(vectors)
    }

    /// Returns the base of the space, with which the combinations are compared.
    ///
    /// # Errors
    /// When the base is not a valid policy.
    pub fn base(&self) -> Result<WeightVector, SpaceError> {
        self.vector(&[], 0)
    }

    fn axes(&self) -> Result<Vec<Axis<'_>>, SpaceError> {
        if self.over.is_empty() {
            return Err(SpaceError::Empty);
        }
        let mut axes = Vec::new();
        for (name, values) in &self.over {
            let wrong = |reason| SpaceError::Values {
                name: name.clone(),
                reason,
            };
            let values = match values {
                Values::List(list) if list.is_empty() => return Err(wrong("it has no values")),
                Values::List(list) => list.clone(),
                Values::Range(Range { steps: 0 | 1, .. }) => {
                    return Err(wrong("steps must be at least 2"));
                }
                Values::Range(Range { from, to, steps }) => {
                    let step = (to - from) / (*steps - 1) as f64;
                    // Rounded, so that reports show 0.3 instead of 0.30000000000000004.
                    let round = |value: f64| (value * 1e9).round() / 1e9;
                    (0..*steps).map(|n| round(from + n as f64 * step)).collect()
                }
            };
            axes.push(Axis::Weight(name, values));
        }
        if !self.reservations.is_empty() {
            axes.push(Axis::Reservations(&self.reservations));
        }
        if !self.reference_wait_s.is_empty() {
            axes.push(Axis::ReferenceWait(&self.reference_wait_s));
        }
        Ok(axes)
    }

    fn vector(&self, axes: &[Axis<'_>], mut place: usize) -> Result<WeightVector, SpaceError> {
        let mut text = self.base.clone();
        for axis in axes {
            let at = place % axis.len();
            place /= axis.len();
            match axis {
                Axis::Weight(name, values) => {
                    text.weights.insert((*name).to_owned(), values[at]);
                }
                Axis::Reservations(all) => text.reservations = Some(all[at].clone()),
                Axis::ReferenceWait(all) => text.reference_wait_s = Some(all[at]),
            }
        }
        let policy = read_policy(&text)?;
        // The text has all nine weights, so that its effect does not depend on the settings to which it is applied.
        let weights = Weights::NAMES.into_iter().zip(policy.weights.to_array());
        text.weights = weights
            .map(|(name, weight)| (name.to_owned(), weight))
            .collect();
        text.profile = None;
        Ok(WeightVector { text, policy })
    }
}

/// A varied setting and its values.
enum Axis<'a> {
    Weight(&'a str, Vec<f64>),
    Reservations(&'a [ReservationsText]),
    ReferenceWait(&'a [f64]),
}

impl Axis<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Weight(_, values) => values.len(),
            Self::Reservations(all) => all.len(),
            Self::ReferenceWait(all) => all.len(),
        }
    }
}

/// Returns the Pareto front: the indices of vectors that no other vector dominates. A vector dominates another one if
/// it is at least as good in every objective and better in one. `values` are by vector and objective. Of equal vectors,
/// the first is kept.
pub fn pareto(values: &[Vec<f64>], objectives: &[&Measure]) -> Vec<usize> {
    let costs: Vec<Vec<f64>> = values
        .iter()
        .map(|values| costs(values, objectives))
        .collect();
    let beats = |a: &[f64], b: &[f64]| {
        let mut pairs = a.iter().zip(b);
        pairs.clone().all(|(a, b)| a <= b) && pairs.any(|(a, b)| a < b)
    };
    (0..costs.len())
        .filter(|place| {
            let own = &costs[*place];
            let is_beaten = costs.iter().any(|other| beats(other, own));
            let is_known = costs[..*place].contains(own);
            !is_beaten && !is_known
        })
        .collect()
}

/// Converts values to costs: lower is better.
fn costs(values: &[f64], objectives: &[&Measure]) -> Vec<f64> {
    let cost = |(value, measure): (&f64, &&Measure)| match measure.better {
        GoodDirection::Lower => *value,
        GoodDirection::Higher => -value,
        // The command line rejects such a measure as objective.
        GoodDirection::Neither => 0.0,
    };
    values.iter().zip(objectives).map(cost).collect()
}

/// Returns the vector of the `front` that is nearest to the ideal point, which has the best value of the front in each
/// objective. Each objective is scaled from the best to the worst value of the front. Of equally near vectors, the one
/// that is better in the first objective is returned. `None` if the front is empty.
pub fn nearest_to_ideal(
    values: &[Vec<f64>],
    front: &[usize],
    objectives: &[&Measure],
) -> Option<usize> {
    let of = |place: &usize| costs(&values[*place], objectives);
    let all: Vec<Vec<f64>> = front.iter().map(of).collect();
    let range = |objective: usize| {
        let each = all.iter().map(|costs| costs[objective]);
        (
            each.clone().fold(f64::INFINITY, f64::min),
            each.fold(f64::NEG_INFINITY, f64::max),
        )
    };
    let ranges: Vec<(f64, f64)> = (0..objectives.len()).map(range).collect();
    let distance = |costs: &Vec<f64>| {
        let parts = costs
            .iter()
            .zip(&ranges)
            .map(|(cost, (least, most))| match most > least {
                true => (cost - least) / (most - least),
                false => 0.0,
            });
        parts.map(|part| part * part).sum::<f64>()
    };
    let nearest = all.iter().enumerate().min_by(|(_, a), (_, b)| {
        let by_distance = distance(a).total_cmp(&distance(b));
        by_distance.then_with(|| a[0].total_cmp(&b[0]))
    });
    nearest.map(|(place, _)| front[place])
}

/// A point of the Pareto front, for reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParetoPoint {
    /// Weights and other varied settings of the point.
    pub policy: PolicyText,
    /// Value by objective.
    pub values: BTreeMap<&'static str, f64>,
    /// Values of a replay with the quorum; `None` if they do not differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_quorum: Option<BTreeMap<&'static str, f64>>,
    /// Whether the point is the chosen one ([`nearest_to_ideal`]).
    pub is_best: bool,
    /// Whether the point is the base of the space.
    pub is_base: bool,
    /// Whether a replay with the quorum gave the same starts.
    pub confirmed: bool,
}
