//! The slab all packets of a scheduler live in.

use crate::units::Length;
use alloc::vec::Vec;

/// No packet.
pub(super) const NIL: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Slot<P> {
    /// Next packet of the same list, or next free slot.
    next: u32,
    /// `None` only in a free slot.
    len: Option<Length>,
    payload: Option<P>,
}

const _: () = assert!(size_of::<Slot<u64>>() - size_of::<u64>() <= 16);
const _: () = assert!(size_of::<Slot<alloc::boxed::Box<u8>>>() == 16);

/// Packets by 32-bit index, at most `limit` of them.
///
/// Slots are reused last in, first out, so that a short queue stays in the cache.
/// The slab grows as needed and never shrinks: it allocates only while the number
/// of packets queued at once reaches a new height.
#[derive(Clone, Debug)]
pub struct PacketSlab<P> {
    slots: Vec<Slot<P>>,
    free: u32,
    len: u32,
    limit: u32,
}

/// A slab that holds its limit of packets hands the next one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabFull<P>(pub P);

impl<P> PacketSlab<P> {
    /// A slab for at most `limit` packets; at least one, at most 2^32 - 1.
    pub fn new(limit: u32) -> Self {
        PacketSlab {
            slots: Vec::new(),
            free: NIL,
            len: 0,
            limit: limit.max(1),
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
        self.len
    }

    /// Whether no packet is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most packets that can be held.
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the limit; packets beyond a lowered limit stay until they leave.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit.max(1);
    }

    /// Stores a packet, or hands it back. O(1) amortised; one cache line.
    #[inline]
    pub(super) fn insert(&mut self, len: Length, payload: P) -> Result<u32, SlabFull<P>> {
        if self.len >= self.limit {
            return Err(SlabFull(payload));
        }
        let index = self.free;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            self.free = slot.next;
            *slot = Slot {
                next: NIL,
                len: Some(len),
                payload: Some(payload),
            };
            self.len += 1;
            Ok(index)
        } else {
            Ok(self.grow(len, payload))
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, len: Length, payload: P) -> u32 {
        let index = self.slots.len() as u32;
        self.slots.push(Slot {
            next: NIL,
            len: Some(len),
            payload: Some(payload),
        });
        self.len += 1;
        index
    }

    /// Takes the packet at `index` out: its length, payload and successor.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> Option<(Length, P, u32)> {
        let slot = self.slots.get_mut(index as usize)?;
        let payload = slot.payload.take()?;
        let len = slot.len.take()?;
        let next = slot.next;
        slot.next = self.free;
        self.free = index;
        self.len -= 1;
        Some((len, payload, next))
    }

    #[inline]
    pub(super) fn set_next(&mut self, index: u32, next: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.next = next;
        }
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<(Length, &P, u32)> {
        let slot = self.slots.get(index as usize)?;
        Some((slot.len?, slot.payload.as_ref()?, slot.next))
    }

    #[inline]
    pub(super) fn length(&self, index: u32) -> Option<Length> {
        self.slots.get(index as usize)?.len
    }
}
