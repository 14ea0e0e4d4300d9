//! What goes in and comes out of queues: packets, the answers to them, and counts of them.

use crate::packet_scheduler::FlowId;
use crate::units::{Length, Nanos};
use core::fmt;

/// A packet on its way out: of a flow of a [`PacketScheduler`](crate::PacketScheduler), or of a
/// [class](crate::tree::ClassId) of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Packet<P, O = FlowId> {
    /// The flow or class that it was accepted into.
    pub owner: O,
    /// Its length, as it was at enqueue.
    pub len: Length,
    /// What the caller gave, marked if queue management said so.
    pub payload: P,
}

impl<P, O> Packet<P, O> {
    /// The same packet with what `f` makes of its payload.
    #[inline]
    pub fn map<T>(self, f: impl FnOnce(P) -> T) -> Packet<T, O> {
        Packet {
            owner: self.owner,
            len: self.len,
            payload: f(self.payload),
        }
    }
}

/// Without the payload, which need not be of a kind that can be printed.
impl<P, O: fmt::Debug> fmt::Debug for Packet<P, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("owner", &self.owner)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// A payload, and when it came. A [`PacketScheduler`](crate::PacketScheduler) of these tells of each
/// packet how long it waited ([`dequeue_at`](crate::PacketScheduler::dequeue_at)); one of bare payloads
/// stores no time. A [tree](crate::tree::Tree) knows the time of each packet in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamped<P> {
    /// When it came.
    pub came: Nanos,
    /// What the caller gave.
    pub payload: P,
}

impl<P> Stamped<P> {
    /// It leaves at this time.
    #[inline]
    pub fn until(self, now: Nanos) -> Waited<P> {
        Waited {
            sojourn: now.since(self.came),
            payload: self.payload,
        }
    }
}

impl<P> fmt::Debug for Stamped<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stamped")
            .field("came", &self.came)
            .finish_non_exhaustive()
    }
}

/// A payload that leaves, and how long it waited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Waited<P> {
    /// From enqueue to dequeue.
    pub sojourn: Nanos,
    /// What the caller gave.
    pub payload: P,
}

impl<P> fmt::Debug for Waited<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waited")
            .field("sojourn", &self.sojourn)
            .finish_non_exhaustive()
    }
}

/// The answer of a queue that may wait for a time: of a tree with ceilings, of whatever an arbiter
/// releases from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dequeue<P, O = FlowId> {
    /// The next packet, which is the caller's from now on.
    Packet(Packet<P, O>),
    /// Packets wait, and none may leave before this time.
    NotBefore(Nanos),
    /// Nothing waits.
    Empty,
}

/// Without the payload.
impl<P, O: fmt::Debug> fmt::Debug for Dequeue<P, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dequeue::Packet(packet) => f.debug_tuple("Packet").field(packet).finish(),
            Dequeue::NotBefore(time) => f.debug_tuple("NotBefore").field(time).finish(),
            Dequeue::Empty => f.write_str("Empty"),
        }
    }
}

impl<P, O> From<Option<Packet<P, O>>> for Dequeue<P, O> {
    /// Of a queue that waits for no time.
    #[inline]
    fn from(next: Option<Packet<P, O>>) -> Dequeue<P, O> {
        next.map_or(Dequeue::Empty, Dequeue::Packet)
    }
}

/// Why a packet was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// No flow or class has this number.
    #[error("there is no such flow or class")]
    Unknown,
    /// The class has no queue.
    #[error("the class has classes below it, and no queue of its own")]
    NoQueue,
    /// Longer than its flow, its class, or a class above declared.
    #[error("the packet is longer than the {max} that was declared")]
    TooLong {
        /// The declared maximum.
        max: Length,
    },
    /// The flow's or the class's queue holds its limit of packets or bytes (tail drop).
    #[error("the queue of the flow or class is full")]
    QueueFull,
    /// All queues together hold their limit of packets or bytes, and nobody holds more beyond his
    /// own [room](crate::room) than the packet's flow or class (tail drop).
    #[error("the link's queues are full")]
    LinkFull,
    /// Queue management dropped it on arrival.
    #[error("queue management dropped the packet to signal congestion")]
    Congestion,
}

/// A packet that was not accepted goes back to the caller. As an error, it says why; of the payload,
/// which need not be of a kind that can be printed, nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rejected<P> {
    /// The packet, untouched.
    pub payload: P,
    /// Why.
    pub reason: Rejection,
}

impl<P> Rejected<P> {
    /// The same with what `f` makes of the payload.
    #[inline]
    pub fn map<T>(self, f: impl FnOnce(P) -> T) -> Rejected<T> {
        Rejected {
            payload: f(self.payload),
            reason: self.reason,
        }
    }

    /// The packet as it was offered, and why it was not accepted.
    #[inline]
    pub(crate) fn of<O>(self, owner: O, len: Length) -> (Packet<P, O>, Rejection) {
        let packet = Packet {
            owner,
            len,
            payload: self.payload,
        };
        (packet, self.reason)
    }
}

impl<P> fmt::Debug for Rejected<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<P> fmt::Display for Rejected<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<P> core::error::Error for Rejected<P> {}

/// A number of packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, as counted at enqueue.
    pub bytes: u64,
}

impl Count {
    /// One packet more.
    #[inline]
    pub fn add(&mut self, len: Length) {
        self.packets += 1;
        self.bytes += u64::from(len.get());
    }

    /// One packet less, of those counted.
    #[inline]
    pub fn subtract(&mut self, len: Length) {
        self.packets -= 1;
        self.bytes -= u64::from(len.get());
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Count) -> Count {
        Count {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }

    /// What is not among `other`, no less than nothing.
    #[must_use]
    pub fn minus(self, other: Count) -> Count {
        Count {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}
