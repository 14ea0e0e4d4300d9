//! The record of a queue: its content, its limits, and its accepted packets.

use super::PacketList;
use crate::packet::Count;
use crate::packet_scheduler::Limits;
use crate::size::{Room, Size};

/// The record of a queue, which shares a cache line with the algorithm's state of it. `T` is its owner's tag for it,
/// `R` its counter of bytes or units.
///
/// Some fields have another meaning while the queue is empty: the owner's accessors document it. The two counts of
/// accepted packets stand apart, and those of room, so that they are not updated as one vector, which takes four times
/// the instructions.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Record<T, R = i32> {
    /// Packets accepted.
    pub(crate) first: u64,
    pub(crate) packets: PacketList,
    /// The rest of its limits; negative after a limit was lowered below the backlog.
    pub(crate) room_packets: i32,
    /// Its entry in a table of rarely used properties.
    pub(crate) side: u32,
    /// Bytes accepted.
    pub(crate) second: u64,
    pub(crate) tag: T,
    /// As `room_packets`.
    pub(crate) room_bytes: R,
}

impl<T, R: Room> Record<T, R> {
    /// Without packets.
    pub(crate) fn new(tag: T, side: u32, limits: Limits) -> Self {
        Record {
            first: 0,
            packets: PacketList::default(),
            room_packets: limits.packets as i32,
            side,
            second: 0,
            tag,
            room_bytes: R::of(limits),
        }
    }

    /// Sets the room of an empty queue to its limits.
    #[inline]
    pub(crate) fn set_room(&mut self, limits: Limits) {
        self.room_packets = limits.packets as i32;
        self.room_bytes = R::of(limits);
    }

    /// A packet went out.
    #[inline(always)]
    pub(crate) fn give_room(&mut self, len: impl Size) {
        self.room_packets += 1;
        self.room_bytes.give(len.amount());
    }

    /// A packet was accepted.
    #[inline(always)]
    pub(crate) fn count_accepted(&mut self, len: impl Size) {
        self.first += 1;
        self.second += u64::from(len.amount());
    }

    /// Returns the accepted packets and bytes.
    pub(crate) fn accepted(&self) -> Count {
        Count {
            packets: self.first,
            bytes: self.second,
        }
    }

    /// Its limits are other ones from now on. Both lie below 2^31, and room above -2^31.
    pub(crate) fn relimit(&mut self, old: Limits, new: Limits) {
        self.room_packets += new.packets as i32 - old.packets as i32;
        self.room_bytes.relimit(old, new);
    }

    /// Returns its backlog, by its room under these limits.
    pub(crate) fn queued(&self, limits: Limits) -> Count {
        let [may, left]: [i64; 2] = [R::of(limits).into(), self.room_bytes.into()];
        Count {
            packets: (i64::from(limits.packets) - i64::from(self.room_packets)) as u64,
            bytes: (may - left) as u64,
        }
    }
}
