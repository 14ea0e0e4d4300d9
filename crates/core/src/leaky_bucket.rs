//! One exact leaky bucket, for whatever keeps to a rate: a link, or the ceiling of a class.

use crate::units::{Length, Nanos, Rate};

/// A leaky bucket, from which the time is known at which everything charged to it has drained at its rate.
///
/// Times are exact: the remainder of a division is carried to the next packet, so that the rate holds to the bit over
/// any time, from 1 kbit/s to 1 Tbit/s.
///
/// ```
/// use fairlane_core::leaky_bucket::{LeakyBucket, Window};
/// use fairlane_core::{Length, Nanos};
///
/// let mut bucket = LeakyBucket::new("8mbit".parse()?, Nanos::ZERO);
/// let len = Length::try_from(1000u32)?;
/// bucket.charge(len);
/// assert_eq!(bucket.empty_by(), Nanos::from_millis(1));
///
/// // Until two milliseconds have come, two packets more may go.
/// let mut window: Window = bucket.open(Nanos::from_millis(2));
/// let mut sent = 0;
/// while window.may_release() {
///     window.charge(len);
///     sent += 1;
/// }
/// bucket.close(window);
/// assert_eq!((sent, bucket.empty_by()), (2, Nanos::from_millis(3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    rate: Rate,
    /// Rounded down.
    empty_at: Nanos,
    /// The part that was rounded off, in 1 / rate of a nanosecond: 0 to rate - 1.
    remainder: u64,
}

impl LeakyBucket {
    /// Creates a bucket that is empty from `at` on.
    pub const fn new(rate: Rate, at: Nanos) -> Self {
        LeakyBucket {
            rate,
            empty_at: at,
            remainder: 0,
        }
    }

    /// Returns the drain rate.
    #[inline]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the nanosecond in which the bucket will be empty, or has been since.
    #[inline]
    pub const fn empty_at(&self) -> Nanos {
        self.empty_at
    }

    /// Returns the first whole nanosecond at which nothing is left in it.
    #[inline]
    pub const fn empty_by(&self) -> Nanos {
        Nanos(self.empty_at.0.saturating_add((self.remainder > 0) as u64))
    }

    /// Makes a bucket that was empty before empty up to `at`: the time between earns no credit.
    #[inline]
    pub const fn restart(&mut self, at: Nanos) {
        self.empty_at = at;
        self.remainder = 0;
    }

    /// A packet is poured in: it flows out when all before it has.
    #[inline]
    pub fn charge(&mut self, len: Length) {
        self.close(Window {
            charged: scaled(len) + self.remainder,
            limit: 0,
        });
    }

    /// Changes the rate from `now` on, also for the content of the bucket at that time.
    pub fn change_rate(&mut self, rate: Rate, now: Nanos) {
        if self.empty_at >= now {
            let time = u128::from((self.empty_at - now).0);
            let left = time * u128::from(self.rate.bps()) + u128::from(self.remainder);
            let bps = u128::from(rate.bps());
            let (span, remainder) = (left / bps, left % bps);
            self.empty_at = now + Nanos(u64::try_from(span).unwrap_or(u64::MAX));
            self.remainder = remainder as u64;
        } else {
            self.remainder = 0;
        }
        self.rate = rate;
    }

    /// Returns the amount that may be charged at `now`, packet by packet without a division: while the bucket is empty
    /// by `now`. The window must be closed again.
    #[inline]
    pub fn open(&self, now: Nanos) -> Window {
        let limit = match now.0.checked_sub(self.empty_at.0) {
            // It is, while the charges from `empty_at` on take less than this: empty_at + (charged + remainder) / rate,
            // rounded down, <= now.
            Some(span) => span.saturating_add(1).saturating_mul(self.rate.bps()),
            None => 0,
        };
        Window {
            charged: self.remainder,
            limit,
        }
    }

