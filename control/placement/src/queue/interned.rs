//! Interned values: each distinct value of the queue once, by number.

use std::cmp::Ordering;

/// Number that stands for no entry.
pub(crate) const NONE: u32 = u32::MAX;

/// Interned values by number.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    things: Vec<T>,
    /// Numbers in the order of their values.
    order: Vec<u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self {
            things: Vec::new(),
            order: Vec::new(),
        }
    }
}

impl<T> Interned<T> {
    /// Number of the value that `compare` finds equal; a missing value is added.
    pub(super) fn number(
        &mut self,
        compare: impl Fn(&T) -> Ordering,
        make: impl FnOnce() -> T,
    ) -> u32 {
        let found = self
            .order
            .binary_search_by(|n| compare(&self.things[*n as usize]));
        match found {
            Ok(place) => self.order[place],
            Err(place) => {
                // At most one per job, and there are fewer than 2^32 jobs.
                let number = self.things.len() as u32;
                self.things.push(make());
                self.order.insert(place, number);
                number
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.things.len()
    }

    pub(crate) fn get(&self, number: u32) -> &T {
        &self.things[number as usize]
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.things.iter()
    }
}
