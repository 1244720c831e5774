//! Text form of job arrays.

use super::{ArraySpec, IndexSet, MAX_ELEMENTS, MAX_INDEX, fold::Run};
use std::{fmt, str::FromStr};

/// Reasons why a text is not a valid job array. Indices are reported as written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// There is no index.
    #[error("the array has no index; write it like 0-99, 1,3,5-7 or 0-15:4")]
    Empty,
    /// The text contains white space.
    #[error("spaces are not allowed; write it like 1,3,5-7%10")]
    Space,
    /// A part is neither an index nor a range.
    #[error(
        "{item:?} is neither an index nor a range of them; write it like 0-99, 1,3,5-7 or 0-15:4"
    )]
    Item {
        /// Text between two commas.
        item: String,
    },
    /// A range runs from high to low.
    #[error("{item} is descending; write the lower index first")]
    Reversed {
        /// The range.
        item: String,
    },
    /// A step is 0.
    #[error("{item} has a step of 0; the step is at least 1")]
    NoStep {
        /// The range.
        item: String,
    },
    /// A step follows a single index.
    #[error("{item} has a step and one index only; a step belongs to a range, like 0-15:4")]
    StepOfOne {
        /// The part.
        item: String,
    },
    /// An index is above [`MAX_INDEX`].
    #[error("index {index} is too high; the highest is {MAX_INDEX}")]
    TooHigh {
        /// The index.
        index: String,
    },
    /// There are more than [`MAX_ELEMENTS`] elements.
    #[error("it has more than {MAX_ELEMENTS} elements; submit it as several arrays")]
    TooMany,
    /// An index occurs twice. Accepting it would suggest two runs of the element, but the element would run once.
    #[error("index {index} occurs twice; give it once")]
    Repeated {
        /// The lowest repeated index.
        index: u32,
    },
    /// `%` is not followed by a number.
    #[error("after % write the number of elements that run at a time, like 0-99%10, not {found:?}")]
    AtATime {
        /// Text after `%`.
        found: String,
    },
    /// The bound is `%0`.
    #[error("%0: no element would ever run; let at least 1 run at a time, or omit %")]
    NoneAtATime,
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn index(text: &str) -> Result<u32, ArrayError> {
    let read = text.parse().ok().filter(|index| *index <= MAX_INDEX);
    read.ok_or_else(|| ArrayError::TooHigh {
        index: text.to_owned(),
    })
}

/// Parses one index, or a range with an optional step.
fn item(text: &str) -> Result<Run, ArrayError> {
    let named = || text.to_owned();
    let (range, step) = match text.split_once(':') {
        Some((range, step)) => (range, Some(step)),
        None => (text, None),
    };
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    if ![low, high].into_iter().chain(step).all(is_number) {
        return Err(ArrayError::Item { item: named() });
    }
    if step.is_some() && !range.contains('-') {
        return Err(ArrayError::StepOfOne { item: named() });
    }
    let (first, last) = (index(low)?, index(high)?);
    if last < first {
        return Err(ArrayError::Reversed { item: named() });
    }
    // A step beyond every index leaves only the first index of the range.
    let step = step.map_or(1, |step| step.parse().unwrap_or(u32::MAX));
    if step == 0 {
        return Err(ArrayError::NoStep { item: named() });
    }
    Ok(Run::new(first, last, step))
}

/// Parses `0-99:2,120`. No part is expanded before the total is known to be at most [`MAX_ELEMENTS`].
fn indices(text: &str) -> Result<IndexSet, ArrayError> {
    if text.is_empty() {
        return Err(ArrayError::Empty);
    }
    let mut count = 0_usize;
    let mut all = Vec::new();
    for part in text.split(',') {
        let run = item(part)?;
        count += run.len();
        if count > MAX_ELEMENTS {
            return Err(ArrayError::TooMany);
        }
        all.extend((run.first..=run.last).step_by(run.step as usize));
    }
    all.sort_unstable();
    let twice = all.windows(2).find_map(|pair| match pair {
        [a, b] if a == b => Some(*a),
        _ => None,
    });
    match twice {
        Some(index) => Err(ArrayError::Repeated { index }),
        None => Ok(all.into_iter().collect()),
    }
}

impl FromStr for ArraySpec {
    type Err = ArrayError;

    fn from_str(text: &str) -> Result<Self, ArrayError> {
        if text.contains(char::is_whitespace) {
            return Err(ArrayError::Space);
        }
        let (list, at_a_time) = match text.split_once('%') {
            Some((list, at_a_time)) => (list, Some(at_a_time)),
            None => (text, None),
        };
        let read = |found: &str| match is_number(found) {
            // A bound above the largest number of elements has no effect.
            true => Ok(found.parse().unwrap_or(u32::MAX)),
            false => Err(ArrayError::AtATime {
                found: found.to_owned(),
            }),
        };
        let at_a_time = at_a_time.map(read).transpose()?;
        Self::new(indices(list)?, at_a_time)
    }
}

impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, run) in self.runs().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            let Run { first, last, step } = run;
            match run.len() {
                1 => write!(f, "{first}")?,
                2 => write!(f, "{first},{last}")?,
                _ if step == 1 => write!(f, "{first}-{last}")?,
                _ => write!(f, "{first}-{last}:{step}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.indices())?;
        match self.max_running() {
            Some(max_running) => write!(f, "%{max_running}"),
            None => Ok(()),
        }
    }
}
