//! Job arrays: many elements that differ only in their index, in one record.
//!
//! The text form is that of batch schedulers: `0-99%10`, `1,3,5-7`, `0-15:4`.

mod fold;
mod numbers;
mod positions;
mod set;
mod text;

pub use numbers::ElementIds;
pub use set::{IndexSet, InvalidIndexSet};
pub use text::ArrayError;

use serde::{Deserialize, Serialize};

/// Highest index. Slurm's `MaxArraySize` is at most 4,000,001, and an index must be lower than `MaxArraySize`.
pub const MAX_INDEX: u32 = 4_000_000;
/// Largest number of elements of one array. The state can still hold a machine word for every element.
pub const MAX_ELEMENTS: usize = 100_000;

/// Indices of a job array, and the number of elements that may run at a time. A value has 1 to [`MAX_ELEMENTS`]
/// indices, each at most [`MAX_INDEX`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedSpec")]
pub struct ArraySpec {
    indices: IndexSet,
    max_running: Option<u32>,
}

/// Input that is not validated yet.
#[derive(Deserialize)]
struct UncheckedSpec {
    indices: IndexSet,
    max_running: Option<u32>,
}

impl ArraySpec {
    /// Creates an array with these indices and at most `max_running` running elements; `None`: no bound.
    ///
    /// # Errors
    /// [`ArrayError`] for no index, too many indices, an index that is too high, and `max_running` of 0.
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

    /// Returns the array with another bound on running elements.
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

    /// Indices of the array; never empty.
    pub fn indices(&self) -> &IndexSet {
        &self.indices
    }

    /// Number of elements that may run at a time; `None`: no bound.
    pub fn max_running(&self) -> Option<u32> {
        self.max_running
    }
}

impl TryFrom<UncheckedSpec> for ArraySpec {
    type Error = ArrayError;
    fn try_from(unchecked: UncheckedSpec) -> Result<Self, ArrayError> {
        Self::new(unchecked.indices, unchecked.max_running)
    }
}

#[cfg(test)]
mod tests;
