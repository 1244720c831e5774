//! Canonical folding of indices into runs: one result for each set, so that equal sets are equal bytes.
//!
//! Three or more consecutive indices at equal distances form a run, which extends as long as the distance stays the
//! same. An index that two such runs share belongs to the second if its step is 1 (`1,3,5-7`, as in handwritten lists),
//! else to the first. Every other index is a run of its own. A change therefore affects only adjacent runs, and an edit
//! refolds [`REFOLDED_RUNS`](super::set::REFOLDED_RUNS) runs on either side.

/// The indices `first`, `first + step`, … `last`. If `first` equals `last`, `step` is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u32,
    pub last: u32,
    pub step: u32,
}

impl Run {
    pub fn one(index: u32) -> Self {
        Self {
            first: index,
            last: index,
            step: 1,
        }
    }

    /// Creates the run from `first` in steps up to `last`, or to the last index before it.
    pub fn new(first: u32, last: u32, step: u32) -> Self {
        let last = last - (last - first) % step;
        let step = if first == last { 1 } else { step };
        Self { first, last, step }
    }

    pub fn len(self) -> usize {
        ((self.last - self.first) / self.step) as usize + 1
    }

    pub fn contains(self, index: u32) -> bool {
        (self.first..=self.last).contains(&index) && (index - self.first).is_multiple_of(self.step)
    }

    /// The part below `index`.
    pub fn below(self, index: u32) -> Option<Self> {
        let last = self.last.min(index.checked_sub(1)?);
        (self.first <= last).then(|| Self::new(self.first, last, self.step))
    }

    /// The part from `index` on.
    pub fn at_least(self, index: u32) -> Option<Self> {
        let missing = index.saturating_sub(self.first).div_ceil(self.step);
        let first = missing.checked_mul(self.step)?.checked_add(self.first)?;
        (first <= self.last).then(|| Self::new(first, self.last, self.step))
    }
}

/// Folds indices, pushed in ascending order, into runs.
#[derive(Default)]
pub(super) struct RunFold {
    runs: Vec<Run>,
    /// The last two indices, and the indices before them at the same distance.
    tail: Option<Run>,
    /// Whether the first index of `tail` belongs to the previous run.
    is_shared: bool,
}

impl RunFold {
    /// Starts after `before`, the last index of a run that stays unchanged.
    pub fn behind(before: Option<u32>) -> Self {
        Self {
            runs: Vec::new(),
            tail: before.map(Run::one),
            is_shared: true,
        }
    }

    pub fn push(&mut self, run: Run) {
        self.push_one(run.first);
        if run.first == run.last {
            return;
        }
        // From here on the tail has the step of this run.
        self.push_one(run.first + run.step);
        if let Some(tail) = &mut self.tail {
            tail.last = run.last;
        }
    }

    fn push_one(&mut self, index: u32) {
        let Some(tail) = &mut self.tail else {
            self.tail = Some(Run::one(index));
            self.is_shared = false;
            return;
        };
        let last = tail.last;
        let step = index - last;
        if tail.first == last {
            *tail = Run::new(last, index, step);
        } else if tail.step == step {
            tail.last = index;
        } else {
            let was_run = self.close();
            self.is_shared = was_run;
            self.tail = Some(Run::new(last, index, step));
        }
    }

    /// Appends the tail to the runs. A tail that is too short for a run loses its last index, which the caller keeps.
    /// Returns whether the tail formed a run.
    fn close(&mut self) -> bool {
        let Some(tail) = self.tail.take() else {
            return false;
        };
        if tail.len() < 3 {
            if !self.is_shared {
                self.runs.push(Run::one(tail.first));
            }
            return false;
        }
        let whole = match (self.is_shared, self.runs.last_mut()) {
            (false, _) => Some(tail),
            (true, Some(before)) if tail.step == 1 => {
                *before = before.below(tail.first).unwrap_or(*before);
                Some(tail)
            }
            (true, _) => tail.at_least(tail.first + tail.step),
        };
        self.runs.extend(whole);
        true
    }

    pub fn finish(mut self) -> Vec<Run> {
        let Some(tail) = self.tail else {
            return self.runs;
        };
        let is_one = tail.first == tail.last;
        let was_run = self.close();
        // A single index is appended already, or belongs to the previous run.
        if !was_run && !is_one {
            self.runs.push(Run::one(tail.last));
        }
        self.runs
    }
}
