//! Room, which is reserved queue space: the limits of each queue, and the choice of the packet to drop when the link is
//! full.
//!
//! A share of the link is worth nothing to a packet that finds no queue space. So each holder of packets (a class, and
//! a flow among the flows of its class) may have [`Room`] of its own, which adds up to no more than the link holds; the
//! rest of the link's space is shared. Own room is lent while its owner does not need it, and returned at once:
//!
//! * A packet that fits into the link is accepted.
//! * When the link is full, a packet of the holder with the *largest excess over its own* room is dropped, where the
//!   arriving packet counts as its owner's. If that holder is the arriving packet's owner, the packet is rejected (tail
//!   drop).
//! * No packet of a holder within its own room is ever evicted. If all holders were within their own, the backlog would
//!   be no more than the sum of all rooms, and the link would not be full.
//!
//! To compare packets with bytes, a packet counts as the link's byte limit divided by its packet limit, since the link
//! may run out of either; the larger of the two excesses counts.
//!
//! [`bounds::Service::room`](crate::bounds::Service::room) computes the room that a guarantee needs.
//!
//! # Cost
//!
//! The holder with the largest excess is on top of a heap (`Beyond`) of upper bounds. Only an increase beyond the bound
//! updates the heap; a decrease is detected when an entry reaches the top and turns out too high, at the expense of the
//! packets that left meanwhile. A plain queue is given the range of its bound, and updates it at the end of that range:
//! it costs a packet in it nothing. O(log holders) amortised where the heap is touched.

use crate::grow;
use crate::packet::Count;
use crate::packet_scheduler::Limits;
use alloc::vec::Vec;

/// Packets and bytes that are reserved for a holder: both apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Packets.
    pub packets: u32,
    /// Their bytes, as the link counts them.
    pub bytes: u32,
}

impl Room {
    /// Nothing is kept.
    pub const NONE: Room = Room {
        packets: 0,
        bytes: 0,
    };

    /// Returns how many times `each` fits into it; 0 where nothing is kept for each.
    #[doc(hidden)]
    pub fn divided_by(self, each: Room) -> u32 {
        let times = |whole: u32, part: u32| whole.checked_div(part);
        let packets = times(self.packets, each.packets);
        let bytes = times(self.bytes, each.bytes);
        packets
            .zip(bytes)
            .map_or(0, |(packets, bytes)| packets.min(bytes))
    }

    /// Returns the smaller number of packets and of bytes.
    pub(crate) fn least(self, other: Room) -> Room {
        Room {
            packets: self.packets.min(other.packets),
            bytes: self.bytes.min(other.bytes),
        }
    }

    /// Returns the larger of each of the two.
    pub(crate) fn or_more(self, other: Room) -> Room {
        Room {
            packets: self.packets.max(other.packets),
            bytes: self.bytes.max(other.bytes),
        }
    }

    /// Returns the part of it that these limits allow.
    pub fn within(self, limits: Limits) -> Room {
        Room {
            packets: self.packets.min(limits.packets),
            bytes: self.bytes.min(limits.bytes),
        }
    }

    /// Returns whether such a backlog fits into it.
    #[inline]
    pub(crate) fn fits(self, backlog: Count) -> bool {
        backlog.packets <= self.packets.into() && backlog.bytes <= self.bytes.into()
    }

    pub(crate) fn count(self) -> Count {
        Count {
            packets: self.packets.into(),
            bytes: self.bytes.into(),
        }
    }
}

/// How packets and bytes compare, in one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    /// Bytes that there are for each packet.
    per_packet: u64,
}

impl Measure {
    /// Returns the measure of a link of this capacity.
    pub(crate) fn of(packets: u32, bytes: u64) -> Measure {
        Measure {
            per_packet: (bytes / u64::from(packets.max(1))).clamp(1, u32::MAX.into()),
        }
    }

    /// Converts a number of packets to bytes.
    pub(crate) fn bytes(self, packets: u64) -> u64 {
        packets * self.per_packet
    }

    /// Returns the excess of a holder over its own room, in bytes; 0 if it is within it.
    #[inline]
    pub(crate) fn beyond(self, held: Count, own: Room) -> u64 {
        let packets = held.packets.saturating_sub(own.packets.into());
        let bytes = held.bytes.saturating_sub(own.bytes.into());
        self.bytes(packets).max(bytes)
    }
}

/// No place in the heap.
const NOWHERE: u32 = u32::MAX;

/// Children of a heap entry.
const ARITY: usize = 4;

/// Holders, by an upper bound of their excess over their own room: the largest first. Holders are small numbers. One
/// that is not in it has no excess.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beyond {
    heap: Vec<(u64, u32)>,
    /// Where a holder is in the heap.
    places: Vec<u32>,
}

impl Beyond {
    /// The holder has up to `bound` beyond its own from now on. O(1), or O(log holders) if that
    /// is more than was known.
    #[inline]
    pub(crate) fn raise(&mut self, holder: u32, bound: u64) {
        if bound > self.bound(holder) {
            self.put(holder, bound);
        }
    }

    #[inline(never)]
    fn put(&mut self, holder: u32, bound: u64) {
        let at = holder as usize;
        while self.places.len() <= at {
            grow::push(&mut self.places, NOWHERE);
        }
        let hole = match self.places[at] {
            NOWHERE => {
                grow::push(&mut self.heap, (bound, holder));
                self.heap.len() - 1
            }
            place => place as usize,
        };
        self.rise(hole, (bound, holder));
    }