    /// Lets the charges made while the window was open drain.
    #[inline]
    pub fn close(&mut self, window: Window) {
        let rate = self.rate.bps();
        self.empty_at += Nanos(window.charged / rate);
        self.remainder = window.charged % rate;
    }
}

/// The amount that a [`LeakyBucket`] lets pass at one time.
#[derive(Debug)]
#[must_use = "a window that is not closed charges nothing"]
pub struct Window {
    /// In billionths of a bit: the charges, and the remainder from before.
    charged: u64,
    limit: u64,
}

impl Window {
    /// Returns whether a packet may be released.
    #[inline]
    pub fn may_release(&self) -> bool {
        self.charged < self.limit
    }

    /// A packet is poured in. At most some 30,000 packets of the longest length fit the numbers of
    /// one window.
    #[inline]
    pub fn charge(&mut self, len: Length) {
        self.charged = self.charged.saturating_add(scaled(len));
    }
}

/// Returns a length in billionths of a bit, of which a link of rate R carries R in a nanosecond. Below 2^50.
#[inline]
fn scaled(len: Length) -> u64 {
    u64::from(len.get()) * 8 * 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(bps: u64) -> LeakyBucket {
        LeakyBucket::new(Rate::from_bps(bps).unwrap(), Nanos::ZERO)
    }

    fn length(bytes: u32) -> Length {
        Length::new(bytes).unwrap()
    }

    #[test]
    fn the_rate_holds_to_the_nanosecond_at_any_rate() {
        for bps in [
            1_000,
            7_777,
            64_000,
            100_000_000,
            69_000_000_000,
            999_999_999_989,
            1_000_000_000_000,
        ] {
            let mut bucket = bucket(bps);
            let mut bits = 0u128;
            for n in 0..10_000u32 {
                let len = length(1 + n * 7 % 65_535);
                bucket.charge(len);
                bits += u128::from(len.get()) * 8;
            }
            let exact = bits * 1_000_000_000 / u128::from(bps);
            assert_eq!(u128::from(bucket.empty_at().0), exact, "{bps} bit/s");
            let up = (bits * 1_000_000_000).div_ceil(u128::from(bps));
            assert_eq!(u128::from(bucket.empty_by().0), up, "{bps} bit/s");
        }
    }

    #[test]
    fn a_window_lets_pass_what_packet_by_packet_may() {
        for bps in [1_000, 64_000, 7_777_777, 1_000_000_000, 1_000_000_000_000] {
            let (mut one, mut many) = (bucket(bps), bucket(bps));
            let mut number = 0;
            for now in (0..400_u64).map(|n| Nanos(n * n * 1_009)) {
                let (mut passed, mut let_pass) = (0, 0);
                let mut window = many.open(now);
                while window.may_release() && let_pass < 50 {
                    window.charge(length(1 + (number + let_pass) * 7 % 65_535));
                    let_pass += 1;
                }
                many.close(window);
                while one.empty_at() <= now && passed < 50 {
                    one.charge(length(1 + (number + passed) * 7 % 65_535));
                    passed += 1;
                }
                assert_eq!(passed, let_pass, "{bps} bit/s at {now:?}");
                assert_eq!(one, many);
                number += passed;
            }
            assert!(number > 0);
        }
    }

    #[test]
    fn another_rate_keeps_what_is_left_in_bytes() {
        let mut bucket = bucket(8_000);
        bucket.charge(length(1_000));
        let now = Nanos::from_millis(250);
        bucket.change_rate(Rate::from_bps(3_000).unwrap(), now);
        // 750 bytes are left: 6000 bits, 2 seconds.
        assert_eq!(bucket.empty_at(), Nanos::from_millis(2_250));
        // A bucket that has long been empty stays unchanged.
        let later = Nanos::from_millis(5_000);
        bucket.change_rate(Rate::from_bps(8_000).unwrap(), later);
        assert_eq!(bucket.empty_at(), Nanos::from_millis(2_250));
        assert_eq!(bucket.rate().bps(), 8_000);
    }
}
