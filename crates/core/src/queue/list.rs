//! A first-in, first-out list of packets in a slab.

use super::slab::{Behind, NIL, PacketSlab, Stored};
use crate::size::Size;
use crate::units::Length;

/// A list of packets, in eight bytes: it names slots of one [`PacketSlab`], the
/// same one at every call. Without packets it names none, neither as the first nor as the last.
#[derive(Clone, Copy, Debug)]
pub struct PacketList {
    head: u32,
    tail: u32,
}

impl Default for PacketList {
    fn default() -> Self {
        PacketList {
            head: NIL,
            tail: NIL,
        }
    }
}

/// The rest of a list whose first packet was removed.
#[must_use = "a list without packets has no last one, as length() says"]
pub(crate) struct Rest<'a, P, L = Length> {
    behind: Behind<'a, P, L>,
    tail: &'a mut u32,
}

impl<P, L: Size> Rest<'_, P, L> {
    /// Returns the length of the packet that is now first, if there is one. As late as can be, so that whether there is
    /// one is decided once.
    #[inline(always)]
    pub(crate) fn length(self) -> Option<L> {
        let length = self.behind.length();
        if length.is_none() {
            *self.tail = NIL;
        }
        length
    }
}

impl PacketList {
    /// Returns whether the list holds no packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Appends a packet, or hands it back at the slab's limit. O(1) amortised;
    /// touches the new slot and the last one.
    #[inline]
    pub fn push_back<P, L: Size>(
        &mut self,
        slab: &mut PacketSlab<P, L>,
        len: L,
        payload: P,
    ) -> Result<(), P> {
        let stored = slab.insert(len, payload)?;
        self.append(slab, stored);
        Ok(())
    }

    /// Appends a packet that is in the slab; whether the list was empty before.
    #[inline]
    pub(crate) fn append<P, L: Size>(
        &mut self,
        slab: &mut PacketSlab<P, L>,
        stored: Stored,
    ) -> bool {
        // One look finds the last packet, and whether there is one.
        let was_empty = !slab.set_next(self.tail, stored.0);
        if was_empty {
            self.head = stored.0;
        }
        self.tail = stored.0;
        was_empty
    }

    /// Takes the first packet, which is the caller's from then on. O(1).
    #[inline]
    pub fn pop_front<P, L: Size>(&mut self, slab: &mut PacketSlab<P, L>) -> Option<(L, P)> {
        let (len, payload, rest) = self.advance(slab)?;
        rest.length();
        Some((len, payload))
    }

