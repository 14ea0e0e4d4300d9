//! How large the charges are that an algorithm's numbers have room for.

use super::clock::{self, FRACTION};
use crate::cost::MAX_COST;
use crate::units::{Charge, MAX_LENGTH, VirtualTime};
use core::fmt::Debug;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// The kind of charge that an algorithm is built for: [`Packets`] or [`Costs`].
///
/// ```
/// use fairlane_core::sched::{Costs, Packets, Qfq, Scale};
///
/// /// The most that one packet, or one request, may be charged.
/// fn largest<S: Scale>(_algorithm: &Qfq<S>) -> u32 {
///     S::LARGEST
/// }
///
/// let packets: Qfq<Packets> = Qfq::new();
/// let requests: Qfq<Costs> = Qfq::for_costs();
/// assert_eq!((largest(&packets), largest(&requests)), (65_535, 1 << 31));
/// ```
pub trait Scale: Arithmetic + Clone + Copy + Debug + Default + Send + Sync + 'static {
    /// The largest charge of one flow.
    const LARGEST: u32;
}

/// Packets of up to [`MAX_LENGTH`] bytes: numbers of 64 bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packets;

impl Scale for Packets {
    const LARGEST: u32 = MAX_LENGTH;
}

/// Requests of a cost up to [`MAX_COST`].
///
/// Timestamps are coarser than for packets: whole multiples of 2^-24 units of cost at weight 1. An entity carries the
/// remainder to its next charge, so that shares are right to 10^-6 as they are for packets; the resulting error at any
/// time is at most a 16th of one unit of cost, at weight 10^6. Deficits have 128 bits. The state of an entity exceeds
/// the 24 bytes that it has for packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs;

impl Scale for Costs {
    const LARGEST: u32 = MAX_COST;
}

/// The arithmetic of a [`Scale`].
pub trait Arithmetic {
    /// Bits of the product of a charge and an inverse weight that timestamps leave out, and entities
    /// carry on.
    const CARRIED: u32;

    /// Those bits.
    type Carry: Copy + Debug + Default + Send + Sync;

    /// Returns the most that a charge adds to the timestamps of an entity: rounded up.
    fn span(charge: Charge, inverse_weight: u64) -> u64;

    /// Returns the timestamp after `start` by a charge, and the fraction carried over.
    fn after(
        start: VirtualTime,
        carry: Self::Carry,
        charge: Charge,
        inverse_weight: u64,
    ) -> (VirtualTime, Self::Carry);

    /// Deficits of DRR: units of 2^-20 bytes.
    type Deficit: Copy
        + Debug
        + Default
        + Ord
        + From<i64>
        + Add<Output = Self::Deficit>
        + Sub<Output = Self::Deficit>
        + AddAssign
        + SubAssign
        + Send
        + Sync;

    /// Returns the quantum of a weight, rounded down: from the precomputed reference ratio, `scaled` and `shift`, or
    /// from the reference's charge and weight.
    fn quantum(scaled: u64, shift: u32, reference: [u32; 2], weight: u32) -> Self::Deficit;

    /// Returns the part of a deficit, in whole bytes, that may be spent without a call of the algorithm.
    fn whole(deficit: Self::Deficit) -> i64;
}

impl Arithmetic for Packets {
    const CARRIED: u32 = 0;
    type Carry = ();
    type Deficit = i64;

    #[inline(always)]
    fn span(charge: Charge, inverse_weight: u64) -> u64 {
        clock::span(charge, inverse_weight)
    }

    #[inline(always)]
    fn after(start: VirtualTime, (): (), charge: Charge, inverse_weight: u64) -> (VirtualTime, ()) {
        (start.advanced(clock::span(charge, inverse_weight)), ())
    }

    #[inline]
    fn quantum(scaled: u64, shift: u32, _: [u32; 2], weight: u32) -> i64 {
        let product = u128::from(weight) * u128::from(scaled);
        (product >> (shift & 63)) as i64
    }

    #[inline]
    fn whole(deficit: i64) -> i64 {
        deficit >> super::drr::FRACTION
    }
}

impl Arithmetic for Costs {
    const CARRIED: u32 = 16;
    type Carry = u16;
    type Deficit = i128;

    #[inline]
    fn span(charge: Charge, inverse_weight: u64) -> u64 {
        product(charge, inverse_weight).div_ceil(1 << Self::CARRIED) as u64
    }

    #[inline]
    fn after(
        start: VirtualTime,
        carry: u16,
        charge: Charge,
        inverse_weight: u64,
    ) -> (VirtualTime, u16) {
        let exact = product(charge, inverse_weight) + u128::from(carry);
        let units = (exact >> Self::CARRIED) as u64;
        (start.advanced(units), exact as u16)
    }

    /// By a division: `scaled` has too few bits for all ratios. Below 2^74.
    fn quantum(_: u64, _: u32, [charge, of]: [u32; 2], weight: u32) -> i128 {
        let product = u128::from(weight) * u128::from(charge);
        ((product << super::drr::FRACTION) / u128::from(of.max(1))) as i128
    }

    /// It is notified of each request.
    #[inline]
    fn whole(_: i128) -> i64 {
        0
    }
}

/// Up to 2^71.
#[inline]
fn product(charge: Charge, inverse_weight: u64) -> u128 {
    u128::from(charge.get()) * u128::from(inverse_weight)
}

const _: () = assert!(Costs::CARRIED == u16::BITS && Packets::CARRIED == 0);
const _: () = assert!(
    MAX_COST.ilog2() + FRACTION - Costs::CARRIED < MAX_LENGTH.ilog2() + 1 + FRACTION,
    "a cost takes no more of the circle of virtual time than a packet does"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{MAX_AGGREGATE_WEIGHT, MAX_WEIGHT};
    use core::num::NonZeroU32;

    fn charge(units: u32) -> Charge {
        Charge::of_cost(NonZeroU32::new(units).unwrap())
    }

    /// However charges follow each other, the timestamps add up to their sum, and no charge advances by more than its
    /// span.
    #[test]
    fn what_timestamps_leave_out_is_carried_on() {
        for weight in [1, 3, 7, 1000, 999_999, MAX_WEIGHT, MAX_AGGREGATE_WEIGHT] {
            let inverse = (1u64 << FRACTION).div_ceil(weight.into());
            let (mut at, mut carry, mut sum) = (VirtualTime::new(0), 0, 0u128);
            for units in [1, 1, 2, 5, 17, 65_535, 1_000_003, MAX_COST - 1, MAX_COST, 1] {
                let (next, left) = Costs::after(at, carry, charge(units), inverse);
                let span = Costs::span(charge(units), inverse);
                assert!(next.units() - at.units() <= span, "{units} at {weight}");
                (at, carry) = (next, left);
                sum += product(charge(units), inverse);
                assert_eq!((u128::from(at.units()) << 16) + u128::from(carry), sum);
            }
        }
    }
}
