//! Chance that comes from a seed: SplitMix64. Each place that draws has a stream of its own, so that
//! what one draws does not change what another does.

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The stream of `label` under a seed.
    pub fn new(seed: u64, label: &str) -> Self {
        let mut rng = Self(seed);
        for byte in label.bytes() {
            rng.0 = rng.next() ^ u64::from(byte);
        }
        rng
    }
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// From `from` to below `to`; `from` where that is empty.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % to.saturating_sub(from).max(1)
    }
    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    /// True so often in a thousand.
    pub fn chance(&mut self, in_a_thousand: u64) -> bool {
        self.next() % 1000 < in_a_thousand
    }
    /// One of them.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}
