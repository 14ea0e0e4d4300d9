//! Virtual time, as WF2Q+ and its approximations count it.
//!
//! Virtual time counts bytes divided by weight, in fixed point:
//!
//! ```text
//!   63      57 56                40 39                                0
//!  +----------+--------------------+-----------------------------------+
//!  |  slots   |   bytes / weight   |             fraction              |
//!  +----------+--------------------+-----------------------------------+
//!               65,535 bytes at weight 1
//!                                    1 byte at weight 10^6
//! ```
//!
//! Inverse weights are rounded up and the inverse of their sum down, so that the rounded shares add up to at most 1, as
//! the theorems require; with 40 bits of fraction the error of a flow's share is below 10^-6, and of an aggregate's
//! below 10^-5. V itself has 24 more bits of fraction, so that it advances as exactly with 2^24 entities of the largest
//! weight, and it keeps counting beyond the 64 bits of a timestamp.
//!
//! Costs are up to 2^31 where packets have 2^16 bytes: timestamps have 24 bits of fraction then, in the
//! same 64, and V 40 more. Inverse weights keep their 40, and the 16 bits of a charge that timestamps
//! leave out are [carried on](super::scale::Costs): so shares are as exact.

use super::scale::{Packets, Scale};
use crate::scheduler::Share;
use crate::units::{Charge, MAX_AGGREGATE_WEIGHT, MAX_WEIGHT, VirtualTime, Weight};
use core::marker::PhantomData;

/// Bits of fraction of inverse weights, and of the virtual time of packets.
pub(super) const FRACTION: u32 = 40;

const _: () = assert!(
    (1u64 << FRACTION) / (MAX_WEIGHT as u64) > 1_000_000,
    "a flow's weight is represented to 10^-6"
);
const _: () = assert!(
    (1u64 << FRACTION) / (MAX_AGGREGATE_WEIGHT as u64) > 100_000,
    "an aggregate's weight is represented to 10^-5"
);

/// A share as the algorithms use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// 2^[`FRACTION`] / weight, rounded up.
    pub inverse_weight: u64,
    /// Least i so that a slot of 2^i units covers the largest charge (Eq. 4 of the QFQ
    /// report).
    pub slot: i8,
}

impl Terms {
    pub(super) fn of<S: Scale>(share: Share) -> Terms {
        let inverse_weight = (1u64 << FRACTION).div_ceil(share.weight().get().into());
        Terms {
            inverse_weight,
            slot: ceil_log2(S::span(share.max_charge(), inverse_weight)) as i8,
        }
    }
}

/// Returns the amount that a charge of packets adds to the timestamps of an entity.
#[inline]
pub(super) fn span(charge: Charge, inverse_weight: u64) -> u64 {
    u64::from(charge.get()) * inverse_weight
}

/// Least e with 2^e >= x.
pub(super) fn ceil_log2(x: u64) -> u32 {
    u64::BITS - x.saturating_sub(1).leading_zeros()
}

/// Returns the weight that was inverted, exact for every flow (weight^2 < 2^40). For an aggregate it may be less by
/// 10^-5, and is never less than the weight that the inverse stands for; the sum of weights is computed from these
/// values, so that shares never add up to more than 1.
pub(super) fn weight_of(inverse_weight: u64) -> u64 {
    (1u64 << FRACTION).div_ceil(inverse_weight.max(1))
}

/// Returns the weight that is reported to the owner.
pub(super) fn entity_weight(inverse_weight: u64) -> Weight {
    Weight::of_entity(weight_of(inverse_weight) as u32).unwrap_or(Weight::ONE)
}

const _: () = assert!((MAX_WEIGHT as u64) * (MAX_WEIGHT as u64) < 1 << FRACTION);