    /// Returns the recorded bound of a holder; 0 if it is within its own room.
    #[inline]
    pub(crate) fn bound(&self, holder: u32) -> u64 {
        let place = self.places.get(holder as usize).copied();
        let entry = self.heap.get(place.unwrap_or(NOWHERE) as usize);
        entry.map_or(0, |&(bound, _)| bound)
    }

    /// The holder holds nothing any more.
    pub(crate) fn remove(&mut self, holder: u32) {
        let place = self.places.get(holder as usize).copied();
        if let Some(hole) = place.filter(|&place| place != NOWHERE) {
            self.take_out(hole as usize);
        }
    }

    /// Returns the holder with the largest excess, and that excess. `exact` returns the excess of a holder, at most its
    /// recorded bound; the result becomes the bound.
    pub(crate) fn most(&mut self, mut exact: impl FnMut(u32) -> u64) -> Option<(u32, u64)> {
        loop {
            let &(bound, holder) = self.heap.first()?;
            let now = exact(holder);
            debug_assert!(now <= bound, "{holder} holds {now}, more than {bound}");
            match now {
                0 => self.take_out(0),
                _ if now >= bound => return Some((holder, now)),
                _ => self.sink(0, (now, holder)),
            }
        }
    }

    fn take_out(&mut self, hole: usize) {
        let Some(last) = self.heap.pop() else { return };
        match self.heap.get(hole) {
            Some(&(_, gone)) => {
                self.places[gone as usize] = NOWHERE;
                self.sink(hole, last);
                let place = self.places[last.1 as usize] as usize;
                self.rise(place, last);
            }
            None => self.places[last.1 as usize] = NOWHERE,
        }
    }

    fn place(&mut self, hole: usize, entry: (u64, u32)) {
        self.heap[hole] = entry;
        self.places[entry.1 as usize] = hole as u32;
    }

    fn rise(&mut self, mut hole: usize, entry: (u64, u32)) {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            let above = self.heap[parent];
            if above.0 >= entry.0 {
                break;
            }
            self.place(hole, above);
            hole = parent;
        }
        self.place(hole, entry);
    }

    fn sink(&mut self, mut hole: usize, entry: (u64, u32)) {
        loop {
            let first = ARITY * hole + 1;
            let children = self.heap.iter().enumerate().skip(first).take(ARITY);
            match children.max_by_key(|(_, child)| child.0) {
                Some((n, &child)) if child.0 > entry.0 => {
                    self.place(hole, child);
                    hole = n;
                }
                _ => return self.place(hole, entry),
            }
        }
    }

    /// Returns whether the heap order holds and each place in it is recorded.
    pub(crate) fn is_sound(&self) -> bool {
        let mut entries = self.heap.iter().enumerate();
        let listed = self.places.iter().filter(|&&place| place != NOWHERE);
        listed.count() == self.heap.len()
            && entries.all(|(n, &(bound, holder))| {
                bound > 0
                    && bound <= self.heap[n.saturating_sub(1) / ARITY].0
                    && self.places[holder as usize] == n as u32
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_is_the_flow_with_the_largest_excess() {
        let mut state = 7u64;
        let mut below = |end: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % end
        };
        for holders in [1, 2, 5, 40] {
            let mut beyond = Beyond::default();
            let mut held = alloc::vec![0u64; holders];
            for _ in 0..5_000 {
                let holder = below(holders as u64) as usize;
                match below(4) {
                    0 => held[holder] /= 2,
                    1 => {
                        held[holder] = 0;
                        beyond.remove(holder as u32);
                    }
                    _ => {
                        held[holder] += 1 + below(9);
                        // Often by more than it is.
                        let bound = held[holder] + below(3) * 5;
                        beyond.raise(holder as u32, bound);
                    }
                }
                assert!(beyond.is_sound());
                if below(3) == 0 {
                    let most = beyond.most(|holder| held[holder as usize]);
                    let expected = held.iter().copied().max().filter(|&most| most > 0);
                    assert_eq!(most.map(|(_, most)| most), expected);
                    if let Some((holder, most)) = most {
                        assert_eq!(held[holder as usize], most);
                        assert_eq!(beyond.bound(holder), most);
                    }
                    assert!(beyond.is_sound());
                }
            }
        }
    }

    #[test]
    fn packets_and_bytes_compare_by_what_there_is_of_each() {
        let measure = Measure::of(100, 150_000);
        let own = Room {
            packets: 10,
            bytes: 15_000,
        };
        let held = |packets, bytes| Count { packets, bytes };
        assert_eq!(measure.beyond(held(10, 15_000), own), 0);
        assert_eq!(measure.beyond(held(11, 15_000), own), 1_500);
        assert_eq!(measure.beyond(held(10, 15_001), own), 1);
        assert_eq!(measure.beyond(held(11, 20_000), own), 5_000);
        assert_eq!(measure.beyond(held(1, 1), Room::NONE), 1_500);
    }

    #[test]
    fn room_is_for_as_many_as_both_of_its_parts_are() {
        let room = |packets, bytes| Room { packets, bytes };
        assert_eq!(room(100, 1000).divided_by(room(10, 50)), 10);
        assert_eq!(room(100, 1000).divided_by(room(10, 200)), 5);
        assert_eq!(room(100, 1000).divided_by(Room::NONE), 0);
        assert_eq!(Room::NONE.divided_by(room(1, 1)), 0);
    }
}
