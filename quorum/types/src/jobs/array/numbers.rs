//! Numbers of array elements: the element at position `p` of the array with number `a` has the number `a + 1 + p`.

use super::{ArraySpec, IndexSet};
use crate::AllocationId;
use std::ops::RangeInclusive;

/// Allocation numbers of an array's elements, which follow the number of the array.
#[derive(Debug, Clone, Copy)]
pub struct ElementIds<'a> {
    array: AllocationId,
    indices: &'a IndexSet,
}

impl ArraySpec {
    /// Numbers of the elements for the array number `array`.
    pub fn numbers(&self, array: AllocationId) -> ElementIds<'_> {
        ElementIds {
            array,
            indices: self.indices(),
        }
    }
}

impl<'a> ElementIds<'a> {
    fn at(self, place: usize) -> AllocationId {
        AllocationId(self.array.0 + 1 + place as u64)
    }

    /// Number of the last element.
    pub fn last(self) -> AllocationId {
        AllocationId(self.array.0 + self.indices.len() as u64)
    }

    /// All numbers, from the first element to the last.
    pub fn range(self) -> RangeInclusive<AllocationId> {
        self.at(0)..=self.last()
    }

    /// Number of the element with this index; `None` if the array has no such index.
    pub fn id_of(self, index: u32) -> Option<AllocationId> {
        self.indices.position_of(index).map(|place| self.at(place))
    }

    /// Index of the element with this number; `None` if the array has no such element.
    pub fn index_of(self, number: AllocationId) -> Option<u32> {
        let place = number.0.checked_sub(self.at(0).0)?;
        self.indices.at(usize::try_from(place).ok()?)
    }

    /// Numbers of the elements with these ascending indices, in one pass. The result ends at the first index that the
    /// array does not have.
    pub fn of_ascending(
        self,
        wanted: impl Iterator<Item = u32> + 'a,
    ) -> impl Iterator<Item = AllocationId> + 'a {
        let mut known = self.indices.iter().zip(0..).peekable();
        wanted.map_while(move |index| {
            while known.next_if(|(other, _)| *other < index).is_some() {}
            let (found, place) = *known.peek()?;
            (found == index).then(|| self.at(place))
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const ARRAY: AllocationId = AllocationId(12);

    fn spec(text: &str) -> ArraySpec {
        text.parse().unwrap()
    }

    #[test]
    fn numbers_follow_the_array_in_the_order_of_indices() {
        let spec = spec("1,3,5-7");
        let numbers = spec.numbers(ARRAY);
        assert_eq!(numbers.range(), AllocationId(13)..=AllocationId(17));
        assert_eq!(numbers.last(), AllocationId(17));
        for (index, number) in [(1, 13), (3, 14), (5, 15), (6, 16), (7, 17)] {
            assert_eq!(numbers.id_of(index), Some(AllocationId(number)));
            assert_eq!(numbers.index_of(AllocationId(number)), Some(index));
        }
    }

    #[test]
    fn rejects_indices_and_numbers_of_no_element() {
        let spec = spec("1,3,5-7");
        let numbers = spec.numbers(ARRAY);
        for index in [0, 2, 4, 8, u32::MAX] {
            assert_eq!(numbers.id_of(index), None);
        }
        for number in [0, 11, 12, 18, u64::MAX] {
            assert_eq!(numbers.index_of(AllocationId(number)), None);
        }
    }

    #[test]
    fn ascending_indices_give_the_numbers_of_single_look_ups() {
        for text in ["0", "0-99", "0-15:4", "7,9,100-120:5,4000000"] {
            let spec = spec(text);
            let numbers = spec.numbers(ARRAY);
            for step in [1, 2, 5] {
                let wanted: Vec<u32> = spec.indices().iter().step_by(step).collect();
                let single: Vec<_> = wanted.iter().filter_map(|i| numbers.id_of(*i)).collect();
                assert_eq!(single.len(), wanted.len());
                let walked: Vec<_> = numbers.of_ascending(wanted.into_iter()).collect();
                assert_eq!(walked, single, "{text} by {step}");
            }
        }
    }
}
