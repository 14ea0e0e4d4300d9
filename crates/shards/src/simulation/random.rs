//! Numbers that the seed decides.

use fairlane_core::random::splitmix64;

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 up to below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(splitmix64(&mut self.0)) * u128::from(end)) >> 64) as u64
    }

    /// With this mean, exponentially distributed.
    pub(super) fn around(&mut self, mean: u64) -> u64 {
        let part = (splitmix64(&mut self.0) >> 11) as f64 / (1_u64 << 53) as f64;
        (-(1.0 - part).ln() * mean as f64) as u64
    }
}
