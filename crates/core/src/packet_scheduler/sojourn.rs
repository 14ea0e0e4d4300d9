//! Sojourn times of packets, for callers that want them: each packet's arrival time is then stored with it.

use super::{FlowId, PacketScheduler};
use crate::packet::{Packet, Rejected, Stamped, Waited};
use crate::scheduler::Scheduler;
use crate::units::{Length, Nanos};

impl<A: Scheduler, P> PacketScheduler<A, Stamped<P>> {
    /// As [`enqueue`](Self::enqueue), of a packet that comes at `now`.
    ///
    /// ```
    /// use fairlane_core::{FlowConfig, Length, Nanos, PacketScheduler, Waited, Weight, sched::Qfq};
    ///
    /// let mut link = PacketScheduler::new(Qfq::new(), Default::default());
    /// let len = Length::new(1000).unwrap();
    /// let flow = link.add_flow(FlowConfig::new(Weight::ONE, len))?;
    /// link.enqueue_at(flow, len, "hello", Nanos::from_millis(3))?;
    /// let packet = link.dequeue_at(Nanos::from_millis(5)).expect("one waits");
    /// let Waited { sojourn, payload } = packet.payload;
    /// assert_eq!((payload, sojourn), ("hello", Nanos::from_millis(2)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn enqueue_at(
        &mut self,
        id: FlowId,
        len: Length,
        payload: P,
        now: Nanos,
    ) -> Result<(), Rejected<P>> {
        let stamped = Stamped { came: now, payload };
        let accepted = self.enqueue(id, len, stamped);
        accepted.map_err(|rejected| rejected.map(|stamped| stamped.payload))
    }

    /// Like [`dequeue`](Self::dequeue), at `now`: returns the packet and its sojourn time.
    #[inline]
    pub fn dequeue_at(&mut self, now: Nanos) -> Option<Packet<Waited<P>>> {
        let packet = self.dequeue()?;
        Some(packet.map(|stamped| stamped.until(now)))
    }
}
