//! Random Early Detection (S. Floyd, V. Jacobson: Random Early Detection Gateways for
//! Congestion Avoidance, IEEE/ACM Transactions on Networking 1(4), 1993).
//!
//! The average queue length is an exponentially weighted one, taken at arrivals. Between two thresholds a packet is
//! marked or dropped with a probability that grows with the average, at gaps that are uniform and not geometric
//! (Section 7, "method 2"), so that drops neither cluster nor stay away for long. "Gentle" rises from `max_p` to 1
//! between the upper threshold and twice that, instead of jumping there.
//!
//! ```text
//! p  1 |                      ,-------  dropped, never marked
//!      |                   ,'
//! max_p|             ,---'  gentle
//!    0 |________,--'
//!              min   max      2 max     average
//! ```
//!
//! # Bit budget
//!
//! The average has 31 bits of whole packets or bytes and 32 of fraction. A step of weight
//! 2^-16 loses less than 2^-32, so that the average of a constant queue ends within 2^-16
//! of it. Probabilities have 32 bits of fraction.

use super::decay::Decay;
use super::{AqmError, Backlog, Verdict};
use crate::random::splitmix64;
use crate::units::{Length, Nanos, Rate};

/// Largest upper threshold: twice that is still below 2^31.
pub const MAX_THRESHOLD: u32 = (1 << 30) - 1;

/// Slowest average: a weight of 2^-16.
pub const MAX_WEIGHT_SHIFT: u32 = 16;

/// Bits of fraction of the average and of probabilities.
const FRACTION: u32 = 32;
const ONE: u64 = 1 << FRACTION;

/// Longest queue that the average takes notice of.
const MAX_QUEUE: u64 = (1 << 31) - 1;

/// A probability in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probability(u32);

impl Probability {
    /// Returns a probability of `ppm` millionths; refuses more than a million.
    pub const fn from_ppm(ppm: u32) -> Result<Probability, AqmError> {
        if ppm <= 1_000_000 {
            Ok(Probability(ppm))
        } else {
            Err(AqmError::Probability { ppm })
        }
    }

    /// In millionths.
    pub const fn ppm(self) -> u32 {
        self.0
    }

    fn scaled(self) -> u64 {
        (u64::from(self.0) << FRACTION) / 1_000_000
    }
}

/// The unit of a queue's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Packets, each as likely to be dropped as any other.
    Packets,
    /// Bytes; the probability that a packet is dropped is proportional to its length over the mean.
    Bytes,
}

/// The configuration of RED, as given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedParameters {
    /// Whether thresholds and averages count packets or bytes.
    pub measure: Measure,
    /// Average below which nothing is dropped; at least 1.
    pub min: u32,
    /// Average at which `max_p` is reached; above `min`, at most [`MAX_THRESHOLD`].
    pub max: u32,
    /// Probability of a drop just below `max`; above 0.
    pub max_p: Probability,
    /// The weight of a packet in the average is 2^-`weight_shift`: 1 to
    /// [`MAX_WEIGHT_SHIFT`].
    pub weight_shift: u32,
    /// Length of a typical packet.
    pub mean_packet: Length,
    /// From `max` on, let the probability grow to 1 at twice `max`, instead of jumping.
    pub gentle: bool,
    /// Mark instead of dropping, below the average from which all is dropped, where the
    /// packet is ECN-capable.
    pub ecn: bool,
}

impl Default for RedParameters {
    /// 5 and 15 packets of 1000 bytes, a tenth, a weight of 1/512: Floyd's
    /// recommendation; gentle, without ECN.
    fn default() -> Self {
        RedParameters {
            measure: Measure::Packets,
            min: 5,
            max: 15,
            max_p: Probability(100_000),
            weight_shift: 9,
            mean_packet: const { Length::new(1000).unwrap() },
            gentle: true,
            ecn: false,
        }
    }
}

/// RED's parameters, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedConfig(RedParameters);

impl RedConfig {
    /// Refuses thresholds that are zero, in the wrong order or too large, a `max_p` of 0, and
    /// a weight out of range.
    pub fn new(parameters: RedParameters) -> Result<RedConfig, AqmError> {
        let RedParameters {
            min,
            max,
            max_p,
            weight_shift,
            ..
        } = parameters;
        if min == 0 {
            return Err(AqmError::NoMinimum);
        }
        if max <= min {
            return Err(AqmError::Thresholds { min, max });
        }
        if max > MAX_THRESHOLD {
            return Err(AqmError::LargeThreshold { max });
        }
        if max_p.0 == 0 {
            return Err(AqmError::NoProbability);
        }
        if !(1..=MAX_WEIGHT_SHIFT).contains(&weight_shift) {
            return Err(AqmError::Weight {
                weight: weight_shift,
            });
        }
        Ok(RedConfig(parameters))
    }

    /// Returns the parameters it was made of.
    pub const fn parameters(&self) -> &RedParameters {
        &self.0
    }
}

