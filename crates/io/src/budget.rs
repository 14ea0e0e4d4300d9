//! How much a device may sit on.

/// The most bytes that a backend may have in flight: *Q*, the transmit queue's share of every delay
/// bound.
///
/// A backend with a budget takes no packet that would bring [`in_flight`](crate::Backend::in_flight)
/// above it. A small budget keeps delays short; a budget below the amount that the device sends
/// between two calls leaves the link idle.
///
/// ```
/// use fairlane_io::{Budget, packet::Options};
///
/// // At most the traffic of a link of 100 Mbit/s in 20 ms may be in the device.
/// let budget = Budget::from_bytes(100_000_000 / 8 / 50);
/// let options = Options { budget, ..Options::default() };
/// assert_eq!(options.budget.as_bytes(), 250_000);
/// assert!(options.budget < Budget::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(u64);

impl Budget {
    /// Returns a budget of `bytes`, counted as in the backend's `in_flight`.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the budget in bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// Returns a budget of `bytes`, or of two packets with this cost if that is more, but not more than this one.
    ///
    /// ```
    /// use fairlane_io::Budget;
    ///
    /// let budget = Budget::from_bytes(100_000);
    /// // A millisecond of 40 Mbit/s, of 1 Mbit/s, and of 1 Gbit/s.
    /// let shortened = [5_000, 125, 125_000].map(|bytes| budget.shortened(bytes, 2_304).as_bytes());
    /// assert_eq!(shortened, [5_000, 4_608, 100_000]);
    /// ```
    #[must_use]
    pub fn shortened(self, bytes: u64, cost: u64) -> Self {
        Self(bytes.max(cost.saturating_mul(2)).min(self.0))
    }

    /// Returns how many of the next packets, with the given costs, fit the budget after `in_flight`
    /// bytes, and the bytes in flight including them. The first packet always fits if nothing is in flight.
    pub(crate) fn room_for(self, in_flight: u64, costs: impl Iterator<Item = u64>) -> (usize, u64) {
        let totals = costs.scan(in_flight, |total, cost| {
            *total = total.saturating_add(cost);
            Some(*total)
        });
        let fits = |&(at, total): &(usize, u64)| total <= self.0 || (at == 0 && in_flight == 0);
        totals
            .enumerate()
            .take_while(fits)
            .fold((0, in_flight), |_, (at, total)| (at + 1, total))
    }
}

/// 256 KiB: more than a batch of 64 frames of 1,514 bytes with the kernel's overhead.
impl Default for Budget {
    fn default() -> Self {
        Self(256 << 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_fit_up_to_the_last_byte_of_the_budget_and_no_further() {
        let budget = Budget::from_bytes(100);
        assert_eq!(budget.room_for(0, [50, 50, 1].into_iter()), (2, 100));
        assert_eq!(budget.room_for(1, [50, 50, 1].into_iter()), (1, 51));
        assert_eq!(budget.room_for(50, [50].into_iter()), (1, 100));
        assert_eq!(budget.room_for(51, [50].into_iter()), (0, 51));
        assert_eq!(budget.room_for(u64::MAX, [1].into_iter()), (0, u64::MAX));
    }

    #[test]
    fn a_packet_longer_than_the_budget_is_in_flight_alone() {
        let budget = Budget::from_bytes(100);
        assert_eq!(budget.room_for(0, [101, 1].into_iter()), (1, 101));
        assert_eq!(budget.room_for(1, [101, 1].into_iter()), (0, 1));
    }

    #[test]
    fn no_packet_overtakes_one_that_does_not_fit() {
        let budget = Budget::from_bytes(100);
        assert_eq!(budget.room_for(0, [60, 50, 10].into_iter()), (1, 60));
    }
}
