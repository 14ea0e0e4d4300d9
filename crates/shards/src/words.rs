//! What the shards of a link share, and what is decided of it beforehand.

use crate::Shard;
use crate::circle::{FARTHEST, POSITION};
use crate::sync::{Arc, AtomicU64};
use core::fmt;

/// Binary places of the link's bytes in a nanosecond.
const PLACES: u32 = 40;

/// A link that shards divide. Times are nanoseconds since the link began, lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The link's rate in bits per second, up to 10^12.
    pub rate: u64,
    /// What a shard takes of the link at once, if it has as much to send. At least its longest packet.
    pub batch: u32,
    /// Q: a batch is taken while no more than this is promised and not yet carried. To be no less than what
    /// the link carries between two looks of a shard, so that it does not idle in between.
    pub ahead: u64,
    /// How much of what the link could have carried and did not may be made up for. 0 where the rate is the
    /// wire's own.
    pub catch_up: u64,
    /// B: how far a shard may be ahead of the least one and still take a batch, in virtual time (bytes over
    /// its share).
    pub lead: u64,
    /// How long the link may run short, while one shard waits for another that is too far behind, before the
    /// latter is left out: it does where it has been promised no more than it carries in this time. To be less
    /// than Q, so that it does not idle meanwhile.
    pub patience: u64,
}

/// Why a link cannot be divided so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No rate, or one beyond 10^12 bits per second.
    Rate(u64),
    /// A batch of nothing.
    Batch,
    /// No shard, or one without weight.
    Weights,
    /// A lead and a batch over the least weight, together, that virtual time has no room for.
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
    /// alpha of shard `shard` among `weights`, its B-WFI in bytes: while it has something to send and is not
    /// left out, it takes at least its share of what all take, less this. The T-WFI, as work of the link,
    /// is this over the share. `docs/internals/shards.md` derives it.
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

    /// How far apart in virtual time two shards that have something to send can be, where `weight` of `whole`
    /// is the lesser of both weights: B and a batch over its share, and one for rounding.
    #[must_use]
    pub fn apart(&self, weight: u32, whole: u64) -> u64 {
        self.lead + (u64::from(self.batch) * whole).div_ceil(u64::from(weight)) + 1
    }
}

/// A word on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Line(pub(crate) AtomicU64);

/// What the shards of a link share.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) config: Config,
    /// The sum of all weights.
    pub(crate) whole: u64,
    /// The link runs short where no more than this is promised and not yet carried.
    pub(crate) scarce: u64,
    /// Bytes in a nanosecond, with [`PLACES`].
    pace: u64,
    /// The wire's clock: the bytes that the link has been promised since it began, and those that it
    /// could have carried and did not.
    pub(crate) wire: Line,
    /// The floor, a position, and above it how often a shard came in. No shard that counts is below it.
    pub(crate) floor: Line,
    /// Of each shard its virtual time, a position, and whether it counts.
    pub(crate) shards: Box<[Line]>,
}

impl Words {
    /// The bytes that a link which never idles has carried by `now`.
    #[inline]
    pub(crate) fn carried(&self, now: u64) -> u64 {
        ((u128::from(now) * u128::from(self.pace)) >> PLACES) as u64
    }

    /// When so many have been carried, rounded up.
    pub(crate) fn carried_at(&self, bytes: u64) -> u64 {
        (u128::from(bytes) << PLACES).div_ceil(u128::from(self.pace)) as u64
    }

    /// How far a shard can be above the floor and be right there.
    pub(crate) fn reach(&self) -> u64 {
        self.config.lead + u64::from(self.config.batch) * self.whole
    }
}

/// Divides a link among as many shards as there are weights. All are idle.
///
/// Cost: a cache line for each shard, and two for all. Nothing is allocated later.
///
/// # Errors
///
/// [`ConfigError`], which says what is out of range.
pub fn divide(config: Config, weights: &[u32]) -> Result<Vec<Shard>, ConfigError> {
    divide_from(config, weights, 0)
}

/// The same with all virtual times at `start`, to be near the circle's seam.
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
