//! A child of a node: a leaf, a dynamic flow, or a class with children of its own.

use crate::packet::Count;
use crate::packet_scheduler::Limits;
use crate::queue::PacketList;
use crate::units::{Charge, Length};

/// What a record stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Nobody; `side` leads to the next free record.
    #[default]
    Free,
    /// Removed; it has a place in the order still.
    Leaving,
    Leaf,
    /// A flow of a class of flows.
    Flow,
    /// A class with children: `side` is its node.
    Inner,
}

/// What few children have, as bits.
pub(super) mod flag {
    /// A ceiling of its own.
    pub(crate) const CEILING: u8 = 1;
    /// Queue management that is asked about packets that come.
    pub(crate) const AQM: u8 = 2;
    /// Queue management that is asked about packets that leave: the first one may be dropped
    /// before it is sent, so that the algorithm is told of the longest one instead.
    pub(crate) const LONGEST: u8 = 4;
    /// A flow without packets, in the list of idle ones.
    pub(crate) const IDLE: u8 = 8;
    /// The flow of all those for which there is no room; never idle.
    pub(crate) const COMMON: u8 = 16;
    /// A flow, so that one test of all flags tells a plain leaf.
    pub(crate) const FLOW: u8 = 32;
    /// A flow with room of its own.
    pub(crate) const ROOMY: u8 = 64;
}

/// The record of a child, which shares a cache line with the algorithm's state of it.
///
/// Some fields have one meaning in a leaf and another in a flow or an idle flow: the accessors
/// tell. The two counts stand apart so that they are not updated as one vector, which takes
/// more instructions.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Child {
    /// Packets accepted; of a flow, its digest.
    first: u64,
    pub packets: PacketList,
    /// What the limits leave, of a leaf its licence ([`displace`](super::displace)); negative after
    /// a limit was lowered below the backlog. Of an idle flow: the neighbours in the list of idle
    /// ones.
    pub room_packets: i32,
    pub room_bytes: i32,
    /// Bytes accepted; of a flow, when it was last left without packets.
    second: u64,
    /// By kind: the class of a leaf, the node of an inner class, the entry of a flow in the
    /// table of what few flows need, or the next free record.
    pub side: u32,
    /// Longest packet allowed; 0 where nobody is.
    longest: u16,
    pub kind: Kind,
    pub flags: u8,
}

const _: () = assert!(size_of::<Child>() == 40);

impl Child {
    /// A leaf of the class with this number.
    pub(super) fn leaf(class: u32, limits: Limits, longest: Length, flags: u8) -> Child {
        Child {
            room_packets: limits.packets as i32,
            room_bytes: limits.bytes as i32,
            side: class,
            longest: longest.get() as u16,
            kind: Kind::Leaf,
            flags,
            ..Child::default()
        }
    }

    /// A flow of this digest.
    pub(super) fn flow(
        digest: u64,
        limits: Limits,
        longest: Length,
        side: u32,
        flags: u8,
    ) -> Child {
        Child {
            first: digest,
            kind: Kind::Flow,
            ..Child::leaf(side, limits, longest, flags | flag::FLOW)
        }
    }

    /// A class with children, those of this node.
    pub(super) fn inner(node: u32, longest: Length, flags: u8) -> Child {
        Child {
            side: node,
            longest: longest.get() as u16,
            kind: Kind::Inner,
            flags,
            ..Child::default()
        }
    }

    /// Removed, with a place in the order still.
    pub(super) fn leaving() -> Child {
        Child {
            kind: Kind::Leaving,
            ..Child::default()
        }
    }

    /// A free record.
    pub(super) fn free(next: u32) -> Child {
        Child {
            side: next,
            ..Child::default()
        }
    }

    #[inline]
    pub(super) fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Longest packet in bytes; 0 where nobody is.
    #[inline]
    pub(super) fn longest(&self) -> u32 {
        self.longest.into()
    }

    pub(super) fn set_longest(&mut self, longest: Length) {
        self.longest = longest.get() as u16;
    }

    /// Whether its limits allow for a packet of this length, which is not too long.
    #[inline]
    pub(super) fn has_room(&self, len: Length) -> bool {
        len.get() <= self.longest() && self.room_packets > 0 && self.room_bytes >= len.get() as i32
    }

    /// Whether it is a flow without packets, which is idle unless it has a place.
    #[inline]
    pub(super) fn may_rest(&self) -> bool {
        self.kind == Kind::Flow && self.packets.is_empty() && !self.has(flag::COMMON)
    }

    /// What the algorithm is told of a head of this length.
    #[inline]
    pub(super) fn announced(&self, head: Length) -> Charge {
        match self.has(flag::LONGEST) {
            true => Charge::in_range(self.longest()).unwrap_or(head.into()),
            false => head.into(),
        }
    }

    /// A packet came in.
    #[inline]
    pub(super) fn take_room(&mut self, len: Length) {
        self.room_packets -= 1;
        self.room_bytes -= len.get() as i32;
    }

    /// A packet went out.
    #[inline]
    pub(super) fn give_room(&mut self, len: Length) {
        self.room_packets += 1;
        self.room_bytes += len.get() as i32;
    }

    /// A leaf accepts a packet.
    #[inline]
    pub(super) fn count_accepted(&mut self, len: Length) {
        self.first += 1;
        self.second += u64::from(len.get());
    }

    /// What a leaf accepted.
    pub(super) fn accepted(&self) -> Count {
        Count {
            packets: self.first,
            bytes: self.second,
        }
    }

    /// What a flow is known by.
    #[inline]
    pub(super) fn digest(&self) -> u64 {
        self.first
    }

    /// When a flow was last left without packets.
    #[inline]
    pub(super) fn idle_since(&self) -> u64 {
        self.second
    }

    /// The idle flow comes into the list between these neighbours.
    #[inline]
    pub(super) fn become_idle(&mut self, now: u64, older: u32, newer: u32) {
        self.flags |= flag::IDLE;
        self.second = now;
        self.set_neighbours(older, newer);
    }

    /// The idle flow will have packets: its neighbours.
    #[inline]
    pub(super) fn wake(&mut self, limits: Limits) -> (u32, u32) {
        self.flags &= !flag::IDLE;
        let neighbours = self.neighbours();
        self.room_packets = limits.packets as i32;
        self.room_bytes = limits.bytes as i32;
        neighbours
    }

    /// The idle flows that became so before and after this one.
    #[inline]
    pub(super) fn neighbours(&self) -> (u32, u32) {
        (self.room_packets as u32, self.room_bytes as u32)
    }

    #[inline]
    pub(super) fn set_neighbours(&mut self, older: u32, newer: u32) {
        self.room_packets = older as i32;
        self.room_bytes = newer as i32;
    }

    /// Its limits are other ones from now on. Both lie below 2^31, and room above -2^31.
    pub(super) fn relimit(&mut self, old: Limits, new: Limits) {
        self.room_packets += new.packets as i32 - old.packets as i32;
        self.room_bytes += new.bytes as i32 - old.bytes as i32;
    }

    /// What it holds, by its room under these limits.
    pub(super) fn queued(&self, limits: Limits) -> Count {
        Count {
            packets: (i64::from(limits.packets) - i64::from(self.room_packets)) as u64,
            bytes: (i64::from(limits.bytes) - i64::from(self.room_bytes)) as u64,
        }
    }
}
