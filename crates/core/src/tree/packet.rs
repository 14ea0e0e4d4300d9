//! Input and output: packets, the results for them, and the trait of queues of classes.

use crate::packet::{Dequeue, Packet, Rejected, Rejection, Waited};
use crate::scheduler::Violation;
use crate::units::{Length, Nanos};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::{ClassId, ClassStats, Tree};

/// A packet that queue management may mark. Queues hold packets of any type, and mark them if enabled
/// ([`Tree::marking`]).
pub trait Payload {
    /// Marks the packet "congestion experienced" if it is ECN-capable; whether it is. One
    /// that is not is dropped instead.
    fn mark(&mut self) -> bool {
        false
    }
}

impl Payload for () {}
impl Payload for u32 {}
impl Payload for u64 {}
impl Payload for usize {}
impl Payload for Vec<u8> {}
impl Payload for Box<[u8]> {}

/// A class, and a flow in it: where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassFlow {
    /// The class.
    pub class: ClassId,
    /// The digest of the flow, which only classes of flows use.
    pub flow: u64,
}

impl From<ClassId> for ClassFlow {
    /// Returns the class, where it has no flows.
    fn from(class: ClassId) -> ClassFlow {
        ClassFlow { class, flow: 0 }
    }
}

/// Queues of classes that share a link: the interface from which the program, the simulator and replay release packets.
pub trait ClassQueue<P> {
    /// Accepts a packet at time `now` into a class, or returns it with the reason. `flow` is the digest of its flow,
    /// which only classes of flows use. Packets evicted for it ([`room`](crate::room)) go to `discard`, after they were
    /// counted.
    fn enqueue(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<(), Rejected<P>>;

    /// Removes and returns the next packet at time `now`; packets that queue management drops on the way go to
    /// `discard`.
    fn dequeue(&mut self, now: Nanos, discard: impl FnMut(Discarded<P>)) -> Dequeue<P, ClassId>;

    /// Like [`dequeue`](Self::dequeue), with the sojourn time of each packet.
    fn dequeue_with_sojourn(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Dequeue<Waited<P>, ClassId>;

    /// Accepts packets in their order, each into the class and flow that it names as its owner; returns their number. A
    /// rejected one goes to `rejected` with the reason, and the next one follows. Equivalent to a call of
    /// [`enqueue`](Self::enqueue) for each, at the same cost.
    #[inline]
    fn enqueue_burst(
        &mut self,
        packets: impl IntoIterator<Item = Packet<P, ClassFlow>>,
        now: Nanos,
        mut rejected: impl FnMut(Packet<P, ClassFlow>, Rejection),
        mut discard: impl FnMut(Discarded<P>),
    ) -> usize {
        let mut accepted = 0;
        for packet in packets {
            let (owner, len) = (packet.owner, packet.len);
            let ClassFlow { class, flow } = owner;
            match self.enqueue(class, flow, len, packet.payload, now, &mut discard) {
                Ok(()) => accepted += 1,
                Err(back) => {
                    let (packet, reason) = back.of(owner, len);
                    rejected(packet, reason);
                }
            }
        }
        accepted
    }

    /// Appends the next packets at time `now` to `burst`, `most` of them at most, and returns why no more follow.
    /// Packets that queue management drops on the way go to `discard`. Equivalent to that number of calls of
    /// [`dequeue`](Self::dequeue), at the same cost.
    #[inline]
    fn dequeue_burst(
        &mut self,
        burst: &mut Vec<Packet<P, ClassId>>,
        most: usize,
        now: Nanos,
        mut discard: impl FnMut(Discarded<P>),
    ) -> BurstEnd {
        for _ in 0..most {
            match self.dequeue(now, &mut discard) {
                Dequeue::Packet(packet) => burst.push(packet),
                Dequeue::NotBefore(time) => return BurstEnd::NotBefore(time),
                Dequeue::Empty => return BurstEnd::Empty,
            }
        }
        BurstEnd::Full
    }

    /// Releases up to `most` classes that are held to a rate, and cancels their debt; returns their number. For callers
    /// that empty the queues without the pace of a link. O(log n) for each.
    fn free_held(&mut self, most: u32, now: Nanos) -> u32;

    /// Returns the counters of a class, or `None` if there is no such class.
    fn stats(&self, class: ClassId) -> Option<ClassStats>;

    /// Packets that wait. O(1).
    fn len(&self) -> u32;

    /// Returns whether the backlog is empty. O(1).
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Expires flows past their idle timeout, a bounded number of them.
    fn expire_idle(&mut self, now: Nanos);

    /// Checks that every count is the sum of its parts, and all else that must hold; for
    /// tests.
    fn invariants(&self) -> Result<(), Violation>;
}

/// The reason why a burst of packets has no more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstEnd {
    /// It has as many as were asked for.
    Full,
    /// Packets wait, and none may leave before this time.
    NotBefore(Nanos),
    /// The backlog is empty.
    Empty,
}

/// Why an accepted packet will not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Queue management dropped it when it was about to leave.
    Congestion,
    /// Its class was flushed or removed.
    Flushed,
    /// The link was full, and its class held most beyond its own [room](crate::room).
    Displaced,
}

/// A packet that was accepted and will not be sent: the caller's again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Discarded<P> {
    /// The class that it belonged to.
    pub class: ClassId,
    /// Its length at enqueue.
    pub len: Length,
    /// The payload that the caller supplied.
    pub payload: P,
    /// Why.
    pub reason: Reason,
}

/// Without the payload.
impl<P> fmt::Debug for Discarded<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discarded")
            .field("class", &self.class)
            .field("len", &self.len)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<P> ClassQueue<P> for Tree<P> {
    #[inline]
    fn enqueue(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<(), Rejected<P>> {
        Tree::offer(self, class, flow, len, payload, now, discard)
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, discard: impl FnMut(Discarded<P>)) -> Dequeue<P, ClassId> {
        Tree::dequeue(self, now, discard)
    }

    #[inline]
    fn dequeue_with_sojourn(
        &mut self,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Dequeue<Waited<P>, ClassId> {
        Tree::dequeue_with_sojourn(self, now, discard)
    }

    fn free_held(&mut self, most: u32, now: Nanos) -> u32 {
        Tree::free_held(self, most, now)
    }

    fn stats(&self, class: ClassId) -> Option<ClassStats> {
        Tree::stats(self, class)
    }

    #[inline]
    fn len(&self) -> u32 {
        Tree::len(self)
    }

    fn expire_idle(&mut self, now: Nanos) {
        Tree::expire_idle(self, now);
    }

    fn invariants(&self) -> Result<(), Violation> {
        Tree::invariants(self)
    }
}
