//! Chance that comes from a seed: SplitMix64. Each place that draws has a stream of its own, so that what
//! one draws does not change what another does.

/// A stream of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of `label` under a seed.
    pub(crate) fn new(seed: u64, label: &str) -> Self {
        let mut rng = Self(seed);
        for byte in label.bytes() {
            rng.0 = rng.next() ^ u64::from(byte);
        }
        rng
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `from` to below `to`; `from` where that is empty.
    pub(crate) fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % to.saturating_sub(from).max(1)
    }

    /// True so often in a thousand.
    pub(crate) fn chance(&mut self, in_a_thousand: u64) -> bool {
        self.next() % 1000 < in_a_thousand
    }

    /// One of them; none of none.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get((self.next() % of.len().max(1) as u64) as usize)
    }

    /// Below 1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `least` to `most`, as many within each factor of two.
    pub(crate) fn spread(&mut self, least: u64, most: u64) -> u64 {
        let (least, most) = (least.max(1) as f64, most.max(1) as f64);
        (least * (most / least).powf(self.part())) as u64
    }
}
