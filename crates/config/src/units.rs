//! Times and sizes in the format of the file; rates are parsed by [`Rate`](fairlane_core::Rate).

use std::fmt;
use std::str::FromStr;

use fairlane_core::Nanos;
use fairlane_core::units::{QuantityError, quantity};

/// A span of time: `5ms`, `0.1s`, `10min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Nanos);

/// The reason why a text is not a [`Time`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseTimeError {
    /// There is no number at the start.
    #[error("a time starts with a number, as in 5ms")]
    NoNumber,
    /// There is no unit, or an unknown one.
    #[error("a time needs one of the units ns, us, ms, s, min, h, as in 5ms")]
    NoUnit,
    /// The time is not a whole number of nanoseconds.
    #[error("a time is a whole number of nanoseconds")]
    Fraction,
    /// Beyond 2^64 nanoseconds.
    #[error("a time is at most 500 years")]
    TooLarge,
}

impl FromStr for Time {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Time, ParseTimeError> {
        let units = [
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("min", 60_000_000_000),
            ("h", 3_600_000_000_000),
        ];
        match quantity(text, &units) {
            Ok(nanos) => Ok(Time(Nanos(nanos))),
            Err(QuantityError::NoNumber) => Err(ParseTimeError::NoNumber),
            Err(QuantityError::NoUnit) => Err(ParseTimeError::NoUnit),
            Err(QuantityError::Fraction) => Err(ParseTimeError::Fraction),
            Err(QuantityError::TooLarge) => Err(ParseTimeError::TooLarge),
        }
    }
}

impl fmt::Display for Time {
    /// Formats the time in the largest unit that gives an integer, so that it parses back to the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.0;
        let (divisor, unit) = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
            .into_iter()
            .find(|&(divisor, _)| nanos > 0 && nanos.is_multiple_of(divisor))
            .unwrap_or((1, "ns"));
        write!(f, "{}{unit}", nanos / divisor)
    }
}

/// An amount of data in bytes: `1514b`, `64kb`, `16mb`. As in tc, a kb is 1024 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The reason why a text is not a [`Size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseSizeError {
    /// There is no number at the start.
    #[error("a size starts with a number, as in 64kb")]
    NoNumber,
    /// There is no unit, or an unknown one.
    #[error("a size needs one of the units b, kb, mb, gb (bytes; 1kb is 1024b), as in 64kb")]
    NoUnit,
    /// The size is not a whole number of bytes.
    #[error("a size is a whole number of bytes")]
    Fraction,
    /// Beyond 2^64 bytes.
    #[error("a size is less than 2^64 bytes")]
    TooLarge,
}

impl FromStr for Size {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Size, ParseSizeError> {
        let units = [("b", 1), ("kb", 1 << 10), ("mb", 1 << 20), ("gb", 1 << 30)];
        match quantity(text, &units) {
            Ok(bytes) => Ok(Size(bytes)),
            Err(QuantityError::NoNumber) => Err(ParseSizeError::NoNumber),
            Err(QuantityError::NoUnit) => Err(ParseSizeError::NoUnit),
            Err(QuantityError::Fraction) => Err(ParseSizeError::Fraction),
            Err(QuantityError::TooLarge) => Err(ParseSizeError::TooLarge),
        }
    }
}

impl fmt::Display for Size {
    /// Formats the size in the largest unit that gives an integer, so that it parses back to the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shift, unit) = [(30, "gb"), (20, "mb"), (10, "kb")]
            .into_iter()
            .find(|&(shift, _)| self.0 > 0 && self.0.is_multiple_of(1 << shift))
            .unwrap_or((0, "b"));
        write!(f, "{}{unit}", self.0 >> shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_read_as_tc_writes_them_and_print_what_they_read() {
        for (text, nanos) in [
            ("5ms", 5_000_000),
            ("0.1s", 100_000_000),
            ("1.5 us", 1_500),
            ("7ns", 7),
            ("10min", 600_000_000_000),
            ("18446744073709551615ns", u64::MAX),
        ] {
            let time: Time = text.parse().unwrap();
            assert_eq!(time, Time(Nanos(nanos)), "{text}");
            assert_eq!(time.to_string().parse(), Ok(time), "{text}");
        }
        for (text, bytes) in [
            ("1514b", 1514),
            ("64kb", 65_536),
            ("1.5MB", 3 << 19),
            ("2gb", 2 << 30),
            ("0b", 0),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size, Size(bytes), "{text}");
            assert_eq!(size.to_string().parse(), Ok(size), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_time_or_a_size_says_why() {
        assert_eq!("5".parse::<Time>(), Err(ParseTimeError::NoUnit));
        assert_eq!("ms".parse::<Time>(), Err(ParseTimeError::NoNumber));
        assert_eq!("1.2.3s".parse::<Time>(), Err(ParseTimeError::NoNumber));
        let late = "18446744073709551616ns".parse::<Time>();
        assert_eq!(late, Err(ParseTimeError::TooLarge));
        assert_eq!("5124096h".parse::<Time>(), Err(ParseTimeError::TooLarge));
        assert_eq!("1.5ns".parse::<Time>(), Err(ParseTimeError::Fraction));
        assert_eq!("1.5b".parse::<Size>(), Err(ParseSizeError::Fraction));
        assert_eq!("64".parse::<Size>(), Err(ParseSizeError::NoUnit));
        assert_eq!("64mbit".parse::<Size>(), Err(ParseSizeError::NoUnit));
        assert_eq!("-1kb".parse::<Size>(), Err(ParseSizeError::NoNumber));
        assert_eq!(
            "17179869184gb".parse::<Size>(),
            Err(ParseSizeError::TooLarge)
        );
    }
}
