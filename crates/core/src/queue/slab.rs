//! The slab all packets of a scheduler live in.

use crate::size::Size;
use crate::units::Length;
use alloc::vec::Vec;
use core::fmt;

/// No packet.
pub(super) const NIL: u32 = u32::MAX;

#[derive(Clone)]
struct Slot<P, L = Length> {
    /// Next packet of the same list, or next free slot.
    next: u32,
    /// Of no meaning in a free slot. A length has two bytes, so that a slot without a payload of its
    /// own takes eight, and as many more of them fit the cache.
    len: L,
    /// `None` only in a free slot.
    payload: Option<P>,
}

const _: () = assert!(size_of::<Slot<()>>() == 8);
const _: () = assert!(size_of::<Slot<u64>>() - size_of::<u64>() <= 16);
const _: () = assert!(size_of::<Slot<alloc::boxed::Box<u8>>>() == 16);

/// A packet that is in the slab and in no list yet.
#[must_use]
pub(crate) struct Stored(pub(super) u32);

/// A free slot: the next one to be filled.
pub(crate) struct Vacant<'a, P, L = Length> {
    slot: &'a mut Slot<P, L>,
    free: &'a mut u32,
    stored: &'a mut u64,
}

impl<P, L> Vacant<'_, P, L> {
    /// Stores a packet there.
    #[inline(always)]
    pub(crate) fn fill(self, len: L, payload: P) -> Stored {
        let index = core::mem::replace(self.free, self.slot.next);
        self.slot.next = NIL;
        self.slot.len = len;
        // A free slot has nothing that would have to be dropped.
        core::mem::forget(self.slot.payload.replace(payload));
        *self.stored += 1;
        Stored(index)
    }
}

/// The successor of a packet that was removed.
pub(super) struct Behind<'a, P, L = Length> {
    slots: &'a [Slot<P, L>],
    pub(super) next: u32,
}

impl<P, L: Copy> Behind<'_, P, L> {
    /// Returns its length, if there is one.
    #[inline(always)]
    pub(super) fn length(&self) -> Option<L> {
        let slot = self.slots.get(self.next as usize)?;
        Some(slot.len)
    }
}

/// Packets by 32-bit index, at most `limit` of them.
///
/// Slots are reused last in, first out, so that a short queue stays in the cache.
/// The slab grows as needed and never shrinks: it allocates only while the number
/// of packets queued at once reaches a new height.
#[derive(Clone)]
pub struct PacketSlab<P, L = Length> {
    slots: Vec<Slot<P, L>>,
    free: u32,
    limit: u32,
    stored: u64,
    taken: u64,
}

impl<P, L: Size> PacketSlab<P, L> {
    /// Creates a slab for at most `limit` packets; at least one, at most 2^32 - 1.
    pub fn new(limit: u32) -> Self {
        PacketSlab {
            slots: Vec::new(),
            free: NIL,
            limit: limit.max(1),
            stored: 0,
            taken: 0,
        }
    }

    /// Makes room for `packets` ahead of time, up to the limit.
    pub fn reserve(&mut self, packets: u32) {
        let wanted = packets.min(self.limit) as usize;
        self.slots
            .reserve_exact(wanted.saturating_sub(self.slots.len()));
    }

    /// Packets held.
    #[inline]
    pub fn len(&self) -> u32 {
        (self.stored - self.taken) as u32
    }

    /// Returns whether no packet is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packets that it would take now.
    #[inline]
    pub fn room(&self) -> u32 {
        self.limit.saturating_sub(self.len())
    }

    /// Packets ever stored.
    #[inline]
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// Stores a packet, or hands it back at the limit. O(1) amortised.
    // As part of whatever takes a packet in: the call would cost as much again.
    #[inline(always)]
    pub(crate) fn insert(&mut self, len: L, payload: P) -> Result<Stored, P> {
        match self.make_vacant() {
            Some(vacant) => Ok(vacant.fill(len, payload)),
            None => Err(payload),
        }
    }

