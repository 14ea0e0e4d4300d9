//! Units are types: a length is never added to a time, and virtual time is
//! compared in one place only.
//!
//! ```
//! use fairlane_core::units::{
//!     Charge, Length, LengthError, Nanos, ParseRateError, QuantityError, Rate, RateError,
//!     VirtualTime, Weight, WeightError, quantity,
//! };
//!
//! // What is out of range is refused, in a sentence.
//! let length: Result<Length, LengthError> = 70_000u32.try_into();
//! let error = length.unwrap_err().to_string();
//! assert_eq!(error, "a packet of 70000 bytes: lengths are 1 to 65535 bytes");
//! assert_eq!("0".parse::<Weight>(), Err(WeightError::OutOfRange(0)));
//! assert_eq!("100".parse::<Rate>(), Err(ParseRateError::NoUnit));
//! let rate: Result<Rate, RateError> = 1u64.try_into();
//! assert!(rate.is_err());
//!
//! // Numbers with units of one's own.
//! let units = [("min", 60), ("h", 3600)];
//! assert_eq!(quantity("1.5 h", &units), Ok(5400));
//! assert_eq!(quantity("soon", &units), Err(QuantityError::NoNumber));
//!
//! // Time ends, and virtual time goes round.
//! assert_eq!(Nanos::ZERO - Nanos(1), Nanos::ZERO);
//! assert!(VirtualTime::new(1).is_after(VirtualTime::new(u64::MAX)));
//! assert_eq!(Charge::from(Length::MAX).get(), 65_535);
//! ```

use core::fmt;
use core::iter::Sum;
use core::num::{NonZeroU16, NonZeroU32};
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use core::str::FromStr;

/// Longest packet a flow may declare or send, in bytes.
pub const MAX_LENGTH: u32 = 65_535;

/// Largest weight of one flow.
pub const MAX_WEIGHT: u32 = 1_000_000;

/// Largest weight of an aggregate of flows.
pub const MAX_AGGREGATE_WEIGHT: u32 = 8 * MAX_WEIGHT;

/// Most that an entity of packets is ever charged for at once, in bytes: 16 of the longest
/// packets.
pub const MAX_CHARGE: u32 = 1 << 20;

/// Length of a packet on the link, in bytes, framing overhead included: 1 to [`MAX_LENGTH`]. In two bytes, so that
/// tables store it directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Length(NonZeroU16);

impl Length {
    /// The longest packet there is.
    pub const MAX: Length = Length(NonZeroU16::MAX);

    /// Creates a length of `bytes`, or `None` outside 1 to [`MAX_LENGTH`].
    pub const fn new(bytes: u32) -> Option<Length> {
        match NonZeroU16::new(bytes as u16) {
            Some(len) if bytes <= MAX_LENGTH => Some(Length(len)),
            _ => None,
        }
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get() as u32
    }
}

const _: () = assert!(MAX_LENGTH == u16::MAX as u32);

/// A number that is no [`Length`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of {0} bytes: lengths are 1 to {MAX_LENGTH} bytes")]
pub struct LengthError(u64);

/// ```
/// use fairlane_core::Length;
///
/// assert_eq!(Length::try_from(1500u32)?.get(), 1500);
/// assert_eq!(Length::try_from([0u8; 60].len())?.get(), 60);
/// let error = Length::try_from(65_536usize).unwrap_err();
/// assert_eq!(error.to_string(), "a packet of 65536 bytes: lengths are 1 to 65535 bytes");
/// # Ok::<(), fairlane_core::units::LengthError>(())
/// ```
impl TryFrom<u32> for Length {
    type Error = LengthError;

    #[inline]
    fn try_from(bytes: u32) -> Result<Length, LengthError> {
        Length::new(bytes).ok_or(LengthError(bytes.into()))
    }
}

impl TryFrom<usize> for Length {
    type Error = LengthError;

