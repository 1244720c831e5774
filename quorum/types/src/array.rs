//! Arrays: many pieces of work that differ in their index alone, as one record.
//!
//! Written as batch schedulers write them: `0-99%10`, `1,3,5-7`, `0-15:4`.

mod fold;
mod numbers;
mod places;
mod set;
mod text;

pub use numbers::ElementNumbers;
pub use set::{IndexSet, InvalidIndexSet};
pub use text::ArrayError;

use serde::{Deserialize, Serialize};

/// Highest index: Slurm's `MaxArraySize` is 4,000,001 at most, and an index is below it.
pub const MAX_INDEX: u32 = 4_000_000;
/// Most elements of one array: ten times the 10,000 that people use, and still an amount whose every element
/// can have a word of its own in the state.
pub const MAX_ELEMENTS: usize = 100_000;

/// Which indices an array has, and how many of them run at a time. One that exists has at least one index, and
/// is within the limits above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct ArraySpec {
    indices: IndexSet,
    max_running: Option<u32>,
}

/// What was sent or stored.
#[derive(Deserialize)]
struct Unchecked {
    indices: IndexSet,
    max_running: Option<u32>,
}

impl ArraySpec {
    /// These, at most `max_running` of them at a time; `None`: as many as there is room for.
    ///
    /// # Errors
    /// [`ArrayError`] for no index, too many, one too high, and for none at a time.
    pub fn new(indices: IndexSet, max_running: Option<u32>) -> Result<Self, ArrayError> {
        let highest = indices.last().ok_or(ArrayError::Empty)?;
        if highest > MAX_INDEX {
            return Err(ArrayError::TooHigh {
                index: highest.to_string(),
            });
        }
        if indices.len() > MAX_ELEMENTS {
            return Err(ArrayError::TooMany);
        }
        let array = Self {
            indices,
            max_running: None,
        };
        array.with_max_running(max_running)
    }

    /// The same with another number of elements at a time.
    ///
    /// # Errors
    /// [`ArrayError::NoneAtATime`].
    pub fn with_max_running(self, max_running: Option<u32>) -> Result<Self, ArrayError> {
        match max_running {
            Some(0) => Err(ArrayError::NoneAtATime),
            max_running => Ok(Self {
                max_running,
                ..self
            }),
        }
    }

    /// Its indices; never empty.
    pub fn indices(&self) -> &IndexSet {
        &self.indices
    }

    /// How many of its elements run at a time; `None`: as many as there is room for.
    pub fn max_running(&self) -> Option<u32> {
        self.max_running
    }
}

impl TryFrom<Unchecked> for ArraySpec {
    type Error = ArrayError;
    fn try_from(unchecked: Unchecked) -> Result<Self, ArrayError> {
        Self::new(unchecked.indices, unchecked.max_running)
    }
}

#[cfg(test)]
mod tests;
