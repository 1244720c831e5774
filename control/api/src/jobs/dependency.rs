//! Dependencies in the syntax of batch schedulers: `afterok:12:13,afternotok:14_7,singleton`.
//!
//! All parts must be satisfied. Dependency types of Slurm that are not supported are rejected with a reason.

use lattice_quorum_types::{
    array::MAX_INDEX,
    terms::{Condition, MAX_DEPENDENCIES},
};
use std::{fmt, str::FromStr};

/// Reference to an allocation, or to one element of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobRef {
    /// Allocation number that `lattice submit` printed; never 0.
    pub id: u64,
    /// Element index; `None`: the allocation itself, or the entire array.
    pub index: Option<u32>,
}

/// Dependency on one allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllocationDependency {
    /// Required end of the allocation.
    pub condition: Condition,
    /// Allocation that must end first.
    pub on: JobRef,
}

/// All dependencies of an allocation. Parsed dependencies are never empty and have no duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Dependencies in the order written.
    pub after: Vec<AllocationDependency>,
    /// Whether only one allocation of the same user and name is eligible at a time, in the order of submission.
    pub singleton: bool,
}

/// Reason that a text is not a valid list of dependencies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DependencyError {
    /// An empty part, or an empty text.
    #[error("a dependency is empty; write the list like afterok:12:13,afternotok:14")]
    Empty,
    /// A space anywhere.
    #[error("the list contains a space; write it without spaces, like afterok:12:13,afternotok:14")]
    Space,
    /// `?` between parts.
    #[error(
        "'?' (any one dependency is enough) is not supported; separate dependencies by commas, or \
         submit once for each"
    )]
    AnyOf,
    /// A dependency type that is not supported.
    #[error("{kind} is not supported: {reason}")]
    Unsupported {
        /// Type as written.
        kind: String,
        /// Why the type is not supported, and what to do instead.
        reason: &'static str,
    },
    /// An unknown dependency type.
    #[error(
        "{kind:?} is not a valid dependency type; valid are afterok, afternotok, afterany, \
         aftercorr and singleton"
    )]
    Unknown {
        /// Type as written.
        kind: String,
    },
    /// A type without a number.
    #[error("{kind} names no allocation; write it like {kind}:12 or {kind}:12:13")]
    NoNumber {
        /// Type as written.
        kind: String,
    },
    /// `singleton:12`.
    #[error(
        "singleton takes no allocation: it applies to all of the same user and name; write \
         singleton alone"
    )]
    SingletonOf,
    /// A text that is not an allocation number.
    #[error(
        "{text:?} is not a valid allocation; write its number, as 12, or one element of an array, \
         as 12_7"
    )]
    Number {
        /// Text as written.
        text: String,
    },
    /// `aftercorr:12_7`.
    #[error(
        "aftercorr:{on}: each element waits for the one of its own index; name the array, aftercorr:{}, or write \
         afterok:{on}",
        .on.id
    )]
    CorrespondingElement {
        /// Element as written.
        on: JobRef,
    },
    /// Two conditions on one allocation that exclude each other.
    #[error("{on} cannot both complete and fail; leave one condition out")]
    Contradiction {
        /// Allocation with both conditions.
        on: JobRef,
    },
    /// More than [`MAX_DEPENDENCIES`] allocations.
    #[error(
        "the list names more than {MAX_DEPENDENCIES} allocations; insert an allocation that depends on some \
         of them, and depend on that one"
    )]
    TooMany,
}

const DEPENDENCY_TYPES: [(&str, Condition); 4] = [
    ("afterok", Condition::Success),
    ("afternotok", Condition::Failure),
    ("afterany", Condition::Any),
    ("aftercorr", Condition::Corresponding),
];

/// Dependency types of Slurm that are not supported, each with the reason.
const UNSUPPORTED: [(&str, &str); 3] = [
    (
        "after",
        "an allocation can wait for an end only, not for a start; use afterany, or submit when the \
         other one runs",
    ),
    (
        "afterburstbuffer",
        "burst buffers are not supported; use afterok, and move the files in the job",
    ),
    (
        "expand",
        "an allocation cannot be expanded; submit it with as many nodes as it needs",
    ),
];

fn slurm_type(condition: Condition) -> &'static str {
    let found = DEPENDENCY_TYPES
        .iter()
        .find(|(_, known)| *known == condition);
    found.map_or("", |(kind, _)| kind)
}