    #[inline]
    fn try_from(bytes: usize) -> Result<Length, LengthError> {
        let length = u32::try_from(bytes).ok().and_then(Length::new);
        length.ok_or(LengthError(bytes as u64))
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

/// An amount of service that an entity is charged for at once: a packet, or the bytes of an aggregate of flows in its
/// turn, 1 to [`MAX_CHARGE`] bytes; or a request, 1 to [`MAX_COST`](crate::cost::MAX_COST) units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Charge(NonZeroU32);

impl Charge {
    /// For one byte or unit.
    pub(crate) const LEAST: Charge = Charge(NonZeroU32::MIN);

    /// Creates a charge for `bytes`, or `None` outside 1 to [`MAX_CHARGE`].
    pub const fn new(bytes: u32) -> Option<Charge> {
        match NonZeroU32::new(bytes) {
            Some(charge) if bytes <= MAX_CHARGE => Some(Charge(charge)),
            _ => None,
        }
    }

    /// Returns a charge for a cost, which is in range.
    #[inline]
    pub(crate) const fn of_cost(units: NonZeroU32) -> Charge {
        Charge(units)
    }

    /// Returns the charge for a number known to be no more than [`MAX_CHARGE`], or `None` for 0.
    #[inline]
    pub(crate) fn in_range(bytes: u32) -> Option<Charge> {
        debug_assert!(bytes <= MAX_CHARGE, "a charge of {bytes} bytes");
        NonZeroU32::new(bytes).map(Charge)
    }

    /// This and `bytes` more, of which the sum is known to be no more than [`MAX_CHARGE`].
    #[inline]
    pub(crate) fn plus(self, bytes: u32) -> Charge {
        debug_assert!(self.get() + bytes <= MAX_CHARGE, "a charge of {bytes} more");
        Charge::in_range(self.get() + bytes).unwrap_or(self)
    }

    /// Returns the bytes or units charged for.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl From<Length> for Charge {
    #[inline]
    fn from(length: Length) -> Charge {
        Charge(length.0.into())
    }
}

const _: () = assert!(MAX_LENGTH <= MAX_CHARGE);

/// Weight (phi) of an entity: its share of the link is its weight over the sum of all
/// weights. 1 to [`MAX_WEIGHT`] for a flow, and up to [`MAX_AGGREGATE_WEIGHT`] for
/// several flows [together](Weight::times).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(NonZeroU32);

impl Weight {
    /// The smallest weight.
    pub const ONE: Weight = Weight(NonZeroU32::MIN);

    /// Creates a weight, or `None` outside 1 to [`MAX_WEIGHT`].
    pub const fn new(weight: u32) -> Option<Weight> {
        match NonZeroU32::new(weight) {
            Some(w) if weight <= MAX_WEIGHT => Some(Weight(w)),
            _ => None,
        }
    }

    /// Returns the weight of `flows` flows together, or `None` outside 1 to [`MAX_AGGREGATE_WEIGHT`].
    pub const fn times(self, flows: u32) -> Option<Weight> {
        match self.0.get().checked_mul(flows) {
            Some(sum) => Self::of_entity(sum),
            None => None,
        }
    }

    /// Returns the weight of a flow or of an aggregate.
    pub(crate) const fn of_entity(weight: u32) -> Option<Weight> {
        match NonZeroU32::new(weight) {
            Some(w) if weight <= MAX_AGGREGATE_WEIGHT => Some(Weight(w)),
            _ => None,
        }
    }

    /// Returns the weight as a number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The reason why a number is no [`Weight`] of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightError {
    /// A number out of range.
    #[error("a weight of {0}: weights are 1 to {MAX_WEIGHT}")]
    OutOfRange(u32),
    /// A text that is no number of 32 bits.
    #[error("a weight is a whole number from 1 to {MAX_WEIGHT}")]
    NoNumber,
}

/// ```
/// use fairlane_core::Weight;
///
/// assert_eq!(Weight::try_from(4)?, "4".parse()?);
/// let error = Weight::try_from(0).unwrap_err();
/// assert_eq!(error.to_string(), "a weight of 0: weights are 1 to 1000000");
/// assert!("heavy".parse::<Weight>().is_err());
/// # Ok::<(), fairlane_core::units::WeightError>(())
/// ```
impl TryFrom<u32> for Weight {
    type Error = WeightError;

    #[inline]
    fn try_from(weight: u32) -> Result<Weight, WeightError> {
        Weight::new(weight).ok_or(WeightError::OutOfRange(weight))
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Weight, WeightError> {
        let weight: u32 = text.parse().map_err(|_| WeightError::NoNumber)?;
        weight.try_into()
    }
}

/// A point in time, or a span of it, in nanoseconds of the caller's clock.
///
/// Sixty-four bits last 584 years, so arithmetic saturates rather than wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The clock's origin.
    pub const ZERO: Nanos = Nanos(0);
    /// The end of time.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// Returns a span of whole microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// Returns a span of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// Returns a span of whole seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }

    /// Returns the span from `earlier` to `self`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl From<core::time::Duration> for Nanos {
    /// At most [`Nanos::MAX`], which is 584 years.
    #[inline]
    fn from(span: core::time::Duration) -> Self {
        let whole = span.as_secs().saturating_mul(1_000_000_000);
        Nanos(whole.saturating_add(u64::from(span.subsec_nanos())))
    }
}

impl From<Nanos> for core::time::Duration {
    #[inline]
    fn from(span: Nanos) -> Self {
        core::time::Duration::from_nanos(span.0)
    }
}

impl Add for Nanos {
    type Output = Nanos;
    #[inline]
    fn add(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    #[inline]
    fn sub(self, span: Nanos) -> Nanos {
        self.since(span)
    }
}

impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, span: Nanos) {
        *self = *self + span;
    }
}

impl SubAssign for Nanos {
    #[inline]
    fn sub_assign(&mut self, span: Nanos) {
        *self = *self - span;
    }
}

impl Mul<u64> for Nanos {
    type Output = Nanos;
    #[inline]
    fn mul(self, times: u64) -> Nanos {
        Nanos(self.0.saturating_mul(times))
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(spans: I) -> Nanos {
        spans.fold(Nanos::ZERO, Add::add)
    }
}

/// Rate of a link, in bits per second: 1 kbit/s to 1 Tbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// The lowest rate, 1 kbit/s.
    pub const MIN: Rate = Rate(1_000);
    /// The highest rate, 1 Tbit/s.
    pub const MAX: Rate = Rate(1_000_000_000_000);

