//! Costs: the load of requests on a server, in units that their user names.

use core::fmt;
use core::hash::Hash;
use core::marker::PhantomData;
use core::num::NonZeroU32;

use crate::units::Charge;

/// Largest cost of one request, in the user's units.
pub const MAX_COST: u32 = 1 << 31;

/// The unit of a cost: tokens, rows, milliseconds. A type of the user's, so that costs of two kinds are never mixed up,
/// and messages name the unit.
///
/// ```
/// use fairlane_core::{Cost, CostError, Unit};
///
/// #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
/// struct Tokens;
///
/// impl Unit for Tokens {
///     const NAME: &'static str = "tokens";
/// }
///
/// let cost = Cost::<Tokens>::try_from(131_072u32)?;
/// assert_eq!(cost.to_string(), "131072 tokens");
/// let error: CostError = Cost::<Tokens>::try_from(0u32).unwrap_err();
/// assert_eq!(error.to_string(), "a cost of 0 tokens: costs are 1 to 2147483648 tokens");
/// # Ok::<(), CostError>(())
/// ```
pub trait Unit: Copy + fmt::Debug + Ord + Hash + Send + Sync + 'static {
    /// As sentences call several of them.
    const NAME: &'static str;
}

/// Units that have no name of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Units;

impl Unit for Units {
    const NAME: &'static str = "units";
}

/// Cost of a request: 1 to [`MAX_COST`] units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost<U: Unit = Units>(NonZeroU32, PhantomData<U>);

impl<U: Unit> Cost<U> {
    /// The smallest cost.
    pub const ONE: Cost<U> = Cost(NonZeroU32::MIN, PhantomData);

    /// The largest cost.
    pub const MAX: Cost<U> = Cost(Self::LARGEST, PhantomData);

    const LARGEST: NonZeroU32 = match NonZeroU32::new(MAX_COST) {
        Some(largest) => largest,
        None => NonZeroU32::MIN,
    };

    /// Creates a cost of `units`, or `None` outside 1 to [`MAX_COST`].
    pub const fn new(units: u32) -> Option<Cost<U>> {
        match NonZeroU32::new(units) {
            Some(cost) if units <= MAX_COST => Some(Cost(cost, PhantomData)),
            _ => None,
        }
    }

    /// Returns the nearest valid cost: for measured values.
    pub fn clamped(units: u64) -> Cost<U> {
        let units = units.min(MAX_COST.into()) as u32;
        Cost::new(units).unwrap_or(Cost::ONE)
    }

    /// Returns the cost in units.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// A number that is no [`Cost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cost of {units} {name}: costs are 1 to {MAX_COST} {name}")]
pub struct CostError {
    units: u64,
    name: &'static str,
}

impl<U: Unit> TryFrom<u64> for Cost<U> {
    type Error = CostError;

    fn try_from(units: u64) -> Result<Cost<U>, CostError> {
        let cost = u32::try_from(units).ok().and_then(Cost::new);
        let name = U::NAME;
        cost.ok_or(CostError { units, name })
    }
}

impl<U: Unit> TryFrom<u32> for Cost<U> {
    type Error = CostError;

    fn try_from(units: u32) -> Result<Cost<U>, CostError> {
        u64::from(units).try_into()
    }
}

impl<U: Unit> TryFrom<usize> for Cost<U> {
    type Error = CostError;

    fn try_from(units: usize) -> Result<Cost<U>, CostError> {
        (units as u64).try_into()
    }
}

impl<U: Unit> fmt::Display for Cost<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, U::NAME)
    }
}

impl<U: Unit> From<Cost<U>> for Charge {
    #[inline]
    fn from(cost: Cost<U>) -> Charge {
        Charge::of_cost(cost.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_hold_exactly_their_range() {
        let cost = |units| Cost::<Units>::new(units).map(Cost::get);
        assert_eq!(
            [0, 1, MAX_COST, MAX_COST + 1, u32::MAX].map(cost),
            [None, Some(1), Some(MAX_COST), None, None]
        );
        let clamped = |units| Cost::<Units>::clamped(units).get();
        assert_eq!(
            [0, 1, 1 << 31, (1 << 32) + 5, u64::MAX].map(clamped),
            [1, 1, MAX_COST, MAX_COST, MAX_COST]
        );
        assert_eq!(
            Cost::<Units>::try_from(u64::MAX),
            Err(CostError {
                units: u64::MAX,
                name: "units"
            })
        );
        assert_eq!(Charge::from(Cost::<Units>::MAX).get(), MAX_COST);
    }
}
