//! How indices become runs: one way for each set, so that equal sets are equal bytes.
//!
//! Where an index and the next one are as far apart as that one and the one behind it, the three are of one run,
//! and a run goes on as long as the distance stays the same. An index between two such runs is of the second
//! where that has a step of 1 (`1,3,5-7`, as people write it), else of the first. What is in no run stands
//! alone. So a change moves no more than the runs next to it, and an edit folds [`NEAR`](super::set::NEAR) of
//! them on either side anew.

/// `first`, `first + step`, … `last`. Where both ends are the same, `step` is 1.
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

    /// From `first` in steps to `last`, or the last one before it.
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

    /// Those below `index`.
    pub fn below(self, index: u32) -> Option<Self> {
        let last = self.last.min(index.checked_sub(1)?);
        (self.first <= last).then(|| Self::new(self.first, last, self.step))
    }

    /// Those at `index` and above.
    pub fn at_least(self, index: u32) -> Option<Self> {
        let missing = index.saturating_sub(self.first).div_ceil(self.step);
        let first = missing.checked_mul(self.step)?.checked_add(self.first)?;
        (first <= self.last).then(|| Self::new(first, self.last, self.step))
    }
}

/// Makes runs of what is pushed, which comes in order.
#[derive(Default)]
pub(super) struct Fold {
    runs: Vec<Run>,
    /// The indices that are as far apart as the last two, and those two.
    tail: Option<Run>,
    /// The first index of `tail` is of the run before.
    is_shared: bool,
}

impl Fold {
    /// What is pushed comes behind `before`, which is of a run that stays.
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
        // The distance of the tail is that of this run from here on.
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

    /// Takes the tail, all but the last index where that stands alone; tells whether it is of a run now.
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
        // One alone was taken, or is of the run before.
        if !was_run && !is_one {
            self.runs.push(Run::one(tail.last));
        }
        self.runs
    }
}
