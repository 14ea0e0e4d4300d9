//! Time and work in integers that no simulation rounds twice.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use fairlane_core::{Length, Nanos};

/// Picoseconds in a second; also the parts of a bit that [`Work`] counts.
pub const PICOS_PER_SECOND: u64 = 1_000_000_000_000;

/// A point in simulated time, or a span of it, in picoseconds.
///
/// A nanosecond is not enough: one byte on a link of 1 Tbit/s takes 8 ps. The width
/// holds every [`Nanos`], so the time stamps of any capture fit. Spans saturate at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u128);

impl Picos {
    /// The origin.
    pub const ZERO: Picos = Picos(0);
    /// A time that is never reached.
    pub const MAX: Picos = Picos(u128::MAX);

    /// Returns a span of whole nanoseconds.
    pub const fn from_nanos(ns: u64) -> Picos {
        Picos(ns as u128 * 1_000)
    }

    /// Returns a span of whole microseconds.
    pub const fn from_micros(us: u64) -> Picos {
        Picos(us as u128 * 1_000_000)
    }

    /// Returns a span of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Picos {
        Picos(ms as u128 * 1_000_000_000)
    }

    /// Returns a span of whole seconds.
    pub const fn from_secs(s: u64) -> Picos {
        Picos(s as u128 * PICOS_PER_SECOND as u128)
    }

    /// Returns a span of `seconds`, to the nearest picosecond that an `f64` represents; zero for a
    /// negative number or NaN.
    pub fn from_secs_f64(seconds: f64) -> Picos {
        Picos((seconds * PICOS_PER_SECOND as f64).round() as u128)
    }

    /// In seconds, rounded.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / PICOS_PER_SECOND as f64
    }

    /// In nanoseconds, rounded down; saturates at [`Nanos::MAX`].
    #[inline]
    pub fn to_nanos(self) -> Nanos {
        match u64::try_from(self.0) {
            Ok(picos) => Nanos(picos / 1_000),
            // From 213 days on, as where times count from 1970.
            Err(_) => self.late_to_nanos(),
        }
    }

    fn late_to_nanos(self) -> Nanos {
        if self.0 >= 1_000 << 64 {
            return Nanos::MAX;
        }
        // By 1000 as by 8 and 125, of which the second is done in two parts of 64 bits: a
        // division of 128 bits costs ten of those.
        let eighths = self.0 >> 3;
        let (high, low) = ((eighths >> 32) as u64, eighths as u64 & 0xffff_ffff);
        Nanos(((high / 125) << 32) + ((high % 125) << 32 | low) / 125)
    }

    /// Returns the span from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Picos) -> Picos {
        Picos(self.0.saturating_sub(earlier.0))
    }
}

impl From<Nanos> for Picos {
    fn from(time: Nanos) -> Picos {
        Picos::from_nanos(time.0)
    }
}

impl Add for Picos {
    type Output = Picos;
    fn add(self, span: Picos) -> Picos {
        Picos(self.0.saturating_add(span.0))
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, span: Picos) {
        *self = *self + span;
    }
}

impl Sub for Picos {
    type Output = Picos;
    fn sub(self, span: Picos) -> Picos {
        self.since(span)
    }
}

impl fmt::Display for Picos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ps", self.0)
    }
}

/// Work of a link, or service of a flow, in 10^-12 bit.
///
/// In this unit the work after a whole number of picoseconds at any whole rate is a
/// whole number, and so is the work after any packet: `W(t)` is exact at both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work(pub u128);

impl Work {
    /// None.
    pub const ZERO: Work = Work(0);

    /// Returns the work of `bits` bits.
    #[doc(hidden)]
    pub const fn from_bits(bits: u128) -> Work {
        Work(bits * PICOS_PER_SECOND as u128)
    }

    /// Returns the work of `bytes` bytes.
    pub const fn from_bytes(bytes: u64) -> Work {
        Work::from_bits(bytes as u128 * 8)
    }

    /// Returns a packet of this length.
    pub const fn of(len: Length) -> Work {
        Work::from_bytes(len.get() as u64)
    }

    /// In 2^-64 bytes, rounded up.
    pub(crate) fn in_fractions_of_bytes(self) -> u128 {
        let whole = self.0 / Work::from_bytes(1).0;
        let rest = self.0 % Work::from_bytes(1).0;
        (whole << 64) + (rest << 64).div_ceil(Work::from_bytes(1).0)
    }

    /// In bits, rounded.
    #[doc(hidden)]
    pub fn as_bits_f64(self) -> f64 {
        self.0 as f64 / PICOS_PER_SECOND as f64
    }

    /// In bytes, rounded.
    pub fn as_bytes_f64(self) -> f64 {
        self.as_bits_f64() / 8.0
    }
}

impl Add for Work {
    type Output = Work;
    fn add(self, more: Work) -> Work {
        Work(self.0 + more.0)
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Work) {
        self.0 += more.0;
    }
}

impl Sub for Work {
    type Output = Work;
    /// Zero where less would be left than none.
    fn sub(self, less: Work) -> Work {
        Work(self.0.saturating_sub(less.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_round_down_and_saturate() {
        let most = u128::from(u64::MAX) * 1_000;
        for bits in 0..80 {
            for picos in [(1u128 << bits) - 1, 1 << bits, (1 << bits) + 999] {
                let expected = u64::try_from(picos / 1_000).unwrap_or(u64::MAX);
                assert_eq!(Picos(picos).to_nanos(), Nanos(expected), "{picos}");
            }
        }
        assert_eq!(Picos(most - 1).to_nanos(), Nanos(u64::MAX - 1));
        for picos in [most, most + 999, most + 1_000, u128::MAX] {
            assert_eq!(Picos(picos).to_nanos(), Nanos::MAX);
        }
    }
}
