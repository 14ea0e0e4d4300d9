//! Inspection of the next packet before it is taken.

use crate::packet::{Dequeue, Packet, Rejected, Stamped, Waited};
use crate::scheduler::Violation;
use crate::units::{Length, Nanos};

use super::{ClassId, ClassQueue, ClassStats, Discarded};

/// Queues of classes whose next packet can be inspected, as ALTQ requires of a discipline: the packet that
/// [`peek`](Self::peek) shows is the one that the next [`dequeue`](ClassQueue::dequeue) returns, whatever arrives until
/// then and whenever that is.
///
/// So a peek commits: the packet has left its queue, counts as sent, and cannot be flushed. It is a transmit queue of
/// one packet, and costs the same ([`bounds`](crate::bounds)): Q grows by L. Callers that never peek do without this
/// wrapper.
///
/// ```
/// use fairlane_core::sched::Algorithm;
/// use fairlane_core::tree::{ClassConfig, ClassId, ClassQueue, LeafConfig, Peekable, Tree};
/// use fairlane_core::{Dequeue, Length, Nanos, Weight};
///
/// let (now, len) = (Nanos::ZERO, Length::try_from(1000u32)?);
/// let mut tree = Tree::new(Algorithm::Priority, None, Default::default());
/// let mut leaf = |level| {
///     let config = ClassConfig::new(Weight::new(level).unwrap(), len);
///     tree.add_leaf(ClassId::ROOT, config, LeafConfig::default())
/// };
/// let (low, high) = (leaf(1)?, leaf(2)?);
/// let mut link = Peekable::new(tree);
/// link.enqueue(low, 0, len, "low", now, drop)?;
/// assert!(matches!(link.peek(now, drop), Dequeue::Packet(next) if *next.payload == "low"));
/// // It was the next, and stays that.
/// link.enqueue(high, 0, len, "high", now, drop)?;
/// let mut taken = Vec::new();
/// link.dequeue_burst(&mut taken, 2, now, drop);
/// assert!(taken.iter().map(|packet| packet.payload).eq(["low", "high"]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Peekable<P, Q> {
    queue: Q,
    /// The packet that was inspected and not yet taken, and its arrival time.
    ahead: Option<Packet<Stamped<P>, ClassId>>,
}

impl<P, Q: ClassQueue<P>> Peekable<P, Q> {
    /// These queues.
    pub fn new(queue: Q) -> Self {
        Peekable { queue, ahead: None }
    }

    /// Returns the next packet, which stays the next; or the time from which there may be one. Packets that queue
    /// management drops on the way go to `discard`. Costs a `dequeue`, which is then saved.
    pub fn peek(&mut self, now: Nanos, discard: impl FnMut(Discarded<P>)) -> Dequeue<&P, ClassId> {
        if self.ahead.is_none() {
            let next = match self.queue.dequeue_with_sojourn(now, discard) {
                Dequeue::Packet(next) => next,
                Dequeue::NotBefore(time) => return Dequeue::NotBefore(time),
                Dequeue::Empty => return Dequeue::Empty,
            };
            self.ahead = Some(next.map(|waited| Stamped {
                came: now - waited.sojourn,
                payload: waited.payload,
            }));
        }
        let ahead = self.ahead.as_ref().map(|next| Packet {
            owner: next.owner,
            len: next.len,
            payload: &next.payload.payload,
        });
        ahead.into()
    }

    /// Returns the queues, without the inspected packet.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// The queues, to change.
    #[doc(hidden)]
    pub fn queue_mut(&mut self) -> &mut Q {
        &mut self.queue
    }
}

impl<P, Q: ClassQueue<P>> ClassQueue<P> for Peekable<P, Q> {
    fn enqueue(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<(), Rejected<P>> {
        (self.queue).enqueue(class, flow, len, payload, now, discard)
    }

    fn dequeue(&mut self, now: Nanos, discard: impl FnMut(Discarded<P>)) -> Dequeue<P, ClassId> {
        match self.ahead.take() {
            Some(next) => Dequeue::Packet(next.map(|stamped| stamped.payload)),
            None => self.queue.dequeue(now, discard),
        }
    }

    fn dequeue_with_sojourn(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Dequeue<Waited<P>, ClassId> {
        match self.ahead.take() {
            Some(next) => Dequeue::Packet(next.map(|stamped| stamped.until(now))),
            None => self.queue.dequeue_with_sojourn(now, discard),
        }
    }

    fn free_held(&mut self, most: u32, now: Nanos) -> u32 {
        self.queue.free_held(most, now)
    }

    /// Counts the inspected packet as sent.
    fn stats(&self, class: ClassId) -> Option<ClassStats> {
        self.queue.stats(class)
    }

    /// Includes the inspected packet.
    fn len(&self) -> u32 {
        self.queue.len() + u32::from(self.ahead.is_some())
    }

    fn expire_idle(&mut self, now: Nanos) {
        self.queue.expire_idle(now);
    }

    fn invariants(&self) -> Result<(), Violation> {
        self.queue.invariants()
    }
}
