//! Queue management: which packet a queue marks or drops before it is full.
//!
//! Each discipline is a state machine of one queue. It sees times, lengths and the backlog, never a packet and never
//! the scheduler: it answers with a [`Verdict`], and the queue's owner, which has the packet, acts on it and counts.
//! The owner calls [`Aqm::arriving`] before it accepts a packet, [`Aqm::leaving`] when a packet is about to be sent,
//! and [`Aqm::emptied`] when the last one is gone.
//!
//! * Tail drop: nothing beyond the queue's limits, which the owner holds in any case.
//! * [`red`]: Random Early Detection (Floyd and Jacobson 1993), decides on arrival.
//! * [`codel`]: Controlled Delay (RFC 8289), decides on departure.
//!
//! No floating point, no allocation, no loop; a random number only where RED draws its
//! next gap.
//!
//! ```
//! use fairlane_core::aqm::{
//!     Aqm, AqmConfig, AqmError, Backlog, Codel, CodelConfig, CodelParameters, Measure, Probability, Red,
//!     RedConfig, RedParameters, Verdict,
//! };
//! use fairlane_core::{Length, Nanos, Rate};
//!
//! // Nothing waits longer than 5 ms for 100 ms on end.
//! let mut codel = Codel::new(CodelConfig::new(CodelParameters::default())?);
//! let behind = Backlog { packets: 40, bytes: 60_000 };
//! let ask = |ms| codel.leaving(Nanos::from_millis(ms), Nanos::from_millis(20), behind);
//! assert_eq!([0, 50, 101].map(ask), [Verdict::Pass, Verdict::Pass, Verdict::Drop]);
//!
//! // An average above 30,000 bytes drops every packet.
//! let parameters = RedParameters {
//!     measure: Measure::Bytes,
//!     min: 10_000,
//!     max: 30_000,
//!     max_p: Probability::from_ppm(20_000)?,
//!     weight_shift: 1,
//!     gentle: false,
//!     ..RedParameters::default()
//! };
//! let config = RedConfig::new(parameters)?;
//! let (len, full) = (Length::MAX, Backlog { packets: 400, bytes: 600_000 });
//! let mut red = Red::new(config, "10mbit".parse::<Rate>()?, 7);
//! let last = (0..9).map(|_| red.arriving(Nanos::ZERO, full, len)).last();
//! assert_eq!(last, Some(Verdict::Drop));
//! let no_minimum = RedConfig::new(RedParameters { min: 0, ..parameters });
//! assert_eq!(no_minimum, Err(AqmError::NoMinimum));
//!
//! // Whichever it is.
//! let mut any = Aqm::new(&AqmConfig::Red(config), Rate::MAX, 7);
//! assert_eq!(any.arriving(Nanos::ZERO, Backlog::default(), len), Verdict::Pass);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod codel;
mod decay;
pub mod red;

pub use codel::{Codel, CodelConfig, CodelParameters};
pub use red::{Measure, Probability, Red, RedConfig, RedParameters};

use crate::units::{Length, Nanos, Rate};
use alloc::boxed::Box;

/// The decision of queue management about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Nothing against it.
    Pass,
    /// Mark it "congestion experienced" if it is ECN-capable, else drop it: the owner asks
    /// the packet.
    Mark,
    /// Drop it.
    Drop,
}

impl Verdict {
    /// Returns how a queue signals congestion.
    const fn signal(ecn: bool) -> Verdict {
        if ecn { Verdict::Mark } else { Verdict::Drop }
    }
}

/// A queue without the packet in question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets in it.
    pub packets: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// Why there is no such queue management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AqmError {
    /// RED starts at an average of nothing.
    #[error("RED's lower threshold must be at least 1, it is 0")]
    NoMinimum,
    /// RED's thresholds are equal or in the wrong order.
    #[error("RED's upper threshold of {max} must lie above the lower one of {min}")]
    Thresholds {
        /// The lower threshold.
        min: u32,
        /// The upper threshold.
        max: u32,
    },
    /// Twice RED's upper threshold is more than a queue can hold.
    #[error(
        "RED's upper threshold of {max} must be at most {}",
        red::MAX_THRESHOLD
    )]
    LargeThreshold {
        /// The upper threshold.
        max: u32,
    },
    /// RED would never drop.
    #[error("RED's max-p must be above 0, or it never drops below the upper threshold")]
    NoProbability,
    /// Not a probability.
    #[error("a probability lies between 0 and 1, not at {ppm} millionths")]
    Probability {
        /// In millionths.
        ppm: u32,
    },
    /// RED's average would follow the queue at once, or hardly at all.
    #[error(
        "RED's weight is 1/2^n with n from 1 to {}, not {weight}",
        red::MAX_WEIGHT_SHIFT
    )]
    Weight {
        /// The exponent asked for.
        weight: u32,
    },
    /// CoDel's interval is out of range.
    #[error("CoDel's interval must be between 10us and 4s, not {}ns", interval.0)]
    Interval {
        /// The interval asked for.
        interval: Nanos,
    },
    /// CoDel's target is zero, or no less than the interval.
    #[error(
        "CoDel's target of {}ns must be above 0 and below its interval of {}ns",
        target.0, interval.0
    )]
    Target {
        /// The target asked for.
        target: Nanos,
        /// The interval.
        interval: Nanos,
    },
}

/// The queue management of a class, validated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AqmConfig {
    /// None but the limits of the queue.
    #[default]
    TailDrop,
    /// Random Early Detection.
    Red(RedConfig),
    /// Controlled Delay.
    Codel(CodelConfig),
}

/// The queue management of one queue: 48 bytes; RED's own state is boxed.
#[derive(Clone, Debug)]
pub struct Aqm(State);

#[derive(Clone, Debug)]
enum State {
    TailDrop,
    Red(Box<Red>),
    Codel(Codel),
}

const _: () = assert!(size_of::<Aqm>() <= 48);

impl Aqm {
    /// Creates the management of an empty queue that drains at `rate`, from which RED computes the length of an idle
    /// time. Queues with different seeds drop independently.
    pub fn new(config: &AqmConfig, rate: Rate, seed: u64) -> Aqm {
        Aqm(match config {
            AqmConfig::TailDrop => State::TailDrop,
            AqmConfig::Red(red) => State::Red(Box::new(Red::new(*red, rate, seed))),
            AqmConfig::Codel(codel) => State::Codel(Codel::new(*codel)),
        })
    }

    /// A packet of `len` arrives at a queue that holds `backlog` without it. O(1).
    #[inline]
    pub fn arriving(&mut self, now: Nanos, backlog: Backlog, len: Length) -> Verdict {
        match &mut self.0 {
            State::Red(red) => red.arriving(now, backlog, len),
            State::TailDrop | State::Codel(_) => Verdict::Pass,
        }
    }

    /// The first packet, which waited for `sojourn`, is about to leave and leaves `left`
    /// behind. Where it is dropped, the next one is asked about in turn. O(1).
    #[inline]
    pub fn leaving(&mut self, now: Nanos, sojourn: Nanos, left: Backlog) -> Verdict {
        match &mut self.0 {
            State::Codel(codel) => codel.leaving(now, sojourn, left),
            State::TailDrop | State::Red(_) => Verdict::Pass,
        }
    }

    /// The last packet is gone, sent or dropped or flushed. O(1).
    #[inline]
    pub fn emptied(&mut self, now: Nanos) {
        match &mut self.0 {
            State::Red(red) => red.emptied(now),
            State::Codel(codel) => codel.emptied(),
            State::TailDrop => {}
        }
    }
}
