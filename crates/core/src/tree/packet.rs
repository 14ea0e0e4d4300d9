//! What goes in and comes out: packets, the answers to them, and the trait of whatever queues
//! them class by class.

use crate::packet::{Dequeue, Rejected};
use crate::scheduler::Violation;
use crate::units::{Length, Nanos};
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{ClassId, ClassStats, Tree};

/// A packet, as far as queue management looks at it.
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
    /// The digest of the flow, which only classes of flows look at.
    pub flow: u64,
}

impl From<ClassId> for ClassFlow {
    /// The class, where it has no flows.
    fn from(class: ClassId) -> ClassFlow {
        ClassFlow { class, flow: 0 }
    }
}

/// Queues of classes that share a link: what the program, the simulator and replay release
/// packets from.
pub trait ClassQueue<P> {
    /// Accepts a packet at time `now` into a class, or hands it back with the reason. `flow` is
    /// the digest of its flow, which only classes of flows look at. Packets that give way to it
    /// ([`room`](crate::room)) go to `discard`, all accounted for.
    fn enqueue(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<(), Rejected<P>>;

    /// Hands out the next packet at time `now`; what queue management drops on the way goes
    /// to `discard`.
    fn dequeue(&mut self, now: Nanos, discard: impl FnMut(Discarded<P>)) -> Dequeue<P, ClassId>;

    /// Lets classes go on that are held to a rate, `most` of them at most, and forgives what they
    /// owe: how many there were. For whoever empties the queues without the pace of a link.
    /// O(log n) for each.
    fn free_held(&mut self, most: u32, now: Nanos) -> u32;

    /// What became of the packets of a class, or `None` if there is no such class.
    fn stats(&self, class: ClassId) -> Option<ClassStats>;

    /// Packets that wait. O(1).
    fn len(&self) -> u32;

    /// Whether nothing waits. O(1).
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets flows that were idle for long, a bounded number of them.
    fn expire_idle(&mut self, now: Nanos);

    /// Checks that every count is the sum of its parts, and all else that must hold; for
    /// tests.
    fn invariants(&self) -> Result<(), Violation>;
}

/// Why an accepted packet will not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Queue management dropped it when it was about to leave.
    Congestion,
    /// Its class was flushed or removed.
    Flushed,
    /// The link was full, and its class held most beyond its own [room](crate::room).
    Displaced,
}

/// A packet that was accepted and will not be sent: the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded<P> {
    /// Whose it was.
    pub class: ClassId,
    /// Its length, as it was at enqueue.
    pub len: Length,
    /// What the caller gave.
    pub payload: P,
    /// Why.
    pub reason: Reason,
}

impl<P: Payload> ClassQueue<P> for Tree<P> {
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
