//! Input and output of queues: packets, the results for them, and counts of them.

use crate::packet_scheduler::FlowId;
use crate::size::Size;
use crate::units::{Length, Nanos};
use core::fmt;

/// A packet on its way out: of a flow of a [`PacketScheduler`](crate::PacketScheduler), or of a
/// [class](crate::tree::ClassId) of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Packet<P, O = FlowId, L = Length> {
    /// The flow or class that it was accepted into.
    pub owner: O,
    /// Its length or cost at enqueue.
    pub len: L,
    /// The payload that the caller supplied, marked if queue management required it.
    pub payload: P,
}

impl<P, O> Packet<P, O> {
    /// Returns the same packet with its payload mapped by `f`.
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

/// A payload and its arrival time. A [`PacketScheduler`](crate::PacketScheduler) of these reports the sojourn time of
/// each packet ([`dequeue_at`](crate::PacketScheduler::dequeue_at)); one of bare payloads stores no time. A
/// [tree](crate::tree::Tree) knows the time of each packet in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamped<P> {
    /// The arrival time.
    pub came: Nanos,
    /// The payload that the caller supplied.
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

/// A payload that leaves, and its sojourn time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Waited<P> {
    /// From enqueue to dequeue.
    pub sojourn: Nanos,
    /// The payload that the caller supplied.
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
    /// The backlog is empty.
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
    /// Converts the result of a queue that never waits for a time.
    #[inline]
    fn from(next: Option<Packet<P, O>>) -> Dequeue<P, O> {
        next.map_or(Dequeue::Empty, Dequeue::Packet)
    }
}

/// Why a packet was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection<L: Size = Length> {
    /// No flow or class has this number.
    #[error("there is no such flow or class")]
    Unknown,
    /// The class has no queue.
    #[error("the class has classes below it, and no queue of its own")]
    NoQueue,
    /// Longer, or costlier, than its flow, its class, or a class above declared.
    #[error("{} {max} {}", L::BEYOND[0], L::BEYOND[1])]
    TooLong {
        /// The declared maximum.
        max: L,
    },
    /// The flow's or the class's queue holds its limit of packets or bytes (tail drop).
    #[error("the queue of the flow or class is full")]
    QueueFull,
    /// All queues together hold their limit of packets or bytes, and none has a larger excess over its own
    /// [room](crate::room) than the packet's flow or class (tail drop).
    #[error("the link's queues are full")]
    LinkFull,
    /// Queue management dropped it on arrival.
    #[error("queue management dropped the packet to signal congestion")]
    Congestion,
}

/// A packet that was not accepted goes back to the caller. As an error, it says why; of the payload,
/// which need not be of a kind that can be printed, nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rejected<P, L: Size = Length> {
    /// The packet, untouched.
    pub payload: P,
    /// Why.
    pub reason: Rejection<L>,
}

impl<P, L: Size> Rejected<P, L> {
    /// Returns the same with its payload mapped by `f`.
    #[inline]
    pub fn map<T>(self, f: impl FnOnce(P) -> T) -> Rejected<T, L> {
        Rejected {
            payload: f(self.payload),
            reason: self.reason,
        }
    }

    /// Returns the rejected packet in its original form, and the reason.
    #[inline]
    pub(crate) fn of<O>(self, owner: O, len: L) -> (Packet<P, O, L>, Rejection<L>) {
        let packet = Packet {
            owner,
            len,
            payload: self.payload,
        };
        (packet, self.reason)
    }
}

impl<P, L: Size> fmt::Debug for Rejected<P, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<P, L: Size> fmt::Display for Rejected<P, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<P, L: Size> core::error::Error for Rejected<P, L> {}

/// A number of packets and their bytes, or of requests and their estimated costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Count {
    /// Packets or requests.
    pub packets: u64,
    /// Bytes or units, as counted at enqueue.
    pub bytes: u64,
}

impl Count {
    /// One packet more.
    #[inline]
    pub fn add(&mut self, len: impl Size) {
        self.packets += 1;
        self.bytes += u64::from(len.amount());
    }

    /// One packet less, of those counted.
    #[inline]
    pub fn subtract(&mut self, len: Length) {
        self.packets -= 1;
        self.bytes -= u64::from(len.get());
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(self, other: Count) -> Count {
        Count {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }

    /// Returns the counts less those of `other`, with 0 as the minimum.
    #[must_use]
    pub fn minus(self, other: Count) -> Count {
        Count {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}