    /// Removes the first packet as [`pop_front`](Self::pop_front) does; the rest that it returns gives the length of
    /// the new first packet. O(1).
    #[inline(always)]
    pub(crate) fn advance<'a, P, L: Size>(
        &'a mut self,
        slab: &'a mut PacketSlab<P, L>,
    ) -> Option<(L, P, Rest<'a, P, L>)> {
        let (len, payload, behind) = slab.take(self.head)?;
        self.head = behind.next;
        let tail = &mut self.tail;
        Some((len, payload, Rest { behind, tail }))
    }

    /// Takes the first packet out of the list; it stays in the slab, to be
    /// [removed](PacketSlab::remove). O(1).
    #[inline]
    pub(crate) fn detach<'a, P, L: Size>(
        &mut self,
        slab: &'a PacketSlab<P, L>,
    ) -> Option<(Stored, L, &'a P)> {
        let (len, payload, next) = slab.get(self.head)?;
        let stored = Stored(core::mem::replace(&mut self.head, next));
        if next == NIL {
            self.tail = NIL;
        }
        Some((stored, len, payload))
    }

    /// Removes the packet behind the first, if there is one; the first stays in place. O(1).
    #[inline]
    pub fn pop_second<P, L: Size>(&mut self, slab: &mut PacketSlab<P, L>) -> Option<(L, P)> {
        let (_, _, second) = slab.get(self.head)?;
        let (len, payload, behind) = slab.take(second)?;
        let next = behind.next;
        slab.set_next(self.head, next);
        if next == NIL {
            self.tail = self.head;
        }
        Some((len, payload))
    }

    /// Returns the first packet, left where it is. O(1).
    #[inline]
    pub fn front<'a, P, L: Size>(&self, slab: &'a PacketSlab<P, L>) -> Option<(L, &'a P)> {
        slab.get(self.head).map(|(len, payload, _)| (len, payload))
    }

    /// Length of the first packet. O(1).
    #[inline]
    pub fn front_length<P, L: Size>(&self, slab: &PacketSlab<P, L>) -> Option<L> {
        slab.length(self.head)
    }

    /// Returns the packets from first to last.
    pub fn iter<'a, P, L: Size>(
        &self,
        slab: &'a PacketSlab<P, L>,
    ) -> impl Iterator<Item = (L, &'a P)> {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let (len, payload, next) = slab.get(at)?;
            at = next;
            Some((len, payload))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn length(bytes: u32) -> Length {
        Length::new(bytes).unwrap()
    }

    /// The list's packets, as it lists them and as it gives them out.
    fn drain(list: &mut PacketList, slab: &mut PacketSlab<u32>) -> Vec<u32> {
        let listed: Vec<u32> = list.iter(slab).map(|(_, &payload)| payload).collect();
        for &expected in &listed {
            let front = list.front(slab).map(|(len, &payload)| (len, payload));
            assert_eq!(front, Some((length(expected + 1), expected)));
            assert_eq!(list.front_length(slab), Some(length(expected + 1)));
            assert_eq!(list.pop_front(slab), front);
        }
        assert!(list.is_empty());
        assert_eq!(list.pop_front(slab), None);
        assert_eq!((list.front(slab), list.front_length(slab)), (None, None));
        listed
    }

    #[test]
    fn packets_leave_a_list_in_the_order_they_came() {
        let mut slab = PacketSlab::new(100);
        let mut lists = [PacketList::default(); 3];
        // Several lists, filled and emptied time and again, share the slots.
        for round in 0..20 {
            for n in 0..30 {
                let list = &mut lists[(n + round) as usize % 3];
                list.push_back(&mut slab, length(n + 1), n).unwrap();
            }
            for at in [1, 0, 2] {
                let residue = (at + 60 - round) % 3;
                let expected: Vec<u32> = (0..30).filter(|n| n % 3 == residue).collect();
                assert_eq!(drain(&mut lists[at as usize], &mut slab), expected);
            }
            assert!(slab.is_empty());
        }
    }

    #[test]
    fn the_second_packet_leaves_the_others_in_order() {
        let mut slab = PacketSlab::new(100);
        let mut list = PacketList::default();
        assert_eq!(list.pop_second(&mut slab), None);
        for n in 0..4 {
            list.push_back(&mut slab, length(n + 1), n).unwrap();
        }
        assert_eq!(list.pop_second(&mut slab), Some((length(2), 1)));
        assert_eq!(list.pop_second(&mut slab), Some((length(3), 2)));
        assert_eq!(list.pop_second(&mut slab), Some((length(4), 3)));
        assert_eq!(list.pop_second(&mut slab), None);
        // Later packets are behind the one that is left.
        list.push_back(&mut slab, length(8), 7).unwrap();
        assert_eq!(drain(&mut list, &mut slab), [0, 7]);
    }

    #[test]
    fn a_detached_packet_is_in_no_list_and_keeps_its_slot_until_it_is_removed() {
        let mut slab = PacketSlab::new(2);
        let mut list = PacketList::default();
        for n in 0..2 {
            list.push_back(&mut slab, length(n + 1), n).unwrap();
        }
        let (first, len, &payload) = list.detach(&slab).unwrap();
        assert_eq!((len, payload), (length(1), 0));
        assert_eq!(list.push_back(&mut slab, length(9), 9), Err(9));
        *slab.payload_mut(&first).unwrap() = 7;
        assert_eq!((slab.remove(first), slab.len()), (Some(7), 1));
        // The last one too leaves a list to which others can come.
        let (second, ..) = list.detach(&slab).unwrap();
        assert!(list.is_empty() && list.detach(&slab).is_none());
        assert_eq!(list.push_back(&mut slab, length(4), 3), Ok(()));
        assert_eq!(slab.remove(second), Some(1));
        assert_eq!(drain(&mut list, &mut slab), [3]);
    }

    #[test]
    fn a_list_at_the_slabs_limit_stays_as_it_was() {
        let mut slab = PacketSlab::new(2);
        let (mut full, mut empty) = (PacketList::default(), PacketList::default());
        for n in 0..2 {
            full.push_back(&mut slab, length(n + 1), n).unwrap();
        }
        assert_eq!(full.push_back(&mut slab, length(9), 9), Err(9));
        assert_eq!(empty.push_back(&mut slab, length(9), 9), Err(9));
        assert!(empty.is_empty());
        assert_eq!(drain(&mut full, &mut slab), [0, 1]);
        assert_eq!(empty.push_back(&mut slab, length(1), 0), Ok(()));
    }
}
