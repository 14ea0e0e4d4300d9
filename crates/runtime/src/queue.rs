//! The queue that an arbiter releases from: it holds the packets, and selects the next one.

use fairlane_core::scheduler::Violation;
use fairlane_core::{
    AnyScheduler, ChangeError, Dequeue, FlowConfig, FlowId, FlowStats, Length, Nanos, Packet,
    PacketScheduler, Rejected, Scheduler, TotalStats,
};

/// Queued packets, and the order they leave in.
///
/// A *flow* is a source of packets: a client's, or one of the arbiter's own
/// ([`Arbiter::open_flow`](crate::Arbiter::open_flow)). The queue decides whether it determines the order too: a
/// [`PacketScheduler`] gives each flow a share of the link, a [`Classified`](crate::Classified) queue inspects the
/// packet.
///
/// Time never goes backwards from one call to the next.
///
/// ```
/// use fairlane_core::{
///     Dequeue, FlowConfig, Length, Nanos, PacketScheduler, Weight, sched::Drr,
/// };
/// use fairlane_runtime::Queue;
///
/// /// Empties any queue, and says how many bytes it held.
/// fn empty<Q: Queue>(queue: &mut Q, now: Nanos) -> u64 {
///     let mut bytes = 0;
///     while let Dequeue::Packet(packet) = queue.dequeue(now, drop) {
///         bytes += u64::from(packet.len.get());
///     }
///     bytes
/// }
///
/// let mut link = PacketScheduler::new(Drr::new(), Default::default());
/// let flow = link.add_flow(FlowConfig::new(Weight::ONE, Length::MAX))?;
/// link.enqueue(flow, Length::MAX, "a packet")?;
/// assert_eq!(empty(&mut link, Nanos::ZERO), 65_535);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Queue {
    /// What waits.
    type Payload: Send;

    /// Whether [`enqueue`](Self::enqueue) and [`dequeue`](Self::dequeue) may discard packets that
    /// were accepted.
    const DISCARDS: bool;

    /// Adds a flow, without packets. Lengths are those on the link.
    ///
    /// # Errors
    ///
    /// There are too many; nothing was added.
    fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError>;

    /// Gives a flow another share, maximum length or limits.
    ///
    /// # Errors
    ///
    /// It cannot be so; nothing was changed.
    fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError>;

    /// Removes a flow that holds no packets.
    ///
    /// # Errors
    ///
    /// There is no such flow.
    fn remove_flow(&mut self, flow: FlowId) -> Result<(), ChangeError>;

    /// Accepts a packet of a flow, or hands it back with the reason. Accepted packets that are evicted for it go to
    /// `discard`, which owns them from then on.
    fn enqueue(
        &mut self,
        flow: FlowId,
        len: Length,
        payload: Self::Payload,
        now: Nanos,
        discard: impl FnMut(Packet<Self::Payload>),
    ) -> Result<(), Rejected<Self::Payload>>;

    /// Enqueues packets of a flow that arrive together, in order, as [`enqueue`](Self::enqueue) does each: rejected
    /// ones go to `rejected`. `packets` is empty afterwards. A queue that has to look at packets may have that done for
    /// all of them sooner than one by one. Costs what [`enqueue`](Self::enqueue) does for each, or less.
    #[inline]
    fn enqueue_all(
        &mut self,
        flow: FlowId,
        packets: &mut Vec<(Length, Self::Payload)>,
        now: Nanos,
        mut discard: impl FnMut(Packet<Self::Payload>),
        mut rejected: impl FnMut(Rejected<Self::Payload>),
    ) {
        for (len, payload) in packets.drain(..) {
            if let Err(back) = self.enqueue(flow, len, payload, now, &mut discard) {
                rejected(back);
            }
        }
    }

    /// Hands out the packet that is next at `now`. Packets that were accepted and are not to be
    /// sent after all go to `discard` on the way, which owns them from then on.
    fn dequeue(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Packet<Self::Payload>),
    ) -> Dequeue<Self::Payload>;

    /// Returns how many packets of a flow should be taken from its mailbox now: those that would be accepted, as far as
    /// is known before they are seen.
    fn room(&self, flow: FlowId) -> u32;

    /// Returns the counts of a flow's packets, or `None` if there is no such flow.
    fn flow_stats(&self, flow: FlowId) -> Option<FlowStats>;

    /// Returns the counts of all packets, including those of removed flows.
    fn total_stats(&self) -> TotalStats;

    /// Returns whether nothing waits.
    fn is_empty(&self) -> bool;

    /// Releases up to `most` flows that a rate limit within the queue holds back, forgives their debts, and returns how
    /// many there were. For a queue that is emptied without the pace of a link.
    #[inline]
    fn free_held(&mut self, most: u32, now: Nanos) -> u32 {
        let _ = (most, now);
        0
    }

    /// Does a bounded amount of deferrable work: in each step that has no packet to release, and in some of the others.
    #[inline]
    fn expire_idle(&mut self, now: Nanos) {
        let _ = now;
    }

    /// Checks that every count is the sum of its parts. For tests.
    fn invariants(&self) -> Result<(), Violation>;
}

/// Each flow has its share of the link. Calls are passed on as they are: no cost.
macro_rules! of_flows {
    ($($scheduler:ident[$($algorithm:ident)?]),*) => {$(
        impl<$($algorithm: Scheduler,)? P: Send> Queue for $scheduler<$($algorithm,)? P> {
            type Payload = P;

            const DISCARDS: bool = false;

            fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
                $scheduler::add_flow(self, config)
            }

            fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError> {
                $scheduler::change_flow(self, flow, config)
            }

            fn remove_flow(&mut self, flow: FlowId) -> Result<(), ChangeError> {
                $scheduler::remove_flow(self, flow, drop).map(drop)
            }

            #[inline]
            fn enqueue(
                &mut self,
                flow: FlowId,
                len: Length,
                payload: P,
                _: Nanos,
                _: impl FnMut(Packet<P>),
            ) -> Result<(), Rejected<P>> {
                $scheduler::enqueue(self, flow, len, payload)
            }

            #[inline]
            fn dequeue(&mut self, _: Nanos, _: impl FnMut(Packet<P>)) -> Dequeue<P> {
                $scheduler::dequeue(self).into()
            }

            #[inline]
            fn room(&self, flow: FlowId) -> u32 {
                $scheduler::room(self, flow)
            }

            #[inline]
            fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
                $scheduler::flow_stats(self, flow)
            }

            fn total_stats(&self) -> TotalStats {
                $scheduler::total_stats(self)
            }

            #[inline]
            fn is_empty(&self) -> bool {
                $scheduler::is_empty(self)
            }

            fn invariants(&self) -> Result<(), Violation> {
                $scheduler::invariants(self)
            }
        }
    )*};
}

of_flows!(PacketScheduler[A], AnyScheduler[]);