    /// Returns a rate in bits per second, or `None` outside [`Rate::MIN`] to [`Rate::MAX`].
    pub const fn from_bps(bps: u64) -> Option<Rate> {
        if bps >= Self::MIN.0 && bps <= Self::MAX.0 {
            Some(Rate(bps))
        } else {
            None
        }
    }

    /// Returns the rate in bits per second.
    #[inline]
    pub const fn bps(self) -> u64 {
        self.0
    }
}

/// A number of bits per second that is no [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rate of {0} bit/s: rates are {min} to {max} bit/s", min = Rate::MIN.0, max = Rate::MAX.0)]
pub struct RateError(u64);

/// In bits per second.
///
/// ```
/// use fairlane_core::Rate;
///
/// assert_eq!(Rate::try_from(100_000_000)?, "100mbit".parse()?);
/// assert!(Rate::try_from(10).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<u64> for Rate {
    type Error = RateError;

    #[inline]
    fn try_from(bps: u64) -> Result<Rate, RateError> {
        Rate::from_bps(bps).ok_or(RateError(bps))
    }
}

/// Why a text is not a number with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// No number in front.
    NoNumber,
    /// No unit, or one that is not known.
    NoUnit,
    /// Not a whole number of the smallest unit.
    Fraction,
    /// Beyond 64 bits.
    TooLarge,
}

/// Parses a number followed by one of these units, in any case of letters: returns the number of the smallest unit.
/// Next to each name is its scale, 10^12 at most. O(length of the text).
///
/// # Errors
///
/// Returns an error if there is no number, or none of the units, or if it is no whole number of the smallest unit,
/// since a truncated value would differ from the input. Likewise if it is more than 64 bits hold.
pub fn quantity(text: &str, units: &[(&str, u64)]) -> Result<u64, QuantityError> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(QuantityError::NoNumber);
    }
    let unit = unit.trim();
    let &(_, scale) = units
        .iter()
        .find(|(name, _)| unit.eq_ignore_ascii_case(name))
        .ok_or(QuantityError::NoUnit)?;
    let whole = match whole {
        "" => 0,
        digits => digits.parse::<u64>().map_err(|_| QuantityError::TooLarge)?,
    };
    let whole = whole.checked_mul(scale).ok_or(QuantityError::TooLarge)?;
    // Twelve digits say all that any unit here has.
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 12 {
        return Err(QuantityError::Fraction);
    }
    let (mut part, mut place) = (0u128, 1u128);
    for digit in fraction.bytes() {
        part = part * 10 + u128::from(digit - b'0');
        place *= 10;
    }
    let part = part * u128::from(scale);
    if part % place != 0 {
        return Err(QuantityError::Fraction);
    }
    let part = (part / place) as u64;
    whole.checked_add(part).ok_or(QuantityError::TooLarge)
}