/// Returns the start of an entity whose inverse weight changes at virtual time `now` and that was to start at `start`.
///
/// Behind V, an entity that becomes heavier stays behind by the same work. Otherwise its arrears would exceed those
/// that V allows for, and others would be delayed.
pub(super) fn start_at_new_weight(
    now: VirtualTime,
    start: VirtualTime,
    old: u64,
    new: u64,
) -> VirtualTime {
    let late = now.distance_from(start);
    if late <= 0 || new >= old {
        return start;
    }
    let late = u128::from(late.unsigned_abs()) * u128::from(new) / u128::from(old);
    now.advanced((late as u64).wrapping_neg())
}

/// Bits of fraction of V: a byte of work is 2^64 / (sum of weights).
const OF_CLOCK: u32 = 64;

/// V, the system virtual time (Eq. 3 of the QFQ report).
#[derive(Clone, Debug, Default)]
pub(super) struct VirtualClock<S = Packets> {
    /// V, with [`FINER`](Self::FINER) bits of fraction more; above 64 bits, times V went round.
    time: u128,
    /// 2^64 / (sum of weights), rounded down.
    inverse_sum: u64,
    weight_sum: u64,
    scale: PhantomData<S>,
}

impl<S: Scale> VirtualClock<S> {
    /// Bits of fraction of timestamps.
    const FRACTION: u32 = FRACTION - S::CARRIED;

    /// Bits of fraction that V has and timestamps have not.
    const FINER: u32 = OF_CLOCK - Self::FRACTION;

    /// Quarter turns of V are distinguishable as far as its 128 bits reach.
    const QUARTERS: u32 = match (Self::FINER + 62 + u32::BITS).checked_sub(u128::BITS) {
        Some(missing) => u32::MAX >> missing,
        None => u32::MAX,
    };

    pub(super) fn starting_at(now: VirtualTime) -> Self {
        VirtualClock {
            time: u128::from(now.units()) << Self::FINER,
            ..Self::default()
        }
    }

    /// V.
    #[inline]
    pub(super) fn now(&self) -> VirtualTime {
        VirtualTime::new((self.time >> Self::FINER) as u64)
    }

    /// Returns the sum of the weights of all entities, as [`weight_of`] gives them.
    pub(super) fn weight_sum(&self) -> u64 {
        self.weight_sum
    }

    pub(super) fn set_weight_sum(&mut self, sum: u64) {
        self.weight_sum = sum;
        // For a sum of 1 this is 2^64 - 1, off by less than any clock can show.
        self.inverse_sum = u64::MAX.checked_div(sum).unwrap_or(0);
    }

    /// Returns how far V advances, in units rounded up, while `bytes` are served.
    pub(super) fn span_of_work(&self, bytes: u32) -> u64 {
        (u64::from(bytes) << Self::FRACTION)
            .checked_div(self.weight_sum)
            .unwrap_or(0)
            + 1
    }

    /// Bytes of work, rounded down, at which V is before the next multiple of 2^`i` units still.
    #[inline]
    pub(super) fn work_within(&self, i: u32) -> u64 {
        // A byte moves V by 2^Self::FRACTION / (sum of weights) units at most.
        let left = !self.now().units() & ((1 << i) - 1);
        ((u128::from(left) * u128::from(self.weight_sum)) >> Self::FRACTION) as u64
    }

    /// The link took `work`.
    #[inline]
    pub(super) fn served(&mut self, work: Charge) {
        self.advance(u128::from(work.get()) * u128::from(self.inverse_sum));
    }

    /// V is at least `start` from now on.
    #[inline]
    pub(super) fn jump_to(&mut self, start: VirtualTime) {
        let ahead = start.distance_from(self.now());
        if ahead > 0 {
            self.advance((ahead as u128) << Self::FINER);
        }
    }

    /// The link, which was idle, becomes busy: V is at least `latest`, the last F of all entities.
    ///
    /// Eq. 3 of the QFQ report does without. Work alone does not move V while the link idles, and an entity that
    /// keeps to its rate would then wait for others because it was served before, when no other entity was
    /// backlogged: by up to L / phi longer than a [guaranteed-rate server](crate::bounds#guaranteed-rate) may take.
    /// Where V went more than half round the circle since `latest`, it may jump without need. No order depends on
    /// that.
    pub(super) fn start_busy_period(&mut self, latest: VirtualTime) {
        self.jump_to(latest);
    }

