//! A first-in, first-out list of packets in a slab.

use super::slab::{NIL, PacketSlab, Stored};
use crate::units::Length;

/// A list of packets, in eight bytes: it names slots of one [`PacketSlab`], the
/// same one at every call.
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

impl PacketList {
    /// Whether the list holds no packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Appends a packet, or hands it back at the slab's limit. O(1) amortised;
    /// touches the new slot and the last one.
    #[inline]
    pub fn push_back<P>(
        &mut self,
        slab: &mut PacketSlab<P>,
        len: Length,
        payload: P,
    ) -> Result<(), P> {
        let stored = slab.insert(len, payload)?;
        self.append(slab, stored);
        Ok(())
    }

    /// Appends a packet that is in the slab; whether the list was empty before.
    #[inline]
    pub(crate) fn append<P>(&mut self, slab: &mut PacketSlab<P>, stored: Stored) -> bool {
        let was_empty = self.head == NIL;
        if was_empty {
            self.head = stored.0;
        } else {
            slab.set_next(self.tail, stored.0);
        }
        self.tail = stored.0;
        was_empty
    }

    /// Takes the first packet, which is the caller's from then on. O(1).
    #[inline]
    pub fn pop_front<P>(&mut self, slab: &mut PacketSlab<P>) -> Option<(Length, P)> {
        let (len, payload, next) = slab.take(self.head)?;
        self.head = next;
        Some((len, payload))
    }

    /// The first packet, left where it is. O(1).
    #[inline]
    pub fn front<'a, P>(&self, slab: &'a PacketSlab<P>) -> Option<(Length, &'a P)> {
        slab.get(self.head).map(|(len, payload, _)| (len, payload))
    }

    /// Length of the first packet. O(1).
    #[inline]
    pub fn front_length<P>(&self, slab: &PacketSlab<P>) -> Option<Length> {
        slab.length(self.head)
    }

    /// The packets from first to last.
    pub fn iter<'a, P>(&self, slab: &'a PacketSlab<P>) -> impl Iterator<Item = (Length, &'a P)> {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let (len, payload, next) = slab.get(at)?;
            at = next;
            Some((len, payload))
        })
    }
}