/// Why a text is not a [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseRateError {
    /// No number in front.
    #[error("a rate starts with a number, as in 100mbit")]
    NoNumber,
    /// No unit, or one that is not known.
    #[error("a rate needs one of the units bit, kbit, mbit, gbit, tbit, as in 100mbit")]
    NoUnit,
    /// A part of a bit is left.
    #[error("a rate is a whole number of bits a second")]
    Fraction,
    /// Outside the range of [`Rate`].
    #[error("a rate lies between 1kbit and 1tbit")]
    OutOfRange,
}

impl FromStr for Rate {
    type Err = ParseRateError;

    /// Reads `100mbit`, `2.5gbit`, `64kbit`, `1000bit`: powers of ten, any case.
    fn from_str(text: &str) -> Result<Rate, ParseRateError> {
        let units = [
            ("bit", 1),
            ("kbit", 1_000),
            ("mbit", 1_000_000),
            ("gbit", 1_000_000_000),
            ("tbit", 1_000_000_000_000),
        ];
        match quantity(text, &units) {
            Ok(bps) => Rate::from_bps(bps).ok_or(ParseRateError::OutOfRange),
            Err(QuantityError::NoNumber) => Err(ParseRateError::NoNumber),
            Err(QuantityError::NoUnit) => Err(ParseRateError::NoUnit),
            Err(QuantityError::Fraction) => Err(ParseRateError::Fraction),
            Err(QuantityError::TooLarge) => Err(ParseRateError::OutOfRange),
        }
    }
}

impl fmt::Display for Rate {
    /// The largest unit that leaves a whole number, which parses back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (divisor, unit) = match self.0 {
            bps if bps % 1_000_000_000 == 0 => (1_000_000_000, "gbit"),
            bps if bps % 1_000_000 == 0 => (1_000_000, "mbit"),
            bps if bps % 1_000 == 0 => (1_000, "kbit"),
            _ => (1, "bit"),
        };
        write!(f, "{}{unit}", self.0 / divisor)
    }
}

/// A point on the scheduler's virtual time line, modulo 2^64.
///
/// The order is that of a circle: `a` is after `b` if the shorter way from `b`
/// to `a` leads forward. It is an order only among values less than 2^63 apart,
/// which the algorithms guarantee for every value they compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VirtualTime(u64);

impl VirtualTime {
    /// Returns the time at `units`.
    pub const fn new(units: u64) -> VirtualTime {
        VirtualTime(units)
    }

    /// Returns the position in units, modulo 2^64.
    #[inline]
    pub const fn units(self) -> u64 {
        self.0
    }

    /// Later by `units`, which may be any number modulo 2^64.
    #[inline]
    pub const fn advanced(self, units: u64) -> VirtualTime {
        VirtualTime(self.0.wrapping_add(units))
    }

