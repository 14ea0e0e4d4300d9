//! What a request costs, and how the order counts it.

use fairlane_core::scheduler::Share;
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{Charge, Length, Weight};
use std::num::NonZeroU32;

/// How much heavier a tenant is in the order than its weight says. An entity is charged for the longest
/// packet times its weight at once and no more: so much larger are costs than packets.
const HEAVIER: u32 = 16;

/// Largest cost of a request, in the user's units: 1,048,560.
pub const MAX_COST: u32 = MAX_LENGTH * HEAVIER;

/// What a request costs: 1 to [`MAX_COST`] of the user's units (tokens, rows, milliseconds).
///
/// ```
/// use fairlane_tower::Cost;
///
/// assert_eq!(Cost::try_from(900u32)?.get(), 900);
/// let error = Cost::try_from(0u32).unwrap_err();
/// assert_eq!(error.to_string(), "a cost of 0 units: costs are 1 to 1048560 units");
/// assert_eq!(Cost::clamped(5_000_000), Cost::MAX);
/// # Ok::<(), fairlane_tower::CostError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(NonZeroU32);

impl Cost {
    /// The smallest cost.
    pub const ONE: Cost = Cost(NonZeroU32::MIN);

    /// The largest cost.
    pub const MAX: Cost = match Cost::new(MAX_COST) {
        Some(largest) => largest,
        None => Cost::ONE,
    };

    /// A cost of `units`, or `None` outside 1 to [`MAX_COST`].
    pub const fn new(units: u32) -> Option<Cost> {
        match NonZeroU32::new(units) {
            Some(cost) if units <= MAX_COST => Some(Cost(cost)),
            _ => None,
        }
    }

    /// The nearest cost that there is: for what was measured.
    pub fn clamped(units: u64) -> Cost {
        Cost::new(units.min(MAX_COST.into()) as u32).unwrap_or(Cost::ONE)
    }

    /// The cost in units.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// A number that is no [`Cost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cost of {0} units: costs are 1 to {MAX_COST} units")]
pub struct CostError(u64);

impl TryFrom<u64> for Cost {
    type Error = CostError;

    fn try_from(units: u64) -> Result<Cost, CostError> {
        let cost = u32::try_from(units).ok().and_then(Cost::new);
        cost.ok_or(CostError(units))
    }
}

impl TryFrom<u32> for Cost {
    type Error = CostError;

    fn try_from(units: u32) -> Result<Cost, CostError> {
        u64::from(units).try_into()
    }
}

impl TryFrom<usize> for Cost {
    type Error = CostError;

    fn try_from(units: usize) -> Result<Cost, CostError> {
        (units as u64).try_into()
    }
}

impl From<Cost> for Charge {
    #[inline]
    fn from(cost: Cost) -> Charge {
        // Every cost is a charge: the assertion below.
        Charge::new(cost.get()).unwrap_or(Length::MAX.into())
    }
}

const _: () = assert!(Charge::new(MAX_COST).is_some());

/// The largest weight of a tenant: 500,000.
const HEAVIEST: u32 = fairlane_core::units::MAX_AGGREGATE_WEIGHT / HEAVIER;

/// What a tenant of this weight is entitled to. More than [`HEAVIEST`] counts for that.
pub(crate) fn share(weight: Weight) -> Share {
    let weight = Weight::new(weight.get().min(HEAVIEST)).and_then(|w| w.times(HEAVIER));
    // The order is exact to the unit: what the largest cost of a tenant is, it need not know.
    Share::new(weight.unwrap_or(Weight::ONE), Length::MAX)
}

/// The weight of the tenant that is entitled to so much in the order.
pub(crate) fn weight_of(share: Weight) -> Weight {
    Weight::new(share.get() / HEAVIER).unwrap_or(Weight::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_and_weights_hold_their_ranges() {
        let cost = |units| Cost::new(units).map(Cost::get);
        assert_eq!(
            [0, 1, MAX_COST, MAX_COST + 1].map(cost),
            [None, Some(1), Some(MAX_COST), None]
        );
        let clamped = |units| Cost::clamped(units).get();
        assert_eq!(
            [0, 1, u64::from(MAX_COST) + 1, (1 << 32) + 5].map(clamped),
            [1, 1, MAX_COST, MAX_COST]
        );
        assert_eq!(Charge::from(Cost::MAX).get(), MAX_COST);
        for (weight, counts) in [
            (1, 1),
            (7, 7),
            (HEAVIEST, HEAVIEST),
            (HEAVIEST + 1, HEAVIEST),
        ] {
            let share = share(Weight::new(weight).unwrap());
            assert_eq!(weight_of(share.weight()).get(), counts);
            assert!(u64::from(MAX_COST) <= u64::from(MAX_LENGTH) * u64::from(share.weight().get()));
        }
    }
}