impl FromStr for JobRef {
    type Err = DependencyError;

    fn from_str(text: &str) -> Result<Self, DependencyError> {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let (id, index) = match text.split_once('_') {
            Some((id, index)) => (id, Some(index)),
            None => (text, None),
        };
        let read = || {
            if ![id].into_iter().chain(index).all(is_number) {
                return None;
            }
            let index: Option<u32> = index.map(str::parse).transpose().ok()?;
            let id = id.parse().ok().filter(|id| *id > 0)?;
            let is_index = index.is_none_or(|index| index <= MAX_INDEX);
            is_index.then_some(Self { id, index })
        };
        read().ok_or_else(|| DependencyError::Number {
            text: text.to_owned(),
        })
    }
}

/// Returns the condition of a type, ignoring case.
fn condition(kind: &str) -> Result<Condition, DependencyError> {
    let is = |known: &str| known.eq_ignore_ascii_case(kind);
    if let Some((_, condition)) = DEPENDENCY_TYPES.iter().find(|(known, _)| is(known)) {
        return Ok(*condition);
    }
    let kind = kind.to_owned();
    Err(match UNSUPPORTED.iter().find(|(known, _)| is(known)) {
        Some((_, reason)) => DependencyError::Unsupported { kind, reason },
        None => DependencyError::Unknown { kind },
    })
}

impl Dependencies {
    fn add(&mut self, part: &str) -> Result<(), DependencyError> {
        let (kind, numbers) = match part.split_once(':') {
            Some((kind, numbers)) => (kind, Some(numbers)),
            None => (part, None),
        };
        if kind.is_empty() {
            return Err(DependencyError::Empty);
        }
        if kind.eq_ignore_ascii_case("singleton") {
            self.singleton = true;
            return match numbers {
                None => Ok(()),
                Some(_) => Err(DependencyError::SingletonOf),
            };
        }
        let condition = condition(kind)?;
        let numbers = numbers.filter(|numbers| !numbers.is_empty());
        let numbers = numbers.ok_or_else(|| DependencyError::NoNumber {
            kind: kind.to_owned(),
        })?;
        for number in numbers.split(':') {
            let on: JobRef = number.parse()?;
            if condition == Condition::Corresponding && on.index.is_some() {
                return Err(DependencyError::CorrespondingElement { on });
            }
            self.after.push(AllocationDependency { condition, on });
        }
        Ok(())
    }

    /// Removes duplicates, and checks for contradictions and for the maximum number.
    fn deduplicate_and_check(&mut self) -> Result<(), DependencyError> {
        let mut sorted = self.after.clone();
        sorted.sort_by_key(|after| (after.on, after.condition));
        sorted.dedup();
        for same in sorted.chunk_by(|a, b| a.on == b.on) {
            let is_against =
                |a: &&AllocationDependency| same.iter().any(|b| a.condition.excludes(b.condition));
            if let Some(AllocationDependency { on, .. }) = same.iter().find(is_against) {
                return Err(DependencyError::Contradiction { on: *on });
            }
        }
        if sorted.len() > MAX_DEPENDENCIES {
            return Err(DependencyError::TooMany);
        }
        let mut seen = std::collections::BTreeSet::new();
        self.after.retain(|after| seen.insert(*after));
        Ok(())
    }
}

impl FromStr for Dependencies {
    type Err = DependencyError;

    fn from_str(text: &str) -> Result<Self, DependencyError> {
        if text.contains(char::is_whitespace) {
            return Err(DependencyError::Space);
        }
        if text.contains('?') {
            return Err(DependencyError::AnyOf);
        }
        let mut all = Self::default();
        for part in text.split(',') {
            all.add(part)?;
        }
        all.deduplicate_and_check()?;
        Ok(all)
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}_{index}", self.id),
            None => write!(f, "{}", self.id),
        }
    }
}

impl fmt::Display for Dependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for same in self.after.chunk_by(|a, b| a.condition == b.condition) {
            let kind = same.first().map_or("", |after| slurm_type(after.condition));
            write!(f, "{comma}{kind}")?;
            same.iter()
                .try_for_each(|after| write!(f, ":{}", after.on))?;
            comma = ",";
        }
        match self.singleton {
            true => write!(f, "{comma}singleton"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
