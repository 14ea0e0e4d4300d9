//! The shared words of a link's shards, and their configuration.

use crate::Shard;
use crate::circle::{FARTHEST, POSITION};
use crate::sync::{Arc, AtomicU64};
use core::fmt;

/// Fractional bits of the link's bytes per nanosecond.
const PLACES: u32 = 40;

/// The configuration of a divided link. Times are nanoseconds since the start of the link, lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The link's rate in bits per second, up to 10^12.
    pub rate: u64,
    /// The bytes that a shard takes at once, if its backlog is as large. At least its longest packet.
    pub batch: u32,
    /// Q: a batch is taken while at most this many bytes are assigned and not yet carried. Must be at least the bytes
    /// that the link carries between two looks of a shard, so that it does not idle in between.
    pub ahead: u64,
    /// The largest number of bytes that the link may catch up after it idled. 0 if the rate is the wire's own.
    pub catch_up: u64,
    /// B: the largest lead over the least shard with which a shard still takes a batch, in virtual time (bytes over its
    /// share).
    pub lead: u64,
    /// The time for which the link may run short, while one shard waits for another that is too far behind, before the
    /// latter is left out. The link runs short while at most the bytes that it carries in this time are assigned ahead.
    /// Must be less than the time of Q, so that the link does not idle meanwhile.
    pub patience: u64,
}

/// The reason why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The rate is 0 or above 10^12 bits per second.
    Rate(u64),
    /// The batch is 0.
    Batch,
    /// There is no shard, or one has weight 0.
    Weights,
    /// The lead and a batch over the least weight together exceed the range of virtual time.
    Lead(u64),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(
                f,
                "a link of {rate} bit/s: rates are 1 to 1000000000000 bit/s"
            ),
            Self::Batch => write!(f, "a batch of 0 bytes: it is at least the longest packet"),
            Self::Weights => write!(f, "a link is divided by weights of at least 1"),
            Self::Lead(bytes) => write!(
                f,
                "a lead and a batch over its share of {bytes} bytes: together at most {FARTHEST}"
            ),
        }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Returns alpha of shard `shard` among `weights`, its B-WFI in bytes: while it is backlogged and not left out, it
    /// takes at least its share of all bytes taken, less alpha. The T-WFI, as work of the link, is alpha over the
    /// share. `docs/internals/shards.md` derives it.
    ///
    /// # Panics
    ///
    /// If there is no such shard.
    #[must_use]
    pub fn b_wfi(&self, weights: &[u32], shard: usize) -> f64 {
        let whole: f64 = weights.iter().copied().map(f64::from).sum();
        let share = f64::from(weights[shard]) / whole;
        let (lead, batch) = (self.lead as f64, f64::from(self.batch));
        let others = (weights.len() - 1) as f64;
        (1.0 - share) * (2.0 * share * lead + batch) + share * others * batch
    }

    /// Returns the largest distance in virtual time of two backlogged shards, where `weight` of `whole` is the lesser
    /// of both weights: B and a batch over its share, and one for rounding.
    #[must_use]
    pub fn apart(&self, weight: u32, whole: u64) -> u64 {
        self.lead + (u64::from(self.batch) * whole).div_ceil(u64::from(weight)) + 1
    }
}

/// A word on its own cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Line(pub(crate) AtomicU64);

/// The shared state of a link's shards.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) config: Config,
    /// The sum of all weights.
    pub(crate) whole: u64,
    /// The link runs short while at most this many bytes are assigned and not yet carried.
    pub(crate) scarce: u64,
    /// Bytes per nanosecond, with [`PLACES`] fractional bits.
    pace: u64,
    /// The wire's clock: bytes assigned since the start, plus bytes that the link could have carried and did not.
    pub(crate) wire: Line,
    /// The floor, a position, and above it the number of entries. No counting shard is below it.
    pub(crate) floor: Line,
    /// The virtual time of each shard, a position, and whether it counts.
    pub(crate) shards: Box<[Line]>,
}

impl Words {
    /// Returns the bytes that a link which never idles has carried by `now`.
    #[inline]
    pub(crate) fn carried(&self, now: u64) -> u64 {
        ((u128::from(now) * u128::from(self.pace)) >> PLACES) as u64
    }

    /// Returns the time at which `bytes` have been carried, rounded up.
    pub(crate) fn carried_at(&self, bytes: u64) -> u64 {
        (u128::from(bytes) << PLACES).div_ceil(u128::from(self.pace)) as u64
    }

    /// Returns the largest valid distance of a shard above the floor.
    pub(crate) fn reach(&self) -> u64 {
        self.config.lead + u64::from(self.config.batch) * self.whole
    }
}

/// Divides a link into one shard per weight. All are idle.
///
/// Cost: a cache line for each shard, and two for all. Nothing is allocated later.
///
/// # Errors
///
/// [`ConfigError`], which names the value that is out of range.
pub fn divide(config: Config, weights: &[u32]) -> Result<Vec<Shard>, ConfigError> {
    divide_from(config, weights, 0)
}

/// The same with all virtual times at `start`, for tests near the seam of the circle.
pub(crate) fn divide_from(
    config: Config,
    weights: &[u32],
    start: u64,
) -> Result<Vec<Shard>, ConfigError> {
    let whole = weights.iter().copied().map(u64::from).sum::<u64>();
    if !(1..=1_000_000_000_000).contains(&config.rate) {
        return Err(ConfigError::Rate(config.rate));
    }
    if config.batch == 0 {
        return Err(ConfigError::Batch);
    }
    if weights.is_empty() || weights.contains(&0) {
        return Err(ConfigError::Weights);
    }
    let farthest = u64::from(config.batch).saturating_mul(whole);
    let farthest = farthest.saturating_add(config.lead);
    if farthest > FARTHEST {
        return Err(ConfigError::Lead(farthest));
    }
    let line = |word| Line(AtomicU64::new(word));
    let start = start & POSITION;
    let pace = ((u128::from(config.rate) << PLACES) / 8_000_000_000) as u64;
    let scarce = (u128::from(config.patience) * u128::from(pace)) >> PLACES;
    let words = Arc::new(Words {
        config,
        whole,
        scarce: scarce.min(config.ahead.into()) as u64,
        pace,
        wire: line(0),
        floor: line(start),
        shards: weights.iter().map(|_| line(start)).collect(),
    });
    let shard = |(place, &weight)| Shard::new(Arc::clone(&words), place, weight, start);
    Ok(weights.iter().enumerate().map(shard).collect())
}
