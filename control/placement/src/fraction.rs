//! Fraction of a whole, stored as an integer: comparisons are exact, and it is never NaN.

use serde::{Deserialize, Serialize};

/// Fraction from 0 to 1 in steps of a millionth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Fraction(u32);

/// Error of a number outside 0 to 1.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{value} is not a valid fraction; it must be from 0 to 1")]
pub struct InvalidFraction {
    /// Rejected value.
    pub value: f64,
}

const MILLIONTHS: u32 = 1_000_000;

impl Fraction {
    /// The fraction 1.
    pub const ONE: Self = Self(MILLIONTHS);

    /// Rounds to the nearest millionth.
    ///
    /// # Errors
    /// [`InvalidFraction`] if the value is below 0, above 1 or NaN.
    pub fn new(value: f64) -> Result<Self, InvalidFraction> {
        if !(0.0..=1.0).contains(&value) {
            return Err(InvalidFraction { value });
        }
        // At most a million.
        Ok(Self((value * f64::from(MILLIONTHS)).round() as u32))
    }

    /// Fraction of `count` millionths, capped at a million.
    pub fn millionths(count: u32) -> Self {
        Self(count.min(MILLIONTHS))
    }

    /// Value from 0 to 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / f64::from(MILLIONTHS)
    }
}

impl TryFrom<f64> for Fraction {
    type Error = InvalidFraction;
    fn try_from(value: f64) -> Result<Self, InvalidFraction> {
        Self::new(value)
    }
}

impl From<Fraction> for f64 {
    fn from(fraction: Fraction) -> f64 {
        fraction.get()
    }
}