    #[inline]
    fn advance(&mut self, by: u128) {
        self.time = self.time.wrapping_add(by);
    }

    /// Quarter turns that V made round the circle of virtual time, modulo 2^32, or 2^26 for costs.
    #[inline]
    pub(super) fn quarters(&self) -> u32 {
        (self.time >> (Self::FINER + 62)) as u32
    }

    /// Those that V made since it had made `quarters`, or will have made when it has gone a 16th of a turn further.
    ///
    /// A flow that was served late leaves with an F before V. While this is at most 1, V is less than half a turn after
    /// each F that was at most a 16th of a turn before V then, so that F compares exactly.
    #[inline]
    pub(super) fn quarters_since(&self, quarters: u32) -> u32 {
        self.quarters_of(quarters, Self::QUARTERS)
    }

    #[inline]
    fn quarters_of(&self, quarters: u32, mask: u32) -> u32 {
        let since =
            |time: u128| ((time >> (Self::FINER + 62)) as u32).wrapping_sub(quarters) & mask;
        let further = self.time.wrapping_add(1 << (Self::FINER + 60));
        since(self.time).max(since(further))
    }

    /// Returns a number of quarters from which no timestamp counts any more.
    pub(super) fn quarters_long_ago(&self) -> u32 {
        self.quarters().wrapping_sub(Self::QUARTERS / 2 + 1)
    }

    /// [`quarters`](Self::quarters) modulo 256, for algorithms in which a confused finish time costs a slot.
    #[inline]
    pub(super) fn quarter(&self) -> u8 {
        self.quarters() as u8
    }

    /// Returns a quarter from which no timestamp counts any more.
    #[inline]
    pub(super) fn long_ago(&self) -> u8 {
        self.quarter().wrapping_sub(128)
    }

