//! What became of packets, class by class.

use crate::packet_scheduler::Count;

/// What became of the packets of a class and of all below it:
/// `accepted = sent + discarded + queued`.
///
/// Of a class with others below it, each count is the sum of theirs, and of those that were
/// removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Accepted at enqueue.
    pub accepted: Count,
    /// Handed out by dequeue.
    pub sent: Count,
    /// Waiting now.
    pub queued: Count,
    /// Refused at enqueue, for whatever reason.
    pub dropped: Count,
    /// Accepted and discarded later: by queue management, a flush or a removal.
    pub discarded: Count,
    /// Packets that queue management marked; they count where they went, too.
    pub marked: u64,
    /// Dynamic flows that there are.
    pub flows: u64,
    /// Packets that joined the common flow of those for which there was no room.
    pub overflowed: u64,
    /// How often a class had something to send and was held back by its cap.
    pub throttled: u64,
}

impl ClassStats {
    pub(super) fn plus(self, other: &ClassStats) -> ClassStats {
        ClassStats {
            accepted: self.accepted.plus(other.accepted),
            sent: self.sent.plus(other.sent),
            queued: self.queued.plus(other.queued),
            dropped: self.dropped.plus(other.dropped),
            discarded: self.discarded.plus(other.discarded),
            marked: self.marked + other.marked,
            flows: self.flows + other.flows,
            overflowed: self.overflowed + other.overflowed,
            throttled: self.throttled + other.throttled,
        }
    }
}

/// What every queue counts beside what it accepted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    pub dropped: Count,
    pub discarded: Count,
    pub marked: u64,
    pub throttled: u64,
}
