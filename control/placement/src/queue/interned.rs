//! Interned values: each distinct value of the queue is stored once and has a number.

use std::cmp::Ordering;

/// Number that means "no entry".
pub(crate) const NO_ENTRY: u32 = u32::MAX;

/// Table of distinct values, each with a number.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    values: Vec<T>,
    /// Numbers in the order of their values.
    order: Vec<u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            order: Vec::new(),
        }
    }
}

impl<T> Interned<T> {
    /// Number of the value for which `compare` returns `Equal`. If there is none, the value from `make` is added.
    pub(super) fn number(
        &mut self,
        compare: impl Fn(&T) -> Ordering,
        make: impl FnOnce() -> T,
    ) -> u32 {
        let found = self
            .order
            .binary_search_by(|n| compare(&self.values[*n as usize]));
        match found {
            Ok(place) => self.order[place],
            Err(place) => {
                // The queue is rebuilt long before a table has 2^32 entries.
                let number = self.values.len() as u32;
                self.values.push(make());
                self.order.insert(place, number);
                number
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.values.iter()
    }
}
