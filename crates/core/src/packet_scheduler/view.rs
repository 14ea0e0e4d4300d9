//! A scheduler looked at: its flows, and itself in a line.

use core::fmt;

use super::{FlowId, PacketScheduler};
use crate::scheduler::Scheduler;

impl<A: Scheduler, P> PacketScheduler<A, P> {
    /// Returns the flows that there are, by number. O(numbers in use at once so far) for all of them.
    ///
    /// ```
    /// use fairlane_core::{FlowConfig, Length, PacketScheduler, Weight, sched::Drr};
    ///
    /// let mut link = PacketScheduler::<_, u32>::new(Drr::new(), Default::default());
    /// let config = FlowConfig::new(Weight::ONE, Length::MAX);
    /// let flows = [link.add_flow(config)?, link.add_flow(config)?, link.add_flow(config)?];
    /// link.remove_flow(flows[1], |_| {})?;
    /// assert!(link.flows().eq([flows[0], flows[2]]));
    /// # Ok::<(), fairlane_core::ChangeError>(())
    /// ```
    pub fn flows(&self) -> impl Iterator<Item = FlowId> {
        let numbers = 0..self.flows.len() as u32;
        let ids = numbers.map(FlowId::new);
        ids.filter(move |&id| self.flow(id).is_some())
    }
}

/// Prints the algorithm and sizes, and no packets.
impl<A: Scheduler, P> fmt::Debug for PacketScheduler<A, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketScheduler")
            .field("algorithm", &A::NAME)
            .field("flows", &self.flows().count())
            .field("queued", &self.total_stats().queued)
            .finish_non_exhaustive()
    }
}
