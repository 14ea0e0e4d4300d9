//! The recent use of a class: CBQ's estimator.
//!
//! After each packet, the time since the class's last one is compared with the time in which a class that keeps to its
//! rate would send it. The difference, *idle*, is positive for a class below its rate; its exponentially weighted
//! average is *avgidle*, and a class whose avgidle is not positive is *overlimit* until enough time has passed that its
//! next packet brings avgidle back to zero:
//!
//! ```text
//! idle    = end of this packet - end of the last one - length / rate of the class
//! avgidle = g avgidle + (1 - g) idle                           g = 31/32
//! undertime = now + length / rate + g / (1 - g) * -avgidle     where avgidle <= 0
//! ```
//!
//! *maxidle* bounds the credit of a class that was silent, so that it sends at most
//! `max_burst` packets back to back; *minidle* bounds the debt of one that borrowed, to one of
//! its longest packets. A class that is suspended stays so for *offtime* instead of the time of
//! its last packet, and may then send `min_burst` packets.
//!
//! (S. Floyd, V. Jacobson: Link-sharing and Resource Management Models for Packet
//! Networks, IEEE/ACM Transactions on Networking 3(4), 1995, Appendix A; K. Cho's ALTQ, 1998.)
//!
//! Where ALTQ counts microseconds in 32 bits, and therefore takes a class that was idle for two seconds for one that
//! has always been idle, this counts 2^-32 ns in 128 bits: packets of any length at any rate, for 584 years, with no
//! case apart.
//!
//! A second difference: the average forgets a thirty-second part of credit or debt with each packet, which takes a
//! class off its rate, by a percent or two, wherever avgidle is not zero in the mean. So the part that it forgets
//! within one longest packet of zero is recorded, and added to avgidle for the decision whether a class is overlimit.
//! The credit of a silence and the debt of a borrower are still forgotten. ALTQ's offtime, too, keeps avgidle above
//! zero, for the sake of a coarse timer; here a class resumes when avgidle is above zero by half of the cost of its
//! burst less one packet, and stops as far below.

use crate::units::{Length, Nanos, Rate};
use core::ops::{Add, Sub};

/// g = 1 - 2^-GAIN weighs the past in the average.
const GAIN: u32 = 5;

/// Bits of fraction of a nanosecond.
const FRACTION: u32 = 32;

/// A time, or a difference of times, in 2^-32 ns. Times are below 2^97, and averages and their increments below 2^90,
/// so that no sum of a few overflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fine(i128);

impl Fine {
    pub(super) const ZERO: Fine = Fine(0);

    /// Longer ago than any class needs to be taken for silent.
    const LONG_AGO: Fine = Fine(-(1 << 100));

