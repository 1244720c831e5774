//! Index set, stored as runs.

use super::fold::{Run, RunFold};
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, collections::BTreeMap};

/// Number of runs on either side of an index that an edit refolds. Tests compare the result with folding the whole set.
pub(super) const REFOLDED_RUNS: usize = 3;

/// Indices as runs with a step: 10,000 consecutive indices are one run. Look-up, insertion and removal cost the
/// logarithm of the number of runs, in any order. Equal sets have equal runs, and equal bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, u32, u32)>", into = "Vec<(u32, u32, u32)>")]
pub struct IndexSet {
    /// Last index and step, by first index.
    runs: BTreeMap<u32, (u32, u32)>,
    len: usize,
}

/// Numbers that are not a valid run of a set: first index, last index, step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "({first}, {last}, {step}) is not a valid run: its first index must be behind the run before, \
     its step at least 1 and ending at its last index"
)]
pub struct InvalidIndexSet {
    /// First index as given.
    pub first: u32,
    /// Last index as given.
    pub last: u32,
    /// Step as given.
    pub step: u32,
}

impl IndexSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the set from `first` to `last` in steps; `None` if `last` is below `first`, or `step` is 0.
    pub fn range(first: u32, last: u32, step: u32) -> Option<Self> {
        (first <= last && step > 0).then(|| Self::of([Run::new(first, last, step)]))
    }

    /// Creates a set from disjoint runs in ascending order.
    fn of(runs: impl IntoIterator<Item = Run>) -> Self {
        let mut fold = RunFold::default();
        runs.into_iter().for_each(|run| fold.push(run));
        let mut set = Self::default();
        for run in fold.finish() {
            set.len += run.len();
            set.runs.insert(run.first, (run.last, run.step));
        }
        set
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = Run> + Clone + '_ {
        (self.runs.iter()).map(|(&first, &(last, step))| Run { first, last, step })
    }

    /// Number of indices.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Checks whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of runs, which determines the cost of storage and transfer.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// The lowest index.
    pub fn first(&self) -> Option<u32> {
        self.runs.keys().next().copied()
    }

    /// The highest index.
    pub fn last(&self) -> Option<u32> {
        self.runs.values().next_back().map(|(last, _)| *last)
    }

    /// All indices in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs()
            .flat_map(|run| (run.first..=run.last).step_by(run.step as usize))
    }

    /// The last run that begins at or before `index`.
    fn run_at(&self, index: u32) -> Option<Run> {
        let (&first, &(last, step)) = self.runs.range(..=index).next_back()?;
        Some(Run { first, last, step })
    }

    /// Checks whether the set contains `index`.
    pub fn contains(&self, index: u32) -> bool {
        self.run_at(index).is_some_and(|run| run.contains(index))
    }

    /// Adds `index`. Returns whether it was absent.
    pub fn insert(&mut self, index: u32) -> bool {
        let is_new = !self.contains(index);
        if is_new {
            self.edit(index, true);
            self.len += 1;
        }
        is_new
    }

    /// Removes `index`. Returns whether it was present.
    pub fn remove(&mut self, index: u32) -> bool {
        let was_there = self.contains(index);
        if was_there {
            self.edit(index, false);
            self.len -= 1;
        }
        was_there
    }

    /// Removes and returns the lowest index.
    pub fn pop_first(&mut self) -> Option<u32> {
        let first = self.first()?;
        self.remove(first);
        Some(first)
    }

    /// Refolds the runs near `index`, with or without it. The next run on either side stays unchanged, but determines
    /// which indices the outermost refolded runs share with it.
    fn edit(&mut self, index: u32, is_in: bool) {
        let run = |(&first, &(last, step)): (&u32, &(u32, u32))| Run { first, last, step };
        let (below, above) = (self.runs.range(..=index).rev(), self.runs.range(index..));
        let mut below: Vec<Run> = below.take(REFOLDED_RUNS + 1).map(run).collect();
        let above = above.map(run).filter(|run| run.first > index);
        let mut above: Vec<Run> = above.take(REFOLDED_RUNS + 1).collect();
        let stays_below = (below.len() > REFOLDED_RUNS).then(|| below.pop()).flatten();
        let stays_above = (above.len() > REFOLDED_RUNS).then(|| above.pop()).flatten();
        below.reverse();
        // The rest of the run that spans `index`.
        let rest =
            (below.last().zip(index.checked_add(1))).and_then(|(run, next)| run.at_least(next));
        let lower = below.iter().filter_map(|run| run.below(index));
        let middle = is_in.then(|| Run::one(index)).into_iter().chain(rest);
        let upper = above.iter().copied().chain(stays_above);
        let mut fold = RunFold::behind(stays_below.map(|run| run.last));
        lower
            .chain(middle)
            .chain(upper)
            .for_each(|run| fold.push(run));
        for run in below.iter().chain(&above) {
            self.runs.remove(&run.first);
        }
        let is_near = |run: &Run| stays_above.is_none_or(|stays| run.first < stays.first);
        for run in fold.finish().into_iter().filter(is_near) {
            self.runs.insert(run.first, (run.last, run.step));
        }
    }

    /// Indices in either set.
    pub fn union(&self, other: &Self) -> Self {
        self.joined(other, |_, _| true)
    }

    /// Indices in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        self.joined(other, |ours, theirs| ours && theirs)
    }

    /// Indices of this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        self.joined(other, |_, theirs| !theirs)
    }

    /// Combines two sets: `keep` decides by membership in this set and in `other`. Cost: the number of runs, and the
    /// number of indices where runs of different steps overlap.
    fn joined(&self, other: &Self, keep: impl Fn(bool, bool) -> bool) -> Self {
        let (mut ours, mut theirs) = (RunCursor::new(self.runs()), RunCursor::new(other.runs()));
        let mut kept = Vec::new();
        loop {
            let (run, is_ours, is_theirs) = match (ours.head(), theirs.head()) {
                (None, None) => return Self::of(kept),
                (Some(a), None) => (ours.take_through(a.last), true, false),
                (None, Some(b)) => (theirs.take_through(b.last), false, true),
                (Some(a), Some(b)) => match a.first.cmp(&b.first) {
                    Ordering::Less => (ours.take_through(b.first - 1), true, false),
                    Ordering::Greater => (theirs.take_through(a.first - 1), false, true),
                    Ordering::Equal => {
                        let is_alike = a.step == b.step;
                        let through = if is_alike {
                            a.last.min(b.last)
                        } else {
                            a.first
                        };
                        ours.take_through(through);
                        (theirs.take_through(through), true, true)
                    }
                },
            };
            if keep(is_ours, is_theirs) {
                kept.extend(run);
            }
        }
    }
}