/// A line of probability over the average, from a point upwards.
#[derive(Clone, Copy, Debug)]
struct Slope {
    /// Where it starts, scaled.
    from: u64,
    /// Probability there, scaled.
    base: u64,
    /// Probability per unit of the average, with 63 bits of fraction.
    rise: u64,
}

impl Slope {
    /// From `base` at `from` by `height` over `width` units, both of the latter at most 2^31.
    fn new(from: u32, width: u32, base: u64, height: u64) -> Slope {
        Slope {
            from: u64::from(from) << FRACTION,
            base,
            rise: (height << (63 - FRACTION)) / u64::from(width),
        }
    }

    /// Returns the probability at `average`, which is not below the start.
    #[inline]
    fn at(&self, average: u64) -> u64 {
        let above = u128::from(average - self.from);
        self.base + ((above * u128::from(self.rise)) >> 63) as u64
    }
}

/// RED's state for one queue.
#[derive(Clone, Debug)]
pub struct Red {
    /// Scaled, as are the thresholds.
    average: u64,
    /// Since when the queue is empty, or was found so; [`Nanos::MAX`] while it is not.
    idle_since: Nanos,
    /// Arrivals since the last drop: packets, or bytes.
    since_drop: u64,
    /// Times the probability, the amount that arrives until the next drop: above 0, at most 1, scaled; and times
    /// `unit`.
    gap: u64,
    /// State of the numbers that it draws.
    random: u64,
    low: Slope,
    gentle: Slope,
    /// From here on all is dropped.
    hard: u64,
    decay: Decay,
    weight_shift: u32,
    /// The count of one typical packet in `since_drop`.
    unit: u32,
    measure: Measure,
    ecn: bool,
}

impl Red {
    /// Returns the state of an empty queue that drains at `rate`.
    pub fn new(config: RedConfig, rate: Rate, seed: u64) -> Red {
        let RedParameters {
            measure,
            min,
            max,
            max_p,
            weight_shift,
            mean_packet,
            gentle,
            ecn,
        } = config.0;
        let max_p = max_p.scaled();
        let hard = if gentle { 2 * max } else { max };
        let unit = match measure {
            Measure::Packets => 1,
            Measure::Bytes => mean_packet.get(),
        };
        let mut red = Red {
            average: 0,
            idle_since: Nanos::MAX,
            since_drop: 0,
            gap: 0,
            random: seed,
            low: Slope::new(min, max - min, 0, max_p),
            gentle: Slope::new(max, max, max_p, ONE - max_p),
            hard: u64::from(hard) << FRACTION,
            decay: Decay::new(weight_shift, mean_packet, rate),
            weight_shift,
            unit,
            measure,
            ecn,
        };
        red.draw();
        red
    }

    /// Returns the average queue, in packets or bytes, with 32 bits of fraction.
    pub fn average(&self) -> u64 {
        self.average
    }

    /// A packet of `len` arrives at a queue that holds `backlog` (the paper's Fig. 2). O(1).
    pub fn arriving(&mut self, now: Nanos, backlog: Backlog, len: Length) -> Verdict {
        self.follow(now, backlog);
        if self.average < self.low.from {
            if self.since_drop > 0 {
                self.draw();
            }
            return Verdict::Pass;
        }
        if self.average >= self.hard {
            self.draw();
            return Verdict::Drop;
        }
        let slope = if self.average < self.gentle.from {
            &self.low
        } else {
            &self.gentle
        };
        let probability = slope.at(self.average);
        let arrived = match self.measure {
            Measure::Packets => 1,
            Measure::Bytes => u64::from(len.get()),
        };
        self.since_drop = self.since_drop.saturating_add(arrived);
        if self.since_drop.saturating_mul(probability) < self.gap {
            return Verdict::Pass;
        }
        self.draw();
        Verdict::signal(self.ecn)
    }

    /// The queue is empty from now on.
    pub fn emptied(&mut self, now: Nanos) {
        self.idle_since = now;
    }

    /// The average follows the queue; over an idle time, as if packets had found it empty.
    #[inline]
    fn follow(&mut self, now: Nanos, backlog: Backlog) {
        if backlog.packets == 0 && self.idle_since != Nanos::MAX {
            self.average = self.decay.after(self.average, now - self.idle_since);
        } else {
            let queue = match self.measure {
                Measure::Packets => backlog.packets.into(),
                Measure::Bytes => backlog.bytes,
            };
            // Both below 2^63; the shift rounds down, in either direction.
            let ahead = (queue.min(MAX_QUEUE) << FRACTION) as i64 - self.average as i64;
            self.average = self.average.wrapping_add_signed(ahead >> self.weight_shift);
        }
        // Still empty, should this packet be rejected.
        self.idle_since = match backlog.packets {
            0 => now,
            _ => Nanos::MAX,
        };
    }

    /// Draws the distance to the next drop.
    fn draw(&mut self) {
        self.since_drop = 0;
        let below_2_32 = splitmix64(&mut self.random) >> 32;
        self.gap = (below_2_32 + 1) * u64::from(self.unit);
    }
}