    /// Returns the first nanosecond that is not before.
    pub(super) fn ceil(self) -> Nanos {
        let rounded = (self.0 + ((1 << FRACTION) - 1)) >> FRACTION;
        Nanos(u64::try_from(rounded.max(0)).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Fine {
    fn from(time: Nanos) -> Fine {
        Fine(i128::from(time.0) << FRACTION)
    }
}

impl Add for Fine {
    type Output = Fine;
    fn add(self, other: Fine) -> Fine {
        Fine(self.0 + other.0)
    }
}

impl Sub for Fine {
    type Output = Fine;
    fn sub(self, other: Fine) -> Fine {
        Fine(self.0 - other.0)
    }
}

/// The time of a byte at a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(u64);

impl Pace {
    pub(super) fn new(rate: Rate) -> Pace {
        // At most 2^55, at 1 kbit/s.
        Pace(((8_000_000_000u128 << FRACTION) / u128::from(rate.bps())) as u64)
    }

    /// Returns the time of a packet.
    pub(super) fn of(self, len: Length) -> Fine {
        Fine(i128::from(self.0) * i128::from(len.get()))
    }
}

/// The number of packets a class may send back to back: after a silence, and after a suspension. In packets of
/// [`Bursts::packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// After a silence: 1 to [`Bursts::MOST`].
    pub max: u32,
    /// After it was suspended: 1 to `max`.
    pub min: u32,
    /// Length of a typical packet.
    pub packet: Length,
}

impl Bursts {
    /// Largest burst.
    pub const MOST: u32 = 256;
}

impl Default for Bursts {
    /// 16 and 2, as ALTQ has them, of 1500 bytes.
    fn default() -> Self {
        Bursts {
            max: 16,
            min: 2,
            packet: const { Length::new(1500).unwrap() },
        }
    }
}

/// (1 - g^n) / g^n, with 40 bits of fraction: below 2^52 for the largest burst.
fn credit(n: u32) -> i128 {
    // 1 / g^n, compounded; each step loses at most 2^-40.
    let mut inverse: i128 = 1 << 40;
    for _ in 0..n {
        inverse = (inverse << GAIN) / ((1 << GAIN) - 1);
    }
    inverse - (1 << 40)
}

/// The estimator of one class.
#[derive(Clone, Debug)]
pub(super) struct Estimator {
    pace: Pace,
    /// Times 2^GAIN, as are its bounds, so that the average loses nothing.
    avgidle: Fine,
    maxidle: Fine,
    minidle: Fine,
    link: Pace,
    min_burst: u32,
    /// When its last packet ended, as estimated.
    last: Fine,
    /// The part that the average forgot and that was not made up for: credit, or if below zero debt.
    forgotten: Fine,
    last_length: Option<Length>,
    /// The time until which it is overlimit, apart from a suspension.
    undertime: Option<Fine>,
    /// The amount by which a suspension is longer.
    suspended: Fine,
}

impl Estimator {
    /// Creates a class of `rate` that was silent so far, on a link of `link`.
    pub(super) fn new(rate: Rate, link: Rate, longest: Length, bursts: Bursts) -> Estimator {
        let pace = Pace::new(rate);
        let (typical, on_link) = (
            pace.of(bursts.packet).0,
            Pace::new(link).of(bursts.packet).0,
        );
        // max_burst packets at the link's rate use the credit up: (1/f - 1) (1 - g^n) / g^n
        // packet times of the link. (Less for f near 1 would never let a class be
        // underlimit.)
        let burst = ((typical - on_link).max(0) * credit(bursts.max)) >> 40;
        // And a burst after a suspension has room, of the longest packets, too.
        let longest_cost = (pace.of(longest) - Pace::new(link).of(longest)).0.max(0);
        let maxidle =
            (burst.max(on_link >> GAIN) << GAIN).max(longest_cost * i128::from(bursts.min) / 2);
        Estimator {
            pace,
            avgidle: Fine(maxidle),
            maxidle: Fine(maxidle),
            minidle: Fine(-(pace.of(longest).0 << GAIN)),
            link: Pace::new(link),
            min_burst: bursts.min,
            last: Fine::LONG_AGO,
            forgotten: Fine::ZERO,
            last_length: None,
            undertime: None,
            suspended: Fine::ZERO,
        }
    }

    /// Sets another rate or other bursts; the recent use stays.
    pub(super) fn change(&mut self, rate: Rate, link: Rate, longest: Length, bursts: Bursts) {
        let new = Estimator::new(rate, link, longest, bursts);
        *self = Estimator {
            avgidle: self.avgidle.clamp(new.minidle, new.maxidle),
            last: self.last,
            forgotten: self.forgotten,
            last_length: self.last_length,
            undertime: self.undertime,
            suspended: self.suspended,
            ..new
        };
    }

    /// Records a packet of the class, or of one below it, that is dequeued at `now` and will have left the link at
    /// `end`.
    pub(super) fn sent(&mut self, now: Nanos, end: Fine, len: Length) {
        let packet = self.pace.of(len);
        let idle = end - self.last - packet;
        let before = self.avgidle.0;
        let forgets = before >> GAIN;
        let avgidle = Fine(self.avgidle.0 + idle.0 - forgets);
        self.avgidle = avgidle.clamp(self.minidle, self.maxidle);
        let most = -self.minidle.0 >> GAIN;
        if before.abs() <= most {
            self.forgotten = Fine((self.forgotten.0 + forgets).clamp(-most, most));
        }
        let balance = self.avgidle + self.forgotten;
        self.undertime = if balance <= Fine::ZERO {
            let debt = -balance.0;
            Some(Fine::from(now) + packet + Fine(debt - (debt >> GAIN)))
        } else {
            None
        };
        self.suspended = Fine::ZERO;
        self.last = end;
        self.last_length = Some(len);
    }

    /// Until when the class is overlimit, if it is or was.
    fn until(&self) -> Option<Fine> {
        Some(self.undertime? + self.suspended)
    }

    /// Returns whether the class is within its rate.
    pub(super) fn is_under_limit(&self, now: Nanos) -> bool {
        self.until().is_none_or(|until| until <= Fine::from(now))
    }

    /// From when on the class is within its rate, if it was overlimit.
    pub(super) fn under_limit_at(&self) -> Option<Nanos> {
        self.until().map(Fine::ceil)
    }

    /// Returns whether the class's debt is the largest that is ever recorded.
    pub(super) fn is_deep_in_debt(&self) -> bool {
        self.avgidle == self.minidle
    }

    /// Returns how long a class is suspended whose last packet is that of `borrower`: offtime.
    pub(super) fn offtime(&self, borrower: &Estimator) -> Fine {
        let Some(len) = borrower.last_length else {
            return Fine::ZERO;
        };
        let packet = self.pace.of(len);
        let cost = (packet - self.link.of(len)).0.max(0);
        packet + Fine(cost * i128::from(self.min_burst - 1) / 2)
    }

    /// Nothing that it sent before `now` counts against it any more.
    pub(super) fn forgive(&mut self, now: Nanos) {
        self.avgidle = self.avgidle.max(Fine::ZERO);
        self.forgotten = self.forgotten.max(Fine::ZERO);
        self.last = self.last.min(now.into());
        self.undertime = None;
        self.suspended = Fine::ZERO;
    }

    /// Suspends an overlimit class: for an offtime instead of the time of its last packet, if
    /// that is longer.
    pub(super) fn suspend(&mut self, offtime: Fine) {
        let packet = self.last_length.map_or(Fine::ZERO, |len| self.pace.of(len));
        self.suspended = self.suspended.max(offtime - packet);
    }
}
