//! Random numbers from a seed.

use fairlane_core::random::splitmix64;

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number from 0 to `end - 1`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(splitmix64(&mut self.0)) * u128::from(end)) >> 64) as u64
    }

    /// Returns an exponentially distributed number with this mean.
    pub(super) fn around(&mut self, mean: u64) -> u64 {
        let part = (splitmix64(&mut self.0) >> 11) as f64 / (1_u64 << 53) as f64;
        (-(1.0 - part).ln() * mean as f64) as u64
    }
}