    /// A free slot, if there is one without growing.
    #[inline(always)]
    pub(crate) fn vacant(&mut self) -> Option<Vacant<'_, P, L>> {
        let slot = self.slots.get_mut(self.free as usize)?;
        Some(Vacant {
            slot,
            free: &mut self.free,
            stored: &mut self.stored,
        })
    }

    /// A free slot, for which the slab grows if it must; `None` at the limit. O(1) amortised.
    #[inline(always)]
    pub(crate) fn make_vacant(&mut self) -> Option<Vacant<'_, P, L>> {
        if self.free as usize >= self.slots.len() && !self.grow() {
            return None;
        }
        self.vacant()
    }

    /// Adds a free slot, unless the limit is reached.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let index = self.slots.len() as u32;
        if index >= self.limit {
            return false;
        }
        self.slots.push(Slot {
            next: NIL,
            len: L::LARGEST,
            payload: None,
        });
        self.free = index;
        true
    }

    /// Takes a packet out that is in no list.
    #[inline(always)]
    pub(crate) fn remove(&mut self, stored: Stored) -> Option<P> {
        self.take(stored.0).map(|(_, payload, _)| payload)
    }

    /// A packet that is in no list, to change.
    #[inline]
    pub(crate) fn payload_mut(&mut self, stored: &Stored) -> Option<&mut P> {
        self.slots.get_mut(stored.0 as usize)?.payload.as_mut()
    }

    /// Removes the packet at `index`: returns its length, its payload and its successor.
    #[inline(always)]
    pub(super) fn take(&mut self, index: u32) -> Option<(L, P, Behind<'_, P, L>)> {
        let slots = self.slots.as_mut_slice();
        let slot = slots.get_mut(index as usize)?;
        slot.payload.as_ref()?;
        let payload = slot.payload.take()?;
        let (len, next) = (slot.len, slot.next);
        slot.next = self.free;
        self.free = index;
        self.taken += 1;
        Some((len, payload, Behind { slots, next }))
    }

    /// Puts a packet behind the one at `index`, if there is one.
    #[inline]
    pub(super) fn set_next(&mut self, index: u32, next: u32) -> bool {
        let slot = self.slots.get_mut(index as usize);
        slot.map(|slot| slot.next = next).is_some()
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<(L, &P, u32)> {
        let slot = self.slots.get(index as usize)?;
        Some((slot.len, slot.payload.as_ref()?, slot.next))
    }

    /// Length of the packet at `index`, which must be in a list.
    #[inline]
    pub(super) fn length(&self, index: u32) -> Option<L> {
        self.slots.get(index as usize).map(|slot| slot.len)
    }
}

impl<P> fmt::Debug for PacketSlab<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketSlab")
            .field("len", &self.len())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;

    const LEN: Length = Length::MAX;

    fn put<P>(slab: &mut PacketSlab<P>, payload: P) -> Option<u32> {
        slab.insert(LEN, payload).ok().map(|stored| stored.0)
    }

    #[test]
    fn slots_are_reused_last_in_first_out_before_the_slab_grows() {
        let mut slab = PacketSlab::new(10);
        for index in 0..4 {
            assert_eq!(put(&mut slab, 'a'), Some(index));
        }
        for index in [1, 3, 0] {
            assert!(slab.take(index).is_some());
        }
        for index in [0, 3, 1, 4] {
            assert_eq!(put(&mut slab, 'b'), Some(index));
        }
        assert_eq!((slab.len(), slab.stored()), (5, 8));
    }

    #[test]
    fn a_slab_holds_its_limit_and_hands_back_one_more() {
        for (limit, room) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
            let mut slab = PacketSlab::new(limit);
            for _ in 0..3 {
                for n in 0..room {
                    assert_eq!(put(&mut slab, Box::new(n)), Some(n));
                }
                let refused = slab.insert(LEN, Box::new(77)).err();
                assert_eq!(refused.as_deref(), Some(&77));
                assert_eq!(slab.len(), room);
                for n in (0..room).rev() {
                    let (len, payload, _) = slab.take(n).unwrap();
                    assert_eq!((len, *payload), (LEN, n));
                }
                assert!(slab.is_empty());
            }
            assert_eq!(slab.stored(), 3 * u64::from(room));
        }
    }

    #[test]
    fn a_slab_grows_to_the_most_that_was_held_at_once() {
        let mut slab = PacketSlab::new(1000);
        for round in 0..100 {
            let held: [Option<u32>; 6] =
                core::array::from_fn(|n| (n < round % 7).then(|| put(&mut slab, n))?);
            for index in held.into_iter().flatten() {
                assert!(slab.take(index).is_some());
            }
        }
        assert_eq!(slab.slots.len(), 6);
    }

    #[test]
    fn room_is_reserved_up_to_the_limit() {
        let mut slab: PacketSlab<u64> = PacketSlab::new(64);
        slab.reserve(10);
        assert!((10..64).contains(&slab.slots.capacity()));
        slab.reserve(u32::MAX);
        let reserved = slab.slots.capacity();
        assert!((64..1000).contains(&reserved));
        while put(&mut slab, 1).is_some() {}
        assert_eq!((slab.len(), slab.slots.capacity()), (64, reserved));
    }

    #[test]
    fn a_free_slot_and_an_index_that_is_none_hold_nothing() {
        let mut slab = PacketSlab::new(4);
        put(&mut slab, 1);
        assert!(slab.take(0).is_some());
        for index in [0, 1, NIL] {
            assert!(slab.take(index).is_none() && slab.get(index).is_none());
        }
        assert_eq!(slab.len(), 0);
    }
}
