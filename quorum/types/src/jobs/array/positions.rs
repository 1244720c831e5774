//! Positions of indices within an index set.

use super::IndexSet;

impl IndexSet {
    /// Position of an index: the number of smaller indices; `None` if the index is not in the set. Cost: number of
    /// runs.
    pub fn position_of(&self, index: u32) -> Option<usize> {
        let mut before = 0;
        for run in self.runs() {
            if run.contains(index) {
                return Some(before + ((index - run.first) / run.step) as usize);
            }
            if run.first > index {
                return None;
            }
            before += run.len();
        }
        None
    }

    /// Index at a position. Cost: number of runs.
    pub fn at(&self, place: usize) -> Option<u32> {
        let mut left = place;
        for run in self.runs() {
            if left < run.len() {
                let steps = u32::try_from(left).ok()?;
                return Some(run.first + steps * run.step);
            }
            left -= run.len();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::ArraySpec;

    #[test]
    fn places_and_indices_are_each_other_s_inverse() {
        for text in ["0", "0-99", "1,3,5-7", "0-15:4", "7,9,100-120:5,4000000"] {
            let spec: ArraySpec = text.parse().unwrap();
            let all: Vec<u32> = spec.indices().iter().collect();
            for (place, index) in all.iter().enumerate() {
                assert_eq!(spec.indices().at(place), Some(*index), "{text}");
                assert_eq!(spec.indices().position_of(*index), Some(place), "{text}");
            }
            assert_eq!(spec.indices().at(all.len()), None);
            let highest = *all.last().unwrap();
            for absent in (0..=highest.min(200)).filter(|index| !all.contains(index)) {
                assert_eq!(spec.indices().position_of(absent), None, "{text}: {absent}");
            }
        }
    }
}
