//! Fixed-size set of node numbers in 64-bit words: filters become a few machine operations.

use std::ops::Range;

const WORD: usize = u64::BITS as usize;

/// Set of node numbers below the size given at construction. Every set of one index has the same size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BitSet {
    words: Vec<u64>,
}

/// Members among 64 consecutive numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word {
    base: usize,
    bits: u64,
}

impl Word {
    /// Smallest member; the word must not be empty.
    pub(crate) fn first(self) -> usize {
        self.base + self.bits.trailing_zeros() as usize
    }

    /// Largest member; the word must not be empty.
    pub(crate) fn last(self) -> usize {
        self.base + WORD - 1 - self.bits.leading_zeros() as usize
    }

    pub(crate) fn count(self) -> u32 {
        self.bits.count_ones()
    }

    /// Members, ascending.
    pub(crate) fn members(mut self) -> impl Iterator<Item = usize> {
        std::iter::from_fn(move || {
            let member = (self.bits != 0).then(|| self.first())?;
            self.bits &= self.bits - 1;
            Some(member)
        })
    }
}

impl BitSet {
    pub(crate) fn empty(size: usize) -> Self {
        Self {
            words: vec![0; size.div_ceil(WORD)],
        }
    }

    /// All numbers below `size`.
    pub(crate) fn full(size: usize) -> Self {
        let mut words = vec![u64::MAX; size.div_ceil(WORD)];
        if let Some(last) = words.last_mut()
            && !size.is_multiple_of(WORD)
        {
            *last = u64::MAX >> (WORD - size % WORD);
        }
        Self { words }
    }

    /// All numbers below `size` that are not members; `size` must be the size of the set.
    pub(crate) fn complement(&self, size: usize) -> Self {
        let mut others = Self::full(size);
        others.subtract(self);
        others
    }

    pub(crate) fn collect(size: usize, members: impl IntoIterator<Item = usize>) -> Self {
        let mut set = Self::empty(size);
        for member in members {
            set.insert(member);
        }
        set
    }

    pub(crate) fn insert(&mut self, member: usize) {
        self.words[member / WORD] |= 1 << (member % WORD);
    }

    pub(crate) fn remove(&mut self, member: usize) {
        self.words[member / WORD] &= !(1 << (member % WORD));
    }

    pub(crate) fn put(&mut self, member: usize, is_in: bool) {
        if is_in {
            self.insert(member);
        } else {
            self.remove(member);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Size given at construction, rounded up to whole words.
    pub(crate) fn capacity(&self) -> usize {
        self.words.len() * WORD
    }

    pub(crate) fn contains(&self, member: usize) -> bool {
        self.words[member / WORD] & (1 << (member % WORD)) != 0
    }

    pub(crate) fn count(&self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }

    /// Number of members of both sets.
    pub(crate) fn count_common(&self, other: &BitSet) -> u32 {
        let words = self.words.iter().zip(&other.words);
        words.map(|(a, b)| (a & b).count_ones()).sum()
    }

    /// Removes every member that `other` lacks.
    pub(crate) fn intersect_with(&mut self, other: &BitSet) {
        for (word, theirs) in self.words.iter_mut().zip(&other.words) {
            *word &= theirs;
        }
    }

    /// Removes every member of `other`.
    pub(crate) fn subtract(&mut self, other: &BitSet) {
        for (word, theirs) in self.words.iter_mut().zip(&other.words) {
            *word &= !theirs;
        }
    }

    pub(crate) fn and(&self, other: &BitSet) -> BitSet {
        let words = self
            .words
            .iter()
            .zip(&other.words)
            .map(|(a, b)| a & b)
            .collect();
        BitSet { words }
    }

    /// Adds every member of `other`.
    pub(crate) fn union_with(&mut self, other: &BitSet) {
        for (word, theirs) in self.words.iter_mut().zip(&other.words) {
            *word |= theirs;
        }
    }

    /// Words with at least one member.
    pub(crate) fn words(&self) -> impl Iterator<Item = Word> + '_ {
        let words = self.words.iter().enumerate();
        words.filter_map(|(at, bits)| {
            let (base, bits) = (at * WORD, *bits);
            (bits != 0).then_some(Word { base, bits })
        })
    }

    /// Words overlapping `range`, cut to `range`.
    fn words_in(&self, range: Range<usize>) -> impl Iterator<Item = Word> + '_ {
        let words = range.start / WORD..range.end.div_ceil(WORD);
        words.map(move |at| {
            let base = at * WORD;
            let mut bits = self.words[at];
            if base < range.start {
                bits &= u64::MAX << (range.start - base);
            }
            if base + WORD > range.end {
                bits &= u64::MAX >> (base + WORD - range.end);
            }
            Word { base, bits }
        })
    }

    /// Members within `range`, ascending.
    pub(crate) fn iter_in(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let range = if range.is_empty() { 0..0 } else { range };
        self.words_in(range).flat_map(Word::members)
    }

    /// All members, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.iter_in(0..self.words.len() * WORD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_both_ends() {
        let set = BitSet::collect(200, (0..200).filter(|n| n % 3 == 0));
        for (from, to) in [
            (0, 0),
            (0, 1),
            (1, 3),
            (60, 70),
            (63, 64),
            (64, 128),
            (5, 200),
            (128, 200),
        ] {
            let expected: Vec<usize> = (from..to).filter(|n| n % 3 == 0).collect();
            assert_eq!(
                set.iter_in(from..to).collect::<Vec<_>>(),
                expected,
                "{from}..{to}"
            );
        }
        assert_eq!(set.iter().count(), set.count() as usize);
        let words: Vec<Word> = BitSet::collect(200, [70, 100, 127, 199]).words().collect();
        let triples = words.iter().map(|w| (w.first(), w.last(), w.count()));
        assert_eq!(triples.collect::<Vec<_>>(), [(70, 127, 3), (199, 199, 1)]);
        assert_eq!(words[0].members().collect::<Vec<_>>(), [70, 100, 127]);
    }

    #[test]
    fn a_full_set_ends_at_its_size() {
        for size in [0, 1, 63, 64, 65, 200] {
            assert_eq!(BitSet::full(size), BitSet::collect(size, 0..size), "{size}");
        }
    }

    #[test]
    fn set_operations_agree_with_membership() {
        let a = BitSet::collect(130, (0..130).step_by(2));
        let b = BitSet::collect(130, (0..130).step_by(5));
        let both = a.and(&b);
        assert_eq!(a.count_common(&b), both.count());
        assert!((0..130).all(|n| both.contains(n) == (n % 10 == 0)));
        let mut rest = a.clone();
        rest.subtract(&b);
        assert!((0..130).all(|n| rest.contains(n) == (n % 2 == 0 && n % 5 != 0)));
        let mut kept = a;
        kept.intersect_with(&b);
        kept.remove(10);
        assert!(!kept.contains(10) && kept.contains(20));
    }
}
