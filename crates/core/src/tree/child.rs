//! A child of a node: a leaf, a dynamic flow, or a class with children of its own.

use crate::packet_scheduler::Limits;
use crate::queue::Record;
use crate::units::Length;

/// The kind of entry that a record stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ChildKind {
    /// Unused; `side` leads to the next free record.
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

/// Properties that few children have, as bits.
pub(super) mod flag {
    /// A ceiling of its own.
    pub(crate) const CEILING: u8 = 1;
    /// Queue management that is asked about packets that come.
    pub(crate) const AQM: u8 = 2;
    /// Queue management that is asked about packets that leave: the first one may be dropped before it is sent.
    pub(crate) const LEAVING: u8 = 4;
    /// A flow without packets, in the list of idle ones.
    pub(crate) const IDLE: u8 = 8;
    /// The flow of all those for which there is no room; never idle.
    pub(crate) const COMMON: u8 = 16;
    /// A flow, so that one test of all flags identifies a plain leaf.
    pub(crate) const FLOW: u8 = 32;
    /// A flow with room of its own.
    pub(crate) const ROOMY: u8 = 64;
    /// Its place was computed for a packet that was discarded, and a longer one may be first by now.
    pub(crate) const STALE: u8 = 128;
}

/// The kind and flags of a child.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Tag {
    /// Longest packet allowed; 0 in an unused record.
    longest: u16,
    pub kind: ChildKind,
    pub flags: u8,
}

/// The record of a child.
///
/// Some fields have one meaning in a leaf and another in a flow or an idle flow: the accessors document them. `first`
/// counts packets, and is a flow's digest; `second` counts bytes, or is the time at which a flow last ran out of
/// packets. `side` is by kind the class of a leaf, the node of an inner class, the entry of a flow in the table of
/// rarely used properties, or the next free record. Room is the remainder of the limits, of a leaf that of its soft
/// limit ([`displace`](super::displace)); in an idle flow, it is the neighbours in the list of idle ones.
pub(super) type Child = Record<Tag>;

const _: () = assert!(size_of::<Child>() == 40);

impl Child {
    /// Returns a leaf of the class with this number.
    pub(super) fn leaf(class: u32, limits: Limits, longest: Length, flags: u8) -> Child {
        let longest = longest.get() as u16;
        let kind = ChildKind::Leaf;
        let tag = Tag {
            longest,
            kind,
            flags,
        };
        Child::new(tag, class, limits)
    }

    /// Returns a flow of this digest.
    pub(super) fn flow(
        digest: u64,
        limits: Limits,
        longest: Length,
        side: u32,
        flags: u8,
    ) -> Child {
        let mut child = Child::leaf(side, limits, longest, flags | flag::FLOW);
        (child.first, child.tag.kind) = (digest, ChildKind::Flow);
        child
    }

    /// Returns a class with children, those of this node.
    pub(super) fn inner(node: u32, longest: Length, flags: u8) -> Child {
        let longest = longest.get() as u16;
        let kind = ChildKind::Inner;
        Child {
            side: node,
            tag: Tag {
                longest,
                kind,
                flags,
            },
            ..Child::default()
        }
    }

    /// Removed, with a place in the order still.
    pub(super) fn leaving() -> Child {
        let mut child = Child::default();
        child.tag.kind = ChildKind::Leaving;
        child
    }

    /// Returns a free record.
    pub(super) fn free(next: u32) -> Child {
        Child {
            side: next,
            ..Child::default()
        }
    }

    #[inline]
    pub(super) fn has(&self, flags: u8) -> bool {
        self.tag.flags & flags != 0
    }

    /// Returns the longest packet in bytes; 0 in an unused record.
    #[inline]
    pub(super) fn longest(&self) -> u32 {
        self.tag.longest.into()
    }

    pub(super) fn set_longest(&mut self, longest: Length) {
        self.tag.longest = longest.get() as u16;
    }

    /// Returns whether its limits allow for a packet of this length, which is not too long.
    #[inline]
    pub(super) fn has_room(&self, len: Length) -> bool {
        len.get() <= self.longest() && self.room_packets > 0 && self.room_bytes >= len.get() as i32
    }

    /// Returns whether it is a flow without packets, and thus idle unless it has a place.
    #[inline]
    pub(super) fn may_rest(&self) -> bool {
        self.tag.kind == ChildKind::Flow && self.packets.is_empty() && !self.has(flag::COMMON)
    }

    /// Takes the space of an accepted packet.
    #[inline]
    pub(super) fn take_room(&mut self, len: Length) {
        self.room_packets -= 1;
        self.room_bytes -= len.get() as i32;
    }

    /// Returns the digest that identifies a flow.
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
        self.tag.flags |= flag::IDLE;
        self.second = now;
        self.set_neighbours(older, newer);
    }

    /// The idle flow will have packets: its neighbours.
    #[inline]
    pub(super) fn wake(&mut self, limits: Limits) -> (u32, u32) {
        self.tag.flags &= !flag::IDLE;
        let neighbours = self.neighbours();
        self.set_room(limits);
        neighbours
    }

    /// Returns the idle flows that became so before and after this one.
    #[inline]
    pub(super) fn neighbours(&self) -> (u32, u32) {
        (self.room_packets as u32, self.room_bytes as u32)
    }

    #[inline]
    pub(super) fn set_neighbours(&mut self, older: u32, newer: u32) {
        self.room_packets = older as i32;
        self.room_bytes = newer as i32;
    }
}
