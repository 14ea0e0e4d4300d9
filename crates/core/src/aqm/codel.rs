//! Controlled Delay (RFC 8289): a queue that has kept packets longer than a target for a
//! whole interval drops, then drops more often, until it no longer does.
//!
//! The RFC's `deque` is a loop that drops and dequeues again. Here the owner has the loop:
//! [`Codel::leaving`] is asked about each packet that is about to leave, and where it says
//! drop, about the next one at the same time.
//!
//! One departure from the usual implementation: the control law needs interval / sqrt(count), and takes the exact
//! integer root instead of a running estimate of the inverse one. It is needed once a drop, not once a packet.

use super::{AqmError, Backlog, Verdict};
use crate::units::{Length, Nanos};

/// Shortest and longest interval. The square of the longest fits 64 bits.
const INTERVALS: (Nanos, Nanos) = (Nanos::from_micros(10), Nanos::from_millis(4_000));

const _: () = assert!(INTERVALS.1.0 <= u32::MAX as u64);

/// A queue that fell back into standing within this many intervals resumes the drop rate
/// that was needed before (RFC 8289, Section 5.4).
const MEMORY: u64 = 16;

/// The configuration of CoDel, as given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelParameters {
    /// The delay that a standing queue may cause; above 0 and below the interval.
    pub target: Nanos,
    /// The time for which the delay may exceed it: about the longest usual round-trip time; 10 us to 4 s.
    pub interval: Nanos,
    /// A queue with no more than this left behind is never too long (RFC 8289's MAXPACKET).
    pub max_packet: Length,
    /// Mark instead of dropping where the packet is ECN-capable.
    pub ecn: bool,
}

impl Default for CodelParameters {
    /// 5 ms and 100 ms (RFC 8289, Section 4.3 and 4.4), Ethernet frames, without ECN.
    fn default() -> Self {
        CodelParameters {
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            max_packet: const { Length::new(1514).unwrap() },
            ecn: false,
        }
    }
}

/// CoDel's parameters, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    target: u32,
    interval: u32,
    max_packet: Length,
    ecn: bool,
}

impl CodelConfig {
    /// Refuses an interval outside 10 us to 4 s, and a target that is 0 or no less than the
    /// interval.
    pub fn new(parameters: CodelParameters) -> Result<CodelConfig, AqmError> {
        let CodelParameters {
            target,
            interval,
            max_packet,
            ecn,
        } = parameters;
        if interval < INTERVALS.0 || interval > INTERVALS.1 {
            return Err(AqmError::Interval { interval });
        }
        if target == Nanos::ZERO || target >= interval {
            return Err(AqmError::Target { target, interval });
        }
        Ok(CodelConfig {
            target: target.0 as u32,
            interval: interval.0 as u32,
            max_packet,
            ecn,
        })
    }

    /// Returns the parameters it was made of.
    pub fn parameters(&self) -> CodelParameters {
        CodelParameters {
            target: Nanos(self.target.into()),
            interval: self.interval(),
            max_packet: self.max_packet,
            ecn: self.ecn,
        }
    }

    fn interval(&self) -> Nanos {
        Nanos(self.interval.into())
    }

    /// Returns the control law: the next drop after one at `from`, the `count`-th of a row.
    fn next_drop(&self, from: Nanos, count: u32) -> Nanos {
        let interval = u64::from(self.interval);
        from + Nanos((interval * interval / u64::from(count.max(1))).isqrt())
    }
}

impl Default for CodelConfig {
    /// Returns the defaults of [`CodelParameters`].
    fn default() -> Self {
        const DEFAULT: CodelConfig = CodelConfig {
            target: 5_000_000,
            interval: 100_000_000,
            max_packet: Length::new(1514).unwrap(),
            ecn: false,
        };
        DEFAULT
    }
}

/// CoDel's state for one queue.
#[derive(Clone, Debug)]
pub struct Codel {
    config: CodelConfig,
    /// Drops of this row, and of the last one when it began.
    count: u32,
    last_count: u32,
    /// From when on a delay that stays above the target is too long; [`Nanos::MAX`] while
    /// it is not above.
    first_above: Nanos,
    /// When the next drop is due, or the last one was.
    drop_next: Nanos,
    dropping: bool,
    /// A drop was made, and the next one is due by the control law if the delay of the
    /// packet that follows still asks for it.
    dropped: bool,
}

impl Codel {
    /// Returns the state of an empty queue.
    pub fn new(config: CodelConfig) -> Codel {
        Codel {
            config,
            count: 0,
            last_count: 0,
            first_above: Nanos::MAX,
            drop_next: Nanos::ZERO,
            dropping: false,
            dropped: false,
        }
    }

    /// The first packet, which waited for `sojourn`, is about to leave, and `left` stays
    /// (RFC 8289, Sections 5.5 and 5.6). O(1).
    pub fn leaving(&mut self, now: Nanos, sojourn: Nanos, left: Backlog) -> Verdict {
        let may_drop = self.stands(now, sojourn, left);
        if !self.dropping {
            if !may_drop {
                return Verdict::Pass;
            }
            self.begin_dropping(now);
            return Verdict::signal(self.config.ecn);
        }
        if !may_drop {
            self.dropping = false;
            return Verdict::Pass;
        }
        if self.dropped {
            self.dropped = false;
            self.drop_next = self.config.next_drop(self.drop_next, self.count);
        }
        if now < self.drop_next {
            return Verdict::Pass;
        }
        self.count = self.count.saturating_add(1);
        self.dropped = true;
        Verdict::signal(self.config.ecn)
    }

    /// The queue is empty: no delay stands.
    pub fn emptied(&mut self) {
        self.first_above = Nanos::MAX;
    }

    /// Returns whether the delay has been above the target for an interval.
    #[inline]
    fn stands(&mut self, now: Nanos, sojourn: Nanos, left: Backlog) -> bool {
        let CodelConfig {
            target, max_packet, ..
        } = self.config;
        if sojourn.0 < u64::from(target) || left.bytes <= u64::from(max_packet.get()) {
            self.first_above = Nanos::MAX;
            return false;
        }
        if self.first_above == Nanos::MAX {
            self.first_above = now + self.config.interval();
            return false;
        }
        now >= self.first_above
    }

    /// The first drop of a row.
    fn begin_dropping(&mut self, now: Nanos) {
        let drops = self.count.wrapping_sub(self.last_count);
        let recently = now < self.drop_next + Nanos(MEMORY * u64::from(self.config.interval));
        self.count = if drops > 1 && recently { drops } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.config.next_drop(now, self.count);
        self.dropping = true;
        self.dropped = false;
    }
}
