//! The random numbers of the simulation: SplitMix64. A seed gives the same run on every machine.

/// A deterministic source of random numbers.
#[derive(Clone, Debug)]
pub struct RandomSource(u64);

impl RandomSource {
    /// A source with this seed.
    pub fn new(seed: u64) -> Self {
        RandomSource(seed ^ 0x6a09_e667_f3bc_c908)
    }
    /// The next number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.any() % n }
    }
    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }
    /// As [`RandomSource::between`], as `u32`; `high` must fit.
    pub fn small(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.between(u64::from(low), u64::from(high))).unwrap_or(high)
    }
    /// True in `n` of 1000 cases.
    pub fn per_mille(&mut self, n: u64) -> bool {
        self.below(1000) < n
    }
    /// True in `n` of 100 cases.
    pub fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }
    /// A random element; `None` for an empty slice.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let n = u64::try_from(from.len()).unwrap_or(0);
        from.get(usize::try_from(self.below(n)).unwrap_or(0))
            .cloned()
    }
    /// A separate source: draws from it do not change the numbers of this one.
    pub fn split(&mut self) -> RandomSource {
        RandomSource::new(self.any())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers() {
        let numbers = |seed| {
            (0..5)
                .map(|_| RandomSource::new(seed).any())
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        let mut chance = RandomSource::new(3);
        assert!((0..1000).all(|_| (5..=9).contains(&chance.between(5, 9))));
    }
}
