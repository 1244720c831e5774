//! Seeded random numbers for simulations, replays, generated tests and benchmarks.
//!
//! [`Rng`] (SplitMix64) is for all new code. [`Mmix`] stays for benchmarks with recorded figures: another generator
//! would make another workload.
//!
//! One seed gives the same numbers with each build on each platform: seeds of failing simulations and figures of
//! replays are recorded, so the sequence must never change. `rand` does not promise this for its `StdRng` and
//! `SmallRng`. Nothing here may be used for secrets.
#![forbid(unsafe_code)]

/// A stream of random numbers, determined by a seed and a label.
///
/// Each place that draws numbers has a stream of its own, so that a draw in one place changes no draw in another.
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
    #[expect(
        clippy::should_implement_trait,
        reason = "the stream has no end; an iterator would return an option"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `from` to below `to`; `from` if the range is empty.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % to.saturating_sub(from).max(1)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// True with this probability, in thousandths.
    pub fn chance(&mut self, in_a_thousand: u64) -> bool {
        self.next() % 1000 < in_a_thousand
    }

    /// One element of a slice; `None` if the slice is empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// A number from 0 to below 1.
    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number from `least` to `most`, log-uniform; a bound of 0 counts as 1.
    pub fn log_uniform(&mut self, least: u64, most: u64) -> u64 {
        let (least, most) = (least.max(1) as f64, most.max(1) as f64);
        (least * (most / least).powf(self.part())) as u64
    }
}

/// Knuth's MMIX linear congruential generator, for benchmarks with recorded figures. Its lower bits are not random.
#[derive(Debug, Clone)]
pub struct Mmix(u64);

impl Mmix {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which must not be 0, and below 2^31.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.step() >> 33) % end
    }

    /// A number from 0 to below 1.
    pub fn part(&mut self) -> f64 {
        (self.step() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn step(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First numbers of SplitMix64 for the seed 1234567, as the reference implementation prints them.
    #[test]
    fn sequence_is_that_of_the_reference() {
        let mut rng = Rng::new(1_234_567, "");
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([(); 5].map(|()| rng.next()), expected);
    }

    #[test]
    fn labels_give_different_streams() {
        let first = |label| Rng::new(7, label).next();
        assert_eq!(first("a"), first("a"));
        assert_ne!(first("a"), first("b"));
        assert_ne!(first("a"), Rng::new(8, "a").next());
    }

    #[test]
    fn mmix_sequence_is_fixed() {
        let mut mmix = Mmix::new(1);
        // 1 × 6364136223846793005 + 1442695040888963407 = 7806831264735756412; its upper 31 bits.
        assert_eq!(mmix.below(u64::MAX), 7_806_831_264_735_756_412 >> 33);
        assert!((0.0..1.0).contains(&mmix.part()));
    }

    #[test]
    fn ranges_keep_their_bounds() {
        let mut rng = Rng::new(3, "ranges");
        for _ in 0..1000 {
            assert!((5..9).contains(&rng.range(5, 9)));
            assert!(rng.below(4) < 4);
            assert!((0.0..1.0).contains(&rng.part()));
            assert!((10..=1000).contains(&rng.log_uniform(10, 1000)));
        }
        assert_eq!((rng.range(5, 5), rng.range(9, 5), rng.below(0)), (5, 9, 0));
        assert_eq!(rng.pick::<u8>(&[]), None);
        assert!(!rng.chance(0) && rng.chance(1000));
    }
}