    /// Signed distance from `other` to `self` in units.
    #[inline]
    pub const fn distance_from(self, other: VirtualTime) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }

    /// Returns whether `self` lies after `other`.
    #[inline]
    pub const fn is_after(self, other: VirtualTime) -> bool {
        self.distance_from(other) > 0
    }

    /// Returns the earlier of the two.
    #[inline]
    pub const fn earlier(self, other: VirtualTime) -> VirtualTime {
        if self.is_after(other) { other } else { self }
    }

    /// Returns the later of the two.
    #[inline]
    pub const fn later(self, other: VirtualTime) -> VirtualTime {
        if self.is_after(other) { self } else { other }
    }

    /// Rounded down to a multiple of 2^`shift`.
    #[inline]
    pub const fn rounded_down(self, shift: u32) -> VirtualTime {
        VirtualTime(self.0 & (u64::MAX << shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn lengths_and_weights_hold_exactly_their_ranges() {
        assert!(Length::new(0).is_none() && Length::new(MAX_LENGTH + 1).is_none());
        assert_eq!(Length::new(1).unwrap().get(), 1);
        assert_eq!(Length::new(MAX_LENGTH), Some(Length::MAX));
        assert!(Weight::new(0).is_none() && Weight::new(MAX_WEIGHT + 1).is_none());
        assert_eq!(Weight::new(MAX_WEIGHT).unwrap().get(), MAX_WEIGHT);
    }

    #[test]
    fn rates_read_as_tc_writes_them_and_print_what_they_read() {
        for (text, bps) in [
            ("100mbit", 100_000_000),
            ("2.5gbit", 2_500_000_000),
            ("64kbit", 64_000),
            ("1000bit", 1_000),
            ("1tbit", 1_000_000_000_000),
            (".5Mbit", 500_000),
            ("0.000000001Tbit", 1_000),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.bps(), bps, "{text}");
            assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate, "{text}");
        }
    }

    #[test]
    fn a_rate_outside_the_range_or_without_a_unit_is_refused() {
        for text in ["100", "100 m", "5mb", "7 bits"] {
            assert_eq!(text.parse::<Rate>(), Err(ParseRateError::NoUnit), "{text}");
        }
        for text in ["", "mbit", ".", "1.2.3mbit", "-5mbit"] {
            assert_eq!(
                text.parse::<Rate>(),
                Err(ParseRateError::NoNumber),
                "{text}"
            );
        }
        // On both sides of a bit.
        for text in [
            "20.000001mbit",
            "20.00000100mbit",
            "1.000000000001tbit",
            "1500.0bit",
        ] {
            assert!(
                !matches!(text.parse::<Rate>(), Err(ParseRateError::Fraction)),
                "{text}"
            );
        }
        assert_eq!("20.000001mbit".parse(), Ok(Rate(20_000_001)));
        for text in [
            "20.0000001mbit",
            "20.0000009mbit",
            "1500.5bit",
            "0.1000000000001tbit",
        ] {
            assert_eq!(
                text.parse::<Rate>(),
                Err(ParseRateError::Fraction),
                "{text}"
            );
        }
        for text in [
            "0mbit",
            "999bit",
            "1.001tbit",
            "99999999999999999999999gbit",
        ] {
            assert_eq!(
                text.parse::<Rate>(),
                Err(ParseRateError::OutOfRange),
                "{text}"
            );
        }
    }

    #[test]
    fn spans_add_up_and_stop_at_the_ends_of_time() {
        let mut span = Nanos::from_secs(2);
        span += Nanos::from_millis(1) * 3;
        span -= Nanos::from_micros(5);
        assert_eq!(span, Nanos(2_002_995_000));
        assert_eq!([span, span].into_iter().sum::<Nanos>(), span * 2);
        span -= Nanos::from_secs(3);
        assert_eq!(span, Nanos::ZERO);
        assert_eq!(Nanos::from_secs(u64::MAX) + Nanos(1), Nanos::MAX);
        assert_eq!(Nanos::MAX * 2, Nanos::MAX);
    }

    #[test]
    fn what_is_no_length_and_no_weight_is_told() {
        assert_eq!(Length::try_from(0usize), Err(LengthError(0)));
        assert_eq!(
            Length::try_from(usize::MAX),
            Err(LengthError(usize::MAX as u64))
        );
        assert_eq!(
            Weight::try_from(MAX_WEIGHT).map(Weight::get),
            Ok(MAX_WEIGHT)
        );
        assert_eq!(
            Weight::try_from(MAX_WEIGHT + 1),
            Err(WeightError::OutOfRange(MAX_WEIGHT + 1))
        );
        for text in ["", "-1", "1.5", "4294967296", " 1"] {
            assert_eq!(text.parse::<Weight>(), Err(WeightError::NoNumber), "{text}");
        }
    }

    #[test]
    fn virtual_time_keeps_its_order_across_the_wrap() {
        let before = VirtualTime::new(u64::MAX - 5);
        let after = before.advanced(10);
        assert!(after.is_after(before) && !before.is_after(after));
        assert!(!before.is_after(before));
        assert_eq!(after.units(), 4);
        assert_eq!(before.earlier(after), before);
        assert_eq!(before.later(after), after);
        assert_eq!(after.distance_from(before), 10);
        assert_eq!(VirtualTime::new(0b1011).rounded_down(2).units(), 0b1000);
    }
}
