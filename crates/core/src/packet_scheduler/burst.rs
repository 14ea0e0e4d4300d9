//! Several packets in one call.

use alloc::vec::Vec;

use super::PacketScheduler;
use crate::packet::{Packet, Rejection};
use crate::scheduler::Scheduler;

impl<A: Scheduler, P> PacketScheduler<A, P> {
    /// Accepts packets in their order, each into the flow that it names as its owner; returns their number. A rejected
    /// one goes to `rejected` with the reason, and the next one follows. Equivalent to a call of
    /// [`enqueue`](Self::enqueue) for each, at the same cost.
    ///
    /// ```
    /// use fairlane_core::{FlowConfig, Length, Packet, PacketScheduler, Weight, sched::Qfq};
    ///
    /// let mut link = PacketScheduler::new(Qfq::new(), Default::default());
    /// let len = Length::new(1000).unwrap();
    /// let owner = link.add_flow(FlowConfig::new(Weight::ONE, len))?;
    /// let received = (0..8).map(|payload| Packet { owner, len, payload });
    /// assert_eq!(link.enqueue_burst(received, |packet, why| panic!("{packet:?}: {why}")), 8);
    ///
    /// let mut burst = Vec::new();
    /// assert_eq!(link.dequeue_burst(&mut burst, 5), 5);
    /// assert_eq!(link.dequeue_burst(&mut burst, 5), 3);
    /// assert!(burst.iter().map(|packet| packet.payload).eq(0..8));
    /// # Ok::<(), fairlane_core::ChangeError>(())
    /// ```
    #[inline]
    pub fn enqueue_burst(
        &mut self,
        packets: impl IntoIterator<Item = Packet<P>>,
        mut rejected: impl FnMut(Packet<P>, Rejection),
    ) -> usize {
        let mut accepted = 0;
        for packet in packets {
            let (owner, len) = (packet.owner, packet.len);
            match self.enqueue(owner, len, packet.payload) {
                Ok(()) => accepted += 1,
                Err(back) => {
                    let (packet, reason) = back.of(owner, len);
                    rejected(packet, reason);
                }
            }
        }
        accepted
    }

    /// Appends the next packets to `burst`, `most` of them at most; returns their number. Fewer mean that the backlog
    /// is empty. Equivalent to that number of calls of [`dequeue`](Self::dequeue), at the same cost.
    #[inline]
    pub fn dequeue_burst(&mut self, burst: &mut Vec<Packet<P>>, most: usize) -> usize {
        let before = burst.len();
        burst.extend(core::iter::from_fn(|| self.dequeue()).take(most));
        burst.len() - before
    }
}
