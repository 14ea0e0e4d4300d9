//! The share of a flow while flows are added and removed: the clock in which guarantees are
//! counted.

use crate::time::Work;

/// Bits of fraction of [`ShareClock::now`].
pub(crate) const FRACTION: u32 = 20;

/// v(t): the integral of dW / (sum of the weights present), in 10^-12 bit for each unit of
/// weight. A flow of weight w is entitled to `w v(t1, t2)` over any interval.
///
/// While the sum is constant, meters compare work directly and are exact. Each change of
/// the sum rounds v down once, by less than 2^-20 units: for a flow, at most 10^-12 bit.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareClock {
    pub sum: i128,
    /// Counts the changes of the sum.
    pub epoch: u64,
    since: Work,
    v: i128,
}

impl ShareClock {
    /// v at `work`, with [`FRACTION`] bits of fraction; it stands still while no flow is
    /// present.
    pub(crate) fn now(&self, work: Work) -> i128 {
        if self.sum == 0 {
            return self.v;
        }
        self.v + (((work - self.since).0 as i128) << FRACTION) / self.sum
    }

    /// From here on the weights present add up to `more` than before.
    pub(crate) fn add(&mut self, work: Work, more: i128) {
        self.v = self.now(work);
        self.since = work;
        self.sum += more;
        self.epoch += 1;
    }
}