/// Runs that are consumed in parts.
struct RunCursor<I: Iterator<Item = Run>> {
    head: Option<Run>,
    rest: I,
}

impl<I: Iterator<Item = Run>> RunCursor<I> {
    fn new(mut rest: I) -> Self {
        let head = rest.next();
        Self { head, rest }
    }

    fn head(&self) -> Option<Run> {
        self.head
    }

    /// Takes the part of the first run up to `last`.
    fn take_through(&mut self, last: u32) -> Option<Run> {
        let head = self.head?;
        let behind = last.checked_add(1);
        self.head = behind.and_then(|behind| head.at_least(behind));
        if self.head.is_none() {
            self.head = self.rest.next();
        }
        match behind {
            Some(behind) => head.below(behind),
            None => Some(head),
        }
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<T: IntoIterator<Item = u32>>(indices: T) -> Self {
        let mut sorted: Vec<u32> = indices.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self::of(sorted.into_iter().map(Run::one))
    }
}

impl From<IndexSet> for Vec<(u32, u32, u32)> {
    fn from(set: IndexSet) -> Self {
        set.runs()
            .map(|run| (run.first, run.last, run.step))
            .collect()
    }
}

impl TryFrom<Vec<(u32, u32, u32)>> for IndexSet {
    type Error = InvalidIndexSet;
    fn try_from(numbers: Vec<(u32, u32, u32)>) -> Result<Self, InvalidIndexSet> {
        let mut before: Option<u32> = None;
        for &(first, last, step) in &numbers {
            let is_run = first <= last && step > 0 && (last - first).is_multiple_of(step);
            if !is_run || before.is_some_and(|before| first <= before) {
                return Err(InvalidIndexSet { first, last, step });
            }
            before = Some(last);
        }
        // Also accepts runs from another way of folding.
        let run = |(first, last, step)| Run::new(first, last, step);
        Ok(Self::of(numbers.into_iter().map(run)))
    }
}