    /// Returns whether a finish time of `quarter` still compares exactly, as V is less than half a turn after it. So it
    /// may seem every 64 turns, which costs a slot.
    #[inline]
    pub(super) fn remembers(&self, quarter: u8) -> bool {
        self.quarters_of(quarter.into(), u8::MAX.into()) <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Length;

    fn share(weight: u32, max_length: u32) -> Share {
        Share::new(
            Weight::new(weight).unwrap(),
            Length::new(max_length).unwrap(),
        )
    }

    /// So the shares in force add up to at most 1, and each is right to 10^-6.
    #[test]
    fn every_inverse_weight_is_rounded_up_by_less_than_a_unit_and_leads_back() {
        for weight in 1..=MAX_WEIGHT {
            let inverse =
                Terms::of::<Packets>(Share::new(Weight::new(weight).unwrap(), Length::MAX))
                    .inverse_weight;
            let product = inverse * u64::from(weight);
            assert!(product >= 1 << FRACTION && product - (1 << FRACTION) < u64::from(weight));
            assert_eq!(weight_of(inverse), u64::from(weight));
        }
    }

    #[test]
    fn an_aggregate_counts_for_no_less_than_it_is_charged_by() {
        for flows in 1..=8 {
            for weight in [1, 3, 1000, 123_457, 524_287, 999_999, MAX_WEIGHT] {
                let share = share(weight, 1500).times(flows).unwrap();
                let inverse = Terms::of::<Packets>(share).inverse_weight;
                let counted = weight_of(inverse);
                let given = u64::from(weight * flows);
                assert!(counted * inverse >= 1 << FRACTION, "{share:?}");
                assert!(counted <= given && (given - counted) * 100_000 <= given);
            }
        }
    }

    #[test]
    fn the_inverse_of_the_sum_is_rounded_down() {
        for sum in [1, 2, 3, 1000, 1 << 32, (MAX_WEIGHT as u64) << 24] {
            let mut clock = VirtualClock::<Packets>::starting_at(VirtualTime::default());
            clock.set_weight_sum(sum);
            let product = u128::from(clock.inverse_sum) * u128::from(sum);
            assert!(
                product < 1 << 64 && product + u128::from(sum) >= 1 << 64,
                "{sum}"
            );
        }
    }

    #[test]
    fn a_slot_covers_the_longest_packet_and_half_a_slot_does_not() {
        assert_eq!([1, 2, 3, 4, 5].map(ceil_log2), [0, 1, 2, 2, 3]);
        for weight in [1, 2, 3, 7, 1023, 1024, 1025, 65_536, 999_999, MAX_WEIGHT] {
            for max_length in [1, 2, 3, 63, 64, 65, 1500, 32_768, 32_769, 65_535] {
                let share = share(weight, max_length);
                let terms = Terms::of::<Packets>(share);
                let span = span(share.max_charge(), terms.inverse_weight);
                assert!(
                    span <= 1 << terms.slot && span > 1 << (terms.slot - 1),
                    "{share:?}"
                );
            }
        }
        let edges = [
            (1, 1, 40),
            (1, 65_535, 56),
            (1024, 1024, 40),
            (1024, 1025, 41),
        ];
        for (weight, max_length, slot) in edges {
            assert_eq!(Terms::of::<Packets>(share(weight, max_length)).slot, slot);
        }
        let eight = share(1, 65_535).times(8).unwrap();
        assert_eq!(
            Terms::of::<Packets>(eight).slot,
            56,
            "an aggregate lies among its flows"
        );
    }

    #[test]
    fn heavier_and_late_is_late_by_the_same_work_and_else_nothing_moves() {
        for now in [1000, 0] {
            let clock = VirtualClock::<Packets>::starting_at(VirtualTime::new(now));
            let at = |start: u64, old, new| {
                let start = VirtualTime::new(now).advanced(start);
                let moved = start_at_new_weight(clock.now(), start, old, new);
                moved.distance_from(clock.now())
            };
            let late = 600u64.wrapping_neg();
            assert_eq!(at(late, 6, 2), -200);
            assert_eq!(at(late, 7, 2), -171);
            assert_eq!([at(late, 2, 6), at(late, 2, 2)], [-600, -600]);
            assert_eq!([at(0, 6, 2), at(600, 6, 2)], [0, 600]);
        }
    }

    #[test]
    fn a_remembered_finish_compares_as_before_v() {
        let quarter = 1u128 << 62;
        let fractions = [
            0,
            1,
            quarter / 4,
            quarter / 2,
            quarter / 16 * 15,
            quarter - 1,
        ];
        let pairs = fractions.map(|then| fractions.map(|later| (then, later)));
        for (then, later) in pairs.into_iter().flatten() {
            for turned in [0, 1, 2, 3, 4, 254, 255] {
                let Some(by) = (turned * quarter + later).checked_sub(then) else {
                    continue;
                };
                let mut clock = VirtualClock::<Packets>::starting_at(VirtualTime::new(then as u64));
                // A flow that was served late leaves with a finish time before V.
                let finish = clock.now().advanced((1u64 << 60).wrapping_neg());
                let (mark, quarters) = (clock.quarter(), clock.quarters());
                clock.advance(by << VirtualClock::<Packets>::FINER);
                let case = (then, later, turned);
                let before = clock.now().distance_from(finish) > 0;
                for remembered in [clock.remembers(mark), clock.quarters_since(quarters) <= 1] {
                    assert!(before || !remembered, "{case:?}");
                    assert!(remembered || by >= quarter / 4 * 3, "{case:?}");
                }
            }
        }
    }

    #[test]
    fn a_quarter_is_remembered_until_half_a_turn_later() {
        let quarter = 1u64 << 62;
        for start in [0, 3 * quarter, 3 * quarter + 5] {
            let mut clock = VirtualClock::<Packets>::starting_at(VirtualTime::new(start));
            let then = clock.quarter();
            assert!(clock.remembers(then) && !clock.remembers(clock.long_ago()));
            for turned in 1..=255 {
                clock.advance(u128::from(quarter) << VirtualClock::<Packets>::FINER);
                assert_eq!(clock.remembers(then), turned == 1, "{turned} quarters");
            }
        }
    }
}
