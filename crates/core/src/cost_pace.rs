//! A pace for requests by cost.

use core::num::NonZeroU32;

use crate::cost::{Cost, Unit};
use crate::units::Nanos;

/// The time at which the next request may be served, for a server that receives a fixed number of units in a fixed
/// time.
///
/// As a [`LeakyBucket`](crate::leaky_bucket::LeakyBucket) for packets, but of any rate from one unit in
/// 584 years on, and for costs up to 2^31. Times are exact: nothing is rounded from one request to
/// the next.
///
/// ```
/// use fairlane_core::{Cost, CostPace, Nanos, Units};
///
/// // Twenty units a minute.
/// let mut pace = CostPace::new(20, Nanos::from_secs(60), Nanos::ZERO).unwrap();
/// pace.charge(Nanos::ZERO, Cost::<Units>::clamped(5));
/// assert_eq!(pace.free_at(), Nanos::from_secs(15));
/// // It turned out to have cost three.
/// pace.correct(-2);
/// assert_eq!(pace.free_at(), Nanos::from_secs(9));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostPace {
    units: NonZeroU32,
    per: Nanos,
    /// When all that was charged is through, in 1 / units of a nanosecond.
    through: u128,
}

impl CostPace {
    /// Creates a pace of `units` every `per`, with nothing charged before `now`; `None` if either is zero.
    pub fn new(units: u32, per: Nanos, now: Nanos) -> Option<CostPace> {
        let units = NonZeroU32::new(units)?;
        (per > Nanos::ZERO).then(|| CostPace {
            units,
            per,
            through: u128::from(now.0) * u128::from(units.get()),
        })
    }

    /// Returns the first nanosecond at which all charges have drained.
    pub fn free_at(&self) -> Nanos {
        let nanos = self.through.div_ceil(u128::from(self.units.get()));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Charges a request of this cost, served at `now`. Idle time earns no credit.
    pub fn charge<U: Unit>(&mut self, now: Nanos, cost: Cost<U>) {
        let now = u128::from(now.0) * u128::from(self.units.get());
        self.through = self.through.max(now);
        self.correct(cost.get().into());
    }

    /// Adds to the charge, or reduces it if negative, after the true cost became known:
    /// [`Correction::by`](crate::Correction::by).
    pub fn correct(&mut self, by: i64) {
        let span = u128::from(by.unsigned_abs()) * u128::from(self.per.0);
        self.through = match by < 0 {
            true => self.through.saturating_sub(span),
            false => self.through.saturating_add(span),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{MAX_COST, Units};

    fn pace(units: u32, per: u64) -> CostPace {
        CostPace::new(units, Nanos(per), Nanos::ZERO).unwrap()
    }

    #[test]
    fn a_pace_is_exact_at_any_rate() {
        for (units, per) in [
            (1, 3),
            (3, 1_000_000_000),
            (7, 3_600_000_000_000),
            (u32::MAX, 1),
        ] {
            let (mut pace, mut sum) = (pace(units, per), 0u128);
            for n in 0..1_000 {
                let cost = 1 + n * 7_919 % 10_007;
                pace.charge(Nanos::ZERO, Cost::<Units>::clamped(cost));
                sum += u128::from(cost);
            }
            let exact = (sum * u128::from(per)).div_ceil(units.into());
            assert_eq!(u128::from(pace.free_at().0), exact, "{units} in {per} ns");
        }
        assert_eq!(CostPace::new(0, Nanos(1), Nanos::ZERO), None);
        assert_eq!(CostPace::new(1, Nanos::ZERO, Nanos::ZERO), None);
    }

    #[test]
    fn idle_time_gives_no_credit() {
        let mut slow = pace(1, 1_000);
        slow.charge(Nanos(5_000), Cost::<Units>::clamped(2));
        assert_eq!(slow.free_at(), Nanos(7_000));
        slow.correct(-1_000);
        slow.charge(Nanos(6_000), Cost::<Units>::clamped(1));
        assert_eq!(
            slow.free_at(),
            Nanos(7_000),
            "a refund is no time before now"
        );
        let mut slowest = pace(1, u64::MAX);
        for _ in 0..3 {
            slowest.charge(Nanos::MAX, Cost::<Units>::clamped(MAX_COST.into()));
        }
        slowest.correct(i64::MAX);
        assert_eq!(slowest.free_at(), Nanos::MAX);
    }
}
